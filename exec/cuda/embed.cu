/* Embeddings of tokens and positions, and their gradients. */
#include "exec/cuda/rows_internal.cuh"

/* ---- embedding ---- */

template <typename T, int W>
__global__ void __launch_bounds__(256) embed(int64_t n, int64_t h, int64_t first, int64_t vocab, float others,
                                             const int32_t *ids, const void *table, enum dtype wt, T *x)
{
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
        int64_t id = ids[i] - first;
        bool known = id >= 0 && id < vocab;
        for (int64_t c = (int64_t)threadIdx.x * W; c < h; c += (int64_t)blockDim.x * W) {
            float v[W];
            if (known)
                load_as<W>(wt, table, id * h + c, W, v);
            else
                for (int j = 0; j < W; j++)
                    v[j] = others;
            store<W>(x + i * h + c, v);
        }
    }
}

/* Rows of the vocabulary, and what the rows of other ids are. */
struct embed_rows { int64_t first, n; float others; };

template <typename T, int W>
static int embed_launch(int64_t n, int64_t h, const struct embed_rows &r, const int32_t *ids, const void *table,
                        enum dtype wt, void *x, cudaStream_t s)
{
    LAUNCH((embed<T, W>), rows_grid(n), threads_for(h, W), 0, s, n, h, r.first, r.n, r.others, ids, table, wt, (T *)x);
    return cuda_launched("embedding");
}

static int embed_any(int64_t n, int64_t h, const struct embed_rows &r, const int32_t *ids, const void *table,
                     enum dtype wt, void *x, enum dtype at, cudaStream_t s)
{
    int w = at == DT_FP32 && wt == DT_FP32 ? 4 : 8;
    bool wide = rows_take(x, at, h, w) && rows_take(table, wt, h, w);

    if (n <= 0 || h <= 0)
        return 0;
    if (at == DT_FP32 && wide && w == 8)
        return embed_launch<float, 8>(n, h, r, ids, table, wt, x, s);
    return BY_PACK(at, wide, embed_launch, n, h, r, ids, table, wt, x, s);
}

extern "C" int rows_embed(int64_t n, int64_t h, int64_t vocab, const int32_t *ids, const void *table,
                          enum dtype wt, void *x, enum dtype at, struct CUstream_st *s)
{
    return embed_any(n, h, { 0, vocab, NAN }, ids, table, wt, x, at, s);
}

extern "C" int rows_embed_part(int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids, const void *table,
                               enum dtype wt, void *x, enum dtype at, struct CUstream_st *s)
{
    return embed_any(n, h, { first, rows, 0 }, ids, table, wt, x, at, s);
}

template <typename T, int W>
__global__ void __launch_bounds__(256) embed_positions(int64_t n, int64_t h, int64_t seq, const void *table,
                                                       enum dtype wt, T *x, struct cuda_drop d)
{
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x)
        for (int64_t c = (int64_t)threadIdx.x * W; c < h; c += (int64_t)blockDim.x * W) {
            float v[W], p[W];
            load<W>(x + i * h + c, v);
            if (table) {
                load_as<W>(wt, table, i % seq * h + c, W, p);
#pragma unroll
                for (int j = 0; j < W; j++)
                    v[j] += p[j];
            }
            if (d.limit) {
#pragma unroll
                for (int j = 0; j < W; j++)
                    v[j] = dropped(d, i * h + c + j, v[j]);
            }
            store<W>(x + i * h + c, v);
        }
}

template <typename T, int W>
static int positions_launch(int64_t n, int64_t h, int64_t seq, const void *table, enum dtype wt, void *x,
                            struct cuda_drop d, cudaStream_t s)
{
    LAUNCH((embed_positions<T, W>), rows_grid(n), threads_for(h, W), 0, s, n, h, seq, table, wt, (T *)x, d);
    return cuda_launched("positions");
}

