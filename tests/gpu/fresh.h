/* fresh.h -- a test's own main() with random numbers that are fresh on every run, and can be repeated.
 *
 *     #include "tests/gpu/fresh.h"
 *     #define main tested
 *     #include "tests/emu/test_rows.c"
 *     FRESH_MAIN
 *
 * The seed is $DPX_SEED, else the clock's; it is printed. */
#ifndef DPX_FRESH_H
#define DPX_FRESH_H

#include "tests/exec/kernels_check.h"

#include <time.h>

static inline void seed_afresh(void)
{
    const char *set = getenv("DPX_SEED");
    unsigned long long seed = set ? strtoull(set, NULL, 10) : (unsigned long long)time(NULL) * 2654435761u;

    random_state ^= seed * 6364136223846793005u;
    if (random_state == 0)              /* xorshift would stay there */
        random_state = 1;
    for (int i = 0; i < 16; i++)
        random_bits();
    printf("DPX_SEED=%llu repeats this\n", seed);
}

#define FRESH_MAIN \
    int main(void) \
    { \
        seed_afresh(); \
        return tested(); \
    }

#endif
