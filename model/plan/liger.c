/* liger.c -- see liger.h. */
#include "model/plan/liger.h"

#include <string.h>

#include "base/fail.h"
#include "model/family/family.h"

/* ---- what it has for which family ---- */

bool liger_usual(const struct model *m, struct liger_options *kernels, enum loss_kind *loss, const char **lacks)
{
    const struct liger_family *f = &family_for(m)->liger;

    *lacks = NULL;
    if (!f->known)
        return false;
    *kernels = (struct liger_options){ .rope = f->rope == LIGER_HAS, .rms_norm = f->norm == LIGER_HAS, .glu_activation = f->glu == LIGER_HAS };
    *loss = f->own_loss ? LOSS_LIGER : LOSS_FUSED_LINEAR;
    *lacks = f->glu == LIGER_OTHER ? (m->experts > 0 ? "experts" : "activation") : f->rope == LIGER_OTHER ? "norms and rotary embedding"
           : f->norm == LIGER_OTHER ? "norms" : NULL;
    return true;
}

bool liger_norm_in_place(const struct model *m)
{
    const struct liger_family *f = &family_for(m)->liger;

    return f->in_place;
}

/* ---- what a plan cannot have ---- */

static int check_family(const struct plan *p, const char *where)
{
    const struct liger_family *f = &family_for(&p->model)->liger;
    const struct liger_options *of = &p->liger;
    const struct { bool asked; enum liger_part has; const char *key; } parts[] = {
        { of->rope, f->rope, "rope" }, { of->rms_norm, f->norm, "rms_norm" }, { of->glu_activation, f->glu, "glu_activation" },
    };

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].asked && parts[i].has != LIGER_HAS)
            return fail("%s: liger.%s: %s", where, parts[i].key, parts[i].has == LIGER_NONE ? "Liger-Kernel has no such kernel for this family" :
                        "Liger-Kernel's kernel for this family is not modelled yet");
    if (of->glu_activation && p->model.act != ACT_SILU && !f->gelu)
        return fail("%s: liger.glu_activation: Liger-Kernel refuses it (\"Activation function %s not supported.\")", where,
                    p->model.act == ACT_RELU ? "relu" : "gelu");
    return 0;
}

int liger_check(const struct plan *p, const char *where)
{
    const char *key = p->liger.rope ? "rope" : p->liger.rms_norm ? "rms_norm" : p->liger.glu_activation ? "glu_activation" : NULL;

    if (!key)
        return 0;
    if (p->kernels == KERNELS_DPX)
        return fail("%s: liger.%s: kernels \"dpx\" have their own: take torch-sdpa or torch-eager", where, key);
    if (p->kernels == KERNELS_TORCH_COMPILE)
        return fail("%s: liger.%s: what \"torch-compile\" makes of blocks around Triton kernels is not modelled: take torch-sdpa, or leave liger "
                    "out",
                    where, key);
    if (p->parallel.tensor > 1 || p->parallel.pipeline > 1)
        return fail("%s: liger.%s: torchtitan's and DeepSpeed's layers under parallel.%s have no Liger kernels, and its norm gathers a DTensor "
                    "whole (Liger-Kernel#826)", where, key, p->parallel.tensor > 1 ? "tensor" : "pipeline");
    return check_family(p, where);
}
