/* dpxrun_record.c -- a run in the database: the prediction before its first step, every step, and how it ended. */
#include "exec/process/dpxrun.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calib/store/runs_memory.h"
#ifdef DPX_CUDA
#include "exec/cuda/comm_nccl.h"
#endif
#include "base/fail.h"
#include "base/opts.h"
#include "base/version.h"
#include "exec/device/host_info.h"
#include "sim/clock/passes.h"

static double wall_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *options_json(const struct options *o)
{
    json_t *j = json_pack("{s:I, s:s?, s:s?, s:b, s:f, s:f, s:I, s:f, s:I, s:b}", "steps", (json_int_t)o->steps, "data",
                          o->data, "init", o->init, "sequential", o->sequential, "lr", o->lr, "min_lr", o->min_lr,
                          "warmup", (json_int_t)o->warmup, "weight_decay", o->weight_decay, "memory",
                          (json_int_t)o->memory, "share_cores", o->share_cores);
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;

    json_decref(j);
    return text;
}

/* ---- the prediction ---- */

/* Bytes entry by entry, of rank 0's steady steps. */
static struct run_moment *predicted_moments(const struct dpxrun *r, int64_t *n)
{
    const struct schedules *s = train_schedules(r->train);
    int64_t room = r->predicted.run.n;
    struct point *p = calloc((size_t)room + 1, sizeof *p);
    struct run_moment *m = calloc((size_t)room + 1, sizeof *m);

    *n = 0;
    if (p && m)
        *n = ledger_curve(s, SCHED_STEADY, p, room);
    for (int64_t i = 0; i < *n; i++)
        m[i] = (struct run_moment){ sched_name(SCHED_STEADY), i, p[i].peak, -1 };
    free(p);
    return m;
}

/* The names of memories beyond the device's; of each that the plan uses a part. */
static const char *const elsewhere[NSPACE] = { [SPACE_PINNED] = RUNS_PINNED, [SPACE_HOST] = RUNS_HOST,
                                               [SPACE_DISK] = RUNS_DISK };

static bool uses(const struct dpxrun *r, enum space in) { return r->predicted.e.schedules.spaces & IN(in); }

static int record_predicted_memory(struct dpxrun *r)
{
    const struct memory_verdict *v = &r->predicted.e.m;
    struct run_part part[NCAT + NSPACE];
    /* What schedules allocate must fit beside everything else (model/memory/overhead.h). */
    struct run_memory_side side = { .available = v->available - (v->needed - v->ledger.peak.bytes), .part = part,
                                    .nparts = NCAT };

    for (int c = 0; c < NCAT; c++)
        part[c] = (struct run_part){ .rank = v->rank, .category = category_name((enum category)c),
                                     .predicted_bytes = v->ledger.peak.by[c], .bytes = -1 };
    for (enum space in = SPACE_PINNED; in < NSPACE; in++)
        if (uses(r, in))
            part[side.nparts++] = (struct run_part){ .rank = v->rank, .category = elsewhere[in],
                                                     .predicted_bytes = predict_elsewhere(r, in), .bytes = -1 };
    struct run_moment *m = predicted_moments(r, &side.nmoments);
    side.moment = m;
    int rc = m ? runs_memory_predicted(r->db, r->run_id, &side) : fail("out of memory for the run's record");
    free(m);
    return rc;
}

static const char *nccl_version(void)
{
#ifdef DPX_CUDA
    return comm_nccl_version();
#else
    return "NCCL";
#endif
}

