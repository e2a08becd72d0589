/* attention.c -- see attention.h.  The common attention is sdpa through sdpa_attention_forward(), with a mask only where a window needs it;
 * what a family does else is in its file. */
#include "model/plan/attention.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "model/family/family.h"
#include "model/plan/framework.h"
#include "model/plan/knob.h"

/* Why transformers refuses attn_implementation="sdpa" for a family; NULL: it does not. */
static const char *refuses_sdpa(const char *family)
{
    const struct family *f = family_find(family);

    return f ? f->no_sdpa : NULL;
}

enum kernel_set attention_default(const struct model *m)
{
    return refuses_sdpa(m->family) ? KERNELS_TORCH_EAGER : KERNELS_TORCH_SDPA;
}

/* _ignore_causal_mask_sdpa(): a mask is needed from kv_length >= local_attention_size on. */
static bool window_matters(const struct plan *p)
{
    return p->model.window > 0 && p->seq >= p->model.window && model_windowed_layers(&p->model) > 0;
}

bool attention_masked(const struct plan *p)
{
    return family_for(&p->model)->always_masked || window_matters(p);
}

bool attention_mixed(const struct plan *p)
{
    return (kernels_take_sdpa(p->kernels) || p->kernels == KERNELS_TE) && window_matters(p) &&
           !family_for(&p->model)->always_masked && model_windowed_layers(&p->model) < p->model.layers;
}

/* Under sdpa only that of the layers with a window is a tensor.  Gemma 2's windows are not read, for eager
 * masks are alike. */
int attention_masks(const struct plan *p)
{
    const struct family *h = family_for(&p->model);
    bool both = h->both_masks || (h->typed_masks && model_windowed_layers(&p->model) > 0);

    return p->kernels == KERNELS_TORCH_EAGER && both ? 2 : 1;
}

/* use_gqa_in_sdpa(). */
bool attention_repeats(const struct plan *p)
{
    const struct model *m = &p->model;

    return m->heads != m->kv_heads && !family_for(m)->own_groups &&
           (attention_masked(p) || m->head_dim > 256);
}

/* 2.15 taught the dense checks that one head of keys and values is broadcast, and the
 * memory-efficient kernel grouped queries (pytorch#191085). */
static bool takes_groups(const struct plan *p)
{
    return !plan_torch_before(p, 2015);
}

static bool drops_by_sixteenths(const struct plan *p)
{
    double steps = p->model.attn_dropout > 0 ? p->dropout * 16 : 0;

    return steps - floor(steps) <= 0;
}

/* can_use_cudnn_attention() of cuDNN 9.26, first in order on compute capability 9 and 10.
 * Which older releases put it first depends on the cuDNN beside them: taken as none. */
static bool cudnn(const struct plan *p, int arch)
{
    int64_t d = p->model.head_dim;
    return takes_groups(p) && arch >= 90 && arch < 110 && d % 8 == 0 && (d <= 128 || d == 256) && drops_by_sixteenths(p);
}

/* Keys and values of two widths (latent attention): FlashAttention does not take them; cuDNN takes widths up to 128, from Hopper on DeepSeek's
 * 192 and 128 too; the rest goes to the memory-efficient kernel (attention_choices.txt: A100, H100, B200). */
static bool cudnn_of_two_widths(const struct plan *p, int arch)
{
    const struct model *m = &p->model;
    bool small = m->head_dim <= 128 && m->value_dim <= 128, deepseek = m->head_dim == 192 && m->value_dim == 128 && arch >= 90;

    return takes_groups(p) && arch >= 80 && arch < 110 && m->head_dim % 8 == 0 && m->value_dim % 8 == 0 && (small || deepseek) &&
           drops_by_sixteenths(p);
}

/* check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120(). */
static bool flash(const struct plan *p, int arch)
{
    bool small = (arch >= 86 && arch <= 89) || arch == 120 || arch == 121;
    bool drops = p->model.attn_dropout > 0 && p->dropout > 0;
    int64_t d = p->model.head_dim;

    if (arch < 80 || d > 256 || attention_masked(p))
        return false;
    return !small || d <= 192 || (d > 224 && !drops);
}

enum attention_kernel attention_choice(const struct plan *p)
{
    const struct model *m = &p->model;
    int arch = p->cluster.gpu.sm_arch ? p->cluster.gpu.sm_arch : 80;
    bool half = p->precision != DT_FP32, singleton = m->kv_heads == 1 && m->heads > 1;
    bool grouped = m->heads != m->kv_heads && !attention_repeats(p) && !family_for(m)->own_groups;
    bool unknown_heads = family_for(m)->own_groups && singleton && !takes_groups(p);

