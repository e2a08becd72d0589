/* phases_nemo.c -- phase plans of NeMo-RL's configs (examples/configs, August 2026): grpo, ppo, dpo, sft and rm.
 *
 * A recipe says what differs from another file ("defaults"), and values may be other keys' ("${policy.model_name}"): phases_nemo_config.c follows both.
 *
 * The policy (models/automodel/setup.py) is NeMo Automodel's: FSDP2, weights in fp32, compute in bf16, gradients reduced in fp32, so that its form
 * reads the keys of policy.dtensor_cfg under its own names; or Megatron-LM's (phases_nemo_megatron.c).
 *
 * GRPO (algorithms/grpo.py).  Where generation shares the GPUs, the optimizer's states go to host memory before weights are handed over and the model
 * behind it, caches are emptied each time (offload_before_refit(), offload_after_refit()); log-probabilities have the model on the GPU and the states
 * not (prepare_for_lp_inference()).  The reference's weights wait in host memory and take the policy's place in its forward
 * (use_reference_model(): the policy's go to pinned memory, the reference's come, the policy's come back).  vLLM sleeps at level 1, in a process of its own (vllm_worker.py).  Elsewhere the engine has
 * policy.generation.colocated.resources: some GPUs of one node, or nodes.
 *
 * PPO (algorithms/ppo.py) has a critic too, the section "value" with the policy's keys, in workers of its own.  Policy and critic are in host memory
 * whenever they do not act; each epoch updates the critic, then the policy.
 *
 * DPO and the reward model: a sample is a chosen and a rejected sequence in one batch (dpo.py, rm.py); DPO's reference log-probabilities come in a
 * forward before each step (add_ref_logprobs_to_data()). */
#include "sim/plan/phases_nemo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/unread.h"
#include "model/form/form_automodel_kernels.h"
#include "sim/plan/named.h"

#define POLICY "policy."
#define CFG    "policy.dtensor_cfg."
#define GEN    "policy.generation."
#define VLLM   "policy.generation.vllm_cfg."

/* ---- what it is ---- */

enum algorithm { GRPO, PPO, DPO, SFT, RM, NALGORITHMS };
static const char *const algorithms[] = { "grpo", "ppo", "dpo", "sft", "rm" };

static bool has_section(const json_t *doc, const char *key) { return json_is_object(json_object_get(doc, key)); }

/* A recipe over another one ("defaults") may say nothing but on which GPUs, or where its logs are. */
static bool is_over_another(const json_t *doc)
{
    static const char *const any[] = { "policy", "cluster", "checkpointing", "logger", "data_plane", "ppo" };
    bool is = false;

    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        is |= has_section(doc, any[i]);
    return is && json_is_string(json_object_get(doc, "defaults"));
}

bool phases_is_nemo(const struct form_file *f)
{
    bool any = false;

    if (!f->doc || f->kind == FORM_TOML)
        return false;
    for (int i = 0; i < NALGORITHMS; i++)
        any |= has_section(f->doc, algorithms[i]);
    any |= has_section(f->doc, "distillation") || form_value(f->doc, "policy.generation");
    return (any && has_section(f->doc, "policy")) || is_over_another(f->doc);
}

static int algorithm_of(struct importing *in)
{
    bool distils = has_section(in->f->doc, "distillation");

    for (int i = 0; i < NALGORITHMS && !distils; i++)
        if (has_section(in->f->doc, algorithms[i]) && (i != GRPO || !has_section(in->f->doc, "ppo")))
            return i;
    return fail("%s: of NeMo-RL grpo, ppo, dpo, sft and rm are planned, not %s", in->f->path, distils ? "distillation" : "this one");
}

