/* Prices from made-up measurements, whose answers follow from them by hand. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/price/measured_cost.h"
#include "sim/price/measured_gaps.h"
#include "tests/check.h"

#define MiB ((int64_t)1 << 20)

static const struct gemm_device core = { .sms = 1, .flops = 100e9, .bytes = 10e9, .launch = 0 };

static struct estimate kernel_price(const struct measured_device *d, const struct kernel *k, int64_t seq)
{
    struct kernel_query q = { .k = k, .seq = seq, .dim = 64 };
    struct estimate e = { 0 };

    assert_true(measured_kernel(d, &core, &q, &e));
    return e;
}

/* ---- kernels ---- */

static void a_point_with_the_same_key_is_taken_as_it_is(void **state)
{
    (void)state;
    const struct measured_kernel points[] = {
        { .fn = FN_LINEAR, .kind = KC_GEMM, .batch = 1, .m = 512, .n = 384, .k = 384, .bytes = 2 * MiB, .s = 7e-3 },
        { .fn = FN_LINEAR_DX, .kind = KC_GEMM, .batch = 1, .m = 512, .n = 384, .k = 384, .bytes = 2 * MiB, .s = 9e-3 },
    };
    struct measured_device d = { .kernel = points, .nkernel = 2 };
    struct kernel k = { .fn = FN_LINEAR_DX, .kind = KC_GEMM, .batch = 1, .m = 512, .n = 384, .k = 384, .bytes = 2 * MiB };

    assert_close(kernel_price(&d, &k, 0).s, 9e-3, 1e-12);
    k.fn = FN_LINEAR;
    assert_close(kernel_price(&d, &k, 0).s, 7e-3, 1e-12);
    assert_false(kernel_price(&d, &k, 0).outside);
}

/* On a core without launches a product of twice the tokens is twice the work: if every point took
 * three times what the prior says, so does any other product. */
static void products_keep_what_measurements_say_of_the_prior(void **state)
{
    (void)state;
    struct measured_kernel points[3];
    struct measured_device d = { .kernel = points, .nkernel = 3 };
    struct kernel k = { .fn = FN_LINEAR, .kind = KC_GEMM, .batch = 1, .m = 700, .n = 500, .k = 400 };

    for (int i = 0; i < 3; i++)
        points[i] = (struct measured_kernel){ .fn = FN_LINEAR, .kind = KC_GEMM, .batch = 1, .m = 256 << i, .n = 384,
                                              .k = 384, .s = 3 * 2.0 * (256 << i) * 384 * 384 / core.flops };
    assert_close(kernel_price(&d, &k, 0).s, 3 * 2.0 * 700 * 500 * 400 / core.flops, 1e-9);
    assert_false(kernel_price(&d, &k, 0).outside);
    double near = kernel_price(&d, &k, 0).error;
    k.m = 20000;
    assert_true(kernel_price(&d, &k, 0).outside);
    assert_true(kernel_price(&d, &k, 0).error > near);
}

static void streams_are_interpolated_and_beyond_in_proportion(void **state)
{
    (void)state;
    const struct measured_kernel points[] = {
        { .fn = FN_NORM, .kind = KC_NORM, .bytes = 1000000, .s = 10e-6 },
        { .fn = FN_NORM, .kind = KC_NORM, .bytes = 2000000, .s = 14e-6 },
        { .fn = FN_NORM, .kind = KC_NORM, .bytes = 10000000, .s = 50e-6 },
    };
    struct measured_device d = { .kernel = points, .nkernel = 3 };
    const struct { int64_t bytes; double s; bool outside; } want[] = {
        { 500000, 5e-6, false }, { 1500000, 12e-6, false }, { 2000000, 14e-6, false }, { 6000000, 32e-6, false },
        { 20000000, 100e-6, true },
    };

    for (int i = 0; i < 5; i++) {
        struct kernel k = { .fn = FN_NORM, .kind = KC_NORM, .bytes = want[i].bytes };
        assert_close(kernel_price(&d, &k, 0).s, want[i].s, 1e-9);
        assert_int_equal(kernel_price(&d, &k, 0).outside, want[i].outside);
    }
}

