/* recipe_types.c -- see recipe_types.h.  transformers 5.24 (TrainingArguments), TRL 1.16, LLaMA-Factory (hparams), axolotl (utils/schemas).
 *
 * Keys whose readers refuse nonsense themselves have no row, but for numbers that must be whole as they are written: argparse takes no 1e3 for an int.
 * SWITCH, WHOLE and NUMBER are of keys that the plan has not, or that say nothing of a step: there may stand a variable that nobody has set, and behind a
 * command's value what the shell makes of the rest of its line. */
#include "model/exchange/recipe_types.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum kind { FLAG, TEXT, COUNT_OF, AMOUNT, LIST, MAP, WORD, UNBROKEN, SWITCH, WHOLE, NUMBER };

#define IN(form) (1u << (form))
#define ALL      (IN(RECIPE_TRANSFORMERS) | IN(RECIPE_FACTORY) | IN(RECIPE_AXOLOTL) | IN(RECIPE_TRL))
#define TRAINERS (IN(RECIPE_TRANSFORMERS) | IN(RECIPE_FACTORY) | IN(RECIPE_TRL))

static const char *const kinds[] = { "true or false", "a word", "a whole number from 1 on", "a number from 0 on", "a list of names", "a mapping", "one of",
                                    "a whole number", "true or false", "a whole number", "a number" };

