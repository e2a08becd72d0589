/* lower_fsdp2_tensor.c -- FSDP2 of tensors that are a tensor-parallel rank's share (torchtitan's 2-D).
 *
 * Parameters are DTensors on (shard, tensor): a unit gathers, reduces and keeps the rank's rows and columns.  A gradient that is
 * laid out otherwise than its parameter is brought into its layout by FSDPParam._get_grad_inner_tensor, one parameter after the
 * other, on the compute stream before the unit's copy-in:
 *
 *     a norm's weights     each rank has the sum over its positions (its heads): an all-reduce over the tensor ranks
 *     lora_B of a row-     each rank has a part of the sum of all of it (tape_adapter_row.h): a reduce-scatter by columns, of a copy that has
 *     parallel layer       them rank by rank
 *     token embedding      DTensor's gradient is of the whole table, on every rank: the rank's own rows are copied
 *
 * Without reduction they stay as they are: the whole table accumulates. */
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

/* Is the gradient of tensor t a part of a sum over tensor-parallel ranks? */
static bool is_partial(const struct fsdp2 *f, int t)
{
    return f->local->partial && (f->local->partial[t] & MESH_AXIS(AXIS_TENSOR));
}

int64_t fsdp2_table_elems(const struct fsdp2 *f)
{
    for (int t = 0; t < f->m->ntensors; t++)
        if (f->m->tensors[t].role == ROLE_TOKENS && f->m->tensors[t].block == TENSOR_EMBED && !f->m->tensors[t].frozen)
            return f->local->share.tensor_ranks > 1 ? f->local->whole->vocab * f->m->token_width : 0;
    return 0;
}

/* Is it that of the whole table? */
static bool is_whole_table(const struct fsdp2 *f, int t)
{
    return f->table > 0 && f->m->tensors[t].role == ROLE_TOKENS && f->m->tensors[t].block == TENSOR_EMBED;
}

/* Is it the lora_B of a row-parallel layer? */
static bool is_whole_adapter(const struct fsdp2 *f, int t)
{
    const struct tensor *x = &f->m->tensors[t];

    return f->local->share.tensor_ranks > 1 && x->adapter == ADAPTER_LORA_B && (x->role == ROLE_ATTN_OUT || x->role == ROLE_DOWN);
}

/* Elements of tensor t's gradient as the program has it, which is the fullest rank's: the last one may have fewer rows of the head. */
static int64_t program_numel(const struct fsdp2 *f, int t)
{
    const struct tensor *x = &f->m->tensors[t];

    if (is_whole_adapter(f, t))
        return x->numel * f->local->share.tensor_ranks;
    if (x->role != ROLE_HEAD || f->local->share.tensor_ranks == 1)
        return x->numel;
    return x->numel / f->m->vocab * ceil_div(f->local->whole->vocab, f->local->share.tensor_ranks);
}

int64_t fsdp2_grad_bytes(const struct fsdp2 *f, int t, enum dtype dt)
{
    enum dtype partial = plan_partial_dtype(f->p);

    if (is_partial(f, t) && dtype_bytes(partial) > dtype_bytes(dt))
        dt = partial;
    return is_whole_table(f, t) || f->m->tensors[t].frozen ? 0 : round512(program_numel(f, t) * dtype_bytes(dt));
}

int64_t fsdp2_grads_bytes(const struct fsdp2 *f, enum unit_class c, enum dtype dt)
{
    int64_t sum = 0;

    for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++)
        sum += fsdp2_grad_bytes(f, t, dt);
    return sum;
}

