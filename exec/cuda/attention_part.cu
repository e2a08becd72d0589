/* Attention over a part of the keys, for ranks that share a sequence (attention_part() of exec/kernels/kernels.h): operands in fp32,
 * bf16 or fp16, arithmetic in fp32 without tensor cores.
 *
 * The order of work is attention_fp32.cu's.  What a row has summed up so far is its output, of which all probabilities together
 * are 1: the sum begins with 1 at the row's log-sum-exp.  A row of keys that no query sees gets zeros. */
#include "exec/cuda/attention_fp32.cuh"

#include <limits.h>

/* Which queries see which keys, and rows' pitches: of k and v, of dq, of dk and dv; where dropout counts them. */
struct sight {
    int  ld, from, keys, ldq, ldkv;
    bool causal, fresh;
    int  heads, seq, run, row[2], key[2];
};

DEVICE int seen_by(const sight &p, int row) { return p.causal ? row + 1 : row >= p.from ? p.keys : 0; }

/* Keys that any of the rows up to `last` sees. */
DEVICE int keys_end(const attn &a, const sight &p, int last) { return seen_by(p, last < a.seq ? last : a.seq - 1); }

/* score_index() of kernels.h: whether it is dropped. */
DEVICE bool drops_score(const attn &a, const sight &p, int sample, int head, int t, int u)
{
    int row = t < p.run ? p.row[0] + t : p.row[1] + t - p.run, key = u < p.run ? p.key[0] + u : p.key[1] + u - p.run;

    return drops(a, (((int64_t)sample * p.heads + head) * p.seq + row) * p.seq + key);
}

/* Of k, or with `width` further on of v, in rows of their own. */
DEVICE int64_t key_at(const attn &a, int sample, int kv, int ld) { return (int64_t)sample * a.seq * ld + (int64_t)kv * a.dim; }

template <int DIM, int TILE>
DEVICE void load_rows(const attn &a, float *into, const float *x, int pitch, int row, int end)
{
    load_tile<float, DIM, TILE, THREADS>(a, into, x, pitch, row, end);
}

template <int DIM, int TILE, class H>
DEVICE void load_rows(const attn &a, float *into, const H *x, int pitch, int row, int end)
{
    for (int i = (int)threadIdx.x; i < TILE * DIM; i += THREADS) {
        int r = i / DIM, c = i % DIM;
        into[r * tile<float, DIM>::PITCH + c] = row + r < end && c < a.dim ? get(x + (int64_t)(row + r) * pitch + c) : 0;
    }
}

DEVICE void loaded()
{
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
}

/* factor * out into, or added to, the rows before `end` from the block's row `first` on. */
template <class T, int R, int C>
DEVICE void put_rows(const attn &a, const float (&out)[R][C][4], const float (&factor)[R], T *to, int pitch, int first, int end,
                     bool add)
{
    int row = first + (int)threadIdx.x / 16 * R, col = (int)threadIdx.x % 16 * 4;

#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (row + i < end && c * 64 + col + j < a.dim) {
                    T *x = to + (int64_t)(row + i) * pitch + c * 64 + col + j;
                    put(x, factor[i] * out[i][c][j] + (add ? get(x) : 0));
                }
}

/* ---- forward ---- */

/* What the row has so far: its largest score, the sum, the output. */
template <int R, int C>
DEVICE void take_up(const attn &a, const float *o, const float *lse, int row, float (&most)[R], float (&sum)[R], float (&out)[R][C][4])
{
    int x = (int)threadIdx.x % 16;

#pragma unroll
    for (int i = 0; i < R; i++) {
        if (row + i >= a.seq)
            continue;
        most[i] = lse[row + i] / a.scale;
        sum[i] = x == 0;
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (c * 64 + x * 4 + j < a.dim)
                    out[i][c][j] = o[(int64_t)(row + i) * o_pitch(a) + c * 64 + x * 4 + j];
    }
}

