/* fuzz_form.c -- any bytes as a file that somebody brings: whichever form claims it reads a plan that holds, or gives a reason. */
#include "tests/fuzz/fuzz.h"

#include "model/form/form.h"

static struct plan plan;        /* model and cluster, what a command line says */

static void set_up(void)
{
    if (plan.seq)
        return;
    must_hold(model_load("gpt2", &plan.model) == 0);
    must_hold(cluster_load("2x4xh100", &plan.cluster) == 0);
    plan.seq = 256;
}

/* Its own copy of the model: a form changes what trains, and gives back another. */
static void read_as(const struct form *form, const struct form_file *f)
{
    struct plan p = plan;
    struct notes notes = { 0 };
    char lines[1200];

    must_hold(model_with_layers(&plan.model, 2, &p.model) == 0);
    fuzz_said[0] = '\0';
    if (form->read(f, &p, &notes) < 0) {
        must_hold(fuzz_said[0]);
    } else {
        must_hold(plan_check(&p, "fuzz") == 0);
        form_summary(form, f, &p, lines, sizeof lines);
        must_hold(lines[0]);
    }
    plan_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct form_file f;
    int claimed = 0;

    fuzz_quiet();
    json_t *before = notes_divert(json_array());
    set_up();
    if (!memchr(data, 0, size) && form_parse(fuzz_string(data, size), "fuzz", &f) == 0) {
        for (int i = 0; form_at(i); i++)
            claimed += form_at(i)->claims(&f);
        const struct form *form = form_of(&f);
        must_hold((form != NULL) == (claimed > 0));
        if (form && (!form->check || form->check(&f) == 0))
            read_as(form, &f);
        form_close(&f);
    }
    json_decref(notes_divert(before));
    return 0;
}
