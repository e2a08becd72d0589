/* offload.h -- a lowered plan with its optimizer states elsewhere: sent to pinned memory and back beside compute, through
 * a file as well, or kept in host memory where the host's threads update them, or with its blocks' activations in pinned
 * memory between forward and backward; and runs of it, with what each memory allocated held against its ledger.
 *
 *     struct schedules s;
 *     struct outcome o;
 *     tiny(&plan);
 *     lowered_as(&plan, BY_FILE, &s);
 *     run_on(&plan, &s, device, &o);       (NULL: the host) */
#ifndef DPX_TESTS_EXEC_OFFLOAD_H
#define DPX_TESTS_EXEC_OFFLOAD_H

#include <math.h>

#include "tests/check.h"
#include "tests/mpi/matrix_plans.h"

#include "exec/run/executor.h"
#include "model/lower/lower.h"
#include "model/memory/moved.h"
#include "model/schedule/ledger.h"

enum { STEPS = 4 };
static char why[512];

/* ---- a schedule written once more, with other entries between ---- */

/* At the begin of each schedule (old: NULL) and before each old entry: may append others, or take its place (true). */
typedef bool put_fn(struct schedules *s, enum sched_id id, const struct op *old, const struct act *acts);

static void again(struct schedules *s, const struct op *old, const struct act *acts)
{
    struct op *o = sched_op(s, (enum op_kind)old->kind, (enum stream)old->stream, (enum phase)old->phase, old->what);
    uint32_t act0 = o->act0;

    for (uint32_t k = 0; k < old->nacts; k++) {
        const struct act *a = &acts[old->act0 + k];
        sched_act(s, ACT_USE, a->buf, 0, 0);
        s->acts[s->nacts - 1] = *a;
    }
    o = &s->ops[s->nops - 1];
    *o = *old;
    o->act0 = act0;
}

static void rewrite(struct schedules *s, put_fn *before)
{
    struct schedules old = *s;

    s->ops = NULL, s->nops = 0, s->cap_ops = 0;
    s->acts = NULL, s->nacts = 0, s->cap_acts = 0;
    memset(s->span_at, 0, sizeof s->span_at);
    for (int id = 0; id < NSCHED; id++) {
        sched_begin(s, (enum sched_id)id);
        if (sched_has(s, (enum sched_id)id))
            before(s, (enum sched_id)id, NULL, NULL);
        for (int i = old.begin[id]; i < old.end[id]; i++) {
            const struct op *o = &old.ops[i];
            if (o->kind == OP_REPEAT)
                sched_repeat(s, o->u.repeat.n);
            else if (o->kind == OP_END)
                sched_repeat_end(s);
            else if (!before(s, (enum sched_id)id, o, old.acts))
                again(s, o, old.acts);
        }
        sched_end(s, (enum sched_id)id);
    }
    free(old.ops);
    free(old.acts);
    if (!schedules_check(s, why, sizeof why))
        fail_msg("%s", why);
}

/* Families of a category, in the order of declaration: one for each class of unit. */
static int family(const struct schedules *s, enum category c, int k)
{
    for (int b = 0; b < s->nbufs; b++)
        if (s->bufs[b].category == c && s->bufs[b].space == SPACE_DEVICE && k-- == 0)
            return b;
    return -1;
}

enum { MOST_CLASSES = 4 };
static int nclasses, states[MOST_CLASSES], params[MOST_CLASSES], grads[MOST_CLASSES];
static int pinned[MOST_CLASSES], pinned_too[MOST_CLASSES], files[MOST_CLASSES];
static int64_t state_bytes, param_bytes, grad_bytes;

static int64_t bytes_of(const struct schedules *s, int b) { return s->bufs[b].count * s->bufs[b].bytes; }

static void find_families(const struct schedules *s)
{
    state_bytes = param_bytes = grad_bytes = 0;
    for (nclasses = 0; family(s, CAT_OPTIMIZER, nclasses) >= 0; nclasses++) {
        states[nclasses] = family(s, CAT_OPTIMIZER, nclasses);
        params[nclasses] = family(s, CAT_PARAMS, nclasses);
        grads[nclasses] = family(s, CAT_GRADS, nclasses);
        state_bytes += bytes_of(s, states[nclasses]);
        param_bytes += bytes_of(s, params[nclasses]);
        grad_bytes += bytes_of(s, grads[nclasses]);
    }
    assert_true(nclasses > 0 && nclasses <= MOST_CLASSES);
}

/* A family like another, elsewhere. */
static int like(struct schedules *s, int b, enum space in)
{
    struct buf f = s->bufs[b];
    int copy = sched_buf_in(s, in, f.category, f.what, f.of, f.first, f.count, f.bytes);

    sched_holds(s, copy, f.layout);
    return copy;
}

