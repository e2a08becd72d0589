/* The reference's gradients beside central differences of the reference's forward, in fp64.
 * A loss is the sum of the outputs times fixed random numbers, which are thus what backward
 * starts from. */
#include "tests/exec/kernels_check.h"

/* The loss of whatever `self` describes. */
typedef double loss_fn(void *self);

static double central(loss_fn *loss, void *self, double *x, double h)
{
    double at = *x;

    *x = at + h;
    double up = loss(self);
    *x = at - h;
    double down = loss(self);
    *x = at;
    return (up - down) / (2 * h);
}

/* `got` against differences by every element of x.  Statistics are fp32: 1e-6. */
static void assert_gradient(const char *what, loss_fn *loss, void *self, struct array *x,
                            const struct array *got, double tol)
{
    for (int64_t i = 0; i < x->n; i++) {
        double want = central(loss, self, (double *)x->x + i, 1e-5);
        if (!(fabs(array_get(got, i) - want) <= tol * (1 + fabs(want))))
            fail_msg("%s: element %" PRId64 " is %.9g, differences say %.9g", what, i, array_get(got, i),
                     want);
    }
}

static double weighted(const struct array *y, const struct array *c)
{
    double sum = 0;

    for (int64_t i = 0; i < y->n; i++)
        sum += array_get(y, i) * array_get(c, i);
    return sum;
}

static struct opened reference(void)
{
    struct kernels_need need = { .n = 64, .widest_in = 64, .widest_out = 64, .vocab = 64, .seq = 64,
                                 .dim = 64, .threads = 1 };

    return open_kernels(&need, true);
}

/* ---- linear ---- */

struct layer { struct opened o; struct linear l; struct array x, w, b, y, c; struct dropout d; };

static double layer_loss(void *self)
{
    struct layer *t = self;

    t->o.ops->linear(t->o.k, &t->l, t->x.x, t->w.x, t->b.x, t->y.x, NULL, &t->d);
    return weighted(&t->y, &t->c);
}

static void linear_gradients(void **state)
{
    (void)state;
    for (int in_out = 0; in_out < 2; in_out++) {
        struct layer t = { .o = reference(), .d = { .p = in_out ? 0.3 : 0, .key = 3 } };
        t.l = (struct linear){ 5, 4, 3, in_out, DT_FP64, DT_FP64, DT_FP64, 4, 3, { 0 } };
        t.x = array_random(20, DT_FP64, 1), t.w = array_random(12, DT_FP64, 1);
        t.b = array_random(3, DT_FP64, 1), t.y = array_new(15, DT_FP64), t.c = array_random(15, DT_FP64, 1);
        struct array dy = array_like(&t.c), dx = array_new(20, DT_FP64), dw = array_new(12, DT_FP64);
        struct array db = array_new(3, DT_FP64);

        t.o.ops->dropout_back(t.o.k, 15, dy.x, DT_FP64, &t.d);
        t.o.ops->linear_dw(t.o.k, &t.l, t.x.x, dy.x, dw.x, db.x, GRAD_SET);
        t.o.ops->linear_dx(t.o.k, &t.l, dy.x, t.w.x, dx.x, false);
        assert_gradient("linear x", layer_loss, &t, &t.x, &dx, 1e-8);
        assert_gradient("linear W", layer_loss, &t, &t.w, &dw, 1e-8);
        assert_gradient("linear b", layer_loss, &t, &t.b, &db, 1e-8);
        array_free(&t.x), array_free(&t.w), array_free(&t.b), array_free(&t.y), array_free(&t.c);
        array_free(&dy), array_free(&dx), array_free(&dw), array_free(&db);
        close_kernels(&t.o);
    }
}

/* ---- norms ---- */

struct norm { struct opened o; enum norm_kind kind; struct array x, w, b, y, c, stats; };

static double norm_loss(void *self)
{
    struct norm *t = self;

    t->o.ops->norm(t->o.k, t->kind, 4, 6, 1e-5, t->x.x, t->w.x, t->b.x, DT_FP64, t->y.x, DT_FP64, t->stats.x);
    return weighted(&t->y, &t->c);
}

