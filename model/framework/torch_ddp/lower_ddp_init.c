/* lower_ddp_init.c -- how DDP's ranks begin with the same model: _sync_module_states() broadcasts it in chunks. */
#include <stdlib.h>

#include "base/room.h"
#include "base/sort.h"
#include "model/arch/recorded.h"
#include "model/framework/torch_ddp/lower_ddp.h"

void ddp_param_slice(void *ddp, int tensor)
{
    struct ddp *d = ddp;
    const struct tensor *t = &d->m->tensors[tensor];

    if (t->packed != BASE_PLAIN && !t->is_bias)     /* its codes; what else is kept of it follows them */
        sched_slice(d->s, HOLDS_PARAM, DT_UINT8, tensor, 0, packed_codes(t), d->param_at[tensor]);
    else if (t->packed != BASE_PLAIN)               /* cast at the first forward: kept as it is then */
        sched_slice(d->s, HOLDS_PARAM, d->p->precision, tensor, 0, t->numel, d->param_at[tensor]);
    else
        sched_slice(d->s, HOLDS_PARAM, plan_kept(&d->r, t), tensor, 0, t->numel, d->param_at[tensor]);
}

void ddp_describe_buckets(struct ddp *d, const struct buckets *b, const int *order, int n, int bucket0,
                          enum holds h, int dt)
{
    int last = -1;

    for (int i = 0; i < n && d->s->detailed; i++) {
        int t = order[i];
        if (b->of[t] != last) {
            last = b->of[t];
            sched_holds(d->s, bucket0 + last, sched_layout(d->s, 0));
        }
        enum dtype of = (enum dtype)(dt < 0 ? d->dtype[t] : dt);
        sched_slice(d->s, h, of, t, 0, d->m->tensors[t].numel, b->at[t] * dtype_bytes(of));
    }
}

/* The parameters of one chunk where the model has them. */
static void chunk_of_params(struct ddp *d, int what, const struct buckets *b, int chunk)
{
    sched_act_as(d->s, what, d->params, 0, 0, sched_layout(d->s, 0));
    for (int t = 0; t < d->ntensors; t++)
        if (ddp_has(d, t) && b->of[t] == chunk)
            ddp_param_slice(d, t);
}

/* Made flat, broadcast by rank 0 and copied back: the chunk lies in buffer chunk0 + i. */
static void broadcast_chunk(struct ddp *d, const struct buckets *b, int chunk0, int i)
{
    int64_t bytes = b->numel[i] * dtype_bytes(d->r.kept);

    sched_set(d->s, STREAM_COMPUTE, PHASE_INIT, "flatten", bytes, bytes);
    chunk_of_params(d, ACT_R, b, i);
    sched_act(d->s, ACT_ALLOC | ACT_WRITE, chunk0 + i, 0, 0);
    sched_coll(d->s, STREAM_GROUP, PHASE_INIT, COLL_BROADCAST, GROUP_DATA, d->r.kept, RED_NONE,
               b->numel[i])->after = AFTER(STREAM_COMPUTE);
    sched_act(d->s, ACT_RW, chunk0 + i, 0, 0);
    sched_set(d->s, STREAM_COMPUTE, PHASE_INIT, "copy back", bytes, bytes)->after = AFTER(STREAM_GROUP);
    sched_act(d->s, ACT_R | ACT_FREE, chunk0 + i, 0, 0);
    chunk_of_params(d, ACT_W, b, i);
}

/* ---- tensors of several dtypes: a chunk has one (compute_bucket_assignment_by_size(): by dtype and device) ---- */

/* Tensors of one kind: enum dtype, or of a recorded buffer what struct rec_buffer says. */
struct chunk { int first; uint8_t kind; enum dtype dt; int64_t elems; };

/* What may be broadcast: parameters, then buffers; a family's buffers count as one. */
static int items(const struct ddp *d)
{
    return d->ntensors + (d->m->recorded ? (int)d->m->recorded->nbuffers : 1);
}