/* What is on and not planned. */
static int refuses(struct importing *in)
{
    static const struct { const char *path, *why; } never[] = {
        { POLICY "draft.enabled", "a draft model is not planned" },
        { "ppo.use_dynamic_sampling", "how many batches are generated until enough groups differ is not known beforehand" },
        { "grpo.use_dynamic_sampling", "how many batches are generated until enough groups differ is not known beforehand" },
        { "env.reward_model.enabled", "a reward model on GPUs of its own is not planned" }, { POLICY "quantization.enabled", "quantised weights are not planned" },
        { "reward_model.enabled", "a reward model on GPUs of its own is not planned" },
        { "on_policy_distillation.enabled", "a teacher on GPUs of its own is not planned" },
    };

    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (import_flag(in, never[i].path, false))
            return fail("%s: %s: %s", in->f->path, never[i].path, never[i].why);
    if (import_flag(in, CFG "enabled", false) == import_flag(in, POLICY "megatron_cfg.enabled", false))
        return fail("%s: " CFG "enabled, megatron_cfg.enabled: one of them must be true", in->f->path);
    if (form_value(in->f->doc, CFG "custom_parallel_plan"))
        return fail("%s: " CFG "custom_parallel_plan: a parallel plan of one's own is not planned", in->f->path);
    for (size_t i = 0; i < 2; i++) {
        static const char *const precision[] = { POLICY "precision", "value.precision" };
        if (strcmp(import_text(in, precision[i], "bfloat16"), "bfloat16") != 0)
            return fail("%s: %s: %.20s: bfloat16 is planned", in->f->path, precision[i], import_text(in, precision[i], ""));
    }
    if (import_flag(in, POLICY "sequence_packing.enabled", false) && import_flag(in, POLICY "dynamic_batching.enabled", false))
        return fail("%s: " POLICY "dynamic_batching.enabled: NeMo-RL refuses it beside sequence_packing", in->f->path);
    for (size_t i = 0; i < 2; i++) {
        static const char *const multiplier[] = { "grpo.batch_multiplier", "ppo.batch_multiplier" }, *const async[] = { "grpo.async_grpo.enabled", "ppo.async_ppo.enabled" };
        if (import_count(in, multiplier[i], 1, 1) > 1)
            return fail("%s: %s: more responses than are trained on are not planned", in->f->path, multiplier[i]);
        if (import_flag(in, async[i], false) && import_flag(in, GEN "colocated.enabled", true))
            return fail("%s: %s: NeMo-RL has it with " GEN "colocated.enabled: false alone", in->f->path, async[i]);
    }
    if (form_value(in->f->doc, "env.reward_model.model_name"))
        return fail("%s: env.reward_model: a reward model on GPUs of its own is not planned", in->f->path);
    return in->failed ? -1 : 0;
}

/* ---- the policy ---- */

/* A micro-step of packed or grouped samples takes so many tokens. */
static int64_t micro_of(struct importing *in, const char *size, const char *tokens, int64_t usual)
{
    bool packed = import_flag(in, POLICY "sequence_packing.enabled", false), grouped = import_flag(in, POLICY "dynamic_batching.enabled", false);
    int64_t seq = import_count(in, POLICY "max_total_sequence_length", 1, 0), n = import_count(in, size, 1, usual);
    char path[80];

    if (!packed && !grouped)
        return n;
    snprintf(path, sizeof path, POLICY "%s.%s", packed ? "sequence_packing" : "dynamic_batching", tokens);
    int64_t all = import_count(in, path, 1, seq * n);
    return seq > 0 && all / seq > 0 ? all / seq : 1;
}

static void put(json_t *to, const char *key, const json_t *doc, const char *path)
{
    const json_t *v = form_value(doc, path);

    if (v)
        json_object_set(to, key, (json_t *)(uintptr_t)v);
}

/* The keys of lora_cfg that Automodel's peft has too. */
static json_t *peft(const json_t *doc)
{
    static const char *const keys[] = { "dim", "alpha", "dropout", "target_modules", "match_all_linear", "exclude_modules" };
    json_t *out = json_object();
    char path[60];

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(path, sizeof path, CFG "lora_cfg.%s", keys[i]);
        put(out, keys[i], doc, path);
    }
    json_object_set_new(out, "use_memory_efficient_lora", json_false());
    return out;
}

/* models/automodel/setup.py: flash attention 2 for packed samples alone; Liger-Kernel's layers where they are asked for. */
static void put_kernels(struct importing *in, json_t *model)
{
    bool packs = import_flag(in, POLICY "sequence_packing.enabled", false) && import_count(in, CFG "context_parallel_size", 1, 1) == 1;

    json_object_set_new(model, "attn_implementation", json_string(packs ? "flash_attention_2" : "sdpa"));
    json_object_set_new(model, "use_liger_kernel", json_boolean(import_flag(in, CFG "automodel_kwargs.use_liger_kernel", false)));
    put(model, "attn_implementation", in->f->doc, CFG "automodel_kwargs.attn_implementation");
    if (import_flag(in, CFG "automodel_kwargs.force_hf", false))
        json_object_set_new(model, "force_hf", json_true());
    put(model, "backend", in->f->doc, CFG "automodel_kwargs.backend");
}

/* The GPUs that train, of a cluster that was read before. */
static bool is_alone(const struct importing *in)
{
    struct cluster c;

    return named_cluster(in->cluster ? NULL : in->a->plan.cluster, in->cluster ? in->cluster : in->a->plan.cluster_doc, &c) == 0 && c.world_size == 1;
}

/* The older worker, of policies alone (models/dtensor/parallelize.py): transformers' classes, of which it checkpoints MLP, attention and norms each by itself. */
static bool is_older(struct importing *in, bool critic) { return !critic && !import_flag(in, CFG "_v2", false); }

