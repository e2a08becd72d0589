/* dpxplan_serve.c -- dpxplan serve: the page, answered by this program with this machine's calibrations and recorded runs. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/opts.h"
#include "sim/plan/commands.h"

#ifdef DPX_HTTPD

#include <jansson.h>

#include "base/chart/chart_json.h"
#include "calib/store/runs.h"
#include "lib/dpx.h"
#include "page/served.h"
#include "sim/plan/plan_words.h"
#include "sim/serve/http.h"

/* ---- calls of libdpx ---- */

static int call_search(const char *q, const struct dpx_watch *w, char **a)  { return dpx_search(q, w, a); }
static int call_sweep(const char *q, const struct dpx_watch *w, char **a)   { return dpx_sweep(q, w, a); }
static int call_eval(const char *q, const struct dpx_watch *w, char **a)    { (void)w; return dpx_eval(q, a); }
static int call_explain(const char *q, const struct dpx_watch *w, char **a) { (void)w; return dpx_explain(q, a); }
static int call_bill(const char *q, const struct dpx_watch *w, char **a)    { (void)w; return dpx_bill(q, a); }
static int call_phases(const char *q, const struct dpx_watch *w, char **a)  { (void)w; return dpx_phases(q, a); }
static int call_limits(const char *q, const struct dpx_watch *w, char **a)  { (void)w; return dpx_limits(q, a); }
static int call_fit(const char *q, const struct dpx_watch *w, char **a)     { (void)w; return dpx_fit(q, a); }
static int call_list(const char *q, const struct dpx_watch *w, char **a)    { (void)w; return dpx_list(q, a); }
static int call_import(const char *q, const struct dpx_watch *w, char **a)  { (void)w; return dpx_import(q, a); }
static int call_export(const char *q, const struct dpx_watch *w, char **a)  { (void)w; return dpx_export(q, a); }
static int call_draw(const char *q, const struct dpx_watch *w, char **a)    { (void)w; return chart_answer(q, a); }

static const struct served_call {
    const char *name;
    int (*ask)(const char *request, const struct dpx_watch *watch, char **answer);
    enum { PLAIN, HAS_DB, DRAWS } kind;     /* HAS_DB: it has that option; DRAWS: its texts name nothing */
} calls[] = {
    { "search", call_search, HAS_DB }, { "sweep", call_sweep, HAS_DB }, { "eval", call_eval, HAS_DB }, { "explain", call_explain, HAS_DB },
    { "fit", call_fit, HAS_DB }, { "bill", call_bill, HAS_DB }, { "phases", call_phases, HAS_DB }, { "limits", call_limits, PLAIN }, { "list", call_list, PLAIN }, { "import", call_import, PLAIN },
    { "export", call_export, PLAIN }, { "draw", call_draw, DRAWS },
};

/* ---- what a request may name ---- */

/* Options take names of files in the place of documents, alone or in a list: a request is answered without any. */
static const char *names_file(const char *text, char piece[PATH_MAX])
{
    struct stat s;

    for (const char *at = text, *end; ; at = end + 1) {
        end = at + strcspn(at, ",");
        size_t n = (size_t)(end - at);
        if (n > 0 && n < PATH_MAX) {
            memcpy(piece, at, n);
            piece[n] = '\0';
            if (stat(piece, &s) == 0)
                return piece;
        }
        if (!*end)
            return NULL;
    }
}

/* `key`: of the request's own; what is a text by itself is not read as a name. */
static int check_names(const char *key, const json_t *v)
{
    char piece[PATH_MAX];
    const char *k, *file;
    json_t *x;
    size_t i;

    if (key && (!strcmp(key, "text") || !strcmp(key, "oom_text")))
        return 0;
    if (json_is_string(v) && (file = names_file(json_string_value(v), piece)))
        return fail("%.200s: dpxplan serve reads no files: give the document itself", file);
    json_array_foreach((json_t *)v, i, x)
        if (check_names(NULL, x) < 0)
            return -1;
    json_object_foreach((json_t *)v, k, x)
        if (check_names(NULL, x) < 0)
            return -1;
    return 0;
}

/* The request that the library gets; NULL with the reason reported. */
static char *request_of(const struct served_call *c, const char *text, const char *db)
{
    json_error_t e;
    json_t *q = json_loads(text, JSON_REJECT_DUPLICATES, &e), *v;
    const char *key;
    char *out = NULL;
    int rc = 0;

    if (!q)
        fail("the request:%d:%d: malformed JSON: %s", e.line, e.column, e.text);
    else if (!json_is_object(q))
        fail("%s: a request is a JSON object", c->name);
    else if (json_object_get(q, "db"))
        fail("%s: db: dpxplan serve --db says which database", c->name);
    else {
        json_object_foreach(q, key, v)
            if (rc == 0 && c->kind != DRAWS)
                rc = check_names(key, v);
        if (rc == 0 && c->kind == HAS_DB && db)
            json_object_set_new(q, "db", json_string(db));
        out = rc == 0 ? json_dumps(q, JSON_COMPACT) : NULL;
    }
    json_decref(q);
    return out;
}

/* ---- runs that were recorded ---- */

static json_t *real_or_null(double v) { return isfinite(v) ? json_real(v) : json_null(); }
static json_t *bytes_or_null(int64_t n) { return n >= 0 ? json_integer(n) : json_null(); }

