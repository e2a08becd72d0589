/* bounds.c -- see bounds.h. */
#include "sim/search/bounds_internal.h"

#include <math.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/arch/training.h"
#include "model/lower/common/pipeline_order.h"
#include "model/memory/overhead.h"
#include "model/plan/local_share.h"
#include "model/schedule/schedule.h"
#include "sim/clock/crowd.h"
#include "sim/clock/jitter.h"
#include "sim/price/coll_cost.h"
#include "sim/search/enumerate.h"

/* What all blocks keep for backward, one micro-step of one sample group. */
static int64_t of_blocks(const struct plan *p, const struct program *g)
{
    int64_t period = program_period(p), alone = program_alone(p), sum = 0;

    for (int64_t b = 0; b < alone + period && b < p->model.layers; b++) {
        int64_t alike = b < alone ? 1 : (p->model.layers - b + period - 1) / period;
        sum += alike * g->whole[program_piece_of_block(p, b)][PASS_FORWARD][GRADS_DROP].net[MEM_ACTIVATIONS];
    }
    return sum;
}

bool bounds_leave(const struct plan *p)
{
    return p->activation_offload != OFFLOAD_NOTHING || p->recompute == RECOMPUTE_OFFLOAD;
}

/* What the first rank of a pipeline has at most at the end of a forward: what the blocks of its chunks keep of each micro-step
 * whose backward has not begun, less what the next stage was sent. */
static int64_t of_first_stage(const struct plan *p, const struct program *g)
{
    struct pipeline pipe = { p->parallel.pipeline_schedule, (int)p->parallel.pipeline, 0, (int)p->parallel.virtual_stages,
                             (int)plan_flush_steps(p), (int)p->megatron.microbatch_group_size_per_vp_stage };
    struct pipeline_pass *pass = room_new(pipeline_room(&pipe), sizeof *pass);
    int64_t chunk[PLAN_MAX_CHUNKS] = { 0 }, held = 0, most = 0;
    int n = pipeline_order(&pipe, pass);

    for (int c = 0; c < pipe.chunks; c++) {
        struct local_stage l = local_share_stage_of(p, (int64_t)pipe.ranks * pipe.chunks, pipeline_stage(&pipe, 0, c));
        for (int64_t b = l.first; b < l.first + l.blocks; b++)
            chunk[c] += g->whole[program_piece_of_block(p, b)][PASS_FORWARD][GRADS_DROP].net[MEM_ACTIVATIONS];
        chunk[c] -= chunk[c] < 2 * g->boundary ? chunk[c] : 2 * g->boundary;
    }
    for (int i = 0; i < n; i++) {
        if (pass[i].kind == MICRO_FORWARD)
            held += chunk[pass[i].chunk];
        else if (pass[i].kind != MICRO_WEIGHT)
            held -= chunk[pass[i].chunk];
        most = held > most ? held : most;
    }
    free(pass);
    return most;
}

static int64_t of_head_forward(const struct program *g)
{
    const struct span *forward = &g->whole[PIECE_HEAD][PASS_FORWARD][GRADS_DROP];

    return forward->peak[MEM_ACTIVATIONS] + forward->peak[MEM_TEMPORARIES];
}

/* The head at its fullest, in forward or in backward, whose gradients of weights count nothing here. */
static int64_t of_head(const struct program *g)
{
    const struct span *forward = &g->whole[PIECE_HEAD][PASS_FORWARD][GRADS_DROP], *backward = &g->whole[PIECE_HEAD][PASS_BACKWARD][GRADS_IN_PLACE];
    int64_t before = of_head_forward(g), behind = forward->net[MEM_ACTIVATIONS] + backward->peak[MEM_ACTIVATIONS] + backward->peak[MEM_TEMPORARIES];

    return before > behind ? before : behind;
}

int64_t bounds_activations(const struct plan *p, const struct program *g)
{
    if (p->parallel.pipeline > 1)
        return of_first_stage(p, g);
    return (bounds_leave(p) ? 0 : of_blocks(p, g) + g->whole[PIECE_EMBED][PASS_FORWARD][GRADS_DROP].net[MEM_ACTIVATIONS]) + of_head(g);
}

