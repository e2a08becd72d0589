/* lower_zero3.c -- DeepSpeed's stage 3: init, micro-steps, the step.  See
 * lower_zero3.h for the sources and the other files.
 *
 * The first micro-step of a run records the trace of modules: nothing is
 * prefetched, and even persistent parameters are released after use.  From the
 * second on the coordinator prefetches. */
#include "model/framework/deepspeed_3/lower_zero3.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"

/* ---- buffers ---- */

static int64_t part(const struct ds *d, const struct tensor *t) { return ceil_div(t->numel, ds_ranks_of(d, t)); }

static int64_t padded_bytes(const struct ds *d, const struct tensor *t)
{
    return round512(part(d, t) * ds_ranks_of(d, t) * d->e);
}

static int64_t partition_bytes(const struct ds *d, const struct tensor *t)
{
    return round512(part(d, t) * d->e);
}

/* The last tensor of its parameter group? */
static bool ends_group(const struct z3 *z, int i)
{
    return i + 1 == z->ntrained || z->belongs[z->trained[i + 1]] != z->belongs[z->trained[i]];
}

/* _create_fp16_sub_groups: each parameter group is cut when the partitions' sum reaches sub_group_size. */
static void make_groups(struct z3 *z)
{
    int64_t limit = z->d.p->ds.sub_group_size, sum = 0;
    int first = 0;

    for (int i = 0; i < z->ntrained; i++) {
        sum += z->q[z->trained[i]];
        if (!ends_group(z, i) && sum < limit)
            continue;
        struct z3_group *g = &z->groups[z->ngroups++];
        *g = (struct z3_group){ .first = first, .last = i + 1, .elems = sum, .managed = -1 };
        if (!z->away.states) {
            g->master = sched_buf(z->d.s, CAT_OPTIMIZER, "fp32 partition", NULL, 0, 1, round512(sum * 4));
            g->adam = ds_states(&z->d, sum, &g->managed);
            g->p.buf = g->master;
        }
        first = i + 1;
        sum = 0;
    }
}

static void declare(struct z3 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    bool stay = d->m->experts > 0 || recompute_whole(d->p->recompute) || z3_linear_saves_view(d) || d->m->recorded;
    int copies = stay && d->p->kernels != KERNELS_DPX ? 2 : 1;      /* see `which` */

    if (!z->away.params)
        z->lp = sched_buf(s, CAT_PARAMS, "partitioned parameters", NULL, 0, 1, round512(z->all_q * d->e));
    z->ipg = sched_buf(s, CAT_BUCKET, "gradient bucket", NULL, 0, 1,
                       round512(d->p->ds.reduce_bucket_size * d->ce));
    if (!z->away.states)
        z->grad_buffer = sched_buf(s, CAT_GRADS, "partitioned gradients", NULL, 0, 1,
                                   round512(z->all_q * dtype_bytes(z->accum)));
    ds_declare(d, &z->copy, CAT_UNSHARDED, "parameter", copies, ds_tensor_bytes);
    ds_declare(d, &z->padded, CAT_UNSHARDED, "gathered parameter", copies, padded_bytes);
    if (!z->away.params)
        ds_declare(d, &z->partition, CAT_PARAMS, z3_partition_name(z), 1, partition_bytes);
    z->partition.trained = true;
    ds_declare(d, &z->grads, CAT_UNSHARDED_GRADS, "gradient", 1, ds_tensor_bytes);
    z3_second_declare(z);
    z3_int4_declare(z);
    z3_away_declare(z);
    make_groups(z);
    z3_disk_declare(z);
    z3_files_declare(z);
    for (int i = 0; i < z->ngroups && (z->away.states || z->away.params); i++)
        z3_away_group(z, &z->groups[i]);
}

/* ---- init ---- */

static void broadcast(struct z3 *z, int t)
{
    ds_broadcast_tensor(&z->d, t);
    ds_act(&z->d, &z->copy, ACT_RW, t, 0);
}

/* Init._zero_init_param, parameter by parameter: broadcast (again), keep a slice. */
static void partition_all(struct z3 *z)
{
    struct ds *d = &z->d;

    for (int t = 0; t < d->m->ntensors; t++) {
        int64_t from, part = z3_part(z, t, &from);
        if (z->zero_init) {
            sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "initialise")->flags = OPF_LOAD;
            ds_act(d, &z->copy, ACT_ALLOC | ACT_W, t, 0);
        }
        broadcast(z, t);
        z3_second_keep(z, PHASE_INIT, t);
        if (z->away.params) {
            z3_has_file(z, t) ? z3_files_partition(z, t) : z3_away_partition(z, t);
            continue;
        }
        sched_set(d->s, STREAM_COMPUTE, PHASE_INIT, "partition", z->q[t] * d->e, z->q[t] * d->e);
        ds_act_part(d, &z->partition, ACT_ALLOC | ACT_W, t, from, part, 0);
        ds_act(d, &z->copy, ACT_R | ACT_FREE, t, 0);
    }
}

