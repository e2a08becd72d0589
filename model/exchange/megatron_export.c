/* megatron_export.c -- see megatron_import.h. */
#include "model/exchange/megatron_import.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/exchange/megatron_graphs.h"
#include "model/exchange/megatron_read.h"
#include "model/family/family.h"
#include "model/family/hybrid.h"
#include "model/plan/loss_check.h"

static void flag(FILE *to, bool is, const char *name)
{
    if (is)
        fprintf(to, "%s\n", name);
}

static void number(FILE *to, const char *name, int64_t n) { fprintf(to, "%s %" PRId64 "\n", name, n); }

static void write_context(const struct plan *p, FILE *to)
{
    static const char *const types[] = { [CONTEXT_ALL_GATHER] = "all_gather", [CONTEXT_RING] = "p2p", [CONTEXT_ULYSSES] = "a2a" };
    int64_t run = p->megatron.a2a_ranks;

    number(to, "--context-parallel-size", p->parallel.context);
    if (run > 1)
        fprintf(to, "--cp-comm-type a2a+p2p\n--hierarchical-context-parallel-sizes %" PRId64 " %" PRId64 "\n", run, p->parallel.context / run);
    else if (p->parallel.context_method != CONTEXT_RING)
        fprintf(to, "--cp-comm-type %s\n", types[p->parallel.context_method]);
}

/* Of an interleaved pipeline. */
static void write_chunks(const struct plan *p, FILE *to)
{
    flag(to, !p->megatron.overlap_p2p_comm, "--no-overlap-p2p-communication");
    if (p->megatron.microbatch_group_size_per_vp_stage != p->parallel.pipeline)
        number(to, "--microbatch-group-size-per-virtual-pipeline-stage", p->megatron.microbatch_group_size_per_vp_stage);
}

/* --recompute-granularity, and of what. */
static void write_recompute(const struct plan *p, FILE *to)
{
    const char *at = p->megatron.recompute_modules;
    int64_t first = p->megatron.recompute_num_layers;

    if (p->recompute == RECOMPUTE_NONE)
        return;
    fprintf(to, "--recompute-granularity %s\n", p->recompute == RECOMPUTE_FULL ? "full" : "selective");
    if (p->recompute == RECOMPUTE_FULL)
        fprintf(to, "--recompute-method %s\n--recompute-num-layers %" PRId64 "\n", first ? "block" : "uniform", first ? first : 1);
    if (p->recompute != RECOMPUTE_SELECTIVE || !*at)
        return;
    fprintf(to, "--recompute-modules ");
    for (; *at; at++)
        fputc(*at == ',' ? ' ' : *at, to);
    fputc('\n', to);
}

static void write_parallel(const struct plan *p, FILE *to)
{
    const struct parallel_options *of = &p->parallel;

    number(to, "--tensor-model-parallel-size", of->tensor);
    flag(to, of->sequence && of->tensor > 1, "--sequence-parallel");
    number(to, "--pipeline-model-parallel-size", of->pipeline);
    if (of->context > 1)
        write_context(p, to);
    if (of->pipeline == 1)
        return;
    flag(to, p->megatron.defer_embedding_wgrad_compute, "--defer-embedding-wgrad-compute");
    if (p->megatron.wgrad_deferral_limit > 0)
        number(to, "--wgrad-deferral-limit", p->megatron.wgrad_deferral_limit);
    if (p->megatron.pipeline_layout[0]) {
        fprintf(to, "--pipeline-model-parallel-layout \"%s\"\n", p->megatron.pipeline_layout);
        if (of->virtual_stages > 1)
            write_chunks(p, to);
        return;
    }
    flag(to, of->first_stage_less == 1, "--account-for-embedding-in-pipeline-split");
    flag(to, of->last_stage_less == 1, "--account-for-loss-in-pipeline-split");
    if (of->virtual_stages == 1)
        return;
    number(to, "--num-virtual-stages-per-pipeline-rank", of->virtual_stages);
    write_chunks(p, to);
}

/* How tokens spread is no option.  A balancing loss with a coefficient of 0, Megatron-LM's own, is none (router.py,
 * is_aux_loss_enabled()): which loss the training takes is not the plan's to say. */
static void say_spread(const struct plan *p)
{
    double most = p->parallel.expert > 1 ? p->parallel.expert_imbalance : 1;

    if (most > 1)
        notes_say("dpx: export to megatron: parallel.expert_imbalance: the plan's busiest rank has %g times the mean of rows, which no option "
                  "says: the training's own balancing decides", most);
    else
        notes_say("dpx: export to megatron: tokens are planned to spread over experts evenly, which no option of a training says; to time the "
                  "plan: --moe-router-force-load-balancing");
}