static int64_t of_block(const struct model *m, int64_t block, bool experts)
{
    const struct tensor *t = &m->tensors[model_block_first(m, block)];
    int64_t sum = 0;

    for (int i = 0, n = model_block_tensors(m, block); i < n; i++)
        sum += !experts || role_is_of_experts(t[i].role) ? t[i].numel : 0;
    return sum;
}

/* Parameters of the first stage's blocks; of all of the model without a pipeline.  `experts`: of experts that are shared out. */
static int64_t params_of(const struct plan *p, bool experts)
{
    const struct model *m = &p->model;
    int64_t sum = 0, ranks = p->parallel.pipeline, chunks = p->parallel.virtual_stages;
    struct pipeline pipe = { p->parallel.pipeline_schedule, (int)ranks, 0, (int)chunks, (int)plan_flush_steps(p),
                             (int)p->megatron.microbatch_group_size_per_vp_stage };

    if (ranks == 1 && !experts)
        return m->params;
    for (int c = 0; c < chunks; c++) {
        struct local_stage stage = local_share_stage_of(p, ranks * chunks, pipeline_stage(&pipe, 0, c));
        for (int64_t b = stage.first; b < stage.first + stage.blocks; b++)
            sum += of_block(m, b, experts);
    }
    return sum;
}

/* Ranks over which what is kept between steps is divided: parameters, and the optimizer's states. */
static void shares(const struct plan *p, int64_t *params, int64_t *states)
{
    int64_t model = p->parallel.tensor;

    *params = model * (plan_keeps_whole(p->strategy) ? 1 : p->shard_group);
    *states = model * (p->strategy == STRAT_FSDP ? p->shard_group :
                       p->strategy == STRAT_DDP || p->strategy == STRAT_DP ? 1 : plan_data_ranks(p));
}

/* FSDP whose units stay whole between a forward and its backward: all blocks are at the end of a forward. */
bool bounds_stays_whole(const struct plan *p)
{
    bool grad_op = p->fsdp.sharding_strategy == FSDP1_SHARD_GRAD_OP || p->fsdp.sharding_strategy == FSDP1_HYBRID_SHARD_ZERO2;

    return p->strategy == STRAT_FSDP && p->shard_group > 1 &&
           (p->dialect == DIALECT_TORCH_FSDP1 ? grad_op : p->dialect == DIALECT_TORCH && p->fsdp.reshard_after_forward == 0);
}

/* FSDP that reduces gradients in a step's last micro-step alone: until then each rank has all of them, not a share; of experts that are
 * shared out its own, and of a recording those of parameters that are used. */
bool bounds_grads_stay_whole(const struct plan *p)
{
    return p->strategy == STRAT_FSDP && p->shard_group > 1 && p->accumulation > 1 && !p->sync_every_micro_step && p->parallel.pipeline == 1 &&
           p->parallel.expert <= 1 && !p->model.recorded;
}

/* Of a gradient that waits for others: FSDP2 adds up in the dtype in which it reduces (to_accumulated_grad_if_needed()). */
int64_t bounds_grad_bytes(const struct plan *p)
{
    struct recipe r = plan_recipe(p);

    return dtype_bytes(p->dialect == DIALECT_TORCH && bounds_grads_stay_whole(p) ? r.wire_reduce : r.used);
}

static int64_t of_blocks_params(const struct plan *p)
{
    int64_t sum = 0;

    for (int64_t b = 0; b < p->model.layers; b++)
        sum += of_block(&p->model, b, false);
    return sum;
}

bool bounds_keeps_grads(const struct plan *p) { return p->dialect == DIALECT_MEGATRON || p->accumulation > 1; }

int64_t bounds_held(const struct plan *p, const struct program *g)
{
    int64_t activations = bounds_activations(p, g), gathered = bounds_head_gathered(p), less = gathered > 0 ? of_head(g) - of_head_forward(g) : 0;
    int64_t head = activations + bounds_head_whole(p) + (gathered > less ? gathered - less : 0), units = bounds_units(p, g);

    return bounds_states(p) + (head > units ? head : units);
}

/* A communicator's buffers where it is known that the plan uses it: of data parallelism alone whose only group is that of all ranks. */
int64_t bounds_overhead(const struct plan *p)
{
    struct plan_groups groups;
    struct overhead o;

    plan_groups(p, &groups);
    bool alone = groups.n == 1 && groups.group[0].ranks > 1 && plan_is_data_parallel(p) && p->strategy != STRAT_DP && p->kernels != KERNELS_DPX;
    return overhead_bytes(p, &groups, alone ? 1u : 0, &o);
}

