/* fuzz_size.c -- any bytes as sizes, counts and lengths. */
#include "tests/fuzz/fuzz.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/size.h"

static void one(int (*parse)(const char *, const char *, int64_t *), const char *text)
{
    char again[32];
    int64_t n = -42, m = -42;

    if (parse("--x", text, &n) < 0) {
        must_hold(n == -42 && fuzz_said[0]);
        return;
    }
    must_hold(n >= 0 && n <= SIZE_LIMIT);
    snprintf(again, sizeof again, "%" PRId64, n);
    must_hold(parse("--x", again, &m) == 0 && m == n);
    must_hold(strlen(size_text(n).s) < sizeof(struct size_text) - 1);
    must_hold(strlen(count_text(n).s) < sizeof(struct size_text) - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size);

    fuzz_quiet();
    one(size_parse, text);
    one(count_parse, text);
    free(text);
    return 0;
}
