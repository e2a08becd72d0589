/* phases_trl.c -- phase plans of TRL's GRPOConfig, DPOConfig and KTOConfig (1.16), and of what runs its trainers.
 *
 * TRL, GRPO: a batch of per_device_train_batch_size x ranks x steps_per_generation responses is generated, then trained on num_iterations
 * times (grpo_trainer.py: _prepare_inputs()).  The engine is vLLM in the same process (vllm_mode colocate), with max_num_seqs
 * per_device_train_batch_size x vllm_tensor_parallel_size x steps_per_generation and max_num_batched_tokens 4096
 * (generation/vllm_generation.py).  With it the log-probabilities are computed again in a forward
 * (vllm_importance_sampling_correction, on unless it is switched off).  With beta above 0 a reference model stays on the GPU, of adapters the model itself
 * without them.  Nothing moves to host memory between phases.
 *
 * DPO of TRL, of axolotl (TRL's trainer) and of LLaMA-Factory: the reference model's forward is in each micro-step (dpo_trainer.py: _compute_loss();
 * llamafactory/train/dpo/trainer.py: get_batch_loss_metrics(), which holds the policy's logits in fp32 meanwhile), and in torchtune's
 * recipes of DPO (recipes/lora_dpo_distributed.py, full_dpo_distributed.py: train()).  KTO of TRL and axolotl
 * (kto_trainer.py: _compute_loss()): one sequence a sample; before the step's forward one without gradients of completions that belong to other prompts,
 * for the KL term, and behind it the reference model's of both. */
#include "sim/plan/phases_import.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/packed.h"
#include "model/arch/training.h"
#include "model/exchange/recipe.h"
#include "model/exchange/recipe_notes.h"
#include "model/exchange/recipe_refuses.h"
#include "model/plan/knob.h"

static bool is_trl(const struct form_file *f, enum trl_trainer t)
{
    return f->doc && form_of_quietly(f) == &form_trl && recipe_trl_trainer(f->doc) == t;
}

/* torchtune's recipes of DPO have its loss. */
static bool is_tune(const struct form_file *f)
{
    const char *loss = json_string_value(form_value(f->doc, "loss._component_"));

    return loss && !strcmp(loss, "torchtune.rlhf.loss.DPOLoss") && form_of_quietly(f) == &form_torchtune;
}

/* DPO of a recipe that transformers' Trainer runs, or torchtune. */
bool phases_is_dpo(const struct form_file *f)
{
    const struct form *form = f->doc ? form_of_quietly(f) : NULL;
    const char *refers = form == &form_factory ? recipe_refers(f->doc, RECIPE_FACTORY) : form == &form_axolotl ? recipe_refers(f->doc, RECIPE_AXOLOTL) : NULL;

    return is_trl(f, TRL_DPO) || is_tune(f) || (refers && (!strcmp(refers, "dpo") || !strcmp(refers, "ipo")));
}

/* KTO by TRL's trainer, which axolotl has, too. */
bool phases_is_kto(const struct form_file *f)
{
    const struct form *form = f->doc ? form_of_quietly(f) : NULL;
    const char *refers = form == &form_axolotl ? recipe_refers(f->doc, RECIPE_AXOLOTL) : NULL;

    return is_trl(f, TRL_KTO) || (refers && !strcmp(refers, "kto"));
}

bool phases_is_reward(const struct form_file *f)
{
    const json_t *asked = f->doc && form_of_quietly(f) == &form_axolotl ? json_object_get(f->doc, "reward_model") : NULL;

    return is_trl(f, TRL_REWARD) || json_is_true(asked);
}

bool phases_is_trl(const struct form_file *f) { return is_trl(f, TRL_GRPO); }

/* disable_dropout_in_model(): the trainers of preferences take the rates of torch.nn.Dropout away, by default and behind PEFT: adapters' too. */
static bool lacks_dropout(struct importing *in, bool usual)
{
    return form_of_quietly(in->f) == &form_trl ? import_flag(in, "disable_dropout", usual) : usual;
}

