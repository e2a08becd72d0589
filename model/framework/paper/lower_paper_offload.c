/* lower_paper_offload.c -- ZeRO-Offload (arXiv 2101.06840) and ZeRO-Infinity (arXiv 2104.07857) as their papers state them,
 * for stages 2 and 3 and FSDP with units.
 *
 * States on the host (ZeRO-Offload, section 4): a unit's gradients, reduced, leave the device as soon as they are complete;
 * AdamW runs on the host; updated parameters return.  Bytes an element in mixed precision, N ranks:
 *
 *              device       host, each rank       moved over PCIe in a step of one micro-step
 *   stage 2    2            (2 + 12) / N          2 / N down, 2 / N up
 *   stage 3    0            (2 + 2 + 12) / N      2 / N down, 4 / N up: a shard for each gather
 *
 * and what a unit needs for as long as it is computed.  In fp32 the host keeps weights of its own where the device has the
 * parameters: 4, and (4 + 12) / N.
 *
 * On disks (ZeRO-Infinity, section 5): parameters, gradients and states are files of a unit.  The step goes from unit to
 * unit: the next one is read while this one is stepped and the last one is written, so that two are in host memory.
 * Gradients of earlier micro-steps are read, added to and written again. */
#include "model/framework/paper/lower_paper.h"

void paper_away_setup(struct paper *z)
{
    enum offload_device states = z->p->ds.offload_optimizer.device, params = z->p->ds.offload_param.device;
    struct paper_away *a = &z->away;

    a->states = states != OFFLOAD_NONE;
    a->params = params != OFFLOAD_NONE;
    a->states_in = states == OFFLOAD_NVME ? SPACE_DISK : a->states ? SPACE_HOST : SPACE_DEVICE;
    a->grads_in = states == OFFLOAD_NVME ? SPACE_DISK : a->states ? SPACE_PINNED : SPACE_DEVICE;
    a->params_in = params == OFFLOAD_NVME ? SPACE_DISK : a->params ? SPACE_PINNED : SPACE_DEVICE;
    z->shards_params |= a->params;
    if (!a->states)
        return;
    a->ev_down = sched_event(z->s);
    a->ev_written = sched_event(z->s);
    for (int i = 0; i < 2; i++) {
        a->ev_read[i] = sched_event(z->s);
        a->ev_up[i] = sched_event(z->s);
    }
}

/* ---- buffers ---- */

void paper_away_declare(struct paper *z, enum unit_class c, int64_t shard)
{
    const char *of = c == UC_ROOT ? NULL : unit_class_name(c);
    int64_t e = dtype_bytes(z->r.kept), g = dtype_bytes(z->r.grad);
    struct paper_away *a = &z->away;
    struct schedules *s = z->s;
    int n = z->walk.map.of_class[c];

    a->shard_elems[c] = shard;
    a->arrived[c] = sched_buf_in(s, SPACE_PINNED, CAT_GRADS, "gradients on their way down", of, 0, n, g * shard);
    a->summed[c] = sched_buf_in(s, SPACE_PINNED, CAT_GRADS, "gradients from their file", of, 0, n, g * shard);
    a->states_at[c] = sched_buf_in(s, SPACE_HOST, CAT_OPTIMIZER, "states from their file", of, 0, n,
                                   paper_state_bytes(z) * shard);
    a->updated[c] = sched_buf_in(s, SPACE_PINNED, CAT_PARAMS, "updated params", of, 0, n, e * shard);
    a->shard[c] = sched_buf_in(s, SPACE_PINNED, CAT_PARAMS, "params from their file", of, 0, n, e * shard);
    a->staged[c] = sched_buf(s, CAT_UNSHARDED, "shard to be gathered", of, 0, n, e * shard);
}

void paper_away_describe(struct paper *z, enum unit_class c, int64_t from, int64_t n)
{
    struct paper_away *a = &z->away;
    int params = paper_flat(z, c, HOLDS_PARAM, z->r.kept, from, n, 0);
    int grads = paper_flat(z, c, HOLDS_GRAD, z->r.grad, from, n, 0);
    int states = paper_flat(z, c, HOLDS_EXP_AVG, DT_FP32, from, n, 0);

    paper_slices(z, c, HOLDS_EXP_AVG_SQ, DT_FP32, from, n, 4 * n);
    if (paper_has_master(z))
        paper_slices(z, c, HOLDS_MASTER, DT_FP32, from, n, 8 * n);
    sched_holds(z->s, a->updated[c], params);
    sched_holds(z->s, a->shard[c], params);
    sched_holds(z->s, a->staged[c], params);
    sched_holds(z->s, a->arrived[c], grads);
    sched_holds(z->s, a->summed[c], grads);
    sched_holds(z->s, a->states_at[c], states);
}

