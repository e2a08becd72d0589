/* norms.cu -- LayerNorm and RMSNorm and their backward, a row of the input to a group of threads. */
#include "exec/cuda/rows_internal.cuh"

/* ---- norms ----
 *
 * A row is the business of `lanes` threads, of which each has up to K packs, lanes packs apart: a power of 2
 * up to 32, of which a block holds several, or all threads of a block. */

struct split { int lanes, packs, threads; };            /* packs: K, or 0: too many, or not whole packs */

static struct split split_row(int64_t h, int w)
{
    int64_t packs = h / w;
    int lanes = 1;

    if (w == 1 || packs > 4 * 512)
        return { 256, 0, 256 };
    while (lanes < packs && lanes < 32)
        lanes *= 2;
    if (packs <= 128)
        return { lanes, packs <= 32 ? 1 : packs <= 64 ? 2 : 4, 256 };
    int k = packs <= 256 ? 1 : packs <= 1024 ? 2 : 4;
    lanes = (int)((packs + k - 1) / k + 31) / 32 * 32;
    return { lanes, k, lanes };
}

/* Two sums over a row's threads, who all get them.  box: shared, two values a warp; the caller takes
 * another one the next time, so that one barrier is enough. */
DEVICE float2 row_totals(float a, float b, int lanes, float2 *box)
{
    int last = lanes < 32 ? lanes : 32;

    for (int o = last / 2; o; o >>= 1) {
        a += __shfl_xor_sync(0xffffffffu, a, o);
        b += __shfl_xor_sync(0xffffffffu, b, o);
    }
    if (lanes > 32) {
        int lane = (int)threadIdx.x % 32;
        if (lane == 0)
            box[threadIdx.x / 32] = make_float2(a, b);
        __syncthreads();
        float2 other = lane < lanes / 32 ? box[lane] : make_float2(0, 0);
        a = warp_sum(other.x);
        b = warp_sum(other.y);
    }
    return make_float2(a, b);
}

/* A row's mean (0 where it is not centred) and 1/sigma, or 1/rms. */
DEVICE void put_stats(float *stats, bool centred, int64_t n, int64_t row, float mean, float r)
{
    if (centred)
        stats[row] = mean;
    stats[centred ? n + row : row] = r;
}

DEVICE float2 get_stats(const float *stats, bool centred, int64_t n, int64_t row)
{
    return make_float2(centred ? stats[row] : 0, stats[centred ? n + row : row]);
}

/* What the forward kernels are given. */
struct norm_args {
    bool  centred;
    int   lanes;
    int64_t n, h;
    float eps;
    const void *w, *b;
    enum dtype wt;
    float *stats;
};

template <typename T, int W, int K>
__global__ void __launch_bounds__(512) norm_rows(const struct norm_args a, const T *x, T *y)
{
    SHARED float2 box[2][16];
    int lane = (int)threadIdx.x % a.lanes;
    int64_t row = blockIdx.x * (int64_t)(blockDim.x / (unsigned)a.lanes) + threadIdx.x / (unsigned)a.lanes;
    bool here = row < a.n;
    float v[K][W], sum = 0, squares = 0;

#pragma unroll
    for (int k = 0; k < K; k++) {
        int64_t c = (int64_t)(k * a.lanes + lane) * W;
        if (here && c < a.h) {
            load<W>(x + row * a.h + c, v[k]);
        } else {
#pragma unroll
            for (int j = 0; j < W; j++)
                v[k][j] = 0;
        }
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += v[k][j];
    }
    float mean = a.centred ? row_totals(sum, 0, a.lanes, box[0]).x / (float)a.h : 0;
#pragma unroll
    for (int k = 0; k < K; k++)
        if ((int64_t)(k * a.lanes + lane) * W < a.h) {
#pragma unroll
            for (int j = 0; j < W; j++)
                squares = fmaf(v[k][j] - mean, v[k][j] - mean, squares);
        }
    float r = rsqrtf(row_totals(squares, 0, a.lanes, box[1]).x / (float)a.h + a.eps);
    if (lane == 0 && here)
        put_stats(a.stats, a.centred, a.n, row, mean, r);
#pragma unroll
    for (int k = 0; k < K; k++) {
        int64_t c = (int64_t)(k * a.lanes + lane) * W;
        if (here && c < a.h) {
            float p[W];
#pragma unroll
            for (int j = 0; j < W; j++)
                v[k][j] = (v[k][j] - mean) * r;
            if (a.w) {
                load_as<W>(a.wt, a.w, c, W, p);
#pragma unroll
                for (int j = 0; j < W; j++)
                    v[k][j] *= p[j];
            }
            if (a.b) {
                load_as<W>(a.wt, a.b, c, W, p);
#pragma unroll
                for (int j = 0; j < W; j++)
                    v[k][j] += p[j];
            }
            store<W>(y + row * a.h + c, v[k]);
        }
    }
}

