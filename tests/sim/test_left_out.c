/* test_left_out.c -- every constant that is fitted, fitted again without one publication, which it then predicts.
 *
 * What is fitted at all: the four factors of collectives (coll_cost.c), the level and the two structural constants of
 * products (gpu_rates.c, gemm_cost.c) and the ramp of fused attention (kernel_cost.c).  Shares of the copy rate are in
 * test_stream_rates.c, what products lose beside collectives is counted (test_overlap.c).  Nothing is fitted to a training step.
 * A fit that does not help on the publication left out, compared with no fit at all, fails here. */
#include "tests/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/price/coll_cost.h"
#include "sim/price/gpu_rates.h"
#include "sim/price/kernel_cost.h"
#include "sim/price/nccl_cost.h"
#include "tests/sim/coll_rows.h"
#include "tests/sim/published.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    assert_true(n > 0);
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* ---- collectives ---- */

enum { MAX_ROWS = 1000, OPTIONS = NNCCL_ALGO * NNCCL_PROTO };
#define MiB 1048576.

/* One row, and what NCCL could run there. */
struct timed {
    struct coll_row row;
    int table, n;
    struct { double lat, byte; } option[OPTIONS];
};
static struct timed timed[MAX_ROWS];
static int ntimed;

/* A publication of all-reduces; of one type and tier the others are what it is predicted from, else all of its tier.  apart: Alps'
 * four GPUs have no switch that adds, and nccl-tests ran a process for each of them there, where the other sweeps of one node contain
 * launches: NCCL's own model meets it within 7 %, and no other table is of its kind. */
static const struct { const char *name, *gpu, *source, *how; bool across, apart; } tables[] = {
    { "A100, 1 node, ml-engineering", "a100", "stas00", "", false, false },
    { "A100, 1 node, vidur", "a100", "microsoft/vidur", "", false, false },
    { "H200, 1 node, ml-engineering", "h200", "stas00", "", false, false },
    { "H100, 1 node, vidur", "8xh100", "microsoft/vidur", "", false, false },
    { "GH200 x4, 1 node, Alps", "4xh100", "boeschf", "", false, true },
    { "B200, 1 node, ml-engineering", "b200", "stas00", "", false, false },
    { "A100, 4-128 nodes, NERSC", "a100", "sparticlesteve", "", true, false },
    { "H100, 4-512 nodes, arXiv 2411.13055", "8xh100", "arXiv", "", true, false },
    { "H100, 4-1024 nodes, NVIDIA's slide", "8xh100", "stas00", "NVIDIA slide", true, false },
    { "H100, 8 nodes, CoreWeave", "8xh100", "coreweave", "", true, false },
    { "B200, 4 nodes, ml-engineering", "b200", "stas00", "", true, false },
};
enum { NTABLES = sizeof tables / sizeof *tables };

static int table_of(const struct coll_row *r)
{
    for (int t = 0; t < NTABLES; t++)
        if (strstr(r->cluster, tables[t].gpu) && !strncmp(r->source, tables[t].source, strlen(tables[t].source)) &&
            strstr(r->how, tables[t].how) && (r->ranks > r->per_node) == tables[t].across && r->op == COLL_ALL_REDUCE)
            return t;
    return -1;
}

static int load(void **state)
{
    static struct coll_row rows[MAX_ROWS];
    int n = coll_rows_read(rows, MAX_ROWS);

    (void)state;
    for (int i = 0; i < n; i++) {
        struct timed *x = &timed[ntimed];
        struct cluster c;
        struct nccl_net net;
        struct nccl_choice o;

        *x = (struct timed){ .row = rows[i], .table = table_of(&rows[i]) };
        if (x->table < 0 || (double)rows[i].bytes < MiB)       /* below, sweeps contain barriers (sim/README.md) */
            continue;
        if (coll_rows_cluster(&rows[i], &c) < 0)
            return -1;
        nccl_net_of(&c, rows[i].ranks, rows[i].per_node, &net);
        for (int a = 0; a < NNCCL_ALGO; a++)
            for (int p = 0; p < NNCCL_PROTO; p++)
                if (nccl_option(&net, rows[i].op, (enum nccl_algo)a, (enum nccl_proto)p, rows[i].bytes, &o)) {
                    x->option[x->n].lat = o.lat;
                    x->option[x->n++].byte = o.byte;
                }
        ntimed += x->n > 0;
    }
    return ntimed > 300 ? 0 : -1;
}

