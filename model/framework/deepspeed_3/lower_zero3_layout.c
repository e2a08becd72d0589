/* lower_zero3_layout.c -- which elements of which tensors lie where in stage 3's buffers.
 *
 * Rank r's part of a tensor is elements [r*q, (r+1)*q), q = ceil(numel/N); what is beyond the
 * tensor's end is padding, which may be all of a small tensor's last parts.  Parts without an
 * element are named all the same: they say where their buffer begins. */
#include "model/framework/deepspeed_3/lower_zero3.h"
#include "model/plan/optimizer_traits.h"
#include "model/schedule/sharding.h"

static const struct tensor *tensor(const struct z3 *z, int t) { return &z->d.m->tensors[t]; }

int64_t z3_part_of(const struct z3 *z, const struct z3_cut *c, int t, int64_t rank, int64_t *from)
{
    int64_t numel = tensor(z, t)->numel, part = c->times * z->q[t], begin = rank * part;

    *from = begin < numel ? begin : numel;
    return numel - *from < part ? numel - *from : part;
}

int64_t z3_part(const struct z3 *z, int t, int64_t *from)
{
    const struct z3_cut *c = z3_cut_of(z, t);

    return z3_part_of(z, c, t, c->rank, from);
}

/* This rank's part of a tensor. */
static void slice(const struct z3 *z, enum holds h, enum dtype dt, int t, int64_t at)
{
    int64_t from, n = z3_part(z, t, &from);

    sched_slice(z->d.s, h, dt, t, from, n, at);
}

int z3_own(const struct z3 *z, enum holds h, enum dtype dt, const int *tensors, int n, int64_t begin)
{
    int layout = sched_layout(z->d.s, 0);

    for (int i = 0; i < n && layout; i++)
        if (!tensor(z, tensors[i])->frozen)
            slice(z, h, dt, tensors[i], (z->begin[tensors[i]] - begin) * dtype_bytes(dt));
    return layout;
}

/* Parts of one rank by a cut (NULL: this rank's by each tensor's own), from byte `at` on, each rounded up to a multiple of `to` bytes;
 * returns where the next one begins. */
static int64_t parts(const struct z3 *z, const struct z3_cut *c, enum holds h, enum dtype dt, const int *tensors, int n, int64_t rank,
                     int64_t at, int64_t to)
{
    struct sharding x = { z->d.s, z->d.m->tensors, h, dt, .at = at };

    for (int i = 0; i < n; i++) {
        const struct z3_cut *of = c ? c : z3_cut_of(z, tensors[i]);
        int64_t part = of->times * z->q[tensors[i]];
        sharding_part(&x, tensors[i], part, c ? rank : of->rank, round_up(part * dtype_bytes(dt), to));
    }
    return x.at;
}

int z3_chunk(const struct z3 *z, const struct z3_cut *c, enum holds h, enum dtype dt, const int *tensors, int n)
{
    int layout = sched_layout(z->d.s, 0);
    int64_t elems = 0;

    for (int i = 0; i < n; i++)
        elems += c->times * z->q[tensors[i]];
    if (layout)
        parts(z, c, h, dt, tensors, n, c->rank, c->rank * elems * dtype_bytes(dt), 1);
    return layout;
}

int z3_mine(const struct z3 *z, const struct z3_cut *c, enum holds h, enum dtype dt, const int *tensors, int n)
{
    int layout = sched_layout(z->d.s, 0);

    if (layout)
        parts(z, c, h, dt, tensors, n, c->rank, 0, 1);
    return layout;
}

int z3_chunks(const struct z3 *z, const struct z3_cut *c, enum holds h, enum dtype dt, const int *tensors, int n)
{
    int layout = sched_layout(z->d.s, 0);
    int64_t at = 0;

    for (int64_t r = 0; r < c->n && layout; r++)
        at = parts(z, c, h, dt, tensors, n, r, at, 1);
    return layout;
}

int z3_whole(const struct z3 *z, enum holds h, enum dtype dt, const int *tensors, int n, int64_t from, int64_t rounded_to)
{
    int layout = sched_layout(z->d.s, 0);
    struct sharding x = { z->d.s, z->d.m->tensors, h, dt, .at = from * dtype_bytes(dt) };

    for (int i = 0; i < n && layout; i++)
        sharding_whole(&x, tensors[i], rounded_to);
    return layout;
}

int z3_parts(const struct z3 *z, enum holds h, enum dtype dt, const int *tensors, int n)
{
    int layout = sched_layout(z->d.s, 0);

    if (layout)
        parts(z, NULL, h, dt, tensors, n, 0, 0, 512);
    return layout;
}

int z3_aligned_parts(const struct z3 *z, const int *tensors, int n)
{
    int layout = sched_layout(z->d.s, 0);

    if (layout)
        parts(z, NULL, HOLDS_PARAM, z->d.dt, tensors, n, 0, 0, z->files.align * z->d.e);
    return layout;
}

static int inside(const struct z3 *z, enum holds h, enum dtype dt, const int *tensors, int first, int n)
{
    int layout = sched_layout(z->d.s, 0);
    int64_t at = 0;

    for (int i = 0; i < n && layout; i++) {
        int64_t from, part = z3_part(z, tensors[i], &from);
        if (i >= first)
            sched_slice(z->d.s, h, dt, tensors[i], from, part, at + from * dtype_bytes(dt));
        at += tensor(z, tensors[i])->numel * dtype_bytes(dt);
    }
    return layout;
}

