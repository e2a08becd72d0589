/* megatron_read.h -- what the files of Megatron-LM's import share.
 *
 *     megatron_import.c       the plan
 *     megatron_names.c        which options are known
 *     megatron_describes.c    what describes the model is the plan's
 *     megatron_states.c       what the optimizer keeps
 *     megatron_adapters.c     adapters beside frozen weights
 *     megatron_refuses.c      which options are not beside each other */
#ifndef DPX_MEGATRON_READ_H
#define DPX_MEGATRON_READ_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "model/plan/plan.h"

/* Options by name, where they stand, and what they become. */
struct import { const json_t *from; const char *where; struct plan *p; };

bool import_has(const struct import *in, const char *name);
/* A number from 1 on; left out: `usual`.  0, or -1 reported. */
int  import_integer(const struct import *in, const char *name, int64_t usual, int64_t *out);
/* Is this the option's value? */
bool import_says(const struct import *in, const char *name, const char *word);

/* The precision-aware optimizer, in a plan whose reduce_dtype is read; as options.  0, or -1 reported. */
int  megatron_read_states(const struct import *in);
void megatron_write_states(const struct plan *p, FILE *to);

/* A recipe's section `peft` as what trains; and that in the plan, whose model is made again.  0, or -1 reported. */
int  megatron_adapters(const json_t *peft, const char *where, struct training *out);
int  megatron_read_adapters(const struct import *in);

/* An option that is refused, misspelt, a shell's variable or of another form.  What matters and is not followed is listed, and what is not known.
 * 0, or -1 reported. */
int megatron_check_names(const struct import *in);
/* Once the plan is read: what options cost that no plan has. */
void megatron_say_costs(const struct import *in);
/* Is it an option that Megatron-LM has, as far as we know? */
bool megatron_knows(const char *name);
/* Is it a field of Megatron-Bridge's that each config written whole has, and, if so, has it its usual value there? */
bool megatron_is_field(const char *name);
bool megatron_field_is_usual(const char *name, const json_t *v);
/* Is it one that changes nothing that a plan describes? */
bool megatron_is_beside(const char *name);
/* And of those one without a value? */
bool megatron_is_bare(const char *name);

/* The numbers that describe the model agree with it; and, once the plan is read, where the options make a model (num_layers), what they leave
 * out does, too.  0, or -1 reported. */
int megatron_check_sizes(const struct import *in);
int megatron_check_kind(const struct import *in);
/* The option that states the model's activation: "--swiglu"; "": none does, it is GELU; NULL: none can. */
const char *megatron_activation(const struct model *m);
/* LayerNorm1P (--apply-layernorm-1p); Llama 3's scaling of frequencies (--use-rope-scaling), and whether by the numbers of Llama 3.1, which are
 * the only ones that pretrain_gpt.py takes. */
bool megatron_adds_one_to_norms(const struct model *m);
bool megatron_scales_rope(const struct model *m);
bool megatron_scales_rope_as_is(const struct model *m);
/* A number of the model's rope_scaling; `usual` where it states none. */
double megatron_scaling(const struct model *m, const char *key, double usual);
/* Once the plan is read, and before what says nothing is dropped: options that Megatron-LM refuses beside each other, and words that are
 * none of an option's.  0, or -1 reported. */
int megatron_check_said(const struct import *in);
/* Routers of a mixture of experts are those that our schedules have. */
int megatron_check_routers(const struct import *in);

#endif
