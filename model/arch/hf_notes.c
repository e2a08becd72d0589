/* What a Hugging Face config says that no plan follows: told, not refused. */
#include "model/arch/hf_notes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/notes.h"
#include "model/arch/hf_known_keys.h"
#include "model/arch/hf_text.h"
#include "model/family/family.h"

static int by_name(const void *name, const void *row)
{
    return strcmp(name, *(const char *const *)row);
}

/* Names that begin with "_" are of transformers itself, "//" of people. */
static bool is_known(const struct family *f, const char *key)
{
    for (int i = 0; f && i < FAMILY_OWN_KEYS && f->own_keys[i]; i++)
        if (!strcmp(f->own_keys[i], key))
            return true;
    return *key == '_' || !strncmp(key, "//", 2) ||
           bsearch(key, hf_known_keys, sizeof hf_known_keys / sizeof *hf_known_keys, sizeof *hf_known_keys, by_name) != NULL;
}

enum { NAMED = 5 };

static void note_unknown(const json_t *config, const char *where, const char *family)
{
    char names[200] = "";
    size_t at = 0;
    int n = 0;
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)config, key, value)
        if (!is_known(family_find(family), key) && n++ < NAMED && at < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s\"%.30s\"", at ? ", " : "", key);
    if (n > NAMED)
        notes_say_once("dpx: %s: note: %s and %d more are no keys of transformers' %s: not followed", where, names, n - NAMED, family);
    else if (n)
        notes_say_once("dpx: %s: note: %s: no key%s of transformers' %s: not followed", where, names, n > 1 ? "s" : "", family);
}

/* Of published weights: DeepSeek-V3's are fp8 in blocks, gpt-oss's mxfp4; transformers trains them dequantised. */
static void note_quantised(const json_t *config, const char *where)
{
    const json_t *q = json_object_get(config, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method"));

    if (json_is_object(q))
        notes_say_once("dpx: %s: note: \"quantization_config\" (%.20s) is of the published weights: the plan's are in 16 or 32 bits "
                       "(frozen ones in fewer: base_dtype)", where, method ? method : "no quant_method");
}

void hf_notes_say(const json_t *config, const char *where, const char *family)
{
    if (!family_find(family))                /* a synthetic model */
        return;
    const json_t *text = hf_has_text(config) ? json_object_get(config, "text_config") : config;

    note_quantised(json_object_get(text, "quantization_config") ? text : config, where);
    note_unknown(text, where, family);
}