/* As Automodel's recipe says it; `sequences` of a sample.  Automodel has no FSDP2 on one GPU (components/distributed/fsdp2.py), and so no precision of its outputs. */
static json_t *as_automodel(struct importing *in, int64_t sequences, bool critic)
{
    const json_t *doc = in->f->doc;
    int64_t micro = micro_of(in, POLICY "train_micro_batch_size", "train_mb_tokens", 1), seq = import_count(in, POLICY "max_total_sequence_length", 1, 0);
    json_t *distributed = json_pack("{s:s, s:{s:s, s:s, s:s*}}", "strategy", "fsdp2", "mp_policy", "param_dtype", "bfloat16", "reduce_dtype", "float32",
                                    "output_dtype", is_alone(in) && !is_older(in, critic) ? NULL : "float32");         /* models/automodel/setup.py */
    json_t *optimizer = json_object(), *out;

    put(distributed, "tp_size", doc, CFG "tensor_parallel_size");
    put(distributed, "cp_size", doc, CFG "context_parallel_size");
    put(distributed, "ep_size", doc, CFG "expert_parallel_size");
    put(distributed, "dp_replicate_size", doc, CFG "dp_replicate_size");
    put(distributed, "sequence_parallel", doc, CFG "sequence_parallel");
    put(distributed, "activation_checkpointing", doc, CFG "activation_checkpointing");
    /* Its loop calls loss.backward() of each micro-batch and nothing that puts the reduction off (models/automodel/train.py): Automodel's recipes do. */
    json_object_set_new(distributed, "defer_fsdp_grad_sync", json_false());
    if (import_flag(in, CFG "cpu_offload", false))
        json_object_set_new(distributed, "offload_policy", json_pack("{s:s, s:b}", "_target_", "torch.distributed.fsdp.CPUOffloadPolicy", "pin_memory", 0));
    /* The older worker, without experts over ranks, frees all blocks after forward (models/dtensor/parallelize.py). */
    if (!import_flag(in, CFG "_v2", false) && import_count(in, CFG "expert_parallel_size", 1, 1) == 1)
        json_object_set_new(distributed, "reshard_after_forward", json_true());
    put(distributed, "moe", doc, CFG "moe_parallelizer");
    json_object_update(optimizer, (json_t *)(uintptr_t)form_value(doc, POLICY "optimizer.kwargs"));
    put(optimizer, "_target_", doc, POLICY "optimizer.name");
    out = json_pack("{s:{s:I, s:I}, s:{s:s, s:s, s:s}, s:o, s:{s:I}, s:o, s:{s:f}}", "step_scheduler", "global_batch_size",
                    (json_int_t)(sequences * import_count(in, POLICY "train_global_batch_size", 1, 1)), "local_batch_size", (json_int_t)(sequences * micro), "model",
                    "_target_", "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained", "pretrained_model_name_or_path",
                    import_text(in, POLICY "model_name", ""), "torch_dtype", "float32", "distributed", distributed, "dataset", "seq_length",
                    (json_int_t)seq, "optimizer", optimizer, "clip_grad_norm", "max_norm", import_number(in, POLICY "max_grad_norm", 1));
    if (import_flag(in, CFG "lora_cfg.enabled", false))
        json_object_set_new(out, "peft", peft(doc));
    put_kernels(in, json_object_get(out, "model"));
    return out;
}

static bool is_of(const struct model *m, const char *const *families, size_t n)
{
    bool is = false;

    for (size_t i = 0; i < n; i++)
        is = is || !strcmp(m->family, families[i]);
    return is;
}

/* Automodel's own classes that cannot hand their weights over one by one: transformers' are taken (_maybe_set_force_hf()); their heads leave logits cut,
 * as Gemma's does. */
static const char *const cut[] = { "llama", "qwen2", "qwen3", "gemma3_text" };

static bool is_handed_over_whole(const struct model *m) { return is_of(m, cut, 3); }

/* Its head leaves logits cut over the vocabulary, of which each rank takes its part (models/dtensor/parallelize.py: lm_head's use_local_output=False;
 * distributed/model_utils.py: DistributedLogprob); of other models transformers' plan gathers them. */
static bool keeps_logits_cut(const struct model *m) { return m->head == HEAD_LOGITS && is_of(m, cut, sizeof cut / sizeof *cut); }

/* DistributedLogprob.forward() (distributed/model_utils.py): logits, log-probabilities and their exponentials are there at once. */
static void note_log_probs(struct importing *in, const struct plan *p)
{
    if (p->parallel.loss_parallel)
        notes_add(in->notes, CFG "tensor_parallel_size: log-probabilities of cut logits have one copy of a rank's logits in fp32 more at their largest moment than the plan: "
                  "%.2g GB", 4e-9 * (double)(p->micro_batch * p->seq) * (double)p->model.vocab / (double)p->parallel.tensor);
}