static int64_t param_bytes(const struct paper *z, struct at u) { return z->away.shard_elems[u.c] * dtype_bytes(z->r.kept); }
static int64_t grad_bytes(const struct paper *z, struct at u)  { return z->away.shard_elems[u.c] * dtype_bytes(z->r.grad); }
static int64_t state_bytes(const struct paper *z, struct at u) { return z->away.shard_elems[u.c] * paper_state_bytes(z); }

/* ---- entries ---- */

/* Bytes from one buffer to another; acts on both. */
static struct op *move(struct paper *z, enum stream st, enum phase ph, const char *what, struct at u, int64_t bytes)
{
    struct op *o = sched_copy(z->s, st, ph, what, bytes, bytes);

    walk_name(&z->walk, u);
    sched_does(z->s, COPY_SET, 1);
    return o;
}

static struct op *from_to(struct paper *z, struct op *o, struct at u, int did, int from, int does, int to)
{
    sched_act(z->s, did, from, u.i, u.by);
    sched_act(z->s, does, to, u.i, u.by);
    return o;
}

/* Where a part of a unit that may have a file is in host memory. */
static struct op *file_read(struct paper *z, enum phase ph, const char *what, struct at u, int64_t bytes, int file, int to)
{
    return from_to(z, move(z, STREAM_DISK_READ, ph, what, u, bytes), u, ACT_R, file, ACT_ALLOC | ACT_W, to);
}

static struct op *file_write(struct paper *z, enum phase ph, const char *what, struct at u, int64_t bytes, int from, int file)
{
    struct op *o = from_to(z, move(z, STREAM_DISK_WRITE, ph, what, u, bytes), u, ACT_R | ACT_FREE, from,
                           ph == PHASE_INIT ? ACT_ALLOC | ACT_W : ACT_W, file);

    o->after = AFTER(STREAM_HOST) | AFTER(STREAM_D2H);
    return o;
}

static bool on_disk(enum space in) { return in == SPACE_DISK; }

/* ---- init ---- */

static void load(struct paper *z, enum stream st, struct at u, int family)
{
    struct op *o = sched_op(z->s, OP_MEMORY, st, PHASE_INIT, "model states");

    o->flags = OPF_LOAD;
    o->after = AFTER(STREAM_DISK_WRITE);
    walk_name(&z->walk, u);
    sched_act(z->s, ACT_ALLOC | ACT_WRITE, family, u.i, u.by);
}

static void init_unit(struct paper *z, struct at u)
{
    struct paper_away *a = &z->away;

    load(z, a->params ? STREAM_HOST : STREAM_COMPUTE, u, on_disk(a->params_in) ? a->shard[u.c] : z->params[u.c]);
    if (on_disk(a->params_in))
        file_write(z, PHASE_INIT, "write params", u, param_bytes(z, u), a->shard[u.c], z->params[u.c]);
    load(z, STREAM_HOST, u, on_disk(a->states_in) ? a->states_at[u.c] : z->optimizer[u.c]);
    if (on_disk(a->states_in))
        file_write(z, PHASE_INIT, "write states", u, state_bytes(z, u), a->states_at[u.c], z->optimizer[u.c]);
    sched_op(z->s, OP_MEMORY, STREAM_HOST, PHASE_INIT, "gradients");
    walk_name(&z->walk, u);
    sched_act(z->s, ACT_ALLOC, z->grads[u.c], u.i, u.by);
}

void paper_away_init(struct paper *z)
{
    for (int c = 0; c < NUC; c++)
        for (int i = 0; i < z->walk.map.of_class[c]; i++)
            init_unit(z, (struct at){ .c = (enum unit_class)c, .i = i });
    sched_op(z->s, OP_WAIT, STREAM_ISSUE, PHASE_INIT, "model states")->after =
        AFTER(STREAM_COMPUTE) | AFTER(STREAM_HOST) | AFTER(STREAM_DISK_WRITE);
}

/* ---- parameters ---- */

