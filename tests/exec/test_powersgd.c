/* What PowerSGD needs of the executor: columns made orthonormal, and PyTorch's random numbers (golden/parity/make_randn.py). */
#include <stdio.h>

#include "exec/kernels/torch_random.h"
#include "tests/exec/kernels_check.h"

static struct both open_for(int threads)
{
    return open_both(&(struct kernels_need){ .n = 1, .widest_in = 1, .widest_out = 1, .vocab = 1, .seq = 1, .dim = 1,
                                             .threads = threads });
}

/* ---- columns ---- */

static double dot(const float *a, const float *b, int64_t rows, int64_t cols, int64_t i, int64_t j)
{
    double sum = 0;

    for (int64_t r = 0; r < rows; r++)
        sum += (double)a[r * cols + i] * (double)b[r * cols + j];
    return sum;
}

/* q'q = 1.  `error`: some roundings of fp32 a row, not more than a hundred in all. */
static void assert_orthonormal(const float *q, int64_t rows, int64_t cols, double error)
{
    for (int64_t i = 0; i < cols; i++)
        for (int64_t j = 0; j <= i; j++)
            assert_true(fabs(dot(q, q, rows, cols, i, j) - (i == j)) <= error);
}

/* q q'a = a: no column of a has left the span. */
static void assert_spans(const float *q, const float *a, int64_t rows, int64_t cols, double error)
{
    for (int64_t j = 0; j < cols; j++) {
        double off = 0, size = dot(a, a, rows, cols, j, j);
        for (int64_t r = 0; r < rows; r++) {
            double sum = (double)a[r * cols + j];
            for (int64_t i = 0; i < cols; i++)
                sum -= (double)q[r * cols + i] * dot(q, a, rows, cols, i, j);
            off += sum * sum;
        }
        assert_true(off <= error * error * size);
    }
}

static void columns_become_orthonormal_and_keep_their_span(void **state)
{
    struct both b = open_for(2);

    (void)state;
    for (int i = 0; i < 60; i++) {
        int64_t cols = random_int(1, 9), rows = cols + random_int(0, 400);
        struct array a = array_random(rows * cols, DT_FP32, ldexp(1, (int)random_int(-20, 20))), q = array_like(&a), ref = array_like(&a);
        assert_int_equal(b.host.ops->orthonormal(b.host.k, rows, cols, q.x), 0);
        assert_int_equal(b.ref.ops->orthonormal(b.ref.k, rows, cols, ref.x), 0);
        assert_memory_equal(q.x, ref.x, (size_t)(rows * cols) * sizeof(float));         /* whatever the threads */
        /* Square random matrices may be near to singular, which Gram-Schmidt alone minds. */
        if (rows > cols + 20 || cols > 2) {
            assert_orthonormal(q.x, rows, cols, 1e-5);
            assert_spans(q.x, a.x, rows, cols, 1e-4);
        }
        array_free(&a), array_free(&q), array_free(&ref);
    }
    close_both(&b);
}

/* As in PyTorch: up to two columns 0/0, more a unit vector. */
static void a_column_of_zeros_is_as_in_pytorch(void **state)
{
    struct both b = open_for(1);

    (void)state;
    for (int64_t cols = 1; cols <= 4; cols++) {
        struct array a = array_random(50 * cols, DT_FP32, 1);
        for (int r = 0; r < 50; r++)
            array_set(&a, r * cols + cols - 1, 0);
        assert_int_equal(b.host.ops->orthonormal(b.host.k, 50, cols, a.x), 0);
        if (cols <= 2)
            assert_true(isnan(array_get(&a, cols - 1)));
        else
            assert_orthonormal(a.x, 50, cols, 1e-5);
        array_free(&a);
    }
    close_both(&b);
}

/* (3, 4) has the norm 5; (4, 3) has (96 / 25) of it in that direction: (28/25, -21/25), of norm 7/5. */
static void two_columns_by_hand(void **state)
{
    struct both b = open_for(1);
    float a[4] = { 3, 4, 4, 3 }, want[4] = { 0.6f, 0.8f, 0.8f, -0.6f };

    (void)state;
    assert_int_equal(b.host.ops->orthonormal(b.host.k, 2, 2, a), 0);
    for (int i = 0; i < 4; i++)
        assert_close((double)a[i], (double)want[i], 1e-6);
    close_both(&b);
}

/* ---- random numbers ---- */

/* MT19937's first number of seed 5489, and its 10000th (C++ standard, [rand.predef]). */
static void the_generator_is_mt19937(void **state)
{
    struct torch_engine g;
    uint32_t x = 0;

    (void)state;
    torch_engine_seed(&g, 5489);
    for (int i = 1; i <= 10000; i++) {
        x = torch_engine_next(&g);
        if (i == 1)
            assert_int_equal(x, 3499211612u);
    }
    assert_int_equal(x, 4123659995u);
}

/* PyTorch's vectorised sine and logarithm are a few roundings off: 1e-6 of a number, and where that is near 0 of the radius. */
static void draws_are_pytorchs(void **state)
{
    FILE *f = fopen("tests/golden/parity/randn.txt", "r");
    struct torch_seeds seeds = { 0 };
    struct torch_generator g;
    char *line = NULL;
    size_t room = 0;
    int draws = 0;

    (void)state;
    assert_non_null(f);
    while (getline(&line, &room, f) > 0) {
        unsigned seed;
        int used, n;
        assert_int_equal(sscanf(line, "draw %u%n", &seed, &used), 1);
        assert_int_equal(torch_seeds_next(&seeds), seed);
        torch_generator_seed(&g, seed);
        for (const char *at = line + used; sscanf(at, "%d%n", &n, &used) == 1; at += used) {
            float got[64];
            torch_randn(&g, n, got);
            for (int i = 0; i < n; i++) {
                double want;
                assert_int_equal(fscanf(f, "%la", &want), 1);
                if (fabs((double)got[i] - want) > 2e-6 * fmax(fabs(want), 1))
                    fail_msg("seed %u, number %d of %d is %.9g, not %.9g", seed, i, n, (double)got[i], want);
            }
        }
        if (fgetc(f) != '\n')
            break;
        draws++;
    }
    assert_int_equal(draws, 6);
    free(line);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_become_orthonormal_and_keep_their_span),
        cmocka_unit_test(a_column_of_zeros_is_as_in_pytorch),
        cmocka_unit_test(two_columns_by_hand),
        cmocka_unit_test(the_generator_is_mt19937),
        cmocka_unit_test(draws_are_pytorchs),
    };
    return cmocka_run_group_tests_name("exec/powersgd", tests, NULL, NULL);
}
