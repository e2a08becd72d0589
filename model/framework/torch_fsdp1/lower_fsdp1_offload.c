/* lower_fsdp1_offload.c -- FSDP1 with CPUOffload(offload_params=True).
 *
 * Source: PyTorch 2.15.  A unit is flattened and sharded on the device, and its shard then moved to pageable memory
 * (_init_param_handle_from_params).  The first forward pins all shards, and beside each a gradient of zeros
 * (FlatParamHandle.init_flat_param_attributes): both stay for good, of what is frozen as well.  Every _unshard() copies the shard to the device, in
 * its own dtype, on the stream of the casts, also where the unit is gathered still, which then drops the copy
 * (pre_unshard, unshard).  _offload_grad() copies a reduced gradient into the pinned one on the stream that reduced it;
 * on the device it lives until the end of backward (_saved_grad_shard), where the CPU waits for the copies
 * (_post_backward_final_callback, prepare_gradient_for_optim).  AdamW finds CPU parameters: a loop over them.
 *
 * Gradients and the step are the pass of model/schedule/schedule_states.h.  Parameters are not: _unshard() moves a shard where the unit is
 * gathered still, too, and no entry of a schedule without offload stands there. */
#include "model/lower/common/pinned.h"
#include "model/schedule/schedule_states.h"
#include "model/framework/torch_fsdp1/lower_fsdp1.h"

static int64_t bytes_of(const struct fsdp1 *f, enum unit_class c) { return f->size[c].shard * dtype_bytes(f->kept[c]); }

static void use(struct fsdp1 *f, struct at u, int what, int family) { sched_act(f->s, what, family, u.i, u.by); }

void fsdp1_offload_declare(struct fsdp1 *f, enum unit_class c)
{
    struct schedules *s = f->s;
    struct fsdp1_families *m = &f->fam[c];
    const char *of = c == UC_ROOT ? NULL : unit_class_name(c);
    int n = f->walk.map.of_class[c];
    int64_t bytes = bytes_of(f, c), states = f->size[c].optim_numel * dtype_bytes(f->kept[c]);

    m->shard     = sched_buf_in(s, SPACE_PINNED, CAT_PARAMS, "flat params", of, 0, n, pinned_bytes(bytes));
    m->optimizer = sched_buf_in(s, SPACE_HOST, CAT_OPTIMIZER, "exp_avg, exp_avg_sq", of, 0, n, 2 * states);
    m->cpu_grad  = sched_buf_in(s, SPACE_PINNED, CAT_GRADS, "_cpu_grad", of, 0, n, pinned_bytes(bytes));
    m->born      = sched_buf_in(s, SPACE_HOST, CAT_PARAMS, "shard before it is pinned", of, 0, n, bytes);
    m->zeros     = sched_buf_in(s, SPACE_HOST, CAT_GRADS, "zeros before they are pinned", of, 0, n, bytes);
    m->first     = sched_buf(s, CAT_TEMPORARIES, "shard as it is cut", of, 0, n, round512(bytes));
    for (int i = 0; i < 2; i++)
        m->staged[i] = sched_buf(s, CAT_ALL_GATHER, "shard on its way", of, 0, n, round512(bytes));
}

/* ---- parameters ---- */

void fsdp1_bring(struct fsdp1 *f, struct at u, enum phase phase, bool waits)
{
    const struct fsdp1_families *m = &f->fam[u.c];
    int64_t bytes = bytes_of(f, u.c);
    int way = phase == PHASE_BACKWARD;

    sched_set(f->s, STREAM_COPY_IN, phase, "shard to device", bytes, bytes)->after = waits ? AFTER(STREAM_COMPUTE) : 0;
    walk_name(&f->walk, u);
    use(f, u, ACT_R, m->shard);
    use(f, u, ACT_ALLOC | ACT_W, m->staged[way]);
    if (!fsdp1_casts(f, u.c))
        return;
    sched_set(f->s, STREAM_COPY_IN, phase, "cast shard", bytes, f->size[u.c].shard * dtype_bytes(f->r.used));
    walk_name(&f->walk, u);
    use(f, u, ACT_R | ACT_FREE, m->staged[way]);
    use(f, u, ACT_ALLOC | ACT_W, m->mp_shard[way]);
}

int fsdp1_brought(const struct fsdp1 *f, enum unit_class c, enum phase phase)
{
    int way = phase == PHASE_BACKWARD;

    return fsdp1_casts(f, c) ? f->fam[c].mp_shard[way] : f->fam[c].staged[way];
}

/* flat_param_to() makes the original parameters views of the copy, and unshard() leaves them so
 * (_use_unsharded_views(as_params=False)). */
bool fsdp1_holds_brought(const struct fsdp1 *f, enum unit_class c) { return f->rule.orig_params && !fsdp1_casts(f, c); }

/* _use_sharded_flat_param(): skip_use_sharded_views. */
static bool keeps_views(const struct fsdp1 *f, enum phase phase)
{
    enum fsdp1_sharding how = f->p->fsdp.sharding_strategy;

    return phase == PHASE_FORWARD && (how == FSDP1_SHARD_GRAD_OP || how == FSDP1_HYBRID_SHARD_ZERO2);
}

void fsdp1_drop_brought(struct fsdp1 *f, struct at u, enum phase phase)
{
    bool forwards = keeps_views(f, PHASE_FORWARD) && phase == PHASE_BACKWARD;

    sched_op(f->s, OP_MEMORY, STREAM_GATHER, phase, "gathered still")->after = AFTER(STREAM_COPY_IN);
    walk_name(&f->walk, u);
    if (!fsdp1_holds_brought(f, u.c))
        use(f, u, ACT_FREE, fsdp1_brought(f, u.c, phase));
    else if (forwards)
        use(f, u, ACT_FREE, fsdp1_brought(f, u.c, PHASE_FORWARD));
}