int64_t bounds_bytes(const struct plan *p, const struct program *g) { return bounds_held(p, g) + bounds_overhead(p); }

/* DistributedDataParallel's buckets hold all gradients, and .grad holds them once more where it is no view of them.  DeepSpeed's stage 1
 * keeps all of them until the last micro-step. */
static int64_t whole_grads(const struct plan *p, int64_t trains)
{
    struct recipe r = plan_recipe(p);
    int64_t used = dtype_bytes(r.used), grad = dtype_bytes(r.grad);
    bool ddp = p->dialect == DIALECT_TORCH && (p->strategy == STRAT_ZERO1 || (p->strategy == STRAT_DDP && p->ddp.wrapped));

    if (ddp)
        return trains * grad * (p->accumulation > 1 && !p->ddp.gradient_as_bucket_view ? 2 : 1);
    if (p->dialect == DIALECT_DEEPSPEED && p->strategy == STRAT_ZERO1 && p->accumulation > 1)
        return trains * (used < grad ? used : grad);
    return 0;
}

int64_t bounds_states(const struct plan *p)
{
    struct plan in_place = enumerate_in_place(p), stays = *p;
    struct recipe r = plan_recipe(p);
    int64_t params, states, bytes = 0;
    int64_t each = dtype_bytes(r.kept);                 /* of a parameter that trains, and of its gradient where the rank has that whole, too */

    stays.activation_offload = in_place.activation_offload;          /* states stay where they are */
    if (!enumerate_same_place(&stays, &in_place))
        return 0;
    if (p->model.training.bridge && p->parallel.pipeline > 1)
        return 0;                                       /* search tries none of these */
    shares(p, &params, &states);
    int64_t own = params_of(p, false), frozen = 0;
    if (!training_is_all(&p->model.training)) {         /* no pipeline: plan_check() */
        frozen = own - p->model.trainable;
        own = p->model.trainable;
    }
    int64_t with_states = own;
    each += p->dialect == DIALECT_MEGATRON ? dtype_bytes(r.grad) : 0;
    bool rows = bounds_rows(p);
    int64_t own_share = rows ? bounds_row_share(p, true) : own / params;
    bytes += own_share * each;
    if (p->parallel.expert > 1 && plan_keeps_whole(p->strategy)) {      /* a rank has its share of them */
        int64_t of_experts = params_of(p, true), here = of_experts / (p->parallel.expert * p->parallel.expert_tensor);
        bytes += here * each - of_experts / params * each;
        with_states -= p->strategy == STRAT_DDP ? of_experts - here : 0;    /* else they are cut over as many ranks as the rest */
    }
    int64_t all_grads = p->parallel.tensor == 1 && p->parallel.expert <= 1 && p->parallel.pipeline == 1 && !p->model.recorded ? whole_grads(p, own) : 0;
    if (bounds_keeps_grads(p) && p->dialect != DIALECT_MEGATRON) {
        int64_t kept = (rows ? own_share : with_states / states) * dtype_bytes(r.grad);
        int64_t whole = with_states / p->parallel.tensor * bounds_grad_bytes(p);    /* FSDP without synchronization keeps these */
        kept = bounds_grads_stay_whole(p) || (p->strategy == STRAT_FSDP && whole < kept) ? whole : kept;
        bytes += kept > all_grads ? kept : all_grads;
    } else
        bytes += all_grads;
    int64_t frozen_share = rows ? bounds_row_share(p, false) : frozen / params;
    bytes += p->model.training.base == BASE_PLAIN ? frozen_share * dtype_bytes(r.frozen) : frozen_share / 2;
    if (p->parallel.pipeline > 1 && bounds_stays_whole(p) && p->dialect == DIALECT_TORCH && p->parallel.virtual_stages == 1)
        bytes += own / p->parallel.tensor * dtype_bytes(r.used);
    else if (p->parallel.pipeline == 1 && bounds_stays_whole(p) && p->parallel.expert <= 1 && p->model.training.base == BASE_PLAIN && !p->model.recorded)
        bytes += of_blocks_params(p) / p->parallel.tensor * dtype_bytes(r.used);
    /* Of dp, only the server, or device 0, has states; other optimizers than AdamW have fewer, and so has a model of which a part
     * trains. */
    if (p->strategy == STRAT_ZERO3 && p->dialect == DIALECT_DEEPSPEED && p->ds.contiguous_gradients)
        bytes += p->ds.reduce_bucket_size * dtype_bytes(r.wire_reduce);         /* _configure_tensor_swapping(), beside all else */
    bool all = p->strategy != STRAT_DP && p->optimizer == OPTIMIZER_ADAMW && p->model.trainable == p->model.params;
    return all ? bytes + (rows ? own_share : with_states / states) * r.optimizer : bytes;
}

