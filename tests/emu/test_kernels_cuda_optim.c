/* Optimizers of whole tensors, and weights in codes, on the emulated device beside the host's: Adafactor to rounding, codes to the bit. */
#include "tests/emu/device_check.h"

static void make_positive(struct array *a)
{
    for (int64_t i = 0; i < a->n; i++)
        array_set(a, i, fabs(array_get(a, i)));
}

static void adafactor_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        bool vector = i % 3 == 0;
        int64_t rows = random_int(1, i < 20 ? 70 : 300), cols = vector ? 1 : random_int(1, i < 20 ? 90 : 700), n = rows * cols;
        enum dtype gt = host_dtype(), ot = host_dtype();
        struct adamw a = { coin() ? 0.01 : 1, 0, 0, 0, coin() ? 0.1 : 0, random_int(1, 50), 0.5 };
        struct array p = array_random(n, DT_FP32, 1), row = array_random(rows, DT_FP32, 1), col = array_random(cols, DT_FP32, 1);
        struct array g = array_random(n, gt, 1), out = array_new(n, ot);
        make_positive(&row), make_positive(&col);
        struct array want_p = array_like(&p), want_row = array_like(&row), want_col = array_like(&col), want_out = array_like(&out);
        struct there tp = to_device(&p), trow = to_device(&row), tcol = to_device(&col), tg = to_device(&g), tout = to_device(&out);
        struct factored f = { rows, cols, tp.x, trow.x, vector ? NULL : tcol.x };
        struct factored want = { rows, cols, want_p.x, want_row.x, vector ? NULL : want_col.x };

        OK(gpu.ops->adafactor(gpu.k, &a, &f, tg.x, gt, tout.x, ot));
        OK(gpu.ref->adafactor(gpu.ref_k, &a, &want, g.x, gt, want_out.x, ot));
        from_device(&tp, &p), from_device(&trow, &row), from_device(&tcol, &col), from_device(&tout, &out);
        assert_same("rows", &row, &want_row, 1e-6, 1);
        assert_same("columns", &col, &want_col, 1e-6, 1);
        assert_same("p", &p, &want_p, 3e-6, 1);
        assert_same("p cast", &out, &want_out, half_tol(ot, 3e-6), half_size(ot, 1e-3, 1));
        drop_device(&tg);
        array_free(&p), array_free(&row), array_free(&col), array_free(&g), array_free(&out);
        array_free(&want_p), array_free(&want_row), array_free(&want_col), array_free(&want_out);
    }
}

/* Bytes as an array of fp32, of which 4 are one. */
static struct array bytes_new(int64_t n)
{
    struct array a = array_new((n + 3) / 4, DT_FP32);

    memset(a.x, 0, (size_t)(4 * a.n));
    return a;
}

static void same_bytes(const char *what, const struct array *got, const struct array *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (((uint8_t *)got->x)[i] != ((uint8_t *)want->x)[i])
            fail_msg("%s: byte %" PRId64 " is %d, not %d", what, i, ((uint8_t *)got->x)[i], ((uint8_t *)want->x)[i]);
}

