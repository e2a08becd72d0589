/* Gradients of causal attention on tensor cores, from log-sum-exp: operands in bf16 or fp16 (H), sums in fp32.
 *
 * dk and dv are summed over the query heads that share them and over queries by one warp in one
 * order, dq over keys by another kernel.  Scores are worked out in both: seven products instead
 * of five is what the same bits on every run cost without n x dim of fp32 scratch.
 *
 * In both kernels a warp owns rows (keys, queries) and a block goes through the other side's rows
 * in pieces, the next of which comes while one is worked on.  With keys as rows it is S^T = K Q^T
 * that lies in registers, and so P^T and dS^T, as P^T dO and dS^T Q want it. */
#include "exec/cuda/attention_mma.cuh"

/* How a kernel is cut: WARPS warps own 16 ROWS rows each of a head whose size is DIM; the other
 * side comes in pieces of STREAM rows, worked on SLICE at a time.  Of what is summed a block of
 * back_keys() makes OUT columns: dk and dv of wider heads would not fit the registers.  BLOCKS of
 * them are to fit a multiprocessor's registers. */
template <int DIM_, int OUT_, int ROWS_, int WARPS_, int STREAM_, int SLICE_, int BLOCKS_> struct cut {
    static constexpr int DIM = DIM_, OUT = OUT_, ROWS = ROWS_, WARPS = WARPS_, STREAM = STREAM_;
    static constexpr int SLICE = SLICE_, BLOCKS = BLOCKS_, THREADS = WARP * WARPS, OWN = 16 * ROWS * WARPS;
    static constexpr int PITCH = tile<uint16_t, DIM>::PITCH, PIECE = 2 * STREAM * PITCH;
    /* Two log-sum-exps and deltas of a piece, or those of the block's rows. */
    static constexpr int STATS = OWN > 2 * STREAM ? 2 * OWN : 4 * STREAM;
    static constexpr int BYTES = (2 * OWN * PITCH + 2 * PIECE) * 2 + STATS * 4;         /* of shared memory */
};

/* STREAM rows of x and of y, from row `row` on. */
template <class C, class H>
DEVICE void load_piece(const attn &a, H *into, const H *x, int pitch, const H *y, int y_pitch,
                       int row)
{
    load_tile<H, C::DIM, C::STREAM, C::THREADS>(a, into, x, pitch, row, a.seq);
    load_tile<H, C::DIM, C::STREAM, C::THREADS>(a, into + C::STREAM * C::PITCH, y, y_pitch, row, a.seq);
    cp_async_commit();
}

/* The rows a block owns, likewise; they come together with the first piece. */
template <class C, class H>
DEVICE void load_own(const attn &a, H *into, const H *x, int pitch, const H *y, int y_pitch, int row)
{
    load_tile<H, C::DIM, C::OWN, C::THREADS>(a, into, x, pitch, row, a.seq);
    load_tile<H, C::DIM, C::OWN, C::THREADS>(a, into + C::OWN * C::PITCH, y, y_pitch, row, a.seq);
}

/* Log-sum-exp in powers of 2: Inf, so that probabilities are 0, behind the last query. */
template <class H> DEVICE float lse_of(const attn &a, const back_arrays<H> &x, int64_t stat, int t)
{
    return t < a.seq ? x.lse[stat + t] * LOG2E : INFINITY;
}

template <class H> DEVICE float delta_of(const attn &a, const back_arrays<H> &x, int64_t stat, int t)
{
    return t < a.seq ? x.delta[stat + t] : 0;
}

/* ---- dk, dv ---- */

/* Scores of a warp's keys (rows) and a slice's queries become probabilities after dropout but for
 * its factor, gradients of those become gradients of the scores.  key, query: of s[0][0][0].
 * stat: the piece's log-sum-exps and deltas, from the lane's first query on. */
template <class C, bool DROP>
DEVICE void back_scores(const attn &a, float (&s)[C::ROWS][C::SLICE / 8][4],
                        float (&ds)[C::ROWS][C::SLICE / 8][4], const float *stat, int key, int query,
                        bool masked, int64_t drop)
{
#pragma unroll
    for (int n = 0; n < C::SLICE / 8; n++) {
        float2 lse = *(const float2 *)(stat + n * 8), delta = *(const float2 *)(stat + C::STREAM + n * 8);
#pragma unroll
        for (int m = 0; m < C::ROWS; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int u = m * 16 + (i >> 1) * 8, t = n * 8 + (i & 1);
                float p = exp2_fast(fmaf(s[m][n][i], a.scale_log2, i & 1 ? -lse.y : -lse.x));
                float dp = ds[m][n][i];
                if (masked && query + t < key + u)
                    p = 0;
                s[m][n][i] = p;
                if (DROP) {
                    bool gone = drops(a, drop + (int64_t)t * a.seq + u);
                    dp = gone ? 0 : dp * a.drop.keep;
                    s[m][n][i] = gone ? 0 : p;
                }
                ds[m][n][i] = p * (dp - (i & 1 ? delta.y : delta.x));
            }
    }
}

