/* test_kernels_linear.c -- matrix products and their gradients on the host against sums in double precision. */
#include "tests/exec/kernels_check.h"

/* One random layer: its shape, and what is asked of it. */
struct layer {
    struct linear l;
    bool bias, residual, own, add;
    bool scaled, each_a, each_b;
    struct dropout drop;
    int threads;
};

static struct kernels_need need_of(const struct layer *y)
{
    return (struct kernels_need){ .n = y->l.n, .widest_in = y->l.in, .widest_out = y->l.out,
                                  .threads = y->threads, .at = y->l.at, .wt = y->l.wt };
}

static struct layer random_layer(int64_t most)
{
    struct layer y = { .bias = coin(), .residual = coin(), .own = coin(), .add = coin(),
                       .threads = 1 + (int)coin() };

    y.l = (struct linear){ .n = random_int(1, most), .in = random_int(1, most), .out = random_int(1, most),
                           .in_out = coin(), .at = host_dtype() };
    y.l.wt = coin() ? y.l.at : DT_FP32;
    y.l.gt = host_dtype();
    y.l.ldx = y.l.in + (coin() ? random_int(1, 9) : 0);
    y.l.ldy = y.l.out + (coin() ? random_int(1, 9) : 0);
    if (random_int(0, 3) == 0)
        y.drop = (struct dropout){ .p = 0.25, .key = random_bits() };
    y.scaled = random_int(0, 3) == 0;
    y.each_a = coin(), y.each_b = coin();
    return y;
}

/* 16 bits: sums that differ a little may round to neighbours.  fp32: rounding of a
 * sum of products of numbers up to 1, which grows with the sum's own size. */
static double tolerance(enum dtype to) { return half_tol(to, 1e-6); }

static double size_of_sum(enum dtype to, int64_t terms) { return half_size(to, 0.02, sqrt((double)terms)); }

static struct array random_w(const struct layer *y) { return array_random(y->l.in * y->l.out, y->l.wt, 1); }

/* From 1 to 2, for a result of rows x cols; nothing where the layer has none. */
static struct linear with_scales(const struct layer *y, int64_t rows, int64_t cols, struct array *a, struct array *b)
{
    struct linear l = y->l;

    *a = array_random(rows, DT_FP32, 0.5), *b = array_random(cols, DT_FP32, 0.5);
    for (int64_t i = 0; i < rows; i++)
        array_set(a, i, array_get(a, i) + 1.5);
    for (int64_t i = 0; i < cols; i++)
        array_set(b, i, array_get(b, i) + 1.5);
    if (y->scaled)
        l.scales = (struct scales){ a->x, b->x, y->each_a, y->each_b };
    return l;
}

static void check_forward(const struct layer *y)
{
    struct array sa, sb;
    const struct linear scaled = with_scales(y, y->l.n, y->l.out, &sa, &sb), *l = &scaled;
    struct kernels_need need = need_of(y);
    struct both b = open_both(&need);
    struct array x = array_random(l->n * l->ldx, l->at, 1), w = random_w(y);
    struct array bias = array_random(l->out, l->wt, 1), r = array_random(l->n * l->ldy, l->at, 1);
    struct array got = y->own && y->residual ? array_like(&r) : array_new(l->n * l->ldy, l->at);
    struct array want = array_like(&got);
    const void *from = y->residual ? r.x : NULL;

    assert_int_equal(b.host.ops->linear(b.host.k, l, x.x, w.x, y->bias ? bias.x : NULL, got.x,
                                        from && y->own ? got.x : from, &y->drop), 0);
    assert_int_equal(b.ref.ops->linear(b.ref.k, l, x.x, w.x, y->bias ? bias.x : NULL, want.x,
                                       from && y->own ? want.x : from, &y->drop), 0);
    assert_same("linear", &got, &want, tolerance(l->at), size_of_sum(l->at, l->in));
    array_free(&x), array_free(&w), array_free(&bias), array_free(&r), array_free(&got), array_free(&want);
    array_free(&sa), array_free(&sb);
    close_both(&b);
}

