/* search_brief.h -- what a person wants of a search: the plan to take, what it is like, and the others with what each is better at. */
#ifndef DPX_SEARCH_BRIEF_H
#define DPX_SEARCH_BRIEF_H

#include <stdio.h>

#include "sim/plan/search_answer.h"

/* Into `to`, a page of so many columns (base/page.h).  0, or -1 with the reason reported. */
int search_brief(const struct search_asked *a, struct search_answer *s, FILE *to, int width);

#endif
