/* fuzz.h -- what every fuzz target needs.
 *
 * A target fuzz_X.c defines LLVMFuzzerTestOneInput().  `make fuzz` links it with
 * libFuzzer; `make test` links it with replay.c, which feeds it the files of
 * tests/fuzz/seeds/X.  What a target asserts holds for every input: an accepted
 * document keeps its promises, a refused one is given a reason. */
#ifndef DPX_FUZZ_H
#define DPX_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As assert(), but silent: libFuzzer and replay.c both say what input it was. */
#define must_hold(condition) \
    do { \
        if (!(condition)) \
            abort(); \
    } while (0)

static char fuzz_said[1024];

/* From now on messages go into fuzz_said. */
static inline void fuzz_quiet(void)
{
    fail_capture(fuzz_said, sizeof fuzz_said);
}

/* The input as a string; free() it. */
static inline char *fuzz_string(const uint8_t *data, size_t size)
{
    char *s = malloc(size + 1);

    must_hold(s);
    if (size)
        memcpy(s, data, size);
    s[size] = '\0';
    return s;
}

#endif
