/* lower_paper_layout.c -- the buffers of the papers' strategies: flat units, and which elements of which tensors they hold. */
#include "model/lower/paper/lower_paper.h"

int paper_flat(struct paper *z, enum unit_class c, enum holds h, enum dtype t, int64_t from, int64_t n, int64_t at)
{
    int layout = sched_layout(z->s, unit_stride(&z->map, c));

    unit_slices(&z->map, z->s, c, h, t, from, n, at);
    return layout;
}

static bool is_partial(const struct paper *z, int tensor)
{
    return z->local->partial && z->local->partial[tensor] & MESH_AXIS(AXIS_TENSOR);
}

/* What is a part of a sum over tensor-parallel ranks: where a whole unit has it, or side by side.  Returns its elements. */
static int64_t partial_slices(struct paper *z, enum unit_class c, bool side_by_side)
{
    int64_t from = 0, elems = 0;

    for (int i = 0, t; (t = unit_tensor(&z->map, c, i)) >= 0; i++) {
        int64_t n = z->local->model->tensors[t].numel;
        if (is_partial(z, t)) {
            sched_slice(z->s, HOLDS_GRAD, z->r.grad, t, 0, n, (side_by_side ? elems : from) * dtype_bytes(z->r.grad));
            elems += n;
        }
        from += n;
    }
    return elems;
}

static void find_partial(struct paper *z, enum unit_class c, const char *of, int n)
{
    z->partial[c] = 0;
    if (!z->local->partial)
        return;
    z->partial_grads[c] = sched_layout(z->s, unit_stride(&z->map, c));
    z->partial[c] = partial_slices(z, c, false);
    if (z->partial[c] == 0)
        return;
    z->sums[c] = sched_buf(z->s, CAT_BUCKET, "partial gradients", of, 0, n, z->partial[c] * dtype_bytes(z->r.grad));
    sched_holds(z->s, z->sums[c], sched_layout(z->s, unit_stride(&z->map, c)));
    partial_slices(z, c, true);
}

/* Does this rank's square count?  Tensors that every tensor-parallel rank has whole are rank 0's, a tied pair of two stages
 * the first stage's. */
static bool counts(const struct paper *z, int tensor)
{
    const struct local_share *share = &z->local->share;
    bool pair = z->local->partial && z->local->partial[tensor] & MESH_AXIS(AXIS_PIPE);

    if (pair && !share->embeds)
        return false;
    return share->tensor_rank == 0 || local_share_is_cut(&z->local->model->tensors[tensor]);
}

/* Of elements [from, from + n), which begin `at` bytes into the buffer. */
static int counted(struct paper *z, enum unit_class c, int64_t from, int64_t n, int64_t at)
{
    int layout = sched_layout(z->s, unit_stride(&z->map, c));
    int64_t begin = 0, g = dtype_bytes(z->r.grad);

    for (int i = 0, t; (t = unit_tensor(&z->map, c, i)) >= 0; i++) {
        int64_t end = begin + z->local->model->tensors[t].numel;
        int64_t a = from > begin ? from : begin, b = from + n < end ? from + n : end;
        if (counts(z, t) && a < b)
            sched_slice(z->s, HOLDS_GRAD, z->r.grad, t, a - begin, b - a, at + (a - from) * g);
        begin = end;
    }
    return layout;
}

/* Of a model that is one unit: where it has the embedding that another stage has, too. */
static void describe_tied(struct paper *z)
{
    const struct model *m = z->local->model;
    int64_t g = dtype_bytes(z->r.grad), from = 0;

    for (int i = 0, t; z->local->partial && (t = unit_tensor(&z->map, UC_ROOT, i)) >= 0; from += m->tensors[t].numel, i++)
        if (z->local->partial[t] & MESH_AXIS(AXIS_PIPE))
            z->tied_grads = paper_flat(z, UC_ROOT, HOLDS_GRAD, z->r.grad, from, m->tensors[t].numel, from * g);
}

