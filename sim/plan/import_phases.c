/* import_phases.c -- see import_phases.h. */
#include "sim/plan/import_phases.h"

#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "base/output.h"
#include "model/form/form.h"
#include "sim/plan/commands.h"
#include "sim/plan/phases.h"

static const char *path_of(const struct import_args *a) { return a->recipe ? a->recipe : a->text ? NULL : a->file; }

bool import_is_of_phases(const struct import_args *a)
{
    char ignored[512];
    struct form_file f;

    if (!path_of(a) || !strcmp(path_of(a), "-") || a->ds || a->titan || a->megatron)
        return false;
    struct fail_sink before = fail_divert(ignored, sizeof ignored);
    int rc = form_open(path_of(a), &f);
    fail_restore(before);
    if (rc < 0)
        return false;
    bool is = phases_beside(&f);
    form_close(&f);
    return is;
}

/* What goes before a recipe's own values in a plan of one step would be the batch of both sequences here. */
static int check_args(const struct import_args *a)
{
    const struct { const char *option; bool given; } others[] = {
        { "micro-batch", a->micro_batch > 0 }, { "accumulation", a->accumulation > 0 }, { "global-batch", a->global_batch > 0 },
        { "precision", a->precision >= 0 }, { "recompute", a->recompute >= 0 },
    };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            return fail("import: --%s: the recipe has a second model in its step: change it in the file", others[i].option);
    return a->cluster || a->cluster_doc ? 0 : fail("%s: say on which GPUs: --cluster 8xh100", path_of(a));
}

static const struct plan *trained(const struct phases *p)
{
    int i = 0;

    while (p->plan.role[i].kind != ROLE_TRAINS)
        i++;
    return &p->role[i].plan;
}

static void say_beside(const struct phases *p)
{
    for (int i = 0; i < p->plan.nroles; i++)
        if (p->plan.role[i].kind == ROLE_TRAINS && &p->role[i].plan != trained(p))
            notes_say("    beside    %s: it trains, too", p->plan.role[i].name);
        else if (p->plan.role[i].kind == ROLE_INFERS)
            notes_say("    beside    %s: %s", p->plan.role[i].name, p->plan.role[i].shares ? "the same weights without the adapters" : "a copy");
        else if (p->plan.role[i].kind == ROLE_IS_ENGINE)
            notes_say("    beside    an engine that generates");
}

static void say(const struct phases *p, const char *path)
{
    const struct moment *m = &p->moment[p->largest];
    struct form_file f;
    char lines[1200];

    if (form_open(path, &f) < 0)
        return;
    const struct form *form = form_of_quietly(&f);
    form_summary(form, &f, trained(p), lines, sizeof lines);
    notes_say("dpx: %s: read as %s (told by %s)", path, form ? form->name : "NeMo-RL", form ? form->sign : "policy with grpo, ppo, dpo, sft or rm");
    for (char *at = lines, *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = '\0';
        notes_say("    %s", at);
    }
    form_close(&f);
    say_beside(p);
    if (p->fits)
        notes_say("    fits      %s: reserves %s of %s usable on a GPU, in \"%s\"", p->tight ? "tightly" : "yes", size_text(m->taken).s, size_text(p->available).s,
                  p->plan.step[p->largest].name);
    else
        notes_say("    fits      no: %s", p->why_not);
}

static int write_plan(const struct phases *p, const char *out)
{
    struct output o;

    if (!out)
        return dpxplan_print_json(json_incref(p->doc), EXIT_DONE);
    if (output_open(&o, out) < 0)
        return EXIT_FAILED;
    json_dumpf(p->doc, o.f, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17));
    if (output_close(&o) < 0)
        return EXIT_FAILED;
    notes_say("dpx: wrote %s, a phase plan, in which models take turns: dpxplan phases %s", out, out);
    return EXIT_DONE;
}

int import_phases(const struct import_args *a, const char *out)
{
    struct phases_asked asked = PHASES_ASKED;
    struct phases p;

    if (check_args(a) < 0)
        return EXIT_MISUSE;
    asked.plan.path = path_of(a);
    asked.plan.model = a->model;
    asked.plan.model_doc = a->model_doc;
    asked.plan.cluster = a->cluster;
    asked.plan.cluster_doc = a->cluster_doc;
    asked.plan.seq = a->seq;
    asked.response = a->response;
    asked.accelerate = a->accelerate;
    asked.accelerate_doc = a->accelerate_doc;
    asked.host_memory = a->host_memory;
    int rc = phases_answer(&asked, &p);
    if (rc != EXIT_DONE && rc != EXIT_NO)
        return rc;
    say(&p, asked.plan.path);
    rc = write_plan(&p, out);
    phases_free(&p);
    return rc;
}
