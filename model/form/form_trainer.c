/* form_trainer.c -- the forms that came before this room, which their own readers read: transformers' Trainer and what
 * wraps it (recipe.h), DeepSpeed's and accelerate's configs, torchtitan's and Megatron-LM's. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/exchange/accelerate.h"
#include "model/exchange/ds_config.h"
#include "model/exchange/megatron_import.h"
#include "model/exchange/megatron_sections.h"
#include "model/exchange/recipe.h"
#include "model/exchange/recipe_muon.h"
#include "model/exchange/recipe_types.h"
#include "model/exchange/titan_import.h"
#include "model/exchange/titan_registry.h"
#include "model/form/form_bound.h"
#include "model/form/form_rows.h"

static const char *no_model(const struct form_file *f)
{
    (void)f;
    return NULL;
}

/* ---- transformers' Trainer ---- */

static bool is_recipe(const struct form_file *f, enum recipe_form form)
{
    const char *program = json_string_value(json_array_get(f->words, 0));

    /* whose options are TRL's or LLaMA-Factory's, and some of their own */
    return recipe_form(f->doc) == (int)form && !form_runs(f, "unsloth-cli.py") && !(program && !strncmp(program, "openrlhf.", 9));
}
static bool is_transformers(const struct form_file *f) { return is_recipe(f, RECIPE_TRANSFORMERS); }
static bool is_factory(const struct form_file *f) { return is_recipe(f, RECIPE_FACTORY) && !recipe_is_factorys_second(f->doc); }
static bool is_axolotl(const struct form_file *f) { return is_recipe(f, RECIPE_AXOLOTL); }
static bool is_trl(const struct form_file *f) { return is_recipe(f, RECIPE_TRL); }
static const char *recipes_model(const struct form_file *f) { return recipe_model(f->doc); }

/* Programs of TRL and LLaMA-Factory by their names, here or in a folder of scripts; TRL's own scripts are named by the reader of commands as well. */
static bool is_its_program(const struct form_file *f, enum recipe_form form, const char *program)
{
    static const char *const factorys[] = { "llamafactory-cli", "lmf", "train_bash.py", "src/train.py", "llamafactory/launcher.py", "llamafactory/cli.py" };
    static const char *const trls[] = { "trl", "sft.py", "dpo.py", "kto.py", "grpo.py", "rloo.py", "reward.py", "reward_modeling.py", "run_sft.py", "run_dpo.py" };
    const char *const *names = form == RECIPE_FACTORY ? factorys : trls, *slash = strrchr(program, '/');
    size_t n = form == RECIPE_FACTORY ? sizeof factorys / sizeof *factorys : sizeof trls / sizeof *trls;
    bool scripts = slash && ((slash - program >= 7 && !strncmp(slash - 7, "scripts", 7)) || (slash - program >= 3 && !strncmp(slash - 3, "src", 3)));

    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(program), end = strlen(names[i]);
        if (!strcmp(program, names[i]) || (length > end && program[length - end - 1] == '/' && !strcmp(program + length - end, names[i])
                                           && (scripts || strchr(names[i], '/') || !strchr(names[i], '.'))))
            return true;
    }
    return form == RECIPE_TRL && json_object_get(f->doc, RECIPE_TRL_PROGRAM);
}

/* Keys that a program has from TrainingArguments alone: who has others of them only may have made them himself. */
static bool has_trainers_own(const json_t *doc)
{
    static const char *const own[] = { "save_strategy", "save_total_limit", "logging_strategy", "eval_strategy", "evaluation_strategy", "overwrite_output_dir",
                                       "remove_unused_columns", "do_train", "bf16", "fp16", "tf32", "optim", "deepspeed", "fsdp", "ddp_timeout",
                                       "ddp_find_unused_parameters", "gradient_checkpointing_kwargs" };

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (json_object_get(doc, own[i]))
            return true;
    return false;
}

