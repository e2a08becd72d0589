/* Phases by arithmetic: what an engine holds of a GPU, and which bytes stand together when. */
#include "tests/check.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "sim/phases/engine.h"
#include "sim/phases/engine_weights.h"
#include "sim/phases/forward.h"
#include "sim/phases/generate.h"
#include "sim/phases/handover.h"
#include "sim/phases/moments.h"

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

/* ---- engines ---- */

/* As it starts on the eight GPUs. */
static struct engine usual(enum engine_kind kind)
{
    struct engine e = engine_usual(kind);

    engine_fill(&e, &eight.gpu);
    return e;
}

/* Elements of a rank: weights of two bytes each. */
static int64_t engine_params(const struct model *m, int64_t tensor)
{
    struct engine e = engine_usual(ENGINE_VLLM);

    e.tensor = tensor;
    return engine_weights(&e, m, 0) / 2;
}

/* vLLM 0.33's arg_utils.py, and by hand what memory_hook.py of SGLang 0.5.23 leaves of an H100's 81,559 MiB: 512 + 1.5 x 8192 + 128 + 2 x 256 +
 * 8 x 42 are 13,776; of 8 ranks 512 + 12,288 + 1024 + 2 x 512 + 336 are 15,184; of an RTX 4090's 24,564 MiB 512 + 1.5 x 4096 + 128 + 96 + 336. */
