/* report_page.c -- the report's files: the page, its tables as CSV, its figures. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/chart/chart_page.h"
#include "base/fail.h"
#include "base/output.h"
#include "reports/page/report.h"

/* Rows of a table on the page; its CSV has all. */
enum { MOST_ROWS = 200 };

/* ---- a report ---- */

struct chart *report_chart(struct report *r, enum chart_kind k, const char *id, const char *title,
                           const char *caption)
{
    report_add_chart(r, chart_new(k, id, title, caption));
    return r->chart[r->ncharts - 1];
}

void report_add_chart(struct report *r, struct chart *c)
{
    if (r->ncharts == MAX_CHARTS)
        abort();
    r->chart[r->ncharts++] = c;
}

void report_missing(struct report *r, const char *what, const char *why)
{
    struct prose *p = r->words[WORDS_MISSING];

    prose_put(p, what);
    prose_put(p, ": ");
    prose_put(p, why);
    prose_put(p, ".");
    prose_end(p);
}

void report_make(const struct comparison *c, const struct report_sweep *sweep, const struct report_plans *plans, struct report *out)
{
    memset(out, 0, sizeof *out);
    out->c = c;
    out->sweep = sweep;
    out->plans = plans;
    for (int i = 0; i < NWORDS; i++)
        out->words[i] = prose_new();
    if (sweep) {
        out->table[TABLE_SWEEP] = report_sweep_table(sweep);
        report_sweep_figures(out, sweep);
        report_sweep_words(out, sweep);
    }
    if (plans)
        report_plans_into(out, plans);
    if (!c)
        return;
    report_tables(out);
    report_figures(out);
    report_curves(out);
    report_words(out);
}

void report_free(struct report *r)
{
    for (int i = 0; i < NTABLE; i++)
        table_free(r->table[i]);
    for (int i = 0; i < NWORDS; i++)
        prose_free(r->words[i]);
    for (int i = 0; i < r->ncharts; i++)
        chart_free(r->chart[i]);
    memset(r, 0, sizeof *r);
}

/* ---- files ---- */

/* The folder itself, and those above it that are not there yet. */
static int make_folder(const char *path)
{
    char part[4096];
    size_t n = strlen(path);

    if (n == 0 || n >= sizeof part)
        return fail("-o: the path of a folder has 1 to %zu bytes", sizeof part - 1);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char was = part[i];
        part[i] = '\0';
        if (mkdir(part, 0777) < 0 && errno != EEXIST && errno != EROFS && errno != EISDIR)
            return fail("%s: cannot make the folder: %s", part, strerror(errno));
        part[i] = was;
    }
    return 0;
}

static int in_folder(char *to, size_t size, const char *folder, const char *name, const char *suffix)
{
    int n = snprintf(to, size, "%s/%s%s", folder, name, suffix);

    return n > 0 && (size_t)n < size ? 0 : fail("%s: the path is too long", folder);
}

static int write_text(const char *folder, const char *name, const char *suffix, const struct text *t)
{
    char path[4096];
    struct output o;

    if (in_folder(path, sizeof path, folder, name, suffix) < 0 || output_open(&o, path) < 0)
        return -1;
    fwrite(t->s ? t->s : "", 1, t->n, o.f);
    return output_close(&o);
}

static int write_tables(const struct report *r, const char *folder)
{
    struct text t = { 0 };
    int rc = 0;

    for (int i = 0; i < NTABLE && rc == 0; i++) {
        if (!r->table[i])
            continue;
        t.n = 0;
        table_csv(r->table[i], &t);
        rc = write_text(folder, table_id(r->table[i]), ".csv", &t);
    }
    text_free(&t);
    return rc;
}

/* ---- figures ---- */

/* Each as a file. */
static int draw(const struct report *r, const char *folder)
{
    char path[4096];
    int rc = 0;

    for (int i = 0; i < r->ncharts && rc == 0; i++) {
        rc = in_folder(path, sizeof path, folder, r->chart[i]->id, ".svg");
        if (rc == 0)
            rc = chart_file(r->chart[i], path);
    }
    return rc;
}

/* ---- the page ---- */

