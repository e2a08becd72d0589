/* recipe_unfrozen.c -- see recipe_unfrozen.h.
 *
 * axolotl/utils/freeze.py (August 2026), freeze_layers_except(): of all parameters those train whose name one of the patterns matches from its first
 * letter (re.match()).  A pattern may end in a range of rows, "[:32000]": the whole weight trains then, and a hook makes the gradient of other
 * rows zero.  Every period that no + follows is made a literal one.  train.py calls it when adapters are there, whose names begin with
 * base_model.model. */
#include "model/exchange/recipe_unfrozen.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/arch/training_names.h"

enum { PATTERN = 2 * TRAINING_LIST };

/* ^(.+)\[([0-9]*)(?::([0-9]*))?\]$ at the end of a pattern: how long it is without; its length where there is none. */
static size_t without_range(const char *s)
{
    size_t n = strlen(s), i = n;

    if (n < 3 || s[n - 1] != ']')
        return n;
    for (i = n - 1; i > 0 && (isdigit((unsigned char)s[i - 1]) || s[i - 1] == ':'); i--) {}
    return i > 1 && s[i - 1] == '[' && strspn(s + i, "0123456789:") == n - 1 - i ? i - 1 : n;
}

/* re.sub(r"\.(?!\+)", "\\.", ...); false: too long. */
static bool literal_periods(const char *s, size_t n, char out[PATTERN])
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        if (at + 3 > PATTERN)
            return false;
        if (s[i] == '.' && s[i + 1] != '+')
            out[at++] = '\\';
        out[at++] = s[i];
    }
    out[at] = '\0';
    return true;
}

static int check_patterns(const json_t *patterns, const char *where, struct notes *notes)
{
    const json_t *one;
    char text[PATTERN];
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)patterns, i, one) {
        const char *s = json_string_value(one);
        size_t n = s ? without_range(s) : 0;
        if (!s)
            return fail("%s: unfrozen_parameters: expected a list of names", where);
        if (!literal_periods(s, n, text) || training_begin_matches(text, "") < 0)
            return fail("%s: unfrozen_parameters: \"%.80s\" is no regular expression that dpx reads: name the weights", where, s);
        if (s[n])
            notes_add(notes, "unfrozen_parameters: %.80s: the whole weight has a gradient and states; axolotl makes those of other rows zero", s);
    }
    return 0;
}

static bool named(const json_t *patterns, const char *name)
{
    const json_t *one;
    char text[PATTERN];
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)patterns, i, one)
        if (literal_periods(json_string_value(one), without_range(json_string_value(one)), text) && training_begin_matches(text, name) > 0)
            return true;
    return false;
}

/* A weight's name with * in the place of its block's number. */
static bool of_all_blocks(const struct tensor *t, char out[TRAINING_LIST])
{
    char number[24], *at;

    snprintf(out, TRAINING_LIST, "%s", t->name);
    if (t->block < 0)
        return true;
    int n = snprintf(number, sizeof number, ".%d.", t->block);
    at = strstr(out, number);
    if (!at)
        return false;
    memmove(at + 2, at + n - 1, strlen(at + n - 1) + 1);
    at[1] = '*';
    return true;
}

static int add_to_list(const struct tensor *t, struct training *to, const char *where)
{
    char name[TRAINING_LIST], other[TRAINING_LIST];
    size_t n = strlen(to->what);

    if (!of_all_blocks(t, name))
        return fail("%s: unfrozen_parameters: %s: blocks without numbers in their names are not read", where, t->name);
    for (int i = 0; training_name_at(to->what, i, other); i++)
        if (!strcmp(other, name))
            return 0;
    if (n + strlen(name) + 2 > sizeof to->what)
        return fail("%s: unfrozen_parameters: the names of what trains are too long a list for a plan: import it without, and set \"train\"", where);
    snprintf(to->what + n, sizeof to->what - n, "%s%s", n ? "," : "", name);
    return 0;
}

static int nothing_trains(const char *where, const char *such, bool adapts)
{
    return fail("%s: unfrozen_parameters: no weight's name begins so (%s is one), so nothing trains: leave it out%s", where, such,
                adapts ? ", adapters train alone" : ", or name those that train");
}

