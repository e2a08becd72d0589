/* convert.c -- a config of a framework into a plan, and a plan into the text of a config. */
#include "sim/plan/convert.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/arch/builtin.h"
#include "model/arch/training.h"
#include "model/plan/environment.h"
#include "model/form/form_launcher.h"
#include "model/exchange/script_keys.h"
#include "model/exchange/unread.h"
#include "sim/plan/commands.h"
#include "sim/plan/job_export.h"

static int load_cluster(const struct import_args *a, struct cluster *out)
{
    if (named_cluster(a->cluster, a->cluster_doc, out) < 0)
        return -1;
    if (a->host_memory)
        out->node.memory = a->host_memory;
    return 0;
}

/* What a step's samples say of the micro-steps, before the config is read: what it says itself must agree. */
static int by_global_batch(int64_t batch, struct plan *p)
{
    int64_t each = p->cluster.world_size * (p->micro_batch ? p->micro_batch : 1);

    if (!batch)
        return 0;
    if (p->accumulation)
        return fail("import: --global-batch and --accumulation say the same: give one of them");
    if (batch % each)
        return fail("import: --global-batch %lld is not a multiple of %lld ranks%s", (long long)batch,
                    (long long)p->cluster.world_size, p->micro_batch ? " x the micro-batch" : "");
    if (p->micro_batch)
        p->accumulation = batch / each;
    return 0;
}

/* What the file left out. */
static int complete(struct plan *p, int64_t batch, bool said, int recompute)
{
    int64_t each = p->cluster.world_size * p->micro_batch;

    if (recompute >= 0) {
        p->recompute = (enum recompute)recompute;
        p->recompute_interval = 1;
    }
    if (batch && plan_global_batch(p) != batch && !said && batch % each == 0)
        p->accumulation = batch / each;
    if (batch && plan_global_batch(p) != batch)
        return fail("import: --global-batch %lld, but the config makes it %lld (micro-batch %lld x accumulation %lld x "
                    "%lld ranks)", (long long)batch, (long long)plan_global_batch(p), (long long)p->micro_batch,
                    (long long)p->accumulation, (long long)p->cluster.world_size);
    return plan_check(p, "import");
}

/* DeepSpeed's and accelerate's configs leave the model, samples and recompute to a script: options say them. */
static bool leaves_open(const struct form *form) { return form == &form_deepspeed || form == &form_accelerate; }

/* Does DeepSpeed's config itself say how many micro-steps a step has? */
static bool says_steps(const struct form_file *f)
{
    return json_is_integer(json_object_get(f->doc, "gradient_accumulation_steps")) || json_is_integer(json_object_get(f->doc, "train_batch_size"));
}

static int check_args(const struct import_args *a, const struct form *form, const struct form_file *f)
{
    if (form_check(form, f) < 0)
        return -1;
    if (a->response)
        return fail("%s: --response: the file is read as a step of one model, which generates no responses", f->path);
    if (leaves_open(form)) {
        if (!(a->model || a->model_doc) || a->seq == 0)
            return fail("import: --%s: required: %s's config does not say it", a->seq == 0 ? "seq" : "model", form->name);
    } else if (a->precision >= 0 || a->recompute >= 0) {
        return fail("import: --precision and --recompute are in %s's file: change them there, or later with --set", form->name);
    }
    if (f->launch && form != &form_transformers && form != &form_factory && form != &form_axolotl && form != &form_trl)
        return fail("%s: %s's file says itself who shares what: accelerate's config goes with recipes of transformers' Trainer", f->path, form->name);
    if (!(a->model || a->model_doc) && !form->model(f) && !form->config)
        return fail("%s: %s's file names no model: give --model", f->path, form->name);
    return a->cluster || a->cluster_doc ? 0 : fail("%s: say on which GPUs: --cluster 8xh100", f->path);
}

/* What a script leaves open: variables that only a condition sets, and another number of ranks than the cluster has. */
static void note_script(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    const json_t *each = json_object_get(f->launcher, "nproc_per_node"), *nodes = json_object_get(f->launcher, "nnodes");
    int64_t ranks = json_is_integer(each) ? json_integer_value(each) * (json_is_integer(nodes) ? json_integer_value(nodes) : 1) : 0;

    if (f->programs > 1)
        notes_add(notes, "%d commands of the script start a program: the last is read, %.120s", f->programs, json_string_value(json_array_get(f->words, 0)));
    for (size_t i = 0; i < json_array_size(f->uncertain); i++)
        notes_add(notes, "%.80s is set in a condition of the script: check what it stands for",
                  json_string_value(json_array_get(f->uncertain, i)));
    unread_ranks(notes, "nproc_per_node", ranks, p->cluster.world_size);
}

