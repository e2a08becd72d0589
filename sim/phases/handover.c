/* handover.c -- see handover.h. */
#include "sim/phases/handover.h"

#include <math.h>
#include <string.h>

#include "sim/phases/engine_weights.h"
#include "sim/price/coll_cost.h"
#include "sim/price/gpu_rates.h"

/* One rank's broadcast to the engines: how much of its link or adapter it reaches is not published; half of it is taken as the least. */
#define LINK_LEAST 0.5
/* Of a node's adapters what a broadcast among all ranks of both sides reached, packed and overlapped, on H100 nodes with 400 GB/s: 470 GB of
 * Qwen3-235B-A22B in 5.5 s, 1342 GB of DeepSeek-V3 in 14 (NVIDIA-NeMo/RL pull 1379): 85 and 96 GB/s. */
#define ADAPTERS_REACHED 0.23

/* Seconds that the two frameworks take for each tensor of a checkpoint, whatever its size: its name is looked up, parts are joined, it is handed
 * over and copied to its place.  NVIDIA-NeMo/RL pull 3294 (B200, vLLM, colocated, rounding to MXFP8 included) before and after it was mended: 9.67
 * and 2.98 s for Qwen3-30B-A3B's 18,867 tensors (0.51 and 0.16 ms), 18.40 and 7.26 s for Qwen3-235B-A22B's 36,945 (0.50 and 0.20); slime with SGLang
 * in buckets of 512 MB 16 s for a mixture of 30B (zhaochenyang20/Awesome-ML-SYS-Tutorial issue 169): 0.85.  Without rounding 1.9 s for the 18,867 on GB200
 * (NeMo-RL pull 3461): 0.10.  Tensor by tensor, each by a handle of its
 * own, verl took 40 ms (the same issue), which it does no longer. */
#define TENSOR_S      0.50e-3
#define TENSOR_LEAST  0.10e-3
#define TENSOR_MOST   0.85e-3
/* Apart and overlapped no more than what all of it takes, of the same two models: 36,945 tensors in 5.5 s, 45,337 in 14. */
#define TENSOR_PACKED      0.15e-3
#define TENSOR_PACKED_MOST 0.31e-3

/* Tensors as checkpoints have them: each expert's own. */
static int64_t named_tensors(const struct model *m)
{
    int64_t n = 0;

    for (int i = 0; i < m->ntensors; i++) {
        const struct tensor *t = &m->tensors[i];
        int64_t matrices = t->role == ROLE_EXPERTS_IN ? 2 : 1;      /* gate and up */
        if (t->adapter == ADAPTER_NONE)
            n += role_is_of_experts(t->role) && t->ndim == 3 ? t->shape[0] * matrices : 1;
    }
    return n;
}

static int64_t largest_tensor(const struct model *m)
{
    int64_t most = 0;

    for (int i = 0; i < m->ntensors; i++)
        most = m->tensors[i].numel > most ? m->tensors[i].numel : most;
    return most;
}

static bool is_shared_out(const struct plan *p) { return p->strategy == STRAT_FSDP || p->strategy == STRAT_ZERO3; }

/* Parameters of experts. */
static int64_t of_experts(const struct model *m)
{
    int64_t sum = 0;

    for (int i = 0; i < m->ntensors; i++)
        sum += role_is_of_experts(m->tensors[i].role) ? m->tensors[i].numel : 0;
    return sum;
}

/* `calls` of an operation over `ranks`, of which `per_node` share a node, each of `bytes` / calls. */
static int add_calls(const struct cluster *c, enum coll_op op, int64_t ranks, int64_t per_node, int64_t bytes, int64_t calls, struct cost *to)
{
    struct cost one;

    if (ranks < 2 || bytes == 0)
        return 0;
    if (coll_cost(c, op, ranks, per_node < 1 ? 1 : per_node < ranks ? per_node : ranks, ceil_div(bytes, calls), &one) < 0)
        return -1;
    to->s += (double)calls * one.s;
    to->low_s += (double)calls * one.low_s;
    to->high_s += (double)calls * one.high_s;
    to->basis = basis_worst(to->basis, one.basis);
    return 0;
}

/* Tensor ranks are neighbours, expert ranks the next ones, stages of a pipeline the farthest apart (megatron-core 0.16.1, parallel_state.py:
 * "tp-cp-ep-dp-pp").  verl 0.7.0's per_tensor_generator(): the stage that has a tensor broadcasts each rank's part of it; experts' parts are then
 * gathered over expert ranks and over the ranks that cut an expert, other tensors' over tensor ranks. */