static void note_dropout(struct importing *in)
{
    bool adapts = training_is_lora(&in->actor.train);

    if (adapts && import_number(in, "lora_dropout", form_of_quietly(in->f) == &form_trl ? 0.05 : 0) > 0)
        notes_add(in->notes, "lora_dropout: 0, as the trainer takes dropout away (disable_dropout)");
}

/* What is dropped by modules: other families call torch.nn.functional.dropout() with a rate of their config. */
static void drop_by_functions_alone(struct importing *in)
{
    static const char *const modules[] = { "gpt2", "gptj", "gpt_neox", "phi", "phi3", "stablelm" };

    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (!strcmp(in->actor.model.family, modules[i]))
            in->actor.dropout = 0;
}

/* The recipe, of which `doc` is what is left, becomes in->actor. */
static int import_without_dropout(struct importing *in, json_t *doc, bool usual)
{
    bool without = lacks_dropout(in, usual);

    json_object_del(doc, "disable_dropout");
    if (without)
        json_object_set_new(doc, "lora_dropout", json_real(0));
    int rc = import_actor(in, doc);
    if (rc == 0 && without) {
        drop_by_functions_alone(in);
        note_dropout(in);
    }
    return rc;
}

/* The same recipe as one of SFT, of which a micro-batch has `sequences` of each sample: DPO's chosen and rejected one, KTO's only one. */
static json_t *as_sft(struct importing *in, int64_t sequences)
{
    static const char *const dpos[] = {
        "beta", "precompute_ref_log_probs", "max_prompt_length", "rpo_alpha", "sync_ref_model", "reference_free", "loss_type", "ref_model_mixup_alpha", "use_weighting",
        "loss_weights", "label_smoothing",
        "pref_beta", "pref_loss", "pref_ftx", "pref_bco_weight", "dpo_label_smoothing", "ld_alpha",                    /* LLaMA-Factory's */
        "desirable_weight", "undesirable_weight", "kto_desirable_weight", "kto_undesirable_weight",
        "center_rewards_coefficient", "reward_model", "num_labels",
        "rl", "rl_beta", "rl_adapter_ref_model", "dpo_use_weighting", "dpo_label_smoothing", "dpo_norm_loss", "dpo_loss_type",  /* axolotl's */
    };
    json_t *doc = json_deep_copy(in->f->doc);
    const char *batch = json_object_get(doc, "base_model") ? "micro_batch_size" : "per_device_train_batch_size";

    for (size_t i = 0; i < sizeof dpos / sizeof *dpos; i++)
        json_object_del(doc, dpos[i]);
    if (json_object_get(doc, "base_model") && json_is_true(json_object_get(doc, "gradient_checkpointing")) &&
        !json_object_get(doc, "gradient_checkpointing_kwargs"))      /* axolotl: reentrant without rl alone */
        json_object_set_new(doc, "gradient_checkpointing_kwargs", json_pack("{s:b}", "use_reentrant", 0));
    if (json_object_get(doc, "stage"))
        json_object_set_new(doc, "stage", json_string("sft"));
    else if (json_object_get(doc, "base_model")) {
        if (json_is_string(json_object_get(in->f->doc, "rl")))          /* recipe_has_preferences() */
            json_object_set_new(doc, RECIPE_TRL_PROGRAM, json_string("sft"));
    } else {
        const char *program = json_string_value(json_object_get(doc, RECIPE_TRL_PROGRAM));
        json_object_set_new(doc, RECIPE_TRL_PROGRAM, json_sprintf("sft%.40s", program && strchr(program, '_') ? strchr(program, '_') : ""));    /* dpo_vlm: sft_vlm */
    }
    json_object_set_new(doc, batch, json_integer(sequences * import_count(in, batch, 1, json_object_get(doc, "base_model") ? 1 : 8)));
    return doc;
}

/* Of torchtune's recipe: a batch has batch_size pairs, and log-probabilities are those of logits in fp32. */
static json_t *tune_as_sft(struct importing *in)
{
    json_t *doc = json_deep_copy(in->f->doc);

    json_object_del(doc, "ref_checkpointer");
    json_object_set_new(doc, "loss", json_pack("{s:s}", "_component_", "torch.nn.CrossEntropyLoss"));
    json_object_set_new(doc, "batch_size", json_integer(2 * import_count(in, "batch_size", 1, 2)));
    return doc;
}

