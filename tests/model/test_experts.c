/* Mixtures of experts: counts by hand, and what is refused. */
#include "tests/check.h"

#include <string.h>

#include "model/arch/family.h"
#include "model/arch/transformer.h"

static void load(const char *name, struct model *m) { assert_int_equal(model_load(name, m), 0); }

/* All parameters, those that a token uses, and these without the token embedding: counted from transformers' models on the
 * meta device (tests/golden/models/make_tensors.py), and what the models' names promise. */
static void models_have_their_counts(void **state)
{
    static const struct { const char *name; int64_t params, active, without_tokens; } list[] = {
        { "mixtral-8x7b", 46702792704, 12879925248, 12748853248 }, { "mixtral-8x22b", 140630071296, 39161468928, 38960142336 },
        { "qwen3-30b-a3b", 30532122624, 3353032704, 3041867776 }, { "qwen3-235b-a22b", 235093634560, 22190763520, 21568433664 },
        { "deepseek-v3", 671026404352, 37552282624, 36625603584 }, { "gpt-oss-120b", 116829156672, 5711982912, 5132849472 },
        { "gpt-oss-20b", 20914757184, 4187440704, 3608307264 }, { "llama-4-scout", 107769861120, 17172894720, 16138408960 },
        { "llama-4-maverick", 400711848960, 17184691200, 16150205440 }, { "olmoe-1b-7b", 6919161856, 1282017280, 1178994688 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct model m;
        load(list[i].name, &m);
        assert_int_equal(m.params, list[i].params);
        assert_int_equal(m.active, list[i].active);
        assert_int_equal(m.active - m.vocab * m.hidden, list[i].without_tokens);
        model_free(&m);
    }
}

/* Attention 4096^2 (2 + 2 * 8/32), a row of the router an expert, three matrices of 4096 x 14336 each, two norms. */
static void a_block_of_mixtral_adds_up(void **state)
{
    struct model m;

    (void)state;
    load("mixtral-8x7b", &m);
    assert_int_equal(model_numel(&m, m.block0, m.per_block), 41943040 + 32768 + 8 * 176160768LL + 8192);
    assert_int_equal(m.params, 32 * 1451270144LL + 2 * 32000 * 4096 + 4096);
    model_free(&m);
}

/* An expert of gpt-oss: gate and up of 2 x 2880 columns with biases, down with biases. */
static void experts_of_gpt_oss_have_biases(void **state)
{
    struct model m;
    int64_t sum = 0;

    (void)state;
    load("gpt-oss-120b", &m);
    for (int i = m.block0; i < m.block0 + m.per_block; i++)
        sum += role_is_of_experts(m.tensors[i].role) ? m.tensors[i].numel : 0;
    assert_int_equal(sum, 128 * (2880 * 5760 + 5760 + 2880 * 2880 + 2880LL));
    assert_int_equal(sum, 3186155520);
    model_free(&m);
}

/* DeepSeek-V3's latent attention: 1536 and 512 + 64 dimensions, 128 heads of 192 and 128. */
static void latent_attention_goes_through_few_dimensions(void **state)
{
    static const struct { enum tensor_role role; int64_t out, in; } list[] = {
        { ROLE_Q_A, 1536, 7168 }, { ROLE_Q_B, 24576, 1536 }, { ROLE_KV_A, 576, 7168 }, { ROLE_KV_B, 32768, 512 },
        { ROLE_ATTN_OUT, 7168, 16384 }, { ROLE_Q_A_NORM, 1536, 1 }, { ROLE_KV_A_NORM, 512, 1 },
    };
    struct model m;

    (void)state;
    load("deepseek-v3", &m);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int t = 0; t < m.ntensors; t++)
            if (m.tensors[t].role == list[i].role) {
                assert_int_equal(m.tensors[t].shape[0], list[i].out);
                assert_int_equal(m.tensors[t].shape[1], list[i].in);
            }
    assert_true(model_blocks_differ(&m));
    assert_int_equal(m.per_dense, 12);
    assert_int_equal(m.per_block, 15);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_have_their_counts),
        cmocka_unit_test(a_block_of_mixtral_adds_up),
        cmocka_unit_test(experts_of_gpt_oss_have_biases),
        cmocka_unit_test(latent_attention_goes_through_few_dimensions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
