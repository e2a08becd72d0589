/* generate.h -- seconds in which an engine writes its responses.
 *
 * A step is a token of each sequence that runs: the products of b rows (gemm_cost.h), T * KV bytes of a token / memory bandwidth for the T tokens of
 * context that they have together, 2 all-reduces a layer, and what the engine's Python takes (engine_step.h); a prompt takes the products of its tokens.
 *
 * Sequences come in no order of length, up to max_num_seqs at once.  vLLM takes them on while their prompts find room in the KV cache; when it is
 * full the one that came last is set back, and later reads again what others have overwritten.  Of SGLang as many run as find room with their prompt and
 * on average E[x^2] / 2 E[x] tokens of their own (renewal theory).  When the last have begun the batch empties, and the longest decides: the tail.
 *
 * The interval: below the GPU alone, by the rates' spread; above all by that spread, or the GPU's part / 0.38, the share of the time that vLLM 0.5.3
 * left to the GPU (Llama 3 8B on one H100: 33 % was the HTTP server, 29 % scheduling; "vLLM v0.6.0: 2.7x Throughput Improvement",
 * blog.vllm.ai/2024/09/05/perf-update.html), whichever is more; that times engine_step_unsure().  Nothing is fitted. */
#ifndef DPX_GENERATE_H
#define DPX_GENERATE_H

#include "sim/phases/engine.h"
#include "sim/phases/lengths.h"
#include "sim/price/cost.h"

struct generation {
    struct cost time;
    double  prefill_s, again_s, decode_s;   /* their sum is time.s; of it what is read again of sequences that were set back */
    double  gpu_s;                  /* of decode_s, on the GPU */
    double  tail_s;                 /* of decode_s, once no sequence waits */
    int64_t slots;                  /* sequences that run at once, at most */
    int64_t preempted;              /* times that one was set back */
    double  steps;                  /* tokens after one another */
    double  tokens_per_s;           /* of one engine */
};

/* Responses of one engine. */
enum { GENERATE_MOST = 1000000 };

/* `sequences` of the engine that is done last, which has the longest of all; every `of_prompt` of them share a prompt, which is read once (prefix caching).  0, or -1 reported: one sequence
 * finds no room. */
int generate(const struct engine *e, const struct engine_memory *mem, const struct model *m, const struct cluster *c, int64_t sequences,
             int64_t all, int64_t of_prompt, double prompt, const struct lengths *l, struct generation *out);

#endif
