/* launch.h -- what lies between the C files and the kernels: C types and codes.
 *
 * C17 and C++ compile it alike.  Each family of kernels declares its launchers, extern "C", in a
 * header of its own: elements.h, rows.h, attention.h.
 *
 * A launcher queues its kernels on the stream and returns.  It returns 0 or a cudaError_t, which
 * the C side turns into fail().  It allocates nothing, waits for nothing, and trusts its shapes:
 * kernels_cuda.c has checked them.  Pointers are device memory; every array is aligned to its
 * element, and a launcher that loads 16 bytes at a time checks that it may. */
#ifndef DPX_CUDA_LAUNCH_H
#define DPX_CUDA_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;                     /* cudaStream_t is a pointer to it */

/* enum dtype and enum grad_into of the model's headers, as the kernels know them. */
enum launch_dtype { LAUNCH_FP32 = 0, LAUNCH_BF16 = 1, LAUNCH_FP16 = 2 };
enum launch_into { LAUNCH_SET = 0, LAUNCH_ADD = 1 };

/* Element i is dropped where drop_hash(seed, i) >> 32 is below limit, and otherwise multiplied
 * with keep.  { 0, 0, 1 }: nothing is dropped.  (struct dropout_rule of exec/kernels/kernels_internal.h.) */
struct launch_drop { uint64_t seed; uint32_t limit; float keep; };

#ifndef __cplusplus
#include "exec/kernels/kernels.h"

_Static_assert((int)LAUNCH_FP32 == (int)DT_FP32 && (int)LAUNCH_BF16 == (int)DT_BF16 && (int)LAUNCH_FP16 == (int)DT_FP16,
               "dtype codes are the model's");
_Static_assert((int)LAUNCH_SET == (int)GRAD_SET && (int)LAUNCH_ADD == (int)GRAD_ADD, "grad_into codes are exec's");
#endif

#endif
