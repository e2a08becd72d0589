/* coll_cost.c -- NCCL's model, held against what others measured.
 *
 * A collective's time is  L + kb * (bytes/rate),  L = lat * (kl + kr * S/(S + s0)):  NCCL's
 * latency and rate, a factor on each, and the ramp by which a pipeline fills (NCCL's channels
 * move chunks of up to 2 MiB; a message that does not fill them runs below the rate).  The
 * factors are one row for each kind of machine and algorithm, fitted to published sweeps by
 * least absolute log error; tests/sim/test_coll_published.c prints what is left.  All terms
 * rise with the size and with the latency, so that the time does. */
#include "sim/price/coll_cost.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "sim/price/coll_algo.h"
#include "sim/price/nccl_cost.h"
#include "sim/price/pchip.h"

#define MiB 1048576.

enum family { FAM_RING, FAM_NVLS, FAM_SHARD, FAM_ROOTED };

struct fit {
    enum nccl_arch arch;
    bool        across;         /* more than one node */
    enum family family;
    enum basis  basis;
    double kl, kr, s0, kb;      /* s0 in MiB */
    double doubling;            /* of kb, more for each time that the nodes double beyond four */
};

/* Sources: MLE stas00/ml-engineering network/ (A100, H200, B200 sweeps); MIT the H200 report of
 * MIT ORCD; ALPS boeschf/nccl-benchmark-on-alps-2025; ARXIV 2411.13055's chart of H100, 4 to 512
 * nodes; PLOT and VULTR nccl-tests of 8 H100s and of 8 B200s (the rows of tests/sim/data/collectives_published.csv); GTC NVIDIA's GTC24 S62129, H100, 4 to 1024 nodes; NERSC
 * sparticlesteve/nccl-benchmarking (A100, Slingshot). */
static const struct fit fits[] = {
    { ARCH_AMPERE,    false, FAM_RING,   BASIS_PUBLISHED, 1,   6,  32,  1, 0 },      /* MLE A100 */
    { ARCH_AMPERE,    false, FAM_SHARD,  BASIS_PUBLISHED, 1,   6,  32,  1, 0 },      /* as its all-reduce: the same ring */
    { ARCH_HOPPER,    false, FAM_RING,   BASIS_PUBLISHED, 1,   .5, 128, 1.03, 0 },   /* ALPS */
    { ARCH_HOPPER,    false, FAM_NVLS,   BASIS_PUBLISHED, 1,   3,  8,   1, 0 },      /* MLE H200 */
    { ARCH_HOPPER,    false, FAM_SHARD,  BASIS_PUBLISHED, 1,   1.5, 256, 1, 0 },      /* MIT H200 and PLOT H100, either half; from 16 MiB on */
    { ARCH_HOPPER,    false, FAM_ROOTED, BASIS_PUBLISHED, 3,   .5, 128, .98, 0 },    /* MIT */
    { ARCH_BLACKWELL, false, FAM_RING,   BASIS_PUBLISHED, 1,   3,  64,  1.06, 0 },   /* MLE B200 */
    { ARCH_BLACKWELL, false, FAM_NVLS,   BASIS_PUBLISHED, 2,   6,  64,  1.1, 0 },    /* MLE B200 */
    { ARCH_BLACKWELL, false, FAM_SHARD,  BASIS_PUBLISHED, 1,   1,  256, 1.06, 0 },   /* VULTR; from 16 MiB on */
    { ARCH_AMPERE,    true,  FAM_RING,   BASIS_PUBLISHED, 3,   4,  8,   1, 0 },      /* NERSC */
    { ARCH_HOPPER,    true,  FAM_RING,   BASIS_PUBLISHED, 2.5, .5, 8,   .97, 0 },    /* ARXIV, GTC */
    { ARCH_HOPPER,    true,  FAM_NVLS,   BASIS_PUBLISHED, 2.5, .5, 8,   .97, 0 },    /* ARXIV, GTC */
    { ARCH_BLACKWELL, true,  FAM_RING,   BASIS_PUBLISHED, 3,   2,  8,   .97, 0 },    /* MLE B200, EFA */
    { ARCH_BLACKWELL, true,  FAM_NVLS,   BASIS_PUBLISHED, 3,   2,  8,   .97, 0 },
    /* A ring waits for the slowest of its hops between nodes, and there are more of them.  NVIDIA/nccl#1229 (H100, March
     * 2024): a reduce-scatter's bus bandwidth is 360, 345, 320, 300, 280 and 260 GB/s on 4, 8, ... 128 nodes.  Its size
     * is not stated; with 8 GiB, the size of nccl#1211 of the same month, NCCL's latencies leave a rate that is
     * 1.06, 1.10, 1.17, 1.23, 1.26 and 1.26 times too slow (with 4 GiB at most 1.17, with 16 up to 1.37).  Other types and all-gathers are taken
     * to lose as much.  A tuned cluster loses less, two reports (nccl#1218, a JAX benchmark on two nodes) lost 30 to 45 %:
     * the interval says so. */
    { ARCH_AMPERE,    true,  FAM_SHARD,  BASIS_DATASHEET, 1,   0,  8,   1.07, .045 },
    { ARCH_HOPPER,    true,  FAM_SHARD,  BASIS_DATASHEET, 1,   0,  8,   1.07, .045 },
    { ARCH_BLACKWELL, true,  FAM_SHARD,  BASIS_DATASHEET, 1,   0,  8,   1.07, .045 },
};
static const struct fit no_fit = { .basis = BASIS_DATASHEET, .kl = 1, .s0 = 8, .kb = 1 };

