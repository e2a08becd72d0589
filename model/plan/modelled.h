/* modelled.h -- what an answer rests on: dpx's own version, and the frameworks' versions that its plans follow. */
#ifndef DPX_MODELLED_H
#define DPX_MODELLED_H

#include <jansson.h>

/* Adds "version" ("0.2.0 (commit)") and "frameworks" ({"PyTorch": "2.13", ...}: of plans that name no framework_version). */
void modelled_add(json_t *answer);

/* {"PyTorch": "2.13", ...} (new reference). */
json_t *modelled_versions(void);

#endif
