/* sgd, Lion and Adafactor: the host's beside the reference, first steps by hand, and what must not depend on how work is cut. */
#include "tests/exec/kernels_check.h"

static struct both open_for(int threads)
{
    return open_both(&(struct kernels_need){ .n = 1, .widest_in = 1, .widest_out = 1, .vocab = 1, .seq = 1, .dim = 1,
                                             .threads = threads });
}

static int momentum(const struct kernel_ops *f, bool lion, struct kernels *k, const struct adamw *a, int64_t n, void *p, void *m,
                    const struct array *g, struct array *out)
{
    return (lion ? f->lion : f->sgd)(k, a, n, p, m, g->x, g->t, out ? out->x : NULL, out ? out->t : DT_FP32);
}

static void one_moment_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t n = random_int(1, 5000);
        bool lion = coin();
        struct adamw a = { 0.01, 0.9, 0.99, 0, coin() ? 0.1 : 0, random_int(1, 50), 0.5 };
        struct both b = open_for(1 + (int)coin());
        struct array p = array_random(n, DT_FP32, 1), m = array_random(n, DT_FP32, 1), g = array_random(n, host_dtype(), 1);
        struct array want_p = array_like(&p), want_m = array_like(&m);
        struct array out = array_new(n, host_dtype()), want_out = array_new(n, out.t);

        assert_int_equal(momentum(b.host.ops, lion, b.host.k, &a, n, p.x, m.x, &g, &out), 0);
        assert_int_equal(momentum(b.ref.ops, lion, b.ref.k, &a, n, want_p.x, want_m.x, &g, &want_out), 0);
        assert_same("m", &m, &want_m, 3e-7, 1);
        assert_same("p", &p, &want_p, 1e-6, 1);
        assert_same("p cast", &out, &want_out, half_tol(out.t, 1e-6), half_size(out.t, 1e-3, 1));
        array_free(&p), array_free(&m), array_free(&g), array_free(&out);
        array_free(&want_p), array_free(&want_m), array_free(&want_out);
        close_both(&b);
    }
}

/* torch.optim.SGD's first momentum is the gradient, with the decay of p in it: g = 0.5 * 4 + 0.1 * 1 = 2.1.  In the second step
 * m = 0.9 * 2.1 + 2 + 0.1 * (1 - 0.21) = 3.969. */
static void two_steps_of_sgd_by_hand(void **state)
{
    const struct adamw a = { 0.1, 0.9, 0, 0, 0.1, 1, 0.5 };
    struct both b = open_for(1);
    float p = 1, m = 0, g = 4;

    (void)state;
    for (int r = 0; r < 2; r++, p = 1, m = 0) {
        struct opened *o = r ? &b.ref : &b.host;
        o->ops->sgd(o->k, &a, 1, &p, &m, &g, DT_FP32, NULL, DT_FP32);
        assert_close((double)p, 1 - 0.21, 1e-6);
        o->ops->sgd(o->k, &a, 1, &p, &m, &g, DT_FP32, NULL, DT_FP32);
        assert_close((double)m, 3.969, 1e-6);
        assert_close((double)p, 0.79 - 0.3969, 1e-6);
    }
    close_both(&b);
}

/* m = 1, g = -10: b1 m + (1-b1) g = 0.9 - 1 < 0, so p rises by lr after its decay; m = 0.99 - 0.1.  Where it is 0, p only
 * decays. */
static void a_step_of_lion_by_hand(void **state)
{
    const struct adamw a = { 0.25, 0.9, 0.99, 0, 0.2, 7, 1 };
    struct both b = open_for(1);

    (void)state;
    for (int r = 0; r < 2; r++) {
        struct opened *o = r ? &b.ref : &b.host;
        float p[2] = { 2, 2 }, m[2] = { 1, 0 }, g[2] = { -10, 0 };
        o->ops->lion(o->k, &a, 2, p, m, g, DT_FP32, NULL, DT_FP32);
        assert_close((double)p[0], 2 * 0.95 + 0.25, 1e-6);
        assert_close((double)m[0], 0.89, 1e-6);
        assert_close((double)p[1], 1.9, 1e-6);
    }
    close_both(&b);
}

