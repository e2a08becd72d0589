/* Kernels of a model whose tensors are cut beside the reference, and beside the kernels of the whole model: what ranks
 * have adds up to it. */
#include "tests/exec/kernels_check.h"

static struct both open_for(int64_t n, int64_t h, int64_t vocab)
{
    struct kernels_need need = { .n = n, .widest_in = h, .widest_out = h, .vocab = vocab, .seq = 1, .dim = 1,
                                 .threads = 1 + (int)coin() };

    return open_both(&need);
}

static int32_t *random_ids(int64_t n, int64_t vocab)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);

    assert_non_null(ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)random_int(0, vocab - 1);
    return ids;
}

/* ---- rows of the vocabulary ---- */

static void ranks_lookups_add_up_to_the_whole(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t n = random_int(1, 60), h = random_int(1, i < 35 ? 60 : 2100), vocab = random_int(2, 60);
        int64_t cut = random_int(1, vocab - 1);
        enum dtype wt = host_dtype();
        struct both b = open_for(n, h, vocab);
        struct array table = array_random(vocab * h, wt, 1), whole = array_new(n * h, DT_FP32);
        struct array low = array_new(n * h, DT_FP32), high = array_new(n * h, DT_FP32), want = array_new(n * h, DT_FP32);
        int32_t *ids = random_ids(n, vocab);

        b.host.ops->embed(b.host.k, n, h, ids, table.x, wt, whole.x, DT_FP32);
        b.host.ops->embed_rows(b.host.k, n, h, 0, cut, ids, table.x, wt, low.x, DT_FP32);
        b.host.ops->embed_rows(b.host.k, n, h, cut, vocab - cut, ids, (char *)table.x + cut * h * dtype_bytes(wt), wt,
                               high.x, DT_FP32);
        b.ref.ops->embed_rows(b.ref.k, n, h, 0, cut, ids, table.x, wt, want.x, DT_FP32);
        assert_same("rows of a lookup", &low, &want, 0, 0);
        for (int64_t j = 0; j < n * h; j++)
            assert_true(array_get(&low, j) + array_get(&high, j) == array_get(&whole, j));
        free(ids);
        array_free(&table), array_free(&whole), array_free(&low), array_free(&high), array_free(&want);
        close_both(&b);
    }
}

static void a_ranks_rows_have_the_wholes_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t n = random_int(1, 60), h = random_int(1, 60), vocab = random_int(3, 60);
        int64_t first = random_int(0, vocab - 2), rows = random_int(1, vocab - first);
        enum dtype at = host_dtype(), gt = host_dtype();
        enum grad_into into = coin() ? GRAD_ADD : GRAD_SET;
        struct both b = open_for(n, h, vocab);
        struct array dx = array_random(n * h, at, 1), whole = array_random(vocab * h, gt, 1);
        struct array got = array_new(rows * h, gt);
        int64_t e = dtype_bytes(gt);
        int32_t *ids = random_ids(n, vocab);

        memcpy(got.x, (char *)whole.x + first * h * e, (size_t)(rows * h * e));
        struct array want = array_like(&got);
        b.host.ops->embed_back(b.host.k, n, h, vocab, ids, dx.x, at, whole.x, gt, into);
        b.host.ops->embed_rows_back(b.host.k, n, h, first, rows, ids, dx.x, at, got.x, gt, into);
        b.ref.ops->embed_rows_back(b.ref.k, n, h, first, rows, ids, dx.x, at, want.x, gt, into);
        assert_same("gradient of rows", &got, &want, half_tol(gt, 1e-6), half_size(gt, 0.01, 1));
        assert_memory_equal(got.x, (char *)whole.x + first * h * e, (size_t)(rows * h * e));
        free(ids);
        array_free(&dx), array_free(&whole), array_free(&got), array_free(&want);
        close_both(&b);
    }
}

/* ---- behind a sum ---- */

static void what_follows_the_sum_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t n = random_int(1, 40), h = random_int(1, i < 35 ? 60 : 2100);
        enum dtype at = host_dtype(), wt = host_dtype();
        struct dropout d = { .p = coin() ? 0.3 : 0, .key = random_bits(), .first = random_int(0, 1000) };
        struct both b = open_for(n, h, 1);
        struct array y = array_random(n * h, at, 1), want = array_like(&y), more = array_random(n * h, at, 1);
        struct array bias = array_random(h, wt, 1);
        const void *with = coin() ? bias.x : NULL;

        b.host.ops->residual(b.host.k, n, h, y.x, at, with, wt, more.x, &d);
        b.ref.ops->residual(b.ref.k, n, h, want.x, at, with, wt, more.x, &d);
        assert_same("residual", &y, &want, half_tol(at, 4e-7), 1);
        array_free(&y), array_free(&want), array_free(&more), array_free(&bias);
        close_both(&b);
    }
}

