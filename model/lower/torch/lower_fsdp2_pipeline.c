/* lower_fsdp2_pipeline.c -- FSDP2 around a stage of a pipeline.
 *
 * Source: torch/distributed/pipelining/{stage,schedules}.py and fsdp/_fully_shard/ of PyTorch 2.15 (2.9 where
 * it differs).  Every backward runs with set_reshard_after_backward(False) and
 * set_requires_gradient_sync(False): once gathered, a unit stays until its gradients are reduced, unless it is
 * resharded after forward; gradients are added up unsharded and reduced once, after the stage's last backward
 * (finalize_backward(): the last unit first; 2.9's post-backward hooks: the root first).
 *
 * Each chunk of a rank is a model of its own: its root has the embedding, the head or nothing. */
#include <stdlib.h>

#include "model/lower/common/stage_ports.h"
#include "model/lower/torch/lower_fsdp2.h"

struct stage {
    struct fsdp2 *f;
    struct stage_ports ports;
    bool old;                       /* PyTorch before 2.15 */
    struct { bool there, coming; uint16_t gathered; } *unit;    /* by position + 1; roots first and last */
    struct at held;                 /* unit whose all-gather's output is still there; held.c NUC: none */
    bool first_gather;              /* of this forward: after the optimizer, or what came before */
};

/* ---- a chunk's units ---- */

struct range { int from, to; };

static struct range units_of(const struct stage *g, int chunk)
{
    const struct unit_map *m = &g->f->map;
    int b0 = stage_ports_block0(&g->ports, chunk), b1 = stage_ports_block1(&g->ports, chunk);

    if (m->kind == UNIT_HALF_BLOCK)
        return (struct range){ 2 * b0, 2 * b1 };
    return m->blocks > 1 ? (struct range){ 0, m->n } : (struct range){ b0, b1 };
}

/* The root of a chunk: its position, -1 or n; -2: it has no parameters. */
static int root_of(const struct stage *g, int chunk)
{
    if (stage_ports_embeds(&g->ports, chunk))
        return -1;
    if (!stage_ports_heads(&g->ports, chunk))
        return -2;
    return g->f->map.of_class[UC_HEAD] ? g->f->map.n : -1;
}

static struct at unit(const struct stage *g, int position)
{
    struct unit_ref r = unit_at(&g->f->map, position);

    if (r.cls == UC_ROOT && position >= 0)
        r.cls = UC_HEAD;
    return (struct at){ r.cls, r.index, 0 };
}

static bool there(const struct stage *g, int position) { return g->unit[position + 1].there; }

/* ---- gathers ---- */

static void with_event_of(struct stage *g, int position)
{
    if (!g->unit[position + 1].gathered)
        g->unit[position + 1].gathered = sched_event(g->f->s);
    g->f->ev_gather = g->unit[position + 1].gathered;
}

static void release_held(struct stage *g)
{
    if (g->held.c != NUC && g->f->nshard > 1)
        fsdp2_release(g->f, g->held);
    g->held.c = NUC;
}

/* A unit whose forward begins. */
static void gather(struct stage *g, int position)
{
    struct at u = unit(g, position);

    if (there(g, position))
        return;
    with_event_of(g, position);
    fsdp2_unshard(g->f, u, PHASE_FORWARD, g->first_gather, false);
    g->first_gather = false;
    release_held(g);
    fsdp2_copy_out(g->f, u, PHASE_FORWARD, false);
    g->held = u;
    g->unit[position + 1].there = true;
}

static void ask(struct stage *g, int position)
{
    if (there(g, position) || g->unit[position + 1].coming)
        return;
    with_event_of(g, position);
    fsdp2_unshard(g->f, unit(g, position), PHASE_BACKWARD, false, true);
    g->unit[position + 1].coming = true;
}

static void gather_again(struct stage *g, int position)
{
    if (there(g, position))
        return;
    ask(g, position);
    with_event_of(g, position);
    fsdp2_regather(g->f, unit(g, position));
    g->unit[position + 1].coming = false;
    g->unit[position + 1].there = true;
}

static void drop_after_forward(struct stage *g, int position)
{
    fsdp2_reshard(g->f, unit(g, position));
    g->unit[position + 1].there = false;
}

