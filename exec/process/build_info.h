/* build_info.h -- what this program was built with: --version says it. */
#ifndef DPX_BUILD_INFO_H
#define DPX_BUILD_INFO_H

/* "with CUDA 13.0, cuBLASLt 13.1, NCCL 2.28.9", "without CUDA, without MPI": the versions are those of
 * the libraries that were found; it loads them.  Static. */
const char *build_info(void);

#endif