/* The factors of coll_cost.c; all 1 but kr = 0 is NCCL's own model. */
struct factors { double kl, kr, s0, kb; };
static const struct factors nccl = { 1, 0, 8, 1 };

static double seconds(const struct timed *x, const struct factors *f)
{
    double best = INFINITY, size = (double)x->row.bytes;

    for (int i = 0; i < x->n; i++) {
        double t = x->option[i].lat * (f->kl + f->kr * size / (size + f->s0 * MiB)) + f->kb * x->option[i].byte * size;
        best = t < best ? t : best;
    }
    return best;
}

/* Mean |ln(predicted / published)|. */
static double error_of(bool (*takes)(int table, int left_out), int left_out, const struct factors *f)
{
    double sum = 0;
    int n = 0;

    for (int i = 0; i < ntimed; i++)
        if (takes(timed[i].table, left_out)) {
            sum += fabs(log(seconds(&timed[i], f) / timed[i].row.seconds));
            n++;
        }
    return n ? sum / n : NAN;
}

static bool itself(int table, int left_out) { return table == left_out; }

static bool alike(int a, int b)
{
    bool hopper = strstr(tables[a].gpu, "h") && strstr(tables[b].gpu, "h");

    return tables[a].across == tables[b].across && (hopper || !strcmp(tables[a].gpu, tables[b].gpu));
}

static bool of_its_type(int table, int left_out) { return table != left_out && alike(table, left_out); }
static bool of_its_tier(int table, int left_out) { return table != left_out && tables[table].across == tables[left_out].across; }

static struct factors fitted(bool (*to)(int table, int left_out), int left_out)
{
    static const double kl[] = { 1, 1.5, 2, 2.5, 3, 4 }, kr[] = { 0, .5, 1, 2, 3, 4, 6 }, s0[] = { 8, 32, 64, 128 },
                        kb[] = { .94, .97, 1, 1.03, 1.06, 1.1, 1.15 };
    struct factors best = nccl;
    double least = INFINITY;

    for (size_t i = 0; i < 6 * 7 * 4 * 7; i++) {
        struct factors f = { kl[i % 6], kr[i / 6 % 7], s0[i / 42 % 4], kb[i / 168] };
        double e = error_of(to, left_out, &f);
        if (e < least) {
            least = e;
            best = f;
        }
    }
    return best;
}

/* Two sweeps of one machine differ by so much (coll_cost.c). */
#define REPEATS .055

static void collectives_are_predicted_by_the_fit_to_others(void **state)
{
    (void)state;
    printf("  all-reduces from 1 MiB, mean |ln(predicted / published)|, %%\n  %-38s %6s %6s %9s  %s\n", "left out", "NCCL",
           "ours", "left out", "fitted to");
    for (int t = 0; t < NTABLES; t++) {
        bool (*to)(int, int) = of_its_type;
        bool any = false;
        for (int o = 0; o < NTABLES; o++)
            any |= of_its_type(o, t);
        if (!any)
            to = of_its_tier;
        struct factors f = fitted(to, t), best = fitted(itself, t);
        double none = error_of(itself, t, &nccl), out = error_of(itself, t, &f);
        printf("  %-38s %6.1f %6.1f %9.1f  %s: %g %g %g %g\n", tables[t].name, 100 * none, 100 * error_of(itself, t, &best),
               100 * out, any ? "its type" : "other types", f.kl, f.kr, f.s0, f.kb);
        assert_true(out <= fmax(none, REPEATS) || tables[t].apart);
    }
}

