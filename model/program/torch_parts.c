/* torch_parts.c -- parameters and linear layers on the tape; torch_norms.c has the norms. */
#include "model/arch/training.h"
#include "model/program/torch_parts.h"

#include <string.h>

#include "model/program/tape_adapter.h"
#include "model/program/tape_adapter_row.h"
#include "model/program/tape_collective.h"
#include "model/plan/float8.h"
#include "model/plan/qat.h"
#include "model/program/tape_exchange.h"
#include "model/program/tape_float8.h"
#include "model/program/tape_packed.h"
#include "model/program/tape_qat.h"
#include "model/program/torch_split.h"

/* ---- parameters ---- */

/* Of multi-token prediction, whose tensors are the head's. */
static int depth_of(int *block)
{
    int depth = *block < TENSOR_HEAD ? TENSOR_HEAD - *block : 0;

    *block += depth;
    return depth;
}

/* The tensor behind i; a block's are in a row up to `end`. */
static int next_of(const struct model *m, int block, int i, int end)
{
    return block < 0 ? model_next_tensor(m, block, i) : i + 1 < end ? i + 1 : -1;
}

/* The first tensor of a piece, or -1, and where a block's end. */
static int first_of(const struct model *m, int block, int *end)
{
    int first = model_next_tensor(m, block, -1);

    *end = block < 0 ? 0 : first + model_block_tensors(m, block);
    *end = *end < m->ntensors ? *end : m->ntensors;
    return first;
}

int torch_piece_part(const struct model *m, int block, enum tensor_role role, bool bias, enum adapter as)
{
    int at = 0, depth = depth_of(&block), end;

    for (int i = first_of(m, block, &end); i >= 0; i = next_of(m, block, i, end)) {
        const struct tensor *x = &m->tensors[i];
        if (x->depth == depth && x->role == role && x->is_bias == bias && x->adapter == as)
            return at;
        at++;
    }
    return -1;
}

int torch_piece_tensor(const struct model *m, int block, enum tensor_role role, bool bias)
{
    return torch_piece_part(m, block, role, bias, ADAPTER_NONE);
}

int torch_piece_module(const struct model *m, int block, enum tensor_role role, enum adapter as)
{
    int at = -1, last = -1, depth = depth_of(&block), end;

    for (int i = first_of(m, block, &end); i >= 0; i = next_of(m, block, i, end)) {
        const struct tensor *x = &m->tensors[i];
        if (x->module != last)
            at++;
        last = x->module;
        if (x->depth == depth && x->role == role && x->adapter == as)
            return at;
    }
    return -1;
}

bool torch_linear_saves_view(const struct model *m) { return family_for(m)->falcon; }
bool torch_own_linear(const struct model *m) { return family_for(m)->conv1d || torch_linear_saves_view(m); }

static const struct tensor *tensor_at(const struct torch_model *b, int block, int piece_tensor)
{
    enum piece_id piece = block == TENSOR_EMBED ? PIECE_EMBED : block <= TENSOR_HEAD ? PIECE_HEAD : PIECE_BLOCK;

    return &b->m->tensors[program_tensor(b->p, piece, block, piece_tensor)];
}

int torch_gradient_of(const struct torch_model *b, enum tensor_role role, bool bias)
{
    bool embeds_twice = b->m->mtp > 0 && !b->stages && role == ROLE_TOKENS;
    bool tied = !bias && ((b->m->tied && (role == ROLE_HEAD || role == ROLE_TOKENS)) || embeds_twice);
    int block = tied ? TENSOR_EMBED : b->block;
    int tensor = torch_piece_tensor(b->m, block, tied ? ROLE_TOKENS : role, bias);

    if (tensor < 0 || !plan_gets_gradient(b->p, tensor_at(b, block, tensor)))
        return -1;
    return tied ? TAPE_TIED : tensor;
}

var torch_param(const struct torch_model *b, int gradient, int64_t numel)
{
    return op_param(b->t, gradient, numel, gradient < 0 ? b->frozen_dt : b->own_dt);
}

/* Is this rank's gradient of the piece's tensor a part of a sum?  FSDP2 adds it up by itself, in fp32 where it reduces in
 * that (since 2.15); DDP at the end of backward (lower_ddp_tensor.c). */
