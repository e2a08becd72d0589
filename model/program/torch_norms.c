/* torch_norms.c -- norms on the tape. */
#include "model/plan/liger.h"
#include "model/program/tape_liger.h"
#include "model/program/torch_parts.h"
#include "model/program/torch_split.h"

/* x32 = x.float(); y = x32 * rsqrt(mean(x32^2)); weight * y.to(x.dtype).  Gemma and OLMo
 * multiply in fp32 and cast last. */
static var rms_norm(struct torch_model *b, const char *name, var x, int64_t width, var w, enum tensor_role role)
{
    struct tape *t = b->t;
    enum dtype dt = tape_var_dtype(t, x);
    var x32 = op_cast(t, x, DT_FP32);
    var r = op_rms(t, x32, tape_var_numel(t, x) / width);
    var y = op_mul_rows(t, name, x32, r);

    tape_drop(t, x32);
    tape_drop(t, r);
    torch_splits_use(b, role, ADAPTER_NONE);
    if (b->family->one_plus_weight) {
        var w32 = op_cast(t, w, DT_FP32);
        var one = op_view_add(b, w32);
        var z = op_scale(t, name, y, one);
        tape_drop(t, w32);
        tape_drop(t, one);
        tape_drop(t, y);
        return tmp(t, z, op_cast(t, z, dt));
    }
    if (b->family->fp32_weight) {
        var w32 = b->family->cast_weight ? op_cast(t, w, DT_FP32) : tape_hold(t, w);
        y = tmp(t, y, op_scale(t, name, y, w32));
        tape_drop(t, w32);
        return tmp(t, y, op_cast(t, y, dt));
    }
    var z = op_cast(t, y, dt);
    var out = op_scale(t, name, z, w);
    tape_drop(t, y);
    tape_drop(t, z);
    return out;
}

var torch_l2_norm(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    var x32 = op_cast(t, x, DT_FP32);
    var r = op_rms(t, x32, tape_var_numel(t, x) / b->m->head_dim);
    var y = op_mul_rows(t, "qk norm", x32, r);

    tape_drop(t, x32);
    tape_drop(t, r);
    return tmp(t, y, op_cast(t, y, tape_var_dtype(t, x)));
}

/* x32 = x.float(); (x32 - mean) * rsqrt(mean((x32 - mean)^2)): the difference is taken twice. */
static var centred_norm(struct torch_model *b, const char *name, var x, int64_t width, var w)
{
    struct tape *t = b->t;
    enum dtype dt = tape_var_dtype(t, x);
    var x32 = op_cast(t, x, DT_FP32);
    var squared = op_add(t, name, x32, 0);
    var r = op_rms(t, squared, tape_var_numel(t, x) / width);
    var centred = op_add(t, name, x32, 0);
    var y = op_mul_rows(t, name, centred, r);
    const var names[] = { x32, squared, r, centred };

    for (int i = 0; i < 4; i++)
        tape_drop(t, names[i]);
    var w32 = op_cast(t, w, DT_FP32);
    y = tmp(t, y, op_scale(t, name, y, w32));
    tape_drop(t, w32);
    return tmp(t, y, op_cast(t, y, dt));
}

/* LayerNorm with weight 1 + w.  Under autocast it casts its arguments itself. */
static var layer_norm_1p(struct torch_model *b, const char *name, var x, int64_t width, var w, var bias)
{
    struct tape *t = b->t;
    var one = op_view_add(b, w);

    one = tmp(t, one, torch_bf16_if_autocast(b, one));
    var bias16 = torch_bf16_if_autocast(b, bias), in = torch_bf16_if_autocast(b, x);
    var out = op_layer_norm(t, name, in, tape_var_numel(t, x) / width, one, bias16);
    tape_drop(t, one);
    tape_drop(t, bias16);
    tape_drop(t, in);
    return out;
}

/* Over rows of `width`, with so many weights: more where every head has its own. */
static var norm_of(struct torch_model *b, const char *name, var x, int64_t width, int64_t weights,
                   enum tensor_role role)
{
    struct tape *t = b->t;

    t->module = torch_piece_module(b->m, b->block, role, ADAPTER_NONE);
    t->dtensor = b->ranks > 1 && (b->sequence || role == ROLE_Q_NORM || role == ROLE_K_NORM);    /* SequenceParallel */
    if (t->dtensor)
        x = op_view(t, x, false);
    var w = torch_read_param(b, role, false, weights, false), out;
    if (b->p->liger.rms_norm) {
        out = op_liger_norm(t, "liger norm", x, tape_var_numel(t, x) / width, w, b->p->cluster.gpu.sms, liger_norm_in_place(b->m));
    } else if (b->m->norm == NORM_RMS) {
        out = rms_norm(b, name, x, width, w, role);
    } else if (b->family->centred_by_hand) {
        torch_splits_use(b, role, ADAPTER_NONE);
        out = centred_norm(b, name, x, width, w);
    } else if (b->family->layer_norm_1p) {
        torch_splits_use(b, role, ADAPTER_NONE);
        out = layer_norm_1p(b, name, x, width, w, torch_read_param(b, role, true, width, false));
    } else {
        torch_splits_use(b, role, ADAPTER_NONE);
        var x32 = torch_fp32_if_autocast(b, x);
        var bias = torch_read_param(b, role, true, width, false);
        out = op_layer_norm(t, name, x32, tape_var_numel(t, x) / width, w, bias);
        tape_drop(t, x32);
    }
    if (t->dtensor)
        tape_drop(t, x);
    t->dtensor = false;
    t->module = -1;
    return out;
}

var torch_norm(struct torch_model *b, const char *name, var x, enum tensor_role role)
{
    return norm_of(b, name, x, b->m->hidden, b->m->hidden, role);
}

var torch_norm_rows(struct torch_model *b, const char *name, var x, int64_t width, enum tensor_role role)
{
    return norm_of(b, name, x, width, width, role);
}

/* A LayerNorm for each head, of a view of it; then the heads are put together again.  Here as
 * one norm, whose weights are many. */
static var listed_norm(struct torch_model *b, var x, int64_t width, enum tensor_role role)
{
    struct tape *t = b->t;
    int64_t d = b->m->head_dim;

    t->module = torch_piece_module(b->m, b->block, role, ADAPTER_NONE);
    var in = op_view(t, x, true);               /* back: the heads' gradients are put together */
    var x32 = torch_fp32_if_autocast(b, in);
    var y = op_layer_norm(t, "qk norm", x32, tape_var_numel(t, x) / d, 0, 0);
    tape_drop(t, in);
    tape_drop(t, x32);
    y = tmp(t, y, op_listed(t, y, torch_gradient_of(b, role, false), width / d, d, b->own_dt));
    t->module = -1;
    return tmp(t, y, op_cat2(t, "qk norm heads", y, 0));
}

var torch_qk_norm(struct torch_model *b, var x, int64_t width, enum tensor_role role)
{
    int64_t row = b->family->qk_norm_whole ? width : b->m->head_dim;

    if (b->family->qk_norm_listed)
        return listed_norm(b, x, width, role);
    return norm_of(b, "qk norm", x, row, b->family->centred_by_hand ? width : row, role);
}
