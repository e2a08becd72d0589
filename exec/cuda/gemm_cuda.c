/* cuBLASLt's matrices are column-major, and a row-major c[m, n] is a column-major [n, m]: so
 * cuBLASLt's A is our b, its B our a, its D our c, and the bias runs along the rows of D, as
 * its epilogue wants it. */
#include "exec/cuda/gemm_cuda.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "exec/cuda/device_cuda.h"
#include "exec/cuda/loaded.h"

enum {
    BUCKETS = 256,
    CANDIDATES = 8,             /* algorithms that are timed */
    REPEATS = 3,                /* timings of each, after one to warm up; the best counts */
    ALIGNED = 16,               /* bytes: no kernel loads more at once */
};

/* What an algorithm is chosen for: all int64_t, so that equal keys are equal bytes.  align:
 * of A, B, C, D and the bias; a flat buffer's tensors begin anywhere. */
struct key { int64_t m, n, k, lda, ldb, ldc, in, out, a_turned, b_turned, add, bias, align[5]; };

struct shape {
    struct shape          *next;        /* in its bucket */
    struct key             key;
    cublasLtMatmulDesc_t   op;
    cublasLtMatrixLayout_t a, b, d;     /* C's is D's */
    cublasLtMatmulAlgo_t   algo;
};

struct gemm_cuda {
    cublasLtHandle_t handle;
    cudaStream_t     stream;
    void            *workspace;
    size_t           bytes;
    bool             tune;
    struct shape    *bucket[BUCKETS];
};

static int lt_ok(cublasStatus_t status, const char *call)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return fail("%.*s: %s", (int)strcspn(call, "("), call, cublasLtGetStatusString(status));
}

#define LT_OK(call) lt_ok((call), #call)

/* ---- keys ---- */

static int64_t alignment(const void *p)
{
    uintptr_t at = (uintptr_t)p | ALIGNED;

    return (int64_t)(at & -at);
}

static struct key key_of(const struct gemm_cuda_product *p)
{
    const void *c = p->residual ? p->residual : p->c;

    return (struct key){ p->m, p->n, p->k, p->lda, p->ldb, p->ldc, p->in, p->out, p->a_turned, p->b_turned,
                         p->residual != NULL, p->bias != NULL,
                         { alignment(p->b), alignment(p->a), alignment(c), alignment(p->c),
                           p->bias ? alignment(p->bias) : 0 } };
}

/* FNV-1a over the key's words. */
static uint64_t bucket_of(const struct key *key)
{
    int64_t word[sizeof *key / sizeof(int64_t)];
    uint64_t h = 0xcbf29ce484222325;

    memcpy(word, key, sizeof *key);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        h = (h ^ (uint64_t)word[i]) * 0x100000001b3;
    return (h ^ h >> 32) % BUCKETS;
}

/* ---- descriptors ---- */

static cudaDataType_t type_of(int64_t t) { return t == DT_BF16 ? CUDA_R_16BF : t == DT_FP16 ? CUDA_R_16F : CUDA_R_32F; }

/* A row-major array of `rows` rows of `cols`, as the column-major matrix that it is. */
static int describe(cublasLtMatrixLayout_t *to, int64_t type, int64_t rows, int64_t cols, int64_t ld)
{
    return LT_OK(cublasLtMatrixLayoutCreate(to, type_of(type), (uint64_t)cols, (uint64_t)rows, ld));
}

static int describe_arrays(struct shape *s)
{
    const struct key *k = &s->key;

    if (describe(&s->a, k->in, k->b_turned ? k->n : k->k, k->b_turned ? k->k : k->n, k->ldb) < 0 ||
        describe(&s->b, k->in, k->a_turned ? k->k : k->m, k->a_turned ? k->m : k->k, k->lda) < 0)
        return -1;
    return describe(&s->d, k->out, k->m, k->n, k->ldc);
}