/* A script that is named after adapters (qlora.py, FastChat's train_lora.py; not explorations.py) trains them whatever options are left out. */
static bool is_named_after_adapters(const struct form_file *f, const char *program)
{
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;

    if (json_object_get(f->doc, recipe_key(f->doc, RECIPE_TRL, SAYS_ADAPTS)))
        return false;
    for (const char *at = name; *at; at++) {
        const char *before = at > name && (at[-1] == 'q' || at[-1] == 'Q') ? at - 1 : at;
        if (!strncasecmp(at, "lora", 4) && (before == name || !isalpha((unsigned char)before[-1])))
            return true;
    }
    return false;
}

/* Whose command it is, and then values that no such program takes.  Options that TRL or LLaMA-Factory has are others' as well, who mean their own by them: a command of another program is theirs where all its options are.
 * transformers' TrainingArguments are made to stand beside a script's own options, which are told. */
int form_check_program(const struct form_file *f)
{
    enum recipe_form form = (enum recipe_form)recipe_form(f->doc);
    const char *program = json_string_value(json_array_get(f->words, 0)), *other = NULL;
    size_t n;
    bool asked = program && strncmp(program, "--", 2) && (form == RECIPE_TRL || form == RECIPE_FACTORY || form == RECIPE_TRANSFORMERS);

    if (asked && form != RECIPE_FACTORY && is_named_after_adapters(f, program))
        return fail("%s: %.80s: a script named after adapters, whose own are not read: TRL's use_peft, lora_r and lora_target_modules are", f->path, program);
    if (asked && !(form == RECIPE_TRANSFORMERS ? has_trainers_own(f->doc) : is_its_program(f, form, program)))
        other = recipe_first_unknown(f->doc, form, &n);
    return other ? fail("%s: %.80s is no program of %s's, and --%.60s no option of it: what it trains, and how, is its own, and is not read", f->path, program,
                        recipe_form_name(form), other)
         : recipe_check_types(f->doc, form, f->path);
}

/* A key by which a form is told may be another program's, too (flash_attn, stage): a file most of whose keys the form has not is that program's. */
static int check_keys(const struct form_file *f, enum recipe_form form)
{
    size_t unknown = 0, all = json_object_size(f->doc);
    const char *first = f->words || (int)form < 0 ? NULL : recipe_first_unknown(f->doc, form, &unknown);
    bool nameless = form == RECIPE_FACTORY && !json_object_get(f->doc, "model_name_or_path");

    return !first || (2 * unknown < all && !nameless) ? 0
         : fail("%s: %.60s and %zu of %zu keys are none that %s has, as far as is known%s: it is another program's file, and is not read", f->path, first, unknown, all,
                recipe_form_name(form), nameless ? ", and model_name_or_path, which it asks for, is not there" : "");
}

static int check_text(const struct form_file *f)
{
    enum recipe_form form = (enum recipe_form)recipe_form(f->doc);

    return recipe_check_text(f->doc, form, f->path) < 0 || check_keys(f, form) < 0 ? -1 : form_check_program(f);
}

static int read_recipe(const struct form_file *f, struct plan *p, struct notes *notes)
{
    return recipe_read_launched(f->doc, f->path, f->launch, f->launch_path, p, notes);
}

static int read_factory(const struct form_file *f, struct plan *p, struct notes *notes)
{
    int rc = read_recipe(f, p, notes);

    return rc < 0 || !recipe_has_muon(f->doc, RECIPE_FACTORY) ? rc
         : form_bound(f, p, recipe_muon_more(p), "use_muon: its step's own temporaries", notes);
}

/* set_pytorch_cuda_alloc_conf() of axolotl's command line (utils/__init__.py), with PyTorch from 2.9 on.  Its module cli.train, started without that
 * command, does not call it. */
static void axolotls_allocator(const struct form_file *f, struct plan *p, struct notes *notes)
{
    if (*p->environment.alloc_conf || form_runs(f, "axolotl.cli.train"))
        return;
    snprintf(p->environment.alloc_conf, sizeof p->environment.alloc_conf, "expandable_segments:True");
    notes_add(notes, "axolotl sets PYTORCH_ALLOC_CONF=expandable_segments:True unless the job sets its own: it is in the plan's environment (before PyTorch 2.9 "
              "roundup_power2_divisions:16 comes with it)");
}

