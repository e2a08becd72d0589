/* loaded.c -- see loaded.h.  Each function that is used of a library stands here under its own name and calls the one that was found.  The
 * libraries' headers declare them, so that the compiler compares. */
#include "exec/cuda/loaded.h"

#ifdef DPX_EMU
/* The emulator has both. */
int  loaded_need(enum loaded which) { return which < NLOADED ? 0 : -1; }
bool loaded_is_here(enum loaded which) { return which < NLOADED; }
bool loaded_driver_is_here(void) { return true; }
#else

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cublasLt.h>
#include <nccl.h>

#include "base/fail.h"

#define FORWARD(type, name, parameters, arguments, without) \
    static type (*name##_at) parameters; \
    type name parameters { return name##_at ? name##_at arguments : (without); }

/* ---- cuBLASLt ---- */

#define NOT_LOADED CUBLAS_STATUS_NOT_INITIALIZED

FORWARD(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t *h), (h), NOT_LOADED)
FORWARD(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t h), (h), NOT_LOADED)
FORWARD(const char *, cublasLtGetStatusString, (cublasStatus_t s), (s), "cuBLASLt is not loaded")
FORWARD(size_t, cublasLtGetVersion, (void), (), 0)
FORWARD(cublasStatus_t, cublasLtMatrixLayoutCreate, (cublasLtMatrixLayout_t *l, cudaDataType t, uint64_t rows, uint64_t cols, int64_t ld),
        (l, t, rows, cols, ld), NOT_LOADED)
FORWARD(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t l), (l), NOT_LOADED)
FORWARD(cublasStatus_t, cublasLtMatmulDescCreate, (cublasLtMatmulDesc_t *d, cublasComputeType_t c, cudaDataType_t s), (d, c, s), NOT_LOADED)
FORWARD(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t d), (d), NOT_LOADED)
FORWARD(cublasStatus_t, cublasLtMatmulDescSetAttribute, (cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void *from, size_t n),
        (d, a, from, n), NOT_LOADED)
FORWARD(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t *p), (p), NOT_LOADED)
FORWARD(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t p), (p), NOT_LOADED)
FORWARD(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,
        (cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, const void *from, size_t n), (p, a, from, n), NOT_LOADED)
FORWARD(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,
        (cublasLtHandle_t h, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
         cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t p, int most, cublasLtMatmulHeuristicResult_t found[], int *n),
        (h, op, a, b, c, d, p, most, found, n), NOT_LOADED)
FORWARD(cublasStatus_t, cublasLtMatmul,
        (cublasLtHandle_t h, cublasLtMatmulDesc_t op, const void *alpha, const void *a, cublasLtMatrixLayout_t la, const void *b,
         cublasLtMatrixLayout_t lb, const void *beta, const void *c, cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
         const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes, cudaStream_t stream),
        (h, op, alpha, a, la, b, lb, beta, c, lc, d, ld, algo, workspace, bytes, stream), NOT_LOADED)

/* ---- NCCL ---- */

FORWARD(ncclResult_t, ncclGetVersion, (int *version), (version), ncclInternalError)
FORWARD(ncclResult_t, ncclGetUniqueId, (ncclUniqueId *id), (id), ncclInternalError)
FORWARD(const char *, ncclGetErrorString, (ncclResult_t r), (r), "NCCL is not loaded")
FORWARD(const char *, ncclGetLastError, (ncclComm_t c), (c), "")
FORWARD(ncclResult_t, ncclCommInitRankConfig, (ncclComm_t *c, int n, ncclUniqueId id, int rank, ncclConfig_t *config),
        (c, n, id, rank, config), ncclInternalError)
FORWARD(ncclResult_t, ncclCommFinalize, (ncclComm_t c), (c), ncclInternalError)
FORWARD(ncclResult_t, ncclCommDestroy, (ncclComm_t c), (c), ncclInternalError)
FORWARD(ncclResult_t, ncclCommAbort, (ncclComm_t c), (c), ncclInternalError)
FORWARD(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t c, ncclResult_t *state), (c, state), ncclInternalError)
FORWARD(ncclResult_t, ncclRedOpCreatePreMulSum, (ncclRedOp_t *op, void *scalar, ncclDataType_t t, ncclScalarResidence_t where, ncclComm_t c),
        (op, scalar, t, where, c), ncclInternalError)
FORWARD(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t c), (op, c), ncclInternalError)
FORWARD(ncclResult_t, ncclGroupStart, (void), (), ncclInternalError)
FORWARD(ncclResult_t, ncclGroupEnd, (void), (), ncclInternalError)
FORWARD(ncclResult_t, ncclSend, (const void *from, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s),
        (from, n, t, peer, c, s), ncclInternalError)
FORWARD(ncclResult_t, ncclRecv, (void *to, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s),
        (to, n, t, peer, c, s), ncclInternalError)
FORWARD(ncclResult_t, ncclAllGather, (const void *from, void *to, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s),
        (from, to, n, t, c, s), ncclInternalError)
FORWARD(ncclResult_t, ncclReduceScatter, (const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s),
        (from, to, n, t, op, c, s), ncclInternalError)
FORWARD(ncclResult_t, ncclAllReduce, (const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s),
        (from, to, n, t, op, c, s), ncclInternalError)
FORWARD(ncclResult_t, ncclBroadcast, (const void *from, void *to, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s),
        (from, to, n, t, root, c, s), ncclInternalError)