static int set_bias(cublasLtMatmulDesc_t op, const void *bias)
{
    return LT_OK(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
}

static int describe_product(struct shape *s)
{
    const struct key *k = &s->key;
    cublasOperation_t a = k->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b = k->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;

    if (LT_OK(cublasLtMatmulDescCreate(&s->op, CUBLAS_COMPUTE_32F, CUDA_R_32F)) < 0 ||
        LT_OK(cublasLtMatmulDescSetAttribute(s->op, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a)) < 0 ||
        LT_OK(cublasLtMatmulDescSetAttribute(s->op, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b)) < 0)
        return -1;
    if (!k->bias)
        return 0;
    /* The heuristic only asks how the bias is aligned. */
    if (set_bias(s->op, (const void *)(uintptr_t)k->align[4]) < 0)
        return -1;
    return LT_OK(cublasLtMatmulDescSetAttribute(s->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                sizeof epilogue));
}

/* Reductions in fp32 parts, which a last pass sums in order, and none else: with INPLACE
 * blocks add to the result as they finish, with OUTPUT_TYPE the parts are rounded to 16 bits. */
static int describe_wishes(const struct gemm_cuda *g, const struct key *k, cublasLtMatmulPreference_t wishes)
{
    static const cublasLtMatmulPreferenceAttributes_t align[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint64_t bytes = g->bytes;

    for (int i = 0; i < 4; i++) {
        uint32_t to = (uint32_t)k->align[i];
        if (LT_OK(cublasLtMatmulPreferenceSetAttribute(wishes, align[i], &to, sizeof to)) < 0)
            return -1;
    }
    if (LT_OK(cublasLtMatmulPreferenceSetAttribute(wishes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                   sizeof bytes)) < 0)
        return -1;
    return LT_OK(cublasLtMatmulPreferenceSetAttribute(wishes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &schemes, sizeof schemes));
}

/* ---- algorithms ---- */

/* Those for the shape, the one thought fastest first; how many there are, or -1. */
static int candidates(const struct gemm_cuda *g, const struct shape *s, int most,
                      cublasLtMatmulHeuristicResult_t found[])
{
    const struct key *k = &s->key;
    cublasLtMatmulPreference_t wishes = NULL;
    cublasStatus_t status;
    int n = 0;

    if (LT_OK(cublasLtMatmulPreferenceCreate(&wishes)) < 0)
        return -1;
    if (describe_wishes(g, k, wishes) < 0) {
        cublasLtMatmulPreferenceDestroy(wishes);
        return -1;
    }
    status = cublasLtMatmulAlgoGetHeuristic(g->handle, s->op, s->a, s->b, s->d, s->d, wishes, most,
                                            found, &n);
    cublasLtMatmulPreferenceDestroy(wishes);
    if (status == CUBLAS_STATUS_SUCCESS && n > 0 && found[0].state == CUBLAS_STATUS_SUCCESS)
        return n;
    return fail("cuBLASLt has no product of %s [%" PRId64 ", %" PRId64 "] and [%" PRId64 ", %" PRId64 "] "
                "into %s%s: %s", dtype_name((enum dtype)k->in), k->m, k->k, k->k, k->n,
                dtype_name((enum dtype)k->out), k->bias ? " with a bias" : "",
                cublasLtGetStatusString(status ? status : CUBLAS_STATUS_NOT_SUPPORTED));
}

static cublasStatus_t multiply(const struct gemm_cuda *g, const struct shape *s,
                               const struct gemm_cuda_product *p, const cublasLtMatmulAlgo_t *algo, void *d)
{
    const float one = 1, add = p->residual ? 1 : 0;
    const void *c = p->residual ? p->residual : d;      /* with a factor of 0 it is not read */

    return cublasLtMatmul(g->handle, s->op, &one, p->b, s->a, p->a, s->b, &add, c, s->d, d, s->d, algo,
                          g->workspace, g->bytes, g->stream);
}

/* Seconds of one product, the best of REPEATS; INFINITY if the algorithm cannot be run. */
static double timed(const struct gemm_cuda *g, const struct shape *s, const struct gemm_cuda_product *p,
                    const cublasLtMatmulAlgo_t *algo, void *d, cudaEvent_t began, cudaEvent_t ended)
{
    double best = INFINITY;

    for (int i = 0; i <= REPEATS; i++) {
        float ms;
        if (cudaEventRecord(began, g->stream) != cudaSuccess ||
            multiply(g, s, p, algo, d) != CUBLAS_STATUS_SUCCESS ||
            cudaEventRecord(ended, g->stream) != cudaSuccess || cudaEventSynchronize(ended) != cudaSuccess ||
            cudaEventElapsedTime(&ms, began, ended) != cudaSuccess)
            return INFINITY;
        if (i > 0 && (double)ms * 1e-3 < best)
            best = (double)ms * 1e-3;
    }
    return best;
}

static int fastest(const struct gemm_cuda *g, const struct shape *s, const struct gemm_cuda_product *p, int n,
                   const cublasLtMatmulHeuristicResult_t found[], void *d)
{
    cudaEvent_t began = NULL, ended = NULL;
    double best = INFINITY;
    int first = 0;

    if (CUDA_OK(cudaEventCreate(&began)) == 0 && CUDA_OK(cudaEventCreate(&ended)) == 0)
        for (int i = 0; i < n; i++) {
            double seconds = timed(g, s, p, &found[i].algo, d, began, ended);
            if (seconds < best)
                best = seconds, first = i;
        }
    if (began)
        cudaEventDestroy(began);
    if (ended)
        cudaEventDestroy(ended);
    return first;
}

/* Which of n algorithms to keep.  What is added to itself must not be added to n times: it is
 * timed into memory of its own, and not at all where there is none. */
static int choose(const struct gemm_cuda *g, const struct shape *s, const struct gemm_cuda_product *p, int n,
                  const cublasLtMatmulHeuristicResult_t found[])
{
    void *own = NULL;
    int best = 0;

    if (n < 2 || (p->bias && set_bias(s->op, p->bias) < 0))
        return 0;
    if (p->residual != p->c)
        return fastest(g, s, p, n, found, p->c);
    if (cudaMalloc(&own, (size_t)(p->m * p->ldc * dtype_bytes(p->out))) == cudaSuccess)
        best = fastest(g, s, p, n, found, own);
    else
        cudaGetLastError();             /* forgotten: there is a first choice */
    cudaFree(own);
    return best;
}

static void shape_free(struct shape *s)
{
    if (s->a)
        cublasLtMatrixLayoutDestroy(s->a);
    if (s->b)
        cublasLtMatrixLayoutDestroy(s->b);
    if (s->d)
        cublasLtMatrixLayoutDestroy(s->d);
    if (s->op)
        cublasLtMatmulDescDestroy(s->op);
    free(s);
}

static struct shape *shape_new(const struct gemm_cuda *g, const struct key *key,
                               const struct gemm_cuda_product *p)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    struct shape *s = calloc(1, sizeof *s);
    int n;

    if (!s) {
        fail("out of memory for a matrix product");
        return NULL;
    }
    s->key = *key;
    if (describe_arrays(s) < 0 || describe_product(s) < 0 ||
        (n = candidates(g, s, g->tune ? CANDIDATES : 1, found)) < 0) {
        shape_free(s);
        return NULL;
    }
    s->algo = found[g->tune ? choose(g, s, p, n, found) : 0].algo;
    return s;
}

static struct shape *shape_for(struct gemm_cuda *g, const struct gemm_cuda_product *p)
{
    struct key key = key_of(p);
    struct shape **head = &g->bucket[bucket_of(&key)], *s;

    for (s = *head; s; s = s->next)
        if (!memcmp(&s->key, &key, sizeof key))
            return s;
    if (!(s = shape_new(g, &key, p)))
        return NULL;
    s->next = *head;
    *head = s;
    return s;
}

int gemm_cuda(struct gemm_cuda *g, const struct gemm_cuda_product *p)
{
    struct shape *s;

    if (p->m < 1 || p->n < 1 || p->k < 1)
        return fail("a matrix product of %" PRId64 "x%" PRId64 "x%" PRId64, p->m, p->n, p->k);
    if (!(s = shape_for(g, p)) || (p->bias && set_bias(s->op, p->bias) < 0))
        return -1;
    return lt_ok(multiply(g, s, p, &s->algo, p->c), "cublasLtMatmul");
}

void gemm_cuda_tune(struct gemm_cuda *g, bool on) { g->tune = on; }

/* ---- opening ---- */

struct gemm_cuda *gemm_cuda_open(struct CUstream_st *stream, void *workspace, int64_t bytes)
{
    struct gemm_cuda *g = calloc(1, sizeof *g);

    if (!g) {
        fail("out of memory for cuBLASLt");
        return NULL;
    }
    if (loaded_need(LOADED_CUBLASLT) < 0) {
        free(g);
        return NULL;
    }
    g->stream = stream;
    g->workspace = workspace;
    g->bytes = (size_t)bytes;
    if (LT_OK(cublasLtCreate(&g->handle)) < 0) {
        free(g);
        return NULL;
    }
    return g;
}

void gemm_cuda_close(struct gemm_cuda *g)
{
    if (!g)
        return;
    for (int i = 0; i < BUCKETS; i++)
        for (struct shape *s = g->bucket[i], *next; s; s = next) {
            next = s->next;
            shape_free(s);
        }
    cublasLtDestroy(g->handle);
    free(g);
}

void gemm_cuda_name(char *into, size_t size)
{
    size_t v = loaded_is_here(LOADED_CUBLASLT) ? cublasLtGetVersion() : 0;        /* 130100 */

    if (v == 0)
        snprintf(into, size, "cuBLASLt (not on this machine)");
    else
        snprintf(into, size, "cuBLASLt %zu.%zu", v / 10000, v / 100 % 100);
}
