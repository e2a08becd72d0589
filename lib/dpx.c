/* dpx.c -- the functions of libdpx: a request is read into the table of the command's options, answered by the function
 * that the command calls, and the answer written. */
#include "lib/dpx.h"

#include <locale.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/document.h"
#include "base/fail.h"
#include "base/notes.h"
#include "base/opts.h"
#include "base/version.h"
#include "model/plan/knob.h"
#include "model/plan/modelled.h"
#include "sim/plan/bill.h"
#include "sim/plan/commands.h"
#include "sim/plan/convert.h"
#include "sim/plan/eval.h"
#include "sim/plan/explain.h"
#include "sim/plan/fit_answer.h"
#include "sim/plan/limits_answer.h"
#include "sim/plan/list.h"
#include "sim/plan/phases.h"
#include "sim/plan/search_answer.h"
#include "sim/plan/sweep.h"
#include "sim/plan/sweep_print.h"

_Static_assert((int)DPX_DONE == (int)EXIT_DONE && (int)DPX_FAILED == (int)EXIT_FAILED && (int)DPX_MISUSE == (int)EXIT_MISUSE &&
               (int)DPX_NO == (int)EXIT_NO, "a status is what the command would exit with");

/* What a request leads to: *doc with DPX_DONE and DPX_NO, else the reason by fail().  `kept` as opts_json() needs it. */
struct call {
    json_t *request, *kept;
    const struct dpx_watch *watch;
    int64_t before, done, total, most;  /* plans of parts of a search that are over; of this part; the most that were told of */
    bool    cancelled;
};
typedef int answer_fn(struct call *c, json_t **doc);

/* ---- one function each ---- */

static bool go_on(void *of, int64_t done, int64_t total)
{
    struct call *c = of;

    if (total > 0) {
        c->before += done < c->done || total < c->total ? c->done : 0;
        c->done = done;
        c->total = total;
        c->most = c->before + total > c->most ? c->before + total : c->most;
    }
    c->cancelled = c->watch->progress(c->watch->data, c->before + c->done, c->most) != 0;
    return !c->cancelled;
}

static int answer_search(struct call *c, json_t **doc)
{
    struct search_asked a = SEARCH_ASKED;
    const struct opt opts[] = { SEARCH_ASKED_OPTS(a), { 0 } };
    struct search_answer s;
    int rc;

    if (opts_json("search", opts, c->request, c->kept) < 0)
        return DPX_MISUSE;
    if (c->watch && c->watch->progress) {
        a.go_on = go_on;
        a.go_on_of = c;
    }
    if ((rc = search_answer_open(&a, &s)) != DPX_DONE)
        return rc;
    rc = search_answer_find(&a, &s);
    if (rc == DPX_DONE || rc == DPX_NO)
        *doc = search_answer_json(&a, &s);
    search_answer_free(&s);
    return c->cancelled ? DPX_CANCELLED : rc;
}

static int answer_eval(struct call *c, json_t **doc)
{
    struct eval_args a = EVAL_ARGS;
    const struct opt opts[] = { EVAL_OPTS(a), { 0 } };
    struct eval_answer e;

    if (opts_json("eval", opts, c->request, c->kept) < 0)
        return DPX_MISUSE;
    int rc = eval_ask(&a, &e);
    if (rc == DPX_DONE || rc == DPX_NO) {
        *doc = eval_json(&a, &e);
        eval_free(&e);
    }
    return rc;
}

static int answer_explain(struct call *c, json_t **doc)
{
    struct explain_args a = EXPLAIN_ARGS;
    const struct opt opts[] = { EXPLAIN_OPTS(a), { 0 } };

    return opts_json("explain", opts, c->request, c->kept) < 0 ? DPX_MISUSE : explain_json(&a, doc);
}