/* 90 % intervals: s less or plus a share of itself, and a share of its latency part (small
 * messages are mostly latency, which varies with fabric and NCCL's version); and up to `skew`
 * seconds later, by which ranks enter at different times. */
struct spread { double down, up, latency_down, latency_up, skew; };
#define SKEW_S 20e-6
static const struct spread
    published_node   = { .05, .05, .25, 1.5, SKEW_S },
    published_nodes  = { .08, .12, .28, .45, SKEW_S },
    datasheet_nvlink = { .10, .25, .35, 2.5, SKEW_S },
    datasheet_nodes  = { .12, .80, .30, 3.0, SKEW_S },
    datasheet_pcie   = { .30, 1.5, .30, 2.0, SKEW_S },     /* without peer access all goes through the host */
    datasheet_other  = { .65, 1.0, .25, 2.0, SKEW_S },     /* RCCL: rings over several links of a mesh, or over one */
    datasheet_host   = { .65, 2.0, .30, 4.0, 0 };     /* the rate itself is assumed */

static enum family family_of(enum coll_op op, enum nccl_algo a)
{
    if (op == COLL_ALL_REDUCE || op == COLL_BARRIER)
        return a == NCCL_NVLS || a == NCCL_NVLS_TREE ? FAM_NVLS : FAM_RING;
    return op == COLL_ALL_GATHER || op == COLL_REDUCE_SCATTER ? FAM_SHARD : FAM_ROOTED;
}

static const struct fit *fit_of(const struct nccl_net *n, enum family family)
{
    if (n->nvswitch && n->sm_arch > 0)
        for (size_t i = 0; i < sizeof fits / sizeof *fits; i++)
            if (fits[i].arch == n->arch && fits[i].across == (n->nodes > 1) && fits[i].family == family)
                return &fits[i];
    return &no_fit;
}

static void spread_out(struct cost *out, double s, double late, enum basis basis, const struct spread *w)
{
    out->s = s;
    out->low_s = s * (1 - w->down) - late * w->latency_down;
    out->high_s = s * (1 + w->up) + late * w->latency_up + w->skew;
    out->basis = basis;
}

static void gpu_cost(const struct cluster *c, enum coll_op op, int64_t ranks, int64_t per_node,
                     int64_t bytes, struct cost *out)
{
    struct nccl_net net;
    double size = op == COLL_BARRIER ? 4 : (double)bytes, best = INFINITY, best_late = 0, best_grown = 0, doublings;
    enum basis basis = BASIS_DATASHEET;
    const struct spread *w;

    nccl_net_of(c, ranks, per_node, &net);
    doublings = net.nodes > 4 ? log2((double)net.nodes / 4) : 0;
    for (int a = 0; a < NNCCL_ALGO; a++)
        for (int p = 0; p < NNCCL_PROTO; p++) {
            struct nccl_choice o;
            const struct fit *f;
            double late, grown, t;

            if (!nccl_option(&net, op, (enum nccl_algo)a, (enum nccl_proto)p, bytes, &o))
                continue;
            f = fit_of(&net, family_of(op, o.algo));
            late = o.lat * (f->kl + f->kr * size / (size + f->s0 * MiB));
            grown = f->doubling * doublings * o.byte * size;
            t = late + f->kb * o.byte * size + grown;
            if (t < best) {
                best = t;
                best_late = late;
                best_grown = grown;
                basis = f->basis;
            }
        }
    /* The sweeps across nodes are of whole nodes, and of four or more: between two a tree uses
     * both directions at once, of which no separate figure is published. */
    if (net.nodes > 1 && (per_node < c->gpus_per_node || net.nodes < 4))
        basis = BASIS_DATASHEET;
    if (basis == BASIS_PUBLISHED)
        w = net.nodes > 1 ? &published_nodes : &published_node;
    else if (net.sm_arch == 0)
        w = &datasheet_other;
    else if (!net.nvlink)
        w = &datasheet_pcie;
    else
        w = net.nodes > 1 ? &datasheet_nodes : &datasheet_nvlink;
    spread_out(out, best, best_late, basis, w);
    out->low_s -= (1 - w->down) * best_grown;           /* a network that loses nothing with its size */
}

