/* test_document.c -- JSON out: every number is one that a double holds. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/document.h"
#include "base/fail.h"
#include "base/opts.h"

static void integers_that_a_double_has_stay(void **state)
{
    (void)state;
    json_t *doc = json_pack("{s:I, s:I, s:[I]}", "a", (json_int_t)1 << 53, "b", -((json_int_t)1 << 53), "c", (json_int_t)7);
    char *text = document_text(doc, 0);

    assert_string_equal(text, "{\"a\":9007199254740992,\"b\":-9007199254740992,\"c\":[7]}");
    free(text);
    json_decref(doc);
}

/* 2^53 + 1 lies between two doubles, and the even one is below; 2^63 - 1 becomes 2^63. */
static void larger_ones_become_the_nearest_double(void **state)
{
    (void)state;
    json_t *doc = json_pack("{s:I, s:[I, {s:I}]}", "a", ((json_int_t)1 << 53) + 1, "b", INT64_MAX, "c", INT64_MIN);
    char *text = document_text(doc, 0);
    json_t *again = json_loads(text, 0, NULL);

    assert_true(json_is_real(json_object_get(again, "a")));
    assert_close(json_real_value(json_object_get(again, "a")), 9007199254740992., 0);
    assert_close(json_real_value(json_array_get(json_object_get(again, "b"), 0)), 9223372036854775808., 0);
    assert_close(json_real_value(json_object_get(json_array_get(json_object_get(again, "b"), 1), "c")), -9223372036854775808., 0);
    assert_null(strstr(text, "9223372036854775807"));
    free(text);
    json_decref(again);
    json_decref(doc);
}

/* ---- the same tables as a command line ---- */

static const char *const words[] = { "ddp", "fsdp", "zero3", NULL };

struct args { int64_t count, bytes, length; double num; int word; uint64_t set; bool flag; const char *text, *plan; const struct json_t *doc;
              struct opt_pairs pairs; };

static int read(const char *request, struct args *a, char said[256])
{
    *a = (struct args){ .word = -1 };
    const struct opt opts[] = {
        { "PLAN.json", "the plan", .str = &a->plan, .doc = &a->doc, .positional = true },
        { "global-batch", "samples", .i = &a->count, .min = 1 },
        { "memory", "bytes", .bytes = &a->bytes },
        { "seq", "tokens", .length = &a->length },
        { "price", "of an hour", .num = &a->num },
        { "strategy", "one", .word = &a->word, .words = words },
        { "strategies", "some", .set = &a->set, .words = words },
        { "dry", "nothing", .flag = &a->flag },
        { "db", "a file", .str = &a->text },
        { "set", "changes", .pairs = &a->pairs },
        { 0 }
    };
    json_t *j = json_loads(request, JSON_DECODE_ANY, NULL), *kept = json_array();

    assert_non_null(j);
    fail_capture(said, 256);
    int rc = opts_json("x", opts, j, kept);
    fail_capture(NULL, 0);
    if (rc == 0 && a->text)
        assert_string_equal(a->text, "f");
    for (int i = 0; rc == 0 && i < a->pairs.n; i++)
        assert_string_equal(a->pairs.at[i], i == 0 ? "nodes=4" : i == 1 ? "clip=null" : i == 2 ? "fsdp.cpu_offload=false" : "gpu=a100,h100");
    json_decref(kept);
    json_decref(j);
    return rc;
}

static void a_request_fills_the_table(void **state)
{
    struct args a;
    char said[256];

    (void)state;
    assert_int_equal(read("{\"global_batch\": 64, \"memory\": \"80GB\", \"seq\": \"8k\", \"price\": 2.5, \"strategy\": \"fsdp\","
                          " \"strategies\": [\"ddp\", \"zero3\"], \"dry\": true, \"db\": \"f\", \"plan\": {}, \"set\": {\"nodes\": 4,"
                          " \"clip\": null, \"fsdp.cpu_offload\": false, \"gpu\": [\"a100\", \"h100\"]}}", &a, said), 0);
    assert_int_equal(a.count, 64);
    assert_int_equal(a.bytes, 80000000000);
    assert_int_equal(a.length, 8192);
    assert_close(a.num, 2.5, 0);
    assert_int_equal(a.word, 1);
    assert_int_equal(a.set, 1 << 0 | 1 << 2);
    assert_true(a.flag && a.doc && !a.plan && a.pairs.n == 4);
    assert_int_equal(read("{\"global_batch\": \"1.5e3\", \"strategies\": \"fsdp\", \"seq\": null, \"dry\": false}", &a, said), 0);
    assert_int_equal(a.count, 1500);
    assert_int_equal(a.set, 1 << 1);
    assert_false(a.flag);
}

static void a_wrong_value_is_refused_by_its_key(void **state)
{
    static const struct { const char *request, *said; } wrong[] = {
        { "7", "x: a request is a JSON object" },
        { "{\"global-batch\": 1}", "x: unknown key \"global-batch\"; did you mean global_batch?" },
        { "{\"qqqqqqqqqqqq\": 1}", "x: unknown key \"qqqqqqqqqqqq\"; there are plan, global_batch, memory" },
        { "{\"global_batch\": 0}", "x: global_batch: '0' is too small; at least 1" },
        { "{\"global_batch\": true}", "x: global_batch: must be a number" },
        { "{\"global_batch\": [1]}", "x: global_batch: must be a number" },
        { "{\"price\": -1}", "x: price: '-1' is negative" },
        { "{\"dry\": 1}", "x: dry: must be true or false" },
        { "{\"strategy\": \"ddq\"}", "x: strategy: 'ddq' is not one of ddp, fsdp, zero3; did you mean ddp?" },
        { "{\"strategies\": {}}", "x: strategies: must be a list of words" },
        { "{\"db\": \"\"}", "x: db: is empty" },
        { "{\"set\": {\"a b\": 1}}", "x: set: 'a b=1' is not KEY=VALUE" },
    };
    struct args a;
    char said[256];

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(read(wrong[i].request, &a, said), -1);
        if (strncmp(said, wrong[i].said, strlen(wrong[i].said)))
            fail_msg("%s: %s", wrong[i].request, said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_that_a_double_has_stay),
        cmocka_unit_test(larger_ones_become_the_nearest_double),
        cmocka_unit_test(a_request_fills_the_table),
        cmocka_unit_test(a_wrong_value_is_refused_by_its_key),
    };
    return cmocka_run_group_tests_name("base/document", tests, NULL, NULL);
}