/* One element of w or b. */
DEVICE float parameter(const void *w, enum dtype wt, int64_t i)
{
    float x[1];

    load_as<1>(wt, w, i, 1, x);
    return x[0];
}

/* Rows of any length at any address: a block a row, which it reads again and again. */
template <typename T>
__global__ void __launch_bounds__(256) norm_any(const struct norm_args a, const T *x, T *y)
{
    SHARED float box[8];
    const T *from = x + blockIdx.x * a.h;
    float sum = 0, squares = 0;

    for (int64_t c = threadIdx.x; c < a.h && a.centred; c += 256)
        sum += get(from + c);
    float mean = block_sum(sum, box) / (float)a.h;
    for (int64_t c = threadIdx.x; c < a.h; c += 256)
        squares = fmaf(get(from + c) - mean, get(from + c) - mean, squares);
    float r = rsqrtf(block_sum(squares, box) / (float)a.h + a.eps);
    if (threadIdx.x == 0)
        put_stats(a.stats, a.centred, a.n, blockIdx.x, mean, r);
    for (int64_t c = threadIdx.x; c < a.h; c += 256) {
        float v = (get(from + c) - mean) * r;
        v *= a.w ? parameter(a.w, a.wt, c) : 1;
        put(y + blockIdx.x * a.h + c, v + (a.b ? parameter(a.b, a.wt, c) : 0));
    }
}

template <typename T, int W = full<T>::W>
static int norm_launch(struct norm_args a, struct split sp, const void *x, void *y, cudaStream_t s)
{
    int64_t rows = sp.threads / sp.lanes, blocks = (a.n + rows - 1) / rows;

    if (blocks > INT32_MAX)
        return (int)cudaErrorInvalidValue;
    a.lanes = sp.lanes;
    if (sp.packs == 0)
        LAUNCH((norm_any<T>), (unsigned)blocks, 256, 0, s, a, (const T *)x, (T *)y);
    else if (sp.packs == 1)
        LAUNCH((norm_rows<T, W, 1>), (unsigned)blocks, sp.threads, 0, s, a, (const T *)x, (T *)y);
    else if (sp.packs == 2)
        LAUNCH((norm_rows<T, W, 2>), (unsigned)blocks, sp.threads, 0, s, a, (const T *)x, (T *)y);
    else
        LAUNCH((norm_rows<T, W, 4>), (unsigned)blocks, sp.threads, 0, s, a, (const T *)x, (T *)y);
    return cuda_launched("norm");
}

extern "C" int rows_norm(bool centred, int64_t n, int64_t h, double eps, const void *x, const void *w,
                         const void *b, enum dtype wt, void *y, enum dtype at, float *stats,
                         struct CUstream_st *s)
{
    struct norm_args a = { centred, 0, n, h, (float)eps, w, b, wt, stats };
    int full_pack = at == DT_FP32 ? 4 : 8;
    bool wide = rows_take(x, at, h, full_pack) && rows_take(y, at, h, full_pack) &&
                (!w || rows_take(w, wt, h, full_pack)) && (!b || rows_take(b, wt, h, full_pack));
    struct split sp = split_row(h, wide ? full_pack : 1);

    if (n <= 0 || h <= 0)
        return 0;
    return BY_DTYPE(at, norm_launch, a, sp, x, y, s);
}

/* With g = dy w and xhat = (x - mean) r:  dx = r (g - mean(g) - xhat mean(g xhat)), without mean(g) in
 * RMSNorm;  dw = sum over rows of dy xhat, db = that of dy. */
