/* kernels_columns.h -- orthonormal columns of a narrow matrix: the host's, plain enough to be the reference's too.
 *
 * As PyTorch's _orthogonalize() does it (torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py): up to two columns by
 * Gram-Schmidt, where a column that is zero becomes NaN as it does there; more by Householder's reflections (LAPACK's geqr2 and org2r,
 * which torch.linalg.qr() calls), where it becomes a unit vector.  A column's sign may differ from LAPACK's: a product P Q' does not
 * change with it.  Sums are fp64 in the order of the rows whatever the threads: each rank has the same bits. */
#ifndef DPX_KERNELS_COLUMNS_H
#define DPX_KERNELS_COLUMNS_H

#include "exec/kernels/kernels_internal.h"

int columns_orthonormal(struct kernels *k, int64_t rows, int64_t cols, float *a);

#endif