static void moments_in_8_bits_are_the_hosts(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        int64_t n = random_int(1, 3000), blocks = ceil_div(n, 256);
        bool codes = i % 4 != 0;
        enum dtype gt = host_dtype(), ot = host_dtype();
        struct array p = array_random(n, DT_FP32, 1), out = array_new(n, ot), c1 = bytes_new(n), c2 = bytes_new(n);
        struct array m1 = bytes_new(4 * (codes ? blocks : n)), m2 = bytes_new(4 * (codes ? blocks : n));
        struct array hp = array_like(&p), hout = array_like(&out), h1 = array_like(&c1), h2 = array_like(&c2), hm1 = array_like(&m1),
                     hm2 = array_like(&m2);
        struct there tp = to_device(&p), tout = to_device(&out), t1 = to_device(&c1), t2 = to_device(&c2), tm1 = to_device(&m1), tm2 = to_device(&m2);
        struct adamw8 there = { n, tp.x, codes ? t1.x : NULL, codes ? t2.x : NULL, tm1.x, tm2.x };
        struct adamw8 here = { n, hp.x, codes ? h1.x : NULL, codes ? h2.x : NULL, hm1.x, hm2.x };
        for (int64_t step = 1; step <= 3; step++) {
            struct adamw a = { 0.01, 0.9, 0.95, 1e-8, 0.1, step, 0.5 };
            struct array g = array_random(n, gt, 1);
            struct there tg = to_device(&g);
            OK(gpu.ops->adamw8(gpu.k, &a, &there, tg.x, gt, tout.x, ot));
            OK(gpu.ref->adamw8(gpu.ref_k, &a, &here, g.x, gt, hout.x, ot));
            OK(gpu.ops->finish(gpu.k));
            drop_device(&tg);
            array_free(&g);
        }
        from_device(&tp, &p), from_device(&tout, &out), from_device(&t1, &c1), from_device(&t2, &c2);
        from_device(&tm1, &m1), from_device(&tm2, &m2);
        same_bytes("codes of the first moment", &c1, &h1, n);
        same_bytes("codes of the second", &c2, &h2, n);
        same_bytes("what is kept beside them", &m1, &hm1, 4 * m1.n);
        same_bytes("of the second", &m2, &hm2, 4 * m2.n);
        same_bytes("p", &p, &hp, 4 * n);
        assert_same("p cast", &out, &hout, 0, 0);
        array_free(&p), array_free(&out), array_free(&c1), array_free(&c2), array_free(&m1), array_free(&m2);
        array_free(&hp), array_free(&hout), array_free(&h1), array_free(&h2), array_free(&hm1), array_free(&hm2);
    }
}

static void weights_in_codes_are_the_hosts(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        int64_t n = random_int(1, 40000), blocks = ceil_div(n, 64);
        bool coded = coin();
        enum dtype at = host_dtype();
        struct array x = array_random(n, DT_FP32, 1), got = array_new(n, at), want = array_new(n, at);
        struct array part[6] = { bytes_new(ceil_div(n, 2)), bytes_new(blocks), bytes_new(4 * blocks), bytes_new(1024), bytes_new(4), bytes_new(64) };
        struct array here[6];
        struct there there[6], tgot = to_device(&got);
        for (int j = 0; j < 6; j++) {
            here[j] = array_like(&part[j]);
            there[j] = to_device(&part[j]);
        }
        struct packed_weight w = { n, there[0].x, coded ? there[1].x : NULL, there[2].x, there[3].x, there[4].x, there[5].x };
        struct packed_weight h = { n, here[0].x, coded ? here[1].x : NULL, here[2].x, here[3].x, here[4].x, here[5].x };

        OK(gpu.ops->pack(gpu.k, &w, x.x));
        OK(gpu.ref->pack(gpu.ref_k, &h, x.x));
        OK(gpu.ops->unpack(gpu.k, &w, tgot.x, at));
        OK(gpu.ref->unpack(gpu.ref_k, &h, want.x, at));
        from_device(&tgot, &got);
        assert_same("numbers of codes", &got, &want, 0, 0);
        for (int j = 0; j < 6; j++) {
            from_device(&there[j], &part[j]);
            array_free(&part[j]), array_free(&here[j]);
        }
        array_free(&x), array_free(&got), array_free(&want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adafactor_equals_the_reference),
        cmocka_unit_test(moments_in_8_bits_are_the_hosts),
        cmocka_unit_test(weights_in_codes_are_the_hosts),
    };
    int failed = gpu_tests("emu/optimizers of whole tensors", tests);

    print_message("%d passed, %d failed\n", (int)(sizeof tests / sizeof *tests) - failed, failed);
    return failed;
}
