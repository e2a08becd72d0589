/* lower_fsdp1_grads.c -- a unit's gradient, from autograd's pieces to what the
 * optimizer reads.
 *
 * The parameters of a unit are torch.split() views of the FlatParameter, so their
 * gradients meet in SplitWithSizesBackward, which concatenates them: for a moment
 * they exist twice.  All copies of the chain below live until the hook returns. */
#include "model/framework/torch_fsdp1/lower_fsdp1.h"

static int64_t bytes_of(const struct fsdp1 *f, int family)
{
    return f->s->bufs[family].bytes;
}

static void use(struct fsdp1 *f, struct at u, int what, int family)
{
    sched_act(f->s, what, family, u.i, u.by);
}

/* A pass over a gradient on a stream: reads one family, allocates another. */
static void convert(struct fsdp1 *f, struct at u, enum stream st, const char *what, int from, int to)
{
    sched_set(f->s, st, PHASE_REDUCE, what, bytes_of(f, from), bytes_of(f, to));
    walk_name(&f->walk, u);
    use(f, u, ACT_R, from);
    use(f, u, ACT_ALLOC | ACT_WRITE, to);
}

/* _div_if_needed(): in place. */
static void divide(struct fsdp1 *f, struct at u, enum stream st, double factor, int family)
{
    if (factor <= 1)
        return;
    sched_copy(f->s, st, PHASE_REDUCE, "divide grads", bytes_of(f, family), bytes_of(f, family));
    walk_name(&f->walk, u);
    sched_does(f->s, COPY_SET, 1 / factor);
    use(f, u, ACT_RW, family);
}

static void add(struct fsdp1 *f, struct at u, enum stream st, int to, int from)
{
    sched_copy(f->s, st, st == STREAM_COMPUTE ? PHASE_BACKWARD : PHASE_REDUCE, "add to grads",
               2 * bytes_of(f, to), bytes_of(f, to));
    walk_name(&f->walk, u);
    sched_does(f->s, COPY_ADD, 1);
    use(f, u, ACT_A, to);
    use(f, u, st == STREAM_COMPUTE ? ACT_R : ACT_R | ACT_FREE, from);
}

/* Is there a gradient already to which autograd adds?  What it adds lives until the hook of AccumulateGrad returns: the
 * engine keeps a node's inputs for its post hooks (engine.cpp, call_function: inputs_copy). */
static bool accumulates(const struct fsdp1 *f)
{
    return f->now.has_unsharded || (!f->sharded && f->now.has_reduced);
}

/* NO_SHARD without a cast, or after a reduction: .grad already has the
 * parameter's dtype, so it is what the optimizer will read. */
static bool flat_is_final(const struct fsdp1 *f)
{
    return !f->sharded && (f->r.used == f->r.kept || f->now.has_reduced);
}

static int unsharded_grad(const struct fsdp1 *f, enum unit_class c)
{
    return flat_is_final(f) ? f->fam[c].grads : f->fam[c].flat;
}

/* Frees the gradients of a block's parameters in the last entry. */
static int64_t free_block(struct fsdp1 *f, int block, int by)
{
    int family = f->parts[program_piece_of_block(f->p, block)];

    sched_act(f->s, ACT_R | ACT_FREE, family, block, by);
    return bytes_of(f, family);
}

/* The root's, made between two units. */
static int64_t free_between(struct fsdp1 *f)
{
    int64_t bytes = 0;

    for (int b = 0; f->m->recorded && f->walk.map.n > 0 && b < (int)f->m->layers; b++) {
        int family = f->between[program_piece_of_block(f->p, b)];
        if (family < 0)
            continue;
        sched_act(f->s, ACT_R | ACT_FREE, family, b, 0);
        bytes += bytes_of(f, family);
    }
    return bytes;
}

static int64_t free_root(struct fsdp1 *f)
{
    int64_t bytes = bytes_of(f, f->parts[PIECE_EMBED]) + bytes_of(f, f->parts[PIECE_HEAD]);

    sched_act(f->s, ACT_R | ACT_FREE, f->parts[PIECE_EMBED], 0, 0);
    sched_act(f->s, ACT_R | ACT_FREE, f->parts[PIECE_HEAD], 0, 0);
    for (int b = 0; f->walk.map.n == 0 && b < (int)f->m->layers; b++)
        bytes += free_block(f, b, 0);
    return bytes + free_between(f);
}

static int64_t free_handed(struct fsdp1 *f, struct at u)
{
    use(f, u, ACT_R | ACT_FREE, f->fam[u.c].handed);
    return bytes_of(f, f->fam[u.c].handed);
}

void fsdp1_concatenate(struct fsdp1 *f, struct at u)
{
    const struct fsdp1_families *m = &f->fam[u.c];
    int to = unsharded_grad(f, u.c);
    bool exists = accumulates(f);
    int into = exists ? m->flat_new : to;
    int entry = f->s->nops;
    int64_t parts;

    sched_set(f->s, STREAM_COMPUTE, PHASE_BACKWARD, "concatenate grads", 0, bytes_of(f, into));
    walk_name(&f->walk, u);
    use(f, u, ACT_ALLOC | ACT_WRITE, into);
    parts = u.c == UC_ROOT ? free_root(f) : unit_is_adapter(u.c) ? free_handed(f, u)
          : free_block(f, unit_at(&f->walk.map, u.position).block, u.by);
    f->s->ops[entry].u.copy.reads = parts;
    if (exists)                     /* AccumulateGrad, in place */
        add(f, u, STREAM_COMPUTE, to, into);
}