template <class T, int DIM, int TILE>
static __global__ void __launch_bounds__(THREADS, 1) part_forward(attn a, sight p, const T *qkv, const T *keys, float *o, float *lse)
{
    constexpr int R = part<DIM, TILE>::R, C = part<DIM, TILE>::C, PITCH = part<DIM, TILE>::PITCH;
    DYNAMIC_SHARED(float, shared);
    float *q = shared, *k = q + TILE * PITCH, *v = k + TILE * PITCH, *room = v + TILE * PITCH;
    int head = (int)blockIdx.y, sample = (int)blockIdx.z, kv = head / (a.heads / a.kv_heads);
    int first = ((int)gridDim.x - 1 - (int)blockIdx.x) * TILE, end = keys_end(a, p, first + TILE - 1);
    int row = first + (int)threadIdx.x / 16 * R, col = (int)threadIdx.x % 16;
    float out[R][C][4], most[R], sum[R], factor[R];

    if (end == 0)
        return;
    keys += key_at(a, sample, kv, p.ld);
    o += o_at(a, sample, head);
    lse += stat_at(a, sample, head);
    clear(out);
#pragma unroll
    for (int i = 0; i < R; i++)
        most[i] = -INFINITY, sum[i] = 0;
    if (!p.fresh)
        take_up(a, o, lse, row, most, sum, out);
    load_rows<DIM, TILE>(a, q, qkv + q_at(a, sample, head), a.ld, first, a.seq);
    for (int key = 0; key < end; key += TILE) {
        float s[R][R];
        load_rows<DIM, TILE>(a, k, keys, p.ld, key, p.keys);
        load_rows<DIM, TILE>(a, v, keys + a.kv_heads * a.dim, p.ld, key, p.keys);
        loaded();
        dots<DIM>(a, s, q, k);
#pragma unroll
        for (int i = 0; i < R; i++) {
            float largest = most[i];
#pragma unroll
            for (int j = 0; j < R; j++) {
                if (key + col + 16 * j >= seen_by(p, row + i) || key + col + 16 * j >= p.keys)
                    s[i][j] = -INFINITY;
                largest = fmaxf(largest, s[i][j]);
            }
            largest = row_most(largest);
            float shift = largest > -INFINITY ? largest : 0, less = exp2_fast(a.scale_log2 * (most[i] - shift));
            most[i] = largest;
            sum[i] *= less;
#pragma unroll
            for (int j = 0; j < R; j++) {
                s[i][j] = exp2_fast(a.scale_log2 * (s[i][j] - shift));
                sum[i] += s[i][j];
                if (a.drop.limit && s[i][j] > 0)
                    s[i][j] = drops_score(a, p, sample, head, row + i, key + col + 16 * j) ? 0 : s[i][j] * a.drop.keep;
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
#pragma unroll
    for (int i = 0; i < R; i++) {
        float all = row_sum(sum[i]);
        factor[i] = 1 / all;
        if (col == 0 && row + i < a.seq)
            lse[row + i] = a.scale * most[i] + logf(all);
    }
    put_rows(a, out, factor, o, o_pitch(a), first, a.seq, false);
}

/* ---- backward ---- */

template <class T> struct part_arrays { const T *qkv, *keys, *dout; const float *lse, *delta; float *dq; T *dkv; };

/* Numbers of a query that a score's gradient needs. */
struct of_query { int sample, head, t; float lse, delta; };

/* As attention_fp32.cu's back_score(), of a query and a key of the part. */
DEVICE void back_score(const attn &a, const sight &p, float *s, float *dp, const of_query &q, int u)
{
    bool seen = q.t < a.seq && u < seen_by(p, q.t) && u < p.keys;
    float all = seen ? exp2_fast(fmaf(*s, a.scale_log2, -q.lse * LOG2E)) : 0;

    *s = all;
    if (a.drop.limit && seen) {
        bool gone = drops_score(a, p, q.sample, q.head, q.t, u);
        *s = gone ? 0 : all * a.drop.keep;
        *dp = gone ? 0 : *dp * a.drop.keep;
    }
    *dp = all * (*dp - q.delta);
}

template <class T, int DIM, int TILE>
static __global__ void __launch_bounds__(THREADS, 1) part_keys(attn a, sight p, part_arrays<T> x)
{
    constexpr int R = part<DIM, TILE>::R, C = part<DIM, TILE>::C, PITCH = part<DIM, TILE>::PITCH;
    DYNAMIC_SHARED(float, shared);
    float *k = shared, *v = k + TILE * PITCH, *q = v + TILE * PITCH, *d = q + TILE * PITCH, *room = d + TILE * PITCH;
    int kv = (int)blockIdx.y, sample = (int)blockIdx.z, group = a.heads / a.kv_heads;
    int first = (int)blockIdx.x * TILE, begin = p.causal ? first : p.from / TILE * TILE;
    int row = first + (int)threadIdx.x / 16 * R, col = (int)threadIdx.x % 16;
    const T *keys = x.keys + key_at(a, sample, kv, p.ld);
    T *to = x.dkv + key_at(a, sample, kv, p.ldkv);
    float dk[R][C][4], dv[R][C][4], of_k[R], of_v[R];

    clear(dk);
    clear(dv);
    load_rows<DIM, TILE>(a, k, keys, p.ld, first, p.keys);
    load_rows<DIM, TILE>(a, v, keys + a.kv_heads * a.dim, p.ld, first, p.keys);
    loaded();
    for (int head = kv * group; head < (kv + 1) * group && first < p.keys; head++) {
        const float *lse = x.lse + stat_at(a, sample, head), *delta = x.delta + stat_at(a, sample, head);
        for (int query = begin; query < a.seq; query += TILE) {
            float s[R][R], ds[R][R];
            load_rows<DIM, TILE>(a, q, x.qkv + q_at(a, sample, head), a.ld, query, a.seq);
            load_rows<DIM, TILE>(a, d, x.dout + o_at(a, sample, head), o_pitch(a), query, a.seq);
            loaded();
            dots<DIM>(a, s, k, q);
            dots<DIM>(a, ds, v, d);
#pragma unroll
            for (int j = 0; j < R; j++) {
                int t = query + col + 16 * j;
                of_query of = { sample, head, t, t < a.seq ? lse[t] : 0, t < a.seq ? delta[t] : 0 };
#pragma unroll
                for (int i = 0; i < R; i++)
                    back_score(a, p, &s[i][j], &ds[i][j], of, row + i);
            }
            add_product<DIM>(dv, s, d, room);
            add_product<DIM>(dk, ds, q, room);
            __syncthreads();
        }
    }
#pragma unroll
    for (int i = 0; i < R; i++)
        of_k[i] = a.scale, of_v[i] = 1;
    put_rows(a, dk, of_k, to, p.ldkv, first, a.seq, false);
    put_rows(a, dv, of_v, to + a.kv_heads * a.dim, p.ldkv, first, a.seq, false);
}

template <class T, int DIM, int TILE>
static __global__ void __launch_bounds__(THREADS, 1) part_queries(attn a, sight p, part_arrays<T> x)
{
    constexpr int R = part<DIM, TILE>::R, C = part<DIM, TILE>::C, PITCH = part<DIM, TILE>::PITCH;
    DYNAMIC_SHARED(float, shared);
    float *q = shared, *d = q + TILE * PITCH, *k = d + TILE * PITCH, *v = k + TILE * PITCH, *room = v + TILE * PITCH;
    int head = (int)blockIdx.y, sample = (int)blockIdx.z, kv = head / (a.heads / a.kv_heads);
    int first = ((int)gridDim.x - 1 - (int)blockIdx.x) * TILE, end = keys_end(a, p, first + TILE - 1);
    int row = first + (int)threadIdx.x / 16 * R, col = (int)threadIdx.x % 16;
    const T *keys = x.keys + key_at(a, sample, kv, p.ld);
    int64_t stat = stat_at(a, sample, head);
    float dq[R][C][4], sum[R], mean[R], factor[R];

    if (end == 0)
        return;
    clear(dq);
#pragma unroll
    for (int i = 0; i < R; i++) {
        sum[i] = row + i < a.seq ? x.lse[stat + row + i] : 0;
        mean[i] = row + i < a.seq ? x.delta[stat + row + i] : 0;
        factor[i] = a.scale;
    }
    load_rows<DIM, TILE>(a, q, x.qkv + q_at(a, sample, head), a.ld, first, a.seq);
    load_rows<DIM, TILE>(a, d, x.dout + o_at(a, sample, head), o_pitch(a), first, a.seq);
    for (int key = 0; key < end; key += TILE) {
        float s[R][R], ds[R][R];
        load_rows<DIM, TILE>(a, k, keys, p.ld, key, p.keys);
        load_rows<DIM, TILE>(a, v, keys + a.kv_heads * a.dim, p.ld, key, p.keys);
        loaded();
        dots<DIM>(a, s, q, k);
        dots<DIM>(a, ds, d, v);
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++)
                back_score(a, p, &s[i][j], &ds[i][j], of_query{ sample, head, row + i, sum[i], mean[i] }, key + col + 16 * j);
        add_product<DIM>(dq, ds, k, room);
        __syncthreads();
    }
    put_rows(a, dq, factor, x.dq + (int64_t)sample * a.seq * p.ldq + (int64_t)head * a.dim, p.ldq, first, a.seq, !p.fresh);
}

/* ---- launching ---- */

/* Bytes of `tiles` tiles and a block of scores. */
template <int DIM, int TILE> static constexpr int room_for(int tiles)
{
    return (tiles * TILE * part<DIM, TILE>::PITCH + TILE * part<DIM, TILE>::SCORES) * 4;
}

template <class T, int DIM, int TILE>
static int launch_forward(const attn &a, const sight &p, const T *qkv, const T *keys, float *o, float *lse, cudaStream_t stream)
{
    int error = ALLOW_SHARED((part_forward<T, DIM, TILE>), (room_for<DIM, TILE>(3)));

    if (error)
        return error;
    LAUNCH((part_forward<T, DIM, TILE>), dim3(blocks_of(a.seq, TILE), a.heads, a.batch), THREADS, (room_for<DIM, TILE>(3)), stream, a, p,
           qkv, keys, o, lse);
    return cuda_launched("attention of a part");
}

template <class T, int DIM, int TILE>
static int launch_back(const attn &a, const sight &p, const part_arrays<T> &x, cudaStream_t stream)
{
    int blocks = blocks_of(a.seq, TILE), error = ALLOW_SHARED((part_queries<T, DIM, TILE>), (room_for<DIM, TILE>(4)));

    if (!error)
        error = ALLOW_SHARED((part_keys<T, DIM, TILE>), (room_for<DIM, TILE>(4)));
    if (error)
        return error;
    LAUNCH((part_queries<T, DIM, TILE>), dim3(blocks, a.heads, a.batch), THREADS, (room_for<DIM, TILE>(4)), stream, a, p, x);
    if ((error = cuda_launched("attention of a part, backward: dq")) != 0)
        return error;
    LAUNCH((part_keys<T, DIM, TILE>), dim3(blocks, a.kv_heads, a.batch), THREADS, (room_for<DIM, TILE>(4)), stream, a, p, x);
    return cuda_launched("attention of a part, backward: dk, dv");
}

/* The tiles of attention_fp32.cu; half of them where a device has less shared memory than two blocks of those want. */
template <int DIM, int TILE> static bool fits(const attn &a) { return room_for<DIM, TILE>(4) <= a.shared; }

template <class T>
static int forward_of(const attn &a, const sight &p, const void *of_q, const void *of_keys, float *o, float *lse, cudaStream_t s)
{
    const T *qkv = (const T *)of_q, *keys = (const T *)of_keys;

    if (a.dim <= 64)
        return launch_forward<T, 64, 64>(a, p, qkv, keys, o, lse, s);
    if (a.dim <= 128)
        return fits<128, 64>(a) ? launch_forward<T, 128, 64>(a, p, qkv, keys, o, lse, s)
                                : launch_forward<T, 128, 32>(a, p, qkv, keys, o, lse, s);
    return fits<256, 32>(a) ? launch_forward<T, 256, 32>(a, p, qkv, keys, o, lse, s)
                            : launch_forward<T, 256, 16>(a, p, qkv, keys, o, lse, s);
}

template <class T>
static int back_of(const attn &a, const sight &p, const void *qkv, const void *keys, const float *lse, const void *dout,
                   const float *delta, float *dq, void *dkv, cudaStream_t s)
{
    part_arrays<T> x = { (const T *)qkv, (const T *)keys, (const T *)dout, lse, delta, dq, (T *)dkv };

    if (a.dim <= 64)
        return launch_back<T, 64, 64>(a, p, x, s);
    if (a.dim <= 128)
        return fits<128, 64>(a) ? launch_back<T, 128, 64>(a, p, x, s) : launch_back<T, 128, 32>(a, p, x, s);
    return fits<256, 32>(a) ? launch_back<T, 256, 32>(a, p, x, s) : launch_back<T, 256, 16>(a, p, x, s);
}

/* Numbers that a kernel takes; whether rows of fp32 may be moved 16 bytes at a time. */
static int sight_of(const launch_part *c, const attn &a, sight *p)
{
    int64_t least = 2 * (int64_t)a.kv_heads * a.dim;

    if (c->ld < least || c->ld > INT_MAX / 128 || c->from < 0 || c->from > a.seq || c->keys < 0 || c->keys > a.seq
        || c->ldq > INT_MAX / 128 || c->ldkv > INT_MAX / 128)
        return cudaErrorInvalidValue;
    if (a.drop.limit && (c->at.run < 1 || 2 * c->at.run < a.seq || c->at.seq < a.seq || c->at.seq > INT_MAX || c->at.heads > INT_MAX))
        return cudaErrorInvalidValue;
    *p = { (int)c->ld, (int)c->from, (int)c->keys, (int)c->ldq, (int)c->ldkv, c->causal, c->fresh,
           (int)c->at.heads, (int)c->at.seq, (int)c->at.run, { (int)c->at.row[0], (int)c->at.row[1] },
           { (int)c->at.key[0], (int)c->at.key[1] } };
    return 0;
}

extern "C" int attention_part_forward(const struct launch_attention *c, const struct launch_part *of, const void *qkv, float *o,
                                      float *lse, struct CUstream_st *stream)
{
    attn a;
    sight p;
    int error = attention_call_of(c, &a);

    if (error || (error = sight_of(of, a, &p)) != 0)
        return error;
    a.wide = a.wide && aligned_16(qkv) && aligned_16(of->kv) && p.ld % piece<float>::SIZE == 0;
    return BY_DTYPE(c->at, forward_of, a, p, qkv, of->kv, o, lse, stream);
}

extern "C" int attention_part_backward(const struct launch_attention *c, const struct launch_part *of, const void *qkv,
                                       const float *lse, const void *dout, const float *delta, float *dq, void *dkv,
                                       struct CUstream_st *stream)
{
    attn a;
    sight p;
    int error = attention_call_of(c, &a);

    if (error || (error = sight_of(of, a, &p)) != 0)
        return error;
    a.wide = a.wide && aligned_16(qkv) && aligned_16(of->kv) && aligned_16(dout) && p.ld % piece<float>::SIZE == 0;
    return BY_DTYPE(c->at, back_of, a, p, qkv, of->kv, lse, dout, delta, dq, dkv, stream);
}
