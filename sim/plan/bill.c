/* bill.c -- from a plan to a run of weeks. */
#include "sim/plan/bill.h"

#include <inttypes.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/duration.h"
#include "base/fail.h"
#include "sim/plan/bill_beside.h"
#include "sim/plan/bill_failures.h"
#include "sim/plan/commands.h"

/* Until ranks start again: MegaScale (arXiv 2402.15627) detects and diagnoses in less than 10 minutes on average. */
#define RECOVER 600.0
/* A run that takes that many times what it takes undisturbed is said not to end. */
#define ENDLESS 100
/* Runs for the interval: the 5th of 400 is known to within the 3rd and 7th percentile. */
enum { RUNS = 400, MOST_INTERRUPTIONS = 20000000 };

/* ---- what was asked ---- */

/* "200GBps", "200GB", "200G", "200": the number and the first letter say what is meant. */
static int not_a_rate(const char *what, const char *text)
{
    size_t n = strspn(text, "0123456789."), at = n + strspn(text + n, " ");
    char letter = text[at] ? (char)toupper((unsigned char)text[at]) : 'G';

    if (n == 0 || n > 20 || !strchr("MGT", letter) || strstr(text, "bit") || strchr(text, 'b'))
        return fail("%s: \"%.40s\" is not a rate; write it as 200GB/s or 400Gbit/s", what, text);
    return fail("%s: \"%.40s\" is not a rate; did you mean %.*s%cB/s?", what, text, (int)n, text, letter);
}

/* "200GB/s", "400Gbit/s".  Gb/s is refused: people write it for both. */
static int read_rate(const char *what, const char *text, double *out)
{
    size_t n = strlen(text), bits;
    char size[64];
    int64_t bytes;

    if (n < 3 || n >= sizeof size || strcmp(text + n - 2, "/s") != 0)
        return not_a_rate(what, text);
    snprintf(size, sizeof size, "%.*s", (int)n - 2, text);
    n -= 2;
    bits = n > 3 && strcasecmp(size + n - 3, "bit") == 0 ? 8 : 1;
    if (bits == 1 && size[n - 1] == 'b' && n > 1 && !strchr("0123456789. ", size[n - 2]))
        return fail("%s: %s: bits or bytes? write GB/s for bytes, Gbit/s for bits", what, text);
    if (bits == 8)
        snprintf(size + n - 3, sizeof size - (n - 3), "B");
    if (size_parse(what, size, &bytes) < 0)
        return -1;
    *out = (double)bytes / (double)bits;
    return bytes >= MEMORY_LEAST ? 0 : fail("%s: %s is below 1MB/s", what, text);
}

static int read_storage(const struct bill_asked *a, const struct plan *p, struct storage *out)
{
    const struct cluster_runs *stated = &p->cluster.runs;

    *out = (struct storage){ 0 };
    if (!a->storage && !a->storage_node)
        *out = (struct storage){ stated->storage, stated->storage_node };
    if (a->storage_node && read_rate("--storage-node", a->storage_node, &out->node) < 0)
        return -1;
    if (!a->storage)
        return 0;
    if (strcmp(a->storage, "disk") != 0)
        return read_rate("--storage", a->storage, &out->shared);
    if (!(p->cluster.node.disk_write > 0))
        return fail("--storage disk: what a node's disks write is not known of this cluster; set cluster.node.disk_write_gb_per_s");
    out->node = out->node > 0 && out->node < p->cluster.node.disk_write ? out->node : p->cluster.node.disk_write;
    return 0;
}

/* How often the job is interrupted, in all and by cause. */
static int find_failures(const struct bill_asked *a, struct bill *out)
{
    const struct cluster *c = &out->e.plan.cluster;
    struct failures *f = &out->failures;

    if (bill_failures(a->mtbf, &c->runs, f) < 0)
        return -1;
    double per_s = failures_per_s(f, c->world_size, c->nodes, out->by_cause);
    if (!(per_s > 0) && f->network_s > 0)
        return fail("%s: a job on one node does not use the network between nodes; how often does a GPU or the node fail?",
                    a->mtbf ? "--mtbf" : "the cluster's failures");
    out->run.mtbf_s = per_s > 0 ? 1 / per_s : INFINITY;
    return 0;
}