static json_t *run_json(const struct run_row *r)
{
    json_t *plan = json_loads(r->start.plan, 0, NULL);
    struct plan p;
    char words[PLAN_WORDS] = "", label[KNOB_LABEL] = "", refused[512];

    struct fail_sink before = fail_divert(refused, sizeof refused);     /* of an older dpx */
    if (plan && plan_from_json(plan, "plan", &p) == 0) {
        plan_words(&p, words, sizeof words);
        knob_label(&p, label, sizeof label);
        plan_free(&p);
    }
    fail_restore(before);
    return json_pack("{s:I, s:f, s:s?, s:s, s:s, s:s, s:s?, s:s?, s:I, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "id", (json_int_t)r->id, "started", r->start.started, "model", r->model, "strategy", r->strategy, "label", label, "words", words,
        "host", r->start.host, "device", r->start.device, "world_size", (json_int_t)r->start.world_size,
        "outcome", run_outcome_name(r->end.outcome), "steps", (json_int_t)r->steps,
        "step_s", real_or_null(r->end.step_s), "p10_s", real_or_null(r->end.p10_s), "p90_s", real_or_null(r->end.p90_s),
        "predicted_s", real_or_null(r->has_prediction ? r->predicted.step_s : NAN),
        "low_s", real_or_null(r->has_prediction ? r->predicted.low_s : NAN),
        "high_s", real_or_null(r->has_prediction ? r->predicted.high_s : NAN), "held_bytes", bytes_or_null(r->held_bytes), "predicted_held_bytes", bytes_or_null(r->has_prediction ? r->predicted.held_bytes : -1),
        "plan", plan ? plan : json_null());
}

/* The newest first; none where there is no database. */
static char *runs_text(const char *path, int *status)
{
    enum { MOST = 200 };
    char usual[PATH_MAX];
    struct run_list list = { 0 };
    json_t *rows = json_array();

    if (!path && db_default_path(usual, sizeof usual) == 0 && access(usual, R_OK) == 0)
        path = usual;
    struct db *db = path ? db_open_reader(path) : NULL;
    bool read = !path || (db && runs_list(db, &list) == 0);
    for (int64_t i = list.n - 1; read && i >= 0 && i >= list.n - MOST; i--)
        json_array_append_new(rows, run_json(&list.run[i]));
    run_list_free(&list);
    db_close(db);
    *status = read ? DPX_DONE : DPX_FAILED;
    json_t *doc = json_pack("{s:i, s:s?, s:o}", "dpx", DPX_API, "db", path, "runs", rows);
    char *text = read ? json_dumps(doc, JSON_COMPACT) : NULL;
    json_decref(doc);
    return text;
}

/* ---- an answer ---- */

struct told { http_progress *progress; void *watch; };

static int progress(void *of, long long done, long long total)
{
    const struct told *t = of;

    return !t->progress(t->watch, done, total);
}

static char *answer(void *of, const char *call, const char *request, http_progress *at, void *watch, int *status)
{
    const char *db = of;
    struct told told = { at, watch };
    struct dpx_watch w = { progress, &told };
    const struct served_call *c = NULL;
    char why[1024] = "", *text = NULL;

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        c = !strcmp(calls[i].name, call) ? &calls[i] : c;
    if (!c && strcmp(call, "runs"))
        return NULL;
    struct fail_sink before = fail_divert(why, sizeof why);
    *status = DPX_MISUSE;
    char *q = c ? request_of(c, request, db) : NULL;
    if (q)
        *status = c->ask(q, &w, &text);
    else if (!c)
        text = runs_text(db, status);
    free(q);
    fail_restore(before);
    return text ? text : strdup(why);
}

static int serve(int64_t port, const char *db, bool json)
{
    char folder[PATH_MAX], path[2 * PATH_MAX];
    struct http_service s = { served_page, served_page_size, answer, NULL };

    if (port > 65535) {
        fail("--port %lld: 65535 at most", (long long)port);
        return EXIT_MISUSE;
    }
    if (db && access(db, R_OK) < 0) {
        fail("--db %s: %s", db, strerror(errno));
        return EXIT_MISUSE;
    }
    if (db && getcwd(folder, sizeof folder)) {
        snprintf(path, sizeof path, "%s%s%s", *db == '/' ? "" : folder, *db == '/' ? "" : "/", db);
        s.of = path;
    }
    struct http *h = chdir("/") < 0 ? NULL : http_open(&s, (int)port);      /* names in requests are no files beside it */
    if (!h)
        return EXIT_FAILED;
    printf(json ? "{\"dpx\": 1, \"url\": \"%s\"}\n" : "%s\n", http_address(h));
    fflush(stdout);
    fprintf(stderr, "dpx: open this address in a browser of this machine; Ctrl-C ends it\n");
    http_wait(h);
    http_close(h);
    return EXIT_DONE;
}

#else

static int serve(int64_t port, const char *db, bool json)
{
    (void)port;
    (void)db;
    (void)json;
    fail("serve: this dpxplan was built without libmicrohttpd; install libmicrohttpd-dev and build it again, or open dpx.html (make page), "
         "which needs no server");
    return EXIT_MISUSE;
}

#endif

int cmd_serve(int argc, char **argv)
{
    const char *db = NULL;
    int64_t port = 0;
    bool json = false;
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxplan serve"),
        { "port", "of 127.0.0.1 (a free one)", .i = &port, .min = 1, .often = true },
        { "db", "the database of calibrations and runs", .str = &db, .value = "FILE", .often = true },
        { "json", "print the address as a JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan serve", "The planner as a page in this machine's browser, with its calibrations and recorded runs.  It "
                        "listens on 127.0.0.1 alone, answers only the page whose address it prints, and writes nothing.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (!freopen("/dev/null", "r", stdin)) {            /* the page's requests do not read the terminal: a path of theirs may be /dev/stdin */
        fail("/dev/null: %s", strerror(errno));
        return EXIT_FAILED;
    }
    return serve(port, db, json);
}
