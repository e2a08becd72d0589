/* accelerate_checks.c -- see accelerate_checks.h. */
#include "model/exchange/accelerate_checks.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/exchange/export.h"

/* Is `name` among the classes that a text lists?  With n letters of it: does one of them begin so? */
static bool lists_class(const char *text, const char *name, size_t n)
{
    for (const char *at = text; at && (at += strspn(at, ", "), *at); at += strcspn(at, ", "))
        if (n ? !strncmp(at, name, n) : strcspn(at, ", ") == strlen(name) && !strncmp(at, name, strlen(name)))
            return true;
    return false;
}

/* Is it a block of the model around this one, as Qwen3VLTextDecoderLayer is around Qwen3DecoderLayer?  n letters of the block's class say whose it is. */
static bool is_around(const char *text, const char *block, size_t n)
{
    n -= n > 4 && !strncmp(block + n - 4, "Text", 4) ? 4 : 0;
    return lists_class(text, block, n);
}

/* A part of a block, such as MixtralSparseMoeBlock, makes other units than the block's class does.  (A class of another model accelerate does not
 * find, and stops.) */
int accelerate_check_wrapped(const json_t *fsdp, const char *where, const struct plan *p, struct notes *notes)
{
    const json_t *said = json_object_get(fsdp, "fsdp_transformer_layer_cls_to_wrap");
    const char *block = export_block_class(p), *end = block ? strstr(block, "DecoderLayer") : NULL, *other = NULL;
    bool found = false;

    for (size_t i = 0; block && i < (json_is_array(said) ? json_array_size(said) : 1); i++) {
        const char *text = json_string_value(json_is_array(said) ? json_array_get(said, i) : said);
        found |= lists_class(text, block, 0);
        found |= end && text && strstr(text, "DecoderLayer") && is_around(text, block, (size_t)(end - block));
        other = end && lists_class(text, block, (size_t)(end - block)) ? text : other;
    }
    if (said && !json_is_null(said) && !found && !other && block)
        notes_add(notes, "fsdp_transformer_layer_cls_to_wrap: no class of this model's, where accelerate stops: planned are units of %s", block);
    return found || !other ? 0 : fail("%s: fsdp_transformer_layer_cls_to_wrap: %s: units that are not whole blocks (%s) are not supported yet", where,
                                      other, block);
}

static bool is_flag(const json_t *v)
{
    const char *s = json_string_value(v);

    return !v || json_is_null(v) || json_is_boolean(v) || (s && (!strcasecmp(s, "true") || !strcasecmp(s, "false")));
}

/* DeepSpeedPlugin.__post_init__(). */
int accelerate_check_zero(const json_t *ds, const char *where)
{
    const char *first = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)ds));

    return json_object_get(ds, "zero_optimization") ? 0
         : fail("%s: deepspeed: no file of DeepSpeed's that accelerate takes (\"Please specify the ZeRO optimization config in the DeepSpeed config.\"): it has %.60s%s", where,
                first ? first : "nothing", first ? ", and no zero_optimization" : "");
}

/* ComputeEnvironment (utils/dataclasses.py), whose second starts a job of SageMaker's with keys of its own. */
int accelerate_check_environment(const json_t *config, const char *where)
{
    const json_t *v = json_object_get(config, "compute_environment");
    const char *word = json_string_value(v);

    if (word && !strcmp(word, "AMAZON_SAGEMAKER"))
        return fail("%s: compute_environment: %s: what SageMaker starts is not read: LOCAL_MACHINE is", where, word);
    return !v || json_is_null(v) || (word && !strcmp(word, "LOCAL_MACHINE")) ? 0 : fail("%s: compute_environment: %.40s: accelerate "
         "takes a file of any word but LOCAL_MACHINE for SageMaker's, and stops at its keys", where, word ? word : "?");
}

/* Values that accelerate launch's parser does not take. */
int accelerate_check_deepspeed(const json_t *section, const char *where, struct notes *notes)
{
    static const char *const flags[] = { "zero3_init_flag", "zero3_save_16bit_model" }, *const offloads[] = { "offload_optimizer", "offload_param" };
    const json_t *stage = json_object_get(section, "zero_stage");
    const char *text = json_string_value(stage);
    char key[64];

    if (stage && !json_is_null(stage) && !json_is_integer(stage) && !(text && strlen(text) == 1 && strchr("0123", *text)))
        return fail("%s: zero_stage: expected 0, 1, 2 or 3", where);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!is_flag(json_object_get(section, flags[i])))
            return fail("%s: %s: expected true or false", where, flags[i]);
    for (size_t i = 0; i < sizeof offloads / sizeof *offloads; i++) {
        snprintf(key, sizeof key, "%s_device", offloads[i]);
        const json_t *device = json_object_get(section, key);
        if (device && !json_is_null(device) && !json_is_string(device))
            return fail("%s: %s: expected none, cpu or nvme", where, key);
    }
    if (json_is_string(json_object_get(section, "deepspeed_moe_layer_cls_names")))
        notes_add(notes, "deepspeed_moe_layer_cls_names: modules that are fetched whole are not followed: each of theirs is fetched by itself");
    return 0;
}
