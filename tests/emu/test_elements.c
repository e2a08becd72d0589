/* The launchers of elements.cu and sums.cu beside the reference: any length, at any address, in fp32,
 * bf16 and fp16. */
#include "tests/emu/launch_check.h"

#include "exec/kernels/exact_sum.h"

static const int64_t lengths[] = { 1, 7, 8, 31, 1024, 2049, 20011 };

static int64_t any_length(void) { return coin() ? lengths[random_int(0, 6)] : random_int(1, 5000); }

static struct dropout any_drop(void)
{
    return (struct dropout){ .p = 0.1 + 0.3 * (double)random_int(0, 2), .key = random_bits(),
                             .first = random_int(0, 1 << 20) };
}

static struct cuda_drop rule(const struct dropout *d)
{
    struct dropout_rule r = dropout_rule(d);

    return (struct cuda_drop){ r.seed, r.limit, r.keep };
}

/* ---- activations ---- */

static void check_activation(enum activation act, enum dtype t, bool gated, int64_t skew)
{
    int64_t n = any_length();
    struct array gate = array_random(n, t, 6), up = array_random(n, t, 6), out = array_new(n, t);
    struct there dg = to_device(&gate, skew), du = to_device(&up, skew), dy = to_device(&out, skew);

    OK(elements_activation((int)act, n, gated ? dg.x : NULL, du.x, dy.x, t, NULL));
    OK(ref->activation(NULL, act, n, gated ? gate.x : NULL, up.x, out.x, t));
    compare("activation", &dy, &out, tolerance(t), 1);

    struct array dup = array_random(n, t, 2), dgate = array_new(n, t);
    struct there ddu = to_device(&dup, skew), ddg = to_device(&dgate, skew);
    OK(elements_activation_back((int)act, n, gated ? dg.x : NULL, du.x, ddu.x, gated ? ddg.x : NULL, t,
                                NULL));
    OK(ref->activation_back(NULL, act, n, gated ? gate.x : NULL, up.x, dup.x, gated ? dgate.x : NULL, t));
    compare("gradient of up", &ddu, &dup, tolerance(t), 1);
    compare("gradient of the gate", &ddg, &dgate, tolerance(t), 1);
    gone(&dg), gone(&du);
    array_free(&gate), array_free(&up);
}

static void activations_and_their_gradients_are_the_references(void **state)
{
    (void)state;
    for (int act = ACT_GELU; act <= ACT_SILU; act++)
        for (int i = 0; i < 16; i++)
            check_activation((enum activation)act, dtype_if(i & 1), i & 2, i & 4 ? i : 0);
}

/* x is 0 on one side and as it is on the other; no slope overflows. */
static void activations_of_large_numbers_are_their_limits(void **state)
{
    static const double large[] = { -1e30, -200, -89, 89, 200, 1e30 };
    struct array x = array_new(6, DT_FP32), y = array_new(6, DT_FP32);
    (void)state;

    for (int i = 0; i < 6; i++)
        array_set(&x, i, large[i]);
    struct there dx = to_device(&x, 0), dy = to_device(&y, 0);
    for (int act = ACT_GELU; act <= ACT_SILU; act++) {
        OK(elements_activation(act, 6, NULL, dx.x, dy.x, DT_FP32, NULL));
        struct array got = look(&dy);
        for (int i = 0; i < 6; i++) {
            double at = array_get(&x, i), limit = at > 0 ? at : 0;
            assert_true(fabs(array_get(&got, i) - limit) <= 1e-30 * fabs(at));
        }
        array_free(&got);
    }
    gone(&dx), gone(&dy);
    array_free(&x), array_free(&y);
}

static void what_is_no_activation_is_refused(void **state)
{
    struct array x = array_random(8, DT_FP32, 1);
    struct there d = to_device(&x, 0);
    (void)state;

    assert_int_equal(elements_activation(17, 8, NULL, d.x, d.x, DT_FP32, NULL), cudaErrorInvalidValue);
    gone(&d);
    array_free(&x);
}

/* ---- copy ---- */

static void check_copy(enum dtype dt, enum dtype st, bool add, bool same, double scale)
{
    int64_t n = any_length(), skew = any_skew();
    struct array src = array_random(n, st, 3), dst = same ? array_like(&src) : array_random(n, dt, 3);
    struct there ds = to_device(&src, skew), dd = to_device(&dst, same ? skew : any_skew());

    OK(elements_copy(n, dd.x, dt, same ? dd.x : ds.x, st, (float)scale, add, NULL));
    OK(ref->copy(NULL, n, dst.x, dt, same ? dst.x : src.x, st, (float)scale, add));
    compare("copy", &dd, &dst, tolerance(dt), of_terms(dt, 3));
    compare_bits("the source", &ds, &src);
    gone(&ds);
    array_free(&src);
}