/* What the command line says goes before the file: said, and held against the plan. */
static int check_given(const struct import_args *a, const struct form *form, const struct plan *p, struct notes *notes)
{
    const struct { const char *option; int64_t n, is; } given[] = {
        { "seq", a->seq, p->seq }, { "micro-batch", a->micro_batch, p->micro_batch }, { "accumulation", a->accumulation, p->accumulation },
        { "global-batch", a->global_batch, plan_global_batch(p) },
    };

    for (size_t i = 0; !leaves_open(form) && i < sizeof given / sizeof *given; i++) {
        if (given[i].n > 0 && given[i].n != given[i].is)
            return fail("import: --%s %lld, but %s's file makes it %lld: change it there", given[i].option, (long long)given[i].n, form->name,
                        (long long)given[i].is);
        if (given[i].n > 0)
            notes_add(notes, "--%s %lld goes before whatever the file says of it", given[i].option, (long long)given[i].n);
    }
    return 0;
}

/* Samples may be longer than the model was made for. */
static void note_length(const struct plan *p, struct notes *notes)
{
    if (p->model.context > 0 && p->seq > p->model.context)
        notes_add(notes, "samples of %lld tokens are longer than the %lld positions that %s was made for", (long long)p->seq, (long long)p->model.context,
                  p->model.name);
}

static int read_plan(const struct import_args *a, const struct form *form, const struct form_file *f, struct plan *p)
{
    struct notes notes = { 0 };

    if ((leaves_open(form) && by_global_batch(a->global_batch, p) < 0) || form_read(form, f, p, &notes) < 0)
        return -1;
    note_script(f, p, &notes);
    launcher_list_elsewhere(f, &notes);
    note_length(p, &notes);
    if (check_given(a, form, p, &notes) < 0)
        return -1;
    if (leaves_open(form) && complete(p, a->global_batch, form == &form_deepspeed && says_steps(f), a->recompute) < 0)
        return -1;
    if (a->summary) {
        char lines[1200];
        form_summary(form, f, p, lines, sizeof lines);
        notes_say("dpx: %s: read as %s (told by %s)", f->path, form->name, form->sign);
        for (char *at = lines, *end; (end = strchr(at, '\n')); at = end + 1) {
            *end = '\0';
            notes_say("    %s", at);
        }
    }
    notes_print(&notes, f->path);
    return 0;
}

/* A path of a machine, not "org/name" of the hub. */
static bool is_path(const char *named, const char *last)
{
    static const char *const folders[] = { "models/", "model/", "checkpoints/", "weights/" };

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (!strncmp(named, folders[i], strlen(folders[i])))
            return true;
    return strchr("$~/.", *named) || strchr(named, '/') < last;
}

const char *convert_model_named(const struct form *form, const struct form_file *f)
{
    const char *named = form->model(f), *last = strrchr(named, '/');

    if (!last || !last[1] || access(named, R_OK) == 0 || hf_ids_find(named) || !hf_ids_find(last + 1) || !is_path(named, last))
        return named;
    notes_say("dpx: %s: note: %.200s is not here: taken as %.100s, by its name", f->path, named, last + 1);
    return last + 1;
}

/* The model that is given, that the file names, or that it describes. */
static int load_model(const struct import_args *a, const struct form *form, const struct form_file *f, struct model *out)
{
    if (a->model || a->model_doc)
        return named_model(a->model, a->model_doc, out);
    if (form->model(f))
        return named_model(convert_model_named(form, f), NULL, out);
    json_t *config = form->config(f);
    int rc = config ? model_from_config(config, f->path, out) : -1;
    json_decref(config);
    return rc;
}

