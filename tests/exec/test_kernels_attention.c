/* test_kernels_attention.c -- attention and its gradients on the host against sums in double precision. */
#include "tests/exec/kernels_check.h"

static struct kernels_need need_of(const struct attention *a, int threads)
{
    return (struct kernels_need){ .n = a->batch * a->seq, .widest_in = a->heads * a->dim,
                                  .widest_out = a->ld, .seq = a->seq, .dim = a->dim, .threads = threads,
                                  .at = a->at, .wt = a->at };
}

static struct attention random_attention(int64_t most_seq)
{
    struct attention a = { .batch = random_int(1, 3), .seq = random_int(1, most_seq),
                           .kv_heads = random_int(1, 3), .dim = random_int(1, 40) * 2,
                           .at = host_dtype() };

    a.heads = a.kv_heads * random_int(1, 3);
    a.ld = (a.heads + 2 * a.kv_heads) * a.dim + (coin() ? random_int(1, 7) : 0);
    a.scale = 1 / sqrt((double)a.dim);
    if (random_int(0, 2) == 0)
        a.drop = (struct dropout){ .p = 0.2, .key = random_bits(), .first = random_int(0, 99) };
    return a;
}

/* o, lse, delta and dqkv of one set of kernels. */
struct results { struct array o, lse, delta, dqkv; };

static struct results attend(struct opened *k, const struct attention *a, const struct array *qkv,
                             const struct array *o_in, const struct array *lse_in, const struct array *dout)
{
    int64_t n = a->batch * a->seq;
    struct results r = { array_new(n * a->heads * a->dim, a->at), array_new(n * a->heads, DT_FP32),
                         array_new(n * a->heads, DT_FP32), array_new(n * a->ld, a->at) };

    assert_int_equal(k->ops->attention(k->k, a, qkv->x, r.o.x, r.lse.x), 0);
    /* Backward of all from the same o and lse. */
    assert_int_equal(k->ops->attention_back(k->k, a, qkv->x, o_in ? o_in->x : r.o.x,
                                            lse_in ? lse_in->x : r.lse.x, dout->x, r.delta.x, r.dqkv.x), 0);
    return r;
}

static void free_results(struct results *r)
{
    array_free(&r->o), array_free(&r->lse), array_free(&r->delta), array_free(&r->dqkv);
}

static void check_attention(const struct attention *a, int threads, double size)
{
    struct kernels_need need = need_of(a, threads);
    struct both b = open_both(&need);
    struct array qkv = array_random(a->batch * a->seq * a->ld, a->at, size);
    struct array dout = array_random(a->batch * a->seq * a->heads * a->dim, a->at, 1);
    struct results want = attend(&b.ref, a, &qkv, NULL, NULL, &dout);
    struct results got = attend(&b.host, a, &qkv, &want.o, &want.lse, &dout);
    /* A score's rounding is a probability's relative error, and scores grow as size^2. */
    double far = half_tol(a->at, 4e-6 * size * size);

    assert_same("attention", &got.o, &want.o, far, size > 1 ? size : 0.05);
    assert_same("log-sum-exp", &got.lse, &want.lse, 1e-6, size * size);
    assert_same("attention delta", &got.delta, &want.delta, 4e-6, 1);
    /* A gradient is a sum of p * (dO . v) * q. */
    assert_same("attention backward", &got.dqkv, &want.dqkv, far,
                half_size(a->at, 0.05, size * size * size));
    free_results(&got), free_results(&want);
    array_free(&qkv), array_free(&dout);
    close_both(&b);
}

static void random_attention_equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct attention a = random_attention(i < 40 ? 40 : 90);
        check_attention(&a, 1 + i % 2, 1);
    }
}

