/* Linear layers on the emulated device beside the reference.  cuBLASLt is emulated too: what is
 * tested is which arrays are handed to it, how they are turned, cast, added and cut. */
#include "tests/emu/device_check.h"

#include "exec/cuda/gemm_cuda.h"
#include "exec/cuda/kernels_cuda.h"

struct layer {
    struct linear l;
    bool bias, residual, own, add;
    bool scaled, each_row, each_col;    /* operands were rounded to 8 bits: struct scales */
    struct dropout drop;
};

/* Activations, weights and gradients are of fp32 or of one format of 16 bits. */
static enum dtype any_half(void) { return coin() ? DT_BF16 : DT_FP16; }
static enum dtype one_of(enum dtype half) { return coin() ? DT_FP32 : half; }

static struct layer random_layer(int64_t most)
{
    struct layer y = { .bias = coin(), .residual = coin(), .own = coin(), .add = coin() };
    enum dtype half = any_half();

    y.l = (struct linear){ .n = random_int(1, most), .in = random_int(1, most), .out = random_int(1, most),
                           .in_out = coin(), .at = one_of(half), .wt = one_of(half), .gt = one_of(half) };
    y.l.ldx = y.l.in + (coin() ? random_int(1, 9) : 0);
    y.l.ldy = y.l.out + (coin() ? random_int(1, 9) : 0);
    y.scaled = y.l.at != DT_FP16 && random_int(0, 3) == 0;
    y.each_row = coin(), y.each_col = coin();
    if (random_int(0, 3) == 0)
        y.drop = (struct dropout){ .p = 0.25, .key = random_bits(), .first = random_int(0, 99) };
    return y;
}

/* 16 bits: sums that differ a little may round to neighbours.  fp32: rounding of a sum of products of
 * numbers up to 1, which grows with the sum's own size. */
static double tolerance(enum dtype to) { return half_tol(to, 1e-6); }

static double size_of_sum(enum dtype to, int64_t terms) { return half_size(to, 0.02, sqrt((double)terms)); }

/* Some of cuBLASLt's kernels round a product to 16 bits before they add C or a bias to it (seen on an H200, cuBLASLt 13.1: sums of
 * 0.06 lay on the grid of numbers from 0.5 to 1), as PyTorch does in two calls. */
static double size_of_added(enum dtype to, int64_t terms, bool added)
{
    return size_of_sum(to, terms) + (to != DT_FP32 && added ? sqrt((double)terms) : 0);
}

/* In 16 bits a bias of fp32 is rounded, and so is a product before its dropout. */
static double forward_size(const struct layer *y)
{
    const struct linear *l = &y->l;
    double size = size_of_added(l->at, l->in, y->residual || y->bias);

    if (l->at != DT_FP32 && y->bias && l->wt != l->at)
        size += 0.5;
    if (l->at != DT_FP32 && y->drop.p > 0)
        size += sqrt((double)l->in);
    return size;
}

/* The layer with scales on the host, and with those on the device. */
struct scaled_layer { struct linear host, there; struct array a, b; struct there da, db; };

static struct array random_scales(int64_t n)
{
    struct array a = array_new(n, DT_FP32);

    for (int64_t i = 0; i < n; i++)
        array_set(&a, i, 1.5 + random_real() / 2);
    return a;
}

/* Of a result of so many rows and columns. */
static struct scaled_layer with_scales(const struct layer *y, int64_t rows, int64_t cols)
{
    struct scaled_layer s = { .host = y->l, .there = y->l, .a = random_scales(y->each_row ? rows : 1), .b = random_scales(y->each_col ? cols : 1) };

    s.da = to_device(&s.a);
    s.db = to_device(&s.b);
    if (y->scaled) {
        s.host.scales = (struct scales){ s.a.x, s.b.x, y->each_row, y->each_col };
        s.there.scales = (struct scales){ s.da.x, s.db.x, y->each_row, y->each_col };
    }
    return s;
}

static void scaled_gone(struct scaled_layer *s)
{
    drop_device(&s->da), drop_device(&s->db);
    array_free(&s->a), array_free(&s->b);
}

static struct array random_w(const struct layer *y) { return array_random(y->l.in * y->l.out, y->l.wt, 1); }