void fsdp2_tensor_declare(struct fsdp2 *f)
{
    int64_t own = 0;

    sched_note(f->s, "DTensor's gradient of the token embedding is of the whole table on every tensor-parallel rank; today's torchtitan "
               "has an embedding of its own whose gradient is cut");
    for (int t = 0; t < f->m->ntensors; t++)
        own += is_whole_table(f, t) ? f->m->tensors[t].numel : 0;
    f->table_grads = sched_buf(f->s, CAT_UNSHARDED_GRADS, "unsharded grads of the whole table", NULL, 0, 1,
                               round512(f->table * dtype_bytes(f->r.used)));
    f->table_wide = sched_buf(f->s, CAT_UNSHARDED_GRADS, "accumulated unsharded grads of the whole table", NULL, 0, 1,
                              round512(f->table * dtype_bytes(f->r.wire_reduce)));
    f->table_own = sched_buf(f->s, CAT_UNSHARDED_GRADS, "unsharded grads of own rows", NULL, 0, 1,
                             round512(own * dtype_bytes(f->wide_grads && f->p->accumulation > 1 && !f->p->sync_every_micro_step
                                                        ? f->r.wire_reduce : f->r.used)));
}

void fsdp2_table_left(struct fsdp2 *f)
{
    if (f->table == 0)
        return;
    if (!f->has_unsharded)
        sched_act(f->s, ACT_ALLOC | ACT_W, f->table_grads, 0, 0);
    else
        sched_act(f->s, ACT_A, f->wide_grads ? f->table_wide : f->table_grads, 0, 0);
}

void fsdp2_table_widened(struct fsdp2 *f)
{
    if (f->table == 0)
        return;
    sched_set(f->s, STREAM_COMPUTE, PHASE_BACKWARD, "upcast grads", f->table * dtype_bytes(f->r.used),
              f->table * dtype_bytes(f->r.wire_reduce));
    walk_name(&f->walk, fsdp2_embeds(f));
    sched_act(f->s, ACT_ALLOC | ACT_WRITE, f->table_wide, 0, 0);
    sched_act(f->s, ACT_R | ACT_FREE, f->table_grads, 0, 0);
}

/* The rank's rows of the table's gradient. */
static void take_own_rows(struct fsdp2 *f, struct at u, int64_t own)
{
    bool wide = f->wide_grads && f->has_unsharded;
    int64_t bytes = own * dtype_bytes(wide ? f->r.wire_reduce : f->r.used);

    sched_set(f->s, STREAM_COMPUTE, PHASE_REDUCE, "own rows", bytes, bytes);
    walk_name(&f->walk, u);
    sched_act(f->s, ACT_ALLOC | ACT_WRITE, f->table_own, 0, 0);
    sched_act(f->s, ACT_R | ACT_FREE, wide ? f->table_wide : f->table_grads, 0, 0);
}

/* Of tensor t's parts of sums. */
static void add_up(struct fsdp2 *f, struct at u, int from, int t, bool wide)
{
    bool whole = is_whole_adapter(f, t);
    enum dtype dt = wide ? f->r.wire_reduce : whole ? f->r.used : plan_partial_dtype(f->p);
    int64_t numel = program_numel(f, t);

    if (whole) {
        sched_set(f->s, STREAM_COMPUTE, PHASE_REDUCE, "sort parts", numel * dtype_bytes(dt), numel * dtype_bytes(dt));
        walk_name(&f->walk, u);
        sched_act(f->s, ACT_R, from, u.i, u.by);
    }
    struct op *o = sched_coll(f->s, STREAM_TENSOR, PHASE_REDUCE, whole ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, GROUP_TENSOR, dt, RED_SUM, numel);
    o->after = AFTER(STREAM_COMPUTE);
    o->flags = OPF_DTENSOR;
    walk_name(&f->walk, u);
    sched_act(f->s, ACT_RW, from, u.i, u.by);
}

bool fsdp2_lay_out_grads(struct fsdp2 *f, struct at u, int from)
{
    bool sums = false, wide = f->wide_grads && f->has_unsharded;

    for (int i = 0, t; (t = unit_tensor(&f->walk.map, u.c, i)) >= 0; i++) {
        int64_t numel = f->m->tensors[t].numel;
        if (is_whole_table(f, t))
            take_own_rows(f, u, numel);
        if (f->m->tensors[t].frozen || (!is_partial(f, t) && !is_whole_adapter(f, t)))
            continue;
        add_up(f, u, from, t, wide);
        sums = true;
    }
    return sums;
}
