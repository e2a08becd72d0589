/* recipe_refuses.c -- see recipe_refuses.h.  TRL 1.9 (trainer/), LLaMA-Factory (train/), axolotl (core/builders/), August 2026.
 *
 * A figure that is wrong by more than a percent is refused: a note beside it would not reach those who read the verdict. */
#define _GNU_SOURCE                             /* strcasestr() */
#include "model/exchange/recipe_refuses.h"

#include <stdint.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/recorded.h"
#include "model/exchange/unread.h"

#define COUNT(list) (sizeof (list) / sizeof *(list))

static bool asks(const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);
    const char *word = json_string_value(v);

    return v && !unread_asks_nothing(v) && !(word && !strcmp(word, "false"));
}

static bool is_among(const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; word && i < n; i++)
        if (!strcmp(word, words[i]))
            return true;
    return false;
}

double recipe_grpo_beta(const json_t *config)
{
    static const char *const before[] = { "vllm_device", "vllm_max_model_len", "vllm_dtype", "vllm_enable_prefix_caching" };       /* none in 0.18 */
    const json_t *beta = json_object_get(config, "beta");
    bool old = false;

    for (size_t i = 0; i < COUNT(before); i++)
        old = old || json_object_get(config, before[i]);
    return beta ? json_number_value(beta) : old ? 0.04 : 0;
}

/* TRL's DPO and KTO run a reference model beside the one that trains, GRPO where beta is above 0, RLOO always. */
static const char *trl_refers(const json_t *config)
{
    static const char *const names[] = { [TRL_SFT] = NULL, [TRL_DPO] = "DPO", [TRL_KTO] = "KTO", [TRL_REWARD] = NULL, [TRL_GRPO] = "GRPO with beta" };
    bool refers = recipe_grpo_beta(config) > 0;
    enum trl_trainer trainer = recipe_trl_trainer(config);
    const char *program = json_string_value(json_object_get(config, RECIPE_TRL_PROGRAM));

    if (trainer != TRL_GRPO)
        return names[trainer];
    return program && !strcmp(program, "rloo") ? "RLOO" : !refers ? NULL
         : json_object_get(config, "beta") ? names[TRL_GRPO] : "GRPO with keys of before TRL 0.18 and no beta, which was 0.04 then";
}

const char *recipe_refers(const json_t *config, enum recipe_form form)
{
    static const char *const stages[] = { "dpo", "kto", "ppo" }, *const alone[] = { "orpo", "simpo" }, *const methods[] = { "dpo", "ipo", "kto" };
    const char *stage = json_string_value(json_object_get(config, "stage")), *rl = json_string_value(json_object_get(config, "rl"));

    if (form == RECIPE_TRL)
        return trl_refers(config);
    if (form == RECIPE_FACTORY && is_among(stage, stages, COUNT(stages)))
        return is_among(json_string_value(json_object_get(config, "pref_loss")), alone, COUNT(alone)) ? NULL : stage;
    if (form == RECIPE_AXOLOTL && json_number_value(json_object_get(json_object_get(config, "trl"), "beta")) > 0)
        return "trl.beta";
    return form == RECIPE_AXOLOTL && is_among(rl, methods, COUNT(methods)) ? rl : NULL;
}

/* A head of classes where the plan's is of the vocabulary. */
static const char *another_head(const json_t *config, enum recipe_form form)
{
    static const char *const keys[] = { "reward_model", "process_reward_model", "num_labels" };
    const char *stage = json_string_value(json_object_get(config, "stage"));

    for (size_t i = 0; form == RECIPE_AXOLOTL && i < COUNT(keys); i++)
        if (asks(config, keys[i]))
            return keys[i];
    if (form == RECIPE_TRL && recipe_trl_trainer(config) == TRL_REWARD)
        return "reward modelling";
    return form == RECIPE_FACTORY && stage && !strcmp(stage, "rm") ? "stage: rm" : NULL;
}

