/* Kernels of a model whose tensors are cut on the emulated device beside the reference. */
#include "tests/emu/device_check.h"

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

static void rows_of_an_embedding_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        int64_t n = random_int(1, 60), h = random_int(1, i < 28 ? 60 : 1100), vocab = random_int(2, 60);
        int64_t first = random_int(0, vocab - 1), rows = random_int(1, vocab - first);
        enum dtype at = host_dtype(), wt = host_dtype();
        enum grad_into into = coin() ? GRAD_ADD : GRAD_SET;
        struct array table = array_random(rows * h, wt, 1), got = array_new(n * h, at), want = array_new(n * h, at);
        struct array dx = array_random(n * h, at, 1), grad = output(rows * h, wt, into == GRAD_ADD), sum = array_like(&grad);
        int32_t *ids = random_ids(n, vocab);
        struct there tids = ids_to_device(ids, n), ttable = to_device(&table), tx = to_device(&got);
        struct there tdx = to_device(&dx), tgrad = to_device(&grad);

        OK(gpu.ops->embed_rows(gpu.k, n, h, first, rows, tids.x, ttable.x, wt, tx.x, at));
        OK(gpu.ref->embed_rows(gpu.ref_k, n, h, first, rows, ids, table.x, wt, want.x, at));
        OK(gpu.ops->embed_rows_back(gpu.k, n, h, first, rows, tids.x, tdx.x, at, tgrad.x, wt, into));
        OK(gpu.ref->embed_rows_back(gpu.ref_k, n, h, first, rows, ids, dx.x, at, sum.x, wt, into));
        from_device(&tx, &got), from_device(&tgrad, &grad);
        assert_same("rows of an embedding", &got, &want, 0, 0);
        assert_same("their gradient", &grad, &sum, half_tol(wt, 1e-6), half_size(wt, 0.01, 1));
        drop_device(&tids), drop_device(&ttable), drop_device(&tdx);
        free(ids);
        array_free(&table), array_free(&got), array_free(&want), array_free(&dx), array_free(&grad), array_free(&sum);
    }
}

static void what_follows_a_sum_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        int64_t n = random_int(1, 40), h = random_int(1, i < 28 ? 60 : 1100);
        enum dtype at = host_dtype(), wt = host_dtype();
        struct dropout d = { .p = coin() ? 0.3 : 0, .key = random_bits(), .first = random_int(0, 1000) };
        struct linear l = { .n = n, .in = 1, .out = h, .at = at, .wt = wt, .gt = wt, .ldx = 1, .ldy = h };
        bool biased = coin();
        struct array y = array_random(n * h, at, 1), want = array_like(&y), more = array_random(n * h, at, 1);
        struct array bias = array_random(h, wt, 1), db = array_random(h, wt, 1), sum = array_like(&db);
        struct there ty = to_device(&y), tmore = to_device(&more), tbias = to_device(&bias), tdb = to_device(&db);

        OK(gpu.ops->residual(gpu.k, n, h, ty.x, at, biased ? tbias.x : NULL, wt, tmore.x, &d));
        OK(gpu.ref->residual(gpu.ref_k, n, h, want.x, at, biased ? bias.x : NULL, wt, more.x, &d));
        OK(gpu.ops->linear_db(gpu.k, &l, tmore.x, tdb.x, GRAD_ADD));
        OK(gpu.ref->linear_db(gpu.ref_k, &l, more.x, sum.x, GRAD_ADD));
        from_device(&ty, &y), from_device(&tdb, &db);
        assert_same("residual", &y, &want, half_tol(at, 4e-7), 1);
        assert_same("bias alone", &db, &sum, half_tol(wt, 1e-6), half_size(wt, 0.01, 10));
        drop_device(&tmore), drop_device(&tbias);
        array_free(&y), array_free(&want), array_free(&more), array_free(&bias), array_free(&db), array_free(&sum);
    }
}