/* launcher.py, of a training that it starts by torchrun: whatever the variable says before.  Other launchers start the training itself. */
void form_factorys_allocator(const struct form_file *f, struct plan *p, struct notes *notes)
{
    static const char set[] = "expandable_segments:True";
    const char *optim = json_string_value(json_object_get(f->environment, "OPTIM_TORCH"));
    bool several = p->cluster.world_size > 1 || json_object_get(f->environment, "FORCE_TORCHRUN");

    if (!several || (f->words ? !form_runs(f, "llamafactory-cli") : f->launch != NULL))
        return;
    if (optim && strcasecmp(optim, "true") && strcasecmp(optim, "y") && strcmp(optim, "1"))
        return;
    if (strcmp(p->environment.alloc_conf, set))
        notes_add(notes, "llamafactory-cli sets PYTORCH_CUDA_ALLOC_CONF=%s for several GPUs, whatever it was, unless OPTIM_TORCH=0: it is in the plan's environment (older ones, and "
                  "copies of them, do not, and reserve some more)", set);
    memcpy(p->environment.alloc_conf, set, sizeof set);
}

const struct form form_transformers = {
    .name = "transformers", .sign = "per_device_train_batch_size or another key of TrainingArguments alone",
    .claims = is_transformers, .check = check_text, .model = recipes_model, .read = read_recipe,
};
const struct form form_factory = {
    .name = "LLaMA-Factory", .sign = "finetuning_type, stage, cutoff_len or template",
    .claims = is_factory, .check = check_text, .model = recipes_model, .read = read_factory, .allocator = form_factorys_allocator, .torchrun = true,
};
const struct form form_axolotl = {
    .name = "axolotl", .sign = "base_model with sequence_len, micro_batch_size or datasets",
    .claims = is_axolotl, .check = check_text, .model = recipes_model, .read = read_recipe, .allocator = axolotls_allocator, .torchrun = true,
};
const struct form form_trl = {
    .name = "TRL", .sign = "model_name_or_path with max_length, use_peft, torch_dtype or dataset_mixture",
    .claims = is_trl, .check = check_text, .model = recipes_model, .read = read_recipe, .torchrun = true,
};

/* ---- DeepSpeed, accelerate ---- */

