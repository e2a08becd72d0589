/* test_attention.c -- the launchers of attention.h on the emulator, beside the reference on the host. */
#include "tests/exec/kernels_check.h"
#include "exec/cuda/attention.h"
#include "exec/kernels/kernels_internal.h"

#include <cuda_runtime_api.h>
#include <emu.h>
#include <stdio.h>

/* test_attention.cc */
int attention_forward_within(const struct launch_attention *c, int shared, const void *qkv, void *o,
                             float *lse, struct CUstream_st *s);
int attention_backward_within(const struct launch_attention *c, int shared, const void *qkv, const float *lse,
                              const void *dout, const float *delta, void *dqkv, struct CUstream_st *s);

#define OK(call) assert_int_equal((int)(call), 0)

static struct kernels *ref;
static double ref_workspace[4 * ATTENTION_DIM];

/* ---- arrays on the device ---- */

/* Guards included: a.base there. */
struct there { char *base; void *x; int64_t bytes; };

static struct there to_device(const struct array *a, int64_t skew)
{
    struct there t = { .bytes = a->n * dtype_bytes(a->t) };
    char *image = malloc((size_t)t.bytes + 3 * GUARD);

    assert_non_null(image);
    memset(image, GUARD_BYTE, (size_t)t.bytes + 3 * GUARD);
    memcpy(image + GUARD + skew, a->x, (size_t)t.bytes);
    OK(cudaMalloc((void **)&t.base, (size_t)t.bytes + 3 * GUARD));
    OK(cudaMemcpy(t.base, image, (size_t)t.bytes + 3 * GUARD, cudaMemcpyHostToDevice));
    OK(cudaDeviceSynchronize());        /* what cudaMemcpy() took may be only staged */
    free(image);
    t.x = t.base + GUARD + skew;
    return t;
}

