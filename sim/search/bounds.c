/* bounds.c -- see bounds.h. */
#include "sim/search/bounds.h"

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

int64_t bounds_activations(const struct plan *p, const struct program *g)
{
    const struct span *head = &g->whole[PIECE_HEAD][PASS_FORWARD][GRADS_DROP];
    int64_t blocks = blocks_leave(p) ? 0 : of_blocks(p, g);

    if (p->parallel.pipeline > 1)
        return blocks / p->parallel.pipeline;
    return blocks + head->peak[MEM_ACTIVATIONS] + head->peak[MEM_TEMPORARIES];
}

/* Ranks over which what is kept between steps is divided: parameters, and the optimizer's states. */
static void shares(const struct plan *p, int64_t *params, int64_t *states)
{
    int64_t model = p->parallel.tensor * p->parallel.pipeline;

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
    bytes += p->model.params / params * dtype_bytes(r.kept);
    /* Of dp, only the server, or device 0, has states. */
    return p->strategy == STRAT_DP ? bytes : bytes + p->model.params / states * r.optimizer;
}

int64_t bounds_host_bytes(const struct plan *p, const struct program *g)
{
    int64_t on_node = p->cluster.world_size < p->cluster.gpus_per_node ? p->cluster.world_size : p->cluster.gpus_per_node;

    return p->activation_offload == OFFLOAD_NOTHING ? 0 : of_blocks(p, g) / p->parallel.pipeline * on_node;
}