static int read_date(const char *text, int *y, int *m, int *d)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    int end = 0;

    if (sscanf(text, "%4d-%2d-%2d%n", y, m, d, &end) != 3 || text[end] || end != 10 || *y < 1900 || *m < 1 || *m > 12 || *d < 1)
        return fail("--start: \"%.40s\" is not a date; write it as 2027-01-31", text);
    bool leap = (*y % 4 == 0 && *y % 100 != 0) || *y % 400 == 0;
    return *d <= days[*m - 1] + (*m == 2 && leap) ? 0 : fail("--start: %s: that month has no such day", text);
}

static int check(const struct bill_asked *a)
{
    int y, m, d;

    if (a->samples && a->eval.money.tokens)
        return fail("--samples and --tokens: give one of them");
    if (!a->samples && !a->eval.money.tokens)
        return fail("bill: of how much training? give --tokens 15T, or --samples 50k --epochs 3");
    if (a->epochs > 1 && !a->samples)
        return fail("--epochs: of how many samples? give --samples");
    if (a->packed > 0 && !a->samples)
        return fail("--packed: of how many samples? give --samples");
    if (!a->eval_samples != !a->eval_every)
        return fail("%s", a->eval_samples ? "--eval-samples: how often? give --eval-every" : "--eval-every: of how many samples? give --eval-samples");
    if (a->training_network && !a->async)
        return fail("--training-network: is for --async; without it no step runs while a checkpoint is written");
    if (a->memory_lost > 1)
        return fail("--memory-lost: a share is at most 1");
    if (a->memory_lost > 0 && !a->neighbour)
        return fail("--memory-lost: checkpoints in memory are asked for by --neighbour");
    return a->start ? read_date(a->start, &y, &m, &d) : 0;
}

/* ---- the run ---- */

/* --every, in steps. */
static int read_every(const struct bill_asked *a, struct bill *out)
{
    char *end;
    double seconds, steps = strtod(a->every, &end);

    if (*end) {
        if (duration_parse("--every", a->every, &seconds) < 0)
            return -1;
        steps = round(seconds / out->run.step_s);
    } else if (!(steps >= 1) || steps != floor(steps)) {
        return fail("--every: \"%.40s\" is neither a number of steps nor a time such as 30min", a->every);
    }
    out->run.every = steps < 1 ? 1 : steps > (double)out->run.steps ? out->run.steps : (int64_t)steps;
    return 0;
}

/* What a node keeps of checkpoints in host memory, its own and with --neighbour another node's, and what is left for that. */
static int host_memory(const struct bill_asked *a, struct bill *out)
{
    const struct plan *p = &out->e.plan;

    if (!a->async && !a->neighbour)
        return 0;
    out->host_bytes = out->saved.node * (a->neighbour ? 2 : 1);
    if (cluster_host_memory(&p->cluster, &out->host_free) < 0)
        return -1;
    if (out->e.e.m.elsewhere)
        out->host_free -= out->e.e.m.spaces.of[SPACE_HOST].peak;
    return 0;
}

/* Bytes/s that leave a node over the training's network while a checkpoint is on its way; 0: none.  Two that want all of it share it evenly. */
static double rate_beside(const struct bill_asked *a, const struct bill *b)
{
    const struct cluster *c = &b->e.plan.cluster;
    double rate = b->times.write_s > 0 ? (double)b->saved.node / b->times.write_s : 0;

    if (c->nodes < 2 || (!a->neighbour && (!a->async || !(a->training_network || c->runs.storage_by_training))))
        return 0;
    return a->neighbour || rate > c->inter / 2 ? c->inter / 2 : rate;
}

/* For how long ranks stand at a checkpoint, and when it counts.  What steps lose while it is on its way counts as standing. */
static int stand(const struct bill_asked *a, struct bill *out)
{
    const struct plan *p = &out->e.plan;
    const struct save_times *t = &out->times;
    double rate = rate_beside(a, out);

    if (a->neighbour && p->cluster.nodes < 2)
        return fail("--neighbour: there is one node");
    out->run.blocked_s = t->snapshot_s;
    out->beside = 1;
    if (a->neighbour || rate > 0)
        out->run.behind_s = (double)out->saved.node / rate;
    else if (a->async)
        out->run.behind_s = t->write_s;
    else
        out->run.blocked_s += t->write_s;
    if (rate > 0 && bill_beside_network(p, rate, &out->beside) < 0)
        return -1;
    out->run.blocked_s += rate > 0 ? out->run.behind_s * (1 - 1 / out->beside) : 0;
    out->run.disk_each = a->neighbour;
    out->run.memory_lost = a->memory_lost;
    return 0;
}

