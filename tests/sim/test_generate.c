/* Generation by arithmetic: how long sequences take, what the GPU waits for, and what a full KV cache does. */
#include "tests/check.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "sim/phases/generate.h"

static struct model llama;
static struct cluster eight;

static int load(void **state)
{
    (void)state;
    return model_load("llama-3.1-8b", &llama) || cluster_load("8xh100", &eight);
}

static int unload(void **state)
{
    (void)state;
    model_free(&llama);
    return 0;
}

/* As it starts on the eight GPUs. */
static struct engine usual(enum engine_kind kind)
{
    struct engine e = engine_usual(kind);

    engine_fill(&e, &eight.gpu);
    return e;
}

static void of_engine(struct engine *e, struct engine_memory *m)
{
    *e = usual(ENGINE_VLLM);
    assert_int_equal(engine_memory_of(e, &llama, &eight, 0, m), 0);
}

/* Sixteen responses one after another take sixteen times as long as one; at once they take fewer steps, not less work. */
static void responses_one_after_another(void **state)
{
    struct lengths l = { 256, 256 };
    struct generation one, row, heap;
    struct engine e;
    struct engine_memory m;

    (void)state;
    of_engine(&e, &m);
    assert_int_equal(generate(&e, &m, &llama, &eight, 1, 1, 1, 0, &l, &one), 0);
    e.sequences = 1;
    assert_int_equal(generate(&e, &m, &llama, &eight, 16, 16, 1, 0, &l, &row), 0);
    assert_close(row.decode_s, 16 * one.decode_s, 1e-9);
    assert_close(row.steps, 16 * 256, 1e-9);
    assert_close(row.tail_s, one.decode_s, 1e-9);
    e.sequences = 16;
    assert_int_equal(generate(&e, &m, &llama, &eight, 16, 16, 1, 0, &l, &heap), 0);
    assert_close(heap.steps, 256, 1e-9);
    assert_true(heap.decode_s >= one.decode_s && heap.decode_s < row.decode_s / 8);
    assert_close(heap.tail_s, heap.decode_s, 1e-12);
}

/* A token reads all weights at least, and each token before it: below the bandwidth's bound nothing goes. */
static void memory_sets_the_pace(void **state)
{
    struct lengths l = { 1000, 1000 };
    struct generation g, longer;
    struct engine e;
    struct engine_memory m;
    double weights = 2 * (8030261248.0 - 128256.0 * 4096 - 65 * 4096);     /* the embedding is looked up, norms are small */

    (void)state;
    of_engine(&e, &m);
    assert_int_equal(generate(&e, &m, &llama, &eight, 1, 1, 1, 0, &l, &g), 0);
    assert_true(g.decode_s > 1000 * weights / eight.gpu.hbm);
    assert_true(g.decode_s < 2 * 1000 * weights / eight.gpu.hbm);
    /* 2000 tokens of context more in each of 1000 steps. */
    assert_int_equal(generate(&e, &m, &llama, &eight, 1, 1, 1, 2000, &l, &longer), 0);
    double each = (longer.decode_s - g.decode_s) / (1000.0 * 2000);
    assert_true(each > 131072 / eight.gpu.hbm && each < 1.25 * 131072 / eight.gpu.hbm);
    assert_true(g.time.low_s < g.time.s && g.time.s < g.time.high_s);
    assert_close(g.time.high_s, (g.prefill_s + g.gpu_s) / 0.38, 1e-9);
}

/* What a GPU waits for, in kernels that a thread issues (12.8 us): tests/bench/engine_cost.py has 1.6 a sequence for the core, 0.3 for outputs, 0.24
 * for a message between processes, 1.3 for a coroutine; 20 a step are counted.  256 sequences for 100 steps: */
static void who_drives_an_engine_decides_what_it_waits_for(void **state)
{
    static const struct { enum engine_driven driven; int overlaps; double waits; } rows[] = {
        { DRIVEN_WITHIN, 0, 256 * (1.6 + 0.3) + 20 }, { DRIVEN_PROCESS, 0, 256 * (1.6 + 0.24) + 20 }, { DRIVEN_ASYNC, 0, 256 * (1.6 + 0.24) + 20 },
        { DRIVEN_WITHIN, 1, 0 },
    };
    struct lengths l = { 100, 100 };
    struct engine e;
    struct engine_memory m;

    (void)state;
    of_engine(&e, &m);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct generation g;
        e.driven = rows[i].driven;
        e.overlaps = rows[i].overlaps;
        assert_int_equal(generate(&e, &m, &llama, &eight, 256, 256, 1, 0, &l, &g), 0);
        assert_close(g.decode_s - g.gpu_s, 100 * rows[i].waits * 12.8e-6, 1e-9);
    }
}