static void mark_partial(const struct torch_model *b, int tensor, var w)
{
    struct edge *e = &b->t->vars[w].edge;

    if (!b->partial || tensor < 0 || tensor == TAPE_TIED
        || !(b->partial[tensor_at(b, b->block, tensor) - b->m->tensors] & MESH_AXIS(AXIS_TENSOR)))
        return;
    e->wide = b->p->strategy == STRAT_FSDP && plan_partial_dtype(b->p) == DT_FP32;
}

/* Under autocast a bf16 copy of w: made once, and kept until autocast is left, where w trains; else made by each operation
 * (aten/src/ATen/autocast_mode.cpp, cached_cast: can_try_cache asks for requires_grad).  A compiled graph has no cache: backward needs the copy. */
static var cast_param(struct torch_model *b, var w)
{
    bool trains = tape_wants_grad(b->t, w);

    if (!b->autocast)
        return w;
    w = op_cast_weight(b->t, w, DT_BF16);
    if (trains && !b->t->compiled && b->ncasts < (int)(sizeof b->casts / sizeof b->casts[0]))
        b->casts[b->ncasts++] = tape_hold(b->t, w);
    return w;
}

var torch_read_param(struct torch_model *b, enum tensor_role role, bool bias, int64_t numel, bool casts)
{
    bool tied = role == ROLE_HEAD && !bias && b->m->tied;
    int tensor = torch_gradient_of(b, role, bias);

    if (!tied && torch_piece_tensor(b->m, b->block, role, bias) < 0)
        return 0;
    var w = torch_param(b, tensor, numel);
    mark_partial(b, tensor, w);
    return casts ? cast_param(b, w) : w;
}

void torch_leave_autocast(struct torch_model *b)
{
    for (int i = 0; i < b->ncasts; i++)
        tape_drop(b->t, b->casts[i]);
    b->ncasts = 0;
}

var torch_fp32_if_autocast(struct torch_model *b, var x)
{
    return b->autocast ? op_cast(b->t, x, DT_FP32) : tape_hold(b->t, x);
}

var torch_bf16_if_autocast(struct torch_model *b, var x)
{
    return b->autocast ? op_cast(b->t, x, DT_BF16) : tape_hold(b->t, x);
}

var op_view_add(struct torch_model *b, var x) { return op_add(b->t, "add one", x, 0); }

var op_add_rows(struct torch_model *b, var x, var y)
{
    var rows = op_view(b->t, y, b->p->micro_batch > 1);     /* back: summed over the batch */
    var sum = op_add(b->t, "position add", x, rows);

    tape_drop(b->t, rows);
    return sum;
}

static int module_of(const struct torch_model *b, enum tensor_role role)
{
    int module = torch_piece_module(b->m, b->block, role, ADAPTER_NONE);

    return role == ROLE_HEAD && module < 0 ? MODULE_TIED : module;
}

var torch_weight(struct torch_model *b, enum tensor_role role, int64_t numel, bool casts)
{
    var w = torch_read_param(b, role, false, numel, casts);

    b->t->module = module_of(b, role);
    return tmp(b->t, w, op_shared(b->t, w, b->t->linear_views));
}

/* FakeQuantizedLinear: input and weight of a role's layer are rounded, the input first.  Takes both. */
static void round_operands(struct torch_model *b, enum tensor_role role, var *x, var *w, int64_t k)
{
    int own = torch_piece_tensor(b->m, b->block, role, false);
    const struct tensor *weight = own >= 0 ? tensor_at(b, b->block, own) : NULL;

    if (!weight || !qat_converts(b->p, weight))
        return;
    bool holds = qat_in_parts(b->p, weight);
    *x = tmp(b->t, *x, tape_rounded(b->t, *x, tape_var_numel(b->t, *x) / k, true, holds));
    int64_t groups = weight->numel / b->p->qat.group;
    *w = tmp(b->t, *w, b->p->qat.kind == QAT_MSLK ? tape_rounded_mslk(b->t, *w, groups) : tape_rounded(b->t, *w, groups, false, holds));
}

