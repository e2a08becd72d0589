/* gather.h -- a file of a model's tensors, put together from what each rank holds. */
#ifndef DPX_GATHER_H
#define DPX_GATHER_H

#include <mpi.h>
#include <stdbool.h>

#include "base/dtype.h"
#include "exec/data/own_tensors.h"
#include "model/arch/transformer.h"

/* What this rank holds so far: copies, as fp32. */
struct grad_file;

/* Of the whole model `m`, or of what `trained` of it; `own`: what this rank's tensors are of it, NULL: they are it.  NULL
 * reported. */
struct grad_file *gather_grad_file_new(const struct model *m, const struct own_tensors *own, bool trained);
void gather_grad_file_free(struct grad_file *f);                   /* accepts NULL */

/* Elements [from, from+n) of one of the rank's tensors, of dtype t.  Fits exec_step.on_grad. */
void gather_grad_file_add(void *f, int tensor, int64_t from, int64_t n, const void *values, enum dtype t);

enum { GRAD_FILE_PIECE = 1 << 22 };

/* Every rank must call it; rank 0 writes the safetensors file, in Hugging Face's names and fp32.
 * MPI_COMM_NULL: this process has everything.  `piece`: elements of a message at most, the same on all
 * ranks; 0: GRAD_FILE_PIECE.  0, or -1 on all ranks, of which those that know why say it. */
int gather_grad_file_write(struct grad_file *f, MPI_Comm control, int64_t piece, const char *path);

#endif
