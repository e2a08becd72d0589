/* The launchers of embed.cu, norms.cu and rows.cu beside the reference: rows of any length, at any
 * address, in fp32, bf16 and fp16. */
#include "tests/emu/launch_check.h"

#include "exec/cuda/rows.h"

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

/* A width that is whole packs, or any. */
static int64_t any_width(int64_t most) { return coin() ? 8 * random_int(1, most / 8) : random_int(1, most); }

static int32_t *random_ids(int64_t n, int64_t vocab)
{
    int32_t *ids = malloc((size_t)(n + 1) * sizeof *ids);

    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)random_int(0, vocab - 1);
    return ids;
}

/* ---- embedding ---- */

static void rows_of_the_table_are_taken_by_id(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        int64_t n = random_int(1, 40), h = any_width(700), vocab = random_int(1, 50);
        enum dtype wt = host_dtype(), at = host_dtype();
        int32_t *ids = random_ids(n, vocab);
        struct array table = array_random(vocab * h, wt, 1), x = array_new(n * h, at);
        struct there di = ids_to_device(ids, n), dt = to_device(&table, any_skew());
        struct there dx = to_device(&x, any_skew());

        OK(rows_embed(n, h, vocab, di.x, dt.x, wt, dx.x, at, NULL));
        OK(ref->embed(NULL, n, h, ids, table.x, wt, x.x, at));
        compare("embedding", &dx, &x, 0, 0);
        gone(&di), gone(&dt);
        array_free(&table);
        free(ids);
    }
}

static void an_id_beyond_the_vocabulary_makes_its_row_nan(void **state)
{
    static const int32_t ids[] = { 2, 3, -1, 0 };
    struct array table = array_random(3 * 16, DT_FP32, 1), x = array_random(4 * 16, DT_FP32, 1);
    struct there di = ids_to_device(ids, 4), dt = to_device(&table, 0), dx = to_device(&x, 0);
    (void)state;

    OK(rows_embed(4, 16, 3, di.x, dt.x, DT_FP32, dx.x, DT_FP32, NULL));
    struct array got = look(&dx);
    for (int64_t i = 0; i < 64; i++)
        assert_true(isnan(array_get(&got, i)) == (i / 16 == 1 || i / 16 == 2));
    gone(&di), gone(&dt), gone(&dx);
    array_free(&table), array_free(&x), array_free(&got);
}

static void positions_are_added_and_dropped(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        int64_t seq = random_int(1, 9), n = seq * random_int(1, 4), h = any_width(600);
        enum dtype wt = host_dtype(), at = host_dtype();
        struct dropout d = any_drop(), *drop = i & 1 ? &d : NULL;
        struct array table = array_random(seq * h, wt, 1), x = array_random(n * h, at, 1);
        struct there dt = to_device(&table, any_skew()), dx = to_device(&x, any_skew());

        OK(rows_embed_positions(n, h, seq, i & 2 ? dt.x : NULL, wt, dx.x, at, rule(drop), NULL));
        OK(ref->embed_positions(NULL, n, h, seq, i & 2 ? table.x : NULL, wt, x.x, at, drop));
        compare("positions", &dx, &x, tolerance(at), of_terms(at, 1));
        gone(&dt);
        array_free(&table);
    }
}

