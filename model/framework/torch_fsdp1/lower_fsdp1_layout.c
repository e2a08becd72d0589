/* lower_fsdp1_layout.c -- what FSDP1's buffers hold: a FlatParameter or this rank's shard of it, and
 * before it is concatenated a gradient as the program hands it out, tensor by tensor. */
#include "model/framework/torch_fsdp1/lower_fsdp1.h"

static int part(struct fsdp1 *f, enum unit_class c, enum holds h, enum dtype dt, int64_t from, int64_t n)
{
    int layout = sched_layout(f->s, unit_stride(&f->walk.map, c));

    flat_slices(&f->walk.map, f->s, c, &f->rule, h, dt, from, n, 0, false);
    return layout;
}

static int whole(struct fsdp1 *f, enum unit_class c, enum holds h, enum dtype dt)
{
    return part(f, c, h, dt, 0, f->size[c].flat);
}

static int64_t shard_begin(const struct fsdp1 *f, enum unit_class c)
{
    return f->sharded ? f->rule.rank * f->size[c].shard : 0;
}

static int own(struct fsdp1 *f, enum unit_class c, enum holds h, enum dtype dt)
{
    return part(f, c, h, dt, shard_begin(f, c), f->size[c].shard);
}

/* With use_orig_params the pieces that lie in the shard have states of their own. */
static int states(struct fsdp1 *f, enum unit_class c)
{
    const struct flat_param *z = &f->size[c];
    bool apart = f->rule.orig_params;
    int layout = sched_layout(f->s, unit_stride(&f->walk.map, c));

    flat_slices(&f->walk.map, f->s, c, &f->rule, HOLDS_EXP_AVG, f->kept[c], shard_begin(f, c), z->shard, 0, apart);
    flat_slices(&f->walk.map, f->s, c, &f->rule, HOLDS_EXP_AVG_SQ, f->kept[c], shard_begin(f, c), z->shard,
                z->optim_bytes, apart);
    return layout;
}

/* The module's own parameters, each an allocation of the device's. */
static int as_built(struct fsdp1 *f, enum unit_class c)
{
    int layout = sched_layout(f->s, unit_stride(&f->walk.map, c));
    struct flat_rule r = f->rule;

    r.host = false;
    flat_slices(&f->walk.map, f->s, c, &r, HOLDS_PARAM, f->kept[c], 0, f->size[c].flat, 0, true);
    return layout;
}

/* An adapter's gradient, as the program hands it out. */
static int handed(struct fsdp1 *f, enum unit_class c)
{
    int t = unit_tensor(&f->walk.map, c, 0), layout = sched_layout(f->s, unit_stride(&f->walk.map, c));

    sched_slice(f->s, HOLDS_GRAD, f->r.used, t, 0, f->m->tensors[t].numel, 0);
    return layout;
}

void fsdp1_describe(struct fsdp1 *f, enum unit_class c)
{
    struct schedules *s = f->s;
    const struct fsdp1_families *m = &f->fam[c];
    enum dtype kept = f->kept[c], used = f->r.used, wire = f->r.wire_reduce;

    sched_holds(s, m->shard, own(f, c, HOLDS_PARAM, kept));
    if (f->trains[c] || f->rule.orig_params)
        sched_holds(s, m->optimizer, states(f, c));
    for (int i = 0; i < 2; i++) {
        sched_holds(s, m->mp_shard[i], own(f, c, HOLDS_PARAM, used));
        sched_holds(s, m->full[i], whole(f, c, HOLDS_PARAM, used));
    }
    sched_holds(s, m->flat, whole(f, c, HOLDS_GRAD, used));
    sched_holds(s, m->flat_new, whole(f, c, HOLDS_GRAD, used));
    sched_holds(s, m->wide, whole(f, c, HOLDS_GRAD, wire));
    sched_holds(s, m->rs_in, whole(f, c, HOLDS_GRAD, wire));
    sched_holds(s, m->rs_out, own(f, c, HOLDS_GRAD, wire));
    sched_holds(s, m->grads, own(f, c, HOLDS_GRAD, kept));
    sched_holds(s, m->grads_new, own(f, c, HOLDS_GRAD, kept));
    if (unit_is_adapter(c))
        sched_holds(s, m->handed, handed(f, c));
    sched_holds(s, m->init_params, as_built(f, c));
    sched_holds(s, m->init_flat, whole(f, c, HOLDS_PARAM, kept));
    if (!f->offload)
        return;
    sched_holds(s, m->first, own(f, c, HOLDS_PARAM, kept));
    sched_holds(s, m->born, own(f, c, HOLDS_PARAM, kept));
    sched_holds(s, m->cpu_grad, own(f, c, HOLDS_GRAD, kept));
    sched_holds(s, m->zeros, own(f, c, HOLDS_GRAD, kept));
    for (int i = 0; i < 2; i++)
        sched_holds(s, m->staged[i], own(f, c, HOLDS_PARAM, kept));
}

static int64_t append(struct fsdp1 *f, int tensor, int64_t at)
{
    int64_t n = f->m->tensors[tensor].numel;

    sched_slice(f->s, HOLDS_GRAD, f->r.used, tensor, 0, n, at);
    return at + round512(n * dtype_bytes(f->r.used));
}

/* A tied embedding's gradient has the memory of the head's part, which is there first. */
void fsdp1_describe_part(struct fsdp1 *f, enum piece_id piece)
{
    const struct model *m = f->m;
    bool block = piece_is_block(piece);
    int layout = sched_layout(f->s, block ? m->per_block : 0), n = program_ntensors(f->p, piece);
    int64_t at = 0;

    for (int i = 0; i < n; i++) {
        int t = program_tensor(f->p, piece, 0, i);
        if (!(m->tied && m->tensors[t].role == ROLE_TOKENS))
            at = append(f, t, at);
    }
    for (int t = 0; piece == PIECE_HEAD && m->tied && t < m->ntensors; t++)
        if (m->tensors[t].role == ROLE_TOKENS)
            at = append(f, t, at);
    sched_holds(f->s, f->parts[piece], layout);
}
