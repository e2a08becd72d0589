/* kernels_cuda.h -- kernels.h on one stream of a CUDA device: cuBLASLt and the kernels of *.cu.
 *
 * Where weights are fp32 and activations of 16 bits (torch.autocast), every product first casts its
 * weight into the workspace: 2 bytes an element of room, and 6 of memory traffic in each of forward,
 * dx.  Biases are rounded there, too, as autocast does.  Where the host reports a label beyond the
 * vocabulary, here its loss is NaN; the gradient of an embedding leaves such a token out.
 *
 * In fp16 what leaves its range becomes infinite, and NaN follows: not_finite() counts both.  Attention's backward rounds
 * gradients of scores to 16 bits, where the host keeps fp32.
 *
 * Calls check their arguments, queue and return.  Numbers for the host (sums, losses, counts of
 * what is not finite) are made in slots of device memory; finish() fetches them, waits, and adds
 * them to the callers' variables. */
#ifndef DPX_KERNELS_CUDA_H
#define DPX_KERNELS_CUDA_H

#include "exec/device/device.h"
#include "exec/kernels/kernels.h"

/* What kernels_cuda_open() needs for plans up to these: 32 MiB for cuBLASLt, and the largest of
 *   casts            2 cast + 2 widest where cast > 0 (each rounded up to 64), and a strip of a product,
 *                    which is 4 MiB, or 4 widest if that is more
 *   biases           4 widest min(n, 256): partial sums of columns
 *   norms            8 hidden min(n, 512): partial sums of dw and db
 *   embeddings       4 (2 (vocab + 1) + 2 n + ceil(vocab/1024) + 20 + floor(n/256) hidden)
 * rounded up to 256.  A call that needs more fails and says so. */
struct kernels_cuda_need {
    int64_t n;                  /* tokens of a micro-batch */
    int64_t hidden, vocab;
    int64_t widest;             /* outputs of the widest linear layer with a bias or dropout */
    int64_t cast;               /* elements of the largest weight kept in fp32 where activations are 16 bits
                                 * (torch.autocast), or 0 */
};
int64_t kernels_cuda_workspace(const struct kernels_cuda_need *need);

/* What kernels_open_on() calls for a CUDA device.  There is no reference on a device. */
struct kernels *kernels_cuda_open(struct device *d, enum stream s, int threads, void *workspace,
                                  int64_t bytes, bool reference);

/* gemm_cuda_tune() for the products of k, which is of a CUDA device. */
void kernels_cuda_tune(struct kernels *k, bool on);

#endif