static int begin(struct dpxrun *r, const char *plan, const char *options)
{
    const struct predicted *p = &r->predicted;
    struct host_info h;
    struct run_comm comm[COMM_LINES];
    struct run_phase phase[NRP];
    struct comm_pair pair[COMM_LINES];

    if (host_info(&h) < 0)
        return -1;
    r->measured.n = r->o.steps - r->saved.from;         /* collectives of all steps that are meant to be run */
    int n = predict_comm_pairs(r, pair);
    r->measured.n = 0;
    for (int i = 0; i < NRP; i++)
        phase[i] = (struct run_phase){ predict_phase_names[i], r->predicted.phase[i] };
    for (int i = 0; i < n; i++)
        comm[i] = (struct run_comm){ coll_name(pair[i].op), pair[i].group_name, dtype_name(pair[i].dtype),
                                     pair[i].predicted_count, pair[i].predicted_bytes };
    const char *comms[] = { [COMM_MPI] = h.mpi, [COMM_NCCL] = r->o.comm == COMM_NCCL ? nccl_version() : "", [COMM_NULL] = "null" };
    struct run_start start = { .started = wall_clock(), .host = h.host, .device = device_label(r), .cpu = h.cpu,
                               .cores = h.cores, .memory = h.memory, .dpx_version = version_text(),
                               .comm_version = comms[r->o.comm],
                               .kernels_version = on_host(r) ? h.onednn : executor_kernels(train_executor(r->train)),
                               .plan = plan, .options = options, .world_size = r->here.cluster.world_size,
                               .seed = r->o.seed };
    struct run_predicted pred = { .basis = basis_name(p->t.basis), .step_s = p->t.line.step_s, .low_s = p->t.low_s,
                                  .high_s = p->t.high_s, .rank = p->e.m.rank, .held_bytes = predict_held(r),
                                  .allocated_bytes = predict_allocated(r),
                                  .process_bytes = train_predicted_process(r->train), .comm = comm, .phase = phase,
                                  .ncomm = n, .nphase = predict_phases(r) };
    r->run_id = runs_begin(r->db, &start, &pred);
    return r->run_id > 0 && stages_record(r, true) == 0 ? record_predicted_memory(r) : -1;
}

int record_begin(struct dpxrun *r)
{
    if (r->o.no_db)
        return 0;
    r->db = db_open(r->o.db);
    if (!r->db || predict_own_step(r) < 0)
        return -1;
    json_t *doc = plan_to_json(&r->plan);
    char *plan = doc ? json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS) : NULL, *options = options_json(&r->o);
    int rc = plan && options ? begin(r, plan, options) : fail("out of memory for the run's record");
    json_decref(doc);
    free(plan);
    free(options);
    return rc;
}

/* ---- what happened ---- */

int record_steps(struct dpxrun *r, int64_t from)
{
    int64_t n = r->measured.n - from;
    const struct schedules *of = train_schedules(r->train);
    struct run_step *s;
    int rc;

    if (!r->db || n <= 0)
        return 0;
    s = calloc((size_t)n, sizeof *s);
    if (!s)
        return fail("out of memory for the steps' record");
    for (int64_t i = 0; i < n; i++) {
        const struct train_report *t = &r->measured.report[from + i];
        s[i] = (struct run_step){ t->step, sched_name(sched_of_step(of, t->step)), t->loss,
                                  t->seconds, t->lr, t->grad_norm, t->tokens };
    }
    rc = runs_steps(r->db, r->run_id, s, (int)n);
    free(s);
    return rc;
}

static const char *kind_name(const struct op *o)
{
    static const char *const names[] = { "compute", "collective", "copy", "optimizer", "wait", "memory" };

    return o->kind <= OP_MEMORY ? names[o->kind] : "";
}

static const char *pass_name(char kind)
{
    switch (kind) {
    case PASS_IS_FORWARD:   return "forward";
    case PASS_IS_BACKWARD:  return "backward";
    case PASS_IS_WEIGHTS:   return "weights";
    case PASS_IS_OPTIMIZER: return "optimizer";
    case PASS_IS_MESSAGE:   return "message";
    default:                return NULL;
    }
}

/* One rank's entries of a step, and those of the same step as it was predicted. */
struct run_told { const struct schedules *s; int64_t step, rank; enum sched_id id; int64_t n; const struct run *predicted; const double *since; };