static void gpus_decide_what_is_usual(void **state)
{
    static const struct { enum engine_kind kind; const char *gpu; int version; int64_t tensor, sequences, tokens; double share; } rows[] = {
        { ENGINE_VLLM, "h100", 33, 1, 1024, 16384, 0.92 },      { ENGINE_VLLM, "h100", 19, 1, 1024, 16384, 0.9 },
        { ENGINE_VLLM, "a100-80gb", 20, 1, 256, 8192, 0.92 },   { ENGINE_VLLM, "rtx4090", 11, 1, 256, 8192, 0.9 },
        { ENGINE_SGLANG, "h100", 5, 1, 1024, 8192, 0.831 },     { ENGINE_SGLANG, "h100", 5, 8, 1024, 8192, 0.814 },
        { ENGINE_SGLANG, "rtx4090", 5, 1, 1024, 4096, 0.706 },  { ENGINE_SGLANG, "b200", 5, 1, 1024, 16384, -1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct engine e = engine_usual(rows[i].kind);
        e.version = rows[i].version;
        e.tensor = rows[i].tensor;
        engine_fill(&e, gpu_find(rows[i].gpu));
        assert_int_equal(e.sequences, rows[i].sequences);
        assert_int_equal(e.batched_tokens, rows[i].tokens);
        if (rows[i].share > 0)
            assert_close(e.share, rows[i].share, 1e-9);
        e.share = 0.3;
        e.sequences = e.batched_tokens = 77;
        engine_fill(&e, gpu_find(rows[i].gpu));             /* what is stated stays */
        assert_true(e.share > 0.299 && e.share < 0.301 && e.sequences == 77 && e.batched_tokens == 77);
    }
}

/* get_batch_defaults() of vLLM 0.11.2, 0.17.1 and 0.33.0: UsageContext.LLM_CLASS, OPENAI_API_SERVER, and ENGINE_CONTEXT, which has no row and takes
 * SchedulerConfig's 128 and 2048. */
static void who_made_an_engine_decides_how_many_it_takes(void **state)
{
    static const struct { enum engine_driven driven; const char *gpu; int64_t sequences, tokens; } rows[] = {
        { DRIVEN_PROCESS, "h100", 1024, 16384 }, { DRIVEN_WITHIN, "h100", 1024, 16384 }, { DRIVEN_SERVER, "h100", 1024, 8192 }, { DRIVEN_ASYNC, "h100", 128, 2048 },
        { DRIVEN_SERVER, "b200", 1024, 16384 },  { DRIVEN_ASYNC, "b200", 128, 2048 },    { DRIVEN_SERVER, "a100-80gb", 256, 2048 }, { DRIVEN_ASYNC, "a100-80gb", 128, 2048 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct engine e = engine_usual(ENGINE_VLLM);
        e.driven = rows[i].driven;
        engine_fill(&e, gpu_find(rows[i].gpu));
        assert_int_equal(e.sequences, rows[i].sequences);
        assert_int_equal(e.batched_tokens, rows[i].tokens);
    }
}

/* 8,030,261,248 parameters; 65 norms of 4096 are whole on each rank.  128,256 rows of the vocabulary are a multiple of 64. */
static void weights_are_cut_but_for_norms(void **state)
{
    const int64_t all = 8030261248, norms = (2 * 32 + 1) * 4096;

    (void)state;
    assert_int_equal(engine_params(&llama, 1), all);
    assert_int_equal(engine_params(&llama, 2), (all - norms) / 2 + norms);
    assert_int_equal(engine_params(&llama, 8), (all - norms) / 8 + norms);
    /* With 16 ranks two have each of the 8 heads of keys and values: of 32 layers k and v of 1024 x 4096 are cut by 8 alone. */
    const int64_t keys = (int64_t)32 * 2 * 1024 * 4096;
    assert_int_equal(engine_params(&llama, 16), (all - norms - keys) / 16 + keys / 8 + norms);
}

/* GPT-2's 50,257 rows become 50,304, its three projections are one tensor, and learned positions are whole. */
static void rows_are_padded(void **state)
{
    struct model m;

    (void)state;
    assert_int_equal(model_load("gpt2", &m), 0);
    assert_int_equal(engine_params(&m, 1), m.params + (50304 - 50257) * 768);
    model_free(&m);
}

/* 32 layers, 8 heads of 128, keys and values, 2 bytes: 131,072; DeepSeek-V3's 61 layers keep 512 + 64 numbers, whole on each rank. */
static void tokens_have_keys_and_values(void **state)
{
    struct model m;

    (void)state;
    assert_int_equal(engine_kv_token(&llama, 1, DT_BF16), 131072);
    assert_int_equal(engine_kv_token(&llama, 2, DT_BF16), 65536);
    assert_int_equal(engine_kv_token(&llama, 8, DT_FP8), 8192);
    assert_int_equal(engine_kv_token(&llama, 16, DT_BF16), 16384);
    assert_int_equal(model_load("deepseek-v3", &m), 0);
    assert_int_equal(engine_kv_token(&m, 1, DT_BF16), 61 * 576 * 2);
    assert_int_equal(engine_kv_token(&m, 8, DT_BF16), 61 * 576 * 2);
    model_free(&m);
}

/* vLLM takes its share of all memory, whatever others hold; it does not start where that is not free. */
static void vllm_takes_of_the_whole(void **state)
{
    struct engine e = usual(ENGINE_VLLM);
    struct engine_memory m, with;

    (void)state;
    e.share = 0.5;
    assert_int_equal(engine_memory_of(&e, &llama, &eight, 0, &m), 0);
    assert_int_equal(m.share, eight.memory / 2);
    assert_int_equal(m.awake, m.share);
    assert_true(m.starts);
    assert_int_equal(m.weights, 2 * 8030261248);
    assert_int_equal(m.kv_tokens % 16, 0);
    assert_int_equal(m.kv, m.kv_tokens * 131072);
    assert_true(m.share - m.weights - m.activations - m.outside - m.graphs - m.kv < 16 * 131072);
    assert_int_equal(engine_memory_of(&e, &llama, &eight, eight.memory / 2, &with), 0);
    assert_int_equal(with.kv, m.kv);
    assert_false(with.starts);
    /* Before 0.20 CUDA graphs come on top of the share, and their bytes are the KV cache's. */
    e.version = 19;
    assert_int_equal(engine_memory_of(&e, &llama, &eight, 0, &with), 0);
    assert_int_equal(with.awake, m.share + with.graphs);
    assert_int_equal(with.kv_tokens, m.kv_tokens + with.graphs / 131072 / 16 * 16);
}

/* SGLang takes its share of what is free: 10 GiB held by others are 5 GiB less of weights and KV cache. */
static void sglang_takes_of_what_is_free(void **state)
{
    struct engine e = usual(ENGINE_SGLANG);
    struct engine_memory m, with;
    const int64_t others = (int64_t)10 << 30;

    (void)state;
    e.share = 0.5;
    assert_int_equal(engine_memory_of(&e, &llama, &eight, 0, &m), 0);
    assert_int_equal(engine_memory_of(&e, &llama, &eight, others, &with), 0);
    assert_int_equal(m.share - with.share, others / 2);
    assert_in_range(m.kv - with.kv, others / 2 - 131072, others / 2 + 131072);
    assert_in_range(m.share - m.weights - m.kv, 0, 131072);
}

/* Asleep: level 1 has its weights in host memory, level 2 nothing; what no allocator of its own has stays. */
static void sleepers_leave_what_is_outside(void **state)
{
    struct engine e = usual(ENGINE_VLLM);
    struct engine_memory m;

    (void)state;
    e.tensor = 2;
    for (e.sleep = 0; e.sleep <= 2; e.sleep++) {
        assert_int_equal(engine_memory_of(&e, &llama, &eight, 0, &m), 0);
        assert_int_equal(m.asleep, e.sleep ? m.outside + m.graphs : m.awake);
        assert_int_equal(m.host, e.sleep == 1 ? m.weights : 0);
        assert_int_equal(m.loading, e.sleep ? m.asleep + m.weights : m.awake);
    }
    e.eager = true;
    assert_int_equal(engine_memory_of(&e, &llama, &eight, 0, &m), 0);
    assert_int_equal(m.graphs, 0);
}

static void engines_are_refused_by_name(void **state)
{
    struct engine e = usual(ENGINE_VLLM);
    struct engine_memory m;
    char why[600];

    (void)state;
    e.tensor = 3;
    fail_capture(why, sizeof why);
    assert_int_equal(engine_memory_of(&e, &llama, &eight, 0, &m), -1);
    assert_non_null(strstr(why, "tensor 3 does not divide 32 heads"));
    e.tensor = 16;
    assert_int_equal(engine_memory_of(&e, &llama, &eight, 0, &m), -1);
    assert_non_null(strstr(why, "tensor 16: nodes of 8 GPUs must divide by it, or it by them, and all 8 GPUs by it"));
    e.tensor = 1;
    e.share = 1.5;
    assert_int_equal(engine_memory_of(&e, &llama, &eight, 0, &m), -1);
    assert_non_null(strstr(why, "gpu_memory_utilization 1.5"));
    fail_capture(NULL, 0);
}

/* ---- lengths ---- */

/* The mean of the quantiles is the mean; a mean of half the longest is even: E[x^2] / 2 E[x] = L/3.  Responses that are all of one length are
 * on average half done. */
static void lengths_have_their_mean(void **state)
{
    static const double means[] = { 30, 300, 500, 700, 990 };

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        struct lengths l = { means[i], 1000 };
        double sum = 0, squares = 0;
        for (int k = 0; k < 20000; k++) {
            double x = lengths_quantile(&l, (k + 0.5) / 20000);
            sum += x / 20000;
            squares += x * x / 20000;
        }
        assert_close(sum, means[i], 1e-3);
        assert_close(lengths_age(&l), squares / (2 * sum), 1e-3);
    }
    assert_close(lengths_age(&(struct lengths){ 500, 1000 }), 1000.0 / 3, 1e-6);
    assert_close(lengths_age(&(struct lengths){ 1000, 1000 }), 500, 1e-9);
    assert_close(lengths_quantile(&(struct lengths){ 200, 1000 }, 1), 1000, 1e-9);
}

/* ---- moments ---- */

enum { GiB = 1 << 30 };
#define GIB(n) ((int64_t)(n) * GiB)

static void read_plan(const char *text, struct phase_plan *p, json_t **doc)
{
    *doc = json_loads(text, 0, NULL);
    assert_non_null(*doc);
    assert_int_equal(phase_plan_read(*doc, "test", p), 0);
}

#define ROLES "\"roles\": { \"actor\": { \"train\": {} %s }, \"reference\": { \"infer\": \"actor\", \"between\": \"host\" }, " \
              "\"engine\": { \"engine\": \"vllm\", \"sleep\": %d } }, "
#define PHASES "\"phases\": [ { \"name\": \"g\", \"generate\": \"engine\" }, { \"name\": \"r\", \"forward\": \"reference\" }, { \"name\": \"u\", \"update\": \"actor\" } ] }"
#define HEAD "{ \"dpx_phases\": 1, \"cluster\": \"8xh100\", \"samples\": 64, \"response\": { \"mean\": 10, \"longest\": 20 }, "

static const struct role_bytes bytes[] = {
    { .params = GIB(4), .states = GIB(8), .other = 0, .lost = GIB(1), .outside = GIB(1), .update = GIB(30), .update_reserved = GIB(36) },
    { .params = GIB(2), .outside = GIB(1) },
    { .awake = GIB(40), .loading = GIB(18), .asleep = GIB(3), .host = GIB(14) },
};
static const int64_t own[] = { 0, GIB(10), GIB(30) };

static void moments_with(const char *actor, int sleep, struct moment m[3], int *largest)
{
    char text[2000];
    struct phase_plan p;
    json_t *doc;

    snprintf(text, sizeof text, HEAD ROLES PHASES, actor, sleep);
    read_plan(text, &p, &doc);
    moments_of(&p, bytes, own, NULL, 0, m);
    *largest = moments_largest(&p, m);
    json_decref(doc);
}

/* The update and the engine at work never stand together: the largest moment is less than the sum of the two bars. */
static void bars_that_never_stand_together(void **state)
{
    struct moment m[3];
    int largest;

    (void)state;
    moments_with(", \"between\": \"host\", \"empties_cache\": true", 1, m, &largest);
    assert_int_equal(m[0].needed, GIB(0 + 1 + 40));         /* nothing of the trainers but NCCL's buffers */
    assert_int_equal(m[1].needed, GIB(10 + 1 + 3));         /* the reference's forward, the engine asleep */
    assert_int_equal(m[2].needed, GIB(30 + 1 + 3));
    assert_int_equal(m[2].taken, GIB(36 + 1 + 3));
    assert_int_equal(largest, 0);
    /* The node's host memory: actor and reference while the engine works; the reference and the engine's weights in the update. */
    assert_int_equal(m[0].host, GIB(12 + 2));
    assert_int_equal(m[2].host, GIB(2 + 14));
    /* Before it generates the actor has gone (12) and its weights come (14); then they go and the reference comes; then the reference goes and
     * the actor comes. */
    assert_int_equal(m[0].moved, GIB(12 + 14));
    assert_int_equal(m[1].moved, GIB(14 + 2));
    assert_int_equal(m[2].moved, GIB(2 + 12));
}

/* Of 12 GiB of the actor that leave the GPU before it generates all, or its states, meet pages that nothing has touched. */
static void what_goes_to_pageable_memory_is_allocated_anew(void **state)
{
    struct moment m[3];
    int largest;

    (void)state;
    moments_with(", \"between\": \"host\", \"empties_cache\": true, \"pageable\": \"all\"", 1, m, &largest);
    assert_int_equal(m[0].moved, GIB(12 + 14));
    assert_int_equal(m[0].anew, GIB(12));
    assert_int_equal(m[1].anew, 0);                         /* the reference is another role */
    assert_int_equal(m[2].anew, 0);                         /* what comes back is there */
    moments_with(", \"between\": \"host\", \"empties_cache\": true, \"pageable\": \"states\"", 1, m, &largest);
    assert_int_equal(m[0].anew, GIB(8));
    moments_with(", \"between\": \"host\", \"empties_cache\": true", 1, m, &largest);
    assert_int_equal(m[0].anew, 0);
}

/* The reference's 4 GiB wait in host memory all the time; in its forward the actor's are there too, and 4 GiB go, come, and come back. */
static void weights_that_take_the_place_of_others(void **state)
{
    struct phase_plan p;
    struct moment m[4];
    const int64_t peak[] = { 0, GIB(10), GIB(10), GIB(30) };
    char text[1000];
    json_t *doc;

    (void)state;
    snprintf(text, sizeof text, HEAD ROLES "\"phases\": [ { \"generate\": \"engine\" }, { \"forward\": \"actor\", \"swaps_weights\": true }, "
             "{ \"name\": \"r\", \"forward\": \"reference\" }, { \"update\": \"actor\" } ] }", "", 0);
    read_plan(text, &p, &doc);
    moments_of(&p, bytes, peak, NULL, 0, m);
    assert_int_equal(m[0].host, GIB(2 + 4));                /* 2: the role that ROLES has, too */
    assert_int_equal(m[1].host, GIB(2 + 4 + 4 + 14));          /* 14: the weights of the engine, which sleeps */
    assert_int_equal(m[1].swapped, GIB(3 * 4));
    assert_int_equal(m[0].swapped + m[2].swapped + m[3].swapped, 0);
    json_decref(doc);
}

/* What PyTorch keeps reserved behind the update is there when the engine wakes, unless the cache is emptied. */
static void the_allocator_goes_from_phase_to_phase(void **state)
{
    struct moment m[3];
    int largest;

    (void)state;
    moments_with("", 1, m, &largest);
    assert_int_equal(m[0].live, GIB(12));
    assert_int_equal(m[0].needed, GIB(36 + 1 + 40));
    assert_int_equal(m[1].needed, GIB(12 + 10 + 1 + 3));    /* the process gives its own cache back before it runs out */
    assert_int_equal(m[1].taken, GIB(36 + 1 + 3));
    moments_with(", \"empties_cache\": true", 1, m, &largest);
    assert_int_equal(m[0].needed, GIB(12 + 1 + 1 + 40));    /* 1 GiB is lost in segments that hold something */
    moments_with(", \"between\": \"states on host\", \"empties_cache\": true", 1, m, &largest);
    assert_int_equal(m[0].needed, GIB(4 + 1 + 1 + 40));
    assert_int_equal(m[2].needed, GIB(30 + 1 + 3));         /* and back for the update */
    moments_with(", \"between\": \"weights on host\", \"empties_cache\": true", 1, m, &largest);
    assert_int_equal(m[0].needed, GIB(8 + 1 + 1 + 40));
}

/* Each in a process of its own: a reserve that one keeps is not the other's, and both have NCCL and, but for the first, a context. */
static void processes_keep_what_they_reserve(void **state)
{
    static const struct role_bytes apart[] = {
        { .params = GIB(4), .states = GIB(8), .lost = GIB(1), .outside = GIB(1), .update = GIB(30), .update_reserved = GIB(36) },
        { .params = GIB(2), .outside = GIB(1), .context = GIB(1) }, { .awake = GIB(40), .loading = GIB(18), .asleep = GIB(3) },
    };
    struct phase_plan p;
    struct moment m[3];
    json_t *doc;

    (void)state;
    read_plan(HEAD "\"roles\": { \"actor\": { \"train\": {}, \"own_process\": true }, \"reference\": { \"infer\": \"actor\", \"own_process\": true }, "
              "\"engine\": { \"engine\": \"vllm\", \"sleep\": 1 } }, " PHASES, &p, &doc);
    moments_of(&p, apart, own, NULL, 0, m);
    /* the actor's 36 GiB and the reference's 10 stay reserved while the engine works; 1 + 1 of NCCL and a context beside them */
    assert_int_equal(m[0].needed, GIB(36 + 10 + 3 + 40));
    /* the reference's process gives its own cache back before it runs out, not the actor's */
    assert_int_equal(m[1].needed, GIB(36 + 10 + 3 + 3));
    assert_int_equal(m[2].needed, GIB(30 + 10 + 3 + 3));
    json_decref(doc);
    read_plan(HEAD "\"roles\": { \"actor\": { \"train\": {}, \"own_process\": true, \"empties_cache\": true }, \"reference\": { \"infer\": \"actor\", "
              "\"own_process\": true, \"empties_cache\": true }, \"engine\": { \"engine\": \"vllm\", \"sleep\": 1 } }, " PHASES, &p, &doc);
    moments_of(&p, apart, own, NULL, 0, m);
    assert_int_equal(m[0].needed, GIB(4 + 8 + 1 + 2 + 3 + 40));     /* 1 GiB is lost in the actor's segments */
    assert_int_equal(m[1].needed, GIB(4 + 8 + 1 + 10 + 3 + 3));
    assert_int_equal(m[2].needed, GIB(30 + 2 + 3 + 3));
    json_decref(doc);
}

/* A critic on GPUs of its own: neither holds what the other has, and phases of one are nothing to the other's GPUs but what they keep. */
static void places_share_no_memory(void **state)
{
    struct phase_plan p;
    struct moment m[3];
    json_t *doc;

    (void)state;
    read_plan(HEAD "\"places\": { \"other\": \"2xh100\" }, \"roles\": { \"actor\": { \"train\": {} }, "
              "\"reference\": { \"infer\": \"actor\", \"place\": \"other\" }, \"engine\": { \"engine\": \"vllm\", \"sleep\": 1 } }, " PHASES, &p, &doc);
    assert_int_equal(p.nplaces, 2);
    assert_int_equal(phase_place(&p, &p.step[1]), 1);
    moments_of(&p, bytes, own, NULL, 0, m);
    assert_int_equal(m[0].needed, GIB(36 + 1 + 40));
    assert_int_equal(m[2].needed, GIB(30 + 1 + 3));
    moments_of(&p, bytes, own, NULL, 1, m);
    assert_int_equal(m[1].live, own[1]);
    assert_int_equal(m[0].engine + m[1].engine + m[2].engine, 0);
    assert_int_equal(m[2].live, GIB(2));
    json_decref(doc);
}

/* An engine that does not sleep is in every phase. */
static void an_engine_that_stays_awake(void **state)
{
    struct moment m[3];
    int largest;

    (void)state;
    moments_with(", \"between\": \"host\", \"empties_cache\": true", 0, m, &largest);
    assert_int_equal(m[2].engine, GIB(3));                  /* engine_memory_of() makes that what it is awake */
    moments_with(", \"between\": \"host\"", 1, m, &largest);
    assert_int_equal(m[0].needed, GIB(36 + 1 + 40));        /* moved to host memory, and the cache not emptied: no GPU memory is won */
}

/* ---- handing over, forwards ---- */

static void plan_of(const char *rest, struct plan *p)
{
    char text[1200];

    snprintf(text, sizeof text, "{\"dpx_plan\":1,\"model\":\"llama-3.1-8b\",\"cluster\":\"8xh100\",\"seq\":2048,\"micro_batch\":1,\"precision\":\"bf16\",%s}", rest);
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    assert_int_equal(plan_from_json(j, "test", p), 0);
    json_decref(j);
}

/* All of a mixture's 46.7e9 parameters come together, whoever cuts its experts, 45.1e9 of them: of n ranks (n - 1) / n of the bytes. */
static void a_mixture_s_experts_are_handed_over(void **state)
{
    static const struct { const char *parallel; double of_experts, of_the_rest; } rows[] = {
        { "\"tensor\":2", 1.0 / 2, 1.0 / 2 },
        { "\"tensor\":2,\"expert\":4", 1.0 / 2 + 3.0 / 4 / 2, 1.0 / 2 },
        { "\"tensor\":2,\"expert\":4,\"expert_tensor\":1", 3.0 / 4, 1.0 / 2 },
    };
    struct engine e = usual(ENGINE_VLLM);

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[400];
        struct handover h;
        struct plan p;
        snprintf(text, sizeof text, "\"model\":\"mixtral-8x7b\",\"strategy\":\"zero1\",\"dialect\":\"megatron\",\"kernels\":\"te\",\"parallel\":{\"sequence\":true,%s}",
                 rows[i].parallel);
        plan_of(text, &p);
        assert_int_equal(handover_of(&p, &e, 2, &(struct handover_way){ .apart = NULL, .bucket = (int64_t)2 << 30 }, &h), 0);
        /* 32 layers of 8 experts with 3 matrices each, a router, 4 of attention and 2 norms; embedding, head, norm: half a millisecond each. */
        assert_int_equal(h.tensors, 32 * (8 * 3 + 7) + 3);
        h.time.s -= 0.5e-3 * (double)h.tensors;
        h.time.low_s -= 0.10e-3 * (double)h.tensors;
        double least = 2 * (45.1e9 * rows[i].of_experts + 1.6e9 * rows[i].of_the_rest) / 450e9;
        if (!(h.time.s > least && h.time.low_s < 2.5 * least))
            fail_msg("%s: %g s, at least %g", rows[i].parallel, h.time.s, least);
        plan_free(&p);
    }
}

