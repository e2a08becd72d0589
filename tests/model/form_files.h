/* form_files.h -- the files of tests/golden/forms, each with what expected.txt says of it, as plans. */
#ifndef DPX_TESTS_FORM_FILES_H
#define DPX_TESTS_FORM_FILES_H

#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/transformer.h"
#include "model/form/form.h"

#define FOLDER "tests/golden/forms/"
enum { MOST = 400 };

struct row { char text[1200], *file, *form, *cluster, *model, *seq, *wanted; };

static struct row rows[MOST];
static int nrows;

static inline char *next_field(char **at)
{
    char *s = *at + strspn(*at, " "), *end = strchr(s, '|');

    *at = end ? end + 1 : s + strlen(s);
    end = end ? end : s + strlen(s);
    while (end > s && strchr(" \n", end[-1]))
        end--;
    *end = '\0';
    return s;
}

static inline void read_rows(void)
{
    FILE *f = fopen(FOLDER "expected.txt", "r");

    assert_non_null(f);
    while (nrows < MOST && fgets(rows[nrows].text, sizeof rows[nrows].text, f)) {
        struct row *r = &rows[nrows];
        char *at = r->text;
        if (*at == '#' || *at == '\n')
            continue;
        assert_non_null(strchr(r->text, '\n'));         /* the whole line was there */
        r->file = next_field(&at);
        r->form = next_field(&at);
        r->cluster = next_field(&at);
        r->model = next_field(&at);
        r->seq = next_field(&at);
        r->wanted = next_field(&at);
        nrows++;
    }
    fclose(f);
    assert_true(nrows > 0 && nrows < MOST);
}

static inline void open_row(const struct row *r, struct form_file *f)
{
    static char path[256];          /* the file keeps it */

    snprintf(path, sizeof path, FOLDER "%s", r->file);
    assert_int_equal(form_open(path, f), 0);
}

/* The model that the file describes without a name. */
static inline int load_described(const struct form *form, const struct form_file *f, struct model *out)
{
    json_t *config = form->config(f);
    int rc = config ? model_from_config(config, f->path, out) : -1;

    json_decref(config);
    return rc;
}

/* The plan of the open file on the row's cluster; 0, or -1 with the reason captured in `why`. */
static inline int read_as(const struct form *form, const struct form_file *f, const struct row *r, struct plan *p, struct notes *notes, char why[1024])
{
    const char *model = strcmp(r->model, "-") ? r->model : form->model(f);
    int rc = -1;

    *p = (struct plan){ .seq = strcmp(r->seq, "-") ? strtoll(r->seq, NULL, 10) : 0 };
    why[0] = '\0';
    fail_capture(why, 1024);
    if (form_check(form, f) < 0)
        rc = -1;
    else if (!model && !form->config)
        fail("%s: names no model", f->path);
    else if ((model ? model_load(model, &p->model) : load_described(form, f, &p->model)) == 0 && cluster_load(r->cluster, &p->cluster) == 0)
        rc = form_read(form, f, p, notes);
    fail_capture(NULL, 0);
    return rc;
}

/* The text as a file of its form, of a model on the cluster; 0, or -1 with the reason. */
static inline int read_text_of(const char *model, const char *name, const char *text, const char *cluster, struct plan *p, struct notes *notes, char why[1024])
{
    struct row row = { .cluster = (char *)(uintptr_t)cluster, .model = (char *)(uintptr_t)model };
    struct form_file f;

    row.seq = strstr(text, "_length") ? (char[]){ "-" } : (char[]){ "512" };
    assert_int_equal(form_parse(strdup(text), name, &f), 0);
    const struct form *form = form_of(&f);
    assert_non_null(form);
    int rc = read_as(form, &f, &row, p, notes, why);
    form_close(&f);
    return rc;
}

static inline bool notes_say_that(const struct notes *notes, const char *words)
{
    for (int i = 0; i < notes->n && i < 32; i++)
        if (strstr(notes->text[i], words))
            return true;
    return false;
}

/* The first keys of a recipe of Automodel, and a data set whose samples are not packed. */
#define AUTOMODEL "step_scheduler:\n  local_batch_size: 1\n  global_batch_size: 2\nmodel:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
#define CHAT "dataset:\n  _target_: nemo_automodel.components.datasets.llm.chat_dataset.ChatDataset\n  seq_length: 512\n"

#endif