    bool unfused = p->kernels == KERNELS_TE && p->megatron.attention_backend == BACKEND_UNFUSED;

    if (p->kernels == KERNELS_TORCH_EAGER || p->kernels == KERNELS_MEGATRON_LOCAL || unfused)
        return ATTENTION_EAGER;
    /* Transformer Engine, get_attention_backend(): flash-attn 2 where it is installed, but cuDNN's from Hopper on; neither in fp32. */
    bool two = m->value_dim > 0 && m->value_dim != m->head_dim;
    if (p->kernels == KERNELS_TE && two)        /* flash-attn 2 has one width */
        return half && p->megatron.attention_backend != BACKEND_FLASH && cudnn_of_two_widths(p, arch) ? ATTENTION_CUDNN : ATTENTION_EAGER;
    if (p->kernels == KERNELS_TE && family_for(m)->no_sdpa)          /* sinks: flash-attn has none (get_attention_backend()) */
        return half && p->megatron.attention_backend != BACKEND_FLASH && arch >= 90 ? ATTENTION_CUDNN : ATTENTION_EAGER;
    if (p->kernels == KERNELS_TE && p->megatron.attention_backend)
        return p->megatron.attention_backend == BACKEND_FLASH ? ATTENTION_FLASH : ATTENTION_CUDNN;
    if (p->kernels == KERNELS_TE)
        return !half ? ATTENTION_EAGER : arch >= 90 ? ATTENTION_CUDNN : ATTENTION_FLASH;
    if (p->attention != ATTENTION_BY_SDPA)
        return ATTENTION_FLASH;
    if (half && (two ? cudnn_of_two_widths(p, arch) : cudnn(p, arch)))
        return ATTENTION_CUDNN;
    if (half && !two && flash(p, arch) && !unknown_heads)
        return ATTENTION_FLASH;
    if (m->head_dim % (half ? 8 : 4) == 0 && !unknown_heads && (!grouped || takes_groups(p)) &&
        (arch >= 80 || p->precision != DT_BF16))
        return ATTENTION_EFFICIENT;
    return ATTENTION_MATH;
}

enum flash attention_flash(const struct plan *p)
{
    if (p->attention != ATTENTION_BY_SDPA)
        return p->attention == ATTENTION_BY_FLASH_2 ? FLASH_2 : FLASH_3;
    /* PyTorch 2.2's release notes: "now supports FlashAttention-2, yielding around 2x speedups". */
    if (p->kernels != KERNELS_DPX && plan_torch_before(p, 2002))
        return FLASH_1;
    /* sdp_utils.cpp, check_prefer_cudnn_attention(): Hopper and datacenter Blackwell; 2.11 does (tests/gpu/h100, h200: the traces), 2.10 was not looked at. */
    if (p->kernels == KERNELS_DPX || plan_torch_before(p, 2011))
        return FLASH_2;
    return p->kernels == KERNELS_TE && attention_choice(p) == ATTENTION_FLASH ? FLASH_2 : FLASH_CUDNN;
}

/* FlashAttention-2, mha_bwd(): dQ in fp32 and a row sum, rows rounded up to 128, heads to 32;
 * with grouped queries dK and dV of all heads.  cuDNN says what it takes on a GPU only: taken
 * as much.  The memory-efficient kernel's is not counted. */
int64_t attention_scratch(const struct plan *p)
{
    const struct model *m = &p->model;
    enum attention_kernel k = attention_choice(p);
    int64_t heads = p->micro_batch * m->heads, rows = round_up(p->seq, 128);
    int64_t dq = 4 * heads * rows * round_up(m->head_dim, 32), sums = 4 * heads * rows;

    if (k != ATTENTION_FLASH && k != ATTENTION_CUDNN)
        return 0;
    return dq + sums + attention_scratch_of_keys(p);
}

int64_t attention_scratch_of_keys(const struct plan *p)
{
    const struct model *m = &p->model;
    enum attention_kernel k = attention_choice(p);
    bool grouped = m->kv_heads != m->heads && !attention_repeats(p) &&
                   !(family_for(m)->own_groups && m->kv_heads > 1);

    return grouped && (k == ATTENTION_FLASH || k == ATTENTION_CUDNN) ? 2 * 2 * p->micro_batch * m->heads * p->seq * m->head_dim : 0;
}

