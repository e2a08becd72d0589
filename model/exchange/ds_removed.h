/* ds_removed.h -- keys of a DeepSpeed config that a version of DeepSpeed has removed. */
#ifndef DPX_DS_REMOVED_H
#define DPX_DS_REMOVED_H

#include <jansson.h>

#include "model/plan/plan.h"

/* Is every key of `config` one that the plan's framework_version still takes?  0, or -1
 * with the first removed key and DeepSpeed's reason.  DeepSpeed raises where such a key
 * is present, whatever its value (runtime/config.py, _reject_removed_config_keys). */
int ds_removed_check(const json_t *config, const char *where, const struct plan *p);

#endif