static void check_forward(const struct layer *y)
{
    const struct linear *l = &y->l;
    struct array x = array_random(l->n * l->ldx, l->at, 1), w = random_w(y);
    struct array bias = array_random(l->out, l->wt, 1), r = array_random(l->n * l->ldy, l->at, 1);
    struct array got = y->own && y->residual ? array_like(&r) : array_new(l->n * l->ldy, l->at);
    struct array want = array_like(&got);
    struct there dx = to_device(&x), dw = to_device(&w), db = to_device(&bias), dr = to_device(&r);
    struct there dy = to_device(&got);
    const void *from = y->residual ? y->own ? dy.x : dr.x : NULL;

    struct scaled_layer both = with_scales(y, l->n, l->out);
    OK(gpu.ops->linear(gpu.k, &both.there, dx.x, dw.x, y->bias ? db.x : NULL, dy.x, from, &y->drop));
    OK(gpu.ref->linear(gpu.ref_k, &both.host, x.x, w.x, y->bias ? bias.x : NULL, want.x,
                       y->residual ? y->own ? want.x : r.x : NULL, &y->drop));
    from_device(&dy, &got);
    assert_same("linear", &got, &want, tolerance(l->at), forward_size(y));
    scaled_gone(&both);
    drop_device(&dx), drop_device(&dw), drop_device(&db), drop_device(&dr);
    array_free(&x), array_free(&w), array_free(&bias), array_free(&r), array_free(&got), array_free(&want);
}

static void check_dx(const struct layer *y)
{
    const struct linear *l = &y->l;
    struct array dy = array_random(l->n * l->ldy, l->at, 1), w = random_w(y);
    struct array got = y->add ? array_random(l->n * l->ldx, l->at, 1) : array_new(l->n * l->ldx, l->at);
    struct array want = array_like(&got);
    struct there ddy = to_device(&dy), dw = to_device(&w), dx = to_device(&got);

    struct scaled_layer both = with_scales(y, l->n, l->in);
    OK(gpu.ops->linear_dx(gpu.k, &both.there, ddy.x, dw.x, dx.x, y->add));
    OK(gpu.ref->linear_dx(gpu.ref_k, &both.host, dy.x, w.x, want.x, y->add));
    from_device(&dx, &got);
    assert_same("linear dx", &got, &want, tolerance(l->at), size_of_added(l->at, l->out, y->add));
    scaled_gone(&both);
    drop_device(&ddy), drop_device(&dw);
    array_free(&dy), array_free(&w), array_free(&got), array_free(&want);
}

static void check_dw(const struct layer *y)
{
    const struct linear *l = &y->l;
    enum grad_into into = y->add ? GRAD_ADD : GRAD_SET;
    struct array x = array_random(l->n * l->ldx, l->at, 1), dy = array_random(l->n * l->ldy, l->at, 1);
    struct array got = y->add ? array_random(l->in * l->out, l->gt, 1) : array_new(l->in * l->out, l->gt);
    struct array db = y->add ? array_random(l->out, l->gt, 1) : array_new(l->out, l->gt);
    struct array want = array_like(&got), want_db = array_like(&db);
    struct there dx = to_device(&x), ddy = to_device(&dy), dw = to_device(&got), ddb = to_device(&db);
    /* Rounded to fp32 on its way to 16 bits. */
    enum dtype sums = l->at == DT_FP16 && l->gt == DT_FP32 ? DT_FP16 : l->gt;
    double tol = tolerance(sums);

    struct scaled_layer both = with_scales(y, l->out, l->in);
    OK(gpu.ops->linear_dw(gpu.k, &both.there, dx.x, ddy.x, dw.x, y->bias ? ddb.x : NULL, into));
    OK(gpu.ref->linear_dw(gpu.ref_k, &both.host, x.x, dy.x, want.x, y->bias ? want_db.x : NULL, into));
    from_device(&dw, &got), from_device(&ddb, &db);
    assert_same("linear dw", &got, &want, tol, size_of_added(sums, l->n, y->add));
    assert_same("linear db", &db, &want_db, tol, size_of_sum(sums, l->n));
    scaled_gone(&both);
    drop_device(&dx), drop_device(&ddy);
    array_free(&x), array_free(&dy), array_free(&got), array_free(&db);
    array_free(&want), array_free(&want_db);
}

static void check_layer(const struct layer *y)
{
    check_forward(y);
    check_dx(y);
    check_dw(y);
}

static void random_layers_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 90; i++) {
        struct layer y = random_layer(i < 20 ? 4 : 60);
        check_layer(&y);
    }
}

/* All dtypes of activations, weights and gradients, both layouts, set and add. */
static void every_kind_of_layer_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++) {
        struct layer y = random_layer(4);
        enum dtype half = any_half();
        y.l = (struct linear){ .n = 16, .in = 24, .out = 8 + 8 * (i % 3), .in_out = i & 1, .ldx = 24,
                               .at = i & 2 ? half : DT_FP32, .wt = i & 4 ? half : DT_FP32,
                               .gt = i & 8 ? half : DT_FP32 };
        y.l.ldy = y.l.out + (i & 16 ? 8 : 0);
        y.add = i & 32;
        y.scaled = y.scaled && y.l.at != DT_FP16;
        check_layer(&y);
    }
}

