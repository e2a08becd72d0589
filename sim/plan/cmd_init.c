/* cmd_init.c -- dpxplan init: asks for what is not given, searches, and writes the best plan with a comment on each
 * key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/output.h"
#include "base/page.h"
#include "base/size.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/commands.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/progress.h"
#include "sim/plan/search_args.h"
#include "sim/search/ranking.h"

/* ---- asking ---- */

/* A line of the terminal, or `usual` for an empty one; the caller's to free().  NULL at the end of input. */
static char *ask_line(const char *what, const char *usual)
{
    char line[512];

    fprintf(stderr, "%s [%s]: ", what, usual);
    if (!fgets(line, sizeof line, stdin))
        return NULL;
    line[strcspn(line, "\n")] = '\0';
    char *answer = strdup(line[0] ? line : usual);
    if (!answer)
        abort();
    return answer;
}

static int model_ok(const char *text, int64_t *n)
{
    struct model m;

    (void)n;
    if (model_load(text, &m) < 0)
        return -1;
    model_free(&m);
    return 0;
}

static int cluster_ok(const char *text, int64_t *n)
{
    struct cluster c;

    (void)n;
    return cluster_load(text, &c);
}

static int length_ok(const char *text, int64_t *n)
{
    return length_parse("seq", text, n) < 0 || *n < 1 ? fail("at least one token") : 0;
}

static int count_ok(const char *text, int64_t *n)
{
    return count_parse("global batch", text, n) < 0 || *n < 1 ? fail("at least one sample") : 0;
}

/* Until the answer is good; text in *s or number in *n.  -1 at the end of input. */
static int ask(const char *what, const char *usual, int (*ok)(const char *, int64_t *), const char **s, int64_t *n)
{
    char *answer;

    while ((answer = ask_line(what, usual))) {
        if (ok(answer, n) == 0) {
            if (s)
                *s = answer;            /* kept until the program ends */
            else
                free(answer);
            return 0;
        }
        free(answer);
    }
    return fail("init: the input ends before all is said");
}

