/* stream_rates.h -- what a memory-bound kernel reaches of the rate of a copy.
 *
 * PyTorch's eager norms, losses, rotary embeddings and gathers do not run at copy bandwidth.  Each
 * share is the median over published timings of PyTorch's or transformers' own kernels (Liger-Kernel's benchmark
 * data, benchmark/data/all_benchmark_data.csv; rows: tests/sim/data/kernels_published.csv), of
 *
 *     (bytes as the block program counts them, forward and backward) / (seconds * the GPU's copy rate)
 *
 * tests/sim/test_stream_rates.c makes them again from the rows and fails where one is not what the table says. */
#ifndef DPX_STREAM_RATES_H
#define DPX_STREAM_RATES_H

#include "model/program/program.h"
#include "sim/price/gpu_rates.h"

/* Share of gpu_stream() at which a kernel of this implementation runs: 1 for the executor's own kernels, which
 * nobody has published, and for what was not timed on any GPU (additions and activations run at copy rate). */
double stream_share(const struct gpu *g, enum kernel_set set, const struct kernel *k);

#endif