/* create_reduce_and_remove_grad_hooks: gathers each that trains to get at its accumulator. */
static void gather_each(struct z3 *z)
{
    struct ds *d = &z->d;

    for (int i = 0; i < z->ntrained && d->n > 1; i++) {
        int t = z->trained[i];
        if (z->away.params)
            z3_bring(z, STREAM_COMPUTE, PHASE_INIT, t);
        const struct z3_cut *cut = z3_cut_of(z, t);
        struct op *o = sched_coll(d->s, STREAM_GROUP, PHASE_INIT, COLL_ALL_GATHER, cut->among, d->dt, RED_NONE, z->q[t] * cut->n);
        o->after = AFTER(STREAM_COMPUTE);
        z3_fill(z, ACT_ALLOC | ACT_FREE, t);
        if (z->away.params)
            z3_use_here(z, ACT_FREE, t);
        z3_give_buffer(z, t);
    }
    if (d->n > 1)
        ds_synchronize(d, PHASE_INIT, "synchronize");
}

static enum group all_ranks(const struct z3 *z)
{
    return z->d.p->parallel.tensor > 1 ? GROUP_WORLD : GROUP_DATA;
}

static void barrier(struct z3 *z)
{
    sched_coll(z->d.s, STREAM_COMPUTE, PHASE_INIT, COLL_BARRIER, all_ranks(z), DT_FP32, RED_NONE, 0);
}

/* engine._broadcast_model; not for a model built under zero.Init. */
static void whole_model(struct z3 *z)
{
    struct ds *d = &z->d;

    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model to device")->flags = OPF_LOAD;
    ds_act_all(d, &z->copy, ACT_ALLOC | ACT_W);
    for (int t = 0; t < d->m->ntensors; t++)
        broadcast(z, t);
}

/* defragment(): the partitions of what trains go to the host and come back as one, the cache emptied between; frozen ones stay what they are.  No
 * buffer stands for the host's copy: what comes back is the initial weights, which the broadcasts made equal. */
static void flatten_partitions(struct z3 *z)
{
    struct ds *d = &z->d;

    if (z->away.params) {
        z3_away_flatten(z);
        return;
    }
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "partitions to host")->flags = OPF_EMPTIES;
    ds_act_all(d, &z->partition, ACT_FREE);
    sched_copy(d->s, STREAM_COMPUTE, PHASE_INIT, "partitions from host", 0,
               z->all_q * d->e)->flags = OPF_LOAD;
    sched_act(d->s, ACT_ALLOC | ACT_W, z->lp, 0, 0);
}

/* _create_fp32_partitions.  In fp32, too, it is a copy: sharing the slices is meant for that case, but its
 * condition compares a torch.device with a string, which are never equal. */
static void make_masters(struct z3 *z)
{
    struct ds *d = &z->d;

    if (z->away.states || z->away.params) {
        z3_away_masters(z);
        return;
    }
    for (int i = 0; i < z->ngroups; i++) {
        const struct z3_group *g = &z->groups[i];
        sched_set(d->s, STREAM_COMPUTE, PHASE_INIT, "fp32 partition", g->elems * d->e, g->elems * 4);
        sched_act_as(d->s, ACT_R, z->lp, 0, 0, g->part);
        sched_act_as(d->s, ACT_ALLOC | ACT_W, g->master, 0, 0, g->new_values);
    }
}

/* initialize_optimizer_states: its step on gradients of zero leaves nothing, for they are dropped. */
static void zero_gradients(struct z3 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    int64_t largest = 0;

    if (z->away.states) {
        z3_away_gradients(z);
        return;
    }
    for (int i = 0; i < z->ngroups; i++)
        largest = z->groups[i].elems > largest ? z->groups[i].elems : largest;
    sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "zero gradient", 0, largest * 4);
    sched_act(s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "fp32 gradient partition",
                                                  round512(largest * 4)), 0, 0);
    barrier(z);
    sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "zero gradients", 0, z->all_q * dtype_bytes(z->accum));
    sched_does(s, COPY_ZERO, 0);
    sched_act(s, ACT_ALLOC | ACT_W, z->grad_buffer, 0, 0);
    if (d->p->ds.contiguous_gradients)
        sched_act(s, ACT_ALLOC, z->ipg, 0, 0);
}

