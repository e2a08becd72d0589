/* Random numbers: the published function, its streams, their moments. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "exec/kernels/rng.h"

/* Random123's kat_vectors: philox4x32 with 10 rounds. */
static void philox_gives_the_published_vectors(void **state)
{
    (void)state;
    static const struct { struct rng_block counter; uint64_t key; struct rng_block want; } known[] = {
        { { { 0, 0, 0, 0 } }, 0, { { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } } },
        { { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff } }, 0xffffffffffffffff,
          { { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } } },
        { { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 } }, 0x299f31d0a4093822,
          { { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } } },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct rng_block got = rng_philox(known[i].counter, known[i].key);
        assert_memory_equal(&got, &known[i].want, sizeof got);
    }
}

static void keys_differ_in_seed_purpose_and_index(void **state)
{
    (void)state;
    uint64_t key = rng_key(1, RNG_TEST, 1);

    assert_true(key == rng_key(1, RNG_TEST, 1));
    assert_true(key != rng_key(2, RNG_TEST, 1));
    assert_true(key != rng_key(1, RNG_WEIGHTS, 1));
    assert_true(key != rng_key(1, RNG_TEST, 2));
    assert_true(key != rng_key(1, RNG_TEST, 1 | (uint64_t)1 << 32));
    assert_true(key != rng_key(1 | (uint64_t)1 << 32, RNG_TEST, 1));
}

/* n uniforms: mean 1/2 and variance 1/12, to six standard errors (a mean of n values with
 * standard deviation s has s/sqrt(n), their squared deviations here sqrt(1/180)). */
static void uniforms_have_the_moments_of_uniforms(void **state)
{
    (void)state;
    const int n = 100000;
    uint64_t key = rng_key(1, RNG_TEST, 0);
    double sum = 0, squares = 0;

    for (int i = 0; i < n; i++) {
        double u = rng_uniform(key, (uint64_t)i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += (u - 0.5) * (u - 0.5);
    }
    assert_true(fabs(sum / n - 0.5) < 6 * sqrt(1 / 12.0 / n));
    assert_true(fabs(squares / n - 1 / 12.0) < 6 * sqrt(1 / 180.0 / n));
}

/* Moments of a standard normal are 0, 1, 0, 3; the moments' own variances 1, 2, 15, 96. */
static void normals_have_the_moments_of_normals(void **state)
{
    (void)state;
    enum { N = 200000 };
    static const double want[4] = { 0, 1, 0, 3 }, variance[4] = { 1, 2, 15, 96 };
    float *x = malloc(N * sizeof *x);
    double moment[4] = { 0 };

    assert_non_null(x);
    rng_normals(rng_key(1, RNG_TEST, 0), 0, N, 5, 2, x);
    for (int i = 0; i < N; i++) {
        double z = ((double)x[i] - 5) / 2;
        for (int m = 0; m < 4; m++)
            moment[m] += pow(z, m + 1) / N;
    }
    for (int m = 0; m < 4; m++)
        assert_true(fabs(moment[m] - want[m]) < 6 * sqrt(variance[m] / N));
    free(x);
}

/* The pairs of Box-Muller are one number's sine and cosine: they must not show. */
static void neighbours_are_unrelated(void **state)
{
    (void)state;
    enum { N = 100000 };
    float *x = malloc(N * sizeof *x);

    assert_non_null(x);
    rng_normals(rng_key(1, RNG_TEST, 0), 0, N, 0, 1, x);
    for (int lag = 1; lag <= 4; lag++) {
        double product = 0;
        for (int i = 0; i < N - lag; i++)
            product += (double)x[i] * (double)x[i + lag] / N;
        assert_true(fabs(product) < 6 / sqrt(N));
    }
    free(x);
}

static void a_stream_is_the_same_in_any_pieces(void **state)
{
    (void)state;
    float whole[41], pieces[41];
    uint64_t key = rng_key(9, RNG_TEST, 3);

    rng_normals(key, 0, 41, 0, 1, whole);
    for (int piece = 1; piece <= 41; piece++) {
        for (int at = 0; at < 41; at += piece)
            rng_normals(key, at, at + piece > 41 ? 41 - at : piece, 0, 1, pieces + at);
        assert_memory_equal(whole, pieces, sizeof whole);
    }
}

static void far_elements_of_a_stream_are_its_own(void **state)
{
    (void)state;
    float near[4], far[4];
    uint64_t key = rng_key(9, RNG_TEST, 3);

    rng_normals(key, 0, 4, 0, 1, near);
    rng_normals(key, (int64_t)1 << 40, 4, 0, 1, far);       /* beyond 32 bits of blocks */
    assert_memory_not_equal(near, far, sizeof near);
}

static void permutations_reach_everything_once(void **state)
{
    (void)state;
    char reached[1000];

    for (int n = 1; n <= 1000; n += n < 70 ? 1 : 93) {
        memset(reached, 0, sizeof reached);
        for (int i = 0; i < n; i++) {
            int64_t to = rng_permuted(rng_key(1, RNG_TEST, (uint64_t)n), n, i);
            assert_true(to >= 0 && to < n && !reached[to]);
            reached[to] = 1;
        }
    }
}

/* A random permutation leaves one element where it is, on average: Poisson, so that the
 * sum over 400 keys is within six standard deviations, sqrt(400), of 400. */
static void permutations_have_one_fixed_point_on_average(void **state)
{
    (void)state;
    int fixed = 0;

    for (uint64_t k = 0; k < 400; k++)
        for (int i = 0; i < 100; i++)
            fixed += rng_permuted(rng_key(k, RNG_TEST, 0), 100, i) == i;
    assert_in_range(fixed, 400 - 120, 400 + 120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(keys_differ_in_seed_purpose_and_index),
        cmocka_unit_test(uniforms_have_the_moments_of_uniforms),
        cmocka_unit_test(normals_have_the_moments_of_normals),
        cmocka_unit_test(neighbours_are_unrelated),
        cmocka_unit_test(a_stream_is_the_same_in_any_pieces),
        cmocka_unit_test(far_elements_of_a_stream_are_its_own),
        cmocka_unit_test(permutations_reach_everything_once),
        cmocka_unit_test(permutations_have_one_fixed_point_on_average),
    };
    return cmocka_run_group_tests_name("exec/rng", tests, NULL, NULL);
}
