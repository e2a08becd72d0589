/* What PEFT trains: tests/golden/tune/counts.jsonl, recorded from PEFT itself, and what is refused. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "model/arch/training.h"

#define GOLDEN "tests/golden/tune/counts.jsonl"

static void append(char list[TRAINING_LIST], const char *name)
{
    assert_true(strlen(list) + strlen(name) + 2 < TRAINING_LIST);
    if (list[0])
        strcat(list, ",");
    strcat(list, name);
}

static void read_list(const json_t *v, char list[TRAINING_LIST])
{
    size_t i;
    json_t *name;

    if (json_is_string(v))
        append(list, json_string_value(v));
    json_array_foreach((json_t *)(uintptr_t)v, i, name)
        append(list, json_string_value(name));
}

static struct training lora_of(const json_t *arguments)
{
    struct training t = training_default();
    const json_t *rank = json_object_get(arguments, "r");

    strcpy(t.what, "lora");
    t.rank = rank ? json_integer_value(rank) : t.rank;
    read_list(json_object_get(arguments, "target_modules"), t.target_modules);
    read_list(json_object_get(arguments, "modules_to_save"), t.modules_to_save);
    return t;
}

/* The recorded order is that of all parameters, a letter each; shapes and files' names are those of the first. */
static void compare(const char *name, const json_t *c, const struct model *m)
{
    const char *order = json_string_value(json_object_get(c, "order"));
    const json_t *shapes = json_object_get(c, "shapes"), *saved = json_object_get(c, "saved");
    size_t trained = 0, found = 0;

    if (m->trainable != json_integer_value(json_object_get(c, "trainable")) || m->params != json_integer_value(json_object_get(c, "total")))
        fail_msg("%s: %lld of %lld parameters train, PEFT has %lld of %lld", name, (long long)m->trainable, (long long)m->params,
                 (long long)json_integer_value(json_object_get(c, "trainable")), (long long)json_integer_value(json_object_get(c, "total")));
    assert_int_equal((size_t)m->ntensors, strlen(order));
    assert_int_equal(m->ntrainable, json_integer_value(json_object_get(c, "nshapes")));
    for (int i = 0; i < m->ntensors; i++) {
        const struct tensor *x = &m->tensors[i];
        const json_t *shape = json_array_get(shapes, trained);
        if ((order[i] == 't') != !x->frozen)
            fail_msg("%s: tensor %d, %s: frozen is wrong", name, i, x->name);
        if (x->frozen)
            continue;
        if (shape)
            for (int d = 0; d < x->ndim; d++)
                if (x->shape[d] != json_integer_value(json_array_get(shape, (size_t)d)))
                    fail_msg("%s: shape of %s", name, x->name);
        for (size_t k = 0; k < json_array_size(saved); k++)
            found += !strcmp(json_string_value(json_array_get(saved, k)), x->name);
        trained++;
    }
    if (found != json_array_size(saved))
        fail_msg("%s: %zu of %zu names of adapter_model.safetensors, such as %s", name, found, json_array_size(saved),
                 json_string_value(json_array_get(saved, 0)));
}

static void parameters_are_those_that_peft_trains(void **state)
{
    FILE *f = fopen(GOLDEN, "r");
    json_t *head = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL), *models = json_object_get(head, "models"), *c;
    int cases = 0;

    (void)state;
    assert_non_null(models);
    for (; (c = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); cases++) {
        const char *name = json_string_value(json_object_get(c, "model"));
        struct training t = lora_of(json_object_get(c, "lora"));
        struct model m;
        char *what = json_dumps(json_object_get(c, "lora"), 0), label[256];
        snprintf(label, sizeof label, "%s %.200s", name, what);
        assert_int_equal(model_from_config(json_object_get(models, name), name, &m), 0);
        if (training_apply(&m, &t, label) < 0)
            fail_msg("%s is refused", label);
        compare(label, c, &m);
        /* What trains is a property of the model: so it is of one with fewer blocks. */
        struct model small;
        int64_t outside = m.params, per_block = model_numel(&m, m.block0, m.per_block);
        assert_int_equal(model_with_layers(&m, 2, &small), 0);
        assert_int_equal(small.params, outside - (m.layers - 2) * per_block);
        assert_int_equal(small.per_block, m.per_block);
        model_free(&small);
        json_t *written = model_to_config(&m);              /* the model below its adapters, tied as it was */
        assert_int_equal(model_from_config(written, label, &small), 0);
        assert_int_equal(training_apply(&small, &t, label), 0);
        assert_int_equal(small.params, outside);
        json_decref(written);
        model_free(&small);
        model_free(&m);
        free(what);
        json_decref(c);
    }
    assert_true(cases >= 30);
    json_decref(head);
    fclose(f);
}

/* LoRA of rank r beside a layer of in x out: r (in + out) parameters.  Llama-3.1-8B, all seven layers of a block:
 * q and o 4096 x 4096, k and v 4096 x 1024, gate, up and down 4096 x 14336. */
