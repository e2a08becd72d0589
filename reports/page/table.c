/* table.c -- cells of a table and its three forms; each number on the page names its place. */
#include "reports/page/table.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"

enum { MAX_COLUMNS = 32 };

struct column { const char *name, *title; enum measure unit; bool shown; };
struct cell { const char *text; double number; };

struct table {
    const char *id, *title;
    struct column column[MAX_COLUMNS];
    int ncolumns;
    struct cell *cell;              /* row by row */
    const char **key;
    int64_t ncells, nrows, room_cells, room_rows;
    struct kept *kept;
};

struct table *table_new(const char *id, const char *title)
{
    struct table *t = calloc(1, sizeof *t);

    if (!t)
        abort();
    t->id = id;
    t->title = title;
    return t;
}

void table_free(struct table *t)
{
    if (!t)
        return;
    free(t->cell);
    free(t->key);
    text_kept_free(t->kept);
    free(t);
}

const char *table_id(const struct table *t) { return t->id; }
int64_t table_rows(const struct table *t) { return t->nrows; }

void table_column(struct table *t, const char *name, const char *title, enum measure u, int is_shown)
{
    assert(t->ncolumns < MAX_COLUMNS && t->nrows == 0);
    t->column[t->ncolumns++] = (struct column){ name, title, u, is_shown == SHOWN };
}

void table_row(struct table *t, const char *key, ...)
{
    char words[160];
    va_list a;

    assert(t->ncells == t->nrows * t->ncolumns);
    va_start(a, key);
    vsnprintf(words, sizeof words, key, a);
    va_end(a);
    for (char *c = words; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              strchr("_.-", *c)))
            *c = '_';
    t->key = room_for(t->key, t->nrows, &t->room_rows, sizeof *t->key);
    t->key[t->nrows++] = text_keep(&t->kept, words);
}

static void put(struct table *t, const char *s, double v)
{
    assert(t->ncells < t->nrows * t->ncolumns);
    t->cell = room_for(t->cell, t->ncells, &t->room_cells, sizeof *t->cell);
    t->cell[t->ncells++] = (struct cell){ s, v };
}

void table_number(struct table *t, double v) { put(t, NULL, v); }
void table_bytes(struct table *t, int64_t v) { put(t, NULL, v < 0 ? NAN : (double)v); }
void table_text(struct table *t, const char *s) { put(t, s ? text_keep(&t->kept, s) : NULL, NAN); }

static const struct cell *at(const struct table *t, int64_t row, int column)
{
    return &t->cell[row * t->ncolumns + column];
}

static int64_t first_of(const struct table *t, int64_t most)
{
    return t->nrows > most ? t->nrows - most : 0;
}

/* ---- HTML ---- */

static void html_cell(const struct table *t, struct text *to, int64_t row, int c)
{
    const struct cell *x = at(t, row, c);

    if (t->column[c].unit == UNIT_TEXT) {
        text_put(to, "<td class=\"name\">");
        text_html(to, x->text ? x->text : "–");
        text_put(to, "</td>");
    } else if (!isfinite(x->number)) {
        text_put(to, "<td>–</td>");
    } else {
        text_add(to, "<td data-q=\"%s/%s/%s\">%s</td>", t->id, t->key[row], t->column[c].name,
                 unit_shown(t->column[c].unit, x->number).s);
    }
}

void table_html(const struct table *t, struct text *to, int64_t most)
{
    int64_t first = first_of(t, most);

    text_add(to,
             "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table id=\"table-%s\">"
             "<caption>%s",
             t->title, t->id, t->title);
    if (first > 0)
        text_add(to,
                 " <span class=\"name\">(the last %" PRId64 " of %" PRId64 "; all are in csv/%s.csv)</span>",
                 t->nrows - first, t->nrows, t->id);
    text_put(to, "</caption>\n<thead><tr>");
    for (int c = 0; c < t->ncolumns; c++)
        if (t->column[c].shown)
            text_add(to, "<th scope=\"col\"%s>%s</th>",
                     t->column[c].unit == UNIT_TEXT ? " class=\"name\"" : "", t->column[c].title);
    text_put(to, "</tr></thead>\n<tbody>\n");
    for (int64_t r = first; r < t->nrows; r++) {
        text_put(to, "<tr>");
        for (int c = 0; c < t->ncolumns; c++)
            if (t->column[c].shown)
                html_cell(t, to, r, c);
        text_put(to, "</tr>\n");
    }
    text_put(to, "</tbody></table></div>\n");
}

/* ---- Markdown ---- */

void table_markdown(const struct table *t, struct text *to, int64_t most)
{
    int64_t first = first_of(t, most);

    text_put(to, "|");
    for (int c = 0; c < t->ncolumns; c++)
        if (t->column[c].shown)
            text_add(to, " %s |", t->column[c].title);
    text_put(to, "\n|");
    for (int c = 0; c < t->ncolumns; c++)
        if (t->column[c].shown)
            text_put(to, t->column[c].unit == UNIT_TEXT ? " --- |" : " ---: |");
    text_put(to, "\n");
    for (int64_t r = first; r < t->nrows; r++) {
        text_put(to, "|");
        for (int c = 0; c < t->ncolumns; c++) {
            if (!t->column[c].shown)
                continue;
            text_put(to, " ");
            if (t->column[c].unit == UNIT_TEXT)
                text_markdown(to, at(t, r, c)->text ? at(t, r, c)->text : "–");
            else
                text_put(to, unit_shown(t->column[c].unit, at(t, r, c)->number).s);
            text_put(to, " |");
        }
        text_put(to, "\n");
    }
    if (first > 0)
        text_add(to, "\nThe last %" PRId64 " of %" PRId64 ".\n", t->nrows - first, t->nrows);
}

/* ---- CSV ---- */

void table_csv(const struct table *t, struct text *to)
{
    text_put(to, "row");
    for (int c = 0; c < t->ncolumns; c++)
        text_add(to, ",%s", t->column[c].name);
    text_put(to, "\r\n");
    for (int64_t r = 0; r < t->nrows; r++) {
        text_put(to, t->key[r]);
        for (int c = 0; c < t->ncolumns; c++) {
            const struct cell *x = at(t, r, c);
            text_put(to, ",");
            if (x->text)
                text_csv(to, x->text);
            else if (isfinite(x->number))
                text_add(to, "%.17g", x->number);
        }
        text_put(to, "\r\n");
    }
}