static const struct { const char *path; unsigned forms; enum kind kind; const char *words; } rows[] = {
    { "model_name_or_path", TRAINERS, TEXT, NULL }, { "base_model", IN(RECIPE_AXOLOTL), TEXT, NULL },
    { "adapter", IN(RECIPE_AXOLOTL), TEXT, NULL }, { "finetuning_type", IN(RECIPE_FACTORY), TEXT, NULL },
    { "attn_implementation", IN(RECIPE_AXOLOTL) | IN(RECIPE_TRL), TEXT, NULL }, { "flash_attn", IN(RECIPE_FACTORY), TEXT, NULL },
    { "dtype", IN(RECIPE_TRL), WORD, "auto bfloat16 float16 float32" }, { "torch_dtype", IN(RECIPE_TRL), WORD, "auto bfloat16 float16 float32" },
    { "quantization_method", IN(RECIPE_FACTORY), TEXT, NULL },
    { "bnb_4bit_quant_storage", IN(RECIPE_TRL), TEXT, NULL }, { "bnb_4bit_quant_type", IN(RECIPE_TRL), WORD, "nf4 fp4" },
    { "bnb_4bit_compute_dtype", IN(RECIPE_TRL), WORD, "auto bfloat16 float16 float32" },
    { "lora_dropout", IN(RECIPE_TRL) | IN(RECIPE_FACTORY) | IN(RECIPE_AXOLOTL), AMOUNT, NULL }, { "beta", IN(RECIPE_TRL), AMOUNT, NULL },
    { "pref_loss", IN(RECIPE_FACTORY), WORD, "sigmoid hinge ipo kto_pair orpo simpo" },
    { "stage", IN(RECIPE_FACTORY), WORD, "pt sft rm ppo dpo kto" },
    { "packing_strategy", IN(RECIPE_TRL), WORD, "bfd bfd_split bfd-requeue ffd wrapped" },
    { "rl", IN(RECIPE_AXOLOTL), WORD, "dpo gdpo grpo ipo orpo kto simpo ebft" },
    { "model_quantization_config", IN(RECIPE_AXOLOTL), WORD, "Mxfp4Config FineGrainedFP8Config" },
    { "do_train", ALL, FLAG, NULL }, { "packing", IN(RECIPE_TRL), FLAG, NULL }, { "padding_free", IN(RECIPE_TRL), FLAG, NULL },
    { "use_liger_kernel", TRAINERS, FLAG, NULL }, { "enable_liger_kernel", IN(RECIPE_FACTORY), FLAG, NULL },
    { "liger_kernel_config", TRAINERS, MAP, NULL }, { "liger_kernel_config.rope", TRAINERS, FLAG, NULL }, { "liger_kernel_config.rms_norm", TRAINERS, FLAG, NULL },
    { "liger_kernel_config.swiglu", TRAINERS, FLAG, NULL }, { "liger_kernel_config.geglu", TRAINERS, FLAG, NULL },
    { "liger_kernel_config.cross_entropy", TRAINERS, FLAG, NULL }, { "liger_kernel_config.fused_linear_cross_entropy", TRAINERS, FLAG, NULL },
    { "use_reentrant_gc", IN(RECIPE_FACTORY), FLAG, NULL }, { "use_eaft_loss", IN(RECIPE_FACTORY), FLAG, NULL }, { "use_dft_loss", IN(RECIPE_FACTORY), FLAG, NULL },
    { "gradient_checkpointing_kwargs", ALL, MAP, NULL }, { "gradient_checkpointing_kwargs.use_reentrant", ALL, FLAG, NULL },
    { "activation_checkpointing_kwargs", ALL, MAP, NULL }, { "activation_checkpointing_kwargs.use_reentrant", ALL, FLAG, NULL },
    { "use_flash_attn", IN(RECIPE_TRL), FLAG, NULL }, { "use_flash_attention_2", IN(RECIPE_TRL), FLAG, NULL },
    { "use_reentrant", IN(RECIPE_TRL), FLAG, NULL }, { "trust_remote_code", IN(RECIPE_AXOLOTL), FLAG, NULL },
    { "bnb_config_kwargs.bnb_4bit_use_double_quant", IN(RECIPE_AXOLOTL), FLAG, NULL },
    { "bfloat16", IN(RECIPE_AXOLOTL), FLAG, NULL }, { "float16", IN(RECIPE_AXOLOTL), FLAG, NULL }, { "sample_packing", IN(RECIPE_AXOLOTL), FLAG, NULL },
    { "reward_model", IN(RECIPE_AXOLOTL), FLAG, NULL }, { "use_eaft", IN(RECIPE_AXOLOTL), FLAG, NULL }, { "use_ray", IN(RECIPE_AXOLOTL), FLAG, NULL },
    { "flash_attention", IN(RECIPE_AXOLOTL), FLAG, NULL }, { "flex_attention", IN(RECIPE_AXOLOTL), FLAG, NULL },
    { "xformers_attention", IN(RECIPE_AXOLOTL), FLAG, NULL }, { "sdp_attention", IN(RECIPE_AXOLOTL), FLAG, NULL },
    { "liger_rope", IN(RECIPE_AXOLOTL), FLAG, NULL }, { "liger_rms_norm", IN(RECIPE_AXOLOTL), FLAG, NULL }, { "liger_layer_norm", IN(RECIPE_AXOLOTL), FLAG, NULL },
    { "liger_glu_activation", IN(RECIPE_AXOLOTL), FLAG, NULL }, { "liger_swiglu", IN(RECIPE_AXOLOTL), FLAG, NULL },
    { "liger_cross_entropy", IN(RECIPE_AXOLOTL), FLAG, NULL }, { "liger_fused_linear_cross_entropy", IN(RECIPE_AXOLOTL), FLAG, NULL },
    { "cut_cross_entropy", IN(RECIPE_AXOLOTL), FLAG, NULL }, { "gradient_checkpointing", IN(RECIPE_AXOLOTL), WORD, "true false offload offload_disk" },
    { "activation_offloading", IN(RECIPE_AXOLOTL), WORD, "true false legacy disk hidden_states" },
    { "plugins", IN(RECIPE_AXOLOTL), LIST, NULL }, { "unfrozen_parameters", IN(RECIPE_AXOLOTL), LIST, NULL },
    { "bnb_config_kwargs", IN(RECIPE_AXOLOTL), MAP, NULL }, { "trl", IN(RECIPE_AXOLOTL), MAP, NULL },
    { "batch_size", IN(RECIPE_AXOLOTL), COUNT_OF, NULL }, { "fsdp_version", IN(RECIPE_AXOLOTL), COUNT_OF, NULL },
    { "ray_num_workers", IN(RECIPE_AXOLOTL) | IN(RECIPE_FACTORY), COUNT_OF, NULL }, { "num_processes", IN(RECIPE_TRL), COUNT_OF, NULL },
    { "block_size", IN(RECIPE_TRANSFORMERS), COUNT_OF, NULL }, { "model_max_length", IN(RECIPE_TRANSFORMERS), COUNT_OF, NULL },
    { "max_completion_length", IN(RECIPE_TRL), COUNT_OF, NULL }, { "max_prompt_length", IN(RECIPE_TRL), COUNT_OF, NULL },
    { "max_length", IN(RECIPE_TRL), UNBROKEN, NULL }, { "max_seq_length", IN(RECIPE_TRL), UNBROKEN, NULL }, { "cutoff_len", IN(RECIPE_FACTORY), UNBROKEN, NULL },
    { "per_device_train_batch_size", TRAINERS, UNBROKEN, NULL }, { "gradient_accumulation_steps", TRAINERS, UNBROKEN, NULL },
    { "lora_r", IN(RECIPE_TRL), UNBROKEN, NULL }, { "lora_rank", IN(RECIPE_FACTORY), UNBROKEN, NULL }, { "lora_alpha", IN(RECIPE_TRL) | IN(RECIPE_FACTORY), UNBROKEN, NULL },
    { "quantization_bit", IN(RECIPE_FACTORY), UNBROKEN, NULL },
    { "use_unsloth", IN(RECIPE_FACTORY), SWITCH, NULL }, { "use_unsloth_gc", IN(RECIPE_FACTORY), SWITCH, NULL }, { "neat_packing", IN(RECIPE_FACTORY), SWITCH, NULL },
    { "packing", IN(RECIPE_FACTORY), SWITCH, NULL }, { "shift_attn", IN(RECIPE_FACTORY), SWITCH, NULL }, { "upcast_layernorm", IN(RECIPE_FACTORY), SWITCH, NULL },
    { "upcast_lmhead_output", IN(RECIPE_FACTORY), SWITCH, NULL }, { "resize_vocab", IN(RECIPE_FACTORY), SWITCH, NULL },
    { "auto_find_batch_size", TRAINERS, SWITCH, NULL }, { "group_by_length", TRAINERS, SWITCH, NULL },
    { "use_rslora", IN(RECIPE_FACTORY), SWITCH, NULL }, { "pissa_init", IN(RECIPE_FACTORY), SWITCH, NULL }, { "pissa_convert", IN(RECIPE_FACTORY), SWITCH, NULL },
    { "pissa_iter", IN(RECIPE_FACTORY), WHOLE, NULL }, { "loraplus_lr_ratio", IN(RECIPE_FACTORY), NUMBER, NULL },
    { "loraplus_lr_embedding", IN(RECIPE_FACTORY), NUMBER, NULL }, { "pref_beta", IN(RECIPE_FACTORY), NUMBER, NULL },
    { "overwrite_cache", IN(RECIPE_FACTORY), SWITCH, NULL }, { "plot_loss", IN(RECIPE_FACTORY), SWITCH, NULL }, { "train_on_prompt", IN(RECIPE_FACTORY), SWITCH, NULL },
    { "mask_history", IN(RECIPE_FACTORY), SWITCH, NULL }, { "max_samples", IN(RECIPE_FACTORY), WHOLE, NULL }, { "val_size", IN(RECIPE_FACTORY), NUMBER, NULL },
    { "max_length", IN(RECIPE_FACTORY), WHOLE, NULL },
    { "tf32", TRAINERS, SWITCH, NULL }, { "overwrite_output_dir", TRAINERS, SWITCH, NULL }, { "do_eval", TRAINERS, SWITCH, NULL },
    { "remove_unused_columns", TRAINERS, SWITCH, NULL }, { "push_to_hub", TRAINERS, SWITCH, NULL }, { "load_best_model_at_end", TRAINERS, SWITCH, NULL },
    { "save_only_model", TRAINERS, SWITCH, NULL }, { "bf16_full_eval", TRAINERS, SWITCH, NULL }, { "fp16_full_eval", TRAINERS, SWITCH, NULL },
    { "disable_tqdm", TRAINERS, SWITCH, NULL }, { "max_steps", TRAINERS, WHOLE, NULL }, { "save_total_limit", TRAINERS, WHOLE, NULL }, { "seed", TRAINERS, WHOLE, NULL },
    { "data_seed", TRAINERS, WHOLE, NULL }, { "ddp_timeout", TRAINERS, WHOLE, NULL }, { "per_device_eval_batch_size", TRAINERS, WHOLE, NULL },
    { "eval_accumulation_steps", TRAINERS, WHOLE, NULL }, { "dataloader_num_workers", TRAINERS, WHOLE, NULL }, { "num_train_epochs", TRAINERS, NUMBER, NULL },
    { "learning_rate", TRAINERS, NUMBER, NULL }, { "weight_decay", TRAINERS, NUMBER, NULL }, { "adam_beta1", TRAINERS, NUMBER, NULL },
    { "adam_beta2", TRAINERS, NUMBER, NULL }, { "adam_epsilon", TRAINERS, NUMBER, NULL }, { "warmup_ratio", TRAINERS, NUMBER, NULL },
    { "warmup_steps", TRAINERS, NUMBER, NULL }, { "logging_steps", TRAINERS, NUMBER, NULL }, { "save_steps", TRAINERS, NUMBER, NULL },
    { "eval_steps", TRAINERS, NUMBER, NULL },
};