/* Back into `a`, or NULL; what lies around it must be as it was. */
static void from_device(struct there *t, struct array *a)
{
    size_t all = (size_t)t->bytes + 3 * GUARD, before = (size_t)((char *)t->x - t->base);
    unsigned char *image = malloc(all);

    assert_non_null(image);
    OK(cudaMemcpy(image, t->base, all, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < all; i++)
        if ((i < before || i >= before + (size_t)t->bytes) && image[i] != GUARD_BYTE)
            fail_msg("byte %zd of an array of %" PRId64 " was written", (ssize_t)(i - before), t->bytes);
    if (a)
        memcpy(a->x, image + before, (size_t)t->bytes);
    free(image);
    OK(cudaFree(t->base));
}

/* ---- calls ---- */

static struct launch_attention launch_of(const struct attention *a)
{
    struct dropout_rule r = dropout_rule(&a->drop);

    return (struct launch_attention){
        .batch = a->batch, .seq = a->seq, .heads = a->heads, .kv_heads = a->kv_heads, .dim = a->dim,
        .ld = a->ld, .scale = (float)a->scale, .at = (enum launch_dtype)a->at,
        .drop = { r.seed, r.limit, r.keep },
    };
}

/* o, lse, delta and dqkv of one set of kernels. */
struct results { struct array o, lse, delta, dqkv; };

static struct results new_results(const struct attention *a)
{
    int64_t n = a->batch * a->seq;

    return (struct results){ array_new(n * a->heads * a->dim, a->at), array_new(n * a->heads, DT_FP32),
                             array_new(n * a->heads, DT_FP32), array_new(n * a->ld, a->at) };
}

static void free_results(struct results *r)
{
    array_free(&r->o), array_free(&r->lse), array_free(&r->delta), array_free(&r->dqkv);
}

static struct results reference(const struct attention *a, const struct array *qkv, const struct array *dout)
{
    const struct kernel_ops *ops = kernels_ops(ref);
    struct results r = new_results(a);

    OK(ops->attention(ref, a, qkv->x, r.o.x, r.lse.x));
    OK(ops->attention_back(ref, a, qkv->x, r.o.x, r.lse.x, dout->x, r.delta.x, r.dqkv.x));
    return r;
}

/* Backward from the reference's o and log-sum-exp.  shared: bytes of it, or 0: the device's.  skew:
 * bytes by which arrays miss a multiple of 16. */
static struct results attend(const struct attention *a, const struct array *qkv, const struct array *dout,
                             const struct results *want, int shared, int64_t skew)
{
    struct launch_attention c = launch_of(a);
    struct results r = new_results(a);
    struct there x = to_device(qkv, skew), d = to_device(dout, skew), o = to_device(&r.o, skew);
    struct there lse = to_device(&r.lse, 0), delta = to_device(&r.delta, 0), dx = to_device(&r.dqkv, skew);
    struct there o_in = to_device(&want->o, skew), lse_in = to_device(&want->lse, 0);
    cudaStream_t s;

    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    if (shared) {
        OK(attention_forward_within(&c, shared, x.x, o.x, lse.x, s));
        OK(attention_backward(&c, x.x, o_in.x, lse_in.x, d.x, delta.x, dx.x, s));
        OK(cudaStreamSynchronize(s));
        from_device(&dx, NULL);
        dx = to_device(&r.dqkv, 0);                     /* poisoned again */
        OK(attention_backward_within(&c, shared, x.x, lse_in.x, d.x, delta.x, dx.x, s));
    } else {
        OK(attention_forward(&c, x.x, o.x, lse.x, s));
        OK(attention_backward(&c, x.x, o_in.x, lse_in.x, d.x, delta.x, dx.x, s));
    }
    OK(cudaStreamSynchronize(s));
    OK(cudaStreamDestroy(s));
    from_device(&o, &r.o), from_device(&lse, &r.lse);
    from_device(&delta, &r.delta), from_device(&dx, &r.dqkv);
    from_device(&x, NULL), from_device(&d, NULL), from_device(&o_in, NULL), from_device(&lse_in, NULL);
    return r;
}

/* ---- comparing ---- */

/* The largest errors of a run, in units of what is allowed: printed at the end.  o, log-sum-exp,
 * delta, gradients; then the root mean squares of o's and gradients' errors. */
enum { O, LSE, DELTA, BACK, O_RMS, BACK_RMS, CHECKS };
static double worst[3][CHECKS];          /* by dtype */

static void note(double error, double *most) { *most = error > *most ? error : *most; }

static void check_array(const char *what, const struct array *got, const struct array *want, double tol,
                        double size, double *most)
{
    for (int64_t i = 0; i < want->n; i++) {
        double g = array_get(got, i), w = array_get(want, i);
        note(fabs(g - w) / (tol * (fabs(w) + size)), most);
    }
    assert_same(what, got, want, tol, size);
}

/* Over all elements that are numbers: errors of one element may be large, but not all of them. */
static void check_rms(const char *what, const struct array *got, const struct array *want, double tol,
                      double *most)
{
    double errors = 0, squares = 0;

    for (int64_t i = 0; i < want->n; i++) {
        double g = array_get(got, i), w = array_get(want, i);
        if (!isnan(w))
            errors += (g - w) * (g - w), squares += w * w;
    }
    note(sqrt(errors) / (tol * sqrt(squares) + 1e-30), most);
    if (!(sqrt(errors) <= tol * sqrt(squares)))
        fail_msg("%s: errors are %.3g of the numbers, root of mean squares", what, sqrt(errors / squares));
}

/* In 16 bits probabilities and gradients of scores are rounded before they are multiplied: 2^-9 (bf16) or
 * 2^-12 of each term, of which those of o are up to 1, and those of gradients as large as q, k and dO.
 * Gradients of a row's scores add up to 0: where keys are large and alike little is left of dq. */
static void check(const struct attention *a, const struct results *got, const struct results *want,
                  double size)
{
    bool half = a->at != DT_FP32;
    double *most = worst[a->at], unit = a->at == DT_BF16 ? 0x1p-7 : 0x1p-10, tol = half ? unit : 4e-6 * size * size;
    double back_size = half ? size : size * size * size;
    double back_rms = half ? unit / 2 * (size > 1 ? 4 : 1) : 2e-6 * size * size;

    check_array("attention", &got->o, &want->o, tol, half ? 0.25 : size > 1 ? size : 0.05, &most[O]);
    check_array("log-sum-exp", &got->lse, &want->lse, 1e-6, size * size, &most[LSE]);
    check_array("attention delta", &got->delta, &want->delta, 4e-6, 1, &most[DELTA]);
    check_array("attention backward", &got->dqkv, &want->dqkv, tol, back_size, &most[BACK]);
    check_rms("attention", &got->o, &want->o, half ? unit / 2 : 1e-6 * size * size, &most[O_RMS]);
    check_rms("attention backward", &got->dqkv, &want->dqkv, back_rms, &most[BACK_RMS]);
}

static void check_attention(const struct attention *a, int shared, int64_t skew, double size)
{
    struct array qkv = array_random(a->batch * a->seq * a->ld, a->at, size);
    struct array dout = array_random(a->batch * a->seq * a->heads * a->dim, a->at, 1);
    struct results want = reference(a, &qkv, &dout);
    struct results got = attend(a, &qkv, &dout, &want, shared, skew);

    check(a, &got, &want, size);
    free_results(&got), free_results(&want);
    array_free(&qkv), array_free(&dout);
}

static struct attention attention_of(enum dtype at, int64_t dim, int64_t seq, int64_t kv_heads, int64_t group)
{
    struct attention a = { .batch = 1, .seq = seq, .heads = kv_heads * group, .kv_heads = kv_heads,
                           .dim = dim, .at = at, .scale = 1 / sqrt((double)dim) };

    a.ld = (a.heads + 2 * a.kv_heads) * dim;
    return a;
}

static struct dropout random_dropout(void)
{
    return (struct dropout){ .p = 0.2, .key = random_bits(), .first = random_int(0, 99) };
}

/* ---- tests ---- */

static const int64_t seqs[] = { 1, 5, 63, 64, 65, 130 }, dims[] = { 16, 32, 64, 80, 96, 128 };

static void every_length_of_every_dim_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < 6; d++)
            for (int s = 0; s < 6; s++) {
                int64_t kv = random_int(1, 2), group = random_int(1, 2);
                struct attention a = attention_of(dtype_if(!i), dims[d], seqs[s], kv, group);
                if (seqs[s] < 64)
                    a.batch = 2;
                if ((d + s) % 2)
                    a.drop = random_dropout();
                check_attention(&a, 0, 0, 1);
            }
}

