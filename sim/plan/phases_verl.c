/* phases_verl.c -- phase plans of verl's ppo_trainer.yaml (fsdp_workers.py), with what verl 0.7.0 takes where a file is silent
 * (trainer/config/rollout/rollout.yaml, trainer/config/critic; 0.8 and 0.9.1 differ where it is said below).
 *
 * The actor is offloaded as fsdp_config says, the cache is emptied; a reference model is in bf16 and always in host memory (CPUOffload is forced for
 * it), of adapters the actor itself.
 *
 * On Megatron-LM the actor is offloaded as actor.megatron says: gradient buffers are freed with the weights (megatron_utils.py:
 * offload_megatron_model_to_cpu()).  The reference model is cut as the actor is, without gradients, in host memory where ref.megatron.param_offload says it.
 *
 * A critic (CriticWorker) is AutoModelForTokenClassification with one label, under an FSDP of its own keys, or Megatron-LM's model with a linear layer of
 * one output in its head's place (models/mcore/mbridge.py); where the file is silent it follows the
 * actor's batch.  Its values come in a forward, and its update before the actor's (ray_trainer.py: fit()).  Actor and critic are one process
 * (create_colocated_worker_cls()). */
#include "sim/plan/phases_import.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/form/form_verl.h"

#define ROLLOUT "actor_rollout_ref.rollout."
#define ACTOR   "actor_rollout_ref.actor."
#define REF     "actor_rollout_ref.ref."

static bool on_megatron(const struct importing *in) { return verl_is_megatron(in->f); }

/* Its ranks, as verl asserts them (workers/config/rollout.py). */
static int engine_refuses(struct importing *in, bool vllm)
{
    int64_t tensor = import_count(in, ROLLOUT "tensor_model_parallel_size", 1, 2), data = import_count(in, ROLLOUT "data_parallel_size", 1, 1);
    int64_t expert = import_count(in, ROLLOUT "expert_parallel_size", 1, 1);

    if (vllm && import_count(in, ROLLOUT "pipeline_model_parallel_size", 1, 1) > 1)
        return fail("%s: " ROLLOUT "pipeline_model_parallel_size: verl has no pipelines with vLLM", in->f->path);
    if (!vllm && (data > 1 || expert > 1))
        return fail("%s: " ROLLOUT "data_parallel_size, expert_parallel_size: planned with vLLM alone", in->f->path);
    if (expert > 1 && expert != tensor * data)
        return fail("%s: " ROLLOUT "expert_parallel_size: verl asks for tensor_model_parallel_size times data_parallel_size, %" PRId64, in->f->path, tensor * data);
    return in->failed ? -1 : 0;
}

/* What the file asks for and no phase plan has. */
/* Asked for: neither left out nor hydra's null. */
static bool is_asked(const struct importing *in, const char *path)
{
    const json_t *v = form_value(in->f->doc, path);
    const char *word = json_string_value(v);

    return v && !json_is_null(v) && !(word && (!strcmp(word, "null") || !strcmp(word, "None")));
}

static int verl_refuses(struct importing *in)
{
    const char *estimator = import_text(in, "algorithm.adv_estimator", "gae"), *engine = import_text(in, ROLLOUT "name", "vllm");

    if (!strcmp(estimator, "remax"))
        return fail("%s: algorithm.adv_estimator: remax: the greedy response to each prompt, generated beside the others, is not planned", in->f->path);
    if (import_flag(in, "algorithm.filter_groups.enable", false))
        return fail("%s: algorithm.filter_groups.enable: how many batches are generated until enough groups differ is not known beforehand", in->f->path);
    if (!import_flag(in, "actor_rollout_ref.hybrid_engine", true))
        return fail("%s: actor_rollout_ref.hybrid_engine: false: verl's main_ppo takes true alone", in->f->path);
    if (strcmp(import_text(in, ROLLOUT "checkpoint_engine.backend", "naive"), "naive") != 0)
        return fail("%s: " ROLLOUT "checkpoint_engine.backend: an engine on GPUs of its own is not read from verl's files: write a phase plan", in->f->path);
    if ((is_asked(in, ROLLOUT "quantization") && strcmp(import_text(in, ROLLOUT "quantization", "fp8"), "fp8") != 0) ||
        is_asked(in, ROLLOUT "quantization_config_file"))
        return fail("%s: " ROLLOUT "quantization: %.20s: fp8 without a file of its own is planned", in->f->path, import_text(in, ROLLOUT "quantization", "fp8"));
    if (form_value(in->f->doc, REF "model.path"))
        return fail("%s: " REF "model.path: a reference model that is another one than the actor is not planned from verl's files: write a phase plan", in->f->path);
    if (import_flag(in, "reward_model.enable", false))
        return fail("%s: reward_model.enable: verl serves its reward model by an engine of its own, which is not planned: rewards by functions are", in->f->path);
    if (strcmp(engine, "vllm") != 0 && strcmp(engine, "sglang") != 0)
        return fail("%s: " ROLLOUT "name: %.40s: vllm and sglang are planned", in->f->path, engine);
    return engine_refuses(in, !strcmp(engine, "vllm"));
}

