/* sweep_print.h -- the rows of a sweep as a table, as CSV, as JSON; each row is written when its point is done. */
#ifndef DPX_SWEEP_PRINT_H
#define DPX_SWEEP_PRINT_H

#include <stdio.h>

#include "sim/plan/sweep.h"

/* Into a page (base/page.h).  `all`: each plan by its label.  Else a search's plans are in words below their rows, and the plan of a
 * sweep of one, as its first row has it, at the end. */
void sweep_table_head(const struct sweep *s, bool all, FILE *to);
void sweep_table_row(const struct sweep *s, int64_t i, const struct sweep_row *r, bool all, FILE *to);
/* `rows`: as many as were printed. */
void sweep_table_end(const struct sweep *s, FILE *rows, int64_t n, bool all, FILE *to);

void sweep_csv_head(const struct sweep *s, FILE *to);
void sweep_csv_row(const struct sweep *s, int64_t i, const struct sweep_row *r, FILE *to);

/* {"dpx": 1, "over": [...], "points": [ ... ], "done": n, "of": m} */
void sweep_json_head(const struct sweep *s, FILE *to);
void sweep_json_row(const struct sweep *s, int64_t i, const struct sweep_row *r, FILE *to);
void sweep_json_end(const struct sweep *s, int64_t done, FILE *to);

/* "over" and a row, as documents (new references). */
json_t *sweep_axes_json(const struct sweep *s);
json_t *sweep_row_json(const struct sweep *s, int64_t i, const struct sweep_row *r);

#endif
