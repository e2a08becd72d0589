/* megatron_memory.c -- the arithmetic of theoretical_memory_usage.py (Megatron-LM d98e8a64) for models without experts, operation by
 * operation in its order: Python's ints are exact, its / makes a double, and so does each int beside one. */
#include "model/exchange/megatron_memory.h"

#include "base/fail.h"
#include "model/plan/megatron_model.h"

/* Its command line's words: hidden_size, ffn_hidden_size, kv_channels, num_query_groups ... */
struct args {
    double h, f, layers, heads, groups, channels, vocab, s, b, tp, pp, vp, dp, micro_batches;
    bool   swiglu, rms, untied, distributed;
};

static struct args args_of(const struct plan *p)
{
    const struct model *m = &p->model;
    const struct parallel_options *of = &p->parallel;

    return (struct args){
        .h = (double)m->hidden, .f = (double)m->ffn, .layers = (double)m->layers, .heads = (double)m->heads, .groups = (double)m->kv_heads,
        .channels = (double)m->head_dim, .vocab = (double)megatron_vocab(m->vocab, p->megatron.make_vocab_size_divisible_by, of->tensor),
        .s = (double)p->seq, .b = (double)p->micro_batch, .tp = (double)of->tensor, .pp = (double)of->pipeline,
        .vp = (double)of->virtual_stages, .dp = (double)plan_batch_ranks(p), .micro_batches = (double)p->accumulation,
        .swiglu = m->mlp == MLP_GATED, .rms = m->norm == NORM_RMS, .untied = !m->tied, .distributed = p->strategy == STRAT_ZERO1 };
}

/* compute_weight_and_optimizer_memory(). */
static double weights(const struct args *a)
{
    double norm = a->rms ? 1 : 2, ratio = a->channels * a->heads / a->h;
    double attention = 2 * a->h * a->h * ((1 + a->groups / a->heads) * ratio);
    double mlp = 2 * a->h * a->f * (a->swiglu ? 3.0 / 2 : 1), embedding = a->h * a->vocab;
    double cut = ((attention + mlp) * a->layers / a->pp + embedding) / a->tp;
    double whole = (2 * a->h * norm * a->layers + norm * a->h) / a->pp;

    if (a->untied && a->pp <= 1)
        cut += embedding / a->tp;
    return (cut + whole) * (a->distributed ? 6 + 12 / a->dp : 18);
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
    if (p->model.experts > 0)
        return fail("Megatron-LM's report is reproduced for models without experts; %s has %lld in a block", p->model.name, (long long)p->model.experts);
    out->by_positions = p->parallel.sequence && p->parallel.tensor > 1 && p->recompute == RECOMPUTE_SELECTIVE;
    out->weights = weights(&a);
    out->activations = out->by_positions ? activations(&a) : activations_without_sp(&a);
    return 0;
}