static int answer_import(struct call *c, json_t **doc)
{
    struct import_args a = IMPORT_ARGS;
    const struct opt opts[] = { IMPORT_OPTS(a), { 0 } };
    struct plan p;
    char label[160];

    if (opts_json("import", opts, c->request, c->kept) < 0)
        return DPX_MISUSE;
    int rc = convert_import(&a, &p);
    if (rc == DPX_DONE) {
        knob_label(&p, label, sizeof label);
        *doc = json_pack("{s:i, s:o, s:s}", "dpx", DPX_API, "plan", plan_to_json(&p), "label", label);
        plan_free(&p);
    }
    return rc;
}

static int answer_export(struct call *c, json_t **doc)
{
    struct export_args a = { .to = NULL };
    const struct opt opts[] = { EXPORT_OPTS(a), { 0 } };
    char *text;

    if (opts_json("export", opts, c->request, c->kept) < 0)
        return DPX_MISUSE;
    int rc = convert_export(&a, &text);
    if (rc == DPX_DONE) {
        *doc = json_pack("{s:i, s:s, s:s}", "dpx", DPX_API, "to", a.to, "text", text);
        free(text);
    }
    return rc;
}

/* Every point, unless the caller ends it. */
static int sweep_points(struct call *c, struct sweep *s, json_t *points, struct sweep_count *count)
{
    for (int64_t i = 0; i < s->points; i++) {
        struct sweep_row r;
        sweep_point(s, i, &r);
        json_array_append_new(points, sweep_row_json(s, i, &r));
        sweep_count_row(count, &r);
        if (c->watch && c->watch->progress && !go_on(c, i + 1, s->points)) {
            fail("sweep: stopped after %lld of %lld points", (long long)(i + 1), (long long)s->points);
            return DPX_CANCELLED;
        }
    }
    return sweep_count_status(count);
}

static int answer_sweep(struct call *c, json_t **doc)
{
    struct sweep_asked a = SWEEP_ASKED;
    const struct opt opts[] = { SWEEP_OPTS(a), { 0 } };
    struct sweep_count count = { 0 };
    struct sweep s;

    if (opts_json("sweep", opts, c->request, c->kept) < 0 || sweep_open(&a, &s) < 0)
        return DPX_MISUSE;
    json_t *points = json_array();
    int rc = sweep_points(c, &s, points, &count);
    if (rc == DPX_DONE || rc == DPX_NO)
        *doc = json_pack("{s:i, s:s, s:o, s:O, s:I, s:I}", "dpx", DPX_API, "mode", s.has_plan ? "eval" : "search", "over",
                         sweep_axes_json(&s), "points", points, "done", (json_int_t)count.done, "of", (json_int_t)s.points);
    json_decref(points);
    sweep_free(&s);
    return rc;
}

static int answer_limits(struct call *c, json_t **doc)
{
    struct limits_asked a = LIMITS_ASKED;
    const struct opt opts[] = { LIMITS_OPTS(a), { 0 } };

    return opts_json("limits", opts, c->request, c->kept) < 0 ? DPX_MISUSE : limits_json(&a, doc);
}

static int answer_bill(struct call *c, json_t **doc)
{
    struct bill_asked a = BILL_ASKED;
    const struct opt opts[] = { BILL_OPTS(a), { 0 } };
    struct bill b;

    if (opts_json("bill", opts, c->request, c->kept) < 0)
        return DPX_MISUSE;
    int rc = bill_answer(&a, &b);
    if (rc == DPX_DONE || rc == DPX_NO) {
        *doc = bill_json(&a, &b);
        bill_free(&b);
    }
    return rc;
}

static int answer_phases(struct call *c, json_t **doc)
{
    struct phases_asked a = PHASES_ASKED;
    const struct opt opts[] = { PHASES_OPTS(a), { 0 } };
    struct phases p;

    if (opts_json("phases", opts, c->request, c->kept) < 0)
        return DPX_MISUSE;
    int rc = phases_answer(&a, &p);
    if (rc == DPX_DONE || rc == DPX_NO) {
        *doc = phases_json(&p);
        phases_free(&p);
    }
    return rc;
}