static void adapters_count_as_by_hand(void **state)
{
    struct training t = training_default();
    int64_t per_block = 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336));
    struct model m;

    (void)state;
    strcpy(t.what, "lora");
    strcpy(t.target_modules, "all-linear");
    t.rank = 16;
    assert_int_equal(per_block, 1310720);
    assert_int_equal(model_load("llama-3.1-8b", &m), 0);
    int64_t base = m.params;
    assert_int_equal(m.trainable, base);
    assert_int_equal(training_apply(&m, &t, "t"), 0);
    assert_int_equal(m.trainable, 32 * per_block);
    assert_int_equal(m.params, base + 32 * per_block);
    assert_int_equal(m.per_block, 9 + 14);
    model_free(&m);
}

static void patterns_choose_tensors(void **state)
{
    struct training t = training_default();
    struct model m;

    (void)state;
    strcpy(t.what, "*.bias,transformer.ln_f.weight");
    assert_int_equal(model_load("gpt2", &m), 0);
    assert_int_equal(training_apply(&m, &t, "t"), 0);
    /* A block of GPT-2: two norms, c_attn (3 h), c_proj, c_fc (4 h), c_proj; behind the blocks a norm. */
    assert_int_equal(m.trainable, 12 * 768 * (2 + 3 + 1 + 4 + 1) + 2 * 768);
    assert_int_equal(m.ntrainable, 12 * 6 + 2);
    model_free(&m);
}

static void refuses(const char *model, const char *what, const char *targets, const char *saves, const char *because)
{
    struct training t = training_default();
    struct model m;
    char why[512];

    strcpy(t.what, what);
    strcpy(t.target_modules, targets);
    strcpy(t.modules_to_save, saves);
    assert_int_equal(model_load(model, &m), 0);
    int64_t params = m.params;
    fail_capture(why, sizeof why);
    int rc = training_apply(&m, &t, "plan");
    fail_capture(NULL, 0);
    assert_int_equal(rc, -1);
    if (!strstr(why, because))
        fail_msg("%s, %s: \"%s\" does not say \"%s\"", model, what, why, because);
    assert_int_equal(m.params, params);
    assert_int_equal(m.ntrainable, m.ntensors);
    model_free(&m);
}

static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    refuses("phi-3-mini", "lora", "", "", "PEFT has no default for phi3");
    refuses("llama-3.1-8b", "lora", "q_proj,w_proj", "", "lora.target_modules: \"w_proj\" is no module");
    refuses("llama-3.1-8b", "lora", "proj", "", "\"proj\" is no module");
    refuses("llama-3.1-8b", "lora", "q_proj,,v_proj", "", "lora.target_modules: \"q_proj,,v_proj\": a name is empty");
    refuses("llama-3.1-8b", "lora", "q_proj,", "", "a name is empty");
    refuses("llama-3.1-8b", "lora", "q_proj", ",lm_head", "lora.modules_to_save: \",lm_head\": a name is empty");
    refuses("llama-3.1-8b", "*norm.weight,,lm_head.*", "", "", "train: \"*norm.weight,,lm_head.*\": a name is empty");
    refuses("llama-3.1-8b", "lora", ".*\\.self_attn", "", "matches no module");
    refuses("llama-3.1-8b", "lora", ".*?q_proj", "", "no regular expression");
    refuses("llama-3.1-8b", "lora", "(?=a).*", "", "no regular expression");
    refuses("llama-3.1-8b", "lora", ".*(q_proj", "", "no regular expression");
    refuses("llama-3.1-8b", "lora", ".*\\.(3|7)\\.self_attn\\.q_proj", "", "blocks that differ");
    refuses("llama-3.1-8b", "lora", "layers.3.self_attn.q_proj", "", "blocks that differ");
    refuses("llama-3.1-8b", "lora", "q_proj", "head_lm", "lora.modules_to_save: \"head_lm\" is no module");
    refuses("llama-3.1-8b", "lora", "input_layernorm", "", "is no linear layer");
    refuses("llama-3.1-8b", "lora", "lm_head", "", "none of them is in the blocks");
    refuses("llama-3.2-1b", "lora", "q_proj,embed_tokens", "", "tied");
    refuses("gemma-2b", "lora", "q_proj,embed_tokens", "", "embedding are not supported");
    refuses("llama-3.2-1b", "lora", "", "embed_tokens", "tied");
    refuses("llama-3.1-8b", "*.q_proj.wight", "", "", "matches no tensor");
    refuses("llama-3.1-8b", "lm_head.*", "", "", "blocks without one");
    refuses("llama-3.1-8b", "model.layers.3?.*", "", "", "blocks");
    refuses("llama-3.1-8b", "*norm.weight,model.layers.31.*", "", "", "blocks that differ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_those_that_peft_trains),
        cmocka_unit_test(adapters_count_as_by_hand),
        cmocka_unit_test(patterns_choose_tensors),
        cmocka_unit_test(what_is_not_there_is_refused),
    };
    return cmocka_run_group_tests_name("model/arch/training", tests, NULL, NULL);
}
