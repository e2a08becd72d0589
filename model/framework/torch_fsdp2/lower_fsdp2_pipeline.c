/* lower_fsdp2_pipeline.c -- FSDP2 around a stage of a pipeline.
 *
 * Source: torch/distributed/pipelining/{stage,schedules}.py and fsdp/_fully_shard/ of PyTorch 2.15 (2.9 where
 * it differs).  Every backward runs with set_reshard_after_backward(False) and
 * set_requires_gradient_sync(False): once gathered, a unit stays until its gradients are reduced, unless it is
 * resharded after forward; gradients are added up unsharded and reduced once, after the stage's last backward
 * (finalize_backward(): the last unit first; 2.9's post-backward hooks: the root first).
 *
 * With parallel.pipeline_reduce_last a stage's module is none of FSDP's, and NeMo Automodel drives the units within (components/moe/fsdp_mixin.py):
 * each is gathered by its first forward and stays until gradients are reduced, behind the step's last backward.
 *
 * Each chunk of a rank is a model of its own: its root has the embedding, the head or nothing.  Experts that other ranks share are a
 * part of their block's unit (lower_fsdp2_experts.c): gathered behind the rest, reduced before it, and there when it is. */
#include <stdlib.h>

#include "base/room.h"
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

static bool there(const struct fsdp2 *f, struct at u) { return f->stage.unit[u.position + 1].there; }
static bool coming(const struct fsdp2 *f, struct at u) { return f->stage.unit[u.position + 1].coming; }

/* ---- gathers ---- */

static void with_event_of(struct fsdp2 *f, struct at u)
{
    uint16_t *gathered = &f->stage.unit[u.position + 1].gathered;

    if (!*gathered)
        *gathered = sched_event(f->s);
    f->ev_gather = *gathered;
    if (!fsdp2_shards_experts(f, u))
        return;
    gathered = &f->stage.unit[u.position + 1].experts;
    if (!*gathered)
        *gathered = sched_event(f->s);
    f->ev_gather_experts = *gathered;
}

static void now(struct fsdp2 *f, struct at u, bool is_there)
{
    f->stage.unit[u.position + 1].there = is_there;
    f->stage.unit[u.position + 1].coming = false;
}

static void release(struct fsdp2 *f, struct at u)
{
    if (u.c != NUC && fsdp2_ranks(f, u.c) > 1)
        fsdp2_release(f, u);
}

static void release_held(struct fsdp2 *f)
{
    release(f, f->stage.held);
    f->stage.held.c = NUC;
}

/* All of a unit, on its way to its forward. */
static void gather(struct fsdp2 *f, struct at u)
{
    with_event_of(f, u);
    fsdp2_unshard(f, u, PHASE_FORWARD, f->stage.first_gather, false);
    if (fsdp2_shards_experts(f, u))
        fsdp2_unshard(f, fsdp2_experts(u), PHASE_FORWARD, false, false);
    f->stage.first_gather = false;
    f->stage.unit[u.position + 1].coming = true;
}

/* What a stage without a head hands on is its last unit's output, too, whose hook comes before the root's: it is gathered in its own turn. */
static void ask(struct fsdp2 *f, struct at u)
{
    bool own = !f->walk.heads && u.position == f->walk.unit1 - 1;

    if (there(f, u) || coming(f, u))
        return;
    with_event_of(f, u);
    if (own && fsdp2_shards_experts(f, u)) {
        fsdp2_unshard(f, u, PHASE_BACKWARD, false, true);
        fsdp2_unshard(f, fsdp2_experts(u), PHASE_BACKWARD, false, true);
    } else {
        fsdp2_prefetch_with_experts(f, u, PHASE_BACKWARD);
    }
    f->stage.unit[u.position + 1].coming = true;
}

static void gather_again(struct fsdp2 *f, struct at u)
{
    if (there(f, u))
        return;
    ask(f, u);
    with_event_of(f, u);
    fsdp2_regather(f, u);
    if (fsdp2_shards_experts(f, u))
        fsdp2_regather(f, fsdp2_experts(u));
    now(f, u, true);
}

/* ---- UNSHARD: unshard(async_op=True) of all of a stage's modules, on the current stream; the first computation waits ---- */

static void each_unit(struct fsdp2 *f, void (*each)(struct fsdp2 *f, struct at u))
{
    if (f->walk.root.c != NUC)
        each(f, f->walk.root);
    for (int i = f->walk.unit0; i < f->walk.unit1; i++)
        each(f, walk_at(&f->walk, i, 0));
}

