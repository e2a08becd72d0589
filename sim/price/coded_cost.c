/* coded_cost.c -- see coded_cost.h. */
#include "sim/price/coded_cost.h"

#include <math.h>

static bool halves(const struct op *o)
{
    return o->u.copy.reads == 2 * o->u.copy.writes || o->u.copy.writes == 2 * o->u.copy.reads;
}

static bool hook_sends(const struct plan *p, enum dtype t)
{
    return comm_hook(p->ddp.comm_hook)->casts && comm_hook(p->ddp.comm_hook)->sends == t;
}

/* An entry does not say dtypes: beside codes, which are of fp16 numbers, and the fp16 hook a cast is to or from fp16.
 * Plans that cannot have these keys have none of them. */
static bool casts_fp16(const struct plan *p)
{
    bool codes = p->ds.zero_quantized_weights || p->ds.zero_quantized_gradients || p->ds.zero_quantized_nontrainable_weights;

    return p->precision == DT_FP16 || (p->precision == DT_FP32 && (codes || hook_sends(p, DT_FP16)));
}

enum measured_pass coded_pass(const struct plan *p, const struct schedules *s, const struct op *o)
{
    int bits = s->quants && o->u.copy.quant ? s->quants[o->u.copy.quant].bits : 0;

    switch ((enum copy_fn)o->u.copy.fn) {
    case COPY_QUANTIZE:   return bits == 8 ? MP_QUANTIZE8 : MP_QUANTIZE4;
    case COPY_DEQUANTIZE: return bits == 8 ? MP_DEQUANTIZE8 : MP_DEQUANTIZE4;
    case COPY_REQUANTIZE: return MP_REQUANTIZE4;
    case COPY_MEAN:       return MP_MEAN_FP16;
    case COPY_SET:        break;
    default:              return NMEASURED_PASS;
    }
    if (!halves(o))
        return NMEASURED_PASS;
    if (casts_fp16(p))
        return MP_CAST_FP16;
    return p->precision != DT_FP32 || hook_sends(p, DT_BF16) ? MP_CAST : NMEASURED_PASS;
}

/* ---- PowerSGD ---- */

/* What is read and written for one matrix if its rank were the one that was timed, and how much longer its own takes: a product of few
 * columns lives off M, whatever their number; one of more is bound by them.  Orthonormal columns take each beside all others. */
static double of_matrix(enum copy_fn fn, const struct narrow *m, double *longer)
{
    double rows = (double)m->rows, cols = (double)m->cols, rank = (double)m->rank / MEASURED_RANK;

    *longer = fmax(1, rank);
    if (fn != COPY_ORTHOGONAL_P && fn != COPY_ORTHOGONAL_Q)
        return 4 * (rows * cols + MEASURED_RANK * (rows + cols));
    *longer = rank * rank;
    return 2 * 4 * MEASURED_RANK * (fn == COPY_ORTHOGONAL_P ? rows : cols);
}

static enum measured_pass pass_of_matrices(enum copy_fn fn)
{
    switch (fn) {
    case COPY_P_OF_Q:    return MP_NARROW_P;
    case COPY_Q_OF_P:    return MP_NARROW_Q;
    case COPY_M_OF_BOTH: return MP_NARROW_M;
    case COPY_ORTHOGONAL_P: case COPY_ORTHOGONAL_Q: return MP_ORTHOGONAL;
    default:             return NMEASURED_PASS;
    }
}

static void join(struct estimate *sum, const struct estimate *e, double longer)
{
    sum->s += e->s * longer;
    sum->error = fmax(sum->error, e->error);
    sum->spread = fmax(sum->spread, e->spread);
    sum->outside |= e->outside;
}

/* first - second: a copy, and a sum on top of it. */
static bool lost(const struct measured_device *d, const struct op *o, struct estimate *out)
{
    double bytes = (double)o->u.copy.writes;
    struct estimate set, add;

    if (!measured_pass(d, KERNELS_DPX, MP_COPY, 2 * bytes, &set) || !measured_pass(d, KERNELS_DPX, MP_ADD, 3 * bytes, &add))
        return false;
    join(out, &set, 1);
    join(out, &add, 1);
    return true;
}

bool coded_matrices(const struct measured_device *d, const struct schedules *s, const struct op *o, struct estimate *out)
{
    enum copy_fn fn = (enum copy_fn)o->u.copy.fn;
    enum measured_pass pass = pass_of_matrices(fn);

    *out = (struct estimate){ 0 };
    if (fn == COPY_LOST)
        return lost(d, o, out);
    for (int i = 0; i < o->u.copy.narrows && pass != NMEASURED_PASS; i++) {
        double longer, bytes = of_matrix(fn, &s->narrows[o->u.copy.narrow0 + i], &longer);
        struct estimate e;
        if (!measured_pass(d, KERNELS_DPX, pass, bytes, &e))
            return false;
        join(out, &e, longer);
    }
    return pass != NMEASURED_PASS && o->u.copy.narrows > 0;
}
