/* parallel_check.c -- what "parallel" refuses, with the key named: see parallel_check.h. */
#include "model/plan/parallel_check.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/attention.h"
#include "model/plan/deepspeed_pipeline_check.h"
#include "model/plan/local_share.h"
#include "model/plan/megatron_check.h"

int parallel_check_ranks(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    int64_t one_copy;

    if (of->tensor < 1 || of->context < 1 || of->pipeline < 1)
        return fail("%s: parallel: tensor, context and pipeline are 1 or more", where);
    if (!checked_mul(of->tensor * of->context, of->pipeline, &one_copy) || p->cluster.world_size % one_copy)
        return fail("%s: parallel: tensor %" PRId64 " x context %" PRId64 " x pipeline %" PRId64
                    " does not divide the world of %" PRId64 " ranks", where, of->tensor, of->context, of->pipeline,
                    p->cluster.world_size);
    return 0;
}

/* Blocks that torchtitan's plan for transformers' code names (experiments/transformers_modeling_backend of 0.2.2:
 * apply_non_moe_tp). */
static const char *not_in_plan(const struct model *m)
{
    static const char *const families[] = { "llama", "mistral", "ministral", "qwen2", "qwen3", "granite", "seed_oss" };
    bool known = false;

    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        known |= !strcmp(m->family, families[i]);
    if (!known)
        return "torchtitan's plan is for llama's layers (q_proj to down_proj, two norms)";
    if (m->tied)
        return "torchtitan's plan makes two parameters of a tied embedding: a model with tie_word_embeddings false is what would train";
    for (int t = 0; t < m->ntensors; t++)
        if (m->tensors[t].is_bias && (m->tensors[t].role == ROLE_ATTN_OUT || m->tensors[t].role == ROLE_DOWN))
            return "biases of its row-parallel layers are not modelled";
    return NULL;
}

/* torchtitan 0.2.2 with PyTorch's kernels. */
static int check_torch_tensor(const struct plan *p, const char *where)
{
    const char *why = not_in_plan(&p->model);

    if (p->parallel.async_tensor && p->kernels != KERNELS_TORCH_COMPILE)
        return fail("%s: parallel.async_tensor: it is a pass of torch.compile (\"Async TP requires compile\", torchtitan 0.2.2): kernels "
                    "\"torch-compile\"", where);
    if (p->parallel.async_tensor && (p->parallel.tensor > p->cluster.gpus_per_node || p->cluster.gpus_per_node % p->parallel.tensor))
        return fail("%s: parallel.async_tensor: its ranks read each other's memory: parallel.tensor %" PRId64 " has to lie within nodes of %"
                    PRId64 " GPUs", where, p->parallel.tensor, (int64_t)p->cluster.gpus_per_node);
    if (p->kernels == KERNELS_DPX)
        return fail("%s: kernels: \"%s\" with parallel.tensor are not modelled in dialect %s: take torch-compile, torch-sdpa or torch-eager",
                    where, kernels_name(p->kernels), dialect_name(p->dialect));
    if (p->kernels == KERNELS_TORCH_COMPILE && !p->parallel.sequence)
        return fail("%s: kernels: \"torch-compile\" with parallel.tensor is modelled with sequence parallelism: parallel.sequence true",
                    where);
    if (p->kernels == KERNELS_TORCH_EAGER && p->parallel.sequence)
        return fail("%s: kernels: transformers' eager attention makes its mask as long as a rank's share of the positions "
                    "(create_causal_mask() of inputs_embeds): take torch-sdpa, or parallel.sequence false", where);
    if (why)
        return fail("%s: parallel.tensor: %s: %s", where, p->model.name, why);
    if (p->strategy != STRAT_FSDP && p->strategy != STRAT_DDP)
        return fail("%s: parallel.tensor: with %s it is not modelled yet: take strategy fsdp", where, strategy_name(p->strategy));
    if (p->strategy == STRAT_DDP && plan_recipe(p).autocast)
        return fail("%s: precision: autocast's casts of DTensors are not modelled yet: fp32, or ddp.model_dtype", where);
    if (p->strategy == STRAT_DDP && (p->ddp.find_unused_parameters || p->ddp.static_graph))
        return fail("%s: ddp.%s: with parallel.tensor it is not modelled yet", where, p->ddp.static_graph ? "static_graph"
                    : "find_unused_parameters");
    if (p->loss != LOSS_FP32)
        return fail("%s: loss: with parallel.tensor fp32: other kernels do not take logits that lie on several ranks", where);
    if (attention_masked(p))
        return fail("%s: parallel.tensor: not modelled for attention with a mask", where);
    return 0;
}

