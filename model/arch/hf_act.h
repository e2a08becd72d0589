/* hf_act.h -- activations by their names in configs. */
#ifndef DPX_HF_ACT_H
#define DPX_HF_ACT_H

#include "model/family/model.h"

/* The activation of a Hugging Face name (0, or -1: unknown); and the name of one. */
int         hf_act_parse(const char *name, enum activation *act, enum activation_code *code);
const char *hf_act_name(enum activation act, enum activation_code code);

#endif
