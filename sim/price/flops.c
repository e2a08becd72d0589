/* flops.c -- FLOPs of a token by each convention, and the utilisation that they give. */
#include "sim/price/flops.h"

#include "model/arch/recorded.h"
#include "model/family/hybrid.h"

#include <stdio.h>

#include "model/plan/recorded_check.h"
#include "model/program/program.h"
#include "sim/price/gpu_rates.h"

const char *flop_convention_name(enum flop_convention f)
{
    switch (f) {
    case FLOPS_PALM:   return "6N + 12LHQT: all parameters, full attention";
    case FLOPS_CAUSAL: return "6N + 6LHQT: all parameters, causal attention";
    case FLOPS_MATMUL: return "6N + 12LHQT: N without the token embedding, full attention";
    case NFLOP_CONVENTION: break;
    }
    return "?";
}

const char *flop_convention_of(const struct model *m, enum flop_convention f)
{
    static const char *const active[NFLOP_CONVENTION] = {
        "6N + 12LHQT: active parameters, full attention", "6N + 6LHQT: active parameters, causal attention",
        "6N + 12LHQT: active N without the token embedding, full attention",
    };

    static const char *const tuned[NFLOP_CONVENTION] = {
        "4N + 2N that train + 12LHQT: all parameters, full attention", "4N + 2N that train + 6LHQT: all parameters, causal attention",
        "4N + 2N that train + 12LHQT: N without the token embedding, full attention",
    };
    static const char *const active_tuned[NFLOP_CONVENTION] = {
        "4N + 2N that train + 12LHQT: active parameters, full attention", "4N + 2N that train + 6LHQT: active parameters, causal attention",
        "4N + 2N that train + 12LHQT: active N without the token embedding, full attention",
    };

    if (f >= NFLOP_CONVENTION)
        return flop_convention_name(f);
    if (m->trainable < m->params)
        return m->experts ? active_tuned[f] : tuned[f];
    return m->experts ? active[f] : flop_convention_name(f);
}

/* Mamba-2's scan in chunks, a token: C B and what it weighs within the chunk, of which a causal kernel computes half; the chunk's states, made and
 * read. */
static double scan_forward(const struct model *m, enum flop_convention f)
{
    double within = 2.0 * (double)m->ssm_chunk * (double)(m->ssm_groups * m->ssm_state + m->ssm_heads * m->ssm_head_dim);
    double states = 4.0 * (double)(m->ssm_heads * m->ssm_head_dim) * (double)m->ssm_state;

    return (double)hybrid_blocks(m, BLOCK_MAMBA) * ((f == FLOPS_CAUSAL ? within / 2 : within) + states);
}

/* Scores and values: two products of s x d against d x s, per head and token.  Latent attention's values are narrower
 * than its keys. */
static double attention_forward(const struct model *m, int64_t seq, enum flop_convention f)
{
    int64_t widths = m->head_dim + (m->value_dim ? m->value_dim : m->head_dim);
    double full = 2.0 * (double)hybrid_attending(m) * (double)(m->heads * widths) * (double)seq;

    return (f == FLOPS_CAUSAL ? full / 2 : full) + scan_forward(m, f);
}

/* A tied embedding is a matrix product too, once.  Of experts count those that a token takes. */
static double weights(const struct model *m, enum flop_convention f)
{
    double embedding = m->tied ? 0 : (double)m->vocab * (double)m->token_width;

    return (double)m->active - (f == FLOPS_MATMUL ? embedding : 0);
}

/* Those that do not train have no gradient of their own; of experts those that a token takes. */
static double frozen(const struct model *m, enum flop_convention f)
{
    double sum = 0;

    for (int t = 0; t < m->ntensors; t++) {
        const struct tensor *x = &m->tensors[t];
        bool table = x->role == ROLE_TOKENS && !m->tied && f == FLOPS_MATMUL;
        double taken = role_is_of_experts(x->role) ? (double)m->experts_used / (double)m->experts : 1;
        sum += x->frozen && !table ? taken * (double)x->numel : 0;
    }
    return sum;
}

double flops_per_token(const struct model *m, int64_t seq, enum flop_convention f)
{
    if (m->recorded)
        return recorded_flops(m->recorded, seq, REC_NOTHING) / (double)seq;
    return 3 * (2 * weights(m, f) + attention_forward(m, seq, f)) - 2 * frozen(m, f);
}

/* Recomputed by operator: of a block's products, in the order in which they run, those with a bias and every second
 * of the others. */
