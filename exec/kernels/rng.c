/* rng.c -- Philox, normal numbers from it, and permutations. */
#include "exec/kernels/rng.h"

#include <assert.h>
#include <math.h>

#define PI 3.14159265358979323846

/* The fourth word of the counter: no use of a key sees another's numbers. */
enum { FOR_KEYS = 1, FOR_BITS, FOR_NORMALS };

/* ---- Philox4x32-10 ---- */

static struct rng_block round_of(struct rng_block c, uint32_t k0, uint32_t k1)
{
    uint64_t a = (uint64_t)0xd2511f53 * c.word[0];
    uint64_t b = (uint64_t)0xcd9e8d57 * c.word[2];

    return (struct rng_block){ { (uint32_t)(b >> 32) ^ c.word[1] ^ k0, (uint32_t)b,
                                 (uint32_t)(a >> 32) ^ c.word[3] ^ k1, (uint32_t)a } };
}

struct rng_block rng_philox(struct rng_block counter, uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int i = 0; i < 10; i++) {
        counter = round_of(counter, k0, k1);
        k0 += 0x9e3779b9;                       /* Weyl sequences: golden ratio, sqrt(3)-1 */
        k1 += 0xbb67ae85;
    }
    return counter;
}

/* ---- Streams ---- */

static struct rng_block block(uint64_t key, uint64_t counter, uint32_t purpose, uint32_t use)
{
    struct rng_block c = { { (uint32_t)counter, (uint32_t)(counter >> 32), purpose, use } };

    return rng_philox(c, key);
}

static uint64_t first64(struct rng_block b)
{
    return b.word[0] | (uint64_t)b.word[1] << 32;
}

uint64_t rng_key(uint64_t seed, enum rng_purpose purpose, uint64_t index)
{
    return first64(block(seed, index, (uint32_t)purpose, FOR_KEYS));
}

uint64_t rng_bits(uint64_t key, uint64_t counter)
{
    return first64(block(key, counter, 0, FOR_BITS));
}

double rng_uniform(uint64_t key, uint64_t counter)
{
    return (double)(rng_bits(key, counter) >> 11) * 0x1p-53;
}

/* Box-Muller: two uniforms to two normals.  In fp32: three times as fast as in fp64, and
 * filling a model with 1e8 of them is waited for. */
static void normal_pair(uint32_t a, uint32_t b, float *x, float *y)
{
    float radius = sqrtf(-2 * logf(((float)a + 0.5f) * 0x1p-32f));      /* never log(0) */
    float angle = (float)(2 * PI * 0x1p-32) * (float)b;

    *x = radius * cosf(angle);
    *y = radius * sinf(angle);
}

/* A block of the stream is four numbers. */
static void four_normals(uint64_t key, uint64_t counter, float out[4])
{
    struct rng_block b = block(key, counter, 0, FOR_NORMALS);

    normal_pair(b.word[0], b.word[1], &out[0], &out[1]);
    normal_pair(b.word[2], b.word[3], &out[2], &out[3]);
}

void rng_normals(uint64_t key, int64_t from, int64_t n, double mean, double std, float *out)
{
    float four[4];

    assert(from >= 0 && n >= 0);
    for (int64_t i = from; i < from + n; i++) {
        if (i == from || i % 4 == 0)
            four_normals(key, (uint64_t)i / 4, four);
        out[i - from] = (float)(mean + std * (double)four[i % 4]);
    }
}

/* ---- Permutations ---- */

/* Rounds of a Feistel network; more than the four that Luby and Rackoff need, since the
 * halves may be as short as a bit. */
enum { FEISTEL_ROUNDS = 8 };

/* A permutation of 0 ... 4^half - 1. */
static uint64_t feistel(uint64_t key, int half, uint64_t i)
{
    uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = i >> half, right = i & mask;

    for (uint64_t r = 0; r < FEISTEL_ROUNDS; r++) {
        uint64_t mixed = left ^ (rng_bits(key, r << 32 | right) & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

int64_t rng_permuted(uint64_t key, int64_t n, int64_t i)
{
    int half = 1;
    uint64_t at = (uint64_t)i;

    assert(i >= 0 && i < n && n <= (int64_t)1 << 60);
    while ((int64_t)1 << 2 * half < n)
        half++;
    /* Walks its cycle until it is back below n: at most 4 steps on average. */
    do
        at = feistel(key, half, at);
    while (at >= (uint64_t)n);
    return (int64_t)at;
}
