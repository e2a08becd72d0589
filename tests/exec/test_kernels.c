/* Every kernel but products and attention beside the reference, on random shapes. */
#include "tests/exec/kernels_check.h"

static struct both open_for(int64_t n, int64_t h, int64_t vocab)
{
    struct kernels_need need = { .n = n, .widest_in = h, .widest_out = h, .vocab = vocab, .seq = 1, .dim = 1,
                                 .threads = 1 + (int)coin() };

    return open_both(&need);
}

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

/* As kernels.h has the formula. */
static void the_workspace_is_as_large_as_the_header_says(void **state)
{
    struct kernels_need need = { .n = 1000, .widest_in = 768, .widest_out = 3072, .vocab = 50257, .seq = 1024,
                                 .dim = 64, .threads = 2 };

    (void)state;
    assert_int_equal(kernels_workspace(&need), (9 << 20) + 256);
    need.seq = 8190, need.dim = 100;
    assert_int_equal(kernels_workspace(&need), 4 * 2 * (5 * 8192 * 112 + 192 * 112 + 34816) + 64);
    need.seq = 1, need.vocab = 10000000;
    assert_int_equal(kernels_workspace(&need), 4 * (10000016 + 1008) + 64);
    need.vocab = 10, need.widest_out = 1000000;
    assert_int_equal(kernels_workspace(&need), 4 * 12 * 1000000 + 64);
}

static void embeddings_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t seq = random_int(1, 30), n = seq * random_int(1, 5), h = random_int(1, i < 35 ? 80 : 2100);
        int64_t vocab = random_int(1, 60);
        enum dtype at = host_dtype(), wt = host_dtype();
        struct dropout d = { .p = coin() ? 0.3 : 0, .key = random_bits(), .first = random_int(0, 1000) };
        struct both b = open_for(n, h, vocab);
        struct array table = array_random(vocab * h, wt, 1), positions = array_random(seq * h, wt, 1);
        struct array got = array_new(n * h, at), want = array_new(n * h, at);
        int32_t *ids = random_ids(n, vocab);

        b.host.ops->embed(b.host.k, n, h, ids, table.x, wt, got.x, at);
        b.ref.ops->embed(b.ref.k, n, h, ids, table.x, wt, want.x, at);
        assert_same("embed", &got, &want, 0, 0);
        const void *p = coin() ? positions.x : NULL;
        b.host.ops->embed_positions(b.host.k, n, h, seq, p, wt, got.x, at, &d);
        b.ref.ops->embed_positions(b.ref.k, n, h, seq, p, wt, want.x, at, &d);
        assert_same("embed positions", &got, &want, half_tol(at, 3e-7), 0);
        b.host.ops->dropout_back(b.host.k, n * h, got.x, at, &d);
        b.ref.ops->dropout_back(b.ref.k, n * h, want.x, at, &d);
        assert_same("dropout backward", &got, &want, 2 * half_tol(at, 3e-7), 0);
        free(ids);
        array_free(&table), array_free(&positions), array_free(&got), array_free(&want);
        close_both(&b);
    }
}

static void embedding_gradients_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t seq = random_int(1, 30), n = seq * random_int(1, 5), h = random_int(1, i < 35 ? 50 : 1100);
        int64_t vocab = random_int(1, 60), rows = seq + random_int(0, 5);
        enum dtype at = host_dtype(), gt = host_dtype();
        bool add = coin();
        enum grad_into into = add ? GRAD_ADD : GRAD_SET;
        struct both b = open_for(n, h, vocab);
        struct array dx = array_random(n * h, at, 1);
        struct array got = output(vocab * h, gt, add), want = array_like(&got);
        struct array pos = output(rows * h, gt, add), want_pos = array_like(&pos);
        int32_t *ids = random_ids(n, vocab);

        assert_int_equal(b.host.ops->embed_back(b.host.k, n, h, vocab, ids, dx.x, at, got.x, gt, into), 0);
        b.ref.ops->embed_back(b.ref.k, n, h, vocab, ids, dx.x, at, want.x, gt, into);
        assert_same("embed backward", &got, &want, half_tol(gt, 1e-6), half_size(gt, 0.01, 1));
        b.host.ops->embed_positions_back(b.host.k, n, h, seq, rows, dx.x, at, pos.x, gt, into);
        b.ref.ops->embed_positions_back(b.ref.k, n, h, seq, rows, dx.x, at, want_pos.x, gt, into);
        assert_same("embed positions backward", &pos, &want_pos, half_tol(gt, 1e-6), half_size(gt, 0.01, 1));
        free(ids);
        array_free(&dx), array_free(&got), array_free(&want), array_free(&pos), array_free(&want_pos);
        close_both(&b);
    }
}

