/* Bytes of checkpoints by multiplication, and what BLOOM's and Llama 3's were published to have. */
#include "tests/check.h"

#include <string.h>

#include "sim/bill/saved.h"

enum { GPT2 = 124439808 };

static void plan_of(const char *model, const char *rest, struct plan *p)
{
    char text[1600];

    snprintf(text, sizeof text, "{\"dpx_plan\":1,\"model\":%s,\"seq\":1024,\"micro_batch\":1,%s}", model, rest);
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    assert_int_equal(plan_from_json(j, "test", p), 0);
    json_decref(j);
}

/* GPT-2, 124,439,808 parameters, on 2 x 8 H100: bytes a parameter of weights and states, and who writes them. */
static void bytes_are_products(void **state)
{
    static const struct { const char *rest; int weights, states; int64_t writers, one, copies_w, copies_s; } rows[] = {
        /* fp32 weights and two fp32 moments; rank 0 writes all; both nodes read it */
        { "\"strategy\":\"ddp\",\"dialect\":\"torch\"", 4, 8, 1, 12, 2, 2 },
        { "\"strategy\":\"fsdp\",\"dialect\":\"torch\"", 4, 8, 16, 0, 1, 1 },
        { "\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"shard_group\":8", 4, 8, 16, 0, 2, 2 },
        { "\"strategy\":\"zero1\",\"dialect\":\"torch\"", 4, 8, 1, 12, 2, 1 },
        /* bf16 weights by rank 0; partitions of an fp32 master and two moments */
        { "\"strategy\":\"zero1\",\"dialect\":\"deepspeed\"", 2, 12, 16, 2, 2, 1 },
        { "\"strategy\":\"zero2\",\"dialect\":\"deepspeed\"", 2, 12, 16, 2, 2, 1 },
        { "\"strategy\":\"zero3\",\"dialect\":\"deepspeed\"", 0, 12, 16, 0, 0, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char rest[300];
        struct plan p;
        struct saved c;
        int64_t all = (rows[i].weights + rows[i].states) * (int64_t)GPT2, one = rows[i].one * (int64_t)GPT2;
        snprintf(rest, sizeof rest, "\"cluster\":\"2x8xh100\",\"precision\":\"bf16\",%s", rows[i].rest);
        plan_of("\"gpt2\"", rest, &p);
        assert_int_equal(saved_of(&p, &c), 0);
        assert_int_equal(c.weights, rows[i].weights * (int64_t)GPT2);
        assert_int_equal(c.states, rows[i].states * (int64_t)GPT2);
        assert_int_equal(c.writers, rows[i].writers);
        assert_int_equal(c.rank, one + (all - one) / 16);
        assert_int_equal(c.node, one + (all - one) / 16 * 8);
        assert_int_equal(c.read, rows[i].copies_w * c.weights + rows[i].copies_s * c.states);
        plan_free(&p);
    }
}

/* Of adapters of rank 8 on q and v of gpt2's fused projection what trains alone: 12 blocks x 8 x (768 + 3 x 768). */
static void adapters_are_saved_alone(void **state)
{
    struct plan p;
    struct saved c;

    (void)state;
    plan_of("\"gpt2\"", "\"cluster\":\"8xh100\",\"precision\":\"bf16\",\"strategy\":\"ddp\",\"dialect\":\"torch\",\"train\":\"lora\","
            "\"lora\":{\"rank\":8,\"target_modules\":[\"c_attn\"]}", &p);
    int64_t n = 12 * 8 * (768 + 3 * 768);
    assert_int_equal(p.model.trainable, n);
    assert_int_equal(saved_of(&p, &c), 0);
    assert_true(c.partly);
    assert_int_equal(c.weights + c.states, 12 * n);
    plan_free(&p);
}

/* A checkpoint of 150 MB at 10 MB/s by all and 4 MB/s a node. */
static void times_are_quotients(void **state)
{
    struct plan p;
    struct saved c;
    struct save_times t;

    (void)state;
    plan_of("\"gpt2\"", "\"cluster\":\"2x8xh100\",\"precision\":\"bf16\",\"strategy\":\"fsdp\",\"dialect\":\"torch\"", &p);
    assert_int_equal(saved_of(&p, &c), 0);
    saved_times(&p, &c, &(struct storage){ 0 }, &t);
    assert_true(t.write_s < 0 && t.read_s < 0 && t.snapshot_s > 0);
    saved_times(&p, &c, &(struct storage){ .shared = 10e6 }, &t);
    assert_close(t.write_s, 12.0 * GPT2 / 10e6, 1e-6);
    saved_times(&p, &c, &(struct storage){ .shared = 10e6, .node = 4e6 }, &t);
    assert_close(t.write_s, 12.0 * GPT2 / 2 / 4e6, 1e-6);       /* a node's half at 4 MB/s takes longer than all at 10 */
    assert_close(t.read_s, 12.0 * GPT2 / 2 / 4e6, 1e-6);
    plan_free(&p);
}

/* BLOOM (bigscience.notion.site, "BigScience 176B Model"): "only the bf16 weights are 329GB, the full checkpoint with optimizer states is
 * 2.3TB", by Megatron-DeepSpeed's BF16 optimizer with ZeRO-1: 176,247M parameters, 70 blocks of 14336, in powers of 1024.  Here with GPT-2's
 * learned positions in place of ALiBi: 0.02 % more. */
static void bloom_s_checkpoint(void **state)
{
    struct plan p;
    struct saved c;

    (void)state;
    plan_of("{\"model_type\":\"gpt2\",\"n_embd\":14336,\"n_layer\":70,\"n_head\":112,\"vocab_size\":250880,\"n_positions\":2048}",
            "\"cluster\":\"48x8xa100-80gb\",\"precision\":\"bf16\",\"strategy\":\"zero1\",\"dialect\":\"deepspeed\"", &p);
    assert_close((double)p.model.params, 176247e6, 1e-3);
    assert_int_equal(saved_of(&p, &c), 0);
    assert_close((double)c.weights / (1 << 30), 329, 0.003);
    assert_close((double)c.bytes / (1 << 30) / 1024, 2.3, 0.03);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_products),
        cmocka_unit_test(adapters_are_saved_alone),
        cmocka_unit_test(times_are_quotients),
        cmocka_unit_test(bloom_s_checkpoint),
    };
    return cmocka_run_group_tests_name("sim/saved", tests, NULL, NULL);
}
