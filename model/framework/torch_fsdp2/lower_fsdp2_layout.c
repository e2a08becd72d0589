/* lower_fsdp2_layout.c -- shards of FSDP2: dimension 0 of every tensor is cut in ceil(rows/N)
 * rows a rank, and a unit's buffers hold those of all its tensors end to end. */
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

#include "model/arch/packed.h"
#include "model/lower/common/optimizer.h"
#include "model/plan/float8.h"
#include "model/schedule/sharding.h"

/* ---- sizes ---- */

/* `trained`: of what trains alone.  `dim`: the dimension that is cut. */
struct shard_arg {
    int64_t n, rank, bytes;
    fsdp2_room *room;
    bool trained;
    const struct fsdp2 *of;         /* tensors differ: as they are gathered some may be in 8 bits; as they persist (bytes 0) some in 16 */
    int dim;
};

static bool counts(const struct tensor *t, const struct shard_arg *a) { return !(a->trained && t->frozen); }

static int64_t rows_per_rank(const struct tensor *t, const struct shard_arg *a)
{
    return ceil_div(t->shape[a->dim], a->n);
}

static int64_t padded(const struct tensor *t, const void *arg)
{
    const struct shard_arg *a = arg;
    return counts(t, a) ? rows_per_rank(t, a) * a->n * (t->numel / t->shape[a->dim]) : 0;
}

static int64_t local_numel(const struct tensor *t, const struct shard_arg *a)
{
    int64_t c = rows_per_rank(t, a), left = t->shape[a->dim] - a->rank * c;
    int64_t rows = left < 0 ? 0 : left < c ? left : c;

    return counts(t, a) ? rows * (t->numel / t->shape[a->dim]) : 0;
}

static int64_t local_elems(const struct tensor *t, const void *arg)  { return local_numel(t, arg); }

static int64_t local_bytes(const struct tensor *t, const void *arg)
{
    const struct shard_arg *a = arg;
    return a->room(local_numel(t, arg) * a->bytes);
}

static int64_t element(const struct tensor *t, const struct shard_arg *a)
{
    if (!a->of)
        return a->bytes;
    return a->bytes > 0 ? fsdp2_used_bytes(a->of, t) : dtype_bytes(fsdp2_kept(a->of, t));
}

static int64_t padded_bytes(const struct tensor *t, const void *arg)
{
    return round512(padded(t, arg) * element(t, arg));
}

static int64_t gathered_bytes(const struct tensor *t, const void *arg) { return padded(t, arg) * element(t, arg); }

/* use_foreach_copy(): what has its param_dtype already is copied from its shard itself. */
static int64_t cast_bytes(const struct tensor *t, const void *arg)
{
    const struct shard_arg *a = arg;
    return fsdp2_kept(a->of, t) == a->of->r.used ? 0 : gathered_bytes(t, arg);
}

static int64_t shard_bytes(const struct tensor *t, const void *arg)
{
    const struct shard_arg *a = arg;
    return a->room(padded(t, arg) / a->n * element(t, a));
}

/* to_sharded_post_forward() clones 1/k of each parameter by itself; `rank` is k here. */
static int64_t kept_bytes(const struct tensor *t, const void *arg)
{
    const struct shard_arg *a = arg;
    return round512(padded(t, arg) / a->rank * a->bytes);
}

static int64_t whole_bytes(const struct tensor *t, const void *arg)
{
    return round512(t->numel * ((const struct shard_arg *)arg)->bytes);
}

static int64_t local_rows(const struct tensor *t, const struct shard_arg *a)
{
    return local_numel(t, a) / (t->numel / t->shape[a->dim]);
}

/* With the dimension that is cut as its first. */
static struct tensor turned(const struct tensor *t, const struct shard_arg *a)
{
    struct tensor of = *t;

    of.shape[0] = t->shape[a->dim];
    of.shape[a->dim] = t->shape[0];
    return of;
}

struct state_arg { const struct shard_arg *part; const struct plan *plan; };

