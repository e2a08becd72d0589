/* ds_removed.h -- keys of a DeepSpeed config that a version of DeepSpeed has removed. */
#ifndef DPX_DS_REMOVED_H
#define DPX_DS_REMOVED_H

#include <jansson.h>

#include "base/notes.h"
#include "model/plan/plan.h"

/* Is every key of `config` one that the plan's framework_version still takes?  0, or -1
 * with the first removed key and DeepSpeed's reason.  DeepSpeed raises where such a key
 * is present, whatever its value (runtime/config.py, _reject_removed_config_keys). */
int ds_removed_check(const json_t *config, const char *where, const struct plan *p);

/* The section "compile", where no version refuses it: 0, with what 0.19.8 has no key for noted, or -1 with what is not planned reported. */
int ds_removed_compile(const json_t *section, const char *where, struct notes *notes);

#endif
