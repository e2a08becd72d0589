/* failures.c -- published rates, a row each, and the sum of what a cluster states. */
#include "sim/bill/failures.h"

#include <stddef.h>
#include <strings.h>

/* Llama 3's table 5: GPU 268 (faulty 148, HBM3 72, SRAM 19, system processor 17, silent corruption 6, thermal interface 6); node 53 (host
 * maintenance 32, adapter 7, SSD 3, power supply 3, chassis 2, IO board 2, CPU 2, memory 2); switches and cables 35; the rest 63 (software bugs
 * 54, dependencies 2, NCCL watchdog 7).
 *
 * No row for want of a rate: MegaScale (arXiv 2402.15627) states over 100 repairs of a run on more than 10,000 GPUs in "several weeks", without
 * their number; ByteRobust (2509.16293) an effective time; Lablup (2605.09370) 10 failed GPUs of 504 in 55 days, which leaves out all else. */
static const struct failure_rate rates[] = {
    { "llama3", "Llama 3 405B on 16,384 H100: 419 unexpected interruptions in 54 days", 419, 16384, 54, 0.78,
      "The Llama 3 Herd of Models (arXiv 2407.21783), table 5",
      { [FAILED_GPU] = 268, [FAILED_NODE] = 53, [FAILED_NETWORK] = 35, [FAILED_OTHER] = 63 } },
    { "opt-175b", "OPT-175B on 992 A100: 35 manual and an estimated 70 automatic restarts for hardware in two months", 105, 992, 61, 1,
      "OPT (arXiv 2205.01068)", { [FAILED_ANY] = 105 } },
    { "bloom", "BLOOM on 384 A100: one to two failed GPUs a week", 1.5, 384, 7, 1, "BLOOM (arXiv 2211.05100)", { [FAILED_GPU] = 1.5 } },
    { "rsc-1", "Meta's RSC-1, A100, 11 months of jobs: 6.50 failures in 1,000 node-days", 6.5, 8000, 1, 1,
      "Kokolis et al., Revisiting Reliability (arXiv 2410.21680)", { [FAILED_ANY] = 6.5 } },
    { "rsc-2", "Meta's RSC-2, A100, 11 months of jobs: 2.34 failures in 1,000 node-days", 2.34, 8000, 1, 1,
      "Kokolis et al., Revisiting Reliability (arXiv 2410.21680)", { [FAILED_ANY] = 2.34 } },
};

static const struct { const char *name, *words; } causes[FAILURE_CAUSES] = {
    [FAILED_GPU] = { "gpu", "GPUs and their memory" },
    [FAILED_NODE] = { "node", "nodes" },
    [FAILED_NETWORK] = { "network", "network" },
    [FAILED_OTHER] = { "other", "software and unknown" },
    [FAILED_ANY] = { "any", "cause not stated" },
};

const char *failure_cause_words(enum failure_cause cause) { return causes[cause].words; }
const char *failure_cause_name(enum failure_cause cause)  { return causes[cause].name; }

const struct failure_rate *failure_rate_at(int i)
{
    return i >= 0 && i < (int)(sizeof rates / sizeof *rates) ? &rates[i] : NULL;
}

const struct failure_rate *failure_rate_find(const char *name)
{
    const struct failure_rate *r;

    for (int i = 0; (r = failure_rate_at(i)); i++)
        if (strcasecmp(r->name, name) == 0)
            return r;
    return NULL;
}

double failure_rate_mtbf(const struct failure_rate *r) { return r->days * 86400 * r->gpus / r->interruptions; }

static double per(double seconds) { return seconds > 0 ? 1 / seconds : 0; }

double failures_per_s(const struct failures *f, int64_t gpus, int64_t nodes, double by[FAILURE_CAUSES])
{
    double sum = 0, all = (double)gpus * per(f->all_s);

    for (int i = 0; i < FAILURE_CAUSES; i++)
        by[i] = f->published ? all * f->published->by[i] / f->published->interruptions : 0;
    by[FAILED_ANY] += f->published ? 0 : all;
    by[FAILED_GPU] += (double)gpus * per(f->gpu_s);
    by[FAILED_NODE] += (double)nodes * per(f->node_s);
    by[FAILED_NETWORK] += nodes > 1 ? per(f->network_s) : 0;
    for (int i = 0; i < FAILURE_CAUSES; i++)
        sum += by[i];
    return sum;
}

double failures_take_node(const struct failures *f, const double by[FAILURE_CAUSES])
{
    double sum = 0;

    for (int i = 0; i < FAILURE_CAUSES; i++)
        sum += by[i];
    if (f->published && f->published->hardware >= 0)
        return f->published->hardware;
    return sum > 0 ? (by[FAILED_GPU] + by[FAILED_NODE] + by[FAILED_ANY]) / sum : 1;
}
