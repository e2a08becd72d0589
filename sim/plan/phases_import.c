/* phases_import.c -- see phases_import.h: which recipes are read as phase plans, and what their readers share.
 *
 * The model that trains is read by the form's own reader (dpxplan import); what stands around it is read by phases_NAME.c. */
#include "sim/plan/phases_import.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/exchange/recipe.h"
#include "model/exchange/recipe_refuses.h"
#include "sim/plan/commands.h"
#include "sim/plan/convert.h"

/* OpenRLHF's program of several models that take turns; its others train one. */
static bool is_ppo(const struct form_file *f, const struct form *form)
{
    return form == &form_openrlhf && form_openrlhf_runs(f, "train_ppo_ray");
}

bool phases_beside(const struct form_file *f)
{
    const struct form *form = f->doc ? form_of_quietly(f) : NULL;

    return phases_is_dpo(f) || phases_is_primerl(f) || phases_is_kto(f) || phases_is_reward(f) || phases_is_nemo(f) || is_ppo(f, form)
        || (form == &form_trl && phases_is_trl(f) && recipe_refers(f->doc, RECIPE_TRL));
}

/* Whose recipe it is.  NULL: none's. */
static const char *whose(const struct form_file *f)
{
    const struct form *form = form_of_quietly(f);

    return form && form != &form_trl && form != &form_verl ? form->name : NULL;
}

void phases_not_read(const struct form_file *f)
{
    static const char read[] = "phases are read from TRL's GRPO, verl's PPO and GRPO, OpenRLHF's train_ppo_ray, NeMo-RL's configs, prime-rl's rl, from DPO of TRL, LLaMA-Factory "
                               "and axolotl, and from KTO and reward models of TRL and axolotl";
    const char *name = whose(f);

    if (name)
        fail("%s: a recipe of %s: %s: write a phase plan (docs/howto/phases.md), or take dpxplan import where one model trains", f->path, name, read);
    else
        fail("%s: neither a phase plan (\"dpx_phases\": 1) nor a recipe whose phases are known: %s; the plan of one step is for dpxplan eval", f->path, read);
}

/* ---- values ---- */

/* The first value of another kind is reported, and makes the import fail. */
void import_refuse(struct importing *in, const char *path, const char *want)
{
    if (!in->failed)
        fail("%s: %s: expected %s", in->f->path, path, want);
    in->failed = true;
}

double import_number(struct importing *in, const char *path, double usual)
{
    const json_t *v = form_value(in->f->doc, path);
    const char *s = json_string_value(v);
    char *end = NULL;
    double x = s ? strtod(s, &end) : json_number_value(v);

    if (!v)
        return usual;
    if (isfinite(x) && (s ? *s && !*end : json_is_number(v)))
        return x;
    import_refuse(in, path, "a number");
    return usual;
}

int64_t import_count(struct importing *in, const char *path, int64_t least, int64_t usual)
{
    double x = import_number(in, path, (double)usual);

    if (!form_value(in->f->doc, path))
        return usual;
    if (x >= (double)least && x <= 1e12 && x == floor(x))
        return (int64_t)x;
    import_refuse(in, path, least ? "a whole number from 1 on" : "a whole number, not negative");
    return usual;
}

bool import_flag(struct importing *in, const char *path, bool usual)
{
    const json_t *v = form_value(in->f->doc, path);
    const char *s = json_string_value(v);

    if (!v)
        return usual;
    if (json_is_boolean(v) || (json_is_integer(v) && json_integer_value(v) >> 1 == 0))
        return json_is_true(v) || json_integer_value(v) == 1;
    if (s && (!strcasecmp(s, "true") || !strcasecmp(s, "false")))
        return !strcasecmp(s, "true");
    import_refuse(in, path, "true or false");
    return usual;
}

const char *import_text(struct importing *in, const char *path, const char *usual)
{
    const json_t *v = form_value(in->f->doc, path);

    if (v && !json_is_string(v))
        import_refuse(in, path, "a text");
    return json_is_string(v) ? json_string_value(v) : usual;
}