/* What MPI libraries choose from (Open MPI coll_tuned_decision_fixed.c, MPICH's selectors);
 * the least time stands for a good choice. */
static bool mpi_runs(const struct coll_algo *a)
{
    static const char *const names[] = { "ring", "recursive-doubling", "recursive-halving", "rabenseifner",
        "binomial-tree", "chain", "scatter-all-gather", "linear", "dissemination", "pairwise", "bruck",
        "message", NULL };

    for (int i = 0; names[i]; i++)
        if (!strcmp(a->name, names[i]))
            return true;
    return false;
}

static void host_cost(const struct cluster *c, enum coll_op op, int64_t ranks, int64_t per_node,
                      int64_t bytes, struct cost *out)
{
    struct coll_net net;
    struct coll_figures f;
    double best = INFINITY, late = 0;
    const struct coll_algo *a;

    coll_net_of(c, ranks, per_node, &net);
    for (int i = 0; (a = coll_algo_at(i)); i++) {
        if (a->op != op || !mpi_runs(a) || !coll_algo_cost(a, &net, (double)bytes, &f) || f.time_s >= best)
            continue;
        best = f.time_s;
        coll_algo_cost(a, &net, 0, &f);
        late = f.time_s;
    }
    spread_out(out, best, late, BASIS_DATASHEET, &datasheet_host);
}

static int check(const struct cluster *c, enum coll_op op, int64_t ranks, int64_t per_node, int64_t bytes)
{
    if (op >= NCOLL || ranks < 1 || per_node < 1 || bytes < 0)
        return fail("collective of %" PRId64 " ranks, %" PRId64 " in a node, %" PRId64
                    " bytes: expected at least 1, 1 and 0", ranks, per_node, bytes);
    if (per_node > c->gpus_per_node || (ranks + per_node - 1) / per_node > c->nodes)
        return fail("collective of %" PRId64 " ranks, %" PRId64 " in a node: the cluster has %" PRId64
                    " nodes of %" PRId64, ranks, per_node, c->nodes, c->gpus_per_node);
    bool within = per_node > 1 && ranks > 1;        /* neighbours in a node exchange */
    if ((within && !(c->intra > 0)) || (ranks > per_node && !(c->inter > 0)))
        return fail("collective of %" PRId64 " ranks: the cluster's %s bandwidth is not known", ranks,
                    within && !(c->intra > 0) ? "intra-node" : "inter-node");
    return 0;
}

int coll_cost(const struct cluster *c, enum coll_op op, int64_t ranks, int64_t per_node,
              int64_t bytes, struct cost *out)
{
    *out = (struct cost){ .basis = BASIS_DATASHEET };
    if (check(c, op, ranks, per_node, bytes) < 0)
        return -1;
    if (per_node > ranks)
        per_node = ranks;
    if (ranks == 1)
        out->basis = BASIS_MEASURED;    /* nothing moves: no figure of the machine is in it */
    else if (c->is_host)
        host_cost(c, op, ranks, per_node, bytes, out);
    else
        gpu_cost(c, op, ranks, per_node, bytes, out);
    return 0;
}

double coll_skew_s(const struct cluster *c) { return c->is_host ? 0 : SKEW_S; }

