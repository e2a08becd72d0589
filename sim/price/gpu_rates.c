/* gpu_rates.c -- the table of gpu_rates.h, with its sources.
 *
 * gemm: one vote per publication (median over its shapes of measured time over that of
 * gemm_prior() at the full peak), then the median of the votes; best-of-a-search figures
 * (ml-engineering's MAMF) bound it from above and do not vote.  tests/sim/test_gemm_cost.c
 * prints the votes' errors.
 * attention: asymptote of the published curves in the sequence length, causal FLOPs, head
 * dimension 128; see attention_s() in kernel_cost.c. */
#include "sim/price/gpu_rates.h"

#include <math.h>
#include <string.h>

/* Votes, large products (m*n*k above 1e11).  A100: vidur 0.753, cookbook 0.79, napkin-math
 * 0.925.  A100 PCIe: SimuMax 0.757.  H100: vidur 0.758, napkin-math 0.744, marin 0.758.  B200,
 * cuBLAS of CUDA 12.8 and later, runs of a fraction of a second: torchao 0.669 (pytorch/ao#2427), vLLM 0.71
 * (vllm-project/vllm#19566), tilus 0.741, Modular 0.814. */
#define VIDUR    "microsoft/vidur data/profiling/compute"
#define COOKBOOK "EleutherAI/cookbook benchmarks/sizing"
#define NAPKIN   "tusharhqq/napkin-math-gpu results"
#define MARIN    "marin-community/marin logbook"
#define SIMUMAX  "MooreThreads/SimuMax configs/system"
#define MLENG    "stas00/ml-engineering"
#define TE_GEMM  "NVIDIA/TransformerEngine docs/examples/gemm_profiling"
#define TLX      "facebookexperimental/triton#854, #3558"
#define AZURE    "Azure/AI-benchmarking-guide Azure_Results/ND_GB200_v6_results.md"
#define FA3      "FlashAttention-3, arXiv 2407.08608, figures 5 and 6"

/* sustained: power.  A Hopper in a benchmark of a few products runs at 1980 MHz, one that multiplies
 * and communicates for minutes at 1575 (deepseek-ai/DeepGEMM#120: "the power consumption exceeded
 * the limit ... from 1980MHz to 1575MHz").  H100's three votes are of such short runs, vidur's
 * with weights that draw little.  A100's median is of long runs on random data already, as is
 * 257 TFLOP/s against 295 on zeros (H. He, thonking.ai).  Others: not known.
 *
 * Blackwell, whose software all has CUDA 12.8 or later: three publications multiply random numbers at the power limit, in shares
 * of their own peak, in the form of gemm_cost.c.  SimuMax's B200 0.51 (its products by tens of milliseconds); a B200 at 750 W
 * 0.497 and 0.458, by gpu_power_share() 0.579 at 1000 W in the middle (facebookexperimental/triton#854, #3558); a GB200 after 10,000
 * products in fp8, 2826 to 2907 TFLOP/s from 4096^3 to 32768^3, 0.624, or 0.633 in 16 bits by the ratio below (Azure).  The
 * median of the three over 0.725; gemm_spread is what 90 % of Student's t leaves of three votes whose logarithms scatter by 0.108:
 * exp(2.92 x 0.108).  tests/sim/test_gpu_rates.c computes both again.  29 nodes of B200 that multiply 8192^3 for
 * minutes reach 0.685 (mghpcc/aicr-benchmarks, gpu-fryer) and do not vote: all their numbers are positive and between 2^20 and
 * 2^32, in fp8 one and the same, where they reach 0.91 of the peak.
 *
 * sustained_12_8: with cuBLAS of CUDA 12.8 and later.  The longest product published, 16384^3 of 12.6 ms, reaches 700.6 TFLOP/s
 * on H100 (marin, JAX 0.10; the same at 8192^3: 753.3; torch 2.8.0+cu128 there 717.4, napkin-math).  In the form of
 * gemm_cost.c, whose tiles and waves cost 2 % of it, that is 0.7226 of the peak, over 0.758. */
