/* table.h -- one table, as it stands on the page, in a CSV file and in the summary.
 *
 *     struct table *t = table_new("phases", "Phases of a steady step");
 *     table_column(t, "run", "Run", UNIT_ID, SHOWN);
 *     table_column(t, "measured_s", "Measured", UNIT_SECONDS, SHOWN);
 *     table_row(t, "7.compute");
 *     table_number(t, 7);
 *     table_number(t, seconds);            (NaN: not known)
 *
 * A number on the page carries data-q="TABLE/ROW/COLUMN": where it is found in TABLE.csv, in
 * full precision.  tests/reports recomputes it from the database by that name. */
#ifndef DPX_TABLE_H
#define DPX_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/chart/text.h"
#include "base/chart/unit.h"

struct table;

/* Not in the CSV alone. */
enum { CSV_ONLY, SHOWN };

struct table *table_new(const char *id, const char *title);     /* static strings */
void          table_free(struct table *t);
const char   *table_id(const struct table *t);
int64_t       table_rows(const struct table *t);

void table_column(struct table *t, const char *name, const char *title, enum measure u, int shown);
/* `key` is copied: unique in the table, made of [A-Za-z0-9_.-]. */
void table_row(struct table *t, const char *key, ...) __attribute__((format(printf, 2, 3)));
/* The cells of the row, in order of the columns. */
void table_number(struct table *t, double v);
void table_bytes(struct table *t, int64_t v);       /* below 0: not known */
void table_text(struct table *t, const char *s);    /* copied; NULL: not known */

/* The last `most` rows; what is left out is said. */
void table_html(const struct table *t, struct text *to, int64_t most);
void table_markdown(const struct table *t, struct text *to, int64_t most);
void table_csv(const struct table *t, struct text *to);

#endif