/* Family `from`, which goes, is copied to family `to`, which comes. */
static void moves(struct schedules *s, enum stream st, const char *what, uint16_t after, int from, int to)
{
    int64_t bytes = bytes_of(s, from);

    sched_copy(s, st, PHASE_OPTIMIZER, what, bytes, bytes)->after = after;
    sched_does(s, COPY_SET, 1);
    sched_act_all(s, ACT_R | ACT_FREE, from);
    sched_act_all(s, ACT_ALLOC | ACT_W, to);
}

/* ---- states away while compute runs ---- */

static bool through_file;

static void states_leave(struct schedules *s)
{
    for (int k = 0; k < nclasses; k++)
        moves(s, STREAM_D2H, "states down", 0, states[k], pinned[k]);
    for (int k = 0; k < nclasses && through_file; k++) {
        moves(s, STREAM_DISK_WRITE, "states to disk", AFTER(STREAM_D2H), pinned[k], files[k]);
        moves(s, STREAM_DISK_READ, "states from disk", AFTER(STREAM_DISK_WRITE), files[k], pinned_too[k]);
    }
}

/* A step begins with states that leave, and has them again when its optimizer starts. */
static bool away(struct schedules *s, enum sched_id id, const struct op *o, const struct act *acts)
{
    if (!o && id != SCHED_INIT)
        states_leave(s);
    if (!o || o->kind != OP_OPTIMIZER)
        return false;
    for (int k = 0; k < nclasses; k++)
        moves(s, STREAM_H2D, "states up", AFTER(STREAM_D2H) | AFTER(STREAM_DISK_READ),
              through_file ? pinned_too[k] : pinned[k], states[k]);
    again(s, o, acts);
    s->ops[s->nops - 1].after |= AFTER(STREAM_H2D);
    return true;
}

static void send_away(struct schedules *s, bool disk)
{
    find_families(s);
    through_file = disk;
    for (int k = 0; k < nclasses; k++) {
        pinned[k] = like(s, states[k], SPACE_PINNED);
        pinned_too[k] = disk ? like(s, states[k], SPACE_PINNED) : -1;
        files[k] = disk ? like(s, states[k], SPACE_DISK) : -1;
    }
    rewrite(s, away);
}

/* ---- states in host memory, updated there ---- */

static int params_away[MOST_CLASSES], grads_away[MOST_CLASSES];

static void act_each(struct schedules *s, int what, const int *families)
{
    for (int k = 0; k < nclasses; k++)
        sched_act_all(s, what, families[k]);
}

/* The host's own part of the first weights and zeros. */
static void load_on_host(struct schedules *s)
{
    sched_op(s, OP_MEMORY, STREAM_HOST, PHASE_INIT, "states on the host")->flags = OPF_LOAD;
    act_each(s, ACT_ALLOC | ACT_WRITE, states);
    act_each(s, ACT_ALLOC | ACT_WRITE, params_away);
    sched_op(s, OP_MEMORY, STREAM_HOST, PHASE_INIT, "gradients on the host");
    act_each(s, ACT_ALLOC, grads_away);
}

static void update_on_host(struct schedules *s, const struct op *old)
{
    sched_copy(s, STREAM_D2H, PHASE_OPTIMIZER, "gradients down", grad_bytes, grad_bytes)->after = AFTER(STREAM_COMPUTE);
    sched_does(s, COPY_SET, 1);
    act_each(s, ACT_R, grads);
    act_each(s, ACT_W, grads_away);
    struct op *o = sched_op(s, OP_OPTIMIZER, STREAM_HOST, PHASE_OPTIMIZER, "AdamW on the host");
    o->after = AFTER(STREAM_D2H);
    o->u.optimizer.elems = old->u.optimizer.elems;
    act_each(s, ACT_R, grads_away);
    act_each(s, ACT_RW, states);
    act_each(s, ACT_RW, params_away);
    sched_copy(s, STREAM_H2D, PHASE_OPTIMIZER, "parameters up", param_bytes, param_bytes)->after =
        AFTER(STREAM_HOST) | AFTER(STREAM_COMPUTE);
    sched_does(s, COPY_SET, 1);
    act_each(s, ACT_R, params_away);
    act_each(s, ACT_W, params);
}

static bool is_state(int b)
{
    for (int k = 0; k < nclasses; k++)
        if (states[k] == b)
            return true;
    return false;
}