var torch_linear_with(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k, var w,
                      enum tensor_role role)
{
    b->t->module = module_of(b, role);
    var in = torch_bf16_if_autocast(b, x), of = tape_hold(b->t, w);
    round_operands(b, role, &in, &of, k);
    var y = op_linear(b->t, names, in, n, k, of, 0, true);
    tape_drop(b->t, in);
    tape_drop(b->t, of);
    return y;
}

static var half_of(struct torch_model *b, int tensor, int64_t numel, enum tensor_role role, enum adapter which)
{
    var shared = role == ROLE_HEAD ? b->head_halves[which == ADAPTER_LORA_B] : 0;

    return shared ? tape_hold(b->t, shared) : cast_param(b, op_param(b->t, tensor, numel, b->param_dt));
}

/* nn.Linear without a bias, of an adapter. */
static var half_adapter(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k,
                        enum tensor_role role, enum adapter which)
{
    struct tape *t = b->t;
    int tensor = torch_piece_part(b->m, b->block, role, false, which);

    t->module = torch_piece_module(b->m, b->block, role, which);
    torch_splits_use(b, role, which);
    var w = half_of(b, tensor, n * k, role, which);
    var in = torch_bf16_if_autocast(b, x);
    var y = op_linear(t, names, in, n, k, w, 0, true);
    tape_drop(t, in);
    tape_drop(t, w);
    return y;
}

var torch_adapter_product(struct torch_model *b, enum tensor_role role, int64_t n, int64_t k, int64_t rank)
{
    struct tape *t = b->t;
    var half[2];

    for (int i = 0; i < 2; i++) {
        enum adapter which = i ? ADAPTER_LORA_B : ADAPTER_LORA_A;
        t->module = torch_piece_module(b->m, b->block, role, which);
        half[i] = cast_param(b, op_param(t, torch_piece_part(b->m, b->block, role, false, which), rank * (i ? n : k), b->param_dt));
    }
    var y = op_linear(t, GEMM("adapter product"), half[1], k, rank, half[0], 0, true);
    tape_drop(t, half[0]);
    tape_drop(t, half[1]);
    return y;
}

/* litgpt/lora.py, LoRAQKVLinear: a convolution of each part's columns, and zeros in the place of the others'.  *beside: what has a name until the layer
 * returns. */
static var add_parts(struct torch_model *b, var x, int64_t n, var *beside)
{
    struct tape *t = b->t;
    int which = b->p->train.qkv_parts, tensor = torch_piece_part(b->m, b->block, ROLE_QKV, false, ADAPTER_LORA_B);
    int64_t kv = b->m->kv_heads * b->m->head_dim, columns[3] = { b->m->heads * b->m->head_dim, kv, kv };
    struct adapter_parts of = { .names = GEMM("adapter B"), .rank = b->p->train.rank, .grouped = b->m->heads == b->m->kv_heads };

    for (int i = 0; i < 3; i++)
        if (which >> i & 1)
            of.columns[of.n++] = columns[i];
    t->module = torch_piece_module(b->m, b->block, ROLE_QKV, ADAPTER_LORA_B);
    var w = half_of(b, tensor, training_part_columns(b->m, which) * of.rank, ROLE_QKV, ADAPTER_LORA_B), in = torch_bf16_if_autocast(b, x);
    var y = tape_adapter_parts(t, &of, in, w);
    tape_drop(t, in);
    tape_drop(t, w);
    *beside = y;
    if (of.n == 3)
        return tape_hold(t, y);
    return tape_spread(t, "adapter columns", y, b->tokens * n, training_part_columns(b->m, which));
}

/* NeMo Automodel's ColwiseParallelLora and RowwiseParallelLora (components/distributed/parallel_styles.py) around its LinearLoRA, which scales what A gives.  Of a
 * column-parallel layer A is cut by rows, whose results are gathered, and B as the layer is. */