struct norm_back_args {
    bool  centred, add;
    int   lanes;
    int64_t n, h;
    const void *w;
    enum dtype wt;
    const float *stats;
    float *dw, *db;                     /* parts: a row a block; or NULL */
};

/* A pack as it is in memory: 16 bits take half a register. */
template <typename T> struct kept { uint4 v; };

template <typename T> DEVICE void keep(const T *from, kept<T> &k) { k.v = *(const uint4 *)from; }
template <typename T> DEVICE void keep_zero(kept<T> &k) { k.v = make_uint4(0, 0, 0, 0); }

DEVICE void open(const kept<float> &k, float (&x)[4]) { memcpy(x, &k.v, sizeof x); }
template <typename H> DEVICE void open(const kept<H> &k, float (&x)[8]) { widen_pairs<H>(k.v, x); }

/* A pack of x and of dy; zeros beyond the row, and where there is none: they add nothing. */
template <typename T> DEVICE void keep_both(bool here, const struct norm_back_args &a, int64_t row, int64_t c,
                                            const T *x, const T *dy, kept<T> &kx, kept<T> &kd)
{
    if (here && c < a.h) {
        keep(x + row * a.h + c, kx);
        keep(dy + row * a.h + c, kd);
    } else {
        keep_zero(kx);
        keep_zero(kd);
    }
}

/* g = dy w */
template <int W> DEVICE void weigh(const struct norm_back_args &a, int64_t c, const float (&dy)[W],
                                   float (&g)[W])
{
    if (a.w) {
        load_as<W>(a.wt, a.w, c, W, g);
#pragma unroll
        for (int j = 0; j < W; j++)
            g[j] *= dy[j];
    } else {
#pragma unroll
        for (int j = 0; j < W; j++)
            g[j] = dy[j];
    }
}

/* parts[block][c] = the sum over the block's rows-at-once, whose own sums lie in shared memory. */
template <int W, int K> DEVICE void put_parts(const struct norm_back_args &a, const float (&sum)[K][W],
                                              float *shared, float *parts)
{
    int groups = (int)blockDim.x / a.lanes, group = (int)threadIdx.x / a.lanes;
    int lane = (int)threadIdx.x % a.lanes;
    float *own = groups > 1 ? shared + group * a.h : parts + blockIdx.x * a.h;

#pragma unroll
    for (int k = 0; k < K; k++) {
        int64_t c = (int64_t)(k * a.lanes + lane) * W;
        if (c < a.h) {
#pragma unroll
            for (int j = 0; j < W; j += 4) {
                const float *x = &sum[k][j];
                *(float4 *)(own + c + j) = make_float4(x[0], x[1], x[2], x[3]);
            }
        }
    }
    if (groups > 1) {
        __syncthreads();
        for (int64_t c = threadIdx.x; c < a.h; c += blockDim.x) {
            float total = 0;
            for (int g = 0; g < groups; g++)
                total += shared[g * a.h + c];
            parts[blockIdx.x * a.h + c] = total;
        }
        __syncthreads();
    }
}

