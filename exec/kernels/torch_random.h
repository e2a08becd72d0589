/* torch_random.h -- the random numbers of powerSGD_hook(), so that a run draws what PyTorch draws.
 *
 * Seeds are numpy's RandomState(0).randint(10^9) one after the other; each seeds torch.manual_seed(), and torch.randn() on the CPU
 * draws from it.  Sources: numpy/random/_legacy_seeding, src/distributions/distributions.c (random_bounded_uint64_fill: masked
 * rejection of 32 bits); ATen/core/MT19937RNGEngine.h, ATen/native/cpu/DistributionTemplates.h (normal_fill),
 * ATen/core/DistributionsHelper.h (normal_distribution). */
#ifndef DPX_TORCH_RANDOM_H
#define DPX_TORCH_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* M. Matsumoto and T. Nishimura's MT19937, seeded by a number. */
struct torch_engine { uint32_t state[624]; int at; };
void     torch_engine_seed(struct torch_engine *g, uint32_t seed);
uint32_t torch_engine_next(struct torch_engine *g);

/* PowerSGDState.rng; zeroed: nothing is drawn yet. */
struct torch_seeds { bool begun; struct torch_engine g; };
uint32_t torch_seeds_next(struct torch_seeds *s);

/* A generator after torch.manual_seed(). */
struct torch_generator { struct torch_engine g; bool has_next; double next; };
void torch_generator_seed(struct torch_generator *g, uint32_t seed);

/* torch.randn(n) in fp32; but for rounding (PyTorch's sine and logarithm are its own). */
void torch_randn(struct torch_generator *g, int64_t n, float *x);

#endif
