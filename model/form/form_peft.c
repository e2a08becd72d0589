/* form_peft.c -- adapters as PEFT and unsloth state them: adapter_config.json (peft 0.21), and the options of unsloth-cli.py.
 *
 * PEFT's file says what trains of which model, nothing of batches and samples: those are options.  unsloth's command is read as the TRL
 * recipe that it runs; its own kernels are not modelled, which is said. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/hf_packed.h"
#include "model/exchange/recipe.h"
#include "model/form/form_rows.h"

/* ---- adapter_config.json ---- */

static const struct form_row peft_rows[] = {
    { "peft_type", ROW_READ, NULL }, { "base_model_name_or_path", ROW_READ, NULL }, { "r", ROW_READ, NULL }, { "lora_alpha", ROW_READ, NULL },
    { "lora_dropout", ROW_READ, NULL }, { "target_modules", ROW_READ, NULL }, { "modules_to_save", ROW_READ, NULL },
    { "use_dora", ROW_REFUSED, "DoRA is not planned" }, { "rank_pattern", ROW_REFUSED, "ranks that differ by layer are not planned" },
    { "alpha_pattern", ROW_SILENT, NULL }, { "layers_to_transform", ROW_REFUSED, "adapters of some layers alone are not planned" },
    { "target_parameters", ROW_READ, NULL }, { "use_rslora", ROW_SILENT, NULL },
    { "bias", ROW_READ, NULL }, { "task_type", ROW_SILENT, NULL }, { "inference_mode", ROW_SILENT, NULL }, { "fan_in_fan_out", ROW_SILENT, NULL },
    { "init_lora_weights", ROW_READ, NULL }, { "revision", ROW_SILENT, NULL }, { "auto_mapping", ROW_SILENT, NULL }, { "peft_version", ROW_SILENT, NULL },
    { "use_bdlora", ROW_REFUSED, "adapters of diagonal blocks are not planned" }, { "kasa_config", ROW_REFUSED, "its weights between A and B are not planned" },
    { "layer_replication", ROW_REFUSED, "blocks that occur several times are not planned" },
    { "trainable_token_indices", ROW_REFUSED, "tokens that train are not planned" }, { "lora_bias", ROW_REFUSED, "biases of adapters are not planned" },
    { "megatron_config", ROW_REFUSED, "adapters of Megatron-LM's layers are not planned" },
    { "alora_invocation_tokens", ROW_REFUSED, "adapters that begin within a sample are not planned" },
    { "exclude_modules", ROW_REFUSED, "modules left out by name are not planned" }, { "layers_pattern", ROW_SILENT, NULL }, { "corda_config", ROW_SILENT, NULL },
    { "eva_config", ROW_MATTERS, "EVA may give each layer a rank of its own" }, { "loftq_config", ROW_SILENT, NULL }, { "ensure_weight_tying", ROW_SILENT, NULL },
    { "lora_ga_config", ROW_SILENT, NULL }, { "runtime_config", ROW_SILENT, NULL }, { "velora_config", ROW_REFUSED, "inputs of adapters that are kept projected are not planned" },
    { "use_qalora", ROW_REFUSED, "adapters of pooled inputs are not planned" }, { "monteclora_config", ROW_REFUSED, "adapters that are sampled are not planned" },
    { "arrow_config", ROW_REFUSED, "adapters that tokens are routed to are not planned" },
    { "megatron_core", ROW_SILENT, NULL }, { "qalora_group_size", ROW_SILENT, NULL },
};

static bool is_peft(const struct form_file *f)
{
    return json_is_string(json_object_get(f->doc, "peft_type"));
}

static const char *pefts_model(const struct form_file *f) { return json_string_value(json_object_get(f->doc, "base_model_name_or_path")); }

/* Where A and B begin changes neither of them; PEFT 0.21's "mica" freezes B (tuners/lora/variants.py). */
static void check_beginning(struct form_reading *r)
{
    static const char *const words[] = { "gaussian", "eva", "olora", "pissa", "corda", "loftq", "orthogonal", "lora_ga", "true", "false" };
    const json_t *v = form_value(r->file->doc, "init_lora_weights");
    const char *word = json_string_value(v);
    bool known = !v || json_is_boolean(v) || (word && !strncmp(word, "pissa_niter_", 12));

    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        known = known || !strcmp(word, words[i]);
    if (!known)
        form_fail(r, "init_lora_weights: \"%.40s\" is not planned: adapters of which both halves train are", word ? word : "?");
}

/* Types whose settings are other than LoRA's are refused before their keys are. */
static int check_peft(const struct form_file *f)
{
    const char *type = json_string_value(form_value(f->doc, "peft_type")), *model = pefts_model(f);

    if (hf_packed_otherwise(model))
        return fail("%s: base_model_name_or_path: %.80s: weights packed before training are not planned", f->path, model);
    return type && strcmp(type, "LORA") ? fail("%s: peft_type: \"%.60s\" is not planned: LORA is", f->path, type) : 0;
}

