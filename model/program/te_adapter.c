/* te_adapter.c -- see te_adapter.h. */
#include "model/program/te_adapter.h"

#include "model/program/program.h"
#include "model/program/tape_te_adapter.h"
#include "model/program/torch_parts.h"

static const struct tensor *half_of(const struct torch_model *b, enum tensor_role role, enum adapter which)
{
    int at = torch_piece_part(b->m, b->block, role, false, which);

    return at < 0 ? NULL : &b->m->tensors[program_tensor(b->p, PIECE_BLOCK, 0, at)];
}

bool te_is_adapted(const struct torch_model *b, enum tensor_role role)
{
    return b->block >= 0 && half_of(b, role, ADAPTER_LORA_A) != NULL;
}

/* linear_in or linear_out; `ranks`: those that add up the gradient of what it reads (column), or its result (row). */
static struct te_linear half(struct torch_model *b, const struct gemm_names *names, enum tensor_role role, enum adapter which, int64_t ranks)
{
    const struct tensor *x = half_of(b, role, which);
    struct te_linear l = { .names = *names, .n = x->shape[0], .k = x->shape[1], .ranks = ranks, .core = true };

    l.weight[0] = op_param(b->t, torch_piece_part(b->m, b->block, role, false, which), x->numel, b->param_dt);
    b->t->module = torch_piece_module(b->m, b->block, role, which);
    return l;
}

/* Behind linear_out: ParallelLinearAdapter's end, and LoRALinear's. */
static var add(struct torch_model *b, var y, var low)
{
    struct tape *t = b->t;

    t->module = -1;
    if (b->p->train.dropout_position == DROPOUT_POST)
        low = tmp(t, low, op_dropout(t, "adapter dropout", low, b->p->train.dropout));
    low = tmp(t, low, op_mul_const(t, "adapter scale", low, 0));
    var sum = op_add(t, "adapter add", y, low);
    tape_drop(t, low);
    tape_drop(t, y);
    return sum;
}

static var dropped(struct torch_model *b, var x)
{
    bool drops = b->p->train.dropout_position == DROPOUT_PRE;

    return drops ? op_dropout(b->t, "adapter dropout", x, b->p->train.dropout) : tape_hold(b->t, x);
}

/* With sequence parallelism linear_in's gradient of its input is a part of a sum (disable_grad_reduce): the gather in front of it adds up. */
static var column(struct torch_model *b, enum tensor_role role, var y, var x)
{
    struct tape *t = b->t;
    var in = dropped(b, x);

    struct te_linear a = half(b, GEMM("adapter A"), role, ADAPTER_LORA_A, b->sequence ? 1 : b->ranks);
    if (b->sequence && tape_var_numel(t, in) / a.k < b->tokens)
        in = tmp(t, in, te_move(t, TE_GATHER, in, b->ranks));
    var low = tmp(t, in, te_column(t, &a, in));
    if (b->ranks > 1)
        low = tmp(t, low, te_adapter_move(t, TE_ADAPTER_JOIN, low, b->ranks));
    struct te_linear out = half(b, GEMM("adapter B"), role, ADAPTER_LORA_B, b->ranks);
    return add(b, y, tmp(t, low, te_column(t, &out, low)));
}

static var row(struct torch_model *b, enum tensor_role role, var y, var x)
{
    struct tape *t = b->t;
    var in = dropped(b, x);
    bool turns = b->p->train.a2a_experimental && b->sequence;

    struct te_linear a = half(b, GEMM("adapter A"), role, ADAPTER_LORA_A, b->ranks);
    var low = tmp(t, in, te_row(t, &a, in));
    struct te_linear out = half(b, GEMM("adapter B"), role, ADAPTER_LORA_B, b->ranks);
    low = tmp(t, low, te_column(t, &out, low));
    if (b->ranks > 1)
        low = tmp(t, low, te_adapter_move(t, turns ? TE_ADAPTER_EXCHANGE : TE_ADAPTER_JOIN, low, b->ranks));
    if (b->sequence && !turns)
        low = tmp(t, low, te_adapter_move(t, TE_ADAPTER_SLICE, low, b->ranks));
    return add(b, y, low);
}

/* A layer with the norm in it hands out what the norm wrote (return_layernorm_output), which therefore is no code, and gathers without
 * userbuffers. */
var te_adapted_column(struct torch_model *b, struct te_linear *l, enum tensor_role role, var x)
{
    var read;

    if (!te_is_adapted(b, role))
        return te_column(b->t, l, x);
    l->plain = true;
    l->returned = b->p->kernels == KERNELS_TE && !l->overlaps;
    l->overlaps = false;
    var y = te_column_returning(b->t, l, x, &read), sum = column(b, role, y, read);
    tape_drop(b->t, read);
    return sum;
}

var te_adapted_row(struct torch_model *b, const struct te_linear *l, enum tensor_role role, var x)
{
    var y = te_row(b->t, l, x);

    return te_is_adapted(b, role) ? row(b, role, y, x) : y;
}
