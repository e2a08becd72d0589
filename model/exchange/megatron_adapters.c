/* megatron_adapters.c -- a recipe's section `peft`: LoRA of Megatron-Bridge (src/megatron/bridge/peft/lora.py at 067f987d) and of NeMo 2
 * (nemo/collections/llm/peft/lora.py), whose fields are the same. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/exchange/megatron_read.h"
#include "model/exchange/unread.h"

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && !strcmp(text + n - m, end);
}

/* Fields that say nothing of a step, and fields that have to. */
static bool says_nothing(const char *key)
{
    return !strcmp(key, "_target_") || !strcmp(key, "_partial_") || !strcmp(key, "_call_") || !strcmp(key, "lora_A_init_method") ||
           !strcmp(key, "lora_B_init_method") || !strcmp(key, "share_expert_adapters") || !strcmp(key, "params_to_save");
}

static int read_targets(const json_t *v, const char *where, struct training *t)
{
    size_t n = 0;

    t->target_modules[0] = '\0';
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        if (!name || n + strlen(name) + 2 > sizeof t->target_modules)
            return fail("%s: peft.target_modules: a list of names of layers, such as [linear_qkv, linear_proj]", where);
        n += (size_t)snprintf(t->target_modules + n, sizeof t->target_modules - n, "%s%s", n ? "," : "", name);
    }
    return n ? 0 : fail("%s: peft.target_modules: a list of names of layers, such as [linear_qkv, linear_proj]", where);
}

static int read_number(const char *key, const json_t *v, double from, double to, const char *where, double *out)
{
    *out = json_number_value(v);
    return json_is_number(v) && *out >= from && *out <= to ? 0 : fail("%s: peft.%s: expected a number from %g to %g", where, key, from, to);
}

static int read_field(const char *key, const json_t *v, const char *where, struct training *t)
{
    const char *word = json_string_value(v);
    double dim = 0;

    if (!strcmp(key, "target_modules"))
        return read_targets(v, where, t);
    if (!strcmp(key, "dim")) {
        int rc = json_is_integer(v) ? read_number(key, v, 1, 1 << 16, where, &dim) : fail("%s: peft.dim: expected a whole number from 1 on", where);
        t->rank = (int64_t)dim;
        return rc;
    }
    if (!strcmp(key, "alpha"))
        return read_number(key, v, 1e-9, 1 << 30, where, &t->alpha);
    if (!strcmp(key, "dropout"))
        return read_number(key, v, 0, 0.999999, where, &t->dropout);
    if (!strcmp(key, "dropout_position") && word && (!strcmp(word, "pre") || !strcmp(word, "post"))) {
        t->dropout_position = !strcmp(word, "pre") ? DROPOUT_PRE : DROPOUT_POST;
        return 0;
    }
    if (!strcmp(key, "a2a_experimental") && json_is_boolean(v)) {
        t->a2a_experimental = json_is_true(v);
        return 0;
    }
    return says_nothing(key) || unread_asks_nothing(v) ? 0 : fail("%s: peft.%s: not planned: LoRA has dim, alpha, dropout, dropout_position (pre, post), "
                                                                  "a2a_experimental and target_modules here", where, key);
}

int megatron_adapters(const json_t *peft, const char *where, struct training *out)
{
    const char *target = json_string_value(json_object_get(peft, "_target_")), *key;
    json_t *v;

    if (!json_is_object(peft))
        return fail("%s: peft: expected a recipe's section of Megatron-Bridge's LoRA, or NeMo 2's", where);
    if (target && !ends_with(target, ".LoRA"))
        return fail("%s: peft: %s: adapters of Megatron-LM's models are planned as LoRA alone", where, target);
    *out = training_default();
    strcpy(out->what, "lora");
    out->rank = 32;
    out->alpha = 32;
    out->bridge = true;
    json_object_foreach((json_t *)(uintptr_t)peft, key, v)
        if (read_field(key, v, where, out) < 0)
            return -1;
    return 0;
}

int megatron_read_adapters(const struct import *in)
{
    const json_t *peft = json_object_get(in->from, "peft");

    if (!peft)
        return 0;
    if (!import_has(in, "in_sections"))
        return fail("%s: peft: no option of Megatron-LM: a section of a recipe of Megatron-Bridge or NeMo 2", in->where);
    if (megatron_adapters(peft, in->where, &in->p->train) < 0)
        return -1;
    return training_apply(&in->p->model, &in->p->train, in->where);
}