static void init(void *zero3)
{
    struct z3 *z = zero3;

    z3_files_pool(z);
    if (!z->zero_init)
        whole_model(z);
    partition_all(z);
    flatten_partitions(z);
    barrier(z);
    make_masters(z);
    barrier(z);
    zero_gradients(z);
    gather_each(z);
}

/* ---- micro-steps ---- */

/* assert_ints_same_as_other_ranks: each list's length, then (n) the list, from rank 0. */
static void compare_lists(struct z3 *z, int64_t n)
{
    for (int i = 0; i < 2; i++) {
        sched_coll(z->d.s, STREAM_COMPUTE, PHASE_FORWARD, COLL_BROADCAST, all_ranks(z), DT_INT64, RED_NONE, i ? n : 1);
        sched_moves(z->d.s, OF_META);
    }
    ds_synchronize(&z->d, PHASE_FORWARD, "compare traces");
}

/* What a micro-step starts from: which parameters are there, how held and where, and which have a secondary partition. */
static void snapshot(const struct z3 *z, uint8_t *to)
{
    for (int t = 0; t < z->d.m->ntensors; t++)
        to[t] = (uint8_t)(z->second.there[t] << 7 | (z->coord.status[t] == Z3_ABSENT ? 0 : 1 + z->held[t] + 4 * z->which[t]));
    z3_files_state(z, to + z->d.m->ntensors);
}

static size_t snapshot_bytes(const struct z3 *z) { return 2 * (size_t)z->d.m->ntensors + (size_t)z->files.pool.count; }

static void begin_forward(struct z3 *z)
{
    enum z3_mode was = z3_coord_begin(&z->coord);

    z->accumulates = !z->d.walk.first;
    z->nth = 0;
    z->fetched.n = z->reduced.n = 0;    /* the end of backward waits for all of them */
    z->next_event = 0;
    if (was == Z3_INVALID)
        compare_lists(z, 0);
    if (was == Z3_RECORD && z->d.walk.step == SCHED_FIRST && z->d.walk.number >= 0) {
        compare_lists(z, z->trace.nsteps);
        compare_lists(z, z->trace.nuses);
        compare_lists(z, z->trace.nuses);
    }
}

static void begin_pass(void *zero3)
{
    struct z3 *z = zero3;
    struct walk *w = &z->d.walk;

    w->cuts = true;
    w->fate = w->forward ? GRADS_IN_PLACE : GRADS_KEEP;
    if (!w->forward) {
        z->boundary = w->last;
        return;
    }
    snapshot(z, z->before);
    z->recorded = z->coord.mode == Z3_COMPLETE;
    begin_forward(z);
}

/* Hooks of modules around the last piece. */
static void post_forward(void *zero3, struct at root)
{
    struct z3 *z = zero3;

    (void)root;
    z3_run_events(z, z->trace.backward);
}

/* independent_gradient_partition_epilogue. */
static void post_backward(void *zero3, struct at root)
{
    struct z3 *z = zero3;

    (void)root;
    z3_run_events(z, z->trace.nevents);
    z3_flush(z);
    sched_op(z->d.s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "await reductions")->after = AFTER(z->reduce_stream);
    z3_coord_end(&z->coord);
}

/* From a micro-step that ends as it began on, all are alike. */
static void end_of_micro_step(void *zero3)
{
    struct z3 *z = zero3;
    struct walk *w = &z->d.walk;
    int64_t left = z->d.p->accumulation - w->number - 1;

    snapshot(z, z->after);
    w->apart = z->recorded && memcmp(z->before, z->after, snapshot_bytes(z)) == 0 && left > (z->away.states ? 2 : 1) ? 0 : z->d.p->accumulation;
    if (w->step == SCHED_FIRST && w->apart == 0)
        memcpy(z->repeated, z->before, snapshot_bytes(z));
}

/* Views of flat buffers that stay from one micro-step to the next are in other ones by now. */
static bool comes_again(void *zero3)
{
    struct z3 *z = zero3;

    snapshot(z, z->after);
    return !z->by_all_reduce && memcmp(z->repeated, z->after, snapshot_bytes(z)) == 0;
}

/* ---- the whole ---- */

static void begin(void *zero3)
{
    struct z3 *z = zero3;

    z->d.walk.apart = z->d.p->accumulation;
}

static void end_of_backward(void *zero3) { z3_coord_release_all(&((struct z3 *)zero3)->coord); }

static void optimizer(void *zero3)
{
    struct z3 *z = zero3;

    z3_step(z, z->d.walk.step == SCHED_FIRST);
    z3_gather_persistent(z);
    z3_second_drop(z);
}