/* A reference model of its own that is not the policy's copy, and LLaMA-Factory's copy under FSDP, which has another format. */
static int dpo_refuses(struct importing *in)
{
    static const char *const others[] = { "ref_model", "ref_model_adapters", "ref_model_quantization_bit", "ref_model_name_or_path" };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (form_value(in->f->doc, others[i]))
            return fail("%s: %s: a reference model that is another one than the policy is not planned from recipes: write a phase plan (docs/howto/phases.md)",
                        in->f->path, others[i]);
    return 0;
}

/* LLaMA-Factory loads the copy without gradients, and so in the 16 bits that it computes in (model/adapter.py casts what trains alone). */
static json_t *reference_plan(struct importing *in, bool adapts)
{
    json_t *plan = plan_to_json(&in->actor);
    bool factory = form_of_quietly(in->f) == &form_factory;

    if (factory && !adapts && in->actor.strategy == STRAT_FSDP) {
        fail("%s: finetuning_type: full: LLaMA-Factory's reference model under FSDP is not planned: under DDP or DeepSpeed it is", in->f->path);
        in->failed = true;
    } else if (factory && !adapts && in->actor.dialect == DIALECT_TORCH && in->actor.precision != DT_FP32) {
        json_object_set_new(knob_object_at(plan, "ddp"), "model_dtype", json_string(dtype_name(in->actor.precision)));
        json_object_del(plan, "reduce_dtype");
    }
    return plan;
}

static void dpo_phases(struct importing *in)
{
    bool factory = form_of_quietly(in->f) == &form_factory, own = import_flag(in, "rl_adapter_ref_model", false);
    bool adapts = in->actor.model.trainable < in->actor.model.params && !own;
    int64_t logits = in->actor.micro_batch * in->actor.seq * in->actor.model.vocab * 4;

    import_role(in, "reference", json_pack("{s:o, s:b}", "infer", reference_plan(in, adapts), "shares_weights", adapts));
    import_phase(in, factory ? json_pack("{s:s, s:s, s:s, s:I}", "name", "update", "update", "policy", "beside", "reference", "held_bytes", (json_int_t)logits) :
                            json_pack("{s:s, s:s, s:s}", "name", "update", "update", "policy", "beside", "reference"));
}

/* alignment-handbook's scripts/dpo.py of dataset_mixer's time hands a second model over beside adapters. */
static void note_second_model(const struct importing *in)
{
    const struct model *m = &in->actor.model;
    int64_t bytes = 0, parts[PACKED_PARTS];

    if (!form_value(in->f->doc, "dataset_mixer") || !training_is_lora(&in->actor.train))
        return;
    for (int i = 0; i < m->ntensors; i++) {
        int n = packed_parts(&m->tensors[i], parts);
        bytes += n || m->tensors[i].adapter != ADAPTER_NONE ? 0 : 2 * m->tensors[i].numel;
        for (int k = 0; k < n; k++)
            bytes += parts[k];
    }
    notes_add(in->notes, "the reference is the same weights without the adapters, as in TRL's own script: alignment-handbook's scripts/dpo.py of dataset_mixer's time hands over "
              "a second model, which older TRL keeps, %.3g GB more, and TRL 0.19 to 0.24 refuse", (double)bytes * 1e-9);
}