static void copies_cast_scale_and_add(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++) {
        enum dtype dt = dtype_if(i & 1), st = dtype_if(i & 2);
        check_copy(dt, st, i & 4, dt == st && (i & 8), i & 16 ? 1 : 0.37);
    }
}

/* fp32's bits round to even, NaN stays NaN, infinity infinite; fp16's reach from half its smallest to beyond its largest. */
static void check_cast(enum dtype t)
{
    enum { N = 4099 };
    struct array x = array_new(N, DT_FP32), y = array_new(N, t);
    uint32_t kept = t == DT_BF16 ? 0xffff8000u : 0xfffff000u;

    for (int64_t i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)random_bits(), sign = bits & 0x80000000u;
        ((uint32_t *)x.x)[i] = kept & (t == DT_BF16 ? bits : sign | (uint32_t)random_int(0x32800000, 0x47900000));
    }
    array_set(&x, 0, INFINITY), array_set(&x, 1, -INFINITY), array_set(&x, 2, 3.4e38);
    array_set(&x, 3, 65519), array_set(&x, 4, -65520), array_set(&x, 5, 0x1p-25), array_set(&x, 6, -0x1.000002p-25);
    for (int64_t i = 0; i < N; i++)
        if (isnan(array_get(&x, i)))
            array_set(&x, i, 1);
    struct there dx = to_device(&x, 0), dy = to_device(&y, 0);
    OK(elements_copy(N, dy.x, t, dx.x, DT_FP32, 1, false, NULL));
    narrow(&x, &y);
    compare_bits("cast", &dy, &y);
    gone(&dx), gone(&dy);
    array_free(&x), array_free(&y);
}

static void casts_are_the_hosts_to_the_bit(void **state)
{
    (void)state;
    check_cast(DT_BF16);
    check_cast(DT_FP16);
}

/* ---- dropout ---- */

static void dropouts_bits_are_the_hosts(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        enum dtype t = dtype_if(i & 1);
        int64_t n = any_length();
        struct dropout d = any_drop();
        struct dropout_rule r = dropout_rule(&d);
        struct array x = array_random(n, t, 3), want = widened(&x);
        struct there dx = to_device(&x, any_skew());

        OK(elements_dropout(n, dx.x, t, rule(&d), NULL));
        simd_base.drop(n, want.x, r.seed, 0, r.limit, r.keep);
        for (int64_t j = 0; j < n; j++)
            assert_true((array_get(&want, j) == 0) == dropout_drops(&d, j));
        narrow(&want, &x);
        compare_bits("dropout", &dx, &x);
        gone(&dx);
        array_free(&x), array_free(&want);
    }
}

static void no_dropout_leaves_everything(void **state)
{
    struct array x = array_random(100, DT_BF16, 1);
    struct there d = to_device(&x, 0);
    (void)state;

    OK(elements_dropout(100, d.x, DT_BF16, rule(NULL), NULL));
    compare_bits("no dropout", &d, &x);
    gone(&d);
    array_free(&x);
}

/* y = residual + dropout(x + bias), by the formula. */
static void residual_want(int64_t rows, int64_t cols, const struct array *x, int64_t ldx,
                          const struct array *b, const struct array *r, int64_t ldr,
                          const struct array *y, int64_t ldy, const struct dropout *d)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double v = array_get(x, i * ldx + j) + (b ? array_get(b, j) : 0);
            if (d)
                v = dropout_drops(d, i * cols + j) ? 0 : v / (1 - d->p);
            array_set(y, i * ldy + j, v + (r ? array_get(r, i * ldr + j) : 0));
        }
}