static bool is_deepspeed(const struct form_file *f)
{
    static const char *const marks[] = { "zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "zero_allow_untested_optimizer" };

    for (size_t i = 0; f->kind == FORM_JSON && i < sizeof marks / sizeof *marks; i++)
        if (json_object_get(f->doc, marks[i]))
            return !json_object_get(f->doc, "dpx_plan");
    return false;
}

static int read_deepspeed(const struct form_file *f, struct plan *p, struct notes *notes) { return ds_config_read(f->doc, f->path, p, notes); }

const struct form form_deepspeed = {
    .name = "DeepSpeed", .sign = "JSON with zero_optimization or train_micro_batch_size_per_gpu",
    .claims = is_deepspeed, .model = no_model, .read = read_deepspeed,
};

static bool is_accelerate(const struct form_file *f)
{
    return json_object_get(f->doc, "distributed_type") || json_object_get(f->doc, "compute_environment");
}

static int read_accelerate(const struct form_file *f, struct plan *p, struct notes *notes)
{
    int rc = accelerate_read(f->doc, f->path, p, notes);

    if (rc == 0)
        accelerate_root_units(p, notes);
    return rc;
}

const struct form form_accelerate = {
    .name = "accelerate", .sign = "distributed_type or compute_environment",
    .claims = is_accelerate, .model = no_model, .read = read_accelerate, .torchrun = true,
};

/* ---- torchtitan ---- */

/* A command that starts it, or options of its own; a TOML or YAML with its sections. */
static bool is_titan(const struct form_file *f)
{
    static const char *const marks[] = { "run_train.sh", "torchtitan", "--parallelism.", "--training.", "--job.config_file" };

    for (size_t i = 0; f->kind == FORM_COMMAND && i < sizeof marks / sizeof *marks; i++)
        if (strstr(f->text, marks[i]))
            return true;
    return recipe_form(f->doc) == RECIPE_TITAN;
}

static json_t *titan_doc(const struct form_file *f)
{
    return f->kind == FORM_COMMAND ? titan_read_text(f->text, f->path) : json_incref(f->doc);
}

static const char *titans_model(const struct form_file *f)
{
    json_t *doc = titan_doc(f);
    const char *model = titan_model(doc);

    json_decref(doc);
    return model;
}

/* A flavor of torchtitan's own tests; without a model that is known the file describes none. */
static json_t *titans_config(const struct form_file *f)
{
    json_t *doc = titan_doc(f), *config = doc ? titan_config(doc) : NULL;

    if (doc && !config)
        titan_refuse_model(doc, f->path);
    json_decref(doc);
    return config;
}

/* A config by its name must be known. */
static int check_titan(const struct form_file *f)
{
    json_t *doc = titan_doc(f), *whole = doc ? titan_registry(doc, f->path) : NULL;
    int rc = whole && titan_check_model(whole, f->path) == 0 ? 0 : -1;

    json_decref(whole);
    json_decref(doc);
    return rc;
}

static int read_titan(const struct form_file *f, struct plan *p, struct notes *notes)
{
    json_t *doc = titan_doc(f);
    int rc = doc ? titan_read(doc, f->path, p, notes) : -1;

    json_decref(doc);
    return rc;
}

const struct form form_titan = {
    .name = "torchtitan", .sign = "[parallelism] or [training] with [model], run_train.sh, --training.KEY",
    .claims = is_titan, .check = check_titan, .model = titans_model, .config = titans_config, .read = read_titan,
};

/* ---- Megatron-LM ---- */

/* NeMo 2's and Megatron-Bridge's sections, by fields of megatron-core in them. */
static bool has_megatrons_fields(const json_t *doc)
{
    static const char *const fields[] = {
        "model.tensor_model_parallel_size", "model.pipeline_model_parallel_size", "model_config.tensor_model_parallel_size",
        "model_config.pipeline_model_parallel_size", "model.config.num_layers", "model.num_layers", "model_config.num_layers",
        "trainer.strategy.tensor_model_parallel_size", "trainer.strategy.pipeline_model_parallel_size", "ddp.use_distributed_optimizer",
        "ddp_config.use_distributed_optimizer", "optimizer.use_distributed_optimizer", "optim.config.use_distributed_optimizer",
    };

    if (form_value(doc, "model._component_"))           /* a builder of torchtune's, with num_layers of its own */
        return false;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (form_value(doc, fields[i]))
            return true;
    return false;
}

/* An option as a command or a file of options has it: "--num-tokens-to-generate" is num_tokens_to_generate. */
static bool is_option(const char *key, const char *name)
{
    for (key += strncmp(key, "--", 2) ? 0 : 2; *key && (*key == *name || (*key == '-' && *name == '_')); key++)
        name++;
    return !*key && !*name;
}

/* Its files of options are also those of programs that generate, and of models with an encoder. */
static int check_trains(const struct form_file *f)
{
    static const struct { const char *option, *why; } others[] = {
        { "num_tokens_to_generate", "inference is not planned" }, { "prompts", "inference is not planned" }, { "prompt_file", "inference is not planned" },
        { "encoder_num_layers", "an encoder beside the decoder is not planned" }, { "decoder_num_layers", "an encoder beside the decoder is not planned" },
        { "bert_no_binary_head", "BERT is not planned" }, { "export_kd_teacher_load", "a teacher beside the model that trains is not planned" },
        { "export_kd_cfg", "a teacher beside the model that trains is not planned" }, { "export_quant_cfg", "quantisation-aware training is not planned" },
    };
    json_t *args = json_object_get(f->doc, "MODEL_ARGS") ? json_object_get(f->doc, "MODEL_ARGS") : f->doc, *v;
    const char *key;

    json_object_foreach(args, key, v) {
        const char *word = json_string_value(v);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            if (is_option(key, others[i].option))
                return fail("%s: %s: %s", f->path, key, others[i].why);
        if (is_option(key, "tokenizer_type") && word && !strncmp(word, "Bert", 4))
            return fail("%s: %s: %.40s: BERT is not planned", f->path, key, word);
    }
    return 0;
}

/* Does a command line state the layers of a hybrid model?  Without that pretrain_mamba.py's are all Mamba-2's. */
static bool states_layers(const struct form_file *f)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)f->doc, key, value)
        if (is_option(key, "hybrid_layer_pattern") || is_option(key, "hybrid_override_pattern"))
            return true;
    return false;
}