/* TRL's other trainers, by the program that a command runs or by keys that only they have: a teacher, a reward model, a judge, responses that are
 * generated, two losses over the same logits (trl/experimental/{gkd,ppo,online_dpo,nash_md,orpo,cpo,tpo} of 1.16). */
static int check_trainer(const json_t *config, enum recipe_form form, const char *where)
{
    static const char *const keys[] = { "teacher_model_name_or_path", "reward_model_path", "sft_model_path", "num_ppo_epochs", "judge", "missing_eos_penalty",
                                        "tpo_alpha", "cpo_alpha", "simpo_gamma", "teacher_model_revision", "gamma_beta_ratio", "trainer_type" };
    static const char *const losses[] = { "orpo", "simpo" };
    const char *program = json_string_value(json_object_get(config, RECIPE_TRL_PROGRAM)), *rl = json_string_value(json_object_get(config, "rl"));
    enum trl_trainer ignored;

    if (form == RECIPE_AXOLOTL && is_among(rl, losses, COUNT(losses)))
        return fail("%s: rl: %s: TRL's trainer has two losses over the same logits, which is not planned", where, rl);
    if (form != RECIPE_TRL)
        return 0;
    if (program && !recipe_trl_program(program, &ignored))
        return fail("%s: %.60s: this trainer of TRL's is not planned: sft, dpo, kto, reward, grpo and rloo are", where, program);
    if (program && (strstr(program, "vlm") || strstr(program, "diffusion")))
        return fail("%s: %.60s: training on pictures or by diffusion is not planned, text alone is" RECORDED_WAY, where, program);
    for (size_t i = 0; i < COUNT(keys); i++)
        if (asks(config, keys[i]))
            return fail("%s: %s: the trainer of TRL's that takes it is not planned: sft, dpo, kto, reward, grpo and rloo are", where, keys[i]);
    return 0;
}

static bool begins(const char *key, const char *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strncmp(key, parts[i], strlen(parts[i])))
            return true;
    return false;
}

/* Keys of programs of their own that read a file of TrainingArguments: ms-swift's arguments inherit them, Firefly's train.py has its beside them, of which train_mode
 * (of itself qlora) says what trains.  LLaMA-Factory's parser stops at a key that it does not know, so a length in another's word is no file of its. */
static int check_own_program(const json_t *config, enum recipe_form form, const char *where)
{
    static const struct { const char *key, *whose; } owns[] = {
        { "tuner_type", "ms-swift" }, { "train_type", "ms-swift" }, { "sft_type", "ms-swift" }, { "rlhf_type", "ms-swift" },
        { "train_mode", "Firefly" }, { "template_name", "Firefly" },
    };
    static const char *const lengths[] = { "max_seq_length", "sequence_len", "model_max_length", "source_max_len" };

    for (size_t i = 0; form != RECIPE_AXOLOTL && i < COUNT(owns); i++)
        if (json_object_get(config, owns[i].key))
            return fail("%s: %s: a key of %s's, which is not read", where, owns[i].key, owns[i].whose);
    for (size_t i = 0; form == RECIPE_FACTORY && i < COUNT(lengths); i++)
        if (json_object_get(config, lengths[i]))
            return fail("%s: %s: LLaMA-Factory stops at keys that it does not know: a sample's length is cutoff_len; where the file is another program's, it is "
                        "not read", where, lengths[i]);
    return 0;
}

