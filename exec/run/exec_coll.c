/* exec_coll.c -- collectives: of buffers where they lie, or of the few numbers and tokens that
 * are not in buffers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "exec/run/executor_internal.h"

struct coll_task {
    struct executor *x;
    const struct op *op;
    struct comm *comm;
    struct coll_call call;
    enum coll_of of;
    int64_t iteration;
};

/* ---- numbers that are not in buffers ---- */

/* The squared norm of what this rank has, as the wire has it, and back: of gradients that no sum has, or, behind another
 * sum, that sum over one more group. */
static int run_norm(struct coll_task *c)
{
    struct executor *x = c->x;
    int64_t n = c->call.elems;
    double mine = x->norm_new ? x->norm_local : x->norm_sum, wide[1] = { mine };
    float *narrow = room_new((size_t)n, sizeof *narrow);
    bool fp64 = c->call.dtype == DT_FP64;
    int rc;

    for (int64_t i = 0; i < n; i++)
        narrow[i] = (float)(n == 1 ? mine : x->norm_of[i]);
    c->call.send = c->call.recv = fp64 ? (void *)wide : narrow;
    c->call.host = true;
    rc = comm_call(c->comm, &c->call);
    x->norm_sum = x->norm_new ? x->norm_sum : 0;
    for (int64_t i = 0; i < n; i++)
        x->norm_sum += fp64 ? wide[0] : (double)narrow[i];
    for (int64_t i = 0; i < n && n > 1; i++)
        x->norm_of[i] = (double)narrow[i];
    x->norm_local = 0;
    x->norm_new = false;
    free(narrow);
    return rc;
}

static int run_exact_norm(struct coll_task *c)
{
    int rc;

    c->call.send = c->call.recv = c->x->exact.limb;
    c->call.host = true;
    rc = comm_call(c->comm, &c->call);
    exact_carry(&c->x->exact);
    return rc;
}

static int run_overflow(struct coll_task *c)
{
    uint8_t flag = c->x->overflow;
    float number = flag;
    int rc;

    c->call.send = c->call.recv = c->call.dtype == DT_FP32 ? (void *)&number : &flag;
    c->call.host = true;
    rc = comm_call(c->comm, &c->call);
    c->x->overflow = c->call.dtype == DT_FP32 ? number > 0 : flag;
    return rc;
}

/* What frameworks tell each other to check that they agree; the batch and the losses where one
 * process drives all (each rank reads its own samples here): as many bytes of nothing. */
static int run_meta(struct coll_task *c)
{
    int64_t bytes = c->call.elems * dtype_bytes(c->call.dtype);
    char *scratch = room_new(2 * (size_t)bytes, 1);
    int rc;

    c->call.send = c->call.recv = scratch;
    c->call.host = true;
    if (c->call.op == COLL_ALL_GATHER)
        c->call.send = scratch + c->comm->rank * (bytes / c->comm->nranks);
    else if (c->call.op == COLL_REDUCE_SCATTER)
        c->call.recv = scratch + c->comm->rank * (bytes / c->comm->nranks);
    else if (c->call.op == COLL_SCATTER || c->call.op == COLL_GATHER || c->call.op == COLL_ALL_TO_ALL)
        c->call.recv = scratch + bytes;
    rc = comm_call(c->comm, &c->call);
    free(scratch);
    return rc;
}

static int run_coll(struct task *t)
{
    struct coll_task *c = t->self;

    if (guarded_off(c->x, c->op)) {
        c->x->guarded++;
        return 0;
    }
    struct exec_count *n = &c->x->count[c->call.op][c->op->u.coll.group][c->call.dtype];
    n->count++;                         /* messages of several lanes count at once: they are atomic */
    n->bytes += c->call.elems * dtype_bytes(c->call.dtype);
    switch (c->of) {
    case OF_NORM:     return c->call.dtype == DT_INT64 ? run_exact_norm(c) : run_norm(c);
    case OF_OVERFLOW: return run_overflow(c);
    case OF_AMAX:     return exec_amax_run(c->x, c->op, c->iteration, c->comm, &c->call);
    case OF_META: case OF_TOKENS: case OF_LOSS:
        return run_meta(c);
    case OF_BUFFERS: case OF_PLACES:
        break;
    }
    return comm_call(c->comm, &c->call);
}

/* ---- buffers, and what kernels hand to each other ---- */