static const char style[] =
    ":root{color-scheme:light dark}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;padding:24px 20px 60px;max-width:1040px;background:var(--card);color:var(--fg);"
    "font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
    "Sans',sans-serif;overflow-wrap:anywhere}\n"
    "h1{font-size:1.6rem;line-height:1.25;margin:0 0 .3em}h2{font-size:1.2rem;margin:2em 0 .5em;"
    "border-bottom:1px solid var(--line);padding-bottom:.2em}h3{font-size:1rem;margin:0 0 .2em}\n"
    "p,ul{margin:.5em 0}ul{padding-left:1.3em}li{margin:.3em "
    "0}.dim,figcaption{color:var(--dim);font-size:.9rem}\n"
    ".verdict{background:var(--soft);border-left:4px solid var(--good);padding:.6em 1em;margin:1em 0}\n"
    "b[data-q]{font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    "figure{margin:1.8em 0;break-inside:avoid}figure "
    "svg{display:block;max-width:100%;height:auto;margin-top:.5em;"
    "font:12px system-ui,'DejaVu Sans',sans-serif}figure .narrow{display:none}\n"
    "@media screen and (max-width:760px){body{padding:16px 20px 40px}figure .wide{display:none}"
    "figure .narrow{display:block}}\n"
    ".scroll{overflow-x:auto;margin:1em 0}table{border-collapse:collapse;font-size:.82rem;"
    "font-variant-numeric:tabular-nums}caption{text-align:left;font-weight:600;padding:.3em "
    "0;font-size:.95rem}\n"
    "th,td{padding:.25em .6em;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}"
    "th.name,td.name{text-align:left}td.name{max-width:22em;overflow:hidden;text-overflow:ellipsis}"
    "thead "
    "th{color:var(--dim);font-weight:600;white-space:normal;vertical-align:bottom;overflow-wrap:normal}\n"
    "@media print{body{max-width:none;padding:0}.scroll{overflow:visible}h2{break-after:avoid}}\n";

static void put_style(struct text *t)
{
    /* Nothing may be loaded and nothing may run, whatever stands in the page. */
    text_put(t, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                "'unsafe-inline'; "
                "img-src data:\">\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                "<link rel=\"icon\" href=\"data:,\">\n<title>dpx: predicted and measured</title>\n<style>\n");
    text_put(t, style);
    chart_page_colours(t);
    text_put(t, "</style>\n</head>\n<body>\n");
}

static void put_runs(const struct comparison *c, const char *database, struct text *t)
{
    if (c->n > 0) {
        const struct run_row *first = &c->run[0].rec.row;
        text_put(t, "Model <bdi class=\"name\">");
        text_html(t, c->together ? compare_model_words(first) : "several kinds of work");
        text_put(t, "</bdi> on <bdi class=\"name\">");
        text_html(t, first->start.host);
        text_put(t, "</bdi>, <bdi class=\"name\">");
        text_html(t, first->start.cpu);
        text_add(t, "</bdi>, <b data-q=\"runs/%" PRId64 "/world_size\">%" PRId64 "</b> ranks. ", first->id,
                 first->start.world_size);
    }
    text_put(t, "From the database <bdi class=\"name\">");
    text_html(t, database);
    text_put(t, "</bdi>. ");
}

static const char *heading(const struct report *r)
{
    return r->c ? "Distributed training: what was predicted, what happened" : "Distributed training: what is predicted";
}

static void put_head(const struct report *r, const char *database, struct text *t)
{
    put_style(t);
    text_add(t, "<header>\n<h1>%s</h1>\n<p class=\"dim\">", heading(r));
    if (r->c)
        put_runs(r->c, database, t);
    if (r->sweep) {
        text_put(t, "The sweep is from <bdi class=\"name\">");
        text_html(t, report_sweep_path(r->sweep));
        text_put(t, "</bdi>.");
    }
    if (r->plans) {
        text_put(t, "The plans are from <bdi class=\"name\">");
        text_html(t, report_plans_path(r->plans));
        text_put(t, "</bdi>.");
    }
    text_put(t, "</p>\n</header>\n");
}

static void put_words(const struct report *r, enum report_words w, const char *title, struct text *t)
{
    if (prose_paragraphs(r->words[w]) == 0)
        return;
    text_add(t, "<section><h2>%s</h2>\n<ul>\n", title);
    prose_html(r->words[w], "<li>", "</li>\n", t);
    text_put(t, "</ul></section>\n");
}

static void put_chart(const struct chart *c, struct text *t)
{
    text_add(t, "<figure id=\"%s\"><h3 class=\"name\">", c->id);
    text_html(t, c->title);
    text_put(t, "</h3><figcaption class=\"name\">");
    text_html(t, c->caption);
    text_put(t, "</figcaption>\n");
    chart_page(c, t);
    text_put(t, "</figure>\n");
}

static bool on_page(const struct report *r, int table)
{
    return r->table[table] && table != TABLE_PLANS && table != TABLE_FACTS && table != TABLE_ENTRIES && table != TABLE_MOMENTS &&
           table_rows(r->table[table]) > 0;
}

static void put_figures(const struct report *r, struct text *t)
{
    text_put(t, "<section><h2>Figures</h2>\n");
    for (int i = 0; i < r->ncharts; i++)
        put_chart(r->chart[i], t);
    text_put(t, "</section>\n");
}