static const json_t *value_at(const json_t *config, const char *path)
{
    const char *dot = strchr(path, '.');
    char first[64] = "";

    if (!dot)
        return json_object_get(config, path);
    strncat(first, path, (size_t)(dot - path));
    return json_object_get(json_object_get(config, first), dot + 1);
}

/* Is the word among those that a text has between blanks? */
static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = words; n && (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' '))
            return true;
    return false;
}

static bool is_whole(const char *s)
{
    s += *s == '-';
    return *s && strspn(s, "0123456789") == strlen(s);
}

static bool is_number(const char *s)
{
    char *end;

    strtod(s, &end);
    return end > s && *end == '\0';
}

/* transformers' parser takes these words for a bool (hf_argparser.py, string_to_bool()). */
static bool fits_idle(const json_t *said, enum kind kind)
{
    const json_t *v = json_is_array(said) ? json_array_get(said, 0) : said;
    const char *s = json_string_value(v);

    if (s && strpbrk(s, "${"))
        return true;
    if (kind == SWITCH)
        return s ? has_word("true false True False yes no t f y n 1 0", s) : json_is_boolean(v) || (json_is_integer(v) && json_integer_value(v) >> 1 == 0);
    return kind == WHOLE ? (s ? is_whole(s) : json_is_integer(v)) : s ? is_number(s) : json_is_number(v);
}