/* AutoTP in training, by transformers' plan (engine._apply_autotp_partitioning(), module_inject/ of DeepSpeed 0.19.6). */
static int check_autotp(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    bool biased = false;

    for (int t = m->block0; t < m->block0 + m->per_block; t++)
        biased |= m->tensors[t].is_bias;
    if (plan_version(p) < 19)
        return fail("%s: parallel.tensor: AutoTP is known of DeepSpeed 0.19.6 and 0.19.8: leave framework_version out or set one of them",
                    where);
    if (p->kernels != KERNELS_TORCH_SDPA)
        return fail("%s: kernels: AutoTP is modelled for torch-sdpa, not \"%s\"", where, kernels_name(p->kernels));
    if ((strcmp(m->family, "llama") && strcmp(m->family, "mistral")) || biased || m->tied)
        return fail("%s: parallel.tensor: %s: AutoTP is modelled for llama's and mistral's layers without biases and with a head of their own "
                    "so far", where, m->name);
    if (m->vocab % p->parallel.tensor)
        return fail("%s: parallel.tensor: the %" PRId64 " rows of %s's head do not divide by %" PRId64 " ranks: not modelled yet", where, m->vocab,
                    m->name, p->parallel.tensor);
    if (p->ds.offload_optimizer.device != OFFLOAD_NONE || p->ds.offload_param.device != OFFLOAD_NONE || p->ds.zero_hpz_partition_size > 1 ||
        (p->strategy == STRAT_ZERO1 && p->ds.grad_accum_fp32) || p->parallel.context > 1)
        return fail("%s: parallel.tensor: AutoTP beside parallel.context, offload, hpZ, or BF16_Optimizer (grad_accum_dtype fp32 at stage 1) is not "
                    "modelled yet", where);
    if (p->loss != LOSS_FP32)
        return fail("%s: loss: with parallel.tensor fp32", where);
    return attention_masked(p) ? fail("%s: parallel.tensor: not modelled for attention with a mask", where) : 0;
}

/* Megatron's block, by our own kernels. */
static int check_paper_tensor(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    bool embed_norm = false;

    for (int t = 0; t < m->ntensors; t++)
        embed_norm |= m->tensors[t].role == ROLE_EMBED_NORM;
    if (p->kernels != KERNELS_DPX)
        return fail("%s: kernels: in dialect paper parallel.tensor is modelled for \"dpx\"", where);
    if (p->strategy == STRAT_DP)
        return fail("%s: parallel.tensor: a parameter server with it is not modelled yet", where);
    if (m->parallel || m->norm_place != NORM_FIRST || embed_norm)
        return fail("%s: parallel.tensor: %s: it is modelled for two norms, each before its half of a block", where, m->name);
    return 0;
}

static int check_tensor(const struct plan *p, const char *where)
{
    const char *why = local_share_refused(&p->model, p->parallel.tensor);

    if (why)
        return fail("%s: parallel.tensor: %s cannot be cut over %" PRId64 " ranks: %s", where, p->model.name,
                    p->parallel.tensor, why);
    if (p->parallel.sequence && p->seq % p->parallel.tensor)
        return fail("%s: parallel.sequence: seq %" PRId64 " does not divide by the %" PRId64 " tensor-parallel ranks", where,
                    p->seq, p->parallel.tensor);
    if (p->dialect == DIALECT_MEGATRON)
        return 0;
    if (p->dialect == DIALECT_DEEPSPEED)
        return check_autotp(p, where);
    return p->dialect == DIALECT_PAPER ? check_paper_tensor(p, where) : check_torch_tensor(p, where);
}

