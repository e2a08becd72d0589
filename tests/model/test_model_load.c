/* A model by name, file or folder. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fail.h"
#include "model/arch/transformer.h"

static char why[1024];

static char folder[] = "/tmp/dpx-test-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *in_folder(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void load_fails(const char *spec, const char *word)
{
    struct model m;

    fail_capture(why, sizeof why);
    assert_int_equal(model_load(spec, &m), -1);
    fail_capture(NULL, 0);
    if (strncmp(why, spec, strlen(spec)) != 0 || !strstr(why, word))
        fail_msg("no %s in: %s", word, why);
    assert_null(strchr(why, '\n'));
}

static void malformed_json_is_refused_with_line_and_column(void **state)
{
    const char *path = in_folder("config.json");

    (void)state;
    put(path, "{\n  \"model_type\": \"gpt2\",\n  \"n_layer\": 12,,\n}\n");
    load_fails(path, "config.json:3:17: malformed JSON");
    put(path, "");
    load_fails(path, "malformed JSON");
    put(path, "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_layer\": 3}");
    load_fails(path, "duplicate object key");
    put(path, "{\"model_type\": \"gpt2\"}\n\x01\n");
    load_fails(path, "malformed JSON");
    put(path, "{\"n_layer\": 123456789012345678901234567890}");
    load_fails(path, "too big integer");
    unlink(path);
}

static void a_folder_stands_for_the_config_in_it(void **state)
{
    const char *path = in_folder("config.json");
    char slashes[160];
    struct model m;

    (void)state;
    put(path, "{\"model_type\": \"gpt2\", \"n_layer\": 3}");
    assert_int_equal(model_load(folder, &m), 0);
    assert_int_equal(m.layers, 3);
    assert_string_equal(m.name, strrchr(folder, '/') + 1);
    model_free(&m);
    snprintf(slashes, sizeof slashes, "%s///", folder);
    assert_int_equal(model_load(slashes, &m), 0);
    model_free(&m);
    unlink(path);
    load_fails(folder, "No such file");
}

static void a_file_names_its_model(void **state)
{
    const char *path = in_folder("mini.json");
    struct model m;

    (void)state;
    put(path, "{\"model_type\": \"gpt2\"}");
    assert_int_equal(model_load(path, &m), 0);
    assert_string_equal(m.name, "mini");
    model_free(&m);
    put(path, "{\"model_type\": \"gpt2\", \"_name_or_path\": \"openai/gpt2\"}");
    assert_int_equal(model_load(path, &m), 0);
    assert_string_equal(m.name, "openai/gpt2");
    model_free(&m);
    unlink(path);
}

static void what_is_neither_model_nor_file_is_refused_by_name(void **state)
{
    (void)state;
    load_fails("gpt5", "dpx knows no model of this name");
    load_fails("no/such/config.json", "No such file");
    load_fails("", "No such file");
}

static void a_checkpoint_is_not_read_as_a_config(void **state)
{
    const char *path = in_folder("model.safetensors");

    (void)state;
    put(path, "x");
    assert_int_equal(truncate(path, (off_t)1 << 30), 0);
    load_fails(path, "too many for a configuration");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_json_is_refused_with_line_and_column),
        cmocka_unit_test(a_folder_stands_for_the_config_in_it),
        cmocka_unit_test(a_file_names_its_model),
        cmocka_unit_test(what_is_neither_model_nor_file_is_refused_by_name),
        cmocka_unit_test(a_checkpoint_is_not_read_as_a_config),
    };
    return cmocka_run_group_tests_name("model/model_load", tests, make_folder, remove_folder);
}