/* Bus bandwidths of nccl#1229, GB/s; of the rate's loss with the number of nodes the small half, 4 to 16, predicts 32 to 128. */
static void growth_with_nodes_is_predicted_from_few_nodes(void **state)
{
    static const double bus[6] = { 360, 345, 320, 300, 280, 260 };
    double rate[6], with = 0, without = 0, bytes = 8 * 1024 * MiB, slope = 0, level = 0;

    (void)state;
    for (int i = 0; i < 6; i++) {               /* the rate that NCCL's latency leaves, as a multiple of NCCL's */
        char spec[32];
        struct cluster c;
        struct nccl_net net;
        struct nccl_choice o;
        snprintf(spec, sizeof spec, "%dx8xh100", 4 << i);
        assert_int_equal(cluster_load(spec, &c), 0);
        nccl_net_of(&c, c.world_size, 8, &net);
        nccl_choose(&net, COLL_REDUCE_SCATTER, (int64_t)bytes, &o);
        double n = (double)c.world_size, t = bytes * (n - 1) / n / (1e9 * bus[i]);
        rate[i] = (t - o.lat) / (o.byte * bytes);
        assert_true(rate[i] > 1);
    }
    level = (rate[0] + rate[1] + rate[2]) / 3;
    slope = (rate[2] - rate[0]) / 2;            /* least squares through three points one apart */
    for (int i = 3; i < 6; i++) {
        with += fabs((level + slope * (i - 1)) / rate[i] - 1) / 3;
        without += fabs(1 / rate[i] - 1) / 3;
    }
    printf("  reduce-scatter over nodes: rates %.2f %.2f %.2f %.2f %.2f %.2f; 32 to 128 nodes from 4 to 16 within %.1f %%, without %.1f %%\n",
           rate[0], rate[1], rate[2], rate[3], rate[4], rate[5], 100 * with, 100 * without);
    assert_true(with < without);
}

/* ---- products ---- */

struct shape { char gpu[32], pass[8], source[128]; struct gemm g; double s; };
static struct shape shapes[300];
static int nshapes;

static void take_shape(const char *line, void *arg)
{
    struct shape *x = &shapes[nshapes];
    double us;

    (void)arg;
    assert_true(nshapes < 300);
    assert_int_equal(sscanf(line, "%31[^,],%7[^,],%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%lf,%*d,%127[^,\n]", x->gpu,
                            x->pass, &x->g.batch, &x->g.m, &x->g.n, &x->g.k, &us, x->source), 8);
    x->g.bytes = x->g.batch * 2 * (x->g.m * x->g.k + x->g.n * x->g.k + x->g.m * x->g.n);
    x->s = us * 1e-6;
    nshapes += strcmp(x->pass, "wgrad") != 0;           /* SimuMax's accumulate in fp32 */
}

/* `at_limit`: runs long enough to meet the power limit, whose level is `sustained` (tests/sim/test_gpu_rates.c). */
static const struct { const char *gpu, *source; bool at_limit; } publications[] = {
    { "a100-80gb", "microsoft/vidur", false }, { "a100-80gb", "EleutherAI/cookbook", false },
    { "a100-80gb", "tusharhqq/napkin-math-gpu", false },
    { "h100", "microsoft/vidur", false }, { "h100", "tusharhqq/napkin-math-gpu", false }, { "h100", "marin-community/marin", false },
    { "a100-pcie-80gb", "MooreThreads/SimuMax", false }, { "b200", "MooreThreads/SimuMax", true },
    { "b200", "pytorch/ao", false }, { "b200", "vllm-project/vllm", false }, { "b200", "NVIDIA/tilus", false },
    { "b200", "modular.com", false },
};
enum { NPUBLICATIONS = sizeof publications / sizeof *publications };

static bool is_of(const struct shape *x, int publication)
{
    return !strcmp(x->gpu, publications[publication].gpu) &&
           !strncmp(x->source, publications[publication].source, strlen(publications[publication].source));
}

/* Share of the peak at which the device gives this product's published time: by halving, since the time falls with the rate. */
static double share_of(const struct shape *x, struct gemm_device d)
{
    double peak = gpu_peak(gpu_find(x->gpu), DT_BF16), low = .01, high = 10;

    for (int i = 0; i < 60; i++) {
        double at = sqrt(low * high);
        d.flops = peak * at;
        *(gemm_prior(&d, &x->g, NULL) > x->s ? &low : &high) = at;
    }
    return sqrt(low * high);
}

static bool is_large(const struct shape *x) { return (double)x->g.m * (double)x->g.n * (double)x->g.k > 1e11; }

/* A publication's vote: the median over its large products. */
static double vote(int publication)
{
    double of[300];
    int n = 0;

    for (int i = 0; i < nshapes; i++)
        if (is_of(&shapes[i], publication) && is_large(&shapes[i]))
            of[n++] = share_of(&shapes[i], gemm_device(gpu_find(shapes[i].gpu), DT_BF16));
    return median(of, n);
}