/* On one GPU Automodel's worker has logits in 16 bits, of which SequencePackingLossWrapper takes one sequence of the row after the other (algorithms/loss/wrapper.py).
 * Of k sequences these are at once for each logit of the row, at the last one's forward the logits, what k - 1 keep in fp32, and two tensors of its own, 6 + 4/k bytes; in
 * backward what k - 1 keep and two gradients as wide as the row, 8 - 4/k: never more than 8, where the plan has 12.  A run of 16 sequences on a CPU held 9.4, so
 * that the note does not promise it. */
static void note_sequences(struct importing *in, const struct plan *p)
{
    if (p->strategy == STRAT_DDP && import_flag(in, POLICY "sequence_packing.enabled", false))
        notes_add(in->notes, POLICY "sequence_packing: on one GPU logits are in 16 bits, and the loss takes the sequences of a row one after the other: of two and more it "
                  "holds some %.2g GB less than is planned", 4e-9 * (double)(p->micro_batch * p->seq) * (double)p->model.vocab);
}

/* The older worker asks not how many GPUs there are (dtensor_policy_worker.py): of one, too, FSDP2 has the model.  0, or -1 reported. */
static int share_alone(struct importing *in, struct plan *p)
{
    json_t *plan = plan_to_json(p), *fsdp = json_pack("{s:b, s:s}", "reshard_after_forward", 1, "root_units", "together");
    json_t *dtype = json_object_get(json_object_get(plan, "ddp"), "model_dtype");

    if (dtype)
        json_object_set(fsdp, "model_dtype", dtype);
    if (import_flag(in, CFG "cpu_offload", false))
        json_object_update_new(fsdp, json_pack("{s:b, s:b}", "cpu_offload", 1, "pin_memory", 0));
    json_object_del(plan, "ddp");
    json_object_update_new(plan, json_pack("{s:s, s:s, s:o}", "strategy", "fsdp", "reduce_dtype", "fp32", "fsdp", fsdp));
    plan_free(p);
    *p = (struct plan){ .seq = 0 };
    int rc = plan_from_json(plan, in->f->path, p);
    json_decref(plan);
    return rc;
}

/* As the worker builds it.  The newer one checkpoints as Automodel does: whole layers of transformers' classes. */
static int import_worker(struct importing *in, json_t *doc, bool named, struct plan *p)
{
    bool older = is_older(in, named), again;
    json_t *model = json_object_get(doc, "model"), *said = json_array(), *before = notes_divert(said), *line;
    size_t i;

    if (older)
        json_object_set_new(model, "force_hf", json_true());
    int rc = import_plan(in, doc, named, p);
    again = rc == 0 && is_handed_over_whole(&p->model) && !json_object_get(model, "force_hf");
    notes_divert(before);
    json_array_foreach(said, i, line)
        if (!again)
            notes_say("%s", json_string_value(line));
    json_decref(said);
    if (again) {
        plan_free(p);
        *p = (struct plan){ .seq = 0 };
        json_object_set_new(model, "force_hf", json_true());
        rc = import_plan(in, doc, named, p);
    }
    if (rc == 0 && older && p->strategy == STRAT_DDP)
        rc = share_alone(in, p);
    if (rc == 0) {
        p->fsdp.root_units = ROOT_TOGETHER;             /* so has the Automodel of 1 May 2026, which NeMo-RL pins, and the older worker */
        if (older)
            automodel_recompute_modules(p);
        if (older && p->recompute == RECOMPUTE_FULL)
            notes_add(in->notes, CFG "activation_checkpointing: MLP, attention and norms of %s are checkpoints of their own: planned as one of the block: a lower bound",
                      p->model.family);
        p->loss = p->loss == LOSS_LIGER ? LOSS_FP32 : p->loss;         /* log-probabilities are its own */
        p->parallel.loss_parallel = p->parallel.tensor > 1 && keeps_logits_cut(&p->model);
        if (!named) {
            note_log_probs(in, p);
            note_sequences(in, p);
        }
        rc = nemo_environment(in, CFG "env_vars", p);
    }
    return rc;
}

static int read_policy(struct importing *in, int64_t sequences)
{
    if (import_count(in, POLICY "max_total_sequence_length", 1, 0) == 0)
        return fail("%s: " POLICY "max_total_sequence_length: not given", in->f->path);
    if (nemo_is_megatron(in)) {
        int64_t samples = sequences * import_count(in, POLICY "train_global_batch_size", 1, 1);
        return nemo_megatron(in, samples, sequences * micro_of(in, POLICY "train_micro_batch_size", "train_mb_tokens", 1), false, &in->actor);
    }
    json_t *doc = as_automodel(in, sequences, false);
    int rc = in->failed ? -1 : import_worker(in, doc, false, &in->actor);
    in->actor.logits_until = UNTIL_NEXT_LOGITS;
    in->actor.logits_kept = LOGITS_DROPPED;         /* what keeps them in Automodel's recipes is its loop, which is not run */
    json_decref(doc);
    return rc;
}

