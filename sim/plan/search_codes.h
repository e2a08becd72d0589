/* search_codes.h -- what sending codes instead of numbers between nodes would bring: offered beside a search's answer, never as it, for
 * it changes the numerics. */
#ifndef DPX_SEARCH_CODES_H
#define DPX_SEARCH_CODES_H

#include <stdio.h>

#include <jansson.h>

#include "sim/search/search.h"

/* Where there are several nodes: of the fastest DeepSpeed stage 3 that fits, with ZeRO++'s int8 gathers (and secondary partitions, and in
 * fp16 int4 reductions), and the fastest DDP of PyTorch's, with its bf16 or PowerSGD hook, the one that takes least, where that is less than
 * the first plan found; where none does, the first that does as the network slows, down to a 64th of its speed; and the speed between
 * nodes at which both take as long.  On GPUs that multiply 8-bit floats, the fastest FSDP2 with torchao's float8 linear layers, or plan of
 * Megatron-LM's with Transformer Engine's, where that takes
 * less than the first plan found. */
struct search_codes;
struct search_codes *search_codes_find(const struct search_options *o, const struct search_result *r);
void    search_codes_free(struct search_codes *c);                  /* accepts NULL */
/* A plan in words beside the recommended one's step: a paragraph each, or nothing. */
void    search_codes_say(const struct search_codes *c, double recommended_s, FILE *to);
/* The same: {"why", "label", "step_s", "saves_s" (negative: takes longer here), "crossover_bytes_per_s" (0: not known), "changes", "plan"}, or null (new reference). */
json_t *search_codes_json(const struct search_codes *c);
json_t *search_codes_float8_json(const struct search_codes *c);

/* What codes or hooks on the wire do to the numbers of a plan, such as "int8 parameters, int4 gradients"; NULL where none are. */
const char *search_codes_changes(const struct plan *p);

#endif