/* Evaluation passes: forward over the samples by all ranks, each micro-batch at a time; a step has its part of them. */
static int evaluations(const struct bill_asked *a, struct bill *b)
{
    const struct plan *p = &b->e.plan;
    double forward;

    if (!a->eval_samples)
        return 0;
    if (bill_forward(p, &forward) < 0)
        return -1;
    b->eval_s = forward * (double)ceil_div(a->eval_samples, p->micro_batch * plan_batch_ranks(p));
    b->run.step_s += b->eval_s / (double)a->eval_every;
    return 0;
}

/* The 90 % interval: the step's, and that of the run with the same step; ratios' logarithms add as squares.  A measured step has none. */
static void interval(const struct bill_asked *a, struct bill *b, const double at[3])
{
    const struct timing *t = &b->e.t;
    double down = hypot(a->step ? 0 : log(t->low_s / t->line.step_s), at[0] < b->time.total_s ? log(at[0] / b->time.total_s) : 0);
    double up = hypot(a->step ? 0 : log(t->high_s / t->line.step_s), at[2] > b->time.total_s ? log(at[2] / b->time.total_s) : 0);

    b->low_s = b->time.total_s * exp(-down);
    b->high_s = b->time.total_s * exp(up);
}

static double mean_with(const struct bill *b, int64_t every)
{
    struct long_run r = b->run;
    struct run_time t;

    r.every = every;
    goodput_expect(&r, &t);
    return t.total_s;
}

/* The interval between checkpoints and the mean.  0, or -1 reported. */
static int expect(const struct bill_asked *a, struct bill *b)
{
    if (!a->every) {
        b->best = true;
        b->run.every = goodput_best_every(&b->run);
    } else if (read_every(a, b) < 0) {
        return -1;
    }
    goodput_expect(&b->run, &b->time);
    return 0;
}

static int run_it(const struct bill_asked *a, struct bill *b)
{
    struct reserve v = { .nodes = b->e.plan.cluster.nodes, .spares = b->spares, .repair_s = b->e.plan.cluster.runs.repair, .shrink = a->shrink,
                         .hardware = failures_take_node(&b->failures, b->by_cause),
                         .steady = b->failures.network_s > 0 ? b->by_cause[FAILED_NETWORK] * b->run.mtbf_s : 0 };
    struct run_time simulated;
    double undisturbed = (double)b->run.steps * b->run.step_s, at[3];
    char why[256] = "";

    if ((a->repair && duration_parse("--repair", a->repair, &v.repair_s) < 0) || expect(a, b) < 0)
        return -1;
    if (!(b->time.total_s < ENDLESS * undisturbed)) {
        b->endless = true;
        return 0;
    }
    b->half = b->run.every / 2 >= 1 ? mean_with(b, b->run.every / 2) / b->time.total_s : 0;
    b->twice = 2 * b->run.every <= b->run.steps ? mean_with(b, 2 * b->run.every) / b->time.total_s : 0;
    b->longest = b->best ? goodput_longest_every(&b->run, 1.001) : 0;
    double runs = MOST_INTERRUPTIONS / (b->time.interruptions + 1);
    struct fail_sink before = fail_divert(why, sizeof why);
    int rc = goodput_simulate(&b->run, &v, runs > RUNS ? RUNS : runs < 20 ? 20 : (int)runs, ENDLESS * undisturbed, &simulated, at);
    fail_restore(before);
    if (rc < 0 && why[0])
        return fail("%s", why);
    b->endless = rc < 0;
    if (b->endless)
        return 0;
    if (b->spares >= 0 || a->neighbour)         /* what the closed form does not know */
        b->time = simulated;
    interval(a, b, at);
    return 0;
}

/* Nodes that stand by: as asked, else as the cluster states. */
static int find_spares(const struct bill_asked *a, struct bill *b)
{
    const struct cluster_runs *stated = &b->e.plan.cluster.runs;

    b->spares = a->spares >= 0 || a->repair || a->requeue || !(stated->repair > 0) ? a->spares : stated->spares;
    if (b->spares >= 0 && !a->repair && !(stated->repair > 0))
        return fail("--spares: how long until a node that failed is back? give --repair, such as 24h");
    if (b->spares < 0 && (a->repair || a->shrink))
        return fail("%s: with how many nodes that stand by? give --spares (0: none)", a->shrink ? "--shrink" : "--repair");
    return 0;
}