static void check_embed_back(int64_t n, int64_t h, int64_t vocab, int64_t ids_from, bool add)
{
    enum dtype at = host_dtype(), gt = host_dtype();
    int32_t *ids = random_ids(n, ids_from);
    struct array dx = array_random(n * h, at, 1);
    struct array table = add ? array_random(vocab * h, gt, 1) : array_new(vocab * h, gt);
    struct array again = array_like(&table);
    int64_t skew = any_skew();
    struct there di = ids_to_device(ids, n), dd = to_device(&dx, any_skew());
    struct there dt = to_device(&table, skew), dt2 = to_device(&again, skew);
    struct there w = scratch(rows_embed_workspace(n, h, vocab));
    struct there w2 = scratch(rows_embed_workspace(n, h, vocab));

    OK(rows_embed_back(n, h, 0, vocab, di.x, dd.x, at, dt.x, gt, add, w.x, NULL));
    OK(rows_embed_back(n, h, 0, vocab, di.x, dd.x, at, dt2.x, gt, add, w2.x, NULL));
    struct array first = look(&dt);
    compare_bits("the same again", &dt2, &first);
    OK(ref->embed_back(NULL, n, h, vocab, ids, dx.x, at, table.x, gt, add ? GRAD_ADD : GRAD_SET));
    compare("gradient of the embedding", &dt, &table, tolerance(gt), of_terms(gt, 8));
    gone(&di), gone(&dd), gone(&dt2), gone(&w), gone(&w2);
    array_free(&dx), array_free(&again), array_free(&first);
    free(ids);
}

static void the_embeddings_gradient_adds_rows_by_id(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++)
        check_embed_back(random_int(1, 300), any_width(64), 1 << i % 12, 1 << i % 12, i & 1);
    check_embed_back(40, 24, 3000, 2500, false);                /* blocks of 1024 counts */
    check_embed_back(40, 9, 1024, 1024, true);
    check_embed_back(40, 2064, 30, 40, true);                   /* more columns than a block; ids beyond */
    check_embed_back(0, 16, 5, 5, false);
}

/* Runs of ROWS_SEGMENT tokens that are one id's: all, some, with what is before and behind. */
static void long_lists_are_summed_in_segments(void **state)
{
    (void)state;
    check_embed_back(ROWS_SEGMENT, 16, 1, 1, false);
    check_embed_back(3 * ROWS_SEGMENT + 5, 16, 4, 1, true);
    check_embed_back(6 * ROWS_SEGMENT + 77, 9, 2, 2, false);
    check_embed_back(5 * ROWS_SEGMENT, 8, 3, 4, true);
}

static void the_positions_gradient_is_the_sum_over_samples(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        int64_t seq = random_int(1, 12), n = seq * random_int(1, 9), rows = seq + random_int(0, 4);
        int64_t h = any_width(300);
        enum dtype at = host_dtype(), gt = host_dtype();
        bool add = i & 1;
        struct array dx = array_random(n * h, at, 1);
        struct array table = add ? array_random(rows * h, gt, 1) : array_new(rows * h, gt);
        struct there dd = to_device(&dx, any_skew()), dt = to_device(&table, any_skew());

        OK(rows_embed_positions_back(n, h, seq, rows, dd.x, at, dt.x, gt, add, NULL));
        OK(ref->embed_positions_back(NULL, n, h, seq, rows, dx.x, at, table.x, gt,
                                     add ? GRAD_ADD : GRAD_SET));
        compare("gradient of positions", &dt, &table, tolerance(gt), of_terms(gt, 4));
        gone(&dd);
        array_free(&dx);
    }
}

/* ---- norms ---- */

/* Widths for each way to cut a row: part of a warp, one to four packs of a warp's lanes, a block of one,
 * two and four packs a thread, too wide, not whole packs. */
static const int64_t widths[] = { 1, 8, 24, 64, 100, 128, 250, 260, 512, 520, 768, 1024, 1028, 1032, 1800,
                                  2048, 2056, 4096, 4100, 5000, 8192, 8200, 9000, 16384, 16392 };
enum { WIDTHS = sizeof widths / sizeof *widths };

/* Means and spreads of their own, so that stats are worth looking at. */
static struct array random_rows(int64_t n, int64_t h, enum dtype t)
{
    struct array x = array_random(n * h, t, 1);

    for (int64_t i = 0; i < n; i++) {
        double mean = random_real(), spread = 0.5 + fabs(random_real());
        for (int64_t j = 0; j < h; j++)
            array_set(&x, i * h + j, mean + spread * array_get(&x, i * h + j));
    }
    return x;
}