/* torch.distributed.tensor.experimental.context_parallel with torchtitan 0.2.2. */
static int check_torch_context(const struct plan *p, const char *where)
{
    if (p->strategy != STRAT_FSDP)
        return fail("%s: parallel.context: torchtitan applies FSDP wherever context parallelism is (ParallelDims of 0.2.2), and "
                    "PyTorch's own beside DDP is not modelled yet: take strategy fsdp, or 1", where);
    if (p->parallel.context_method == CONTEXT_ULYSSES)
        return fail("%s: parallel.context_method: PyTorch has all-gather and ring (set_rotate_method), not ulysses", where);
    /* _attention.py of 2.5.1; _ContextParallelOptions has both in 2.6.0. */
    if (plan_version(p) <= 2005 && (p->parallel.context_balance || p->parallel.context_method != CONTEXT_RING))
        return fail("%s: parallel.context_%s: until 2.5 PyTorch's ring had neither a balance nor an all-gather: context_method \"ring\" with "
                    "context_balance false, or framework_version 2.9", where, p->parallel.context_balance ? "balance" : "method");
    if (p->kernels != KERNELS_TORCH_SDPA)
        return fail("%s: kernels: context parallelism replaces scaled_dot_product_attention(): take torch-sdpa, not \"%s\"", where,
                    kernels_name(p->kernels));
    if (attention_masked(p))
        return fail("%s: parallel.context: %s's attention gets a mask here, and PyTorch's ring takes none (\"attn_bias is not "
                    "supported yet\")", where, p->model.name);
    if (attention_choice(p) <= ATTENTION_MATH)
        return fail("%s: parallel.context: no fused kernel takes %s's attention, and PyTorch's ring is over these alone (\"CP only "
                    "supports flash attention and memory efficient attention now\")", where, p->model.name);
    if (p->model.position == POS_LEARNED || p->model.position == POS_ALIBI)
        return fail("%s: parallel.context: modelled for rotary positions", where);
    if (p->model.attn_dropout > 0 && p->dropout > 0)
        return fail("%s: dropout: attention's is not modelled with parallel.context", where);
    return 0;
}

/* Heads are dealt out. */
static int check_heads(const struct plan *p, int64_t ranks, bool repeats, const char *where)
{
    bool queries = p->model.heads % ranks == 0, keys = p->model.kv_heads % ranks == 0 || (repeats && ranks % p->model.kv_heads == 0);

    if (queries && keys)
        return 0;
    return fail("%s: parallel.context_method: ulysses deals out heads, and the %" PRId64 " %s of %s do not divide by %" PRId64 " ranks (tensor x "
                "context)", where, queries ? p->model.kv_heads : p->model.heads, queries ? "key/value heads" : "attention heads",
                p->model.name, ranks);
}

/* What stops register_with_transformers() and the attention that it registers (runtime/sequence_parallel/ulysses_sp.py). */
static int check_ulysses_sp(const struct plan *p, const char *where)
{
    static const char *const without[] = { "gpt2", "opt", "bloom", "gpt_neox", "falcon", "mpt" };

    if (p->kernels != KERNELS_TORCH_SDPA)
        return fail("%s: kernels: DeepSpeed's Ulysses takes the place of scaled_dot_product_attention(): torch-sdpa, or dpx, not \"%s\"",
                    where, kernels_name(p->kernels));
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (!strcmp(p->model.family, without[i]))
            return fail("%s: parallel.context: UlyssesSPAttentionHF reads num_key_value_heads, which the config of %s (%s) does not have",
                        where, p->model.name, without[i]);
    if (attention_masked(p))
        return fail("%s: parallel.context: %s's attention gets a mask here, which UlyssesSPAttentionHF drops: windows would be ignored",
                    where, p->model.name);
    if (attention_choice(p) <= ATTENTION_MATH)
        return fail("%s: parallel.context: no fused kernel takes %s's attention: not modelled with Ulysses", where, p->model.name);
    if (p->recompute == RECOMPUTE_SELECTIVE)
        return fail("%s: recompute: selective would repeat Ulysses' exchanges in backward, which is not modelled: take full, or none", where);
    return check_heads(p, p->parallel.context, true, where);
}

