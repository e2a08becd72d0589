/* form.c -- see form.h: the table of forms, and which of them a file is. */
#include "model/form/form.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"

static const struct form *const forms[] = {
    &form_deepspeed, &form_accelerate, &form_titan, &form_megatron, &form_torchtune, &form_litgpt, &form_automodel, &form_openrlhf,
    &form_verl, &form_verl_sft, &form_primerl, &form_peft, &form_unsloth, &form_axolotl, &form_factory1, &form_factory, &form_trl, &form_transformers,
};

const struct form *form_at(int i)
{
    return i >= 0 && i < (int)(sizeof forms / sizeof *forms) ? forms[i] : NULL;
}

const struct form *form_of_quietly(const struct form_file *f)
{
    for (int i = 0; form_at(i); i++)
        if (form_at(i)->claims(f))
            return form_at(i);
    return NULL;
}

const struct form *form_of(const struct form_file *f)
{
    const struct form *form = form_of_quietly(f);
    char all[1200] = "";
    size_t n = 0;

    if (form)
        return form;
    if (json_object_get(f->doc, "dpx_plan")) {
        fail("%s: it is a plan already: dpxplan eval %s", f->path, f->path);
        return NULL;
    }
    for (int i = 0; form_at(i) && n < sizeof all; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s (%s)", i ? "; " : "", form_at(i)->name, form_at(i)->sign);
    fail("%s: not a file that dpx knows. It knows these, by what stands in brackets: %s", f->path, all);
    return NULL;
}