static void attention_of_the_same_length_goes_by_its_work(void **state)
{
    (void)state;
    const struct measured_kernel points[] = {
        { .fn = FN_ATTENTION, .kind = KC_ATTENTION, .flops = 1e9, .seq = 256, .dim = 64, .s = 2e-2 },
        { .fn = FN_ATTENTION, .kind = KC_ATTENTION, .flops = 4e9, .seq = 256, .dim = 64, .s = 8e-2 },
        { .fn = FN_ATTENTION_BACK, .kind = KC_ATTENTION, .flops = 1e9, .seq = 256, .dim = 64, .s = 5e-2 },
    };
    struct measured_device d = { .kernel = points, .nkernel = 3 };
    struct kernel k = { .fn = FN_ATTENTION, .kind = KC_ATTENTION, .flops = 2e9 };

    assert_close(kernel_price(&d, &k, 256).s, 4e-2, 1e-9);
    k.fn = FN_ATTENTION_BACK;
    assert_close(kernel_price(&d, &k, 256).s, 10e-2, 1e-9);
}

static void what_nobody_timed_has_no_price(void **state)
{
    (void)state;
    const struct measured_kernel points[] = { { .fn = FN_NORM, .kind = KC_NORM, .bytes = 1, .s = 1 } };
    struct measured_device d = { .kernel = points, .nkernel = 1 };
    struct kernel k = { .fn = FN_LINEAR, .kind = KC_GEMM, .batch = 1, .m = 1, .n = 1, .k = 1 };
    struct kernel_query q = { .k = &k };
    struct estimate e;

    assert_false(measured_kernel(&d, &core, &q, &e));
    assert_false(measured_pass(&d, KERNELS_DPX, MP_ADAMW, 1e6, &e));
}

/* ---- collectives ---- */

static struct cluster two_ranks(const struct measured_device *d)
{
    struct cluster c;

    assert_int_equal(cluster_load("localhost:2", &c), 0);
    c.measured = d;
    return c;
}

static void collectives_go_through_their_points(void **state)
{
    (void)state;
    struct measured_coll points[8];
    struct measured_device d = { .coll = points, .ncoll = 8 };
    struct cluster c = two_ranks(&d);
    struct coll_query q = { .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2 };
    struct estimate e;

    for (int i = 0; i < 8; i++)
        points[i] = (struct measured_coll){ .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2,
                                            .bytes = MiB << i, .s = 1e-3 * (1 << i), .spread = 0.01 * i };
    for (int i = 0; i < 8; i++) {
        q.bytes = MiB << i;
        assert_true(measured_coll(&c, &q, &e));
        assert_close(e.s, 1e-3 * (1 << i), 1e-9);
        assert_false(e.outside);
    }
    q.bytes = MiB << 9;             /* the straight line through the last points goes on */
    assert_true(measured_coll(&c, &q, &e));
    assert_close(e.s, 1e-3 * (1 << 9), 1e-6);
    assert_true(e.outside);
    q.op = COLL_BROADCAST;
    assert_false(measured_coll(&c, &q, &e));
}

/* A message goes by its size and by where its two ranks are; a receive takes what the send takes that it meets; a tier that
 * was not timed has no measured price. */
static void messages_go_by_size_and_pair(void **state)
{
    (void)state;
    struct measured_coll points[12];
    struct measured_device d = { .coll = points, .ncoll = 12 };
    struct cluster c = two_ranks(&d);
    struct coll_query q = { .op = COLL_SEND, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .bytes = MiB };
    struct estimate e;

    c.nodes = c.gpus_per_node = 2;
    c.world_size = 4;
    for (int i = 0; i < 6; i++)
        for (int away = 0; away < 2; away++)
            points[6 * (1 - away) + i] = (struct measured_coll){
                .op = COLL_SEND, .dtype = DT_FP32, .ranks = 2, .per_node = 2 - away, .bytes = MiB << i,
                .s = (away ? 8e-3 : 1e-3) * (1 << i) };
    assert_true(measured_coll(&c, &q, &e));
    assert_close(e.s, 1e-3, 1e-9);
    q.op = COLL_RECV;
    q.dtype = DT_BF16;
    assert_true(measured_coll(&c, &q, &e));
    assert_close(e.s, 1e-3, 1e-9);
    q.per_node = 1;
    q.bytes = 4 * MiB;
    assert_true(measured_coll(&c, &q, &e));
    assert_close(e.s, 32e-3, 1e-9);
    d.ncoll = 6;                        /* only those between nodes */
    q.per_node = 2;
    assert_false(measured_coll(&c, &q, &e));
}

