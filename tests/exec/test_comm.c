/* test_comm.c -- what can be tested of the collectives on one rank: the bytes by
 * counting, the backend that moves nothing, what is refused, and the additions. */
#include "tests/check.h"
#include "exec/comm/comm_internal.h"
#include "exec/kernels/half.h"

#include <math.h>
#include <string.h>

static const enum coll_algo ours[] = { ALGO_RING, ALGO_HALVING, ALGO_DIRECT, ALGO_SERVER };

static bool power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

static struct coll_call call_of(enum coll_op op, enum coll_algo algo, int64_t elems)
{
    return (struct coll_call){ .op = op, .algo = algo, .dtype = DT_FP32, .red = RED_SUM, .elems = elems };
}

/* ---- names ---- */

static void algorithms_have_names_of_their_own(void **state)
{
    (void)state;
    for (int a = 0; a < NCOLL_ALGO; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(coll_algo_name(a), coll_algo_name(b));
    assert_string_equal(coll_algo_name(ALGO_RING), "ring");
}

/* ---- bytes ---- */

/* Chunks cover the buffer in order, and none is more than one element longer than another. */
static void chunks_are_even(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++)
        for (int64_t elems = 0; elems < 40; elems++) {
            int64_t at = 0;

            for (int c = 0; c < n; c++) {
                struct part p = comm_chunk(elems, n, c);

                assert_int_equal(p.at, at);
                assert_true(p.elems == elems / n || p.elems == (elems + n - 1) / n);
                at += p.elems;
            }
            assert_int_equal(at, elems);
            assert_int_equal(comm_chunk(elems, n, -1).at, comm_chunk(elems, n, n - 1).at);
        }
}

static void what_all_send_is_what_all_receive(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++)
        for (int op = 0; op <= COLL_ALL_TO_ALL; op++)
            for (size_t k = 0; k < sizeof ours / sizeof *ours; k++) {
                struct coll_call a = call_of(op, ours[k], comm_divides(op) ? 35 * n : 37);
                int64_t sent = 0, received = 0;

                if (ours[k] == ALGO_HALVING && !power_of_two(n))
                    continue;
                for (a.root = 0; a.root < n; a.root++)
                    for (int r = 0; r < n; r++) {
                        sent += comm_traffic(&a, r, n).sent;
                        received += comm_traffic(&a, r, n).received;
                    }
                assert_int_equal(sent, received);
                assert_int_equal(sent > 0, n > 1 && op != COLL_BARRIER);
            }
}

/* 2(n-1)/n of the buffer a rank: however it is cut, 2(n-1) buffers in all. */
static void an_all_reduce_moves_twice_n_minus_1_buffers(void **state)
{
    (void)state;
    for (int n = 1; n <= 16; n++)
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++)
            for (int64_t elems = 0; elems < 50; elems++) {
                struct coll_call a = call_of(COLL_ALL_REDUCE, ours[k], elems);
                int64_t sent = 0;

                for (int r = 0; r < n && (ours[k] != ALGO_HALVING || power_of_two(n)); r++)
                    sent += comm_traffic(&a, r, n).sent;
                if (ours[k] != ALGO_HALVING || power_of_two(n))
                    assert_int_equal(sent, 2 * (n - 1) * elems * 4);
            }
}

/* What schedules predict, which count the busiest rank. */
static void a_ring_sends_what_schedules_predict(void **state)
{
    (void)state;
    for (int n = 2; n <= 9; n++)
        for (int op = 0; op <= COLL_ALL_TO_ALL; op++) {
            struct coll_call a = call_of(op, ALGO_RING, 64 * n);
            int64_t most = 0;

            a.root = n - 1;
            for (int r = 0; r < n; r++) {
                struct comm_traffic t = comm_traffic(&a, r, n);
                int64_t bytes = op == COLL_GATHER ? t.received : t.sent;

                most = bytes > most ? bytes : most;
            }
            assert_int_equal(most, coll_sent_bytes(op, n, 64 * n * 4));
        }
}

