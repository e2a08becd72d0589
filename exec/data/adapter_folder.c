/* adapter_folder.c -- see adapter_folder.h. */
#include "exec/data/adapter_folder.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/output.h"

static int path_in(const char *folder, const char *name, char path[ADAPTER_PATH])
{
    int n = snprintf(path, ADAPTER_PATH, "%s/%s", folder, name);

    return n < ADAPTER_PATH ? 0 : fail("%s: is too long a path", folder);
}

int adapter_folder_weights(const char *folder, char path[ADAPTER_PATH])
{
    return path_in(folder, "adapter_model.safetensors", path);
}

/* ---- writing ---- */

static bool has_string(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!strcmp(json_string_value(json_array_get(list, i)), text))
            return true;
    return false;
}

static void add_once(json_t *list, const char *text)
{
    if (!has_string(list, text))
        json_array_append_new(list, json_string(text));
}

/* The names of a list that commas separate; null without any. */
static json_t *names(const char *list)
{
    json_t *all = json_array();
    char name[TRAINING_LIST];

    for (; *list; list += *list == ',') {
        size_t n = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, list);
        add_once(all, name);
        list += n;
    }
    if (json_array_size(all) > 0)
        return all;
    json_decref(all);
    return json_null();
}

/* The last parts of the names of adapted modules, where the plan names none. */
static json_t *adapted(const struct model *m)
{
    json_t *all = json_array();

    for (int t = 0; t < m->ntensors; t++) {
        char name[sizeof m->modules->name];
        if (m->tensors[t].adapter != ADAPTER_LORA_A)
            continue;
        snprintf(name, sizeof name, "%s", m->modules[m->tensors[t].module].name);
        char *end = strstr(name, ".lora_A");
        if (end)
            *end = '\0';
        const char *last = strrchr(name, '.');
        add_once(all, last ? last + 1 : name);
    }
    return all;
}

static bool is_in_out(const struct model *m)
{
    for (int t = 1; t < m->ntensors; t++)
        if (m->tensors[t].adapter == ADAPTER_LORA_A)
            for (int i = 0; i < m->ntensors; i++)
                if (m->tensors[i].role == m->tensors[t].role && m->tensors[i].adapter == ADAPTER_NONE && !m->tensors[i].is_bias)
                    return m->tensors[i].in_out;
    return false;
}

static json_t *number(double x)
{
    return x == floor(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x) : json_real(x);
}

static json_t *config_of(const struct model *m)
{
    const struct training *t = &m->training;
    bool named = t->target_modules[0] && strcmp(t->target_modules, "all-linear") != 0;

    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:f, s:o, s:o, s:b, s:s, s:b, s:b}", "peft_type", "LORA", "task_type", "CAUSAL_LM",
                     "base_model_name_or_path", m->name, "r", (json_int_t)t->rank, "lora_alpha", number(t->alpha), "lora_dropout",
                     t->dropout, "target_modules", named ? names(t->target_modules) : adapted(m), "modules_to_save",
                     names(t->modules_to_save), "fan_in_fan_out", is_in_out(m), "bias", "none", "inference_mode", 1,
                     "init_lora_weights", 1);
}

int adapter_folder_write(const struct model *m, const char *folder)
{
    char path[ADAPTER_PATH];
    struct output o;

    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return fail("%s: cannot be made: %s", folder, strerror(errno));
    if (path_in(folder, "adapter_config.json", path) < 0 || output_open(&o, path) < 0)
        return -1;
    json_t *doc = config_of(m);
    char *text = doc ? json_dumps(doc, JSON_INDENT(2)) : NULL;
    json_decref(doc);
    if (!text) {
        output_discard(&o);
        return fail("%s: out of memory", path);
    }
    fprintf(o.f, "%s\n", text);
    free(text);
    return output_close(&o);
}

/* ---- reading ---- */

static int check_number(const json_t *doc, const char *path, const char *key, const char *ours, double want)
{
    const json_t *v = json_object_get(doc, key);

    if (!json_is_number(v))
        return fail("%s: %s: must be a number", path, key);
    if (json_number_value(v) != want)
        return fail("%s: %s is %g, the plan's lora.%s %g", path, key, json_number_value(v), ours, want);
    return 0;
}

static int check_off(const json_t *doc, const char *path, const char *key)
{
    return json_is_true(json_object_get(doc, key)) ? fail("%s: %s: dpx has no such adapters", path, key) : 0;
}

int adapter_folder_check(const struct model *m, const char *folder)
{
    char path[ADAPTER_PATH];

    if (path_in(folder, "adapter_config.json", path) < 0)
        return -1;
    json_t *doc = files_read_json_python(path);
    if (!doc)
        return -1;
    int rc = check_number(doc, path, "r", "rank", (double)m->training.rank) < 0
             || check_number(doc, path, "lora_alpha", "alpha", m->training.alpha) < 0
             || check_off(doc, path, "use_rslora") < 0 || check_off(doc, path, "use_dora") < 0 ? -1 : 0;
    json_decref(doc);
    return rc;
}