static const char *verl_dtype(struct importing *in)
{
    static const char *const names[][2] = { { "bfloat16", "bf16" }, { "float16", "fp16" }, { "half", "fp16" }, { "float32", "fp32" }, { "float", "fp32" } };
    const char *said = import_text(in, ROLLOUT "dtype", "bfloat16");

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(said, names[i][0]))
            return names[i][1];
    import_refuse(in, ROLLOUT "dtype", "bfloat16, float16 or float32");
    return "bf16";
}

/* third_party/vllm/__init__.py: VLLM_SLEEP_LEVEL is 2 from vLLM 0.8.5 on; 1 where layers are summoned one by one (vllm_rollout.py), and from
 * 0.9 on where adapters alone are handed over (engine_workers.py: update_weights()). */
static int verl_sleep(struct importing *in, bool vllm)
{
    if (!import_flag(in, ROLLOUT "free_cache_engine", true))
        return 0;
    return vllm && import_flag(in, ROLLOUT "layered_summon", false) ? 1 : 2;
}

/* Pipelines, experts over the ranks of replicated attention, which cut them where they are not shared out whole, weights in fp8 by blocks
 * (vllm_async_server.py: fp8_block_quant_kwargs). */
static void verl_ranks(struct importing *in, json_t *engine)
{
    int64_t data = import_count(in, ROLLOUT "data_parallel_size", 1, 1), all = data * import_count(in, ROLLOUT "tensor_model_parallel_size", 1, 2);

    import_positive(engine, "pipeline", import_count(in, ROLLOUT "pipeline_model_parallel_size", 1, 1));
    if (in->actor.model.experts > 0 && (data > 1 || import_count(in, ROLLOUT "expert_parallel_size", 1, 1) > 1))
        import_positive(engine, "expert", all);
    if (is_asked(in, ROLLOUT "quantization"))
        json_object_set_new(engine, "quantization", json_string("fp8-block"));
}

static void verl_engine(struct importing *in, bool adapts)
{
    bool vllm = !strcmp(import_text(in, ROLLOUT "name", "vllm"), "vllm");
    int sleep = verl_sleep(in, vllm);

    json_t *role = json_pack("{s:s, s:s, s:s, s:I, s:f, s:I, s:I, s:b, s:i}", "engine", vllm ? "vllm" : "sglang", "driven", "async", "dtype",
                                     verl_dtype(in), "tensor",
                                     (json_int_t)import_count(in, ROLLOUT "tensor_model_parallel_size", 1, 2), vllm ? "gpu_memory_utilization" : "mem_fraction_static",
                                     import_number(in, ROLLOUT "gpu_memory_utilization", 0.5), "max_num_seqs", (json_int_t)import_count(in, ROLLOUT "max_num_seqs", 1, 1024),
                                     "max_num_batched_tokens", (json_int_t)import_count(in, ROLLOUT "max_num_batched_tokens", 1, 8192), "enforce_eager",
                                     import_flag(in, ROLLOUT "enforce_eager", false), "sleep", sleep);
    verl_ranks(in, role);
    import_role(in, "engine", role);
    if (!form_value(in->f->doc, ROLLOUT "max_num_seqs"))
        notes_add(in->notes, ROLLOUT "max_num_seqs: 1024, as verl 0.7 and 0.8 take it; 0.9 takes 256");
    if (sleep == 2 && adapts)
        notes_add(in->notes, "the engine sleeps without its weights, as with verl 0.7 and vLLM 0.8.5 or newer; verl 0.9 keeps those beneath adapters");
}