/* model.to(bfloat16) has converted buffers of floating point, too. */
static struct chunk chunk_of_buffer(const struct ddp *d, int i)
{
    const struct rec_buffer *b = &d->m->recorded->buffer[i - d->ntensors];
    bool real = b->kind == DT_FP32 || b->kind == DT_FP16 || b->kind == DT_FP64 || b->kind == DT_BF16;

    if (real && d->r.kept != DT_FP32)
        return (struct chunk){ i, d->r.kept, d->r.kept, b->elems };
    return (struct chunk){ i, b->kind, (enum dtype)b->sent, b->elems };
}

/* The codes of packed weights are what a module registers: bytes. */
static struct chunk chunk_of(const struct ddp *d, int tensor)
{
    const struct tensor *t = &d->m->tensors[tensor];

    if (tensor >= d->ntensors && d->m->recorded)
        return chunk_of_buffer(d, tensor);
    if (tensor == d->ntensors)                  /* the model's buffers */
        return (struct chunk){ tensor, DT_FP32, DT_FP32, d->module_buffers };
    if (t->packed != BASE_PLAIN && !t->is_bias)
        return (struct chunk){ tensor, DT_UINT8, DT_UINT8, packed_codes(t) };
    enum dtype dt = plan_kept(&d->r, t);
    return (struct chunk){ tensor, (uint8_t)dt, dt, t->numel };
}

static int by_first(const void *a, const void *b)
{
    return ((const struct chunk *)a)->first - ((const struct chunk *)b)->first;
}

/* The chunk's tensors side by side, from `buf` on; and where the model has them. */
static void describe_chunk(struct ddp *d, const struct chunk *c, const int *of, int buf)
{
    int64_t at = 0;

    sched_holds(d->s, buf, sched_layout(d->s, 0));
    for (int t = 0; t < d->ntensors; t++)
        if (of[t] == c->first) {
            struct chunk one = chunk_of(d, t);
            sched_slice(d->s, HOLDS_PARAM, c->dt, t, 0, one.elems, at);
            at += one.elems * dtype_bytes(c->dt);
        }
}

static int chunk_where_it_is(struct ddp *d, const struct chunk *c, const int *of)
{
    int layout = sched_layout(d->s, 0);

    for (int t = 0; t < d->ntensors; t++)
        if (of[t] == c->first)
            ddp_param_slice(d, t);
    return layout;
}

/* of[t]: the first tensor of the chunk that tensor t is in. */
static void broadcast_of(struct ddp *d, const struct chunk *c, const int *of)
{
    int64_t bytes = c->elems * dtype_bytes(c->dt);
    int buf = sched_buf(d->s, CAT_BUCKET, "broadcast chunk", NULL, 0, 1, round512(bytes)), here = 0;

    if (d->s->detailed) {
        describe_chunk(d, c, of, buf);
        here = chunk_where_it_is(d, c, of);
    }
    sched_set(d->s, STREAM_COMPUTE, PHASE_INIT, "flatten", bytes, bytes);
    sched_act_as(d->s, ACT_R, d->params, 0, 0, here);
    sched_act(d->s, ACT_ALLOC | ACT_WRITE, buf, 0, 0);
    sched_coll(d->s, STREAM_GROUP, PHASE_INIT, COLL_BROADCAST, GROUP_DATA, c->dt, RED_NONE, c->elems)->after = AFTER(STREAM_COMPUTE);
    sched_act(d->s, ACT_RW, buf, 0, 0);
    sched_set(d->s, STREAM_COMPUTE, PHASE_INIT, "copy back", bytes, bytes)->after = AFTER(STREAM_GROUP);
    sched_act(d->s, ACT_R | ACT_FREE, buf, 0, 0);
    sched_act_as(d->s, ACT_W, d->params, 0, 0, here);
}