/* More than two blocks of 128 rows, a group of four heads, two samples. */
static void several_blocks_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        enum dtype at = dtype_if(i % 2 == 0);
        struct attention a = attention_of(at, i < 2 ? 64 : 128, 257 + 32 * i, 1, 4 - i);
        a.batch = i == 1 ? 2 : 1;
        if (i == 3)
            a.drop = random_dropout();
        check_attention(&a, 0, 0, 1);
    }
}

static void heads_wider_than_128_equal_the_reference(void **state)
{
    static const int64_t wide[] = { 144, 192, 256 };

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct attention a = attention_of(dtype_if(i % 2 == 0), wide[i / 2], 70 + i, 1, 1 + i % 3 / 2);
        if (i % 3 == 1)
            a.drop = random_dropout();
        check_attention(&a, 0, 0, 1);
    }
}

/* Neither 16 bytes at a time, nor a dim of a multiple of 16, nor rows without gaps. */
static void odd_dims_and_addresses_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        enum dtype at = dtype_if(i % 2 == 0);
        struct attention a = attention_of(at, i < 8 ? random_int(1, 140) : 8 * random_int(1, 16),
                                          random_int(1, 140), random_int(1, 2), random_int(1, 3));
        a.ld += i % 4 < 2 ? random_int(1, 7) : 8;
        if (i % 3 == 0)
            a.drop = random_dropout();
        check_attention(&a, 0, i % 3 ? 0 : dtype_bytes(at) * random_int(1, 3), 1);
    }
}