static int64_t state_bytes(const struct tensor *t, const void *arg)
{
    const struct state_arg *a = arg;
    int64_t bytes[OPTIMIZER_PARTS], sum = 0;
    struct tensor of = turned(t, a->part);
    int n = optimizer_states(a->plan, &of, local_rows(t, a->part), bytes);

    for (int i = 0; i < n; i++)
        sum += a->part->room(bytes[i]);
    return sum;
}

static int64_t step_bytes(const struct tensor *t, const void *plan) { return t->frozen ? 0 : lower_adamw_step_bytes(plan); }

static int64_t trained_numel(const struct tensor *t, const void *unused)
{
    (void)unused;
    return t->frozen ? 0 : t->numel;
}

int64_t fsdp2_padded_share(const struct fsdp2 *f, int t)
{
    struct shard_arg a = { .n = f->nshard };
    return padded(&f->m->tensors[t], &a) / f->nshard;
}

int64_t fsdp2_local_share(const struct fsdp2 *f, int t)
{
    struct shard_arg a = { .n = f->nshard, .rank = f->rank_in_group };
    return local_numel(&f->m->tensors[t], &a);
}

void fsdp2_measure(struct fsdp2 *f, enum unit_class c)
{
    struct shard_arg kept = { fsdp2_ranks(f, c), fsdp2_rank(f, c), 0, f->param_room, false, f, fsdp2_dim(f, c) };
    struct shard_arg state = { fsdp2_ranks(f, c), fsdp2_rank(f, c), dtype_bytes(f->r.kept), f->state_room, true, NULL, fsdp2_dim(f, c) };
    struct shard_arg grad = { fsdp2_ranks(f, c), fsdp2_rank(f, c), dtype_bytes(f->r.kept), f->grad_room, true, NULL, fsdp2_dim(f, c) };
    struct shard_arg used = { fsdp2_ranks(f, c), fsdp2_rank(f, c), dtype_bytes(f->r.used), round512, false, f, fsdp2_dim(f, c) };
    struct shard_arg again = { f->nshard, fsdp2_kept_ranks(f, c), dtype_bytes(f->r.used), round512, false, NULL, fsdp2_dim(f, c) };
    struct sizes *z = &f->size[c];

    z->numel = unit_sum(&f->walk.map, c, units_tensor_numel, NULL);
    z->padded = unit_sum(&f->walk.map, c, padded, &kept);
    z->local = unit_sum(&f->walk.map, c, local_elems, &kept);
    z->trained = unit_sum(&f->walk.map, c, trained_numel, NULL);
    z->reduced = unit_sum(&f->walk.map, c, padded, &grad);
    z->stepped = unit_sum(&f->walk.map, c, local_elems, &grad);
    z->shard_bytes = unit_sum(&f->walk.map, c, shard_bytes, &kept);
    z->foreach_bytes = unit_sum(&f->walk.map, c, local_bytes, &state);
    z->optimizer_bytes = unit_sum(&f->walk.map, c, state_bytes, &(struct state_arg){ &state, f->p }) + unit_sum(&f->walk.map, c, step_bytes, f->p);     /* exp_avg, exp_avg_sq, step */
    z->host_grads_bytes = unit_sum(&f->walk.map, c, local_bytes, &grad);
    z->used = unit_sum(&f->walk.map, c, gathered_bytes, &used);
    z->cast = unit_sum(&f->walk.map, c, cast_bytes, &used);
    for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++)
        z->float8 += float8_gathers(f->p, &f->m->tensors[t]);
    z->cast_work = fsdp2_cast_work(f, c);
    z->unsharded_bytes = fsdp2_brings_alone(f) ? 0 : unit_sum(&f->walk.map, c, padded_bytes, &used);
    z->kept_bytes = again.rank ? unit_sum(&f->walk.map, c, kept_bytes, &again) : 0;
    z->grads_bytes = fsdp2_grads_bytes(f, c, f->r.used);
    z->grads_wide_bytes = fsdp2_grads_bytes(f, c, f->r.wire_reduce);
}

/* ---- buffers ---- */