static void sums_rounded_once_go_direct_unless_through_a_server(void **state)
{
    (void)state;
    struct coll_call a = call_of(COLL_ALL_REDUCE, ALGO_RING, 100);

    a.sum = SUM_ONCE;
    assert_int_equal(comm_algo(&a), ALGO_RING);     /* fp32 rounds all the same */
    a.dtype = DT_BF16;
    assert_int_equal(comm_algo(&a), ALGO_DIRECT);
    a.red = RED_MAX;
    assert_int_equal(comm_algo(&a), ALGO_RING);     /* a maximum is not rounded */
    a.red = RED_AVG;
    a.algo = ALGO_SERVER;
    assert_int_equal(comm_algo(&a), ALGO_SERVER);
    a.algo = ALGO_RING;
    a.op = COLL_ALL_GATHER;
    assert_int_equal(comm_algo(&a), ALGO_RING);
}

/* ---- the null backend ---- */

static void null_counts_and_moves_nothing(void **state)
{
    (void)state;
    struct comm *c = comm_null_open(3, 1024);
    float kept[2] = { 1, 2 };
    struct coll_call a = call_of(COLL_ALL_GATHER, ALGO_RING, 1024 * 10);

    assert_non_null(c);
    a.recv = kept;
    assert_int_equal(comm_call(c, &a), 0);
    assert_int_equal(c->sent, 1023 * 10 * 4);
    assert_int_equal(c->received, 1023 * 10 * 4);
    a.algo = ALGO_LIBRARY;              /* counted as a ring */
    assert_int_equal(comm_call(c, &a), 0);
    assert_int_equal(c->sent, 2 * 1023 * 10 * 4);
    assert_int_equal(comm_call(c, &(struct coll_call){ .op = COLL_BARRIER }), 0);
    assert_int_equal(c->sent, 2 * 1023 * 10 * 4);
    assert_true(kept[0] < 2 && kept[1] > 1);
    comm_close(c);
    comm_close(NULL);
}

static void a_rank_alone_needs_no_staging(void **state)
{
    (void)state;
    assert_int_equal(comm_staging(1), 0);
    assert_true(comm_staging(2) >= 2 * COMM_PIECE);         /* two pieces are on their way */
    /* Room for an element for and from each rank in each lane, however many there are. */
    assert_true(comm_staging(10000000) >= 2 * 2 * 8 * (int64_t)10000000);
}

/* ---- what is refused ---- */

static void refused(const struct coll_call *a, int nranks, const char *because)
{
    struct comm *c = comm_null_open(0, nranks);
    char why[200] = "";

    assert_non_null(c);
    fail_capture(why, sizeof why);
    assert_int_equal(comm_call(c, a), -1);
    fail_capture(NULL, 0);
    if (!strstr(why, because))
        fail_msg("'%s' does not say '%s'", why, because);
    assert_int_equal(c->sent, 0);
    comm_close(c);
}

static void what_cannot_be_done_is_refused_by_name(void **state)
{
    (void)state;
    struct coll_call none = call_of(COLL_REDUCE, ALGO_RING, 8);
    struct coll_call whole = call_of(COLL_ALL_REDUCE, ALGO_RING, 8);
    struct coll_call uneven = call_of(COLL_ALL_GATHER, ALGO_RING, 8);
    struct coll_call six = call_of(COLL_ALL_REDUCE, ALGO_HALVING, 6);

    none.red = RED_NONE;
    refused(&none, 2, "no reduction");
    whole.dtype = DT_INT32;
    whole.red = RED_AVG;
    refused(&whole, 2, "int32");
    refused(&uneven, 3, "3 ranks");
    refused(&six, 6, "6 ranks are not a power of two");
}

/* ---- additions ---- */

static uint16_t add_bf16(uint16_t a, uint16_t b)
{
    uint16_t sum;

    reduce_add(DT_BF16, RED_SUM, &sum, &a, &b, 1, 1);
    return sum;
}

