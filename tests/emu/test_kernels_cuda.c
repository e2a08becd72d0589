/* Every kernel but linear layers on the emulated device beside the reference: exec/test_kernels*.c's
 * shapes, and what only a device has: results that wait, and arrays that come and go. */
#include "tests/emu/device_check.h"

#include "exec/cuda/kernels_cuda.h"
#include "exec/kernels/exact_sum.h"
#include "model/program/workspace.h"

/* An array that a kernel sets (all NaN) or adds to. */
static struct array output(int64_t n, enum dtype t, bool add)
{
    return add ? array_random(n, t, 1) : array_new(n, t);
}

static int32_t *random_ids(int64_t n, int64_t vocab)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);

    assert_non_null(ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)random_int(0, vocab - 1);
    return ids;
}

/* ---- rows ---- */

static void embeddings_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t seq = random_int(1, 30), n = seq * random_int(1, 5), h = random_int(1, i < 38 ? 80 : 1100);
        int64_t vocab = random_int(1, 60);
        enum dtype at = host_dtype(), wt = host_dtype();
        struct dropout d = { .p = coin() ? 0.3 : 0, .key = random_bits(), .first = random_int(0, 1000) };
        struct array table = array_random(vocab * h, wt, 1), positions = array_random(seq * h, wt, 1);
        struct array got = array_new(n * h, at), want = array_new(n * h, at);
        int32_t *ids = random_ids(n, vocab);
        struct there tids = ids_to_device(ids, n), ttable = to_device(&table), tpos = to_device(&positions);
        struct there tx = to_device(&got);
        bool added = coin();

        OK(gpu.ops->embed(gpu.k, n, h, tids.x, ttable.x, wt, tx.x, at));
        OK(gpu.ref->embed(gpu.ref_k, n, h, ids, table.x, wt, want.x, at));
        OK(gpu.ops->download(gpu.k, n * h * dtype_bytes(at), got.x, tx.x));
        assert_same("embed", &got, &want, 0, 0);
        OK(gpu.ops->embed_positions(gpu.k, n, h, seq, added ? tpos.x : NULL, wt, tx.x, at, &d));
        OK(gpu.ref->embed_positions(gpu.ref_k, n, h, seq, added ? positions.x : NULL, wt, want.x, at, &d));
        OK(gpu.ops->download(gpu.k, n * h * dtype_bytes(at), got.x, tx.x));
        assert_same("embed positions", &got, &want, half_tol(at, 3e-7), 0);
        OK(gpu.ops->dropout_back(gpu.k, n * h, tx.x, at, &d));
        OK(gpu.ref->dropout_back(gpu.ref_k, n * h, want.x, at, &d));
        from_device(&tx, &got);
        assert_same("dropout backward", &got, &want, 2 * half_tol(at, 3e-7), 0);
        drop_device(&tids), drop_device(&ttable), drop_device(&tpos);
        free(ids);
        array_free(&table), array_free(&positions), array_free(&got), array_free(&want);
    }
}

static void embedding_gradients_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t seq = random_int(1, 30), n = seq * random_int(1, 5), h = random_int(1, i < 38 ? 50 : 1100);
        int64_t vocab = random_int(1, 60), rows = seq + random_int(0, 5);
        enum dtype at = host_dtype(), gt = host_dtype();
        bool add = coin();
        enum grad_into into = add ? GRAD_ADD : GRAD_SET;
        struct array dx = array_random(n * h, at, 1);
        struct array got = output(vocab * h, gt, add), want = array_like(&got);
        struct array pos = output(rows * h, gt, add), want_pos = array_like(&pos);
        int32_t *ids = random_ids(n, vocab);
        struct there tids = ids_to_device(ids, n), tdx = to_device(&dx), tgot = to_device(&got);
        struct there tpos = to_device(&pos);

        OK(gpu.ops->embed_back(gpu.k, n, h, vocab, tids.x, tdx.x, at, tgot.x, gt, into));
        OK(gpu.ref->embed_back(gpu.ref_k, n, h, vocab, ids, dx.x, at, want.x, gt, into));
        OK(gpu.ops->embed_positions_back(gpu.k, n, h, seq, rows, tdx.x, at, tpos.x, gt, into));
        OK(gpu.ref->embed_positions_back(gpu.ref_k, n, h, seq, rows, dx.x, at, want_pos.x, gt, into));
        from_device(&tgot, &got), from_device(&tpos, &pos);
        assert_same("embed backward", &got, &want, half_tol(gt, 1e-6), half_size(gt, 0.01, 1));
        assert_same("embed positions backward", &pos, &want_pos, half_tol(gt, 1e-6), half_size(gt, 0.01, 1));
        drop_device(&tids), drop_device(&tdx);
        free(ids);
        array_free(&dx), array_free(&got), array_free(&want), array_free(&pos), array_free(&want_pos);
    }
}

