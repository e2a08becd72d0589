/* lower_paper_layout.c -- the buffers of the papers' strategies: flat units, and which elements of which tensors they hold.
 *
 * What trains of a unit is one flat parameter, what is frozen another one: FSDP's flat parameters are of uniform
 * requires_grad (torch/distributed/fsdp/_flat_param.py, without use_orig_params); the papers train everything.  Gradients and states are of the first alone. */
#include "model/lower/common/optimizer.h"
#include "model/framework/paper/lower_paper.h"
#include "model/schedule/sharding.h"

/* Elements that a tensor has in one of the two. */
static int64_t numel_in(const struct tensor *t, bool frozen) { return t->frozen == frozen ? t->numel : 0; }

static int64_t numel_trained(const struct tensor *t, const void *unused) { (void)unused; return numel_in(t, false); }
static int64_t numel_frozen(const struct tensor *t, const void *unused)  { (void)unused; return numel_in(t, true); }

static void slices(struct paper *z, enum unit_class c, bool frozen, enum holds h, enum dtype dt, int64_t from, int64_t n, int64_t at)
{
    struct sharding x = { z->s, z->local->model->tensors, h, dt, at, from, n, 0 };

    sharding_begins(&x, unit_tensor(&z->walk.map, c, 0));
    for (int i = 0, t; z->s->detailed && (t = unit_tensor(&z->walk.map, c, i)) >= 0; i++)
        if (z->local->model->tensors[t].frozen == frozen)
            sharding_flat(&x, t);
}

void paper_slices(struct paper *z, enum unit_class c, enum holds h, enum dtype t, int64_t from, int64_t n, int64_t at)
{
    slices(z, c, false, h, t, from, n, at);
}

static int flat(struct paper *z, enum unit_class c, bool frozen, enum holds h, enum dtype t, int64_t from, int64_t n, int64_t at)
{
    int layout = sched_layout(z->s, unit_stride(&z->walk.map, c));

    slices(z, c, frozen, h, t, from, n, at);
    return layout;
}

int paper_flat(struct paper *z, enum unit_class c, enum holds h, enum dtype t, int64_t from, int64_t n, int64_t at)
{
    return flat(z, c, false, h, t, from, n, at);
}

/* ---- the optimizer's states ---- */

bool paper_has_master(const struct paper *z) { return z->r.optimizer == 12 || (z->away.states && !z->away.params); }

int paper_state_bytes(const struct paper *z)
{
    return 4 * optimizer_moments(z->p->optimizer) + (paper_has_master(z) ? 4 : 0);
}

/* States of a unit's whole tensors. */
static int64_t whole_states(const struct paper *z, enum unit_class c, bool describe)
{
    int64_t at = 0;

    for (int i = 0, t; optimizer_by_tensor(z->p->optimizer) && (t = unit_tensor(&z->walk.map, c, i)) >= 0; i++)
        at += lower_whole_states(describe ? z->s : NULL, z->p, t, at, 4);
    return at;
}

/* Of `elems` elements of a unit. */
static int64_t states_of(const struct paper *z, enum unit_class c, int64_t elems)
{
    return elems * paper_state_bytes(z) + whole_states(z, c, false);
}

/* Moments, or what is kept tensor by tensor; then the master. */
static void describe_states(struct paper *z, enum unit_class c, int64_t from, int64_t n)
{
    static const enum holds moment[] = { HOLDS_EXP_AVG, HOLDS_EXP_AVG_SQ };
    enum optimizer o = z->p->optimizer;
    int64_t at = 0;

    sched_holds(z->s, z->optimizer[c], sched_layout(z->s, unit_stride(&z->walk.map, c)));
    for (int i = 0; i < optimizer_moments(o); i++, at += 4 * n)
        paper_slices(z, c, moment[i], DT_FP32, from, n, at);
    at += whole_states(z, c, true);
    if (paper_has_master(z))
        paper_slices(z, c, HOLDS_MASTER, DT_FP32, from, n, at);
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
    struct sharding x = { z->s, z->local->model->tensors, HOLDS_GRAD, z->r.grad, at, from, n, 0 };
    int layout = sched_layout(z->s, unit_stride(&z->walk.map, c));

    for (int i = 0, t; (t = unit_tensor(&z->walk.map, c, i)) >= 0; i++) {
        if (counts(z, t) && !z->local->model->tensors[t].frozen)
            sharding_flat(&x, t);
        else
            x.next += numel_in(&z->local->model->tensors[t], false);
    }
    return layout;
}

