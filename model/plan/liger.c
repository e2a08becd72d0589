/* liger.c -- see liger.h. */
#include "model/plan/liger.h"

#include <string.h>

#include "base/fail.h"

/* ---- what it has for which family ---- */

enum part { NONE, HAS, OTHER };         /* OTHER: a kernel that is not modelled */

static const struct family {
    const char *name;
    enum part rope, norm;
    bool      in_place;
    enum part glu;
    bool      gelu;                     /* LigerGEGLUMLP: its gate is a gelu */
    enum loss_kind loss;
} families[] = {
    { "llama",            HAS,   HAS,   true,  HAS,   false, LOSS_FUSED_LINEAR },
    { "mistral",          HAS,   HAS,   true,  HAS,   false, LOSS_FUSED_LINEAR },
    { "ministral",        HAS,   HAS,   true,  HAS,   false, LOSS_FUSED_LINEAR },
    { "smollm3",          HAS,   HAS,   true,  HAS,   false, LOSS_FUSED_LINEAR },
    { "qwen2",            HAS,   HAS,   true,  HAS,   false, LOSS_FUSED_LINEAR },
    { "qwen3",            HAS,   HAS,   true,  HAS,   false, LOSS_FUSED_LINEAR },
    { "phi3",             HAS,   HAS,   true,  HAS,   false, LOSS_FUSED_LINEAR },
    { "gemma",            HAS,   HAS,   true,  HAS,   true,  LOSS_FUSED_LINEAR },
    { "gemma2",           HAS,   HAS,   false, HAS,   true,  LOSS_FUSED_LINEAR },
    { "gemma3_text",      HAS,   HAS,   false, HAS,   true,  LOSS_FUSED_LINEAR },
    { "olmo2",            HAS,   HAS,   false, HAS,   false, LOSS_FUSED_LINEAR },
    { "olmo3",            HAS,   HAS,   false, HAS,   false, LOSS_FUSED_LINEAR },
    { "glm4",             NONE,  HAS,   false, HAS,   false, LOSS_FUSED_LINEAR },
    { "exaone4",          HAS,   OTHER, false, HAS,   false, LOSS_FUSED_LINEAR },  /* q and k are normed transposed: copied, in another layout */
    { "granite",          HAS,   HAS,   true,  HAS,   false, LOSS_LIGER },         /* "scales logits each call" */
    { "hunyuan_v1_dense", OTHER, OTHER, true,  HAS,   false, LOSS_FUSED_LINEAR },  /* likewise, behind the rotation */
    { "nemotron",         NONE,  NONE,  false, OTHER, false, LOSS_FUSED_LINEAR },  /* LigerReLUSquared */
    { "mixtral",          HAS,   HAS,   true,  OTHER, false, LOSS_FUSED_LINEAR },  /* LigerExperts: LigerFusedMoEFunction */
    { "qwen3_moe",        HAS,   HAS,   true,  OTHER, false, LOSS_FUSED_LINEAR },
    { "deepseek_v3",      NONE,  HAS,   true,  OTHER, false, LOSS_FUSED_LINEAR },
    { "gpt_oss",          HAS,   HAS,   true,  NONE,  false, LOSS_FUSED_LINEAR },
    { "llama4_text",      OTHER, HAS,   true,  OTHER, false, LOSS_FUSED_LINEAR },
};

static const struct family *family_of(const struct model *m)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].name, m->family))
            return &families[i];
    return NULL;
}

bool liger_usual(const struct model *m, struct liger_options *kernels, enum loss_kind *loss, const char **lacks)
{
    const struct family *f = family_of(m);

    *lacks = NULL;
    if (!f)
        return false;
    *kernels = (struct liger_options){ .rope = f->rope == HAS, .rms_norm = f->norm == HAS, .glu_activation = f->glu == HAS };
    *loss = f->loss;
    *lacks = f->glu == OTHER ? (m->experts > 0 ? "experts" : "activation") : f->rope == OTHER ? "norms and rotary embedding"
           : f->norm == OTHER ? "norms" : NULL;
    return true;
}

bool liger_norm_in_place(const struct model *m)
{
    const struct family *f = family_of(m);

    return f && f->in_place;
}

/* ---- what a plan cannot have ---- */

static int check_family(const struct plan *p, const char *where)
{
    const struct family none = { 0 }, *f = family_of(&p->model) ? family_of(&p->model) : &none;
    const struct liger_options *of = &p->liger;
    const struct { bool asked; enum part has; const char *key; } parts[] = {
        { of->rope, f->rope, "rope" }, { of->rms_norm, f->norm, "rms_norm" }, { of->glu_activation, f->glu, "glu_activation" },
    };

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].asked && parts[i].has != HAS)
            return fail("%s: liger.%s: %s", where, parts[i].key, parts[i].has == NONE ? "Liger-Kernel has no such kernel for this family" :
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