/* Scales of every kind: both layouts, by the tensor, by rows and columns, a bias, dropout, a residual. */
static void layers_of_rounded_operands_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++) {
        struct layer y = { .bias = i & 1, .residual = i & 2, .own = i & 4, .add = i & 2, .scaled = true, .each_row = i & 8, .each_col = i & 16 };
        enum dtype t = i & 32 ? DT_BF16 : DT_FP32;
        y.l = (struct linear){ .n = random_int(1, 40), .in = random_int(1, 40), .out = random_int(1, 300), .in_out = i / 3 & 1,
                               .at = t, .wt = t, .gt = i / 5 & 1 ? t : DT_FP32 };
        y.l.ldx = y.l.in + i % 3, y.l.ldy = y.l.out + i % 2;
        if (i % 7 == 0)
            y.drop = (struct dropout){ .p = 0.25, .key = random_bits(), .first = 11 };
        check_layer(&y);
    }
}

/* As exec/test_kernels_linear.c has them. */
static void large_layers_equal_the_reference(void **state)
{
    static const int64_t shape[][3] = { { 530, 40, 130 }, { 40, 1030, 130 }, { 130, 530, 40 },
                                        { 5, 4100, 70 }, { 70, 5, 4100 }, { 3, 600, 700 } };

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct layer y = random_layer(4);
        y.l.n = shape[i][0], y.l.in = shape[i][1], y.l.out = shape[i][2];
        y.l.ldx = y.l.in + (i % 2 ? 3 : 0), y.l.ldy = y.l.out + (i / 2 % 2 ? 5 : 0);
        y.drop.p = 0;
        check_layer(&y);
    }
}

/* 4 MiB of fp32 are 1048 rows of 1000. */
static void dropout_over_several_strips_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct layer y = { .bias = true, .residual = true, .own = true,
                           .drop = { .p = 0.3, .key = 77, .first = 12345 } };
        y.l = (struct linear){ 1100 * (i + 1), 5, 1000, true, DT_FP32, DT_FP32, DT_FP32, 5, 1003, { 0 } };
        y.l.at = i ? DT_BF16 : DT_FP32;
        check_forward(&y);
    }
}

/* Rows of a strip have their own scales, and places. */
static void rounded_operands_over_several_strips_equal_the_reference(void **state)
{
    struct layer y = { .bias = true, .residual = true, .own = true, .scaled = true, .each_row = true, .each_col = true,
                       .drop = { .p = 0.3, .key = 77, .first = 12345 } };

    (void)state;
    y.l = (struct linear){ 1100, 5, 1000, false, DT_BF16, DT_BF16, DT_FP32, 5, 1003, { 0 } };
    check_forward(&y);
    y.l = (struct linear){ 3, 1000, 1100, false, DT_BF16, DT_BF16, DT_FP32, 1000, 1100, { 0 } };
    check_dw(&y);
}

static void gradients_over_several_strips_equal_the_reference(void **state)
{
    struct layer y = { .bias = true, .add = true };

    (void)state;
    for (int i = 0; i < 2; i++) {
        y.l = (struct linear){ 3, 1100, 1000, i, DT_FP32, DT_FP32, i ? DT_FP16 : DT_BF16, 1100, 1000, { 0 } };
        check_dw(&y);
    }
}

static void a_layer_is_the_same_on_every_run(void **state)
{
    struct linear l = { 300, 70, 90, true, DT_FP32, DT_FP32, DT_FP32, 70, 90, { 0 } };
    struct array x = array_random(l.n * l.ldx, l.at, 1), w = array_random(l.in * l.out, l.at, 1);
    struct array once = array_new(l.n * l.ldy, l.at), again = array_new(l.n * l.ldy, l.at);
    struct there dx = to_device(&x), dw = to_device(&w);

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct there y = to_device(&once), z = to_device(&again);
        OK(gpu.ops->linear(gpu.k, &l, dx.x, dw.x, NULL, y.x, NULL, NULL));
        OK(gpu.ops->linear(gpu.k, &l, dx.x, dw.x, NULL, z.x, NULL, NULL));
        from_device(&y, &once), from_device(&z, &again);
        assert_memory_equal(once.x, again.x, (size_t)once.n * 4);
    }
    drop_device(&dx), drop_device(&dw);
    array_free(&x), array_free(&w), array_free(&once), array_free(&again);
}

