/* search_beyond.h -- what a search did not look at: frameworks that were not asked for or cannot plan the model, kinds of
 * parallelism, offload; each with the option that looks at it. */
#ifndef DPX_SEARCH_BEYOND_H
#define DPX_SEARCH_BEYOND_H

#include <jansson.h>

#include "sim/plan/search_args.h"

enum { SEARCH_BEYOND = 1024 };

/* One line without its end; "" where everything was looked at. */
void search_beyond_words(const struct search_args *a, const struct search_options *o, const struct search_result *r,
                         char to[SEARCH_BEYOND]);

/* The same as a list of { "what", "option" } (new reference); null: no option does. */
json_t *search_beyond_json(const struct search_args *a, const struct search_options *o, const struct search_result *r);

#endif
