/* lower_megatron_layout.c -- Megatron-LM's contiguous buffers.
 *
 * Sources (megatron-core 0.16.1): distributed/param_and_grad_buffer.py, _ParamAndGradBuffer; distributed_data_parallel.py;
 * optimizer/distrib_optimizer.py, _build_model_gbuf_range().  Parameters lie in reverse order of registration.  With the
 * distributed optimizer each begins at a multiple of 64 elements, each bucket ends at one of lcm(ranks, 128) (and 65536), and a rank
 * has an equal run of every bucket; parameters then are views of a buffer of the same layout, those in 8 bits of one of their own.
 * Without it nothing is filled up. */
#include "model/lower/megatron/lower_megatron.h"

#include <stdlib.h>

#include "base/room.h"
#include "model/lower/common/optimizer.h"
#include "model/program/te_model.h"

bool megatron_has(const struct mega_chunk *c, const struct tensor *t)
{
    return t->block == TENSOR_EMBED ? c->embeds : t->block == TENSOR_HEAD ? c->heads : t->block >= c->from && t->block < c->to;
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static int64_t lcm(int64_t a, int64_t b) { return a / gcd(a, b) * b; }

static int64_t bucket_end(const struct mega *z, int64_t at)
{
    int64_t divisor = lcm(z->local->data_ranks, 128);

    if (z->p->megatron.ddp_pad_buckets_for_high_nccl_busbw)
        divisor = lcm(divisor, 1 << 16);
    return z->sharded ? round_up(at, divisor) : at;
}

/* A tied embedding of a pipeline's ends is sharded alike on both (shared_embedding). */
static bool alone(const struct mega *z, int tensor)
{
    return z->sharded && z->local->partial[tensor] & MESH_AXIS(AXIS_PIPE);
}

static void close_bucket(const struct mega *z, struct mega_chunk *c, int64_t *at)
{
    struct mega_bucket *b = &c->bucket[c->nbuckets++];

    *at = b->to = bucket_end(z, *at);
    c->bucket[c->nbuckets].from = *at;
}

static bool has_codes(const struct mega *z, int tensor) { return z->codes && te_is_cast(&z->m->tensors[tensor]); }

/* The buffer of parameters in 8 bits, or that of all others, behind *at.  `limit`: elements; 0: one bucket. */
static void lay_out_buffer(const struct mega *z, struct mega_chunk *c, int64_t limit, bool codes, int64_t *at)
{
    for (int t = z->m->ntensors - 1; t >= 0; t--) {
        struct mega_bucket *b = &c->bucket[c->nbuckets];
        if (!megatron_has(c, &z->m->tensors[t]) || has_codes(z, t) != codes)
            continue;
        *at = z->sharded ? round_up(*at, 64) : *at;
        if (alone(z, t) && b->tensors > 0) {
            close_bucket(z, c, at);
            b = &c->bucket[c->nbuckets];
        }
        c->of[t] = c->nbuckets;
        c->at[t] = *at;
        b->codes = codes;
        b->tensors++;
        *at += z->m->tensors[t].numel;
        if ((limit > 0 && *at - b->from >= limit) || alone(z, t))
            close_bucket(z, c, at);
    }
    if (c->bucket[c->nbuckets].tensors > 0)
        close_bucket(z, c, at);
}

static void lay_out(const struct mega *z, struct mega_chunk *c, int64_t limit)
{
    int64_t at = 0;
    int last;

    for (int t = 0; t < z->m->ntensors; t++)
        c->of[t] = -1;
    lay_out_buffer(z, c, limit, true, &at);
    c->codes = at;
    last = c->nbuckets - 1;
    lay_out_buffer(z, c, limit, false, &at);
    c->numel = at;
    for (int b = 0; b < c->nbuckets; b++) {
        c->bucket[b].lead = b > last && last >= 0 ? last : b;
        c->bucket[c->bucket[b].lead].led += c->bucket[b].tensors;
    }
}

/* Elements of a tensor that this rank's optimizer has: its run of the bucket. */
static int64_t own(const struct mega *z, const struct mega_chunk *c, int tensor)
{
    const struct mega_bucket *b = &c->bucket[c->of[tensor]];
    int64_t shard = (b->to - b->from) / z->local->data_ranks, from = b->from + z->local->data_rank * shard;
    int64_t begin = c->at[tensor], end = begin + z->m->tensors[tensor].numel;

    if (!z->sharded)
        return z->m->tensors[tensor].numel;
    begin = begin > from ? begin : from;
    end = end < from + shard ? end : from + shard;
    return end > begin ? end - begin : 0;
}

/* A family of allocations, `each` times `bytes` of an element for every tensor of which the rank has some; -1 where there are none. */
static int declare_own(struct mega *z, enum category cat, const char *what, int each, int64_t bytes)
{
    int64_t all = 0;
    int buf;

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1)
            buf = sched_buf(z->s, cat, what, NULL, 0, 1, all);
        for (int i = 0; i < z->nchunks; i++)
            for (int t = z->m->ntensors - 1; t >= 0; t--) {
                int64_t n = z->chunk[i].of[t] < 0 ? 0 : round512(own(z, &z->chunk[i], t) * bytes);
                for (int k = 0; k < each; k++)
                    if (pass == 0)
                        all += n;
                    else
                        sched_part(z->s, buf, n);
            }
    }
    return buf;
}

