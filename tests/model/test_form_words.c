/* A key that a form's function reads is read whatever else the file says, or the file is told that it is not: a value of the golden files that becomes nonsense
 * is refused, or named in a note: another plan of it without a word is nonsense, too.  A condition around the read must not silence it. */
#include "tests/model/form_files.h"

#include "model/exchange/megatron_read.h"
#include "model/exchange/titan_import.h"
#include "model/exchange/titan_keys.h"
#include "model/form/form_rows.h"

/* Is the key without a meaning where it stands, or any text one of its own? */
static bool is_idle(const struct form_file *f, const char *path, const json_t *v)
{
    static const char *const any[] = {
        "use_gradient_checkpointing", "gradient_checkpointing", "model.gradient_checkpointing_enable", "ds.adam_offload", "bf16",     /* any text is true */
        "trainer.nnodes", "trainer.n_gpus_per_node",                                     /* the cluster says how many, and variables pass */
        "actor_rollout_ref.model.enable_gradient_checkpointing",                                    /* not read by an actor by Megatron-LM */
        "actor_rollout_ref.actor.entropy_coeff",                                                    /* Triton's kernel has the entropy without it */
        "MODEL_ARGS.--use-tp-pp-dp-mapping", "MODEL_ARGS.--no-rope-fusion", "MODEL_ARGS.--moe-router-pre-softmax",      /* on one node; of latent attention; sigmoid's */
    };
    const json_t *stages = form_value(f->doc, "distributed.pp_size"), *tensor = form_value(f->doc, "distributed.tp_size");
    bool idle = json_is_string(v) && strchr(json_string_value(v), '$');

    const char *mode = json_string_value(form_value(f->doc, "activation_checkpoint.mode"));

    if (strstr(path, "float8."))                        /* without a converter of this name it does nothing */
        return !json_array_size(form_value(f->doc, "model.converters"));
    if (!strcmp(path, "activation_checkpoint.selective_ac_option"))
        return mode && strcmp(mode, "selective") != 0;
    if (!strncmp(path, "distributed.pipeline.", 21))
        return !stages || json_integer_value(stages) <= 1;
    if (!strcmp(path, "distributed.sequence_parallel"))
        return !tensor || json_integer_value(tensor) <= 1;
    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        idle = idle || !strcmp(path, any[i]);
    return idle;
}

/* The plan and what is said beside it; null: refused. */
static json_t *outcome(const struct row *r, const struct form *form, struct form_file *f)
{
    struct notes notes = { 0 };
    json_t *said = json_array(), *before = notes_divert(said), *out;
    struct plan p;
    char why[1024];
    int rc = read_as(form, f, r, &p, &notes, why);

    notes_divert(before);
    for (int i = 0; i < notes.n && i < (int)(sizeof notes.text / sizeof *notes.text); i++)
        json_array_append_new(said, json_string(notes.text[i]));
    out = rc < 0 ? json_null() : json_pack("{so sO}", "plan", plan_to_json(&p), "said", said);
    json_decref(said);
    plan_free(&p);
    return out;
}

static bool is_named(const json_t *outcome, const char *path)
{
    const json_t *line;
    size_t i;

    json_array_foreach(json_object_get(outcome, "said"), i, line)
        if (strstr(json_string_value(line), path))
            return true;
    return false;
}

/* "--num-layers" as "num_layers". */
static const char *name_of(const char *key, char name[100])
{
    size_t n = 0;

    for (key += strspn(key, "-"); *key && n < 99; key++)
        name[n++] = *key == '-' ? '_' : *key;
    name[n] = '\0';
    return name;
}

/* Does the form's function read the key?  Megatron-LM's and torchtitan's have no table of rows. */
static bool reads(const struct form *form, const char *path)
{
    const struct form_row *row = form->rows ? form_row_of(form->rows, form->nrows, path) : NULL;
    const char *dot = strrchr(path, '.');
    char name[100];

    if (form == &form_titan)
        return titan_keys_reads(path);
    name_of(dot ? dot + 1 : path, name);
    if (form == &form_megatron)
        return megatron_knows(name) && (!megatron_is_beside(name) || megatron_is_bare(name));
    return row && row->says == ROW_READ;
}