static bool fits(const json_t *v, enum kind kind, const char *words)
{
    const char *s = json_string_value(v);

    switch (kind) {
    case FLAG:
        return json_is_boolean(v) || (s && has_word("true false", s));
    case TEXT:
        return s != NULL;
    case COUNT_OF:
        return (json_is_integer(v) && json_integer_value(v) > 0) || (s && *s && strspn(s, "0123456789") == strlen(s));
    case AMOUNT:
        return s ? is_number(s) && *s != '-' : json_is_number(v) && json_number_value(v) >= 0;
    case LIST:
        return json_is_array(v);
    case MAP:
        return json_is_object(v);
    case WORD:
        return json_is_boolean(v) ? has_word(words, json_is_true(v) ? "true" : "false") : s && has_word(words, s);
    case UNBROKEN:                              /* what is no number at all is its reader's */
        return s ? is_whole(s) || !is_number(s) : !json_is_real(v);
    case SWITCH:
    case WHOLE:
    case NUMBER:
        return fits_idle(v, kind);
    }
    return false;
}

/* TRL's losses are those of its trainer; DPO's may be several. */
static int check_losses(const json_t *config, const char *where)
{
    static const char *const words[] = {
        [TRL_SFT] = "nll dft chunked_nll", [TRL_KTO] = "kto bco apo_zero_unpaired",
        [TRL_DPO] = "sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard aot aot_pair aot_unpaired apo_zero apo_down discopop sft sigmoid_norm",
        [TRL_GRPO] = "grpo bnpo dr_grpo dapo cispo sapo luspo vespo",
    };
    const json_t *v = json_object_get(config, "loss_type");
    enum trl_trainer trainer = recipe_trl_trainer(config);
    size_t n = json_is_array(v) && trainer == TRL_DPO ? json_array_size(v) : 1;

    if (!v || json_is_null(v) || trainer == TRL_REWARD || (json_is_string(v) && !strcmp(json_string_value(v), RECIPE_LOGITS)))
        return 0;
    for (size_t i = 0; i < n; i++) {
        const char *word = json_string_value(json_is_array(v) && trainer == TRL_DPO ? json_array_get(v, i) : v);
        if (!word || !has_word(words[trainer], word))
            return fail("%s: loss_type: %.40s: of this trainer's losses TRL has %s", where, word ? word : "?", words[trainer]);
    }
    return 0;
}

static bool is_on(const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);

    return json_is_true(v) || (json_is_string(v) && !strcmp(json_string_value(v), "true"));
}

int recipe_check_types(const json_t *config, enum recipe_form form, const char *where)
{
    if (form != RECIPE_AXOLOTL && is_on(config, "bf16") && is_on(config, "fp16"))         /* axolotl lets bf16 go before */
        return fail("%s: bf16 and fp16: transformers stops (\"At most one of fp16 and bf16 can be True, but not both\")", where);
    if (form == RECIPE_TRL && check_losses(config, where) < 0)
        return -1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *v = rows[i].forms & IN(form) ? value_at(config, rows[i].path) : NULL;
        if (v && !json_is_null(v) && !fits(v, rows[i].kind, rows[i].words))
            return fail("%s: %s: expected %s%s%s", where, rows[i].path, kinds[rows[i].kind], rows[i].words ? " " : "", rows[i].words ? rows[i].words : "");
    }
    return 0;
}
