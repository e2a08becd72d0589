/* megatron_text.h -- for tests: a plan from the text of a command line of Megatron-LM, or of a YAML file.
 *
 *     if (imported("--micro-batch-size 1 --seq-length 512", "txt", &model_and_cluster, &plan) < 0) */
#ifndef DPX_TESTS_MEGATRON_TEXT_H
#define DPX_TESTS_MEGATRON_TEXT_H

#include <stdio.h>
#include <unistd.h>

#include "tests/check.h"
#include "model/exchange/megatron_import.h"
#include "model/form/form.h"

/* Its options (new reference), or NULL with the reason reported. */
static inline json_t *megatron_options_of(const char *path)
{
    struct form_file f;

    if (form_open(path, &f) < 0)
        return NULL;
    json_t *options = megatron_options(f.words, f.doc, path);
    form_close(&f);
    return options;
}

/* `end`: of the file's name.  0, or -1 with the reason reported. */
static inline int imported(const char *text, const char *end, const struct plan *of_model, struct plan *out)
{
    char path[64] = "";
    json_t *options;
    int rc = -1;

    snprintf(path, sizeof path, "/tmp/dpx-test-%ld.%s", (long)getpid(), end);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    *out = (struct plan){ .cluster = of_model->cluster };
    if ((options = megatron_options_of(path))) {
        assert_int_equal(model_with_layers(&of_model->model, of_model->model.layers, &out->model), 0);
        rc = megatron_import(options, "options", out);
        if (rc < 0)
            plan_free(out);
    }
    json_decref(options);
    unlink(path);
    return rc;
}

#endif