/* deepseek_v3's: sigmoids, chosen with a bias from the best groups. */
static void write_router(const struct model *m, FILE *to)
{
    if (m->route_groups == 0)
        return;
    fprintf(to, "--moe-router-score-function sigmoid\n--moe-router-enable-expert-bias\n");
    if (m->route_groups > 1) {
        number(to, "--moe-router-num-groups", m->route_groups);
        number(to, "--moe-router-group-topk", m->route_best);
    }
    fprintf(to, "--moe-router-topk-scaling-factor %g\n", m->route_scale);
}

/* The dispatcher and the experts that our schedules have. */
static void write_experts(const struct plan *p, FILE *to)
{
    const struct model *m = &p->model;

    if (m->experts == 0)
        return;
    if (m->dense_first > 0)
        fprintf(to, "--moe-layer-freq \"([0]*%" PRId64 "+[1]*%" PRId64 ")\"\n", m->dense_first, m->layers - m->dense_first);
    if (m->shared_ffn > 0)
        number(to, "--moe-shared-expert-intermediate-size", m->shared_ffn);
    write_router(m, to);
    number(to, "--num-experts", m->experts);
    number(to, "--moe-router-topk", m->experts_used);
    number(to, "--moe-ffn-hidden-size", m->expert_ffn);
    fprintf(to, "--moe-grouped-gemm\n--moe-token-dispatcher-type alltoall\n");
    number(to, "--expert-model-parallel-size", p->parallel.expert);
    number(to, "--expert-tensor-parallel-size", p->parallel.expert_tensor);
    if (p->megatron.moe_expert_capacity_factor > 0)
        fprintf(to, "--moe-expert-capacity-factor %g\n", p->megatron.moe_expert_capacity_factor);
    flag(to, p->megatron.moe_pad_expert_input_to_capacity, "--moe-pad-expert-input-to-capacity");
    if (p->megatron.moe_aux_loss_coeff > 0)
        fprintf(to, "--moe-router-load-balancing-type %s\n--moe-aux-loss-coeff %g\n",
                p->megatron.moe_router_load_balancing_type == BALANCE_AUX_LOSS ? "aux_loss" : "seq_aux_loss", p->megatron.moe_aux_loss_coeff);
    flag(to, p->megatron.moe_permute_fusion, "--moe-permute-fusion");
    flag(to, p->megatron.moe_router_padding_for_quantization, "--moe-router-padding-for-quantization");
    if (!p->megatron.moe_pad_expert_input_to_capacity)
        say_spread(p);
}

static void write_data(const struct plan *p, FILE *to)
{
    const struct megatron_options *o = &p->megatron;

    flag(to, p->strategy == STRAT_ZERO1, "--use-distributed-optimizer");
    if (p->strategy == STRAT_ZERO1 && p->shard_group < plan_data_ranks(p))
        number(to, "--num-distributed-optimizer-instances", plan_data_ranks(p) / p->shard_group);
    flag(to, o->overlap_grad_reduce, "--overlap-grad-reduce");
    flag(to, o->overlap_param_gather, "--overlap-param-gather");
    flag(to, p->reduce_dtype == DT_BF16, "--grad-reduce-in-bf16");
    flag(to, o->ddp_average_in_collective, "--ddp-average-in-collective");
    flag(to, !o->gradient_accumulation_fusion, "--no-gradient-accumulation-fusion");
    flag(to, !o->bias_swiglu_fusion, "--no-bias-swiglu-fusion");
    flag(to, o->ddp_pad_buckets_for_high_nccl_busbw, "--ddp-pad-buckets-for-high-nccl-busbw");
    flag(to, !o->check_for_nan_in_loss_and_grad, "--no-check-for-nan-in-loss-and-grad");
    flag(to, o->tp_comm_overlap, "--tp-comm-overlap");
    flag(to, o->calculate_per_token_loss, "--calculate-per-token-loss");
    flag(to, p->model.kv_rank > 0 && !o->apply_rope_fusion, "--no-rope-fusion");
    if (o->mtp_num_layers > 0)
        number(to, "--mtp-num-layers", o->mtp_num_layers);
    megatron_write_states(p, to);
    number(to, "--ddp-bucket-size", o->ddp_bucket_size);
    number(to, "--make-vocab-size-divisible-by", o->make_vocab_size_divisible_by);
}

