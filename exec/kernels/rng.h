/* rng.h -- random numbers without a state: number = f(key, counter).
 *
 *     uint64_t key = rng_key(seed, RNG_WEIGHTS, tensor);
 *     rng_normals(key, from, n, 0, 0.02, out);         elements from ... from+n-1
 *
 * The function is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011).  Whoever asks for element i of a stream gets
 * the same number, whatever else was drawn before: a model, a batch and a dropout mask
 * are the same on any number of ranks and threads. */
#ifndef DPX_RNG_H
#define DPX_RNG_H

#include <stdint.h>

/* What a stream is for: streams of different purposes are independent. */
enum rng_purpose {
    RNG_WEIGHTS,                /* index: tensor of the model's table */
    RNG_DATA_ORDER,             /* index: epoch */
    RNG_DATA_CHAIN,             /* index: which of the chain's two permutations */
    RNG_DATA_SAMPLE,            /* index: sample of the run */
    RNG_DROPOUT,                /* index: the executor's */
    RNG_TEST,
    RNG_BENCH,                  /* operands of dpxcal */
    RNG_ADAPTER,                /* index: the executor's */
};

/* The key of a stream. */
uint64_t rng_key(uint64_t seed, enum rng_purpose purpose, uint64_t index);

/* The function itself: 128 bits out of a counter of 128 and a key of 64. */
struct rng_block { uint32_t word[4]; };
struct rng_block rng_philox(struct rng_block counter, uint64_t key);

/* 64 bits.  rng_uniform: in [0, 1), a multiple of 2^-53. */
uint64_t rng_bits(uint64_t key, uint64_t counter);
double   rng_uniform(uint64_t key, uint64_t counter);

/* Elements [from, from+n) of a stream of normal numbers: Box-Muller on 32-bit uniforms,
 * so none is further than 6.8 standard deviations out. */
void rng_normals(uint64_t key, int64_t from, int64_t n, double mean, double std, float *out);

/* Where element i goes in a permutation of 0 ... n-1 that the key chooses; n >= 1. */
int64_t rng_permuted(uint64_t key, int64_t n, int64_t i);

#endif