/* The part whose gathered copy is still there. */
static struct at copy_out(struct fsdp2 *f, struct at u)
{
    with_event_of(f, u);
    fsdp2_copy_out(f, u, PHASE_FORWARD, false);
    if (!fsdp2_shards_experts(f, u))
        return u;
    release(f, u);
    fsdp2_copy_out(f, fsdp2_experts(u), PHASE_FORWARD, false);
    return fsdp2_experts(u);
}

static void ask_for_stage(struct fsdp2 *f, struct at u)
{
    if (there(f, u))
        return;
    f->copy_in = STREAM_COMPUTE;
    f->stage.first_gather = false;
    gather(f, u);
    f->copy_in = STREAM_COPY_IN;
}

static void await_for_stage(struct fsdp2 *f, struct at u)
{
    struct at last;

    if (!coming(f, u))
        return;
    last = copy_out(f, u);
    release(f, last);
    now(f, u, true);
}

static void drop(struct fsdp2 *f, struct at u)
{
    if (!there(f, u))
        return;
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "reshard");
    walk_name(&f->walk, u);
    sched_act(f->s, ACT_FREE, f->fam[u.c].unsharded, u.i, u.by);
    if (fsdp2_shards_experts(f, u))
        sched_act(f->s, ACT_FREE, f->fam[UC_EXPERTS].unsharded, u.i, u.by);
    f->stage.unit[u.position + 1].there = false;
}

/* ---- passes ---- */

/* Are gradients those of all runs of the schedule? */
static bool once(const struct fsdp2 *f) { return f->p->parallel.pipeline_reduce_last; }

/* `passed`: a micro-step of this run of the schedule. */
static void finds_gradients(struct fsdp2 *f, bool passed)
{
    f->has_ignored = f->walk.flush > 0 || passed;
    fsdp2_finds_unsharded(f, passed || (once(f) && f->walk.flush > 0));
}

static void begin_pass(void *fsdp2)
{
    struct fsdp2 *f = fsdp2;
    const struct stage_ports *o = &f->walk.ports;

    each_unit(f, await_for_stage);
    f->stage.first_gather = true;       /* _root_pre_forward: the gather streams wait for the current one */
    if (!f->walk.forward)
        finds_gradients(f, stage_ports_passed(o, PIPE_BACKWARD, f->walk.chunk) + stage_ports_passed(o, PIPE_WEIGHT, f->walk.chunk) > 0);
}

static void pre_forward(void *fsdp2, struct at u)
{
    struct fsdp2 *f = fsdp2;
    bool root = u.c == f->walk.root.c;
    int next = root ? f->walk.unit0 : u.position + 1;

    if (u.c != NUC && !there(f, u)) {
        if (!coming(f, u))
            gather(f, u);
        release_held(f);
        f->stage.held = copy_out(f, u);
        now(f, u, true);
    }
    if (fsdp2_has_experts(f) && next < f->walk.unit1 && !there(f, walk_at(&f->walk, next, 0)) && !coming(f, walk_at(&f->walk, next, 0)))
        gather(f, walk_at(&f->walk, next, 0));      /* prefetched by lists */
}

static void post_forward(void *fsdp2, struct at u)
{
    struct fsdp2 *f = fsdp2;
    bool root = u.c == f->walk.root.c, last = !root && u.position == f->walk.unit1 - 1;      /* of its chunk */

    if (root)
        release_held(f);
    if (u.c == NUC || !(root ? f->root_reshard : f->reshard) || (last && f->p->fsdp.keeps_last_unit))
        return;
    fsdp2_reshard(f, u);
    if (fsdp2_shards_experts(f, u))
        fsdp2_reshard(f, fsdp2_experts(u));
    f->stage.unit[u.position + 1].there = false;
}

/* One unit of backward prefetch: the root's prefetches the last one. */
static void pre_backward(void *fsdp2, struct at u)
{
    struct fsdp2 *f = fsdp2;
    bool root = u.c == f->walk.root.c, both = !root && walk_needs_both(&f->walk, u) && u.c == UC_MLP;
    int next = root ? f->walk.unit1 - 1 : u.position - 1;

    if (u.c != NUC)
        gather_again(f, u);
    if (root || next >= f->walk.unit0)
        ask(f, walk_at(&f->walk, next, 0));
    if (both)
        gather_again(f, walk_at(&f->walk, next, 0));
}

static void post_backward(void *fsdp2, struct at u)
{
    struct fsdp2 *f = fsdp2;

    if (u.c == NUC || f->walk.part == INPUT_PART)
        return;
    if (fsdp2_with_experts(f, u) && fsdp2_ignores(f, UC_EXPERTS))
        fsdp2_add_ignored(f, u);
    if (fsdp2_shards_experts(f, u))
        fsdp2_accumulate(f, fsdp2_experts(u));
    fsdp2_accumulate(f, u);
}

/* ---- reduction ---- */