static var add_cut_adapter(struct torch_model *b, var result, var x, int64_t n, int64_t k, enum tensor_role role)
{
    struct tape *t = b->t;
    int a = torch_piece_part(b->m, b->block, role, false, ADAPTER_LORA_A), other = torch_piece_part(b->m, b->block, role, false, ADAPTER_LORA_B);
    int64_t rank = b->p->train.rank;
    var y;

    if (a < 0)
        return result;
    if (role == ROLE_ATTN_OUT || role == ROLE_DOWN) {
        struct adapter_row of = { .n = n, .k = k, .rank = rank, .ranks = b->ranks,
                                  .modules = { torch_piece_module(b->m, b->block, role, ADAPTER_LORA_A), torch_piece_module(b->m, b->block, role, ADAPTER_LORA_B) } };
        t->module = of.modules[0];
        var half[2] = { op_param(t, a, rank * k, b->param_dt), op_param(t, other, n * (rank / b->ranks), b->param_dt) };
        y = tape_adapter_row(t, &of, x, half[0], half[1]);
        tape_drop(t, half[0]);
        tape_drop(t, half[1]);
    } else {
        y = half_adapter(b, GEMM("adapter A"), x, rank / b->ranks, k, role, ADAPTER_LORA_A);
        y = tmp(t, y, tape_collective(t, MOVED_GATHER, y, b->ranks, true, false));
        y = tmp(t, y, op_mul_const(t, "adapter scale", y, 0));
        y = tmp(t, y, half_adapter(b, GEMM("adapter B"), y, n, rank, role, ADAPTER_LORA_B));
    }
    var sum = op_add(t, "adapter add", result, y);
    tape_drop(t, y);
    tape_stay_whole(t, sum);
    tape_drop(t, result);
    return sum;
}

static var add_dora(struct torch_model *b, var result, var x, int64_t n, int64_t k, enum tensor_role role, bool packed);

/* peft/tuners/lora/layer.py, Linear.forward: result = result + lora_B(lora_A(dropout(x))) * scaling, x cast to the dtype of
 * lora_A's weight, and the sum to the result's; lora/bnb.py (`packed`) casts neither under autocast.  Where that dtype is not the one in
 * which lora_A computes (plan_adapter_input()), autocast casts x back. */
static var add_adapter(struct torch_model *b, var result, var x, int64_t n, int64_t k, enum tensor_role role, bool packed)
{
    struct tape *t = b->t;
    int a = torch_piece_part(b->m, b->block, role, false, ADAPTER_LORA_A);

    if (a < 0)
        return result;
    if (b->p->train.dora)
        return add_dora(b, result, x, n, k, role, packed);
    int64_t rank = tensor_at(b, b->block, a)->shape[0];
    bool behind = b->p->train.dropout_position == DROPOUT_POST;         /* NeMo Automodel's LinearLoRA */
    var in = packed ? tape_hold(t, x) : op_cast(t, x, b->adapter_dt);
    var y = behind ? tape_hold(t, in) : op_dropout(t, "adapter dropout", in, b->p->train.dropout);
    if (!packed && b->adapter_dt != b->param_dt)
        y = tmp(t, y, op_cast(t, y, b->param_dt));
    y = tmp(t, y, half_adapter(b, GEMM("adapter A"), y, rank, k, role, ADAPTER_LORA_A));
    var parts = 0;
    if (role == ROLE_QKV && b->p->train.qkv_parts)
        y = tmp(t, y, add_parts(b, y, n, &parts));
    else
        y = tmp(t, y, half_adapter(b, GEMM("adapter B"), y, n, rank, role, ADAPTER_LORA_B));
    if (behind)
        y = tmp(t, y, op_dropout(t, "adapter dropout", y, b->p->train.dropout));
    y = tmp(t, y, op_mul_const(t, "adapter scale", y, 0));
    var sum = op_add(t, "adapter add", result, y);
    tape_drop(t, y);
    tape_drop(t, parts);
    if (!packed)
        sum = tmp(t, sum, op_cast(t, sum, tape_var_dtype(t, result)));
    tape_stay_whole(t, sum);
    tape_drop(t, result);
    tape_drop(t, in);
    return sum;
}

/* What B A adds to the weight, made from a unit matrix of the layer's inputs, and the norm of each row of the sum: all of it has a name until
 * the layer returns, none a gradient (lora_weight.detach()). */
struct weighed { var eye, low, delta, weight, norm; };

static struct weighed weigh_rows(struct torch_model *b, int64_t n, int64_t k, int64_t rank, bool packed)
{
    struct tape *t = b->t;
    enum dtype dt = b->param_dt;
    struct weighed w = { .eye = op_new(t, "unit matrix", KC_ELEMENTWISE, k * k, dt) };