static int gather(const struct plan *p, int64_t kept, int64_t calls, struct cost *to)
{
    const struct cluster *c = &p->cluster;
    const struct parallel_options *by = &p->parallel;
    int64_t node = c->gpus_per_node, tensor = by->tensor > 1 ? by->tensor : 1, pipe = by->pipeline > 1 ? by->pipeline : 1;
    int64_t sharing = by->expert > 1 ? by->expert : 1, cut = by->expert_tensor > 1 ? by->expert_tensor : 1;
    int64_t experts = of_experts(&p->model), all = p->model.params, rest = all - experts;
    int64_t shards = p->strategy == STRAT_FSDP && p->shard_group > 0 ? p->shard_group : c->world_size / tensor / pipe;

    if (is_shared_out(p) && add_calls(c, COLL_ALL_GATHER, shards, node, all * kept, calls, to) < 0)
        return -1;
    int64_t part = rest / tensor + experts / sharing / cut;
    return add_calls(c, COLL_BROADCAST, pipe, node / (c->world_size / pipe), part * kept, calls, to) < 0 ||
           add_calls(c, COLL_ALL_GATHER, sharing, node / cut, experts / cut * kept, calls, to) < 0 ||
           add_calls(c, COLL_ALL_GATHER, cut, node, experts * kept, calls, to) < 0 ||
           add_calls(c, COLL_ALL_GATHER, tensor, node, rest * kept, calls, to) < 0 ? -1 : 0;
}

/* Into the engine: its part read and written on the device, there in as many bits as it has, or all of it by the network. */
static int deliver(const struct plan *p, const struct engine *e, const struct handover_way *way, const struct handover *h, struct cost *to)
{
    const struct cluster *c = &p->cluster;
    const struct gpu_rates *rates = gpu_rates(&c->gpu);
    struct engine wide = *e;
    wide.codes = CODES_NONE;
    double part = (double)engine_weights(&wide, &p->model, 0), coded = (double)engine_weights(e, &p->model, 0);
    double link = c->inter > 0 ? c->inter / (c->nics > 0 ? c->nics : 1) : c->intra;

    if (way->apart && way->overlapped) {
        int rc = add_calls(way->apart, COLL_BROADCAST, way->apart->world_size, way->apart->gpus_per_node, h->bytes, h->calls, to);
        to->s = fmax(to->s, (double)h->bytes / ADAPTERS_REACHED / (c->inter > 0 ? c->inter : c->intra));
        to->high_s = fmax(to->s, (double)h->bytes / link);
        return rc;
    }
    to->s = way->apart ? (double)h->bytes / link : (part + coded) / gpu_stream(&c->gpu);
    to->low_s = way->apart ? to->s : to->s / rates->hbm_spread;
    to->high_s = way->apart ? to->s / LINK_LEAST : to->s * rates->hbm_spread;
    return 0;
}

static struct cost each_tensor(const struct handover *h, const struct handover_way *way)
{
    bool packed = way->apart && way->overlapped;
    double n = (double)h->tensors;

    return (struct cost){ .s = n * (packed ? TENSOR_PACKED : TENSOR_S), .low_s = packed ? 0 : n * TENSOR_LEAST,
                          .high_s = n * (packed ? TENSOR_PACKED_MOST : TENSOR_MOST), .basis = BASIS_PUBLISHED };
}

/* One after the other, or beside each other. */
static void add_part(struct cost *all, const struct cost *part, bool beside)
{
    all->s = beside ? fmax(all->s, part->s) : all->s + part->s;
    all->low_s = beside ? fmax(all->low_s, part->low_s) : all->low_s + part->low_s;
    all->high_s = beside ? fmax(all->high_s, part->high_s) : all->high_s + part->high_s;
    all->basis = basis_worst(all->basis, part->basis);
}

int handover_of(const struct plan *p, const struct engine *e, int64_t kept, const struct handover_way *way, struct handover *out)
{
    const struct model *m = &p->model;
    int64_t wide = dtype_bytes(e->weights), largest = largest_tensor(m) * kept;
    struct cost delivered = { .basis = BASIS_PUBLISHED };

    memset(out, 0, sizeof *out);
    bool cut = is_shared_out(p) || p->parallel.tensor > 1 || p->parallel.pipeline > 1 || p->parallel.expert > 1;

    out->bytes = m->params * wide;
    out->gathered = cut ? m->params * kept : 0;
    int64_t each = way->bucket > largest ? way->bucket : way->bucket > 0 ? largest : m->params * kept / m->ntensors;
    out->calls = way->bucket > 0 ? ceil_div(m->params * kept, each) : m->ntensors;
    out->time.basis = BASIS_PUBLISHED;
    out->peak = way->bucket > largest ? way->bucket : largest;
    out->peak = cut ? out->peak + (kept == wide ? 0 : out->peak / kept * wide) : kept == wide ? 0 : largest / kept * wide;
    out->peak *= way->overlapped ? 2 : 1;
    out->tensors = named_tensors(m);
    if (gather(p, kept, out->calls, &out->time) < 0 || deliver(p, e, way, out, &delivered) < 0)
        return -1;
    struct cost named = each_tensor(out, way);
    add_part(&out->time, &delivered, way->overlapped);
    add_part(&out->time, &named, way->overlapped);
    return 0;
}