/* 291 tensors; the largest is the embedding, 128,256 x 4096, held in fp32 as it is kept and in bf16 as it is sent. */
static void weights_are_handed_over(void **state)
{
    struct engine e = usual(ENGINE_VLLM);
    struct handover h, buckets, whole;
    struct plan p;
    const int64_t rows = 128256 * 4096;

    (void)state;
    plan_of("\"strategy\":\"fsdp\",\"dialect\":\"torch\"", &p);
    assert_int_equal(handover_of(&p, &e, 4, &(struct handover_way){ .apart = NULL, .bucket = 0 }, &h), 0);
    assert_int_equal(h.bytes, 2 * 8030261248);
    assert_int_equal(h.gathered, 4 * 8030261248);
    assert_int_equal(h.calls, 291);
    assert_int_equal(h.tensors, 291);
    assert_int_equal(h.peak, rows * 6);
    assert_int_equal(handover_of(&p, &e, 4, &(struct handover_way){ .apart = NULL, .bucket = (int64_t)4 << 30 }, &buckets), 0);
    assert_int_equal(buckets.calls, 8);
    assert_int_equal(buckets.peak, (int64_t)6 << 30);
    assert_true(buckets.time.s < h.time.s);
    /* A gather of 32.1 GB over 450 GB/s takes 7/8 of 71 ms at least. */
    assert_true(h.time.s > 7.0 / 8 * 32.12e9 / 450e9);
    plan_free(&p);
    plan_of("\"strategy\":\"ddp\",\"dialect\":\"torch\"", &p);
    assert_int_equal(handover_of(&p, &e, 4, &(struct handover_way){ .apart = NULL, .bucket = 0 }, &whole), 0);
    assert_int_equal(whole.gathered, 0);
    assert_true(whole.time.s < h.time.s);
    assert_int_equal(handover_of(&p, &e, 4, &(struct handover_way){ .apart = &p.cluster, .bucket = 0 }, &h), 0);
    assert_true(h.time.s > whole.time.s);
    plan_free(&p);
    /* Of two tensor ranks each sends and receives half of 16 GB; with two stages each rank's half is broadcast before. */
    plan_of("\"strategy\":\"zero1\",\"dialect\":\"megatron\",\"kernels\":\"te\",\"parallel\":{\"tensor\":2}", &p);
    assert_int_equal(handover_of(&p, &e, 2, &(struct handover_way){ .apart = NULL, .bucket = (int64_t)2 << 30 }, &buckets), 0);
    assert_int_equal(buckets.gathered, 2 * 8030261248);
    assert_int_equal(buckets.peak, (int64_t)2 << 30);
    assert_true(buckets.time.s - whole.time.s > 8.03e9 / 450e9);
    plan_free(&p);
    plan_of("\"strategy\":\"zero1\",\"dialect\":\"megatron\",\"kernels\":\"te\",\"accumulation\":4,\"parallel\":{\"tensor\":2,\"pipeline\":2}", &p);
    assert_int_equal(handover_of(&p, &e, 2, &(struct handover_way){ .apart = NULL, .bucket = (int64_t)2 << 30 }, &h), 0);
    assert_true(h.time.s - buckets.time.s > 8.03e9 / 450e9);
    assert_true(h.time.low_s - buckets.time.low_s < 16.06e9 / 450e9);
    plan_free(&p);
}