static bool on_host(struct schedules *s, enum sched_id id, const struct op *o, const struct act *acts)
{
    if (!o && id == SCHED_INIT)
        load_on_host(s);
    if (!o)
        return true;
    if (o->kind == OP_OPTIMIZER) {
        update_on_host(s, o);
        return true;
    }
    if (id != SCHED_INIT) {
        again(s, o, acts);
        if (o->kind == OP_COPY && o->phase == PHASE_OPTIMIZER && o->u.copy.fn == COPY_ZERO)
            s->ops[s->nops - 1].after |= AFTER(STREAM_D2H);     /* not before the gradients are read */
        return true;
    }
    /* The device's part, without the states. */
    struct op *n = sched_op(s, (enum op_kind)o->kind, (enum stream)o->stream, PHASE_INIT, o->what);
    n->flags = o->flags;
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
        if (!is_state(acts[k].buf))
            sched_act_like(s, &acts[k], acts[k].what);
    return true;
}

static void keep_on_host(struct schedules *s)
{
    find_families(s);
    for (int k = 0; k < nclasses; k++) {
        params_away[k] = like(s, params[k], SPACE_PINNED);
        grads_away[k] = like(s, grads[k], SPACE_PINNED);
        s->bufs[states[k]].space = SPACE_HOST;
    }
    s->spaces |= IN(SPACE_HOST);
    rewrite(s, on_host);
}

/* ---- what blocks keep, away between forward and backward ---- */

static int kept_at(const struct schedules *s, const struct op *o, const struct act *acts, int bit)
{
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct buf *b = &s->bufs[acts[k].buf];
        if ((acts[k].what & bit) && b->category == CAT_ACTIVATIONS && b->of)
            return (int)k;
    }
    return -1;
}

static int kept_away[MOST_CLASSES + 64];        /* by family */
static int64_t kept_bytes;

static void moves_kept(struct schedules *s, bool down, struct act at)
{
    int here = at.buf, there = kept_away[at.buf];
    int64_t bytes = s->bufs[here].bytes;

    sched_copy(s, down ? STREAM_D2H : STREAM_H2D, down ? PHASE_FORWARD : PHASE_BACKWARD, down ? "kept down" : "kept up",
               bytes, bytes)->after = down ? AFTER(STREAM_COMPUTE) : AFTER(STREAM_D2H) | AFTER(STREAM_COMPUTE);
    sched_does(s, COPY_SET, 1);
    sched_act(s, ACT_R | ACT_FREE, down ? here : there, at.at, at.by);
    sched_act(s, ACT_ALLOC | ACT_W, down ? there : here, at.at, at.by);
}

static bool keep_away(struct schedules *s, enum sched_id id, const struct op *o, const struct act *acts)
{
    int comes = o && o->kind == OP_COMPUTE ? kept_at(s, o, acts, ACT_ALLOC) : -1;
    int goes = o && o->kind == OP_COMPUTE ? kept_at(s, o, acts, ACT_FREE) : -1;

    (void)id;
    if (comes < 0 && goes < 0)
        return !o;
    if (goes >= 0)
        moves_kept(s, false, acts[goes]);
    again(s, o, acts);
    if (goes >= 0)
        s->ops[s->nops - 1].after |= AFTER(STREAM_H2D);
    if (comes >= 0)
        moves_kept(s, true, acts[comes]);
    return true;
}

static void send_kept(struct schedules *s)
{
    int families = s->nbufs;

    assert_true(families < MOST_CLASSES + 64);
    kept_bytes = 0;
    for (int b = 0; b < families; b++)
        if (s->bufs[b].category == CAT_ACTIVATIONS && s->bufs[b].of) {
            kept_away[b] = like(s, b, SPACE_PINNED);
            kept_bytes = s->bufs[b].bytes > kept_bytes ? s->bufs[b].bytes : kept_bytes;
        }
    rewrite(s, keep_away);
}

/* ---- runs ---- */

struct outcome { double loss[STEPS]; uint64_t weights; };

static uint64_t hash(uint64_t h, const void *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211u;     /* FNV-1a */
    return h;
}

static int hash_param(void *arg, int tensor, int64_t from, int64_t n, const void *p, enum dtype t, bool master)
{
    uint64_t *h = arg;

    /* Families come in whatever order: a sum of hashes. */
    if (master)
        *h += hash(hash(hash(14695981039346656037u, &tensor, sizeof tensor), &from, sizeof from), p, n * dtype_bytes(t));
    return 0;
}

static struct executor *open_on(const struct plan *p, const struct schedules *s, struct device *d, struct weights *w)
{
    static struct comm *const nobody[PLAN_GROUPS];
    static atomic_bool stop;

    atomic_store(&stop, false);
    return executor_new(&(struct executor_args){ .plan = p, .schedules = s, .comm = nobody, .device = d, .stop = &stop,
                                                 .threads = 1, .limit = INT64_MAX, .weights = w, .seed = 7,
                                                 .folder = "/tmp" });
}

/* The same with its initial weights. */
static struct executor *begun(const struct plan *p, const struct schedules *s, struct device *d, struct weights *w)
{
    struct executor *x = open_on(p, s, d, w);

