/* te_mtp.c -- see te_mtp.h.  megatron-core 0.16.1: core/transformer/multi_token_prediction.py (MultiTokenPredictionLayer), core/models/gpt/
 * gpt_model.py (_postprocess()).
 *
 * Tokens and positions are rolled by one; the token's embedding and the hidden states, normed each, lie side by side and go through a column
 * parallel projection, whose columns are gathered, and of which with sequence parallelism a share of the positions is taken; then comes
 * a layer like the decoder's last, and a norm. */
#include "model/program/te_mtp.h"

#include "model/plan/plan_groups.h"
#include "model/program/tape_te_mtp.h"
#include "model/program/te_losses.h"

/* roll_tensor(): a copy, its last place zeroed, and its sum. */
static var rolled(struct tape *t, const char *name, int64_t numel, enum dtype dt)
{
    var y = op_new(t, name, KC_COPY, numel, dt), sum = op_new(t, name, KC_ELEMENTWISE, 1, dt == DT_FP32 ? DT_FP32 : DT_INT64);

    tape_drop(t, sum);
    return y;
}

/* By the output layer's table, or by the embedding's, of which in a pipeline the head's rank has a copy (TAPE_COPY). */
static var embed_next(struct torch_model *b, var table)
{
    struct tape *t = b->t;
    var ids = rolled(t, "rolled ids", b->tokens, DT_INT64), positions = rolled(t, "rolled positions", b->tokens, DT_INT64);
    int gradient = b->stages ? TAPE_COPY : torch_gradient_of(b, ROLE_TOKENS, false);

    if (!table)
        table = torch_param(b, gradient, b->m->vocab * b->m->hidden);
    t->module = MODULE_TIED;
    var x = te_embedding(t, "next token embedding", ids, b->m->hidden, table, b->ranks);
    t->module = -1;
    tape_drop(t, ids);
    tape_drop(t, positions);
    x = te_embedded(b, x);
    return tmp(t, x, op_dropout(t, "embedding dropout", x, b->p->dropout));
}

static var projected(struct torch_model *b, var next, var hidden)
{
    static const enum tensor_role role[] = { ROLE_MTP_PROJECT };
    struct tape *t = b->t;
    int64_t h = b->m->hidden;

    next = tmp(t, next, te_norm_of(b, "mtp embedding norm", next, ROLE_MTP_EMBED_NORM));
    var n = te_norm_of(b, "mtp hidden norm", hidden, ROLE_MTP_HIDDEN_NORM), both = op_cat2(t, "embedding beside hidden", next, n);
    tape_drop(t, next);
    tape_drop(t, n);
    struct te_linear l = te_linear_of(b, GEMM("mtp projection"), h / b->ranks, 2 * h, role, 1);
    l.plain = true;
    l.overlaps = false;                 /* eh_proj has no buffer's name (tp_comm_buffer_name) */
    var y = tmp(t, both, te_column(t, &l, both));
    t->module = -1;
    if (b->ranks > 1)
        y = tmp(t, y, te_gather_columns(t, "mtp columns", y, b->ranks));
    return b->sequence ? tmp(t, y, te_move(t, TE_SPLIT, y, b->ranks)) : y;
}

var te_mtp_layer(struct torch_model *b, var hidden, var next)
{
    struct tape *t = b->t;

    b->block = TENSOR_HEAD - 1;
    var y = te_block(b, projected(b, tape_hold(t, next), hidden));
    t->half = 0;
    y = tmp(t, y, te_norm_of(b, "mtp final norm", y, ROLE_NORM_FINAL));
    b->block = TENSOR_HEAD;
    return y;
}

/* Megatron's own checkpoint (_checkpointed_forward()): it holds what the layer is given. */
static var checkpointed(struct torch_model *b, var hidden, var next)
{
    struct tape *t = b->t;
    struct torch_region *r = &b->region[b->nregions++];

    *r = (struct torch_region){ .node0 = t->nnodes, .args = { tape_hold(t, hidden), tape_hold(t, next) } };
    t->forget = true;
    r->out = te_mtp_layer(b, hidden, next);
    t->forget = false;
    r->node1 = t->nnodes;
    return r->out;
}

void te_mtp(struct torch_model *b, var table, bool again, var *hidden, var *ahead)
{
    struct tape *t = b->t;
    var next = embed_next(b, table), part[2];
    var y = again ? checkpointed(b, *hidden, next) : te_mtp_layer(b, *hidden, next);

    tape_drop(t, next);
    var all = op_cat2(t, "hidden states of depths", *hidden, y);
    tape_drop(t, *hidden);
    tape_drop(t, y);
    op_split(t, "hidden states by depth", all, 2, (int64_t[]){ tape_var_numel(t, all) / 2, tape_var_numel(t, all) / 2 }, part);
    tape_drop(t, all);
    *hidden = part[0];
    *ahead = part[1];
}

var te_mtp_loss(struct torch_model *b, const struct te_linear *l, var x, var ahead)
{
    struct tape *t = b->t;
    var labels = rolled(t, "rolled labels", b->tokens, DT_INT64), mask = rolled(t, "rolled loss mask", b->tokens, DT_FP32);
    var losses = tmp(t, ahead, te_losses(b, l, ahead, labels));

    losses = tmp(t, losses, op_mul_const(t, "mtp masked loss", losses, mask));
    losses = tmp(t, losses, op_mul_const(t, "mtp loss scale", losses, 0));
    if (!b->p->megatron.calculate_per_token_loss)
        losses = tmp(t, losses, op_mul_const(t, "mtp loss by tokens", losses, 0));
    var out = te_attach_loss(t, "mtp loss", x, losses);
    tape_drop(t, losses);
    tape_drop(t, labels);
    tape_drop(t, mask);
    return out;
}