/* DeepSpeed-Ulysses: engine.py, runtime/zero/, bf16_optimizer.py of 0.19.6 and 0.19.8. */
static int check_deepspeed_context(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;

    if (plan_version(p) < 19)
        return fail("%s: parallel.context: Ulysses is known of DeepSpeed 0.19.6 and 0.19.8: leave framework_version out or set one of "
                    "them", where);
    if (of->context_method != CONTEXT_ULYSSES || of->context_balance)
        return fail("%s: parallel.context_%s: DeepSpeed has ulysses alone, where every rank has all positions of its heads: %s", where,
                    of->context_balance ? "balance" : "method", of->context_balance ? "false" : "\"ulysses\"");
    if (p->ds.communication_dtype >= 0 && p->ds.communication_dtype != DT_FP32)
        return fail("%s: deepspeed.communication_data_type: with parallel.context DeepSpeed reduces in fp32 all the same "
                    "(seq_parallel_communication_data_type)", where);
    if (p->strategy == STRAT_ZERO1 && p->precision == DT_BF16 && p->ds.grad_accum_fp32)
        return fail("%s: deepspeed.grad_accum_dtype: fp32 makes stage 1 BF16_Optimizer, whose first step fails with parallel.context in "
                    "get_global_norm_of_tensors(): \"%s\" (it takes ranks that share positions for tensor-parallel ones, of which all "
                    "but the first have nothing to add): leave it out", where,
                    plan_has_deepspeed_0_19_8(p) ? "RuntimeError: stack expects a non-empty TensorList" : "IndexError: list index out of range");
    if (p->kernels == KERNELS_DPX)
        return check_heads(p, of->context, false, where);
    return check_ulysses_sp(p, where);
}

/* Ring attention, all-gather and Ulysses by our own kernels. */
static int check_paper_context(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    int64_t ranks = of->tensor * of->context;

    if (p->kernels != KERNELS_DPX)
        return fail("%s: kernels: in dialect paper parallel.context is modelled for \"dpx\"", where);
    if (p->strategy == STRAT_DP)
        return fail("%s: parallel.context: a parameter server with it is not modelled yet", where);
    if (of->context_method != CONTEXT_ULYSSES)
        return 0;
    if (of->context_balance)
        return fail("%s: parallel.context_balance: with ulysses every rank has all positions of its heads: there is nothing to balance", where);
    return check_heads(p, ranks, false, where);
}

static int check_context(const struct plan *p, const char *where)
{
    int64_t chunks = p->parallel.context * (p->parallel.context_balance ? 2 : 1);

    if (p->seq % chunks)
        return fail("%s: parallel.context: seq %" PRId64 " does not divide into the %" PRId64 " chunks of %" PRId64 " ranks",
                    where, p->seq, chunks, p->parallel.context);
    if (p->parallel.tensor > 1 && p->parallel.sequence && p->seq % (p->parallel.tensor * p->parallel.context))
        return fail("%s: parallel.sequence: the %" PRId64 " positions of a context-parallel rank do not divide by the %" PRId64
                    " tensor-parallel ranks", where, plan_rank_seq(p), p->parallel.tensor);
    if (p->dialect == DIALECT_PAPER)
        return check_paper_context(p, where);
    if (p->dialect == DIALECT_DEEPSPEED)
        return check_deepspeed_context(p, where);
    return p->dialect == DIALECT_MEGATRON ? 0 : check_torch_context(p, where);
}