/* Beside each other the longest of three parts decides, and two buckets are there; apart, NVIDIA-NeMo/RL pull 1379 has 14 s of DeepSeek-V3's. */
static void parts_of_a_hand_over_overlap(void **state)
{
    struct engine e = usual(ENGINE_VLLM);
    struct handover turns, beside;
    struct cluster both;
    struct plan p;

    (void)state;
    e.tensor = 32;
    plan_of("\"cluster\":\"32x8xh100\",\"model\":\"deepseek-v3\",\"strategy\":\"zero1\",\"dialect\":\"megatron\",\"kernels\":\"te\",\"accumulation\":16,\"seq\":1536,"
            "\"parallel\":{\"expert\":16,\"pipeline\":16,\"first_stage_less_layers\":1,\"last_stage_less_layers\":2}", &p);
    assert_int_equal(cluster_load("64x8xh100", &both) | handover_of(&p, &e, 2, &(struct handover_way){ .bucket = (int64_t)2 << 30 }, &turns), 0);
    assert_int_equal(handover_of(&p, &e, 2, &(struct handover_way){ .bucket = (int64_t)2 << 30, .overlapped = true }, &beside), 0);
    assert_true(beside.peak == 2 * turns.peak && beside.time.s < turns.time.s && beside.time.s >= 0.5e-3 * (double)turns.tensors && 3 * beside.time.s > turns.time.s);
    assert_int_equal(handover_of(&p, &e, 2, &(struct handover_way){ .apart = &both, .bucket = (int64_t)2 << 30, .overlapped = true }, &beside), 0);
    assert_close(beside.time.s, 14, 1.4);
    assert_true(beside.time.low_s < 14 && beside.time.high_s > 14);
    plan_free(&p);
}