static void check_dx(const struct layer *y)
{
    struct array sa, sb;
    const struct linear scaled = with_scales(y, y->l.n, y->l.in, &sa, &sb), *l = &scaled;
    struct kernels_need need = need_of(y);
    struct both b = open_both(&need);
    struct array dy = array_random(l->n * l->ldy, l->at, 1), w = random_w(y);
    struct array got = y->add ? array_random(l->n * l->ldx, l->at, 1) : array_new(l->n * l->ldx, l->at);
    struct array want = array_like(&got);

    assert_int_equal(b.host.ops->linear_dx(b.host.k, l, dy.x, w.x, got.x, y->add), 0);
    assert_int_equal(b.ref.ops->linear_dx(b.ref.k, l, dy.x, w.x, want.x, y->add), 0);
    assert_same("linear dx", &got, &want, tolerance(l->at), size_of_sum(l->at, l->out));
    array_free(&dy), array_free(&w), array_free(&got), array_free(&want);
    array_free(&sa), array_free(&sb);
    close_both(&b);
}

static void check_dw(const struct layer *y)
{
    struct array sa, sb;
    const struct linear scaled = with_scales(y, y->l.out, y->l.in, &sa, &sb), *l = &scaled;
    struct kernels_need need = need_of(y);
    struct both b = open_both(&need);
    enum grad_into into = y->add ? GRAD_ADD : GRAD_SET;
    struct array x = array_random(l->n * l->ldx, l->at, 1), dy = array_random(l->n * l->ldy, l->at, 1);
    struct array got = y->add ? array_random(l->in * l->out, l->gt, 1) : array_new(l->in * l->out, l->gt);
    struct array db = y->add ? array_random(l->out, l->gt, 1) : array_new(l->out, l->gt);
    struct array want = array_like(&got), want_db = array_like(&db);
    enum dtype sums = l->at == DT_FP16 && l->gt == DT_FP32 ? DT_FP16 : l->gt;
    double tol = tolerance(sums);

    assert_int_equal(b.host.ops->linear_dw(b.host.k, l, x.x, dy.x, got.x, y->bias ? db.x : NULL, into), 0);
    assert_int_equal(b.ref.ops->linear_dw(b.ref.k, l, x.x, dy.x, want.x, y->bias ? want_db.x : NULL,
                                          into), 0);
    assert_same("linear dw", &got, &want, tol, size_of_sum(sums, l->n));
    assert_same("linear db", &db, &want_db, tol, size_of_sum(sums, l->n));
    array_free(&x), array_free(&dy), array_free(&got), array_free(&db);
    array_free(&want), array_free(&want_db);
    array_free(&sa), array_free(&sb);
    close_both(&b);
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
        struct layer y = random_layer(i < 20 ? 4 : 90);
        check_layer(&y);
    }
}

/* Beyond one tile in m, n and k: 512, or 4096 for k of dense rows. */
static void layers_of_several_tiles_equal_the_reference(void **state)
{
    static const int64_t shape[][3] = { { 530, 40, 1030 }, { 40, 1030, 530 }, { 1030, 530, 40 },
                                        { 5, 4100, 70 }, { 70, 5, 4100 }, { 3, 600, 700 } };

    (void)state;
    for (int i = 0; i < 12; i++) {
        struct layer y = random_layer(4);
        y.l.n = shape[i % 6][0], y.l.in = shape[i % 6][1], y.l.out = shape[i % 6][2];
        y.l.ldx = y.l.in + (i % 2 ? 3 : 0), y.l.ldy = y.l.out + (i / 2 % 2 ? 5 : 0);
        check_layer(&y);
    }
}