struct norm_case {
    enum norm_kind kind;
    int64_t n, h, nstats;
    enum dtype at, wt, gt;
    bool w, b, add, in_place;
};

static struct norm_case random_norm(int i)
{
    struct norm_case c = { .kind = coin() ? NORM_LAYER : NORM_RMS, .n = random_int(1, 50),
                           .h = random_int(2, i < 50 ? 90 : 1500), .at = host_dtype(), .wt = host_dtype(),
                           .gt = host_dtype(), .w = coin(), .b = coin(), .add = coin() };

    c.nstats = c.kind == NORM_LAYER ? 2 * c.n : c.n;
    c.in_place = !c.add && coin();
    return c;
}

static void check_norm_back(const struct norm_case *c, const struct array *x, const struct array *w,
                            const struct array *stats)
{
    enum grad_into into = c->add ? GRAD_ADD : GRAD_SET;
    struct array dy = array_random(c->n * c->h, c->at, 1);
    struct array got = output(c->n * c->h, c->at, c->add), want = array_like(&got);
    struct array dw = output(c->h, c->gt, c->add), want_dw = array_like(&dw);
    struct array db = output(c->h, c->gt, c->add), want_db = array_like(&db);
    struct there tdy = to_device(&dy), tx = to_device(x), tw = to_device(w), tstats = to_device(stats);
    struct there tdx = to_device(&got), tdw = to_device(&dw), tdb = to_device(&db);
    double size = half_size(c->gt, 0.02, sqrt((double)c->n));

    OK(gpu.ops->norm_back(gpu.k, c->kind, c->n, c->h, tdy.x, tx.x, c->w ? tw.x : NULL, c->wt, tstats.x, c->at,
                          c->in_place ? tdy.x : tdx.x, c->add, c->w ? tdw.x : NULL, c->b ? tdb.x : NULL,
                          c->gt, into));
    OK(gpu.ref->norm_back(gpu.ref_k, c->kind, c->n, c->h, dy.x, x->x, c->w ? w->x : NULL, c->wt, stats->x,
                          c->at, want.x, c->add, c->w ? want_dw.x : NULL, c->b ? want_db.x : NULL, c->gt,
                          into));
    from_device(&tdx, &got), from_device(&tdw, &dw), from_device(&tdb, &db);
    from_device(&tdy, c->in_place ? &got : NULL);
    assert_same("norm backward", &got, &want, half_tol(c->at, 5e-6), half_size(c->at, 0.02, 1));
    assert_same("norm weight gradient", &dw, &want_dw, half_tol(c->gt, 4e-6), size);
    assert_same("norm bias gradient", &db, &want_db, half_tol(c->gt, 4e-6), size);
    drop_device(&tx), drop_device(&tw), drop_device(&tstats);
    array_free(&dy), array_free(&got), array_free(&want);
    array_free(&dw), array_free(&want_dw), array_free(&db), array_free(&want_db);
}

static void norms_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct norm_case c = random_norm(i);
        struct array x = array_random(c.n * c.h, c.at, 3), w = array_random(c.h, c.wt, 1);
        struct array bias = array_random(c.h, c.wt, 1);
        struct array got = array_new(c.n * c.h, c.at), want = array_new(c.n * c.h, c.at);
        struct array stats = array_new(c.nstats, DT_FP32), want_stats = array_new(c.nstats, DT_FP32);
        struct there tx = to_device(&x), tw = to_device(&w), tb = to_device(&bias), ty = to_device(&got);
        struct there tstats = to_device(&stats);

        OK(gpu.ops->norm(gpu.k, c.kind, c.n, c.h, 1e-5, tx.x, c.w ? tw.x : NULL, c.b ? tb.x : NULL, c.wt,
                         ty.x, c.at, tstats.x));
        OK(gpu.ref->norm(gpu.ref_k, c.kind, c.n, c.h, 1e-5, x.x, c.w ? w.x : NULL, c.b ? bias.x : NULL, c.wt,
                         want.x, c.at, want_stats.x));
        from_device(&ty, &got), from_device(&tstats, &stats);
        assert_same("norm", &got, &want, half_tol(c.at, 3e-6), half_size(c.at, 0.02, 1));
        assert_same("norm statistics", &stats, &want_stats, 3e-6, 1);
        check_norm_back(&c, &x, &w, &want_stats);
        drop_device(&tx), drop_device(&tw), drop_device(&tb);
        array_free(&x), array_free(&w), array_free(&bias), array_free(&got), array_free(&want);
        array_free(&stats), array_free(&want_stats);
    }
}

