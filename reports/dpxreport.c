/* dpxreport.c -- what was predicted, what happened, and why, as a page. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/answer.h"
#include "base/fail.h"
#include "base/opts.h"
#include "base/page.h"
#include "base/size.h"
#include "calib/store/db.h"
#include "model/plan/modelled.h"
#include "reports/kineto/kineto.h"
#include "reports/page/report.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_MISUSE = 2 };

struct args {
    const char *db, *output, *kineto, *plan, *sweep, *answer;
    bool    json;
    int64_t id[MAX_RUNS];
    int     nids;
};

/* ---- --run 3 5,7 ---- */

static bool is_list(const char *s)
{
    return *s && strspn(s, "0123456789,") == strlen(s);
}

static int take_ids(struct args *a, const char *list)
{
    char word[32];

    while (*list) {
        size_t n = strcspn(list, ",");
        int64_t id;
        if (n >= sizeof word)
            return fail("--run: %s is not a run's number", list);
        snprintf(word, sizeof word, "%.*s", (int)n, list);
        if (count_parse("--run", word, &id) < 0)
            return -1;
        if (id < 1)
            return fail("--run: runs are numbered from 1");
        if (a->nids == MAX_RUNS)
            return fail("--run: at most %d runs fit on a page", MAX_RUNS);
        a->id[a->nids++] = id;
        list += n + (list[n] == ',');
    }
    return 0;
}

/* Takes `--run ID ...` out of the command line: it has several values, and may stand more than once.
 * Returns how many words are left, -1 reported. */
static int take_runs(struct args *a, int argc, char **argv)
{
    int left = 0;

    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "--run=", 6)) {
            if (!is_list(argv[i] + 6))
                return fail("--run: %s is not a run's number", argv[i] + 6);
            if (take_ids(a, argv[i] + 6) < 0)
                return -1;
            continue;
        }
        if (strcmp(argv[i], "--run")) {
            argv[left++] = argv[i];
            continue;
        }
        if (i + 1 >= argc || !is_list(argv[i + 1]))
            return fail("--run: the numbers of runs are missing: --run 3 5");
        while (i + 1 < argc && is_list(argv[i + 1]))
            if (take_ids(a, argv[++i]) < 0)
                return -1;
    }
    argv[left] = NULL;
    return left;
}

/* ---- the report ---- */

/* Which runs; the path of the database they are from. */
static int read_runs(const struct args *a, struct comparison *c, char *path, int size)
{
    struct db *db = db_open_reader(a->db);

    if (!db)
        return db_exit_status();
    if (a->db)
        snprintf(path, (size_t)size, "%s", a->db);
    else if (db_default_path(path, size) < 0)
        path[0] = '\0';
    int rc = compare_read(db, a->id, a->nids, c);
    db_close(db);
    return rc == 0 ? EXIT_DONE : db_exit_status() ? db_exit_status() : a->nids > 0 ? EXIT_MISUSE : EXIT_FAILED;
}

static int say_page(const struct args *a)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/index.html", a->output);
    if (a->json)
        return answer_print(json_pack("{s:i, s:s}", "dpx", 1, "page", path), EXIT_DONE);
    puts(path);
    return EXIT_DONE;
}

/* A sweep and plans stand alone, but for runs that are asked for by --db or --run. */
static int report(const struct args *a)
{
    bool runs = (!a->sweep && !a->answer) || a->db || a->nids > 0;
    struct report_sweep *sweep = a->sweep ? report_sweep_read(a->sweep) : NULL;
    struct report_plans *plans = a->answer ? report_plans_read(a->answer) : NULL;
    struct comparison c = { 0 };
    struct report r;
    char path[4096] = "";
    int status = (a->sweep && !sweep) || (a->answer && !plans) ? EXIT_MISUSE : runs ? read_runs(a, &c, path, sizeof path) : EXIT_DONE;

    if (status == EXIT_DONE) {
        report_make(runs ? &c : NULL, sweep, plans, &r);
        status = report_write(&r, path, a->output) < 0 ? EXIT_FAILED : EXIT_DONE;
        report_free(&r);
        if (runs)
            compare_free(&c);
    }
    if (status == EXIT_DONE)
        status = say_page(a);
    report_sweep_free(sweep);
    report_plans_free(plans);
    return status;
}

/* ---- a trace ---- */

