/* torch_model.c -- blocks, embedding and head as transformers 5.23 computes them.
 *
 * GPT-2 and LLaMA are followed line by line; the other families are put together
 * from the same pieces by what distinguishes them in memory: the kind of norm,
 * fused or separate projections, gated or plain MLP, rotary, ALiBi or learned
 * positions, parallel residual, norms after the halves.  A var that a Python name
 * holds is dropped where the name is rebound or its function returns. */
#include "model/program/torch_model.h"

#include <string.h>

#include "model/arch/training.h"
#include "model/plan/native_experts.h"
#include "model/program/autoep_moe.h"
#include "model/program/native_moe.h"
#include "model/program/tape_collective.h"
#include "model/program/tape_liger.h"
#include "model/program/tape_parts.h"
#include "model/program/titan_moe.h"
#include "model/program/torch_mamba.h"
#include "model/program/torch_rotary.h"
#include "model/program/torch_experts.h"
#include "model/program/torch_loss.h"
#include "model/program/torch_parts.h"
#include "model/program/torch_ulysses.h"

void torch_model_init(struct torch_model *b, struct tape *t, const struct local_model *local)
{
    const struct plan *p = local->plan;
    struct recipe r = plan_recipe(p);

    memset(b, 0, sizeof *b);
    b->t = t;
    b->p = p;
    b->m = local->model;
    b->whole = local->whole;
    b->partial = local->partial;
    b->ranks = local->share.tensor_ranks;
    b->context = p->parallel.context > 1 ? p->parallel.context : 1;
    b->place = local->rank / (p->parallel.tensor > 1 ? p->parallel.tensor : 1) % b->context;    /* plan_mesh() */
    b->sequence = local->share.sequence;
    t->main_grad = kernels_are_megatron(p->kernels) ? (int)dtype_bytes(r.grad) : 0;
    t->grads_apart = t->main_grad && !p->megatron.gradient_accumulation_fusion;
    b->family = family_for(&p->model);
    b->param_dt = r.autocast ? DT_FP32 : r.used;
    b->own_dt = r.autocast ? r.copies : r.used;
    b->frozen_dt = r.autocast ? r.frozen : r.used;
    b->adapter_dt = plan_adapter_input(p);
    b->dt = b->frozen_dt;
    b->as = p;
    b->kernel = attention_choice(p);
    b->tokens = p->micro_batch * p->seq;
    t->tied = torch_piece_tensor(b->m, TENSOR_EMBED, ROLE_TOKENS, false);
    /* ZeRO-3 puts a linear layer of its own in the place of PyTorch's (zero/linear.py). */
    t->linear_views = p->strategy != STRAT_ZERO3 || p->dialect != DIALECT_DEEPSPEED;
    t->linear_saves = !t->linear_views;         /* ctx.save_for_backward(input, weight, bias) */
}

bool torch_holds_int8_inputs(const struct model *m) { return m->norm_place == NORM_FIRST || m->norm_place == NORM_AROUND; }

bool torch_has_two_tables(const struct model *m)
{
    int64_t windowed = model_windowed_layers(m);

    return family_for(m)->two_tables && windowed > 0 && windowed < m->layers;
}

/* PipelineModule hands a layer's output to the next one and forgets it: no forward() of a model holds it. */
static bool is_layer_by_layer(const struct torch_model *b) { return b->stages && b->p->dialect == DIALECT_DEEPSPEED; }

bool torch_is_autotp(const struct torch_model *b) { return b->ranks > 1 && b->p->dialect == DIALECT_DEEPSPEED; }

bool torch_casts_tables(const struct torch_model *b)
{
    return (b->family->rotary_fp32 || b->family->biased_scores) && b->p->strategy == STRAT_FSDP && b->p->dialect == DIALECT_TORCH &&
           !b->autocast && b->dt != DT_FP32;
}

/* ---- MLP ---- */

/* The argument of tanh, c * (x + 0.044715 * x^3): "gelu_new", "gelu_accurate", "gelu_python_tanh". */
static var of_power(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    var x32 = torch_fp32_if_autocast(b, x);
    var cube = op_pow(t, "gelu x^3", x32);

    tape_drop(t, x32);
    cube = tmp(t, cube, op_mul_const(t, "gelu scale", cube, 0));
    var sum = tmp(t, cube, op_add(t, "gelu sum", x, cube));
    return tmp(t, sum, op_mul_const(t, "gelu scale", sum, 0));
}

