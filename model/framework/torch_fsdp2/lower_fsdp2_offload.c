/* lower_fsdp2_offload.c -- FSDP2 with CPUOffloadPolicy.
 *
 * Source: PyTorch 2.15.  Sharded parameters are the host's (FSDPParam._init_sharded_param, reset_sharded_param).
 * FSDPParam.all_gather_inputs copies each to the device by itself, in its own dtype, and casts it there: so a unit
 * takes one copy a parameter, on the stream of the copy-in.  On one rank nothing is gathered: wait_for_unshard() brings a
 * parameter and copies it into its unsharded tensor before it brings the next, so that a unit's unsharded tensors come one
 * by one.  foreach_reduce sends each parameter's reduced gradient
 * back on the stream that reduced it: into pinned memory (a copy that does not block), or, where it is to be added to an
 * earlier micro-step's or nothing is pinned, into pageable memory, which the CPU waits for and adds itself.
 * finalize_backward waits for the copies.  AdamW finds CPU parameters: a loop over them (_default_to_fused_or_foreach),
 * on the issuing thread. */
#include <stdlib.h>

#include "base/room.h"
#include "model/lower/common/pinned.h"
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

void fsdp2_offload_setup(struct fsdp2 *f)
{
    f->offload = f->p->fsdp.cpu_offload;
    f->home = !f->offload ? SPACE_DEVICE : f->p->fsdp.pin_memory ? SPACE_PINNED : SPACE_HOST;
    f->param_room = f->grad_room = !f->offload ? round512 : f->home == SPACE_PINNED ? pinned_bytes : pageable_bytes;
    f->state_room = f->offload ? pageable_bytes : round512;
}

/* ---- buffers ---- */

static const char *of_class(enum unit_class c) { return c == UC_ROOT ? NULL : unit_class_name(c); }

static void declare_one(struct fsdp2 *f, enum unit_class c, int i, int tensor)
{
    struct offloaded *t = &f->tensor[c][i];
    const struct tensor *x = &f->m->tensors[tensor];
    enum dtype kept = fsdp2_kept(f, x);
    int64_t share = fsdp2_padded_share(f, tensor), e = dtype_bytes(kept);
    int n = f->walk.map.of_class[c];

    t->up = share * e;
    t->used = share * dtype_bytes(f->r.used);
    t->down = x->frozen ? 0 : fsdp2_local_share(f, tensor) * e;
    t->trains = !x->frozen;
    t->staged = sched_buf(f->s, CAT_TEMPORARIES, "shard on its way", of_class(c), 0, n, round512(t->up));
    t->cast = f->r.used == kept ? t->staged : sched_buf(f->s, CAT_TEMPORARIES, "cast shard", of_class(c), 0, n, round512(t->used));
    if (fsdp2_brings_alone(f))
        t->unsharded = sched_buf(f->s, CAT_UNSHARDED, "unsharded param", of_class(c), 0, n, round512(t->used));
}

static void describe_one(struct fsdp2 *f, enum unit_class c, int i, int64_t param_at, int64_t grad_at, int64_t reduced_at)
{
    struct offloaded *t = &f->tensor[c][i];
    enum dtype kept = fsdp2_kept(f, &f->m->tensors[unit_tensor(&f->walk.map, c, i)]);

    sched_holds(f->s, t->staged, fsdp2_describe_one(f, c, HOLDS_PARAM, kept, i, 0));
    if (t->cast != t->staged)
        sched_holds(f->s, t->cast, fsdp2_describe_one(f, c, HOLDS_PARAM, f->r.used, i, 0));
    t->shard = fsdp2_describe_one(f, c, HOLDS_PARAM, kept, i, param_at);
    if (fsdp2_brings_alone(f))
        sched_holds(f->s, t->unsharded, fsdp2_describe_one(f, c, HOLDS_PARAM, f->r.used, i, 0));
    if (!t->trains)
        return;
    t->grad = fsdp2_describe_one(f, c, HOLDS_GRAD, kept, i, grad_at);
    t->reduced = fsdp2_describe_one(f, c, HOLDS_GRAD, kept, i, reduced_at);
    t->arrived = fsdp2_describe_one(f, c, HOLDS_GRAD, kept, i, 0);
}

