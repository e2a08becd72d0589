/* list_options.h -- the options of commands as rows of a list: what a page or a program needs to ask for them. */
#ifndef DPX_LIST_OPTIONS_H
#define DPX_LIST_OPTIONS_H

#include <jansson.h>

/* Adds {"command", and what opts_table_json() says} of every option; the keys are those of a request to libdpx.  0. */
int list_options(json_t *to);

#endif