/* Does the form read keys of the section, which has no row itself? */
static bool is_section(const struct form *form, const char *path)
{
    size_t n = strlen(path);

    for (int i = 0; form->rows && i < form->nrows && !form_row_of(form->rows, form->nrows, path); i++)
        if (form->rows[i].says == ROW_READ && !strncmp(form->rows[i].path, path, n) && form->rows[i].path[n] == '.')
            return true;
    return false;
}

static int tried, silent;

static void replace_section(const struct row *r, const struct form *form, struct form_file *f, json_t *in, const char *key, json_t *v)
{
    json_incref(v);
    json_object_set_new(in, key, json_string("zzz.zzz"));
    json_t *got = outcome(r, form, f);
    if (!json_is_null(got))
        silent += fail("%s: \"zzz.zzz\" is taken for the section %s", r->file, key) != 0;
    json_decref(got);
    json_object_set_new(in, key, v);
    tried++;
}

static void replace_words(const struct row *r, const struct form *form, struct form_file *f, json_t *in, const char *path)
{
    const char *key;
    json_t *v;
    void *next;

    json_object_foreach_safe(in, next, key, v) {
        char at[256];
        snprintf(at, sizeof at, "%.140s%s%.100s", path, *path ? "." : "", key);
        replace_words(r, form, f, v, at);
        if (json_is_object(v) && f->kind != FORM_COMMAND && is_section(form, at))
            replace_section(r, form, f, in, key, v);
        bool given = form == &form_titan && strcmp(r->model, "-") != 0 && !strncmp(at, "model.", 6);    /* --model goes before it */
        if (json_is_object(v) || json_is_array(v) || json_is_null(v) || !reads(form, at) || is_idle(f, at, v) || given)
            continue;
        json_incref(v);
        json_object_set_new(in, key, json_string("zzz.zzz"));
        json_t *got = outcome(r, form, f);
        if (!json_is_null(got) && !is_named(got, form == &form_megatron ? name_of(key, at) : at))
            silent += fail("%s: \"zzz.zzz\" is taken for %s without a word", r->file, at) != 0;
        json_decref(got);
        json_object_set_new(in, key, v);
        tried++;
    }
}

/* The same of a command's options: "--name value", "--name=value". */
static void replace_values(const struct row *r, const struct form *form, struct form_file *f)
{
    for (size_t i = 0; i < json_array_size(f->words); i++) {
        const char *word = json_string_value(json_array_get(f->words, i)), *next = json_string_value(json_array_get(f->words, i + 1));
        const char *equals = word ? strchr(word, '=') : NULL;
        char option[100], name[100];
        if (!word || strncmp(word, "--", 2) || (!equals && (!next || !strncmp(next, "--", 2))))
            continue;
        snprintf(option, sizeof option, "%.*s", equals ? (int)(equals - word) : 98, word);
        if (!reads(form, name_of(option, name)))
            continue;
        size_t at = equals ? i : i + 1;
        json_t *before = json_incref(json_array_get(f->words, at));
        json_array_set_new(f->words, at, equals ? json_sprintf("%s=zzz.zzz", option) : json_string("zzz.zzz"));
        json_t *got = outcome(r, form, f);
        if (!json_is_null(got) && !is_named(got, name))
            silent += fail("%s: \"zzz.zzz\" is taken for %s without a word", r->file, option) != 0;
        json_decref(got);
        json_array_set_new(f->words, at, before);
        tried++;
    }
}

static void a_word_of_nonsense_is_never_taken(void **state)
{
    (void)state;
    for (int i = 0; i < nrows; i++) {
        struct form_file f;
        open_row(&rows[i], &f);
        const struct form *form = form_of(&f);
        if (strncmp(rows[i].wanted, "refused=", 8) != 0 && (form->rows || form == &form_titan || form == &form_megatron)) {
            if (form == &form_titan && f.kind == FORM_COMMAND) {         /* its options as the sections that they are */
                f.doc = titan_read_text(f.text, f.path);
                f.kind = FORM_TOML;
            }
            bool command = f.words && form == &form_megatron;
            if (f.doc && !command)
                replace_words(&rows[i], form, &f, f.doc, "");
            if (command)
                replace_values(&rows[i], form, &f);
        }
        form_close(&f);
    }
    assert_true(tried > 1000);
    assert_int_equal(silent, 0);
}

/* ---- the forms that have no table: transformers' Trainer and what wraps it, accelerate, DeepSpeed ---- */