/* c * x * (1 + 0.044715 * x * x): "gelu_fast". */
static var of_products(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    var scaled = op_mul_const(t, "gelu scale", x, 0);
    var small = op_mul_const(t, "gelu scale", x, 0);
    var square = tmp(t, small, op_mul(t, "gelu square", small, x));
    var sum = tmp(t, square, op_view_add(b, square));
    var y = op_mul(t, "gelu argument", scaled, sum);

    tape_drop(t, scaled);
    tape_drop(t, sum);
    return y;
}

/* x / 2 * (1 + tanh(...)) or x / 2 * (1 + erf(x / sqrt 2)), one kernel per operation.  The gradient of erf is made of four (derivatives.yaml). */
static var gelu_in_steps(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    var half = op_mul_const(t, "gelu 0.5x", x, 0), curve;

    if (b->m->act_code == ACT_OF_ERF) {
        var scaled = op_mul_const(t, "gelu scale", x, 0);
        curve = tmp(t, scaled, op_function(t, "gelu erf", scaled, 4 * tape_var_bytes(t, scaled)));
    } else {
        var argument = b->m->act_code == ACT_OF_POWER ? of_power(b, x) : of_products(b, x);
        curve = tmp(t, argument, op_unary(t, "gelu tanh", KC_ELEMENTWISE, argument, SAVE_OUT));
    }
    var one = tmp(t, curve, op_view_add(b, curve));
    var y = op_mul(t, "gelu product", half, one);
    tape_drop(t, half);
    tape_drop(t, one);
    return y;
}

var torch_activation(struct torch_model *b, var x)
{
    if (b->m->act_code != ACT_ONE_KERNEL)
        return gelu_in_steps(b, x);
    switch (b->m->act) {
    case ACT_RELU:
        return op_unary(b->t, "relu", KC_ELEMENTWISE, x, SAVE_OUT);
    case ACT_RELU2: {
        var y = op_unary(b->t, "relu", KC_ELEMENTWISE, x, SAVE_OUT);
        y = tmp(b->t, y, torch_fp32_if_autocast(b, y));        /* autocast computes pow in fp32 */
        return tmp(b->t, y, op_pow(b->t, "square", y));
    }
    case ACT_SILU:
        return op_unary(b->t, "silu", KC_ELEMENTWISE, x, SAVE_IN);
    case ACT_GELU: case ACT_GELU_TANH:
        break;
    }
    if (b->family->gelu_function) {
        op_scratch(b->t, "gelu temporaries", 3 * tape_var_bytes(b->t, x));
        return op_function(b->t, "gelu", x, 4 * tape_var_bytes(b->t, x));
    }
    return op_unary(b->t, "gelu", KC_ELEMENTWISE, x, SAVE_IN);
}

static double hidden_dropout(const struct torch_model *b)
{
    return b->family->hidden_dropout ? b->p->dropout : 0;
}

static double mlp_dropout(const struct torch_model *b)
{
    return b->family->mlp_dropout ? b->p->dropout : hidden_dropout(b);
}

/* LigerSwiGLUMLP, LigerPhi3SwiGLUMLP, LigerGEGLUMLP: names of gate and up, where they have any, last until it returns. */
static var liger_mlp(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->ffn;
    bool fused = b->m->fused_gate_up;
    var part[2];

    if (fused) {
        var both = torch_linear(b, GEMM("mlp gate up"), x, 2 * f, h, ROLE_GATE_UP);
        op_split(t, "gate up split", both, 2, (int64_t[]){ b->tokens * f, b->tokens * f }, part);
        tape_drop(t, both);
    } else {
        part[0] = torch_linear(b, GEMM("mlp gate"), x, f, h, ROLE_GATE);
        part[1] = torch_linear(b, GEMM("mlp up"), x, f, h, ROLE_UP);
    }
    var y = op_liger_glu(t, b->m->act == ACT_SILU ? "liger SwiGLU" : "liger GeGLU", part[0], part[1], fused);
    for (int i = 0; i < 2 && !fused; i++)
        tape_drop(t, part[i]);
    y = tmp(t, y, torch_linear(b, GEMM("mlp down"), y, h, f, ROLE_DOWN));
    for (int i = 0; i < 2 && fused; i++)
        tape_drop(t, part[i]);
    return y;
}

