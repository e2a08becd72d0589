/* sample.h -- what a sample of a model is, in words: of a language model so many tokens; of a recorded module what its file says. */
#ifndef DPX_SAMPLE_H
#define DPX_SAMPLE_H

#include "model/arch/transformer.h"

/* Of what a plan's `seq` counts, "size": {"of": "..."} of a recorded module. */
enum sample_of { SAMPLE_TOKENS, SAMPLE_SIDE, SAMPLE_SIZE, NSAMPLE };

extern const char *const sample_of_names[];     /* "tokens", "side", "size"; NULL behind them */

struct sample_text { char s[48]; };

/* Does a sample have tokens?  Else rates are in samples a second. */
bool sample_has_tokens(const struct model *m);

/* What stands behind "samples of": "4096 tokens", "224 x 224", "size 80". */
struct sample_text sample_text(const struct model *m, int64_t seq);

/* "tokens/s", or "samples/s"; and such a rate of one in sizes a second, as timing has it. */
const char *sample_rate_unit(const struct model *m);
double      sample_rate(const struct model *m, int64_t seq, double sizes_per_s);

/* --tokens: 0, or -1 reported where a sample has none. */
int sample_refuse_tokens(const struct model *m);

#endif