/* attention, flash-attn's own kernel of a generation: 3 on Hopper, 4 on Blackwell (FLASH_3), causal, heads of 128, by the form of
 * kernel_cost.c.  Hopper: 616 TFLOP/s at 16384 tokens with the clock held at 1830 MHz (FlashAttention-3, figure 5), 639 without end;
 * 4817.44 us for 4 x 48 heads of 8192 tokens (meta-pytorch/tritonbench#1267), 685 there and 735 without end: 0.646 and 0.743 of the peak,
 * 0.693 in the middle.  Backward 561 (figure 6) and, in 15308.16 us, 539.  B200: 1330 TFLOP/s at 16384 tokens without a mask, 0.613 without end
 * (Dao-AILab/flash-attention#2605).  Others have no kernel of theirs: as the second.  tests/sim/test_gpu_rates.c computes them again. */
/* scaled: Transformer Engine's own benchmark of the twelve products of a layer (15872 tokens, hidden 4096, ffn 16384; docs/examples/
 * gemm_profiling/gemm_profiling.rst at d0067d0d, August 2026), operands already in their format, against 16 bits in the same run:
 *
 *     H200 NVL  31.968 ms in bf16, 16.785 in fp8 by tensor; B300 13.102, 6.812, mxfp8 7.161, nvfp4 3.764
 *     fp8 by block on H200: 22.882 with its casts, which are taken as those of delayed scaling, 18.978 - 16.785
 *
 * over the same ratio of gemm_prior(); tests/sim/test_gpu_rates.c computes them again.  So 0.732 of H100's peak by tensor; 0.725 are
 * cuBLAS's median of five products in pytorch/FBGEMM#2764, 0.723 marin's.  By row: CUTLASS's kernel there reaches 0.711 (four products after
 * the change), over 0.758; on Blackwell nothing is published, it is taken as by tensor.  By block on Blackwell is multiplied as mxfp8 (Float8BlockScaling, "emulated"). */
#define HOPPER_SCALED    { 0, 0.966, 0.938, 0.78, 0, 0 }
#define BLACKWELL_SCALED { 0, 0.986, 0.986, 0.935, 0.935, 0.62 }
/* B300's 4-bit peak is 6 times that of its 16 bits, B200's and GB200's 4 times, all else the same: in 4 bits B300 is held back by what is
 * not its multipliers.  So B200 reaches as many FLOP/s, 0.62 * 6 / 4 of its own peak, which is what mxfp8 reaches of its: 0.93.  That is
 * 1.89 times its fp8; "up to 2.3x over FP8" on Blackwell (NVIDIA's post on cuBLAS 12.9), 1.53 of CUTLASS at N = 6144 (vllm-project/vllm#19566,
 * #20646). */
#define B200_SCALED      { 0, 0.986, 0.986, 0.935, 0.935, 0.93 }