/* Keys that say nothing of a step whatever stands there, by the documentation of each: data, logs, checkpoints, rates, schedules, names. */
static bool says_nothing(const char *path)
{
    static const char *const idle[] = {
        "dataset*", "data_path", "datasets", "splits", "template", "chat_template*", "add_special_tokens", "append_concat_token", "eos_token", "eot_tokens",
        "tokenizer*", "model_type", "model_revision", "trust_remote_code", "lazy_preprocess", "preprocessing_*", "overwrite_*", "max_samples", "val_set_size",
        "output_dir", "save_*", "saves_per_epoch", "logging_*", "log_*", "report_to", "run_name", "wandb_*", "plot_loss", "push_to_hub", "hub_*", "seed",
        "eval*", "do_eval", "per_device_eval_batch_size", "learning_rate", "lr_*", "warmup_*", "weight_decay", "adam_*", "max_steps", "num_train_epochs",
        "num_epochs", "ddp_timeout", "dataloader_*", "remove_unused_columns", "pad_to_sequence_len", "tf32", "resume_from_checkpoint", "strict",
        "num_generations", "use_vllm", "temperature", "pref_beta",                  /* the plan of GRPO is its update; a rate of DPO's */
        "train_on_inputs", "group_by_length", "early_stopping_patience", "pissa_*", "loraplus_*", "lora_fan_in_fan_out", "special_tokens", "loss_watchdog_*",
        "compute_environment", "debug", "downcast_bf16", "enable_cpu_affinity", "gpu_ids", "machine_rank", "main_*", "rdzv_backend", "same_network", "tpu_*",
        "deepspeed_multinode_launcher", "fsdp_cpu_ram_efficient_loading", "cpu_ram_efficient_loading", "fsdp_state_dict_type", "state_dict_type",
        "fsdp_sync_module_states", "sync_module_states", "hysteresis", "initial_scale_power", "loss_scale*", "min_loss_scale", "auto_cast",
        "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save",
        "steps_per_print", "wall_clock_breakdown",
        "benchmarks", "callbacks", "push_to_hub_revision", "system_prompt", "reward_funcs", "code_*", "e2b_router_url", "parallel_code_exec_per_proc",
        "num_completions_to_print",                                                 /* open-r1's: what is judged, and where */
    };
    const char *last = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;

    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        size_t n = strlen(idle[i]);
        bool begins = idle[i][n - 1] == '*';
        if (begins ? !strncmp(path, idle[i], n - 1) || !strncmp(last, idle[i], n - 1) : !strcmp(path, idle[i]) || !strcmp(last, idle[i]))
            return true;
    }
    return false;
}

