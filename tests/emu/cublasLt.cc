// cuBLASLt for the emulator: a product is a host function on the stream, so that it is as
// asynchronous as the library's.
//
// An "algorithm" remembers what it was chosen for (a hash of the descriptors, alignments) and
// how much workspace it wants; it is refused for anything else.  Those with a workspace write
// all over it, as a reduction in parts would.
#include <cublasLt.h>
#include <emu.h>

#include "exec/kernels/half.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct layout { cudaDataType_t type; uint64_t rows, cols; int64_t ld; };
struct desc { cublasOperation_t a, b; cublasLtEpilogue_t epilogue; const void *bias; };
struct pref { uint64_t workspace; uint32_t schemes, align[4]; };
struct algo { uint64_t made_for, number, workspace; uint32_t align[4]; };

static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "");
static_assert(sizeof(desc) <= sizeof(cublasLtMatmulDescOpaque_t), "");
static_assert(sizeof(pref) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "");
static_assert(sizeof(algo) <= sizeof(cublasLtMatmulAlgo_t), "");

layout *in(cublasLtMatrixLayout_t l) { return reinterpret_cast<layout *>(l); }
desc *in(cublasLtMatmulDesc_t d) { return reinterpret_cast<desc *>(d); }
pref *in(cublasLtMatmulPreference_t p) { return reinterpret_cast<pref *>(p); }

struct product {
    layout a, b, c, d;
    desc op;
    float alpha, beta;
    const void *pa, *pb, *pc;
    void *pd, *workspace;
    uint64_t scribbled;
};

int64_t bytes_of(cudaDataType_t t) { return t == CUDA_R_32F ? 4 : 2; }

double get(const void *x, cudaDataType_t t, int64_t i)
{
    if (t == CUDA_R_32F)
        return static_cast<const float *>(x)[i];
    uint16_t bits = static_cast<const uint16_t *>(x)[i];
    return t == CUDA_R_16F ? half_from_fp16(bits) : half_from_bf16(bits);
}

void put(void *x, cudaDataType_t t, int64_t i, double value)
{
    float f = static_cast<float>(value);

    if (t == CUDA_R_32F)
        static_cast<float *>(x)[i] = f;
    else
        static_cast<uint16_t *>(x)[i] = t == CUDA_R_16F ? half_to_fp16(f) : half_to_bf16(f);
}

// op(A)[i, l] and op(B)[l, j] as fp64, the first turned so that l runs fastest.
double *widened(const void *x, const layout &l, bool depth_is_rows)
{
    uint64_t depth = depth_is_rows ? l.rows : l.cols, other = depth_is_rows ? l.cols : l.rows;
    double *to = static_cast<double *>(malloc(depth * other * sizeof *to));

    if (!to)
        abort();
    for (uint64_t i = 0; i < other; i++)
        for (uint64_t k = 0; k < depth; k++) {
            uint64_t row = depth_is_rows ? k : i, col = depth_is_rows ? i : k;
            to[i * depth + k] = get(x, l.type, static_cast<int64_t>(row) + static_cast<int64_t>(col) * l.ld);
        }
    return to;
}

void compute(void *self)
{
    product *p = static_cast<product *>(self);
    uint64_t depth = p->op.a == CUBLAS_OP_N ? p->a.cols : p->a.rows;
    double *a = widened(p->pa, p->a, p->op.a != CUBLAS_OP_N);
    double *b = widened(p->pb, p->b, p->op.b == CUBLAS_OP_N);

    if (p->scribbled)
        memset(p->workspace, 0xff, p->scribbled);
    for (uint64_t j = 0; j < p->d.cols; j++)
        for (uint64_t i = 0; i < p->d.rows; i++) {
            int64_t at = static_cast<int64_t>(i) + static_cast<int64_t>(j) * p->d.ld;
            double sum = 0;
            for (uint64_t l = 0; l < depth; l++)
                sum += a[i * depth + l] * b[j * depth + l];
            sum *= p->alpha;
            if (p->beta != 0)
                sum += p->beta * get(p->pc, p->c.type, at);
            if (p->op.epilogue == CUBLASLT_EPILOGUE_BIAS)
                sum += get(p->op.bias, p->d.type, static_cast<int64_t>(i));
            put(p->pd, p->d.type, at, sum);
        }
    free(a);
    free(b);
    delete p;
}

uint64_t hash(uint64_t h, const void *x, size_t bytes)
{
    const unsigned char *c = static_cast<const unsigned char *>(x);

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ c[i]) * 0x100000001b3;
    return h;
}

// Of everything that is not a pointer.
uint64_t identity(const desc &op, const layout &a, const layout &b, const layout &c, const layout &d)
{
    uint64_t h = 0xcbf29ce484222325;
    const layout *all[] = { &a, &b, &c, &d };

    h = hash(h, &op.a, sizeof op.a);
    h = hash(h, &op.b, sizeof op.b);
    h = hash(h, &op.epilogue, sizeof op.epilogue);
    for (const layout *l : all) {
        h = hash(h, &l->type, sizeof l->type);
        h = hash(h, &l->rows, sizeof l->rows);
        h = hash(h, &l->cols, sizeof l->cols);
        h = hash(h, &l->ld, sizeof l->ld);
    }
    return h;
}

bool shapes_fit(const desc &op, const layout &a, const layout &b, const layout &c, const layout &d)
{
    bool an = op.a == CUBLAS_OP_N, bn = op.b == CUBLAS_OP_N;

    return (an ? a.rows : a.cols) == d.rows && (bn ? b.cols : b.rows) == d.cols &&
           (an ? a.cols : a.rows) == (bn ? b.rows : b.cols) && c.rows == d.rows && c.cols == d.cols &&
           c.ld == d.ld;
}