static void the_loss_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t n = random_int(1, 12), vocab = i == 39 ? 50257 : random_int(1, 3000);
        enum dtype at = host_dtype();
        double size = i % 3 ? 5 : 100;
        struct array got = array_random(n * vocab, at, size), want = array_like(&got);
        struct array losses = array_new(n, DT_FP32), want_losses = array_new(n, DT_FP32);
        int32_t *labels = random_ids(n, vocab);
        struct there tx = to_device(&got), tids = ids_to_device(labels, n), tlosses = to_device(&losses);

        OK(gpu.ops->cross_entropy(gpu.k, n, vocab, tx.x, at, tids.x, tlosses.x, 0.37));
        OK(gpu.ref->cross_entropy(gpu.ref_k, n, vocab, want.x, at, labels, want_losses.x, 0.37));
        from_device(&tx, &got), from_device(&tlosses, &losses);
        assert_same("losses", &losses, &want_losses, 2e-6, 1);
        assert_same("gradients of the logits", &got, &want, half_tol(at, 2e-6), half_size(at, 1e-6, 0.05));
        drop_device(&tids);
        free(labels);
        array_free(&got), array_free(&want), array_free(&losses), array_free(&want_losses);
    }
}

/* The device cannot stop for it: the loss of the step tells. */
static void a_label_beyond_the_vocabulary_makes_the_loss_nan(void **state)
{
    struct array logits = array_random(8, DT_FP32, 1), losses = array_new(2, DT_FP32);
    const int32_t labels[] = { 1, 4 };
    struct there tx = to_device(&logits), tids = ids_to_device(labels, 2), tlosses = to_device(&losses);
    double sum = 0;

    (void)state;
    OK(gpu.ops->cross_entropy(gpu.k, 2, 4, tx.x, DT_FP32, tids.x, tlosses.x, 1));
    OK(gpu.ops->sum(gpu.k, 2, tlosses.x, &sum));
    OK(gpu.ops->finish(gpu.k));
    assert_true(isnan(sum));
    drop_device(&tx), drop_device(&tids), drop_device(&tlosses);
    array_free(&logits), array_free(&losses);
}

/* ---- attention ---- */

static struct attention random_attention(int64_t most_seq)
{
    struct attention a = { .batch = random_int(1, 2), .seq = random_int(1, most_seq),
                           .kv_heads = random_int(1, 2), .dim = random_int(1, 40) * 2, .at = host_dtype() };

    a.heads = a.kv_heads * random_int(1, 3);
    a.ld = (a.heads + 2 * a.kv_heads) * a.dim + (coin() ? random_int(1, 7) : 0);
    a.scale = 1 / sqrt((double)a.dim);
    if (random_int(0, 2) == 0)
        a.drop = (struct dropout){ .p = 0.2, .key = random_bits(), .first = random_int(0, 99) };
    return a;
}

