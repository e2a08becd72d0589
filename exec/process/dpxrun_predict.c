/* dpxrun_predict.c -- before a run: what the schedule and the clock say of it, to be held against what is measured. */
#include "exec/process/dpxrun.h"

#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "calib/store/measured_for.h"
#include "exec/device/host_info.h"
#include "exec/train/probe.h"
#include "model/memory/moved.h"

const char *const predict_phase_names[NRP] = { "compute", "exposed communication", "optimizer", "idle", "bubble" };

/* Long enough for a median that two probes in a row agree upon within a percent or two. */
#define PROBE_S .1
/* What else runs on a machine comes and goes within tenths of a second, and a step's median does not see it:
 * the least of several counts.  A machine that seems slower than it was by more than SLOWER is asked for
 * longer. */
#define SLOWER 1.05
enum { PROBES = 3, PROBES_MOST = 12 };

/* `then`: what it was.  NaN reported. */
static double probe_least(struct probe *p, double then)
{
    double least = INFINITY;

    for (int i = 0; i < PROBES || (i < PROBES_MOST && least > SLOWER * then); i++) {
        double s = probe_take(p, PROBE_S);
        if (isnan(s))
            return s;
        least = fmin(least, s);
    }
    return least;
}

/* How fast the machine is now, where a calibration says how fast it was then: of as many ranks with as
 * many threads each, on the device that it is of.  All ranks together; rank 0 knows. */
static int probe_now(struct dpxrun *r)
{
    struct measured_device *known = &r->predicted.known;
    int threads = on_host(r) ? dpxrun_threads(r) : 1;
    bool same = r->rank == 0 && known->ranks == r->here.cluster.world_size && known->threads == threads &&
                on_host(r) == r->here.cluster.is_host;
    double then = same ? known->probe_s : 0;            /* 0: there is nothing to hold it against */

    if (MPI_Bcast(&then, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD) != MPI_SUCCESS)
        return fail("MPI_Bcast failed before the probe");
    if (!(then > 0))
        return 0;
    struct probe *p = probe_open(r->device, threads);
    double s = p ? probe_least(p, then) : (double)NAN;
    probe_close(p);
    if (isnan(s))
        return -1;
    if (r->rank == 0)
        measured_now(known, s);
    return 0;
}

/* dpxplan has no probe of this moment: what it says of the same plan. */
static int as_calibrated(struct dpxrun *r)
{
    struct predicted *p = &r->predicted;
    struct measured_device then = p->known;     /* borrows all */
    struct plan here = r->here;
    struct timing t;

    p->as_calibrated_s = NAN;
    if (!(p->known.now_s > 0))
        return 0;
    then.now_s = 0;
    here.cluster.measured = &then;
    if (simulate_plan(&here, &p->e, &t, NULL) < 0)
        return -1;
    p->as_calibrated_s = t.line.step_s;
    return 0;
}

int dpxrun_predict(struct dpxrun *r)
{
    struct predicted *p = &r->predicted;

    if (r->rank == 0 && measured_for_threads(r->o.db, false, r->here.precision, KERNELS_DPX, dpxrun_threads(r), &r->here.cluster,
                                             &p->known) < 0)
        return EXIT_MISUSE;             /* which calibration is meant */
    if (r->o.comm != COMM_NULL && on_host(r) && probe_now(r) < 0)
        return EXIT_FAILED;
    if (r->rank != 0)
        return stages_predict(r) < 0 ? EXIT_FAILED : EXIT_DONE;
    if (evaluate(&r->here, &p->e) < 0 || simulate_plan(&r->here, &p->e, &p->t, &p->run) < 0)
        return EXIT_FAILED;
    if (as_calibrated(r) < 0)
        return EXIT_FAILED;
    p->phase[RP_COMPUTE] = p->t.line.compute_s;
    p->phase[RP_EXPOSED] = p->t.line.exposed_s;
    p->phase[RP_OPTIMIZER] = p->t.line.optimizer_s;
    p->phase[RP_IDLE] = p->t.line.idle_s;
    return stages_predict(r) < 0 ? EXIT_FAILED : EXIT_DONE;
}

int predict_own_step(struct dpxrun *r)
{
    struct predicted *p = &r->predicted;
    struct evaluation own = p->e;       /* borrows all but the schedules, which are the training's */
    struct timing t;
    struct run ran;

    if (p->e.m.rank == 0 || r->stages.n > 0)
        return 0;
    own.schedules = *train_schedules(r->train);
    if (simulate_plan(&r->here, &own, &t, &ran) < 0)
        return -1;
    run_free(&p->run);
    p->run = ran;
    return 0;
}

/* Of so many steps. */
static int64_t peak_of(const struct dpxrun *r, const struct ledger *l)
{
    int64_t init = l->phase[SCHED_INIT].bytes, first = l->phase[SCHED_FIRST].bytes;

    return r->o.steps > 1 ? l->peak.bytes : init > first ? init : first;
}

