/* Causal attention in fp32, without tensor cores: what fp32 plans run and what 16 bits are held against.
 *
 * The same order of work as attention_half.cu.  A block of 16 x 16 threads owns TILE rows of a
 * head: thread (y, x) has rows y R ... y R + R-1 (R = TILE/16), of scores the columns x, x + 16,
 * ..., and of what is summed up the columns 4 x ... 4 x + 3 of each 64.  Scores pass through shared
 * memory to become the next product's left side; a row of them is written and read by the 16
 * threads of one y, which are of one warp.
 *
 * Shared memory, bytes with p = 4 (DIM + 4): forward TILE (3 p + 4 TILE + 16), backward
 * TILE (4 p + 4 TILE + 16); TILE is 64 for DIM up to 128, 32 above, or half where the device has less. */
#include "exec/cuda/attention_fp32.cuh"

/* factor * out into rows at `to` from the block's row `first` on. */
template <int R, int C>
DEVICE void store_rows(const attn &a, const float (&out)[R][C][4], const float (&factor)[R], float *to,
                       int64_t pitch, int first)
{
    int row = first + (int)threadIdx.x / 16 * R, col = (int)threadIdx.x % 16 * 4;

#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            float *x = to + (int64_t)(row + i) * pitch + c * 64 + col;
            int left = row + i < a.seq ? a.dim - c * 64 - col : 0;
            if (a.wide && left > 0)
                *(float4 *)x = make_float4(factor[i] * out[i][c][0], factor[i] * out[i][c][1],
                                           factor[i] * out[i][c][2], factor[i] * out[i][c][3]);
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (!a.wide && j < left)
                    x[j] = factor[i] * out[i][c][j];
        }
}

/* ---- forward ---- */

