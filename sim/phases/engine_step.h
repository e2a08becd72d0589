/* engine_step.h -- seconds of one step of an engine: a token of each sequence that runs, or a chunk of prompts.
 *
 *     struct engine_steps *d = engine_steps_new(&engine, &memory, &model, &cluster, most);
 *     ... engine_step_s(d, n), engine_context_s(d, tokens), engine_prompt_s(d, tokens) ...
 *     engine_steps_free(d);
 *
 * The GPU takes the products of n rows, what the experts read, all-reduces, the small kernels beside them (2 us each, gemm_cost.c) and sampling;
 * of a mixture the experts that n sequences choose are read: E (1 - (1 - k/E)^n) of E.
 *
 * The engine's Python takes so much for each sequence, whatever the model.  How the engine is driven says what of it the GPU waits for:
 *
 *     within      LLM() in the caller's process (VLLM_ENABLE_V1_MULTIPROCESSING=0)       core and outputs, then the GPU
 *     process     LLM(), the engine's core in a process of its own: vLLM's usual         core, then the GPU; outputs beside both
 *     async       AsyncLLM, a coroutine a response                                       core, then the GPU; the frontend beside both
 *     server      vllm serve: an AsyncLLM behind HTTP, whose own time is not counted      as async
 *
 * With asynchronous scheduling (vLLM's default from 0.14 on, not with Ray; SGLang's overlap schedule) the core works while the GPU does. */
#ifndef DPX_ENGINE_STEP_H
#define DPX_ENGINE_STEP_H

#include "sim/phases/engine.h"

struct engine_steps;
struct engine_steps *engine_steps_new(const struct engine *e, const struct engine_memory *mem, const struct model *m, const struct cluster *c,
                                      int64_t most);
void engine_steps_free(struct engine_steps *d);

/* Whether its collectives can be priced; -1: reported. */
int engine_steps_check(const struct engine_steps *d);
/* One step of n sequences, 1 to `most`, their context left out: on the GPU, and with what the GPU waits for. */
double engine_step_gpu(struct engine_steps *d, int64_t n);
double engine_step_s(struct engine_steps *d, int64_t n, double context);
/* Of the GPU's part how many times longer it may take, as what is not known has it: quantised weights that are made wide first, all experts read and
 * one rank busiest, all sequences in one batch of a pipeline.  1 where there is none of these. */
double engine_step_unsure(struct engine_steps *d, int64_t n);
/* Reading the keys and values of so many tokens of n sequences. */
double engine_context_s(const struct engine_steps *d, int64_t n, double tokens);
/* Prompts of so many tokens together; one of them attends to itself. */
double engine_prompt_s(const struct engine_steps *d, double tokens);
double engine_attention_s(const struct engine_steps *d, double prompt);

#endif
