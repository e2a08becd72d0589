/* columns.h -- rows in columns as wide as what is in them; where there is no room, columns fall away by rank.
 *
 *     static const struct column columns[] = { { "plan" }, { "step", .right = true }, { "interval", .rank = 2 } };
 *     struct columns *t = columns_new(columns, 3);
 *     columns_cell(t, "first");
 *     columns_cell(t, "%.3g s", s);
 *     columns_cell(t, "%.3g to %.3g", low, high);
 *     columns_print(t, page, page_width(stdout));
 *
 * The highest rank falls away first; rank 0 stays.  A long last column to the left is no reason: a page (page.h) wraps it
 * below itself, and where there is little room beside the others it goes below its row. */
#ifndef DPX_COLUMNS_H
#define DPX_COLUMNS_H

#include <stdbool.h>
#include <stdio.h>

struct column { const char *title; bool right; int rank; };

struct columns;

/* At most 16 columns. */
struct columns *columns_new(const struct column *columns, int n);
/* The next cell, of a new row where the last one is full. */
void columns_cell(struct columns *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Indented by two columns, with the titles unless all are empty; gives the table back. */
void columns_print(struct columns *t, FILE *to, int width);

#endif
