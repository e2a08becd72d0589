/* stream_rates.c -- the table of stream_rates.h. */
#include "sim/price/stream_rates.h"

#include <string.h>

/* Timed on A100 and H100; other types have H100's share from Hopper on, else A100's. */
struct share { double a100, h100; };

/* One row a family of kernels.  Where only one type was timed, both have its share. */
static const struct share
    layer_norm = { .65, .65 },      /* 4096 x 2048..16384, fp32 */
    rms        = { .45, .85 },      /* pow and mean of RMSNorm, rows of 4096..32768; A100 bf16, H100 fp32 */
    fused_norm = { .55, .77 },      /* one Triton kernel each way, rows of 4096..32768; A100 bf16, H100 fp32, with the sum before */
    rotary     = { .51, .51 },      /* A100: 1024..16384 tokens of 8192, bf16 */
    loss       = { .65, .65 },      /* A100: log_softmax and nll of 16384 rows, 32768..131072 wide, fp32 */
    embedding  = { .26, .26 },      /* A100: 16384 rows of 4096, vocabularies of 16384 to 131072 */
    /* Four arrays at a time: dpxcal's `adamw` reaches 2733 GB/s on H100 (0.47 GB) and 3876 on H200 (1.9 GB), 0.906 and 0.897 of the copy rate, 0.90 of
     * their datasheets (tests/gpu/h100, h200: calibration.json.gz); PyTorch's foreach passes take 1.11 and 1.15 times what that rate says. */
    optimizer  = { .90, .90 },
    /* FSDP2's _chunk_cat from 16 bits to fp32 is held back by its instructions: 1.83 and 1.90 TB/s on H100 (tests/gpu/h100/kernels.json.gz: Llama of
     * 2.4e9 and mixtral of 3.2e9 parameters), 2.0 on H200 (h200/trace-llama-fsdp2.json.gz); the middle of H100's over its copy rate. */
    chunk_cat  = { .62, .62 },
    turned     = { .64, .64 };      /* inductor's kernels that write what they read in the other order: 1.4 TB/s where those that do
                                     * not reach 2.2, the copy rate, on an H100 with 2.4 TB/s (casts to float8 with a transposition;
                                     * pytorch/pytorch#133242; the 2.2 of 2.4 in pytorch/ao torchao/testing/float8/roofline_utils.py) */

static double of(const struct gpu *g, struct share s)
{
    return g->sm_arch >= 90 ? s.h100 : s.a100;
}

double stream_share(const struct gpu *g, enum kernel_set set, const struct kernel *k)
{
    if (set == KERNELS_DPX || gpu_is_host(g))
        return 1;
    if (set == KERNELS_TORCH_COMPILE && k->name && strstr(k->name, "transpos"))
        return of(g, turned);
    if (set == KERNELS_TORCH_COMPILE && k->name && !strncmp(k->name, "fused", 5))
        return k->kind == KC_NORM ? of(g, fused_norm) : 1;
    if (kernels_are_megatron(set) && k->kind == KC_NORM)
        return of(g, fused_norm);       /* of Transformer Engine's and apex's no timings are published: those of one kernel each way */
    /* Liger-Kernel's: its norms are what fused_norm is of; rotary embedding (1.63 TB/s, 16384 tokens of 8192), cross-entropy (1.72 forward, 1.69
     * its multiplication, 16384 x 131072 in fp32) reach the copy rate on A100. */
    if (k->name && !strncmp(k->name, "liger ", 6))
        return k->kind == KC_NORM ? of(g, fused_norm) : 1;
    switch (k->kind) {
    case KC_NORM:       return of(g, k->name && !strcmp(k->name, "rms") ? rms : layer_norm);
    case KC_LOSS:       return of(g, loss);
    case KC_EMBEDDING:  return of(g, embedding);
    default:            break;
    }
    if (!k->name)
        return 1;
    return !strcmp(k->name, "optimizer")     ? of(g, optimizer)
         : !strcmp(k->name, "copy-in grads") ? of(g, chunk_cat)
         : !strncmp(k->name, "rotary", 6)    ? of(g, rotary) : 1;
}