/* Files with many of a form's keys at their usual values. */
static const struct { const char *name, *text; } seeds[] = {
    { "trl-sft.yaml",
      "model_name_or_path: Qwen/Qwen2.5-1.5B\ndtype: bfloat16\nattn_implementation: flash_attention_2\nuse_peft: true\nlora_r: 16\nlora_alpha: 32\n"
      "lora_target_modules: all-linear\nlora_dropout: 0.05\nload_in_4bit: true\nuse_bnb_nested_quant: false\nbnb_4bit_quant_type: nf4\n"
      "bnb_4bit_compute_dtype: bfloat16\nmax_length: 2048\npacking: true\npacking_strategy: bfd\npadding_free: false\nloss_type: nll\nbf16: true\n"
      "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n"
      "  use_reentrant: false\noptim: adamw_torch_fused\nmax_grad_norm: 1.0\nuse_liger_kernel: true\nliger_kernel_config:\n  rope: true\n  rms_norm: true\n"
      "  swiglu: true\n  cross_entropy: false\n  fused_linear_cross_entropy: false\nddp_find_unused_parameters: false\nddp_bucket_cap_mb: 25\n"
      "activation_offloading: false\nneftune_noise_alpha: 5\nassistant_only_loss: false\nauto_find_batch_size: false\noutput_dir: o\nlearning_rate: 1.0e-4\n" },
    { "trl-grpo.yaml",
      "model_name_or_path: Qwen/Qwen2.5-1.5B\nmax_prompt_length: 512\nmax_completion_length: 1024\nnum_generations: 8\nbeta: 0.0\nloss_type: dapo\n"
      "use_vllm: true\nbf16: true\nper_device_train_batch_size: 8\n" },
    { "factory-sft.yaml",
      "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 8\nlora_alpha: 16\n"
      "lora_dropout: 0.05\nlora_target: q_proj,v_proj\nquantization_bit: 4\nquantization_method: bnb\ndouble_quantization: true\ntemplate: llama3\n"
      "cutoff_len: 2048\nflash_attn: fa2\nenable_liger_kernel: true\nuse_reentrant_gc: true\ndisable_gradient_checkpointing: false\npure_bf16: false\n"
      "neat_packing: true\npacking: true\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nbf16: true\noptim: adamw_torch\n"
      "max_grad_norm: 1.0\nupcast_layernorm: false\nuse_dft_loss: false\nuse_eaft_loss: true\nray_num_workers: 8\nddp_timeout: 180000000\n" },
    { "axolotl-lora.yaml",
      "base_model: NousResearch/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\nload_in_8bit: false\nlora_r: 16\nlora_alpha: 32\nlora_dropout: 0.05\n"
      "lora_target_linear: true\nsequence_len: 2048\nsample_packing: true\nmicro_batch_size: 2\ngradient_accumulation_steps: 2\noptimizer: adamw_torch_fused\n"
      "bf16: auto\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\nattn_implementation: flash_attention_2\n"
      "bnb_config_kwargs:\n  bnb_4bit_use_double_quant: true\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\nliger_rope: true\nliger_rms_norm: true\n"
      "liger_glu_activation: true\nliger_fused_linear_cross_entropy: true\nmax_grad_norm: 1.0\nlora_mlp_kernel: false\nlora_qkv_kernel: false\n"
      "lora_o_kernel: false\nuse_ray: true\nray_num_workers: 8\nlearning_rate: 0.0002\n" },
    { "axolotl-full.yaml",
      "base_model: NousResearch/Llama-3.2-1B\nsequence_len: 2048\nmicro_batch_size: 2\nbatch_size: 4\noptimizer: adamw_torch\nbf16: true\nfp16: false\n"
      "flash_attention: true\ngradient_checkpointing: false\nfsdp_version: 2\nfsdp_config:\n  offload_params: false\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  transformer_layer_cls_to_wrap: LlamaDecoderLayer\n  reshard_after_forward: true\n  activation_checkpointing: true\n" },
};

static void replace_by(const struct row *r, const struct form *form, struct form_file *f, json_t *in, const char *key, const char *at, const json_t *usual, json_t *nonsense)
{
    json_t *v = json_incref(json_object_get(in, key));

    json_object_set(in, key, nonsense);
    json_t *got = outcome(r, form, f);
    if (!json_equal(v, nonsense) && json_equal(got, usual) && !is_named(usual, key)) {
        char *text = json_dumps(nonsense, JSON_ENCODE_ANY);
        silent += fail("%s: %s: %s is taken for %s without a word", r->file, form->name, text, at) != 0;
        free(text);
    }
    json_decref(got);
    json_object_set_new(in, key, v);
    json_decref(nonsense);
    tried++;
}

/* The key has a name that nobody knows: the file is refused, or a note has the name. */
static void rename_it(const struct row *r, const struct form *form, struct form_file *f, json_t *in, const char *key, const char *at)
{
    json_t *v = json_incref(json_object_get(in, key)), *before = json_copy(in);
    char name[160];

    snprintf(name, sizeof name, "zzz_%.150s", key);
    json_object_del(in, key);
    json_object_set_new(in, name, v);
    json_t *got = outcome(r, form, f);
    if (!json_is_null(got) && !is_named(got, name))
        silent += fail("%s: %s: nobody misses %s", r->file, form->name, at) != 0;
    json_decref(got);
    json_object_clear(in);                      /* in the order that it had: somebody goes over it */
    json_object_update(in, before);
    json_decref(before);
    tried++;
}