/* One rank's columns, from numbers of all columns; and from the logits of all ranks. */
static void check_cut_loss(int64_t n, int64_t vocab, int64_t ranks, enum dtype at)
{
    struct cut_logits l = { n, vocab, (vocab + ranks - 1) / ranks, random_int(0, ranks - 1), at };
    int64_t cols = logits_columns(&l, l.rank);
    struct array all = array_random(n * l.part * ranks, at, 4), mine = array_random(n * cols, at, 4), want = array_like(&mine);
    struct array most = array_new(n, DT_FP32), label = array_new(n, DT_FP32), sum = array_new(n, DT_FP32);
    struct array most2 = array_new(n, DT_FP32), label2 = array_new(n, DT_FP32), sum2 = array_new(n, DT_FP32);
    struct array losses = array_new(n, DT_FP32), losses2 = array_new(n, DT_FP32);
    double scale = 0.5;
    int32_t *labels = random_ids(n, vocab);

    memcpy((char *)all.x + l.rank * n * l.part * dtype_bytes(at), mine.x, (size_t)(n * cols * dtype_bytes(at)));
    for (int whole = 0; whole < 2; whole++) {
        struct array got = array_like(&mine), expected = array_like(&want);
        struct there ti = ids_to_device(labels, n), ta = to_device(&all), tx = to_device(&got), tm = to_device(&most);
        struct there tl = to_device(&label), ts = to_device(&sum), to = to_device(&losses);
        if (whole) {
            OK(gpu.ops->logits_whole(gpu.k, &l, ta.x, tx.x, ti.x, to.x, scale));
            OK(gpu.ref->logits_whole(gpu.ref_k, &l, all.x, expected.x, labels, losses2.x, scale));
        } else {
            OK(gpu.ops->logits_most(gpu.k, &l, tx.x, tm.x));
            OK(gpu.ops->logits_label(gpu.k, &l, tx.x, ti.x, tl.x));
            OK(gpu.ops->logits_sum(gpu.k, &l, tx.x, tm.x, ts.x));
            OK(gpu.ops->logits_loss(gpu.k, &l, tx.x, ti.x, &(struct logit_sums){ tm.x, tl.x, ts.x }, to.x, scale));
            OK(gpu.ref->logits_most(gpu.ref_k, &l, expected.x, most2.x));
            OK(gpu.ref->logits_label(gpu.ref_k, &l, expected.x, labels, label2.x));
            OK(gpu.ref->logits_sum(gpu.ref_k, &l, expected.x, most2.x, sum2.x));
            OK(gpu.ref->logits_loss(gpu.ref_k, &l, expected.x, labels, &(struct logit_sums){ most2.x, label2.x, sum2.x },
                                    losses2.x, scale));
        }
        from_device(&tx, &got), from_device(&tm, &most), from_device(&tl, &label), from_device(&ts, &sum), from_device(&to, &losses);
        if (!whole) {
            assert_same("largest", &most, &most2, 0, 0);
            assert_same("label's", &label, &label2, 0, 0);
            assert_same("sums", &sum, &sum2, 1e-5, 0);
        }
        assert_same("losses", &losses, &losses2, 1e-5, 1);
        assert_same("gradient", &got, &expected, half_tol(at, 1e-5), scale);
        drop_device(&ti), drop_device(&ta);
        array_free(&got), array_free(&expected);
    }
    array_free(&all), array_free(&mine), array_free(&want), array_free(&most), array_free(&label), array_free(&sum);
    array_free(&most2), array_free(&label2), array_free(&sum2), array_free(&losses), array_free(&losses2);
    free(labels);
}

static void the_loss_of_cut_logits_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        int64_t ranks = random_int(1, 4), vocab = random_int(1, i < 20 ? 90 : 9000);
        while ((vocab + ranks - 1) / ranks * (ranks - 1) >= vocab)
            ranks--;
        check_cut_loss(random_int(1, 300), vocab, ranks, host_dtype());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_an_embedding_equal_the_reference),
        cmocka_unit_test(what_follows_a_sum_equals_the_reference),
        cmocka_unit_test(the_loss_of_cut_logits_equals_the_reference),
    };
    int failed = gpu_tests("emu/kernels of cut tensors", tests);

    print_message("%d passed, %d failed\n", (int)(sizeof tests / sizeof *tests) - failed, failed);
    return failed;
}
