/* ds_optimizer.h -- the object "optimizer" of DeepSpeed's configuration. */
#ifndef DPX_DS_OPTIMIZER_H
#define DPX_DS_OPTIMIZER_H

#include <jansson.h>

#include "model/plan/plan.h"

/* Sets the plan's optimizer, and with Muon the version that has it.  0, or -1 reported: the planner knows none of its kind. */
int ds_optimizer_read(const json_t *j, const char *where, struct plan *p);

#endif