/* 99 KiB: cards for desktops.  227 KiB: sm_90, where the emulator's 163 KiB still hold a block. */
static void other_sizes_of_shared_memory_change_nothing(void **state)
{
    static const int64_t sizes[] = { 80, 96, 128, 256 };

    (void)state;
    for (int i = 0; i < 16; i++) {
        enum dtype at = dtype_if(!(i & 1));
        struct attention a = attention_of(at, sizes[i / 4], i % 3 ? 65 : 140, 1, 1 + i % 2);
        if (i & 4)
            a.drop = random_dropout();
        check_attention(&a, (i & 2 ? 227 : 99) << 10, 0, 1);
    }
}

/* Scores of some hundreds: without the running maximum e^score would overflow. */
static void large_scores_do_not_overflow(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct attention a = attention_of(DT_FP32, 30 + 20 * i, 80, 1, 2);
        a.scale = 1;
        check_attention(&a, 0, 0, 6);
    }
}

/* Keys that grow with their number: the running maximum rises in every block of every row, by
 * little and by much. */
static void rising_scores_equal_the_reference(void **state)
{
    static const double rise[] = { 0.01, 0.1, 1 };

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct attention a = attention_of(dtype_if(i % 2 == 0), 64, 200, 1, 1);
        struct array qkv = array_random(a.seq * a.ld, a.at, 1), dout = array_random(a.seq * a.dim, a.at, 1);
        for (int64_t t = 0; t < a.seq; t++) {
            array_set(&qkv, t * a.ld, 8);               /* q's and k's first elements */
            array_set(&qkv, t * a.ld + a.dim, rise[i / 2] * (double)t);
        }
        struct results want = reference(&a, &qkv, &dout), got = attend(&a, &qkv, &dout, &want, 0, 0);
        check(&a, &got, &want, a.at != DT_FP32 ? fmax(1, 200 * rise[i / 2]) : i < 4 ? 4 : 14);
        free_results(&got), free_results(&want);
        array_free(&qkv), array_free(&dout);
    }
}

static void bits_are_the_same_on_every_run(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct attention a = attention_of(dtype_if(i % 2 == 0), 64, 130, 2, 2);
        if (i > 1)
            a.drop = random_dropout();
        struct array qkv = array_random(a.batch * a.seq * a.ld, a.at, 1);
        struct array dout = array_random(a.batch * a.seq * a.heads * a.dim, a.at, 1);
        struct results want = reference(&a, &qkv, &dout);
        struct results once = attend(&a, &qkv, &dout, &want, 0, 0);
        struct results again = attend(&a, &qkv, &dout, &want, 0, 0);
        assert_memory_equal(once.o.x, again.o.x, (size_t)(once.o.n * dtype_bytes(a.at)));
        assert_memory_equal(once.lse.x, again.lse.x, (size_t)once.lse.n * 4);
        assert_memory_equal(once.dqkv.x, again.dqkv.x, (size_t)(once.dqkv.n * dtype_bytes(a.at)));
        free_results(&want), free_results(&once), free_results(&again);
        array_free(&qkv), array_free(&dout);
    }
}

/* With v of ones and keys of zero a query's output is the share of its probabilities that are
 * left, times keep: the very bits of dropout_drops(). */