static void reduce_one(struct fsdp2 *f, struct at u, struct at *prev)
{
    f->reduce = true;
    f->has_sharded = f->walk.flush > 0 && !once(f);         /* those of the schedule before */
    const struct at *before = prev->c != NUC ? prev : NULL;

    fsdp2_finds_unsharded(f, true);
    if (fsdp2_shards_experts(f, u)) {
        fsdp2_post_backward(f, fsdp2_experts(u), before);
        before = NULL;
    }
    fsdp2_post_backward(f, u, before);
    f->stage.unit[u.position + 1].there = false;
    if (f->size[u.c].trained > 0)
        *prev = u;
}

static void reduce(struct fsdp2 *f)
{
    struct at prev = { .c = NUC };
    const struct walk *w = &f->walk;
    bool old = f->stage.old;

    if (w->root.c != NUC && old)
        reduce_one(f, w->root, &prev);
    for (int i = 0; i < w->unit1 - w->unit0; i++)
        reduce_one(f, walk_at(w, old ? w->unit0 + i : w->unit1 - 1 - i, 0), &prev);
    if (w->root.c != NUC && !old)
        reduce_one(f, w->root, &prev);
    f->reduce = false;
    f->stage.held = prev;
}

/* AllReduceState holds these until now. */
static void free_reduced(struct fsdp2 *f, struct at u)
{
    if (f->size[u.c].trained > 0)
        sched_act(f->s, ACT_FREE, f->fam[u.c].rs_out, u.i, 0);
    if (fsdp2_shards_experts(f, u))
        sched_act(f->s, ACT_FREE, f->fam[UC_EXPERTS].rs_out, u.i, 0);
}

/* FSDPState.wait_for_gradient_reduction. */
static void await_reduction(struct fsdp2 *f)
{
    struct at held = f->stage.held;

    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await reductions")->after =
        AFTER(STREAM_REDUCE) | AFTER(STREAM_ALL_REDUCE);
    if (held.c != NUC)
        sched_act(f->s, ACT_FREE, f->fam[held.c].rs_in, held.i, 0);
    if (held.c != NUC && fsdp2_shards_experts(f, held))
        sched_act(f->s, ACT_FREE, f->fam[UC_EXPERTS].rs_in, held.i, 0);
    if (f->hybrid && (f->cast_grads || f->has_sharded))
        each_unit(f, free_reduced);
    f->stage.held.c = NUC;
}

static void stage_act(void *fsdp2, const struct pipeline_act *a)
{
    struct fsdp2 *f = fsdp2;
    bool last = f->walk.flush + 1 >= f->p->parallel.pipeline_flushes;

    if (once(f) && (a->verb == PIPE_UNSHARD || a->verb == PIPE_RESHARD || !last))       /* PyTorch sees no FSDP module */
        return;
    switch ((enum pipeline_verb)a->verb) {
    case PIPE_UNSHARD:     each_unit(f, ask_for_stage); break;
    case PIPE_RESHARD:     each_unit(f, drop); break;
    case PIPE_REDUCE:      reduce(f); break;
    case PIPE_WAIT_REDUCE: await_reduction(f); break;
    default:               break;
    }
}

/* ---- whole steps ---- */

static void begin(void *fsdp2)
{
    struct fsdp2 *f = fsdp2;

    f->stage.unit = room_new((size_t)f->walk.map.n + 2, sizeof *f->stage.unit);
    f->stage.held.c = NUC;
    f->has_sharded = f->reduce = false;
}

static void end_of_backward(void *fsdp2) { free(((struct fsdp2 *)fsdp2)->stage.unit); }

void fsdp2_stage_setup(struct fsdp2 *f)
{
    enum pipeline_kind kind = f->p->parallel.pipeline_schedule;
    bool loop = kind == PIPELINE_GPIPE || kind == PIPELINE_1F1B, old = plan_version(f->p) < 2015;

    f->stage.old = f->walk.stage.keeps = old;
    f->walk.stage.connects = !old;
    f->walk.stage.code = !loop ? old ? PIPE_LOCK_STEP_29 : PIPE_RUNTIME : old ? PIPE_OWN_LOOP_29 : PIPE_OWN_LOOP;
    stage_memory_declare(&f->walk.stage.memory, f->local, f->s);
}

const struct walk_hooks fsdp2_stage_hooks = {
    .init = fsdp2_init, .begin = begin, .end_of_backward = end_of_backward, .optimizer = fsdp2_optimizer, .begin_pass = begin_pass,
    .pre_forward = pre_forward, .post_forward = post_forward, .pre_backward = pre_backward, .post_backward = post_backward,
    .compute = fsdp2_compute, .stage_act = stage_act, .fate = GRADS_KEEP, .grads = CAT_UNSHARDED_GRADS,
};