    w.low = tape_adapter_matrix(t, GEMM("adapter A"), k, rank, k, dt);
    w.delta = tape_adapter_matrix(t, GEMM("adapter B"), k, n, rank, dt);
    w.weight = packed && b->p->train.base == BASE_AO_NF4 ? tape_nf4_torchao_weight(t, n * k, dt) : packed ? op_new(t, "dequantise", KC_ELEMENTWISE, n * k, dt) : 0;
    var scaled = op_new(t, "adapter scale", KC_ELEMENTWISE, n * k, dt), sum = op_new(t, "adapter add", KC_ELEMENTWISE, n * k, dt);
    tape_drop(t, scaled);
    w.norm = op_new(t, "norm of rows", KC_NORM, n, dt);
    tape_drop(t, sum);
    return w;
}

/* torchtune/modules/peft/dora.py, DoRALinear.forward(): (m - 1) result + m B(A(dropout(x))) scaling + result, where m is the magnitude over the
 * norm of its row of W + B A. */
static var add_dora(struct torch_model *b, var result, var x, int64_t n, int64_t k, enum tensor_role role, bool packed)
{
    struct tape *t = b->t;
    int a = torch_piece_part(b->m, b->block, role, false, ADAPTER_LORA_A), own = torch_piece_part(b->m, b->block, role, false, ADAPTER_MAGNITUDE);
    int64_t rank = tensor_at(b, b->block, a)->shape[0];
    var in = op_dropout(t, "adapter dropout", x, b->p->train.dropout);
    var low = half_adapter(b, GEMM("adapter A"), in, rank, k, role, ADAPTER_LORA_A);
    var y = tmp(t, low, half_adapter(b, GEMM("adapter B"), low, n, rank, role, ADAPTER_LORA_B));

    t->module = torch_piece_module(b->m, b->block, role, ADAPTER_MAGNITUDE);
    struct weighed w = weigh_rows(b, n, k, rank, packed);
    var magnitude = op_param(t, own, n, b->param_dt), ratio = op_mul_const(t, "magnitude over norm", magnitude, w.norm);
    var less = op_view_add(b, ratio), base = tmp(t, less, op_scale(t, "result times magnitude", result, less));
    var more = op_scale(t, "adapter times magnitude", y, ratio);
    more = tmp(t, more, op_mul_const(t, "adapter scale", more, 0));
    var sum = op_add(t, "adapter add", base, more);
    tape_drop(t, base);
    tape_drop(t, more);
    var out = op_add(t, "adapter add", sum, result);
    const var names[] = { sum, ratio, magnitude, w.norm, w.weight, w.delta, w.low, w.eye, y, in, result };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    return out;
}

/* bnb.nn.Linear4bit.forward(): x in the compute dtype, the result in x's; PEFT clones the latter before it adds to it.
 * Linear8bitLt takes x as it is. */
static var packed_linear(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k, enum tensor_role role,
                         const struct tensor *weight)
{
    struct tape *t = b->t;

    if (weight->packed == BASE_AO_INT8) {               /* lora/torchao.py has forward of lora/layer.py */
        var in = torch_bf16_if_autocast(b, x);
        var out = tape_ao_int8_linear(t, names, in, n, k, torch_piece_tensor(b->m, b->block, role, true) >= 0);
        tape_drop(t, in);
        return add_adapter(b, out, x, n, k, role, false);
    }
    bool nf4 = weight->packed != BASE_INT8, adapted = torch_piece_part(b->m, b->block, role, false, ADAPTER_LORA_A) >= 0;
    var in = nf4 ? op_cast(t, x, DT_BF16) : tape_hold(t, x);
    var y = tape_packed_linear(t, names, in, n, k, weight);

    if (nf4)
        y = tmp(t, y, op_cast(t, y, tape_var_dtype(t, x)));
    tape_drop(t, in);
    if (nf4 && adapted && !b->p->train.dora && weight->packed != BASE_AO_NF4)
        y = tmp(t, y, op_copy(t, "clone", y, true));
    return add_adapter(b, y, x, n, k, role, true);
}

