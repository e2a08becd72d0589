/* nccl.h -- as much of NCCL as dpx calls, for the emulator: ranks are processes of one machine that
 * meet in shared memory.  See ../nccl.cc. */
#ifndef DPX_EMU_NCCL_H
#define DPX_EMU_NCCL_H

#include <stddef.h>

#define NCCL_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(2, 30, 0)
#define NCCL_CONFIG_UNDEF_INT (-2147483647 - 1)

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;

typedef enum { ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument,
               ncclInvalidUsage, ncclRemoteError, ncclInProgress } ncclResult_t;
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps, ncclMaxRedOp = 0x7fffffff } ncclRedOp_t;
typedef enum { ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32,
               ncclFloat64, ncclBfloat16, ncclNumTypes } ncclDataType_t;
typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;

typedef struct { size_t size; int blocking; } ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER { sizeof(ncclConfig_t), NCCL_CONFIG_UNDEF_INT }

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
const char  *ncclGetErrorString(ncclResult_t r);
const char  *ncclGetLastError(ncclComm_t comm);

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t n, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, struct CUstream_st *stream);
ncclResult_t ncclReduce(const void *send, void *recv, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, struct CUstream_st *stream);
ncclResult_t ncclBroadcast(const void *send, void *recv, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                           struct CUstream_st *stream);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t each, ncclDataType_t type, ncclComm_t comm,
                           struct CUstream_st *stream);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t each, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, struct CUstream_st *stream);
ncclResult_t ncclSend(const void *send, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      struct CUstream_st *stream);
ncclResult_t ncclRecv(void *recv, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      struct CUstream_st *stream);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

#ifdef __cplusplus
}
#endif

#endif