    assert_non_null(x);
    if (executor_map(x) < 0 || executor_run(x, SCHED_INIT, NULL) < 0)
        fail_msg("it does not begin");
    return x;
}

static void check_meters(const struct executor *x, const struct schedules *s)
{
    for (enum space in = SPACE_DEVICE; in < NSPACE; in++) {
        const struct arena_meter *m = executor_meter_in(x, in);
        struct ledger l;
        ledger_run_in(s, IN(in), &l);
        assert_int_equal(executor_allocated_peak_in(x, in), l.peak.bytes);
        assert_int_equal(m->peak, l.peak.bytes);
        for (int c = 0; c < NCAT; c++)
            assert_int_equal(m->live_by[c], l.persistent[c]);
        assert_true(executor_held_peak_in(x, in) <= executor_extent_in(x, in));
        assert_true((executor_held_peak_in(x, in) > 0) == (l.peak.bytes > 0));
    }
}

/* What was copied between memories in these steps, against the schedules. */
static void check_moved(const struct executor *x, const struct schedules *s)
{
    struct moved_table want = { 0 };
    int64_t of_files[2] = { 0 };

    moved_add(s, SCHED_INIT, 1, &want);
    moved_add(s, SCHED_FIRST, 1, &want);
    moved_add(s, SCHED_STEADY, STEPS - 1, &want);
    for (enum space from = 0; from < NSPACE; from++)
        for (enum space to = 0; to < NSPACE; to++) {
            assert_int_equal(executor_moved(x, from, to)->count, want.of[from][to].count);
            assert_int_equal(executor_moved(x, from, to)->bytes, want.of[from][to].bytes);
            of_files[0] += from == SPACE_DISK ? want.of[from][to].bytes : 0;
            of_files[1] += to == SPACE_DISK ? want.of[from][to].bytes : 0;
        }
    if (executor_store(x)) {
        assert_int_equal(store_bytes_read(executor_store(x)), of_files[0]);
        assert_int_equal(store_bytes_written(executor_store(x)), of_files[1]);
    }
}

static inline void run_on(const struct plan *p, const struct schedules *s, struct device *d, struct outcome *out)
{
    int32_t ids[256], labels[256];
    int64_t samples[16];
    struct weights *w = weights_from_seed(&p->model, 11);
    struct executor *x = begun(p, s, d, w);

    memset(out, 0, sizeof *out);
    assert_true(p->accumulation * p->micro_batch * p->seq <= 256 && p->accumulation <= 16);
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < 256; k++) {
            ids[k] = (7 * k + 13 * i) % (int)p->model.vocab;
            labels[k] = (7 * k + 13 * i + 5) % (int)p->model.vocab;
        }
        for (int k = 0; k < 16; k++)
            samples[k] = i * 16 + k;
        struct exec_step step = { .number = i + 1, .ids = ids, .labels = labels, .samples = samples,
                                  .adamw = { .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                                             .step = i + 1, .grad_scale = 1 } };
        if (executor_run(x, i == 0 ? SCHED_FIRST : SCHED_STEADY, &step) < 0)
            fail_msg("step %d fails", i + 1);
        out->loss[i] = step.loss_sum;
    }
    if (executor_params(x, hash_param, &out->weights) < 0)
        fail_msg("the weights cannot be read");
    check_moved(x, s);
    check_meters(x, s);
    executor_free(x);
    weights_close(w);
}

/* One rank, units of blocks, master weights among the states. */
static void tiny(struct plan *p)
{
    memset(p, 0, sizeof *p);
    p->model = model[0];
    if (cluster_load("localhost:1", &p->cluster) < 0)
        fail_msg("no cluster");
    p->seq = SEQ;
    p->micro_batch = 4;
    p->accumulation = 2;
    plan_defaults(p, STRAT_ZERO2, DIALECT_PAPER, DT_BF16);
    p->accumulation = 2;
    p->clip = 0;
    if (plan_check(p, "tiny") < 0)
        fail_msg("the plan is refused");
}

static void lowered(const struct plan *p, struct schedules *s)
{
    memset(s, 0, sizeof *s);
    s->detailed = true;
    if (lower(p, 0, s) < 0)
        fail_msg("not lowered");
}

enum { AS_IT_IS, AWAY, BY_FILE, KEPT, ON_HOST, NWAYS };
static const char *const ways[NWAYS] = { "as it is", "away and back", "through a file", "activations away", "on the host" };

static inline void lowered_as(const struct plan *p, int way, struct schedules *s)
{
    lowered(p, s);
    if (way == ON_HOST)
        keep_on_host(s);
    else if (way == KEPT)
        send_kept(s);
    else if (way != AS_IT_IS)
        send_away(s, way == BY_FILE);
}

#endif
