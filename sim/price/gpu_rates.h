/* gpu_rates.h -- how much of its datasheet a GPU type delivers.
 *
 * Some numbers per type, each the median of published micro-measurements of single
 * kernels, never of training steps: the share of the matrix peak that a large GEMM
 * reaches, what is left of it once the power limit is reached (by two generations of cuBLAS), the share of the memory
 * bandwidth that a streaming kernel reaches, and the share of the matrix peak that fused
 * attention reaches.  Where none is published, the usual share of the family, marked
 * `datasheet`.
 *
 * A spread of f means: nine in ten kernels of this kind take between 1/f and f times
 * the predicted time. */
#ifndef DPX_GPU_RATES_H
#define DPX_GPU_RATES_H

#include <stdbool.h>

#include "base/dtype.h"
#include "model/cluster/cluster.h"
#include "model/plan/attention.h"
#include "sim/price/cost.h"

/* Backward's rate over forward's, all kernels and types: FlashAttention-2 297 of 346 TFLOP/s on
 * H100, cuDNN 485 of 544, TransformerEngine 168 of 200 on A100, 970 of 1125 on B200. */
#define FLASH_BACKWARD 0.86

/* What the first FlashAttention reaches of the second's rate, forward and backward: 30 to 50 and
 * 25 to 35 % of A100's peak ("the forward pass only reaches ...", FlashAttention-2, arXiv
 * 2307.08691, section 1; the middles, 0.40 and 0.30), over the second's there.
 * Both feed the tensor cores by the same instructions, on Hopper too. */
#define FLASH_1_FORWARD  (0.40 / 0.64)
#define FLASH_1_BACKWARD (0.30 / (0.64 * FLASH_BACKWARD))

struct gpu_rates {
    double gemm, gemm_spread;       /* share of the matrix peak: 256x128 tile, endless k */
    double sustained;               /* of that share, what is left in minutes of training, at the board's power limit */
    double sustained_12_8;          /* the same since CUDA 12.8 */
    double hbm, hbm_spread;         /* share of the memory bandwidth */
    double attention[NFLASH];       /* by enum flash: share of the matrix peak, forward */
    double attention_spread;
    enum basis basis;
    const char *source;
    double scaled[NSCALED];         /* products of 8 and 4 bits: what they reach of their peak over what those of 16 bits reach of theirs, in a
                                     * benchmark of both; 0: none is published (gpu_scaled_share()) */
};

/* Never NULL; a host and an unknown GPU have rows of their own. */
const struct gpu_rates *gpu_rates(const struct gpu *g);

/* Nothing is known of this processor (a host): its figures are assumptions per core. */
bool gpu_is_host(const struct gpu *g);

/* Matrix peak in a precision, FLOP/s.  fp32 is true fp32, as PyTorch multiplies unless asked
 * to use TF32; a type without bf16 units computes it at the fp32 rate. */
double gpu_peak(const struct gpu *g, enum dtype t);

/* Of a narrower format (gpu_scaled_peak()): scaled[] of the type, or that of its next relative (`published` false). */
double gpu_scaled_share(const struct gpu *g, enum scaled s, bool *published);
/* What a power limit below the board's own leaves of the rate at which products run at the board's: 1 without a limit. */
double gpu_power_share(const struct gpu *g, double limit_w);
/* The sentence that a type has no units for this precision, which then runs at the fp32 rate; NULL where it has. */
const char *gpu_lacks(const struct gpu *g, enum dtype t);

/* Memory bandwidth as streaming kernels see it, bytes/s. */
double gpu_stream(const struct gpu *g);

#endif