/* A row of a single element has no spread: 1/sigma is 1/sqrt(eps), and amplifies what is left of x - mean. */
static double eps_for(int64_t h) { return h == 1 ? 0.1 : 1e-5; }

static void check_norm(enum norm_kind kind, int64_t n, int64_t h, enum dtype at, bool w, bool b,
                       bool in_place)
{
    enum dtype wt = host_dtype();
    int64_t skew = random_int(0, 3) ? 0 : random_int(1, 8), counts = kind == NORM_LAYER ? 2 * n : n;
    struct array x = random_rows(n, h, at), ws = array_random(h, wt, 1), bs = array_random(h, wt, 1);
    struct array y = in_place ? array_like(&x) : array_new(n * h, at), stats = array_new(counts, DT_FP32);
    struct there dx = to_device(&x, skew), dw = to_device(&ws, skew), db = to_device(&bs, 0);
    struct there dy = to_device(&y, skew), ds = to_device(&stats, 1);

    OK(rows_norm(kind == NORM_LAYER, n, h, eps_for(h), in_place ? dy.x : dx.x, w ? dw.x : NULL,
                 b ? db.x : NULL, wt, dy.x, at, ds.x, NULL));
    OK(ref->norm(NULL, kind, n, h, eps_for(h), x.x, w ? ws.x : NULL, b ? bs.x : NULL, wt, y.x, at, stats.x));
    compare("norm", &dy, &y, tolerance(at), of_terms(at, 2));
    compare("stats", &ds, &stats, 1e-5, 0.1);
    gone(&dx), gone(&dw), gone(&db);
    array_free(&x), array_free(&ws), array_free(&bs);
}

static void norms_are_the_references_at_every_width(void **state)
{
    (void)state;
    for (int i = 0; i < 8 * WIDTHS; i++)
        check_norm(i & 1 ? NORM_LAYER : NORM_RMS, widths[i / 8] > 2000 ? 2 : random_int(1, 40), widths[i / 8],
                   dtype_if(i & 2), i & 4 || coin(), coin(), coin());
}

/* What norm_back() is asked for. */
struct back { enum norm_kind kind; int64_t n, h; enum dtype at; bool add, own, w, dw, db, into_add; };

static void check_norm_back(const struct back *q)
{
    int64_t n = q->n, h = q->h, skew = random_int(0, 3) ? 0 : random_int(1, 8);
    int64_t counts = q->kind == NORM_LAYER ? 2 * n : n;
    enum dtype wt = host_dtype(), gt = host_dtype(), at = q->at;
    struct array x = random_rows(n, h, at), dy = array_random(n * h, at, 1), w = array_random(h, wt, 1);
    struct array y = array_new(n * h, at), stats = array_new(counts, DT_FP32);
    struct array dx = q->own ? array_like(&dy) : q->add ? array_random(n * h, at, 1) : array_new(n * h, at);
    struct array dw = q->into_add ? array_random(h, gt, 1) : array_new(h, gt), db = array_like(&dw);
    bool add = q->add && !q->own;

    OK(ref->norm(NULL, q->kind, n, h, eps_for(h), x.x, NULL, NULL, wt, y.x, at, stats.x));
    struct there tx = to_device(&x, skew), ty = to_device(&dy, skew), tw = to_device(&w, 0);
    struct there ts = to_device(&stats, 3), td = to_device(&dx, skew), tdw = to_device(&dw, any_skew());
    struct there tdb = to_device(&db, any_skew()), space = scratch(rows_norm_workspace(n, h));
    OK(rows_norm_back(q->kind == NORM_LAYER, n, h, q->own ? td.x : ty.x, tx.x, q->w ? tw.x : NULL, wt, ts.x,
                      at, td.x, add, q->dw ? tdw.x : NULL, q->db ? tdb.x : NULL, gt, q->into_add, space.x,
                      NULL));
    OK(ref->norm_back(NULL, q->kind, n, h, dy.x, x.x, q->w ? w.x : NULL, wt, stats.x, at, dx.x, add,
                      q->dw ? dw.x : NULL, q->db ? db.x : NULL, gt, q->into_add ? GRAD_ADD : GRAD_SET));
    compare("dx", &td, &dx, tolerance(at), of_terms(at, 4));
    compare("dw", &tdw, &dw, tolerance(gt), of_terms(gt, 8));
    compare("db", &tdb, &db, tolerance(gt), of_terms(gt, 8));
    gone(&tx), gone(&ty), gone(&tw), gone(&ts), gone(&space);
    array_free(&x), array_free(&dy), array_free(&w), array_free(&y), array_free(&stats);
}