static int check_adapters(const json_t *patterns, const char *where, const struct model *m)
{
    int adapters = 0, trains = 0, first = 0;
    char name[TRAINING_LIST];

    for (int i = 0; i < m->ntensors; i++) {
        const struct tensor *t = &m->tensors[i];
        if (t->frozen)
            continue;
        const char *end = strrchr(t->name, '.');        /* they are saved without the adapter's own name */
        snprintf(name, sizeof name, "%.*s.%sdefault%s", (int)(end - t->name), t->name, tensor_is_adapter(t) ? "" : "modules_to_save.", end);
        first = adapters++ ? first : i;
        trains += named(patterns, name);
    }
    if (trains == 0)
        return nothing_trains(where, m->tensors[first].name, true);
    return trains == adapters ? 0 : fail("%s: unfrozen_parameters: it freezes some of the adapters, which is not planned: name all of them", where);
}

/* train.py, enable_input_require_grads(): as checkpoints do. */
static void note_inputs(const json_t *patterns, struct notes *notes)
{
    const json_t *one;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)patterns, i, one)
        if (strstr(json_string_value(one), "lm_head") || strstr(json_string_value(one), "embed_tokens")) {
            notes_add(notes, "unfrozen_parameters: axolotl lets the embedding's output have a gradient, as checkpointed blocks have it in the plan: without "
                             "checkpoints the first block keeps more than planned");
            return;
        }
}

/* Which weights the patterns name, into `is`; how many. */
static int name_all(const json_t *patterns, const struct model *m, bool *is)
{
    int n = 0;

    for (int i = 0; i < m->ntensors; i++)
        n += is[i] = named(patterns, m->tensors[i].name);
    return n;
}

static int check_blocks(const struct model *m, const bool *is, const char *where)
{
    char one[TRAINING_LIST], other[TRAINING_LIST];

    for (int i = 0; i < m->ntensors; i++) {
        const struct tensor *t = &m->tensors[i];
        if (t->block < 0 || !of_all_blocks(t, one))
            continue;
        for (int k = i + 1; k < m->ntensors && (m->tensors[k].block <= t->block + 1); k++)      /* the next block's */
            if (is[k] != is[i] && m->tensors[k].block == t->block + 1 && of_all_blocks(&m->tensors[k], other) && !strcmp(one, other))
                return fail("%s: unfrozen_parameters: %s trains and %s does not: blocks that differ in what trains are not planned", where,
                            m->tensors[is[i] ? i : k].name, m->tensors[is[i] ? k : i].name);
    }
    return 0;
}

static int list_all(const struct model *m, const bool *is, struct training *t, const char *where)
{
    if (check_blocks(m, is, where) < 0)
        return -1;
    for (int i = 0; i < m->ntensors; i++)
        if (is[i] && add_to_list(&m->tensors[i], t, where) < 0)
            return -1;
    return 0;
}

int recipe_unfrozen(const json_t *config, const char *where, const struct model *m, bool adapts, struct training *t, struct notes *notes)
{
    const json_t *patterns = json_object_get(config, "unfrozen_parameters");

    if (json_is_string(patterns))
        return fail("%s: unfrozen_parameters: expected a list of names", where);
    if (json_array_size(patterns) == 0)
        return 0;
    if (check_patterns(patterns, where, notes) < 0)
        return -1;
    if (adapts)
        return check_adapters(patterns, where, m);
    bool *is = calloc((size_t)m->ntensors + 1, sizeof *is);
    if (!is)
        return fail("%s: out of memory for the names of %d weights", where, m->ntensors);
    int found = name_all(patterns, m, is), rc = found == 0 ? nothing_trains(where, m->tensors[m->block0].name, false) : 0;
    if (rc == 0)
        notes_add(notes, "unfrozen_parameters: %d of %d weights train, by the names that transformers 5 gives them", found, m->ntensors);
    if (rc == 0 && found < m->ntensors) {
        note_inputs(patterns, notes);
        rc = list_all(m, is, t, where);
    }
    free(is);
    return rc;
}
