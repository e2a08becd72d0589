/* Causal attention on tensor cores: FlashAttention-2 (Dao, 2023) with operands in bf16 or fp16 (H) and
 * sums in fp32.
 *
 * A warp owns 16 or 32 queries of a head and goes through the keys, which the four warps of a block
 * bring into shared memory while those before are being worked on.
 *
 * Registers and shared memory are for two blocks on a multiprocessor of sm_80 and sm_90 (three of
 * DIM 32; of DIM 256 one on sm_80).  Shared memory is 2 (64 ROWS + 2 KEYS) (DIM + 8) bytes: for DIM 64
 * it is 36 KiB; 96, 52 KiB; 128, 60 KiB; 256, 99 KiB, which every card of sm_80 and later has. */
#include "exec/cuda/attention_mma.cuh"

/* Of the rows that a lane has part of. */
template <int ROWS> struct softmax { float shift[ROWS][2], sum[ROWS][2]; };

/* Scores of keys after the row itself count for nothing.  row, key: of s[0][0][0]. */
template <int ROWS, int COLS>
DEVICE void mask_keys(float (&s)[ROWS][COLS][4], int row, int key)
{
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
        for (int n = 0; n < COLS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (key + n * 8 + (i & 1) > row + m * 16 + (i >> 1) * 8)
                    s[m][n][i] = -INFINITY;
}

/* Scores become 2^(scale score - shift), unnormalised.  `shift` is the largest so far, but stays
 * while it is exceeded by less than 2^8: what was summed is then not scaled down, and neither fp32
 * nor H is less exact for numbers up to 256 (below 2^-14, where fp16 is, they are little beside 1).  The first block has key 0, which all see, and
 * so makes every shift finite. */
template <int ROWS, int COLS, int OUT>
DEVICE void softmax_scores(softmax<ROWS> &x, float scale, float (&s)[ROWS][COLS][4],
                           float (&out)[ROWS][OUT][4])
{
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = s[m][0][2 * h];
#pragma unroll
            for (int n = 0; n < COLS; n++)
                most = fmaxf(most, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
            most = scale * fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));
            if (__ballot_sync(0xffffffff, most > x.shift[m][h] + 8)) {
                float to = fmaxf(most, x.shift[m][h]), less = exp2_fast(x.shift[m][h] - to);
                x.shift[m][h] = to;
                x.sum[m][h] *= less;
#pragma unroll
                for (int d = 0; d < OUT; d++) {
                    out[m][d][2 * h] *= less;
                    out[m][d][2 * h + 1] *= less;
                }
            }
#pragma unroll
            for (int n = 0; n < COLS; n++)
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++) {
                    s[m][n][i] = exp2_fast(fmaf(s[m][n][i], scale, -x.shift[m][h]));
                    x.sum[m][h] += s[m][n][i];
                }
        }
}

/* at: of the probability s[0][0][0]; from one query to the next a.seq further. */
template <int ROWS, int COLS>
DEVICE void drop_scores(const attn &a, float (&s)[ROWS][COLS][4], int64_t at)
{
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t row = at + (int64_t)(m * 16 + h * 8) * a.seq;
#pragma unroll
            for (int n = 0; n < COLS; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (drops(a, row + n * 8 + i))
                        s[m][n][2 * h + i] = 0;
        }
}

/* Keys at a time: as many as leave registers for the rest. */
template <int DIM, int ROWS, bool DROP> struct key_block {
    static constexpr int N = DROP ? 32 : DIM > 96 && ROWS > 1 ? 48 : 64;
};

/* 16 ROWS queries a warp, four warps; KEYS keys at a time.  k and v have one tile each: v's next
 * comes while k is multiplied, k's next while v is. */