/* An optimizer's shard may begin anywhere. */
static void one_moment_does_not_depend_on_where_an_array_is_cut(void **state)
{
    const struct adamw a = { 0.01, 0.9, 0.95, 0, 0.1, 3, 0.7 };
    struct both b = open_for(2);
    enum { N = 3001 };

    (void)state;
    for (int lion = 0; lion < 2; lion++) {
        struct array p = array_random(N, DT_FP32, 1), m = array_random(N, DT_FP32, 1), g = array_random(N, DT_FP32, 1);
        struct array p2 = array_like(&p), m2 = array_like(&m);
        momentum(b.host.ops, lion, b.host.k, &a, N, p.x, m.x, &g, NULL);
        for (int64_t j = 0, n; j < N; j += n) {
            n = random_int(1, 300);
            n = n < N - j ? n : N - j;
            struct array rest = { .x = (float *)g.x + j, .t = DT_FP32 };
            momentum(b.host.ops, lion, b.host.k, &a, n, (float *)p2.x + j, (float *)m2.x + j, &rest, NULL);
        }
        assert_memory_equal(p.x, p2.x, N * 4);
        assert_memory_equal(m.x, m2.x, N * 4);
        array_free(&p), array_free(&m), array_free(&g), array_free(&p2), array_free(&m2);
    }
    close_both(&b);
}

/* ---- Adafactor ---- */

struct tensor_at { struct array p, row, col, g, out; int64_t rows, cols; };

static struct tensor_at tensor_random(int64_t rows, int64_t cols)
{
    struct tensor_at t = { array_random(rows * cols, DT_FP32, 1), array_random(rows, DT_FP32, 1), array_random(cols, DT_FP32, 1),
                           array_random(rows * cols, host_dtype(), coin() ? 1 : 1e-4), array_new(rows * cols, host_dtype()), rows, cols };

    for (int64_t i = 0; i < rows; i++)
        array_set(&t.row, i, fabs(array_get(&t.row, i)));
    for (int64_t i = 0; i < cols; i++)
        array_set(&t.col, i, fabs(array_get(&t.col, i)));
    return t;
}

static struct tensor_at tensor_like(const struct tensor_at *t)
{
    return (struct tensor_at){ array_like(&t->p), array_like(&t->row), array_like(&t->col), array_like(&t->g), array_like(&t->out),
                               t->rows, t->cols };
}

static void tensor_free(struct tensor_at *t)
{
    array_free(&t->p), array_free(&t->row), array_free(&t->col), array_free(&t->g), array_free(&t->out);
}

static void factored_step(const struct opened *o, const struct adamw *a, struct tensor_at *t, bool vector)
{
    struct factored f = { t->rows, t->cols, t->p.x, t->row.x, vector ? NULL : t->col.x };

    assert_int_equal(o->ops->adafactor(o->k, a, &f, t->g.x, t->g.t, t->out.x, t->out.t), 0);
}

static void adafactor_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        bool vector = coin();
        struct adamw a = { coin() ? 0.01 : 1, 0, 0, 0, coin() ? 0.1 : 0, random_int(1, 50), 0.5 };
        struct both b = open_for(1 + (int)coin());
        struct tensor_at got = tensor_random(random_int(1, 90), vector ? 1 : random_int(1, 2100)), want = tensor_like(&got);

        factored_step(&b.host, &a, &got, vector);
        factored_step(&b.ref, &a, &want, vector);
        assert_same("rows", &got.row, &want.row, 1e-6, 1);
        assert_same("columns", &got.col, &want.col, 1e-6, 1);
        assert_same("p", &got.p, &want.p, 3e-6, 1);
        assert_same("p cast", &got.out, &want.out, half_tol(got.out.t, 3e-6), half_size(got.out.t, 1e-3, 1));
        tensor_free(&got), tensor_free(&want);
        close_both(&b);
    }
}