/* Half of a 90 % interval: 5 % within a node and where samples are not known, 2 % of a link whose samples are
 * (a quarter of their spread of 4 % is less). */
static void a_link_is_as_steady_as_its_samples(void **state)
{
    (void)state;
    struct measured_coll point = { .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .bytes = MiB,
                                   .s = 1e-3, .spread = .04 };
    struct measured_device d = { .coll = &point, .ncoll = 1 };
    struct cluster c = two_ranks(&d);
    struct coll_query q = { .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .bytes = MiB };
    struct estimate e;

    assert_true(measured_coll(&c, &q, &e));
    assert_close(e.error, .05, 1e-9);
    c.nodes = 2;
    c.gpus_per_node = q.per_node = point.per_node = 1;
    assert_true(measured_coll(&c, &q, &e));
    assert_close(e.error, .02, 1e-9);
    point.spread = 0;
    assert_true(measured_coll(&c, &q, &e));
    assert_close(e.error, .05, 1e-9);
}

static void stars_and_dtypes_have_sweeps_of_their_own(void **state)
{
    (void)state;
    const struct measured_coll points[] = {
        { .op = COLL_ALL_REDUCE, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .bytes = MiB, .s = 1e-3 },
        { .op = COLL_ALL_REDUCE, .dtype = DT_FP32, .star = true, .ranks = 2, .per_node = 2, .bytes = MiB, .s = 2e-3 },
        { .op = COLL_ALL_REDUCE, .dtype = DT_BF16, .ranks = 2, .per_node = 2, .bytes = MiB, .s = 3e-3 },
    };
    struct measured_device d = { .coll = points, .ncoll = 3 };
    struct cluster c = two_ranks(&d);
    struct coll_query q = { .op = COLL_ALL_REDUCE, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .bytes = MiB };
    struct estimate e;

    assert_true(measured_coll(&c, &q, &e));
    assert_close(e.s, 1e-3, 1e-9);
    q.star = true;
    assert_true(measured_coll(&c, &q, &e));
    assert_close(e.s, 2e-3, 1e-9);
    q.star = false;
    q.dtype = DT_BF16;
    assert_true(measured_coll(&c, &q, &e));
    assert_close(e.s, 3e-3, 1e-9);
}

/* Of 2 MiB the median of few samples is good to 20 % (at 95 %, so to 16.8 at 90), that of 1 and 4 MiB is
 * certain: what lies between is as uncertain as the worse of its neighbours, 1 MiB as a sweep ever is. */
static void a_median_of_few_samples_is_uncertain(void **state)
{
    (void)state;
    struct measured_coll points[3];
    struct measured_device d = { .coll = points, .ncoll = 3 };
    struct cluster c = two_ranks(&d);
    struct coll_query q = { .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2 };
    const double at[] = { 1, 1.5, 2, 3, 4 }, error[] = { .05, .2 * 1.645 / 1.96, .2 * 1.645 / 1.96, .2 * 1.645 / 1.96, .05 };
    struct estimate e;

    for (int i = 0; i < 3; i++)
        points[i] = (struct measured_coll){ .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2,
                                            .bytes = MiB << i, .s = 1e-3 * (1 << i), .unsure = i == 1 ? .2 : 0 };
    for (int i = 0; i < 5; i++) {
        q.bytes = (int64_t)(at[i] * MiB);
        assert_true(measured_coll(&c, &q, &e));
        assert_close(e.error, error[i], 1e-9);
    }
}

/* ---- overlap ---- */

/* 8 MiB take 1 ms alone and 8 ms beside compute: it waits 7 ms, as does anything smaller.  Twice the
 * size waits twice.  Compute loses the millisecond that the collective works, whichever it is. */