static void bf16_sums_are_rounded_to_even(void **state)
{
    (void)state;
    uint16_t one = half_to_bf16(1), ulp = half_to_bf16(1.0f / 128), two = half_to_bf16(2);

    /* 1 + 1/256 lies halfway between 1 and 1 + 1/128: to the even one; 1 + 3/256 likewise up. */
    assert_int_equal(add_bf16(one, half_to_bf16(1.0f / 256)), one);
    assert_int_equal(add_bf16(one + 1, half_to_bf16(1.0f / 256)), one + 2);
    assert_int_equal(add_bf16(one, ulp), one + 1);
    assert_int_equal(add_bf16(one, one), two);
    assert_int_equal(add_bf16(half_to_bf16(3e38f), half_to_bf16(3e38f)), half_to_bf16(INFINITY));
    assert_true(isnan(half_from_bf16(add_bf16(half_to_bf16(INFINITY), half_to_bf16(-INFINITY)))));
}

/* Against the conversion that files are read with, for every bf16 and some partners. */
static void bf16_sums_are_fp32_sums_rounded(void **state)
{
    static uint16_t a[65536], b[65536], sum[65536];

    (void)state;
    for (uint32_t partner = 0; partner < 65536; partner += 257) {
        for (uint32_t i = 0; i < 65536; i++) {
            a[i] = (uint16_t)i;
            b[i] = (uint16_t)partner;
        }
        reduce_add(DT_BF16, RED_SUM, sum, a, b, 1, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            float want = half_from_bf16(a[i]) + half_from_bf16(b[i]);

            if (isnan(want) ? !isnan(half_from_bf16(sum[i])) : sum[i] != half_to_bf16(want))
                fail_msg("%#x + %#x is %#x", a[i], b[i], sum[i]);
        }
    }
}

/* Of neighbours a and b = a + 1 in fp16 the middle goes to the even one, what is nearer to either to that one.  Behind the largest,
 * 65504, comes 65536, which is infinity. */
static void fp16_is_rounded_to_the_nearest_and_to_even(void **state)
{
    (void)state;
    for (uint32_t a = 0; a < 0x7c00; a++) {
        uint16_t h = (uint16_t)a, next = (uint16_t)(a + 1), even = (uint16_t)(a + (a & 1));
        float x = half_from_fp16(h), y = a + 1 < 0x7c00 ? half_from_fp16(next) : 65536, middle = x + (y - x) / 2;
        assert_true(y > x);
        assert_int_equal(half_to_fp16(x), h);
        assert_int_equal(half_to_fp16(-x), h | 0x8000);
        assert_int_equal(half_to_fp16(middle), even);
        assert_int_equal(half_to_fp16(nextafterf(middle, x)), h);
        assert_int_equal(half_to_fp16(nextafterf(middle, y)), next);
    }
    assert_close(half_from_fp16(1), 0x1p-24, 0);
    assert_close(half_from_fp16(0x3c01), 1 + 0x1p-10, 0);
    assert_int_equal(half_to_fp16(INFINITY), 0x7c00);
    assert_true(isnan(half_from_fp16(half_to_fp16(NAN))) && isinf(half_from_fp16(0xfc00)));
}

static void a_maximum_with_nan_is_nan(void **state)
{
    (void)state;
    float f[2] = { NAN, 1 }, g[2] = { 1, NAN }, fmaximum[2];
    double d[2] = { NAN, 1 }, e[2] = { 1, NAN }, dmaximum[2];
    uint16_t h[2] = { 0x7fc0, 0x3f80 }, i[2] = { 0x3f80, 0x7fc0 }, hmaximum[2];

    reduce_add(DT_FP32, RED_MAX, fmaximum, f, g, 1, 2);
    reduce_add(DT_FP64, RED_MAX, dmaximum, d, e, 1, 2);
    reduce_add(DT_BF16, RED_MAX, hmaximum, h, i, 1, 2);
    for (int k = 0; k < 2; k++)
        assert_true(isnan(fmaximum[k]) && isnan(dmaximum[k]) && isnan(half_from_bf16(hmaximum[k])));
}

static void a_minimum_of_integers_is_the_least(void **state)
{
    (void)state;
    int32_t a[2] = { INT32_MIN, 1 }, b[2] = { 1, -1 }, least[2];
    int64_t c[2] = { INT64_MIN, 1 }, d[2] = { 1, -1 }, least64[2];
    uint8_t e[2] = { 250, 1 }, f[2] = { 10, 2 }, least8[2];

    reduce_add(DT_INT32, RED_MIN, least, a, b, 1, 2);
    reduce_add(DT_INT64, RED_MIN, least64, c, d, 1, 2);
    reduce_add(DT_UINT8, RED_MIN, least8, e, f, 1, 2);
    assert_true(least[0] == INT32_MIN && least[1] == -1 && least64[0] == INT64_MIN && least64[1] == -1);
    assert_true(least8[0] == 10 && least8[1] == 1);
}

