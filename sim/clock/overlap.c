/* overlap.c -- slow-downs of computation and communication while both run, from what was published or measured. */
#include "sim/clock/overlap.h"

#include <math.h>

#include "sim/price/gpu_rates.h"

/* Ranks on processors: this machine's, or several nodes of a cluster file that are no GPUs. */
static bool on_host(const struct cluster *c) { return c->is_host || gpu_is_host(&c->gpu); }

/* What a collective loses beside computation.  Galvatron measures one symmetric coefficient,
 * 1.126 and 1.153 in its files, 1.3 by default; Lagom (arXiv 2602.20656) wins 1.07 to 1.33 by
 * tuning channels under contention.  Memory-bound kernels leave it less. */
#define COMM_BESIDE_PRODUCTS 1.10
#define COMM_BESIDE_STREAMS  1.15

/* Ranks on cores: the threads that communicate take time slices from those that compute. */
#define HOST_SLOWDOWN 1.3
/* ConCCL (arXiv 2412.14335): MI300X realises 21 % of the ideal gain.  For C = M that is
 * T = 2C - 0.21 C = 1.79 C, and T = phi when both slow down alike. */
#define AMD_SLOWDOWN 1.79

/* What large collectives move of a link's datasheet figure: ring all-gather 361 of 450 GB/s on
 * H200, all-reduce 235 of 300 on A100 (stas00/ml-engineering, network). */
#define LINK 0.8

/* Share of the SMs or of the memory bandwidth that is left, at worst. */
#define LEAST_LEFT 0.5

static bool products(enum kernel_class kind)
{
    return kind == KC_GEMM || kind == KC_ATTENTION;
}

/* Over several nodes each ring enters and leaves a node by an adapter of its own, so that the search finds as many as there are
 * (src/graph/search.cc, ncclTopoSearchRecNet()), and ncclTopoPostset() doubles them: two an adapter.  Not of Blackwell, whose rings stay in a rack's NVLink domain. */
static int of_adapters(const struct cluster *c, int otherwise)
{
    return c->nics <= 0 ? otherwise : 2 * c->nics < 4 ? 4 : 2 * c->nics;
}

/* NCCL starts one block per channel (NCCL_NTHREADS in its docs, env.rst).  Twice the channels
 * its search finds: 24 on A100 and on one H100 node, where all-reduce through the switch takes
 * 16; 16 on H100 over several nodes with 8 adapters (nccl#1197, #1453); 24 and 32 on B200 (src/transport/nvls.cc). */
int overlap_sms(const struct cluster *c, enum coll_op op)
{
    bool one_node = c->nodes <= 1;

    if (on_host(c))
        return 0;
    if (c->gpu.sm_arch >= 100)
        return one_node ? 24 : 32;
    if (c->gpu.sm_arch >= 90)
        return one_node && op != COLL_ALL_REDUCE ? 24 : one_node ? 16 : of_adapters(c, 16);
    return c->gpu.link <= 0 ? 4 : one_node ? 24 : of_adapters(c, 24);
}

int overlap_left(const struct cluster *c, enum coll_op op)
{
    int left = c->gpu.sms - overlap_sms(c, op), least = (int)ceil(LEAST_LEFT * c->gpu.sms);

    return left > least ? left : least > 1 ? least : 1;
}

/* Bytes of memory traffic per byte on the wire: a gather reads and writes; a reduction
 * reads what it adds to as well. */
static double traffic(enum coll_op op)
{
    return op == COLL_ALL_REDUCE || op == COLL_REDUCE_SCATTER || op == COLL_REDUCE ? 3 : 2;
}

static double wire(const struct cluster *c)
{
    double link = LINK * (c->intra > 0 ? c->intra : c->gpu.pcie);

    return c->nodes > 1 && (c->inter < link || c->gpus_per_node < 2) ? c->inter : link;
}

/* Where both are slowed alike, whatever runs; 0: elsewhere. */
static double both(const struct cluster *c, enum coll_op op)
{
    if (c->world_size <= 1 || op == COLL_BARRIER)
        return 1;
    return on_host(c) ? HOST_SLOWDOWN : c->gpu.sm_arch == 0 ? AMD_SLOWDOWN : 0;
}

double overlap_compute(const struct cluster *c, enum kernel_class kind, enum coll_op op)
{
    double alike = both(c, op);

    if (alike > 0)
        return alike;
    if (products(kind))
        return (double)c->gpu.sms / overlap_left(c, op);
    double left = 1 - wire(c) * traffic(op) / gpu_stream(&c->gpu);
    return 1 / (left > LEAST_LEFT ? left : LEAST_LEFT);
}

double overlap_comm(const struct cluster *c, enum kernel_class kind, enum coll_op op)
{
    double alike = both(c, op);

    return alike > 0 ? alike : products(kind) ? COMM_BESIDE_PRODUCTS : COMM_BESIDE_STREAMS;
}

const char *overlap_source(const struct cluster *c)
{
    if (on_host(c))
        return "assumed: communication threads share the cores, 1.3 both ways";
    if (c->gpu.sm_arch == 0)
        return "assumed: 21 % of the ideal overlap, as on MI300X (arXiv 2412.14335)";
    return "products: waves of thread blocks on the SMs that NCCL's channels leave; "
           "the rest: memory bandwidth left beside its traffic";
}