static int find_preemptions(const struct bill_asked *a, struct long_run *r)
{
    if (a->queue && !a->preempted && !a->requeue)
        return fail("--queue: how often is the job taken away? give --preempted, such as 8h, or --requeue");
    if (a->requeue && !a->queue)
        return fail("--requeue: for how long? give --queue, such as 1h");
    if (a->requeue && (a->spares >= 0 || a->repair))
        return fail("--requeue: the queue gives sound nodes: leave out --spares and --repair");
    r->requeued = a->requeue;
    return (a->preempted && duration_parse("--preempted", a->preempted, &r->preempted_s) < 0) ||
           (a->queue && duration_parse("--queue", a->queue, &r->queue_s) < 0) ? -1 : 0;
}

/* Of samples; packed ones fill sequences without a rest. */
static int tokens_of(const struct bill_asked *a, int64_t seq, int64_t *out)
{
    double each = a->packed > 0 ? a->packed : (double)seq, all = (double)a->samples * (double)a->epochs * each;

    if (each > (double)seq || each < 1)
        return fail("--packed: a sample has 1 to %" PRId64 " tokens, those of a sequence", seq);
    if (!(all < 9e18))
        return fail("--samples: too many");
    *out = a->packed > 0 ? (int64_t)ceil(all) : a->samples * a->epochs * seq;
    return 0;
}

/* What the run is: all but how it goes.  `known`: whether that can be said. */
static int run_of(const struct bill_asked *a, struct bill *b)
{
    const struct plan *p = &b->e.plan;
    struct money_question q = a->eval.money;
    struct timing t = b->e.t;
    double recover = p->cluster.runs.recover > 0 ? p->cluster.runs.recover : RECOVER, warm = p->cluster.runs.warm_up;

    if (a->samples && tokens_of(a, p->seq, &q.tokens) < 0)
        return -1;
    if (a->step && duration_parse("--step", a->step, &t.line.step_s) < 0)
        return -1;
    money_of(&q, p, &t, &b->money);
    b->run = (struct long_run){ .steps = b->money.steps, .step_s = t.line.step_s, .mtbf_s = INFINITY };
    if (find_spares(a, b) < 0 || saved_of(p, &b->saved) < 0 || read_storage(a, p, &b->storage) < 0 || find_failures(a, b) < 0 ||
        find_preemptions(a, &b->run) < 0 || (a->recover && duration_parse("--recover", a->recover, &recover) < 0) ||
        (a->warm_up && duration_parse("--warm-up", a->warm_up, &warm) < 0))
        return -1;
    saved_times(p, &b->saved, &b->storage, &b->times);
    if (evaluations(a, b) < 0 || stand(a, b) < 0 || host_memory(a, b) < 0)
        return -1;
    b->found_s = recover;
    b->run.warm_s = warm;
    b->run.recover_s = recover + (b->times.read_s > 0 ? b->times.read_s : 0) + warm;
    b->known = b->times.write_s >= 0 && (isfinite(b->run.mtbf_s) || b->run.preempted_s > 0 || a->every);
    return 0;
}

static int bill_of(const struct bill_asked *a, struct bill *b)
{
    return run_of(a, b) < 0 ? -1 : b->known ? run_it(a, b) : 0;
}

int bill_of_step(const struct bill_asked *a, const struct plan *p, double step_s, struct bill *out)
{
    *out = (struct bill){ .e.plan = *p, .e.t = { .low_s = step_s, .high_s = step_s } };
    out->e.t.line.step_s = step_s;
    return run_of(a, out) < 0 ? -1 : out->known ? expect(a, out) : 0;
}

int bill_answer(const struct bill_asked *a, struct bill *out)
{
    struct eval_args eval = a->eval;

    *out = (struct bill){ 0 };
    if (check(a) < 0)
        return EXIT_MISUSE;
    if (a->samples)
        eval.money = (struct money_question)MONEY_NONE;     /* bill_of() asks, once the length of a sample is known */
    int rc = eval_ask(&eval, &out->e);
    if (rc != EXIT_DONE && rc != EXIT_NO)
        return rc;
    if (bill_of(a, out) < 0) {
        bill_free(out);
        return EXIT_MISUSE;
    }
    return rc == EXIT_NO || out->endless || out->host_bytes > out->host_free ? EXIT_NO : EXIT_DONE;
}