bool fsdp2_casts_alone(const struct fsdp2 *f, enum unit_class c)
{
    return fsdp2_ranks(f, c) == 1 && f->r.used != f->r.kept && !f->offload && f->p->kernels != KERNELS_DPX && f->size[c].cast_work == 0;
}

/* The most that casts add to a unit's parameters while these are made, beyond what all of these take: see `copied`. */
static int64_t casts_beside(const struct fsdp2 *f, enum unit_class c)
{
    struct shard_arg used = { 1, 0, dtype_bytes(f->r.used), round512, false, NULL, fsdp2_dim(f, c) };
    int64_t made = 0, before = 0, most = 0;

    for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++) {
        const struct tensor *x = &f->m->tensors[t];
        int64_t one = counts(x, &used) ? padded_bytes(x, &used) : 0, cast = fsdp2_kept(f, x) == f->r.used ? 0 : one;
        if (one == 0)
            continue;
        most = made + before + cast > most ? made + before + cast : most;
        made += one;
        before = cast;
        most = made + before > most ? made + before : most;
    }
    return most - made;
}

void fsdp2_declare(struct fsdp2 *f, enum unit_class c)
{
    struct schedules *s = f->s;
    const struct sizes *z = &f->size[c];
    struct families *m = &f->fam[c];
    const char *of = c == UC_ROOT ? NULL : unit_class_name(c);
    int n = f->walk.map.of_class[c];
    int64_t ranks = fsdp2_ranks(f, c), shard = z->padded / ranks, reduced = z->reduced / ranks;
    int64_t rs_out = round512(reduced * dtype_bytes(f->r.wire_reduce));
    int64_t grads = round512(reduced * dtype_bytes(f->r.kept));
    bool cast = f->r.used != f->r.kept && !f->offload, alone = fsdp2_casts_alone(f, c), all = z->cast == z->used;

    if (fsdp2_ignores(f, c)) {
        fsdp2_declare_ignored(f);
        return;
    }
    m->shard      = sched_buf_in(s, f->home, CAT_PARAMS, "sharded params", of, 0, n, z->shard_bytes);
    m->optimizer  = sched_buf_in(s, f->offload ? SPACE_HOST : SPACE_DEVICE, CAT_OPTIMIZER, optimizer_states_title(f->p), of,
                                 0, n, z->optimizer_bytes);
    m->cast       = sched_buf(s, CAT_TEMPORARIES, "cast shard", of, 0, n,
                              alone ? casts_beside(f, c) : cast ? round512(z->cast / ranks) : fsdp2_code_bytes(f, c));
    s->bufs[m->cast].stands = alone && all;
    m->cast_work  = sched_buf(s, CAT_TEMPORARIES, "casts to float8", of, 0, n, z->cast_work);
    m->gathered   = sched_buf(s, CAT_ALL_GATHER, "all-gather output", of, 0, n,
                              ranks > 1 ? round512(z->used) : 0);
    m->unsharded  = sched_buf(s, CAT_UNSHARDED, "unsharded params", of, 0, n, z->unsharded_bytes);
    s->bufs[m->unsharded].copied = alone && all;
    m->post_forward = sched_buf(s, CAT_PARAMS, "post-forward shard", of, 0, n, z->kept_bytes);
    m->grads_full = sched_buf(s, CAT_UNSHARDED_GRADS, "unsharded grads", of, 0, n, z->grads_bytes);
    m->grads_wide = sched_buf(s, CAT_UNSHARDED_GRADS, "accumulated unsharded grads", of, 0, n,
                              z->grads_wide_bytes);
    s->bufs[m->grads_full].experts = s->bufs[m->grads_wide].experts = c == UC_EXPERTS;
    m->rs_in      = sched_buf(s, CAT_REDUCE_SCATTER, "reduce-scatter input", of, 0, n,
                              round512(z->reduced * dtype_bytes(f->r.wire_reduce)));
    m->rs_out     = sched_buf(s, CAT_REDUCE_SCATTER, "reduce-scatter output", of, 0, n, rs_out);
    m->grads      = sched_buf_in(s, f->home, CAT_GRADS, "sharded grads", of, 0, n,
                                 f->offload ? z->host_grads_bytes : grads);
    m->grads_new  = sched_buf(s, f->offload ? CAT_TEMPORARIES : CAT_GRADS, "new sharded grads", of, 0, n, grads);
    for (int i = 0; i < n; i++)
        sched_unit(s, unit_class_name(c), i, z->numel, z->padded, shard);
}