void fsdp2_offload_declare(struct fsdp2 *f, enum unit_class c)
{
    int64_t params = 0, grads = 0, reduced = 0, most = 0, exact = 0;

    while (unit_tensor(&f->walk.map, c, f->ntensors[c]) >= 0)
        f->ntensors[c]++;
    f->tensor[c] = room_new((size_t)f->ntensors[c], sizeof *f->tensor[c]);
    for (int i = 0; i < f->ntensors[c]; i++) {
        struct offloaded *t = &f->tensor[c][i];
        declare_one(f, c, i, unit_tensor(&f->walk.map, c, i));
        if (f->s->detailed)
            describe_one(f, c, i, params, grads, reduced);
        params += f->param_room(t->up);
        grads += f->grad_room(t->down);
        reduced += t->trains ? t->up : 0;
        exact += t->up;
        most = t->down > most ? t->down : most;
    }
    f->arrived[c] = sched_buf_in(f->s, SPACE_HOST, CAT_GRADS, "gradient to be added", of_class(c), 0, f->walk.map.of_class[c], most);
    f->born[c] = sched_buf_in(f->s, SPACE_HOST, CAT_PARAMS, "materialised shards", of_class(c), 0, f->walk.map.of_class[c],
                              f->home == SPACE_PINNED ? exact : 0);
    if (!f->s->detailed || f->home != SPACE_PINNED)
        return;
    int at = sched_layout(f->s, unit_stride(&f->walk.map, c));
    int64_t born = 0;
    for (int i = 0; i < f->ntensors[c]; i++) {
        int t = unit_tensor(&f->walk.map, c, i);
        sched_slice(f->s, HOLDS_PARAM, fsdp2_kept(f, &f->m->tensors[t]), t, f->rank_in_group * fsdp2_padded_share(f, t), fsdp2_local_share(f, t), born);
        born += f->tensor[c][i].up;
    }
    sched_holds(f->s, f->born[c], at);
}

void fsdp2_offload_free(struct fsdp2 *f)
{
    for (int c = 0; c < NUC; c++)
        free(f->tensor[c]);
}

/* ---- parameters ---- */

/* The CPU waits where memory is not pinned: cudaMemcpyAsync returns once such bytes are staged. */
static void wait_if_pageable(struct fsdp2 *f, enum stream st, enum phase phase)
{
    if (f->home == SPACE_HOST)
        sched_op(f->s, OP_WAIT, STREAM_ISSUE, phase, "pageable copy")->after = AFTER(st);
}

/* One shard, and its cast. */
static void bring_one(struct fsdp2 *f, struct at u, const struct offloaded *t, enum stream st, enum phase phase)
{
    struct schedules *s = f->s;

    sched_copy(s, st, phase, "shard to device", t->up, t->up);
    walk_name(&f->walk, u);
    sched_does(s, COPY_SET, 1);
    sched_act_as(s, ACT_R, f->fam[u.c].shard, u.i, u.by, t->shard);
    sched_act(s, ACT_ALLOC | ACT_W, t->staged, u.i, u.by);
    wait_if_pageable(f, st, phase);
    if (t->cast == t->staged)
        return;
    sched_copy(s, st, phase, "cast shard", t->up, t->used);
    walk_name(&f->walk, u);
    sched_does(s, COPY_SET, 1);
    sched_act(s, ACT_R | ACT_FREE, t->staged, u.i, u.by);
    sched_act(s, ACT_ALLOC | ACT_W, t->cast, u.i, u.by);
}

void fsdp2_bring(struct fsdp2 *f, struct at u, enum stream st, enum phase phase, uint16_t after)
{
    int first = f->s->nops;

    for (int i = 0; i < f->ntensors[u.c]; i++)
        bring_one(f, u, &f->tensor[u.c][i], st, phase);
    f->s->ops[first].after = after;
}

/* wait_for_unshard() with a world of one: what was brought goes when the name is bound to the next. */
void fsdp2_bring_alone(struct fsdp2 *f, struct at u, enum phase phase)
{
    struct schedules *s = f->s;
    int n = f->ntensors[u.c];

    for (int i = 0; i < n; i++) {
        const struct offloaded *t = &f->tensor[u.c][i];
        bring_one(f, u, t, STREAM_COMPUTE, phase);
        if (i > 0) {
            sched_op(s, OP_MEMORY, STREAM_COMPUTE, phase, "release");
            walk_name(&f->walk, u);
            sched_act(s, ACT_FREE, t[-1].cast, u.i, u.by);
        }
        struct op *o = sched_copy(s, STREAM_COMPUTE, phase, "copy-out", t->used, t->used);
        o->flags |= i == 0 ? OPF_HOOK : 0;
        o->record = i == n - 1 ? f->ev_copy_out : 0;
        walk_name(&f->walk, u);
        sched_does(s, COPY_SET, 1);
        sched_act(s, i < n - 1 ? ACT_R : ACT_R | ACT_FREE, t->cast, u.i, u.by);
        sched_act(s, ACT_ALLOC | ACT_W, t->unsharded, u.i, u.by);
    }
}

void fsdp2_on_unsharded(struct fsdp2 *f, int what, struct at u)
{
    if (!fsdp2_brings_alone(f)) {
        sched_act(f->s, what, f->fam[u.c].unsharded, u.i, u.by);
        return;
    }
    for (int i = 0; i < f->ntensors[u.c]; i++)
        sched_act(f->s, what, f->tensor[u.c][i].unsharded, u.i, u.by);
}

void fsdp2_brought(struct fsdp2 *f, int what, struct at u)
{
    for (int i = 0; i < f->ntensors[u.c]; i++)
        sched_act(f->s, what, f->tensor[u.c][i].cast, u.i, u.by);
}

/* ---- gradients ---- */