extern "C" int rows_embed_positions(int64_t n, int64_t h, int64_t seq, const void *table, enum dtype wt,
                                    void *x, enum dtype at, struct cuda_drop d, struct CUstream_st *s)
{
    int w = at == DT_FP32 ? 4 : 8;
    bool wide = rows_take(x, at, h, w) && (!table || rows_take(table, wt, h, w));

    if (n <= 0 || h <= 0 || (!table && !d.limit))
        return 0;
    return BY_PACK(at, wide, positions_launch, n, h, seq, table, wt, x, d, s);
}

/* ---- gradients of the embedding ----
 *
 * The tokens are listed by id, and by sample within an id: a counting sort.  Which place a token gets among
 * those of its id is at first that of its arrival (an atomic), and then the number of earlier ones. */

enum { SORT = 1024 };                   /* counts a block sums up */

struct token_lists {
    int n, vocab;
    int first;                          /* the id of row 0 */
    const int32_t *ids;
    int *start;                         /* [vocab + 1] where an id's tokens begin; the last: where all end */
    int *next;                          /* [vocab] counts, then where an id's next token goes */
    int *arrived, *list;                /* [n] tokens by id, in the order of arrival; of the samples */
    int *sums;                          /* of 1024 counts each */
    float *partial;                     /* [n / ROWS_SEGMENT][h] sums of segments of the list of one id */
};

/* The row of token i; -1: none of these. */
DEVICE int row_of(const struct token_lists &l, int i)
{
    int64_t r = (int64_t)l.ids[i] - l.first;

    return r >= 0 && r < l.vocab ? (int)r : -1;
}

__global__ void __launch_bounds__(256) count_ids(const struct token_lists l)
{
    int i = (int)(blockIdx.x * 256 + threadIdx.x);
    int r = i < l.n ? row_of(l, i) : -1;

    if (r >= 0)
        atomicAdd(&l.next[r], 1);
}

__global__ void __launch_bounds__(SORT) sum_counts(const struct token_lists l)
{
    SHARED int box[SORT / 32];
    int r = (int)(blockIdx.x * SORT + threadIdx.x);
    int total = block_sum(r < l.vocab ? l.next[r] : 0, box);

    if (threadIdx.x == 0)
        l.sums[blockIdx.x] = total;
}

/* How many are in the lanes before this one. */
DEVICE int lanes_before(int x)
{
    int lane = lane_of(), sum = x;

#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        int other = __shfl_sync(0xffffffffu, sum, lane >= o ? lane - o : lane);
        sum += lane >= o ? other : 0;
    }
    return sum - x;
}

__global__ void __launch_bounds__(SORT) find_starts(const struct token_lists l)
{
    SHARED int box[SORT / 32], warps[SORT / 32];
    int r = (int)(blockIdx.x * SORT + threadIdx.x), lane = lane_of(), warp = warp_of();
    int count = r < l.vocab ? l.next[r] : 0, before = 0;

    for (int b = (int)threadIdx.x; b < (int)blockIdx.x; b += SORT)
        before += l.sums[b];
    int base = block_sum(before, box);
    int in_warp = lanes_before(count);
    if (lane == 31)
        warps[warp] = in_warp + count;
    __syncthreads();
    int earlier = lanes_before(warps[lane]);            /* of all 32 warps */
    int start = base + in_warp + __shfl_sync(0xffffffffu, earlier, warp);
    if (r < l.vocab)
        l.start[r] = l.next[r] = start;
    if (r == l.vocab - 1)
        l.start[l.vocab] = start + count;
}

__global__ void __launch_bounds__(256) place_tokens(const struct token_lists l)
{
    int i = (int)(blockIdx.x * 256 + threadIdx.x);
    int r = i < l.n ? row_of(l, i) : -1;

    if (r >= 0)
        l.arrived[atomicAdd(&l.next[r], 1)] = i;
}

