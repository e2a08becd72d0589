/* changes.h -- a plan's text with some of its keys changed; what is refused is said in `said`. */
#ifndef DPX_TESTS_CHANGES_H
#define DPX_TESTS_CHANGES_H

#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "sim/plan/plan_source.h"

static char said[512];

static inline void read_text(const char *text, struct plan *p)
{
    json_t *j = json_loads(text, 0, NULL);

    assert_non_null(j);
    assert_int_equal(plan_from_json(j, "test", p), 0);
    json_decref(j);
}

#define FSDP "{\"dpx_plan\":1,\"model\":\"gpt2\",\"cluster\":\"2x8xh100\",\"seq\":1024,\"micro_batch\":2," \
             "\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"precision\":\"bf16\",\"recompute\":\"full\"," \
             "\"fsdp\":{\"reshard_after_forward\":false}}"

static inline int change(const char *from, const char *pair, struct plan *out)
{
    const char *pairs[] = { pair };
    struct plan p;
    int rc;

    read_text(from, &p);
    fail_capture(said, sizeof said);
    rc = plan_source_with(&p, pairs, 1, out);
    fail_capture(NULL, 0);
    plan_free(&p);
    return rc;
}

static inline int given(const char *text, const char *const *pairs, int n, struct plan *q)
{
    json_t *doc = json_loads(text, 0, NULL);
    struct opt_pairs set = { .n = n };
    int rc;

    assert_non_null(doc);
    for (int i = 0; i < n; i++)
        set.at[i] = pairs[i];
    fail_capture(said, sizeof said);
    rc = plan_source_given(&(struct plan_given){ .doc = doc }, &set, q);
    fail_capture(NULL, 0);
    json_decref(doc);
    return rc;
}

#endif
