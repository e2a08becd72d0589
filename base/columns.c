/* columns.c -- see columns.h. */
#define _GNU_SOURCE             /* vasprintf() */
#include "base/columns.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/page.h"
#include "base/room.h"

/* A last column that is wider than ROOMY goes below its row where there is less room, or less than a third of the page. */
enum { MOST = 16, GAP = 2, INDENT = 2, BELOW = 4, ROOMY = 30 };

struct columns {
    const struct column *column;
    int     n;
    int64_t cells, room;
    char  **cell;
};

struct columns *columns_new(const struct column *columns, int n)
{
    struct columns *t = room_new(1, sizeof *t);

    assert(n > 0 && n <= MOST);
    t->column = columns;
    t->n = n;
    return t;
}

void columns_cell(struct columns *t, const char *format, ...)
{
    va_list more;

    t->cell = room_for(t->cell, t->cells, &t->room, sizeof *t->cell);
    va_start(more, format);
    if (vasprintf(&t->cell[t->cells], format, more) < 0)
        t->cell[t->cells] = NULL;
    va_end(more);
    t->cells++;
}

static int width_of(const char *s) { return s ? page_columns(s, strlen(s)) : 0; }

/* The title and the cells; 0 where there is nothing in the column. */
static int widest(const struct columns *t, int i)
{
    int most = 0;

    for (int64_t at = i; at < t->cells; at += t->n)
        most = width_of(t->cell[at]) > most ? width_of(t->cell[at]) : most;
    return most > 0 && width_of(t->column[i].title) > most ? width_of(t->column[i].title) : most;
}

/* Of the first n columns. */
static int sum_of(const int wide[MOST], int n)
{
    int sum = INDENT - GAP;

    for (int i = 0; i < n; i++)
        sum += wide[i] > 0 ? wide[i] + GAP : 0;
    return sum;
}

/* Sets the widths of columns that fall away to 0; true: the last column goes below. */
static bool fit(const struct columns *t, int wide[MOST], int width)
{
    bool wraps = !t->column[t->n - 1].right && wide[t->n - 1] > ROOMY;
    int before = sum_of(wide, t->n - 1) + GAP;
    bool below = wraps && (before + ROOMY > width || 3 * before > 2 * width);

    for (;;) {
        int away = -1, sum = sum_of(wide, wraps ? t->n - 1 : t->n);
        for (int i = 0; i < t->n; i++)
            if (wide[i] > 0 && t->column[i].rank > 0 && (away < 0 || t->column[i].rank >= t->column[away].rank))
                away = i;
        if (sum <= width || away < 0)
            return below;
        wide[away] = 0;
    }
}

static void put(const struct column *c, const char *text, int wide, bool ends, FILE *to)
{
    int blanks = wide - width_of(text);

    if (ends && !c->right)
        fprintf(to, PAGE_HANG "%s", text);
    else if (c->right)
        fprintf(to, "%*s%s", blanks, "", text);
    else
        fprintf(to, "%s%*s", text, blanks, "");
}

/* Of a row, or (NULL) of the titles. */
static const char *shown(const struct columns *t, char *const *cell, int i)
{
    const char *text = cell ? cell[i] : t->column[i].title;

    return text ? text : "";
}

static void put_row(const struct columns *t, const int wide[MOST], bool below, char *const *cell, FILE *to)
{
    int last = t->n - 1 - below, blanks = INDENT;

    while (last > 0 && (wide[last] == 0 || !shown(t, cell, last)[0]))
        last--;
    for (int i = 0; i <= last; i++) {
        if (wide[i] == 0)
            continue;
        fprintf(to, "%*s", blanks, "");
        put(&t->column[i], shown(t, cell, i), wide[i], i == last, to);
        blanks = GAP;
    }
    if (below && cell && shown(t, cell, t->n - 1)[0])
        fprintf(to, "\n%*s" PAGE_HANG "%s", BELOW, "", shown(t, cell, t->n - 1));
    fputc('\n', to);
}

void columns_print(struct columns *t, FILE *to, int width)
{
    int wide[MOST], titles = 0;

    for (int i = 0; i < t->n; i++) {
        wide[i] = widest(t, i);
        titles += t->column[i].title && t->column[i].title[0];
    }
    bool below = fit(t, wide, width);
    if (titles && t->cells)
        put_row(t, wide, below, NULL, to);
    for (int64_t at = 0; at + t->n <= t->cells; at += t->n)
        put_row(t, wide, below, t->cell + at, to);
    for (int64_t i = 0; i < t->cells; i++)
        free(t->cell[i]);
    free(t->cell);
    free(t);
}