int64_t bounds_host_bytes(const struct plan *p, const struct program *g)
{
    int64_t on_node = p->cluster.world_size < p->cluster.gpus_per_node ? p->cluster.world_size : p->cluster.gpus_per_node;

    return p->activation_offload == OFFLOAD_NOTHING ? 0 : of_blocks(p, g) / p->parallel.pipeline * on_node;
}

bool bounds_host_is_short(const struct plan *p, const struct program *g)
{
    int64_t least = bounds_host_bytes(p, g), available;
    char why[256];

    if (least == 0)
        return false;
    struct fail_sink before = fail_divert(why, sizeof why);
    bool known = cluster_host_memory(&p->cluster, &available) == 0;
    fail_restore(before);
    return known && least > available;
}

/* ---- time ---- */

/* What the kernels of a plan are priced with; `groups` is empty where its collectives count nothing. */
struct timed {
    const struct plan  *p;
    struct schedules    s;          /* nothing but the program */
    struct cost_cache  *cache;
    struct plan_groups  groups;
    bool                halves;     /* the schedule splits backward */
};

static double kernels_s(const struct timed *of, enum piece_id piece, enum pass pass, int k0, int k1)
{
    struct op o = { .kind = OP_COMPUTE };
    struct cost c;

    o.u.compute.piece = (uint8_t)piece;
    o.u.compute.pass = (uint8_t)pass;
    o.u.compute.fate = GRADS_IN_PLACE;
    o.u.compute.k0 = (uint16_t)k0;
    o.u.compute.k1 = (uint16_t)k1;
    op_cost(of->cache, &of->s, &o, &c);
    return c.s;
}

/* A collective by itself.  What a ring hands on may lie within a node or not, by rank: it counts nothing.  Of an all-to-all the parts that a rank
 * sends count, which are at most what the busiest receives. */
static double collective_s(const struct timed *of, const struct collective *k)
{
    bool even = !k->waits && (k->op == COLL_ALL_GATHER || k->op == COLL_REDUCE_SCATTER || k->op == COLL_ALL_REDUCE ||
                              (k->op == COLL_ALL_TO_ALL && !k->onward));
    int g = even ? plan_groups_find(&of->groups, (enum group)k->group) : -1;
    int64_t ranks, per_node;
    struct cost c;

    if (g < 0)
        return 0;
    coll_group_shape(of->p, &of->groups, g, &ranks, &per_node);
    return coll_cost(&of->p->cluster, (enum coll_op)k->op, ranks, per_node, k->elems * dtype_bytes((enum dtype)k->dtype), &c) < 0 ? 0 : c.s;
}

struct passes { double s[NPASS], kernels_s[NPASS]; };

/* One pass over a piece: its kernels and the collectives between them, each as early as can be (model/schedule/schedule_cut.h). */
static void pass_s(const struct timed *of, enum piece_id piece, enum pass pass, struct passes *out)
{
    const struct piece *q = &of->s.program.piece[piece];
    const struct collective *all = q->collectives[pass];
    int n = q->nkernels[pass], nc = q->ncollectives[pass], next = 0;
    double *end = nc ? room_new((size_t)nc, sizeof *end) : NULL, tail[NSTREAM] = { 0 }, t = 0;

    out->kernels_s[pass] = out->s[pass] = kernels_s(of, piece, pass, 0, n);
    for (int k = 0; k < n && nc; k++) {
        bool communicates = next < nc && all[next].kernel == k;
        double come = 0;
        for (int i = 0; i < next; i++)
            come = all[i].needed == k ? fmax(come, end[i]) : come;
        t = (communicates ? t : fmax(t, come)) + kernels_s(of, piece, pass, k, k + 1);
        if (communicates) {
            double *st = &tail[all[next].stream];
            end[next] = *st = fmax(fmax(t, come), *st) + collective_s(of, &all[next]);
            t = all[next].stream == STREAM_COMPUTE ? *st : t;
            next++;
        }
    }
    for (int i = 0; i < next; i++)
        t = all[i].needed >= n ? fmax(t, end[i]) : t;
    out->s[pass] = fmax(out->s[pass], t);
    free(end);
}