/* Every stage has a block; Megatron-LM's and DeepSpeed's first and last may have the embedding or the head alone. */
static int check_stages(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    int64_t stages = of->pipeline * of->virtual_stages;
    bool alone = p->dialect == DIALECT_MEGATRON || p->dialect == DIALECT_DEEPSPEED;

    for (int64_t s = 0; s < stages; s++)
        if (local_share_stage_of(p, stages, s).blocks < (alone && (s == 0 || s == stages - 1) ? 0 : 1))
            return fail("%s: parallel.pipeline: stage %" PRId64 " of %" PRId64 " would have no block of the %" PRId64 " of %s",
                        where, s, stages, p->model.layers, p->model.name);
    return 0;
}

/* What PyTorch, or torchtitan around it, refuses under a pipeline, or no lowering issues. */
static int check_stage(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    bool one = of->virtual_stages == 1, units = p->strategy >= STRAT_ZERO2;

    if (p->dialect == DIALECT_TORCH && p->model.tied)
        return fail("%s: parallel.pipeline: torchtitan has no weight tying under a pipeline, and %s ties its head to its "
                    "embedding", where, p->model.name);
    if (p->sync_every_micro_step)
        return fail("%s: sync_every_micro_step: under a pipeline gradients are reduced after a stage's last backward", where);
    if (units && p->unit != UNIT_BLOCK && p->unit != UNIT_HALF_BLOCK && !(p->unit == UNIT_BLOCKS && one))
        return fail("%s: unit: under a pipeline \"block\" or \"half-block\"%s", where, one ? ", or \"<n> blocks\"" : "");
    if (p->fsdp.reshard_after_forward > 1 || p->fsdp.root_reshard_after_forward > 1)
        return fail("%s: fsdp.reshard_after_forward: to a number of ranks it is not modelled under a pipeline", where);
    if (p->fsdp.cpu_offload || p->activation_offload != OFFLOAD_NOTHING || p->recompute == RECOMPUTE_OFFLOAD)
        return fail("%s: %s: offload is not modelled under a pipeline", where,
                    p->recompute == RECOMPUTE_OFFLOAD ? "recompute" : p->fsdp.cpu_offload ? "fsdp.cpu_offload" : "activation_offload");
    if (attention_mixed(p))
        return fail("%s: parallel.pipeline: %s has layers with and without a window: not modelled under a pipeline", where,
                    p->model.name);
    return 0;
}

static int check_schedule(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    enum pipeline_kind kind = of->pipeline_schedule;
    struct pipeline pipe = { kind, (int)of->pipeline, 0, (int)of->virtual_stages, (int)p->accumulation, 0 };
    bool old = p->dialect == DIALECT_TORCH && plan_version(p) < 2015;
    const char *why = pipeline_refused(&pipe);

    if (pipeline_too_few(&pipe) && (old || p->dialect == DIALECT_PAPER))
        why = NULL;
    if (why)
        return fail("%s: parallel.pipeline_schedule: %s: %s", where, pipeline_name(kind), why);
    if (pipeline_splits(kind) && p->recompute != RECOMPUTE_NONE)
        return fail("%s: recompute: %s splits backward in two, and torch would run a checkpointed block again for every weight",
                    where, pipeline_name(kind));
    if (pipeline_splits(kind) && p->kernels == KERNELS_TORCH_COMPILE)
        return fail("%s: kernels: the %s schedule is not supported with stage modules that have used torch.compile", where,
                    pipeline_name(kind));
    if (pipeline_splits(kind) && p->unit == UNIT_HALF_BLOCK)
        return fail("%s: unit: half-blocks are not modelled where backward is split in two", where);
    if (pipeline_splits(kind) && p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH)
        return fail("%s: parallel.pipeline_schedule: %s computes weights' gradients by autograd.grad(), which runs no hooks: "
                    "torch's DDP would not reduce them", where, pipeline_name(kind));
    if (old && kind != PIPELINE_GPIPE && kind != PIPELINE_1F1B && (why = pipeline_refused_in_step(&pipe)))
        return fail("%s: parallel.pipeline_schedule: %s: %s", where, pipeline_name(kind), why);
    return 0;
}