static void gradients_of_norms_are_the_references_at_every_width(void **state)
{
    (void)state;
    for (int i = 0; i < 8 * WIDTHS; i++) {
        int64_t h = widths[i / 8];
        check_norm_back(&(struct back){ i & 1 ? NORM_LAYER : NORM_RMS, h > 2000 ? 2 : random_int(1, 60), h,
                                        dtype_if(i & 2), coin(), i & 4, coin(), coin(), coin(),
                                        coin() });
    }
}

/* Blocks go on to other rows than their first, and sums of many blocks meet. */
static void gradients_of_many_rows_are_added_up(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        enum dtype at = dtype_if(i & 1);
        enum norm_kind kind = i & 2 ? NORM_LAYER : NORM_RMS;
        check_norm_back(&(struct back){ kind, 5003, 8, at, coin(), coin(), true, true, true, coin() });
        check_norm_back(&(struct back){ kind, 1100, 1032, at, coin(), coin(), true, true, true, coin() });
        check_norm_back(&(struct back){ kind, 1100, 9, at, coin(), coin(), true, true, true, coin() });
    }
}

/* ---- sums of columns ---- */

static void check_columns(int64_t n, int64_t cols, bool add)
{
    enum dtype at = host_dtype(), gt = host_dtype();
    int64_t ld = cols + (coin() ? 0 : 8 * random_int(1, 3)), skew = any_skew();
    struct array x = array_random(n * ld, at, 1);
    struct array sums = add ? array_random(cols, gt, 1) : array_new(cols, gt);
    struct there dx = to_device(&x, any_skew()), ds = to_device(&sums, skew), again = to_device(&sums, skew);
    struct there w = scratch(rows_column_sums_workspace(n, cols));

    OK(rows_column_sums(n, cols, dx.x, ld, at, ds.x, gt, add, false, w.x, NULL));
    OK(rows_column_sums(n, cols, dx.x, ld, at, again.x, gt, add, false, w.x, NULL));
    struct array first = look(&ds);
    compare_bits("the same again", &again, &first);
    for (int64_t c = 0; c < cols; c++) {
        double sum = add ? array_get(&sums, c) : 0;
        for (int64_t r = 0; r < n; r++)
            sum += array_get(&x, r * ld + c);
        array_set(&sums, c, sum);
    }
    compare("sums of columns", &ds, &sums, tolerance(gt), of_terms(gt, sqrt((double)n)));
    gone(&dx), gone(&again), gone(&w);
    array_free(&x), array_free(&first);
}

static void columns_are_summed_whatever_their_rows_lie_apart(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++)
        check_columns(random_int(1, 200), any_width(600), i & 1);
    check_columns(3000, 16, true);
    check_columns(3000, 3, false);
    check_columns(1, 1, true);
}

/* ---- loss ---- */

static void check_loss(int64_t n, int64_t vocab, enum dtype at, double size, double scale)
{
    int32_t *labels = random_ids(n, vocab);
    struct array x = array_random(n * vocab, at, size), losses = array_new(n, DT_FP32);
    int64_t skew = any_skew();
    struct there dx = to_device(&x, skew), dl = ids_to_device(labels, n), ds = to_device(&losses, 0);

    OK(rows_cross_entropy(n, vocab, dx.x, at, dl.x, ds.x, (float)scale, NULL));
    OK(ref->cross_entropy(NULL, n, vocab, x.x, at, labels, losses.x, scale));
    compare("losses", &ds, &losses, 1e-5, 0.1);
    /* Of the label it is p - 1, which is as sure as p was: a rounding of 1. */
    compare("gradients of logits", &dx, &x, tolerance(at), (at == DT_FP32 ? 0.02 : half_size(at, 1e-5, 0)) * scale);
    gone(&dl);
    free(labels);
}