/* Items [from, to) in chunks, in the order of their first items; of[i]: the first item of i's chunk.  How many. */
static int assign_chunks(const struct ddp *d, int from, int to, struct chunk *all, int *of)
{
    struct chunk open[REC_KINDS] = { 0 };
    int n = 0;

    for (int t = from; t < to; t++) {
        struct chunk c = chunk_of(d, t), *o = &open[c.kind];
        if (o->elems == 0)
            *o = (struct chunk){ t, c.kind, c.dt, 0 };
        of[t] = o->first;
        o->elems += c.elems;
        if (o->elems * dtype_bytes(c.dt) >= d->p->limits.ddp_broadcast) {
            all[n++] = *o;
            o->elems = 0;
        }
    }
    for (int i = 0; i < REC_KINDS; i++)
        if (open[i].elems > 0)
            all[n++] = open[i];
    sort_stable(all, (size_t)n, sizeof *all, by_first);
    return n;
}

static void broadcast_mixed(struct ddp *d, bool buffers)
{
    struct chunk *all = room_new((size_t)items(d) + REC_KINDS, sizeof *all);
    int *of = room_new((size_t)items(d) + 1, sizeof *of), n = assign_chunks(d, 0, buffers ? items(d) : d->ntensors, all, of);

    for (int i = 0; i < n; i++)
        broadcast_of(d, &all[i], of);
    free(all);
    free(of);
}

static bool is_mixed(const struct ddp *d)
{
    return d->r.frozen != d->r.kept || d->p->train.base != BASE_PLAIN || d->m->recorded;
}

/* A family's are of one dtype. */
void ddp_sync_buffers(struct ddp *d)
{
    struct chunk *all = room_new((size_t)items(d) + REC_KINDS, sizeof *all);
    int *of = room_new((size_t)items(d) + 1, sizeof *of), n = assign_chunks(d, d->ntensors, items(d), all, of);

    for (int i = 0; i < n; i++)
        ddp_tell(d, PHASE_FORWARD, COLL_BROADCAST, d->m->recorded ? all[i].dt : d->r.kept, RED_NONE, all[i].elems)->after = AFTER(STREAM_COMPUTE);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "await buffers")->after = AFTER(STREAM_GROUP);
    free(all);
    free(of);
}

/* _sync_module_states: parameters, then buffers, in chunks of 250 MiB. */
void ddp_broadcast_model(struct ddp *d)
{
    int64_t limit[2] = { d->p->limits.ddp_broadcast, d->p->limits.ddp_broadcast };
    int64_t e = dtype_bytes(d->r.kept);
    int *registered = calloc((size_t)d->ntensors + 1, sizeof *registered), chunk0 = d->s->nbufs, n = 0;
    /* broadcast_buffers=False leaves them out, unless forward_sync_buffers replaces it. */
    int64_t buffers = d->p->ddp.broadcast_buffers || d->p->ddp.forward_sync_buffers >= 0 ? d->module_buffers : 0;
    struct buckets b;

    if (!registered)
        abort();
    if (is_mixed(d)) {
        broadcast_mixed(d, buffers > 0);
        free(registered);
        return;
    }
    for (int t = 0; t < d->ntensors; t++)
        if (ddp_has(d, t))
            registered[n++] = t;
    buckets_assign(d->m, registered, n, e, limit, &b);
    if (buffers > 0 && b.numel[b.n - 1] * e >= limit[0])
        b.n++;                      /* the parameters closed their last chunk */
    b.numel[b.n - 1] += buffers;
    for (int i = 0; i < b.n; i++)
        sched_holds(d->s, sched_buf(d->s, CAT_BUCKET, "broadcast chunk", NULL, 0, 1, round512(b.numel[i] * e)),
                    sched_layout(d->s, 0));
    ddp_describe_buckets(d, &b, registered, n, chunk0, HOLDS_PARAM, (int)d->r.kept);
    for (int i = 0; i < b.n; i++)
        broadcast_chunk(d, &b, chunk0, i);
    buckets_free(&b);
    free(registered);
}