static int check_ddp_stage(const struct plan *p, const char *where)
{
    if (plan_recipe(p).autocast)
        return fail("%s: precision: torchtitan has mixed precision under a pipeline only with FSDP: fp32, or ddp.model_dtype",
                    where);
    return 0;
}

/* A stage adds its micro-steps' gradients up in the order of their backwards, and ddp from the first to the last. */
static int check_deterministic_stage(const struct plan *p, const char *where)
{
    if (!p->deterministic)
        return 0;
    if (p->parallel.pipeline_schedule == PIPELINE_LOOPED_BFS)
        return fail("%s: deterministic: looped-bfs runs backward from the last micro-step to the first, and ddp adds gradients up from the "
                    "first to the last: other bits", where);
    if (p->model.tied)
        return fail("%s: deterministic: %s ties its head to its embedding: two stages add up their parts of its gradient over all micro-steps, and "
                    "ddp adds up both parts of each: other bits", where, p->model.name);
    return 0;
}

/* Whether a step of more micro-steps costs no more to plan: what dpxrun runs is written pass by pass; GPipe and breadth first keep all
 * micro-steps' messages and activations, and torch's runtime all gradients that it sent. */
static bool comes_again(const struct plan *p)
{
    enum pipeline_kind k = p->parallel.pipeline_schedule;

    return p->kernels != KERNELS_DPX && p->dialect != DIALECT_PAPER &&
           (k == PIPELINE_1F1B || (p->dialect == DIALECT_MEGATRON && k == PIPELINE_INTERLEAVED));
}

static int check_passes(const struct plan *p, const char *where)
{
    int64_t chunks = p->parallel.virtual_stages, most = comes_again(p) ? PIPELINE_MOST_STEPS : PIPELINE_MOST_PASSES / chunks;

    if (p->accumulation <= most)
        return 0;
    return fail("%s: accumulation: a pipeline of %" PRId64 " chunk%s a rank%s is planned with at most %" PRId64 " micro-steps, not %" PRId64, where,
                chunks, chunks == 1 ? "" : "s", comes_again(p) ? "" : ", whose passes are not all alike,", most, p->accumulation);
}

static int check_pipeline(const struct plan *p, const char *where)
{
    if (check_passes(p, where) < 0)
        return -1;
    if (p->dialect == DIALECT_MEGATRON)
        return megatron_check_pipeline(p, where) < 0 ? -1 : check_stages(p, where);
    if (p->dialect == DIALECT_DEEPSPEED)
        return deepspeed_check_pipeline(p, where) < 0 ? -1 : check_stages(p, where);
    if (check_schedule(p, where) < 0 || check_stages(p, where) < 0 || check_stage(p, where) < 0)
        return -1;
    if (p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH)
        return 0;
    if (p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH)
        return check_ddp_stage(p, where);
    if (p->dialect == DIALECT_PAPER && p->strategy != STRAT_DP)
        return check_deterministic_stage(p, where);
    return fail("%s: parallel.pipeline: pipeline parallelism is not modelled yet for %s/%s", where, strategy_name(p->strategy),
                dialect_name(p->dialect));
}

int parallel_check(const struct plan *p, const char *where)
{
    if (plan_is_data_parallel(p))
        return 0;
    if (p->parallel.tensor > 1 && check_tensor(p, where) < 0)
        return -1;
    if (p->parallel.context > 1 && check_context(p, where) < 0)
        return -1;
    return p->parallel.pipeline > 1 ? check_pipeline(p, where) : 0;
}