int paper_away_bring(struct paper *z, struct at u, enum phase phase, uint16_t after)
{
    struct paper_away *a = &z->away;
    int from = z->params[u.c], to = z->n > 1 ? a->staged[u.c] : z->gathered[u.c];

    if (on_disk(a->params_in)) {
        file_read(z, phase, "read params", u, param_bytes(z, u), from, a->shard[u.c])->after = after | AFTER(STREAM_H2D);
        from = a->shard[u.c];
        after |= AFTER(STREAM_DISK_READ);
    }
    from_to(z, move(z, STREAM_H2D, phase, "params to device", u, param_bytes(z, u)), u,
            from == z->params[u.c] ? ACT_R : ACT_R | ACT_FREE, from, ACT_ALLOC | ACT_W, to)->after = after | AFTER(STREAM_GATHER);
    return z->n > 1 ? to : -1;
}

/* ---- gradients ---- */

void paper_away_begin(void *paper)
{
    struct paper *z = paper;

    if (!z->away.states)
        return;
    sched_op(z->s, OP_MEMORY, STREAM_D2H, PHASE_FORWARD, "no gradients yet")->record = z->away.ev_down;
}

void paper_away_await(struct paper *z)
{
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await gradients on their way down")->wait[0] = z->away.ev_down;
}

static void add_on_host(struct paper *z, struct at u, int to, uint16_t after)
{
    sched_copy(z->s, STREAM_HOST, PHASE_REDUCE, "add gradients", 2 * grad_bytes(z, u), grad_bytes(z, u))->after = after;
    walk_name(&z->walk, u);
    sched_does(z->s, COPY_ADD, 1);
    sched_act(z->s, ACT_R | ACT_FREE, z->away.arrived[u.c], u.i, u.by);
    sched_act(z->s, ACT_A, to, u.i, u.by);
}

void paper_away_gradient(struct paper *z, struct at u, uint16_t after)
{
    struct paper_away *a = &z->away;
    bool file = on_disk(a->grads_in), adds = !z->walk.first;
    struct op *o = move(z, STREAM_D2H, PHASE_REDUCE, "gradients to host", u, grad_bytes(z, u));

    o->after = after | AFTER(STREAM_HOST) | (file ? AFTER(STREAM_DISK_WRITE) : 0);
    o->record = a->ev_down;
    sched_act_as(z->s, ACT_R | ACT_FREE, z->full_grads[u.c], u.i, u.by, z->own_grads[u.c]);
    if (file || adds)
        sched_act(z->s, ACT_ALLOC | ACT_W, a->arrived[u.c], u.i, u.by);
    else
        sched_act(z->s, ACT_W, z->grads[u.c], u.i, u.by);
    if (file && adds)
        file_read(z, PHASE_REDUCE, "read gradients", u, grad_bytes(z, u), z->grads[u.c], a->summed[u.c])->after =
            AFTER(STREAM_DISK_WRITE);
    if (adds)
        add_on_host(z, u, file ? a->summed[u.c] : z->grads[u.c], AFTER(STREAM_D2H) | (file ? AFTER(STREAM_DISK_READ) : 0));
    if (file)
        file_write(z, PHASE_REDUCE, "write gradients", u, grad_bytes(z, u), adds ? a->summed[u.c] : a->arrived[u.c],
                   z->grads[u.c]);
}

/* ---- the step ---- */

static bool next(const struct paper *z, struct at *u)
{
    if (++u->i < z->walk.map.of_class[u->c])
        return true;
    u->i = 0;
    do {
        if (++u->c == NUC)
            return false;
    } while (z->walk.map.of_class[u->c] == 0);
    return true;
}

/* One unit's are in host memory. */
void paper_away_norm(struct paper *z, const struct norm_sum *sums, int n)
{
    struct at u = walk_root;
    uint16_t after = AFTER(STREAM_DISK_WRITE);

    do {
        file_read(z, PHASE_OPTIMIZER, "read gradients", u, grad_bytes(z, u), z->grads[u.c], z->away.summed[u.c])->after = after;
        sched_copy(z->s, STREAM_HOST, PHASE_OPTIMIZER, "gradient norm", grad_bytes(z, u), 0)->after = AFTER(STREAM_DISK_READ);
        walk_name(&z->walk, u);
        sched_does(z->s, COPY_NORM, 1);
        sched_act(z->s, ACT_R | ACT_FREE, z->away.summed[u.c], u.i, u.by);
        after = AFTER(STREAM_HOST);
    } while (next(z, &u));
    z->away.summed_norm = lower_sum_norm(z->s, STREAM_HOST, sums, n, false);
}