static void norm_gradients(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct norm t = { .o = reference(), .kind = (enum norm_kind)kind };
        t.x = array_random(24, DT_FP64, 1), t.w = array_random(6, DT_FP64, 1);
        t.b = array_random(6, DT_FP64, 1), t.y = array_new(24, DT_FP64), t.c = array_random(24, DT_FP64, 1);
        t.stats = array_new(8, DT_FP32);
        struct array dx = array_new(24, DT_FP64), dw = array_new(6, DT_FP64), db = array_new(6, DT_FP64);

        norm_loss(&t);
        t.o.ops->norm_back(t.o.k, t.kind, 4, 6, t.c.x, t.x.x, t.w.x, DT_FP64, t.stats.x, DT_FP64, dx.x, false,
                           dw.x, db.x, DT_FP64, GRAD_SET);
        assert_gradient("norm x", norm_loss, &t, &t.x, &dx, 1e-6);
        assert_gradient("norm w", norm_loss, &t, &t.w, &dw, 1e-6);
        assert_gradient("norm b", norm_loss, &t, &t.b, &db, 1e-6);
        array_free(&t.x), array_free(&t.w), array_free(&t.b), array_free(&t.y), array_free(&t.c);
        array_free(&t.stats), array_free(&dx), array_free(&dw), array_free(&db);
        close_kernels(&t.o);
    }
}

/* ---- attention ---- */

struct attend { struct opened o; struct attention a; struct array qkv, out, lse, c, freq; bool rotated; };

static double attention_loss(void *self)
{
    struct attend *t = self;
    struct array turned = array_like(&t->qkv);

    if (t->rotated)
        t->o.ops->rotary(t->o.k, &t->a, 2, t->freq.x, turned.x, false);
    t->o.ops->attention(t->o.k, &t->a, turned.x, t->out.x, t->lse.x);
    array_free(&turned);
    return weighted(&t->out, &t->c);
}

/* Four heads on two of k and v, with dropout, with rotated q and k. */
static void attention_gradients(void **state)
{
    (void)state;
    for (int with = 0; with < 4; with++) {
        struct attend t = { .o = reference(), .rotated = with & 1 };
        t.a = (struct attention){ .batch = 2, .seq = 5, .heads = 4, .kv_heads = 2, .dim = 3, .ld = 24,
                                  .scale = 0.6, .at = DT_FP64,
                                  .drop = { .p = with & 2 ? 0.3 : 0, .key = 7 } };
        t.qkv = array_random(240, DT_FP64, 1), t.out = array_new(120, DT_FP64);
        t.lse = array_new(40, DT_FP32);
        t.c = array_random(120, DT_FP64, 1), t.freq = array_random(1, DT_FP32, 1);
        struct array turned = array_like(&t.qkv), delta = array_new(40, DT_FP32), d = array_new(240, DT_FP64);

        attention_loss(&t);
        if (t.rotated)
            t.o.ops->rotary(t.o.k, &t.a, 2, t.freq.x, turned.x, false);
        t.o.ops->attention_back(t.o.k, &t.a, turned.x, t.out.x, t.lse.x, t.c.x, delta.x, d.x);
        if (t.rotated)
            t.o.ops->rotary(t.o.k, &t.a, 2, t.freq.x, d.x, true);
        assert_gradient("attention", attention_loss, &t, &t.qkv, &d, 1e-6);
        array_free(&t.qkv), array_free(&t.out), array_free(&t.lse), array_free(&t.c), array_free(&t.freq);
        array_free(&turned), array_free(&delta), array_free(&d);
        close_kernels(&t.o);
    }
}

/* ---- activations ---- */

struct act { struct opened o; enum activation act; bool gated; struct array gate, up, y, c; };

static double act_loss(void *self)
{
    struct act *t = self;

    t->o.ops->activation(t->o.k, t->act, t->y.n, t->gated ? t->gate.x : NULL, t->up.x, t->y.x, DT_FP64);
    return weighted(&t->y, &t->c);
}