/* Where the schedule may have backward in two halves, the lesser of both counts. */
static struct passes passes_of(const struct timed *of, enum piece_id piece)
{
    enum piece_id split = piece == PIECE_HEAD ? PIECE_HEAD_SPLIT : PIECE_BLOCK_SPLIT;
    struct passes t = { .s = { 0 } }, halves;

    for (int pass = 0; pass < NPASS; pass++)
        pass_s(of, piece, (enum pass)pass, &t);
    if (of->halves && piece != PIECE_EMBED) {
        pass_s(of, split, PASS_BACKWARD, &halves);
        t.s[PASS_BACKWARD] = fmin(t.s[PASS_BACKWARD], halves.s[PASS_BACKWARD]);
        t.kernels_s[PASS_BACKWARD] = fmin(t.kernels_s[PASS_BACKWARD], halves.kernels_s[PASS_BACKWARD]);
    }
    return t;
}

static void add(struct passes *to, struct passes more)
{
    for (int pass = 0; pass < NPASS; pass++) {
        to->s[pass] += more.s[pass];
        to->kernels_s[pass] += more.kernels_s[pass];
    }
}

/* One micro-step of each stage. */
static void stages_s(const struct timed *timed, struct passes *stage, int64_t n)
{
    const struct plan *p = timed->p;
    struct passes of[NPIECE] = { { { 0 }, { 0 } } };

    for (int i = 0; i < NPIECE; i++)
        if (i == PIECE_EMBED || piece_is_block((enum piece_id)i) || i == PIECE_HEAD)
            of[i] = passes_of(timed, (enum piece_id)i);
    for (int64_t s = 0; s < n; s++) {
        struct local_stage l = local_share_stage_of(p, n, s);
        for (int64_t b = l.first; b < l.first + l.blocks; b++)
            add(&stage[s], of[program_piece_of_block(p, b)]);
    }
    add(&stage[0], of[PIECE_EMBED]);
    add(&stage[n - 1], of[PIECE_HEAD]);
}

/* Ranks that share cores go at most so much faster than they were timed. */
static double least_pace(const struct plan *p)
{
    struct crowd c;

    return crowd_of(p, 0, &c) ? crowd_pace(&c, 1, 0) : 1;
}

double bounds_step_s(const struct plan *p, const struct program *g, struct cost_cache *cache)
{
    struct pipeline pipe = { p->parallel.pipeline_schedule, (int)p->parallel.pipeline, 0,
                             p->parallel.pipeline > 1 ? (int)p->parallel.virtual_stages : 1, (int)plan_flush_steps(p),
                             (int)p->megatron.microbatch_group_size_per_vp_stage };
    struct timed timed = { .p = p, .s = { .program = *g }, .cache = cache, .halves = pipe.ranks > 1 && pipeline_splits(pipe.kind) };
    struct passes *stage = room_new((size_t)(pipe.ranks * pipe.chunks), sizeof *stage);
    double ahead = 0, most = 0, least = INFINITY;

    if (!p->cluster.measured && g->ncollectives > 0)
        plan_groups(p, &timed.groups);
    stages_s(&timed, stage, pipe.ranks * pipe.chunks);
    for (int r = 0; r < pipe.ranks; r++) {
        double work = 0, kernels = 0;
        for (int c = 0; c < pipe.chunks; c++) {
            const struct passes *t = &stage[pipe.ranks > 1 ? pipeline_stage(&pipe, r, c) : 0];
            work += t->s[PASS_FORWARD] + t->s[PASS_BACKWARD];
            kernels += t->kernels_s[PASS_FORWARD] + t->kernels_s[PASS_BACKWARD];
        }
        most = fmax(most, ahead + (double)p->accumulation * work);
        least = fmin(least, kernels);
        ahead += stage[r].s[PASS_FORWARD] + (timed.halves ? 0 : stage[r].s[PASS_BACKWARD]);
    }
    free(stage);
    return most * least_pace(p) + (p->cluster.measured ? 0 : jitter_slowest_s(&p->cluster, (double)p->accumulation * least));
}