static void dropout_has_the_hosts_bits(void **state)
{
    struct attention a = attention_of(DT_FP32, 16, 100, 1, 2);
    struct array qkv = array_random(a.seq * a.ld, a.at, 0);
    struct array dout = array_random(a.seq * a.heads * a.dim, a.at, 1);

    (void)state;
    a.drop = random_dropout();
    for (int64_t t = 0; t < a.seq; t++)
        for (int64_t j = 0; j < a.dim; j++)
            array_set(&qkv, t * a.ld + 3 * a.dim + j, 1);
    struct results want = reference(&a, &qkv, &dout), got = attend(&a, &qkv, &dout, &want, 0, 0);
    for (int64_t h = 0; h < a.heads; h++)
        for (int64_t t = 0; t < a.seq; t++) {
            int left = 0;
            for (int64_t u = 0; u <= t; u++)
                left += !dropout_drops(&a.drop, (h * a.seq + t) * a.seq + u);
            double share = array_get(&got.o, (t * a.heads + h) * a.dim) * (1 - a.drop.p);
            assert_close(share * (double)(t + 1), left, 1e-5);
        }
    free_results(&want), free_results(&got);
    array_free(&qkv), array_free(&dout);
}

/* All and none: p = 1 leaves nothing, and its gradients are zero. */
static void dropping_all_leaves_zeros(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct attention a = attention_of(dtype_if(!i), 32, 70, 1, 1);
        struct array qkv = array_random(a.seq * a.ld, a.at, 1), dout = array_random(a.seq * a.dim, a.at, 1);
        struct results want = reference(&a, &qkv, &dout);
        for (int64_t j = 0; j < want.o.n; j++)
            array_set(&want.o, j, 0);
        a.drop = (struct dropout){ .p = 1, .key = 3 };
        struct results got = attend(&a, &qkv, &dout, &want, 0, 0);
        for (int64_t j = 0; j < got.o.n; j++)
            assert_true(array_get(&got.o, j) == 0);
        for (int64_t j = 0; j < got.dqkv.n; j++)
            assert_true(array_get(&got.dqkv, j) == 0);
        free_results(&want), free_results(&got);
        array_free(&qkv), array_free(&dout);
    }
}

/* ---- rotary ---- */

static void check_rotary(const struct attention *a, int64_t rot, int64_t skew)
{
    struct launch_attention c = launch_of(a);
    struct array freq = array_random(rot / 2, DT_FP32, 1);
    struct array x = array_random(a->batch * a->seq * a->ld, a->at, 1);
    struct array got = array_like(&x), want = array_like(&x);
    struct there f = to_device(&freq, 0), once = to_device(&x, skew), twice = to_device(&x, skew);
    double tol = half_tol(a->at, 1e-6);

    OK(kernels_ops(ref)->rotary(ref, a, rot, freq.x, want.x, false));
    OK(attention_rotary(&c, rot, f.x, once.x, false, NULL));
    OK(attention_rotary(&c, rot, f.x, twice.x, false, NULL));
    OK(attention_rotary(&c, rot, f.x, twice.x, true, NULL));
    OK(cudaDeviceSynchronize());
    from_device(&once, &got);
    assert_same("rotary", &got, &want, tol, half_size(a->at, 0.02, 1));
    from_device(&twice, &got);
    assert_same("rotary and back", &got, &x, 2 * tol, 1);
    from_device(&f, NULL);
    array_free(&freq), array_free(&x), array_free(&got), array_free(&want);
}

static void rotary_equals_the_reference_and_its_inverse_undoes_it(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        enum dtype at = host_dtype();
        int64_t dim = i % 2 ? random_int(1, 70) * 2 : dims[i / 2 % 6];
        struct attention a = attention_of(at, dim, random_int(1, 60), random_int(1, 5), random_int(1, 4));
        a.batch = random_int(1, 3);
        a.ld += coin() ? random_int(1, 7) : 0;
        int64_t rot = i % 4 ? random_int(1, a.dim / 2) * 2 : a.dim;
        check_rotary(&a, rot, coin() ? 0 : dtype_bytes(at));
    }
}

/* ---- what is refused ---- */