/* where: of y, 0 its own, 1 x, 2 the residual. */
static void check_residual(enum dtype t, bool bias, bool residual, bool drop, int where)
{
    bool whole = coin();                        /* packs */
    int64_t rows = random_int(1, 9), cols = whole ? 8 * random_int(1, 300) : random_int(1, 700);
    int64_t ld[3];                              /* of y, x, the residual */
    for (int i = 0; i < 3; i++)
        ld[i] = cols + (coin() ? 0 : whole ? 8 : random_int(1, 5));
    ld[0] = where ? ld[where] : ld[0];
    struct dropout d = any_drop();
    struct array x = array_random(rows * ld[1], t, 1), r = array_random(rows * ld[2], t, 1);
    struct array b = array_random(cols, host_dtype(), 1);
    struct array y = where == 1 ? array_like(&x) : where == 2 ? array_like(&r) : array_new(rows * ld[0], t);
    int64_t skew = whole ? 0 : any_skew();
    struct there dx = to_device(&x, skew), dr = to_device(&r, skew), db = to_device(&b, skew);
    struct there dy = to_device(&y, skew);

    OK(elements_residual(rows, cols, where == 1 ? dy.x : dx.x, ld[1], bias ? db.x : NULL, b.t,
                         !residual ? NULL : where == 2 ? dy.x : dr.x, ld[2], dy.x, ld[0], t,
                         rule(drop ? &d : NULL), NULL));
    residual_want(rows, cols, &x, ld[1], bias ? &b : NULL, residual ? &r : NULL, ld[2], &y, ld[0],
                  drop ? &d : NULL);
    compare("residual", &dy, &y, tolerance(t), of_terms(t, 1));
    gone(&dx), gone(&dr), gone(&db);
    array_free(&x), array_free(&r), array_free(&b);
}

static void residual_dropout_and_bias_are_one_pass(void **state)
{
    (void)state;
    for (int i = 0; i < 96; i++)
        check_residual(dtype_if(i & 1), i & 2, i & 4, i & 8, i % 3);
}

/* ---- AdamW ---- */

static const struct adamw step3 = { .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                                    .step = 3, .grad_scale = 0.25 };

static struct cuda_rates rates_of(const struct adamw *a)
{
    double t = (double)a->step;

    return (struct cuda_rates){
        .decay = (float)(1 - a->lr * a->weight_decay),
        .keep1 = (float)(1 - a->beta1), .b2 = (float)a->beta2, .keep2 = (float)(1 - a->beta2),
        .step_size = (float)(a->lr / (1 - pow(a->beta1, t))), .root = (float)(1 / sqrt(1 - pow(a->beta2, t))),
        .eps = (float)a->eps, .scale = (float)a->grad_scale,
    };
}

/* One parameter: what there is before, the host's results, what the device has. */
struct stepped { struct array p, m, v, g, out; struct there dp, dm, dv, dg, dout; };

static struct stepped stepped_new(int64_t n, enum dtype gt, enum dtype ot)
{
    struct stepped s = { .p = array_random(n, DT_FP32, 1), .m = array_random(n, DT_FP32, 0.1),
                         .v = array_random(n, DT_FP32, 0.1), .g = array_random(n, gt, 1),
                         .out = array_new(n, ot) };

    for (int64_t i = 0; i < n; i++)
        array_set(&s.v, i, fabs(array_get(&s.v, i)));
    int64_t skew = any_skew();
    s.dp = to_device(&s.p, skew), s.dm = to_device(&s.m, skew), s.dv = to_device(&s.v, skew);
    s.dg = to_device(&s.g, coin() ? any_skew() : skew);
    s.dout = to_device(&s.out, coin() ? any_skew() : skew);
    return s;
}

/* p, m and v to the bit as the host's loop has them, close to the reference, and out is p. */
static void stepped_check(struct stepped *s, bool out)
{
    struct cuda_rates r = rates_of(&step3);
    struct adamw_rates rates = { r.decay, r.keep1, r.b2, r.keep2, r.step_size, r.root, r.eps, r.scale };
    struct array g = widened(&s->g), p = array_like(&s->p), m = array_like(&s->m), v = array_like(&s->v);

    if (s->p.n)
        simd_base.adamw(&rates, p.n, p.x, m.x, v.x, g.x);
    OK(ref->adamw(NULL, &step3, s->p.n, s->p.x, s->m.x, s->v.x, s->g.x, s->g.t, NULL, DT_FP32));
    compare_bits("p", &s->dp, &p), compare_bits("m", &s->dm, &m), compare_bits("v", &s->dv, &v);
    compare("p", &s->dp, &s->p, 1e-5, 0.1), compare("m", &s->dm, &s->m, 1e-5, 0.1);
    compare("v", &s->dv, &s->v, 1e-5, 0.1);
    if (out)
        narrow(&p, &s->out);
    compare_bits("out", &s->dout, &s->out);
    gone(&s->dout), gone(&s->dg);
    array_free(&s->out), array_free(&s->g), array_free(&g), array_free(&p), array_free(&m), array_free(&v);
}

