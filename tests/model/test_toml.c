/* TOML becomes the values that its specification (1.0) gives it, or is refused with its line. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "base/toml.h"

/* The document as JSON without blanks. */
static void is(const char *text, const char *json)
{
    json_t *j = toml_read(text, "t.toml");
    char *dump;

    assert_non_null(j);
    dump = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY);
    if (strcmp(dump, json))
        fail_msg("%s: %s, expected %s", text, dump, json);
    free(dump);
    json_decref(j);
}

static void values_have_their_kinds(void **state)
{
    (void)state;
    is("a = 1\nb = 1_000 # c\nc = 2.5\nd = 1e-5\ne = true\nf = 'x y'\ng = \"a\\tb\\u00e9\"\n",
       "{\"a\":1,\"b\":1000,\"c\":2.5,\"d\":1.0000000000000001e-5,\"e\":true,\"f\":\"x y\",\"g\":\"a\\tb\xc3\xa9\"}");
    is("a = [1, 2,\n 3, # c\n]\nb = [[1], ['x']]\n", "{\"a\":[1,2,3],\"b\":[[1],[\"x\"]]}");
    is("a = { b = 1, c.d = 'x' }\n", "{\"a\":{\"b\":1,\"c\":{\"d\":\"x\"}}}");
    is("a = \"\"\"\none\n two \\\n   three\"\"\"\nb = '''x\\y'''\n", "{\"a\":\"one\\n two three\",\"b\":\"x\\\\y\"}");
}

static void tables_lie_where_their_names_say(void **state)
{
    (void)state;
    is("x = 1\n[a]\ny = 2\n[a.b]\nz = 3\n[c]\n\"d e\" = 4\n", "{\"x\":1,\"a\":{\"y\":2,\"b\":{\"z\":3}},\"c\":{\"d e\":4}}");
    is("a.b.c = 1\na.b.d = 2\n", "{\"a\":{\"b\":{\"c\":1,\"d\":2}}}");
    is("[[e]]\nx = 1\n[e.f]\ny = 2\n[[e]]\nx = 3\n", "{\"e\":[{\"x\":1,\"f\":{\"y\":2}},{\"x\":3}]}");
}

static void refuses(const char *text, const char *because)
{
    char why[512];

    fail_capture(why, sizeof why);
    json_t *j = toml_read(text, "t.toml");
    fail_capture(NULL, 0);
    assert_null(j);
    if (!strstr(why, because))
        fail_msg("%s: \"%s\" does not say \"%s\"", text, why, because);
}

static void what_is_no_toml_is_refused_with_its_line(void **state)
{
    char deep[400] = "a = ";

    (void)state;
    refuses("a = 1\nb = \n", "t.toml:2");
    refuses("a = x\n", "a string in quotes");
    refuses("a = 1979-05-27\n", "a string in quotes");
    refuses("a = 1\na = 2\n", "t.toml:2: expected a key that was not given before");
    refuses("a = 1\n[a]\n", "a table, where there is another value");
    refuses("a = 'x\n", "the end of a string");
    refuses("a = \"\\q\"\n", "a backslash");
    refuses("[a\n", "[section]");
    refuses("a = [1 2]\n", "',' or ']'");
    refuses("a = 1 b = 2\n", "the end of the line");
    for (int i = 0; i < 100; i++)
        strcat(deep, "[");
    refuses(deep, "fewer values in values");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_have_their_kinds),
        cmocka_unit_test(tables_lie_where_their_names_say),
        cmocka_unit_test(what_is_no_toml_is_refused_with_its_line),
    };
    return cmocka_run_group_tests_name("base/toml", tests, NULL, NULL);
}