static void wrong_arguments_are_refused_and_nothing_is_queued(void **state)
{
    struct attention good = attention_of(DT_BF16, 64, 10, 2, 2), bad[8];
    long long before = emu_launches();
    float x[16] = { 0 };

    (void)state;
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].batch = 0, bad[1].seq = 0, bad[2].kv_heads = 3, bad[3].dim = ATTENTION_DIM + 1, bad[3].ld = 10000;
    bad[4].ld--, bad[5].scale = 0, bad[6].kv_heads = 0, bad[7].batch = 1 << 20;
    for (int i = 0; i < 8; i++) {
        struct launch_attention c = launch_of(&bad[i]);
        assert_int_equal(attention_forward(&c, x, x, x, NULL), cudaErrorInvalidValue);
        assert_int_equal(attention_backward(&c, x, x, x, x, x, x, NULL), cudaErrorInvalidValue);
        assert_int_equal(attention_rotary(&c, 64, x, x, false, NULL), cudaErrorInvalidValue);
    }
    struct launch_attention c = launch_of(&good);
    assert_int_equal(attention_rotary(&c, 66, x, x, false, NULL), cudaErrorInvalidValue);
    assert_int_equal(attention_rotary(&c, 63, x, x, false, NULL), cudaErrorInvalidValue);
    assert_int_equal(attention_rotary(&c, 0, x, x, false, NULL), cudaErrorInvalidValue);
    assert_true(emu_launches() == before);
}

/* ---- parts ---- */

/* Three parts one after the other from the reference's sums before each: what they leave is the reference's. */
static void check_parts(enum dtype at, int64_t dim, int64_t seq, int64_t skew)
{
    struct attention a = attention_of(at, dim, seq, 1 + seq % 2, 1 + dim % 3);
    int64_t n = a.seq, wide = 2 * a.kv_heads * a.dim, o_wide = a.heads * a.dim, pitch = o_wide + 3;
    const struct kernel_ops *ops = kernels_ops(ref);
    struct launch_attention c = launch_of(&a);
    struct array qkv = array_random(n * a.ld, at, 1), dout = array_random(n * o_wide, at, 1), delta = array_random(n * a.heads, DT_FP32, 1);
    struct array o = array_new(n * o_wide, DT_FP32), lse = array_new(n * a.heads, DT_FP32), dq = array_new(n * pitch, DT_FP32);
    double tol = half_tol(at, 8e-6);
    bool two = seq % 2 == 0 && dim % 3 == 1;        /* runs */

    if (dim % 3) {
        a.drop = random_dropout();
        c = launch_of(&a);
    }
    for (int i = 0; i < 4; i++) {
        struct array kv = array_random(n * wide, at, 1), dkv = array_new(n * wide, at), dkv_ref = array_new(n * wide, at);
        struct array o_got = array_like(&o), lse_got = array_like(&lse), dq_got = array_like(&dq), delta_got = array_like(&delta);
        struct attention_part p = { .kv = kv.x, .ld = wide, .from = i == 1 ? seq / 2 : 0, .keys = i == 2 ? seq / 2 : seq, .causal = i == 0,
                                    .fresh = i == 0,
                                    .at = { a.heads + 1, 4 * seq, two ? seq / 2 : seq, { seq, 3 * seq }, { i * seq / 2, 2 * seq } } };
        struct there x = to_device(&qkv, skew), d = to_device(&dout, skew), k = to_device(&kv, skew), o_at = to_device(&o, 0);
        struct there lse_at = to_device(&lse, 0), dq_at = to_device(&dq, 0), dkv_at = to_device(&dkv, skew), deltas = to_device(&delta, 0);
        struct launch_part of = { k.x, p.ld, p.from, p.keys, pitch, wide, p.causal, p.fresh,
                                  { p.at.heads, p.at.seq, p.at.run, { p.at.row[0], p.at.row[1] }, { p.at.key[0], p.at.key[1] } } };
        cudaStream_t s;
        OK(ops->attention_part(ref, &a, &p, qkv.x, o.x, lse.x));
        OK(ops->attention_part_back(ref, &a, &p, qkv.x, lse.x, dout.x, delta.x, dq.x, pitch, dkv_ref.x, wide));
        struct there lse_in = to_device(&lse, 0);
        OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        OK(attention_part_forward(&c, &of, x.x, o_at.x, lse_at.x, s));
        OK(attention_part_backward(&c, &of, x.x, lse_in.x, d.x, deltas.x, dq_at.x, dkv_at.x, s));
        OK(attention_deltas(&c, d.x, d.x, deltas.x, s));
        OK(cudaStreamSynchronize(s));
        OK(cudaStreamDestroy(s));
        from_device(&o_at, &o_got), from_device(&lse_at, &lse_got), from_device(&dq_at, &dq_got), from_device(&dkv_at, &dkv);
        from_device(&deltas, &delta_got);
        assert_same("output of parts", &o_got, &o, 8e-6, 1);
        assert_same("log-sum-exp of parts", &lse_got, &lse, 2e-6, 1);
        assert_same("dq of parts", &dq_got, &dq, 8e-6, 4);
        assert_same("dk, dv of a part", &dkv, &dkv_ref, tol, half_size(at, 0.1, 4));
        from_device(&x, NULL), from_device(&d, NULL), from_device(&k, NULL), from_device(&lse_in, NULL);
        array_free(&kv), array_free(&dkv), array_free(&dkv_ref), array_free(&o_got), array_free(&lse_got), array_free(&dq_got);
        array_free(&delta_got);
    }
    array_free(&qkv), array_free(&dout), array_free(&delta), array_free(&o), array_free(&lse), array_free(&dq);
}