json_t *phases_dpo(struct importing *in)
{
    if (import_no_response(in, "DPO") < 0 || dpo_refuses(in) < 0)
        return NULL;
    json_t *doc = is_tune(in->f) ? tune_as_sft(in) : as_sft(in, 2);
    bool before = import_flag(in, "precompute_ref_log_probs", false), trl = form_of_quietly(in->f) == &form_trl;
    int rc = is_tune(in->f) ? import_actor(in, doc) : import_without_dropout(in, doc, true);

    json_decref(doc);
    if (rc < 0)
        return NULL;
    notes_add(in->notes, "each sample is a chosen and a rejected sequence, which run as one batch");
    if (trl && !form_value(in->f->doc, RECIPE_TRL_PROGRAM) && !form_value(in->f->doc, "loss_type"))
        notes_add(in->notes, "read as DPO's by its keys (beta, max_prompt_length ...): ORPO and CPO, whose configs have them too, are not planned; KTO is told by desirable_weight");
    if (trl)
        recipe_note_removed(in->f->doc, in->notes);      /* as_sft() leaves them out */
    if (trl)
        notes_add(in->notes, "the loss of DPO is planned as that of SFT over the same tokens: TRL 1.16 computes log-probabilities in chunks (add_fused_lm_head()), "
                  "older ones hold the logits whole");
    else
        notes_add(in->notes, "the loss of DPO is planned as that of SFT over the same tokens: log-probabilities of whole logits in fp32");
    if (trl && !before)
        note_second_model(in);
    import_role(in, "policy", json_pack("{s:o}", "train", plan_to_json(&in->actor)));
    if (before) {
        notes_add(in->notes, "precompute_ref_log_probs: the reference model has run before the training: it is not there");
        import_phase(in, json_pack("{s:s, s:s}", "name", "update", "update", "policy"));
    } else
        dpo_phases(in);
    return import_document(in, form_of_quietly(in->f)->name, plan_global_batch(&in->actor), 1, 0, NULL);
}

/* TRL's reward model, which axolotl has, too: AutoModelForSequenceClassification with one label (reward_trainer.py), which PEFT's adapters are beside. */
json_t *phases_reward(struct importing *in)
{
    if (import_no_response(in, "a reward model") < 0)
        return NULL;
    json_t *doc = as_sft(in, 2);
    if (form_of_quietly(in->f) == &form_trl)            /* its loss has no logits */
        json_object_set_new(doc, "loss_type", json_string(RECIPE_LOGITS));
    int rc = import_without_dropout(in, doc, true);
    json_decref(doc);
    if (rc < 0)
        return NULL;
    notes_add(in->notes, "each sample is a chosen and a rejected sequence, which run as one batch");
    json_t *plan = plan_to_json(&in->actor);
    import_numbers(plan, HEAD_SCORE);
    import_role(in, "policy", json_pack("{s:o}", "train", plan));
    import_phase(in, json_pack("{s:s, s:s}", "name", "update", "update", "policy"));
    return import_document(in, form_of_quietly(in->f)->name, plan_global_batch(&in->actor), 1, 0, NULL);
}

/* loss_type apo_zero_unpaired has no KL term. */
json_t *phases_kto(struct importing *in)
{
    bool divergence = strcmp(import_text(in, "loss_type", "kto"), "apo_zero_unpaired") != 0, before = import_flag(in, "precompute_ref_log_probs", false);

    if (import_no_response(in, "KTO") < 0 || dpo_refuses(in) < 0)
        return NULL;
    json_t *doc = as_sft(in, 1);
    int rc = import_without_dropout(in, doc, true);
    json_decref(doc);
    if (rc < 0)
        return NULL;
    if (divergence && in->actor.micro_batch < 2) {
        fail("%s: per_device_train_batch_size: TRL's KTO takes 2 at least: its KL term is of the batch's completions, each with another prompt", in->f->path);
        return NULL;
    }
    bool adapts = in->actor.model.trainable < in->actor.model.params && !import_flag(in, "rl_adapter_ref_model", false);
    notes_add(in->notes, "the loss of KTO is planned as that of SFT over the same tokens: TRL 1.16 computes log-probabilities in chunks (add_fused_lm_head()), "
              "older ones hold the logits whole");
    import_role(in, "policy", json_pack("{s:o}", "train", plan_to_json(&in->actor)));
    if (divergence)
        import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "KL", "forward", "policy", "micro_batch", (json_int_t)in->actor.micro_batch));
    if (before) {
        notes_add(in->notes, "precompute_ref_log_probs: the reference model has run before the training: it is not there");
        import_phase(in, json_pack("{s:s, s:s}", "name", "update", "update", "policy"));
    } else {
        import_role(in, "reference", json_pack("{s:o, s:b}", "infer", reference_plan(in, adapts), "shares_weights", adapts));
        import_phase(in, json_pack("{s:s, s:s, s:s, s:i}", "name", "update", "update", "policy", "beside", "reference", "beside_forwards", divergence ? 2 : 1));
    }
    return import_document(in, form_of_quietly(in->f)->name, plan_global_batch(&in->actor), 1, 0, NULL);
}

