/* accelerate_checks.h -- what accelerate's sections may hold where a plan has nothing for it: classes of units, values of its parser. */
#ifndef DPX_ACCELERATE_CHECKS_H
#define DPX_ACCELERATE_CHECKS_H

#include <jansson.h>

#include "base/notes.h"
#include "model/plan/plan.h"

/* fsdp_config's classes: 0, or -1 reported where units would be other than blocks. */
int accelerate_check_wrapped(const json_t *fsdp, const char *where, const struct plan *p, struct notes *notes);
/* deepspeed_config's values: 0, or -1 reported, one that accelerate launch does not take. */
int accelerate_check_deepspeed(const json_t *section, const char *where, struct notes *notes);

/* A file of DeepSpeed's that is handed to accelerate: 0, or -1 reported. */
int accelerate_check_zero(const json_t *ds, const char *where);
/* 0, or -1 reported. */
int accelerate_check_environment(const json_t *config, const char *where);

#endif