static void check_attention(const struct attention *a, double size)
{
    int64_t n = a->batch * a->seq;
    struct array qkv = array_random(n * a->ld, a->at, size);
    struct array dout = array_random(n * a->heads * a->dim, a->at, 1);
    struct array o = array_new(n * a->heads * a->dim, a->at), want_o = array_like(&o);
    struct array lse = array_new(n * a->heads, DT_FP32), want_lse = array_like(&lse);
    struct array delta = array_like(&lse), want_delta = array_like(&lse);
    struct array dqkv = array_new(n * a->ld, a->at), want_dqkv = array_like(&dqkv);
    struct there tqkv = to_device(&qkv), to = to_device(&o), tlse = to_device(&lse);
    double t = half_tol(a->at, 4e-6 * size * size);

    OK(gpu.ref->attention(gpu.ref_k, a, qkv.x, want_o.x, want_lse.x));
    OK(gpu.ref->attention_back(gpu.ref_k, a, qkv.x, want_o.x, want_lse.x, dout.x, want_delta.x, want_dqkv.x));
    OK(gpu.ops->attention(gpu.k, a, tqkv.x, to.x, tlse.x));
    from_device(&to, &o), from_device(&tlse, &lse);
    assert_same("attention", &o, &want_o, t, size > 1 ? size : a->at == DT_FP32 ? 0.05 : 1);
    assert_same("log-sum-exp", &lse, &want_lse, 1e-6, size * size);

    struct there wo = to_device(&want_o), wlse = to_device(&want_lse), tdout = to_device(&dout);
    struct there tdelta = to_device(&delta), tdqkv = to_device(&dqkv);
    OK(gpu.ops->attention_back(gpu.k, a, tqkv.x, wo.x, wlse.x, tdout.x, tdelta.x, tdqkv.x));
    from_device(&tdelta, &delta), from_device(&tdqkv, &dqkv);
    assert_same("attention delta", &delta, &want_delta, 4e-6, 1);
    /* Probabilities and their gradients are operands of products in 16 bits: 2^-9 or 2^-12 of sums of them. */
    assert_same("attention backward", &dqkv, &want_dqkv, t, a->at == DT_FP32 ? size * size * size : 2);
    drop_device(&tqkv), drop_device(&wo), drop_device(&wlse), drop_device(&tdout);
    array_free(&qkv), array_free(&dout), array_free(&o), array_free(&want_o), array_free(&lse);
    array_free(&want_lse), array_free(&delta), array_free(&want_delta);
    array_free(&dqkv), array_free(&want_dqkv);
}

static void attention_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        struct attention a = random_attention(i < 12 ? 30 : 90);
        check_attention(&a, 1);
    }
}

static void large_scores_do_not_overflow(void **state)
{
    struct attention a = random_attention(40);

    (void)state;
    a.at = DT_FP32;
    a.scale = 1;
    check_attention(&a, 6);
}

static void rotary_equals_the_reference_and_its_inverse_undoes_it(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct attention a = random_attention(60);
        int64_t rot = random_int(1, a.dim / 2) * 2, bytes = a.batch * a.seq * a.ld * dtype_bytes(a.at);
        struct array freq = array_random(rot / 2, DT_FP32, 1);
        struct array x = array_random(a.batch * a.seq * a.ld, a.at, 1);
        struct array got = array_like(&x), want = array_like(&x);
        struct there tx = to_device(&x), tfreq = to_device(&freq);
        double t = half_tol(a.at, 1e-6);

        OK(gpu.ops->rotary(gpu.k, &a, rot, tfreq.x, tx.x, false));
        OK(gpu.ref->rotary(gpu.ref_k, &a, rot, freq.x, want.x, false));
        OK(gpu.ops->download(gpu.k, bytes, got.x, tx.x));
        assert_same("rotary", &got, &want, t, half_size(a.at, 0.02, 1));
        OK(gpu.ops->rotary(gpu.k, &a, rot, tfreq.x, tx.x, true));
        from_device(&tx, &got);
        assert_same("rotary and back", &got, &x, 2 * t, 1);
        drop_device(&tfreq);
        array_free(&freq), array_free(&x), array_free(&got), array_free(&want);
    }
}

static void attention_that_cannot_be_is_refused(void **state)
{
    struct attention wide = { .batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .dim = 300, .ld = 900 };
    struct attention odd = { .batch = 1, .seq = 1, .heads = 3, .kv_heads = 2, .dim = 8, .ld = 56 };
    char said[300];

    (void)state;
    fail_capture(said, sizeof said);
    assert_int_equal(gpu.ops->attention(gpu.k, &wide, gpu.workspace, gpu.workspace, gpu.workspace), -1);
    assert_string_equal(said, "attention: heads of 300 elements, 256 is the most on CUDA");
    assert_int_equal(gpu.ops->attention(gpu.k, &odd, gpu.workspace, gpu.workspace, gpu.workspace), -1);
    assert_non_null(strstr(said, "3 heads on 2"));
    assert_int_equal(gpu.ops->rotary(gpu.k, &odd, 10, gpu.workspace, gpu.workspace, false), -1);
    fail_capture(NULL, 0);
    assert_string_equal(said, "rotary: 10 of 8 elements of a head");
}

/* ---- elements ---- */

