/* graphs.c -- see graphs.h.  Megatron-core 0.16.1: transformer/transformer_config.py (what is refused), transformer/cuda_graphs.py;
 * torch 2.15: _inductor/cudagraph_trees.py. */
#include "model/plan/graphs.h"

#include <string.h>

#include "base/fail.h"

static bool compiled(const struct plan *p) { return p->kernels == KERNELS_TORCH_COMPILE && p->compile_mode == COMPILE_REDUCE_OVERHEAD; }

static bool captured(const struct plan *p) { return p->megatron.cuda_graph_impl != GRAPHS_NONE; }

static bool names(const struct plan *p, const char *part)
{
    const char *at = p->megatron.cuda_graph_scope;

    for (size_t n; *at; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        if (strlen(part) == n && !strncmp(at, part, n))
            return true;
    }
    return false;
}

bool graphs_has(const struct plan *p) { return compiled(p) || captured(p); }

enum graphs_by graphs_by(const struct plan *p)
{
    return !captured(p) ? GRAPHS_BY_COMPILER : p->megatron.cuda_graph_impl == GRAPHS_LOCAL ? GRAPHS_BY_MEGATRON : GRAPHS_BY_TE;
}

bool graphs_of_step(const struct plan *p) { return captured(p) && names(p, "full_iteration"); }

/* "local impl doesn't currently distinguish between moe_preproocess or moe_router so just set both". */
bool graphs_hold(const struct plan *p, const char *part)
{
    bool whole = compiled(p) || (captured(p) && (!p->megatron.cuda_graph_scope[0] || graphs_of_step(p)));

    return whole || (captured(p) && (names(p, part) || (!strcmp(part, "moe_router") && names(p, "moe_preprocess"))));
}

bool graphs_come_later(const struct plan *p) { return captured(p); }

int64_t graphs_static_bytes(const struct plan *p)
{
    int64_t ranks = p->parallel.tensor > 1 && p->parallel.sequence ? p->parallel.tensor : 1;

    if (!graphs_has(p) || graphs_of_step(p))
        return 0;
    return 2 * p->micro_batch * plan_rank_seq(p) * p->model.hidden * dtype_bytes(plan_recipe(p).used) / ranks;
}

/* ---- torch.compile() ---- */

static int check_compiled(const struct plan *p, const char *where)
{
    static const char *const key = "compile_mode: reduce-overhead";

    if (p->parallel.tensor > 1)
        return fail("%s: %s: with parallel.tensor collectives lie in the compiled blocks: \"Inductor's built-in cudagraph integration cannot "
                    "handle NCCL ops\" (pytorch/torchtitan#2444): default", where, key);
    if (p->parallel.pipeline > 1)
        return fail("%s: %s: a stage runs forwards of several micro-batches before their backwards, each of which cudagraph trees would record "
                    "by itself: not modelled: default", where, key);
    if (p->accumulation > 1 && !p->sync_every_micro_step)
        return fail("%s: %s: gradients that stay from one micro-step to the next lie in the graphs' pool: \"accessing gradient tensor output of "
                    "CUDAGraphs that has been overwritten by a subsequent run\": sync_every_micro_step true, or default", where, key);
    if (p->activation_offload != OFFLOAD_NOTHING || p->recompute == RECOMPUTE_OFFLOAD)
        return fail("%s: %s: what blocks keep lies in the graphs' pool and cannot leave it: not modelled with %s: default", where, key,
                    p->recompute == RECOMPUTE_OFFLOAD ? "recompute offload" : "activation_offload");
    return 0;
}

/* ---- Megatron-core ---- */

/* --cuda-graph-scope; the words are transformer_config.py's. */
static int check_scope(const struct plan *p, const char *where)
{
    static const char *const has[] = { "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba", "full_iteration" };
    const char *at = p->megatron.cuda_graph_scope, *why = NULL;
    bool moe = names(p, "moe"), router = names(p, "moe_router"), ahead = names(p, "moe_preprocess"), te = p->megatron.cuda_graph_impl == GRAPHS_TE;

    for (size_t n; *at; at += n + (at[n] == ',')) {
        bool known = false;
        n = strcspn(at, ",");
        for (size_t i = 0; i < sizeof has / sizeof *has; i++)
            known |= strlen(has[i]) == n && !strncmp(at, has[i], n);
        if (!known)
            return fail("%s: megatron.cuda_graph_scope: \"%.*s\": expected attn, mlp, moe, moe_router, moe_preprocess, mamba or full_iteration", where,
                        (int)n, at);
    }
    if (names(p, "mamba") && !p->model.hybrid)
        why = "mamba is of models with Mamba-2 layers";
    else if (graphs_of_step(p) && strcmp(p->megatron.cuda_graph_scope, "full_iteration"))
        why = "full_iteration is of the whole step: nothing beside it";
    else if (graphs_of_step(p) && te)
        why = "To use full iteration cuda graph, please use cuda_graph_impl=local instead of cuda_graph_impl=transformer_engine.";
    else if (moe && router)
        why = "cuda_graph_scope must not contain both moe and moe_router.";
    else if (te && ahead && !router)
        why = "moe_preprocess cuda graph is only supported with moe_router cuda graph.";
    else if (p->model.experts == 0 && (moe || router || ahead))
        why = "moe cuda graph is only supported for MoE.";
    else if (te && router && !ahead)
        why = "moe_router without moe_preprocess is not modelled: name both";
    return why ? fail("%s: megatron.cuda_graph_scope: %s", where, why) : 0;
}

