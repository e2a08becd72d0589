/* megatron_memory.c -- the arithmetic of theoretical_memory_usage.py (Megatron-LM d98e8a64), operation by operation in its order: Python's ints are
 * exact, its / makes a double, and so does each int beside one; products of whole numbers and of 3/2 here are exact in either. */
#include "model/exchange/megatron_memory.h"

#include "base/fail.h"
#include "model/plan/megatron_model.h"

/* Its command line's words: hidden_size, ffn_hidden_size, kv_channels, num_query_groups ... */
struct args {
    double h, f, layers, heads, groups, channels, vocab, s, b, tp, pp, vp, dp, micro_batches;
    double moe_layers, experts, moe_f, shared_f, etp, expert_dp, ep;        /* none: moe_layers 0 */
    double q_rank, kv_rank, qk_dim, rope_dim, v_dim;                        /* multi_latent_attention: kv_rank > 0 */
    bool   swiglu, rms, untied, distributed, biased;
};

static struct args args_of(const struct plan *p)
{
    const struct model *m = &p->model;
    const struct parallel_options *of = &p->parallel;
    int64_t etp = of->expert_tensor > 1 ? of->expert_tensor : 1, ep = of->expert > 1 ? of->expert : 1;

    return (struct args){
        .h = (double)m->hidden, .f = (double)m->ffn, .layers = (double)m->layers, .heads = (double)m->heads, .groups = (double)m->kv_heads,
        .channels = (double)m->head_dim, .vocab = (double)megatron_vocab(m->vocab, p->megatron.make_vocab_size_divisible_by, of->tensor),
        .s = (double)p->seq, .b = (double)p->micro_batch, .tp = (double)of->tensor, .pp = (double)of->pipeline,
        .vp = (double)of->virtual_stages, .dp = (double)plan_batch_ranks(p), .micro_batches = (double)p->accumulation,
        .moe_layers = (double)(m->experts > 0 ? model_routers(m) : 0), .experts = (double)m->experts, .moe_f = (double)m->expert_ffn,
        .shared_f = (double)m->shared_ffn, .etp = (double)etp, .ep = (double)ep, .expert_dp = (double)(p->cluster.world_size / (etp * ep * of->pipeline)),
        .q_rank = (double)m->q_rank, .kv_rank = (double)m->kv_rank, .qk_dim = (double)(m->head_dim - m->rope_dim), .rope_dim = (double)m->rope_dim,
        .v_dim = (double)m->value_dim,
        .swiglu = m->mlp == MLP_GATED, .rms = m->norm == NORM_RMS, .untied = !m->tied, .distributed = p->strategy == STRAT_ZERO1, 
        .biased = m->mlp_bias || (m->experts > 0 && m->out_bias) };
}

/* self_attn_term. */
static double attention(const struct args *a, double norm)
{
    double ratio = a->channels * a->heads / a->h, q = a->h * a->heads * (a->qk_dim + a->rope_dim);

    if (a->kv_rank <= 0)
        return 2 * a->h * a->h * ((1 + a->groups / a->heads) * ratio);
    if (a->q_rank > 0)
        q = a->q_rank * (a->h + a->heads * (a->qk_dim + a->rope_dim) + norm);
    return q + a->kv_rank * (a->h + a->heads * (a->qk_dim + a->v_dim) + norm) + a->h * a->rope_dim + a->heads * a->v_dim * a->h;
}

static double bytes_of_parameter(const struct args *a, double ranks) { return a->distributed ? 6 + 12 / ranks : 18; }

/* compute_weight_and_optimizer_memory(): what tensor parallelism cuts, what every rank has whole, and experts. */
static double weights(const struct args *a)
{
    double norm = a->rms ? 1 : 2, gated = a->swiglu ? 3.0 / 2 : 1, dense = a->layers - a->moe_layers;
    double attn = attention(a, norm), mlp = 2 * a->h * a->f * gated, embedding = a->h * a->vocab, norms = 2 * a->h * norm;
    double shared = 2 * a->h * a->shared_f * gated, routed = 2 * a->h * a->moe_f * a->experts * gated;
    double router = a->moe_layers > 0 ? a->h * a->experts + (a->biased ? a->experts : 0) : 0;
    double cut = (((attn + mlp) * dense + (attn + shared) * a->moe_layers) / a->pp + embedding) / a->tp;
    double whole = (norms * dense + (norms + router) * a->moe_layers + norm * a->h) / a->pp;
    double experts = routed * a->moe_layers / a->pp / (a->etp * a->ep);

    if (a->untied && a->pp <= 1)
        cut += embedding / a->tp;
    return (cut + whole) * bytes_of_parameter(a, a->dp) + experts * bytes_of_parameter(a, a->expert_dp);
}

/* What layers keep, with the inputs of the embedding and its dropout, of the micro-batches that are in flight. */
static double in_flight(const struct args *a, double layer)
{
    double sum = layer * a->layers;

    sum += 8 * a->s * a->b * a->pp;
    sum += a->s * a->b * a->h * a->pp;
    if (a->vp > 1)
        sum *= 1 + (a->pp - 1) / (a->pp * a->vp);
    else if (a->pp > 1)
        sum *= a->micro_batches < a->pp ? a->micro_batches / a->pp : 1;
    return sum;
}

/* compute_activation_memory(). */
static double activations(const struct args *a)
{
    double sum = in_flight(a, a->s * a->b * a->h * (18 + 4 * (a->f / a->h)));

    if (a->pp <= 1)
        sum += a->s * a->b * a->h * 4 * (1 + a->vocab / a->h);
    return sum / a->tp;
}

/* compute_activation_memory_without_sp(). */
static double activations_without_sp(const struct args *a)
{
    double sum = in_flight(a, a->s * a->b * a->h * (10 + 24 / a->tp));

    if (a->pp <= 1)
        sum += (a->s * a->b * a->vocab / a->tp + a->s * a->b * a->h) * 2;
    return sum * 1.05;
}

int megatron_report_of(const struct plan *p, struct megatron_report *out)
{
    struct args a = args_of(p);

    if (p->dialect != DIALECT_MEGATRON)
        return fail("Megatron-LM's report is of plans in dialect megatron, not %s", dialect_name(p->dialect));
    out->by_positions = p->parallel.sequence && p->parallel.tensor > 1 && p->recompute == RECOMPUTE_SELECTIVE;
    out->weights = weights(&a);
    out->activations = out->by_positions ? activations(&a) : activations_without_sp(&a);
    return 0;
}