static int read_peft(const struct form_file *f, struct plan *p, struct notes *notes)
{
    static const char *const biases[] = { "none", NULL };
    const json_t *targets = form_value(f->doc, "target_modules"), *saved = form_value(f->doc, "modules_to_save");
    const json_t *parameters = form_value(f->doc, "target_parameters");
    struct form_reading r;

    form_begin(&r, f, peft_rows, FORM_COUNT(peft_rows), notes);
    check_beginning(&r);
    form_word(&r, "bias", biases, 0);
    form_set(&r, "strategy", json_string("ddp"));
    form_set(&r, "dialect", json_string("torch"));
    form_set(&r, "precision", json_string("bf16"));
    form_set(&r, "ddp.model_dtype", json_string("bf16"));
    form_set(&r, "train", json_string("lora"));
    form_set(&r, "lora.rank", json_integer(form_count(&r, "r", 8)));
    form_set(&r, "lora.alpha", json_real(form_number(&r, "lora_alpha", 8)));
    form_set(&r, "lora.dropout", json_real(form_number(&r, "lora_dropout", 0)));
    if (hf_packed_nf4(pefts_model(f)))
        form_set(&r, "base_dtype", json_string("nf4-double"));
    if (targets)
        form_set(&r, "lora.target_modules", json_deep_copy(targets));
    if (json_array_size(parameters) > 0)
        form_set(&r, "lora.target_parameters", json_deep_copy(parameters));
    if (json_array_size(saved) > 0)
        form_set(&r, "lora.modules_to_save", json_deep_copy(saved));
    if (p->seq == 0)
        form_fail(&r, "PEFT's file does not say how long samples are: give --seq");
    notes_add(notes, "the file says what trains, not how: planned as DDP in bf16 without recompute, %lld samples a GPU",
              (long long)(p->micro_batch > 0 ? p->micro_batch : 1));
    return form_end(&r, p);
}

const struct form form_peft = {
    .name = "PEFT", .sign = "peft_type (adapter_config.json)",
    .claims = is_peft, .check = check_peft, .model = pefts_model, .read = read_peft, .rows = peft_rows, .nrows = FORM_COUNT(peft_rows),
};

/* ---- unsloth-cli.py ---- */

/* Its option, and TRL's; NULL: the same name. */
static const char *const unsloths[][2] = {
    { "model_name", "model_name_or_path" }, { "max_seq_length", "max_length" }, { "r", "lora_r" }, { "lora_alpha", NULL }, { "lora_dropout", NULL },
    { "load_in_4bit", NULL }, { "per_device_train_batch_size", NULL }, { "gradient_accumulation_steps", NULL }, { "optim", NULL },
    { "max_grad_norm", NULL },
};

static const struct form_row unsloth_rows[] = {
    { "model_name", ROW_READ, NULL }, { "max_seq_length", ROW_READ, NULL }, { "r", ROW_READ, NULL }, { "lora_alpha", ROW_READ, NULL },
    { "lora_dropout", ROW_READ, NULL }, { "load_in_4bit", ROW_READ, NULL }, { "per_device_train_batch_size", ROW_READ, NULL },
    { "gradient_accumulation_steps", ROW_READ, NULL }, { "optim", ROW_READ, NULL }, { "max_grad_norm", ROW_READ, NULL },
    { "use_gradient_checkpointing", ROW_READ, NULL }, { "dtype", ROW_READ, NULL }, { "bias", ROW_READ, NULL }, { "random_state", ROW_SILENT, NULL },
    { "use_dora", ROW_REFUSED, "DoRA is not planned" }, { "use_rslora", ROW_SILENT, NULL }, { "loftq_config", ROW_SILENT, NULL }, { "dataset", ROW_SILENT, NULL }, { "warmup_steps", ROW_SILENT, NULL },
    { "max_steps", ROW_SILENT, NULL }, { "learning_rate", ROW_SILENT, NULL }, { "weight_decay", ROW_SILENT, NULL }, { "lr_scheduler_type", ROW_SILENT, NULL },
    { "seed", ROW_SILENT, NULL }, { "output_dir", ROW_SILENT, NULL }, { "report_to", ROW_SILENT, NULL }, { "logging_steps", ROW_SILENT, NULL },
    { "save_model", ROW_SILENT, NULL }, { "save_method", ROW_SILENT, NULL }, { "save_gguf", ROW_SILENT, NULL }, { "save_path", ROW_SILENT, NULL },
    { "packing", ROW_MATTERS, "every sample counts as full, packed or not" }, { "per_device_eval_batch_size", ROW_SILENT, NULL },
    { "raw_text_file", ROW_SILENT, NULL }, { "chunk_size", ROW_SILENT, NULL }, { "stride", ROW_SILENT, NULL },
    { "quantization", ROW_SILENT, NULL }, { "push_model", ROW_SILENT, NULL }, { "push_gguf", ROW_SILENT, NULL }, { "hub_path", ROW_SILENT, NULL },
    { "hub_token", ROW_SILENT, NULL },
};