static void activations_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++) {
        enum activation act = (enum activation)(i % 4);
        int64_t n = random_int(1, 3000);
        enum dtype at = host_dtype();
        bool gated = i / 4 % 2;
        struct array gate = array_random(n, at, 6), up = array_random(n, at, 6);
        struct array got = array_new(n, at), want = array_new(n, at);
        struct array du = array_random(n, at, 1), want_du = array_like(&du);
        struct array dgate = array_new(n, at), want_dgate = array_new(n, at);
        struct there tgate = to_device(&gate), tup = to_device(&up), ty = to_device(&got);
        struct there tdu = to_device(&du), tdgate = to_device(&dgate);
        const void *g = gated ? gate.x : NULL, *tg = gated ? tgate.x : NULL;
        double size = half_size(at, 1e-3, 1);

        OK(gpu.ops->activation(gpu.k, act, n, tg, tup.x, ty.x, at));
        OK(gpu.ref->activation(gpu.ref_k, act, n, g, up.x, want.x, at));
        OK(gpu.ops->activation_back(gpu.k, act, n, tg, tup.x, tdu.x, gated ? tdgate.x : NULL, at));
        OK(gpu.ref->activation_back(gpu.ref_k, act, n, g, up.x, want_du.x, gated ? want_dgate.x : NULL, at));
        from_device(&ty, &got), from_device(&tdu, &du), from_device(&tdgate, &dgate);
        assert_same("activation", &got, &want, half_tol(at, 1.5e-6), size);
        assert_same("activation backward", &du, &want_du, half_tol(at, 1.5e-6), size);
        assert_same("activation backward, gate", &dgate, &want_dgate, half_tol(at, 3e-6), size);
        drop_device(&tgate), drop_device(&tup);
        array_free(&gate), array_free(&up), array_free(&got), array_free(&want);
        array_free(&du), array_free(&want_du), array_free(&dgate), array_free(&want_dgate);
    }
}

static void adamw_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        int64_t n = random_int(1, 5000);
        enum dtype gt = host_dtype(), ot = host_dtype();
        bool cast = coin();
        struct adamw a = { 0.01, 0.9, 0.95, 1e-8, coin() ? 0.1 : 0, random_int(1, 50), 0.5 };
        struct array p = array_random(n, DT_FP32, 1), want_p = array_like(&p);
        struct array m = array_random(n, DT_FP32, 1), want_m = array_like(&m);
        struct array v = array_random(n, DT_FP32, 1), g = array_random(n, gt, 1);
        struct array out = array_new(n, ot), want_out = array_new(n, ot);

        for (int64_t j = 0; j < n; j++)
            array_set(&v, j, fabs(array_get(&v, j)));
        struct array want_v = array_like(&v);
        struct there tp = to_device(&p), tm = to_device(&m), tv = to_device(&v), tg = to_device(&g);
        struct there tout = to_device(&out);
        OK(gpu.ops->adamw(gpu.k, &a, n, tp.x, tm.x, tv.x, tg.x, gt, cast ? tout.x : NULL, ot));
        OK(gpu.ref->adamw(gpu.ref_k, &a, n, want_p.x, want_m.x, want_v.x, g.x, gt, cast ? want_out.x : NULL,
                          ot));
        from_device(&tp, &p), from_device(&tm, &m), from_device(&tv, &v), from_device(&tout, &out);
        assert_same("m", &m, &want_m, 3e-7, 1);
        assert_same("v", &v, &want_v, 3e-7, 1);
        assert_same("p", &p, &want_p, 1e-6, 1);
        assert_same("p cast", &out, &want_out, half_tol(ot, 1e-6), half_size(ot, 1e-3, 1));
        drop_device(&tg);
        array_free(&p), array_free(&m), array_free(&v), array_free(&g), array_free(&out);
        array_free(&want_p), array_free(&want_m), array_free(&want_v), array_free(&want_out);
    }
}

static void one_moment_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        int64_t n = random_int(1, 5000);
        enum dtype gt = host_dtype(), ot = host_dtype();
        bool cast = coin(), lion = coin();
        struct adamw a = { 0.01, 0.9, 0.99, 0, coin() ? 0.1 : 0, 1, 0.5 };
        struct array p = array_random(n, DT_FP32, 1), want_p = array_like(&p);
        struct array m = array_random(n, DT_FP32, 1), want_m = array_like(&m);
        struct array g = array_random(n, gt, 1), out = array_new(n, ot), want_out = array_new(n, ot);
        struct there tp = to_device(&p), tm = to_device(&m), tg = to_device(&g), tout = to_device(&out);

        OK((lion ? gpu.ops->lion : gpu.ops->sgd)(gpu.k, &a, n, tp.x, tm.x, tg.x, gt, cast ? tout.x : NULL, ot));
        OK((lion ? gpu.ref->lion : gpu.ref->sgd)(gpu.ref_k, &a, n, want_p.x, want_m.x, g.x, gt, cast ? want_out.x : NULL, ot));
        from_device(&tp, &p), from_device(&tm, &m), from_device(&tout, &out);
        assert_same("m", &m, &want_m, 3e-7, 1);
        assert_same("p", &p, &want_p, 1e-6, 1);
        assert_same("p cast", &out, &want_out, half_tol(ot, 1e-6), half_size(ot, 1e-3, 1));
        drop_device(&tg);
        array_free(&p), array_free(&m), array_free(&g), array_free(&out);
        array_free(&want_p), array_free(&want_m), array_free(&want_out);
    }
}