/* The reference model: bf16, always in host memory. */
/* Ranks that share the reference model are the actor's, or it is refused. */
static int check_reference(struct importing *in)
{
    static const char *const keys[] = { "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
                                        "expert_tensor_parallel_size", "virtual_pipeline_model_parallel_size" };
    const char *strategy = import_text(in, REF "strategy", on_megatron(in) ? "megatron" : "fsdp");
    bool megatron = !strcmp(strategy, "megatron");

    if (!megatron && strcmp(strategy, "fsdp") != 0 && strcmp(strategy, "fsdp2") != 0 && !strchr(strategy, '$'))
        return fail("%s: " REF "strategy: %.20s: fsdp, fsdp2 and megatron are planned", in->f->path, strategy);
    if (megatron != on_megatron(in))
        return fail("%s: " REF "strategy: the reference model is planned under the actor's strategy", in->f->path);
    for (size_t i = 0; megatron && i < sizeof keys / sizeof *keys; i++) {
        char of[2][100];
        snprintf(of[0], sizeof of[0], REF "megatron.%s", keys[i]);
        snprintf(of[1], sizeof of[1], ACTOR "megatron.%s", keys[i]);
        const json_t *mine = form_value(in->f->doc, of[0]), *actor = form_value(in->f->doc, of[1]);
        if (mine && !json_equal((json_t *)(uintptr_t)mine, (json_t *)(uintptr_t)actor))
            return fail("%s: %s: another number than the actor's is not planned: the reference model is a copy of it", in->f->path, of[0]);
    }
    return 0;
}

static void megatron_reference(struct importing *in)
{
    json_t *plan = plan_to_json(&in->actor), *role;
    int64_t stages = in->actor.parallel.pipeline > 1 ? in->actor.parallel.pipeline : 1;
    bool away = import_flag(in, REF "megatron.param_offload", import_flag(in, ACTOR "megatron.param_offload", false));

    json_object_set_new(plan, "accumulation", json_integer(stages));
    role = json_pack("{s:o, s:s, s:b}", "infer", plan, "between", away ? "host" : "device", "unpadded", import_flag(in, "actor_rollout_ref.model.use_remove_padding", false));
    import_role(in, "reference", role);
}

static void verl_reference(struct importing *in)
{
    json_t *plan = plan_to_json(&in->actor), *fsdp = json_object_get(plan, "fsdp");

    if (!fsdp) {
        fsdp = json_object();
        json_object_set_new(plan, "fsdp", fsdp);
    }
    json_object_set_new(plan, "accumulation", json_integer(1));
    json_object_set_new(plan, "sync_every_micro_step", json_false());
    json_object_set_new(fsdp, "cpu_offload", json_true());
    json_object_set_new(fsdp, "model_dtype", json_string("bf16"));
    import_role(in, "reference", json_pack("{s:o, s:b}", "infer", plan, "unpadded", import_flag(in, "actor_rollout_ref.model.use_remove_padding", false)));
}

/* Samples of a micro-step of log-probabilities: as stated, or the longest ones that its tokens hold; both are the actor's unless they are given. */
static int64_t verl_micro(struct importing *in, const char *whose)
{
    char each[100], all[100], tokens[100], dynamic[100];
    const struct plan *p = &in->actor;
    int64_t sharing = p->parallel.context > 1 ? p->parallel.context : 1;

    snprintf(each, sizeof each, "actor_rollout_ref.%s.log_prob_micro_batch_size_per_gpu", whose);
    snprintf(all, sizeof all, "actor_rollout_ref.%s.log_prob_micro_batch_size", whose);
    snprintf(tokens, sizeof tokens, "actor_rollout_ref.%s.log_prob_max_token_len_per_gpu", whose);
    snprintf(dynamic, sizeof dynamic, "actor_rollout_ref.%s.log_prob_use_dynamic_bsz", whose);
    int64_t fit = sharing * import_count(in, tokens, 1, import_count(in, ACTOR "ppo_max_token_len_per_gpu", 1, 16384)) / p->seq;
    int64_t n = import_count(in, each, 1, import_count(in, all, 1, 0) / plan_batch_ranks(p));
    if (import_flag(in, dynamic, import_flag(in, ACTOR "use_dynamic_bsz", false)))
        return fit > 0 ? fit : 1;
    return n > 0 ? n : p->micro_batch;
}

/* Keys of the reference model that are not followed; what is not in the list would change nothing of a phase. */
static void verl_tell_reference(struct importing *in)
{
    static const char *const told[] = { "ulysses_sequence_parallel_size", "fsdp_config.model_dtype", "fsdp_config.fsdp_size", "fsdp_config.offload_policy",
                                        "fsdp_config.reshard_after_forward", "fsdp_config.forward_prefetch", "fsdp_config.ulysses_sequence_parallel_size" };
    char path[100];

    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        snprintf(path, sizeof path, REF "%s", told[i]);
        if (form_value(in->f->doc, path))
            notes_add(in->notes, "%s is not in the plan: the reference model is a copy of the actor, in bf16 and in host memory", path);
    }
}