/* Timing algorithms runs a product several times: what it adds to must be added to once. */
static void tuned_layers_equal_the_reference(void **state)
{
    (void)state;
    kernels_cuda_tune(gpu.k, true);
    for (int i = 0; i < 12; i++) {
        struct layer y = random_layer(40);
        y.add = true, y.residual = true;
        check_layer(&y);
    }
    kernels_cuda_tune(gpu.k, false);
}

/* ---- what cannot be done ---- */

static void refused(const char *reason, int (*call)(struct kernels *k), struct kernels *k)
{
    char said[400];

    fail_capture(said, sizeof said);
    assert_int_equal(call(k), -1);
    fail_capture(NULL, 0);
    if (!strstr(said, reason))
        fail_msg("said \"%s\", not \"%s\"", said, reason);
}

static int no_rows(struct kernels *k)
{
    const struct linear l = { 0, 4, 4, true, DT_FP32, DT_FP32, DT_FP32, 4, 4, { 0 } };

    return gpu.ops->linear(k, &l, gpu.workspace, gpu.workspace, NULL, gpu.workspace, NULL, NULL);
}

static int narrow_rows(struct kernels *k)
{
    const struct linear l = { 4, 4, 4, true, DT_FP32, DT_FP32, DT_FP32, 3, 4, { 0 } };

    return gpu.ops->linear_dx(k, &l, gpu.workspace, gpu.workspace, gpu.workspace, false);
}

/* A cast of 2^24 weights takes 32 MiB, and 16 are left. */
static int large_cast(struct kernels *k)
{
    const struct linear l = { 4, 1 << 12, 1 << 12, true, DT_BF16, DT_FP32, DT_FP32, 1 << 12, 1 << 12, { 0 } };

    return gpu.ops->linear(k, &l, gpu.workspace, gpu.workspace, NULL, gpu.workspace, NULL, NULL);
}

static int small_layer(struct kernels *k, enum dtype weights)
{
    const struct linear l = { 4, 4, 4, true, weights, DT_FP32, DT_FP32, 4, 4, { 0 } };

    return gpu.ops->linear(k, &l, gpu.workspace, gpu.workspace, NULL, gpu.workspace, NULL, NULL);
}

static int small_cast(struct kernels *k) { return small_layer(k, DT_BF16); }

/* A stream without a workspace multiplies what needs none (PowerSGD's products) and casts nothing. */
static void what_cannot_be_multiplied_is_reported(void **state)
{
    struct kernels *copier = kernels_open_on(gpu.device, STREAM_COPY_IN, 1, NULL, 0, false);

    (void)state;
    assert_non_null(copier);
    refused("a linear layer of [0, 4]", no_rows, gpu.k);
    refused("in rows of 3", narrow_rows, gpu.k);
    refused("workspace", large_cast, gpu.k);
    refused("workspace", small_cast, copier);
    assert_int_equal(small_layer(copier, DT_FP32), 0);
    kernels_close(copier);
}

static void a_workspace_below_32_mib_is_refused(void **state)
{
    char said[300];

    (void)state;
    fail_capture(said, sizeof said);
    assert_null(kernels_open_on(gpu.device, STREAM_COMPUTE, 1, gpu.workspace, 1 << 20, false));
    assert_non_null(strstr(said, "cuBLASLt alone takes"));
    assert_null(kernels_open_on(gpu.device, STREAM_COMPUTE, 1, gpu.workspace, WORKSPACE, true));
    assert_non_null(strstr(said, "reference"));
    fail_capture(NULL, 0);
}

static void the_kernels_are_named(void **state)
{
    (void)state;
    assert_memory_equal(gpu.ops->name, "cuda: ", 6);
    assert_non_null(strstr(gpu.ops->name, device_name(gpu.device)));
    assert_non_null(strstr(gpu.ops->name, ", cuBLASLt 13."));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_layers_equal_the_reference),
        cmocka_unit_test(every_kind_of_layer_equals_the_reference),
        cmocka_unit_test(large_layers_equal_the_reference),
        cmocka_unit_test(dropout_over_several_strips_equals_the_reference),
        cmocka_unit_test(layers_of_rounded_operands_equal_the_reference),
        cmocka_unit_test(rounded_operands_over_several_strips_equal_the_reference),
        cmocka_unit_test(gradients_over_several_strips_equal_the_reference),
        cmocka_unit_test(a_layer_is_the_same_on_every_run),
        cmocka_unit_test(tuned_layers_equal_the_reference),
        cmocka_unit_test(what_cannot_be_multiplied_is_reported),
        cmocka_unit_test(a_workspace_below_32_mib_is_refused),
        cmocka_unit_test(the_kernels_are_named),
    };

    int failed = gpu_tests("emu/kernels linear", tests);

    print_message("%d passed, %d failed\n", (int)(sizeof tests / sizeof *tests) - failed, failed);
    return failed;
}
