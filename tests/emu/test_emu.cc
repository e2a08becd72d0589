/* test_emu.cc -- the emulator itself, by arithmetic: what it computes, the order that it keeps, and
 * that it sees deliberate errors.  Those end a process, so each has one of its own: this program
 * again, with the error's name.
 *
 *     test_emu            all tests
 *     test_emu time       processor time of a barrier, a shuffle, an mma, a thread
 *     test_emu language   only the tests of what kernels are written in
 *     test_emu NAME       makes that error */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "exec/cuda/common.cuh"

static int passed, failed;
static bool well;                       /* the test that runs, so far */

#define CHECK(what) check((what), #what, __LINE__)
#define OK(call) check((call) == cudaSuccess, #call, __LINE__)

static void check(bool holds, const char *what, int line)
{
    if (holds)
        return;
    if (well)
        printf("test_emu.cc:%d: not so: %s\n", line, what);
    well = false;
}

/* ---- arrays on the device ---- */

template <typename T> struct there {
    T *x;
    size_t n;
    explicit there(size_t n) : x(nullptr), n(n) { OK(cudaMalloc(&x, n * sizeof(T))); }
    explicit there(const std::vector<T> &v) : there(v.size())
    {
        OK(cudaMemcpy(x, v.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    there(const there &) = delete;
    ~there() { OK(cudaFree(x)); }
    std::vector<T> here() const
    {
        std::vector<T> v(n);
        OK(cudaDeviceSynchronize());
        OK(cudaMemcpy(v.data(), x, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};

/* ---- the language ---- */

__global__ void write_indices(int *out)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;

    out[block * threads + thread] = (int)(block * threads + thread);
}

static void every_thread_of_every_block_runs_once_with_its_indices()
{
    there<int> out(3 * 4 * 5 * 2 * 3 * 4);

    LAUNCH(write_indices, dim3(3, 4, 5), dim3(2, 3, 4), 0, 0, out.x);
    CHECK(cudaGetLastError() == cudaSuccess);
    std::vector<int> v = out.here();
    for (size_t i = 0; i < v.size(); i++)
        CHECK(v[i] == (int)i);
}

/* Sums of all elements up to each, in log2(n) rounds of two barriers. */
__global__ void prefix_sums(int *out)
{
    SHARED int sums[1024];
    int i = (int)threadIdx.x;

    sums[i] = i;
    __syncthreads();
    for (int apart = 1; apart < (int)blockDim.x; apart *= 2) {
        int before = i >= apart ? sums[i - apart] : 0;
        __syncthreads();
        sums[i] += before;
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sums[i];
}

static void barriers_hold_all_threads_of_a_block()
{
    for (int n : { 1, 31, 32, 33, 256, 1000, 1024 }) {
        there<int> out((size_t)n * 3);
        LAUNCH(prefix_sums, 3, (unsigned)n, 0, 0, out.x);
        std::vector<int> v = out.here();
        for (int i = 0; i < 3 * n; i++)
            CHECK(v[(size_t)i] == (i % n) * (i % n + 1) / 2);
    }
}

/* Warps that are in different rounds of shuffles at the same time. */
__global__ void shuffles(int *out)
{
    int lane = lane_of(), *o = out + 8 * threadIdx.x, sum = 0;

    for (int round = 0; round <= warp_of(); round++)
        sum += __shfl_sync(0xffffffff, lane, round);
    o[0] = sum;                                                 /* 0 + 1 + ... + warp */
    o[1] = __shfl_xor_sync(0xffffffff, lane, 5);
    o[2] = __shfl_down_sync(0xffffffff, lane, 3);
    o[3] = __shfl_up_sync(0xffffffff, lane, 3);
    o[4] = __shfl_sync(0xffffffff, lane, 9, 8);                 /* lane 1 of each eight */
    o[5] = __shfl_down_sync(0xffffffff, lane, 3, 8);
    o[6] = (int)__ballot_sync(0xffffffff, lane % 3 == 0);
    o[7] = (int)(__shfl_xor_sync(0xffffffff, 1.0 / (lane + 1), 1) * (double)((lane ^ 1) + 1) + 0.5);
}

static void shuffles_move_what_the_lanes_have()
{
    there<int> out(8 * 96);

    LAUNCH(shuffles, 1, 96, 0, 0, out.x);
    std::vector<int> v = out.here();
    for (int t = 0; t < 96; t++) {
        const int *o = &v[(size_t)t * 8];
        int lane = t % 32, warp = t / 32;
        CHECK(o[0] == warp * (warp + 1) / 2);
        CHECK(o[1] == (lane ^ 5));
        CHECK(o[2] == (lane + 3 < 32 ? lane + 3 : lane));
        CHECK(o[3] == (lane >= 3 ? lane - 3 : lane));
        CHECK(o[4] == lane / 8 * 8 + 1);
        CHECK(o[5] == (lane % 8 + 3 < 8 ? lane + 3 : lane));
        CHECK((unsigned)o[6] == 0x49249249);
        CHECK(o[7] == 1);
    }
}

__global__ void sums_and_maxima(float *out)
{
    SHARED float floats[32];
    SHARED double doubles[32];
    float x = (float)threadIdx.x;

    /* The buffer is used again at once. */
    float sum = block_sum(x, floats) + block_sum(1.0f, floats);
    float largest = block_max(-x, floats) + block_max(x, floats);
    double sum2 = block_sum((double)x * x, doubles);
    out[3 * threadIdx.x] = sum;
    out[3 * threadIdx.x + 1] = largest;
    out[3 * threadIdx.x + 2] = (float)sum2;
}

static void sums_over_a_block_reach_every_thread()
{
    for (int n : { 32, 64, 256, 1024 }) {
        there<float> out((size_t)n * 3);
        LAUNCH(sums_and_maxima, 1, (unsigned)n, 0, 0, out.x);
        std::vector<float> v = out.here();
        for (int i = 0; i < n; i++) {
            CHECK(v[(size_t)i * 3] == (float)(n * (n - 1) / 2 + n));
            CHECK(v[(size_t)i * 3 + 1] == (float)(n - 1));
            CHECK(v[(size_t)i * 3 + 2] == (float)((double)(n - 1) * n * (2 * n - 1) / 6));
        }
    }
}

/* ---- tensor cores: with small integers every product and sum is exact ---- */

static float small(int i, int j, int salt) { return (float)((i * 7 + j * 3 + salt) % 13 - 6); }

template <typename H> static H narrowed(float x)
{
    H h;

    put(&h, x);
    return h;
}

static bf16 narrow(float x) { return narrowed<bf16>(x); }

/* a[16][16], b[16][8], d[16][8], by the fragments' definition. */
template <typename H> __global__ void mma_by_hand(const H *a, const H *b, float *d)
{
    int g = lane_of() / 4, c = 2 * (lane_of() % 4);
    uint32_t fa[4], fb[2];
    float fd[4] = { d[g * 8 + c], d[g * 8 + c + 1], d[(g + 8) * 8 + c], d[(g + 8) * 8 + c + 1] };

    for (int i = 0; i < 4; i++) {
        const H *at = a + (g + 8 * (i % 2)) * 16 + c + 8 * (i / 2);
        fa[i] = floats_to_pair<H>(get(at), get(at + 1));
    }
    for (int i = 0; i < 2; i++)
        fb[i] = floats_to_pair<H>(get(b + (c + 8 * i) * 8 + g), get(b + (c + 8 * i + 1) * 8 + g));
    mma_16816<H>(fd, fa, fb);
    d[g * 8 + c] = fd[0];
    d[g * 8 + c + 1] = fd[1];
    d[(g + 8) * 8 + c] = fd[2];
    d[(g + 8) * 8 + c + 1] = fd[3];
}

template <typename H> static void check_mma()
{
    std::vector<H> a(256), b(128);
    std::vector<float> d(128), want(128);

    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            a[(size_t)(i * 16 + j)] = narrowed<H>(small(i, j, 1));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            b[(size_t)(i * 8 + j)] = narrowed<H>(small(i, j, 5));
            d[(size_t)(i * 8 + j)] = want[(size_t)(i * 8 + j)] = (float)(i - j);
        }
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++)
            for (int k = 0; k < 16; k++)
                want[(size_t)(i * 8 + j)] += small(i, k, 1) * small(k, j, 5);
    there<H> da(a), db(b);
    there<float> dd(d);
    LAUNCH(mma_by_hand<H>, 1, 32, 0, 0, da.x, db.x, dd.x);
    CHECK(dd.here() == want);
}

static void mma_is_a_product_of_matrices()
{
    check_mma<bf16>();
    check_mma<fp16>();
}

__global__ void load_matrices(uint32_t *out)
{
    SHARED __align__(16) bf16 tile[32][8];
    uint32_t r[4];

    for (int j = 0; j < 8; j++)
        tile[threadIdx.x][j] = (bf16)(threadIdx.x * 8 + j);
    __syncwarp();
    ldmatrix_x4(r, tile[threadIdx.x]);
    for (int i = 0; i < 4; i++)
        out[threadIdx.x * 8 + i] = r[i];
    ldmatrix_x4_trans(r, tile[threadIdx.x]);
    for (int i = 0; i < 4; i++)
        out[threadIdx.x * 8 + 4 + i] = r[i];
}

static void ldmatrix_hands_out_rows_or_columns()
{
    there<uint32_t> out(32 * 8);

    LAUNCH(load_matrices, 1, 32, 0, 0, out.x);
    std::vector<uint32_t> v = out.here();
    for (unsigned t = 0; t < 32; t++)
        for (unsigned i = 0; i < 4; i++) {
            unsigned g = t / 4, c = 2 * (t % 4), of = i * 64;
            CHECK(v[t * 8 + i] == ((of + g * 8 + c) | (of + g * 8 + c + 1) << 16));
            CHECK(v[t * 8 + 4 + i] == ((of + c * 8 + g) | (of + (c + 1) * 8 + g) << 16));
        }
}

/* A warp's d[16][16] = a[16][K] b[K][16] as kernels do it: cp.async, ldmatrix, mma. */
__global__ void warp_product(const bf16 *a, const bf16 *b, float *d, int K)
{
    DYNAMIC_SHARED(bf16, shared);
    bf16 *ta = shared, *tb = shared + 16 * K;
    int t = lane_of(), g = t / 4, c = 2 * (t % 4);
    float sum[2][4] = {};

    for (int i = t * 8; i < 16 * K; i += 256) {
        cp_async_16(ta + i, a + i);
        cp_async_16(tb + i, b + i);
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    for (int k = 0; k < K; k += 16) {
        uint32_t fa[4], fb[4];
        ldmatrix_x4(fa, ta + (t % 16) * K + k + t / 16 * 8);
        ldmatrix_x4_trans(fb, tb + (k + t % 16) * 16 + t / 16 * 8);
        mma_16816<bf16>(sum[0], fa, fb);
        mma_16816<bf16>(sum[1], fa, fb + 2);
    }
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 4; i++)
            d[(g + 8 * (i / 2)) * 16 + 8 * h + c + i % 2] = sum[h][i];
}

static void cp_async_ldmatrix_and_mma_fit_together()
{
    const int K = 64;
    std::vector<bf16> a(16 * K), b(K * 16);
    std::vector<float> want(256);

    for (int i = 0; i < 16; i++)
        for (int k = 0; k < K; k++) {
            a[(size_t)(i * K + k)] = narrow(small(i, k, 2));
            b[(size_t)(k * 16 + i)] = narrow(small(k, i, 4));
        }
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            for (int k = 0; k < K; k++)
                want[(size_t)(i * 16 + j)] += small(i, k, 2) * small(k, j, 4);
    there<bf16> da(a), db(b);
    there<float> dd((size_t)256);
    LAUNCH(warp_product, 1, 32, 2 * 16 * K * sizeof(bf16), 0, da.x, db.x, dd.x, K);
    CHECK(dd.here() == want);
}

/* Three groups of copies, the second of zeros; what is there after each wait. */
__global__ void copies(const uint32_t *from, uint32_t *seen)
{
    SHARED __align__(16) uint32_t tile[3][4];

    for (int i = 0; i < 3; i++) {
        cp_async_16_if(tile[i], from + 4 * i, i != 1);
        cp_async_commit();
    }
    for (int i = 0; i < 3; i++)
        seen[i] = tile[i][0];
    cp_async_wait<2>();
    for (int i = 0; i < 3; i++)
        seen[3 + i] = tile[i][0];
    cp_async_wait<0>();
    for (int i = 0; i < 3; i++)
        seen[6 + i] = tile[i][0];
}

static void cp_async_is_there_after_the_wait_and_not_before()
{
    std::vector<uint32_t> words(12);
    const uint32_t not_yet = 0xffffffff;

    for (size_t i = 0; i < 12; i++)
        words[i] = 100 + (uint32_t)i;
    there<uint32_t> from(words), seen(9);
    LAUNCH(copies, 1, 1, 0, 0, from.x, seen.x);
    CHECK(seen.here() == (std::vector<uint32_t>{ not_yet, not_yet, not_yet, 100, not_yet, not_yet, 100, 0, 108 }));
}

/* ---- common.cuh's elements ---- */

template <typename T> __global__ void twice(T *x)
{
    vec<T> v = load16(x + threadIdx.x * vec<T>::N);

    for (int i = 0; i < vec<T>::N; i++)
        v.v[i] *= 2;
    store16(x + threadIdx.x * vec<T>::N, v);
}

template <typename T> static void check_twice()
{
    std::vector<T> x(32 * vec<T>::N);

    for (size_t i = 0; i < x.size(); i++)
        put(&x[i], (float)i);
    there<T> dx(x);
    LAUNCH((twice<T>), 1, 32, 0, 0, dx.x);
    x = dx.here();
    for (size_t i = 0; i < x.size(); i++)
        CHECK(get(&x[i]) == (float)(2 * i));
}

static void sixteen_bytes_are_four_floats_or_eight_of_16_bits()
{
    check_twice<float>();
    check_twice<bf16>();
    check_twice<fp16>();
}

/* Every bf16 survives; between neighbours the nearer is taken, the even one when halfway. */
static void bf16_is_rounded_to_the_nearest()
{
    for (uint32_t h = 0; h < 0x7f80; h++) {
        uint32_t half = h << 16 | 0x8000;
        float below, at, above;
        uint32_t bits = half - 1;
        memcpy(&below, &bits, 4);
        memcpy(&at, &half, 4);
        bits = half + 1;
        memcpy(&above, &bits, 4);
        CHECK(float_to_bf16(bf16_to_float((bf16)h)) == h);
        CHECK(float_to_bf16(below) == h);
        CHECK(float_to_bf16(above) == h + 1);
        CHECK(float_to_bf16(at) == (h + 1) / 2 * 2);
        CHECK(float_to_bf16(-below) == (h | 0x8000));
    }
    CHECK(bf16_to_float(float_to_bf16(NAN)) != bf16_to_float(float_to_bf16(NAN)));
    CHECK(floats_to_pair<bf16>(1.0f, -2.0f) == 0xc0003f80);
    CHECK(pair_low<bf16>(0xc0003f80) == 1.0f && pair_high<bf16>(0xc0003f80) == -2.0f);
    CHECK(floats_to_pair<fp16>(1.0f, -2.0f) == 0xc0003c00);
    CHECK(pair_low<fp16>(0xc0003c00) == 1.0f && pair_high<fp16>(0xc0003c00) == -2.0f);
    CHECK(floats_to_pair<fp16>(65519.0f, -65520.0f) == 0xfc007bff);
}

extern "C" {
struct dropout { double p; uint64_t key; int64_t first; };      /* exec/kernels/kernels.h, which is C */
bool dropout_drops(const struct dropout *d, int64_t i);
}

__global__ void drop(float *x, launch_drop d)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

    x[i] = dropped(d, i, 1.0f);
}

static void dropout_drops_what_the_host_drops()
{
    struct dropout host = { 0.25, 0x123456789abcdef, 1000 };
    launch_drop d = { host.key + 1000 * 0x9e3779b97f4a7c15, 1u << 30, 1.25f };
    there<float> x(4096);
    int gone = 0;

    LAUNCH(drop, 16, 256, 0, 0, x.x, d);
    std::vector<float> v = x.here();
    for (int i = 0; i < 4096; i++) {
        bool drops = dropout_drops(&host, i);
        CHECK(v[(size_t)i] == (drops ? 0.0f : 1.25f));
        gone += drops;
    }
    CHECK(gone > 900 && gone < 1150);   /* 1024, and 28 is its standard deviation */
}

/* ---- memory ---- */

__global__ void count_numbers(const float *x, int *out)
{
    SHARED float fixed[4];
    DYNAMIC_SHARED(float, given);

    out[3 * blockIdx.x] = x[0] == x[0];
    out[3 * blockIdx.x + 1] = fixed[3] == fixed[3];
    out[3 * blockIdx.x + 2] = given[15] == given[15];
    if (out[3 * blockIdx.x] == 2)       /* never, but the compiler must believe it */
        fixed[3] = 0;
    given[15] = 1;
}

static void fresh_memory_is_nan()
{
    there<float> x(4);
    there<int> out(6);

    LAUNCH(count_numbers, 2, 1, 64, 0, x.x, out.x);
    CHECK(out.here() == std::vector<int>(6, 0));
}

static void memory_is_counted_and_limited()
{
    size_t before, now, total;
    void *p = nullptr, *too_much = nullptr;

    OK(cudaMemGetInfo(&before, &total));
    CHECK(total == (size_t)64 << 20);   /* main() */
    OK(cudaMalloc(&p, 5 << 20));
    OK(cudaMemGetInfo(&now, &total));
    CHECK(before - now == (size_t)6 << 20);
    CHECK(cudaMalloc(&too_much, 60 << 20) == cudaErrorMemoryAllocation && !too_much);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    OK(cudaFree(p));
    OK(cudaMemGetInfo(&now, &total));
    CHECK(now == before);
    CHECK(cudaFree(p) == cudaErrorInvalidValue);
    cudaGetLastError();
}

static void a_copy_must_say_what_it_copies()
{
    float here[4] = {}, *pinned = nullptr;
    there<float> x(4);
    const size_t bytes = sizeof here;

    OK(cudaMallocHost(&pinned, bytes));
    OK(cudaMemcpy(x.x, here, bytes, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(pinned, x.x, bytes, cudaMemcpyDefault));
    CHECK(pinned[3] == 0);
    CHECK(cudaMemcpy(here, x.x, bytes, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(x.x, here, bytes, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(x.x, here, bytes, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(pinned, x.x + 1, bytes, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaMemset(pinned, 0, bytes) == cudaErrorInvalidValue);
    CHECK(cudaFree(pinned) == cudaErrorInvalidValue);
    cudaGetLastError();
    OK(cudaFreeHost(pinned));
}

/* ---- launches ---- */

__global__ void nothing() {}

static cudaError_t launched(dim3 grid, dim3 block, size_t shared, cudaStream_t s = nullptr)
{
    LAUNCH(nothing, grid, block, shared, s);
    return cudaGetLastError();
}

static void a_launch_beyond_the_limits_is_refused()
{
    CHECK(launched(1, 1024, 48 << 10) == cudaSuccess);
    CHECK(launched(1, 1025, 0) == cudaErrorInvalidConfiguration);
    CHECK(launched(1, dim3(32, 33), 0) == cudaErrorInvalidConfiguration);
    CHECK(launched(1, dim3(1, 1, 65), 0) == cudaErrorInvalidConfiguration);
    CHECK(launched(0, 32, 0) == cudaErrorInvalidConfiguration);
    CHECK(launched(dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
    CHECK(launched(1, 32, (48 << 10) + 1) == cudaErrorInvalidValue);
    CHECK(ALLOW_SHARED(nothing, 163 << 10) == 0);
    CHECK(launched(1, 32, 163 << 10) == cudaSuccess);
    CHECK(ALLOW_SHARED(nothing, (163 << 10) + 1) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    OK(cudaDeviceSynchronize());
}

static void a_stream_belongs_to_its_device()
{
    cudaStream_t s;
    cudaEvent_t e;
    int device;

    OK(cudaSetDevice(1));
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaSetDevice(0));
    OK(cudaEventCreate(&e));
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
    OK(cudaGetDevice(&device));
    CHECK(device == 0);
    CHECK(launched(1, 32, 0, s) == cudaErrorInvalidResourceHandle);
    CHECK(cudaEventRecord(e, s) == cudaErrorInvalidResourceHandle);
    OK(cudaStreamWaitEvent(s, e));
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
    CHECK(cudaStreamSynchronize(s) == cudaErrorInvalidResourceHandle);
    CHECK(cudaEventQuery(e) == cudaErrorInvalidResourceHandle);
    cudaGetLastError();
}

/* ---- order ---- */

__global__ void add_one(int *x, const int *y) { *x = *y + 1; }

/* Two streams take turns, ordered by events; then without them, which must be seen to go wrong. */
static int alternations_that_went_wrong(bool ordered)
{
    enum { TURNS = 40, TRIES = 20 };
    cudaStream_t s[2];
    cudaEvent_t e[2];
    there<int> x(TURNS + 1);
    int wrong = 0;

    for (int i = 0; i < 2; i++) {
        OK(cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking));
        OK(cudaEventCreateWithFlags(&e[i], cudaEventDisableTiming));
    }
    for (int n = 0; n < TRIES; n++) {
        OK(cudaMemset(x.x, 0, x.n * sizeof(int)));
        OK(cudaDeviceSynchronize());
        for (int i = 0; i < TURNS; i++) {
            LAUNCH(add_one, 1, 1, 0, s[i % 2], x.x + i + 1, x.x + i);
            OK(cudaEventRecord(e[i % 2], s[i % 2]));
            if (ordered)
                OK(cudaStreamWaitEvent(s[(i + 1) % 2], e[i % 2]));
        }
        wrong += x.here()[TURNS] != TURNS;
    }
    for (int i = 0; i < 2; i++) {
        OK(cudaStreamDestroy(s[i]));
        OK(cudaEventDestroy(e[i]));
    }
    return wrong;
}

static void events_order_streams_and_nothing_else_does()
{
    CHECK(alternations_that_went_wrong(true) == 0);
    CHECK(alternations_that_went_wrong(false) > 0);
}

static void hold(void *gate)
{
    while (!*(std::atomic<bool> *)gate)
        usleep(100);
}

static void work_is_done_later_in_order_and_events_tell()
{
    std::atomic<bool> open(false);
    cudaStream_t s;
    cudaEvent_t before, after;
    there<int> x(std::vector<int>{ 7, 0 });
    int *pinned;
    float ms;

    OK(cudaMallocHost(&pinned, sizeof(int)));
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaEventCreate(&before));
    OK(cudaEventCreate(&after));
    OK(cudaEventQuery(after));          /* never recorded: nothing to wait for */
    OK(cudaEventRecord(before, s));
    OK(cudaLaunchHostFunc(s, hold, &open));
    LAUNCH(add_one, 1, 1, 0, s, x.x + 1, x.x);
    *pinned = 0;
    OK(cudaMemcpyAsync(pinned, x.x + 1, sizeof(int), cudaMemcpyDeviceToHost, s));
    OK(cudaEventRecord(after, s));
    OK(cudaEventSynchronize(before));   /* passed: from here it is 3 ms at least until the gate opens */
    usleep(3000);
    CHECK(*pinned == 0);
    CHECK(cudaEventQuery(after) == cudaErrorNotReady);
    CHECK(cudaStreamQuery(s) == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaErrorNotReady);             /* as on a device: who asks must clear it */
    CHECK(cudaEventElapsedTime(&ms, before, after) == cudaErrorNotReady);
    cudaGetLastError();
    open = true;
    OK(cudaEventSynchronize(after));
    CHECK(*pinned == 8);
    OK(cudaEventElapsedTime(&ms, before, after));
    CHECK(ms >= 2.9f);
    OK(cudaStreamQuery(s));
    OK(cudaEventDestroy(before));
    OK(cudaEventDestroy(after));
    OK(cudaStreamDestroy(s));
    OK(cudaFreeHost(pinned));
}

static void pageable_memory_is_staged()
{
    std::atomic<bool> open(false);
    std::vector<int> here(1, 5);
    cudaStream_t s;
    there<int> x(1);

    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaLaunchHostFunc(s, hold, &open));
    OK(cudaMemcpyAsync(x.x, here.data(), sizeof(int), cudaMemcpyHostToDevice, s));
    here[0] = 6;                        /* it was taken already */
    open = true;
    OK(cudaMemcpyAsync(here.data(), x.x, sizeof(int), cudaMemcpyDeviceToHost, s));
    CHECK(here[0] == 5);                /* and is there on return */
    OK(cudaStreamDestroy(s));
}

static void the_default_stream_waits_for_blocking_streams_only()
{
    std::atomic<bool> open(false);
    cudaStream_t blocking, free_one;

    OK(cudaStreamCreate(&blocking));
    OK(cudaStreamCreateWithFlags(&free_one, cudaStreamNonBlocking));
    OK(cudaLaunchHostFunc(free_one, hold, &open));
    CHECK(launched(1, 1, 0) == cudaSuccess);
    OK(cudaStreamSynchronize(nullptr));         /* comes back: it does not wait for that one */
    OK(cudaLaunchHostFunc(blocking, hold, &open));
    CHECK(launched(1, 1, 0) == cudaSuccess);
    usleep(3000);
    CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
    cudaGetLastError();
    open = true;
    OK(cudaStreamSynchronize(nullptr));
    OK(cudaStreamDestroy(blocking));
    OK(cudaStreamDestroy(free_one));
}

static void nothing_is_left_over()
{
    struct emu_alive n = emu_alive();

    CHECK(n.device_memory == 0 && n.pinned_memory == 0 && n.streams == 0 && n.events == 0);
}

/* ---- deliberate errors ---- */

__global__ void write_at(char *x, long at) { x[at] = 1; }
__global__ void misaligned(const float *x, float *y) { store16(y, load16(x + 1)); }
__global__ void host_memory(int *x) { *x = 1; }

__global__ void return_early(int *x)
{
    if (threadIdx.x == 40)
        return;
    __syncthreads();
    *x = 1;
}

__global__ void two_barriers(int *x)
{
    if (threadIdx.x < 32) {
        __syncthreads();
        *x = 1;
    } else {
        __syncthreads();
        *x = 2;
    }
}

__global__ void half_a_shuffle(int *x)
{
    if (threadIdx.x < 16)
        *x = __shfl_xor_sync(0xffffffff, 1, 1);
    __syncthreads();
}

__global__ void dynamic_overflow()
{
    DYNAMIC_SHARED(float, s);

    s[16] = 1;
}

__global__ void ldmatrix_of_global(uint32_t *x)
{
    uint32_t r[4];

    ldmatrix_x4(r, x);
    x[0] = r[0];
}

static int deep(int n)
{
    volatile char room[1 << 12];

    room[0] = (char)n;
    return n ? deep(n - 1) + room[0] : 0;
}

__global__ void deep_stack(int *x) { *x = deep(1000); }

static char *device_bytes;              /* 1000 of them */
static int *freed;

static void run_freed()
{
    LAUNCH(host_memory, 1, 1, 0, 0, (int *)device_bytes);
    OK(cudaDeviceSynchronize());
    /* A pointer in a structure is not seen by the launch. */
    emu_enqueue(nullptr, "", [](void *) { *freed = 1; }, nullptr);
}

static int on_the_stack;

static const struct error { const char *name, *says; void (*make)(); } deliberate[] = {
    { "beyond", "write_at, block 0 0 0, thread 0 0 0: touches", [] { LAUNCH(write_at, 1, 1, 0, 0, device_bytes, 5000L); } },
    { "beyond_how_far", "4000 bytes beyond the end of 1000 bytes of device memory",
      [] { LAUNCH(write_at, 1, 1, 0, 0, device_bytes, 5000L); } },
    { "just_beyond", "0 bytes beyond the end of an allocation of 1000 bytes was written",
      [] { LAUNCH(write_at, 1, 1, 0, 0, device_bytes, 1000L); } },
    { "before", "1 bytes before an allocation of 1000 bytes was written",
      [] { LAUNCH(write_at, 1, 1, 0, 0, device_bytes, -1L); } },
    { "misaligned", "kernel misaligned, block 0 0 0, thread 0 0 0: a load of 16 bytes",
      [] { LAUNCH(misaligned, 1, 1, 0, 0, (float *)device_bytes, (float *)device_bytes); } },
    { "host_pointer", "kernel host_memory is given", [] { LAUNCH(host_memory, 1, 1, 0, 0, &on_the_stack); } },
    { "return_early", "in vain: 1 of 64 threads have ended",
      [] { LAUNCH(return_early, 1, 64, 0, 0, (int *)device_bytes); } },
    { "two_barriers", "kernel two_barriers", [] { LAUNCH(two_barriers, 1, 64, 0, 0, (int *)device_bytes); } },
    { "half_a_shuffle", "threads wait for each other: 0 at a shuffle",
      [] { LAUNCH(half_a_shuffle, 1, 32, 0, 0, (int *)device_bytes); } },
    { "small_warp", "a warp of 8 threads", [] { LAUNCH(half_a_shuffle, 1, 8, 0, 0, (int *)device_bytes); } },
    { "dynamic_overflow", "dynamic shared memory of 64 bytes was written 0 bytes after its end",
      [] { LAUNCH(dynamic_overflow, 1, 1, 64, 0); } },
    { "not_shared", "which is not shared memory",
      [] { LAUNCH(ldmatrix_of_global, 1, 32, 0, 0, (uint32_t *)device_bytes); } },
    { "deep_stack", "the stack of an emulated thread is full",
      [] { LAUNCH(deep_stack, 1, 1, 0, 0, (int *)device_bytes); } },
    { "given_back", "is in 4 bytes that were given back", run_freed },
    { "host_touches", "it is device memory, which the host cannot touch",
      [] { setenv("DPX_EMU_PROTECT", "1", 1); device_bytes[0] = 1; } },
};

static int make_error(const char *name)
{
    if (!strcmp(name, "host_touches"))
        setenv("DPX_EMU_PROTECT", "1", 1);
    for (const error &e : deliberate)
        if (!strcmp(e.name, name)) {
            if (cudaMalloc(&device_bytes, 1000) || cudaMalloc(&freed, 4) || cudaFree(freed))
                return 1;
            e.make();
            cudaDeviceSynchronize();
            fprintf(stderr, "nothing was noticed\n");
            return 0;
        }
    fprintf(stderr, "%s is none of the errors\n", name);
    return 2;
}

static const char *self;

static void deliberate_errors_are_told()
{
    for (const error &e : deliberate) {
        std::string said;
        char line[512];
        FILE *f = popen((std::string(self) + " " + e.name + " 2>&1").c_str(), "r");
        CHECK(f != nullptr);
        while (f && fgets(line, sizeof line, f))
            said += line;
        int status = f ? pclose(f) : 0;
        if (status == 0 || said.find(e.says) == std::string::npos) {
            printf("%s: should say \"%s\", says: %s", e.name, e.says, said.c_str());
            CHECK(!"told");
        }
    }
}

/* Whichever thread goes first, a kernel that is right gives the same. */
static void any_order_of_threads_gives_the_same()
{
    for (const char *order : { "down", "1", "2", "3" }) {
        std::string command = std::string("DPX_EMU_ORDER=") + order + " " + self + " language >/dev/null";
        CHECK(system(command.c_str()) == 0);
    }
}

/* ---- speed ---- */

__global__ void only_barriers(int n) { for (int i = 0; i < n; i++) __syncthreads(); }
__global__ void only_shuffles(int n, int *x)
{
    int y = 0;

    for (int i = 0; i < n; i++)
        y += __shfl_xor_sync(0xffffffff, i, 1);
    if (y == -1)
        *x = y;
}
__global__ void only_mma(int n, float *x)
{
    uint32_t a[4] = {}, b[2] = {};
    float d[4] = {};

    for (int i = 0; i < n; i++)
        mma_16816<bf16>(d, a, b);
    if (d[0] != 0)
        *x = d[0];
}
__global__ void one_each(int *x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1; }

/* Of the processor, by all threads: others may use the machine. */
static double seconds()
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

template <typename F> static void timed(const char *what, double n, F run)
{
    double best = 1e9;

    for (int i = 0; i < 5; i++) {
        double start = seconds();
        run();
        cudaDeviceSynchronize();
        double took = seconds() - start;
        best = took < best ? took : best;
    }
    printf("%-44s %8.1f ns\n", what, 1e9 * best / n);
}

static int print_times()
{
    int *x;

    if (cudaMalloc(&x, (1 << 20) * sizeof(int)))
        return 1;
    timed("a barrier, per thread of 256", 256e3, [] { LAUNCH(only_barriers, 1, 256, 0, 0, 1000); });
    timed("a barrier, per thread of 1024", 1024e3, [] { LAUNCH(only_barriers, 1, 1024, 0, 0, 1000); });
    timed("a shuffle, per thread of 256", 256e3, [=] { LAUNCH(only_shuffles, 1, 256, 0, 0, 1000, x); });
    timed("mma of a warp (4096 FLOP)", 8e3, [=] { LAUNCH(only_mma, 1, 256, 0, 0, 1000, (float *)x); });
    timed("a thread without barriers", 1 << 20, [=] { LAUNCH(one_each, 4096, 256, 0, 0, x); });
    timed("a launch", 1000, [=] { for (int i = 0; i < 1000; i++) LAUNCH(one_each, 1, 1, 0, 0, x); });
    return cudaFree(x);
}

/* ---- */

#define TEST(name) { #name, name }
static const struct test { const char *name; void (*run)(); } tests[] = {
    TEST(every_thread_of_every_block_runs_once_with_its_indices),
    TEST(barriers_hold_all_threads_of_a_block),
    TEST(shuffles_move_what_the_lanes_have),
    TEST(sums_over_a_block_reach_every_thread),
    TEST(mma_is_a_product_of_matrices),
    TEST(ldmatrix_hands_out_rows_or_columns),
    TEST(cp_async_ldmatrix_and_mma_fit_together),
    TEST(cp_async_is_there_after_the_wait_and_not_before),
    TEST(sixteen_bytes_are_four_floats_or_eight_of_16_bits),
    TEST(bf16_is_rounded_to_the_nearest),
    TEST(dropout_drops_what_the_host_drops),
    TEST(fresh_memory_is_nan),
    { nullptr, nullptr },               /* "language" ends here */
    TEST(memory_is_counted_and_limited),
    TEST(a_copy_must_say_what_it_copies),
    TEST(a_launch_beyond_the_limits_is_refused),
    TEST(a_stream_belongs_to_its_device),
    TEST(events_order_streams_and_nothing_else_does),
    TEST(work_is_done_later_in_order_and_events_tell),
    TEST(pageable_memory_is_staged),
    TEST(the_default_stream_waits_for_blocking_streams_only),
    TEST(nothing_is_left_over),
    TEST(deliberate_errors_are_told),
    TEST(any_order_of_threads_gives_the_same),
};

int main(int argc, char **argv)
{
    bool language = argc > 1 && !strcmp(argv[1], "language");

    self = argv[0];
    if (argc > 1 && !strcmp(argv[1], "time"))
        return print_times();
    if (argc > 1 && !language)
        return make_error(argv[1]);
    setenv("DPX_EMU_DELAY", "1", 1);
    setenv("DPX_EMU_DEVICES", "2", 1);
    setenv("DPX_EMU_MEMORY", "67108864", 1);
    for (const test &t : tests) {
        if (!t.name && language)
            break;
        if (!t.name)
            continue;
        printf("[ RUN      ] %s\n", t.name);
        fflush(stdout);
        well = true;
        t.run();
        printf("[  %s  ] %s\n", well ? "     OK" : "FAILED ", t.name);
        ++(well ? passed : failed);
    }
    printf("[  PASSED  ] %d test(s).\n", passed);
    if (failed)
        printf("[  FAILED  ] %d test(s), listed above\n", failed);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