/* Keys of the engine and of the release that are not followed, where they are not the usual ones. */
static void verl_tell_engine(struct importing *in)
{
    const char *old = verl_first_releases_key(in->f);
    const json_t *strategy = form_value(in->f->doc, REF "strategy");

    if (import_flag(in, ROLLOUT "calculate_log_probs", false))
        notes_add(in->notes, ROLLOUT "calculate_log_probs: the engine's log-softmax over the vocabulary for each token that it writes is not in the plan");
    if (!import_flag(in, ROLLOUT "enable_prefix_caching", true))
        notes_add(in->notes, ROLLOUT "enable_prefix_caching: false: each of a prompt's responses computes it again: planned once");
    if (strategy && !on_megatron(in) && strcmp(import_text(in, REF "strategy", "fsdp"), import_text(in, ACTOR "strategy", "fsdp")) != 0)
        notes_add(in->notes, REF "strategy: %.20s: the reference model is planned under the actor's, %.20s, as fsdp_workers.py has it",
                  import_text(in, REF "strategy", "fsdp"), import_text(in, ACTOR "strategy", "fsdp"));
    if (old)
        notes_add(in->notes, "%s: a key of verl before 17 February 2025, whose engine (vLLM 0.6 in the trainer's own process, eager where enforce_eager is not given) is "
                  "planned as verl 0.7's", old);
}

/* ---- the critic ---- */

#define CRITIC "critic."

/* What the actor's key says where the critic's is silent (trainer/config/critic/critic.yaml: oc.select). */
static void take(json_t *to, const char *key, const json_t *doc, const char *own, const char *other)
{
    const json_t *v = form_value(doc, own);

    v = v || !other ? v : form_value(doc, other);
    if (v)
        json_object_set(to, key, (json_t *)(uintptr_t)v);
}

static bool critic_on_megatron(struct importing *in)
{
    return !strncmp(import_text(in, CRITIC "strategy", on_megatron(in) ? "megatron" : "fsdp"), "megatron", 8);
}

/* The critic's keys at the places of the actor's, for the form's reader; no engine is beside it but the actor's. */
static json_t *critic_doc(struct importing *in)
{
    static const char *const others[] = { "fsdp_config", "tokenizer_path", "override_config", "external_lib" };
    const json_t *doc = in->f->doc;
    json_t *model = json_deep_copy(form_value(doc, CRITIC "model")), *actor = json_object(), *out = json_object();

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        json_object_del(model, others[i]);
    take(actor, "strategy", doc, CRITIC "strategy", NULL);
    take(actor, "ppo_mini_batch_size", doc, CRITIC "ppo_mini_batch_size", ACTOR "ppo_mini_batch_size");
    take(actor, "ppo_micro_batch_size", doc, CRITIC "ppo_micro_batch_size", NULL);
    take(actor, "ppo_micro_batch_size_per_gpu", doc, CRITIC "ppo_micro_batch_size_per_gpu", NULL);
    take(actor, "use_dynamic_bsz", doc, CRITIC "use_dynamic_bsz", ACTOR "use_dynamic_bsz");
    json_object_set_new(actor, "ppo_max_token_len_per_gpu", json_integer(import_count(in, CRITIC "ppo_max_token_len_per_gpu", 1, 32768)));
    take(actor, "ulysses_sequence_parallel_size", doc, CRITIC "ulysses_sequence_parallel_size", NULL);
    take(actor, "grad_clip", doc, CRITIC "grad_clip", NULL);
    json_object_set_new(actor, "entropy_coeff", json_integer(0));
    json_object_set_new(actor, "fsdp_config", json_deep_copy(form_value(doc, CRITIC "model.fsdp_config")));
    json_object_del(json_object_get(actor, "fsdp_config"), "grad_offload");            /* of a release whose actor has an entropy: a critic has none */
    if (verl_first_releases_key(in->f) && !form_value(doc, CRITIC "model.enable_gradient_checkpointing"))
        json_object_set_new(model, "enable_gradient_checkpointing", json_false());
    take(actor, "megatron", doc, CRITIC "megatron", NULL);
    if (critic_on_megatron(in))
        json_object_set_new(actor, "strategy", json_string("megatron"));
    take(actor, "optim", doc, CRITIC "optim", NULL);
    json_object_set_new(out, "actor_rollout_ref", json_pack("{s:b, s:o, s:o, s:{s:I}}", "hybrid_engine", 0, "model", model, "actor", actor, "rollout", "n",
                                                            (json_int_t)import_count(in, CRITIC "rollout_n", 1, import_count(in, ROLLOUT "n", 1, 1))));
    take(out, "data", doc, "data", NULL);
    take(out, "trainer", doc, "trainer", NULL);
    return out;
}