static void copies_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        int64_t n = random_int(1, 3000);
        enum dtype dt = host_dtype(), st = host_dtype();
        bool add = coin(), own = dt == st && coin();
        double scale = coin() ? 1 : 0.3;
        struct array src = array_random(n, st, 1), got = own ? array_like(&src) : output(n, dt, add);
        struct array want = array_like(&got);
        struct there tsrc = to_device(&src), tgot = to_device(&got);

        OK(gpu.ops->copy(gpu.k, n, tgot.x, dt, own ? tgot.x : tsrc.x, st, scale, add));
        OK(gpu.ref->copy(gpu.ref_k, n, want.x, dt, own ? want.x : src.x, st, scale, add));
        from_device(&tgot, &got);
        assert_same("copy", &got, &want, add || scale != 1 ? half_tol(dt, 2e-7) : 0, add ? 0.5 : 0);
        drop_device(&tsrc);
        array_free(&src), array_free(&got), array_free(&want);
    }
}

/* ---- what comes and goes ---- */

/* Pinned memory holds 8 MiB on the way up and 4 on the way down. */
static void arrays_larger_than_the_staging_come_and_go(void **state)
{
    enum { N = (21 << 20) / 4 + 5 };
    struct array x = array_random(N, DT_FP32, 1), back = array_new(N, DT_FP32);

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct array sent = array_like(&x);
        struct there t = to_device_skewed(&sent, i);
        memset(sent.x, 0, N * 4);
        from_device(&t, &back);
        assert_memory_equal(x.x, back.x, N * 4);
        array_free(&sent);
    }
    array_free(&x), array_free(&back);
}

/* Small ones queue without waiting, until the ring has been round. */
static void many_small_arrays_keep_their_order(void **state)
{
    enum { N = 3000, PIECE = 1001 };
    struct array all = array_new(N * PIECE, DT_FP32), back = array_new(N * PIECE, DT_FP32);
    struct there t = to_device(&all);
    float piece[PIECE];

    (void)state;
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < PIECE; j++) {
            piece[j] = (float)(i * 7 + j);
            array_set(&all, (int64_t)i * PIECE + j, (double)piece[j]);
        }
        OK(gpu.ops->upload(gpu.k, sizeof piece, (float *)t.x + (int64_t)i * PIECE, piece));
    }
    from_device(&t, &back);
    assert_memory_equal(all.x, back.x, N * PIECE * 4);
    array_free(&all), array_free(&back);
}

static void loads_cast_as_the_host_does(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        enum dtype t = (enum dtype)(i % 3);             /* fp32, bf16, fp16 */
        int64_t n = i < 6 ? random_int(1, 3000) : 5 << 20;
        struct array from = array_random(n, DT_FP32, 1), got = array_new(n, t), want = array_new(n, t);
        struct there to = to_device(&got);

        OK(gpu.ops->load(gpu.k, n, to.x, t, from.x));
        OK(gpu.ref->load(gpu.ref_k, n, want.x, t, from.x));
        from_device(&to, &got);
        assert_memory_equal(got.x, want.x, (size_t)(n * dtype_bytes(t)));
        array_free(&from), array_free(&got), array_free(&want);
    }
}

static void zeros_are_zero(void **state)
{
    struct array x = array_random(777, DT_BF16, 1);
    struct there t = to_device(&x);

    (void)state;
    OK(gpu.ops->zero(gpu.k, 776 * 2, t.x));
    OK(gpu.ops->zero(gpu.k, 0, NULL));
    double last = array_get(&x, 776);
    from_device(&t, &x);
    for (int i = 0; i < 776; i++)
        assert_true(array_get(&x, i) == 0);
    assert_true(array_get(&x, 776) == last);
    array_free(&x);
}

/* ---- results ---- */

