/* What a page asks for: the options of each call, as its own table reads them. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "lib/dpx.h"

static int sweep(const char *request, char **answer)  { return dpx_sweep(request, NULL, answer); }
static int search(const char *request, char **answer) { return dpx_search(request, NULL, answer); }

static const struct { const char *name; int (*ask)(const char *request, char **answer); } calls[] = {
    { "fit", dpx_fit }, { "search", search }, { "bill", dpx_bill }, { "phases", dpx_phases }, { "limits", dpx_limits }, { "import", dpx_import }, { "export", dpx_export },
    { "eval", dpx_eval }, { "explain", dpx_explain }, { "sweep", sweep },
};
enum { CALLS = sizeof calls / sizeof *calls };

static json_t *listed(void)
{
    char *answer;

    assert_int_equal(dpx_list("{\"what\": \"options\"}", &answer), DPX_DONE);
    json_t *doc = json_loads(answer, 0, NULL);
    assert_non_null(doc);
    dpx_free(answer);
    return doc;
}
static const char *text(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }

static char *refusal(int call, const json_t *request)
{
    char *asked = json_dumps(request, 0), *answer;

    assert_int_equal(calls[call].ask(asked, &answer), DPX_MISUSE);
    free(asked);
    return answer;
}

/* null is not given: a request of nulls alone is refused for what it lacks, and not for a key; one key more is no key. */
static void each_key_is_one_of_its_call(void **state)
{
    (void)state;
    json_t *doc = listed();
    size_t seen = 0;

    for (int c = 0; c < CALLS; c++) {
        json_t *request = json_object(), *row;
        size_t i;
        json_array_foreach(json_object_get(doc, "options"), i, row)
            if (!strcmp(text(row, "command"), calls[c].name)) {
                json_object_set_new(request, text(row, "key"), json_null());
                seen++;
            }
        char *why = refusal(c, request);
        if (strstr(why, "unknown key"))
            fail_msg("%s", why);
        dpx_free(why);
        json_object_set_new(request, "no_such_key", json_null());
        why = refusal(c, request);
        assert_non_null(strstr(why, "unknown key"));
        dpx_free(why);
        json_decref(request);
    }
    assert_int_equal(seen, json_array_size(json_object_get(doc, "options")));
    json_decref(doc);
}

/* What may be chosen is what the call takes: the model alone is then wrong, which is looked for after all options are read. */
static void each_word_is_taken(void **state)
{
    (void)state;
    json_t *doc = listed(), *row, *word;
    size_t i, k;

    json_array_foreach(json_object_get(doc, "options"), i, row)
        json_array_foreach(json_object_get(row, "words"), k, word) {
            if (strcmp(text(row, "command"), "search"))
                continue;
            json_t *request = json_pack("{s:s, s:s, s:i, s:i, s:O}", "model", "no-such-model", "cluster", "8xh100", "seq", 1,
                                        "global_batch", 1, text(row, "key"), word);
            char *why = refusal(1, request);
            if (!strstr(why, "no-such-model"))
                fail_msg("%s %s: %s", text(row, "key"), json_string_value(word), why);
            dpx_free(why);
            json_decref(request);
        }
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_is_one_of_its_call),
        cmocka_unit_test(each_word_is_taken),
    };
    return cmocka_run_group_tests_name("lib/list_options", tests, NULL, NULL);
}