static void a_collective_beside_compute_waits_for_its_turn(void **state)
{
    (void)state;
    struct measured_coll points[8];
    const struct measured_overlap beside[] = {
        { .kind = KC_GEMM, .op = COLL_ALL_GATHER, .bytes = 8 * MiB, .compute = 1.125, .other = 8, .alone_s = 1e-3,
          .ranks = 2, .per_node = 2 },
    };
    struct measured_device d = { .coll = points, .ncoll = 8, .overlap = beside, .noverlap = 1 };
    struct cluster c = two_ranks(&d);
    struct coll_query q = { .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .bytes = MiB };
    double compute, other;

    for (int i = 0; i < 8; i++)
        points[i] = (struct measured_coll){ .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2,
                                            .bytes = MiB << i, .s = 0.125e-3 * (1 << i) };
    assert_true(measured_beside(&c, &q, KC_ATTENTION, 0.125e-3, &compute, &other));
    assert_close(other * 0.125e-3, 7.125e-3, 1e-9);
    assert_close((compute - 1) * other * 0.125e-3, 0.125e-3, 1e-9);
    q.bytes = 16 * MiB;
    assert_true(measured_beside(&c, &q, KC_GEMM, 2e-3, &compute, &other));
    assert_close(other * 2e-3, 16e-3, 1e-9);
    assert_false(measured_beside(&c, &q, KC_NORM, 2e-3, &compute, &other));
}

/* Of two sizes: 1 MiB waits 1.5 ms, 8 MiB 5 ms, 4 MiB what lies between; two kinds of products, their mean.
 * At half the pace a collective takes twice as long, but its turn comes when it comes. */
static void what_a_collective_waits_for_goes_by_its_size(void **state)
{
    (void)state;
    struct measured_coll points[8];
    const struct measured_overlap beside[] = {
        { .kind = KC_GEMM, .op = COLL_ALL_GATHER, .bytes = MiB, .compute = 1, .other = 17, .alone_s = 0.0625e-3,
          .ranks = 2, .per_node = 2 },
        { .kind = KC_ATTENTION, .op = COLL_ALL_GATHER, .bytes = MiB, .compute = 1, .other = 33, .alone_s = 0.0625e-3,
          .ranks = 2, .per_node = 2 },
        { .kind = KC_GEMM, .op = COLL_ALL_GATHER, .bytes = 8 * MiB, .compute = 1, .other = 11, .alone_s = 0.5e-3,
          .ranks = 2, .per_node = 2 },
    };
    struct measured_device d = { .coll = points, .ncoll = 8, .overlap = beside, .noverlap = 3, .now_s = 4e-3,
                                 .probe_s = 2e-3 };
    struct cluster c = two_ranks(&d);
    struct coll_query q = { .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .bytes = 4 * MiB };
    struct estimate alone;
    double compute, other;

    for (int i = 0; i < 8; i++)
        points[i] = (struct measured_coll){ .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2,
                                            .bytes = MiB << i, .s = 0.0625e-3 * (1 << i) };
    assert_true(measured_coll(&c, &q, &alone));             /* 0.25 ms, at half the pace 0.5 */
    assert_close(alone.s, 0.5e-3, 1e-9);
    /* (16 + 32) / 2 times 0.0625 ms, 10 times 0.5. */
    assert_true(measured_beside(&c, &q, KC_GEMM, alone.s, &compute, &other));
    assert_close((other - 1) * alone.s, 1.5e-3 + (5e-3 - 1.5e-3) * 3 / 7, 1e-9);
    assert_close(compute, 1, 1e-12);
    /* Between nodes: the link has a pace of its own. */
    for (int i = 0; i < 8; i++)
        points[i].per_node = 1;
    c.nodes = 2;
    q.per_node = c.gpus_per_node = 1;
    assert_true(measured_coll(&c, &q, &alone));
    assert_close(alone.s, 0.25e-3, 1e-9);
}

/* 8 MiB take 1 ms in a sweep, half of that beside compute, where its buffers are in a cache, and then 4 ms:
 * it waits 3.5 ms, not 7.  Four ranks, of which a sweep says twice as long, wait twice as long. */
