/* stream_rates.h -- the share of a copy's rate at which a memory-bound kernel runs.
 *
 * PyTorch's eager norms, losses, rotary embeddings and gathers do not run at copy bandwidth.  Each
 * share is the median over published timings of PyTorch's or transformers' own kernels (Liger-Kernel's benchmark
 * data, benchmark/data/all_benchmark_data.csv; rows: tests/sim/data/kernels_published.csv), of
 *
 *     (bytes as the block program counts them, forward and backward) / (seconds * the GPU's copy rate)
 *
 * A norm that torch.compile() fuses has the share of Liger-Kernel's own (kernels_triton.csv), written in Triton as inductor's
 * are; what it fuses without a norm runs at copy rate.
 *
 * tests/sim/test_stream_rates.c computes them again from the rows and fails where one differs from the table. */
#ifndef DPX_STREAM_RATES_H
#define DPX_STREAM_RATES_H

#include "model/program/program.h"
#include "sim/price/gpu_rates.h"

/* Share of gpu_stream() at which a kernel of this implementation runs: 1 for the executor's own kernels, which
 * have no published timings, and for kinds that were not timed on any GPU (additions and activations run at
 * copy rate). */
double stream_share(const struct gpu *g, enum kernel_set set, const struct kernel *k);

#endif