/* Four sequences of 100 tokens, room for 200.  At step 50 the cache is full and the fourth goes, at step 66.7 the third; the other two end at step
 * 100.  Then both come back and need 33.3 and 50 steps more.  What they had is read again, for as much has been written since. */
static void a_full_cache_sets_the_last_one_back(void **state)
{
    struct lengths l = { 100, 100 };
    struct generation g, all;
    struct engine e;
    struct engine_memory m;

    (void)state;
    of_engine(&e, &m);
    m.kv_tokens = 400;
    assert_int_equal(generate(&e, &m, &llama, &eight, 4, 4, 1, 0, &l, &all), 0);
    assert_int_equal(all.preempted, 0);
    assert_close(all.steps, 100, 1e-9);
    m.kv_tokens = 200;
    assert_int_equal(generate(&e, &m, &llama, &eight, 4, 4, 1, 0, &l, &g), 0);
    assert_int_equal(g.slots, 4);
    assert_int_equal(g.preempted, 2);
    assert_close(g.steps, 150, 1e-9);
    assert_true(g.again_s > 0 && g.decode_s > all.decode_s);
    assert_close(g.time.s, g.prefill_s + g.again_s + g.decode_s, 1e-12);
    /* SGLang takes on as many as find room on average: 200 / 50. */
    e.kind = ENGINE_SGLANG;
    assert_int_equal(generate(&e, &m, &llama, &eight, 8, 8, 1, 0, &l, &g), 0);
    assert_int_equal(g.slots, 4);
    assert_int_equal(g.preempted, 0);
}

/* The longest decides: with the same number of tokens a tail takes longer than an even batch. */
static void the_longest_decides(void **state)
{
    struct generation even, tail;
    struct engine e;
    struct engine_memory m;

    (void)state;
    of_engine(&e, &m);
    assert_int_equal(generate(&e, &m, &llama, &eight, 256, 256, 1, 0, &(struct lengths){ 500, 500 }, &even), 0);
    assert_int_equal(generate(&e, &m, &llama, &eight, 256, 256, 1, 0, &(struct lengths){ 500, 4000 }, &tail), 0);
    assert_close(even.steps, 500, 1e-9);
    assert_true(tail.steps > 2000 && tail.decode_s > 3 * even.decode_s);
}

/* Of eight engines the one with the longest of all responses is done last: with 1024 of them, not with its own 128. */
static void the_last_engine_has_the_longest(void **state)
{
    struct lengths l = { 500, 4000 };
    struct generation alone, last;
    struct engine e;
    struct engine_memory m;

    (void)state;
    of_engine(&e, &m);
    for (int64_t n = 1; n <= 130; n += 43) {
        assert_int_equal(generate(&e, &m, &llama, &eight, n, n, 1, 0, &l, &alone), 0);
        assert_int_equal(generate(&e, &m, &llama, &eight, n, 8 * n, 1, 0, &l, &last), 0);
        assert_close(alone.steps, lengths_quantile(&l, 1 - 0.5 / (double)n), 1e-9);
        assert_close(last.steps, lengths_quantile(&l, 1 - 0.5 / (8 * (double)n)), 1e-9);
    }
}

static void one_sequence_must_have_room(void **state)
{
    struct generation g;
    struct engine e;
    struct engine_memory m;
    char why[600];

    (void)state;
    of_engine(&e, &m);
    fail_capture(why, sizeof why);
    assert_int_equal(generate(&e, &m, &llama, &eight, 1, 1, 1, 0, &(struct lengths){ 100, 1e7 }, &g), -1);
    assert_non_null(strstr(why, "the longest sequence has 10000000"));
    assert_int_equal(generate(&e, &m, &llama, &eight, 1, 1, 1, 0, &(struct lengths){ 200, 100 }, &g), -1);
    assert_non_null(strstr(why, "a mean of 200"));
    fail_capture(NULL, 0);
}