static double level_error(int publication, double share)
{
    double sum = 0;
    int n = 0;

    for (int i = 0; i < nshapes; i++) {
        if (!is_of(&shapes[i], publication))
            continue;
        struct gemm_device d = gemm_device(gpu_find(shapes[i].gpu), DT_BF16);
        d.flops = gpu_peak(gpu_find(shapes[i].gpu), DT_BF16) * share;
        sum += fabs(log(gemm_prior(&d, &shapes[i].g, NULL) / shapes[i].s));
        n++;
    }
    return sum / n;
}

static void levels_of_products_are_predicted_by_other_publications(void **state)
{
    static const struct gpu unknown = { .name = "unknown", .bf16 = 1, .sms = 1, .sm_arch = 80 };
    double votes[NPUBLICATIONS], assumed = gpu_rates(&unknown)->gemm, out = 0, none = 0;

    (void)state;
    printf("  products, mean |ln(predicted / published)|, %%\n  %-16s %-28s %5s %8s %9s %9s\n", "type", "left out", "vote", "ours",
           "left out", "assumed");
    for (int p = 0; p < NPUBLICATIONS; p++)
        votes[p] = vote(p);
    for (int p = 0; p < NPUBLICATIONS;) {
        const struct gpu *g = gpu_find(publications[p].gpu);
        double all[8];
        int first = p, n = 0;
        if (publications[p].at_limit) {
            p++;
            continue;
        }
        while (first + n < NPUBLICATIONS && !strcmp(publications[first + n].gpu, g->name)) {
            all[n] = votes[first + n];
            n++;
        }
        assert_close(gpu_rates(g)->gemm, median(all, n), .02);
        for (; p < first + n; p++) {
            double others[8], error = NAN;
            int k = 0;
            for (int o = first; o < first + n; o++)
                if (o != p)
                    others[k++] = votes[o];
            if (k)
                error = level_error(p, median(others, k));
            out += k ? error : 0;
            none += k ? level_error(p, assumed) : 0;
            printf("  %-16s %-28s %5.3f %8.1f %9.1f %9.1f%s\n", g->name, publications[p].source, votes[p],
                   100 * level_error(p, gpu_rates(g)->gemm), 100 * error, 100 * level_error(p, assumed), k ? "" : "  the only one");
        }
    }
    assert_true(out <= none);           /* of all types together: B200's four publications predict each other no better than 0.70 */
}

/* Spread of one publication's ln(prior / published) about its median, in absolute value, with these structural constants. */
static double spread_of(int publication, double feed, double block)
{
    double r[300], sum = 0, own = publications[publication].at_limit ? vote(publication) : 0;
    int n = 0;

    for (int i = 0; i < nshapes; i++) {
        if (!is_of(&shapes[i], publication))
            continue;
        struct gemm_device d = gemm_device(gpu_find(shapes[i].gpu), DT_BF16);
        if (publications[publication].at_limit)         /* at its own level, not at that of short runs */
            d.flops = gpu_peak(gpu_find(shapes[i].gpu), DT_BF16) * own;
        d.feed = feed;
        d.block = block;
        r[n++] = log(gemm_prior(&d, &shapes[i].g, NULL) / shapes[i].s);
    }
    double middle = median(r, n);
    for (int i = 0; i < n; i++)
        sum += fabs(r[i] - middle);
    return sum / n;
}

static void structure_of_products_is_predicted_by_other_publications(void **state)
{
    static const int large[] = { 0, 3, 6, 7 };          /* with tens of shapes */
    static const double feeds[] = { 40, 60, 80, 100, 120 }, blocks[] = { .5e-6, 1e-6, 1.5e-6, 2e-6 };
    struct gemm_device ours = gemm_device(gpu_find("h100"), DT_BF16);

    (void)state;
    printf("  shape of products, spread about the median, %%\n  %-16s %-24s %6s %6s %9s\n", "type", "left out", "none", "ours", "left out");
    for (int i = 0; i < 4; i++) {
        double least = INFINITY, feed = 0, block = 0;
        for (int k = 0; k < 20; k++) {
            double sum = 0;
            for (int o = 0; o < 4; o++)
                sum += o == i ? 0 : spread_of(large[o], feeds[k % 5], blocks[k / 5]);
            if (sum < least) {
                least = sum;
                feed = feeds[k % 5];
                block = blocks[k / 5];
            }
        }
        double none = spread_of(large[i], 0, 0), out = spread_of(large[i], feed, block);
        printf("  %-16s %-24s %6.1f %6.1f %9.1f  feed %g, block %g us\n", publications[large[i]].gpu, publications[large[i]].source,
               100 * none, 100 * spread_of(large[i], ours.feed, ours.block), 100 * out, feed, 1e6 * block);
        assert_true(out <= none);
    }
}