/* Beside the sums there are no registers for four packs of x and dy: those are read again, from the cache. */
template <typename T, int W, int K>
__global__ void __launch_bounds__(512) norm_back_rows(const struct norm_back_args a, const T *dy, const T *x,
                                                      T *dx)
{
    SHARED float2 box[2][16];
    DYNAMIC_SHARED(float, shared);      /* [rows at once][h], where they are several */
    int lane = (int)threadIdx.x % a.lanes, group = (int)threadIdx.x / a.lanes, turn = 0;
    int64_t groups = blockDim.x / (unsigned)a.lanes;
    float sum_w[K][W] = { { 0 } }, sum_b[K][W] = { { 0 } };
    constexpr bool KEEPS = K < 4;

    for (int64_t first = blockIdx.x * groups; first < a.n; first += gridDim.x * groups, turn ^= 1) {
        int64_t row = first + group;
        bool here = row < a.n;
        float2 st = here ? get_stats(a.stats, a.centred, a.n, row) : make_float2(0, 0);
        float gs = 0, gxs = 0, xs[W], ds[W], g[W];
        kept<T> kx[K], kd[K];

#pragma unroll
        for (int k = 0; k < K && KEEPS; k++)
            keep_both(here, a, row, (int64_t)(k * a.lanes + lane) * W, x, dy, kx[k], kd[k]);
#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t c = (int64_t)(k * a.lanes + lane) * W;
            if (!KEEPS)
                keep_both(here, a, row, c, x, dy, kx[k], kd[k]);
            if (c < a.h) {
                open(kx[k], xs);
                open(kd[k], ds);
                weigh<W>(a, c, ds, g);
#pragma unroll
                for (int j = 0; j < W; j++) {
                    float xhat = (xs[j] - st.x) * st.y;
                    gs += g[j];
                    gxs = fmaf(g[j], xhat, gxs);
                    sum_w[k][j] = fmaf(ds[j], xhat, sum_w[k][j]);
                    sum_b[k][j] += ds[j];
                }
            }
        }
        float2 total = row_totals(gs, gxs, a.lanes, box[turn]);
        float g_mean = a.centred ? total.x / (float)a.h : 0, gx_mean = total.y / (float)a.h;
#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t c = (int64_t)(k * a.lanes + lane) * W;
            if (here && c < a.h) {
                if (!KEEPS)
                    keep_both(here, a, row, c, x, dy, kx[k], kd[k]);
                open(kx[k], xs);
                open(kd[k], ds);
                weigh<W>(a, c, ds, g);
                if (a.add)
                    load<W>(dx + row * a.h + c, ds);
#pragma unroll
                for (int j = 0; j < W; j++) {
                    float d = st.y * (g[j] - g_mean - (xs[j] - st.x) * st.y * gx_mean);
                    g[j] = a.add ? ds[j] + d : d;
                }
                store<W>(dx + row * a.h + c, g);
            }
        }
    }
    if (a.dw)
        put_parts<W, K>(a, sum_w, shared, a.dw);
    if (a.db)
        put_parts<W, K>(a, sum_b, shared, a.db);
}

/* Rows of any length: dx, a block a row ... */
template <typename T>
__global__ void __launch_bounds__(256) norm_back_any(const struct norm_back_args a, const T *dy, const T *x,
                                                     T *dx)
{
    SHARED float box[8];
    int64_t row = blockIdx.x, from = row * a.h;
    float2 st = get_stats(a.stats, a.centred, a.n, row);
    float gs = 0, gxs = 0;

    for (int64_t c = threadIdx.x; c < a.h; c += 256) {
        float g = get(dy + from + c) * (a.w ? parameter(a.w, a.wt, c) : 1);
        gs += g;
        gxs = fmaf(g, (get(x + from + c) - st.x) * st.y, gxs);
    }
    float g_mean = block_sum(gs, box) / (float)a.h, gx_mean = block_sum(gxs, box) / (float)a.h;
    g_mean = a.centred ? g_mean : 0;
    for (int64_t c = threadIdx.x; c < a.h; c += 256) {
        float g = get(dy + from + c) * (a.w ? parameter(a.w, a.wt, c) : 1);
        float d = st.y * (g - g_mean - (get(x + from + c) - st.x) * st.y * gx_mean);
        put(dx + from + c, a.add ? get(dx + from + c) + d : d);
    }
}

/* ... and before it, while dy is whole, the parts of dw and db: a thread a column of `span` rows. */
template <typename T>
__global__ void __launch_bounds__(256) norm_parts_any(const struct norm_back_args a, const T *dy, const T *x,
                                                      int64_t span, int tiles)
{
    int64_t part = blockIdx.x / tiles, c = blockIdx.x % tiles * (int64_t)256 + threadIdx.x;
    int64_t from = part * span, to = from + span < a.n ? from + span : a.n;
    float sum_w = 0, sum_b = 0;

    if (c < a.h) {
        for (int64_t row = from; row < to; row++) {
            float2 st = get_stats(a.stats, a.centred, a.n, row);
            float d = get(dy + row * a.h + c);
            sum_w = fmaf(d, (get(x + row * a.h + c) - st.x) * st.y, sum_w);
            sum_b += d;
        }
        if (a.dw)
            a.dw[part * a.h + c] = sum_w;
        if (a.db)
            a.db[part * a.h + c] = sum_b;
    }
}