/* Packed or grouped samples are run without padding, as many in a micro-step as find room. */
static bool packs(struct importing *in)
{
    return import_flag(in, POLICY "sequence_packing.enabled", false) || import_flag(in, POLICY "dynamic_batching.enabled", false);
}

static void set_packed(json_t *role, bool packed)
{
    if (packed)
        json_object_update_new(role, json_pack("{s:b, s:b}", "unpadded", 1, "packed", 1));
}

/* States go by Tensor.to("cpu") (models/policy/workers: move_optimizer(), move_optimizer_to_device()), FSDP2's weights too; Megatron-LM's buffers have
 * pinned copies that stay (ParamAndGradBuffer.offload_to_cpu()). */
static void set_pageable(struct importing *in, json_t *role)
{
    json_object_set_new(role, "pageable", json_string(nemo_is_megatron(in) ? "states" : "all"));
}

/* The policy's role.  Its gradients under Megatron-LM are there in updates alone. */
static void add_policy(struct importing *in, bool stays)
{
    json_t *role = json_pack("{s:o, s:s, s:b}", "train", plan_to_json(&in->actor), "between", stays ? "device" : "host", "empties_cache", 1);

    if (nemo_is_megatron(in))
        json_object_set_new(role, "frees_gradients", json_true());
    set_pageable(in, role);
    set_packed(role, packs(in));
    import_role(in, "policy", role);
}

/* ---- the critic ---- */

/* NeMo Automodel's, or Megatron-LM's (models/value/workers/megatron_value_worker.py), which is never tied. */
static int critic_plan(struct importing *in, struct plan *p)
{
    if (nemo_is_megatron(in))
        return nemo_megatron(in, import_count(in, POLICY "train_global_batch_size", 1, 1), micro_of(in, POLICY "train_micro_batch_size", "train_mb_tokens", 1), true, p);
    json_t *doc = as_automodel(in, 1, true);
    int rc = in->failed ? -1 : import_worker(in, doc, true, p);
    p->logits_kept = LOGITS_DROPPED;
    p->logits_until = UNTIL_NEXT_LOGITS;
    json_decref(doc);
    return rc;
}

/* The section "value" has the policy's keys: it is read in its place.  *micro: samples of its forward. */
static int read_critic(struct importing *in, int64_t *micro)
{
    const struct form_file *before = in->f;
    struct form_file f = *in->f;
    struct plan p = { .seq = 0 };
    int rc = -1;

    if (!has_section(in->f->doc, "value"))
        return fail("%s: value: PPO's critic: the section is not there", in->f->path);
    if (import_flag(in, "value.dtensor_cfg.enabled", false) && import_flag(in, "value.megatron_cfg.enabled", false))
        return fail("%s: value.dtensor_cfg.enabled, megatron_cfg.enabled: one of them must be true", in->f->path);
    f.doc = json_pack("{s:O}", "policy", json_object_get(in->f->doc, "value"));
    in->f = &f;
    if (import_count(in, POLICY "max_total_sequence_length", 1, 0) == 0)
        fail("%s: value.max_total_sequence_length: not given", f.path);
    else {
        rc = critic_plan(in, &p);
        *micro = rc == 0 ? micro_of(in, POLICY "logprob_batch_size", "logprob_mb_tokens", p.micro_batch) : 0;
    }
    bool packed = packs(in), frees = nemo_is_megatron(in);
    in->f = before;
    json_decref(f.doc);
    if (rc == 0) {
        json_t *plan = plan_to_json(&p);
        import_numbers(plan, HEAD_VALUE);
        json_t *role = json_pack("{s:o, s:s, s:b, s:b}", "train", plan, "between", "host", "empties_cache", 1, "own_process", 1);
        set_packed(role, packed);
        json_object_set_new(role, "pageable", json_string(frees ? "states" : "all"));
        if (frees)
            json_object_set_new(role, "frees_gradients", json_true());
        import_role(in, "critic", role);
    }
    plan_free(&p);
    return rc;
}

/* ---- GRPO and PPO ---- */