static const struct walk_hooks hooks = {
    .init = init, .begin = begin, .end_of_backward = end_of_backward, .optimizer = optimizer, .begin_pass = begin_pass,
    .end_of_micro_step = end_of_micro_step, .comes_again = comes_again, .post_forward = post_forward, .post_backward = post_backward, .pass = z3_pass,
    .compute = z3_compute, .grads = CAT_UNSHARDED_GRADS,
};

static int allocate(struct z3 *z)
{
    size_t n = (size_t)z->d.m->ntensors + 1;

    z->q = calloc(2 * n, sizeof *z->q);
    z->held = calloc(5 * n, 1);
    z->grad_live = z->held ? z->held + n : NULL;
    z->which = z->held ? z->held + 2 * n : NULL;
    z->kept = z->held ? z->held + 3 * n : NULL;
    z->data_saved = z->held ? z->held + 4 * n : NULL;
    z->gather_of = calloc(5 * n, sizeof *z->gather_of);
    z->bucket = z->gather_of ? z->gather_of + n : NULL;
    z->belongs = z->gather_of ? z->gather_of + 2 * n : NULL;
    z->kept_gather = z->gather_of ? z->gather_of + 3 * n : NULL;
    z->apart = z->gather_of ? z->gather_of + 4 * n : NULL;
    z->groups = calloc(n, sizeof *z->groups);
    z->begin = z->q ? z->q + n : NULL;
    z->trained = calloc(2 * n, sizeof *z->trained);
    z->place = z->trained ? z->trained + n : NULL;
    return z->q && z->trained && z->held && z->gather_of && z->groups ? 0 : fail("out of memory for stage 3");
}

/* A parameter group after the other, as their sub-groups have them. */
static void order_tensors(struct z3 *z)
{
    const struct model *m = z->d.m;
    int groups = ds_parameter_groups(z->d.p, m, z->belongs);

    for (int g = 0; g < groups; g++)
        for (int t = 0; t < m->ntensors; t++) {
            if (z->belongs[t] != g)
                continue;
            z->begin[t] = z->all_q;
            z->q[t] = part(&z->d, &m->tensors[t]);
            z->place[t] = -1;
            if (m->tensors[t].frozen)
                continue;
            z->place[t] = z->ntrained;
            z->trained[z->ntrained++] = t;
            z->all_q += z->q[t];
        }
}

static int setup(struct z3 *z, const struct local_model *local, struct schedules *s)
{
    const struct plan *p = local->plan;
    struct z3_calls calls = { .arg = z, .gather = z3_gather, .gather_now = z3_gather_now, .await = z3_await, .ready = z3_ready,
                              .release = z3_release };

    z->singles.free = -1;
    z->release_op = -1;
    if (ds_init(&z->d, local, s, &hooks) < 0 || allocate(z) < 0)
        return -1;
    z->cut = (struct z3_cut){ .n = z->d.n, .rank = z->d.rank, .times = 1, .among = GROUP_DATA };
    z->expert_cut = (struct z3_cut){ .n = local->expert_data_ranks, .rank = local->expert_data_rank, .times = 1, .among = GROUP_EXPERT_DATA };
    z3_second_setup(z);
    z3_int4_setup(z);
    z->overlap = p->ds.overlap_comm;
    z->sequential = p->ds.stage3_allgather_sequential;
    z->by_all_reduce = p->ds.stage3_use_all_reduce_for_fetch_params && !z->sequential;
    z->gather_stream = z->overlap ? STREAM_GATHER : STREAM_COMPUTE;
    z->reduce_stream = z->overlap ? STREAM_REDUCE : STREAM_COMPUTE;
    for (int i = 0; i < NPIECE && recompute_whole(p->recompute); i++)
        if (piece_is_recomputed((enum piece_id)i))
            z->recomputed[i] = program_again(&s->program.piece[i]);
    z->accum = p->ds.grad_accum_fp32 ? DT_FP32 : z->d.dt;
    order_tensors(z);
    z3_away_setup(z);
    z3_int8_setup(z);
    z->d.walk.last_differs = z->away.states;
    declare(z);
    z3_describe(z);
    z->before = room_new(3 * snapshot_bytes(z), 1);
    z->after = z->before + snapshot_bytes(z);
    z->repeated = z->after + snapshot_bytes(z);
    /* A model that no device holds whole can only have been built under zero.Init. */
    z->zero_init = p->ds.zero_init || ds_sum(&z->d, ds_tensor_bytes) + z->d.frozen_bytes > cluster_available(&p->cluster);
    for (int i = 0; i < 8; i++) {
        z->fetched.event[i] = sched_event(s);
        z->reduced.event[i] = sched_event(s);
    }
    for (int t = 0; t < z->d.m->ntensors; t++)
        sched_unit(s, "parameter", t, z3_numel(z, t), z->q[t] * z3_cut_of(z, t)->n, z->q[t]);
    if (z3_trace_build(&z->d, &z->trace) < 0)
        return -1;
    z3_trace_hooks(&z->trace, s->module_hooks);
    if (z->files.on) {
        calls.absent = z3_is_absent;
        calls.buffers = z3_buffers_left;
        calls.read = z3_read_ahead;
    }
    if (z3_coord_init(&z->coord, local, &z->trace, calls, z->sequential ? 1 : p->ds.stage3_prefetch_bucket_size) < 0)
        return -1;
    for (int t = 0; t < z->d.m->ntensors; t++)
        if (z->coord.persistent[t] && z3_on_disk(z, t))
            z3_disk_refuse(z, "deepspeed.stage3_param_persistence_threshold: persistent parameters with a file are not followed");
    return 0;
}