static int critic_refuses(struct importing *in)
{
    if (!form_value(in->f->doc, CRITIC "model.path"))
        return fail("%s: critic.model.path: not given, where verl takes ~/models/deepseek-llm-7b-chat: name the critic's model; critic.enable is false with an "
                    "algorithm.adv_estimator that has none (grpo, rloo, reinforce_plus_plus)", in->f->path);
    return 0;
}

/* Samples of a forward for values (critic.yaml: forward_micro_batch_size_per_gpu follows the update's). */
static int64_t critic_micro(struct importing *in, const struct plan *p)
{
    int64_t tokens = import_count(in, CRITIC "forward_max_token_len_per_gpu", 1, import_count(in, CRITIC "ppo_max_token_len_per_gpu", 1, 32768));
    int64_t n = import_count(in, CRITIC "forward_micro_batch_size_per_gpu", 1,
                                import_count(in, CRITIC "forward_micro_batch_size", 1, 0) / plan_batch_ranks(p));

    if (import_flag(in, CRITIC "use_dynamic_bsz", import_flag(in, ACTOR "use_dynamic_bsz", false)))
        return tokens / p->seq > 0 ? tokens / p->seq : 1;
    return n > 0 ? n : p->micro_batch;
}

static const char *offloaded(bool params, bool states)
{
    return states && params ? "host" : states ? "states on host" : params ? "weights on host" : "device";
}

/* 0, or -1 reported; *micro: samples of a forward. */
static int verl_critic(struct importing *in, int64_t *micro)
{
    struct plan p = { 0 };

    if (critic_refuses(in) < 0)
        return -1;
    json_t *doc = critic_doc(in);
    int rc = import_plan(in, doc, true, &p);
    json_decref(doc);
    if (rc < 0)
        return -1;
    p.environment = in->actor.environment;              /* one process */
    json_t *plan = plan_to_json(&p);
    import_numbers(plan, HEAD_VALUE);
    *micro = critic_micro(in, &p);
    plan_free(&p);
    bool wide = critic_on_megatron(in), params = import_flag(in, wide ? CRITIC "megatron.param_offload" : CRITIC "model.fsdp_config.param_offload", false);
    json_t *role = json_pack("{s:o, s:s, s:b, s:b}", "train", plan, "between",
                             offloaded(params, import_flag(in, wide ? CRITIC "megatron.optimizer_offload" : CRITIC "model.fsdp_config.optimizer_offload", false)),
                             "empties_cache", 1, "unpadded", import_flag(in, CRITIC "model.use_remove_padding", false));
    if (wide && params)
        json_object_set_new(role, "frees_gradients", json_true());
    import_role(in, "critic", role);
    return 0;
}

/* `values`: samples of the critic's forward; 0: there is no critic. */
static void verl_phases(struct importing *in, bool refers, bool adapts, int64_t values)
{
    /* 512 and at its place until 0.7, 2048 in checkpoint_engine since 0.8 */
    bool newer = form_value(in->f->doc, ROLLOUT "checkpoint_engine") != NULL;
    int64_t bucket = (newer ? import_count(in, ROLLOUT "checkpoint_engine.update_weights_bucket_megabytes", 1, 2048)
                            : import_count(in, ROLLOUT "update_weights_bucket_megabytes", 1, 512)) << 20;

    import_phase(in, json_pack("{s:s, s:s, s:s, s:I}", "name", "weights", "hand_over", "actor", "to", "engine", "bucket_bytes", (json_int_t)bucket));
    import_phase(in, json_pack("{s:s, s:s}", "name", "generate", "generate", "engine"));
    if (!import_flag(in, "algorithm.rollout_correction.bypass_mode", false))       /* it takes the engine's own */
        import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "log-probs", "forward", "actor", "micro_batch", (json_int_t)verl_micro(in, "rollout")));
    if (refers)
        import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "reference", "forward", adapts ? "actor" : "reference", "micro_batch", (json_int_t)verl_micro(in, "ref")));
    if (values) {
        import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "values", "forward", "critic", "micro_batch", (json_int_t)values));
        import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "critic", "update", "critic", "epochs",
                                      (json_int_t)import_count(in, CRITIC "ppo_epochs", 1, import_count(in, ACTOR "ppo_epochs", 1, 1))));
    }
    import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "update", "update", "actor", "epochs", (json_int_t)import_count(in, ACTOR "ppo_epochs", 1, 1)));
}