/* GPUs of the engine alone; 0: it shares the trainers'.  -1: reported.  Nodes are the recipe's, which NVLink may join to larger ones. */
static int64_t engine_gpus(struct importing *in, const struct cluster *c)
{
    int64_t gpus = import_count(in, GEN "colocated.resources.gpus_per_node", 1, 0), nodes = import_count(in, GEN "colocated.resources.num_nodes", 1, 0);
    bool several = import_count(in, "cluster.num_nodes", 1, 1) > 1;

    if (import_flag(in, GEN "colocated.enabled", true))
        return 0;
    gpus = several ? nodes * import_count(in, "cluster.gpus_per_node", 1, c->gpus_per_node) : c->nodes == 1 ? gpus : nodes * c->gpus_per_node;
    if (gpus < 1 || gpus >= c->world_size)
        return fail("%s: " GEN "colocated.resources: %" PRId64 " of %" PRId64 " GPUs for generation: some have to train", in->f->path, gpus, c->world_size);
    return gpus;
}

/* Weights in blocks of fp8 (models/generation/vllm/quantization/fp8.py: FP8_BLOCK_QUANT_KWARGS). */
static bool narrow(struct importing *in) { return !strcmp(import_text(in, VLLM "precision", "bfloat16"), "fp8"); }

static int engine_refuses(struct importing *in)
{
    if (strcmp(import_text(in, GEN "backend", "vllm"), "vllm") != 0)
        return fail("%s: " GEN "backend: %.20s: vllm is planned of NeMo-RL", in->f->path, import_text(in, GEN "backend", ""));
    static const char *const some[] = { "num_first_layers_in_bf16", "num_last_layers_in_bf16" };
    for (size_t i = 0; i < 2; i++) {
        char path[80];
        snprintf(path, sizeof path, VLLM "%s", some[i]);
        if (narrow(in) && import_count(in, path, 0, 0) > 0)
            return fail("%s: %s: layers that stay in bf16 beside others in fp8 are not planned: all in one are", in->f->path, path);
    }
    if (narrow(in) && (import_flag(in, VLLM "is_mx", false) || json_array_size(form_value(in->f->doc, VLLM "quantization_ignored_layer_kws"))))
        return fail("%s: " VLLM "is_mx, quantization_ignored_layer_kws: of an engine's fp8 blocks of 128 x 128 in all layers are planned", in->f->path);
    const char *cache = import_text(in, VLLM "kv_cache_dtype", "auto");
    if (strcmp(cache, "auto") != 0 && strcmp(cache, "bfloat16") != 0 && strncmp(cache, "fp8", 3) != 0)
        return fail("%s: " VLLM "kv_cache_dtype: %.20s: auto, bfloat16 and fp8 are planned", in->f->path, cache);
    if (!narrow(in) && strcmp(import_text(in, VLLM "precision", "bfloat16"), "bfloat16") != 0)
        return fail("%s: " VLLM "precision: %.20s: bfloat16 and fp8 are planned", in->f->path, import_text(in, VLLM "precision", ""));
    return in->failed ? -1 : 0;
}

static void add_engine(struct importing *in, const struct cluster *all, int64_t apart)
{
    bool keys = !strncmp(import_text(in, VLLM "kv_cache_dtype", "auto"), "fp8", 3);
    int64_t most = import_count(in, GEN "vllm_kwargs.max_num_seqs", 1, 0);
    json_t *engine = json_pack("{s:s, s:s, s:s, s:I, s:f, s:b, s:i, s:b}", "engine", "vllm", "dtype", "bf16", "kv_cache_dtype", keys ? "fp8" : "bf16", "tensor",
                               (json_int_t)import_count(in, VLLM "tensor_parallel_size", 1, 1), "gpu_memory_utilization",
                               import_number(in, VLLM "gpu_memory_utilization", 0.6), "enforce_eager", import_flag(in, VLLM "enforce_eager", false), "sleep",
                               apart ? 0 : 1, "own_process", 1);

    /* vllm_worker.py, 0.5 and 0.6: VLLM_ENABLE_V1_MULTIPROCESSING=0, and Ray's executor where ranks share an engine. */
    json_object_set_new(engine, "driven", json_string(import_flag(in, VLLM "async_engine", false) ? "async" : "within"));
    if (import_count(in, VLLM "tensor_parallel_size", 1, 1) > 1)
        json_object_set_new(engine, "async_scheduling", json_false());
    import_positive(engine, "pipeline", import_count(in, VLLM "pipeline_parallel_size", 1, 1));
    import_positive(engine, "expert", import_count(in, VLLM "expert_parallel_size", 1, 1));
    if (narrow(in))
        json_object_set_new(engine, "quantization", json_string("fp8-block"));
    if (most)
        json_object_set_new(engine, "max_num_seqs", json_integer(most));
    import_positive(engine, "max_num_batched_tokens", import_count(in, GEN "vllm_kwargs.max_num_batched_tokens", 1, 1));
    if (apart)
        json_object_set_new(engine, "cluster", phases_part_of(all, apart));
    import_role(in, "engine", engine);
}

