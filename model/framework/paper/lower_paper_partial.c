/* lower_paper_partial.c -- gradients of which several ranks have a part of the sum: of tensors that tensor-parallel ranks have whole, and
 * of an embedding that a pipeline's first and last stage both have. */
#include "model/framework/paper/lower_paper.h"

/* ---- tensor-parallel ranks ---- */

static bool is_partial(const struct paper *z, int tensor)
{
    return z->local->partial && z->local->partial[tensor] & MESH_AXIS(AXIS_TENSOR);
}

/* What is a part of a sum over tensor-parallel ranks: where a whole unit has it, or side by side.  Returns its elements. */
static int64_t partial_slices(struct paper *z, enum unit_class c, bool side_by_side)
{
    int64_t from = 0, elems = 0;

    for (int i = 0, t; (t = unit_tensor(&z->walk.map, c, i)) >= 0; i++) {
        int64_t n = z->local->model->tensors[t].numel;
        if (is_partial(z, t)) {
            sched_slice(z->s, HOLDS_GRAD, z->r.grad, t, 0, n, (side_by_side ? elems : from) * dtype_bytes(z->r.grad));
            elems += n;
        }
        from += n;
    }
    return elems;
}

void paper_find_partial(struct paper *z, enum unit_class c, const char *of, int n)
{
    z->partial[c] = 0;
    if (!z->local->partial)
        return;
    z->partial_grads[c] = sched_layout(z->s, unit_stride(&z->walk.map, c));
    z->partial[c] = partial_slices(z, c, false);
    if (z->partial[c] == 0)
        return;
    z->sums[c] = sched_buf(z->s, CAT_BUCKET, "partial gradients", of, 0, n, z->partial[c] * dtype_bytes(z->r.grad));
    sched_holds(z->s, z->sums[c], sched_layout(z->s, unit_stride(&z->walk.map, c)));
    partial_slices(z, c, true);
}

/* Of norms that saw a share of the positions, of q's and k's that saw the rank's heads: one all-reduce for all of a unit
 * (Megatron-LM, finalize_model_grads.py, which has one for the model), flattened and copied back. */
void paper_sum_partial(struct paper *z, struct at u, int family)
{
    int64_t bytes = z->partial[u.c] * dtype_bytes(z->r.grad);
    struct op *o;

    if (bytes == 0)
        return;
    o = sched_copy(z->s, STREAM_TENSOR, PHASE_REDUCE, "flatten partial gradients", bytes, bytes);
    o->after = AFTER(STREAM_COMPUTE) | (family == z->grads[UC_ROOT] ? AFTER(STREAM_REDUCE) : 0);    /* a tied embedding's is in the same buffer */
    walk_name(&z->walk, u);
    sched_does(z->s, COPY_SET, 1);
    sched_act_as(z->s, ACT_R, family, u.i, u.by, z->partial_grads[u.c]);
    sched_act(z->s, ACT_ALLOC | ACT_W, z->sums[u.c], u.i, u.by);
    sched_coll(z->s, STREAM_TENSOR, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_TENSOR, z->r.wire_reduce, RED_SUM, z->partial[u.c]);
    walk_name(&z->walk, u);
    sched_act(z->s, ACT_RW, z->sums[u.c], u.i, u.by);
    sched_set(z->s, STREAM_TENSOR, PHASE_REDUCE, "copy sums back", bytes, bytes);
    walk_name(&z->walk, u);
    sched_act_as(z->s, ACT_W, family, u.i, u.by, z->partial_grads[u.c]);
    sched_act(z->s, ACT_R | ACT_FREE, z->sums[u.c], u.i, u.by);
}

/* ---- two stages ---- */

/* Of a model that is one unit: where it has the embedding that another stage has, too. */
void paper_describe_tied(struct paper *z)
{
    const struct model *m = z->local->model;
    int64_t g = dtype_bytes(z->r.grad), from = 0;

    for (int i = 0, t; z->local->partial && (t = unit_tensor(&z->walk.map, UC_ROOT, i)) >= 0; from += m->tensors[t].numel, i++)
        if (z->local->partial[t] & MESH_AXIS(AXIS_PIPE))
            z->tied_grads = paper_flat(z, UC_ROOT, HOLDS_GRAD, z->r.grad, from, m->tensors[t].numel, from * g);
}

void paper_reduce_tied(struct paper *z)
{
    const struct model *m = z->local->model;
    bool own = z->walk.map.of_class[UC_TIED] > 0;

    for (int t = 0; t < m->ntensors; t++)
        if (z->local->partial && z->local->partial[t] & MESH_AXIS(AXIS_PIPE)) {
            sched_coll(z->s, STREAM_REDUCE, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_TIED, z->r.wire_reduce, RED_SUM,
                       own && z->shards_grads ? z->padded[UC_TIED] / z->n : m->tensors[t].numel)->after = AFTER(STREAM_COMPUTE);
            if (own)
                sched_act(z->s, ACT_RW, z->grads[UC_TIED], 0, 0);
            else
                sched_act_as(z->s, ACT_RW, z->grads[UC_ROOT], 0, 0, z->tied_grads);
        }
}
