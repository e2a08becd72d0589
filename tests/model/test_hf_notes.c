/* What a Hugging Face config says that no plan follows: which notes there are, and that published configs have none. */
#include "tests/check.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/notes.h"
#include "model/arch/hf_notes.h"
#include "model/arch/transformer.h"

/* JSON with ' for ". */
static json_t *parse(const char *text)
{
    char json[1024];

    snprintf(json, sizeof json, "%s", text);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *v = json_loads(json, 0, NULL);
    assert_non_null(v);
    return v;
}

static void read_model(const char *text, struct model *m)
{
    json_t *config = parse(text);

    assert_int_equal(model_from_config(config, "config.json", m), 0);
    json_decref(config);
}

/* The notes on a config, one a line. */
static void notes_of(const json_t *config, const char *family, char *to, size_t size)
{
    json_t *notes = json_array(), *before = notes_divert(notes), *note;
    size_t i, at = 0;

    to[0] = '\0';
    hf_notes_say(config, "config.json", family);
    notes_divert(before);
    json_array_foreach(notes, i, note)
        at += (size_t)snprintf(to + at, size - at, "%s\n", json_string_value(note));
    json_decref(notes);
}

static void notes_on(const char *text, const char *family, char *to, size_t size)
{
    json_t *config = parse(text);

    notes_of(config, family, to, size);
    json_decref(config);
}

/* DeepSeek-V3's own config is published with weights in fp8. */
static void published_codes_are_planned_in_16_bits_with_a_note(void **state)
{
    static const char *const configs[][2] = {
        { "{'model_type':'deepseek_v3','quantization_config':{'activation_scheme':'dynamic','fmt':'e4m3','quant_method':'fp8',"
          "'weight_block_size':[128,128]}}", "(fp8)" },
        { "{'model_type':'gpt_oss','quantization_config':{'quant_method':'mxfp4'}}", "(mxfp4)" },
        { "{'model_type':'mistral3','text_config':{},'quantization_config':{'bits':8}}", "(no quant_method)" },
    };
    char told[1024];
    struct model m, plain;

    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        read_model(configs[i][0], &m);
        notes_on(configs[i][0], m.family, told, sizeof told);
        assert_non_null(strstr(told, configs[i][1]));
        assert_non_null(strstr(told, "16 or 32 bits"));
        model_free(&m);
    }
    read_model(configs[0][0], &m);
    read_model("{'model_type':'deepseek_v3'}", &plain);
    assert_int_equal(m.params, plain.params);
    model_free(&m);
    model_free(&plain);
}

static void keys_that_no_config_class_has_are_told(void **state)
{
    char told[1024];

    (void)state;
    notes_on("{'model_type':'gpt2','my_block':'custom','// mine':1,'_commit_hash':'x','n_ctx':1024}", "gpt2", told, sizeof told);
    assert_string_equal(told, "dpx: config.json: note: \"my_block\": no key of transformers' gpt2: not followed\n");
    notes_on("{'model_type':'llama','a1':1,'a2':1,'a3':1,'a4':1,'a5':1,'a6':1,'a7':1}", "llama", told, sizeof told);
    assert_non_null(strstr(told, "and 2 more are no keys"));
    notes_on("{'model_type':'gemma3','text_config':{'odd_norm':1},'vision_tower':1}", "gemma3_text", told, sizeof told);
    assert_non_null(strstr(told, "odd_norm"));
    assert_null(strstr(told, "vision_tower"));              /* the text model's own keys */
}

/* Those of the recorded models, among them published ones, and of models that are written: nothing is told. */
static void published_configs_are_silent(void **state)
{
    DIR *folder = opendir("tests/golden/models/configs");
    char path[512], told[1024];
    int n = 0;

    (void)state;
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder)); ) {
        struct model m;
        snprintf(path, sizeof path, "tests/golden/models/configs/%s", e->d_name);
        json_t *config = strstr(e->d_name, ".json") ? json_load_file(path, 0, NULL) : NULL;
        if (!config)
            continue;
        assert_int_equal(model_from_config(config, e->d_name, &m), 0);
        notes_of(config, m.family, told, sizeof told);
        if (told[0] && !strstr(told, "quantization_config"))
            fail_msg("%s: %s", e->d_name, told);
        json_t *written = model_to_config(&m);
        notes_of(written, m.family, told, sizeof told);
        assert_string_equal(told, "");
        json_decref(written);
        json_decref(config);
        model_free(&m);
        n++;
    }
    closedir(folder);
    assert_true(n > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_codes_are_planned_in_16_bits_with_a_note),
        cmocka_unit_test(keys_that_no_config_class_has_are_told),
        cmocka_unit_test(published_configs_are_silent),
    };
    return cmocka_run_group_tests_name("arch/hf_notes", tests, NULL, NULL);
}