/* LinearLayer (deepspeed/module_inject/layers.py): the gradient of its input is a part of a sum. */
static var enter_column(struct torch_model *b, var x, enum tensor_role role)
{
    if (role == ROLE_ATTN_OUT || role == ROLE_DOWN)
        return tape_hold(b->t, x);
    return tape_sum_in_place(b->t, x, true);
}

static bool leaves(enum tensor_role role) { return role == ROLE_ATTN_OUT || role == ROLE_DOWN; }

/* ColwiseParallel's own DTensor of a plain input, whose gradients are added up when all of this layer's are there. */
static bool enters_alone(const struct torch_model *b, enum tensor_role role)
{
    return b->ranks > 1 && b->p->parallel.inputs_apart && !b->sequence && !torch_is_autotp(b) && role != ROLE_HEAD && !leaves(role);
}

/* What a rank's layers have in common.  Float8ColwiseParallel and Float8RowwiseParallel cast inputs before they move, and gradients of
 * outputs. */
static struct float8_layer float8_layer(const struct torch_model *b)
{
    bool moves = float8_tensor_parallel(b->p);

    return (struct float8_layer){ .recipe = (uint8_t)b->p->float8.recipe, .ranks = b->ranks, .keeps_cast = moves, .cast_gradient = moves };
}

/* torchao's layer in the place of nn.Linear. */
static var float8_linear(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k, enum tensor_role role,
                         const struct tensor *weight)
{
    struct tape *t = b->t;
    struct float8_layer how = float8_layer(b);
    bool shared = role == ROLE_Q || role == ROLE_K || role == ROLE_GATE;
    var w = torch_read_param(b, role, false, n * k, false);

    how.gathered = float8_gathers(b->p, weight);
    how.last = !shared;
    how.row_parallel = leaves(role);
    var y = tape_float8_linear(t, names, x, n, k, w, &how);
    if (how.cast_gradient && !leaves(role))
        y = tmp(t, y, tape_float8_gradient(t, y, &how));
    tape_drop(t, w);
    var bias = torch_read_param(b, role, true, n, false);          /* a sum of its own, of a new tensor */
    if (bias)
        y = tmp(t, y, op_add_row(t, "bias", y, bias));
    tape_drop(t, bias);
    t->module = -1;
    return y;
}

void torch_share_head_adapter(struct torch_model *b)
{
    struct tape *t = b->t;

    for (int i = 0; i < 2; i++) {
        enum adapter which = i ? ADAPTER_LORA_B : ADAPTER_LORA_A;
        int part = torch_piece_part(b->m, b->block, ROLE_HEAD, false, which);
        if (part < 0)
            return;
        const struct tensor *half = tensor_at(b, b->block, part);
        var w = half_of(b, part, half->shape[0] * half->shape[1], ROLE_HEAD, which);
        t->module = torch_piece_module(b->m, b->block, ROLE_HEAD, which);
        b->head_halves[i] = tmp(t, w, op_shared(t, w, t->linear_views));
    }
}

void torch_drop_head_adapter(struct torch_model *b)
{
    for (int i = 0; i < 2; i++) {
        tape_drop(b->t, b->head_halves[i]);
        b->head_halves[i] = 0;
    }
}

var torch_adapted(struct torch_model *b, var y, var x, int64_t n, int64_t k, enum tensor_role role)
{
    return add_adapter(b, y, x, n, k, role, false);
}

var torch_linear(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k,
           enum tensor_role role)
{
    struct tape *t = b->t;

    int own = torch_piece_tensor(b->m, b->block, role, false);