/* ---- single allocations ---- */

static void parts_of(struct fsdp2 *f, enum unit_class c, int buf, int times, tensor_fn *bytes,
                     const struct shard_arg *a)
{
    for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++)
        for (int k = 0; k < times && counts(&f->p->model.tensors[t], a); k++)
            sched_part(f->s, buf, bytes(&f->p->model.tensors[t], a));
}

/* A walk over the model's tensors, as an optimizer's over its parameters, meets what the root has behind the blocks after them. */
static bool is_behind(const struct fsdp2 *f, enum unit_class c, int t)
{
    return fsdp2_has_head(c) && f->walk.map.kind != UNIT_MODEL && t >= model_block_first(f->m, f->m->layers);
}

typedef void part_fn(struct schedules *s, int buf, int64_t bytes);

static part_fn *part_of(const struct fsdp2 *f, enum unit_class c, int t) { return is_behind(f, c, t) ? sched_part_late : sched_part; }

int fsdp2_states(const struct fsdp2 *f, enum unit_class c, int t, int64_t bytes[])
{
    struct shard_arg state = { fsdp2_ranks(f, c), fsdp2_rank(f, c), dtype_bytes(f->r.kept), round512, true, NULL, fsdp2_dim(f, c) };
    struct tensor of = turned(&f->m->tensors[t], &state);

    return optimizer_states(f->p, &of, local_rows(&f->m->tensors[t], &state), bytes);
}

/* As Adam._init_group() makes them: step, where it is on the device, and the moments of one parameter after another. */
static void state_parts(struct fsdp2 *f, enum unit_class c, int t)
{
    int64_t bytes[OPTIMIZER_PARTS];
    int n = fsdp2_states(f, c, t, bytes);

    part_of(f, c, t)(f->s, f->fam[c].optimizer, step_bytes(&f->m->tensors[t], f->p));
    for (int i = 0; i < n; i++)
        part_of(f, c, t)(f->s, f->fam[c].optimizer, round512(bytes[i]));
}

void fsdp2_parts(struct fsdp2 *f, enum unit_class c)
{
    struct shard_arg kept = { fsdp2_ranks(f, c), fsdp2_rank(f, c), 0, round512, false, f, fsdp2_dim(f, c) };
    struct shard_arg used = { fsdp2_ranks(f, c), fsdp2_rank(f, c), dtype_bytes(f->r.used), round512, false, f, fsdp2_dim(f, c) };
    struct shard_arg again = { f->nshard, fsdp2_kept_ranks(f, c), dtype_bytes(f->r.used), round512, false, NULL, fsdp2_dim(f, c) };
    const struct families *m = &f->fam[c];

    if (!f->offload) {
        for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++)
            if (counts(&f->m->tensors[t], &kept))
                part_of(f, c, t)(f->s, m->shard, shard_bytes(&f->m->tensors[t], &kept));
        for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++)
            state_parts(f, c, t);
    }
    if (fsdp2_ignores(f, c))
        return;
    if (!fsdp2_brings_alone(f))
        parts_of(f, c, m->unsharded, 1, padded_bytes, &used);
    if (again.rank)
        parts_of(f, c, m->post_forward, 1, kept_bytes, &again);
    for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++)
        sched_part(f->s, m->grads_wide, fsdp2_grad_bytes(f, t, f->r.wire_reduce));
}

