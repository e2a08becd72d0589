/* loaded.h -- cuBLASLt and NCCL, loaded when they are needed and not linked: the program starts on machines without them.
 *
 *     if (loaded_need(LOADED_NCCL) < 0)
 *         return -1;
 *     ... ncclGetUniqueId() and the others ...
 *
 * Looked for in this order: the file that DPX_CUBLASLT or DPX_NCCL names; the folder cuda-libraries beside the program, where make
 * leaves a link to those of the toolkit; where the loader looks (LD_LIBRARY_PATH, ld.so.conf); $CUDA_HOME/lib64; /usr/local/cuda/lib64.
 * Their functions are declared by their own headers; calling one before loaded_need() returns an error or 0. */
#ifndef DPX_LOADED_H
#define DPX_LOADED_H

#include <stdbool.h>

enum loaded { LOADED_CUBLASLT, LOADED_NCCL, NLOADED };

/* 0; -1 reported: which library is not there, where it was looked for, and what names it. */
int  loaded_need(enum loaded which);
/* The same without a word. */
bool loaded_is_here(enum loaded which);
/* Is libcuda.so.1, which the driver brings? */
bool loaded_driver_is_here(void);

#endif
