/* search_validate.h -- the commands that measure a search's best plans in the frameworks that they are for. */
#ifndef DPX_SEARCH_VALIDATE_H
#define DPX_SEARCH_VALIDATE_H

#include <jansson.h>

#include "sim/plan/search_answer.h"

/* Writes the best plans that an engine runs beside `path`, which has the first: plan.json, plan-2.json, ...; notes say why one is run by
 * none.  The commands, an array of texts (new reference), one for each engine; or NULL reported. */
json_t *search_validate(const struct search_answer *s, const struct found *first, const char *path);

void search_validate_print(const json_t *commands, FILE *to);

#endif
