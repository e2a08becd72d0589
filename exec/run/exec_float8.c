/* exec_float8.c -- linear layers whose operands are rounded to 8 bits, and weights that are gathered so: largest magnitudes, codes.
 *
 * Formats and scales are torchao's (exec/kernels/fp8.h).  A layer's scales lie behind its numbers, in the device's memory; those of gathered
 * weights are the host's, since a collective of single numbers makes them. */
#include <stdlib.h>

#include "base/fail.h"
#include "exec/kernels/fp8.h"
#include "exec/run/exec_kernel.h"
#include "model/plan/float8.h"

/* ---- kernels ---- */

/* The scales behind the numbers of a rounded matrix. */
static float *scales_behind(const struct kernel_call *c, enum slot slot, int64_t numel)
{
    char *numbers = c->at[slot];

    return (float *)(void *)(numbers + numel * dtype_bytes(act_dtype(c)));
}

static enum float8_recipe recipe(const struct kernel_call *c) { return c->x->p->float8.recipe; }

static int round_to_8(const struct kernel_call *c, struct kernels *k, enum float8_format f, const struct strided *s, const void *x,
                      enum dtype dt, enum slot slot)
{
    enum float8_by by = (enum float8_by)c->k->step;
    float *scale = scales_behind(c, slot, s->rows * s->cols);

    if (kernels_ops(k)->amax(k, s, by, x, dt, scale) < 0 ||
        kernels_ops(k)->scales8(k, f, float8_scales(by, s->rows, s->cols), scale, float8_powers_of_two(recipe(c))) < 0)
        return -1;
    return kernels_ops(k)->cast8(k, f, s, by, x, dt, scale, c->at[slot], act_dtype(c));
}

/* A weight that was gathered in codes, with the scale that they were made with. */
static int numbers_of_codes(const struct kernel_call *c, struct kernels *k, const struct tensor *w)
{
    float scale = fp8_scale(&fp8_e4m3, c->x->amax[w - c->x->p->model.tensors], false);

    if (kernels_ops(k)->upload(k, sizeof scale, scales_behind(c, SLOT_WEIGHT, w->numel), &scale) < 0)
        return -1;
    return kernels_ops(k)->numbers8(k, w->numel, c->param[0], c->at[SLOT_WEIGHT], act_dtype(c));
}

int exec_float8_cast(const struct kernel_call *c, struct kernels *k, const struct linear *l, const void *x)
{
    enum float8_format wide = float8_wide_gradients(recipe(c)) ? FLOAT8_E5M2 : FLOAT8_E4M3;

    if (c->k->fn == FN_FLOAT8_X)
        return round_to_8(c, k, FLOAT8_E4M3, &(struct strided){ l->n, l->in, l->ldx }, x, act_dtype(c), SLOT_X8);
    if (c->k->fn == FN_FLOAT8_DY)
        return round_to_8(c, k, wide, &(struct strided){ l->n, l->out, l->ldy }, x, act_dtype(c), SLOT_DY8);
    if (c->param_dt != DT_FP8)
        return round_to_8(c, k, FLOAT8_E4M3, &(struct strided){ l->out, l->in, l->in }, c->param[0], c->param_dt, SLOT_WEIGHT);
    return numbers_of_codes(c, k, c->weight);
}

/* Of a product of what is in two slots. */
static struct scales scales_of(const struct kernel_call *c, enum float8_product of, const float *a, const float *b)
{
    return (struct scales){ a, b, float8_by(recipe(c), of, false) != FLOAT8_BY_TENSOR, float8_by(recipe(c), of, true) != FLOAT8_BY_TENSOR };
}

const void *exec_float8_x(const struct kernel_call *c, struct linear *l, const void *x)
{
    bool back = c->k->fn == FN_LINEAR_DW;
    enum slot other = back ? SLOT_DY8 : SLOT_WEIGHT;

    if (!c->at[SLOT_X8] || !c->at[other])
        return x;
    const float *own = scales_behind(c, SLOT_X8, l->n * l->in), *others = scales_behind(c, other, l->out * (back ? l->n : l->in));
    l->scales = back ? scales_of(c, FLOAT8_DW, others, own) : scales_of(c, FLOAT8_OUTPUT, own, others);
    return c->at[SLOT_X8];
}

const void *exec_float8_dy(const struct kernel_call *c, struct linear *l, const void *dy)
{
    if (!c->at[SLOT_DY8])
        return dy;
    l->ldy = l->out;
    if (c->k->fn == FN_LINEAR_DX)
        l->scales = scales_of(c, FLOAT8_DX, scales_behind(c, SLOT_DY8, l->n * l->out), scales_behind(c, SLOT_WEIGHT, l->out * l->in));
    return c->at[SLOT_DY8];
}

/* ---- weights that are gathered in 8 bits ---- */

/* The tensors that the entry's buffers hold: at most `most`, how many there are. */
static int tensors_read(const struct executor *x, const struct op *o, int64_t iteration, int *tensor, int most)
{
    int n = 0;

    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct act *a = &x->s->acts[k];
        const struct layout *l = &x->s->layouts[a->layout ? a->layout : x->s->bufs[a->buf].layout];
        for (int j = 0; (a->what & ACT_READ) && j < a->n; j++)
            for (int i = 0; i < l->nslices; i++, n++)
                if (n < most)
                    tensor[n] = x->s->slices[l->slice0 + i].tensor + (int)(sched_instance(x->s, a, iteration) + j) * l->stride;
    }
    return n;
}

int exec_amax_run(struct executor *x, const struct op *o, int64_t iteration, struct comm *comm, struct coll_call *call)
{
    int n = (int)call->elems, *tensor = room_new((size_t)n, sizeof *tensor), rc = -1;
    float *most = room_new((size_t)n, sizeof *most);

    if (tensors_read(x, o, iteration, tensor, n) != n) {
        fail("the schedule's %s of largest magnitudes has %d elements, and other tensors", coll_name(call->op), n);
        goto out;
    }
    for (int i = 0; i < n; i++)
        most[i] = x->amax_local[tensor[i]];
    call->send = call->recv = most;
    call->host = true;
    rc = comm_call(comm, call);
    for (int i = 0; i < n && rc == 0; i++)
        x->amax[tensor[i]] = most[i];
out:
    free(tensor);
    free(most);
    return rc;
}

int exec_float8_codes(struct executor *x, struct kernels *k, int tensor, int64_t n, void *codes, const void *from, enum dtype dt)
{
    return kernels_ops(k)->codes8(k, n, from, dt, fp8_scale(&fp8_e4m3, x->amax[tensor], false), codes);
}
