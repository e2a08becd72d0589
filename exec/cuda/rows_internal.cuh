/* rows_internal.cuh -- what the files of kernels that go through rows share: how a row is cut among threads,
 * and sums that blocks left for a second kernel.
 *
 * A row is read once and kept in registers where its sums are needed before its results; where gradients
 * of a parameter meet, blocks write their sums to the workspace and rows_add_parts() adds those in order. */
#ifndef DPX_ROWS_INTERNAL_CUH
#define DPX_ROWS_INTERNAL_CUH

#include <math.h>

#include "exec/cuda/pack.cuh"
#include "exec/cuda/rows.h"

#define NOT_A_NUMBER __int_as_float(0x7fffffff)

/* Blocks of a row each; beyond this they go on to another row. */
static inline unsigned rows_grid(int64_t rows) { return blocks_for(rows, 1, 1 << 22); }

/* Threads of a block that goes through h elements by packs of w. */
static inline unsigned threads_for(int64_t h, int w)
{
    int64_t packs = (h + w - 1) / w;

    return packs < 256 ? (unsigned)(packs + 31) / 32 * 32 : 256;
}

/* Whether rows of h elements, one behind the other, may be moved by packs of w. */
static inline bool rows_take(const void *x, enum dtype t, int64_t h, int w)
{
    return h % w == 0 && takes(x, t, w);
}

/* Blocks that a kernel of so many threads a block may want: about as many as the device holds at once. */
int64_t rows_at_once(int threads);

/* sums[c] = (+=) parts[0][c] + parts[1][c] + ... + parts[count-1][c], in an order of their own; narrows: as fp16 has the sum */
int rows_add_parts(int count, int64_t cols, const float *parts, void *sums, enum dtype gt, bool add, bool narrows,
                   cudaStream_t s);

/* The same where there are no parts; sums may be NULL. */
int rows_no_sums(void *sums, int64_t cols, enum dtype gt, bool add, cudaStream_t s);

#endif