/* ---- fused attention ---- */

struct curve { char gpu[32], flash[16], pass[8]; double s[32], rate[32]; int n; };
static struct curve curves[16];
static int ncurves;

/* Rates in sequence length, one curve a GPU, kernel, pass and head dimension. */
static void take_attention(const char *line, void *arg)
{
    struct curve one = { .n = 1 };
    double causal, b, s, h, kv, d, us;
    int i = 0;

    (void)arg;
    assert_int_equal(sscanf(line, "%31[^,],%15[^,],%7[^,],%lf,%lf,%lf,%lf,%lf,%lf,%lf", one.gpu, one.flash, one.pass, &causal, &b, &s,
                            &h, &kv, &d, &us), 10);
    if (d != 128)
        return;
    while (i < ncurves && (strcmp(curves[i].gpu, one.gpu) || strcmp(curves[i].flash, one.flash) || strcmp(curves[i].pass, one.pass)))
        i++;
    assert_true(i < 16);
    if (i == ncurves)
        curves[ncurves++] = (struct curve){ .n = 0 };
    struct curve *c = &curves[i];
    memcpy(c->gpu, one.gpu, sizeof c->gpu);
    memcpy(c->flash, one.flash, sizeof c->flash);
    memcpy(c->pass, one.pass, sizeof c->pass);
    assert_true(c->n < 32);
    c->s[c->n] = s;
    c->rate[c->n++] = b * s * s * h * d / us;
}

static double ramp_error(const struct curve *c, double half)
{
    double r[32], sum = 0;

    for (int i = 0; i < c->n; i++)
        r[i] = log(c->rate[i] * (1 + half / c->s[i]));
    double middle = median(r, c->n);
    for (int i = 0; i < c->n; i++)
        sum += fabs(log(c->rate[i] * (1 + half / c->s[i])) - middle);
    return sum / c->n;
}

/* Of curves with several lengths: the length at which attention runs at half of its rate, from all the others. */
static void the_ramp_of_attention_is_predicted_by_other_curves(void **state)
{
    (void)state;
    assert_true(each_row("tests/sim/data/attention_published.csv", take_attention, NULL) > 50);
    printf("  ramp of attention, spread about the median, %%\n  %-16s %-6s %-4s %6s %6s %9s\n", "type", "kernel", "pass", "none", "ours",
           "left out");
    double none_all = 0, out_all = 0;
    for (int i = 0; i < ncurves; i++) {
        double least = INFINITY, half = 0;
        if (curves[i].n < 5)
            continue;
        for (double h = 50; h <= 1000; h += 50) {
            double sum = 0;
            for (int o = 0; o < ncurves; o++)
                sum += o == i || curves[o].n < 5 ? 0 : ramp_error(&curves[o], h);
            if (sum < least) {
                least = sum;
                half = h;
            }
        }
        double none = ramp_error(&curves[i], 0), out = ramp_error(&curves[i], half);
        printf("  %-16s %-6s %-4s %6.1f %6.1f %9.1f  half of it at %g\n", curves[i].gpu, curves[i].flash, curves[i].pass, 100 * none,
               100 * ramp_error(&curves[i], 300), 100 * out, half);
        none_all += none;
        out_all += out;
    }
    assert_true(out_all < none_all);
}

static int load_all(void **state)
{
    return each_row("tests/sim/data/gemm_published.csv", take_shape, NULL) > 200 ? load(state) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_are_predicted_by_the_fit_to_others),
        cmocka_unit_test(growth_with_nodes_is_predicted_from_few_nodes),
        cmocka_unit_test(levels_of_products_are_predicted_by_other_publications),
        cmocka_unit_test(structure_of_products_is_predicted_by_other_publications),
        cmocka_unit_test(the_ramp_of_attention_is_predicted_by_other_curves),
    };
    return cmocka_run_group_tests_name("sim/left_out", tests, load_all, NULL);
}