static void replace_each(const struct row *r, const struct form *form, struct form_file *f, json_t *in, const char *path, const json_t *usual)
{
    json_t *names = json_copy(in), *v;
    const char *key;

    json_object_foreach(names, key, v) {
        char at[256];
        snprintf(at, sizeof at, "%.140s%s%.100s", path, *path ? "." : "", key);
        bool given = !strcmp(key, "model_name_or_path") && strcmp(r->model, "-") != 0;        /* another goes before it */
        if (says_nothing(at) || json_is_null(v) || !*key || strchr(key, ' ') || given)
            continue;
        replace_each(r, form, f, v, at, usual);
        if (!strchr(r->file, '/'))              /* of the golden files test_forms.c renames them */
            rename_it(r, form, f, in, key, at);
        replace_by(r, form, f, in, key, at, usual, json_string("zzz.zzz"));
        replace_by(r, form, f, in, key, at, usual, json_integer(-7));
        replace_by(r, form, f, in, key, at, usual, json_pack("[s]", "zzz"));
        replace_by(r, form, f, in, key, at, usual, json_pack("{s:i}", "zzz", 1));
    }
    json_decref(names);
}

static void nonsense_is_never_taken(void **state)
{
    static const char *const names[] = { "transformers", "LLaMA-Factory", "axolotl", "TRL", "accelerate", "DeepSpeed" };

    (void)state;
    tried = silent = 0;
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        static char file[64], cluster[] = "8xh100", none[] = "-";
        struct row row = { .file = file, .cluster = cluster, .model = none, .seq = none };
        struct form_file f;
        snprintf(file, sizeof file, "%s", seeds[i].name);
        assert_int_equal(form_parse(strdup(seeds[i].text), file, &f), 0);
        const struct form *form = form_of(&f);
        json_t *usual = outcome(&row, form, &f);
        assert_false(json_is_null(usual));
        replace_each(&row, form, &f, f.doc, "", usual);
        json_decref(usual);
        form_close(&f);
    }
    for (int i = 0; i < nrows; i++) {
        struct form_file f;
        bool is = false;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            is = is || !strcmp(rows[i].form, names[k]);
        if (!is || !strncmp(rows[i].wanted, "refused=", 8))
            continue;
        open_row(&rows[i], &f);
        const struct form *form = form_of(&f);
        json_t *usual = outcome(&rows[i], form, &f);
        replace_each(&rows[i], form, &f, f.doc, "", usual);
        json_decref(usual);
        form_close(&f);
    }
    assert_true(tried > 3000);
    assert_int_equal(silent, 0);
}

/* ---- values at which the frameworks' parsers stop, in a command and in a file ---- */

enum { TRAINER = 1, TRL = 2, FACTORY = 4, EACH = 7 };

/* transformers 5.24 (training_args.py: fields and __post_init__(), hf_argparser.py), LLaMA-Factory's hparams: a flag, an int or a float.  `sound` is a value
 * that they take. */
static const struct { const char *key, *wrong, *sound; int of; } stops[] = {
    { "tf32", "maybe", "true", EACH }, { "max_steps", "abc", "-1", EACH }, { "max_steps", "1e3", "1000", EACH }, { "num_train_epochs", "abc", "2.5", EACH },
    { "learning_rate", "fast", "2e-5", EACH }, { "weight_decay", "abc", "0.", EACH }, { "warmup_ratio", "abc", "0.03", EACH }, { "seed", "4.2", "42", EACH },
    { "save_steps", "abc", "0.25", EACH }, { "logging_steps", "abc", "10", EACH }, { "save_total_limit", "abc", "2", EACH }, { "ddp_timeout", "1h", "180000000", EACH },
    { "overwrite_output_dir", "maybe", "yes", EACH }, { "group_by_length", "7", "false", EACH }, { "auto_find_batch_size", "maybe", "false", EACH },
    { "gradient_accumulation_steps", "1e1", "10", EACH }, { "bf16", "maybe", "true", EACH }, { "bf16_full_eval", "7", "1", EACH },
    { "model_max_length", "1e3", "1000", TRAINER }, { "lora_r", "1e1", NULL, TRL }, { "max_completion_length", "1e3", NULL, TRL },
    { "use_unsloth", "maybe", "false", FACTORY }, { "neat_packing", "7", "true", FACTORY }, { "packing", "maybe", "true", FACTORY },
    { "loraplus_lr_ratio", "abc", "16.0", FACTORY }, { "use_rslora", "maybe", "true", FACTORY }, { "pref_beta", "abc", "0.1", FACTORY },
    { "max_samples", "many", "1000", FACTORY }, { "max_length", "1e3", "1000", FACTORY }, { "lora_rank", "1e1", "8", FACTORY },
};