static void what_it_waits_for_is_not_a_multiple_of_a_sweep(void **state)
{
    (void)state;
    struct measured_coll points[16];
    struct measured_overlap beside[] = {
        { .kind = KC_GEMM, .op = COLL_ALL_GATHER, .bytes = 8 * MiB, .compute = 1, .other = 8, .alone_s = 0.5e-3,
          .ranks = 2, .per_node = 2 },
    };
    struct measured_device d = { .coll = points, .ncoll = 16, .overlap = beside, .noverlap = 1 };
    struct cluster c = two_ranks(&d);
    struct coll_query q = { .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .bytes = 8 * MiB };
    double compute, other;

    for (int i = 0; i < 16; i++)
        points[i] = (struct measured_coll){ .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = i < 8 ? 2 : 4,
                                            .per_node = i < 8 ? 2 : 4, .bytes = MiB << i % 8,
                                            .s = (i < 8 ? 0.125e-3 : 0.25e-3) * (1 << i % 8) };
    assert_true(measured_beside(&c, &q, KC_GEMM, 1e-3, &compute, &other));
    assert_close((other - 1) * 1e-3, 3.5e-3, 1e-9);
    c.gpus_per_node = c.world_size = q.ranks = q.per_node = 4;
    assert_true(measured_beside(&c, &q, KC_GEMM, 2e-3, &compute, &other));
    assert_close((other - 1) * 2e-3, 7e-3, 1e-9);
    /* Timed on four, asked of two, whose cluster has no four. */
    beside[0].ranks = beside[0].per_node = 4;
    c = two_ranks(&d);
    q.ranks = q.per_node = 2;
    assert_true(measured_beside(&c, &q, KC_GEMM, 1e-3, &compute, &other));
    assert_close((other - 1) * 1e-3, 1.75e-3, 1e-9);
}

/* Of 10 times its time alone, half as much lost by compute would be 5 times what it can work. */
static void a_collective_works_no_longer_than_it_takes_alone(void **state)
{
    (void)state;
    struct measured_coll points[8];
    const struct measured_overlap beside[] = {
        { .kind = KC_GEMM, .op = COLL_ALL_GATHER, .bytes = MiB, .compute = 1.5, .other = 10, .alone_s = 0.125e-3,
          .ranks = 2, .per_node = 2 },
    };
    struct measured_device d = { .coll = points, .ncoll = 8, .overlap = beside, .noverlap = 1 };
    struct cluster c = two_ranks(&d);
    struct coll_query q = { .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .bytes = MiB };
    double compute, other;

    for (int i = 0; i < 8; i++)
        points[i] = (struct measured_coll){ .op = COLL_ALL_GATHER, .dtype = DT_FP32, .ranks = 2, .per_node = 2,
                                            .bytes = MiB << i, .s = 0.125e-3 * (1 << i) };
    assert_true(measured_beside(&c, &q, KC_GEMM, 0.125e-3, &compute, &other));
    assert_close(other, 10, 1e-9);
    assert_close((compute - 1) * other, 1, 1e-9);
}

/* ---- whole steps ---- */

/* Every kernel of a plan's program at `per_byte` seconds a byte, and everything else there is. */
struct machine {
    struct measured_kernel  kernel[256];
    struct measured_bytes   bytes[NMEASURED_PASS];
    struct measured_coll    coll[2 * NCOLL];
    struct measured_overlap overlap[2 * NCOLL + 2];
    struct measured_device  d;
};

static void time_kernels(struct machine *m, const struct plan *p, double per_byte)
{
    struct program g = { 0 };

    assert_int_equal(program_build(p, &g), 0);
    for (int i = 0; i < NPIECE; i++)
        for (int pass = 0; pass < NPASS; pass++)
            for (int j = 0; j < g.piece[i].nkernels[pass] && m->d.nkernel < 256; j++) {
                const struct kernel *k = &g.piece[i].kernels[pass][j];
                m->kernel[m->d.nkernel++] = (struct measured_kernel){
                    .fn = k->fn, .kind = (uint8_t)k->kind, .batch = k->batch, .m = k->m, .n = k->n, .k = k->k,
                    .seq = p->seq, .dim = p->model.head_dim, .bytes = k->bytes, .flops = k->flops,
                    .dropout = p->dropout > 0, .s = per_byte * (double)k->bytes };
            }
    program_free(&g);
}

static void measure(struct machine *m, const struct plan *p, double per_byte)
{
    memset(m, 0, sizeof *m);
    m->d = (struct measured_device){ .kernel = m->kernel, .bytes = m->bytes, .coll = m->coll, .overlap = m->overlap,
                                     .ranks = 2, .threads = 1 };
    time_kernels(m, p, per_byte);
    for (int i = 0; i < NMEASURED_PASS; i++)
        m->bytes[m->d.nbytes++] = (struct measured_bytes){ (enum measured_pass)i, MiB, per_byte * MiB, 0, KERNELS_DPX };
    for (int op = 0; op < NCOLL; op++)
        for (int i = 0; i < 2; i++)
            m->coll[m->d.ncoll++] = (struct measured_coll){
                .op = (enum coll_op)op, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .bytes = i ? 64 * MiB : 1,
                .s = per_byte * (i ? 64 * MiB : 1) };
    for (int op = 0; op <= NCOLL; op++)
        for (int i = 0; i < 2; i++)
            m->overlap[m->d.noverlap++] = (struct measured_overlap){ .kind = i ? KC_ELEMENTWISE : KC_GEMM, .op = op,
                                                                     .compute = 2, .other = 2 };
}

