/* engine.h -- what an inference engine holds of a GPU: weights, KV cache, CUDA graphs, and what stays of it while it sleeps.
 *
 *     struct engine e = engine_usual(ENGINE_VLLM);
 *     e.tensor = 2; e.share = 0.5; ...
 *     engine_fill(&e, &cluster.gpu);
 *     struct engine_memory m;
 *     if (engine_memory_of(&e, &model, &cluster, held_by_others, &m) < 0)
 *         return 2;
 *     ... m.awake, m.asleep, m.kv_tokens ...
 *
 *     vLLM (vllm/v1/worker/gpu_worker.py: determine_available_memory(), init_device(); gpu_memory_utilization)
 *         share of the GPU's TOTAL memory = weights + what PyTorch allocates in a forward of max_num_batched_tokens + what is outside
 *         PyTorch (context, NCCL) + KV cache; from 0.20 on CUDA graphs too (envs.py: VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS is 1; 0
 *         in 0.18 and 0.19, not there before), before that they come on top.  It does not start where less than the share is FREE.
 *     SGLang (sglang/srt/model_executor: profile_available_bytes(); mem_fraction_static)
 *         share of the memory that is FREE when it starts = weights + KV cache; activations, CUDA graphs and what is outside PyTorch
 *         are in the rest.
 *
 *     asleep                 stays on the device                     goes to host memory
 *     level 0                everything                              nothing
 *     level 1                context, NCCL, CUDA graphs              weights
 *     level 2                the same                                nothing: weights come anew
 *
 * (vLLM: CuMemAllocator.sleep() with tag "weights" offloaded at level 1 alone, the KV cache discarded at both; TRL sleeps at level 2.
 * SGLang: release_memory_occupation() of torch_memory_saver, as level 2.) */
#ifndef DPX_PHASES_ENGINE_H
#define DPX_PHASES_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "model/arch/transformer.h"
#include "model/cluster/cluster.h"

/* Weights in fewer bits (engine_weights.h). */
enum engine_codes { CODES_NONE, CODES_FP8, CODES_FP8_BLOCK, CODES_AWQ, CODES_GPTQ, NCODES };
enum engine_kind { ENGINE_VLLM, ENGINE_SGLANG, NENGINE };
/* Who calls the engine: engine_step.h. */
enum engine_driven { DRIVEN_PROCESS, DRIVEN_WITHIN, DRIVEN_ASYNC, DRIVEN_SERVER, NDRIVEN };

struct engine {
    enum engine_kind kind;
    int     version;                /* 1000 * major + minor: 0.20 is 20 */
    int64_t tensor;                 /* ranks that cut each layer */
    int64_t pipeline;               /* stages */
    int64_t expert;                 /* ranks that share experts out whole; 1: none.  Above tensor attention is replicated, data parallel */
    double  share;                  /* gpu_memory_utilization; mem_fraction_static.  Below 0: the usual one */
    enum dtype weights, kv;         /* bf16, fp16, fp32; of the KV cache fp8 as well */
    int64_t sequences;              /* max_num_seqs; max_running_requests.  0: the usual number */
    int64_t batched_tokens;         /* max_num_batched_tokens; chunked_prefill_size.  0: the usual number */
    enum engine_codes codes;
    int64_t block;                  /* tokens of a block of the KV cache */
    bool    eager;                  /* no CUDA graphs */
    bool    own_process;            /* of each GPU: a CUDA context of its own */
    int     sleep;                  /* level, while it does not generate */
    enum engine_driven driven;
    int     overlaps;               /* async_scheduling: 0 or 1; below 0 the version's usual one */
};

/* Bytes of one GPU; of a pipeline the stage's that limits the KV cache. */
struct engine_memory {
    int64_t weights;
    int64_t activations;            /* of the largest forward: the count of engine.c, known within a factor of 2 */
    int64_t outside;                /* context (where it has its own process), NCCL */
    int64_t graphs, graphs_high;    /* CUDA graphs: what was published, and at most */
    int64_t share;                  /* the share, in bytes */
    int64_t kv_token;               /* of the KV cache, for a token */
    int64_t kv, kv_tokens;          /* its bytes, and tokens that it holds: whole blocks.  0: no room */
    int64_t awake, loading, asleep; /* all of it: while it generates; with weights and without KV cache; while it sleeps */
    int64_t host;                   /* while it sleeps, in host memory */
    bool    starts;                 /* vLLM: the share is free */
};

/* What GPUs decide is left open: share, sequences, batched tokens. */
struct engine engine_usual(enum engine_kind kind);
/* What is open becomes what the engine takes on these GPUs, of the version and the ranks that are set. */
void engine_fill(struct engine *e, const struct gpu *g);
const char *engine_kind_name(enum engine_kind kind);
/* "gpu_memory_utilization", "mem_fraction_static" */
const char *engine_share_name(enum engine_kind kind);

const char *engine_codes_name(enum engine_codes codes);

/* GPUs of one engine: of one scheduler. */
static inline int64_t engine_ranks(const struct engine *e) { return e->tensor * e->pipeline; }

/* Ranks of one engine that share a node: all of them, or as many as a node has. */
static inline int64_t engine_ranks_of_a_node(const struct engine *e, const struct cluster *c)
{
    return e->tensor < c->gpus_per_node ? e->tensor : c->gpus_per_node;
}

/* Bytes of the KV cache for one token on one rank: keys and values of each layer, or the compressed ones of latent attention, which every
 * rank has whole.  Layers with a window are counted as if they had none. */
int64_t engine_kv_token(const struct model *m, int64_t tensor, enum dtype kv);

/* `others`: bytes of a GPU that something else holds when the engine starts, the driver's own reserve left out.  0, or -1 with what is
 * not planned reported. */
int engine_memory_of(const struct engine *e, const struct model *m, const struct cluster *c, int64_t others, struct engine_memory *out);

#endif