static void forward_is(const struct plan *p, struct forward *out)
{
    struct evaluation e;

    assert_int_equal(evaluate_allocated(p, &e), 0);
    assert_int_equal(forward_of(p, &e, out), 0);
    evaluation_free(&e);
}


/* A forward holds its sharded weights (4 bytes of 8 billion over 8 ranks), more than one gathered block, and neither gradients nor states; twice the samples
 * take about twice as long. */
static void a_forward_has_no_gradients(void **state)
{
    struct forward one, two;
    struct plan p;

    (void)state;
    plan_of("\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"kernels\":\"torch-sdpa\",\"recompute\":\"full\",\"loss\":\"cut-cross-entropy\"", &p);
    forward_is(&p, &one);
    assert_close((double)one.params, 4 * 8030261248.0 / 8, 1e-3);
    assert_true(one.peak > one.params + 2 * 218112000);
    /* Weights whole in bf16 and the blocks' inputs are more than a forward ever holds. */
    assert_true(one.peak < one.params + 2 * 8030261248);
    p.micro_batch = 2;
    forward_is(&p, &two);
    assert_int_equal(two.params, one.params);
    assert_true(two.peak > one.peak && two.time.s > 1.6 * one.time.s && two.time.s < 2.2 * one.time.s);
    plan_free(&p);
}