static void integers_wrap(void **state)
{
    (void)state;
    int32_t a = INT32_MAX, one = 1, sum;
    int64_t b = INT64_MAX, one64 = 1, sum64;
    uint8_t c = 250, ten = 10, sum8;

    reduce_add(DT_INT32, RED_SUM, &sum, &a, &one, 1, 1);
    reduce_add(DT_INT64, RED_SUM, &sum64, &b, &one64, 1, 1);
    reduce_add(DT_UINT8, RED_SUM, &sum8, &c, &ten, 1, 1);
    assert_true(sum == INT32_MIN && sum64 == INT64_MIN && sum8 == 4);
}

/* bf16 has 8 bits: 256 + 1 rounds back to 256 each time, 256 + 3 once does not. */
static void ranks_are_added_in_order_and_rounded_as_asked(void **state)
{
    (void)state;
    uint16_t x[4] = { half_to_bf16(256), half_to_bf16(1), half_to_bf16(1), half_to_bf16(1) }, sum;
    const void *all[4] = { &x[0], &x[1], &x[2], &x[3] }, *back[4] = { &x[3], &x[2], &x[1], &x[0] };
    struct coll_call a = { .dtype = DT_BF16, .red = RED_SUM, .sum = SUM_EACH_HOP };

    reduce_ranks(&a, &sum, all, 4, 1);
    assert_close(half_from_bf16(sum), 256, 0);
    reduce_ranks(&a, &sum, back, 4, 1);
    assert_close(half_from_bf16(sum), 260, 0);      /* 3 + 256, to the even one of 258 and 260 */
    a.sum = SUM_ONCE;
    reduce_ranks(&a, &sum, all, 4, 1);
    assert_close(half_from_bf16(sum), 260, 0);
    a.red = RED_AVG;                                /* 259/4 = 64.75, to the even one of 64.5 and 65 */
    reduce_ranks(&a, &sum, all, 4, 1);
    assert_close(half_from_bf16(sum), 65, 0);
}

/* Long enough for several blocks. */
static void the_sum_may_replace_any_operand(void **state)
{
    enum { N = 3000 };
    static float x[3][N];
    const void *all[3] = { x[0], x[1], x[2] };
    struct coll_call a = { .dtype = DT_FP32, .red = RED_SUM };

    (void)state;
    for (int into = 0; into < 3; into++) {
        for (int r = 0; r < 3; r++)
            for (int i = 0; i < N; i++)
                x[r][i] = (float)(i * (r + 1));
        reduce_ranks(&a, x[into], all, 3, N);
        for (int i = 0; i < N; i++)
            assert_close(x[into][i], 6.0 * i, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(algorithms_have_names_of_their_own),
        cmocka_unit_test(chunks_are_even),
        cmocka_unit_test(what_all_send_is_what_all_receive),
        cmocka_unit_test(an_all_reduce_moves_twice_n_minus_1_buffers),
        cmocka_unit_test(a_ring_sends_what_schedules_predict),
        cmocka_unit_test(sums_rounded_once_go_direct_unless_through_a_server),
        cmocka_unit_test(null_counts_and_moves_nothing),
        cmocka_unit_test(a_rank_alone_needs_no_staging),
        cmocka_unit_test(what_cannot_be_done_is_refused_by_name),
        cmocka_unit_test(bf16_sums_are_rounded_to_even),
        cmocka_unit_test(bf16_sums_are_fp32_sums_rounded),
        cmocka_unit_test(fp16_is_rounded_to_the_nearest_and_to_even),
        cmocka_unit_test(a_maximum_with_nan_is_nan),
        cmocka_unit_test(a_minimum_of_integers_is_the_least),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(ranks_are_added_in_order_and_rounded_as_asked),
        cmocka_unit_test(the_sum_may_replace_any_operand),
    };
    return cmocka_run_group_tests_name("exec/comm", tests, NULL, NULL);
}