void fsdp1_release_brought(struct fsdp1 *f, struct at u, enum phase phase)
{
    if (keeps_views(f, phase))
        return;
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, phase, "parameters are the host's");
    walk_name(&f->walk, u);
    use(f, u, ACT_FREE, fsdp1_brought(f, u.c, phase));
}

/* ---- gradients ---- */

void fsdp1_offload(struct fsdp1 *f)
{
    struct states_part part[NUC];
    struct states_unit unit[NUC];
    struct states_away w = { .unit = unit, .held = true, .stays = true, .also = AFTER(STREAM_COMPUTE) };

    for (int c = 0; c < NUC; c++) {
        const struct fsdp1_families *m = &f->fam[c];
        if (f->walk.map.of_class[c] == 0 || !f->trains[c])
            continue;
        part[c] = (struct states_part){ .down = bytes_of(f, (enum unit_class)c), .trains = true };
        unit[w.nunits++] = (struct states_unit){ .params = -1, .born = -1, .brought = -1, .unsharded = -1, .sum = -1, .arrived = -1,
                                                 .grads = m->grads, .landing = m->grads, .home = m->cpu_grad, .part = &part[c], .nparts = 1 };
    }
    schedules_states_away(f->s, &w);
}

/* ---- the optimizer, and first weights ---- */

/* Bytes of the i-th tensor of AdamW's list; 0: not in this rank's shard, or frozen; -1: there is none.  With use_orig_params it is the
 * model's, else the FlatParameters that train, the root's first; `unit` goes through theirs. */
static int64_t listed(const struct fsdp1 *f, int i, int *unit)
{
    if (f->rule.orig_params)
        return i >= f->m->ntensors ? -1 : f->m->tensors[i].frozen ? 0 : flat_piece(&f->walk.map, i, &f->rule) * dtype_bytes(f->r.kept);
    if (fsdp1_adapters_apart(f))
        return i >= f->walk.map.n * f->walk.map.nadapters ? -1 : bytes_of(f, (enum unit_class)(UC_ADAPTER + i % f->walk.map.nadapters));
    if (i > f->walk.map.n)
        return -1;
    if (i == 0)
        return bytes_of(f, UC_ROOT);
    *unit = unit_registered_after(&f->walk.map, *unit);
    return bytes_of(f, unit_at(&f->walk.map, *unit).cls);
}

/* _single_tensor_adam: (exp_avg_sq.sqrt() / c).add_(eps) makes two tensors of a parameter while the name `denom` still
 * holds the one before's. */
int64_t fsdp1_loop_bytes(const struct fsdp1 *f)
{
    int64_t before = 0, most = 0, bytes;
    int unit = -1;

    for (int i = 0; (bytes = listed(f, i, &unit)) >= 0; i++) {
        if (bytes == 0)
            continue;
        most = before + 2 * bytes > most ? before + 2 * bytes : most;
        before = bytes;
    }
    return most;
}

void fsdp1_shard_to_host(struct fsdp1 *f, struct at u)
{
    int64_t bytes = bytes_of(f, u.c);

    sched_set(f->s, STREAM_COMPUTE, PHASE_INIT, "shard to host", bytes, bytes);
    walk_name(&f->walk, u);
    use(f, u, ACT_R | ACT_FREE, f->fam[u.c].first);
    use(f, u, ACT_ALLOC | ACT_W, f->fam[u.c].born);
    sched_op(f->s, OP_WAIT, STREAM_ISSUE, PHASE_INIT, "pageable copy")->after = AFTER(STREAM_COMPUTE);
}

static void pin_one(struct fsdp1 *f, struct at u)
{
    const struct fsdp1_families *m = &f->fam[u.c];
    int64_t bytes = bytes_of(f, u.c);

    sched_set(f->s, STREAM_HOST, PHASE_INIT, "pin shard", bytes, bytes);
    walk_name(&f->walk, u);
    use(f, u, ACT_R, m->born);
    use(f, u, ACT_ALLOC | ACT_W, m->shard);
    sched_copy(f->s, STREAM_HOST, PHASE_INIT, "zeros", 0, bytes);
    walk_name(&f->walk, u);
    sched_does(f->s, COPY_ZERO, 1);
    use(f, u, ACT_ALLOC | ACT_W, m->zeros);
    sched_set(f->s, STREAM_HOST, PHASE_INIT, "pin zeros", bytes, bytes);
    walk_name(&f->walk, u);
    use(f, u, ACT_R | ACT_FREE, m->zeros);
    use(f, u, ACT_ALLOC | ACT_W, m->cpu_grad);
}

/* Pageable shards go when each unit's name is bound to its copy on the device, early in the first forward. */
void fsdp1_pin(struct fsdp1 *f)
{
    struct schedules *s = f->s;

    pin_one(f, walk_root);
    if (model_is_uneven(f->m)) {
        for (int i = unit_registered_after(&f->walk.map, -1); i >= 0; i = unit_registered_after(&f->walk.map, i))
            pin_one(f, walk_at(&f->walk, i, 0));
    } else if (f->walk.map.n > 0) {
        sched_repeat(s, f->walk.map.n);
        pin_one(f, (struct at){ .c = UC_FULL, .by = 1 });
        for (int i = 0; i < f->walk.map.nadapters; i++)
            pin_one(f, (struct at){ .c = (enum unit_class)(UC_ADAPTER + i), .by = 1 });
        sched_repeat_end(s);
    }
    sched_op(s, OP_MEMORY, STREAM_HOST, PHASE_INIT, "drop pageable shards");
    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0)
            sched_act_all(s, ACT_FREE, f->fam[c].born);
    sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_INIT, "weights on the host")->after = AFTER(STREAM_HOST);
}