/* A later micro-step's: the CPU waits for the copy and adds. */
static void add_on_host(struct fsdp2 *f, struct at u, const struct offloaded *t, enum stream st)
{
    struct schedules *s = f->s;

    sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "gradient to host")->after = AFTER(st);
    sched_copy(s, STREAM_HOST, PHASE_REDUCE, "add to grads", 2 * t->down, t->down);
    walk_name(&f->walk, u);
    sched_does(s, COPY_ADD, 1);
    sched_act_as(s, ACT_R | ACT_FREE, f->arrived[u.c], u.i, u.by, t->arrived);
    sched_act_as(s, ACT_A, f->fam[u.c].grads, u.i, u.by, t->grad);
    sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "add to grads")->after = AFTER(STREAM_HOST);
}

/* What was reduced goes when foreach_reduce() returns, or, where AllReduceState holds it, at the end of backward.  Frozen tensors have no
 * gradient. */
void fsdp2_send_grads(struct fsdp2 *f, struct at u, enum stream st, int from)
{
    struct schedules *s = f->s;
    int first = 0, last = f->ntensors[u.c] - 1;
    bool held = f->hybrid && !f->cast_grads;

    while (!f->tensor[u.c][first].trains)
        first++;
    while (!f->tensor[u.c][last].trains)
        last--;
    for (int i = first; i <= last; i++) {
        const struct offloaded *t = &f->tensor[u.c][i];
        if (!t->trains)
            continue;
        sched_copy(s, st, PHASE_REDUCE, "gradient to host", t->down, t->down);
        walk_name(&f->walk, u);
        sched_does(s, COPY_SET, 1);
        sched_act_as(s, i < last || held ? ACT_R : ACT_R | ACT_FREE, from, u.i, u.by, t->reduced);
        if (f->has_sharded) {
            sched_act_as(s, ACT_ALLOC | ACT_W, f->arrived[u.c], u.i, u.by, t->arrived);
            add_on_host(f, u, t, st);
        } else {
            sched_act_as(s, i == first ? ACT_ALLOC | ACT_W : ACT_W, f->fam[u.c].grads, u.i, u.by, t->grad);
        }
    }
    if (!f->has_sharded)
        wait_if_pageable(f, st, PHASE_REDUCE);
}

void fsdp2_await_grads(struct fsdp2 *f)
{
    sched_op(f->s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "gradients on the host")->after =
        AFTER(STREAM_REDUCE) | AFTER(STREAM_ALL_REDUCE);
}

/* ---- the optimizer, and first weights ---- */

/* _single_tensor_adam: (exp_avg_sq.sqrt() / c).add_(eps) makes two tensors of a parameter while the name `denom` still
 * holds the one before's. */
int64_t fsdp2_loop_bytes(const struct fsdp2 *f)
{
    int64_t before = 0, most = 0;

    for (int t = 0; t < f->m->ntensors; t++) {
        int64_t bytes = fsdp2_local_share(f, t) * dtype_bytes(f->r.kept);
        if (f->m->tensors[t].frozen)
            continue;
        most = before + 2 * bytes > most ? before + 2 * bytes : most;
        before = bytes;
    }
    return most;
}

/* Materialised by to_empty(device="cpu"), in pageable memory; the first forward pins one after the other. */
static void pin(struct fsdp2 *f, enum unit_class c)
{
    struct schedules *s = f->s;
    int64_t bytes = 0;

    for (int i = 0; i < f->ntensors[c]; i++) {
        int t = unit_tensor(&f->walk.map, c, i);
        bytes += fsdp2_local_share(f, t) * dtype_bytes(fsdp2_kept(f, &f->m->tensors[t]));
    }
    sched_repeat(s, f->walk.map.of_class[c]);
    sched_copy(s, STREAM_HOST, PHASE_INIT, "pin shards", bytes, bytes);
    walk_name(&f->walk, (struct at){ .c = c, .by = c != UC_ROOT });
    sched_does(s, COPY_SET, 1);
    sched_act(s, ACT_R | ACT_FREE, f->born[c], 0, 1);
    sched_act(s, ACT_ALLOC | ACT_W, f->fam[c].shard, 0, 1);
    sched_repeat_end(s);
}

void fsdp2_offload_init(struct fsdp2 *f)
{
    struct op *o = sched_op(f->s, OP_MEMORY, STREAM_HOST, PHASE_INIT, "materialise shards");

    o->flags = OPF_LOAD;
    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0)
            sched_act_all(f->s, ACT_ALLOC | ACT_W, f->home == SPACE_PINNED ? f->born[c] : f->fam[c].shard);
    lower_load_statistics(f->s, f->statistics);
    for (int c = 0; c < NUC && f->home == SPACE_PINNED; c++)
        if (f->walk.map.of_class[c] > 0)
            pin(f, (enum unit_class)c);
    sched_op(f->s, OP_WAIT, STREAM_ISSUE, PHASE_INIT, "weights on the host")->after = AFTER(STREAM_HOST);
}