/* Whose word puts the engine on GPUs of its own; NULL: none does.  vllm_mode's default is "server" from its first release to 0.29, "colocate" since 1.0 (13 March
 * 2026); GRPOConfig had max_prompt_length until 17 January 2026, transformers overwrite_output_dir and evaluation_strategy until 5. */
static const char *apart_by(struct importing *in)
{
    static const char *const olds[] = { "vllm_device", "vllm_max_model_len", "vllm_dtype", "vllm_enable_prefix_caching", "vllm_server_host", "vllm_server_port",
                                        "vllm_server_base_url", "vllm_server_timeout", "max_prompt_length", "overwrite_output_dir", "evaluation_strategy" };

    if (form_value(in->f->doc, "vllm_mode"))
        return strcmp(import_text(in, "vllm_mode", "colocate"), "colocate") ? "vllm_mode" : NULL;
    for (size_t i = 0; i < sizeof olds / sizeof *olds; i++)
        if (form_value(in->f->doc, olds[i]))
            return olds[i];
    notes_add(in->notes, "vllm_mode: not given: colocate, the default since TRL 1.0; before it was server, with GPUs of its own");
    return NULL;
}

/* vllm_device (TRL 0.14 to 0.17, grpo_trainer.py): the main process makes one LLM there, "auto" is the GPU behind the trainers'; later `trl vllm-serve` has its own
 * command.  vLLM's own max_num_seqs. */
static void trl_engine_apart(struct importing *in, const char *by)
{
    bool device = !strcmp(by, "vllm_device");

    notes_add(in->notes, "%s: %s: planned as one engine on a GPU of its own beside the %" PRId64 " that train%s", by,
              device ? "the main process makes one engine" : strcmp(by, "vllm_mode") ? "of before TRL 1.0, when vllm_mode was server" : "server",
              (int64_t)in->actor.cluster.world_size, device ? "" : ": the server's command says how many it has");
    import_role(in, "engine", json_pack("{s:s, s:I, s:f, s:i, s:o, s:b}", "engine", "vllm", "tensor", (json_int_t)1, "gpu_memory_utilization",
                                        device ? import_number(in, "vllm_gpu_memory_utilization", 0.9) : 0.9, "max_num_seqs", 256, "cluster",
                                        phases_part_of(&in->actor.cluster, 1), "enforce_eager", import_flag(in, "vllm_enforce_eager", false)));
}

static int trl_engine(struct importing *in, int64_t steps, int64_t prompt, int64_t longest)
{
    int64_t each = import_count(in, "per_device_train_batch_size", 1, 8), tensor = import_count(in, "vllm_tensor_parallel_size", 1, 1);
    bool sleeps = import_flag(in, "vllm_enable_sleep_mode", false);

    if (!import_flag(in, "use_vllm", false))
        return fail("%s: use_vllm is not set: generation by transformers (model.generate()) is not planned: set use_vllm: true", in->f->path);
    notes_add(in->notes, "vLLM's context holds a prompt and a response, %" PRId64 " tokens", prompt + longest);
    const char *by = apart_by(in);
    if (by) {
        trl_engine_apart(in, by);
        return 0;
    }
    import_role(in, "engine", json_pack("{s:s, s:I, s:f, s:I, s:i, s:i, s:b}", "engine", "vllm", "tensor", (json_int_t)tensor, "gpu_memory_utilization",
                                     import_number(in, "vllm_gpu_memory_utilization", 0.3), "max_num_seqs", (json_int_t)(each * tensor * steps),
                                     "max_num_batched_tokens", 4096, "sleep", sleeps ? 2 : 0, "own_process", 0));
    return 0;
}

/* Micro-steps whose samples are generated at once (grpo_config.py: __post_init__()). */
static int64_t trl_steps(struct importing *in, int64_t each)
{
    int64_t all = import_count(in, "generation_batch_size", 1, in->actor.accumulation * each), steps = import_count(in, "steps_per_generation", 1, all / each);

    if (form_value(in->f->doc, "generation_batch_size") && form_value(in->f->doc, "steps_per_generation"))
        import_refuse(in, "generation_batch_size", "none beside steps_per_generation: TRL takes one of them");
    else if (all % each)
        import_refuse(in, "generation_batch_size", "a multiple of per_device_train_batch_size times the ranks, as TRL does");
    return steps;
}

