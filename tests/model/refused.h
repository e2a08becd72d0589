/* refused.h -- a plan file that is refused, and what is said of it. */
#ifndef DPX_TESTS_MODEL_REFUSED_H
#define DPX_TESTS_MODEL_REFUSED_H

#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "model/plan/plan.h"
#include "tests/check.h"

/* Takes `j` over. */
static inline void refused(json_t *j, const char *because)
{
    struct plan p;
    char why[512];

    assert_non_null(j);
    fail_capture(why, sizeof why);
    int rc = plan_from_json(j, "plan", &p);
    fail_capture(NULL, 0);
    json_decref(j);
    assert_int_equal(rc, -1);
    if (!strstr(why, because))
        fail_msg("\"%s\" does not say \"%s\"", why, because);
}

#endif
