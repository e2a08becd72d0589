/* dtensor_product.c -- DTensor's choice among the ways to take a product, and the collectives that it issues for that. */
#include "model/framework/torch_fsdp2/dtensor_product.h"

#include <assert.h>
#include <math.h>

/* ---- what DTensor thinks that collectives cost (MeshTopoInfo, *_cost; microseconds) ----
 *
 * Its constants, not measured ones: the sums are formed in its order, for ways of equal cost are told apart by their place. */

static const double BANDWIDTH = 87.7, LATENCY = 0.6;           /* GB/s, us: within a node */
static const double FAR_BANDWIDTH = 0.22, FAR_LATENCY = 2.7;   /* of the former; us */
static const double BASE = 6.6;

static double ring(const struct dtensor_mesh *mesh, double gb, int64_t hops)
{
    double bandwidth = mesh->leaves_node ? BANDWIDTH * FAR_BANDWIDTH : BANDWIDTH;
    double latency = BASE + (double)hops * (mesh->leaves_node ? FAR_LATENCY : LATENCY);

    return latency + gb * (double)hops / (double)mesh->ranks / bandwidth * 1e6;
}

static bool sharded(enum placed at) { return at == PLACED_ROWS || at == PLACED_COLUMNS; }

static double cost(const struct dtensor_mesh *mesh, const struct dtensor *x, enum placed to)
{
    int64_t hops = mesh->ranks - 1, shards = sharded(x->at) ? mesh->ranks : 1;
    double gb = 2.0 * (double)x->rows * (double)x->columns / (double)shards / 1024 / 1024 / 1024;

    if (x->at == PLACED_WHOLE || x->at == to)
        return 0;
    if (sharded(x->at) && to == PLACED_WHOLE)
        return ring(mesh, gb * (double)mesh->ranks, hops);
    if (sharded(x->at) && sharded(to))
        return ring(mesh, gb, hops) + 1.0;
    if (x->at == PLACED_SUM && to == PLACED_WHOLE)
        return ring(mesh, gb, 2 * hops);
    if (x->at == PLACED_SUM && sharded(to))
        return ring(mesh, gb, hops);
    return INFINITY;
}

/* ---- the ways ---- */

/* gen_single_dim_einsum_strategies("mk,kn->mn"), behind the one in which all is whole; what is added is placed as the result.
 * (Partial("avg") costs what Partial("sum") costs, or more, and comes later.) */
static const struct { enum placed result, left, right; } ways[] = {
    { PLACED_WHOLE,   PLACED_WHOLE,   PLACED_WHOLE },
    { PLACED_SUM,     PLACED_COLUMNS, PLACED_ROWS },
    { PLACED_ROWS,    PLACED_ROWS,    PLACED_WHOLE },
    { PLACED_COLUMNS, PLACED_WHOLE,   PLACED_COLUMNS },
    { PLACED_SUM,     PLACED_SUM,     PLACED_WHOLE },
    { PLACED_SUM,     PLACED_WHOLE,   PLACED_SUM },
};
enum { NWAYS = sizeof ways / sizeof ways[0] };

/* is_tensor_shardable() */
static bool can_be(const struct dtensor_mesh *mesh, const struct dtensor *x, enum placed at)
{
    return !(at == PLACED_ROWS && x->rows < mesh->ranks) && !(at == PLACED_COLUMNS && x->columns < mesh->ranks);
}

enum placed dtensor_product(const struct dtensor_mesh *mesh, const struct dtensor x[3], bool added, enum placed want[3])
{
    int best = -1, i = 0, first = added ? 0 : 1;
    double least = INFINITY;

    for (int w = 0; w < NWAYS; w++) {
        enum placed in[3] = { ways[w].result, ways[w].left, ways[w].right };
        bool there = true, possible = true;
        double sum = 0;
        for (i = first; i < 3; i++) {
            possible = possible && can_be(mesh, &x[i], in[i]);
            there = there && x[i].at == in[i];
            sum += cost(mesh, &x[i], in[i]);
        }
        if (!possible || isinf(sum) || !(sum < least || there))
            continue;
        best = w;
        least = there ? -1 : sum;           /* nothing moves: no other way is asked */
    }
    assert(best >= 0);                      /* of whole matrices there always is one */
    want[0] = ways[best].result;
    want[1] = ways[best].left;
    want[2] = ways[best].right;
    return ways[best].result;
}

/* ---- what a placement holds, and how it is reached ---- */

static int64_t part(int64_t n, const struct dtensor_mesh *mesh)
{
    int64_t most = ceil_div(n, mesh->ranks), left = n - mesh->rank * most;

    return left < 0 ? 0 : left < most ? left : most;
}

int64_t dtensor_local(const struct dtensor_mesh *mesh, const struct dtensor *x)
{
    return x->at == PLACED_ROWS    ? part(x->rows, mesh) * x->columns
         : x->at == PLACED_COLUMNS ? x->rows * part(x->columns, mesh) : x->rows * x->columns;
}

/* Elements with padding, of all ranks: what a collective counts. */
static int64_t padded_elements(const struct dtensor_mesh *mesh, const struct dtensor *x, enum placed on)
{
    return on == PLACED_ROWS    ? round_up(x->rows, mesh->ranks) * x->columns
         : on == PLACED_COLUMNS ? x->rows * round_up(x->columns, mesh->ranks) : x->rows * x->columns;
}

struct dtensor_move dtensor_move(const struct dtensor_mesh *mesh, const struct dtensor *x, enum placed to)
{
    struct dtensor there = { x->rows, x->columns, to, false };
    struct dtensor_move m = { .op = NCOLL, .result = dtensor_local(mesh, &there) };
    int64_t here = dtensor_local(mesh, x), n = mesh->ranks;

    if (x->at == to || n == 1)
        return (struct dtensor_move){ .op = NCOLL };
    if (x->at == PLACED_WHOLE) {            /* Shard._replicate_to_shard(): a copy of its part */
        m.copied = m.result;
    } else if (sharded(x->at) && to == PLACED_WHOLE) {
        /* _maybe_pad_tensor() makes it contiguous.  all_gather_single(): ranks' parts come one behind the other, and columns are put
         * beside each other by a copy. */
        int64_t padded = padded_elements(mesh, x, x->at), own = x->view || padded > n * here ? padded / n : 0;
        m.op = COLL_ALL_GATHER;
        m.elems = m.result = padded;
        m.beside = own + (x->at == PLACED_COLUMNS ? padded : 0);
        m.copied = m.beside;
    } else if (sharded(x->at) && sharded(to)) {
        /* Shard._to_new_shard_dim(): both dimensions are padded; shard_dim_alltoall() copies before and behind. */
        int64_t rows = round_up(x->rows, n), columns = round_up(x->columns, n), padded = rows * columns / n;
        m.op = COLL_ALL_TO_ALL;
        m.elems = padded;
        m.result = padded;
        m.beside = padded > here ? padded : 0;
        m.copied = 2 * padded;
    } else if (x->at == PLACED_SUM && to == PLACED_WHOLE) {
        m.op = COLL_ALL_REDUCE;
        m.elems = m.result = here;
    } else {
        /* Shard._reduce_shard_tensor(): padded by a copy, and columns are put behind each other by one. */
        int64_t padded = padded_elements(mesh, x, to);
        m.op = COLL_REDUCE_SCATTER;
        m.elems = padded;
        m.result = padded / n;
        m.beside = (padded > here ? padded : 0) + (to == PLACED_COLUMNS ? padded : 0);
        m.copied = m.beside;
    }
    return m;
}