static void a_token_beyond_the_vocabulary_is_reported(void **state)
{
    struct both b = open_for(2, 4, 3);
    struct array dx = array_random(8, DT_FP32, 1), table = array_new(12, DT_FP32);
    struct array losses = array_new(2, DT_FP32);
    const int32_t ids[] = { 1, 3 };
    char said[200];

    (void)state;
    fail_capture(said, sizeof said);
    assert_int_equal(b.host.ops->embed_back(b.host.k, 2, 4, 3, ids, dx.x, DT_FP32, table.x, DT_FP32,
                                            GRAD_SET), -1);
    assert_string_equal(said, "token 1 is 3, beyond the vocabulary of 3");
    assert_int_equal(b.host.ops->cross_entropy(b.host.k, 2, 3, dx.x, DT_FP32, ids, losses.x, 1), -1);
    fail_capture(NULL, 0);
    assert_string_equal(said, "label 1 is 3, beyond the vocabulary of 3");
    array_free(&dx), array_free(&table), array_free(&losses);
    close_both(&b);
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
                           .h = random_int(2, i < 30 ? 90 : 1500), .at = host_dtype(), .wt = host_dtype(),
                           .gt = host_dtype(), .w = coin(), .b = coin(), .add = coin() };

    c.nstats = c.kind == NORM_LAYER ? 2 * c.n : c.n;
    c.in_place = !c.add && coin();
    return c;
}

static void check_norm_back(struct both *b, const struct norm_case *c, const struct array *x,
                            const struct array *w, const struct array *stats)
{
    enum grad_into into = c->add ? GRAD_ADD : GRAD_SET;
    struct array dy = array_random(c->n * c->h, c->at, 1), dy2 = array_like(&dy);
    struct array got = output(c->n * c->h, c->at, c->add), want = array_like(&got);
    struct array dw = output(c->h, c->gt, c->add), want_dw = array_like(&dw);
    struct array db = output(c->h, c->gt, c->add), want_db = array_like(&db);
    struct array *dx = c->in_place ? &dy2 : &got;
    double size = half_size(c->gt, 0.02, sqrt((double)c->n));

    assert_int_equal(b->host.ops->norm_back(b->host.k, c->kind, c->n, c->h, c->in_place ? dy2.x : dy.x, x->x,
                                            c->w ? w->x : NULL, c->wt, stats->x, c->at, dx->x, c->add,
                                            c->w ? dw.x : NULL, c->b ? db.x : NULL, c->gt, into), 0);
    b->ref.ops->norm_back(b->ref.k, c->kind, c->n, c->h, dy.x, x->x, c->w ? w->x : NULL, c->wt, stats->x,
                          c->at, want.x, c->add, c->w ? want_dw.x : NULL, c->b ? want_db.x : NULL, c->gt,
                          into);
    assert_same("norm backward", dx, &want, half_tol(c->at, 5e-6), half_size(c->at, 0.02, 1));
    assert_same("norm weight gradient", &dw, &want_dw, half_tol(c->gt, 4e-6), size);
    assert_same("norm bias gradient", &db, &want_db, half_tol(c->gt, 4e-6), size);
    array_free(&dy), array_free(&dy2), array_free(&got), array_free(&want);
    array_free(&dw), array_free(&want_dw), array_free(&db), array_free(&want_db);
}

static void norms_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct norm_case c = random_norm(i);
        struct both b = open_for(c.n, c.h, 1);
        struct array x = array_random(c.n * c.h, c.at, 3), w = array_random(c.h, c.wt, 1);
        struct array bias = array_random(c.h, c.wt, 1);
        struct array got = array_new(c.n * c.h, c.at), want = array_new(c.n * c.h, c.at);
        struct array stats = array_new(c.nstats, DT_FP32), want_stats = array_new(c.nstats, DT_FP32);

        assert_int_equal(b.host.ops->norm(b.host.k, c.kind, c.n, c.h, 1e-5, x.x, c.w ? w.x : NULL,
                                          c.b ? bias.x : NULL, c.wt, got.x, c.at, stats.x), 0);
        b.ref.ops->norm(b.ref.k, c.kind, c.n, c.h, 1e-5, x.x, c.w ? w.x : NULL, c.b ? bias.x : NULL, c.wt,
                        want.x, c.at, want_stats.x);
        assert_same("norm", &got, &want, half_tol(c.at, 3e-6), half_size(c.at, 0.02, 1));
        assert_same("norm statistics", &stats, &want_stats, 3e-6, 1);
        check_norm_back(&b, &c, &x, &w, &want_stats);
        array_free(&x), array_free(&w), array_free(&bias), array_free(&got), array_free(&want);
        array_free(&stats), array_free(&want_stats);
        close_both(&b);
    }
}