/* Row blocks are of 64, key blocks of 256. */
static void attention_over_several_key_blocks_equals_the_reference(void **state)
{
    static const int64_t seq[] = { 255, 256, 257, 290, 513 };

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct attention a = random_attention(4);
        a.batch = 1, a.seq = seq[i], a.kv_heads = 1, a.heads = 1 + i % 2, a.dim = 10 + 6 * i;
        a.ld = (a.heads + 2) * a.dim;
        a.scale = 1 / sqrt((double)a.dim);
        check_attention(&a, 1, 1);
    }
}

/* Scores of some hundreds: without the running maximum e^score would overflow. */
static void large_scores_do_not_overflow(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct attention a = random_attention(80);
        a.at = DT_FP32;
        a.scale = 1;
        check_attention(&a, 1, 6);
    }
}

static void attention_is_the_same_on_every_run(void **state)
{
    struct attention a = { .batch = 2, .seq = 100, .heads = 6, .kv_heads = 3, .dim = 20, .ld = 240,
                           .scale = 0.2, .at = DT_FP32 };
    struct kernels_need need = need_of(&a, 2);
    struct opened o = open_kernels(&need, false);
    struct array qkv = array_random(a.batch * a.seq * a.ld, a.at, 1);
    struct array dout = array_random(a.batch * a.seq * a.heads * a.dim, a.at, 1);
    struct results once = attend(&o, &a, &qkv, NULL, NULL, &dout);

    (void)state;
    for (int i = 0; i < 10; i++) {
        struct results again = attend(&o, &a, &qkv, NULL, NULL, &dout);
        assert_memory_equal(once.o.x, again.o.x, (size_t)once.o.n * 4);
        assert_memory_equal(once.dqkv.x, again.dqkv.x, (size_t)once.dqkv.n * 4);
        free_results(&again);
    }
    free_results(&once);
    array_free(&qkv), array_free(&dout);
    close_kernels(&o);
}

/* Rotating by an angle and by its negative is nothing; what is not rotated stays. */
static void rotary_equals_the_reference_and_its_inverse_undoes_it(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct attention a = random_attention(60);
        a.first = coin() ? random_int(1, 500) : 0;
        int64_t rot = random_int(1, a.dim / 2) * 2;
        struct kernels_need need = need_of(&a, 1 + i % 2);
        struct both b = open_both(&need);
        struct array freq = array_random(rot / 2, DT_FP32, 1);
        struct array x = array_random(a.batch * a.seq * a.ld, a.at, 1);
        struct array got = array_like(&x), want = array_like(&x);
        double far = half_tol(a.at, 1e-6);

        assert_int_equal(b.host.ops->rotary(b.host.k, &a, rot, freq.x, got.x, false), 0);
        assert_int_equal(b.ref.ops->rotary(b.ref.k, &a, rot, freq.x, want.x, false), 0);
        assert_same("rotary", &got, &want, far, half_size(a.at, 0.02, 1));
        assert_int_equal(b.host.ops->rotary(b.host.k, &a, rot, freq.x, got.x, true), 0);
        assert_same("rotary and back", &got, &x, 2 * far, 1);
        array_free(&freq), array_free(&x), array_free(&got), array_free(&want);
        close_both(&b);
    }
}

/* ---- parts ---- */

/* A part of somebody's keys, in rows of its own. */
static struct attention_part random_part(const struct attention *a, bool first, const struct array *kv)
{
    struct attention_part p = { .kv = kv->x, .ld = 2 * a->kv_heads * a->dim, .keys = a->seq, .causal = first, .fresh = first };

    p.at = (struct score_places){ a->heads + random_int(0, 2), 5 * a->seq, a->seq, { random_int(0, 9) }, { random_int(0, 9) } };
    if (a->seq % 2 == 0 && coin()) {        /* a chunk from either end of the sequence */
        p.at.run = a->seq / 2;
        p.at.row[1] = 4 * a->seq + random_int(0, 9);
        p.at.key[1] = 3 * a->seq;
    }
    if (!first && coin())
        p.from = random_int(0, a->seq - 1), p.keys = random_int(0, a->seq);
    return p;
}