static void sums_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        enum dtype t = host_dtype();
        int64_t n = random_int(1, i < 25 ? 3000 : 60000);
        struct array x = array_random(n, t, 1);
        double got[3] = { 5, 6, 7 }, want[3] = { 5, 6, 7 };

        for (int64_t j = 0; i % 3 == 0 && j < n; j += 1 + n / 5)
            array_set(&x, j, j % 2 ? NAN : -INFINITY);
        struct there tx = to_device(&x);
        bool finite = i % 3;
        OK(gpu.ops->not_finite(gpu.k, n, tx.x, t, &got[0]));
        OK(gpu.ref->not_finite(gpu.ref_k, n, x.x, t, &want[0]));
        if (finite) {
            OK(gpu.ops->sum_squares(gpu.k, n, tx.x, t, &got[1]));
            OK(gpu.ref->sum_squares(gpu.ref_k, n, x.x, t, &want[1]));
        }
        if (finite && t == DT_FP32) {
            OK(gpu.ops->sum(gpu.k, n, tx.x, &got[2]));
            OK(gpu.ref->sum(gpu.ref_k, n, x.x, &want[2]));
        }
        OK(gpu.ops->finish(gpu.k));
        assert_true(got[0] == want[0]);
        assert_close(got[1], want[1], 1e-12);
        assert_close(got[2], want[2], 1e-9);
        drop_device(&tx);
        array_free(&x);
    }
}

/* Exactly: no order and no cut changes a bit. */
static void exact_sums_are_the_host_s(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        enum dtype t = coin() ? DT_FP32 : DT_BF16;
        int64_t n = random_int(2, 20000), cut = random_int(1, n - 1);
        struct array x = array_random(n, t, i % 3 == 0 ? 1e30 : i % 3 == 1 ? 1e-30 : 1);
        struct exact_sum got = { { 0 } }, want = { { 0 } };

        if (i == 11)
            array_set(&x, n / 2, NAN);
        struct there tx = to_device(&x);
        const char *second = (const char *)tx.x + cut * dtype_bytes(t);
        exact_add_squares(&want, n, x.x, t);
        OK(gpu.ops->exact_squares(gpu.k, cut, tx.x, t, &got));
        OK(gpu.ops->exact_squares(gpu.k, n - cut, second, t, &got));
        OK(gpu.ops->finish(gpu.k));
        assert_memory_equal(&got, &want, sizeof got);
        drop_device(&tx);
        array_free(&x);
    }
}

/* More variables than there are slots, some of them twice. */
static void any_number_of_results_may_wait(void **state)
{
    enum { N = 150 };
    struct array x = array_new(N, DT_FP32);
    double sum[N];
    struct exact_sum exact = { { 0 } };

    (void)state;
    for (int i = 0; i < N; i++) {
        array_set(&x, i, i);
        sum[i] = 1000;
    }
    struct there tx = to_device(&x);
    for (int i = 0; i < N; i++) {
        OK(gpu.ops->sum(gpu.k, 1, (float *)tx.x + i, &sum[i]));
        if (i == N - 1)
            OK(gpu.ops->sum(gpu.k, 1, tx.x, &sum[i]));
        if (i % 50 == 1) {
            OK(gpu.ops->exact_squares(gpu.k, 1, (float *)tx.x + i, DT_FP32, &exact));
            OK(gpu.ops->sum(gpu.k, 1, (float *)tx.x + i, &sum[i]));
        }
    }
    OK(gpu.ops->finish(gpu.k));
    OK(gpu.ops->finish(gpu.k));
    for (int i = 0; i < N; i++)
        assert_true(sum[i] == 1000 + i + (i % 50 == 1 ? i : 0));
    assert_true(exact_value(&exact) == 1 + 51 * 51 + 101 * 101);
    drop_device(&tx);
    array_free(&x);
}

/* Copies, sums and casts are wanted on streams whose kernels have no workspace. */
static void a_stream_without_a_workspace_copies_and_sums(void **state)
{
    struct kernels *k = kernels_open_on(gpu.device, STREAM_COPY_IN, 1, NULL, 0, false);
    const struct kernel_ops *ops = kernels_ops(k);
    struct array x = array_random(5000, DT_FP32, 1), got = array_new(5000, DT_BF16);
    double sum = 0, want = 0;

    (void)state;
    struct there tx = to_device(&x), ty = to_device(&got);
    OK(gpu.ops->finish(gpu.k));                 /* the arrays came on the other stream */
    OK(ops->copy(k, 5000, ty.x, DT_BF16, tx.x, DT_FP32, 1, false));
    OK(ops->sum_squares(k, 5000, tx.x, DT_FP32, &sum));
    OK(ops->finish(k));
    from_device(&ty, &got);
    for (int64_t i = 0; i < 5000; i++) {
        assert_true(array_get(&got, i) == (double)half_from_bf16(half_to_bf16((float)array_get(&x, i))));
        want += pow(array_get(&x, i), 2);
    }
    assert_close(sum, want, 1e-9);
    drop_device(&tx);
    array_free(&x), array_free(&got);
    kernels_close(k);
}