/* Options of Megatron-DeepSpeed's pretrain_gpt.py alone (megatron/arguments.py), which has ZeRO, and pipelines of DeepSpeed's. */
static int check_deepspeed(const struct form_file *f)
{
    static const char *const options[] = { "deepspeed", "deepspeed_config", "deepscale", "deepscale_config", "zero_stage", "no_pipeline_parallel", "ds_inference",
                                           "ds_sequence_parallel_size", "deepspeed_activation_checkpointing", "universal_checkpoint", "zero_reduce_bucket_size" };
    const json_t *launcher = json_object_get(f->launcher, ""), *word;
    const char *key;
    json_t *v;
    size_t i;

    json_object_foreach(f->doc, key, v)
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            if (is_option(key, options[k]))
                return fail("%s: %s: an option of Megatron-DeepSpeed's pretrain_gpt.py, which is not planned: Megatron-LM's is", f->path, key);
    json_array_foreach(launcher, i, word) {
        const char *slash = strrchr(json_string_value(word), '/');
        if (!strcmp(slash ? slash + 1 : json_string_value(word), "deepspeed"))
            return fail("%s: a pretrain_gpt.py that deepspeed starts is Megatron-DeepSpeed's, or DeepSpeed-Domino's, whose steps are not planned: Megatron-LM's, which "
                        "torchrun starts, is", f->path);
    }
    return 0;
}

/* Other programs of its tree (multimodal/train.py, pretrain_t5.py) take the same options for other models. */
static int check_program(const struct form_file *f)
{
    const char *program = json_string_value(json_array_get(f->words, 0)), *base = program ? strrchr(program, '/') : NULL;
    size_t n = program ? strlen(program) : 0;

    base = base ? base + 1 : program;
    bool hybrid = base && (!strcmp(base, "pretrain_mamba.py") || !strcmp(base, "pretrain_hybrid.py"));

    if (hybrid && !states_layers(f))
        return fail("%s: %s: which layers there are is not stated: planned with --hybrid-layer-pattern (or --hybrid-override-pattern)", f->path, base);
    if (n > 3 && !strcmp(program + n - 3, ".py") && strncmp(base, "pretrain_gpt", 12) != 0 && !hybrid)
        return fail("%s: %.80s is not planned: of Megatron-LM's programs pretrain_gpt.py, pretrain_mamba.py and pretrain_hybrid.py are", f->path, base);
    return check_deepspeed(f) < 0 ? -1 : check_trains(f);
}

static bool is_megatron(const struct form_file *f)
{
    static const char *const keys[] = { "MODEL_ARGS", "tensor_model_parallel_size", "pipeline_model_parallel_size", "num_layers" };

    if (form_runs(f, "pretrain_gpt.py") || form_runs(f, "pretrain_mamba.py") || form_runs(f, "pretrain_hybrid.py"))
        return true;
    if (json_object_get(f->doc, "peft_type"))               /* prompt tuning's adapter_config.json has num_layers, too */
        return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(f->doc, keys[i]) && recipe_form(f->doc) < 0)
            return true;
    return has_megatrons_fields(f->doc);
}

static json_t *megatrons_config(const struct form_file *f)
{
    json_t *options = megatron_options(f->words, f->doc, f->path), *config = options ? megatron_config(options, f->path) : NULL;

    json_decref(options);
    return config;
}

static int read_megatron(const struct form_file *f, struct plan *p, struct notes *notes)
{
    json_t *options = megatron_options(f->words, f->doc, f->path);
    int rc = options ? megatron_import(options, f->path, p) : -1;

    if (rc == 0 && !f->words) {
        megatron_list_beside(f->doc, f->path);
        if (megatron_has_sections(f->doc))
            megatron_sections_tell(f->doc, f->path);
    }
    (void)notes;                                /* megatron_import() says them itself */
    json_decref(options);
    return rc;
}

const struct form form_megatron = {
    .name = "Megatron-LM", .sign = "--num-layers, --tensor-model-parallel-size, MODEL_ARGS or NeMo's sections",
    .claims = is_megatron, .check = check_program, .model = no_model, .config = megatrons_config, .read = read_megatron,
};