/* On standard output; with -o as a page instead, and of --json both. */
static int kineto(const struct args *a)
{
    char title[4200], *text = NULL;
    size_t size = 0;
    FILE *table = a->output ? open_memstream(&text, &size) : a->json ? NULL : stdout, *page = table ? page_open(table) : NULL;

    if ((a->output || !a->json) && !page) {
        fail("out of memory for the page");
        return EXIT_FAILED;
    }
    json_t *doc = NULL;
    int status = kineto_cmd(a->kineto, a->plan, a->db, page, a->json ? &doc : NULL);
    if (page)
        page_close(page);
    if (a->output && fclose(table) != 0 && status == EXIT_DONE)
        status = EXIT_FAILED;
    snprintf(title, sizeof title, "%s%s%s", a->kineto, a->plan ? " beside " : "", a->plan ? a->plan : "");
    if (a->output && status == EXIT_DONE && report_write_text(a->output, title, text) < 0)
        status = EXIT_FAILED;
    free(text);
    if (doc && status == EXIT_DONE)
        return answer_print(doc, status);
    json_decref(doc);
    return a->output && status == EXIT_DONE ? say_page(a) : status;
}

int main(int argc, char **argv)
{
    struct args a = { .db = NULL };
    const char *runs;           /* taken out before: only --help reads its row */
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxreport -o report"),
        OPTS_EXAMPLE("dpxreport --sweep scaling.json -o report"),
        OPTS_EXAMPLE("dpxreport --kineto trace.json.gz --plan plan.json"),
        { "output", "folder for index.html, summary.md, csv/ and figures/; with --kineto for its page", .str = &a.output, .letter = 'o',
          .value = "DIR", .often = true },
        { "run", "runs by their number in the database; without it the newest of each plan, of those that did the same work on one machine",
          .str = &runs, .value = "ID...", .often = true },
        { "kineto", "compare a trace of PyTorch's profiler (may be gzipped) with a plan", .str = &a.kineto,
          .value = "TRACE.json", .often = true },
        { "plan", "the plan of the traced run", .str = &a.plan, .value = "PLAN.json", .often = true },
        { "sweep", "what dpxplan sweep --json wrote, as figures and a table; beside runs with --db or --run, else alone",
          .str = &a.sweep, .value = "SWEEP.json", .often = true },
        { "answer", "what dpxplan eval, explain (--detail: with the step) or search wrote with --json: a page of plans, without a run",
          .str = &a.answer, .value = "ANSWER.json", .often = true },
        { "db", "the database", .str = &a.db, .value = "FILE" },
        { "json", "print one JSON document: of --kineto the comparison, else where the page is", .flag = &a.json },
        { 0 }
    };
    char **rest = calloc((size_t)argc + 1, sizeof *rest);

    answers_begin(argc, argv, modelled_add);
    if (!rest)
        abort();
    memcpy(rest, argv, (size_t)argc * sizeof *rest);
    int left = take_runs(&a, argc, rest), status = EXIT_MISUSE;
    int rc =
        left < 0
            ? OPTS_ERROR
            : opts_parse_program("dpxreport", "Makes one page of what was predicted and what was measured: runs of dpxrun, a sweep, a trace of "
                                 "your own training, or plans without a run.", opts, left, rest);
    if (rc == OPTS_DONE)
        status = EXIT_DONE;
    else if (rc == OPTS_OK && a.kineto && (a.sweep || a.answer))
        fail("%s beside --kineto: a page shows one of them", a.sweep ? "--sweep" : "--answer");
    else if (rc == OPTS_OK && a.answer && (a.sweep || a.db || a.nids > 0))
        fail("--answer stands alone: give %s to another page", a.sweep ? "--sweep" : a.db ? "--db" : "--run");
    else if (rc == OPTS_OK && a.kineto)
        status = kineto(&a);
    else if (rc == OPTS_OK && a.plan)
        fail("--plan belongs to --kineto TRACE.json");
    else if (rc == OPTS_OK && !a.output)
        fail("-o DIR is missing: where to write the report");
    else if (rc == OPTS_OK)
        status = report(&a);
    free(rest);
    answers_end(status);
    bool lost = ferror(stdout) != 0;
    if ((fflush(stdout) != 0 || lost) && status == EXIT_DONE) {
        fail("cannot write to standard output");
        status = EXIT_FAILED;
    }
    return status;
}