/* Rows from `first` on drop what the whole's do. */
static void a_share_of_the_rows_drops_what_the_whole_would(void **state)
{
    enum { N = 12, H = 7, FIRST = 5 };
    struct dropout whole = { .p = 0.4, .key = 9, .first = 3 }, part = { .p = 0.4, .key = 9, .first = 3 + FIRST * H };
    struct array y = array_random(N * H, DT_FP32, 1), same = array_like(&y), more = array_random(N * H, DT_FP32, 1);
    struct both b = open_for(N, H, 1);
    (void)state;

    b.host.ops->residual(b.host.k, N, H, y.x, DT_FP32, NULL, DT_FP32, more.x, &whole);
    b.host.ops->residual(b.host.k, N - FIRST, H, (float *)same.x + FIRST * H, DT_FP32, NULL, DT_FP32,
                         (float *)more.x + FIRST * H, &part);
    assert_memory_equal((float *)y.x + FIRST * H, (float *)same.x + FIRST * H, sizeof(float) * (N - FIRST) * H);
    array_free(&y), array_free(&same), array_free(&more);
    close_both(&b);
}

static void a_bias_has_the_gradient_that_the_product_gives_it(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct linear l = { .n = random_int(1, 100), .in = 3, .out = random_int(1, 300), .at = host_dtype(), .wt = DT_FP32,
                            .gt = host_dtype(), .ldx = 3 };
        enum grad_into into = coin() ? GRAD_ADD : GRAD_SET;
        l.ldy = l.out + random_int(0, 9);
        struct both b = open_for(l.n, l.out, 1);
        struct array x = array_random(l.n * 3, l.at, 1), dy = array_random(l.n * l.ldy, l.at, 1);
        struct array dw = array_random(3 * l.out, l.gt, 1), db = array_random(l.out, l.gt, 1);
        struct array alone = array_like(&db), want = array_like(&db);

        assert_int_equal(b.host.ops->linear_dw(b.host.k, &l, x.x, dy.x, dw.x, db.x, into), 0);
        b.host.ops->linear_db(b.host.k, &l, dy.x, alone.x, into);
        b.ref.ops->linear_db(b.ref.k, &l, dy.x, want.x, into);
        assert_memory_equal(alone.x, db.x, (size_t)(l.out * dtype_bytes(l.gt)));
        assert_same("bias alone", &alone, &want, half_tol(l.gt, 1e-6), half_size(l.gt, 0.01, 10));
        array_free(&x), array_free(&dy), array_free(&dw), array_free(&db), array_free(&alone), array_free(&want);
        close_both(&b);
    }
}

/* ---- logits whose columns are dealt out ---- */

/* All ranks' numbers, exchanged as the schedule has them: the maximum, then sums. */
static void exchange(const struct array *most, const struct array *label, const struct array *sum, int64_t ranks, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 1; r < ranks; r++) {
            array_set(&most[0], i, fmax(array_get(&most[0], i), array_get(&most[r], i)));
            if (label)
                array_set(&label[0], i, array_get(&label[0], i) + array_get(&label[r], i));
            if (sum)
                array_set(&sum[0], i, array_get(&sum[0], i) + array_get(&sum[r], i));
        }
}

enum { MOST_RANKS = 4 };

/* This rank's columns of [n, vocab], one row behind the other. */
static void take_columns(const struct cut_logits *l, const struct array *whole, const struct array *part, int64_t at)
{
    int64_t cols = logits_columns(l, l->rank);

    for (int64_t i = 0; i < l->n; i++)
        for (int64_t j = 0; j < cols; j++)
            array_set(part, at + i * cols + j, array_get(whole, i * l->vocab + l->rank * l->part + j));
}

static void assert_columns(const struct cut_logits *l, const struct array *whole, const struct array *part, double t, double scale)
{
    int64_t cols = logits_columns(l, l->rank);

    for (int64_t i = 0; i < l->n; i++)
        for (int64_t j = 0; j < cols; j++) {
            double w = array_get(whole, i * l->vocab + l->rank * l->part + j), g = array_get(part, i * cols + j);
            if (!(fabs(g - w) <= t * (fabs(w) + scale)))
                fail_msg("row %d, column %d of rank %d: %.9g, whole %.9g", (int)i, (int)j, (int)l->rank, g, w);
        }
}