/* What the hook held goes when it returns. */
static void release(struct fsdp1 *f, struct at u, const int families[], int n)
{
    sched_op(f->s, OP_MEMORY, STREAM_REDUCE, PHASE_REDUCE, "hook returns");
    walk_name(&f->walk, u);
    for (int i = 0; i < n; i++)
        use(f, u, ACT_FREE, families[i]);
}

/* grad.to(reduce_dtype), the first thing on the post-backward stream: returns the
 * family that is reduced. */
static int to_reduce_dtype(struct fsdp1 *f, struct at u, enum dtype has, int flat, int wide)
{
    if (has == f->r.wire_reduce)
        return flat;
    convert(f, u, STREAM_REDUCE, "cast to reduce_dtype", flat, wide);
    return wide;
}

static struct op *collective(struct fsdp1 *f, struct at u, enum stream st, enum coll_op op,
                             enum group g, int64_t elems, int family)
{
    struct op *o = sched_coll(f->s, st, PHASE_REDUCE, op, g, f->r.wire_reduce, RED_SUM, elems);

    walk_name(&f->walk, u);
    use(f, u, op == COLL_ALL_REDUCE ? ACT_RW : ACT_R, family);
    return o;
}

/* The entry that opens the post-backward stream's work waits for compute. */
static void behind_compute(struct fsdp1 *f, int entry)
{
    f->s->ops[entry].after |= AFTER(STREAM_COMPUTE);
}

/* _reduce_grad() and _accumulate_sharded_grad(). */
static void reduce_sharded(struct fsdp1 *f, struct at u)
{
    const struct fsdp1_families *m = &f->fam[u.c];
    const struct flat_param *z = &f->size[u.c];
    int held[4] = { m->flat, m->flat_new }, nheld = accumulates(f) ? 2 : 1, first = f->s->nops;
    bool cast = f->r.wire_reduce != f->r.kept;
    int in = to_reduce_dtype(f, u, f->r.used, m->flat, m->wide);
    int out = cast || f->now.has_reduced ? m->rs_out : m->grads;
    enum stream st = STREAM_REDUCE;

    if (in == m->wide)
        held[nheld++] = m->wide;
    if (z->padded > z->flat) {      /* F.pad in _get_reduce_scatter_tensors() */
        convert(f, u, st, "pad grads", in, m->rs_in);
        held[nheld++] = in = m->rs_in;
    }
    divide(f, u, st, f->predivide, in);
    collective(f, u, st, COLL_REDUCE_SCATTER, f->group, z->padded, in);
    use(f, u, ACT_ALLOC | ACT_WRITE, out);
    behind_compute(f, first);
    if (f->hybrid) {
        /* Up to 2.0 the all-reduce had no stream of its own. */
        st = plan_version(f->p) >= 2001 ? STREAM_ALL_REDUCE : STREAM_REDUCE;
        collective(f, u, st, COLL_ALL_REDUCE, GROUP_REPLICA, z->shard, out)->after = AFTER(STREAM_REDUCE);
    }
    divide(f, u, st, f->postdivide, out);
    if (cast) {                     /* _cast_grad_to_param_dtype() */
        int to = f->now.has_reduced ? m->grads_new : m->grads;
        convert(f, u, st, "cast to param dtype", out, to);
        use(f, u, ACT_FREE, out);
        out = to;
    }
    if (f->now.has_reduced)             /* _saved_grad_shard += sharded_grad */
        add(f, u, st, m->grads, out);
    release(f, u, held, nheld);
}

/* _reduce_grad_no_shard(): in place, in .grad itself. */
static void reduce_whole(struct fsdp1 *f, struct at u)
{
    const struct fsdp1_families *m = &f->fam[u.c];
    bool final = flat_is_final(f), cast = f->r.wire_reduce != f->r.kept;
    int flat = unsharded_grad(f, u.c), held[4] = { m->flat_new }, nheld = accumulates(f), first = f->s->nops;
    int in = to_reduce_dtype(f, u, final ? f->r.kept : f->r.used, flat, cast ? m->wide : m->grads);

    divide(f, u, STREAM_REDUCE, f->predivide, in);
    collective(f, u, STREAM_REDUCE, COLL_ALL_REDUCE, f->group, f->size[u.c].flat, in);
    behind_compute(f, first);
    divide(f, u, STREAM_REDUCE, f->postdivide, in);
    if (!final)
        held[nheld++] = flat;       /* autograd_computed_grad */
    if (cast) {
        /* The cast replaces .grad; where both have the parameter's dtype they have the
         * same size, so the old buffer is reused for the new one. */
        convert(f, u, STREAM_REDUCE, "cast to param dtype", in, final ? m->grads_new : m->grads);
        if (final)
            use(f, u, ACT_W, m->grads);
        if (in != flat)
            held[nheld++] = in;
        if (final)
            held[nheld++] = m->grads_new;
    }
    if (nheld > 0)
        release(f, u, held, nheld);
}

void fsdp1_reduce(struct fsdp1 *f, struct at u)
{
    if (f->sharded)
        reduce_sharded(f, u);
    else
        reduce_whole(f, u);
}

void fsdp1_leave_grads(struct fsdp1 *f, struct at u)
{
    if (!accumulates(f))
        return;
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "hook returns");
    walk_name(&f->walk, u);
    use(f, u, ACT_FREE, f->fam[u.c].flat_new);
}
