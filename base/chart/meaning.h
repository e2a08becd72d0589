/* meaning.h -- which colour stands for what: the same thing has the same one in every figure, of reports, commands and the page.
 *
 * Numbers of chart_colour()'s palette.  Names are those of the JSON: "params", "all_gather", "forward", "exposed communication". */
#ifndef DPX_MEANING_H
#define DPX_MEANING_H

/* Of memory's categories, collectives, what a stream does, parts of a step's time. */
enum meaning { MEANING_CATEGORY, MEANING_OP, MEANING_WORK, MEANING_PHASE, NMEANING };

/* A name that the table lacks has one of its own. */
int meaning_colour(enum meaning of, const char *name);

/* "category", "op", "work", "phase"; and the i-th name of it, NULL after the last. */
const char *meaning_name(enum meaning of);
const char *meaning_at(enum meaning of, int i, int *colour);

#endif