static void declare_chunk(struct mega *z, struct mega_chunk *c, int index)
{
    const char *of = z->nchunks > 1 ? "chunk" : NULL;
    int64_t e = dtype_bytes(z->r.kept), bytes = 0;

    for (int t = 0; t < z->m->ntensors; t++)
        bytes += c->of[t] < 0 ? 0 : round512(z->m->tensors[t].numel * e);
    int64_t codes = plan_scaled(z->p) == SCALED_MXFP8 ? 0 : scaled_bytes(plan_scaled(z->p), c->codes);
    c->params = sched_buf(z->s, CAT_PARAMS, z->sharded ? "param buffer" : "params", of, index, 1,
                          z->sharded ? round512(codes) + round512((c->numel - c->codes) * e) : bytes);
    for (int t = 0; t < z->m->ntensors && !z->sharded; t++)
        if (c->of[t] >= 0)
            sched_part(z->s, c->params, round512(z->m->tensors[t].numel * e));
    c->grads = sched_buf(z->s, CAT_GRADS, "grad buffer", of, index, 1, round512(c->numel * dtype_bytes(z->r.grad)));
    for (int b = 0; b < c->nbuckets; b++) {
        int64_t numel = 0, all = c->bucket[b].to - c->bucket[b].from;
        for (int t = 0; t < z->m->ntensors; t++)
            numel += c->of[t] == b ? z->m->tensors[t].numel : 0;
        sched_unit(z->s, "bucket", b, numel, all, z->sharded ? all / z->local->data_ranks : all);
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
    size_t n = (size_t)z->m->ntensors + 1;

    c->of = room_new(n, sizeof *c->of);
    c->at = room_new(n, sizeof *c->at);
    c->bucket = room_new(n + 1, sizeof *c->bucket);
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
        z->partial += z->local->partial[t] & MESH_AXIS(AXIS_TENSOR) ? z->m->tensors[t].numel : 0;
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
        for (int t = 0; t < z->m->ntensors; t++) {
            int64_t n = of->of[t] < 0 ? 0 : own(z, of, t);
            z->own_elems += n;
            z->own_codes += has_codes(z, t) ? n : 0;
        }
    }
    z->master = z->r.optimizer > 8 ? declare_own(z, CAT_OPTIMIZER, "fp32 parameters", 1, 4) : -1;
    z->moments = declare_own(z, CAT_OPTIMIZER, optimizer_states_title(z->p), 2, 4);
    z->wide = z->r.grad == DT_FP32 ? -1 : declare_own(z, CAT_TEMPORARIES, "fp32 gradients", 1, 4);
    z->weights = te_weight_bytes(z->local) > 0 ? sched_buf(z->s, CAT_PARAMS, "weights in 8 or 4 bits", NULL, 0, 1, te_weight_bytes(z->local)) : -1;
    z->scales = te_scale_bytes(z->local) > 0 ? sched_buf(z->s, CAT_BUCKET, "scales and their histories", NULL, 0, 1, round512(te_scale_bytes(z->local))) : -1;
    declare_partial(z);
    lower_declare_activations(z->s, z->local, z->acts);
}

void megatron_close(struct mega *z)
{
    for (int c = 0; c < z->nchunks; c++) {
        struct mega_chunk *of = &z->chunk[c];
        free(of->of);
        free(of->at);
        free(of->bucket);
        free(of->pending);
        free(of->reducing);
        free(of->gathering);
        free(of->gathered);
    }
}