static void describe(struct paper *z, enum unit_class c)
{
    struct schedules *s = z->s;
    int64_t all = z->padded[c], shard = all / z->n, mine = z->rank_in_group * shard;
    int64_t whole_from = z->shards_optimizer ? mine : 0;
    int64_t whole_n = z->shards_optimizer ? shard : z->numel[c];
    int64_t e = dtype_bytes(z->r.kept), g = dtype_bytes(z->r.grad);
    int64_t cold = z->frozen_padded[c];

    sched_holds(s, z->params[c], z->shards_params ? paper_flat(z, c, HOLDS_PARAM, z->r.kept, mine, shard, 0)
                                                  : paper_flat(z, c, HOLDS_PARAM, z->r.kept, 0, all, 0));
    sched_holds(s, z->grads[c], z->shards_grads ? paper_flat(z, c, HOLDS_GRAD, z->r.grad, mine, shard, 0)
                                                : paper_flat(z, c, HOLDS_GRAD, z->r.grad, 0, all, 0));
    sched_holds(s, z->gathered[c], paper_flat(z, c, HOLDS_PARAM, z->r.kept, 0, all, 0));
    if (cold > 0) {
        int64_t from = z->shards_params ? z->rank_in_group * (cold / z->n) : 0;
        sched_holds(s, z->frozen[c], flat(z, c, true, HOLDS_PARAM, z->r.kept, from, z->shards_params ? cold / z->n : cold, 0));
        sched_holds(s, z->frozen_gathered[c], flat(z, c, true, HOLDS_PARAM, z->r.kept, 0, cold, 0));
    }
    sched_holds(s, z->full_grads[c], paper_flat(z, c, HOLDS_GRAD, z->r.grad, 0, all, 0));
    z->own_grads[c] = paper_flat(z, c, HOLDS_GRAD, z->r.grad, whole_from, whole_n, whole_from * g);
    z->norm_grads[c] = counted(z, c, whole_from, whole_n, z->shards_grads ? 0 : whole_from * g);
    if (c == UC_ROOT) {
        z->others_grads = paper_flat(z, c, HOLDS_GRAD, z->r.grad, 0, whole_from, 0);
        paper_slices(z, c, HOLDS_GRAD, z->r.grad, mine + shard, all - mine - shard, (mine + shard) * g);
    }
    if (c == UC_ROOT && z->walk.map.kind == UNIT_MODEL)
        paper_describe_tied(z);
    z->own_params[c] = paper_flat(z, c, HOLDS_PARAM, z->r.kept, whole_from, whole_n, whole_from * e);
    describe_states(z, c, whole_from, whole_n);
    if (z->away.states)
        paper_away_describe(z, c, whole_from, whole_n);
}

void paper_declare(struct paper *z, enum unit_class c)
{
    struct schedules *s = z->s;
    const char *of = c == UC_ROOT ? NULL : unit_class_name(c);
    int n = z->walk.map.of_class[c];
    int64_t e = dtype_bytes(z->r.kept), g = dtype_bytes(z->r.grad);
    int64_t whole, shard;

    z->numel[c] = unit_sum(&z->walk.map, c, numel_trained, NULL);
    z->padded[c] = round_up(z->numel[c], z->n);
    int64_t cold = unit_sum(&z->walk.map, c, numel_frozen, NULL);
    z->frozen_padded[c] = round_up(cold, z->n);
    shard = z->padded[c] / z->n;
    whole = z->shards_optimizer && z->n > 1 ? z->padded[c] : z->numel[c];
    z->params[c] = sched_buf_in(s, z->away.params_in, CAT_PARAMS, "params", of, 0, n, e * (z->shards_params ? shard : whole));
    z->grads[c] = sched_buf_in(s, z->away.grads_in, CAT_GRADS, "grads", of, 0, n, g * (z->shards_grads ? shard : whole));
    z->optimizer[c] = sched_buf_in(s, z->away.states_in, CAT_OPTIMIZER, "optimizer states", of, 0, n,
                                   states_of(z, c, z->shards_optimizer ? shard : whole));
    z->gathered[c] = sched_buf(s, CAT_UNSHARDED, "gathered params", of, 0, n, e * z->padded[c]);
    z->frozen[c] = z->frozen_gathered[c] = -1;
    if (cold > 0) {
        z->frozen[c] = sched_buf(s, CAT_PARAMS, "frozen params", of, 0, n, e * (z->shards_params ? z->frozen_padded[c] / z->n : cold));
        z->frozen_gathered[c] = sched_buf(s, CAT_UNSHARDED, "gathered frozen params", of, 0, n, e * z->frozen_padded[c]);
    }
    z->full_grads[c] = sched_buf(s, CAT_UNSHARDED_GRADS, "unit's grads", of, 0, n, g * z->padded[c]);
    for (int i = 0; i < n; i++)
        sched_unit(s, unit_class_name(c), i, z->numel[c], z->padded[c], shard);
    paper_find_partial(z, c, of, n);
    if (z->away.states)
        paper_away_declare(z, c, shard);
    if (s->detailed)
        describe(z, c);
}

int64_t paper_own_elems(const struct paper *z)
{
    int64_t elems = 0;

    for (int c = 0; c < NUC; c++)
        elems += (z->shards_optimizer ? z->padded[c] / z->n : z->numel[c]) * z->walk.map.of_class[c];
    return elems;
}