/* What a reader wants first, then the evidence. */
static void put_page(const struct report *r, const char *database, struct text *t)
{
    put_head(r, database, t);
    text_put(t, "<main>\n<section class=\"verdict\" aria-label=\"Which plan to use\">\n");
    prose_html(r->words[WORDS_VERDICT], "<p>", "</p>\n", t);
    prose_html(r->words[WORDS_SWEEP], "<p>", "</p>\n", t);
    prose_html(r->words[WORDS_PLANS], "<p>", "</p>\n", t);
    text_put(t, "</section>\n");
    if (r->c && r->c->n > 0)
        table_html(r->table[TABLE_PLANS], t, MOST_ROWS);
    put_figures(r, t);
    put_words(r, WORDS_DIFFERENCES, "Where prediction and run differ", t);
    put_words(r, WORDS_PIPELINE, "Stages of a pipeline", t);
    put_words(r, WORDS_COMMUNICATION, "Communication in a step", t);
    put_words(r, WORDS_UNCALIBRATED, "What was not calibrated", t);
    put_words(r, WORDS_MISSING, "Left out, for want of data", t);
    text_put(t, "<section><h2>Tables</h2>\n");
    for (int i = 0; i < NTABLE; i++)
        if (on_page(r, i))
            table_html(r->table[i], t, MOST_ROWS);
    text_put(t, "</section>\n</main>\n<footer class=\"dim\"><p>Beside this page: csv/ has every table in "
                "full precision, summary.md a summary for a pull request, figures/ the figures as SVG.</p>");
    text_add(t, "<p>Every number here is read from %s or computed from it; where it stands in the CSV files is "
                "written beside it in the page's source.</p></footer>\n</body>\n</html>\n",
             !r->c ? r->sweep ? "the sweep" : "the answer" : r->sweep ? "the database or the sweep" : "the database");
}

static void put_summary(const struct report *r, struct text *t)
{
    static const char *const titles[NWORDS] = { "", "", "", "Where prediction and run differ",
                                                "Stages of a pipeline", "Communication in a step", "What was not calibrated",
                                                "Left out, for want of data" };

    text_put(t, r->c ? "# dpx: predicted and measured\n\n" : "# dpx: predicted\n\n");
    prose_markdown(r->words[WORDS_VERDICT], "", t);
    prose_markdown(r->words[WORDS_SWEEP], "", t);
    prose_markdown(r->words[WORDS_PLANS], "", t);
    text_put(t, "\n");
    table_markdown(r->table[r->c ? TABLE_PLANS : r->sweep ? TABLE_SWEEP : TABLE_PREDICTIONS], t, MOST_ROWS);
    for (int w = WORDS_DIFFERENCES; w < NWORDS; w++) {
        if (prose_paragraphs(r->words[w]) == 0)
            continue;
        text_add(t, "\n## %s\n\n", titles[w]);
        prose_markdown(r->words[w], "- ", t);
    }
    if (r->ncharts > 0)
        text_put(t, "\n## Figures\n\n");
    for (int i = 0; i < r->ncharts; i++) {
        text_put(t, "- [");
        text_markdown(t, r->chart[i]->title);
        text_add(t, "](figures/%s.svg)\n", r->chart[i]->id);
    }
}

/* A name has no lines; a table has. */
static void put_lines(const char *text, struct text *t)
{
    char line[1024];

    while (*text) {
        size_t n = strcspn(text, "\n"), part = n < sizeof line ? n : sizeof line - 1;
        snprintf(line, sizeof line, "%.*s", (int)part, text);
        text_html(t, line);
        text += part;
        if (*text == '\n') {
            text_put(t, "\n");
            text++;
        }
    }
}

int report_write_text(const char *folder, const char *title, const char *text)
{
    struct text page = { 0 };
    int rc;

    put_style(&page);
    text_put(&page, "<header>\n<h1 class=\"name\">");
    text_html(&page, title);
    text_put(&page, "</h1>\n</header>\n<main>\n<div class=\"scroll\"><pre>");
    put_lines(text, &page);
    text_put(&page, "</pre></div>\n</main>\n</body>\n</html>\n");
    rc = make_folder(folder) < 0 ? -1 : write_text(folder, "index", ".html", &page);
    text_free(&page);
    return rc;
}

int report_write(const struct report *r, const char *database, const char *folder)
{
    char csv[4096], figures[4096];
    struct text page = { 0 }, summary = { 0 };
    int rc = -1;

    if (in_folder(csv, sizeof csv, folder, "csv", "") < 0 ||
        in_folder(figures, sizeof figures, folder, "figures", "") < 0 || make_folder(folder) < 0 ||
        make_folder(csv) < 0 || make_folder(figures) < 0 || write_tables(r, csv) < 0 || draw(r, figures) < 0)
        return -1;
    put_page(r, database, &page);
    put_summary(r, &summary);
    if (write_text(folder, "summary", ".md", &summary) == 0 && write_text(folder, "index", ".html", &page) == 0)
        rc = 0;
    text_free(&page);
    text_free(&summary);
    return rc;
}