template <class H, int DIM, int ROWS, bool DROP>
static __global__ void __launch_bounds__(128, 2) forward(attn a, const H *qkv, H *o, float *lse)
{
    constexpr int PITCH = tile<H, DIM>::PITCH, KEYS = key_block<DIM, ROWS, DROP>::N, QUERIES = 64 * ROWS;
    DYNAMIC_SHARED(H, shared);
    H *q = shared, *k = q + QUERIES * PITCH, *v = k + KEYS * PITCH;
    const lane l;
    int warp = warp_of(), head = (int)blockIdx.y, sample = (int)blockIdx.z;
    /* The last queries have most keys: first, so that the end is not waiting for them. */
    int first = ((int)gridDim.x - 1 - (int)blockIdx.x) * QUERIES, row = first + warp * 16 * ROWS;
    int last = first + QUERIES < a.seq ? first + QUERIES : a.seq, kv = head / (a.heads / a.kv_heads);
    const H *keys = qkv + k_at(a, sample, kv);
    float out[ROWS][DIM / 8][4];
    softmax<ROWS> x;

    clear(out);
#pragma unroll
    for (int m = 0; m < ROWS; m++)
        x.shift[m][0] = x.shift[m][1] = -INFINITY, x.sum[m][0] = x.sum[m][1] = 0;
    load_tile<H, DIM, QUERIES, 128>(a, q, qkv + q_at(a, sample, head), a.ld, first, a.seq);
    load_tile<H, DIM, KEYS, 128>(a, k, keys, a.ld, 0, a.seq);
    cp_async_commit();
    for (int key = 0; key < last; key += KEYS) {
        bool seen = row < a.seq && key < row + 16 * ROWS;
        float s[ROWS][KEYS / 8][4];
        cp_async_wait<0>();
        __syncthreads();                /* k is there, v no longer used */
        load_tile<H, DIM, KEYS, 128>(a, v, keys + a.kv_heads * a.dim, a.ld, key, a.seq);
        cp_async_commit();
        if (seen)
            dots<DIM>(l, s, q + warp * 16 * ROWS * PITCH, k);
        cp_async_wait<0>();
        __syncthreads();                /* v is there, k no longer used */
        if (key + KEYS < last) {
            load_tile<H, DIM, KEYS, 128>(a, k, keys, a.ld, key + KEYS, a.seq);
            cp_async_commit();
        }
        if (seen) {
            if (key + KEYS > row + 1)
                mask_keys(s, row + l.row, key + l.col);
            softmax_scores(x, a.scale_log2, s, out);
            if (DROP)
                drop_scores(a, s, (stat_at(a, sample, head) + row + l.row) * a.seq + key + l.col);
            add_product<DIM, DIM>(l, out, s, v);
        }
    }
    float factor[ROWS][2];
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int t = row + m * 16 + h * 8 + l.row;
            float sum = x.sum[m][h];
            sum += __shfl_xor_sync(0xffffffff, sum, 1);
            sum += __shfl_xor_sync(0xffffffff, sum, 2);
            factor[m][h] = a.drop.keep / sum;
            if (l.col == 0 && t < a.seq)
                lse[stat_at(a, sample, head) + t] = x.shift[m][h] / LOG2E + logf(sum);
        }
    store_rows<DIM, DIM>(a, l, out, factor, q + warp * 16 * ROWS * PITCH,
                         o + o_at(a, sample, head) + (int64_t)row * o_pitch(a), o_pitch(a), a.seq - row,
                         a.dim);
}

/* ---- launching ---- */

template <class H, int DIM, int ROWS, bool DROP>
static int launch_forward(const attn &a, const H *qkv, H *o, float *lse, cudaStream_t stream)
{
    int bytes = (64 * ROWS + 2 * key_block<DIM, ROWS, DROP>::N) * tile<H, DIM>::PITCH * 2;
    dim3 grid(blocks_of(a.seq, 64 * ROWS), a.heads, a.batch);
    int error = ALLOW_SHARED((forward<H, DIM, ROWS, DROP>), bytes);

    if (error)
        return error;
    LAUNCH((forward<H, DIM, ROWS, DROP>), grid, 128, bytes, stream, a, qkv, o, lse);
    return cuda_launched("attention");
}

/* What a row of shared memory brings to a product is used ROWS times, so two where the sums fit the
 * registers; those of 128 do not together with dropout's hashes. */
template <int DIM, class H>
static int forward_of(const attn &a, const H *qkv, H *o, float *lse, cudaStream_t stream)
{
    constexpr int ROWS = DIM > 128 ? 1 : 2, DROP_ROWS = DIM > 96 ? 1 : 2;

    return a.drop.limit ? launch_forward<H, DIM, DROP_ROWS, true>(a, qkv, o, lse, stream)
                        : launch_forward<H, DIM, ROWS, false>(a, qkv, o, lse, stream);
}

template <class H> static int forward_in(const attn &a, const H *qkv, H *o, float *lse, cudaStream_t stream)
{
    return a.dim <= 32    ? forward_of<32>(a, qkv, o, lse, stream)
           : a.dim <= 64  ? forward_of<64>(a, qkv, o, lse, stream)
           : a.dim <= 80  ? forward_of<80>(a, qkv, o, lse, stream)
           : a.dim <= 96  ? forward_of<96>(a, qkv, o, lse, stream)
           : a.dim <= 128 ? forward_of<128>(a, qkv, o, lse, stream)
                          : forward_of<256>(a, qkv, o, lse, stream);
}

int attention_forward_in(const attn &a, const bf16 *qkv, bf16 *o, float *lse, cudaStream_t stream)
{
    return forward_in(a, qkv, o, lse, stream);
}

int attention_forward_in(const attn &a, const fp16 *qkv, fp16 *o, float *lse, cudaStream_t stream)
{
    return forward_in(a, qkv, o, lse, stream);
}