static const struct { const char *names; struct gpu_rates r; } table[] = {
    /* hbm: napkin-math hbm_copy 1750 and elementwise_add 1783 of 2039 GB/s.  attention:
     * SimuMax, TransformerEngine, causal, 4096 tokens. */
    { " a100-40gb a100-80gb a800 ",
      { 0.79, 1.35, 1, 1, 0.86, 1.25, { 0.64, 0.64, 0.64 }, 1.3, BASIS_PUBLISHED,
        VIDUR ", " COOKBOOK ", " NAPKIN "; " SIMUMAX, { 0 } } },
    { " a100-pcie-40gb a100-pcie-80gb ",
      { 0.757, 1.25, 1, 1, 0.86, 1.3, { 0.64, 0.64, 0.64 }, 1.3, BASIS_PUBLISHED,
        SIMUMAX "; memory as the SXM version", { 0 } } },
    /* hbm: napkin-math hbm_copy 3000 and elementwise_add 3058 of 3350 GB/s. */
    { " h100 h200 gh200 ",
      { 0.758, 1.35, 0.795, 0.953, 0.90, 1.25, { 0.35, 0.55, 0.693 }, 1.35, BASIS_PUBLISHED,
        VIDUR ", " NAPKIN ", " MARIN "; " FA3,
        HOPPER_SCALED } },
    { " h100-pcie h100-nvl ",
      { 0.65, 1.5, 1, 1, 0.88, 1.35, { 0.35, 0.55, 0.693 }, 1.5, BASIS_DATASHEET,
        "as H100, less for 350-400 W", { 0 } } },
    /* A seventh of H100's units behind the same memory and power: close to its peak. */
    { " h20 ",
      { 0.90, 1.4, 1, 1, 0.90, 1.3, { 0.60, 0.75, 0.75 }, 1.6, BASIS_DATASHEET,
        "as H100; nothing holds its few units back", { 0 } } },
    /* hbm: GB200 copies 5715, B300 streams 6420 of 8000 GB/s. */
    { " b200 gb200 ",
      { 0.725, 1.37, 0.796, 0.796, 0.76, 1.3, { 0.17, 0.50, 0.613 }, 1.5, BASIS_PUBLISHED,
        "pytorch/ao#2427, vllm-project/vllm#19566, NVIDIA/tilus, modular.com; " SIMUMAX ", " TLX ", " AZURE "; " MLENG
        " network/README.md, " MARIN "; FlashAttention-2: Dao-AILab/flash-attention#1589", B200_SCALED } },
    /* gemm: TransformerEngine's tutorial 0.68 (twelve products), marin 0.78 (two).  A GB300 keeps it at its 1400 W: 0.72 to 0.81 of
     * random normal numbers (facebookexperimental/triton#740); a B300 has 1100, by gpu_power_share() 0.854 of that. */
    { " gb300 ",
      { 0.73, 1.5, 1, 1, 0.80, 1.3, { 0.17, 0.50, 0.613 }, 1.5, BASIS_PUBLISHED,
        TE_GEMM ", " MARIN "; attention as B200", BLACKWELL_SCALED } },
    { " b300 ",
      { 0.73, 1.5, 0.854, 0.854, 0.80, 1.3, { 0.17, 0.50, 0.613 }, 1.5, BASIS_PUBLISHED,
        TE_GEMM ", " MARIN "; at 1100 W as GB300 by power; attention as B200", BLACKWELL_SCALED } },
    /* GeForce: products with sums in fp32 run at half of what its multipliers could do, so that memory, caches and power hold them back
     * little, and its clock is above the 2520 MHz of its datasheet: the best of five sizes is 160 to 173 TFLOP/s of 165.2 on nine cards
     * (zzc0721/torch-performance-test-data, database.md: a bound, no votes).  Votes, each by gemm_prior(), of what is larger than 4096^3:
     * 0.967 (its issue 78, torch 2.7), 0.963 (mli/transformers-benchmarks#4, fp16).  attention: "the peak for the state-of-the-art FlashAttention2
     * is only 165 TOPS" (SageAttention, arXiv 2410.02367, section 1).  hbm: copies of 918 to 924 (tinygrad/open-gpu-kernel-modules#6), 921
     * (krrishnarraj/clpeak#106) and 895 GB/s (JuliaGPU/CUDA.jl#1860) of 1008.  tests/sim/test_gpu_rates.c computes them again. */
    { " rtx4090 ",
      { 0.965, 1.35, 1, 1, 0.914, 1.25, { 1, 1, 1 }, 1.35, BASIS_PUBLISHED,
        "zzc0721/torch-performance-test-data#78, mli/transformers-benchmarks#4; tinygrad/open-gpu-kernel-modules#6, krrishnarraj/clpeak#106, "
        "JuliaGPU/CUDA.jl#1860; SageAttention, arXiv 2410.02367", { 0 } } },
    /* MAMF 668 of 1307 TFLOP/s is the best shape. */
    { " mi300x ",
      { 0.45, 1.6, 1, 1, 0.80, 1.4, { 0.25, 0.25, 0.25 }, 2, BASIS_DATASHEET,
        MLENG " compute/accelerator, best shape 668 TFLOP/s", { 0 } } },
    { " mi250x ",
      { 0.55, 1.6, 1, 1, 0.80, 1.4, { 0.25, 0.25, 0.25 }, 2, BASIS_DATASHEET,
        "assumed", { 0 } } },
    { " v100-16gb v100-32gb v100-pcie-16gb v100-pcie-32gb ",
      { 0.70, 1.5, 1, 1, 0.85, 1.3, { 0.35, 0.35, 0.35 }, 2, BASIS_DATASHEET,
        "assumed", { 0 } } },
};

