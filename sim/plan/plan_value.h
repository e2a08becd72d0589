/* plan_value.h -- a key of a plan and its value as a command line writes them: "seq" and "8k", "lora.target_modules" and "q_proj,v_proj". */
#ifndef DPX_PLAN_VALUE_H
#define DPX_PLAN_VALUE_H

#include <jansson.h>

#include "model/plan/knob.h"

/* The first row of the table of knobs with that key ("fsdp.forward_prefetch"); NULL: there is none. */
const struct knob *plan_value_row(const char *key);

/* Is it "cluster", or a part of it?  One of the keys that decide which rows hold? */
bool plan_value_is_cluster(const char *key);
bool plan_value_is_head(const char *key);

/* The value as the key needs it (new reference); NULL with the reason reported. */
json_t *plan_value_of(const char *key, const char *text);

/* Sets "a.b.c" in a document, which takes the reference; objects on the way are made. */
void plan_value_put(json_t *doc, const char *path, json_t *value);

#endif