template <int DIM, int TILE>
static __global__ void __launch_bounds__(THREADS, 1) forward(attn a, const float *qkv, float *o, float *lse)
{
    constexpr int R = part<DIM, TILE>::R, C = part<DIM, TILE>::C, PITCH = part<DIM, TILE>::PITCH;
    DYNAMIC_SHARED(float, shared);
    float *q = shared, *k = q + TILE * PITCH, *v = k + TILE * PITCH, *room = v + TILE * PITCH;
    int head = (int)blockIdx.y, sample = (int)blockIdx.z, kv = head / (a.heads / a.kv_heads);
    int first = ((int)gridDim.x - 1 - (int)blockIdx.x) * TILE;
    int row = first + (int)threadIdx.x / 16 * R, col = (int)threadIdx.x % 16;
    int64_t stat = stat_at(a, sample, head);
    float out[R][C][4], most[R], sum[R];

    clear(out);
#pragma unroll
    for (int i = 0; i < R; i++)
        most[i] = -INFINITY, sum[i] = 0;
    load_tile<float, DIM, TILE, THREADS>(a, q, qkv + q_at(a, sample, head), a.ld, first, a.seq);
    for (int key = 0; key <= first; key += TILE) {
        float s[R][R];
        load_tile<float, DIM, TILE, THREADS>(a, k, qkv + k_at(a, sample, kv), a.ld, key, a.seq);
        load_tile<float, DIM, TILE, THREADS>(a, v, qkv + v_at(a, sample, kv), a.ld, key, a.seq);
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
        dots<DIM>(a, s, q, k);
#pragma unroll
        for (int i = 0; i < R; i++) {
            float largest = most[i];
#pragma unroll
            for (int j = 0; j < R; j++) {
                if (key + col + 16 * j > row + i)
                    s[i][j] = -INFINITY;
                largest = fmaxf(largest, s[i][j]);
            }
            largest = row_most(largest);
            float less = exp2_fast(a.scale_log2 * (most[i] - largest)), shift = a.scale_log2 * largest;
            most[i] = largest;
            sum[i] *= less;
#pragma unroll
            for (int j = 0; j < R; j++) {
                s[i][j] = exp2_fast(fmaf(s[i][j], a.scale_log2, -shift));
                sum[i] += s[i][j];
                if (a.drop.limit && drops(a, (stat + row + i) * a.seq + key + col + 16 * j))
                    s[i][j] = 0;
            }
#pragma unroll
            for (int c = 0; c < C; c++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    out[i][c][j] *= less;
        }
        add_product<DIM>(out, s, v, room);
        __syncthreads();
    }
    float factor[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
        float all = row_sum(sum[i]);
        factor[i] = a.drop.keep / all;
        if (col == 0 && row + i < a.seq)
            lse[stat + row + i] = a.scale * most[i] + logf(all);
    }
    store_rows(a, out, factor, o + o_at(a, sample, head), o_pitch(a), first);
}

/* ---- backward ---- */

/* s: scores of query t and key u become probabilities after dropout, dp: gradients of those become
 * gradients of scores (before the scale).  lse, delta: the query's; at: the head's first. */
DEVICE void back_score(const attn &a, float *s, float *dp, int t, int u, float lse, float delta, int64_t at)
{
    float p = t >= u && t < a.seq ? exp2_fast(fmaf(*s, a.scale_log2, -lse * LOG2E)) : 0;

    *s = p;
    if (a.drop.limit) {
        bool gone = drops(a, (at + t) * a.seq + u);
        *s = gone ? 0 : p * a.drop.keep;
        *dp = gone ? 0 : *dp * a.drop.keep;
    }
    *dp = p * (*dp - delta);
}

template <int DIM, int TILE>
static __global__ void __launch_bounds__(THREADS, 1) back_keys(attn a, back_arrays<float> x)
{
    constexpr int R = part<DIM, TILE>::R, C = part<DIM, TILE>::C, PITCH = part<DIM, TILE>::PITCH;
    DYNAMIC_SHARED(float, shared);
    float *k = shared, *v = k + TILE * PITCH, *q = v + TILE * PITCH, *d = q + TILE * PITCH;
    float *room = d + TILE * PITCH;
    int kv = (int)blockIdx.y, sample = (int)blockIdx.z, group = a.heads / a.kv_heads;
    int first = (int)blockIdx.x * TILE;
    int row = first + (int)threadIdx.x / 16 * R, col = (int)threadIdx.x % 16;
    float dk[R][C][4], dv[R][C][4], of_k[R], of_v[R];

    clear(dk);
    clear(dv);
    load_tile<float, DIM, TILE, THREADS>(a, k, x.qkv + k_at(a, sample, kv), a.ld, first, a.seq);
    load_tile<float, DIM, TILE, THREADS>(a, v, x.qkv + v_at(a, sample, kv), a.ld, first, a.seq);
    for (int head = kv * group; head < (kv + 1) * group; head++) {
        int64_t stat = stat_at(a, sample, head);
        for (int query = first; query < a.seq; query += TILE) {
            float s[R][R], ds[R][R];
            load_tile<float, DIM, TILE, THREADS>(a, q, x.qkv + q_at(a, sample, head), a.ld, query, a.seq);
            load_tile<float, DIM, TILE, THREADS>(a, d, x.dout + o_at(a, sample, head), o_pitch(a), query,
                                                 a.seq);
            cp_async_commit();
            cp_async_wait<0>();
            __syncthreads();
            dots<DIM>(a, s, k, q);
            dots<DIM>(a, ds, v, d);
#pragma unroll
            for (int j = 0; j < R; j++) {
                int t = query + col + 16 * j;
                float sum = t < a.seq ? x.lse[stat + t] : 0, mean = t < a.seq ? x.delta[stat + t] : 0;
#pragma unroll
                for (int i = 0; i < R; i++)
                    back_score(a, &s[i][j], &ds[i][j], t, row + i, sum, mean, stat);
            }
            add_product<DIM>(dv, s, d, room);
            add_product<DIM>(dk, ds, q, room);
            __syncthreads();
        }
    }
#pragma unroll
    for (int i = 0; i < R; i++)
        of_k[i] = a.scale, of_v[i] = 1;
    store_rows(a, dk, of_k, x.dqkv + k_at(a, sample, kv), a.ld, first);
    store_rows(a, dv, of_v, x.dqkv + v_at(a, sample, kv), a.ld, first);
}

template <int DIM, int TILE>
static __global__ void __launch_bounds__(THREADS, 1) back_queries(attn a, back_arrays<float> x)
{
    constexpr int R = part<DIM, TILE>::R, C = part<DIM, TILE>::C, PITCH = part<DIM, TILE>::PITCH;
    DYNAMIC_SHARED(float, shared);
    float *q = shared, *d = q + TILE * PITCH, *k = d + TILE * PITCH, *v = k + TILE * PITCH;
    float *room = v + TILE * PITCH;
    int head = (int)blockIdx.y, sample = (int)blockIdx.z, kv = head / (a.heads / a.kv_heads);
    int first = ((int)gridDim.x - 1 - (int)blockIdx.x) * TILE;
    int row = first + (int)threadIdx.x / 16 * R, col = (int)threadIdx.x % 16;
    int64_t stat = stat_at(a, sample, head);
    float dq[R][C][4], sum[R], mean[R], factor[R];

    clear(dq);
#pragma unroll
    for (int i = 0; i < R; i++) {
        sum[i] = row + i < a.seq ? x.lse[stat + row + i] : 0;
        mean[i] = row + i < a.seq ? x.delta[stat + row + i] : 0;
        factor[i] = a.scale;
    }
    load_tile<float, DIM, TILE, THREADS>(a, q, x.qkv + q_at(a, sample, head), a.ld, first, a.seq);
    load_tile<float, DIM, TILE, THREADS>(a, d, x.dout + o_at(a, sample, head), o_pitch(a), first, a.seq);
    for (int key = 0; key <= first; key += TILE) {
        float s[R][R], ds[R][R];
        load_tile<float, DIM, TILE, THREADS>(a, k, x.qkv + k_at(a, sample, kv), a.ld, key, a.seq);
        load_tile<float, DIM, TILE, THREADS>(a, v, x.qkv + v_at(a, sample, kv), a.ld, key, a.seq);
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
        dots<DIM>(a, s, q, k);
        dots<DIM>(a, ds, d, v);
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++)
                back_score(a, &s[i][j], &ds[i][j], row + i, key + col + 16 * j, sum[i], mean[i], stat);
        add_product<DIM>(dq, ds, k, room);
        __syncthreads();
    }
    store_rows(a, dq, factor, x.dqkv + q_at(a, sample, head), a.ld, first);
}