/* States go to host memory for log-probabilities, where that is asked for and the engine is elsewhere. */
static void log_probs(struct importing *in, const char *name, int64_t micro)
{
    json_t *phase = json_pack("{s:s, s:s, s:I}", "name", name, "forward", "policy", "micro_batch", (json_int_t)micro);

    if (!strcmp(name, "reference"))
        json_object_set_new(phase, "swaps_weights", json_true());
    if (import_flag(in, POLICY "offload_optimizer_for_logprob", false) && !import_flag(in, GEN "colocated.enabled", true))
        json_object_set_new(phase, "where", json_pack("{s:s}", "policy", "states on host"));
    import_phase(in, phase);
}

/* Tensors are packed into two buffers in turns; apart each has 2 % of a GPU's memory, up to 5 GiB (utils/packed_tensor.py). */
static void hand_over(struct importing *in, const struct cluster *all, bool apart)
{
    int64_t bucket = all->memory / 50, most = (int64_t)5 << 30;
    json_t *phase = json_pack("{s:s, s:s, s:s, s:b}", "name", "weights", "hand_over", "policy", "to", "engine", "overlapped", 1);

    if (apart)
        json_object_set_new(phase, "bucket_bytes", json_integer(bucket < most ? bucket : most));
    import_phase(in, phase);
}

/* A key of the section "grpo" or "ppo". */
static int64_t count_of(struct importing *in, enum algorithm a, const char *key, int64_t least, int64_t usual)
{
    char path[80];

    snprintf(path, sizeof path, "%s.%s", algorithms[a], key);
    return import_count(in, path, least, usual);
}

static bool refers(struct importing *in, enum algorithm a)
{
    return a == PPO ? !import_flag(in, "ppo.skip_reference_policy_logprobs_calculation", false) :
                      import_number(in, "loss_fn.reference_policy_kl_penalty", 0) > 0;
}

/* Updates of an iteration: of PPO the critic's and the policy's in turns. */
static int add_updates(struct importing *in, enum algorithm a)
{
    int64_t epochs = a == PPO ? import_count(in, "ppo.ppo_epochs", 1, 4) : 1;
    char name[2][32];

    if (epochs > 8)
        return fail("%s: ppo.ppo_epochs: %" PRId64 ": up to 8 are planned", in->f->path, epochs);
    for (int64_t i = 1; i <= epochs; i++) {
        snprintf(name[0], sizeof name[0], "critic %" PRId64, i);
        snprintf(name[1], sizeof name[1], "update %" PRId64, i);
        if (a == PPO)
            import_phase(in, json_pack("{s:s, s:s}", "name", name[0], "update", "critic"));
        import_phase(in, json_pack("{s:s, s:s}", "name", epochs > 1 ? name[1] : "update", "update", "policy"));
    }
    return 0;
}

/* `values`: samples of the critic's forward. */
static int rl_phases(struct importing *in, enum algorithm a, int64_t values, const struct cluster *all, bool apart)
{
    int64_t micro = micro_of(in, POLICY "logprob_batch_size", "logprob_mb_tokens", in->actor.micro_batch);

    hand_over(in, all, apart);
    import_phase(in, json_pack("{s:s, s:s}", "name", "generate", "generate", "engine"));
    if (a == PPO)
        import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "values", "forward", "critic", "micro_batch", (json_int_t)values));
    if (a == PPO || !import_flag(in, "loss_fn.force_on_policy_ratio", false) || form_value(in->f->doc, "grpo.seq_logprob_error_threshold"))
        log_probs(in, "log-probs", micro);
    if (refers(in, a))
        log_probs(in, "reference", micro);
    return add_updates(in, a);
}