/* All of the model once more, but in four stages of which each has a quarter of the blocks: one micro-step takes about as long as without
 * a pipeline, and the next one a stage's time, of blocks a quarter and at most the head beside them. */
static void a_forward_goes_through_a_pipeline(void **state)
{
    struct forward whole, staged;
    struct plan p;

    (void)state;
    plan_of("\"strategy\":\"zero1\",\"dialect\":\"megatron\",\"kernels\":\"te\",\"recompute\":\"full\"", &p);
    forward_is(&p, &whole);
    assert_close(whole.next.s, whole.time.s, 1e-9);
    plan_free(&p);
    plan_of("\"strategy\":\"zero1\",\"dialect\":\"megatron\",\"kernels\":\"te\",\"recompute\":\"full\",\"parallel\":{\"pipeline\":4}", &p);
    forward_is(&p, &staged);
    assert_true(staged.time.s > 0.85 * whole.time.s && staged.time.s < 1.2 * whole.time.s);
    assert_true(staged.next.s >= 0.25 * whole.time.s && staged.next.s < 0.5 * whole.time.s);
    assert_true(staged.params < whole.params / 2);
    plan_free(&p);
}

/* ---- the document ---- */

static void says(const char *words, const char *text)
{
    char why[600] = "";
    struct phase_plan p;
    json_t *doc = json_loads(text, 0, NULL);

    assert_non_null(doc);
    fail_capture(why, sizeof why);
    int rc = phase_plan_read(doc, "test", &p);
    fail_capture(NULL, 0);
    if (rc != -1 || !strstr(why, words))
        fail_msg("%s: said \"%s\", not \"%s\"", text, why, words);
    json_decref(doc);
}