    t->module = module_of(b, role);
    if (own >= 0 && tensor_at(b, b->block, own)->packed != BASE_PLAIN) {    /* of the whole model: FSDP's has codes in its place */
        var out = packed_linear(b, names, x, n, k, role, &b->whole->tensors[tensor_at(b, b->block, own) - b->m->tensors]);
        t->module = -1;
        return out;
    }
    if (own >= 0 && float8_converts(b->p, tensor_at(b, b->block, own)))
        return float8_linear(b, names, x, n, k, role, tensor_at(b, b->block, own));
    /* Autocast's arguments are cast last to first: addmm(b, x, W), torch_linear(x, W, b). */
    bool conv1d = b->family->conv1d && role != ROLE_HEAD;
    torch_splits_use(b, role, ADAPTER_NONE);
    var bias = conv1d ? 0 : torch_read_param(b, role, true, n, true);
    var w = torch_read_param(b, role, false, n * k, true);
    var in = torch_is_autotp(b) ? enter_column(b, x, role)
           : enters_alone(b, role) ? tape_collective(t, MOVED_SUM_BACK, x, b->ranks, false, false) : torch_bf16_if_autocast(b, x);
    if (conv1d)
        bias = torch_read_param(b, role, true, n, true);
    bool saves = t->linear_saves;
    t->linear_saves &= role == ROLE_HEAD || !torch_own_linear(b->m);
    round_operands(b, role, &in, &w, k);
    var y = op_linear(t, names, in, n, k, w, bias, !bias);
    t->linear_saves = saves;
    tape_drop(t, bias);
    tape_drop(t, w);
    if (b->ranks > 1 && b->p->parallel.inputs_apart) {
        y = add_cut_adapter(b, y, in, n, k, role);
        tape_drop(t, in);
    } else {
        tape_drop(t, in);
        y = add_adapter(b, y, x, n, k, role, false);
    }
    t->module = -1;
    return y;
}

/* ---- tensor parallelism ---- */

/* inductor's micro-pipeline pass joins a gather of several sequences with the products that read it, unless these add a bias; of
 * one sequence DTensor's gather ends in a view that it does not know. */
static bool joins_gathers(const struct torch_model *b)
{
    return b->t->compiled && b->p->parallel.async_tensor && b->p->micro_batch > 1;
}

/* PrepareFloat8ModuleInput, before layers of blocks that are converted. */
static bool torch_gathers_float8(const struct torch_model *b, enum tensor_role first)
{
    int own = torch_piece_tensor(b->m, b->block, first, false);

    return b->sequence && first != ROLE_HEAD && float8_tensor_parallel(b->p) && own >= 0 && float8_converts(b->p, tensor_at(b, b->block, own));
}

bool torch_joins(const struct torch_model *b, enum tensor_role first)
{
    return joins_gathers(b) && torch_piece_tensor(b->m, b->block, first, true) < 0;
}

/* PrepareModuleInput: a DTensor whose gradients, each a part of a sum, are added up before they go on. */
var torch_enter(struct torch_model *b, var x, enum tensor_role first)
{
    bool alone = torch_is_autotp(b) || enters_alone(b, first);      /* column-parallel layers each have their own (torch_linear()) */

    if (b->ranks == 1 || alone)
        return tape_hold(b->t, x);
    if (!torch_gathers_float8(b, first))
        return tape_collective(b->t, b->sequence ? MOVED_GATHER : MOVED_SUM_BACK, x, b->ranks, b->p->micro_batch > 1, torch_joins(b, first));
    struct float8_layer how = float8_layer(b);
    var cast = tape_float8_cast(b->t, x, &how);
    var all = tape_collective(b->t, MOVED_GATHER, cast, b->ranks, b->p->micro_batch > 1, torch_joins(b, first));
    tape_drop(b->t, cast);
    return all;
}

var torch_linear_leaving(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k, enum tensor_role role)
{
    struct tape *t = b->t;

    t->scatters = t->compiled && b->p->parallel.async_tensor ? b->ranks : 0;
    t->leaves = t->compiled && b->ranks > 1;
    var y = torch_linear(b, names, x, n, k, role);
    var z = torch_leave(b, y);
    tape_drop(t, y);
    t->scatters = 0;
    t->leaves = false;
    return z;
}

/* RowwiseParallel's output. */
var torch_leave(struct torch_model *b, var x)
{
    if (b->ranks == 1)
        return tape_hold(b->t, x);
    if (torch_is_autotp(b))
        return tape_sum_in_place(b->t, x, false);
    var y = tape_collective(b->t, b->sequence ? MOVED_SCATTER : MOVED_SUM, x, b->ranks, b->p->micro_batch > 1, joins_gathers(b));
    if (b->block < 0 || !float8_tensor_parallel(b->p))
        return y;
    struct float8_layer how = float8_layer(b);
    tape_float8_scattered(b->t, &how);
    return tmp(b->t, y, tape_float8_gradient(b->t, y, &how));
}
