/* ds_names.h -- the two names of a key of DeepSpeed's configuration.
 *
 * Fields of its pydantic models that have an alias ("stage3_max_live_parameters") are taken by their own name, too
 * ("max_live_parameters": populate_by_name).  Both at once are refused, as DeepSpeed refuses them. */
#ifndef DPX_MODEL_DS_NAMES_H
#define DPX_MODEL_DS_NAMES_H

#include <stdbool.h>

#include <jansson.h>

#include "base/notes.h"

/* A copy of the configuration with aliases alone (new reference); NULL with the reason reported.  A field's own name with "auto" is left
 * out with a note: transformers fills in aliases alone, and DeepSpeed drops what stays "auto". */
json_t *ds_names_aliased(const json_t *config, const char *where, struct notes *notes);

/* Is anything "auto" beside the optimizer's and the scheduler's numbers?  transformers or accelerate fill that in. */
bool ds_names_has_auto(const json_t *config);

/* Notes what its sections of a fixed content (bf16, fp16, data_types, activation_checkpointing) have that DeepSpeed does not know. */
void ds_names_list_unknown(const json_t *config, struct notes *notes);
/* Of a section that is off, or that says nothing of a step. */
void ds_names_list_within(const char *section, const json_t *v, struct notes *notes);

/* A key that DeepSpeed reads and does nothing with at this stage: 0, or -1 reported, a value of another kind than it takes. */
int ds_names_check_idle(const char *where, const char *section, const char *name, const json_t *v);

#endif