static void load_plan(const char *strategy, struct plan *p)
{
    char text[512];
    json_t *j;

    snprintf(text, sizeof text, "{\"dpx_plan\": 1, \"model\": {\"model_type\": \"gpt2\", \"n_layer\": 3, \"n_embd\": 64,"
             "\"n_head\": 2, \"n_positions\": 64, \"vocab_size\": 256, \"resid_pdrop\": 0, \"embd_pdrop\": 0,"
             "\"attn_pdrop\": 0}, \"cluster\": \"localhost:2\", \"strategy\": \"%s\", \"dialect\": \"torch\","
             "\"kernels\": \"dpx\", \"seq\": 64, \"micro_batch\": 1, \"precision\": \"fp32\"}", strategy);
    j = json_loads(text, 0, NULL);
    assert_non_null(j);
    assert_int_equal(plan_from_json(j, "test", p), 0);
    json_decref(j);
}

static struct timing timed(const struct plan *p)
{
    struct evaluation e;
    struct timing t;

    assert_int_equal(evaluate(p, &e), 0);
    assert_int_equal(simulate_plan(p, &e, &t, NULL), 0);
    evaluation_free(&e);
    return t;
}

/* Where everything takes its bytes times one figure, a machine half as fast takes twice as long. */
static void a_step_scales_with_what_was_measured(void **state)
{
    (void)state;
    static const char *const strategies[] = { "ddp", "fsdp" };
    static struct machine m;
    struct plan p;

    for (int i = 0; i < 2; i++) {
        load_plan(strategies[i], &p);
        measure(&m, &p, 1e-7);          /* so slow that issuing does not matter */
        p.cluster.measured = &m.d;
        struct timing one = timed(&p);
        measure(&m, &p, 2e-7);
        struct timing two = timed(&p);
        assert_int_equal(one.basis, BASIS_MEASURED);
        assert_close(two.line.step_s / one.line.step_s, 2, 1e-2);
        assert_true(one.low_s < one.line.step_s && one.line.step_s < one.high_s);
        plan_free(&p);
    }
}

/* On cores that are shared (2 and 2) nothing is won by overlap: the step is the sum of its parts. */
static void on_shared_cores_a_step_is_the_sum_of_its_parts(void **state)
{
    (void)state;
    static struct machine m;
    struct plan p;

    load_plan("fsdp", &p);
    measure(&m, &p, 1e-7);
    p.cluster.measured = &m.d;
    struct evaluation e;
    struct timing t = timed(&p);
    double sum = 0;
    assert_int_equal(evaluate(&p, &e), 0);
    struct cost_cache *cache = cost_cache_new(&p);
    struct coll_memo memo = { 0 };
    struct priced prices;
    assert_int_equal(simulate_price(&p, &e.schedules, SCHED_STEADY, cache, &memo, &prices), 0);
    for (int i = e.schedules.begin[SCHED_STEADY]; i < e.schedules.end[SCHED_STEADY]; i++)
        if (e.schedules.ops[i].kind == OP_REPEAT)
            fail_msg("the test's model is small enough not to have repeats");
        else
            sum += prices.middle.work[i];
    assert_true(t.line.step_s > 0.98 * sum);
    simulate_priced_free(&prices);
    cost_cache_free(cache);
    evaluation_free(&e);
    plan_free(&p);
}

/* Eight H100s under FSDP, calibrated on one of them, which times copies beside kernels but no collectives: these hold multiprocessors as published.
 * Where an all-gather beside products was timed, that counts in its place. */