FORWARD(ncclResult_t, ncclReduce,
        (const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t s),
        (from, to, n, t, op, root, c, s), ncclInternalError)

/* ---- loading ---- */

struct function { const char *name; void *at; };
#define FOUND(name) { #name, &name##_at }
static const struct function cublaslt[] = {
    FOUND(cublasLtCreate), FOUND(cublasLtDestroy), FOUND(cublasLtGetStatusString), FOUND(cublasLtGetVersion), FOUND(cublasLtMatrixLayoutCreate),
    FOUND(cublasLtMatrixLayoutDestroy), FOUND(cublasLtMatmulDescCreate), FOUND(cublasLtMatmulDescDestroy), FOUND(cublasLtMatmulDescSetAttribute),
    FOUND(cublasLtMatmulPreferenceCreate), FOUND(cublasLtMatmulPreferenceDestroy), FOUND(cublasLtMatmulPreferenceSetAttribute),
    FOUND(cublasLtMatmulAlgoGetHeuristic), FOUND(cublasLtMatmul), { NULL, NULL },
};
static const struct function nccl[] = {
    FOUND(ncclGetVersion), FOUND(ncclGetUniqueId), FOUND(ncclGetErrorString), FOUND(ncclGetLastError), FOUND(ncclCommInitRankConfig),
    FOUND(ncclCommFinalize), FOUND(ncclCommDestroy), FOUND(ncclCommAbort), FOUND(ncclCommGetAsyncError), FOUND(ncclRedOpCreatePreMulSum),
    FOUND(ncclRedOpDestroy), FOUND(ncclGroupStart), FOUND(ncclGroupEnd), FOUND(ncclSend), FOUND(ncclRecv), FOUND(ncclAllGather),
    FOUND(ncclReduceScatter), FOUND(ncclAllReduce), FOUND(ncclBroadcast), FOUND(ncclReduce), { NULL, NULL },
};

/* The file's number is the one whose header this was compiled with: its functions have these parameters. */
#define TEXT_OF(x) #x
#define NUMBER(x) TEXT_OF(x)
static const struct { const char *name, *variable, *file; const struct function *functions; } libraries[NLOADED] = {
    [LOADED_CUBLASLT] = { "cuBLASLt", "DPX_CUBLASLT", "libcublasLt.so." NUMBER(CUBLAS_VER_MAJOR), cublaslt },
    [LOADED_NCCL]     = { "NCCL", "DPX_NCCL", "libnccl.so." NUMBER(NCCL_MAJOR), nccl },
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum { NOT_TRIED, LOADED, FAILED } state[NLOADED];
static char why[NLOADED][512];

/* All of them or none.  ISO C has no cast from object to function pointer. */
static bool find_all(void *library, enum loaded which)
{
    for (const struct function *f = libraries[which].functions; f->name; f++)
        if (!dlsym(library, f->name)) {
            snprintf(why[which], sizeof why[which], "%s has no function %s: it is another version", libraries[which].name, f->name);
            return false;
        }
    for (const struct function *f = libraries[which].functions; f->name; f++) {
        void *at = dlsym(library, f->name);
        memcpy(f->at, &at, sizeof at);
    }
    return true;
}

static void *open_at(const char *folder, const char *below, const char *file)
{
    char path[4600];

    snprintf(path, sizeof path, "%.4000s%s%.200s", folder, below, file);
    return access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *beside_the_program(const char *file)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    while (n > 0 && path[n - 1] != '/')
        n--;
    if (n <= 0)
        return NULL;
    path[n] = '\0';
    void *library = open_at(path, "cuda-libraries/", file);
    return library ? library : open_at(path, "../../cuda-libraries/", file);        /* build/tests/gpu/ */
}

static void *open_library(enum loaded which)
{
    const char *named = getenv(libraries[which].variable), *home = getenv("CUDA_HOME"), *file = libraries[which].file, *said;
    void *library = NULL;

    if (named && named[0]) {
        library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        if (!library && (said = dlerror()))
            snprintf(why[which], sizeof why[which], "%s, %s: %.300s", libraries[which].name, libraries[which].variable, said);
        return library;
    }
    if ((library = beside_the_program(file)) || (library = dlopen(file, RTLD_NOW | RTLD_LOCAL)))
        return library;
    said = dlerror();
    if ((home && home[0] && (library = open_at(home, "/lib64/", file))) || (library = open_at("/usr/local/cuda", "/lib64/", file)))
        return library;
    snprintf(why[which], sizeof why[which], "%s is not on this machine (%.200s; nor in $CUDA_HOME/lib64 or /usr/local/cuda/lib64): "
             "install it, or name the file: %s=/path/%s", libraries[which].name, said ? said : file, libraries[which].variable, file);
    return NULL;
}

static bool load(enum loaded which)
{
    pthread_mutex_lock(&lock);
    if (state[which] == NOT_TRIED) {
        void *library = open_library(which);
        state[which] = library && find_all(library, which) ? LOADED : FAILED;
    }
    bool there = state[which] == LOADED;
    pthread_mutex_unlock(&lock);
    return there;
}

int loaded_need(enum loaded which) { return load(which) ? 0 : fail("%s", why[which]); }

bool loaded_is_here(enum loaded which) { return load(which); }

bool loaded_driver_is_here(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);

    if (driver)
        dlclose(driver);
    return driver != NULL;
}

#endif
