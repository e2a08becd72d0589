/* kineto_class.c -- the class of a kernel, by what its name contains. */
#include "calib/trace/kineto_class.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Parts of names, in lower case.  PyTorch's attention: pytorch_flash::flash_fwd_kernel and flash_bwd_dot_do_o_kernel
 * (aten/src/ATen/native/transformers/cuda/flash_attn), fmha_cutlassF_... and fmha_cutlassB_... (mem_eff_attention),
 * cudnn_generated_fort_native_sdpa_sm90_flash_fprop_... and _bprop_ (cuDNN's frontend, docs of its SDPA; beside the latter
 * cudnn::fusion::compute_dot_do_o_specialized, convert_dq_to_16bits and, of grouped queries, fmha_reduce_head: tests/gpu/h200), attn_fwd and
 * bwd_kernel_ (aotriton on AMD). */
static const char *const attention[] = { "flash_fwd", "flash_bwd", "fmha", "_sdpa_", "attn_fwd", "attn_bwd", "flashattn",
                                         "flash_attn", "cudnn::fusion::", NULL };
static const char *const back[] = { "_bwd", "bprop", "backward", "cutlassb", "dot_do_o", "convert_dq", "fmha_reduce", NULL };
/* cuBLAS (ampere_bf16_s16816gemm_..., sm80_xmma_gemm_..., nvjet_tst_... since CUDA 12.8, gemvx), CUTLASS, rocBLAS and
 * hipBLASLt (Cijk_...), inductor's templates (triton_tem_fused_mm_...). */
static const char *const product[] = { "gemm", "xmma", "nvjet", "cutlass", "cijk_", "triton_tem_fused_mm", "triton_tem_fused_addmm",
                                       "triton_tem_fused_bmm", "gemv", "_mma_", NULL };
/* Convolutions of which a name does not say that it is a product: cuDNN's before version 8 (volta_scudnn_..., turing_fp16_s1688cudnn_..., of Winograd's
 * way too), its engines that are no matrix product, of groups too, and PyTorch's own of a channel each (pytorch/pytorch#13412,
 * aten/src/ATen/native/cuda/DepthwiseConv2d.cu).  One kernel each: what turns a layout or adds up parts stands beside it. */
static const char *const convolution[] = { "scudnn_", "884cudnn_", "1688cudnn_", "816cudnn_", "convolve_common_engine", "dgrad_engine", "wgrad_alg", "dgrad2d_",
                                           "wgrad2d_", "conv2d_grouped_direct", "conv2d_c1_k1", "conv_depthwise", NULL };
/* What lists the groups' places before a grouped product (aten/src/ATen/native/cuda/GroupMMCommon.cuh) multiplies nothing. */
static const char *const lists[] = { "prepare_grouped_gemm", NULL };
static const char *const sum[] = { "splitkreduce", "splitk_reduce", "reduce_splitk", NULL };

static bool has(const char *name, const char *const *parts)
{
    for (; *parts; parts++)
        if (strstr(name, *parts))
            return true;
    return false;
}

enum kineto_class kineto_class(const char *name)
{
    char plain[512];
    size_t n = 0;

    for (; *name && n + 1 < sizeof plain; name++)
        plain[n++] = (char)tolower((unsigned char)*name);
    plain[n] = '\0';
    if (has(plain, attention))
        return has(plain, back) ? KINETO_ATTENTION_BACK : KINETO_ATTENTION;
    if (has(plain, sum))
        return KINETO_PRODUCT_SUM;
    return (has(plain, product) || has(plain, convolution)) && !has(plain, lists) ? KINETO_PRODUCT : KINETO_STREAMING;
}