static void activations_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++) {
        enum activation act = (enum activation)(i % 4);
        int64_t n = random_int(1, 3000);
        enum dtype at = host_dtype();
        bool gated = i / 4 % 2;
        struct both b = open_for(1, 1, 1);
        struct array gate = array_random(n, at, 6), up = array_random(n, at, 6);
        struct array got = array_new(n, at), want = array_new(n, at);
        struct array du = array_random(n, at, 1), want_du = array_like(&du);
        struct array dgate = array_new(n, at), want_dgate = array_new(n, at);
        const void *g = gated ? gate.x : NULL;
        double size = half_size(at, 1e-3, 1);

        b.host.ops->activation(b.host.k, act, n, g, up.x, got.x, at);
        b.ref.ops->activation(b.ref.k, act, n, g, up.x, want.x, at);
        assert_same("activation", &got, &want, half_tol(at, 1.5e-6), size);
        b.host.ops->activation_back(b.host.k, act, n, g, up.x, du.x, gated ? dgate.x : NULL, at);
        b.ref.ops->activation_back(b.ref.k, act, n, g, up.x, want_du.x, gated ? want_dgate.x : NULL, at);
        assert_same("activation backward", &du, &want_du, half_tol(at, 1.5e-6), size);
        assert_same("activation backward, gate", &dgate, &want_dgate, half_tol(at, 3e-6), size);
        array_free(&gate), array_free(&up), array_free(&got), array_free(&want);
        array_free(&du), array_free(&want_du), array_free(&dgate), array_free(&want_dgate);
        close_both(&b);
    }
}

static void the_loss_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t n = random_int(1, 20), vocab = i == 39 ? 50257 : random_int(1, 3000);
        enum dtype at = host_dtype();
        double size = i % 3 ? 5 : 100;
        struct both b = open_for(n, 1, vocab);
        struct array got = array_random(n * vocab, at, size), want = array_like(&got);
        struct array losses = array_new(n, DT_FP32), want_losses = array_new(n, DT_FP32);
        int32_t *labels = random_ids(n, vocab);

        assert_int_equal(b.host.ops->cross_entropy(b.host.k, n, vocab, got.x, at, labels, losses.x, 0.37), 0);
        b.ref.ops->cross_entropy(b.ref.k, n, vocab, want.x, at, labels, want_losses.x, 0.37);
        assert_same("losses", &losses, &want_losses, 1e-6, 1);
        assert_same("gradients of the logits", &got, &want, half_tol(at, 2e-6), half_size(at, 1e-6, 0.05));
        free(labels);
        array_free(&got), array_free(&want), array_free(&losses), array_free(&want_losses);
        close_both(&b);
    }
}

static void adamw_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        int64_t n = random_int(1, 5000);
        enum dtype gt = host_dtype(), ot = host_dtype();
        struct adamw a = { 0.01, 0.9, 0.95, 1e-8, coin() ? 0.1 : 0, random_int(1, 50), 0.5 };
        struct both b = open_for(1, 1, 1);
        struct array p = array_random(n, DT_FP32, 1), want_p = array_like(&p);
        struct array m = array_random(n, DT_FP32, 1), want_m = array_like(&m);
        struct array v = array_random(n, DT_FP32, 1), g = array_random(n, gt, 1);
        struct array out = array_new(n, ot), want_out = array_new(n, ot);

        for (int64_t j = 0; j < n; j++)
            array_set(&v, j, fabs(array_get(&v, j)));
        struct array want_v = array_like(&v);
        b.host.ops->adamw(b.host.k, &a, n, p.x, m.x, v.x, g.x, gt, coin() ? out.x : NULL, ot);
        b.ref.ops->adamw(b.ref.k, &a, n, want_p.x, want_m.x, want_v.x, g.x, gt,
                         isnan(array_get(&out, 0)) ? NULL : want_out.x, ot);
        assert_same("m", &m, &want_m, 3e-7, 1);
        assert_same("v", &v, &want_v, 3e-7, 1);
        assert_same("p", &p, &want_p, 1e-6, 1);
        assert_same("p cast", &out, &want_out, half_tol(ot, 1e-6), half_size(ot, 1e-3, 1));
        array_free(&p), array_free(&m), array_free(&v), array_free(&g), array_free(&out);
        array_free(&want_p), array_free(&want_m), array_free(&want_v), array_free(&want_out);
        close_both(&b);
    }
}

