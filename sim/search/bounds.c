/* bounds.c -- see bounds.h. */
#include "sim/search/bounds.h"

#include <math.h>
#include <stdlib.h>

#include "base/room.h"
#include "model/arch/training.h"
#include "model/lower/common/pipeline_order.h"
#include "model/plan/local_share.h"
#include "model/schedule/schedule.h"
#include "sim/search/enumerate.h"

/* What all blocks keep for backward, one micro-step of one sample group. */
static int64_t of_blocks(const struct plan *p, const struct program *g)
{
    int64_t period = program_period(p), sum = 0;

    for (int64_t b = 0; b < period; b++) {
        int64_t alike = (p->model.layers - b + period - 1) / period;
        sum += alike * g->whole[program_piece_of_block(p, b)][PASS_FORWARD][GRADS_DROP].net[MEM_ACTIVATIONS];
    }
    return sum;
}

static bool blocks_leave(const struct plan *p)
{
    return p->activation_offload != OFFLOAD_NOTHING || p->recompute == RECOMPUTE_OFFLOAD;
}

/* What the first rank of a pipeline has at most at the end of a forward: what the blocks of its chunks keep of each micro-step
 * whose backward has not begun, less what the next stage was sent. */
static int64_t of_first_stage(const struct plan *p, const struct program *g)
{
    struct pipeline pipe = { p->parallel.pipeline_schedule, (int)p->parallel.pipeline, 0, (int)p->parallel.virtual_stages,
                             (int)p->accumulation };
    struct pipeline_pass *pass = room_new(pipeline_room(&pipe), sizeof *pass);
    int64_t chunk[PLAN_MAX_CHUNKS] = { 0 }, held = 0, most = 0;
    int n = pipeline_order(&pipe, pass);

    for (int c = 0; c < pipe.chunks; c++) {
        struct local_stage l = local_share_stage(p->model.layers, (int64_t)pipe.ranks * pipe.chunks, pipeline_stage(&pipe, 0, c),
                                                 p->parallel.first_stage_less, p->parallel.last_stage_less);
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

int64_t bounds_activations(const struct plan *p, const struct program *g)
{
    const struct span *head = &g->whole[PIECE_HEAD][PASS_FORWARD][GRADS_DROP];
    int64_t blocks = blocks_leave(p) ? 0 : of_blocks(p, g);

    if (p->parallel.pipeline > 1)
        return of_first_stage(p, g);
    return blocks + head->peak[MEM_ACTIVATIONS] + head->peak[MEM_TEMPORARIES];
}

/* Parameters of the first stage's blocks; of all of the model without a pipeline. */
static int64_t params_of(const struct plan *p)
{
    const struct model *m = &p->model;
    int64_t blocks = 0, block = 0, ranks = p->parallel.pipeline, chunks = p->parallel.virtual_stages;
    struct pipeline pipe = { p->parallel.pipeline_schedule, (int)ranks, 0, (int)chunks, (int)p->accumulation };

    if (ranks == 1)
        return m->params;
    for (int c = 0; c < chunks; c++)
        blocks += local_share_stage(m->layers, ranks * chunks, pipeline_stage(&pipe, 0, c), p->parallel.first_stage_less,
                                    p->parallel.last_stage_less).blocks;
    for (int t = m->block0; t < m->block0 + m->per_block; t++)
        block += m->tensors[t].numel;
    return blocks * block;
}

/* Ranks over which what is kept between steps is divided: parameters, and the optimizer's states. */
static void shares(const struct plan *p, int64_t *params, int64_t *states)
{
    int64_t model = p->parallel.tensor;

    *params = model * (plan_keeps_whole(p->strategy) ? 1 : p->shard_group);
    *states = model * (p->strategy == STRAT_FSDP ? p->shard_group :
                       p->strategy == STRAT_DDP || p->strategy == STRAT_DP ? 1 : plan_data_ranks(p));
}

int64_t bounds_bytes(const struct plan *p, const struct program *g)
{
    struct plan in_place = enumerate_in_place(p);
    struct recipe r = plan_recipe(p);
    int64_t params, states, bytes = bounds_activations(p, g);

    if (!enumerate_same_place(p, &in_place))
        return bytes;
    shares(p, &params, &states);
    int64_t own = params_of(p), frozen = 0;
    if (!training_is_all(&p->model.training)) {         /* no pipeline: plan_check() */
        frozen = own - p->model.trainable;
        own = p->model.trainable;
    }
    bytes += own / params * dtype_bytes(r.kept);
    bytes += p->model.training.base == BASE_PLAIN ? frozen / params * dtype_bytes(r.frozen) : frozen / params / 2;
    /* FSDP2 that does not reshard has all blocks whole at the end of a forward. */
    if (p->parallel.pipeline > 1 && p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH && p->shard_group > 1 &&
        p->fsdp.reshard_after_forward == 0 && p->parallel.virtual_stages == 1)
        bytes += own / p->parallel.tensor * dtype_bytes(r.used);
    /* Of dp, only the server, or device 0, has states. */
    return p->strategy == STRAT_DP ? bytes : bytes + own / states * r.optimizer;
}

int64_t bounds_host_bytes(const struct plan *p, const struct program *g)
{
    int64_t on_node = p->cluster.world_size < p->cluster.gpus_per_node ? p->cluster.world_size : p->cluster.gpus_per_node;

    return p->activation_offload == OFFLOAD_NOTHING ? 0 : of_blocks(p, g) / p->parallel.pipeline * on_node;
}

/* ---- time ---- */

/* One pass over a piece. */
static double pass_s(struct cost_cache *cache, const struct program *g, enum piece_id piece, enum pass pass)
{
    struct schedules s = { .program = *g };
    struct op o = { .kind = OP_COMPUTE };
    struct cost c;

    o.u.compute.piece = (uint8_t)piece;
    o.u.compute.pass = (uint8_t)pass;
    o.u.compute.fate = GRADS_IN_PLACE;
    o.u.compute.k1 = (uint16_t)g->piece[piece].nkernels[pass];
    op_cost(cache, &s, &o, &c);
    return c.s;
}

struct passes { double s[NPASS]; };

static struct passes passes_of(struct cost_cache *cache, const struct program *g, enum piece_id piece, enum piece_id split)
{
    struct passes t;

    for (int pass = 0; pass < NPASS; pass++)
        t.s[pass] = pass_s(cache, g, piece, (enum pass)pass);
    if (g->piece[split].nkernels[PASS_BACKWARD] > 0)
        t.s[PASS_BACKWARD] = fmin(t.s[PASS_BACKWARD], pass_s(cache, g, split, PASS_BACKWARD));
    return t;
}

static void add(struct passes *to, struct passes more)
{
    for (int pass = 0; pass < NPASS; pass++)
        to->s[pass] += more.s[pass];
}

/* One micro-step of each stage. */
static void stages_s(const struct plan *p, const struct program *g, struct cost_cache *cache, struct passes *stage, int64_t n)
{
    struct passes of[NPIECE] = { { { 0 } } };

    for (int i = 0; i < NPIECE; i++)
        if (i == PIECE_EMBED || piece_is_block((enum piece_id)i) || i == PIECE_HEAD)
            of[i] = passes_of(cache, g, (enum piece_id)i, i == PIECE_HEAD ? PIECE_HEAD_SPLIT : PIECE_BLOCK_SPLIT);
    of[PIECE_EMBED] = (struct passes){ { pass_s(cache, g, PIECE_EMBED, PASS_FORWARD), pass_s(cache, g, PIECE_EMBED, PASS_BACKWARD) } };
    for (int64_t s = 0; s < n; s++) {
        struct local_stage l = local_share_stage(p->model.layers, n, s, p->parallel.first_stage_less, p->parallel.last_stage_less);
        for (int64_t b = l.first; b < l.first + l.blocks; b++)
            add(&stage[s], of[program_piece_of_block(p, b)]);
    }
    add(&stage[0], of[PIECE_EMBED]);
    add(&stage[n - 1], of[PIECE_HEAD]);
}

double bounds_step_s(const struct plan *p, const struct program *g, struct cost_cache *cache)
{
    struct pipeline pipe = { p->parallel.pipeline_schedule, (int)p->parallel.pipeline, 0,
                             p->parallel.pipeline > 1 ? (int)p->parallel.virtual_stages : 1, (int)p->accumulation };
    bool halves = pipe.ranks > 1 && pipeline_splits(pipe.kind);
    struct passes *stage = room_new((size_t)(pipe.ranks * pipe.chunks), sizeof *stage);
    double ahead = 0, most = 0;

    stages_s(p, g, cache, stage, pipe.ranks * pipe.chunks);
    for (int r = 0; r < pipe.ranks; r++) {
        double work = 0;
        for (int c = 0; c < pipe.chunks; c++) {
            const double *t = stage[pipe.ranks > 1 ? pipeline_stage(&pipe, r, c) : 0].s;
            work += t[PASS_FORWARD] + t[PASS_BACKWARD];
        }
        most = fmax(most, ahead + (double)p->accumulation * work);
        ahead += stage[r].s[PASS_FORWARD] + (halves ? 0 : stage[r].s[PASS_BACKWARD]);
    }
    free(stage);
    return most;
}