/* Tools that `export` writes for; behind them "any", and PyTorch itself. */
static int framework_ok(const char *text, int64_t *n)
{
    const char *words[16], *near;
    int i = 0;

    for (; export_targets[i]; i++)
        words[i] = export_targets[i];
    words[i++] = "any";
    words[i++] = "torch";
    words[i++] = "pytorch";
    words[i] = NULL;
    for (*n = 0; words[*n]; ++*n)
        if (!strcmp(words[*n], text))
            return 0;
    near = opts_nearest_word(text, words);
    return fail("'%.60s' is none of these%s%s%s", text, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* The plan is one that this tool takes. */
static int ask_framework(struct search_args *a)
{
    int64_t n = 0, tools = 0;

    if (ask("What runs it: torch, accelerate, torchtitan, fsdp (your own PyTorch loop), deepspeed, megatron, or any", "any", framework_ok, NULL, &n) < 0)
        return -1;
    while (export_targets[tools])
        tools++;
    a->export_to = n < tools ? (int)n : -1;
    a->framework = n > tools ? FRAMEWORK_TORCH : a->framework;
    return 0;
}

/* `asked`: a framework or a tool was given. */
static int complete(struct search_args *a, bool asked)
{
    if (a->model && a->cluster && a->seq && a->global_batch)
        return 0;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return a->model && a->cluster ? 0 : fail("init: --%s is missing (on a terminal it is asked for)", !a->model ? "model" : "cluster");
    if ((!asked && ask_framework(a) < 0) ||
        (!a->model && ask("Model (a built-in name, a Hugging Face id, a config.json)", "llama-3.1-8b", model_ok, &a->model, NULL) < 0) ||
        (!a->cluster && ask("Cluster (nodes x GPUs x type, or a cluster file)", "1x8xh100", cluster_ok, &a->cluster, NULL) < 0) ||
        (!a->seq && ask("Tokens of a sample", "8k", length_ok, NULL, &a->seq) < 0) ||
        (!a->global_batch && ask("Samples of an optimizer step, over all GPUs", "128", count_ok, NULL, &a->global_batch) < 0))
        return -1;
    return 0;
}

/* ---- writing ---- */

static void comment(json_t *to, const char *key, const char *text)
{
    char name[100];

    snprintf(name, sizeof name, "// %s", key);
    json_object_set_new(to, name, json_string(text));
}

static void knob_comment(const struct knob *k, char *to, size_t size)
{
    char values[KNOB_RANGE_TEXT], usual[96];

    knob_range_text(k, values, sizeof values);
    knob_default_text(k, usual, sizeof usual);
    snprintf(to, size, "%s; %s; default %s", k->about, values, usual);
}

/* By its name; a file (which may lie elsewhere later), and what options changed, as an object. */
static void named(json_t *doc, const json_t *plain, const char *key, const char *name, bool changed)
{
    if (changed || access(name, F_OK) == 0)
        json_object_set(doc, key, json_object_get(plain, key));
    else
        json_object_set_new(doc, key, json_string(name));
}

/* The plan with its model and cluster as they were named. */
static json_t *commented(const struct plan *p, const struct search_args *a)
{
    json_t *plain = plan_to_json(p), *doc = json_object();
    const struct knob *k;
    char text[PLAN_WORDS + 100], words[PLAN_WORDS];

    plan_words(p, words, sizeof words);
    snprintf(text, sizeof text, "%s; keys that begin with // are comments; omitted keys take their defaults", words);
    json_object_set_new(doc, "//", json_string(text));
    json_object_set_new(doc, "dpx_plan", json_integer(1));
    comment(doc, "model", "a built-in name (dpxplan list models), a Hugging Face id of one, a config.json or its folder");
    named(doc, plain, "model", a->model, false);
    comment(doc, "cluster", "nodes x GPUs x type, a built-in name, or a cluster file (dpxplan list clusters --example)");
    named(doc, plain, "cluster", a->cluster, a->memory > 0 || a->headroom >= 0);
    comment(doc, "strategy", "dp, ddp, zero1, zero2, zero3, fsdp; dialect: whose; dpxplan list strategies shows the pairs");
    json_object_set_new(doc, "strategy", json_string(strategy_name(p->strategy)));
    json_object_set_new(doc, "dialect", json_string(dialect_name(p->dialect)));
    for (int i = 0; (k = knob_at(i)); i++) {
        if (!(k->cells & knob_cell(p)))
            continue;
        json_t *from = knob_object_at(plain, k->object), *to = knob_object_at(doc, k->object);
        knob_comment(k, text, sizeof text);
        comment(to, k->name, text);
        json_object_set(to, k->name, json_object_get(from, k->name));
    }
    json_decref(plain);
    return doc;
}

static int write_plan(const struct plan *p, const struct search_args *a, const char *path, bool plain)
{
    json_t *doc = plain ? plan_to_json(p) : commented(p, a);
    struct output o;
    int rc = -1;

    if (!path)
        return dpxplan_print_json(doc, 0) == 0 ? 0 : -1;
    if (output_open(&o, path) == 0) {
        json_dumpf(doc, o.f, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17));
        fputc('\n', o.f);
        rc = output_close(&o);
    }
    json_decref(doc);
    return rc;
}

/* On standard error, beside the plan. */
static void say(const struct question *q, const struct ranked *best, const struct search_args *a, const char *path)
{
    FILE *page = page_open(stderr);
    char words[PLAN_WORDS];

    if (!page)
        return;
    plan_words(&best->found->plan, words, sizeof words);
    answer_question(q, page);
    fprintf(page, "%s: %s. A step takes %s%s%s.\n", path ? path : "The plan", words, answer_seconds(best->found->step_s).s,
            best->tight ? "; tight: less than usual stays free, or PyTorch's allocator runs full" : "", best->waits ? "; " ANSWER_WAITS : "");
    fprintf(page, "`dpxplan eval %s` shows all of it.\n", path ? path : "PLAN.json");
    if (a->export_to >= 0)
        fprintf(page, "`dpxplan export %s --to %s` writes it for %s.\n", path ? path : "PLAN.json", export_targets[a->export_to],
                export_targets[a->export_to]);
    page_close(page);
}

static int best(const struct search_args *a, struct question *q, const char *path, bool json)
{
    struct search_result r;
    struct ranked first;
    int64_t tied;
    struct progress watch;
    int rc;

    if (path && output_check(path) < 0)
        return EXIT_FAILED;
    search_args_grid(a, &q->options);
    progress_watch(&watch, "looking for the best plan");
    rc = search(&q->options, &r) < 0 ? EXIT_MISUSE : EXIT_NO;
    progress_end(&watch);
    if (rc == EXIT_MISUSE)
        return rc;
    int64_t n = r.nfit ? ranking(&r, &first, 1, &tied) : 0;
    if (n < 0)
        rc = EXIT_FAILED;
    else if (n == 0)
        fail("init: none of %lld plans fits; dpxplan search says what would", (long long)r.n);
    else
        rc = write_plan(&first.found->plan, a, path, json) < 0 ? EXIT_FAILED : EXIT_DONE;
    if (rc == EXIT_DONE)
        say(q, &first, a, path);
    search_free(&r);
    return rc;
}

int cmd_init(int argc, char **argv)
{
    struct search_args a = SEARCH_ARGS;
    const char *path = NULL;
    bool json = false;
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxplan init --framework torch --model llama-3.1-8b --cluster 8xh100 \\\n      --seq 8k --global-batch 64 -o plan.json"),
        SEARCH_OPTS_AS(a, false, true),
        { "output", "where to write plan.json (standard output)", .str = &path, .letter = 'o', .value = "FILE" },
        { "json", "the plan without comments", .flag = &json },
        { 0 }
    };
    struct question q;
    a.framework = -1;
    int rc = opts_parse("dpxplan init", "A first plan: the best of a search, with a comment on each key.  Asks on a terminal for what is\n"
                        "not given.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    bool asked = a.framework >= 0 || a.export_to >= 0;
    a.framework = a.framework >= 0 ? a.framework : FRAMEWORK_ANY;
    if (complete(&a, asked) < 0)
        return EXIT_MISUSE;
    if ((rc = search_args_load(&a, &q)) != EXIT_DONE)
        return rc;
    rc = best(&a, &q, path, json);
    search_question_free(&q);
    return rc;
}