static var gated_mlp(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->ffn;
    var gate, up, act;

    if (b->m->fused_gate_up) {
        var both = torch_linear(b, GEMM("mlp gate up"), x, 2 * f, h, ROLE_GATE_UP), part[2];
        op_split(t, "gate up split", both, 2, (int64_t[]){ b->tokens * f, b->tokens * f }, part);
        tape_drop(t, both);
        gate = part[0], up = part[1];
        act = torch_activation(b, gate);
    } else {
        gate = torch_linear(b, GEMM("mlp gate"), x, f, h, ROLE_GATE);
        act = tmp(t, gate, torch_activation(b, gate));
        gate = 0;
        up = torch_linear(b, GEMM("mlp up"), x, f, h, ROLE_UP);
    }
    tape_parts_gathered(t);
    var y = op_mul(t, "mlp product", act, up);
    tape_drop(t, act);
    tape_drop(t, up);
    tape_drop(t, gate);
    y = tmp(t, y, torch_linear_leaving(b, GEMM("mlp down"), y, h, f, ROLE_DOWN));
    return tmp(t, y, op_dropout(t, "mlp dropout", y, mlp_dropout(b)));
}

static var plain_mlp(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->ffn;
    var y = torch_linear(b, GEMM("mlp up"), x, f, h, ROLE_UP);

    tape_parts_gathered(t);
    y = tmp(t, y, torch_activation(b, y));
    y = tmp(t, y, torch_linear_leaving(b, GEMM("mlp down"), y, h, f, ROLE_DOWN));
    return tmp(t, y, op_dropout(t, "mlp dropout", y, mlp_dropout(b)));
}

static var mixture(struct torch_model *b, var x)
{
    if (b->p->fsdp.grouped_experts)
        return titan_moe(b, x);
    if (b->p->parallel.expert <= 1)
        return b->family->every_expert ? torch_every_expert(b, x) : torch_experts(b, x);
    if (b->p->dialect != DIALECT_DEEPSPEED)
        return titan_moe(b, x);
    return native_experts_has(b->p) ? native_moe(b, x) : autoep_moe(b, x);
}

static var mlp(struct torch_model *b, var x)
{
    if (b->m->experts && model_has_experts(b->m, b->block))
        return mixture(b, x);
    b->t->half = 1;
    x = torch_enter(b, x, b->m->mlp == MLP_GATED ? ROLE_GATE : ROLE_UP);
    return tmp(b->t, x, b->p->liger.glu_activation ? liger_mlp(b, x) : b->m->mlp == MLP_GATED ? gated_mlp(b, x) : plain_mlp(b, x));
}

/* ---- blocks ---- */

/* Attention and MLP read the same input: GPT-NeoX, Falcon, Phi, Cohere. */
static var parallel_block(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    var a = torch_norm(b, "norm", x, ROLE_NORM_ATTN);
    bool second = torch_piece_tensor(b->m, 0, ROLE_NORM_MLP, false) >= 0;
    bool early = second && b->family->falcon;            /* both norms, then attention */
    var n = early ? torch_norm(b, "mlp norm", x, ROLE_NORM_MLP) : second ? 0 : tape_hold(t, a);
    var attn = torch_attention(b, a);

    tape_drop(t, a);
    if (!b->family->falcon)              /* which drops out once, of the sum */
        attn = tmp(t, attn, op_dropout(t, "attention output dropout", attn, hidden_dropout(b)));
    if (second && !early) {
        t->half = 1;
        n = torch_norm(b, "mlp norm", x, ROLE_NORM_MLP);
    }
    var y = tmp(t, n, mlp(b, n));
    var sum = b->family->falcon ? op_add_to(t, "parallel add", y, attn) : op_add(t, "parallel add", y, attn);
    tape_drop(t, y);
    tape_drop(t, attn);
    var out = op_add(t, "residual add", sum, x);
    tape_drop(t, sum);
    tape_drop(t, x);
    tape_drop(t, b->weights);
    b->weights = 0;
    return out;
}