// The rows of the documentation's table for CUBLAS_COMPUTE_32F that have these dtypes.
bool dtypes_multiply(const layout &a, const layout &b, const layout &c, const layout &d)
{
    if (a.type != b.type || c.type != d.type)
        return false;
    return d.type == CUDA_R_32F || (a.type == d.type && a.type != CUDA_R_32F);
}

// Bytes from the first element of a matrix to behind its last.
size_t extent(const layout &l)
{
    return static_cast<size_t>((static_cast<int64_t>(l.cols - 1) * l.ld + static_cast<int64_t>(l.rows)) *
                               bytes_of(l.type));
}

bool there(const void *p, const layout &l) { return emu_is_device(p, extent(l)); }

bool aligned(const void *p, uint32_t to) { return reinterpret_cast<uintptr_t>(p) % to == 0; }

cublasStatus_t refused(const char *why)
{
    fprintf(stderr, "emulated cuBLASLt: %s\n", why);
    return CUBLAS_STATUS_INVALID_VALUE;
}

template <typename T> cublasStatus_t set(T *to, const void *value, size_t bytes)
{
    if (!value || bytes != sizeof *to)
        return refused("an attribute of another size");
    memcpy(to, value, sizeof *to);
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = static_cast<cublasLtHandle_t>(malloc(1));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:       return "success";
    case CUBLAS_STATUS_INVALID_VALUE: return "invalid value";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "not supported";
    default:                          return "other status";
    }
}

size_t cublasLtGetVersion(void) { return 130000; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *to, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    if (!rows || !cols || ld < static_cast<int64_t>(rows))
        return refused("a layout whose columns overlap");
    *to = new cublasLtMatrixLayoutOpaque_t();
    *in(*to) = layout{ type, rows, cols, ld };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *to, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *to = new cublasLtMatmulDescOpaque_t();
    *in(*to) = desc{ CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    delete d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr,
                                              const void *value, size_t bytes)
{
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_TRANSA:       return set(&in(d)->a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:       return set(&in(d)->b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:     return set(&in(d)->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&in(d)->bias, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *to)
{
    *to = new cublasLtMatmulPreferenceOpaque_t();
    *in(*to) = pref{ 0, CUBLASLT_REDUCTION_SCHEME_MASK, { 256, 256, 256, 256 } };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void *value, size_t bytes)
{
    switch (attr) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:    return set(&in(p)->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:  return set(&in(p)->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:  return set(&in(p)->align[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:  return set(&in(p)->align[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:  return set(&in(p)->align[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:  return set(&in(p)->align[3], value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

// Three algorithms, the first with a workspace where one may be used.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t p, int most,
                                              cublasLtMatmulHeuristicResult_t found[], int *n)
{
    bool parts = (in(p)->schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;

    *n = 0;
    if (!handle || most < 1 || !shapes_fit(*in(op), *in(a), *in(b), *in(c), *in(d)))
        return refused("shapes that do not fit");
    if (in(op)->epilogue == CUBLASLT_EPILOGUE_BIAS && !in(op)->bias)
        return refused("the epilogue's bias is not there");
    if (in(p)->schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE)
        return refused("reductions in place depend on the order of blocks");
    if (!dtypes_multiply(*in(a), *in(b), *in(c), *in(d)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < most && i < 3; i++) {
        algo one = { identity(*in(op), *in(a), *in(b), *in(c), *in(d)), static_cast<uint64_t>(i), 0, { 0 } };
        memcpy(one.align, in(p)->align, sizeof one.align);
        if (parts)
            one.workspace = in(p)->workspace >> i;
        found[i] = cublasLtMatmulHeuristicResult_t();
        memcpy(&found[i].algo, &one, sizeof one);
        found[i].workspaceSize = one.workspace;
        found[i].state = CUBLAS_STATUS_SUCCESS;
        found[i].wavesCount = 1;
        *n = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *chosen, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    algo with;

    if (!handle || !chosen || !a || !b || !d)
        return refused("a product of nothing");
    memcpy(&with, chosen, sizeof with);
    float add = *static_cast<const float *>(beta);
    if (with.made_for != identity(*in(op), *in(la), *in(lb), *in(lc), *in(ld)))
        return refused("an algorithm chosen for another shape");
    if (!aligned(a, with.align[0]) || !aligned(b, with.align[1]) || !aligned(d, with.align[3]) ||
        (add != 0 && !aligned(c, with.align[2])))
        return refused("an algorithm chosen for better aligned arrays");
    if (with.workspace > bytes || (with.workspace && (!workspace || !aligned(workspace, 16))))
        return refused("a workspace that is too small, or not aligned to 16 bytes");
    if (in(op)->epilogue == CUBLASLT_EPILOGUE_BIAS &&
        (!aligned(in(op)->bias, static_cast<uint32_t>(bytes_of(in(ld)->type))) ||
         !emu_is_device(in(op)->bias, in(ld)->rows * static_cast<size_t>(bytes_of(in(ld)->type)))))
        return refused("a bias that is not aligned, or not the device's");
    if (!there(a, *in(la)) || !there(b, *in(lb)) || !there(d, *in(ld)) || (add != 0 && !there(c, *in(lc))) ||
        (with.workspace && !emu_is_device(workspace, with.workspace)))
        return refused("an array that is not the device's");
    float factor = *static_cast<const float *>(alpha);
    product *p = new product{ *in(la), *in(lb), *in(lc), *in(ld), *in(op), factor, add,
                              a, b, c, d, workspace, with.workspace };
    if (emu_enqueue(stream, "cublasLtMatmul", compute, p) != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
