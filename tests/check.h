/* check.h -- cmocka, without its clash with fail.h, and an assertion it lacks. */
#ifndef DPX_CHECK_H
#define DPX_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* cmocka's fail() ends a test; ours (base/fail.h) reports an error. */
#undef fail
#undef fail_msg
#define fail_msg(...) \
    do { \
        print_error(__VA_ARGS__); \
        print_error("\n"); \
        _fail(__FILE__, __LINE__); \
    } while (0)

/* cmocka 1.1's assert_float_equal() narrows both sides to float, which near
 * one second cannot see 50 ns.  Ours stays in double; a NaN never passes. */
#define assert_close(got, want, rel) close_to(got, want, rel, __FILE__, __LINE__)

static inline void close_to(double got, double want, double rel,
                            const char *file, int line)
{
    if (fabs(got - want) <= rel * fabs(want))
        return;
    print_error("%.17g is not within a relative %g of %.17g\n", got, rel, want);
    _fail(file, line);
}

#endif
