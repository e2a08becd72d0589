/* plan_given.c -- the plan that a command is given: a plan.json, any file that has a form, with the cluster that such a
 * file does not name, or a model, whose plan is searched. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/arch/builtin.h"
#include "model/arch/sample.h"
#include "sim/plan/commands.h"
#include "sim/plan/convert.h"
#include "sim/plan/plan_source.h"
#include "sim/plan/plan_words.h"
#include "sim/search/ranking.h"

static bool has_more(const struct plan_given *g) { return g->model || g->model_doc || g->cluster || g->cluster_doc || g->seq || g->global_batch; }

/* ---- a model: the plan that search recommends ---- */

/* 1 and the first of the ranking; 0 where nothing fits, and the nearest that keeps all in device memory; -1 reported. */
static int recommended(struct question *q, struct plan *out)
{
    struct search_result r;
    struct ranked best;
    int64_t tied, n = 0;

    q->options.answer_only = q->options.nearest_in_place = true;
    if (search(&q->options, &r) < 0)
        return -1;
    if (r.nfit > 0)
        n = ranking(&r, &best, 1, &tied);
    if (n >= 0)
        *out = n > 0 ? best.found->plan : r.found[0].plan;
    search_free(&r);
    return n < 0 ? -1 : n > 0;
}

static void say_planned(const struct plan *p, bool fits)
{
    char words[PLAN_WORDS];

    plan_words(p, words, sizeof words);
    notes_say(fits ? "dpx: %s on %s, as search recommends: %s; %" PRId64 " samples of %s a step" :
              "dpx: no plan of %s fits on %s; this is the nearest, which does not fit: %s; %" PRId64 " samples of %s a step", p->model.name, p->cluster.name,
              words, plan_global_batch(p), sample_text(&p->model, p->seq).s);
}

static int of_model(const struct plan_given *g, const json_t *config, struct plan *out)
{
    struct search_args a = SEARCH_ARGS;
    struct question q;
    struct model m;
    struct cluster c;

    if (g->model || g->model_doc)
        return fail("%s: it is a model itself: leave out --model", g->path);
    if (!g->cluster && !g->cluster_doc)
        return fail("%s: a model: say on which GPUs: --cluster 8xh100", g->path ? g->path : "plan");
    bool file = g->path && strcmp(g->path, "-");        /* which has a name, and is what notes name */
    if (named_model(g->path, file ? NULL : config, &m) < 0)
        return -1;
    if (named_cluster(g->cluster, g->cluster_doc, &c) < 0) {
        model_free(&m);
        return -1;
    }
    a.seq = g->seq ? g->seq : search_usual_seq(&m);
    a.global_batch = g->global_batch ? g->global_batch : search_usual_batch(c.world_size);
    if (search_args_options(&a, &m, &c, &q) != EXIT_DONE) {
        model_free(&m);
        return -1;
    }
    search_args_grid(&a, &q.options);
    int rc = recommended(&q, out);
    measured_unload(&q.cluster);
    if (rc < 0) {
        model_free(&m);
        return -1;
    }
    out->cluster.measured = NULL;
    say_planned(out, rc > 0);
    return 0;
}

static bool is_file_name(const char *path)
{
    static const char *const ends[] = { ".json", ".yaml", ".yml", ".toml", ".txt", ".sh", ".conf" };
    size_t n = strlen(path);

    if (strchr("/.~", *path))
        return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && !strcmp(path + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

/* A name or an id, and no file.  1: known; 0: a file, or its name; -1: neither a file nor a known model, reported. */
static int is_model(const char *path)
{
    char config[1500], name[1500];
    struct stat st;
    bool headed = model_name_length(path) < strlen(path);       /* of a config.json ":score" makes a model too */

    snprintf(name, sizeof name, "%.*s", (int)model_name_length(path), path);
    if (!strcmp(path, "-") || stat(name, &st) == 0)
        return headed;
    if (hf_ids_find(name) || hf_cache_find(name, config, sizeof config))
        return 1;
    if (is_file_name(name))
        return 0;
    return model_unknown(path);
}

/* ---- a file ---- */

static int foreign(const struct plan_given *g, const struct form_file *f, struct plan *out)
{
    struct import_args a = IMPORT_ARGS;

    a.model = g->model;
    a.model_doc = g->model_doc;
    a.cluster = g->cluster;
    a.cluster_doc = g->cluster_doc;
    a.seq = g->seq;
    a.global_batch = g->global_batch;
    a.summary = true;
    return convert_form(&a, f, out) == EXIT_DONE ? 0 : -1;
}

/* What search --json printed? */
static bool is_search(const json_t *doc) { return json_object_get(doc, "dpx") && json_is_array(json_object_get(doc, "plans")); }

/* The plan that it answers: with --goal bill the first to end. */
static int of_search(const struct form_file *f, json_t **plan)
{
    const json_t *plans = json_object_get(f->doc, "plans"), *ends = json_object_get(f->doc, "by_bill");
    const json_t *first = json_array_get(json_array_size(ends) > 0 ? ends : plans, 0);
    if (!first)
        return fail("%s: an answer of search in which no plan fits", f->path);
    if (!json_object_get(json_object_get(first, "plan"), "dpx_plan"))
        return fail("%s: an answer of search whose first plan is not there", f->path);
    *plan = json_incref(json_object_get(first, "plan"));
    notes_say("dpx: %s: search's first plan, %s", f->path, json_string_value(json_object_get(first, "label")));
    return 0;
}

static int of_file(const struct plan_given *g, const struct form_file *f, json_t **written, struct plan *out)
{
    bool plan = json_object_get(f->doc, "dpx_plan") != NULL;

    if (json_object_get(f->doc, "dpx_phases"))
        return fail("%s: a phase plan, of several models that take turns: dpxplan phases reads it", f->path);
    if (!plan && f->kind == FORM_JSON && (json_object_get(f->doc, "model_type") || json_object_get(f->doc, "dpx_model")) && !form_of_quietly(f))
        return of_model(g, f->doc, out) < 0 ? -1 : 1;
    if (!plan && (f->kind != FORM_JSON || form_of_quietly(f)))
        return foreign(g, f, out) < 0 ? -1 : 1;
    bool answer = !plan && is_search(f->doc);
    if ((plan || answer) && has_more(g))
        return fail("%s: a plan has its own model, cluster and seq: --set changes them", f->path);
    if (answer)
        return of_search(f, written);
    *written = json_incref(f->doc);
    return 0;
}

int plan_given_read(const struct plan_given *g, json_t **written, const char **where, struct plan *out)
{
    struct form_file f;
    int model = g->doc ? 0 : is_model(g->path);

    if (model)
        return model < 0 || of_model(g, NULL, out) < 0 ? -1 : 1;
    if (g->doc)
        form_from_doc(g->doc, g->path ? g->path : "plan", &f);
    else if (form_open(g->path, &f) < 0)
        return -1;
    *where = f.path;
    int rc = of_file(g, &f, written, out);
    form_close(&f);
    return rc;
}