int coll_star_cost(const struct cluster *c, enum coll_op op, int64_t ranks, int64_t per_node,
                   int64_t bytes, struct cost *out)
{
    struct coll_net net;
    double each = (double)bytes, late, s;

    *out = (struct cost){ .basis = BASIS_DATASHEET };
    if (check(c, op, ranks, per_node, bytes) < 0)
        return -1;
    if (op == COLL_ALL_TO_ALL || coll_is_message(op))
        return fail("%s through rank 0's link: expected a collective with a root, or a reduction", coll_name(op));
    if (per_node > ranks)
        per_node = ranks;
    if (ranks == 1) {
        out->basis = BASIS_MEASURED;
        return 0;
    }
    coll_net_of(c, ranks, per_node, &net);
    if (op == COLL_SCATTER || op == COLL_GATHER || op == COLL_ALL_GATHER || op == COLL_REDUCE_SCATTER)
        each /= net.ranks;
    if (!c->is_host) {
        struct nccl_net nccl;
        nccl_net_of(c, ranks, per_node, &nccl);
        net.beta_intra = 1 / nccl.port_intra;
        net.nic = nccl.port_inter;
    }
    late = (net.per_node - 1) * net.alpha_intra + (net.ranks - net.per_node) * net.alpha_inter;
    s = late + (net.per_node - 1) * each * net.beta_intra + (net.ranks - net.per_node) * each / net.nic;
    if (op == COLL_REDUCE || op == COLL_ALL_REDUCE || op == COLL_REDUCE_SCATTER)
        s += (net.ranks - 1) * each * net.gamma;
    spread_out(out, s, late, BASIS_DATASHEET, c->is_host ? &datasheet_host : net.nodes > 1 ? &datasheet_nodes
               : c->gpu.sm_arch == 0 ? &datasheet_other : c->gpu.link > 0 ? &datasheet_nvlink : &datasheet_pcie);
    return 0;
}

int64_t coll_equal_bytes(int64_t ranks, int64_t per_node, int64_t within, int64_t across)
{
    double g = (double)(per_node < ranks ? per_node : ranks), leaving = coll_leaving(ranks, per_node);
    double in = g > 1 ? (double)within * (double)ranks / (g - 1) : 0;
    double out = leaving > 0 ? (double)across / leaving : 0;

    assert((within == 0 || g > 1) && (across == 0 || leaving > 0));
    return llround(fmax(in, out));
}

/* ---- groups ---- */

void coll_group_shape(const struct plan *p, const struct plan_groups *groups, int g, int64_t *ranks, int64_t *per_node)
{
    struct mesh_lie slowest = plan_groups_slowest(p, groups, g);

    *ranks = slowest.ranks;
    *per_node = slowest.most;
}

/* ---- measured points ---- */

/* Fewer points than this say less about the shape of the curve than the model does. */
#define POINTS_ENOUGH 6

int coll_points_prepare(struct coll_points *p)
{
    if (p->n < 1 || p->n > COLL_POINTS_MAX)
        return fail("a sweep of %s over %d sizes: expected 1 to %d", coll_name(p->op), p->n, COLL_POINTS_MAX);
    for (int i = 0; i < p->n; i++) {
        if (!(p->bytes[i] > (i ? p->bytes[i - 1] : 0)) || !(p->seconds[i] > 0) || !isfinite(p->seconds[i]))
            return fail("a sweep of %s: point %d: expected rising sizes and positive times", coll_name(p->op), i + 1);
        p->x[i] = log(p->bytes[i]);
        p->y[i] = log(p->seconds[i]);
    }
    pchip_monotone(p->n, p->y);
    pchip_slopes(p->n, p->x, p->y, p->slope);
    return 0;
}

/* Seconds at `bytes` by the sweep itself.  Below its least size the least time; above the
 * largest the straight line through the last and the third last point. */
static double by_sweep(const struct coll_points *p, double bytes)
{
    int    last = p->n - 1, from = last - 2;
    double t = exp(p->y[last]), slope;

    if (bytes <= p->bytes[last])
        return exp(pchip_eval(p->n, p->x, p->y, p->slope, bytes > 1 ? log(bytes) : 0));
    slope = (t - exp(p->y[from])) / (p->bytes[last] - p->bytes[from]);
    return t + slope * (bytes - p->bytes[last]);
}