static bool all_layers_have_experts(const struct plan *p)
{
    for (int64_t i = 0; i < p->model.layers; i++)
        if (!model_has_experts(&p->model, i))
            return false;
    return true;
}

static int check_experts(const struct plan *p, const char *where)
{
    const struct megatron_options *o = &p->megatron;
    const char *why = NULL;

    if (p->model.experts == 0)
        return 0;
    if (names(p, "mlp") && all_layers_have_experts(p))
        why = "mlp cuda graph is only supported for dense layers, but not found in the model.";
    else if (o->moe_pad_expert_input_to_capacity)
        return 0;
    else if (names(p, "moe"))
        why = "moe cuda graph is only supported with drop-padding MoE.";
    else if (graphs_hold(p, "moe_router") && o->moe_expert_capacity_factor > 0)
        why = "moe_preprocess cuda graph is not supported when there are DtoH copies and synchronizations in the preprocess step.";
    else if (graphs_hold(p, "moe"))
        why = "the host reads how many tokens each expert gets, which no graph can hold: [\"attn\", \"moe_router\", \"moe_preprocess\"], or "
              "moe_pad_expert_input_to_capacity";
    return why ? fail("%s: megatron.cuda_graph_scope: %s", where, why) : 0;
}

static int check_recompute(const struct plan *p, const char *where)
{
    if (recompute_whole(p->recompute) && !graphs_of_step(p))
        return fail("%s: megatron.cuda_graph_impl: full recompute is only supported with full iteration CUDA graph.", where);
    if (p->dropout > 0 && graphs_hold(p, "attn") && plan_recomputes_module(p, "core_attn"))
        return fail("%s: megatron.cuda_graph_impl: attention dropout is not supported with graphed attention recomputation.", where);
    if (p->dropout > 0 && graphs_hold(p, "mlp") && plan_recomputes_module(p, "mlp"))
        return fail("%s: megatron.cuda_graph_impl: hidden dropout is not supported with graphed MLP/MoE recomputation.", where);
    return 0;
}

/* The step's passes as one graph: nothing in them may wait for the host (training/arguments.py asks for the first). */
static int check_step(const struct plan *p, const char *where)
{
    const struct megatron_options *o = &p->megatron;

    if (o->check_for_nan_in_loss_and_grad)
        return fail("%s: megatron.cuda_graph_scope: full_iteration: the host reads each bucket's norm: check_for_nan_in_loss_and_grad false", where);
    if (o->calculate_per_token_loss)
        return fail("%s: megatron.cuda_graph_scope: full_iteration: with calculate_per_token_loss the host reads a number: not modelled", where);
    if (p->parallel.pipeline > 1)
        return fail("%s: megatron.cuda_graph_scope: full_iteration: the host waits for a pipeline's messages: not modelled", where);
    return 0;
}

int graphs_check(const struct plan *p, const char *where)
{
    if (compiled(p))
        return check_compiled(p, where);
    if (!captured(p))
        return 0;
    if (check_scope(p, where) < 0 || check_experts(p, where) < 0 || check_recompute(p, where) < 0)
        return -1;
    return graphs_of_step(p) ? check_step(p, where) : 0;
}

const char *graphs_note(const struct plan *p)
{
    if (compiled(p))
        return "CUDA graphs: what compiled blocks allocate lies in a pool of its own, which keeps its memory.  A block's graph is recorded "
               "again where FSDP2's gathered parameters come to lie elsewhere (\"static input data pointer changed\"), so the first steps are slower: 40 times "
               "on 4 GPUs in pytorch/pytorch#183451, and for up to 2,000 steps in nightlies of spring 2026";
    if (captured(p))
        return "CUDA graphs: captured behind the first step.  What their kernels allocate lies in a pool of its own, which keeps its memory and "
               "which torch.cuda.memory_allocated() does not count any more: compare reserved.  The graphs' own nodes, device memory outside PyTorch, are "
               "not counted";
    return NULL;
}