/* Over two nodes each rank has half as many heads and columns as over one; the all-reduces of each step cross the network. */
static void an_engine_spans_nodes(void **state)
{
    struct lengths l = { 100, 100 };
    struct engine e = usual(ENGINE_VLLM);
    struct engine_memory half, quarter;
    struct generation one, two;
    struct cluster sixteen;

    (void)state;
    assert_int_equal(cluster_load("2x8xh100", &sixteen), 0);
    e.tensor = 8;
    assert_int_equal(engine_memory_of(&e, &llama, &sixteen, 0, &half), 0);
    assert_int_equal(generate(&e, &half, &llama, &sixteen, 8, 8, 1, 0, &l, &one), 0);
    e.tensor = 16;
    assert_int_equal(engine_memory_of(&e, &llama, &sixteen, 0, &quarter), 0);
    assert_int_equal(generate(&e, &quarter, &llama, &sixteen, 8, 8, 1, 0, &l, &two), 0);
    /* Norms are whole, and each of 8 heads of keys and values is there twice. */
    int64_t norms = 65 * 4096, keys = (int64_t)32 * 2 * 1024 * 4096;
    assert_int_equal(2 * quarter.weights - half.weights, 2 * (norms + keys / 8));
    assert_true(two.gpu_s > one.gpu_s);
}

static double decoding(struct engine *e, const struct model *m, int64_t sequences, struct generation *g)
{
    struct lengths l = { 256, 256 };
    struct engine_memory mem;

    e->driven = DRIVEN_ASYNC;
    e->overlaps = 1;
    assert_int_equal(engine_memory_of(e, m, &eight, 0, &mem), 0);
    assert_int_equal(generate(e, &mem, m, &eight, sequences, sequences, 1, 0, &l, g), 0);
    return g->gpu_s;
}

/* One sequence goes through the stages one after the other and reads all weights once: as without them, but for messages, a 20th here.  Sixteen
 * run in four batches, and read them four times as often as in one. */
static void a_pipeline_reads_all_weights(void **state)
{
    struct engine e = usual(ENGINE_VLLM);
    struct generation one, four, batch;

    (void)state;
    double alone = decoding(&e, &llama, 1, &one), whole = decoding(&e, &llama, 4, &batch);
    e.pipeline = 4;
    double staged = decoding(&e, &llama, 1, &four);
    assert_true(staged > alone && staged < 1.35 * alone);   /* the last stage has the head, and decides */
    assert_true(decoding(&e, &llama, 4, &four) > whole);
    assert_true(four.time.high_s > batch.time.high_s);
}

/* Whole experts on as many ranks are read as fast as parts of all; which rank is busiest is not known. */
static void whole_experts_take_as_long(void **state)
{
    struct engine cut = usual(ENGINE_VLLM), shared = cut;
    struct generation a, b;
    struct model mix;

    (void)state;
    assert_int_equal(model_load("mixtral-8x7b", &mix), 0);
    cut.tensor = shared.tensor = shared.expert = 8;
    assert_close(decoding(&cut, &mix, 16, &a), decoding(&shared, &mix, 16, &b), 1e-12);
    assert_true(b.time.high_s >= a.time.high_s);
    shared.tensor = 1;              /* attention of eight engines' own: twice the collectives' latency, and all of its weights */
    assert_true(decoding(&shared, &mix, 2, &b) > 0 && b.time.high_s > b.time.s);
    model_free(&mix);
}

/* Of few sequences weights' bytes decide: fp8 and 4 bits take less, never less than their bytes; where they are made wide first it takes longer. */
static void narrow_weights_are_read_faster(void **state)
{
    struct engine e = usual(ENGINE_VLLM);
    struct generation g;
    struct engine_memory m;
    double last = decoding(&e, &llama, 1, &g), high = g.time.high_s;

    (void)state;
    for (e.codes = CODES_FP8; e.codes <= CODES_AWQ; e.codes = e.codes == CODES_FP8 ? CODES_AWQ : NCODES) {
        double s = decoding(&e, &llama, 1, &g);
        assert_int_equal(engine_memory_of(&e, &llama, &eight, 0, &m), 0);
        assert_true(s < last && s > 256 * ((double)m.weights - 2.0 * 128256 * 4096) / 3.36e12);
        assert_true(g.time.high_s > high);
        last = s;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(responses_one_after_another),
        cmocka_unit_test(memory_sets_the_pace),
        cmocka_unit_test(who_drives_an_engine_decides_what_it_waits_for),
        cmocka_unit_test(a_full_cache_sets_the_last_one_back),
        cmocka_unit_test(the_longest_decides),
        cmocka_unit_test(the_last_engine_has_the_longest),
        cmocka_unit_test(one_sequence_must_have_room),
        cmocka_unit_test(an_engine_spans_nodes),
        cmocka_unit_test(a_pipeline_reads_all_weights),
        cmocka_unit_test(whole_experts_take_as_long),
        cmocka_unit_test(narrow_weights_are_read_faster),
    };
    return cmocka_run_group_tests_name("sim/generate", tests, load, unload);
}