/* ---- launching ---- */

template <int DIM, int TILE>
static int launch_forward(const attn &a, const float *qkv, float *o, float *lse, cudaStream_t stream)
{
    int bytes = (3 * TILE * part<DIM, TILE>::PITCH + TILE * part<DIM, TILE>::SCORES) * 4;
    dim3 grid(blocks_of(a.seq, TILE), a.heads, a.batch);
    int error = ALLOW_SHARED((forward<DIM, TILE>), bytes);

    if (error)
        return error;
    LAUNCH((forward<DIM, TILE>), grid, THREADS, bytes, stream, a, qkv, o, lse);
    return cuda_launched("attention");
}

template <int DIM, int TILE> struct back_room {
    static constexpr int BYTES = (4 * TILE * part<DIM, TILE>::PITCH + TILE * part<DIM, TILE>::SCORES) * 4;
};

template <int DIM, int TILE>
static int launch_back(const attn &a, const back_arrays<float> &x, cudaStream_t stream)
{
    constexpr int BYTES = back_room<DIM, TILE>::BYTES;
    int blocks = blocks_of(a.seq, TILE), error = ALLOW_SHARED((back_queries<DIM, TILE>), BYTES);

    if (!error)
        error = ALLOW_SHARED((back_keys<DIM, TILE>), BYTES);
    if (error)
        return error;
    LAUNCH((back_queries<DIM, TILE>), dim3(blocks, a.heads, a.batch), THREADS, BYTES, stream, a, x);
    if ((error = cuda_launched("attention backward: dq")) != 0)
        return error;
    LAUNCH((back_keys<DIM, TILE>), dim3(blocks, a.kv_heads, a.batch), THREADS, BYTES, stream, a, x);
    return cuda_launched("attention backward: dk, dv");
}

/* Forward takes the backward's tiles: it fits wherever they do. */
template <int DIM, int TILE> static bool fits(const attn &a)
{
    return back_room<DIM, TILE>::BYTES <= a.shared;
}

int attention_forward_in(const attn &a, const float *qkv, float *o, float *lse, cudaStream_t stream)
{
    if (a.dim <= 64)
        return launch_forward<64, 64>(a, qkv, o, lse, stream);
    if (a.dim <= 128)
        return fits<128, 64>(a) ? launch_forward<128, 64>(a, qkv, o, lse, stream)
                                : launch_forward<128, 32>(a, qkv, o, lse, stream);
    return fits<256, 32>(a) ? launch_forward<256, 32>(a, qkv, o, lse, stream)
                            : launch_forward<256, 16>(a, qkv, o, lse, stream);
}

int attention_backward_in(const attn &a, const back_arrays<float> &x, cudaStream_t s)
{
    if (a.dim <= 64)
        return launch_back<64, 64>(a, x, s);
    if (a.dim <= 128)
        return fits<128, 64>(a) ? launch_back<128, 64>(a, x, s) : launch_back<128, 32>(a, x, s);
    return fits<256, 32>(a) ? launch_back<256, 32>(a, x, s) : launch_back<256, 16>(a, x, s);
}