/* Those of a class, or of the root what is before the blocks (`behind` false) or after them. */
static void foreach_parts_of(struct fsdp2 *f, enum unit_class c, bool behind)
{
    struct shard_arg a = { fsdp2_ranks(f, c), fsdp2_rank(f, c), dtype_bytes(f->r.kept), round512, true, NULL, fsdp2_dim(f, c) };

    for (int k = 0; k < f->walk.map.of_class[c]; k++)
        for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++)
            if (is_behind(f, c, t) == behind && counts(&f->p->model.tensors[t], &a))
                sched_part(f->s, f->foreach_temp, local_bytes(&f->p->model.tensors[t], &a));
}

void fsdp2_foreach_parts(struct fsdp2 *f)
{
    for (int behind = 0; behind < 2; behind++)
        for (int c = 0; c < NUC; c++)
            foreach_parts_of(f, (enum unit_class)c, behind);
}

/* ---- what buffers hold ---- */

/* In which dtype a tensor of a buffer of dt lies: of parameters as they are gathered, `used`, some in 8 bits; as they persist, some in 16. */
static enum dtype lies_in(const struct fsdp2 *f, const struct tensor *t, enum holds h, enum dtype dt, bool used)
{
    if (h != HOLDS_PARAM)
        return dt;
    return !used ? fsdp2_kept(f, t) : float8_gathers(f->p, t) ? DT_FP8 : dt;
}

enum lies { END_TO_END, APART };      /* a collective's part, as all ranks have it; or allocations of their own */

/* The rank-th part of every tensor of the unit, of `ranks` that have it with its padding. */
static void parts(struct fsdp2 *f, enum unit_class c, enum holds h, enum dtype dt, int64_t ranks, int64_t rank, enum lies place, int64_t at)
{
    struct shard_arg a = { f->nshard, rank, dtype_bytes(dt), round512, h != HOLDS_PARAM, NULL, 0 };
    struct sharding x = { f->s, f->m->tensors, h, dt, .at = at };

    sharding_begins(&x, unit_tensor(&f->walk.map, c, 0));
    for (int i = 0, t; ranks && (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++) {
        const struct tensor *of = &f->m->tensors[t];
        int64_t part = padded(of, &a) / ranks;
        if (!counts(of, &a))
            continue;
        x.dtype = lies_in(f, of, h, dt, place == END_TO_END);
        int64_t bytes = part * dtype_bytes(x.dtype);
        sharding_part(&x, t, part, rank, place == END_TO_END ? bytes : h == HOLDS_PARAM ? f->param_room(bytes) :
                      (h == HOLDS_GRAD ? f->grad_room : f->state_room)(local_numel(of, &a) * a.bytes));
    }
}

/* Whole tensors, each an allocation of its own. */
static int whole_tensors(struct fsdp2 *f, enum unit_class c, enum holds h, enum dtype dt, bool with_padding)
{
    struct shard_arg a = { f->nshard, 0, dtype_bytes(dt), round512, h != HOLDS_PARAM, h == HOLDS_PARAM ? f : NULL, 0 };
    struct sharding x = { f->s, f->m->tensors, h, dt, .at = 0 };
    int layout = sched_layout(f->s, unit_stride(&f->walk.map, c));

    for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++) {
        const struct tensor *of = &f->m->tensors[t];
        if (!counts(of, &a))
            continue;
        x.dtype = lies_in(f, of, h, dt, true);
        sharding_part(&x, t, of->numel, 0, with_padding ? padded_bytes(of, &a) : whole_bytes(of, &a));
    }
    return layout;
}

int fsdp2_describe_one(struct fsdp2 *f, enum unit_class c, enum holds h, enum dtype dt, int i, int64_t at)
{
    struct sharding x = { f->s, f->m->tensors, h, dt, .at = at };
    int layout = sched_layout(f->s, unit_stride(&f->walk.map, c)), t = unit_tensor(&f->walk.map, c, i);

    sharding_part(&x, t, fsdp2_padded_share(f, t), f->rank_in_group, 0);
    return layout;
}