static int record_entries(struct dpxrun *r, const struct run_told *of, struct ran (*at)(const void *ran, int64_t i), const void *ran)
{
    const struct run *p = of->predicted;
    struct run_entry *e = calloc((size_t)of->n + 1, sizeof *e);
    struct passes passes = { 0 };
    int rc;

    if (!e)
        return fail("out of memory for the entries' record");
    for (int64_t i = 0; i < of->n; i++) {
        struct ran x = at(ran, i);
        const struct op *o = &of->s->ops[x.op];
        bool known = p && p->n == of->n && p->ran[i].op == x.op;
        struct pass_part part = passes_next(&passes, of->s, o, x.iteration);
        e[i] = (struct run_entry){ .step = of->step, .rank = of->rank, .position = i, .entry = x.op - of->s->begin[of->id],
                                   .iteration = x.iteration, .schedule = sched_name(of->id),
                                   .stream = stream_name((enum stream)o->stream), .kind = kind_name(o),
                                   .what = o->what, .unit = o->of, .pass = pass_name(part.kind),
                                   .micro_step = part.kind && part.kind != PASS_IS_OPTIMIZER ? part.number : -1,
                                   .start_s = x.start, .end_s = x.end, .met_s = of->since ? of->since[i] : (double)NAN,
                                   .predicted_start_s = known ? p->ran[i].start : NAN,
                                   .predicted_end_s = known ? p->ran[i].end : NAN };
    }
    rc = runs_entries(r->db, r->run_id, e, of->n);
    free(e);
    return rc;
}

static struct ran of_executor(const void *ran, int64_t i)
{
    const struct exec_ran *x = (const struct exec_ran *)ran + i;

    return (struct ran){ x->op, x->iteration, x->issued, x->start, x->end, -1 };
}

static struct ran of_stage(const void *ran, int64_t i) { return ((const struct ran *)ran)[i]; }

static int record_sample(struct dpxrun *r, const struct sample *a)
{
    const struct stage_run *stage = r->stages.n > 0 ? &r->stages.of[r->stages.own] : NULL;
    const struct run *steady = stage ? &stage->predicted : &r->predicted.run;
    bool last = a == &r->measured.sample[r->measured.nsamples - 1];     /* which all stages were compared by */
    struct run_told of = { train_schedules(r->train), a->step, 0, a->id, a->n, a->id == SCHED_STEADY ? steady : NULL,
                           stage && last ? stage->since : NULL };

    return record_entries(r, &of, of_executor, a->ran);
}

/* The last sample of every other stage. */
static int record_stages(struct dpxrun *r)
{
    const struct measured *m = &r->measured;

    for (int i = 0; i < r->stages.n; i++) {
        const struct stage_run *stage = &r->stages.of[i];
        struct run_told of = { &stage->s, m->nsamples > 0 ? m->sample[m->nsamples - 1].step : 0, stage->rank, SCHED_STEADY,
                               stage->n, &stage->predicted, stage->since };
        if (r->stages.compared && i != r->stages.own && record_entries(r, &of, of_stage, stage->ran) < 0)
            return -1;
    }
    return stages_record(r, false);
}

/* The last sample of a steady step, entry by entry. */
static struct run_moment *measured_moments(const struct measured *m, int64_t *n)
{
    const struct sample *a = m->nsamples > 0 ? &m->sample[m->nsamples - 1] : NULL;
    struct run_moment *out;

    *n = a && a->id == SCHED_STEADY ? a->n : 0;
    out = calloc((size_t)*n + 1, sizeof *out);
    for (int64_t i = 0; out && i < *n; i++)
        out[i] = (struct run_moment){ sched_name(a->id), i, -1, a->ran[i].bytes };
    return out;
}

