/* fit_model.c -- see fit_model.h.
 *
 * A recipe is read as `import` reads it, on 8 and on 16 GPUs: what a step's samples are on both says whether they grow with the GPUs. */
#include "sim/plan/fit_model.h"

#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/arch/training.h"
#include "sim/plan/commands.h"
#include "sim/plan/convert.h"

/* The recipe's plan on so many H100s; what it notes is not of this question.  EXIT_DONE, or the reason reported. */
static int plan_on(const struct form_file *f, const char *cluster, struct plan *out)
{
    struct import_args a = IMPORT_ARGS;
    json_t *notes = json_array(), *before = notes_divert(notes);

    a.cluster = cluster;
    int rc = convert_form(&a, f, out);
    notes_divert(before);
    json_decref(notes);
    return rc;
}

/* Samples of a step, and whether each GPU adds some.  Two nodes that the recipe refuses are more than it can share its batch among. */
static void read_batch(const struct form_file *f, const struct plan *p, struct fit_model *out)
{
    struct plan twice;
    char why[256];

    struct fail_sink before = fail_divert(why, sizeof why);
    int rc = plan_on(f, "2x8xh100", &twice);
    fail_restore(before);
    out->batch = plan_global_batch(p);
    if (rc != EXIT_DONE)
        return;
    out->batch_a_gpu = plan_global_batch(&twice) == 2 * out->batch && out->batch % p->cluster.world_size == 0;
    if (out->batch_a_gpu)
        out->batch /= p->cluster.world_size;
    plan_free(&twice);
}

/* What trains, in the options of a search. */
static int read_training(const struct plan *p, const char *path, struct fit_model *out)
{
    const struct training *t = &p->train;
    struct search_tuned *to = &out->ask.tuned;

    to->optimizer.optimizer = p->optimizer == OPTIMIZER_ADAMW ? -1 : (int)p->optimizer;
    if (training_is_all(t))
        return 0;
    if (!training_is_lora(t))
        return fail("%s: it trains %.80s: fit asks about all weights or LoRA adapters; dpxplan eval %s --cluster 8xh100 evaluates it as it is", path,
                    t->what, path);
    if (t->target_parameters[0])
        return fail("%s: it has adapters of experts' weights (%.80s), which fit does not ask about; dpxplan eval %s --cluster 8xh100 evaluates it as it is",
                    path, t->target_parameters, path);
    snprintf(out->targets, sizeof out->targets, "%s", t->target_modules[0] ? t->target_modules : training_usual_targets(p->model.family));
    snprintf(out->saves, sizeof out->saves, "%s", t->modules_to_save);
    to->lora = t->rank;
    to->targets = out->targets;
    to->saves = out->saves[0] ? out->saves : NULL;
    to->dropout = t->dropout;
    to->base = (int)t->base;
    return 0;
}

static int read_recipe(const struct form_file *f, const struct form *form, struct fit_model *out)
{
    struct plan p;

    if (!form->model(f))
        return fail("%s: %s's file describes a model without a name: give its config.json to fit", f->path, form->name);
    if (plan_on(f, "8xh100", &p) != EXIT_DONE)
        return -1;
    out->recipe = true;
    snprintf(out->name, sizeof out->name, "%s", convert_model_named(form, f));
    out->ask.model = out->name;
    out->ask.seq = p.seq;
    out->ask.precision = p.precision == DT_BF16 ? -1 : (int)p.precision;
    read_batch(f, &p, out);
    int rc = read_training(&p, f->path, out);
    plan_free(&p);
    return rc;
}

/* 1: it is a recipe, and read; 0: it is none; -1 reported. */
static int of_file(const struct form_file *f, struct fit_model *out)
{
    const struct form *form = form_of_quietly(f);

    if (json_object_get(f->doc, "dpx_plan"))
        return fail("%s: a plan names its own cluster: dpxplan eval %s says whether it fits; fit takes a model or a recipe", f->path, f->path);
    return form ? read_recipe(f, form, out) < 0 ? -1 : 1 : 0;
}

int fit_model_read(const char *path, const struct json_t *doc, struct fit_model *out)
{
    struct form_file f;
    struct stat st;
    int rc = 0;

    *out = (struct fit_model){ .ask = SEARCH_ARGS };
    out->ask.model = path;
    out->ask.model_doc = doc;
    if (doc)
        form_from_doc(doc, "model", &f);
    else if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;                       /* a name, an id or a folder */
    else if (form_open(path, &f) < 0)
        return -1;
    rc = of_file(&f, out);
    form_close(&f);
    if (rc > 0)
        out->ask.model_doc = NULL;
    return rc < 0 ? -1 : 0;
}
