/* generate.h -- seconds in which an engine writes its responses.
 *
 * Each of the engine's GPUs takes, for one token of each of b sequences that have T tokens of context together,
 *
 *     products of b rows (gemm_cost.h) + T * KV bytes of a token / memory bandwidth + 2 all-reduces a layer
 *
 * and for a prompt the products of its tokens.  Of a mixture the experts that b sequences choose are read: E (1 - (1 - k/E)^b) of E.
 *
 * Sequences come in no order of length, and as many run as there is room for: by max_num_seqs, and by the KV
 * cache, in which a running sequence has its prompt and on average E[x^2] / 2 E[x] tokens of its own (renewal theory).  When the last have begun the
 * batch empties, and the longest decides: the tail.
 *
 * The interval: below by the rates' spread; above by 1 / 0.38, the share of the time that vLLM 0.5.3 left to the GPU (Llama 3 8B on one
 * H100: 33 % was the HTTP server, 29 % scheduling; "vLLM v0.6.0: 2.7x Throughput Improvement", blog.vllm.ai/2024/09/05/perf-update.html).  Nothing is fitted. */
#ifndef DPX_GENERATE_H
#define DPX_GENERATE_H

#include "sim/phases/engine.h"
#include "sim/phases/lengths.h"
#include "sim/price/cost.h"

struct generation {
    struct cost time;
    double  prefill_s, decode_s;    /* their sum is time.s */
    double  tail_s;                 /* of decode_s, once no sequence waits */
    int64_t slots;                  /* sequences that run at once */
    double  steps;                  /* tokens after one another */
    double  tokens_per_s;           /* of one engine */
};

/* `sequences` of the engine that is done last, which has the longest of all; every `of_prompt` of them share a prompt, which is read once (prefix caching).  0, or -1 reported: one sequence
 * finds no room. */
int generate(const struct engine *e, const struct engine_memory *mem, const struct model *m, const struct cluster *c, int64_t sequences,
             int64_t all, int64_t of_prompt, double prompt, const struct lengths *l, struct generation *out);

#endif