static void activation_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct act t = { .o = reference(), .act = (enum activation)(i % 4), .gated = i / 4 };
        t.gate = array_random(50, DT_FP64, 4), t.up = array_random(50, DT_FP64, 4);
        t.y = array_new(50, DT_FP64), t.c = array_random(50, DT_FP64, 1);
        struct array du = array_like(&t.c), dgate = array_new(50, DT_FP64);

        t.o.ops->activation_back(t.o.k, t.act, 50, t.gated ? t.gate.x : NULL, t.up.x, du.x,
                                 t.gated ? dgate.x : NULL, DT_FP64);
        assert_gradient("activation", act_loss, &t, &t.up, &du, 1e-8);
        if (t.gated)
            assert_gradient("activation's gate", act_loss, &t, &t.gate, &dgate, 1e-8);
        array_free(&t.gate), array_free(&t.up), array_free(&t.y), array_free(&t.c);
        array_free(&du), array_free(&dgate);
        close_kernels(&t.o);
    }
}

/* ---- loss ---- */

/* The losses are fp32: with a step of 0.01, differences of them are good to 1e-4. */
static void the_gradient_of_the_loss(void **state)
{
    enum { N = 3, VOCAB = 7 };
    const int32_t labels[N] = { 6, 0, 3 };
    struct opened o = reference();
    struct array x = array_random(N * VOCAB, DT_FP64, 2), losses = array_new(N, DT_FP32), g = array_like(&x);

    (void)state;
    o.ops->cross_entropy(o.k, N, VOCAB, g.x, DT_FP64, labels, losses.x, 0.5);
    for (int i = 0; i < N * VOCAB; i++) {
        double loss[2];
        for (int side = 0; side < 2; side++) {
            struct array moved = array_like(&x);
            ((double *)moved.x)[i] += side ? -0.01 : 0.01;
            o.ops->cross_entropy(o.k, N, VOCAB, moved.x, DT_FP64, labels, losses.x, 1);
            loss[side] = 0.5 * array_get(&losses, i / VOCAB);
            array_free(&moved);
        }
        assert_true(fabs(array_get(&g, i) - (loss[0] - loss[1]) / 0.02) < 1e-4);
    }
    array_free(&x), array_free(&losses), array_free(&g);
    close_kernels(&o);
}

/* ---- embeddings ---- */

struct embed { struct opened o; struct array table, positions, x, c; struct dropout d; };

static const int32_t ids[] = { 2, 0, 2, 3, 3, 2 };

static double embed_loss(void *self)
{
    struct embed *t = self;

    t->o.ops->embed(t->o.k, 6, 4, ids, t->table.x, DT_FP64, t->x.x, DT_FP64);
    t->o.ops->embed_positions(t->o.k, 6, 4, 3, t->positions.x, DT_FP64, t->x.x, DT_FP64, &t->d);
    return weighted(&t->x, &t->c);
}

static void embedding_gradients(void **state)
{
    struct embed t = { .o = reference(), .d = { .p = 0.2, .key = 4 } };

    (void)state;
    t.table = array_random(16, DT_FP64, 1), t.positions = array_random(16, DT_FP64, 1);
    t.x = array_new(24, DT_FP64), t.c = array_random(24, DT_FP64, 1);
    struct array dx = array_like(&t.c), dt = array_new(16, DT_FP64), dp = array_new(16, DT_FP64);
    t.o.ops->dropout_back(t.o.k, 24, dx.x, DT_FP64, &t.d);
    t.o.ops->embed_back(t.o.k, 6, 4, 4, ids, dx.x, DT_FP64, dt.x, DT_FP64, GRAD_SET);
    t.o.ops->embed_positions_back(t.o.k, 6, 4, 3, 4, dx.x, DT_FP64, dp.x, DT_FP64, GRAD_SET);
    assert_gradient("token embedding", embed_loss, &t, &t.table, &dt, 1e-8);
    assert_gradient("position embedding", embed_loss, &t, &t.positions, &dp, 1e-8);
    array_free(&t.table), array_free(&t.positions), array_free(&t.x), array_free(&t.c);
    array_free(&dx), array_free(&dt), array_free(&dp);
    close_kernels(&t.o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_gradients),
        cmocka_unit_test(norm_gradients),
        cmocka_unit_test(attention_gradients),
        cmocka_unit_test(activation_gradients),
        cmocka_unit_test(the_gradient_of_the_loss),
        cmocka_unit_test(embedding_gradients),
    };
    return cmocka_run_group_tests_name("exec/kernels gradients", tests, NULL, NULL);
}
