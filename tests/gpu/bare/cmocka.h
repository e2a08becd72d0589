/* cmocka.h -- as much of cmocka as the tests of a GPU use, for a machine that has only a compiler and
 * CUDA: the same names, the same closing lines. */
#ifndef DPX_BARE_CMOCKA_H
#define DPX_BARE_CMOCKA_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define print_error(...)   fprintf(stderr, __VA_ARGS__)
#define print_message(...) printf(__VA_ARGS__)

static jmp_buf bare_failed;

static inline void bare_fail(const char *file, int line)
{
    fprintf(stderr, "%s:%d\n", file, line);
    longjmp(bare_failed, 1);
}

#define _fail(file, line) bare_fail(file, line)
#define fail()            bare_fail(__FILE__, __LINE__)

static inline void bare_check(bool holds, const char *what, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "does not hold: %s\n", what);
    bare_fail(file, line);
}

static inline void bare_equal(uintmax_t a, uintmax_t b, const char *what, const char *file, int line)
{
    if (a == b)
        return;
    fprintf(stderr, "%s: %jd is not %jd\n", what, (intmax_t)a, (intmax_t)b);
    bare_fail(file, line);
}

#define assert_true(x)               bare_check(!!(x), #x, __FILE__, __LINE__)
#define assert_false(x)              bare_check(!(x), "not " #x, __FILE__, __LINE__)
#define assert_null(x)               bare_check((x) == NULL, #x " is NULL", __FILE__, __LINE__)
#define assert_non_null(x)           bare_check((x) != NULL, #x " is not NULL", __FILE__, __LINE__)
#define assert_int_equal(a, b)       bare_equal((uintmax_t)(a), (uintmax_t)(b), #a, __FILE__, __LINE__)
#define assert_string_equal(a, b)    bare_check(strcmp(a, b) == 0, #a " is " #b, __FILE__, __LINE__)
#define assert_memory_equal(a, b, n) bare_check(memcmp(a, b, n) == 0, #a " has the bytes of " #b, __FILE__, __LINE__)
#define assert_float_equal(a, b, e)  bare_check((a) - (b) <= (e) && (b) - (a) <= (e), #a " is " #b, __FILE__, __LINE__)

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
    int  (*setup)(void **state), (*teardown)(void **state);
};

#define cmocka_unit_test(f)                      { #f, f, NULL, NULL }
#define cmocka_unit_test_setup_teardown(f, s, t) { #f, f, s, t }

static inline bool bare_run(const struct CMUnitTest *t)
{
    void *state = NULL;
    volatile bool passed = false;

    printf("[ RUN      ] %s\n", t->name);
    fflush(stdout);
    if (setjmp(bare_failed) == 0 && (!t->setup || t->setup(&state) == 0)) {
        t->test(&state);
        passed = true;
    }
    if (t->teardown && setjmp(bare_failed) == 0)
        t->teardown(&state);
    printf(passed ? "[       OK ] %s\n" : "[  FAILED  ] %s\n", t->name);
    return passed;
}

static inline int bare_group(const char *name, const struct CMUnitTest *tests, int n, int (*setup)(void **),
                             int (*teardown)(void **))
{
    void *state = NULL;
    int passed = 0;

    if (setup && setup(&state) != 0)
        return n;
    for (int i = 0; i < n; i++)
        passed += bare_run(&tests[i]);
    if (teardown)
        teardown(&state);
    printf("[==========] %s: %d test(s) run.\n[  PASSED  ] %d test(s).\n", name, n, passed);
    if (passed < n)
        printf("[  FAILED  ] %d test(s), listed below:\n", n - passed);
    return n - passed;
}

#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
    bare_group(name, tests, (int)(sizeof(tests) / sizeof(tests)[0]), setup, teardown)
#define cmocka_run_group_tests(tests, setup, teardown) cmocka_run_group_tests_name(#tests, tests, setup, teardown)

#endif
