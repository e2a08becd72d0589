/* advice.h -- why the peak is where it is, and what would lower it, in words.
 *
 * Nothing is guessed: every suggestion is a plan that was lowered and whose peak
 * was computed. */
#ifndef DPX_ADVICE_H
#define DPX_ADVICE_H

#include <stdio.h>

#include "model/memory/evaluate.h"

/* One paragraph on the peak of `p`, then the changes that lower it most. */
void advice_print(const struct plan *p, const struct evaluation *e, FILE *to);
/* The same with every change that lowers it: {"why", "space", "peak_bytes", "to_lower_it": [{"change", "peak_bytes",
 * "fits"}]} (new reference); `plans`: and the changed "plan" itself of each. */
json_t *advice_json(const struct plan *p, const struct evaluation *e, bool plans);

/* The first change of one option with which `p` fits, and what it needs then; false if none does. */
bool advice_that_fits(const struct plan *p, char *to, size_t size);
/* The same among plans that accept() takes, as search_options has it; NULL: all. */
bool advice_accepted(const struct plan *p, bool (*accept)(const struct plan *p, const void *what), const void *what,
                     char *to, size_t size);

#endif
