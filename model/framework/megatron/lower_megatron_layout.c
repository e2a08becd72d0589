/* lower_megatron_layout.c -- Megatron-LM's contiguous buffers.
 *
 * Sources (megatron-core 0.16.1): distributed/param_and_grad_buffer.py, _ParamAndGradBuffer; distributed_data_parallel.py;
 * optimizer/distrib_optimizer.py, _build_model_gbuf_range().  Parameters lie in reverse order of registration.  With the
 * distributed optimizer each begins at a multiple of 64 elements, each bucket ends at one of lcm(ranks, 128) (and 65536), and a rank
 * has an equal run of every bucket; parameters then are views of a buffer of the same layout, those in 8 bits of one of their own.
 * Without it nothing is filled up. */
#include "model/framework/megatron/lower_megatron.h"

#include <stdlib.h>

#include "base/room.h"
#include "model/program/te_model.h"

bool megatron_has(const struct mega_chunk *c, const struct tensor *t)
{
    return t->block == TENSOR_EMBED ? c->embeds : t->block == TENSOR_HEAD ? c->heads : t->block >= c->from && t->block < c->to;
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static int64_t lcm(int64_t a, int64_t b) { return a / gcd(a, b) * b; }

/* Of the two kinds of parameters: --expert-model-parallel-size gives experts a buffer of their own. */
bool megatron_shares_out(const struct mega *z, int tensor)
{
    return z->p->parallel.expert > 1 && role_is_of_experts(z->m->tensors[tensor].role);
}

int64_t megatron_ranks(const struct mega *z, const struct mega_bucket *b)
{
    return b->experts ? z->local->expert_data_ranks : z->sharded ? z->local->shard_ranks : z->local->data_ranks;
}

static int64_t rank_of(const struct mega *z, const struct mega_bucket *b)
{
    return b->experts ? z->local->expert_data_rank : z->local->shard_rank;
}

static int64_t bucket_end(const struct mega *z, const struct mega_bucket *b, int64_t at)
{
    int64_t divisor = lcm(megatron_ranks(z, b), 128);

    if (z->p->megatron.ddp_pad_buckets_for_high_nccl_busbw)
        divisor = lcm(divisor, 1 << 16);
    return z->sharded ? round_up(at, divisor) : at;
}

/* A tied embedding of a pipeline's ends is sharded alike on both (shared_embedding). */
static bool alone(const struct mega *z, int tensor)
{
    return z->sharded && z->local->partial[tensor] & MESH_AXIS(AXIS_PIPE);
}

/* A buffer that is being laid out: it begins at `base`. */
struct mega_layout { const struct mega *z; struct mega_chunk *c; int64_t limit, base, at; bool codes, experts; };

static struct mega_bucket *open_bucket(struct mega_layout *l) { return &l->c->bucket[l->c->nbuckets]; }

static void close_bucket(struct mega_layout *l)
{
    struct mega_bucket *b = open_bucket(l);

    b->codes = l->codes;
    b->experts = l->experts;
    l->at = b->to = l->base + bucket_end(l->z, b, l->at - l->base);
    l->c->nbuckets++;
    open_bucket(l)->from = l->at;
}

static void put(struct mega_layout *l, int tensor, int64_t numel)
{
    struct mega_chunk *c = l->c;
    bool apart = alone(l->z, tensor);

    l->at = l->z->sharded ? l->base + round_up(l->at - l->base, 64) : l->at;
    if (apart && open_bucket(l)->tensors > 0)
        close_bucket(l);
    if (c->of[tensor] < 0)
        c->of[tensor] = c->nbuckets;
    if (c->last[tensor] != c->nbuckets)
        open_bucket(l)->tensors++;
    c->last[tensor] = c->nbuckets;
    c->param[c->nparams++] = (struct mega_param){ tensor, c->nbuckets, l->at, numel };
    l->at += numel;
    if ((l->limit > 0 && l->at - open_bucket(l)->from >= l->limit) || apart)
        close_bucket(l);
}

static bool has_codes(const struct mega *z, int tensor) { return z->codes && te_is_cast(z->p, &z->m->tensors[tensor]); }

/* The i-th tensor that GPTModel registers: with multi-token prediction a last stage's embedding is the first. */
static int registered(const struct mega *z, int i)
{
    int last = z->m->ntensors - 1;
    bool copy = z->m->mtp > 0 && last > 0 && z->m->tensors[last].block == TENSOR_HEAD && z->local->partial[last] & MESH_AXIS(AXIS_PIPE);

    return !copy ? i : i == 0 ? last : i - 1;
}

/* One of the chunk's buffers, behind the one before.  Each expert's matrix is a parameter (TEGroupedLinear: weight0, weight1 ...). */
static void lay_out_buffer(struct mega_layout *l, bool codes, bool experts)
{
    l->base = experts ? l->at : 0;
    l->codes = codes;
    l->experts = experts;
    for (int i = l->z->m->ntensors - 1; i >= 0; i--) {
        int t = registered(l->z, i);
        const struct tensor *x = &l->z->m->tensors[t];
        int64_t n = te_weights(x);

        if (x->frozen || !megatron_has(l->c, x) || megatron_shares_out(l->z, t) != l->experts || has_codes(l->z, t) != l->codes)
            continue;
        for (int64_t k = 0; k < n; k++)
            put(l, t, x->numel / n);
    }
    if (open_bucket(l)->tensors > 0)
        close_bucket(l);
}

/* Of experts that ranks share out, or of all else: what is in 8 bits, then the rest, whose buckets go with the last of these
 * (partition_buckets()). */
static void lay_out_buffers(struct mega_layout *l, bool experts)
{
    struct mega_chunk *c = l->c;
    int64_t from = l->at;
    int first = c->nbuckets;

    lay_out_buffer(l, true, experts);
    int last = c->nbuckets - 1;
    c->codes += l->at - from;
    lay_out_buffer(l, false, experts);
    for (int b = first; b < c->nbuckets; b++) {
        c->bucket[b].lead = b > last && last >= first ? last : b;
        c->bucket[c->bucket[b].lead].led += c->bucket[b].tensors;
        c->bucket[c->bucket[b].lead].end = b + 1;
    }
}

static void lay_out(const struct mega *z, struct mega_chunk *c, int64_t limit)
{
    struct mega_layout l = { .z = z, .c = c, .limit = limit };

    for (int t = 0; t < z->m->ntensors; t++)
        c->of[t] = c->last[t] = -1;
    c->codes = 0;
    lay_out_buffers(&l, false);
    lay_out_buffers(&l, true);
    c->numel = l.at;
}

static int64_t params_of(const struct mega *z)
{
    int64_t n = 1;

    for (int t = 0; t < z->m->ntensors; t++)
        n += te_weights(&z->m->tensors[t]);
    return n;
}

/* Elements of a parameter that this rank's optimizer has: its run of the bucket. */
int64_t megatron_own(const struct mega *z, const struct mega_chunk *c, const struct mega_param *p)
{
    const struct mega_bucket *b = &c->bucket[p->bucket];
    int64_t shard = (b->to - b->from) / megatron_ranks(z, b), from = b->from + rank_of(z, b) * shard;
    int64_t begin = p->at, end = begin + p->numel;

    if (!z->sharded)
        return p->numel;
    begin = begin > from ? begin : from;
    end = end < from + shard ? end : from + shard;
    return end > begin ? end - begin : 0;
}

/* Of a tensor that DistributedDataParallel leaves as it is: a parameter in 8 bits has its rows there, mxfp8's are elsewhere (te_weight_bytes()). */
static int64_t frozen_bytes(const struct mega *z, const struct mega_chunk *c, int tensor)
{
    const struct tensor *x = &z->m->tensors[tensor];

    if (!x->frozen || !megatron_has(c, x))
        return 0;
    if (!has_codes(z, tensor))
        return round512(x->numel * dtype_bytes(z->r.kept));
    return plan_scaled(z->p) == SCALED_MXFP8 ? 0 : round512(dtype_scaled_bytes(plan_scaled(z->p), x->numel));
}

static void declare_frozen(struct mega *z, struct mega_chunk *c, const char *of, int index)
{
    int64_t bytes = 0;

    for (int t = 0; t < z->m->ntensors; t++)
        bytes += frozen_bytes(z, c, t);
    c->frozen = bytes == 0 ? -1 : sched_buf(z->s, CAT_PARAMS, "frozen params", of, index, 1, bytes);
    for (int t = 0; t < z->m->ntensors && c->frozen >= 0; t++)
        if (frozen_bytes(z, c, t) > 0)
            sched_part(z->s, c->frozen, frozen_bytes(z, c, t));
}

static void declare_chunk(struct mega *z, struct mega_chunk *c, int index)
{
    const char *of = z->nchunks > 1 ? "chunk" : NULL;
    int64_t e = dtype_bytes(z->r.kept), bytes = 0;

    for (int q = 0; q < c->nparams; q++)
        bytes += round512(c->param[q].numel * e);
    int64_t codes = plan_scaled(z->p) == SCALED_MXFP8 ? 0 : dtype_scaled_bytes(plan_scaled(z->p), c->codes);
    c->params = sched_buf(z->s, CAT_PARAMS, z->sharded ? "param buffer" : "params", of, index, 1,
                          z->sharded ? round512(codes) + round512((c->numel - c->codes) * e) : bytes);
    for (int q = 0; q < c->nparams && !z->sharded; q++)
        sched_part(z->s, c->params, round512(c->param[q].numel * e));
    declare_frozen(z, c, of, index);
    c->grads = sched_buf(z->s, CAT_GRADS, "grad buffer", of, index, 1, round512(c->numel * dtype_bytes(z->r.grad)));
    for (int b = 0, q = 0; b < c->nbuckets; b++) {          /* parameters lie in the order of buckets */
        int64_t numel = 0, all = c->bucket[b].to - c->bucket[b].from;
        for (; q < c->nparams && c->param[q].bucket == b; q++)
            numel += c->param[q].numel;
        sched_unit(z->s, "bucket", b, numel, all, z->sharded ? all / megatron_ranks(z, &c->bucket[b]) : all);
        c->gathered[b] = z->p->megatron.overlap_param_gather ? sched_event(z->s) : 0;
    }
}

/* Buckets only where reductions are on the critical path: on the pipeline's first rank, of its first chunk. */
static int64_t limit_of(const struct mega *z, int chunk)
{
    bool first = stage_pipeline(z->p, z->local->rank).rank == 0;

    return z->p->megatron.overlap_grad_reduce && first && chunk == 0 ? z->p->megatron.ddp_bucket_size : 0;
}

static void open_chunk(struct mega *z, struct mega_chunk *c, int index)
{
    size_t n = (size_t)z->m->ntensors + 1, params = (size_t)params_of(z);

    c->of = room_new(n, sizeof *c->of);
    c->last = room_new(n, sizeof *c->last);
    c->param = room_new(params, sizeof *c->param);
    c->bucket = room_new(params + 3, sizeof *c->bucket);
    lay_out(z, c, limit_of(z, index));
    n = (size_t)c->nbuckets + 1;
    c->pending = room_new(n, sizeof *c->pending);
    c->reducing = room_new(n, sizeof *c->reducing);
    c->gathering = room_new(n, sizeof *c->gathering);
    c->gathered = room_new(n, sizeof *c->gathered);
}

static void declare_partial(struct mega *z)
{
    for (int t = 0; t < z->m->ntensors; t++)
        z->partial += !z->m->tensors[t].frozen && z->local->partial[t] & MESH_AXIS(AXIS_TENSOR) ? z->m->tensors[t].numel : 0;
    z->sums = z->partial == 0 ? -1 : sched_buf(z->s, CAT_BUCKET, "sums over tensor-parallel ranks", NULL, 0, 1,
                                               round512(z->partial * dtype_bytes(z->r.grad)));
}

void megatron_open(struct mega *z)
{
    struct pipeline pipe = stage_pipeline(z->p, z->local->rank);
    int last = pipe.ranks * pipe.chunks - 1;

    z->nchunks = pipe.chunks;
    for (int c = 0, blocks = 0; c < z->nchunks; c++) {
        struct mega_chunk *of = &z->chunk[c];
        int stage = pipe.ranks > 1 ? pipeline_stage(&pipe, pipe.rank, c) : 0;
        *of = (struct mega_chunk){ .from = blocks, .embeds = stage == 0, .heads = pipe.ranks == 1 || stage == last };
        of->to = blocks += (int)z->local->share.chunk[c].blocks;
        open_chunk(z, of, c);
        declare_chunk(z, of, c);
        for (int q = 0; q < of->nparams; q++) {
            int64_t n = megatron_own(z, of, &of->param[q]);
            z->own_elems += n;
            z->own_codes += has_codes(z, of->param[q].tensor) ? n : 0;
        }
    }
    megatron_declare_states(z);
    z->weights = te_weight_bytes(z->local) > 0 ? sched_buf(z->s, CAT_PARAMS, "weights in 8 or 4 bits", NULL, 0, 1, te_weight_bytes(z->local)) : -1;
    z->scales = te_scale_bytes(z->local) > 0 ? sched_buf(z->s, CAT_BUCKET, "scales and their histories", NULL, 0, 1, round512(te_scale_bytes(z->local))) : -1;
    declare_partial(z);
    megatron_declare_deferred(z);
    lower_declare_activations(z->s, z->local, z->walk.acts);
}

void megatron_close(struct mega *z)
{
    for (int c = 0; c < z->nchunks; c++) {
        struct mega_chunk *of = &z->chunk[c];
        free(of->of);
        free(of->last);
        free(of->param);
        free(of->bucket);
        free(of->pending);
        free(of->reducing);
        free(of->gathering);
        free(of->gathered);
    }
}