/* Granite's multiplier of what a half adds. */
static var scale_residual(struct torch_model *b, var x)
{
    return b->family->scaled_residual ? op_mul_const(b->t, "residual scale", x, 0) : tape_hold(b->t, x);
}

var torch_run_module(struct torch_model *b, enum torch_module module, var x)
{
    switch (module) {
    case TORCH_NORM_ATTN: return torch_norm(b, "norm", x, ROLE_NORM_ATTN);
    case TORCH_ATTENTION: return torch_attention(b, x);
    case TORCH_NORM_MLP:  return torch_norm(b, "mlp norm", x, ROLE_NORM_MLP);
    case TORCH_MLP:       return mlp(b, x);
    case TORCH_CORE:      break;
    }
    return 0;
}

/* The same, under torch.utils.checkpoint where the plan says so: what it reads is held. */
static var module_of(struct torch_model *b, enum torch_module module, var x)
{
    struct tape *t = b->t;
    bool attends = module == TORCH_ATTENTION;
    const var args[TORCH_ARGS] = { x, attends ? torch_mask(b) : 0, attends ? b->cos : 0, attends ? b->sin : 0, 0, 0, attends ? b->bias : 0 };
    struct torch_region *r = &b->region[b->nregions];
    int before = t->nsavers;

    if (!b->apart)
        return torch_run_module(b, module, x);
    *r = (struct torch_region){ .node0 = t->nnodes, .module = module };
    for (int i = 0; i < TORCH_ARGS; i++)
        r->args[i] = tape_hold(t, args[i]);
    t->forget = true;
    r->out = torch_run_module(b, module, x);
    t->forget = false;
    r->node1 = t->nnodes;
    r->savers = t->nsavers - before;
    b->nregions++;
    if (!tape_wants_grad(t, r->out)) {  /* no node holds what it would need */
        for (int i = 0; i < TORCH_ARGS; i++)
            tape_drop(t, r->args[i]);
        b->nregions--;
    }
    return r->out;
}

/* nemotron_h: one norm, one mixer, and the sum. */
static var mixer_block(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    enum block_kind kind = hybrid_kind(b->m, b->block);
    var n = torch_norm(b, "norm", x, kind == BLOCK_MLP ? ROLE_NORM_MLP : ROLE_NORM_ATTN);
    var y = kind == BLOCK_MAMBA ? torch_mamba(b, n) : kind == BLOCK_ATTENTION ? torch_attention(b, n) : mlp(b, n);

    tape_drop(t, n);
    y = tmp(t, y, op_add(t, "residual add", y, x));
    tape_drop(t, x);
    tape_drop(t, b->weights);
    b->weights = 0;
    return y;
}

var torch_block(struct torch_model *b, var x)
{
    struct tape *t = b->t;

    t->half = 0;
    if (b->m->hybrid)
        return mixer_block(b, x);
    if (b->m->parallel)
        return parallel_block(b, x);

    /* GPT-2's hidden_states names the norm's output until the residual is added, and
     * attn_output lives as long as the block; elsewhere one name serves for all. */
    bool named = b->family->keeps_names, attn_named = named || b->family->attention_named;
    enum norm_place place = b->m->norm_place;
    bool first = place == NORM_FIRST || place == NORM_AROUND;
    bool behind = place == NORM_AROUND || place == NORM_BEHIND;
    var n = first ? module_of(b, TORCH_NORM_ATTN, x) : tape_hold(t, x);
    var attn = module_of(b, TORCH_ATTENTION, n);
    n = named ? n : tmp(t, n, 0);
    if (behind)
        attn = tmp(t, attn, torch_norm(b, "post norm", attn, ROLE_NORM_ATTN_POST));
    if (!named)                         /* GPT-2's attention ends with it */
        attn = tmp(t, attn, op_dropout(t, "attention output dropout", attn, hidden_dropout(b)));
    attn = tmp(t, attn, scale_residual(b, attn));
    var mid = op_add(t, "residual add", attn, x);
    tape_drop(t, n);
    attn = attn_named ? attn : tmp(t, attn, 0);
    if (place == NORM_OF_SUM)
        mid = tmp(t, mid, torch_norm(b, "norm", mid, ROLE_NORM_ATTN));

    t->half = 1;
    n = first ? module_of(b, TORCH_NORM_MLP, mid) : tape_hold(t, mid);
    var y = module_of(b, TORCH_MLP, n);
    n = named ? n : tmp(t, n, 0);
    if (behind)
        y = tmp(t, y, torch_norm(b, "mlp post norm", y, ROLE_NORM_MLP_POST));
    y = tmp(t, y, scale_residual(b, y));
    var out = op_add(t, "mlp residual add", mid, y);
    if (place == NORM_OF_SUM)
        out = tmp(t, out, torch_norm(b, "mlp norm", out, ROLE_NORM_MLP));
    const var names[] = { mid, y, n, attn, x, b->weights };
    for (int i = 0; i < 6; i++)
        tape_drop(t, names[i]);
    b->weights = 0;
    return out;
}