static json_t *rl(struct importing *in, enum algorithm a, const struct cluster *all, int64_t apart)
{
    int64_t prompts = count_of(in, a, "num_prompts_per_step", 1, 0), n = count_of(in, a, "num_generations_per_prompt", 1, 1), values = 0;
    int64_t seq = import_count(in, POLICY "max_total_sequence_length", 1, 0), longest = import_count(in, GEN "max_new_tokens", 1, seq);
    json_t *response = NULL;
    double prompt = 0;

    if (prompts == 0)
        import_refuse(in, a == PPO ? "ppo.num_prompts_per_step" : "grpo.num_prompts_per_step", "a whole number from 1 on");
    int64_t window = import_count(in, VLLM "max_model_len", 1, seq), most = window < seq ? window : seq;
    longest = longest < most ? longest : most;
    if (in->failed || engine_refuses(in) < 0 || import_lengths(in, longest, seq, POLICY "max_total_sequence_length", &response, &prompt) < 0)
        return NULL;
    int64_t ahead = nemo_steps_ahead(in, a == PPO, prompts);
    if (ahead > 0 && !apart)
        import_refuse(in, "async_rl.sampler", "none that generates ahead where " GEN "colocated.enabled is true");
    if (count_of(in, a, "max_rollout_turns", 1, 1) > 1)
        notes_add(in->notes, "%s.max_rollout_turns: responses are planned as written at once: the time of environments between turns is not in it", algorithms[a]);
    if (import_flag(in, "env.should_use_nemo_gym", false))      /* experience/rollouts.py, run_async_nemo_gym_rollout() */
        notes_add(in->notes, "env.should_use_nemo_gym: agents take turns and call tools: responses are planned as written at once, and the time of tools and of "
                  "prompts that come again with each turn is not in it");
    add_policy(in, apart && a == GRPO);
    if (a == PPO && read_critic(in, &values) < 0) {
        json_decref(response);
        return NULL;
    }
    add_engine(in, all, apart);
    if (rl_phases(in, a, values, all, apart > 0) < 0) {
        json_decref(response);
        return NULL;
    }
    json_t *doc = import_document(in, "NeMo-RL", prompts * n, n, (int64_t)prompt, response);
    if (ahead > 0)
        json_object_update_new(doc, json_pack("{s:b, s:I}", "asynchronous", 1, "ahead", (json_int_t)ahead));
    return doc;
}

/* ---- DPO, SFT, the reward model ---- */

static json_t *trained(struct importing *in, enum algorithm a)
{
    json_t *plan = plan_to_json(&in->actor);

    if (import_no_response(in, algorithms[a]) < 0) {
        json_decref(plan);
        return NULL;
    }
    if (a == RM)
        import_numbers(plan, HEAD_SCORE);
    if (packs(in))
        notes_add(in->notes, "policy.sequence_packing, dynamic_batching: every sample counts as max_total_sequence_length tokens: shorter ones take fewer micro-steps, and those "
                  "packed into a row less attention");
    else
        notes_add(in->notes, POLICY "max_total_sequence_length: every sample counts as so long: shorter ones are filled up to the longest of their micro-batch");
    if (a != SFT)
        notes_add(in->notes, "each sample is a chosen and a rejected sequence, which run as one batch");
    json_t *role = json_pack("{s:o}", "train", plan);
    if (nemo_is_megatron(in))
        json_object_set_new(role, "frees_gradients", json_true());
    import_role(in, "policy", role);
    if (a == DPO)
        import_phase(in, json_pack("{s:s, s:s, s:I, s:b}", "name", "reference", "forward", "policy", "micro_batch", (json_int_t)in->actor.micro_batch, "swaps_weights", 1));
    import_phase(in, json_pack("{s:s, s:s}", "name", "update", "update", "policy"));
    return import_document(in, "NeMo-RL", plan_global_batch(&in->actor), 1, 0, NULL);
}

static json_t *planned(struct importing *in)
{
    int a = algorithm_of(in);
    struct cluster all;
    json_t *part = NULL;

    if (a < 0 || refuses(in) < 0 || nemo_refuses_beside(in) < 0)
        return NULL;
    if (!in->a->plan.cluster && !in->a->plan.cluster_doc) {
        fail("%s: say on which GPUs all of it runs: --cluster 8xh100", in->f->path);
        return NULL;
    }
    if (named_cluster(in->a->plan.cluster, in->a->plan.cluster_doc, &all) < 0)
        return NULL;
    bool generates = a == GRPO || a == PPO;
    int64_t apart = generates ? engine_gpus(in, &all) : 0;
    if (apart < 0)
        return NULL;
    if (all.nodes > 1 && !strncmp(all.gpu.name, "gb", 2))
        notes_add(in->notes, "--cluster: a network joins these nodes; where NVLink does (NVL72), write %" PRId64 "x%s", all.world_size, all.gpu.name);
    unread_ranks(in->notes, "cluster", import_count(in, "cluster.gpus_per_node", 1, 0) * import_count(in, "cluster.num_nodes", 1, 1), all.world_size);
    if (apart)
        in->cluster = part = phases_part_of(&all, all.world_size - apart);
    int read = read_policy(in, a == DPO || a == RM ? 2 : 1);
    nemo_tell_unknown(in);
    json_t *doc = read < 0 ? NULL : generates ? rl(in, (enum algorithm)a, &all, apart) : trained(in, (enum algorithm)a);
    json_decref(part);
    return doc;
}

json_t *phases_nemo(struct importing *in)
{
    json_t *whole = nemo_config(in->f->doc, in->f->path), *doc = NULL;
    struct form_file f = *in->f;

    if (!whole)
        return NULL;
    f.doc = whole;
    in->f = &f;
    doc = planned(in);
    json_decref(whole);
    return doc;
}
