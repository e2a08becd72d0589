/* ds_optimizer.h -- the object "optimizer" of DeepSpeed's configuration. */
#ifndef DPX_DS_OPTIMIZER_H
#define DPX_DS_OPTIMIZER_H

#include <jansson.h>

#include "model/plan/plan.h"

/* Sets the plan's optimizer and its form, and with Muon the version that has it.  0, or -1 reported: the planner knows none of its kind. */
int ds_optimizer_read(const json_t *j, const char *where, struct plan *p);

/* The plan's (new reference); NULL: bitsandbytes', which the script gives to deepspeed.initialize().  Learning rate and the like are "auto": transformers' Trainer and accelerate put in the script's. */
json_t *ds_optimizer_write(const struct plan *p);

#endif
