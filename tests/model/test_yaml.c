/* test_yaml.c -- the YAML subset that configs use. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/yaml.h"

static char said[512];

static json_t *read_text(const char *text)
{
    json_t *j;

    fail_capture(said, sizeof said);
    j = yaml_read(text, strlen(text), "t.yaml");
    fail_capture(NULL, 0);
    return j;
}

/* The YAML reads as the JSON. */
static void same(const char *yaml, const char *json)
{
    json_t *got = read_text(yaml), *want = json_loads(json, JSON_DECODE_ANY, NULL);

    if (!got)
        fail_msg("%s: refused: %s", yaml, said);
    if (!json_equal(got, want)) {
        json_dumpf(got, stderr, JSON_ENCODE_ANY);
        fail_msg("%s is not %s", yaml, json);
    }
    json_decref(got);
    json_decref(want);
}

static void refused(const char *yaml, const char *place, const char *word)
{
    json_t *j = read_text(yaml);

    if (j)
        fail_msg("%s: accepted", yaml);
    if (strncmp(said, place, strlen(place)) || !strstr(said, word))
        fail_msg("%s: says \"%s\"", yaml, said);
}

static void scalars_are_typed_as_yaml_1_1_types_them(void **state)
{
    (void)state;
    same("a: yes\nb: No\nc: on\nd: OFF\ne: true\nf: False",
         "{\"a\":true,\"b\":false,\"c\":true,\"d\":false,\"e\":true,\"f\":false}");
    same("a: 'no'\nb: \"8\"\nc: n\nd: y", "{\"a\":\"no\",\"b\":\"8\",\"c\":\"n\",\"d\":\"y\"}");
    same("a: 8\nb: -3\nc: 1.5\nd: 5e8\ne: .5", "{\"a\":8,\"b\":-3,\"c\":1.5,\"d\":5e8,\"e\":0.5}");
    same("a: ~\nb: null\nc:\nd: ''", "{\"a\":null,\"b\":null,\"c\":null,\"d\":\"\"}");
    same("a: nan\nb: .inf\nc: 0x10\nd: 1.2.3\nf: 1e",
         "{\"a\":\"nan\",\"b\":\".inf\",\"c\":\"0x10\",\"d\":\"1.2.3\",\"f\":\"1e\"}");
    same("a: 99999999999999999999", "{\"a\":1e20}");
    same("a: 500_000\nb: 1_0\nc: _5\nd: 5_a\ne: 0_1", "{\"a\":500000,\"b\":10,\"c\":\"_5\",\"d\":\"5_a\",\"e\":\"0_1\"}");
}

static void collections_nest(void **state)
{
    (void)state;
    same("a:\n  b: 1\n  c: [x, 2, {d: e}]\nf:\n- 1\n- g: h\n",
         "{\"a\":{\"b\":1,\"c\":[\"x\",2,{\"d\":\"e\"}]},\"f\":[1,{\"g\":\"h\"}]}");
    same("# a comment\n---\na: 1 # another\n", "{\"a\":1}");
    same("{\"json\": [true, null, 1.0]}", "{\"json\":[true,null,1.0]}");
    same("a: {}\nb: []", "{\"a\":{},\"b\":[]}");
    same("a: 1\nb: 2\na: 1\n", "{\"a\":1,\"b\":2}");
}

/* As PyYAML has them: keys of the mapping itself first, wherever they stand, then those of the first mapping that is merged. */
static void aliases_stand_for_what_was_anchored(void **state)
{
    (void)state;
    same("a: &x {b: 1, c: [2]}\nd: *x\ne: [*x, &y k, *y]\n", "{\"a\":{\"b\":1,\"c\":[2]},\"d\":{\"b\":1,\"c\":[2]},\"e\":[{\"b\":1,\"c\":[2]},\"k\",\"k\"]}");
    same("a: &x 1\nb: *x\nc: &x 2\nd: *x\n", "{\"a\":1,\"b\":1,\"c\":2,\"d\":2}");
    same("s: &s {x: 1, y: 2}\nt: {<<: *s, y: 3}\nu:\n  y: 4\n  <<: *s\nv: {<<: [*s, {x: 9, z: 5}]}\n",
         "{\"s\":{\"x\":1,\"y\":2},\"t\":{\"x\":1,\"y\":3},\"u\":{\"x\":1,\"y\":4},\"v\":{\"x\":1,\"y\":2,\"z\":5}}");
}