const char *attention_note(const struct plan *p)
{
    const struct model *m = &p->model;
    enum attention_kernel k = attention_choice(p);

    if (kernels_are_megatron(p->kernels))
        return k == ATTENTION_CUDNN ? "attention: Transformer Engine takes cuDNN's kernel here, whose scratch is assumed to be FlashAttention's; "
                                      "this follows its dispatch code and has not been observed on a GPU" : NULL;
    if (k == ATTENTION_MATH)
        return "attention: no fused kernel takes what transformers passes, so scores are kept as with torch-eager; "
               "this follows PyTorch's dispatch code and has not been observed on a GPU";
    if (k > ATTENTION_MATH && attention_masked(p))
        return "attention: transformers passes a mask, so PyTorch takes cuDNN's or the memory-efficient kernel and "
               "every layer keeps an additive mask; this follows PyTorch's dispatch code and has not been "
               "observed on a GPU";
    if (k == ATTENTION_EFFICIENT && m->heads != m->kv_heads && p->precision != DT_FP32)
        return "attention: with grouped queries, on GPUs or for heads that FlashAttention does not take, PyTorch takes the "
               "memory-efficient kernel; this follows PyTorch's dispatch code and has not been observed on a GPU";
    if (k == ATTENTION_EFFICIENT && m->heads != m->kv_heads)
        return "attention: in fp32 with grouped queries PyTorch takes the memory-efficient kernel; this follows "
               "PyTorch's dispatch code and has not been observed on a GPU";
    if (k == ATTENTION_CUDNN)
        return "attention: PyTorch takes cuDNN's kernel here, whose scratch is assumed to be FlashAttention's; this follows "
               "PyTorch's dispatch code and has not been observed on a GPU";
    return NULL;
}

static bool gpu_runs(const struct gpu *g, enum attention_by by)
{
    int arch = g->sm_arch ? g->sm_arch : 80;

    return arch >= 80 && (by != ATTENTION_BY_FLASH_3 || arch == 90) && (by != ATTENTION_BY_FLASH_4 || (arch >= 100 && arch < 110));
}

/* What flash-attn 2.8, its hopper/ and its flash_attn/cute do not take, and what is not planned.  Where sdpa is handed a mask flash-attn is
 * handed the window instead, which computes and keeps less than is planned. */
static const char *refuses_flash(const struct plan *p, enum attention_by by)
{
    const struct model *m = &p->model;

    if (p->kernels != KERNELS_TORCH_SDPA && p->kernels != KERNELS_TORCH_COMPILE)
        return "is a choice of kernels torch-sdpa and torch-compile alone";
    if (p->precision == DT_FP32)
        return "computes in bf16 and fp16, not in fp32";
    if (!gpu_runs(&p->cluster.gpu, by))
        return "does not run on this GPU: flash-2 needs Ampere or later, flash-3 Hopper, flash-4 B200, B300 and their like";
    if (m->recorded || refuses_sdpa(m->family))
        return "is not planned with this model";
    if (m->value_dim > 0 && m->value_dim != m->head_dim)
        return "is not planned with keys and values of two widths";
    if (m->head_dim % 8 || m->head_dim > (by == ATTENTION_BY_FLASH_4 ? 128 : 256))
        return "is not planned with heads of this width";
    if (attention_masked(p))
        return "skips what a window hides, which is not planned";
    if (p->parallel.context > 1 && p->parallel.context_method != CONTEXT_ULYSSES)
        return "is planned beside parallel.context with context_method ulysses alone";
    return NULL;
}

bool attention_takes(const struct plan *p, enum attention_by by)
{
    return by == ATTENTION_BY_SDPA || !refuses_flash(p, by);
}

int attention_check(const struct plan *p, const char *where)
{
    const char *why = refuses_sdpa(p->model.family);

    if (kernels_are_megatron(p->kernels) && !framework_of(p)->megatron_layers)
        return fail("%s: kernels: \"%s\" are those of Megatron-core's layers: dialect megatron has them", where, kernels_name(p->kernels));
    if (p->attention != ATTENTION_BY_SDPA && refuses_flash(p, p->attention))
        return fail("%s: attention: \"%s\" %s", where, knob_words("attention")[p->attention], refuses_flash(p, p->attention));
    if (!kernels_take_sdpa(p->kernels))
        return 0;
    if (why)
        return fail("%s: kernels: transformers refuses torch-sdpa for %s (%s): it runs torch-eager",
                    where, p->model.family, why);
    return 0;
}