static const struct act *act_with(const struct executor *x, const struct op *o, int bit)
{
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
        if (x->s->acts[k].what & bit)
            return &x->s->acts[k];
    return NULL;
}

static bool same_instance(const struct executor *x, const struct act *a, const struct act *b, int64_t iteration)
{
    return a->buf == b->buf && sched_instance(x->s, a, iteration) == sched_instance(x->s, b, iteration);
}

/* Chunk r of the full buffer is rank r's: in place it is enough to know where that begins. */
static void set_buffers(struct coll_task *c, int64_t from, int64_t to, bool in_place)
{
    int64_t bytes = c->call.elems * dtype_bytes(c->call.dtype);
    int64_t mine = c->comm ? c->comm->rank * (bytes / c->comm->nranks) : 0;

    if (in_place && c->call.op == COLL_ALL_GATHER)
        from = to + mine;
    else if (in_place && c->call.op == COLL_REDUCE_SCATTER)
        to = from + mine;
    c->call.send = arena_at(c->x->arena, from);
    c->call.recv = arena_at(c->x->arena, to);
}

static int find_buffers(struct coll_task *c, int64_t iteration)
{
    struct executor *x = c->x;
    const struct act *in = act_with(x, c->op, ACT_READ), *out = act_with(x, c->op, ACT_WRITE);
    int64_t from, to;

    if (!in)
        in = out;
    if (!out)
        out = in;
    if (!in)
        return fail("the schedule's %s \"%s\" names no buffer", coll_name(c->call.op), c->op->of ? c->op->of : "");
    from = act_region(x, in, iteration);
    to = act_region(x, out, iteration);
    if (from < 0 || to < 0)
        return fail("the schedule's %s moves gradients that are not contiguous", coll_name(c->call.op));
    set_buffers(c, from, to, same_instance(x, in, out, iteration));
    return 0;
}

static int find_places(struct coll_task *c, int64_t iteration)
{
    const struct op *o = c->op;
    int block = o->unit + o->unit_by * (int)iteration;
    int64_t from = executor_compute_place(c->x, o, block, (enum slot)o->u.coll.from);
    int64_t to = executor_compute_place(c->x, o, block, (enum slot)o->u.coll.into);

    if (from < 0 || to < 0)
        return fail("the schedule's %s of %s %d moves a slot that no kernel has filled", coll_name(c->call.op),
                    o->of ? o->of : "block", block);
    set_buffers(c, from, to, o->u.coll.from == o->u.coll.into);
    return 0;
}

static int find(struct coll_task *c, int64_t iteration)
{
    if (c->of == OF_PLACES)
        return find_places(c, iteration);
    return c->of == OF_BUFFERS && c->call.op != COLL_BARRIER ? find_buffers(c, iteration) : 0;
}

static const struct coll_part *parts_of(const struct schedules *s, const struct op *o)
{
    return o->u.coll.op == COLL_ALL_TO_ALL && o->u.coll.parts ? &s->coll_parts[o->u.coll.parts] : NULL;
}

/* Messages of one tag are of several micro-steps, and not all on one stream: MPI's tag tells them apart. */
static int tag_of(const struct executor *x, const struct op *o)
{
    if (!coll_is_message((enum coll_op)o->u.coll.op))
        return 0;
    return x->staged ? o->u.coll.tag * (int)x->steps + o->step : o->u.coll.tag;
}

int executor_issue_coll(struct executor *x, const struct op *o, int64_t iteration)
{
    struct coll_task *c = room_new(1, sizeof *c);
    enum coll_op op = (enum coll_op)o->u.coll.op;

    *c = (struct coll_task){ .x = x, .op = o, .comm = x->a.comm[o->u.coll.group],
                             .of = (enum coll_of)o->u.coll.of, .iteration = iteration };
    c->call = (struct coll_call){ .op = op, .dtype = (enum dtype)o->u.coll.dtype,
                                  .red = (enum red_op)o->u.coll.red, .algo = x->a.algo[op], .sum = x->a.sum,
                                  .elems = o->u.coll.elems, .root = o->u.coll.root,
                                  .tag = tag_of(x, o), .parts = parts_of(x->s, o),
                                  .stream = device_cuda_stream(x->d, (enum stream)o->stream) };
    if (find(c, iteration) < 0) {
        free(c);
        return -1;
    }
    if (x->lanes && !c->comm) {
        free(c);
        return fail("no communicator for the %s group", sched_group(x->s, o)->name);
    }
    executor_put(x, o, run_coll, c);
    return 0;
}