/* torch.autocast's gradients: fp16 first, so 32 64 + 1 is 2048 and 200 200 + 200 200 infinite; then fp32.  bf16 keeps its sums. */
static void gradients_under_autocast_are_fp16_first(void **state)
{
    static const double x[] = { 32, 200, 1, 200 }, dy[] = { 64, 200, 1, 200 };
    struct kernels_need need = { .n = 2, .widest_in = 2, .widest_out = 2, .threads = 1, .at = DT_FP16, .wt = DT_FP32 };
    struct both b = open_both(&need);

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct opened *o = i & 1 ? &b.host : &b.ref;
        enum dtype at = i & 2 ? DT_FP16 : DT_BF16;
        struct linear l = { 2, 2, 2, true, at, DT_FP32, DT_FP32, 2, 2, { 0 } };
        struct array in = array_new(4, at), back = array_new(4, at), dw = array_new(4, DT_FP32), db = array_new(2, DT_FP32);
        for (int j = 0; j < 4; j++)
            array_set(&in, j, x[j]), array_set(&back, j, dy[j]), array_set(&dw, j, 0.5), array_set(&db, j % 2, 0.5);
        assert_int_equal(o->ops->linear_dw(o->k, &l, in.x, back.x, dw.x, db.x, GRAD_ADD), 0);
        assert_true(array_get(&dw, 0) == (at == DT_FP16 ? 2048.5 : 2049.5));
        assert_true(array_get(&dw, 3) == (at == DT_FP16 ? (double)INFINITY : 80000.5));
        assert_true(array_get(&db, 0) == 65.5 && array_get(&db, 1) == 400.5);
        array_free(&in), array_free(&back), array_free(&dw), array_free(&db);
    }
    close_both(&b);
}

static void a_layer_is_the_same_on_every_run(void **state)
{
    struct layer y = random_layer(4);
    struct linear *l = &y.l;

    (void)state;
    *l = (struct linear){ 300, 700, 900, true, DT_FP32, DT_FP32, DT_FP32, 700, 900, { 0 } };
    y.threads = 2;
    struct kernels_need need = need_of(&y);
    struct opened o = open_kernels(&need, false);
    struct array x = array_random(l->n * l->ldx, l->at, 1), w = random_w(&y);
    struct array once = array_new(l->n * l->ldy, l->at), again = array_new(l->n * l->ldy, l->at);
    for (int i = 0; i < 5; i++) {
        o.ops->linear(o.k, l, x.x, w.x, NULL, once.x, NULL, NULL);
        o.ops->linear(o.k, l, x.x, w.x, NULL, again.x, NULL, NULL);
        assert_memory_equal(once.x, again.x, (size_t)once.n * 4);
    }
    array_free(&x), array_free(&w), array_free(&once), array_free(&again);
    close_kernels(&o);
}

/* test_kernels_widened.sh runs all this again without oneDNN's bf16 products. */
static void a_machine_without_bf16_products_is_named(void **state)
{
    struct kernels_need need = { .n = 1, .widest_in = 1, .widest_out = 1, .vocab = 1, .seq = 1, .dim = 1,
                                 .threads = 1 };
    struct both b = open_both(&need);
    const char *isa = getenv("ONEDNN_MAX_CPU_ISA");

    (void)state;
    assert_null(kernels_note(b.ref.k));
    if (isa && !strcmp(isa, "AVX2"))
        assert_non_null(strstr(kernels_note(b.host.k), "bf16"));
    close_both(&b);
}

static void a_workspace_that_is_too_small_is_reported(void **state)
{
    char said[300];
    struct linear l = { 8, 700, 900, true, DT_FP32, DT_FP32, DT_FP32, 703, 900, { 0 } };
    struct array x = array_random(l.n * l.ldx, DT_FP32, 1), w = array_random(l.in * l.out, DT_FP32, 1);
    struct array y = array_new(l.n * l.ldy, DT_FP32), small = array_new(1024, DT_FP32);
    struct kernels *k = kernels_open(1, small.x, 4096, false);

    (void)state;
    fail_capture(said, sizeof said);
    assert_int_equal(kernels_ops(k)->linear(k, &l, x.x, w.x, NULL, y.x, NULL, NULL), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, "workspace"));
    kernels_close(k);
    array_free(&x), array_free(&w), array_free(&y), array_free(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_layers_equal_the_reference),
        cmocka_unit_test(layers_of_several_tiles_equal_the_reference),
        cmocka_unit_test(gradients_under_autocast_are_fp16_first),
        cmocka_unit_test(a_layer_is_the_same_on_every_run),
        cmocka_unit_test(a_machine_without_bf16_products_is_named),
        cmocka_unit_test(a_workspace_that_is_too_small_is_reported),
    };
    return cmocka_run_group_tests_name("exec/kernels linear", tests, NULL, NULL);
}