#define TRAINS "\"roles\": { \"a\": { \"train\": {} } }, "
#define UPDATES "\"phases\": [ { \"update\": \"a\" } ] }"

static void documents_are_refused_by_key(void **state)
{
    (void)state;
    says("\"dpx_phases\": 1 is the version", "{ \"dpx_phases\": 2 }");
    says("cluster: say on which GPUs", "{ \"dpx_phases\": 1 }");
    says("sample: unknown key", "{ \"dpx_phases\": 1, \"sample\": 3 }");
    says("none of them trains", HEAD "\"roles\": { \"e\": { \"engine\": \"vllm\" } } }");
    says("generation by transformers", HEAD "\"roles\": { \"e\": { \"engine\": \"transformers\" } } }");
    says("vLLM calls it gpu_memory_utilization", HEAD "\"roles\": { \"e\": { \"engine\": \"vllm\", \"mem_fraction_static\": 0.5 } } }");
    says("roles.e.version: must be", HEAD "\"roles\": { \"e\": { \"engine\": \"vllm\", \"version\": \"0.11x\" } } }");
    says("bf16, fp16 or fp32: of quantised weights", HEAD "\"roles\": { \"e\": { \"engine\": \"vllm\", \"dtype\": \"fp8\" } } }");
    says("must be 0 (it stays awake), 1 or 2", HEAD "\"roles\": { \"e\": { \"engine\": \"vllm\", \"sleep\": 3 } } }");
    says("roles.a.between: must be", HEAD "\"roles\": { \"a\": { \"train\": {}, \"between\": \"disk\" } } }");
    says("roles.a: no phase is its update", HEAD TRAINS "\"phases\": [ { \"forward\": \"a\" } ] }");
    says("roles.e: no phase generates with it", HEAD "\"roles\": { \"a\": { \"train\": {} }, \"e\": { \"engine\": \"vllm\" } }, " UPDATES);
    says("response: say how long", "{ \"dpx_phases\": 1, \"cluster\": \"8xh100\", \"samples\": 8, \"response\": 300, " TRAINS UPDATES);
    says("no phase is its forward", HEAD "\"roles\": { \"a\": { \"train\": {} }, \"r\": { \"infer\": \"a\" } }, " UPDATES);
    says("phases: none is given", HEAD TRAINS "\"phases\": [] }");
    says("must be the name of a role", HEAD TRAINS "\"phases\": [ { \"update\": \"b\" } ] }");
    says("one of generate, forward", HEAD TRAINS "\"phases\": [ { \"update\": \"a\", \"forward\": \"a\" } ] }");
    says("a text such as \"5s\"", HEAD TRAINS "\"phases\": [ { \"name\": \"rewards\" } ] }");
    says("samples: say how many", "{ \"dpx_phases\": 1, \"cluster\": \"8xh100\", " TRAINS UPDATES);
    says("response: say how long", "{ \"dpx_phases\": 1, \"cluster\": \"8xh100\", \"samples\": 8, \"roles\": { \"a\": { \"train\": {} }, \"e\": { \"engine\": "
         "\"vllm\" } }, \"phases\": [ { \"generate\": \"e\" }, { \"update\": \"a\" } ] }");
    says("asynchronous: an engine on GPUs of its own", HEAD "\"asynchronous\": true, " TRAINS UPDATES);
}

