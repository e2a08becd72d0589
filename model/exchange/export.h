/* export.h -- a plan in the words of the user's framework.
 *
 *     if (export_plan(&p, "deepspeed", stdout) < 0)
 *         return 2;
 *
 * deepspeed: a DeepSpeed config; accelerate: a YAML file; torchtitan: command-line
 * overrides for TORCHTITAN_VERSION, torchtitan-0.2.2: for that release; megatron: options of Megatron-LM's pretrain_gpt.py; fsdp: Python that wraps a transformers model
 * with exactly the plan's options, behind PEFT's adapters where the plan has them; axolotl (also "recipe"), llamafactory: their YAML.  What the target cannot express is refused by
 * name, and then nothing is written. */
#ifndef DPX_EXPORT_H
#define DPX_EXPORT_H

#include <stdio.h>

#include "model/plan/plan.h"

#define TORCHTITAN_VERSION "0.3.0"
#define TORCHTITAN_OLD "0.2.2"      /* --to torchtitan-0.2.2 */

/* 0, or -1 with the target's missing word reported. */
int export_plan(const struct plan *p, const char *target, FILE *to);

/* The targets' names, ended by NULL. */
extern const char *const export_targets[];

/* Can the target say all of the plan?  Reports nothing. */
bool export_can(const struct plan *p, const char *target);

/* Sets what the target leaves no choice of, where a plan has its framework's default: what the tool reduces gradients in, no dropout where
 * its models have none.  Keys that are given to a search, or that it varies, stay. */
void export_settle(struct plan *p, const char *target);

int export_torchtitan(const struct plan *p, FILE *to);
int export_torchtitan_old(const struct plan *p, FILE *to);
int export_torch(const struct plan *p, FILE *to);
int export_axolotl(const struct plan *p, FILE *to);
int export_llamafactory(const struct plan *p, FILE *to);

/* The class of the model's blocks in transformers; NULL when not known. */
const char *export_block_class(const struct plan *p);

/* "ddp.static_graph": the first option of that object, or of one in it, that differs from its default and for
 * which the tool (KNOB_ACCELERATE) has no key, in `name`; NULL when there is none. */
enum { EXPORT_KEY = 80 };
const char *export_first_changed(const struct plan *p, const char *object, size_t tool, char name[EXPORT_KEY]);

#endif
