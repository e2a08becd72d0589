/* failures.c -- published rates, a row each. */
#include "sim/bill/failures.h"

#include <stddef.h>
#include <strings.h>

static const struct failure_rate rates[] = {
    { "llama3", "Llama 3 405B on 16,384 H100: 419 unexpected interruptions in 54 days", 419, 16384, 54, 0.78,
      "The Llama 3 Herd of Models (arXiv 2407.21783), table 5" },
    { "opt-175b", "OPT-175B on 992 A100: 35 manual and an estimated 70 automatic restarts for hardware in two months", 105, 992, 61, 1,
      "OPT (arXiv 2205.01068)" },
    { "bloom", "BLOOM on 384 A100: one to two failed GPUs a week", 1.5, 384, 7, 1, "BLOOM (arXiv 2211.05100)" },
    { "rsc-1", "Meta's RSC-1, A100, 11 months of jobs: 6.50 failures in 1,000 node-days", 6.5, 8000, 1, 1,
      "Kokolis et al., Revisiting Reliability (arXiv 2410.21680)" },
    { "rsc-2", "Meta's RSC-2, A100, 11 months of jobs: 2.34 failures in 1,000 node-days", 2.34, 8000, 1, 1,
      "Kokolis et al., Revisiting Reliability (arXiv 2410.21680)" },
};

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