static void write_scaled(const struct plan *p, FILE *to)
{
    static const char *const format[] = { NULL, "e4m3", "hybrid" }, *const backend[] = { "auto", "flash", "fused", "unfused" }, *const recipe[] = { "delayed", "tensorwise", "blockwise", "mxfp8" };
    const struct megatron_options *o = &p->megatron;

    if (o->fp8_format)
        fprintf(to, "--fp8-format %s\n--fp8-recipe %s\n", format[o->fp8_format], recipe[o->fp8_recipe]);
    if (o->attention_backend)
        fprintf(to, "--attention-backend %s\n", backend[o->attention_backend]);
    flag(to, o->fp4_format, "--fp4-format e2m1\n--fp4-recipe nvfp4");
    flag(to, o->fp8_format && o->fp8_param_gather, "--fp8-param-gather");
    flag(to, o->fp8_format && o->reuse_grad_buf_for_mxfp8_param_ag, "--reuse-grad-buf-for-mxfp8-param-ag");
    if (o->fp8_format && o->tp_only_amax_red)           /* training/arguments.py: "no CLI argument exists for these" */
        notes_say("dpx: export to megatron: megatron.tp_only_amax_red: no option of Megatron-LM's command line says it: a field of TransformerConfig does");
    if (plan_scaled(p) && o->first_last_layers_bf16) {
        flag(to, true, "--first-last-layers-bf16");
        number(to, "--num-layers-at-start-in-bf16", o->num_layers_at_start_in_bf16);
        number(to, "--num-layers-at-end-in-bf16", o->num_layers_at_end_in_bf16);
    }
    if (o->fp8_format && o->fp8_recipe == FP8_DELAYED)
        number(to, "--fp8-amax-history-len", o->fp8_amax_history_len);
}

/* MLATransformerConfig's.  Without scaling YaRN by 1 is plain rotation (yarn_rotary_pos_embedding.py); where it begins no option says: 4096. */
static void write_latent(const struct model *m, FILE *to)
{
    double from = megatron_scaling(m, "original_max_position_embeddings", 4096);

    if (m->kv_rank == 0)
        return;
    fprintf(to, "--multi-latent-attention\n");
    if (m->q_rank > 0)
        number(to, "--q-lora-rank", m->q_rank);
    number(to, "--kv-lora-rank", m->kv_rank);
    number(to, "--qk-head-dim", m->head_dim - m->rope_dim);
    number(to, "--qk-pos-emb-head-dim", m->rope_dim);
    number(to, "--v-head-dim", m->value_dim);
    fprintf(to, "--rope-type yarn\n--rotary-scaling-factor %g\n--mscale %g\n--mscale-all-dim %g\n", megatron_scaling(m, "factor", 1), megatron_scaling(m, "mscale", 1),
            megatron_scaling(m, "mscale_all_dim", 0));
    if (from < 4096 || from > 4096)
        notes_say("dpx: export to megatron: original_max_position_embeddings: %g, which no option says: Megatron-LM's YaRN begins at 4096", from);
}

/* gpt_oss: GptOssExperts' sigmoid of 1.702 x, its limit and its "up + 1".  YaRN is no option of pretrain_gpt.py but for latent attention. */
static void write_sinks(const struct model *m, FILE *to)
{
    fprintf(to, "--glu-linear-offset 1.0\n--activation-func-clamp-value 7.0\n--softmax-type learnable\n");
    fprintf(to, "--window-size %" PRId64 ",0\n--window-attn-skip-freq %" PRId64 "\n--no-bias-dropout-fusion\n", m->window, m->full_every);
    if (m->rope_scaling)
        notes_say("dpx: export to megatron: rope_scaling: pretrain_gpt.py has no option for it here: Megatron-LM's post_training models have (--enable-gpt-oss)");
}

/* gpt_builders.py passes on whether frequencies are scaled as Llama 3.1's, and no factor. */
static void write_positions(const struct model *m, FILE *to)
{
    bool scaled = megatron_scales_rope(m), own = m->kv_rank > 0 || family_for(m)->sinks;

    fprintf(to, "--position-embedding-type %s\n", m->position == POS_ROPE ? "rope" : m->position == POS_NONE ? "none" : "learned_absolute");
    if (m->position != POS_ROPE)
        return;
    fprintf(to, "--rotary-base %.0f\n", m->rope_theta);
    if (m->rotary_dim != m->head_dim && m->kv_rank == 0)
        fprintf(to, "--rotary-percent %.10g\n", (double)m->rotary_dim / (double)m->head_dim);
    flag(to, scaled, "--use-rope-scaling");
    if (scaled && !megatron_scales_rope_as_is(m))
        notes_say("dpx: export to megatron: rope_scaling: %s has factor %g from %g positions on, which no option says: --use-rope-scaling of pretrain_gpt.py has 8 "
                  "from 8192 on", m->name, megatron_scaling(m, "factor", 8), megatron_scaling(m, "original_max_position_embeddings", 8192));
    if (m->rope_scaling && !scaled && !own)
        notes_say("dpx: export to megatron: rope_scaling: pretrain_gpt.py has no option for the one of %s: its positions would not be scaled", m->name);
}