/* p = 1, m = v = 0, g = 2, t = 1: m/(1-b1) = 2 and sqrt(v/(1-b2)) = 2, so p loses lr after
 * its decay of lr*wd. */
static void a_first_step_of_adamw_by_hand(void **state)
{
    const struct adamw a = { 0.5, 0.9, 0.99, 0, 0.1, 1, 2 };
    struct both b = open_for(1, 1, 1);
    float p = 1, m = 0, v = 0, g = 1;

    (void)state;
    b.host.ops->adamw(b.host.k, &a, 1, &p, &m, &v, &g, DT_FP32, NULL, DT_FP32);
    assert_close((double)p, 1 - 0.05 - 0.5, 1e-6);
    assert_close((double)m, 0.2, 1e-6);
    assert_close((double)v, 0.04, 1e-6);
    close_both(&b);
}

/* An optimizer's shard may begin anywhere. */
static void adamw_does_not_depend_on_where_an_array_is_cut(void **state)
{
    const struct adamw a = { 0.01, 0.9, 0.95, 1e-8, 0.1, 3, 0.7 };
    struct both b = open_for(1, 1, 1);
    enum { N = 3001 };
    struct array p = array_random(N, DT_FP32, 1), m = array_random(N, DT_FP32, 1);
    struct array g = array_random(N, DT_FP32, 1), v = array_random(N, DT_FP32, 1);
    struct array p2 = array_like(&p), m2 = array_like(&m);

    (void)state;
    for (int64_t j = 0; j < N; j++)
        array_set(&v, j, fabs(array_get(&v, j)));
    struct array v2 = array_like(&v);
    b.host.ops->adamw(b.host.k, &a, N, p.x, m.x, v.x, g.x, DT_FP32, NULL, DT_FP32);
    for (int64_t j = 0, n; j < N; j += n) {
        n = random_int(1, 300);
        n = n < N - j ? n : N - j;
        b.host.ops->adamw(b.host.k, &a, n, (float *)p2.x + j, (float *)m2.x + j, (float *)v2.x + j,
                          (float *)g.x + j, DT_FP32, NULL, DT_FP32);
    }
    assert_memory_equal(p.x, p2.x, N * 4);
    assert_memory_equal(m.x, m2.x, N * 4);
    assert_memory_equal(v.x, v2.x, N * 4);
    array_free(&p), array_free(&m), array_free(&v), array_free(&g), array_free(&p2), array_free(&m2);
    array_free(&v2);
    close_both(&b);
}

static void copies_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        int64_t n = random_int(1, 3000);
        enum dtype dt = host_dtype(), st = host_dtype();
        bool add = coin(), own = dt == st && coin();
        double scale = coin() ? 1 : 0.3;
        struct both b = open_for(1, 1, 1);
        struct array src = array_random(n, st, 1), got = own ? array_like(&src) : output(n, dt, add);
        struct array want = array_like(&got);

        b.host.ops->copy(b.host.k, n, got.x, dt, own ? got.x : src.x, st, scale, add);
        b.ref.ops->copy(b.ref.k, n, want.x, dt, own ? want.x : src.x, st, scale, add);
        assert_same("copy", &got, &want, add || scale != 1 ? half_tol(dt, 2e-7) : 0, add ? 0.5 : 0);
        array_free(&src), array_free(&got), array_free(&want);
        close_both(&b);
    }
}

