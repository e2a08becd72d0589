/* torch_random.c -- see torch_random.h. */
#include "exec/kernels/torch_random.h"

#include <math.h>

enum { WORDS = 624, SHIFT = 397, GROUP = 16 };

static const double two_pi = 6.283185307179586476925;

/* ---- MT19937 ---- */

void torch_engine_seed(struct torch_engine *g, uint32_t seed)
{
    g->state[0] = seed;
    for (int i = 1; i < WORDS; i++)
        g->state[i] = 1812433253u * (g->state[i - 1] ^ g->state[i - 1] >> 30) + (uint32_t)i;
    g->at = WORDS;
}

static void twist(struct torch_engine *g)
{
    for (int i = 0; i < WORDS; i++) {
        uint32_t y = (g->state[i] & 0x80000000u) | (g->state[(i + 1) % WORDS] & 0x7fffffffu);
        g->state[i] = g->state[(i + SHIFT) % WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    g->at = 0;
}

uint32_t torch_engine_next(struct torch_engine *g)
{
    if (g->at == WORDS)
        twist(g);
    uint32_t y = g->state[g->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* ---- numpy's ---- */

uint32_t torch_seeds_next(struct torch_seeds *s)
{
    const uint32_t most = 999999999, mask = (1u << 30) - 1;
    uint32_t v;

    if (!s->begun)
        torch_engine_seed(&s->g, 0);
    s->begun = true;
    do
        v = torch_engine_next(&s->g) & mask;
    while (v > most);
    return v;
}

/* ---- PyTorch's ---- */

void torch_generator_seed(struct torch_generator *g, uint32_t seed)
{
    torch_engine_seed(&g->g, seed);
    g->has_next = false;
}

/* 16 numbers of [0, 1), of 24 bits each, become normal ones in pairs of 8 (normal_fill_16()). */
static void fill_group(struct torch_generator *g, float *x)
{
    for (int i = 0; i < GROUP; i++)
        x[i] = (float)(torch_engine_next(&g->g) & 0xffffffu) * 0x1p-24f;
}

static void normal_group(float *x)
{
    for (int i = 0; i < GROUP / 2; i++) {
        double radius = sqrt(-2 * log(1 - (double)x[i])), theta = two_pi * (double)x[i + GROUP / 2];
        x[i] = (float)(radius * cos(theta));
        x[i + GROUP / 2] = (float)(radius * sin(theta));
    }
}

static double uniform53(struct torch_generator *g)
{
    uint64_t high = torch_engine_next(&g->g), low = torch_engine_next(&g->g);

    return (double)((high << 32 | low) & ((1ull << 53) - 1)) * 0x1p-53;
}

/* normal_distribution<double>: two at a time. */
static double normal(struct torch_generator *g)
{
    if (g->has_next) {
        g->has_next = false;
        return g->next;
    }
    double theta = two_pi * uniform53(g), radius = sqrt(-2 * log1p(-uniform53(g)));
    g->next = radius * sin(theta);
    g->has_next = true;
    return radius * cos(theta);
}

/* Groups of 16, drawn one behind the other; the last 16 again where n is no multiple. */
void torch_randn(struct torch_generator *g, int64_t n, float *x)
{
    for (int64_t i = 0; i < n && n < GROUP; i++)
        x[i] = (float)normal(g);
    if (n < GROUP)
        return;
    int64_t whole = n / GROUP * GROUP;
    for (int64_t i = 0; i < whole; i += GROUP)
        fill_group(g, x + i);
    for (int64_t i = whole; i < n; i++)
        x[i] = (float)(torch_engine_next(&g->g) & 0xffffffu) * 0x1p-24f;
    for (int64_t i = 0; i < whole; i += GROUP)
        normal_group(x + i);
    if (whole < n) {
        fill_group(g, x + n - GROUP);
        normal_group(x + n - GROUP);
    }
}
