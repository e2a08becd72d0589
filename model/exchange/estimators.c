/* estimators.c -- the arithmetic of deepspeed/runtime/zero/stage_1_and_2.py and stage3.py
 * (0.19.6, unchanged for years), in Python's semantics:
 *
 * - int*int is exact, however large: unsigned __int128 here, which holds the largest
 *   product (2^60 parameters * 4 * 1e7 GPUs < 2^86).
 * - int/int is the exact quotient rounded once to a double, to nearest even; dividing two
 *   doubles would round three times once 18*P passes 2^53.
 * - int*float rounds the int to a double first.
 * - max(int, float) returns its first argument unless the second is greater, and keeps the
 *   type: whether the next product is exact depends on it.
 * - int(float) cuts toward zero. */
#include "model/exchange/estimators.h"

#include <inttypes.h>
#include <math.h>

#include "base/dtype.h"
#include "base/fail.h"
#include "model/cluster/cluster.h"

typedef unsigned __int128 exact;        /* a Python int, never negative here */

/* `x` is not negative: check() saw to it. */
static exact ex(int64_t x) { return (exact)x; }

static int bits(exact x)
{
    int n = 0;

    for (; x; x >>= 1)
        n++;
    return n;
}

/* Python's a / b for ints.  The quotient is computed to at least 56 bits, the last of
 * which also says whether anything follows it; the conversion to double then rounds
 * once, correctly, because a double keeps 53. */
static double true_divide(exact a, exact b)
{
    int   shift = 56 - (bits(a) - bits(b));
    exact q;
    bool  inexact;

    if (shift < 0)
        shift = 0;
    q = (a << shift) / b;
    inexact = (a << shift) % b != 0;
    for (; bits(q) > 62; shift--) {
        inexact = inexact || (q & 1);
        q >>= 1;
    }
    return ldexp((double)((int64_t)q | inexact), -shift);
}

/* int(x) into *out. */
static int to_int(double x, int64_t *out)
{
    if (!(x >= 0 && x < 0x1p63))
        return fail("the estimate exceeds 2^63 bytes: params, GPUs or buffer factor too large");
    *out = (int64_t)x;
    return 0;
}

/* base + int(k*P / G): what of the states is divided among all GPUs. */
static int gpu_share(exact base, int k, const struct estimator_input *in, int64_t *out)
{
    exact   gpus = ex(in->gpus_per_node) * ex(in->nodes);
    int64_t share = 0;

    if (to_int(true_divide(ex(k) * ex(in->params), gpus), &share) < 0)
        return -1;
    if (base + ex(share) > INT64_MAX)
        return to_int(INFINITY, out);
    *out = (int64_t)(base + ex(share));
    return 0;
}

static int check(const struct estimator_input *in, bool with_layer)
{
    const struct { const char *name; int64_t value; bool used; } fields[] = {
        { "params", in->params, true },
        { "largest_layer", in->largest_layer, with_layer },
        { "gpus_per_node", in->gpus_per_node, true },
        { "nodes", in->nodes, true },
    };

    for (int i = 0; i < 4; i++)
        if (fields[i].used && (fields[i].value < 1 || fields[i].value > SIZE_LIMIT))
            return fail("estimators: %s is %" PRId64 ", must be between 1 and 2^60",
                        fields[i].name, fields[i].value);
    if (in->gpus_per_node > CLUSTER_MAX_RANKS / in->nodes)
        return fail("estimators: gpus_per_node * nodes exceeds %d", CLUSTER_MAX_RANKS);
    if (!(in->buffer_factor >= 0 && in->buffer_factor <= 1e6))
        return fail("estimators: buffer_factor is %g, must be between 0 and 1e6",
                    in->buffer_factor);
    return 0;
}

int estimate_zero2(const struct estimator_input *in, bool cpu_offload, struct estimate *out)
{
    exact P = ex(in->params), gpn = ex(in->gpus_per_node);
    exact per_param;

    if (check(in, false) < 0)
        return -1;
    if (cpu_offload) {
        /* The total of GPUs, not those of a node: so DeepSpeed has it. */
        per_param = 4 * gpn * ex(in->nodes);
        if (per_param < 16)
            per_param = 16;
        out->gpu_bytes = 2 * in->params;
    } else {
        per_param = 4 * gpn;
        if (gpu_share(2 * P, 18, in, &out->gpu_bytes) < 0)
            return -1;
    }
    return to_int((double)(P * per_param) * in->buffer_factor, &out->cpu_bytes);
}

/* P * max(4*gpus_per_node, k/nodes), or without zero_init's saving on the first. */
static double zero3_host(const struct estimator_input *in, int k, bool zero_init)
{
    exact  P = ex(in->params), whole = 4 * ex(in->gpus_per_node);
    double factor = 1 / (double)in->nodes;

    if (zero_init)
        return (double)(P * ex(k)) * factor;
    if (k * factor > (double)whole)
        return (double)P * (k * factor);
    return (double)(P * whole);
}

int estimate_zero3(const struct estimator_input *in, enum estimate_offload offload,
                   bool zero_init, struct estimate *out)
{
    exact  layer = 4 * ex(in->largest_layer);
    double host;

    if (check(in, true) < 0)
        return -1;
    switch (offload) {
    case ESTIMATE_OFFLOAD_ALL:
        out->gpu_bytes = (int64_t)layer;
        host = zero3_host(in, 18, zero_init);
        break;
    case ESTIMATE_OFFLOAD_OPTIMIZER:
        if (gpu_share(layer, 2, in, &out->gpu_bytes) < 0)
            return -1;
        host = zero3_host(in, 16, zero_init);
        break;
    default:
        if (gpu_share(layer, 18, in, &out->gpu_bytes) < 0)
            return -1;
        host = (double)(ex(zero_init ? in->largest_layer : in->params)
                        * 4 * ex(in->gpus_per_node));
    }
    return to_int(host * in->buffer_factor, &out->cpu_bytes);
}

int estimate_all(const struct estimator_input *in, struct estimate_row rows[ESTIMATE_ROWS])
{
    static const struct { const char *name; int stage; enum estimate_offload offload; } all[] = {
        { "zero2", 2, ESTIMATE_OFFLOAD_NONE },
        { "zero2_offload", 2, ESTIMATE_OFFLOAD_OPTIMIZER },
        { "zero3", 3, ESTIMATE_OFFLOAD_NONE },
        { "zero3_offload_optimizer", 3, ESTIMATE_OFFLOAD_OPTIMIZER },
        { "zero3_offload_all", 3, ESTIMATE_OFFLOAD_ALL },
    };

    for (int i = 0; i < ESTIMATE_ROWS; i++) {
        rows[i].name = all[i].name;
        if (all[i].stage == 2) {
            if (estimate_zero2(in, all[i].offload != ESTIMATE_OFFLOAD_NONE, &rows[i].zero_init) < 0)
                return -1;
            rows[i].no_zero_init = rows[i].zero_init;
        } else if (estimate_zero3(in, all[i].offload, true, &rows[i].zero_init) < 0
                   || estimate_zero3(in, all[i].offload, false, &rows[i].no_zero_init) < 0) {
            return -1;
        }
    }
    return 0;
}

/* A tied head owns the embedding's parameter a second time, which cannot change a
 * maximum: that our table lists it once is no difference here. */
int64_t estimator_largest_layer(const struct model *m)
{
    int64_t largest = 0;

    for (int i = 0; i < m->nmodules; i++) {
        int64_t own = model_numel(m, m->modules[i].first, m->modules[i].ntensors);
        if (own > largest)
            largest = own;
    }
    return largest;
}