/* Keys of scripts of somebody's own beside TrainingArguments that say that another model trains, or another part of it (LLaVA's, Qwen-VL's, LMFlow's). */
static int check_own_model(const json_t *config, enum recipe_form form, const char *where)
{
    static const char *const towers[] = { "vision_", "mm_", "tune_mm_", "pretrain_mm_", "image_", "video_", "audio_", "max_pixels", "min_pixels", "multimodal", "is_multimodal" };
    static const char *const pairs[] = { "query_max_len", "passage_max_len", "train_group_size", "sentence_pooling_method" };
    static const char *const parts[] = { "freeze_", "tune_", "unfreeze_", "unfrozen", "trainable", "spectrum_" };
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)config, key, v) {
        if ((form != RECIPE_TRL && form != RECIPE_TRANSFORMERS) || !asks(config, key))
            continue;
        if (begins(key, towers, COUNT(towers)) || strstr(key, "_vision"))
            return fail("%s: %.60s: training on pictures or sound is not planned, a recipe of text alone is" RECORDED_WAY, where, key);
        if (begins(key, pairs, COUNT(pairs)))
            return fail("%s: %.60s: training of embeddings, whose loss compares texts, is not planned: that of the next token is", where, key);
        if (begins(key, parts, COUNT(parts)))
            return fail("%s: %.60s: a key of a script's own that says what trains, which is not read: all of the model, or TRL's use_peft, is", where, key);
    }
    return 0;
}

/* axolotl's check_nemotron_h_gradient_checkpointing() (utils/schemas/validation.py): of the model's name, in any case. */
static int check_axolotls_model(const json_t *config, enum recipe_form form, const char *where)
{
    const char *model = json_string_value(json_object_get(config, "base_model"));

    if (form != RECIPE_AXOLOTL || !model || !strcasestr(model, "nemotron-h") || !asks(config, "gradient_checkpointing") || asks(config, "sample_packing"))
        return 0;
    return fail("%s: gradient_checkpointing: \"gradient_checkpointing for nemotron_h requires sample_packing: true\", where axolotl stops", where);
}

/* Adapters that a script of somebody's own asks for in keys that are not TRL's, or in TRL's without the one that turns them on.  qlora.py packs weights and trains
 * adapters unless full_finetune is true, and then has an optimizer, a batch and checkpoints of its own where the file says none: its keys tell that it runs. */
static int check_own_adapters(const json_t *config, enum recipe_form form, const char *where)
{
    static const char *const own[] = { "use_lora", "q_lora", "use_qlora", "qlora", "lora_enable", "enable_lora", "lora", "peft", "use_adapter", "lora_weight_path" };
    static const char *const qloras[] = { "full_finetune", "bits", "double_quant", "quant_type", "adam8bit", "source_max_len", "target_max_len", "max_memory_MB",
                                          "train_on_source", "do_mmlu_eval", "mmlu_split", "mmlu_dataset" };
    static const char *const without[] = { "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save" };
    const char *first = NULL;

    if (form != RECIPE_TRL && form != RECIPE_TRANSFORMERS)
        return 0;
    for (size_t i = 0; i < COUNT(own) && !first; i++)
        first = asks(config, own[i]) ? own[i] : NULL;
    for (size_t i = 0; i < COUNT(qloras) && !first; i++)
        first = json_object_get(config, qloras[i]) ? qloras[i] : NULL;
    if (first)
        return fail("%s: %s: a key of a script's own, whose adapters are not read: TRL's use_peft, lora_r and lora_target_modules are", where, first);
    if (json_object_get(config, recipe_key(config, RECIPE_TRL, SAYS_ADAPTS)))
        return 0;
    for (size_t i = 0; i < COUNT(without); i++)
        if (asks(config, without[i]))
            return fail("%s: %s: without use_peft TRL trains everything: say use_peft: true or false", where, without[i]);
    return 0;
}