static void tear_down(struct z3 *z)
{
    ds_free(&z->d);
    ds_undeclare(&z->copy);
    ds_undeclare(&z->padded);
    ds_undeclare(&z->partition);
    ds_undeclare(&z->grads);
    z3_second_free(z);
    z3_int4_free(z);
    z3_away_free(z);
    z3_trace_free(&z->trace);
    z3_coord_free(&z->coord);
    for (int i = 0; i < z->ngathers; i++)
        free(z->gathers[i].tensors);
    free(z->gathers);
    free(z->lists);
    free(z->kinds);
    free(z->q);
    free(z->trained);
    free(z->held);
    free(z->gather_of);
    free(z->groups);
    free(z->before);
}

int lower_zero3(const struct local_model *local, struct schedules *s)
{
    struct z3 z = { 0 };
    int rc;

    s->hooks = HOOKS_OF_PARAMETERS;
    rc = setup(&z, local, s);
    if (rc == 0) {
        rc = walk_steps(&z.d.walk);
        if (rc == 0 && z.disk.why[0])
            rc = fail("%s", z.disk.why);
        if (z.zero_init && !local->plan->ds.zero_init)
            sched_note(s, "the model does not fit whole: taken as built under zero.Init");
        if (z.zero_init && local->plan->parallel.expert > 1)
            sched_note(s, "under zero.Init AutoEP gathers the experts of a block whole on every rank, block by block, before they are shared "
                          "out: not in the schedule");
        sched_note(s, "the first micro-step records the order of modules: nothing is prefetched in it");
        if (local->plan->accumulation == 1)
            sched_note(s, "the second step also compares that order among the ranks (six small broadcasts, "
                          "not shown)");
        sched_note(s, "stage3_max_live_parameters bounds prefetching only: what is needed is gathered");
        if (z3_linear_saves_view(&z.d) && local->plan->kernels != KERNELS_DPX && !recompute_whole(local->plan->recompute))
            sched_note(s, local->plan->parallel.tensor > 1 ?
                          "AutoTP's layers save views of their weights: what stage 3 gathers of them stays from forward to backward" :
                          "Falcon's layers save views of their weights: what stage 3 gathers of them stays from forward to backward");
        if (z.int8)
            sched_note(s, "changes the numerics: parameters are gathered in int8, by way of fp16: what exceeds 65504 becomes NaN, and its "
                          "group with it");
        if (z.int4.nodes > 0)
            sched_note(s, "changes the numerics: gradients of matrices are reduced in int4; DeepSpeed divides them by the nodes alone, not "
                          "by all ranks (dpxrun does), which clipping and SGD notice");
        if (z.int4.nodes > 0 && z.d.comm != DT_FP16)
            sched_note(s, "DeepSpeed's int4 kernels read gradients as fp16 by their bits: in bf16 or fp32 they come out wrong there (here "
                          "they are cast first): train in fp16");
        if (local->plan->ds.zero_quantized_gradients && z.int4.nodes == 0)
            sched_note(s, "zero_quantized_gradients does nothing on one node: DeepSpeed's gradients are codes between nodes only");
        if (local->plan->ds.zero_quantized_nontrainable_weights)
            sched_note(s, "zero_quantized_nontrainable_weights does nothing here: every parameter trains");
        if (z.second.on)
            sched_note(s, "DeepSpeed waits for the device at each parameter that gets a secondary partition: time in which nothing "
                       "is issued, once a parameter and step");
    }
    tear_down(&z);
    return rc;
}