static bool is_unsloth(const struct form_file *f) { return form_runs(f, "unsloth-cli.py"); }

static const char *unsloths_model(const struct form_file *f)
{
    const char *name = json_string_value(json_object_get(f->doc, "model_name"));

    return name ? name : "unsloth/llama-3-8b";
}

/* unsloth takes a packed checkpoint's 16-bit original without load_in_4bit (loader_utils.py, __get_model_name()), and one of its own with it. */
static void name_checkpoint(const struct form_file *f, json_t *recipe, struct notes *notes)
{
    const char *name = unsloths_model(f), *end = strstr(name, "-unsloth-bnb-4bit");

    end = end ? end : strstr(name, "-bnb-4bit");
    if (end)
        json_object_set_new(recipe, "model_name_or_path", json_stringn(name, (size_t)(end - name)));
    if (json_is_true(json_object_get(f->doc, "load_in_4bit")) && !(end && !strncmp(end, "-bnb", 4)))
        notes_add(notes, "load_in_4bit: where unsloth has a dynamic checkpoint of the model (-unsloth-bnb-4bit) it takes that, some of whose layers stay in 16 bits: "
                  "planned is all of them in NF4");
}

/* What get_peft_model() and the loader take otherwise than planned. */
static int check_unsloth(const struct form_file *f)
{
    static const char *const dtypes[] = { "None", "bfloat16", "torch.bfloat16", "auto" };
    const json_t *bias = json_object_get(f->doc, "bias"), *dtype = json_object_get(f->doc, "dtype");
    const char *word = json_string_value(dtype);
    bool known = !dtype || json_is_null(dtype);

    for (size_t i = 0; word && i < sizeof dtypes / sizeof *dtypes; i++)
        known = known || !strcmp(word, dtypes[i]);
    if (!known)
        return fail("%s: dtype: of unsloth's models those in bfloat16, its choice where it is None, are planned", f->path);
    return bias && (!json_is_string(bias) || strcmp(json_string_value(bias), "none")) ? fail("%s: bias: biases that train are not planned: none", f->path) : 0;
}

static int read_unsloth(const struct form_file *f, struct plan *p, struct notes *notes)
{
    const json_t *again = json_object_get(f->doc, "use_gradient_checkpointing");
    json_t *recipe = json_pack("{s:b, s:s, s:i, s:i, s:b, s:b, s:s}", "use_peft", 1, "lora_target_modules", "all-linear", "max_length", 2048,
                               "per_device_train_batch_size", 2, "bf16", 1, "use_bnb_nested_quant", 1, "dtype", "bfloat16");
    json_t *usual = json_pack("{s:i, s:f, s:i, s:s, s:b, s:s}", "lora_alpha", 16, "lora_dropout", 0.0, "gradient_accumulation_steps", 4,
                              "optim", "adamw_8bit", "ddp_find_unused_parameters", 0, "loss_type", RECIPE_LOGITS);      /* its parser's defaults */

    json_object_update(recipe, usual);
    json_decref(usual);

    for (size_t i = 0; i < sizeof unsloths / sizeof *unsloths; i++) {
        json_t *v = json_object_get(f->doc, unsloths[i][0]);
        if (v)
            json_object_set(recipe, unsloths[i][1] ? unsloths[i][1] : unsloths[i][0], v);
    }
    name_checkpoint(f, recipe, notes);
    json_object_set_new(recipe, "gradient_checkpointing", json_boolean(!json_is_false(again)));
    if (p->cluster.world_size > 1)
        notes_add(notes, "unsloth-cli.py trains on one GPU: planned as DDP on %lld", (long long)p->cluster.world_size);
    notes_add(notes, "unsloth's kernels and its checkpoints, which wait in host memory, are not modelled: the run holds less than planned");
    int rc = recipe_read(recipe, f->path, p, notes);
    json_decref(recipe);
    if (rc == 0)
        form_list_rest(f, unsloth_rows, FORM_COUNT(unsloth_rows), notes);
    return rc;
}

const struct form form_unsloth = {
    .name = "unsloth", .sign = "a command of unsloth-cli.py",
    .claims = is_unsloth, .check = check_unsloth, .model = unsloths_model, .read = read_unsloth, .rows = unsloth_rows, .nrows = FORM_COUNT(unsloth_rows),
};