/* ---- embedding ---- */

/* FSDP2 is handed DTensor's gradient, which is of the whole table; DDP's hook has it cut (tensor/parallel/ddp.py). */
static var torch_tokens(struct torch_model *b, int64_t width, var wte)
{
    struct tape *t = b->t;

    if (b->ranks == 1 || torch_is_autotp(b))
        return op_embedding(t, "token embedding", b->ids, width, wte);
    var x = tape_masked_embedding(t, "token embedding", b->ids, width, wte, b->whole->vocab * width);
    return tmp(t, x, torch_leave(b, x));
}

/* peft/tuners/lora/layer.py, Embedding.forward(): rows of A's transpose, times B's, beside the table's; neither is a copy, but their gradients are. */
static var add_embedding_adapter(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int which[2] = { torch_piece_part(b->m, TENSOR_EMBED, ROLE_TOKENS, false, ADAPTER_LORA_A),
                     torch_piece_part(b->m, TENSOR_EMBED, ROLE_TOKENS, false, ADAPTER_LORA_B) };
    int64_t rank = b->p->train.rank;
    var part[2];

    if (which[0] < 0)
        return tape_hold(t, x);
    for (int i = 0; i < 2; i++)
        part[i] = op_view(t, op_param(t, which[i], rank * (i ? b->m->token_width : b->m->vocab), b->param_dt), true);
    t->module = torch_piece_module(b->m, TENSOR_EMBED, ROLE_TOKENS, ADAPTER_LORA_A);
    var y = op_embedding(t, "adapter A", b->ids, rank, part[0]);
    t->module = torch_piece_module(b->m, TENSOR_EMBED, ROLE_TOKENS, ADAPTER_LORA_B);
    y = tmp(t, y, torch_bf16_if_autocast(b, y));
    part[1] = tmp(t, part[1], torch_bf16_if_autocast(b, part[1]));
    y = tmp(t, y, op_linear(t, GEMM("adapter B"), y, b->m->token_width, rank, part[1], 0, true));
    y = tmp(t, y, op_mul_const(t, "adapter scale", y, 0));
    var sum = op_add(t, "adapter add", x, y);
    sum = tmp(t, sum, op_cast(t, sum, tape_var_dtype(t, x)));
    tape_drop(t, y);
    tape_drop(t, part[0]);
    tape_drop(t, part[1]);
    t->module = 0;
    return sum;
}

/* create_causal_mask(): bool over (seq, seq), then additive over (batch, 1, seq, seq). */
static var causal_mask(struct torch_model *b)
{
    int64_t s = b->p->seq;

    if (b->family->falcon && b->m->position == POS_ALIBI)    /* FalconModel adds it to the mask: every head has its own */
        return op_new(b->t, "mask", KC_ELEMENTWISE, b->p->micro_batch * b->m->heads * s * s, b->dt);
    if (b->kernel > ATTENTION_MATH && attention_masked(b->p))
        return op_new(b->t, "mask", KC_ELEMENTWISE, s * s * (b->family->complex_rotary ? b->p->micro_batch : 1), DT_UINT8);   /* chunks begin
                                       where a sequence of the batch does */
    if (b->p->kernels != KERNELS_TORCH_EAGER)
        return 0;
    var allowed = op_new(b->t, "mask", KC_ELEMENTWISE, s * s, DT_UINT8);
    var additive = op_new(b->t, "mask", KC_ELEMENTWISE, b->p->micro_batch * s * s, b->dt);
    tape_drop(b->t, allowed);
    if (!b->family->biased_scores)
        return additive;
    return tmp(b->t, additive, op_new(b->t, "mask", KC_COPY, b->p->micro_batch * s * s, DT_UINT8)); /* .to(bool) */
}