/* Other optimizers, other weights that train, other kernels. */
static int check_method(const json_t *config, enum recipe_form form, const char *where)
{
    static const char *const backends[] = { "half_precision_backend", "fp16_backend" }, *const apex[] = { "apex" };
    static const char *const bridges[] = { "use_distributed_optimizer", "tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size" };
    static const struct { const char *key, *what; } others[] = {
        { "use_galore", "gradients that are projected are" }, { "use_apollo", "gradients that are projected are" }, { "use_badam", "one block that trains at a time is" },
        { "use_llama_pro", "added blocks that train alone are" }, { "use_adam_mini", "Adam-mini is" },
        { "mixture_of_depths", "tokens that skip blocks are" }, { "use_kt", "experts that ktransformers computes on the host are" }, { "use_mora", "MoRA is" },
        { "use_dora", "DoRA is" }, { "peft_use_dora", "DoRA is" }, { "ebft", "a generator beside the one that trains is" },
        { "use_asft_loss", "a reference model's forward in each step (ASFT) is" }, { "lisa_n_layers", "layers that train by turns (LISA) are" },
        { "peft_layers_to_transform", "adapters of some layers alone are" }, { "peft_layer_replication", "blocks that occur several times are" },
        { "peft_trainable_token_indices", "tokens that train are" }, { "lora_rank_pattern", "ranks that differ by layer are" },
        { "selective_checkpointing", "checkpoints of chosen operators in a recipe are" }, { "recompute_layer_types", "checkpoints of some kinds of layers alone are" },
        { "chunked_cross_entropy", "a loss of chunks of logits in a recipe is" }, { "tiled_mlp", "an MLP in tiles is" }, { "fp32_norms", "norms that stay in fp32 are" },
        { "layer_offloading", "layers that wait in host memory are" }, { "deepcompile", "DeepSpeed's compiled schedule is" },
        { "shrink_embeddings", "another size of the embedding than the model's is" }, { "overrides_of_model_config", "another config than the model's is" },
        { "use_onebitllms", "layers of one bit are" }, { "use_mca", "LLaMA-Factory's training by Megatron-LM is" },
        { "use_megatron_bridge", "LLaMA-Factory's training by Megatron-LM is" }, { "use_hyper_parallel", "LLaMA-Factory's training by HyperParallel is" },
        { "label_smoothing_factor", "a loss of all log-probabilities (label smoothing), which keeps copies of the logits, is" },
        { "use_cpu", "training on CPUs is" }, { "no_cuda", "training on CPUs is" }, { "use_ipex", "training on CPUs is" },
        { "use_mps_device", "training on Apple's GPUs is" }, { "tpu_num_cores", "training on TPUs is" },
        { "sharded_ddp", "fairscale's sharding (transformers before 4.35) is" }, { "mp_parameters", "SageMaker's model parallelism is" },
        { "kd_trainer", "a loss of a teacher's probabilities is" }, { "dense_mixer", "a mixture that computes every expert for every token is" },
        { "nemo_gym_enabled", "a generator beside the one that trains is" }, { "spectrum_top_fraction", "weights that train alone, chosen by Spectrum, are" },
        { "grokfast_alpha", "a running mean of the gradients beside them is" }, { "grokfast_lamb", "a running mean of the gradients beside them is" },
        { "fp8", "float8 of torchao or Transformer Engine in a recipe is" },
        { "parallelism_config", "a mesh in the recipe, where accelerate's config has it (--accelerate FILE), is" },
    };

    for (size_t i = 0; i < COUNT(others); i++)
        if (asks(config, others[i].key))
            return fail("%s: %s: %s not planned: without this key the rest of the step is", where, others[i].key, others[i].what);
    if (form == RECIPE_FACTORY && asks(config, "use_muon") && !json_is_true(json_object_get(config, "use_muon")))
        return fail("%s: use_muon: expected true or false", where);
    for (size_t i = 0; i < COUNT(backends); i++)
        if (is_among(json_string_value(json_object_get(config, backends[i])), apex, COUNT(apex)))
            return fail("%s: %s: apex's copies of the weights are not planned: without it torch.autocast is", where, backends[i]);
    const char *backend = json_string_value(json_object_get(config, "ddp_backend")), *debug = json_string_value(json_object_get(config, "debug"));
    if (backend && *backend && strcmp(backend, "nccl"))
        return fail("%s: ddp_backend: %.40s: collectives by another library than NCCL are not planned: nccl, or without it", where, backend);
    if (debug && strstr(debug, "underflow_overflow") && form != RECIPE_AXOLOTL)
        return fail("%s: debug: underflow_overflow: hooks that make the host wait for the GPU at each module are not planned: without it the step is", where);
    if (form == RECIPE_TRL && json_array_size(json_object_get(config, "lora_target_modules")) == 0 && json_is_array(json_object_get(config, "lora_target_modules")))
        return fail("%s: lora_target_modules: an empty list: PEFT stops at it, as no module is an adapter's", where);
    if (form == RECIPE_TRL && asks(config, "use_unsloth"))
        return fail("%s: use_unsloth: unsloth's kernels and checkpoints beside TRL's trainer are not planned", where);
    for (size_t i = 0; form == RECIPE_FACTORY && i < COUNT(bridges); i++)
        if (json_object_get(config, bridges[i]))
            return fail("%s: %s: LLaMA-Factory's training by Megatron-LM is not planned: without its keys the Trainer's is", where, bridges[i]);
    return 0;
}