#define USUAL "model_name_or_path: gpt2\noutput_dir: z\nsave_strategy: steps\n"
static const struct { int of; const char *program, *text, *length; } whole[] = {
    { TRAINER, "train.py", USUAL "per_device_train_batch_size: 4\nblock_size: 512\n", NULL },
    { TRL, "trl sft", USUAL "per_device_train_batch_size: 4\nmax_length: 512\n", "max_length: 1e3\n" },
    { FACTORY, "llamafactory-cli train", USUAL "stage: sft\ndo_train: true\nfinetuning_type: lora\nper_device_train_batch_size: 4\ncutoff_len: 512\n", "cutoff_len: 1e3\n" },
};

/* "key: value" of each line as "--key value" behind the program. */
static char *as_command(const char *program, const char *text)
{
    char *out = malloc(2 * strlen(text) + strlen(program) + 64);
    int n = sprintf(out, "%s%s", strstr(program, ".py") ? "torchrun --nproc_per_node 1 " : "", program);

    while (*text) {
        int key = (int)strcspn(text, ":"), line = (int)strcspn(text, "\n");
        n += sprintf(out + n, " --%.*s %.*s", key, text, line - key - 2, text + key + 2);
        text += line + 1;
    }
    sprintf(out + n, "\n");
    return out;
}

/* Is it read?  Else `why` has the reason. */
static bool is_read_on(const char *gpus, char *text, const char *name, char why[1024])
{
    static char cluster[64], none[] = "-", file[64];
    struct row row = { .file = file, .cluster = cluster, .model = none, .seq = none };
    struct form_file f;
    int rc;

    snprintf(cluster, sizeof cluster, "%s", gpus);
    snprintf(file, sizeof file, "%s", name);
    assert_int_equal(form_parse(text, file, &f), 0);
    const struct form *form = form_of(&f);
    assert_non_null(form);
    json_t *got = outcome(&row, form, &f);
    rc = !json_is_null(got);
    json_decref(got);
    if (!rc) {                                  /* once more for its words */
        struct notes notes = { 0 };
        struct plan p;
        read_as(form, &f, &row, &p, &notes, why);
        plan_free(&p);
    }
    form_close(&f);
    return rc;
}

static bool is_read(char *text, const char *name, char why[1024]) { return is_read_on("1xh100", text, name, why); }

static void check_both(size_t i, const char *line, const char *named)
{
    for (int command = 0; command < 2; command++) {
        char text[512], why[1024] = "";
        snprintf(text, sizeof text, "%s%s", whole[i].text, line);
        bool read = is_read(command ? as_command(whole[i].program, text) : strdup(text), command ? "c.sh" : "c.yaml", why);
        if (read == (named != NULL) || (named && !strstr(why, named)))
            fail_msg("%s, %s: %.40s: %s", whole[i].program, command ? "a command" : "a file", line, read ? "is read" : why);
    }
}

static void what_a_parser_stops_at_is_refused(void **state)
{
    char line[128];

    (void)state;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        check_both(i, "", NULL);
        for (size_t k = 0; k < sizeof stops / sizeof *stops; k++) {
            if (!(stops[k].of & whole[i].of))
                continue;
            snprintf(line, sizeof line, "%s: %s\n", stops[k].key, stops[k].wrong);
            check_both(i, line, stops[k].key);
            snprintf(line, sizeof line, "%s: %s\n", stops[k].key, stops[k].sound ? stops[k].sound : "");
            if (stops[k].sound)
                check_both(i, line, NULL);
        }
        check_both(i, "bf16: true\nfp16: true\n", "At most one of fp16 and bf16");
        check_both(i, "bf16: false\nfp16: true\n", NULL);
        check_both(i, "fp16: true\n", NULL);
        check_both(i, "seed: $SEED\n", NULL);                   /* nobody has set it, and nothing hangs on it */
    }
    check_both(1, "use_peft: true\nlora_r: 8\n", NULL);
}

#define TUNE "tokenizer:\n  max_seq_len: 512\nbatch_size: 2\noptimizer:\n  _component_: torch.optim.AdamW\nloss:\n" \
             "  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\ndtype: bf16\nmodel:\n  _component_: torchtune.models.llama2.lora_llama2_7b\n  lora_rank: 8\n"