/* Parameters in fp32 that have a file are their own master. */
static bool steps_params(const struct paper *z) { return on_disk(z->away.params_in) && paper_state_bytes(z) == 8; }

static bool reads(const struct paper *z) { return on_disk(z->away.states_in) || steps_params(z); }

/* What a unit has in files, ahead of its step: after the writes of the one before the one that is stepped meanwhile. */
static void read_unit(struct paper *z, struct at u, int k)
{
    struct paper_away *a = &z->away;
    int begin = z->s->nops;

    if (on_disk(a->states_in)) {
        file_read(z, PHASE_OPTIMIZER, "read states", u, state_bytes(z, u), z->optimizer[u.c], a->states_at[u.c]);
        file_read(z, PHASE_OPTIMIZER, "read gradients", u, grad_bytes(z, u), z->grads[u.c], a->summed[u.c]);
    }
    if (steps_params(z))
        file_read(z, PHASE_OPTIMIZER, "read params", u, param_bytes(z, u), z->params[u.c], a->updated[u.c]);
    if (z->s->nops == begin)
        return;
    if (k == 0)
        z->s->ops[begin].after = AFTER(STREAM_DISK_WRITE) | AFTER(STREAM_HOST);
    else if (k > 1)
        z->s->ops[begin].wait[0] = a->ev_written;
    z->s->ops[z->s->nops - 1].record = a->ev_read[k & 1];
}

/* What comes from files is scaled to the norm when it is there. */
static void clip_read(struct paper *z, struct at u, int k)
{
    struct op *o = sched_copy(z->s, STREAM_HOST, PHASE_OPTIMIZER, "scale gradients", grad_bytes(z, u), grad_bytes(z, u));

    o->after = z->away.summed_norm;
    o->wait[0] = z->away.ev_read[k & 1];
    walk_name(&z->walk, u);
    sched_does(z->s, COPY_CLIP, 1);
    sched_act(z->s, ACT_RW, z->away.summed[u.c], u.i, u.by);
}

static void adam(struct paper *z, struct at u, int k)
{
    struct paper_away *a = &z->away;
    bool files = on_disk(a->states_in), in_place = a->params && !on_disk(a->params_in);
    struct op *o;

    if (files && z->p->clip > 0)
        clip_read(z, u, k);
    o = lower_adamw(z->s, z->p, ADAMW_ON_HOST, a->shard_elems[u.c]);
    o->wait[0] = reads(z) ? a->ev_read[k & 1] : 0;
    o->wait[1] = !a->params && k > 1 ? a->ev_up[k & 1] : 0;
    walk_name(&z->walk, u);
    sched_act(z->s, files ? ACT_R | ACT_FREE : ACT_R, files ? a->summed[u.c] : z->grads[u.c], u.i, u.by);
    sched_act(z->s, ACT_RW, files ? a->states_at[u.c] : z->optimizer[u.c], u.i, u.by);
    sched_act(z->s, in_place || steps_params(z) ? ACT_RW : ACT_ALLOC | ACT_W, in_place ? z->params[u.c] : a->updated[u.c],
              u.i, u.by);
}

static void out(struct paper *z, struct at u, int k)
{
    struct paper_away *a = &z->away;
    struct op *o = NULL;

    if (on_disk(a->params_in))
        o = file_write(z, PHASE_OPTIMIZER, "write params", u, param_bytes(z, u), a->updated[u.c], z->params[u.c]);
    if (on_disk(a->states_in))
        o = file_write(z, PHASE_OPTIMIZER, "write states", u, state_bytes(z, u), a->states_at[u.c], z->optimizer[u.c]);
    if (o)
        o->record = a->ev_written;
    if (a->params)
        return;
    o = move(z, STREAM_H2D, PHASE_OPTIMIZER, "params to device", u, param_bytes(z, u));
    o->after = AFTER(STREAM_HOST);
    o->record = a->ev_up[k & 1];
    sched_act(z->s, ACT_R | ACT_FREE, a->updated[u.c], u.i, u.by);
    sched_act_as(z->s, ACT_W, z->params[u.c], u.i, u.by, z->shards_params ? 0 : z->own_params[u.c]);
}

void paper_away_step(struct paper *z)
{
    struct at u = walk_root, ahead = u;
    bool more = true;

    read_unit(z, u, 0);
    for (int k = 0; more; k++, u = ahead) {
        more = next(z, &ahead);
        if (more)
            read_unit(z, ahead, k + 1);
        adam(z, u, k);
        out(z, u, k);
    }
}