/* As kernels_cuda.h has the formula. */
static void the_workspace_is_as_large_as_the_header_says(void **state)
{
    struct kernels_cuda_need need = { .n = 8192, .hidden = 768, .vocab = 50257, .widest = 3072 };

    (void)state;
    assert_int_equal(kernels_cuda_workspace(&need), (32 << 20) + (4 << 20));
    need.cast = 50257 * 768;
    assert_int_equal(kernels_cuda_workspace(&need), (32 << 20) + 2 * 50257 * 768 + 2 * 3072 + (4 << 20));
    need.cast = 0, need.widest = 16384, need.hidden = 4096;
    assert_int_equal(kernels_cuda_workspace(&need), (32 << 20) + 4 * 16384 * 256);
    need.widest = 4096;
    assert_int_equal(kernels_cuda_workspace(&need), (32 << 20) + 8 * 4096 * 512);
    need.vocab = 10000000;
    assert_int_equal(kernels_cuda_workspace(&need),
                     (32 << 20) + round_up(4 * (2 * 10000001 + 2 * 8192 + 9766 + 20 + 32 * 4096), 256));
}

static int64_t more(int64_t a, int64_t b) { return a > b ? a : b; }

/* DDP in bf16 is autocast: fp32 weights are cast; FSDP's are 16 bits already. */
static void planners_count_what_is_taken(void **state)
{
    (void)state;
    static const int64_t hidden[] = { 64, 768, 4096 }, seq[] = { 1, 127, 4096 };
    static const enum strategy of[] = { STRAT_DDP, STRAT_FSDP };

    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 2; k++) {
                struct plan p = { 0 };
                plan_defaults(&p, of[k], DIALECT_TORCH, DT_BF16);
                p.seq = seq[j];
                p.micro_batch = 1 + j;
                p.model = (struct model){ .hidden = hidden[i], .ffn = 4 * hidden[i], .heads = 4, .kv_heads = 2,
                                          .head_dim = hidden[i] / 4, .vocab = 50257 };
                struct kernels_cuda_need need = {
                    .n = p.micro_batch * p.seq, .hidden = hidden[i], .vocab = 50257, .widest = 4 * hidden[i],
                    .cast = of[k] == STRAT_DDP ? more(50257, 4 * hidden[i]) * hidden[i] : 0 };
                assert_int_equal(workspace_device(&p), kernels_cuda_workspace(&need));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_equal_the_reference),
        cmocka_unit_test(embedding_gradients_equal_the_reference),
        cmocka_unit_test(norms_equal_the_reference),
        cmocka_unit_test(the_loss_equals_the_reference),
        cmocka_unit_test(a_label_beyond_the_vocabulary_makes_the_loss_nan),
        cmocka_unit_test(attention_equals_the_reference),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(rotary_equals_the_reference_and_its_inverse_undoes_it),
        cmocka_unit_test(attention_that_cannot_be_is_refused),
        cmocka_unit_test(activations_equal_the_reference),
        cmocka_unit_test(adamw_equals_the_reference),
        cmocka_unit_test(one_moment_equals_the_reference),
        cmocka_unit_test(copies_equal_the_reference),
        cmocka_unit_test(arrays_larger_than_the_staging_come_and_go),
        cmocka_unit_test(many_small_arrays_keep_their_order),
        cmocka_unit_test(loads_cast_as_the_host_does),
        cmocka_unit_test(zeros_are_zero),
        cmocka_unit_test(sums_equal_the_reference),
        cmocka_unit_test(exact_sums_are_the_host_s),
        cmocka_unit_test(any_number_of_results_may_wait),
        cmocka_unit_test(a_stream_without_a_workspace_copies_and_sums),
        cmocka_unit_test(the_workspace_is_as_large_as_the_header_says),
        cmocka_unit_test(planners_count_what_is_taken),
    };

    int failed = gpu_tests("emu/kernels", tests);

    print_message("%d passed, %d failed\n", (int)(sizeof tests / sizeof *tests) - failed, failed);
    return failed;
}