/* axolotl's plugins of which it is known that they make another step. */
static int check_plugins(const json_t *config, const char *where)
{
    static const struct { const char *plugin, *what; } others[] = {
        { "diffusion.DiffusionPlugin", "a language model that learns to denoise" },
        { "hatchery.HatcheryPlugin", "training on a service: nothing of the step runs here" },
        { "grokfast.GrokfastPlugin", "a running mean of the gradients beside them" },
        { "spectrum.SpectrumPlugin", "weights that train alone" },
        { "llm_compressor.LLMCompressorPlugin", "weights with masks" },
    };
    static const char *const own[] = { "liger", "cut_cross_entropy", "kernels", "swanlab", "expert_parallel", "densemixer", "kd", "lm_eval", "mora", "nemo_gym", "aux_free_router" };
    static const char *const classes[] = { "LigerPlugin", "CutCrossEntropyPlugin", "KernelsPlugin", "SwanLabPlugin", "ExpertParallelPlugin", "DenseMixerPlugin", "KDPlugin",
                                           "LMEvalPlugin", "MoraPlugin", "NemoGymPlugin", "AuxFreeMoEPlugin" };
    static const char folder[] = "axolotl.integrations.";
    const json_t *list = json_object_get(config, "plugins"), *each;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, each)
        for (size_t k = 0; k < COUNT(others); k++)
            if (json_is_string(each) && strstr(json_string_value(each), others[k].plugin))
                return fail("%s: plugins: %.80s: %s, which is not planned", where, json_string_value(each), others[k].what);
    json_array_foreach((json_t *)(uintptr_t)list, i, each) {
        const char *name = json_string_value(each), *dot = name ? strrchr(name, '.') : NULL;
        if (!name)
            return fail("%s: plugins: expected names of classes", where);
        if (strncmp(name, folder, sizeof folder - 1))
            continue;
        const char *at = name + sizeof folder - 1;
        char package[64];
        snprintf(package, sizeof package, "%.*s", (int)strcspn(at, "."), at);
        if (!is_among(package, own, COUNT(own)) || !is_among(dot + 1, classes, COUNT(classes)))
            return fail("%s: plugins: %.80s: axolotl has no such plugin, as far as is known, and stops", where, name);
    }
    return 0;
}

/* What dpxplan phases reads. */
static bool refers_plans(const char *refers, enum recipe_form form)
{
    return form == RECIPE_TRL || !strcmp(refers, "dpo") || !strcmp(refers, "ipo") || (form == RECIPE_AXOLOTL && !strcmp(refers, "kto"));
}

/* Options of scripts with a training loop of their own, in which names of TrainingArguments' mean what the script makes of them: transformers'
 * run_clm_no_trainer.py, diffusers', open-instruct's. */