/* ... and pieces of whole blocks of 1024 add up to the same bits. */
static void sums_of_squares_do_not_depend_on_threads(void **state)
{
    enum { N = 4096 * 1024 + 5000, CUT = 1024 * 1777 };
    struct array x = array_random(N, DT_FP32, 1);
    struct kernels_need need = { .n = 1, .widest_in = 1, .widest_out = 1, .vocab = 1, .seq = 1, .dim = 1 };
    double want = 0, first = 0;

    (void)state;
    for (int64_t i = 0; i < N; i++)
        want += pow(array_get(&x, i), 2);
    for (int threads = 1; threads <= 3; threads++) {
        double sum = 0, pieces = 0;
        need.threads = threads;
        struct opened o = open_kernels(&need, false);
        assert_int_equal(o.ops->sum_squares(o.k, N, x.x, DT_FP32, &sum), 0);
        o.ops->sum_squares(o.k, CUT, x.x, DT_FP32, &pieces);
        o.ops->sum_squares(o.k, N - CUT, (float *)x.x + CUT, DT_FP32, &pieces);
        assert_close(sum, want, 1e-12);
        assert_close(pieces, sum, 0);
        if (threads == 1)
            first = sum;
        assert_close(sum, first, 0);
        close_kernels(&o);
    }
    array_free(&x);
}

/* ---- dropout ---- */

static void dropout_keeps_as_many_as_it_says(void **state)
{
    enum { N = 1000000 };
    static const double p[] = { 0.05, 0.1, 0.5 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct dropout d = { .p = p[i], .key = 0x1234567 + (uint64_t)i };
        int64_t kept = 0, pairs = 0;
        for (int64_t j = 0; j < N; j++) {
            kept += !dropout_drops(&d, j);
            pairs += dropout_drops(&d, j) && dropout_drops(&d, j + 1);
        }
        double sigma = sqrt(N * p[i] * (1 - p[i])), both = p[i] * p[i];
        assert_true(fabs((double)kept - N * (1 - p[i])) < 5 * sigma);
        /* Neighbours are independent. */
        assert_true(fabs((double)pairs - N * both) < 5 * sqrt(N * both * (1 - both) * 3));
    }
}

static void a_part_of_a_tensor_drops_what_the_whole_would(void **state)
{
    struct dropout whole = { .p = 0.3, .key = 5 }, part = { .p = 0.3, .key = 5, .first = 1000 };

    (void)state;
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(dropout_drops(&part, i), dropout_drops(&whole, 1000 + i));
}

static void dropout_backward_drops_what_forward_dropped(void **state)
{
    enum { N = 50, H = 70 };
    struct dropout d = { .p = 0.4, .key = 99 };
    struct both b = open_for(N, H, 1);
    struct array x = array_new(N * H, DT_FP32), g = array_new(N * H, DT_FP32);

    (void)state;
    for (int64_t i = 0; i < N * H; i++)
        array_set(&x, i, 1), array_set(&g, i, 1);
    b.host.ops->embed_positions(b.host.k, N, H, N, NULL, DT_FP32, x.x, DT_FP32, &d);
    b.host.ops->dropout_back(b.host.k, N * H, g.x, DT_FP32, &d);
    for (int64_t i = 0; i < N * H; i++) {
        assert_close(array_get(&x, i), dropout_drops(&d, i) ? 0 : 1 / 0.6, 1e-6);
        assert_close(array_get(&g, i), array_get(&x, i), 0);
    }
    array_free(&x), array_free(&g);
    close_both(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_workspace_is_as_large_as_the_header_says),
        cmocka_unit_test(embeddings_equal_the_reference),
        cmocka_unit_test(embedding_gradients_equal_the_reference),
        cmocka_unit_test(a_token_beyond_the_vocabulary_is_reported),
        cmocka_unit_test(norms_equal_the_reference),
        cmocka_unit_test(activations_equal_the_reference),
        cmocka_unit_test(the_loss_equals_the_reference),
        cmocka_unit_test(adamw_equals_the_reference),
        cmocka_unit_test(a_first_step_of_adamw_by_hand),
        cmocka_unit_test(adamw_does_not_depend_on_where_an_array_is_cut),
        cmocka_unit_test(copies_equal_the_reference),
        cmocka_unit_test(sums_of_squares_do_not_depend_on_threads),
        cmocka_unit_test(dropout_keeps_as_many_as_it_says),
        cmocka_unit_test(a_part_of_a_tensor_drops_what_the_whole_would),
        cmocka_unit_test(dropout_backward_drops_what_forward_dropped),
    };
    return cmocka_run_group_tests_name("exec/kernels", tests, NULL, NULL);
}
