/* plan_words.h -- a plan as a person says it: "FSDP2, 1 sample a GPU, 8 accumulation steps, every 4th block recomputed".
 *
 *     char text[PLAN_WORDS];
 *     plan_words(&p, text, sizeof text);
 *
 * Says what a label (knob_label()) says, without its codes. */
#ifndef DPX_PLAN_WORDS_H
#define DPX_PLAN_WORDS_H

#include <stddef.h>
#include <stdio.h>

#include "model/plan/knob.h"

enum { PLAN_WORDS = 900 };      /* bytes that hold either text of any plan */

/* "FSDP2", "DeepSpeed ZeRO-3", "Megatron-LM with its distributed optimizer". */
const char *plan_words_name(enum strategy s, enum dialect d);

/* What decides memory and time: framework and strategy, how the GPUs share the model, batch, recompute, what trains, what is offloaded. */
void plan_words(const struct plan *p, char *to, size_t size);

/* The other settings that are not the framework's defaults: "gradients reduced during backward, buckets of 50 MiB"; "" where there are none. */
void plan_words_settings(const struct plan *p, char *to, size_t size);

/* The key "words" of a plan's document, beside its "label". */
void plan_words_into(json_t *doc, const struct plan *p);

/* What each code in the labels of n plans means, a line each: "b1x8  1 sample a GPU, 8 accumulation steps". */
void plan_words_legend(const struct plan *const *plans, int64_t n, FILE *to);

/* Are there words for a knob that labels show? */
bool plan_words_has(const struct knob *k);

#endif