/* build_mpt_alibi_tensor(): (heads, 1, max_seq_len), whatever the sequence. */
static var score_bias(struct torch_model *b)
{
    return b->family->biased_scores ? op_new(b->t, "position bias", KC_ELEMENTWISE, b->m->heads * b->m->context, DT_FP32)
                                   : 0;
}

var torch_mask(const struct torch_model *b)
{
    return kernels_take_sdpa(b->p->kernels) && !attention_masked(b->as) ? 0 : b->mask;
}

/* transformers makes position ids of one row; Ulysses' data loader hands in those of every sequence. */
int64_t torch_table_rows(const struct torch_model *b) { return torch_is_ulysses(b) ? b->tokens : b->p->seq; }

/* Rows of the model's table (gptj), in the compute dtype: cosines and sines are views of one tensor. */
static void table_rows(struct torch_model *b)
{
    struct tape *t = b->t;
    int64_t n = torch_table_rows(b) * b->m->rotary_dim;

    b->lasting[0] = op_new(t, "position table", KC_COPY, b->m->context * b->m->rotary_dim, DT_FP32);
    var rows = op_new(t, "rotary rows", KC_COPY, n, DT_FP32);
    b->cos = b->dt != DT_FP32 ? op_new(t, "rotary rows", KC_COPY, n, b->dt) : tape_hold(t, rows);
    b->sin = tape_hold(t, b->cos);
    tape_drop(t, rows);
}

/* cos and sin of (rows, head_dim): angles in fp32, then in the compute dtype. */
static void rotary_tables(struct torch_model *b, int first)
{
    struct tape *t = b->t;
    int64_t width = b->m->rotary_dim ? b->m->rotary_dim : b->m->head_dim;   /* 0: falcon with ALiBi */
    int64_t n = torch_table_rows(b) * (b->family->half_tables ? width / 2 : width);
    bool cast = b->dt != DT_FP32 && !b->family->rotary_fp32;
    for (int i = 0; i < 2; i++)         /* buffers of the model: they persist, and are counted here */
        b->lasting[i + first] = op_new(t, "rotary inv_freq", KC_COPY, width / 2, DT_FP32);
    if (b->family->complex_rotary) {
        b->cos = torch_angles(b);
        return;
    }
    var angle = op_new(t, "rotary angles", KC_ELEMENTWISE, n, DT_FP32);
    var c = op_new(t, "rotary cos", KC_ELEMENTWISE, n, DT_FP32);
    var s = op_new(t, "rotary sin", KC_ELEMENTWISE, n, DT_FP32);

    b->cos = cast ? op_new(t, "rotary cos", KC_COPY, n, b->dt) : tape_hold(t, c);
    b->sin = cast ? op_new(t, "rotary sin", KC_COPY, n, b->dt) : tape_hold(t, s);
    tape_drop(t, angle);
    tape_drop(t, c);
    tape_drop(t, s);
}