static void one_gpu_alone_says_nothing_of_collectives_beside_kernels(void **state)
{
    (void)state;
    struct measured_overlap beside = { .kind = KC_GEMM, .op = NCOLL, .compute = 1.1, .other = 1.1 };
    struct measured_device d = { .overlap = &beside, .noverlap = 1, .precision = DT_BF16, .ranks = 1 };
    struct plan p;
    struct evaluation e;

    load_plan("fsdp", &p);
    assert_int_equal(cluster_load("8xh100", &p.cluster), 0);
    p.cluster.measured = &d;
    assert_int_equal(evaluate(&p, &e), 0);
    for (int i = 0; i < 2; i++) {
        struct cost_cache *cache = cost_cache_new(&p);
        struct coll_memo memo = { 0 };
        struct priced prices;

        beside.op = i ? COLL_ALL_GATHER : NCOLL;
        beside.ranks = beside.per_node = 8;
        assert_int_equal(simulate_price(&p, &e.schedules, SCHED_STEADY, cache, &memo, &prices), 0);
        assert_true((prices.held != NULL) == (i == 0) && (prices.beside != NULL) == (i == 1));
        simulate_priced_free(&prices);
        cost_cache_free(cache);
    }
    evaluation_free(&e);
    plan_free(&p);
}

static void overheads_are_paid_for_every_kernel(void **state)
{
    (void)state;
    static struct machine m;
    struct plan p;

    load_plan("ddp", &p);
    measure(&m, &p, 1e-7);
    p.cluster.measured = &m.d;
    struct timing without = timed(&p);
    m.d.own.handover.s = 1e-3;
    struct timing with = timed(&p);
    double kernels = (with.line.compute_s - without.line.compute_s) / 1e-3;
    assert_true(fabs(kernels - round(kernels)) < 1e-6 && kernels > 3 * 20);
    plan_free(&p);
}

/* The slower of two ranks is 0.56 of a standard deviation late (jitter.h) at the one collective after it
 * all: DDP's forward and backward, if each kernel varies for itself. */
static void ranks_that_vary_meet_later(void **state)
{
    (void)state;
    static struct machine m;
    struct plan p;

    load_plan("ddp", &p);
    p.ddp.bucket_cap_mb = 1000;
    measure(&m, &p, 1e-7);
    p.cluster.measured = &m.d;
    struct timing steady = timed(&p);
    for (int i = 0; i < m.d.nkernel; i++)
        m.kernel[i].spread = .1645;
    struct timing varies = timed(&p);
    double late = varies.line.step_s - steady.line.step_s;
    assert_true(late > 0.56 * .1 * steady.line.compute_s / 20 && late < 0.56 * .1 * steady.line.compute_s);
    for (int i = 0; i < m.d.nkernel; i++)
        m.kernel[i].spread *= 2;
    assert_close(timed(&p).line.step_s - steady.line.step_s, 2 * late, 1e-3 * late);
    m.d.cores = 1;                      /* which both share, as they did when they were timed: what one is late by the other is early by */
    m.d.ranks = 2;
    assert_close(timed(&p).line.step_s, steady.line.step_s, 1e-9);
    plan_free(&p);
}

static void what_was_not_measured_is_said(void **state)
{
    (void)state;
    static struct machine m;
    struct gap gap[GAPS_MOST];
    struct evaluation e;
    struct plan p;

    load_plan("fsdp", &p);
    assert_int_equal(evaluate(&p, &e), 0);
    assert_int_equal(measured_gaps(&p, &e.schedules, gap), 0);      /* nothing at all: nothing to say */
    measure(&m, &p, 1e-7);
    p.cluster.measured = &m.d;
    for (int i = 0; i < NMEASURED_PASS; i++)
        m.bytes[i].bytes = 64 * MiB;
    assert_int_equal(measured_gaps(&p, &e.schedules, gap), 0);
    m.d.ncoll = 0;
    int n = measured_gaps(&p, &e.schedules, gap);
    assert_true(n > 0 && !gap[0].outside);
    assert_non_null(strstr(gap[0].what, "all_gather"));
    struct timing t = timed(&p);
    assert_int_not_equal(t.basis, BASIS_MEASURED);
    evaluation_free(&e);
    plan_free(&p);
}

/* Drift and errors of a tenth each, as ratios: the squares of their logarithms add.  Between nodes what waits for
 * the link does not drift with the machine. */
