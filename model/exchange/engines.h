/* engines.h -- what the engines of `dpxrun --engine` run of a plan (exec/engine has the runners).
 *
 * The one place that decides: dpxrun asks before it starts anything, `dpxplan search --validate` before it prints a command. */
#ifndef DPX_ENGINES_H
#define DPX_ENGINES_H

#include <jansson.h>
#include <stdbool.h>

#include "model/plan/plan.h"

enum engine { ENGINE_NONE, ENGINE_TORCH, ENGINE_DEEPSPEED, ENGINE_ACCELERATE, ENGINE_TORCHTITAN, ENGINE_MEGATRON, NENGINE };

extern const char *const engine_words[NENGINE + 1];     /* of --engine, by enum engine; ended by NULL */
const char *engine_name(enum engine e);

/* 0, or -1 with the first thing refused by name that the engine does not do of the plan, on GPUs or on the CPU. */
int engine_follows(enum engine e, const struct plan *p, bool cuda);

/* The configuration that `dpxplan export --to` writes for it (new reference), null of PyTorch; NULL: it cannot say the plan, reported. */
json_t *engine_config(enum engine e, const struct plan *p);

#endif