var torch_embed(struct torch_model *b)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t h = m->hidden, width = m->token_width;
    bool whole = b->ranks > 1 && (b->p->strategy == STRAT_FSDP || torch_is_autotp(b));
    var wte = torch_param(b, torch_gradient_of(b, ROLE_TOKENS, false), (whole ? b->whole : m)->vocab * width);

    t->module = 0;
    t->half = 0;
    b->ids = op_new(t, "input ids", KC_COPY, b->tokens, DT_INT64);
    b->labels = op_new(t, "labels", KC_COPY, b->tokens, DT_INT64);
    var x = torch_tokens(b, width, wte);
    x = tmp(t, x, add_embedding_adapter(b, x));
    if (program_input_requires_grad(b->as) || training_is_all(&b->p->train))    /* a synthetic model has no embedding */
        tape_require_grad(t, x);
    if (b->family->scaled_embed)
        x = tmp(t, x, op_mul_const(t, "embedding scale", x, 0));
    int64_t rows = b->family->positions_per_row ? b->tokens : torch_table_rows(b);
    b->positions = op_new(t, "position ids", KC_EMBEDDING, rows, DT_INT64);
    if (m->position == POS_LEARNED) {
        var wpe = torch_param(b, torch_gradient_of(b, ROLE_POSITIONS, false), m->positions * h);
        t->module = torch_piece_module(m, TENSOR_EMBED, ROLE_POSITIONS, ADAPTER_NONE);
        b->held[1] = op_embedding(t, "position embedding", b->positions, h, wpe);
        t->module = -1;
    }
    if (width != h)                     /* OPT's, behind its positions: backward comes to it first */
        x = tmp(t, x, torch_linear(b, GEMM("project in"), x, h, width, ROLE_PROJECT_IN));
    if (!is_layer_by_layer(b))
        b->held[0] = tape_hold(t, x);        /* inputs_embeds */
    if (m->position == POS_LEARNED) {
        var pos = b->held[1];
        x = tmp(t, x, rows == b->tokens ? op_add(t, "position add", x, pos) : op_add_rows(b, x, pos));
        if (is_layer_by_layer(b)) {          /* a slice of the table */
            tape_drop(t, pos);
            b->held[1] = 0;
        }
    }
    b->bias = score_bias(b);
    b->mask = causal_mask(b);
    b->other_mask = attention_masks(b->p) > 1 ? causal_mask(b) : 0;
    if (m->position == POS_ROPE || b->family->falcon)
        (b->family->position_table ? table_rows(b) : rotary_tables(b, 0));
    if (torch_has_two_tables(m)) {
        var other_cos = b->cos, other_sin = b->sin;
        rotary_tables(b, 3);
        if (torch_casts_tables(b))
            b->held[2] = other_cos, b->held[3] = other_sin;
        else                            /* blocks that use them keep them for their backward */
            b->lasting[5] = other_cos, b->lasting[6] = other_sin;
    }
    if (torch_piece_tensor(m, TENSOR_EMBED, ROLE_EMBED_NORM, false) >= 0)
        x = tmp(t, x, torch_norm(b, "embedding norm", x, ROLE_EMBED_NORM));
    if (b->family->scaled_table) {      /* Gemma's, scaled by sqrt(hidden), a buffer */
        b->lasting[2] = op_new(t, "embedding scale", KC_COPY, 1, DT_FP32);
        x = tmp(t, x, op_mul_const(t, "embedding scale", x, 0));
    }
    if (m->route_groups > 0)            /* e_score_correction_bias, a buffer of every router */
        b->lasting[2] = op_new(t, "correction biases", KC_COPY, model_routers(m) * round_up(m->experts * 4, 512) / 4, DT_FP32);
    if (b->family->embed_dropout)
        x = tmp(t, x, op_dropout(t, "embedding dropout", x, torch_rate(b, m->embed_dropout)));
    return x;
}

/* ---- head ---- */

var torch_head(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    const struct model *m = b->m;

    t->half = 0;
    b->block = TENSOR_HEAD;
    var n = m->norm_place == NORM_OF_SUM ? tape_hold(t, x) : torch_norm(b, "final norm", x, ROLE_NORM_FINAL);
    tape_drop(t, x);
    if (b->ranks > 1)
        n = tmp(t, n, torch_enter(b, n, ROLE_HEAD));
    if (m->token_width != m->hidden)
        n = tmp(t, n, torch_linear(b, GEMM("project out"), n, m->token_width, m->hidden, ROLE_PROJECT_OUT));
    for (int i = 0; i < 4; i++) {
        tape_drop(t, b->held[i]);
        b->held[i] = 0;
    }
    tape_drop(t, b->mask);
    tape_drop(t, b->other_mask);
    tape_drop(t, b->cos);
    tape_drop(t, b->sin);
    tape_drop(t, b->positions);
    tape_drop(t, b->bias);
    b->mask = b->other_mask = b->cos = b->sin = b->positions = b->bias = 0;

    var l = torch_loss(b, n);
    torch_leave_autocast(b);
    return l;
}