/* Ten lines, each ten times the one before: 10^10 values. */
static void what_aliases_stand_for_is_bounded(void **state)
{
    char text[2048] = "a0: &a0 1\n";
    size_t n = strlen(text);

    (void)state;
    for (int i = 1; i <= 10; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s*a%d", k ? ", " : "", i - 1);
        n += (size_t)snprintf(text + n, sizeof text - n, "]\n");
    }
    refused(text, "t.yaml:6:", "65536 values");
}

static void what_is_no_configuration_is_refused_with_its_place(void **state)
{
    (void)state;
    refused("a: *x\n", "t.yaml:1:4:", "no anchor before");
    refused("a: &x [*x]\n", "t.yaml:1:8:", "no anchor before");
    refused("a: 1\na: 2\n", "t.yaml:2:1:", "given before");
    refused("a: !!python/object 2\n", "t.yaml:1:4:", "tags");
    refused("base: 1\n<<: 2\n", "t.yaml:2:1:", "merge key takes mappings");
    refused("base: &b [1]\n<<: [*b]\n", "t.yaml:2:1:", "merge key takes mappings");
    refused("a: [1\nb: 2\n", "t.yaml:", "");
    refused("a: 1\n---\nb: 2\n", "t.yaml:2:1:", "more than one document");
    refused("", "t.yaml:1:1:", "empty");
    refused("? [a]\n: b\n", "t.yaml:1:3:", "key");
    refused("a:\tb: c\n", "t.yaml:", "");
    refused("a: &x !!set [1, 2]\n", "t.yaml:1:4:", "tags");
}

static void depth_is_bounded(void **state)
{
    (void)state;
    char deep[2001];

    memset(deep, '[', 1000);
    memset(deep + 1000, ']', 1000);
    deep[2000] = '\0';
    refused(deep, "t.yaml:1:", "deeply");
}

static json_t *rewritten(const json_t *j)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    json_t *back;

    assert_non_null(f);
    yaml_write(j, f);
    fclose(f);
    back = read_text(text);
    if (!back)
        fail_msg("%s: %s", text, said);
    free(text);
    return back;
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    static const char *const values[] = {
        "{\"a\":1,\"b\":{\"c\":true,\"d\":null},\"e\":[1,\"two\",3.5],\"f\":[],\"g\":{}}",
        "{\"no\":\"no\",\"n\":\"8\",\"e\":\"\",\"m\":\"5e8\",\"null\":\"null\",\"t\":\"~\"}",
        "{\"q\":\"it's: #1\",\"nl\":\"a\\nb\",\"dash\":\"- x\",\"sp\":\" x \",\"u\":\"\\u00e9\",\"b\":\"a\\\\b\"}",
        "{\"big\":9223372036854775807,\"r\":1e300,\"s\":-0.1}",
    };

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        json_t *j = json_loads(values[i], 0, NULL), *back;
        assert_non_null(j);
        back = rewritten(j);
        if (!json_equal(j, back))
            fail_msg("%s changed", values[i]);
        json_decref(j);
        json_decref(back);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_are_typed_as_yaml_1_1_types_them),
        cmocka_unit_test(collections_nest),
        cmocka_unit_test(aliases_stand_for_what_was_anchored),
        cmocka_unit_test(what_aliases_stand_for_is_bounded),
        cmocka_unit_test(what_is_no_configuration_is_refused_with_its_place),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(what_is_written_reads_back),
    };
    return cmocka_run_group_tests_name("model/yaml", tests, NULL, NULL);
}
