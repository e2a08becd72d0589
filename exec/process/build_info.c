/* build_info.c -- what this program was built with, as one line. */
#include "exec/process/build_info.h"

#include <stdio.h>

#ifdef DPX_CUDA
#include "exec/cuda/comm_nccl.h"
#include "exec/cuda/device_cuda.h"
#include "exec/cuda/gemm_cuda.h"

#ifdef DPX_EMU
#define EMULATED " (emulated)"
#else
#define EMULATED ""
#endif

static void cuda_info(char *into, size_t size)
{
    char runtime[32], gemm[64];

    device_cuda_runtime(runtime, sizeof runtime);
    gemm_cuda_name(gemm, sizeof gemm);
    snprintf(into, size, "with %s" EMULATED ", %s, %s", runtime, gemm, comm_nccl_version());
}
#else
static void cuda_info(char *into, size_t size)
{
    snprintf(into, size, "without CUDA");
}
#endif

#ifdef DPX_NO_MPI
#define MPI_INFO ", without MPI"
#else
#define MPI_INFO ""
#endif

#ifdef DPX_NO_DNNL
#define DNNL_INFO ", without oneDNN"
#else
#define DNNL_INFO ""
#endif

const char *build_info(void)
{
    static char text[256];
    char cuda[160];

    cuda_info(cuda, sizeof cuda);
    snprintf(text, sizeof text, "%s" MPI_INFO DNNL_INFO, cuda);
    return text;
}