/* Logarithm of measured over model, at one size of one sweep.  0 or -1. */
static int residual(const struct cluster *c, const struct coll_points *p, int64_t bytes, double *out)
{
    struct cost m;
    double x[COLL_POINTS_MAX], r[COLL_POINTS_MAX], slope[COLL_POINTS_MAX];

    if (p->n >= POINTS_ENOUGH) {
        if (coll_cost(c, p->op, p->ranks, p->per_node, bytes, &m) < 0)
            return -1;
        *out = log(by_sweep(p, (double)bytes) / m.s);
        return 0;
    }
    for (int i = 0; i < p->n; i++) {
        if (coll_cost(c, p->op, p->ranks, p->per_node, (int64_t)p->bytes[i], &m) < 0)
            return -1;
        x[i] = p->x[i];
        r[i] = log(p->seconds[i] / m.s);
    }
    pchip_slopes(p->n, x, r, slope);
    *out = pchip_eval(p->n, x, r, slope, bytes > 1 ? log((double)bytes) : 0);
    return 0;
}

/* The sweeps of the same operation and tier with the nearest rank counts from below and from
 * above; equal where one has this count. */
static void nearest(const struct coll_points *points, int n, enum coll_op op, int64_t ranks, int64_t per_node,
                    const struct coll_points **below, const struct coll_points **above)
{
    bool across = ranks > per_node;

    *below = *above = NULL;
    for (const struct coll_points *p = points; p < points + n; p++) {
        if (p->op != op || p->ranks < 2 || (p->ranks > p->per_node) != across
            || (across && p->per_node != per_node))
            continue;
        if (p->ranks <= ranks && (!*below || p->ranks > (*below)->ranks))
            *below = p;
        if (p->ranks >= ranks && (!*above || p->ranks < (*above)->ranks))
            *above = p;
    }
}

/* Half-width of a 90 % interval, in logarithms: repeated sweeps differ by 5 %; a doubling of
 * ranks beyond what was measured costs up to 16 %, between two sweeps 10 % (timings of public
 * sweeps with some left out; sim/README.md); sizes that were not swept, 20 %. */
#define NOISE .05
/* Over a network between nodes whose samples are known: two calibrations of a link of 1 Gbit/s differ by
 * 2 % in nine series of ten above 10 ms (tests/accuracy/repeats.sh); where it is less steady, its samples say so. */
#define NOISE_LINK .02
#define NOISE_BETWEEN .10
#define NOISE_DOUBLING .16
#define NOISE_SIZE .20

static bool swept(const struct coll_points *p, int64_t bytes)
{
    return (double)bytes >= p->bytes[0] && (double)bytes <= p->bytes[p->n - 1];
}

/* The wider interval of the two neighbouring sizes: a network that is steady at 2 MiB and not at 3 is
 * not steady in between. */
static double spread_at(const struct coll_points *p, double bytes)
{
    int above = 0;

    while (above < p->n - 1 && p->bytes[above] < bytes)
        above++;
    return above > 0 && p->bytes[above] > bytes ? fmax(p->spread[above - 1], p->spread[above]) : p->spread[above];
}

int coll_cost_measured(const struct cluster *c, const struct coll_points *points, int npoints,
                       enum coll_op op, int64_t ranks, int64_t per_node, int64_t bytes,
                       struct cost *out)
{
    const struct coll_points *below, *above;
    double lo = 0, hi = 0, r, wide = NOISE;

    if (coll_cost(c, op, ranks, per_node, bytes, out) < 0)
        return -1;
    if (per_node > ranks)
        per_node = ranks;
    nearest(points, npoints, op, ranks, per_node, &below, &above);
    if (ranks == 1 || (!below && !above))
        return 0;
    if ((below && residual(c, below, bytes, &lo) < 0) || (above && residual(c, above, bytes, &hi) < 0))
        return -1;
    if (below == above) {
        r = lo;
        double spread = spread_at(below, (double)bytes);
        wide = fmax(spread > 0 && below->ranks > below->per_node ? NOISE_LINK : NOISE, spread);
    } else if (below && above) {
        double at = log((double)ranks / (double)below->ranks) / log((double)above->ranks / (double)below->ranks);
        r = lo + at * (hi - lo);
        wide = NOISE_BETWEEN;
    } else {
        const struct coll_points *one = below ? below : above;
        r = below ? lo : hi;
        wide = NOISE + NOISE_DOUBLING * fabs(log2((double)ranks / (double)one->ranks));
    }
    out->outside = wide > NOISE_BETWEEN && below != above;
    if (!swept(below ? below : above, bytes)) {
        wide += NOISE_SIZE;
        out->outside |= (double)bytes > (below ? below : above)->bytes[0];
    }
    out->s *= exp(r);
    out->low_s = out->s * exp(-wide);
    out->high_s = out->s * exp(wide);
    out->basis = BASIS_MEASURED;
    return 0;
}
