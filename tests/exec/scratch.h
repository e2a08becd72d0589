/* scratch.h -- files that a test makes, and what is said about them. */
#ifndef DPX_TESTS_SCRATCH_H
#define DPX_TESTS_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"
#include "base/fail.h"

static char scratch_folder[64];
static char said[1024];

static inline int scratch_make(void **state)
{
    (void)state;
    snprintf(scratch_folder, sizeof scratch_folder, "/tmp/dpx-scratch-%ld", (long)getpid());
    return mkdir(scratch_folder, 0700);
}

/* Says so if a test left a file behind. */
static inline int scratch_remove(void **state)
{
    (void)state;
    return rmdir(scratch_folder);
}

/* Valid until the fourth call from now. */
static inline const char *scratch_path(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", scratch_folder, name);
    return path;
}

static inline const char *scratch_put(const char *name, const void *bytes, size_t n)
{
    const char *path = scratch_path(name);
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* What a file holds, and its size; free() it. */
static inline char *scratch_get(const char *path, size_t *n)
{
    static const size_t most = 1 << 20;
    char *bytes = malloc(most);
    FILE *f = fopen(path, "rb");

    assert_non_null(bytes);
    assert_non_null(f);
    *n = fread(bytes, 1, most, f);
    assert_true(*n < most);
    fclose(f);
    return bytes;
}

static inline void capture(void)
{
    said[0] = '\0';
    fail_capture(said, sizeof said);
}

/* What was said since capture() is one line that has the words in it. */
static inline void heard(const char *words)
{
    fail_capture(NULL, 0);
    if (strstr(said, words) && !strchr(said, '\n'))
        return;
    print_error("\"%s\" does not say \"%s\" in one line\n", said, words);
    _fail(__FILE__, __LINE__);
}

#endif
