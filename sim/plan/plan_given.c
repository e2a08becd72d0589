/* plan_given.c -- the plan that a command is given: a plan.json, or any file that has a form, with the cluster that such a
 * file does not name. */
#include <string.h>

#include "base/fail.h"
#include "sim/plan/commands.h"
#include "sim/plan/convert.h"
#include "sim/plan/plan_source.h"

static bool has_more(const struct plan_given *g) { return g->model || g->model_doc || g->cluster || g->cluster_doc || g->seq; }

static int foreign(const struct plan_given *g, const struct form_file *f, struct plan *out)
{
    struct import_args a = IMPORT_ARGS;

    a.model = g->model;
    a.model_doc = g->model_doc;
    a.cluster = g->cluster;
    a.cluster_doc = g->cluster_doc;
    a.seq = g->seq;
    a.summary = true;
    return convert_form(&a, f, out) == EXIT_DONE ? 0 : -1;
}

static int of_file(const struct plan_given *g, const struct form_file *f, json_t **written, struct plan *out)
{
    bool plan = json_object_get(f->doc, "dpx_plan") != NULL;

    if (!plan && (f->kind != FORM_JSON || form_of_quietly(f)))
        return foreign(g, f, out) < 0 ? -1 : 1;
    if (plan && has_more(g))
        return fail("%s: a plan has its own model, cluster and seq: --set changes them", f->path);
    *written = json_incref(f->doc);
    return 0;
}

int plan_given_read(const struct plan_given *g, json_t **written, const char **where, struct plan *out)
{
    struct form_file f;

    if (g->doc)
        form_from_doc(g->doc, g->path ? g->path : "plan", &f);
    else if (form_open(g->path, &f) < 0)
        return -1;
    *where = f.path;
    int rc = of_file(g, &f, written, out);
    form_close(&f);
    return rc;
}