static int record_measured_memory(struct dpxrun *r, int64_t world)
{
    const struct measured *m = &r->measured;
    struct run_memory_side side = { .available = -1, .nparts = world * NCAT };
    struct run_part *part = calloc((size_t)(world * (NCAT + NSPACE)), sizeof *part);
    struct run_moment *moment = measured_moments(m, &side.nmoments);
    int rc = -1;

    for (int64_t i = 0; part && i < side.nparts; i++)
        part[i] = (struct run_part){ .rank = r->o.comm != COMM_NULL ? i / NCAT : r->o.rank, .predicted_bytes = -1,
                                     .category = category_name((enum category)(i % NCAT)),
                                     .bytes = m->part[i % NCAT][i / NCAT] };
    for (int64_t i = 0; part && i < world * NSPACE; i++) {
        enum space in = (enum space)(i % NSPACE);
        if (in != SPACE_DEVICE && uses(r, in))
            part[side.nparts++] = (struct run_part){ .rank = r->o.comm != COMM_NULL ? i / NSPACE : r->o.rank,
                                                     .predicted_bytes = -1, .category = elsewhere[in],
                                                     .bytes = m->elsewhere[in][i / NSPACE] };
    }
    side.part = part;
    side.moment = moment;
    rc = part && moment ? runs_memory_measured(r->db, r->run_id, &side) : fail("out of memory for the ranks' record");
    free(part);
    free(moment);
    return rc;
}

static int record_measured(struct dpxrun *r)
{
    const struct measured *m = &r->measured;
    int64_t world = r->o.comm != COMM_NULL ? r->here.cluster.world_size : 1;
    struct run_memory *memory = calloc((size_t)world, sizeof *memory);
    struct run_comm comm[COMM_LINES];
    struct run_phase phase[NRP];
    struct comm_pair pair[COMM_LINES];
    int n = predict_comm_pairs(r, pair), rc = 0;

    if (!memory)
        return fail("out of memory for the ranks' record");
    for (int64_t i = 0; i < world; i++)
        memory[i] = (struct run_memory){ r->o.comm != COMM_NULL ? i : r->o.rank, NULL, m->held[i], m->allocated[i],
                                         m->process[i] };
    for (int i = 0; i < n; i++)
        comm[i] = (struct run_comm){ coll_name(pair[i].op), pair[i].group_name, dtype_name(pair[i].dtype),
                                     pair[i].count, pair[i].bytes };
    for (int i = 0; i < NRP; i++)
        phase[i] = (struct run_phase){ predict_phase_names[i], m->phase[i] };
    for (int i = 0; i < m->nsamples && rc == 0; i++)
        rc = record_sample(r, &m->sample[i]);
    if (rc == 0)
        rc = record_stages(r);
    if (rc == 0 && (runs_memory(r->db, r->run_id, memory, (int)world) < 0 || runs_comm(r->db, r->run_id, comm, n) < 0 ||
                    runs_phases(r->db, r->run_id, phase, predict_phases(r)) < 0 || record_measured_memory(r, world) < 0))
        rc = -1;
    free(memory);
    return rc;
}

int record_end(struct dpxrun *r, enum run_outcome how, const char *why)
{
    const struct measured *m = &r->measured;
    struct run_end end = { .outcome = how, .reason = why, .ended = wall_clock(), .step_s = NAN, .p10_s = NAN,
                           .p90_s = NAN, .tokens_per_s = NAN };
    int rc = 0;

    if (!r->db || r->run_id <= 0)
        return 0;
    if (how == RUN_FINISHED) {
        rc = record_measured(r);
        end.step_s = m->median_s;
        end.p10_s = m->p10_s;
        end.p90_s = m->p90_s;
        end.tokens_per_s = (double)m->report[m->n - 1].tokens / m->median_s;
    }
    return runs_end(r->db, r->run_id, &end) < 0 ? -1 : rc;
}

/* By a connection of its own: the other thread may be in the middle of a transaction.  Nothing is said
 * of an error, for one has just been reported. */
void record_told(void *arg, const char *why, bool by_signal)
{
    const struct dpxrun *r = arg;
    struct run_end end = { .outcome = by_signal ? RUN_INTERRUPTED : RUN_FAILED, .reason = why, .ended = wall_clock(),
                           .step_s = NAN, .p10_s = NAN, .p90_s = NAN, .tokens_per_s = NAN };
    char unsaid[256];

    fail_capture(unsaid, sizeof unsaid);
    struct db *db = db_open(r->o.db);
    if (db)
        runs_end(db, r->run_id, &end);
    db_close(db);
    fail_capture(NULL, 0);
}