/* A block owns keys of one head of k, v; what streams are the queries that see them, of one head
 * after the other of those that share it. */
template <class H, class C, bool DROP>
static __global__ void __launch_bounds__(C::THREADS, C::BLOCKS) back_keys(attn a, back_arrays<H> x)
{
    constexpr int PITCH = C::PITCH, STREAM = C::STREAM;
    DYNAMIC_SHARED(H, shared);
    H *k = shared, *v = k + C::OWN * PITCH, *pieces = v + C::OWN * PITCH;
    float *stats = (float *)(pieces + 2 * C::PIECE);            /* [2][log-sum-exp, delta][STREAM] */
    const lane l;
    int mine = warp_of() * 16 * C::ROWS, kv = (int)blockIdx.y, sample = (int)blockIdx.z, at = 0;
    int first = (int)blockIdx.x / (C::DIM / C::OUT) * C::OWN, key = first + mine;
    int column = (int)blockIdx.x % (C::DIM / C::OUT) * C::OUT;
    int group = a.heads / a.kv_heads, next_head = kv * group, next = first;
    bool more = true;
    float dk[C::ROWS][C::OUT / 8][4], dv[C::ROWS][C::OUT / 8][4];

    static_assert(C::OWN % STREAM == 0, "the first piece begins where the keys do");
    static_assert(2 * STREAM <= C::THREADS, "a thread brings one number of log-sum-exp and delta");
    clear(dk);
    clear(dv);
    load_own<C>(a, k, x.qkv + k_at(a, sample, kv), a.ld, x.qkv + v_at(a, sample, kv), a.ld, first);
    for (; more; at ^= 1) {
        /* The piece before the next one: of the head before where a head begins, if there is one. */
        int query = next > first ? next - STREAM : first + (a.seq - 1 - first) / STREAM * STREAM;
        int head = next_head - (next == first);
        float number = 0;
        more = next_head < (kv + 1) * group;
        cp_async_wait<0>();
        __syncthreads();                /* piece `at` is there, the other no longer used */
        if (more) {
            int64_t stat = stat_at(a, sample, next_head);
            load_piece<C>(a, pieces + (at ^ 1) * C::PIECE, x.qkv + q_at(a, sample, next_head), a.ld,
                          x.dout + o_at(a, sample, next_head), o_pitch(a), next);
            if (threadIdx.x < STREAM)
                number = lse_of(a, x, stat, next + (int)threadIdx.x);
            else if (threadIdx.x < 2 * STREAM)
                number = delta_of(a, x, stat, next + (int)threadIdx.x - STREAM);
        }
        const H *q = pieces + at * C::PIECE, *d = q + STREAM * PITCH;
#pragma unroll 1
        for (int i = 0; i < STREAM && head >= kv * group; i += C::SLICE) {
            float s[C::ROWS][C::SLICE / 8][4], ds[C::ROWS][C::SLICE / 8][4];
            int t = query + i;
            if (t + C::SLICE <= key || key >= a.seq)            /* all masked */
                continue;
            dots<C::DIM>(l, s, k + mine * PITCH, q + i * PITCH);
            dots<C::DIM>(l, ds, v + mine * PITCH, d + i * PITCH);
            back_scores<C, DROP>(a, s, ds, stats + at * 2 * STREAM + i + l.col, key + l.row, t + l.col,
                                 t < key + 16 * C::ROWS - 1,
                                 (stat_at(a, sample, head) + t + l.col) * a.seq + key + l.row);
            add_product<C::DIM, C::OUT>(l, dv, s, d + i * PITCH + column);
            add_product<C::DIM, C::OUT>(l, dk, ds, q + i * PITCH + column);
        }
        if (more && threadIdx.x < 2 * STREAM)
            stats[(at ^ 1) * 2 * STREAM + threadIdx.x] = number;
        next += STREAM;
        if (next >= a.seq)
            next = first, next_head++;
    }
    int64_t to = (int64_t)key * a.ld + column;
    store_rows<C::DIM, C::OUT>(a, l, dk, a.scale, k + mine * PITCH, x.dqkv + k_at(a, sample, kv) + to, a.ld,
                               a.seq - key, a.dim - column);
    store_rows<C::DIM, C::OUT>(a, l, dv, a.drop.keep, v + mine * PITCH, x.dqkv + v_at(a, sample, kv) + to,
                               a.ld, a.seq - key, a.dim - column);
}

/* ---- dq ---- */

