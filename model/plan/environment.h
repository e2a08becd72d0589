/* environment.h -- environment variables that change a step's memory or time.
 *
 *     environment_give(&plan, "run.sbatch", "NCCL_NVLS_ENABLE", "0")      ENVIRONMENT_TAKEN
 *
 * `environment` of plan.json has them by their own names.  A variable has a row in the table of knobs
 * (object "environment"), is another name of such a row or of another key (NVTE_FLASH_ATTN is
 * megatron.attention_backend), is known to change nothing, or is known to matter and not followed. */
#ifndef DPX_ENVIRONMENT_H
#define DPX_ENVIRONMENT_H

#include <jansson.h>

#include "model/plan/plan.h"

enum environment_answer {
    ENVIRONMENT_REFUSED = -1,   /* a value that the variable has not; reported */
    ENVIRONMENT_TAKEN,          /* the plan has it, or it changes neither memory nor time */
    ENVIRONMENT_UNKNOWN,
    ENVIRONMENT_LEFT,           /* it matters and is not modelled: *why */
    ENVIRONMENT_CHANGED,        /* the plan has it, and another key than before: *why */
};

/* Gives a plan, whose other keys are read, a variable's value. */
enum environment_answer environment_give(struct plan *p, const char *where, const char *name, const char *value, const char **why);

/* Is it a variable of the table, or one of CUDA, NCCL, PyTorch or Transformer Engine by its name? */
bool environment_is_variable(const char *name);

/* Does it change neither memory nor time, whatever its value? */
bool environment_is_idle(const char *name);

/* Calls take() for each variable that the plan sets, with its value. */
void environment_each(const struct plan *p, void (*take)(void *to, const char *name, const char *value), void *to);

/* Refuses values that the plan's framework refuses, and text that is none of PyTorch's. */
int environment_check(const struct plan *p, const char *where);

/* Bytes of CUBLAS_WORKSPACE_CONFIG; -1: it is not set. */
int64_t environment_workspace(const struct plan *p);

#endif