/* ---- UNSHARD: unshard(async_op=True) of all of a stage's modules, on the current stream; the first computation waits ---- */

static void each_unit(struct stage *g, int chunk, void (*f)(struct stage *g, int position))
{
    struct range r = units_of(g, chunk);

    if (root_of(g, chunk) != -2)
        f(g, root_of(g, chunk));
    for (int i = r.from; i < r.to; i++)
        f(g, i);
}

static void ask_for_stage(struct stage *g, int position)
{
    if (there(g, position))
        return;
    g->f->copy_in = STREAM_COMPUTE;
    with_event_of(g, position);
    fsdp2_unshard(g->f, unit(g, position), PHASE_FORWARD, false, false);
    g->f->copy_in = STREAM_COPY_IN;
    g->unit[position + 1].coming = true;
}

static void await_for_stage(struct stage *g, int position)
{
    struct at u = unit(g, position);

    if (!g->unit[position + 1].coming)
        return;
    with_event_of(g, position);
    fsdp2_copy_out(g->f, u, PHASE_FORWARD, false);
    if (g->f->nshard > 1)
        fsdp2_release(g->f, u);
    g->unit[position + 1].coming = false;
    g->unit[position + 1].there = true;
}

static void drop(struct stage *g, int position)
{
    struct at u = unit(g, position);

    if (!there(g, position))
        return;
    sched_op(g->f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "reshard");
    fsdp2_name(g->f, u);
    fsdp2_on_unsharded(g->f, ACT_FREE, (struct at){ u.c, u.i, 0 });
    g->unit[position + 1].there = false;
}

/* ---- passes ---- */

static void forward(struct stage *g, int chunk)
{
    struct fsdp2 *f = g->f;
    struct range r = units_of(g, chunk);
    int root = root_of(g, chunk);

    g->first_gather = true;         /* _root_pre_forward: the gather streams wait for the current one */
    if (root != -2)
        gather(g, root);
    if (stage_ports_embeds(&g->ports, chunk))
        fsdp2_root_compute(f, PIECE_EMBED, PASS_FORWARD, 0, -1);
    for (int i = r.from; i < r.to; i++) {
        gather(g, i);
        fsdp2_compute(f, unit(g, i), i, 0, PASS_FORWARD);
        if (f->reshard)
            drop_after_forward(g, i);
    }
    if (stage_ports_heads(&g->ports, chunk))
        fsdp2_root_compute(f, PIECE_HEAD, PASS_FORWARD, 0, -1);
    release_held(g);
    if (root != -2 && f->root_reshard)
        drop_after_forward(g, root);
}

static void backward(struct stage *g, int chunk)
{
    struct fsdp2 *f = g->f;
    struct range r = units_of(g, chunk);
    int root = root_of(g, chunk);

    f->has_unsharded = stage_ports_passed(&g->ports, PIPE_BACKWARD, chunk) + stage_ports_passed(&g->ports, PIPE_WEIGHT, chunk) > 0;
    if (root != -2)
        gather_again(g, root);
    ask(g, r.to - 1);               /* the root's pre_backward prefetches the last unit */
    if (stage_ports_heads(&g->ports, chunk))
        fsdp2_root_compute(f, PIECE_HEAD, PASS_BACKWARD, 0, -1);
    for (int i = r.to - 1; i >= r.from; i--) {
        bool both = f->map.kind == UNIT_HALF_BLOCK && i % 2 && recompute_whole(f->p->recompute);
        gather_again(g, i);
        if (i > r.from)             /* one unit of backward prefetch */
            ask(g, i - 1);
        if (both)
            gather_again(g, i - 1);
        fsdp2_compute(f, unit(g, i), i, 0, PASS_BACKWARD);
        if (f->part != INPUT_PART)
            fsdp2_accumulate(f, unit(g, i));
    }
    if (stage_ports_embeds(&g->ports, chunk))
        fsdp2_root_compute(f, PIECE_EMBED, PASS_BACKWARD, 0, -1);
    if (root != -2 && f->part != INPUT_PART)
        fsdp2_accumulate(f, unit(g, root));
}