/* --global-batch of a file that says its own: the micro-steps that it takes, of the plan that the file makes without it.  0: reported. */
static int64_t steps_for(const struct import_args *a, const struct form *form, const struct form_file *f)
{
    struct plan p = { .seq = a->seq, .micro_batch = a->micro_batch };
    struct notes notes = { 0 };
    json_t *said = json_array(), *before = notes_divert(said);
    int64_t steps = 0;

    int rc = load_model(a, form, f, &p.model) < 0 || load_cluster(a, &p.cluster) < 0 || form_read(form, f, &p, &notes) < 0 ? -1 : 0;
    notes_divert(before);
    json_decref(said);
    int64_t each = rc == 0 ? p.micro_batch * plan_batch_ranks(&p) : 0;
    if (rc == 0 && a->global_batch % each == 0)
        steps = a->global_batch / each;
    else if (rc == 0)
        fail("import: --global-batch %lld is not a multiple of %lld, micro-batch %lld x %lld data-parallel ranks", (long long)a->global_batch, (long long)each,
             (long long)p.micro_batch, (long long)plan_batch_ranks(&p));
    plan_free(&p);
    return steps;
}

/* What our own export wrote at the head of accelerate's file, where no option says it. */
static void take_script_keys(const struct form *form, const struct form_file *f, struct import_args *a)
{
    if (form != &form_accelerate || !f->text)
        return;
    if (!a->seq)
        a->seq = script_keys_count(f->text, "seq");
    if (!a->micro_batch)
        a->micro_batch = script_keys_count(f->text, "micro_batch");
    if (!a->accumulation && !a->global_batch)
        a->accumulation = script_keys_count(f->text, "accumulation");
}

static int import_file(const struct import_args *given, const struct form *form, const struct form_file *f, struct plan *out)
{
    struct import_args own = *given, *a = &own;

    take_script_keys(form, f, a);
    struct plan p = { .seq = a->seq, .micro_batch = a->micro_batch, .accumulation = a->accumulation };

    if (a->precision >= 0)
        p.precision = (enum dtype)a->precision;
    if (check_args(a, form, f) < 0)
        return EXIT_MISUSE;
    if (a->global_batch && !leaves_open(form)) {
        if (a->accumulation) {
            fail("import: --global-batch and --accumulation say the same: give one of them");
            return EXIT_MISUSE;
        }
        if ((p.accumulation = steps_for(a, form, f)) < 1)
            return EXIT_MISUSE;
    }
    if (load_model(a, form, f, &p.model) < 0)
        return EXIT_MISUSE;
    if (load_cluster(a, &p.cluster) < 0 || read_plan(a, form, f, &p) < 0) {
        plan_free(&p);
        return EXIT_MISUSE;
    }
    *out = p;
    return EXIT_DONE;
}

/* What is given, and the form that its option names; NULL: the file's own. */
struct source { const char *path; const struct json_t *doc; const char *name; const struct form *form; };

static int find_source(const struct import_args *a, struct source *out)
{
    bool launches = (a->accelerate || a->accelerate_doc) && (a->recipe || a->recipe_doc || a->file || a->file_doc);    /* beside it */
    const struct source all[] = {
        { a->ds, a->ds_doc, "ds_config", &form_deepspeed },
        { launches ? NULL : a->accelerate, launches ? NULL : a->accelerate_doc, "accelerate", &form_accelerate },
        { a->titan, a->titan_doc, "torchtitan", &form_titan }, { a->megatron, a->megatron_doc, "megatron", &form_megatron },
        { a->recipe, a->recipe_doc, "recipe", NULL }, { a->file, a->file_doc, "file", NULL },
    };
    int n = 0;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].path || all[i].doc) {
            *out = all[i];
            n++;
        }
    return n == 1 ? 0 : fail("import: give one file%s", n ? "" : ": dpxplan import FILE --cluster 8xh100");
}

int convert_form(const struct import_args *a, const struct form_file *f, struct plan *out)
{
    const struct form *form = form_of(f);

    return form ? import_file(a, form, f, out) : EXIT_MISUSE;
}

static char *copy_of(const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        abort();
    return copy;
}

int convert_import(const struct import_args *a, struct plan *out)
{
    struct source from = { 0 };
    struct form_file f;

    if (find_source(a, &from) < 0)
        return EXIT_MISUSE;
    if (a->text && !a->file) {
        fail("import: --text is the text of FILE: give its name");
        return EXIT_MISUSE;
    }
    if (from.doc)
        form_from_doc(from.doc, from.name, &f);
    else if ((a->text ? form_parse(copy_of(a->text), a->file, &f) : form_open(from.path, &f)) < 0)
        return EXIT_MISUSE;
    int rc = EXIT_DONE;
    if (from.form != &form_accelerate && a->accelerate_doc)
        f.launch = json_incref((json_t *)(uintptr_t)a->accelerate_doc);
    else if (from.form != &form_accelerate && a->accelerate && form_launch(&f, a->accelerate) < 0)
        rc = EXIT_MISUSE;
    if (rc == EXIT_DONE)
        rc = from.form ? import_file(a, from.form, &f, out) : convert_form(a, &f, out);
    form_close(&f);
    return rc;
}