int64_t predict_shown_rank(const struct dpxrun *r)
{
    return r->o.comm == COMM_NULL ? r->o.rank : r->measured.rank;
}

/* With --comm null of the rank that is played, which need not be the fullest. */
int64_t predict_allocated(const struct dpxrun *r)
{
    struct ledger l;

    if (r->o.comm != COMM_NULL || !r->train)
        return peak_of(r, &r->predicted.e.m.ledger);
    ledger_run(train_schedules(r->train), &l);
    return peak_of(r, &l);
}

int64_t predict_elsewhere(const struct dpxrun *r, enum space in)
{
    struct ledger l;

    ledger_run_in(r->o.comm == COMM_NULL ? train_schedules(r->train) : &r->predicted.e.schedules, IN(in), &l);
    return peak_of(r, &l);
}

int64_t predict_held(const struct dpxrun *r)
{
    const struct predicted *p = &r->predicted;
    const struct overhead *o = &p->e.m.overhead;

    if (r->o.comm == COMM_NULL && r->o.rank != p->e.m.rank)
        return -1;
    return p->t.held_bytes < 0 ? -1 : p->t.held_bytes - o->by[OVERHEAD_ALLOCATED] - o->by[OVERHEAD_OUTSIDE];
}

void predict_free(struct predicted *p)
{
    run_free(&p->run);
    measured_device_free(&p->known);
    evaluation_free(&p->e);
}

/* ---- samples ---- */

int predict_keep_sample(struct dpxrun *r, int64_t step)
{
    struct measured *m = &r->measured;
    struct sample *s = &m->sample[m->nsamples];
    const struct exec_ran *ran = executor_ran(train_executor(r->train), &s->n);

    s->step = step;
    s->id = sched_of_step(train_schedules(r->train), step);
    s->ran = malloc((size_t)(s->n + 1) * sizeof *s->ran);
    if (!s->ran)
        return fail("out of memory for the entries of a step");
    memcpy(s->ran, ran, (size_t)s->n * sizeof *s->ran);
    m->nsamples++;
    return 0;
}

/* ---- medians ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double quantile(const double *sorted, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t i = (int64_t)at;

    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

/* Steady steps; the first one only if there is no other. */
static int medians(struct measured *m)
{
    int64_t first = m->n > 1 ? 1 : 0, n = m->n - first;
    double *s = malloc((size_t)(n + 1) * sizeof *s);

    if (!s)
        return fail("out of memory for the steps");
    for (int64_t i = 0; i < n; i++)
        s[i] = m->report[first + i].seconds;
    qsort(s, (size_t)n, sizeof *s, by_value);
    m->median_s = n ? quantile(s, n, 0.5) : NAN;
    m->p10_s = n ? quantile(s, n, 0.1) : NAN;
    m->p90_s = n ? quantile(s, n, 0.9) : NAN;
    free(s);
    return 0;
}

/* ---- phases ---- */

/* As timeline.c accounts: work of the compute stream by phase, and before each of its entries a
 * gap, which is a collective's if one of another stream ended last before it began. */
static void phases_of(const struct schedules *s, const struct sample *a, double phase[NRP])
{
    double busy_until = 0, end = 0;

    memset(phase, 0, NRP * sizeof *phase);
    for (int64_t i = 0; i < a->n; i++) {
        const struct exec_ran *e = &a->ran[i];
        const struct op *o = &s->ops[e->op];
        if (isnan(e->start))
            continue;
        if (e->end > end)
            end = e->end;
        if (o->stream != STREAM_COMPUTE)
            continue;
        double gap = e->start - busy_until;
        bool collective = false;
        for (int64_t k = i - 1; gap > 0 && k >= 0 && k > i - 256; k--)
            if (s->ops[a->ran[k].op].kind == OP_COLL && a->ran[k].end > busy_until &&
                a->ran[k].end <= e->start)
                collective = true;
        if (gap > 0)
            phase[collective ? RP_EXPOSED : RP_IDLE] += gap;
        phase[o->kind == OP_COLL ? RP_EXPOSED : o->phase == PHASE_OPTIMIZER ? RP_OPTIMIZER : RP_COMPUTE] += e->end - e->start;
        busy_until = e->end;
    }
    if (end > busy_until)
        phase[RP_EXPOSED] += end - busy_until;
}

/* ---- all ranks ---- */

static int gather_elsewhere(struct dpxrun *r, size_t world)
{
    struct measured *m = &r->measured;
    struct executor *x = train_executor(r->train);

    for (enum space in = SPACE_PINNED; in < NSPACE; in++) {
        m->elsewhere[in] = calloc(world, sizeof *m->elsewhere[in]);
        m->elsewhere_held[in] = calloc(world, sizeof *m->elsewhere_held[in]);
        if (!m->elsewhere[in] || !m->elsewhere_held[in])
            return fail("out of memory for the ranks' memory");
        if (train_gather(r->train, executor_meter_in(x, in)->peak, m->elsewhere[in]) < 0 ||
            train_gather(r->train, executor_held_peak_in(x, in), m->elsewhere_held[in]) < 0)
            return -1;
    }
    return 0;
}