static void reduce_one(struct stage *g, int position, struct at *prev)
{
    struct at u = unit(g, position);

    g->f->has_unsharded = g->f->reduce = true;
    fsdp2_post_backward(g->f, u, prev->c != NUC ? prev : NULL);
    g->unit[position + 1].there = false;
    *prev = u;
}

static void reduce(struct stage *g, int chunk)
{
    struct range r = units_of(g, chunk);
    struct at prev = { NUC, 0, 0 };
    int root = root_of(g, chunk);

    if (root != -2 && g->old)
        reduce_one(g, root, &prev);
    for (int i = 0; i < r.to - r.from; i++)
        reduce_one(g, g->old ? r.from + i : r.to - 1 - i, &prev);
    if (root != -2 && !g->old)
        reduce_one(g, root, &prev);
    g->held = prev;
}

/* FSDPState.wait_for_gradient_reduction. */
static void await_reduction(struct stage *g, int chunk)
{
    struct fsdp2 *f = g->f;
    struct range r = units_of(g, chunk);
    int root = root_of(g, chunk);

    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await reductions")->after =
        AFTER(STREAM_REDUCE) | AFTER(STREAM_ALL_REDUCE);
    sched_act(f->s, ACT_FREE, f->fam[g->held.c].rs_in, g->held.i, 0);
    if (f->hybrid && f->cast_grads)     /* AllReduceState holds these until now */
        for (int i = root == -2 ? r.from : r.from - 1; i < r.to; i++) {
            struct at u = unit(g, i < r.from ? root : i);
            sched_act(f->s, ACT_FREE, f->fam[u.c].rs_out, u.i, 0);
        }
    g->held.c = NUC;
}

static void act(void *stage, const struct pipeline_act *a)
{
    struct stage *g = stage;
    struct fsdp2 *f = g->f;

    if (stage_ports_does(&g->ports, a))
        return;
    f->kept_blocks = (int)f->m->layers * a->step;
    f->kept_ends = a->step;
    switch ((enum pipeline_verb)a->verb) {
    case PIPE_FORWARD:
    case PIPE_BACKWARD:
    case PIPE_INPUT:
    case PIPE_WEIGHT:
        if (stage_ports_idle(&g->ports, a))
            break;
        f->part = stage_ports_whole(&g->ports, a) ? WHOLE_BACKWARD : a->verb == PIPE_INPUT ? INPUT_PART : WEIGHT_PART;
        each_unit(g, a->chunk, await_for_stage);
        stage_ports_begin(&g->ports, a);
        (a->verb == PIPE_FORWARD ? forward : backward)(g, a->chunk);
        stage_ports_end(&g->ports, a);
        break;
    case PIPE_UNSHARD:     each_unit(g, a->chunk, ask_for_stage); break;
    case PIPE_RESHARD:     each_unit(g, a->chunk, drop); break;
    case PIPE_REDUCE:      reduce(g, a->chunk); break;
    case PIPE_WAIT_REDUCE: await_reduction(g, a->chunk); break;
    default:               break;
    }
}

int fsdp2_pipeline(struct fsdp2 *f, bool first_step)
{
    struct stage g = { .f = f, .old = plan_version(f->p) < 2015, .held = { NUC, 0, 0 } };
    enum pipeline_kind kind = f->p->parallel.pipeline_schedule;
    bool loop = kind == PIPELINE_GPIPE || kind == PIPELINE_1F1B;
    int rc = stage_ports_open(&g.ports, f->local, f->s, !loop ? g.old ? PIPE_LOCK_STEP_29 : PIPE_RUNTIME : g.old ? PIPE_OWN_LOOP_29 : PIPE_OWN_LOOP,
                              &f->stage, first_step, g.old);

    g.unit = calloc((size_t)f->map.n + 2, sizeof *g.unit);
    if (!g.unit)
        abort();
    f->has_sharded = f->reduce = false;
    if (rc == 0 && first_step && !g.old)
        stage_ports_connect(&g.ports);
    if (rc == 0) {
        stage_ports_run(&g.ports, act, &g);
        stage_ports_finish(&g.ports);
    }
    stage_ports_close(&g.ports);
    free(g.unit);
    return rc;
}