/* Notes of the form's reader that say what a plan of one step has not, and the phases have. */
static void say_rest(const json_t *said, bool again)
{
    static const char *const followed[] = { "loss_type is not given", "the plan is the", "GRPO has no reference model", "old log-probabilities", "use_kl_loss is not in the plan", "param_offload is not in the plan",
                                            "optimizer_offload is not in the plan", "gpu_memory_utilization is not in the plan", "critic.model.path is not in the plan", "has a critic, which is not in the plan", "ppo_epochs: ",
                                            "use_remove_padding", "fsdp.root_units \"embed-head\"" };
    size_t i;
    json_t *line;

    json_array_foreach((json_t *)(uintptr_t)said, i, line) {
        const char *text = json_string_value(line);
        bool known = again && strstr(text, "a program of its own");           /* a critic is the same program's */
        for (size_t k = 0; k < sizeof followed / sizeof *followed; k++)
            known |= strstr(text, followed[k]) != NULL;
        if (!known)
            notes_say("%s", text);
    }
}

int import_plan(struct importing *in, json_t *doc, bool named, struct plan *out)
{
    struct import_args args = IMPORT_ARGS;
    struct form_file f;

    args.model = named ? NULL : in->a->plan.model;
    args.model_doc = named ? NULL : in->a->plan.model_doc;
    args.cluster = in->cluster ? NULL : in->a->plan.cluster;
    args.cluster_doc = in->cluster ? in->cluster : in->a->plan.cluster_doc;
    args.seq = in->a->plan.seq;
    form_from_doc(doc, in->f->path, &f);
    f.kind = in->f->kind == FORM_TOML ? FORM_TOML : f.kind;
    f.launch = json_incref(in->f->launch);
    f.words = json_incref(in->f->words);                /* the program that a command runs: forms refuse those that they do not read */
    f.launcher = json_incref(in->f->launcher);
    f.environment = json_incref(in->f->environment);    /* that the script sets, for each worker that it starts */
    json_t *said = json_array(), *before = notes_divert(said);
    int rc = convert_form(&args, &f, out) == EXIT_DONE ? 0 : -1;
    notes_divert(before);
    say_rest(said, named);
    json_decref(said);
    form_close(&f);
    return rc;
}

int import_actor(struct importing *in, json_t *doc)
{
    const struct form *form = form_of_quietly(in->f);

    /* the file itself, of which `doc` is what is left */
    if ((form == &form_trl || form == &form_factory || form == &form_axolotl) && form_check_program(in->f) < 0) {
        json_decref(doc);
        return -1;
    }
    return import_plan(in, doc, false, &in->actor);
}

void import_role(struct importing *in, const char *name, json_t *role) { json_object_set_new(in->roles, name, role); }
void import_phase(struct importing *in, json_t *phase) { json_array_append_new(in->phases, phase); }

int import_response(struct importing *in, int64_t longest, json_t **out)
{
    double mean = (double)longest, most = (double)longest;
    const char *given = in->a->response, *rest = NULL;
    int read = 0, more = 0;
    double prompt = -1;

    if (given && sscanf(given, "%lf,%lf%n", &mean, &most, &read) == 2)
        rest = given + read;
    if (rest && *rest == ',' && sscanf(rest, ",%lf%n", &prompt, &more) == 1)
        rest += more;
    if (given && (!rest || *rest || !(mean >= 1) || !(most >= mean) || (more && !(prompt >= 0 && prompt <= 1e12))))
        return fail("--response: \"%.40s\" is not a mean and a longest, as 700,2048", given);
    if (more && in->prompt != -1)
        return fail("--response: %.40s: this file says how long prompts are: a mean and a longest", given);
    in->prompt = prompt;
    if (most > (double)longest)
        return fail("--response: %g tokens at most, but the file has %" PRId64, most, longest);
    if (!in->a->response)
        notes_add(in->notes, "responses are taken as long as they may be, %" PRId64 " tokens: --response MEAN,LONGEST says otherwise", longest);
    *out = json_pack("{s:f, s:f}", "mean", mean, "longest", most);
    return 0;
}