static void unrelated_errors_add_as_squares(void **state)
{
    (void)state;
    static struct machine m;
    struct plan p;

    load_plan("ddp", &p);
    measure(&m, &p, 1e-7);
    for (int i = 0; i < m.d.nkernel; i++)
        m.kernel[i].spread = .1;
    p.cluster.measured = &m.d;
    struct timing still = timed(&p);
    m.d.drift = .1;
    struct timing drifts = timed(&p);
    double a = log(still.high_s / still.line.step_s), b = log(drifts.high_s / drifts.line.step_s);
    assert_close(b * b, a * a + log(1.1) * log(1.1), 1e-3);
    a = log(still.line.step_s / still.low_s), b = log(drifts.line.step_s / drifts.low_s);
    assert_close(b * b, a * a + log(1.1) * log(1.1), 1e-3);

    p.cluster.nodes = p.cluster.world_size;
    p.cluster.gpus_per_node = 1;
    for (int i = 0; i < m.d.ncoll; i++) {
        m.coll[i].per_node = 1;
        m.coll[i].s *= 100;
    }
    drifts = timed(&p);
    m.d.drift = 0;
    still = timed(&p);
    a = log(still.high_s / still.line.step_s), b = log(drifts.high_s / drifts.line.step_s);
    double work = still.line.step_s - still.line.exposed_s;
    assert_int_equal(still.basis, BASIS_MEASURED);
    assert_true(work > 0 && work < .9 * still.line.step_s);
    double share = log(1 + .1 * work / still.line.step_s);
    assert_close(b * b, a * a + share * share, 1e-3);
    plan_free(&p);
}

/* However unsure a calibration is, a time is positive: at its lower end too. */
static void no_interval_begins_at_nothing(void **state)
{
    static const double unsure[] = { .1, .5, 1, 3, 10 };
    static struct machine m;
    struct plan p;

    (void)state;
    load_plan("ddp", &p);
    for (size_t i = 0; i < sizeof unsure / sizeof *unsure; i++) {
        measure(&m, &p, 1e-7);
        for (int k = 0; k < m.d.nkernel; k++)
            m.kernel[k].spread = unsure[i];
        for (int k = 0; k < m.d.ncoll; k++)
            m.coll[k].spread = m.coll[k].unsure = unsure[i];
        m.d.own.cold.spread = m.d.own.wake.spread = unsure[i];
        m.d.late = unsure[i] / (1 + unsure[i]);
        m.d.drift = unsure[i];
        p.cluster.measured = &m.d;
        struct timing t = timed(&p);
        assert_true(t.low_s > t.line.step_s / (20 * (1 + unsure[i])) && t.low_s < t.line.step_s && t.high_s > t.line.step_s);
    }
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_point_with_the_same_key_is_taken_as_it_is),
        cmocka_unit_test(products_keep_what_measurements_say_of_the_prior),
        cmocka_unit_test(streams_are_interpolated_and_beyond_in_proportion),
        cmocka_unit_test(attention_of_the_same_length_goes_by_its_work),
        cmocka_unit_test(what_nobody_timed_has_no_price),
        cmocka_unit_test(collectives_go_through_their_points),
        cmocka_unit_test(messages_go_by_size_and_pair),
        cmocka_unit_test(a_link_is_as_steady_as_its_samples),
        cmocka_unit_test(stars_and_dtypes_have_sweeps_of_their_own),
        cmocka_unit_test(a_median_of_few_samples_is_uncertain),
        cmocka_unit_test(a_collective_beside_compute_waits_for_its_turn),
        cmocka_unit_test(what_a_collective_waits_for_goes_by_its_size),
        cmocka_unit_test(what_it_waits_for_is_not_a_multiple_of_a_sweep),
        cmocka_unit_test(a_collective_works_no_longer_than_it_takes_alone),
        cmocka_unit_test(a_step_scales_with_what_was_measured),
        cmocka_unit_test(on_shared_cores_a_step_is_the_sum_of_its_parts),
        cmocka_unit_test(one_gpu_alone_says_nothing_of_collectives_beside_kernels),
        cmocka_unit_test(overheads_are_paid_for_every_kernel),
        cmocka_unit_test(ranks_that_vary_meet_later),
        cmocka_unit_test(what_was_not_measured_is_said),
        cmocka_unit_test(unrelated_errors_add_as_squares),
        cmocka_unit_test(no_interval_begins_at_nothing),
    };
    return cmocka_run_group_tests_name("sim/measured", tests, NULL, NULL);
}