/* Scores of a warp's queries (rows) and a slice's keys, and gradients of probabilities after
 * dropout, become in ds gradients of the scores.  query, key: of s[0][0][0].  stat: the block's
 * log-sum-exps and deltas, from the lane's first query on. */
template <class C, bool DROP>
DEVICE void query_scores(const attn &a, const float (&s)[C::ROWS][C::SLICE / 8][4],
                         float (&ds)[C::ROWS][C::SLICE / 8][4], const float *stat, int query, int key,
                         bool masked, int64_t drop)
{
#pragma unroll
    for (int m = 0; m < C::ROWS; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int t = m * 16 + h * 8;
            float lse = stat[t], delta = stat[C::OWN + t];
#pragma unroll
            for (int n = 0; n < C::SLICE / 8; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int u = n * 8 + i;
                    float p = exp2_fast(fmaf(s[m][n][2 * h + i], a.scale_log2, -lse));
                    float dp = ds[m][n][2 * h + i];
                    if (masked && key + u > query + t)
                        p = 0;
                    if (DROP)
                        dp = drops(a, drop + (int64_t)t * a.seq + u) ? 0 : dp * a.drop.keep;
                    ds[m][n][2 * h + i] = p * (dp - delta);
                }
        }
}

/* A block owns queries of a head; what streams are the keys they see. */
template <class H, class C, bool DROP>
static __global__ void __launch_bounds__(C::THREADS, C::BLOCKS) back_queries(attn a, back_arrays<H> x)
{
    constexpr int PITCH = C::PITCH, STREAM = C::STREAM;
    DYNAMIC_SHARED(H, shared);
    H *q = shared, *d = q + C::OWN * PITCH, *pieces = d + C::OWN * PITCH;
    float *stats = (float *)(pieces + 2 * C::PIECE);            /* [log-sum-exp, delta][OWN] */
    const lane l;
    int mine = warp_of() * 16 * C::ROWS, head = (int)blockIdx.y, sample = (int)blockIdx.z, at = 0;
    /* The last queries see most keys: first, so that the end is not waiting for them. */
    int first = ((int)gridDim.x - 1 - (int)blockIdx.x) * C::OWN, row = first + mine;
    int last = first + C::OWN < a.seq ? first + C::OWN : a.seq;
    int64_t stat = stat_at(a, sample, head);
    const H *keys = x.qkv + k_at(a, sample, head / (a.heads / a.kv_heads));
    float dq[C::ROWS][C::DIM / 8][4];

    clear(dq);
    for (int i = (int)threadIdx.x; i < C::OWN; i += C::THREADS) {
        stats[i] = lse_of(a, x, stat, first + i);
        stats[C::OWN + i] = delta_of(a, x, stat, first + i);
    }
    load_own<C>(a, q, x.qkv + q_at(a, sample, head), a.ld, x.dout + o_at(a, sample, head), o_pitch(a), first);
    for (int key = -STREAM; key < last; key += STREAM, at ^= 1) {
        cp_async_wait<0>();
        __syncthreads();                /* piece `at` is there, the other no longer used */
        if (key + STREAM < last)
            load_piece<C>(a, pieces + (at ^ 1) * C::PIECE, keys, a.ld, keys + a.kv_heads * a.dim, a.ld,
                          key + STREAM);
        const H *k = pieces + at * C::PIECE, *v = k + STREAM * PITCH;
#pragma unroll 1
        for (int i = 0; i < STREAM && key >= 0; i += C::SLICE) {
            float s[C::ROWS][C::SLICE / 8][4], ds[C::ROWS][C::SLICE / 8][4];
            int u = key + i;
            if (u >= row + 16 * C::ROWS || row >= a.seq)        /* all masked */
                continue;
            dots<C::DIM>(l, s, q + mine * PITCH, k + i * PITCH);
            dots<C::DIM>(l, ds, d + mine * PITCH, v + i * PITCH);
            query_scores<C, DROP>(a, s, ds, stats + mine + l.row, row + l.row, u + l.col,
                                  u + C::SLICE > row + 1, (stat + row + l.row) * a.seq + u + l.col);
            add_product<C::DIM, C::DIM>(l, dq, ds, k + i * PITCH);
        }
    }
    store_rows<C::DIM, C::DIM>(a, l, dq, a.scale, q + mine * PITCH,
                               x.dqkv + q_at(a, sample, head) + (int64_t)row * a.ld, a.ld, a.seq - row,
                               a.dim);
}

/* ---- launching ---- */

template <class C, bool DROP, class H>
static int launch_keys(const attn &a, const back_arrays<H> &x, cudaStream_t stream)
{
    dim3 grid(blocks_of(a.seq, C::OWN) * (C::DIM / C::OUT), a.kv_heads, a.batch);
    int error = ALLOW_SHARED((back_keys<H, C, DROP>), C::BYTES);

    if (error)
        return error;
    LAUNCH((back_keys<H, C, DROP>), grid, C::THREADS, C::BYTES, stream, a, x);
    return cuda_launched("attention backward: dk, dv");
}