static void describe(struct paper *z, enum unit_class c)
{
    struct schedules *s = z->s;
    int64_t all = z->padded[c], shard = all / z->n, mine = z->rank_in_group * shard;
    int64_t whole_from = z->shards_optimizer ? mine : 0;
    int64_t whole_n = z->shards_optimizer ? shard : z->numel[c];
    int64_t e = dtype_bytes(z->r.kept), g = dtype_bytes(z->r.grad), states = whole_n * 4;
    bool master = paper_away_state_bytes(z) == 12;

    sched_holds(s, z->params[c], z->shards_params ? paper_flat(z, c, HOLDS_PARAM, z->r.kept, mine, shard, 0)
                                                  : paper_flat(z, c, HOLDS_PARAM, z->r.kept, 0, all, 0));
    sched_holds(s, z->grads[c], z->shards_grads ? paper_flat(z, c, HOLDS_GRAD, z->r.grad, mine, shard, 0)
                                                : paper_flat(z, c, HOLDS_GRAD, z->r.grad, 0, all, 0));
    sched_holds(s, z->gathered[c], paper_flat(z, c, HOLDS_PARAM, z->r.kept, 0, all, 0));
    sched_holds(s, z->full_grads[c], paper_flat(z, c, HOLDS_GRAD, z->r.grad, 0, all, 0));
    z->own_grads[c] = paper_flat(z, c, HOLDS_GRAD, z->r.grad, whole_from, whole_n, whole_from * g);
    z->norm_grads[c] = counted(z, c, whole_from, whole_n, z->shards_grads ? 0 : whole_from * g);
    if (c == UC_ROOT) {
        z->others_grads = paper_flat(z, c, HOLDS_GRAD, z->r.grad, 0, whole_from, 0);
        unit_slices(&z->map, s, c, HOLDS_GRAD, z->r.grad, mine + shard, all - mine - shard,
                    (mine + shard) * g);
    }
    if (c == UC_ROOT && z->map.kind == UNIT_MODEL)
        describe_tied(z);
    z->own_params[c] = paper_flat(z, c, HOLDS_PARAM, z->r.kept, whole_from, whole_n, whole_from * e);
    sched_holds(s, z->optimizer[c], paper_flat(z, c, HOLDS_EXP_AVG, DT_FP32, whole_from, whole_n, 0));
    unit_slices(&z->map, s, c, HOLDS_EXP_AVG_SQ, DT_FP32, whole_from, whole_n, states);
    if (master)
        unit_slices(&z->map, s, c, HOLDS_MASTER, DT_FP32, whole_from, whole_n, 2 * states);
    if (z->away.states)
        paper_away_describe(z, c, whole_from, whole_n);
}

void paper_declare(struct paper *z, enum unit_class c)
{
    struct schedules *s = z->s;
    const char *of = c == UC_ROOT ? NULL : unit_class_name(c);
    int n = z->map.of_class[c];
    int64_t e = dtype_bytes(z->r.kept), g = dtype_bytes(z->r.grad);
    int64_t whole, shard;

    z->numel[c] = unit_sum(&z->map, c, units_tensor_numel, NULL);
    z->padded[c] = round_up(z->numel[c], z->n);
    shard = z->padded[c] / z->n;
    whole = z->shards_optimizer && z->n > 1 ? z->padded[c] : z->numel[c];
    z->params[c] = sched_buf_in(s, z->away.params_in, CAT_PARAMS, "params", of, 0, n, e * (z->shards_params ? shard : whole));
    z->grads[c] = sched_buf_in(s, z->away.grads_in, CAT_GRADS, "grads", of, 0, n, g * (z->shards_grads ? shard : whole));
    z->optimizer[c] = sched_buf_in(s, z->away.states_in, CAT_OPTIMIZER, "optimizer states", of, 0, n,
                                   paper_away_state_bytes(z) * (z->shards_optimizer ? shard : whole));
    z->gathered[c] = sched_buf(s, CAT_UNSHARDED, "gathered params", of, 0, n, e * z->padded[c]);
    z->full_grads[c] = sched_buf(s, CAT_UNSHARDED_GRADS, "unit's grads", of, 0, n, g * z->padded[c]);
    for (int i = 0; i < n; i++)
        sched_unit(s, unit_class_name(c), i, z->numel[c], z->padded[c], shard);
    find_partial(z, c, of, n);
    if (z->away.states)
        paper_away_declare(z, c, shard);
    if (s->detailed)
        describe(z, c);
}