/* Some parts one after the other; the sums so far are those of the reference. */
static void parts_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct attention a = random_attention(i < 40 ? 40 : 150);
        struct kernels_need need = need_of(&a, 1 + i % 2);
        struct both b = open_both(&need);
        int64_t n = a.batch * a.seq, wide = 2 * a.kv_heads * a.dim, pitch = a.heads * a.dim + random_int(0, 3);
        struct array qkv = array_random(n * a.ld, a.at, 1), dout = array_random(n * a.heads * a.dim, a.at, 1);
        struct array o = array_new(n * a.heads * a.dim, DT_FP32), lse = array_new(n * a.heads, DT_FP32);
        struct array dq = array_new(n * pitch, DT_FP32), delta = array_random(n * a.heads, DT_FP32, 1);
        double far = half_tol(a.at, 8e-6);
        for (int part = 0; part < 4; part++) {
            struct array kv = array_random(n * wide, a.at, 1), dkv = array_new(n * wide, a.at), dkv_ref = array_new(n * wide, a.at);
            struct array o_ref = array_like(&o), lse_ref = array_like(&lse), dq_ref = array_like(&dq);
            struct attention_part p = random_part(&a, part == 0, &kv);
            assert_int_equal(b.host.ops->attention_part(b.host.k, &a, &p, qkv.x, o.x, lse.x), 0);
            assert_int_equal(b.ref.ops->attention_part(b.ref.k, &a, &p, qkv.x, o_ref.x, lse_ref.x), 0);
            assert_same("output of parts", &o, &o_ref, 8e-6, 1);
            assert_same("log-sum-exp of parts", &lse, &lse_ref, 2e-6, 1);
            memcpy(lse.x, lse_ref.x, (size_t)lse.n * 4);
            assert_int_equal(b.host.ops->attention_part_back(b.host.k, &a, &p, qkv.x, lse.x, dout.x, delta.x, dq.x, pitch, dkv.x,
                                                             wide), 0);
            assert_int_equal(b.ref.ops->attention_part_back(b.ref.k, &a, &p, qkv.x, lse.x, dout.x, delta.x, dq_ref.x, pitch,
                                                            dkv_ref.x, wide), 0);
            assert_same("dq of parts", &dq, &dq_ref, 8e-6, 4);
            assert_same("dk, dv of a part", &dkv, &dkv_ref, far, half_size(a.at, 0.1, 4));
            array_free(&kv), array_free(&dkv), array_free(&dkv_ref), array_free(&o_ref), array_free(&lse_ref), array_free(&dq_ref);
        }
        array_free(&qkv), array_free(&dout), array_free(&o), array_free(&lse), array_free(&dq), array_free(&delta);
        close_both(&b);
    }
}

/* A sequence of 2 h positions: its second half's queries against the first half's keys, then their own, are causal attention of
 * all, the same scores dropped: its output, log-sum-exp and gradients. */