static void parts_equal_the_reference(void **state)
{
    static const int64_t sizes[] = { 12, 64, 80, 128, 136 }, lengths[] = { 2, 64, 70, 130 };

    (void)state;
    for (int d = 0; d < 5; d++)
        for (int i = 0; i < 4; i++) {
            check_parts(dtype_if(i % 2 == 0), sizes[d], lengths[(d + i) % 4], 0);
            if (i == d)
                check_parts(dtype_if(i % 2 == 0), sizes[d], lengths[i], i % 2 ? 2 : 4);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_of_every_dim_equals_the_reference),
        cmocka_unit_test(several_blocks_equal_the_reference),
        cmocka_unit_test(heads_wider_than_128_equal_the_reference),
        cmocka_unit_test(odd_dims_and_addresses_equal_the_reference),
        cmocka_unit_test(other_sizes_of_shared_memory_change_nothing),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(rising_scores_equal_the_reference),
        cmocka_unit_test(bits_are_the_same_on_every_run),
        cmocka_unit_test(dropout_has_the_hosts_bits),
        cmocka_unit_test(dropping_all_leaves_zeros),
        cmocka_unit_test(rotary_equals_the_reference_and_its_inverse_undoes_it),
        cmocka_unit_test(wrong_arguments_are_refused_and_nothing_is_queued),
        cmocka_unit_test(parts_equal_the_reference),
    };
    int failed, all = (int)(sizeof tests / sizeof *tests);

    ref = kernels_open(1, ref_workspace, sizeof ref_workspace, true);
    if (!ref)
        return 1;
    failed = cmocka_run_group_tests_name("exec/cuda attention", tests, NULL, NULL);
    kernels_close(ref);
    for (int i = 0; i < 3; i++)
        printf("%s: largest errors, of what is allowed: o %.2f, log-sum-exp %.2f, delta %.2f, "
               "gradients %.2f; in the mean: o %.2f, gradients %.2f\n", dtype_name((enum dtype)i), worst[i][O],
               worst[i][LSE], worst[i][DELTA], worst[i][BACK], worst[i][O_RMS], worst[i][BACK_RMS]);
    printf("%d passed, %d failed\n", all - failed, failed);
    return failed != 0;
}