/* Step 1: w = 1, so the states are the gradient's mean squares: rows 1 and 9, columns 5; the mean of rows is 5, so v is each
 * element's square and u its sign, whose RMS is 1.  RMS(p) is 2 and min(lr, 1) is 0.5: each element moves by 1. */
static void a_first_step_of_adafactor_by_hand(void **state)
{
    const struct adamw a = { 0.5, 0, 0, 0, 0.1, 1, 1 };
    struct both b = open_for(1);

    (void)state;
    for (int r = 0; r < 2; r++) {
        struct opened *o = r ? &b.ref : &b.host;
        float p[4] = { 2, 2, -2, -2 }, row[2] = { 0 }, col[2] = { 0 }, g[4] = { 1, -1, 3, -3 };
        struct factored f = { 2, 2, p, row, col };
        assert_int_equal(o->ops->adafactor(o->k, &a, &f, g, DT_FP32, NULL, DT_FP32), 0);
        const double want[4] = { 2 * 0.95 - 1, 2 * 0.95 + 1, -2 * 0.95 - 1, -2 * 0.95 + 1 };
        for (int i = 0; i < 4; i++)
            assert_close((double)p[i], want[i], 1e-6);
        assert_close((double)row[0], 1, 1e-6);
        assert_close((double)row[1], 9, 1e-6);
        assert_close((double)col[0], 5, 1e-6);
    }
    close_both(&b);
}

/* RMS(u) above 1 is divided away: at step 16, w = 16^-0.8 and 1/sqrt(16) is below lr.  v of a vector whose state is 0 is w g^2, so
 * u = g / |g| / sqrt(w) has an RMS of 1/sqrt(w), and every element moves by max(1e-3, RMS(p)) / 4. */
static void adafactor_clips_its_update(void **state)
{
    const struct adamw a = { 0.5, 0, 0, 0, 0, 16, 1 };
    struct both b = open_for(1);

    (void)state;
    for (int r = 0; r < 2; r++) {
        struct opened *o = r ? &b.ref : &b.host;
        float p[2] = { 3, -3 }, v[2] = { 0 }, g[2] = { 0.25f, 8 };
        struct factored f = { 2, 1, p, v, NULL };
        assert_int_equal(o->ops->adafactor(o->k, &a, &f, g, DT_FP32, NULL, DT_FP32), 0);
        assert_close((double)p[0], 3 - 0.75, 1e-6);
        assert_close((double)p[1], -3 - 0.75, 1e-6);
        assert_close((double)v[1], 64 * pow(16, -0.8), 1e-6);
    }
    close_both(&b);
}

static void adafactor_does_not_depend_on_threads(void **state)
{
    const struct adamw a = { 0.01, 0, 0, 0, 0.1, 3, 1 };
    struct both one = open_for(1), two = open_for(2);
    struct tensor_at t = tensor_random(301, 1500), other = tensor_like(&t);

    (void)state;
    factored_step(&one.host, &a, &t, false);
    factored_step(&two.host, &a, &other, false);
    assert_memory_equal(t.p.x, other.p.x, 301 * 1500 * 4);
    assert_memory_equal(t.row.x, other.row.x, 301 * 4);
    tensor_free(&t), tensor_free(&other);
    close_both(&one), close_both(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_moment_equals_the_reference),
        cmocka_unit_test(two_steps_of_sgd_by_hand),
        cmocka_unit_test(a_step_of_lion_by_hand),
        cmocka_unit_test(one_moment_does_not_depend_on_where_an_array_is_cut),
        cmocka_unit_test(adafactor_equals_the_reference),
        cmocka_unit_test(a_first_step_of_adafactor_by_hand),
        cmocka_unit_test(adafactor_clips_its_update),
        cmocka_unit_test(adafactor_does_not_depend_on_threads),
    };

    return cmocka_run_group_tests_name("exec/kernels_optim", tests, NULL, NULL);
}