#define FACTORY2 "model: Qwen/Qwen3-0.6B\nmodel_class: llm\ndist_config:\n  name: fsdp2\ntrain_dataset: a\nmicro_batch_size: 1\ncutoff_len: 512\n"

/* Lists, sizes and words that each framework's own check would stop at, or take as another plan. */
static void lists_are_not_words(void **state)
{
    static const struct { const char *text, *named; } of[] = {
        { TUNE "  lora_attn_modules: [q_proj, output_proj]\n", NULL }, { TUNE "  lora_attn_modules: q_proj\n", "model.lora_attn_modules: expected a list" },
        { TUNE "  lora_attn_modules: [q_prog]\n", "model.lora_attn_modules: q_prog is none of torchtune's" },
        { FACTORY2 "mp_shard_size: 8\ndp_size: 4\ncp_size: 2\n", "cp_size" },                       /* sizes are those of the cluster; ranks that share samples are not planned */
        { FACTORY2 "mp_shard_size: 8\ndp_size: 8\n", NULL }, { FACTORY2 "mp_shard_size: 2\n", "mp_shard_size: 2 x mp_replicate_size 1 are not the cluster's 8 GPUs" },
        { FACTORY2 "mp_shard_size: 4\nmp_replicate_size: 2\n", NULL }, { FACTORY2 "dp_size: 2\n", "dp_size: 2 x cp_size 1" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char why[1024] = "";
        bool read = is_read_on("8xh100", strdup(of[i].text), "c.yaml", why);
        if (read == (of[i].named != NULL) || (of[i].named && !strstr(why, of[i].named)))
            fail_msg("%s: %s", of[i].text, read ? "is read" : why);
    }
}

/* A length is whole as it is written, and a command's last value has nothing of what the shell makes of the rest of its line. */
static void lengths_are_whole_as_they_are_written(void **state)
{
    static const char *const behind[] = { "> >(tee out) 2> >(tee err >&2)", "\"$@\"", "$MORE", ">> log 2>&1" };
    char text[512], why[1024];

    (void)state;
    for (size_t i = 1; i < sizeof whole / sizeof *whole; i++)
        for (int command = 0; command < 2; command++) {
            snprintf(text, sizeof text, USUAL "%sper_device_train_batch_size: 4\n%s", i == 2 ? "stage: sft\ndo_train: true\nfinetuning_type: full\n" : "", whole[i].length);
            assert_false(is_read(command ? as_command(whole[i].program, text) : strdup(text), command ? "c.sh" : "c.yaml", why));
            assert_non_null(strstr(why, "expected a whole number"));
        }
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        snprintf(text, sizeof text, "torchrun --nproc_per_node 1 train.py --model_name_or_path gpt2 --block_size 512 --per_device_train_batch_size 4 --bf16 --save_steps 5 %s\n",
                 behind[i]);
        if (!is_read(strdup(text), "c.sh", why))
            fail_msg("%s: %s", text, why);
    }
}

/* What trains by a script that is named after adapters is not said by the options that are left out. */
static void a_scripts_name_says_that_adapters_train(void **state)
{
    static const struct { const char *program; bool read; } of[] = {
        { "qlora.py", false }, { "fastchat/train/train_lora.py", false }, { "-m fastchat.train.train_lora", false }, { "src/finetune-QLoRA.py", false },
        { "lora/train.py", true }, { "explorations.py", true }, { "train.py", true },
    };
    char text[512], why[1024];

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        snprintf(text, sizeof text, "torchrun --nproc_per_node 1 %s --model_name_or_path gpt2 --block_size 512 --per_device_train_batch_size 4 --bf16 True\n", of[i].program);
        bool read = is_read(strdup(text), "c.sh", why);
        if (read != of[i].read || (!read && !strstr(why, "named after adapters")))
            fail_msg("%s: %s", of[i].program, read ? "is read" : why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_of_nonsense_is_never_taken), cmocka_unit_test(nonsense_is_never_taken), cmocka_unit_test(what_a_parser_stops_at_is_refused),
        cmocka_unit_test(lists_are_not_words), cmocka_unit_test(lengths_are_whole_as_they_are_written), cmocka_unit_test(a_scripts_name_says_that_adapters_train),
    };

    read_rows();
    return cmocka_run_group_tests_name("model/form words", tests, NULL, NULL);
}