static void check_adamw(int count, int64_t most, enum dtype gt, enum dtype ot, bool out)
{
    struct stepped *s = calloc((size_t)count, sizeof *s);
    struct cuda_step *of = calloc((size_t)count, sizeof *of);

    for (int i = 0; i < count; i++) {
        s[i] = stepped_new(random_int(i % 5 != 0, most), gt, ot);
        of[i] = (struct cuda_step){ s[i].dp.x, s[i].dm.x, s[i].dv.x, s[i].dg.x, out ? s[i].dout.x : NULL,
                                    s[i].p.n };
    }
    OK(elements_adamw(count, of, gt, ot, rates_of(&step3), NULL));
    for (int i = 0; i < count; i++)
        stepped_check(&s[i], out);
    free(s);
    free(of);
}

static void adamw_is_the_hosts_to_the_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++)
        check_adamw(1, 9000, dtype_if(i & 1), dtype_if(i & 2), i & 4);
}

static void adamw_steps_many_parameters_in_a_launch(void **state)
{
    (void)state;
    check_adamw(48, 300, DT_BF16, DT_BF16, true);
    check_adamw(48, 300, DT_FP16, DT_FP16, true);
    check_adamw(101, 300, DT_FP32, DT_BF16, true);
    check_adamw(7, 9000, DT_BF16, DT_FP32, true);
    check_adamw(0, 0, DT_FP32, DT_FP32, true);
}

/* ---- sums ---- */

enum { MANY = 300 };

struct summed { int count; struct array x[MANY]; struct there d[MANY]; struct cuda_run runs[MANY]; };

static struct summed *summed_new(int count, int64_t most, enum dtype t, double size)
{
    struct summed *s = calloc(1, sizeof *s);

    s->count = count;
    for (int i = 0; i < count; i++) {
        s->x[i] = array_random(random_int(i % 7 != 3, most), t, size);
        s->d[i] = to_device(&s->x[i], any_skew());
        s->runs[i] = (struct cuda_run){ s->d[i].x, s->x[i].n };
    }
    return s;
}

static void summed_free(struct summed *s)
{
    for (int i = 0; i < s->count; i++) {
        gone(&s->d[i]);
        array_free(&s->x[i]);
    }
    free(s);
}

/* A double of the device, which is 1000 at first. */
static struct there slot_new(void)
{
    struct array one = array_new(1, DT_FP64);

    array_set(&one, 0, 1000);
    struct there d = to_device(&one, 0);
    array_free(&one);
    return d;
}

static double slot_read(struct there *d)
{
    struct array one = look(d);
    double value = array_get(&one, 0);

    array_free(&one);
    OK(cudaFree(d->base));
    return value;
}

typedef int sum_fn(int count, const struct cuda_run *runs, enum dtype t, double *sum, void *workspace,
                   struct CUstream_st *s);
typedef double term_fn(double x);

static double square(double x) { return x * x; }
static double itself(double x) { return x; }
static double not_finite(double x) { return isfinite(x) ? 0 : 1; }

/* Twice, for equal bits; from 1000 on. */
static void check_sum(sum_fn *fn, term_fn *term, const struct summed *s, enum dtype t)
{
    double want = 1000, size = 0, got[2];

    for (int i = 0; i < s->count; i++)
        for (int64_t j = 0; j < s->x[i].n; j++) {
            want += term(array_get(&s->x[i], j));
            size += fabs(term(array_get(&s->x[i], j)));
        }
    for (int i = 0; i < 2; i++) {
        struct there slot = slot_new(), w = scratch(ELEMENTS_WORKSPACE);
        OK(fn(s->count, s->runs, t, slot.x, w.x, NULL));
        got[i] = slot_read(&slot);
        gone(&w);
    }
    assert_true(got[0] == got[1]);
    if (!(fabs(got[0] - want) <= 1e-12 * size))
        fail_msg("a sum is %.17g, not %.17g", got[0], want);
}

static void sums_go_through_any_number_of_arrays(void **state)
{
    static const struct { int count; int64_t most; } cases[] = {
        { 1, 1 }, { 1, 8000 }, { 1, 60000 }, { 5, 20000 }, { 128, 300 }, { MANY, 200 }, { 0, 0 },
    };
    (void)state;
    for (int i = 0; i < 14; i++) {
        enum dtype t = dtype_if(i & 1);
        struct summed *s = summed_new(cases[i / 2].count, cases[i / 2].most, t, 3);
        check_sum(elements_sum_squares, square, s, t);
        check_sum(elements_sum, itself, s, t);
        check_sum(elements_not_finite, not_finite, s, t);
        summed_free(s);
    }
}