/* HybridModel's, of pretrain_hybrid.py. */
static void write_hybrid(const struct model *m, FILE *to)
{
    fprintf(to, "--hybrid-layer-pattern ");
    for (int64_t b = 0; b < m->layers; b++)
        fputc(hybrid_letter(hybrid_kind(m, b)), to);
    fputc('\n', to);
    number(to, "--mamba-num-heads", m->ssm_heads);
    number(to, "--mamba-head-dim", m->ssm_head_dim);
    number(to, "--mamba-num-groups", m->ssm_groups);
    number(to, "--mamba-state-dim", m->ssm_state);
}

/* GPTModel's: what Megatron-LM would make otherwise is GPT-2's. */
static void write_model(const struct model *m, int64_t seq, FILE *to)
{
    bool oss = family_for(m)->sinks;

    number(to, "--num-layers", m->layers);
    if (m->hybrid)
        write_hybrid(m, to);
    number(to, "--hidden-size", m->hidden);
    number(to, "--ffn-hidden-size", m->ffn);
    number(to, "--num-attention-heads", m->heads);
    flag(to, m->kv_heads != m->heads, "--group-query-attention");
    if (m->kv_heads != m->heads)
        number(to, "--num-query-groups", m->kv_heads);
    if (m->head_dim * m->heads != m->hidden && m->kv_rank == 0)
        number(to, "--kv-channels", m->head_dim);
    number(to, "--max-position-embeddings", m->position == POS_LEARNED ? m->positions : m->context > seq ? m->context : seq);
    number(to, "--vocab-size", m->vocab);
    flag(to, *megatron_activation(m), megatron_activation(m));
    if (oss)
        write_sinks(m, to);
    flag(to, m->norm == NORM_RMS, "--normalization RMSNorm");
    fprintf(to, "--norm-epsilon %g\n", m->norm_eps);
    if (m->init_std < 0.02 || m->init_std > 0.02)
        fprintf(to, "--init-method-std %g\n", m->init_std);
    flag(to, megatron_adds_one_to_norms(m), "--apply-layernorm-1p");
    write_positions(m, to);
    flag(to, !m->tied, "--untie-embeddings-and-output-weights");
    flag(to, !m->mlp_bias && !oss, "--disable-bias-linear");
    flag(to, m->qkv_bias && !m->out_bias, "--add-qkv-bias");
    flag(to, m->qk_norm || m->kv_rank > 0, "--qk-layernorm");
    write_latent(m, to);
}

int megatron_export(const struct plan *p, FILE *to)
{
    if (p->dialect != DIALECT_MEGATRON)
        return fail("export to megatron: dialect: the plan is for %s", dialect_name(p->dialect));
    if (p->parallel.first_stage_less > 1 || p->parallel.last_stage_less > 1)
        return fail("export to megatron: parallel.first_stage_less_layers: 0 or 1 (--account-for-embedding-in-pipeline-split)");
    if (!megatron_activation(&p->model))
        return fail("export to megatron: model: %s has an activation that no option of Megatron-LM states: GELU, --swiglu, --squared-relu", p->model.name);
    if (p->parallel.virtual_stages > 1 && p->parallel.pipeline <= 2 && !p->megatron.overlap_p2p_comm)
        return fail("export to megatron: megatron.overlap_p2p_comm: false: megatron-core runs it, but training/arguments.py asks for more than 2 ranks in "
                    "parallel.pipeline beside --no-overlap-p2p-communication: true");
    if (p->megatron.scale_logits)
        return fail("export to megatron: megatron.scale_logits: --use-mup says it with a base width or a multiplier, which no key has: false");
    if (loss_is_of_actor(p->loss) || loss_is_distributed(p->loss))
        return fail("export to megatron: loss: verl's and NeMo-RL's own (megatron.logprob_chunk_size) are no options of Megatron-LM: fp32, compiled or fused");
    write_model(&p->model, p->seq, to);
    number(to, "--seq-length", p->seq);
    number(to, "--micro-batch-size", p->micro_batch);
    number(to, "--global-batch-size", plan_global_batch(p));
    flag(to, p->precision == DT_BF16, "--bf16");
    flag(to, p->precision == DT_FP16, "--fp16");
    flag(to, p->precision == DT_FP16 && p->reduce_dtype == DT_FP32, "--accumulate-allreduce-grads-in-fp32");
    fprintf(to, "--transformer-impl %s\n", p->kernels == KERNELS_TE ? "transformer_engine" : "local");
    fprintf(to, "--clip-grad %g\n--hidden-dropout %g\n--attention-dropout %g\n", p->clip, p->dropout, p->dropout);
    write_parallel(p, to);
    write_experts(p, to);
    write_data(p, to);
    write_scaled(p, to);
    flag(to, p->loss != LOSS_FP32, "--cross-entropy-loss-fusion");
    flag(to, p->loss == LOSS_FUSED, "--cross-entropy-fusion-impl te");
    write_recompute(p, to);
    megatron_write_graphs(p, to);
    return 0;
}