int z3_inside(const struct z3 *z, enum holds h, enum dtype dt, const int *tensors, int n)
{
    return inside(z, h, dt, tensors, 0, n);
}

int z3_inside_one(const struct z3 *z, enum holds h, enum dtype dt, const int *tensors, int i)
{
    return inside(z, h, dt, tensors, i, i + 1);
}

int z3_disk_piece(const struct z3 *z, int t, int64_t at, int64_t n, int64_t bytes)
{
    int layout = sched_layout(z->d.s, 0);
    int64_t from;

    z3_part(z, t, &from);
    sched_slice(z->d.s, HOLDS_GRAD, DT_FP32, t, from + at, n, bytes);
    return layout;
}

/* ---- what buffers hold for good ---- */

/* Files of weights and moments; gradients that go to disk, in the buffer of the sub-group and in their files. */
static void describe_files(struct z3 *z, struct z3_group *g)
{
    int64_t from, in_files = 0;

    sched_holds(z->d.s, g->file, g->as_p);
    sched_holds(z->d.s, g->file + 1, g->as_m);
    sched_holds(z->d.s, g->file + 2, g->as_v);

    for (int way = 0; way < 2; way++) {
        int *layout = way ? &g->as_grad_file : &g->as_grads;
        *layout = sched_layout(z->d.s, 0);
        for (int i = g->first; i < g->last; i++) {
            int t = z->trained[i];
            int64_t n = z3_disk_written(z, t), at = way ? in_files : z->begin[t] - z3_group_begin(z, g);
            z3_part(z, t, &from);
            if (n > 0)
                sched_slice(z->d.s, HOLDS_GRAD, DT_FP32, t, from, n, at * 4);
            in_files += way ? n : 0;
        }
    }
}

static void describe_group(struct z3 *z, struct z3_group *g)
{
    const int *tensors = z->trained + g->first;
    int n = g->last - g->first;
    int64_t begin = z->begin[tensors[0]];

    g->part = z3_own(z, HOLDS_PARAM, z->d.dt, tensors, n, 0);
    g->grads = z3_own(z, HOLDS_GRAD, z->accum, tensors, n, 0);
    g->flat = z3_own(z, HOLDS_GRAD, z->accum, tensors, n, begin);
    g->wide = z3_own(z, HOLDS_GRAD, DT_FP32, tensors, n, begin);
    g->new_values = z3_own(z, HOLDS_PARAM, DT_FP32, tensors, n, begin);
    g->narrow_values = z3_own(z, HOLDS_PARAM, z->d.dt, tensors, n, begin);
    g->as_p = z3_own(z, HOLDS_MASTER, DT_FP32, tensors, n, begin);
    g->as_m = z3_own(z, HOLDS_EXP_AVG, DT_FP32, tensors, n, begin);
    if (g->host)
        g->as_v = z3_own(z, HOLDS_EXP_AVG_SQ, DT_FP32, tensors, n, begin);
    if (z->away.states && !g->disk)
        sched_holds(z->d.s, g->grad, g->wide);
    if (!g->disk)
        sched_holds(z->d.s, g->master, g->as_p);
    else
        describe_files(z, g);
    if (optimizer_traits(z->d.p->optimizer)->by != BY_TORCH)     /* codes: no kernel of dpx's reads them */
        return;
    sched_holds(z->d.s, g->adam, g->as_m);
    if (g->host) {
        sched_holds(z->d.s, g->adam + 1, g->as_v);
        return;
    }
    for (int i = 0; i < n; i++)
        slice(z, HOLDS_EXP_AVG_SQ, DT_FP32, tensors[i],
              round512(g->elems * 4) + (z->begin[tensors[i]] - begin) * 4);
}

/* How many of what trains have their partitions in the flat buffer: those of the first sub-groups. */
static int flat_tensors(const struct z3 *z)
{
    int n = 0;

    for (int i = 0; i < z->ngroups && z3_is_flat(z, &z->groups[i]); i++)
        n = z->groups[i].last;
    return n;
}

void z3_describe(struct z3 *z)
{
    struct ds *d = &z->d;

    ds_hold(d, &z->copy, HOLDS_PARAM, d->dt);
    ds_hold(d, &z->padded, HOLDS_PARAM, d->dt);
    ds_hold(d, &z->grads, HOLDS_GRAD, d->dt);
    z->partition.holds = HOLDS_PARAM;   /* parts, not whole tensors; those that become one described where they are written */
    z->partition.dtype = d->dt;
    for (int t = 0; t < d->m->ntensors; t++) {
        int64_t from, n = z3_part(z, t, &from);
        if (tensor(z, t)->frozen)
            ds_hold_part(d, &z->partition, t, n, from);
    }
    sched_holds(d->s, z->lp, z3_own(z, HOLDS_PARAM, d->dt, z->trained, flat_tensors(z), 0));
    sched_holds(d->s, z->grad_buffer, z3_own(z, HOLDS_GRAD, z->accum, z->trained, z->ntrained, 0));
    for (int i = 0; i < z->ngroups && d->s->detailed; i++)
        describe_group(z, &z->groups[i]);
}