static double products_again(const struct model *m)
{
    double again = 0;
    int n = 0;

    for (int role = ROLE_Q; role <= ROLE_DOWN; role++) {
        double weight = 0;
        bool biased = false;
        for (int i = m->block0; i < m->block0 + m->per_block; i++) {
            const struct tensor *t = &m->tensors[i];
            bool norm = role == ROLE_Q_NORM || role == ROLE_K_NORM || role == ROLE_NORM_ATTN_POST || role == ROLE_NORM_MLP;
            if ((int)t->role == role && !norm) {
                weight += t->is_bias ? 0 : (double)t->numel;
                biased |= t->is_bias;
            }
        }
        if (weight > 0 && (biased || ++n % 2 == 0))
            again += 2 * weight;
    }
    return again * (double)m->layers;
}

/* A module of Megatron-LM's that runs again, whose products these roles' weights are of. */
static bool is_of_module(const struct plan *p, enum tensor_role role)
{
    bool moe = plan_recomputes_module(p, "moe");

    switch (role) {
    case ROLE_GATE: case ROLE_UP: case ROLE_GATE_UP: case ROLE_DOWN:    return plan_recomputes_module(p, "mlp");
    case ROLE_ROUTER: case ROLE_EXPERTS_IN: case ROLE_EXPERTS_UP: case ROLE_EXPERTS_OUT:    return moe;
    case ROLE_Q_B: case ROLE_KV_B:                                      return plan_recomputes_module(p, "mla_up_proj");
    case ROLE_Q:                                    return p->model.kv_rank > 0 && plan_recomputes_module(p, "mla_up_proj");
    default:                                                            return false;
    }
}

/* How often shared experts run again: within moe and by themselves. */
static int shared_again(const struct plan *p) { return plan_recomputes_module(p, "moe") + plan_recomputes_module(p, "shared_experts"); }

/* What selective recompute runs again, a token: products of the modules that are named, and the attention core.  Of experts those that a
 * token takes. */
static double by_modules(const struct plan *p, double attention)
{
    const struct model *m = &p->model;
    double sum = plan_recomputes_module(p, "core_attn") ? attention : 0;

    for (int i = 0; i < m->ntensors; i++) {
        const struct tensor *t = &m->tensors[i];
        bool shared = t->role >= ROLE_SHARED_GATE && t->role <= ROLE_SHARED_DOWN;
        double taken = role_is_of_experts(t->role) ? (double)m->experts_used / (double)m->experts : 1;
        if (t->block >= 0 && !t->is_bias)
            sum += 2 * taken * (double)t->numel * (shared ? shared_again(p) : is_of_module(p, t->role));
    }
    return sum;
}

double flops_hardware_per_token(const struct plan *p, enum flop_convention f)
{
    const struct model *m = &p->model;
    if (m->recorded)
        return recorded_flops(m->recorded, p->seq, recorded_again(p)) / (double)p->seq;
    double done = flops_per_token(m, p->seq, f), attention = attention_forward(m, p->seq, f);
    double tables = f == FLOPS_MATMUL || m->tied ? 1 : 2;
    double outside = (double)m->vocab * (double)m->token_width * tables;
    double blocks = 2 * (weights(m, f) - outside) + attention;
    double share = m->layers > 0 ? (double)program_recomputed_blocks(p) / (double)m->layers : 0;

    switch (p->recompute) {
    case RECOMPUTE_MODULES:
    case RECOMPUTE_OFFLOAD:
    case RECOMPUTE_REENTRANT:
    case RECOMPUTE_FULL:      return done + blocks * share;
    case RECOMPUTE_SELECTIVE: return done + by_modules(p, attention) * share;
    case RECOMPUTE_OP:        return done + products_again(m) * share;
    case RECOMPUTE_NONE:
    case NRECOMPUTE:          break;
    }
    return done;
}

double flops_peak(const struct cluster *c, enum dtype precision)
{
    return c->is_host || gpu_is_host(&c->gpu) ? 0 : gpu_peak(&c->gpu, precision);
}

void flops_peak_text(const struct plan *p, char *to, size_t size)
{
    double peak = flops_peak(&p->cluster, p->precision);
    bool narrow = p->float8.recipe != FLOAT8_NONE || plan_scaled(p) != SCALED_NONE;

    to[0] = '\0';
    if (peak > 0)
        snprintf(to, size, " of the dense %s peak, %.4g TFLOP/s%s", dtype_name(p->precision), peak / 1e12, narrow ? ", as without fp8" : "");
}

static double share_of_peak(const struct plan *p, double flops_per_s)
{
    double peak = flops_peak(&p->cluster, p->precision);

    return peak > 0 ? flops_per_s / peak : 0;
}

double flops_mfu(const struct plan *p, enum flop_convention f, double tokens_per_s_per_gpu)
{
    return share_of_peak(p, flops_per_token(&p->model, p->seq, f) * tokens_per_s_per_gpu);
}

double flops_hfu(const struct plan *p, enum flop_convention f, double tokens_per_s_per_gpu)
{
    return share_of_peak(p, flops_hardware_per_token(p, f) * tokens_per_s_per_gpu);
}