static void check_loss(const struct opened *k, int64_t n, int64_t vocab, int64_t ranks, enum dtype at)
{
    int64_t part = (vocab + ranks - 1) / ranks;
    struct array whole = array_random(n * vocab, at, 4), losses = array_new(n, DT_FP32), want = array_new(n, DT_FP32);
    struct array all = array_random(n * part * ranks, at, 1);
    struct array mine[MOST_RANKS], most[MOST_RANKS], label[MOST_RANKS], sum[MOST_RANKS];
    struct cut_logits l = { n, vocab, part, 0, at };
    double scale = 0.5, t = half_tol(at, 2e-6);
    int32_t *labels = random_ids(n, vocab);

    for (l.rank = 0; l.rank < ranks; l.rank++) {
        mine[l.rank] = array_new(n * logits_columns(&l, l.rank), at);
        most[l.rank] = array_new(n, DT_FP32), label[l.rank] = array_new(n, DT_FP32), sum[l.rank] = array_new(n, DT_FP32);
        take_columns(&l, &whole, &mine[l.rank], 0);
        take_columns(&l, &whole, &all, l.rank * n * part);
        assert_int_equal(k->ops->logits_most(k->k, &l, mine[l.rank].x, most[l.rank].x), 0);
        assert_int_equal(k->ops->logits_label(k->k, &l, mine[l.rank].x, labels, label[l.rank].x), 0);
    }
    exchange(most, label, NULL, ranks, n);
    for (l.rank = 0; l.rank < ranks; l.rank++)
        assert_int_equal(k->ops->logits_sum(k->k, &l, mine[l.rank].x, most[0].x, sum[l.rank].x), 0);
    exchange(most, NULL, sum, ranks, n);
    assert_int_equal(k->ops->cross_entropy(k->k, n, vocab, whole.x, at, labels, want.x, scale), 0);
    for (l.rank = 0; l.rank < ranks; l.rank++) {
        struct logit_sums of = { most[0].x, label[0].x, sum[0].x };
        struct array again = array_like(&mine[l.rank]);
        assert_int_equal(k->ops->logits_loss(k->k, &l, mine[l.rank].x, labels, &of, losses.x, scale), 0);
        assert_same("losses", &losses, &want, 1e-6, 1);
        assert_columns(&l, &whole, &mine[l.rank], t, scale);
        assert_int_equal(k->ops->logits_whole(k->k, &l, all.x, again.x, labels, losses.x, scale), 0);
        assert_same("losses of all logits", &losses, &want, 1e-6, 1);
        assert_columns(&l, &whole, &again, t, scale);
        array_free(&again);
    }
    for (int64_t r = 0; r < ranks; r++)
        array_free(&mine[r]), array_free(&most[r]), array_free(&label[r]), array_free(&sum[r]);
    array_free(&whole), array_free(&losses), array_free(&want), array_free(&all);
    free(labels);
}

static void columns_of_logits_have_the_wholes_loss_and_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        int64_t n = random_int(1, 20), ranks = random_int(1, MOST_RANKS), vocab = random_int(1, i < 25 ? 70 : 3000);
        while ((vocab + ranks - 1) / ranks * (ranks - 1) >= vocab)
            ranks--;                    /* each has a column, as local_share_refused() has it */
        struct both b = open_for(n, 8, vocab);
        enum dtype at = host_dtype();
        check_loss(&b.host, n, vocab, ranks, at);
        check_loss(&b.ref, n, vocab, ranks, at);
        close_both(&b);
    }
}

static void a_label_beyond_the_vocabulary_is_refused(void **state)
{
    struct cut_logits l = { .n = 1, .vocab = 8, .part = 4, .rank = 1, .at = DT_FP32 };
    float logits[4] = { 0 }, out[1];
    int32_t label[] = { 8 };
    char why[160] = "";
    struct both b = open_for(1, 8, 8);
    (void)state;

    fail_capture(why, sizeof why);
    assert_int_equal(b.host.ops->logits_label(b.host.k, &l, logits, label, out), -1);
    fail_capture(NULL, 0);
    assert_string_equal(why, "label 0 is 8, beyond the vocabulary of 8");
    close_both(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_lookups_add_up_to_the_whole),
        cmocka_unit_test(a_ranks_rows_have_the_wholes_gradient),
        cmocka_unit_test(what_follows_the_sum_equals_the_reference),
        cmocka_unit_test(a_share_of_the_rows_drops_what_the_whole_would),
        cmocka_unit_test(a_bias_has_the_gradient_that_the_product_gives_it),
        cmocka_unit_test(columns_of_logits_have_the_wholes_loss_and_gradient),
        cmocka_unit_test(a_label_beyond_the_vocabulary_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