int fsdp2_describe_shard(struct fsdp2 *f, enum unit_class c, int i)
{
    struct shard_arg kept = { f->nshard, f->rank_in_group, 0, f->param_room, false, f, 0 };
    int64_t at = 0;

    for (int j = 0; j < i; j++)
        at += shard_bytes(&f->m->tensors[unit_tensor(&f->walk.map, c, j)], &kept);
    return fsdp2_describe_one(f, c, HOLDS_PARAM, fsdp2_kept(f, &f->m->tensors[unit_tensor(&f->walk.map, c, i)]), i, at);
}

static int rank_rows(struct fsdp2 *f, enum unit_class c, enum holds h, enum dtype dt, enum lies place, int64_t at)
{
    int layout = sched_layout(f->s, unit_stride(&f->walk.map, c));

    parts(f, c, h, dt, f->nshard, f->rank_in_group, place, at);
    return layout;
}

/* An all-gather's output, a reduce-scatter's input: one chunk a rank. */
static int chunks(struct fsdp2 *f, enum unit_class c, enum holds h, enum dtype dt)
{
    int layout = sched_layout(f->s, unit_stride(&f->walk.map, c));

    for (int64_t r = 0; r < f->nshard; r++)
        parts(f, c, h, dt, f->nshard, r, END_TO_END,
              r * ((h == HOLDS_PARAM ? f->size[c].used : f->size[c].reduced * dtype_bytes(dt)) / f->nshard));
    return layout;
}

void fsdp2_describe(struct fsdp2 *f, enum unit_class c)
{
    struct schedules *s = f->s;
    struct families *m = &f->fam[c];
    enum dtype kept = f->r.kept, used = f->r.used, wire = f->r.wire_reduce;
    int64_t k = fsdp2_kept_ranks(f, c), part = f->size[c].padded * dtype_bytes(used);
    int64_t mine = k ? f->rank_in_group % k : 0;

    m->own = rank_rows(f, c, HOLDS_PARAM, used, END_TO_END, f->rank_in_group * (f->size[c].used / f->nshard));
    m->own_kept = sched_layout(s, unit_stride(&f->walk.map, c));
    parts(f, c, HOLDS_PARAM, used, k, mine, END_TO_END, k ? mine * (part / k) : 0);
    m->gathered_kept = sched_layout(s, unit_stride(&f->walk.map, c));
    for (int64_t r = 0; r < k; r++)
        parts(f, c, HOLDS_PARAM, used, k, r, END_TO_END, r * (part / k));
    sched_holds(s, m->post_forward, sched_layout(s, unit_stride(&f->walk.map, c)));
    parts(f, c, HOLDS_PARAM, used, k, mine, END_TO_END, 0);
    sched_holds(s, m->shard, rank_rows(f, c, HOLDS_PARAM, kept, APART, 0));
    if (f->p->optimizer == OPTIMIZER_ADAMW || f->p->optimizer == OPTIMIZER_SGD)
        sched_holds(s, m->optimizer, rank_rows(f, c, HOLDS_EXP_AVG, kept, APART, 0));
    if (f->p->optimizer == OPTIMIZER_ADAMW)
        parts(f, c, HOLDS_EXP_AVG_SQ, kept, f->nshard, f->rank_in_group, APART, f->size[c].foreach_bytes);
    if (f->nshard > 1)
        sched_holds(s, m->gathered, chunks(f, c, HOLDS_PARAM, used));
    if (!fsdp2_brings_alone(f))
        sched_holds(s, m->unsharded, whole_tensors(f, c, HOLDS_PARAM, used, true));
    sched_holds(s, m->grads_full, whole_tensors(f, c, HOLDS_GRAD, used, false));
    sched_holds(s, m->grads_wide, whole_tensors(f, c, HOLDS_GRAD, wire, false));
    sched_holds(s, m->rs_in, chunks(f, c, HOLDS_GRAD, wire));
    sched_holds(s, m->rs_out, rank_rows(f, c, HOLDS_GRAD, wire, END_TO_END, 0));
    sched_holds(s, m->grads, rank_rows(f, c, HOLDS_GRAD, kept, f->offload ? APART : END_TO_END, 0));
    sched_holds(s, m->grads_new, rank_rows(f, c, HOLDS_GRAD, kept, END_TO_END, 0));
}