static int answer_fit(struct call *c, json_t **doc)
{
    struct fit_asked a = FIT_ASKED;
    const struct opt opts[] = { FIT_OPTS(a), { 0 } };
    struct fit_answer f;

    if (opts_json("fit", opts, c->request, c->kept) < 0)
        return DPX_MISUSE;
    int rc = fit_answer(&a, &f);
    if (rc == DPX_DONE || rc == DPX_NO) {
        *doc = fit_json(&a, &f);
        fit_free(&f);
    }
    return rc;
}

static int answer_list(struct call *c, json_t **doc)
{
    const char *what = NULL;
    const struct opt opts[] = { { "WHAT", "", .str = &what, .words = list_words, .positional = true, .required = true }, { 0 } };

    return opts_json("list", opts, c->request, c->kept) < 0 || list_json(what, doc) < 0 ? DPX_MISUSE : DPX_DONE;
}

/* ---- what all of them share ---- */

static char *copy_of(const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        abort();
    return copy;
}

/* The request as a document; NULL with the place of the mistake reported. */
static json_t *read_request(const char *request)
{
    json_error_t e;
    json_t *j = request ? json_loads(request, JSON_REJECT_DUPLICATES, &e) : NULL;

    if (!request)
        fail("the request is NULL");
    else if (!j)
        fail("the request:%d:%d: malformed JSON: %s", e.line, e.column, e.text);
    return j;
}

static int call(answer_fn *fn, const char *request, const struct dpx_watch *watch, char **answer)
{
    char why[2048] = "";
    struct call c = { .watch = watch, .kept = json_array() };
    json_t *doc = NULL, *notes = json_array();
    int status = DPX_MISUSE;

    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);  /* numbers have points, whatever the program's locale */
    if (!plain)
        abort();
    locale_t usual = uselocale(plain);
    struct fail_sink before = fail_divert(why, sizeof why);
    json_t *notes_before = notes_divert(notes);
    if ((c.request = read_request(request)))
        status = fn(&c, &doc);
    if (doc) {
        json_object_set(doc, "notes", notes);
        modelled_add(doc);
    }
    if (!doc && (status == DPX_DONE || status == DPX_NO)) {     /* json_pack() takes neither NaN nor infinity */
        fail("the answer holds NaN or infinity, which JSON cannot express");
        status = DPX_FAILED;
    }
    *answer = doc ? document_text(doc, 0) : copy_of(why);
    notes_divert(notes_before);
    fail_restore(before);
    uselocale(usual);
    freelocale(plain);
    if (!*answer)
        abort();
    json_decref(doc);
    json_decref(notes);
    json_decref(c.kept);
    json_decref(c.request);
    return status;
}

int dpx_search(const char *request, const struct dpx_watch *watch, char **answer) { return call(answer_search, request, watch, answer); }
int dpx_eval(const char *request, char **answer)    { return call(answer_eval, request, NULL, answer); }
int dpx_explain(const char *request, char **answer) { return call(answer_explain, request, NULL, answer); }
int dpx_sweep(const char *request, const struct dpx_watch *watch, char **answer)  { return call(answer_sweep, request, watch, answer); }
int dpx_limits(const char *request, char **answer)  { return call(answer_limits, request, NULL, answer); }
int dpx_bill(const char *request, char **answer)    { return call(answer_bill, request, NULL, answer); }
int dpx_phases(const char *request, char **answer)  { return call(answer_phases, request, NULL, answer); }
int dpx_fit(const char *request, char **answer)     { return call(answer_fit, request, NULL, answer); }
int dpx_list(const char *request, char **answer)    { return call(answer_list, request, NULL, answer); }
int dpx_import(const char *request, char **answer)  { return call(answer_import, request, NULL, answer); }
int dpx_export(const char *request, char **answer)  { return call(answer_export, request, NULL, answer); }

void dpx_free(char *answer) { free(answer); }

const char *dpx_version(void) { return version_text(); }