/* How many parts there are of dw and db, in *parts. */
template <typename T>
static int norm_back_any_launch(const struct norm_back_args &a, const void *dy, const void *x, void *dx,
                                int *parts, cudaStream_t s)
{
    int64_t most = rows_least(a.n, ROWS_NORM_PARTS), span = (a.n + most - 1) / most;
    int64_t tiles = (a.h + 255) / 256;

    *parts = (int)((a.n + span - 1) / span);
    if (a.n > INT32_MAX || tiles * *parts > INT32_MAX)
        return (int)cudaErrorInvalidValue;
    if (a.dw || a.db)
        LAUNCH((norm_parts_any<T>), (unsigned)(tiles * *parts), 256, 0, s, a, (const T *)dy, (const T *)x,
               span, (int)tiles);
    LAUNCH((norm_back_any<T>), (unsigned)a.n, 256, 0, s, a, (const T *)dy, (const T *)x, (T *)dx);
    return cuda_launched("norm backward");
}

template <typename T, int W, int K>
static void norm_back_queue(const struct norm_back_args &a, struct split sp, unsigned blocks, const void *dy,
                            const void *x, void *dx, cudaStream_t s)
{
    int rows = sp.threads / sp.lanes, shared = rows > 1 ? (int)(rows * a.h * 4) : 0;        /* up to 32 KiB */

    LAUNCH((norm_back_rows<T, W, K>), blocks, sp.threads, shared, s, a, (const T *)dy, (const T *)x,
           (T *)dx);
}

template <typename T, int W = full<T>::W>
static int norm_back_launch(struct norm_back_args a, struct split sp, const void *dy, const void *x, void *dx,
                            int *parts, cudaStream_t s)
{
    int64_t rows = sp.threads / sp.lanes, blocks = (a.n + rows - 1) / rows, most = rows_at_once(sp.threads);

    if (sp.packs == 0)
        return norm_back_any_launch<T>(a, dy, x, dx, parts, s);
    blocks = rows_least(rows_least(blocks, most), ROWS_NORM_PARTS);
    *parts = (int)blocks;
    a.lanes = sp.lanes;
    if (sp.packs == 1)
        norm_back_queue<T, W, 1>(a, sp, (unsigned)blocks, dy, x, dx, s);
    else if (sp.packs == 2)
        norm_back_queue<T, W, 2>(a, sp, (unsigned)blocks, dy, x, dx, s);
    else
        norm_back_queue<T, W, 4>(a, sp, (unsigned)blocks, dy, x, dx, s);
    return cuda_launched("norm backward");
}

extern "C" int rows_norm_back(bool centred, int64_t n, int64_t h, const void *dy, const void *x,
                              const void *w, enum dtype wt, const float *stats, enum dtype at, void *dx,
                              bool add_dx, void *dw, void *db, enum dtype gt, bool add_dw, void *workspace,
                              struct CUstream_st *s)
{
    float *space = (float *)workspace;
    int64_t most = rows_least(n, ROWS_NORM_PARTS);
    struct norm_back_args a = { centred, add_dx, 0, n, h, w, wt, stats, dw ? space : NULL,
                                db ? space + most * h : NULL };
    int pack = at == DT_FP32 ? 4 : 8, parts, rc;
    bool wide = rows_take(dy, at, h, pack) && rows_take(x, at, h, pack) && rows_take(dx, at, h, pack) &&
                (!w || rows_take(w, wt, h, pack));
    struct split sp = split_row(h, wide ? pack : 1);

    if (n <= 0 || h <= 0)
        return (rc = rows_no_sums(dw, h, gt, add_dw, s)) ? rc : rows_no_sums(db, h, gt, add_dw, s);
    rc = BY_DTYPE(at, norm_back_launch, a, sp, dy, x, dx, &parts, s);
    if (!rc && dw)
        rc = rows_add_parts(parts, h, a.dw, dw, gt, add_dw, false, s);
    if (!rc && db)
        rc = rows_add_parts(parts, h, a.db, db, gt, add_dw, false, s);
    return rc;
}
