/* kept_internal.h -- what a file of fits has: one table of columns for each kind of row, for writing and for reading. */
#ifndef DPX_KEPT_INTERNAL_H
#define DPX_KEPT_INTERNAL_H

#include <stddef.h>

#include "calib/store/kept_file.h"

/* What a column holds, and where in the struct: a word (of one byte, or an enum or int), a flag, a whole number, a real one. */
struct column {
    const char *name;
    enum { BYTE, WORD, FLAG, WHOLE, REAL } holds;
    size_t at;
    const char *(*word)(int);
    int nwords;
};

/* An array of the struct measured_device, and the numbers beside the arrays. */
struct rows { const char *name; const struct column *column; size_t size, array, n; };
extern const struct rows   kept_arrays[KEPT_ARRAYS];
extern const struct column kept_numbers[], kept_times[];        /* each ends with a name that is NULL; times: struct measured_time */

#endif