/* A warp a token. */
__global__ void __launch_bounds__(256) rank_tokens(const struct token_lists l)
{
    int i = (int)(blockIdx.x * 8) + warp_of(), lane = lane_of(), earlier = 0;
    int r = i < l.n ? row_of(l, i) : -1;
    int from = r >= 0 ? l.start[r] : 0, to = r >= 0 ? l.start[r + 1] : 0;

    for (int j = from + lane; j < to; j += 32)
        earlier += l.arrived[j] < i;
    earlier = warp_sum(earlier);
    if (lane == 0 && r >= 0)
        l.list[from + earlier] = i;
}

/* sum += rows list[from ... to-1] of dx, at column c */
template <typename T, int W> DEVICE void add_rows(const int *list, int from, int to, const T *dx, int64_t h,
                                                  int64_t c, float (&sum)[W])
{
#pragma unroll 4
    for (int j = from; j < to; j++) {
        float v[W];
        load<W>(dx + list[j] * h + c, v);
#pragma unroll
        for (int e = 0; e < W; e++)
            sum[e] += v[e];
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(256) sum_segments(const struct token_lists l, int64_t h, const T *dx)
{
    int from = (int)blockIdx.x * ROWS_SEGMENT, to = from + ROWS_SEGMENT;

    if (to > l.start[l.vocab] || l.ids[l.list[from]] != l.ids[l.list[to - 1]])
        return;
    for (int64_t c = (int64_t)threadIdx.x * W; c < h; c += (int64_t)blockDim.x * W) {
        float sum[W] = { 0 };
        add_rows<T, W>(l.list, from, to, dx, h, c, sum);
        store<W>(l.partial + blockIdx.x * h + c, sum);
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(256) sum_tokens(const struct token_lists l, int64_t h, const T *dx,
                                                  void *dtable, enum dtype gt, bool add)
{
    for (int64_t r = blockIdx.x; r < l.vocab; r += gridDim.x) {
        int from = l.start[r], to = l.start[r + 1];
        int first = (from + ROWS_SEGMENT - 1) / ROWS_SEGMENT, end = to / ROWS_SEGMENT;  /* whole segments */
        bool cut = first < end;
        if (add && from == to)
            continue;
        for (int64_t c = (int64_t)threadIdx.x * W; c < h; c += (int64_t)blockDim.x * W) {
            float sum[W] = { 0 }, v[W];
            add_rows<T, W>(l.list, from, cut ? first * ROWS_SEGMENT : to, dx, h, c, sum);
            for (int g = first; g < end; g++) {
                load<W>(l.partial + g * h + c, v);
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] += v[j];
            }
            add_rows<T, W>(l.list, cut ? end * ROWS_SEGMENT : to, to, dx, h, c, sum);
            if (add) {
                load_as<W>(gt, dtable, r * h + c, W, v);
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] += v[j];
            }
            store_as<W>(gt, dtable, r * h + c, W, sum);
        }
    }
}

/* `count` elements of 4 bytes, from 16 bytes' multiples. */
static char *take(char **at, int64_t count)
{
    char *taken = *at;

    *at += (4 * count + 15) / 16 * 16;
    return taken;
}

static int list_tokens(const struct token_lists &l, cudaStream_t s)
{
    unsigned tokens = (unsigned)((l.n + 255) / 256), counts = (unsigned)((l.vocab + SORT - 1) / SORT);
    cudaError_t rc = cudaMemsetAsync(l.next, 0, (size_t)l.vocab * 4, s);

    if (rc != cudaSuccess)
        return (int)rc;
    LAUNCH(count_ids, tokens, 256, 0, s, l);
    LAUNCH(sum_counts, counts, SORT, 0, s, l);
    LAUNCH(find_starts, counts, SORT, 0, s, l);
    LAUNCH(place_tokens, tokens, 256, 0, s, l);
    LAUNCH(rank_tokens, (unsigned)((l.n + 7) / 8), 256, 0, s, l);
    return cuda_launched("listing of tokens");
}

template <typename T, int W>
static int sum_launch(const struct token_lists &l, int64_t h, const void *dx, void *dtable, enum dtype gt,
                      bool add, cudaStream_t s)
{
    if (l.n >= ROWS_SEGMENT)
        LAUNCH((sum_segments<T, W>), (unsigned)(l.n / ROWS_SEGMENT), threads_for(h, W), 0, s, l, h,
               (const T *)dx);
    LAUNCH((sum_tokens<T, W>), rows_grid(l.vocab), threads_for(h, W), 0, s, l, h, (const T *)dx, dtable, gt,
           add);
    return cuda_launched("embedding backward");
}

extern "C" int rows_embed_back(int64_t n, int64_t h, int64_t first, int64_t vocab, const int32_t *ids, const void *dx,
                               enum dtype at, void *dtable, enum dtype gt, bool add, void *workspace,
                               struct CUstream_st *s)
{
    struct token_lists l = {};
    char *cut = (char *)workspace;
    int w = at == DT_FP32 ? 4 : 8, rc;
    bool wide = rows_take(dx, at, h, w) && rows_take(dtable, gt, h, w);

    if (n > INT32_MAX - 256 || vocab > INT32_MAX - SORT || first > INT32_MAX)
        return (int)cudaErrorInvalidValue;
    if (vocab <= 0 || h <= 0 || (n <= 0 && add))
        return 0;
    if (n <= 0)
        return (int)cudaMemsetAsync(dtable, 0, (size_t)(vocab * h * (gt == DT_FP32 ? 4 : 2)), s);
    l.n = (int)n, l.vocab = (int)vocab, l.first = (int)first, l.ids = ids;
    l.start = (int *)take(&cut, vocab + 1);
    l.next = (int *)take(&cut, vocab);
    l.arrived = (int *)take(&cut, n);
    l.list = (int *)take(&cut, n);
    l.sums = (int *)take(&cut, (vocab + SORT - 1) / SORT);
    l.partial = (float *)take(&cut, n / ROWS_SEGMENT * h);
    if ((rc = list_tokens(l, s)))
        return rc;
    return BY_PACK(at, wide, sum_launch, l, h, dx, dtable, gt, add, s);
}

template <typename T, int W>
__global__ void __launch_bounds__(256) sum_positions(int64_t n, int64_t h, int64_t seq, int64_t rows,
                                                     const T *dx, void *dtable, enum dtype gt, bool add)
{
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x)
        for (int64_t c = (int64_t)threadIdx.x * W; c < h; c += (int64_t)blockDim.x * W) {
            float sum[W] = { 0 }, v[W];
#pragma unroll 4
            for (int64_t i = r < seq ? r : n; i < n; i += seq) {
                load<W>(dx + i * h + c, v);
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] += v[j];
            }
            if (add) {
                load_as<W>(gt, dtable, r * h + c, W, v);
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] += v[j];
            }
            store_as<W>(gt, dtable, r * h + c, W, sum);
        }
}

template <typename T, int W>
static int positions_back_launch(int64_t n, int64_t h, int64_t seq, int64_t rows, const void *dx,
                                 void *dtable, enum dtype gt, bool add, cudaStream_t s)
{
    LAUNCH((sum_positions<T, W>), rows_grid(rows), threads_for(h, W), 0, s, n, h, seq, rows, (const T *)dx,
           dtable, gt, add);
    return cuda_launched("positions backward");
}

extern "C" int rows_embed_positions_back(int64_t n, int64_t h, int64_t seq, int64_t rows, const void *dx,
                                         enum dtype at, void *dtable, enum dtype gt, bool add,
                                         struct CUstream_st *s)
{
    int w = at == DT_FP32 ? 4 : 8;
    bool wide = rows_take(dx, at, h, w) && rows_take(dtable, gt, h, w);

    if (rows <= 0 || h <= 0)
        return 0;
    return BY_PACK(at, wide, positions_back_launch, n, h, seq, rows, dx, dtable, gt, add, s);
}