void bill_free(struct bill *b) { eval_free(&b->e); }

int64_t bill_with_mtbf(const struct bill *b, double mtbf_of_gpu_s, struct run_time *t)
{
    struct long_run r = b->run;

    r.mtbf_s = mtbf_of_gpu_s / (double)b->e.plan.cluster.world_size;
    r.every = goodput_best_every(&r);
    goodput_expect(&r, t);
    return r.every;
}

double bill_paid_s(const struct bill *b, double total_s) { return total_s * (1 - b->time.queued_s / b->time.total_s); }

/* ---- other numbers of GPUs ---- */

static int on_world(const struct bill_asked *a, const struct bill *b, const struct plan *p, struct bill_world *w)
{
    struct evaluation e;
    struct timing t;
    struct bill at = { .e.plan = *p, .saved = b->saved, .run = b->run };
    int rc = -1;

    if (evaluate(p, &e) < 0)
        return -1;
    w->fits = e.m.fits;
    if (simulate_plan(p, &e, &t, NULL) == 0 && saved_of(p, &at.saved) == 0) {
        w->step_s = at.run.step_s = t.line.step_s * b->run.step_s / b->e.t.line.step_s;
        saved_times(p, &at.saved, &b->storage, &at.times);
        rc = stand(a, &at);
        at.run.recover_s += (at.times.read_s > 0 ? at.times.read_s : 0) - (b->times.read_s > 0 ? b->times.read_s : 0);
        if (!b->known)
            at.run.blocked_s = at.run.behind_s = 0;
        double per_s = failures_per_s(&b->failures, p->cluster.world_size, p->cluster.nodes, at.by_cause);
        at.run.mtbf_s = b->known && per_s > 0 ? 1 / per_s : INFINITY;
        at.run.preempted_s = b->known ? b->run.preempted_s : 0;
        w->every = at.run.every = goodput_best_every(&at.run);
        goodput_expect(&at.run, &w->time);
    }
    evaluation_free(&e);
    return rc;
}

int bill_worlds(const struct bill_asked *a, const struct bill *b, struct bill_world out[BILL_WORLDS])
{
    const struct plan *p = &b->e.plan;

    for (int i = 0; i < BILL_WORLDS; i++) {
        struct plan at;
        int64_t gpus = i < 2 ? p->cluster.world_size >> (2 - i) : p->cluster.world_size << (i - 2);
        out[i] = (struct bill_world){ .gpus = gpus };
        if (p->cluster.is_host || gpus < 1 || gpus > CLUSTER_MAX_RANKS || (i < 2 && gpus << (2 - i) != p->cluster.world_size) ||
            money_on_world(p, gpus, &at))
            continue;
        if (a->neighbour && at.cluster.nodes < 2) {
            plan_free(&at);
            continue;
        }
        out[i].possible = true;
        int rc = on_world(a, b, &at, &out[i]);
        plan_free(&at);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* ---- dates ---- */

/* Days since 1970-01-01 and back, of the Gregorian calendar (Richards 2013, in Explanatory Supplement to the Astronomical Almanac). */
static int64_t day_number(int64_t y, int64_t m, int64_t d)
{
    int64_t h = m - 14;

    return 1461 * (y + 4800 + h / 12) / 4 + 367 * (m - 2 - 12 * (h / 12)) / 12 - 3 * ((y + 4900 + h / 12) / 100) / 4 + d - 32075 - 2440588;
}

struct bill_date bill_date_after(const struct bill_asked *a, double seconds)
{
    struct bill_date out = { "" };
    int y, m, d;

    if (!a->start || read_date(a->start, &y, &m, &d) < 0 || !(seconds < 1e11))
        return out;
    int64_t j = day_number(y, m, d) + (int64_t)(seconds / 86400) + 2440588;
    int64_t f = j + 1401 + (4 * j + 274277) / 146097 * 3 / 4 - 38, e = 4 * f + 3, g = e % 1461 / 4, h = 5 * g + 2;
    int64_t day = h % 153 / 5 + 1, month = (h / 153 + 2) % 12 + 1, year = e / 1461 - 4716 + (14 - month) / 12;
    snprintf(out.s, sizeof out.s, "%04d-%02d-%02d", (int)year, (int)month, (int)day);
    return out;
}