static void two_halves_of_a_sequence_are_the_whole(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct attention a = random_attention(70), half;
        a.batch = 1, a.at = DT_FP32, a.seq += a.seq % 2;
        half = a, half.seq = a.seq / 2;
        struct kernels_need need = need_of(&a, 1);
        struct opened k = open_kernels(&need, i % 2);
        int64_t h = half.seq, o_wide = a.heads * a.dim, kv_at = h * a.ld;       /* where the second half begins */
        struct array qkv = array_random(a.seq * a.ld, a.at, 1), dout = array_random(a.seq * o_wide, a.at, 1);
        struct results all = attend(&k, &a, &qkv, NULL, NULL, &dout);
        struct array o = array_new(h * o_wide, DT_FP32), lse = array_new(h * a.heads, DT_FP32), delta = array_new(h * a.heads, DT_FP32);
        struct array dqkv = array_new(h * a.ld, DT_FP32), earlier = array_new(h * a.ld, DT_FP32);
        const float *q = (float *)qkv.x + kv_at, *d = (float *)dout.x + h * o_wide;
        struct attention_part own = { .kv = q + o_wide, .ld = a.ld, .keys = h, .causal = true, .fresh = true,
                                      .at = { a.heads, a.seq, h, { h }, { h } } };
        struct attention_part before = { .kv = (float *)qkv.x + o_wide, .ld = a.ld, .keys = h, .at = { a.heads, a.seq, h, { h }, { 0 } } };
        assert_int_equal(k.ops->attention_part(k.k, &half, &own, q, o.x, lse.x), 0);
        assert_int_equal(k.ops->attention_part(k.k, &half, &before, q, o.x, lse.x), 0);
        assert_int_equal(k.ops->attention_delta(k.k, &half, o.x, d, delta.x), 0);
        assert_int_equal(k.ops->attention_part_back(k.k, &half, &own, q, lse.x, d, delta.x, dqkv.x, a.ld, (float *)dqkv.x + o_wide,
                                                    a.ld), 0);
        assert_int_equal(k.ops->attention_part_back(k.k, &half, &before, q, lse.x, d, delta.x, dqkv.x, a.ld,
                                                    (float *)earlier.x + o_wide, a.ld), 0);
        for (int64_t t = 0; t < h; t++) {
            for (int64_t j = 0; j < o_wide; j++)
                assert_close(1 + array_get(&o, t * o_wide + j), 1 + array_get(&all.o, (h + t) * o_wide + j), 1e-5);
            for (int64_t j = 0; j < a.heads; j++)
                assert_close(10 + array_get(&lse, j * h + t), 10 + array_get(&all.lse, j * a.seq + h + t), 1e-5);
            for (int64_t j = 0; j < o_wide + 2 * a.kv_heads * a.dim; j++)
                assert_close(10 + array_get(&dqkv, t * a.ld + j), 10 + array_get(&all.dqkv, kv_at + t * a.ld + j), 1e-5);
        }
        free_results(&all);
        array_free(&qkv), array_free(&dout), array_free(&o), array_free(&lse), array_free(&delta), array_free(&dqkv),
            array_free(&earlier);
        close_kernels(&k);
    }
}

static void runs_are_copied_as_the_reference_does(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct runs r = { .n = { random_int(1, 5), random_int(1, 5) }, .run = random_int(1, i < 50 ? 40 : 2000),
                          .dt = host_dtype(), .st = host_dtype(), .add = coin() };
        struct kernels_need need = { .n = 1, .widest_in = 1, .widest_out = 1, .vocab = 1, .seq = 1, .dim = 1, .threads = 1 + i % 2,
                                     .at = DT_FP32, .wt = DT_FP32 };
        struct both b = open_both(&need);
        r.to[1] = r.run + random_int(0, 3), r.to[0] = r.n[1] * r.to[1];
        r.from[0] = r.run + random_int(0, 3), r.from[1] = r.n[0] * r.from[0];         /* turned round */
        struct array src = array_random(r.n[1] * r.from[1], r.st, 1), dst = array_random(r.n[0] * r.to[0], r.dt, 1);
        struct array want = array_like(&dst);
        assert_int_equal(b.host.ops->copy_runs(b.host.k, &r, dst.x, src.x), 0);
        assert_int_equal(b.ref.ops->copy_runs(b.ref.k, &r, want.x, src.x), 0);
        assert_same("runs", &dst, &want, unit(r.dt), 1);
        array_free(&src), array_free(&dst), array_free(&want);
        close_both(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_attention_equals_the_reference),
        cmocka_unit_test(attention_over_several_key_blocks_equals_the_reference),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(attention_is_the_same_on_every_run),
        cmocka_unit_test(rotary_equals_the_reference_and_its_inverse_undoes_it),
        cmocka_unit_test(parts_equal_the_reference),
        cmocka_unit_test(two_halves_of_a_sequence_are_the_whole),
        cmocka_unit_test(runs_are_copied_as_the_reference_does),
    };
    return cmocka_run_group_tests_name("exec/kernels attention", tests, NULL, NULL);
}
