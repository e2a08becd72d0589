/* training_experts.h -- adapters of parameters that are no layer's: experts' weights, and a router's (peft/tuners/lora/layer.py, ParamWrapper).
 *
 * lora.target_parameters names experts' weights.  PEFT 0.21 also takes names that a mixture's layers had before transformers 5 for parameters
 * (peft/utils/transformers_weight_conversion.py, _MOE_TARGET_MODULE_MAPPING), where other layers still have that name, too, and "all-linear" for
 * all of these and attention. */
#ifndef DPX_TRAINING_EXPERTS_H
#define DPX_TRAINING_EXPERTS_H

#include "model/arch/transformer.h"

/* The rank of a tensor's adapter, 0: none.  Gate and up, which were two layers, have it twice. */
int64_t training_wrapped_rank(const struct model *m, const struct training *t, const struct tensor *x);

/* What of target_modules means modules.  0, or -1 with the key reported: PEFT wants gate and up together; an expression that means parameters. */
int training_modules(const struct model *m, const char *targets, char out[TRAINING_LIST], const char *where);

/* Names of parameters that are there, and no dropout beside adapters of any. */
int training_check_parameters(const struct model *m, const struct training *t, const char *where);

/* Of a mixture of experts: LoRA, and of which families. */
int training_check_mixture(const struct model *m, const struct training *t, const char *where);

#endif
