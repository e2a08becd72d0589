/* phases_nemo.h -- what the pages of NeMo-RL share (phases_nemo.c, phases_nemo_ahead.c, phases_nemo_config.c, phases_nemo_known.c, phases_nemo_megatron.c). */
#ifndef DPX_PHASES_NEMO_H
#define DPX_PHASES_NEMO_H

#include "sim/plan/phases_import.h"

/* The file with what it is over, references followed (new reference); NULL: reported. */
json_t *nemo_config(const json_t *doc, const char *path);

/* Notes of keys that NeMo-RL has not, and of those that it has and no plan. */
void nemo_tell_unknown(struct importing *in);
/* A key of a section ("policy.megatron_cfg"): 'r': it is read; '-': it says nothing of a step; '!': it matters, and no plan has it; 0: NeMo-RL has no
 * such key; '?': anything may stand in the section. */
char nemo_class(const char *section, const char *key);
/* The workers' variables, at that path, into a plan: 0; -1 reported. */
int  nemo_environment(struct importing *in, const char *path, struct plan *p);
/* ModelOpt's weights, and what vLLM is asked for beside vllm_cfg, that are not planned: -1 reported. */
int  nemo_refuses_beside(struct importing *in);

/* Steps whose prompts are in flight beside the one that trains; 0: each step waits for its own. */
int64_t nemo_steps_ahead(struct importing *in, bool ppo, int64_t prompts);

/* Is "policy" on Megatron-LM? */
bool nemo_is_megatron(const struct importing *in);
/* Its plan, of so many samples a step, `micro` in a micro-step; `own`: --model does not name its model.  0; or -1 reported, and nothing to free. */
int  nemo_megatron(struct importing *in, int64_t samples, int64_t micro, bool own, struct plan *out);

#endif