/* fp32's largest squared is beyond fp32. */
static void squares_are_summed_in_fp64(void **state)
{
    struct array x = array_random(1000, DT_FP32, 3e38);
    struct there d = to_device(&x, 0);
    struct summed s = { .count = 1, .x = { x }, .runs = { { d.x, 1000 } } };
    (void)state;

    check_sum(elements_sum_squares, square, &s, DT_FP32);
    gone(&d);
    array_free(&x);
}

static void what_is_not_finite_is_counted(void **state)
{
    static const double bad[] = { (double)NAN, (double)INFINITY, -(double)INFINITY };
    (void)state;
    for (int i = 0; i < 8; i++) {
        enum dtype t = dtype_if(i & 1);
        struct summed *s = summed_new(3, 12000, t, 1);
        for (int j = 0; j < 50; j++) {
            int of = (int)random_int(0, 2);
            array_set(&s->x[of], random_int(0, s->x[of].n - 1), bad[j % 3]);
        }
        for (int j = 0; j < 3; j++) {
            gone(&s->d[j]);
            s->d[j] = to_device(&s->x[j], any_skew());
            s->runs[j].x = s->d[j].x;
        }
        check_sum(elements_not_finite, not_finite, s, t);
        summed_free(s);
    }
}

/* Bits of any fp32 or bf16: subnormal, huge, now and then none. */
static struct array any_bits(int64_t n, enum dtype t, bool finite)
{
    struct array x = array_new(n, t);

    for (int64_t i = 0; i < n; i++) {
        if (t == DT_FP32)
            ((uint32_t *)x.x)[i] = (uint32_t)random_bits();
        else
            ((uint16_t *)x.x)[i] = (uint16_t)random_bits();
        if (finite && !isfinite(array_get(&x, i)))
            array_set(&x, i, 1e-42);
    }
    return x;
}

static void check_exact(int count, int64_t most, enum dtype t, bool finite)
{
    struct exact_sum want = { { 0 } }, got = { { 0 } };
    struct summed *s = calloc(1, sizeof *s);
    struct there limbs = scratch(sizeof got);

    s->count = count;
    for (int i = 0; i < count; i++) {
        s->x[i] = any_bits(random_int(0, most), t, finite);
        s->d[i] = to_device(&s->x[i], any_skew());
        s->runs[i] = (struct cuda_run){ s->d[i].x, s->x[i].n };
        exact_add_squares(&want, s->x[i].n, s->x[i].x, t);
    }
    OK(cudaMemset(limbs.x, 0, sizeof got));
    OK(elements_exact_squares(count, s->runs, t, limbs.x, NULL));
    struct array read = look(&limbs);
    memcpy(&got, read.x, sizeof got);
    exact_carry(&got);
    exact_carry(&want);
    assert_memory_equal(&got, &want, sizeof got);
    if (finite)
        assert_true(exact_value(&got) == exact_value(&want));
    array_free(&read);
    gone(&limbs);
    summed_free(s);
}

static void exact_sums_are_the_hosts_limb_by_limb(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        check_exact(1, 20000, i & 1 ? DT_FP32 : DT_BF16, i & 2);
        check_exact(3, 9000, i & 1 ? DT_FP32 : DT_BF16, i & 2);
    }
    check_exact(140, 100, DT_FP32, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_and_their_gradients_are_the_references),
        cmocka_unit_test(activations_of_large_numbers_are_their_limits),
        cmocka_unit_test(what_is_no_activation_is_refused),
        cmocka_unit_test(copies_cast_scale_and_add),
        cmocka_unit_test(casts_are_the_hosts_to_the_bit),
        cmocka_unit_test(dropouts_bits_are_the_hosts),
        cmocka_unit_test(no_dropout_leaves_everything),
        cmocka_unit_test(residual_dropout_and_bias_are_one_pass),
        cmocka_unit_test(adamw_is_the_hosts_to_the_bit),
        cmocka_unit_test(adamw_steps_many_parameters_in_a_launch),
        cmocka_unit_test(sums_go_through_any_number_of_arrays),
        cmocka_unit_test(squares_are_summed_in_fp64),
        cmocka_unit_test(what_is_not_finite_is_counted),
        cmocka_unit_test(exact_sums_are_the_hosts_limb_by_limb),
    };
    return RUN("emu/elements", tests);
}