static int gather_memory(struct dpxrun *r)
{
    struct measured *m = &r->measured;
    struct executor *x = train_executor(r->train);
    size_t world = (size_t)r->here.cluster.world_size + 1;

    m->held = calloc(world, sizeof *m->held);
    m->allocated = calloc(world, sizeof *m->allocated);
    m->process = calloc(world, sizeof *m->process);
    if (!m->held || !m->allocated || !m->process)
        return fail("out of memory for the ranks' memory");
    if (train_gather(r->train, executor_held_peak(x), m->held) < 0 ||
        train_gather(r->train, executor_meter(x)->peak, m->allocated) < 0 ||
        train_gather(r->train, train_process_peak(r->train), m->process) < 0)
        return -1;
    for (int c = 0; c < NCAT; c++) {
        m->part[c] = calloc(world, sizeof *m->part[c]);
        if (!m->part[c])
            return fail("out of memory for the ranks' memory");
        if (train_gather(r->train, executor_meter(x)->at_peak[c], m->part[c]) < 0)
            return -1;
    }
    return gather_elsewhere(r, world);
}

int dpxrun_measure(struct dpxrun *r)
{
    struct measured *m = &r->measured;

    if (gather_memory(r) < 0)
        return -1;
    if (r->rank != 0)
        return stages_measure(r);
    m->rank = r->o.comm != COMM_NULL ? r->predicted.e.m.rank : 0;
    r->predicted.process_bytes = train_predicted_process(r->train);
    if (m->nsamples > 0)
        phases_of(train_schedules(r->train), &m->sample[m->nsamples - 1], m->phase);
    return stages_measure(r) < 0 ? -1 : medians(m);
}

void predict_measured_free(struct measured *m)
{
    for (int i = 0; i < m->nsamples; i++)
        free(m->sample[i].ran);
    free(m->report);
    free(m->held);
    free(m->allocated);
    free(m->process);
    for (int c = 0; c < NCAT; c++)
        free(m->part[c]);
    for (int in = 0; in < NSPACE; in++) {
        free(m->elsewhere[in]);
        free(m->elsewhere_held[in]);
    }
}

/* ---- collectives ---- */

/* How often this process runs a schedule: not what it went on from. */
static int64_t times_here(const struct dpxrun *r, const struct schedules *s, enum sched_id id)
{
    int64_t from = r->saved.from;

    return sched_times(s, id, from + r->measured.n) - (from > 0 ? sched_times(s, id, from) : 0);
}

static void add_predicted(const struct schedules *s, enum sched_id id, int64_t times, struct comm_pair *pair, int *n)
{
    struct comm_table t;

    evaluation_comm_count(s, id, &t);
    for (int i = 0; i < t.n; i++) {
        int k = 0;
        while (k < *n && !(pair[k].op == t.line[i].op && pair[k].group == t.line[i].group &&
                           pair[k].dtype == t.line[i].dtype))
            k++;
        if (k == *n)
            pair[(*n)++] = (struct comm_pair){ .op = t.line[i].op, .group = t.line[i].group,
                                               .group_name = s->groups.group[t.line[i].group].name,
                                               .dtype = t.line[i].dtype };
        pair[k].predicted_count += times * t.line[i].count;
        pair[k].predicted_bytes += times * t.line[i].bytes;
    }
}

int predict_comm_pairs(const struct dpxrun *r, struct comm_pair out[COMM_LINES])
{
    const struct schedules *s = train_schedules(r->train);
    int n = 0;

    for (int id = 0; id < NSCHED; id++)
        add_predicted(s, (enum sched_id)id, times_here(r, s, (enum sched_id)id), out, &n);
    for (int i = 0; i < n; i++) {
        const struct exec_count *c = executor_count(train_executor(r->train), out[i].op, out[i].group, out[i].dtype);
        out[i].count = c->count;
        out[i].bytes = c->bytes;
    }
    return n;
}

int moved_pairs(const struct dpxrun *r, struct moved_pair out[NSPACE * NSPACE])
{
    const struct schedules *s = train_schedules(r->train);
    struct moved_table want = { 0 };
    int n = 0;

    for (int id = 0; id < NSCHED; id++)
        moved_add(s, (enum sched_id)id, times_here(r, s, (enum sched_id)id), &want);
    for (enum space from = 0; from < NSPACE; from++)
        for (enum space to = 0; to < NSPACE; to++) {
            const struct moved *w = &want.of[from][to];
            const struct exec_count *c = executor_moved(train_executor(r->train), from, to);
            if (w->count || c->count)
                out[n++] = (struct moved_pair){ from, to, c->count, c->bytes, w->count, w->bytes };
        }
    return n;
}