int import_lengths(struct importing *in, int64_t longest, int64_t limit, const char *of, json_t **out, double *prompt)
{
    in->prompt = -1;
    if (import_response(in, longest, out) < 0)
        return -1;
    double most = json_number_value(json_object_get(*out, "longest"));
    *prompt = in->prompt >= 0 ? in->prompt : (double)limit - most;
    if (in->prompt < 0)
        notes_add(in->notes, "prompts' lengths are not in the file: taken as %g tokens, what %s leaves beside the longest response: --response "
                             "MEAN,LONGEST,PROMPT says otherwise", *prompt, of);
    return 0;
}

int64_t import_longest(const struct importing *in)
{
    int64_t asked = 0;

    if (in->a->response)
        sscanf(in->a->response, "%*f,%" SCNd64, &asked);
    return asked;
}

int import_no_response(const struct importing *in, const char *whose)
{
    return in->a->response ? fail("--response: %s generates no responses: its samples are in the data", whose) : 0;
}

json_t *import_document(struct importing *in, const char *framework, int64_t samples, int64_t of_prompt, int64_t prompt, json_t *response)
{
    json_t *doc = json_pack("{s:i, s:s, s:o, s:I, s:I, s:I, s:O, s:O}", "dpx_phases", 1, "framework", framework, "cluster", cluster_to_json(&in->actor.cluster),
                            "samples", (json_int_t)samples, "of_prompt", (json_int_t)of_prompt, "prompt", (json_int_t)prompt, "roles", in->roles, "phases", in->phases);

    if (response)
        json_object_set_new(doc, "response", response);
    return doc;
}

void import_positive(json_t *engine, const char *key, int64_t n)
{
    if (n > 1)
        json_object_set_new(engine, key, json_integer(n));
}

void import_numbers(json_t *plan, enum head_kind head)
{
    json_t *model = json_object_get(plan, "model"), *lora = json_object_get(plan, "lora");
    const char *name = json_string_value(json_object_get(model, "_name_or_path"));

    json_object_set_new(model, "_name_or_path", json_sprintf("%s:%s", name, head == HEAD_SCORE ? "score" : "value"));
    json_object_set_new(model, "architectures", json_pack("[s]", head == HEAD_SCORE ? "ForSequenceClassification" : "ForTokenClassification"));
    json_object_set_new(model, "num_labels", json_integer(1));
    json_object_del(plan, "loss");
    json_object_del(plan, "logits_kept");
    json_object_del(plan, "logits_until");
    if (lora)                           /* PEFT of such a class trains the head (SEQ_CLS, TOKEN_CLS) */
        json_object_set_new(lora, "modules_to_save", json_pack("[s]", "score"));
}

/* The reader of a file; NULL: it is no phase plan's. */
static json_t *(*reader_of(const struct form_file *f))(struct importing *in)
{
    const struct form *form = f->doc ? form_of_quietly(f) : NULL;

    if (phases_is_nemo(f))
        return phases_nemo;
    if (phases_is_primerl(f))
        return phases_primerl;
    if (form == &form_verl)
        return phases_verl;
    if (is_ppo(f, form))
        return phases_openrlhf;
    return phases_is_dpo(f) ? phases_dpo : phases_is_kto(f) ? phases_kto : phases_is_reward(f) ? phases_reward : phases_is_trl(f) ? phases_trl : NULL;
}

bool phases_imports(const struct form_file *f) { return reader_of(f) != NULL; }

json_t *phases_import(const struct phases_asked *a, const struct form_file *f, struct notes *notes)
{
    struct importing in = { .a = a, .f = f, .notes = notes, .roles = json_object(), .phases = json_array(), .prompt = -2 };
    json_t *doc = reader_of(f)(&in);

    if (in.failed) {
        json_decref(doc);
        doc = NULL;
    }
    json_decref(in.roles);
    json_decref(in.phases);
    plan_free(&in.actor);
    return doc;
}
