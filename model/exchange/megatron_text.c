/* megatron_text.c -- see megatron_import.h: a command line of Megatron-LM, or its options as YAML, by name. */
#include "model/exchange/megatron_import.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/exchange/megatron_read.h"
#include "model/exchange/megatron_sections.h"
#include "model/exchange/unread.h"

/* "--micro-batch-size" is micro_batch_size. */
static void name_of(const char *word, size_t n, char out[96])
{
    size_t from = n > 2 && word[0] == '-' && word[1] == '-' ? 2 : 0, len = 0;

    for (size_t i = from; i < n && len < 95; i++)
        out[len++] = word[i] == '-' ? '_' : word[i];
    out[len] = '\0';
}

static json_t *value_of(const char *text)
{
    char *end;
    errno = 0;
    long long whole = strtoll(text, &end, 10);

    if (*text && *end == '\0' && errno == 0)
        return json_integer(whole);
    double real = strtod(text, &end);
    return *text && *end == '\0' ? json_real(real) : json_string(text);
}

/* A second value makes a list of the first. */
static void give(json_t *to, const char *name, const char *text)
{
    json_t *before = json_object_get(to, name);

    if (!before || json_is_true(before)) {
        json_object_set_new(to, name, value_of(text));
        return;
    }
    if (!json_is_array(before)) {
        json_object_set_new(to, name, json_pack("[O]", before));
        before = json_object_get(to, name);
    }
    json_array_append_new(before, value_of(text));
}

static json_t *command_line(const json_t *words, const char *where)
{
    json_t *out = json_object();
    char name[96] = "";

    for (size_t i = 0; i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i)), *equal;
        if (!strcmp(word, "$@") || !strcmp(word, "$*") || !strcmp(word, "${@}")) {
            notes_say("%s: %s: the script's own arguments: planned as without any", where, word);
            continue;
        }
        size_t n = strlen(word);
        if (word[0] == '$' && !name[0] && n > 3 && !strcmp(word + n - 3, ".py"))          /* the program, in a folder that another file names */
            continue;
        bool list = word[0] == '$' && (strstr(word, "[@]") || strstr(word, "[*]"));
        if (list || (word[0] == '$' && (!name[0] || !json_is_true(json_object_get(out, name))))) {
            fail("%s: \"%s\": options in a shell's variable that the script does not set: write them out, as `echo` prints them", where, word);
            json_decref(out);
            return NULL;
        }
        if (!strncmp(word, "--", 2)) {
            equal = strchr(word, '=');
            name_of(word, equal ? (size_t)(equal - word) : strlen(word), name);
            json_object_set_new(out, name, json_true());
            if (equal)
                give(out, name, equal + 1);
        } else if (name[0]) {
            give(out, name, word);
        } else if (i > 0 || !strstr(word, ".py")) {     /* the program itself */
            fail("%s: \"%s\": expected an option such as --tensor-model-parallel-size 8", where, word);
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* training/arguments.py makes no option of this field ("no CLI argument exists for these"). */
static json_t *without_fields(json_t *options, const char *where)
{
    if (!json_object_get(options, "tp_only_amax_red"))
        return options;
    fail("%s: tp_only_amax_red: Megatron-LM's command line has no such option: megatron.tp_only_amax_red of a plan, or of a recipe in YAML", where);
    json_decref(options);
    return NULL;
}

static void add_at(struct unread *u, const char *section, const char *key)
{
    char path[160];

    snprintf(path, sizeof path, "%.60s.%.90s", section, key);
    unread_add(u, path, NULL, false);
}

/* Other sections of options (BASE_MODEL_ARGS, MODEL_ARGS_2 of a second run): names that Megatron-LM has not; of MODEL_ENV_VARS, runs that are not there. */
static void list_sections(const json_t *doc, struct unread *u)
{
    const json_t *read = json_object_get(doc, "MODEL_ARGS");
    const char *section, *key, *inner;
    json_t *v, *w, *x;
    char name[96];

    json_object_foreach((json_t *)(uintptr_t)doc, section, v)
        json_object_foreach(v, key, w) {
            name_of(key, strlen(key), name);
            if (strstr(section, "MODEL_ARGS") && !megatron_knows(name) && !json_object_get(read, key))
                add_at(u, section, key);
        }
    json_object_foreach(json_object_get(doc, "MODEL_ENV_VARS"), key, v) {
        if (!json_object_get(doc, key))
            add_at(u, "MODEL_ENV_VARS", key);
        json_object_foreach(v, inner, x)
            if (strcmp(inner, "GPUS_PER_NODE"))
                add_at(u, "MODEL_ENV_VARS", inner);
    }
}

void megatron_list_beside(const json_t *doc, const char *where)
{
    static const char *const known[] = { "MODEL_ARGS", "TEST_TYPE", "LAUNCHER", "METRICS", "BEFORE_SCRIPT", "AFTER_SCRIPT", "MODE", "ENV_VARS" };
    struct notes notes = { 0 };
    struct unread u = { .notes = &notes };
    const char *key;
    json_t *v;

    if (!json_is_object(json_object_get(doc, "MODEL_ARGS")))
        return;
    json_object_foreach((json_t *)(uintptr_t)doc, key, v)
        if (!json_is_object(v) || strcmp(key, "MODEL_ARGS"))
            unread_add(&u, key, NULL, unread_is_among(key, known, sizeof known / sizeof *known));
    list_sections(doc, &u);
    unread_end(&u);
    notes_print(&notes, where);
}

/* "2 2" or "[2 2]", as a file of options may have what a command line has as several words: a list of them; else the value (new reference). */
static json_t *several(json_t *v)
{
    const char *s = json_string_value(v), *at = s && *s == '[' ? s + 1 : s;
    json_t *out = json_array();
    char *end;

    for (; at && *(at += strspn(at, " ")) && *at != ']'; at = end) {
        long long n = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ' ' && *end != ']'))
            break;
        json_array_append_new(out, json_integer(n));
    }
    bool whole = at && json_array_size(out) > 1 && (*s == '[' ? !strcmp(at, "]") : !*at);
    if (whole)
        return out;
    json_decref(out);
    return json_incref(v);
}

/* Below MODEL_ARGS, or at the top. */
static json_t *from_doc(const json_t *j, const char *where)
{
    const json_t *args = json_object_get(j, "MODEL_ARGS") ? json_object_get(j, "MODEL_ARGS") : j;
    json_t *out, *v;
    const char *key;
    char name[96];

    if (megatron_has_sections(j))
        return megatron_from_sections(j, where);
    if (!json_is_object(args)) {
        fail("%s: expected options and their values", where);
        return NULL;
    }
    out = json_object();
    json_object_foreach((json_t *)(uintptr_t)args, key, v) {
        if (json_object_size(v) > 0 || !strcmp(key, "_target_")) {
            fail(json_is_object(v) ? "%s: %s: options of Megatron-LM have values and no sections of their own: give the program's whole config"
                                   : "%s: %s: a part of another program's config: give the whole of it", where, key);
            json_decref(out);
            return NULL;
        }
        name_of(key, strlen(key), name);
        if ((!json_is_false(v) && !json_is_null(v)) || !megatron_knows(name))
            json_object_set_new(out, name, several(v));
    }
    return out;
}

json_t *megatron_options(const json_t *words, const json_t *doc, const char *where)
{
    return words ? without_fields(command_line(words, where), where) : from_doc(doc, where);
}
