/* expert_capacity.c -- see expert_capacity.h. */
#include "model/plan/expert_capacity.h"

#include <math.h>

#include "model/plan/native_experts.h"
#include "model/plan/plan_groups.h"

int64_t expert_capacity(int64_t tokens, int64_t used, int64_t experts, double factor, int64_t least)
{
    int64_t rows = (int64_t)ceil((double)(tokens * used) / (double)experts * factor);

    return rows > least ? rows : least;
}

/* With sequence parallelism each tensor-parallel rank routes its share of the positions. */
int64_t expert_capacity_tokens(const struct plan *p)
{
    int64_t cut = p->parallel.tensor > 1 && p->parallel.sequence ? p->parallel.tensor : 1;

    return p->micro_batch * plan_rank_seq(p) / cut;
}

/* deepspeed.moe.layer.MoE's; where no token is dropped that of the busiest expert, which is as much above the mean as the plan says. */
static int64_t native_capacity(const struct plan *p, int64_t tokens)
{
    const struct model *m = &p->model;

    if (!p->ds.moe_drop_tokens)
        return expert_capacity(tokens, m->experts_used, m->experts, p->parallel.expert_imbalance, 0);
    return expert_capacity(tokens, m->experts_used, m->experts, p->ds.moe_capacity_factor, p->ds.moe_min_capacity);
}

int64_t expert_capacity_of(const struct plan *p, int64_t tokens)
{
    if (native_experts_has(p))
        return native_capacity(p, tokens);

    double factor = p->megatron.moe_expert_capacity_factor;

    return factor > 0 ? expert_capacity(tokens, p->model.experts_used, p->model.experts, factor, 0) : 0;
}

int64_t expert_rows_received(int64_t rows, double imbalance) { return (int64_t)((double)rows * imbalance + 0.5); }

int64_t expert_rows_unit(const struct plan *p) { return plan_scaled(p) == SCALED_MXFP8 ? 32 : 16; }

/* `rows` of `experts`, each one's a multiple. */
static int64_t filled_up(const struct plan *p, int64_t rows, int64_t experts)
{
    return experts * round_up(ceil_div(rows, experts), expert_rows_unit(p));
}

/* An expert takes its capacity of each of the ranks that share the experts out, of which one has as many experts as another. */
struct expert_rows expert_rows_of(const struct plan *p, int64_t tokens)
{
    int64_t most = p->model.experts * expert_capacity_of(p, tokens);

    if (native_experts_has(p))          /* every expert's capacity, whatever is in it */
        return (struct expert_rows){ most, most };

    struct expert_rows r = { .sent = tokens * p->model.experts_used };

    if (most > 0 && (r.sent > most || p->megatron.moe_pad_expert_input_to_capacity))
        r.sent = most;
    if (p->megatron.moe_router_padding_for_quantization)
        r.sent = filled_up(p, r.sent, p->model.experts);
    r.received = p->parallel.expert > 1 ? expert_rows_received(r.sent, p->parallel.expert_imbalance) : r.sent;
    if (most > 0 && r.received > most)
        r.received = most;
    if (p->megatron.moe_router_padding_for_quantization)
        r.received = filled_up(p, r.received, p->model.experts / (p->parallel.expert > 1 ? p->parallel.expert : 1));
    return r;
}