/* A key that another verb takes would change nothing: each verb takes its own alone, and each of them as its type. */
static void verbs_have_their_own_keys(void **state)
{
    static const char *const verbs[] = { "\"generate\": \"e\"", "\"forward\": \"a\"", "\"update\": \"a\"", "\"hand_over\": \"a\", \"to\": \"e\"", "\"time\": \"5s\"" };
    static const struct { const char *pair; bool of[5]; } keys[] = {
        { "\"samples\": 32", { true, true, true, false, false } }, { "\"micro_batch\": 4", { false, true, false, false, false } },
        { "\"epochs\": 2", { false, false, true, false, false } }, { "\"bucket_bytes\": 4096", { false, false, false, true, false } },
        { "\"beside\": \"r\"", { false, false, true, false, false } }, { "\"where\": { \"a\": \"host\" }", { true, true, true, true, true } },
        { "\"name\": \"x\"", { true, true, true, true, true } }, { "\"// why\": 3", { true, true, true, true, true } },
    };
    static const char with[] = HEAD "\"roles\": { \"a\": { \"train\": {} }, \"r\": { \"infer\": \"a\" }, \"e\": { \"engine\": \"vllm\" } }, \"phases\": [ "
                               "{ \"generate\": \"e\" }, { \"forward\": \"r\" }, { \"update\": \"a\" }, { %s, %s } ] }";
    char text[1200];
    struct phase_plan p;
    json_t *doc;

    (void)state;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (int v = 0; v < 5; v++) {
            snprintf(text, sizeof text, with, verbs[v], keys[k].pair);
            if (!keys[k].of[v]) {
                says("does not take it", text);
                continue;
            }
            read_plan(text, &p, &doc);
            json_decref(doc);
        }
    says("where: must be", HEAD TRAINS "\"phases\": [ { \"update\": \"a\", \"where\": \"host\" } ] }");
    says("name: must be a text", HEAD TRAINS "\"phases\": [ { \"update\": \"a\", \"name\": 3 } ] }");
    says("framework: must be a text", HEAD "\"framework\": 3, " TRAINS UPDATES);
    says("the plan of the role has micro_batch", HEAD TRAINS "\"phases\": [ { \"update\": \"a\", \"micro_batch\": 2 } ] }");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_decide_what_is_usual),
        cmocka_unit_test(who_made_an_engine_decides_how_many_it_takes),
        cmocka_unit_test(verbs_have_their_own_keys),
        cmocka_unit_test(weights_are_cut_but_for_norms),
        cmocka_unit_test(rows_are_padded),
        cmocka_unit_test(tokens_have_keys_and_values),
        cmocka_unit_test(vllm_takes_of_the_whole),
        cmocka_unit_test(sglang_takes_of_what_is_free),
        cmocka_unit_test(sleepers_leave_what_is_outside),
        cmocka_unit_test(engines_are_refused_by_name),
        cmocka_unit_test(lengths_have_their_mean),
        cmocka_unit_test(bars_that_never_stand_together),
        cmocka_unit_test(weights_that_take_the_place_of_others),
        cmocka_unit_test(what_goes_to_pageable_memory_is_allocated_anew),
        cmocka_unit_test(the_allocator_goes_from_phase_to_phase),
        cmocka_unit_test(processes_keep_what_they_reserve),
        cmocka_unit_test(places_share_no_memory),
        cmocka_unit_test(a_forward_goes_through_a_pipeline),
        cmocka_unit_test(an_engine_that_stays_awake),
        cmocka_unit_test(weights_are_handed_over),
        cmocka_unit_test(parts_of_a_hand_over_overlap),
        cmocka_unit_test(a_mixture_s_experts_are_handed_over),
        cmocka_unit_test(a_forward_has_no_gradients),
        cmocka_unit_test(documents_are_refused_by_key),
    };
    return cmocka_run_group_tests_name("sim/phases", tests, load, unload);
}