template <class C, bool DROP, class H>
static int launch_queries(const attn &a, const back_arrays<H> &x, cudaStream_t stream)
{
    dim3 grid(blocks_of(a.seq, C::OWN), a.heads, a.batch);
    int error = ALLOW_SHARED((back_queries<H, C, DROP>), C::BYTES);

    if (error)
        return error;
    LAUNCH((back_queries<H, C, DROP>), grid, C::THREADS, C::BYTES, stream, a, x);
    return cuda_launched("attention backward: dq");
}

/* How heads of up to DIM are cut, best first; where even the smallest takes more shared memory than
 * the device has the launch says so.  What a row of shared memory brings to a product is used
 * ROWS times, so two where the sums still fit the registers; they do not with dropout's hashes.
 *
 * dq of 128 with two: two blocks of 104 KiB want sm_90's 227 KiB; sm_80 has one of eight warps. */
template <int DIM, bool DROP, class H> static int keys_of(const attn &a, const back_arrays<H> &x, cudaStream_t s)
{
    if constexpr (DIM <= 64 && !DROP)
        return launch_keys<cut<DIM, DIM, 2, 4, 32, 32, 2>, DROP>(a, x, s);
    else if constexpr (DIM <= 80)
        return launch_keys<cut<DIM, DIM, 1, 8, 64, 32, 1>, DROP>(a, x, s);
    else if constexpr (DIM <= 128) {
        using large = cut<DIM, DIM, 1, 8, 64, 32, 1>;
        return large::BYTES <= a.shared ? launch_keys<large, DROP>(a, x, s)
                                        : launch_keys<cut<DIM, DIM, 1, 4, 32, 32, 2>, DROP>(a, x, s);
    } else {
        using large = cut<DIM, DIM / 2, 1, 4, 32, 32, 1>;
        return large::BYTES <= a.shared ? launch_keys<large, DROP>(a, x, s)
                                        : launch_keys<cut<DIM, DIM / 2, 1, 2, 16, 16, 1>, DROP>(a, x, s);
    }
}

template <int DIM, bool DROP, class H> static int queries_of(const attn &a, const back_arrays<H> &x, cudaStream_t s)
{
    using small = cut<DIM, DIM, 1, 4, 32, 32, 2>;

    if constexpr (DIM <= 96 && !DROP)
        return launch_queries<cut<DIM, DIM, 2, 4, 32, 32, 2>, DROP>(a, x, s);
    else if constexpr (DIM <= 96)
        return launch_queries<small, DROP>(a, x, s);
    else if constexpr (DIM <= 128) {
        using two = cut<DIM, DIM, 2, 4, 32, 32, 2>;
        using large = cut<DIM, DIM, 1, 8, 64, 32, 1>;
        if constexpr (!DROP)
            if (2 * two::BYTES <= a.shared)
                return launch_queries<two, DROP>(a, x, s);
        return large::BYTES <= a.shared ? launch_queries<large, DROP>(a, x, s)
                                        : launch_queries<small, DROP>(a, x, s);
    } else {
        using large = cut<DIM, DIM, 1, 4, 32, 32, 1>;
        return large::BYTES <= a.shared ? launch_queries<large, DROP>(a, x, s)
                                        : launch_queries<cut<DIM, DIM, 1, 2, 16, 16, 1>, DROP>(a, x, s);
    }
}

template <int DIM, class H> static int back_of(const attn &a, const back_arrays<H> &x, cudaStream_t s)
{
    int error = a.drop.limit ? queries_of<DIM, true>(a, x, s) : queries_of<DIM, false>(a, x, s);

    if (error)
        return error;
    return a.drop.limit ? keys_of<DIM, true>(a, x, s) : keys_of<DIM, false>(a, x, s);
}

template <class H> static int backward_in(const attn &a, const back_arrays<H> &x, cudaStream_t s)
{
    return a.dim <= 32    ? back_of<32>(a, x, s)
           : a.dim <= 64  ? back_of<64>(a, x, s)
           : a.dim <= 80  ? back_of<80>(a, x, s)
           : a.dim <= 96  ? back_of<96>(a, x, s)
           : a.dim <= 128 ? back_of<128>(a, x, s)
                          : back_of<256>(a, x, s);
}

int attention_backward_in(const attn &a, const back_arrays<bf16> &x, cudaStream_t s) { return backward_in(a, x, s); }
int attention_backward_in(const attn &a, const back_arrays<fp16> &x, cudaStream_t s) { return backward_in(a, x, s); }