static void losses_and_gradients_are_the_references(void **state)
{
    static const int64_t vocabs[] = { 1, 2, 9, 64, 1000, 8191, 8192, 9001, 50257 };
    (void)state;
    for (int i = 0; i < 36; i++) {
        int64_t vocab = vocabs[i / 4];
        check_loss(vocab > 10000 ? 2 : random_int(1, 9), vocab, dtype_if(i & 1), i & 2 ? 3 : 60,
                   0.125);
    }
}

/* A vocabulary of which some is masked. */
static void logits_of_minus_infinity_have_no_probability(void **state)
{
    enum { N = 3, V = 301 };
    static const int32_t labels[N] = { 300, 300, 299 };
    (void)state;
    for (int i = 0; i < 2; i++) {
        enum dtype at = dtype_if(i);
        struct array x = array_random(N * V, at, 3), losses = array_new(N, DT_FP32);
        for (int64_t j = 0; j < N * V; j++)
            if (j % V < 290)
                array_set(&x, j, -INFINITY);
        struct there dx = to_device(&x, i), dl = ids_to_device(labels, N), ds = to_device(&losses, 0);
        OK(rows_cross_entropy(N, V, dx.x, at, dl.x, ds.x, 1, NULL));
        OK(ref->cross_entropy(NULL, N, V, x.x, at, labels, losses.x, 1));
        compare("losses", &ds, &losses, 1e-5, 0.1);
        compare("gradients of logits", &dx, &x, tolerance(at), half_size(at, 1e-5, 1e-5));
        gone(&dl);
    }
}

static void nan_and_labels_beyond_the_vocabulary_are_seen(void **state)
{
    static const int32_t labels[] = { 3, 40, -100, 5 };
    struct array x = array_random(4 * 40, DT_FP32, 3), losses = array_new(4, DT_FP32);
    (void)state;

    array_set(&x, 17, NAN);
    struct there dx = to_device(&x, 0), dl = ids_to_device(labels, 4), ds = to_device(&losses, 0);
    OK(rows_cross_entropy(4, 40, dx.x, DT_FP32, dl.x, ds.x, 1, NULL));
    struct array got = look(&dx), lost = look(&ds);
    for (int64_t i = 0; i < 160; i++)
        assert_true(isnan(array_get(&got, i)) == (i < 120));
    for (int64_t i = 0; i < 4; i++)
        assert_true(isnan(array_get(&lost, i)) == (i < 3));
    gone(&dx), gone(&dl), gone(&ds);
    array_free(&x), array_free(&losses), array_free(&got), array_free(&lost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_the_table_are_taken_by_id),
        cmocka_unit_test(an_id_beyond_the_vocabulary_makes_its_row_nan),
        cmocka_unit_test(positions_are_added_and_dropped),
        cmocka_unit_test(the_embeddings_gradient_adds_rows_by_id),
        cmocka_unit_test(long_lists_are_summed_in_segments),
        cmocka_unit_test(the_positions_gradient_is_the_sum_over_samples),
        cmocka_unit_test(norms_are_the_references_at_every_width),
        cmocka_unit_test(gradients_of_norms_are_the_references_at_every_width),
        cmocka_unit_test(gradients_of_many_rows_are_added_up),
        cmocka_unit_test(columns_are_summed_whatever_their_rows_lie_apart),
        cmocka_unit_test(losses_and_gradients_are_the_references),
        cmocka_unit_test(logits_of_minus_infinity_have_no_probability),
        cmocka_unit_test(nan_and_labels_beyond_the_vocabulary_are_seen),
    };
    return RUN("emu/rows", tests);
}