static int check_loop(const json_t *config, enum recipe_form form, const char *where)
{
    static const char *const loops[] = { "with_tracking", "checkpointing_steps", "max_train_steps", "num_warmup_steps", "lr_warmup_steps",
                                         "pretrained_model_name_or_path", "train_batch_size" };
    bool trainers = json_object_get(config, "per_device_train_batch_size") != NULL;

    for (size_t i = 0; form != RECIPE_AXOLOTL && i < COUNT(loops) - (trainers ? 1 : 0); i++)
        if (json_object_get(config, loops[i]))
            return fail("%s: %s: a key of scripts with a training loop of their own (run_clm_no_trainer.py, diffusers', open-instruct's), which are not "
                        "planned: transformers' Trainer is", where, loops[i]);
    return 0;
}

/* A YAML file with a model, a data set and no do_train is no configuration of transformers' scripts, whose parser takes JSON and which train
 * with do_train alone: TRL's programs take one, where what is left out is bf16, recomputed and 1024 tokens. */
static int check_owner(const json_t *config, enum recipe_form form, const char *where)
{
    const char *dot = strrchr(where, '.');

    if (form != RECIPE_TRANSFORMERS || !dot || (strcmp(dot, ".yaml") && strcmp(dot, ".yml")) || json_object_get(config, "do_train") ||
        !json_object_get(config, "model_name_or_path") || !json_object_get(config, "dataset_name"))
        return 0;
    return fail("%s: dataset_name: transformers' scripts take no such YAML file, and no key of TRL's alone is in it: if TRL's programs run it (trl sft "
                "--config), add max_length: 1024, their default", where);
}

int recipe_refuse_step(const json_t *config, enum recipe_form form, const char *where)
{
    const char *refers = recipe_refers(config, form), *head = another_head(config, form);

    if (check_loop(config, form, where) < 0 || check_own_program(config, form, where) < 0 || check_own_model(config, form, where) < 0 || check_axolotls_model(config, form, where) < 0 ||
        check_owner(config, form, where) < 0 || check_trainer(config, form, where) < 0 || check_own_adapters(config, form, where) < 0)
        return -1;
    if (head)
        return fail("%s: %s: a model with a head of classes is not planned: the plan's head is of the whole vocabulary", where, head);
    if (refers)
        return fail("%s: %s: a reference model's forward beside the training's, and a loss of log-probabilities, are not planned as one step: training without "
                    "preferences (SFT) is%s", where, refers, refers_plans(refers, form) ? "; dpxplan phases plans it with its reference model" : "");
    return check_method(config, form, where) < 0 || (form == RECIPE_AXOLOTL && check_plugins(config, where) < 0) ? -1 : 0;
}

int recipe_check_trains(const json_t *config, enum recipe_form form, const char *where, struct notes *notes)
{
    static const char *const others[] = { "do_predict", "do_eval", "export_dir", "infer_backend", "n_shot", "task" };      /* the last two: EvaluationArguments */
    const json_t *trains = json_object_get(config, "do_train");
    const char *word = json_string_value(trains);

    if (form != RECIPE_AXOLOTL && form != RECIPE_TRL && (json_is_false(trains) || (word && !strcmp(word, "false"))))
        return fail("%s: do_train: false: nothing trains by this file", where);
    if (form == RECIPE_TRANSFORMERS && !trains && asks(config, "do_predict"))
        return fail("%s: do_predict: transformers' scripts train with do_train alone: nothing trains by this file", where);
    if (form != RECIPE_FACTORY || json_is_true(trains) || (word && !strcmp(word, "true")))
        return 0;
    for (size_t i = 0; i < COUNT(others); i++) {
        const json_t *v = json_object_get(config, others[i]);
        if (v && !json_is_null(v) && !json_is_false(v))
            return fail("%s: %s: LLaMA-Factory does not train by this file, which has no do_train: true", where, others[i]);
    }
    notes_add(notes, "do_train is not given: LLaMA-Factory trains with do_train: true alone");
    return 0;
}