static const struct gpu_rates other = {
    0.70, 1.6, 1, 1, 0.85, 1.4, { 0.45, 0.45, 0.45 }, 1.8, BASIS_DATASHEET, "assumed", { 0 },
};

/* A rank of a host is taken as one core, and what it does is anybody's guess until dpxcal
 * has run: 80 GFLOP/s in fp32 (eight fused multiply-adds by two units at 2.5 GHz), half of
 * that in 16 bits, which few cores multiply natively, 10 GB/s. */
static const struct gpu_rates host = {
    1, 4, 1, 1, 1, 4, { 0.5, 0.5, 0.5 }, 4, BASIS_DATASHEET, "assumed, per core", { 0 },
};
#define HOST_FLOPS  80e9
#define HOST_STREAM 10e9

bool gpu_is_host(const struct gpu *g)
{
    return !(g->fp32 > 0) && !(g->fp16 > 0) && !(g->bf16 > 0);
}

static const struct gpu_rates *named(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; n && i < sizeof table / sizeof table[0]; i++) {
        const char *at = strstr(table[i].names, name);
        if (at > table[i].names && at[-1] == ' ' && at[n] == ' ')
            return &table[i].r;
    }
    return &other;
}

/* Asked for every copy of every plan of a search, always of the same type. */
const struct gpu_rates *gpu_rates(const struct gpu *g)
{
    static _Thread_local struct { char name[sizeof g->name]; const struct gpu_rates *r; } last;

    if (gpu_is_host(g))
        return &host;
    if (!last.r || strcmp(last.name, g->name) != 0) {
        memcpy(last.name, g->name, sizeof last.name);
        last.r = named(g->name);
    }
    return last.r;
}

double gpu_peak(const struct gpu *g, enum dtype t)
{
    double peak = t == DT_BF16 ? g->bf16 : t == DT_FP16 ? g->fp16 : g->fp32;

    if (gpu_is_host(g))
        return t == DT_FP32 ? HOST_FLOPS : HOST_FLOPS / 2;
    if (t == DT_FP16 && !(peak > 0))
        peak = g->bf16;                 /* what has both has them at one rate */
    return peak > 0 ? peak : g->fp32 > 0 ? g->fp32 : g->fp16 > 0 ? g->fp16 : g->bf16;
}

const char *gpu_lacks(const struct gpu *g, enum dtype t)
{
    if (gpu_is_host(g) || t == DT_FP32 || g->bf16 > 0 || (t == DT_FP16 && g->fp16 > 0))
        return NULL;
    return t == DT_BF16 ? "these GPUs have no units for bf16: it is taken to run at the fp32 rate"
                        : "these GPUs have no units for 16 bits: they are taken to run at the fp32 rate";
}

double gpu_scaled_share(const struct gpu *g, enum scaled s, bool *published)
{
    static const double hopper[] = HOPPER_SCALED, blackwell[] = BLACKWELL_SCALED;
    double own = gpu_rates(g)->scaled[s];

    *published = own > 0;
    return own > 0 ? own : g->sm_arch >= 100 ? blackwell[s] : hopper[s] > 0 ? hopper[s] : 1;
}

/* Power that is drawn whatever the clock, and what is left of it, as the square of the clock: between a fixed voltage, where power
 * is in proportion to the clock, and one that follows the clock, where it is as its cube.  POWER_FIXED by least absolute log error over
 * published products and clocks under a limit (tests/sim/test_gpu_rates.c); training steps under one are in no fit. */
#define POWER_FIXED 0.21

double gpu_power_share(const struct gpu *g, double limit_w)
{
    double own = power_gpu_watts(g->name);

    return limit_w > 0 && limit_w < own ? sqrt((limit_w / own - POWER_FIXED) / (1 - POWER_FIXED)) : 1;
}

double gpu_stream(const struct gpu *g)
{
    return gpu_is_host(g) || !(g->hbm > 0) ? HOST_STREAM : g->hbm * gpu_rates(g)->hbm;
}