/* The first key that two plans differ in, as "ddp.bucket_cap_mb"; false: none. */
static bool differs(const json_t *a, const json_t *b, const char *path, char out[160])
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)a, key, v) {
        char name[160];
        const json_t *other = json_object_get(b, key);
        snprintf(name, sizeof name, "%s%s%s", path, *path ? "." : "", key);
        if (!*path && (!strcmp(key, "model") || !strcmp(key, "cluster")))
            continue;
        if (json_is_object(v) && json_is_object(other) ? differs(v, other, name, out) : !json_equal(v, (json_t *)(uintptr_t)other)) {
            if (!json_is_object(v) || !json_is_object(other))
                snprintf(out, 160, "%s", name);
            return true;
        }
    }
    return false;
}

/* A recipe says the whole plan: read again it must be the same plan. */
static int check_reads_back(const struct plan *p, const char *to, const char *text)
{
    struct plan again = { 0 };
    struct form_file f;
    char key[160] = "";
    json_t *ignored = json_array(), *before = notes_divert(ignored);

    int rc = form_parse(copy_of(text), to, &f);
    if (rc == 0) {
        const struct form *form = form_of(&f);
        struct notes notes = { 0 };
        again = (struct plan){ .cluster = p->cluster };
        struct model whole = p->model;
        whole.training = training_default();
        if ((rc = form ? model_with_layers(&whole, whole.layers, &again.model) : -1) == 0)
            rc = form->read(&f, &again, &notes);
        again.environment = p->environment;         /* of the job, not of the file: export_plan() tells it */
        again.cluster.nccl = p->cluster.nccl;
        form_close(&f);
    }
    notes_divert(before);
    json_decref(ignored);
    if (rc == 0) {
        json_t *is = plan_to_json(&again), *was = plan_to_json(p);
        if (differs(was, is, "", key) || differs(is, was, "", key))
            rc = fail("export to %s: %s: its recipe would say another value", to, key);
        json_decref(is);
        json_decref(was);
    }
    plan_free(&again);
    return rc;
}

/* Targets whose text is a whole recipe. */
static bool is_recipe(const char *to) { return !strcmp(to, "axolotl") || !strcmp(to, "llamafactory") || !strcmp(to, "recipe"); }

const char *const convert_targets[] = { "deepspeed", "accelerate", "torchtitan", "torchtitan-0.2.2", "fsdp", "megatron", "axolotl", "llamafactory", "recipe", "sbatch", "mpijob",
                                        "trainjob", NULL };

/* Of jobs sbatch's script alone has an environment. */
static void tell_variable(void *to, const char *name, const char *value) { notes_say("export to %s: set %s=%s for the job", (const char *)to, name, value); }

int convert_export(const struct export_args *a, char **text)
{
    struct plan p;
    size_t size;

    if (a->steps && !job_export_has(a->to)) {
        fail("export: --steps: of a job alone (sbatch, mpijob, trainjob)");
        return EXIT_MISUSE;
    }
    if (plan_source_given(&a->plan, NULL, &p) < 0)
        return EXIT_MISUSE;
    *text = NULL;
    FILE *f = open_memstream(text, &size);
    if (!f)
        abort();
    int rc = (job_export_has(a->to) ? job_export(&p, a->to, a->steps, f) : export_plan(&p, a->to, f)) < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (fclose(f) != 0)
        abort();
    if (rc == EXIT_DONE && job_export_has(a->to) && strcmp(a->to, "sbatch"))
        environment_each(&p, tell_variable, (void *)(uintptr_t)a->to);
    if (rc == EXIT_DONE && is_recipe(a->to) && check_reads_back(&p, a->to, *text) < 0)
        rc = EXIT_MISUSE;
    plan_free(&p);
    if (rc != EXIT_DONE)
        free(*text);
    return rc;
}