/* The form's reader does not see the keys that are read here. */
static int verl_actor(struct importing *in)
{
    static const char *const here[] = { "dtype", "update_weights_bucket_megabytes", "checkpoint_engine", "layered_summon", "pipeline_model_parallel_size", "data_parallel_size", "expert_parallel_size", "quantization" };
    json_t *doc = json_deep_copy(in->f->doc), *rollout = json_object_get(json_object_get(doc, "actor_rollout_ref"), "rollout");

    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        json_object_del(rollout, here[i]);
    json_object_del(json_object_get(rollout, "multi_turn"), "enable");
    int rc = import_actor(in, doc);
    json_decref(doc);
    return rc;
}

static void add_actor(struct importing *in)
{
    bool wide = on_megatron(in);
    bool params = import_flag(in, wide ? ACTOR "megatron.param_offload" : ACTOR "fsdp_config.param_offload", false);
    bool states = import_flag(in, wide ? ACTOR "megatron.optimizer_offload" : ACTOR "fsdp_config.optimizer_offload", false);
    json_t *role = json_pack("{s:o, s:s, s:b, s:b}", "train", plan_to_json(&in->actor), "between", offloaded(params, states), "empties_cache", 1, "unpadded",
                             import_flag(in, "actor_rollout_ref.model.use_remove_padding", false));

    if (wide && params)
        json_object_set_new(role, "frees_gradients", json_true());
    import_role(in, "actor", role);
}

/* verl/trainer/constants_ppo.py since 0.6, where the environment says nothing; NCCL's mnnvl.cc: without cuMem no NVLink between hosts. */
static void tell_trays(struct importing *in)
{
    const struct cluster *c = &in->actor.cluster;
    int64_t tray = c->gpu.node_gpus;

    if (!strncmp(c->gpu.name, "gb", 2) && c->gpus_per_node > tray)
        notes_add(in->notes, "--cluster: verl sets NCCL_CUMEM_ENABLE=0, with which NCCL goes over the network between trays: unless your environment sets it to 1, write nodes of %" PRId64
                  "x%s", tray, c->gpu.name);
}

json_t *phases_verl(struct importing *in)
{
    json_t *response = NULL;
    bool refers = import_flag(in, ACTOR "use_kl_loss", false) || import_flag(in, "algorithm.use_kl_in_reward", false);
    int64_t prompt = import_count(in, "data.max_prompt_length", 1, 512), longest = import_count(in, "data.max_response_length", 1, 512), n = import_count(in, ROLLOUT "n", 1, 1);
    int64_t values = 0;

    if (verl_refuses(in) < 0 || verl_actor(in) < 0 || import_response(in, longest, &response) < 0)
        return NULL;
    bool adapts = in->actor.model.trainable < in->actor.model.params;
    tell_trays(in);
    add_actor(in);
    verl_engine(in, adapts);
    verl_tell_engine(in);
    if (refers && !adapts && check_reference(in) < 0) {
        json_decref(response);
        return NULL;
    }
    if (refers && !adapts && on_megatron(in))
        megatron_reference(in);
    else if (refers && !adapts) {
        verl_reference(in);
        verl_tell_reference(in);
    }
    if (import_count(in, ROLLOUT "max_model_len", 1, prompt + longest) < prompt + longest)
        import_refuse(in, ROLLOUT "max_model_len", "as many tokens at least as a prompt and the longest response have");
    if (import_flag(in, ROLLOUT "multi_turn.enable", false))
        notes_add(in->notes, ROLLOUT "multi_turn.enable: responses are planned as written at once: the time of tools between turns is not in it");
    if (import_flag(in, "critic.enable", !strcmp(import_text(in, "algorithm.adv_estimator", "gae"), "gae")) && verl_critic(in, &values) < 0)
        return NULL;
    verl_phases(in, refers, adapts, values);
    return import_document(in, "verl", import_count(in, "data.train_batch_size", 1, 1024) * n, n, prompt, response);
}