/* Does the model that drew the samples score them?  Where the correction asks for it, or they outlive an optimizer step (_generate_and_score_completions()); in the
 * releases that know vllm_device, where a generation is used several times (num_iterations). */
static bool trl_scores(struct importing *in, int64_t steps)
{
    if (form_value(in->f->doc, "vllm_device"))
        return import_count(in, "num_iterations", 1, 1) > 1;
    return import_flag(in, "vllm_importance_sampling_correction", true) || in->actor.accumulation % (steps * import_count(in, "num_iterations", 1, 1)) != 0;
}

static int trl_refuses(struct importing *in, int64_t batch, int64_t n, int64_t context)
{
    int64_t window = import_count(in, "vllm_max_model_length", 1, context);

    if (form_value(in->f->doc, "reward_model_name_or_path"))
        return fail("%s: reward_model_name_or_path: a reward model, with a head of one value, is not planned: rewards by functions are", in->f->path);
    if (n < 2 || batch % n)
        return fail("%s: num_generations: %" PRId64 ": TRL takes 2 or more, by which the %" PRId64 " samples that are generated at once divide", in->f->path, n, batch);
    if (window < context)
        return fail("%s: vllm_max_model_length: %" PRId64 " tokens are fewer than a prompt and the longest response have, %" PRId64, in->f->path, window, context);
    return 0;
}

json_t *phases_trl(struct importing *in)
{
    json_t *doc = json_deep_copy(in->f->doc), *response = NULL;
    bool refers = import_number(in, "beta", recipe_grpo_beta(in->f->doc)) > 0, adapts;

    json_object_set_new(doc, "beta", json_real(0));
    json_object_set_new(doc, RECIPE_TRL_PROGRAM, json_string("grpo"));
    int rc = import_without_dropout(in, doc, false);
    json_decref(doc);
    if (rc < 0)
        return NULL;
    int64_t prompt = import_count(in, "max_prompt_length", 0, 512), longest = import_count(in, "max_completion_length", 1, 512);
    int64_t micro = in->actor.micro_batch, each = micro * plan_batch_ranks(&in->actor);
    int64_t steps = trl_steps(in, each), n = import_count(in, "num_generations", 1, 8);
    bool sleeps = import_flag(in, "vllm_enable_sleep_mode", false);
    adapts = in->actor.model.trainable < in->actor.model.params;
    if (trl_refuses(in, each * steps, n, prompt + longest) < 0 || trl_engine(in, steps, prompt, longest) < 0 || import_response(in, longest, &response) < 0)
        return NULL;
    import_role(in, "policy", json_pack("{s:o, s:b}", "train", plan_to_json(&in->actor), "empties_cache", sleeps));
    if (refers && !adapts)
        import_role(in, "reference", json_pack("{s:s}", "infer", "policy"));
    import_phase(in, json_pack("{s:s, s:s, s:s}", "name", "weights", "hand_over", "policy", "to", "engine"));
    import_phase(in, json_pack("{s:s, s:s}", "name", "generate", "generate", "engine"));
    if (trl_scores(in, steps))
        import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "log-probs", "forward", "policy", "micro_batch", (json_int_t)micro));
    if (refers)
        import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "reference", "forward", adapts ? "policy" : "reference", "micro_batch", (json_int_t)micro));
    import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "update", "update", "policy", "epochs", (json_int_t)import_count(in, "num_iterations", 1, 1)));
    if (refers && !form_value(in->f->doc, "beta"))
        notes_add(in->notes, "beta: not given: 0.04 in the releases that know the file's keys (TRL before 0.18), so a reference model scores");
    recipe_note_engine(in->f->doc, in->notes);
    notes_add(in->notes, "rewards by functions take no time and no memory here; a reward model is not planned");
    return import_document(in, "TRL", each * steps, n, prompt, response);
}
