/* form_verl.h -- what the files of verl's form share. */
#ifndef DPX_FORM_VERL_H
#define DPX_FORM_VERL_H

#include "model/form/form_rows.h"

#define VERL_ACTOR "actor_rollout_ref.actor."

/* Is the actor on Megatron-LM?  The base config, or a key of the file, says it. */
bool verl_is_megatron(const struct form_file *f);

/* An actor on Megatron-LM (form_verl_megatron.c): `r` is begun, with the form's rows; ends it.  0, or -1 reported. */
int verl_read_megatron(struct form_reading *r, struct plan *p);

/* Does the actor take verl's own head and loss (use_fused_kernels)? */
bool verl_fuses(struct form_reading *r);

/* The entropy of the policy holds the logits several times more: the reading fails where it is asked for. */
void verl_refuse_entropy(struct form_reading *r);

/* Liger-Kernel's layers, where the file asks for them at `path`. */
void verl_read_liger(struct form_reading *r, const struct plan *p, const char *path);

/* The units of verl's FSDP2. */
void verl_read_units(struct form_reading *r, const struct plan *p, bool reshards);

/* Samples of a micro-step of one data-parallel rank, `sharing` ranks, and how many micro-steps an update has; `context` of them share positions. */
struct verl_batch { int64_t seq, micro, steps; };
struct verl_batch verl_batch_of(struct form_reading *r, const struct plan *p, int64_t sharing, int64_t context);

/* ---- form_verl_beside.c ---- */

/* Is it main_ppo, or a program that keeps its actor?  0, or -1 reported. */
int verl_check_program(const struct form_file *f);

/* A key that verl has had before 17 February 2025 alone; NULL: the file has none.  What was false where it is not given, and is true since; and whether the
 * entropy is in every loss, which is noted. */
const char *verl_first_releases_key(const struct form_file *f);
bool verl_true_of_late(struct form_reading *r, const char *path);
bool verl_has_entropy_always(struct form_reading *r);

/* Prompts of an optimizer step; the reading fails where verl stops: `ranks` take `micro` samples each at least. */
int64_t verl_prompts_of_a_step(struct form_reading *r, int64_t ranks, int64_t micro);

/* Values that are none, and what the file asks for beside the update `b`. */
void verl_read_beside(struct form_reading *r, const struct plan *p, const struct verl_batch *b);

#endif
