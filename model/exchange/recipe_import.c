/* recipe_import.c -- see recipe.h.  Defaults are transformers 5.23's TrainingArguments, and LLaMA-Factory's and axolotl's own
 * where they have any (its hparams folder; utils/schemas/config.py). */
#include "model/exchange/recipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/yaml.h"
#include "model/arch/hf_packed.h"
#include "model/arch/training.h"
#include "model/exchange/accelerate.h"
#include "model/exchange/accelerate_checks.h"
#include "model/exchange/ds_config.h"
#include "model/exchange/recipe_checkpoints.h"
#include "model/exchange/recipe_compile.h"
#include "model/exchange/recipe_fsdp.h"
#include "model/exchange/recipe_liger.h"
#include "model/exchange/recipe_loss.h"
#include "model/exchange/recipe_muon.h"
#include "model/exchange/recipe_notes.h"
#include "model/exchange/recipe_precision.h"
#include "model/exchange/recipe_refuses.h"
#include "model/exchange/recipe_rounding.h"
#include "model/exchange/recipe_targets.h"
#include "model/exchange/recipe_types.h"
#include "model/exchange/recipe_unfrozen.h"
#include "model/exchange/titan_import.h"
#include "model/plan/knob.h"
#include "model/plan/optimizer_traits.h"

struct import {
    const json_t    *config;
    const char      *where;
    struct plan     *p;
    struct notes    *notes;
    enum recipe_form form;
    bool             ds_optimizer;      /* DeepSpeed's file has an optimizer */
    bool             ds_clips;          /* and leaves the clipping to the Trainer ("auto") */
    bool             half;              /* a model in fp16 without autocast, axolotl's float16 */
    struct recipe_precision formats;
};

/* ---- forms ---- */

const char *recipe_model(const json_t *config)
{
    int form = recipe_form(config);

    if (form == RECIPE_TITAN)
        return titan_model(config);
    return form >= 0 ? json_string_value(json_object_get(config, recipe_key(config, (enum recipe_form)form, SAYS_MODEL))) : NULL;
}

/* ---- values: scripts take "true" and "2e-4" as well ---- */

static const json_t *value(const struct import *in, enum recipe_word word)
{
    const char *key = recipe_key(in->config, in->form, word);
    const json_t *v = key ? json_object_get(in->config, key) : NULL;

    return json_is_null(v) ? NULL : v;
}

static int expected(const struct import *in, enum recipe_word word, const char *what)
{
    return fail("%s: %s: expected %s", in->where, recipe_key(in->config, in->form, word), what);
}

static int get_bool(const struct import *in, enum recipe_word word, bool *out)
{
    const json_t *v = value(in, word);
    const char *s = json_string_value(v);

    if (!v)
        return 0;
    if (!json_is_boolean(v) && !(s && (!strcmp(s, "auto") || !strcmp(s, "true") || !strcmp(s, "false") || !strcmp(s, "full"))))
        return expected(in, word, "true or false");
    *out = s ? strcmp(s, "false") != 0 : json_is_true(v);
    return 0;
}

static int get_number(const struct import *in, enum recipe_word word, double least, double *out)
{
    const json_t *v = value(in, word);
    const char *s = json_string_value(v);
    char *end = NULL;

    if (!v)
        return 0;
    *out = s ? strtod(s, &end) : json_number_value(v);
    if ((!s && !json_is_number(v)) || (s && (end == s || *end)) || !(*out >= least && *out <= 1e12))
        return expected(in, word, least > 0 ? "a number from 1 on" : "a number");
    return 0;
}

static int get_count(const struct import *in, enum recipe_word word, int64_t *out)
{
    double n = (double)*out;

    if (get_number(in, word, 1, &n) < 0 || n > PLAN_MAX_BATCH || n < (double)(int64_t)n || n > (double)(int64_t)n)
        return expected(in, word, "a whole number from 1 to 1048576");
    *out = (int64_t)n;
    return 0;
}

static const char *get_text(const struct import *in, enum recipe_word word) { return json_string_value(value(in, word)); }

/* A list, or one text of names with commas between. */
static int get_names(const struct import *in, enum recipe_word word, char out[TRAINING_LIST])
{
    const json_t *v = value(in, word), *name;
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 0; v && i < (json_is_array(v) ? json_array_size(v) : 1); i++) {
        name = json_is_array(v) ? json_array_get(v, i) : v;
        const char *said = json_string_value(name);
        if (json_is_array(v) && said && strchr(said, ',')) {            /* --lora_target_modules "q_proj", "v_proj": no module has such a name */
            notes_add(in->notes, "%s: \"%.40s\" is no module's name, with its comma: PEFT leaves it out", recipe_key(in->config, in->form, word), said);
            continue;
        }
        for (const char *s = said; s && *s; s++)
            if (*s != ' ' && n + 2 < TRAINING_LIST)
                out[n++] = *s;
        if (!said || n + 2 >= TRAINING_LIST)
            return expected(in, word, "names of modules, 255 characters together");
        if (n > 0)
            out[n++] = ',';
    }
    out[n > 0 ? n - 1 : 0] = '\0';
    return n == 0 && json_array_size(v) > 0 ? expected(in, word, "names of modules without commas") : 0;
}

/* ---- what trains ---- */

/* axolotl packs in 4 bits for qlora and in 8 for lora alone (loaders/model.py, _set_quantization_config()); its constants are quantised unless
 * bnb_config_kwargs says no. */
static void as_axolotl_packs(const struct import *in, bool *four, bool *eight, bool *twice)
{
    const json_t *said = json_object_get(json_object_get(in->config, "bnb_config_kwargs"), "bnb_4bit_use_double_quant");
    const char *kind = get_text(in, SAYS_KIND);
    bool lora = kind && !strcmp(kind, "lora"), qlora = kind && !strcmp(kind, "qlora");

    if ((lora && *four) || (qlora && *eight))
        notes_add(in->notes, "load_in_%s has no effect on adapter: %s in axolotl: weights stay in 16 bits", lora ? "4bit" : "8bit", kind);
    *four = *four && !lora;
    *eight = *eight && !qlora;
    *twice = !json_is_false(said);
}

static int read_base(const struct import *in, struct training *t)
{
    bool four = false, eight = false, twice = in->form != RECIPE_TRL;   /* TRL's use_bnb_nested_quant is false */
    const char *method = in->form == RECIPE_FACTORY ? json_string_value(json_object_get(in->config, "quantization_method")) : NULL;
    double bits = 0;

    if (get_bool(in, SAYS_4BIT, &four) < 0 || get_bool(in, SAYS_8BIT, &eight) < 0 || get_bool(in, SAYS_DOUBLE, &twice) < 0
        || get_number(in, SAYS_BITS, 0, &bits) < 0)
        return -1;
    if (bits > 0 && !(bits > 3.5 && bits < 4.5) && !(bits > 7.5 && bits < 8.5))
        return expected(in, SAYS_BITS, "4 or 8");
    if (in->form == RECIPE_AXOLOTL)
        as_axolotl_packs(in, &four, &eight, &twice);
    if (bits > 0 && method && strcmp(method, "bnb") && strcmp(method, "bitsandbytes"))
        return fail("%s: quantization_method: \"%s\" is not modelled: bnb is", in->where, method);
    t->base = four || (bits > 3 && bits < 5) ? (twice ? BASE_NF4_DOUBLE : BASE_NF4) : eight || bits > 7 ? BASE_INT8 : BASE_PLAIN;
    if (hf_packed_nf4(get_text(in, SAYS_MODEL)) && t->base != BASE_NF4_DOUBLE) {
        notes_add(in->notes, "%.80s is packed already, in NF4 with double quantisation, which goes before what the recipe says%s", get_text(in, SAYS_MODEL),
                  strstr(get_text(in, SAYS_MODEL), "-unsloth-") ? "; some of its layers are in 16 bits: more than planned" : "");
        t->base = BASE_NF4_DOUBLE;
    }
    return 0;
}

static int read_lora(const struct import *in, struct training *t)
{
    char targets[TRAINING_LIST];
    double alpha = 0;
    bool all = false;

    strcpy(t->what, "lora");
    if (in->form == RECIPE_TRL) {               /* TRL's ModelConfig */
        t->rank = 16;
        t->alpha = 32;
        t->dropout = 0.05;
    }
    if (get_count(in, SAYS_RANK, &t->rank) < 0 || get_number(in, SAYS_ALPHA, 0, &alpha) < 0
        || get_number(in, SAYS_DROPOUT, 0, &t->dropout) < 0 || get_bool(in, SAYS_ALL_LINEAR, &all) < 0
        || get_names(in, SAYS_TARGETS, targets) < 0 || get_names(in, SAYS_SAVED, t->modules_to_save) < 0)
        return -1;
    t->alpha = alpha > 0 ? alpha : in->form == RECIPE_FACTORY ? 2 * (double)t->rank : t->alpha;
    if (in->form == RECIPE_FACTORY && !targets[0])
        strcpy(targets, "all");
    return read_base(in, t) < 0 ? -1 : recipe_targets(&(struct recipe_asks){ in->config, in->where, in->form, targets, in->notes, all }, &in->p->model, t);
}

/* Nobody trains packed weights themselves.  (`base` is plain where its keys could not be read, and were reported.) */
static int refuse_packed(const struct import *in, enum base_dtype base)
{
    enum recipe_word word = in->form == RECIPE_FACTORY ? SAYS_BITS : base == BASE_INT8 ? SAYS_8BIT : SAYS_4BIT;

    if (hf_packed_nf4(get_text(in, SAYS_MODEL)))
        word = SAYS_MODEL;
    return base == BASE_PLAIN ? -1 : fail("%s: %s: packed weights do not train: %s asks for adapters beside them (%s)", in->where,
                                          recipe_key(in->config, in->form, word), recipe_form_name(in->form),
                                          in->form == RECIPE_TRANSFORMERS ? "PEFT" : recipe_key(in->config, in->form, in->form == RECIPE_TRL ? SAYS_ADAPTS : SAYS_KIND));
}

/* *adapts: PEFT's adapters; otherwise everything trains. */
static int read_training(const struct import *in, bool *adapts)
{
    const char *kind = get_text(in, SAYS_KIND);
    struct training t = training_default();

    if (!kind && in->form == RECIPE_FACTORY) {
        kind = "lora";
        notes_add(in->notes, "finetuning_type is not given: LLaMA-Factory's default is lora");
    }
    *adapts = kind && (!strcmp(kind, "lora") || !strcmp(kind, "qlora"));
    if (get_bool(in, SAYS_ADAPTS, adapts) < 0)
        return -1;
    if (kind && !*adapts && strcmp(kind, "full") && strcmp(kind, "none"))
        return fail("%s: %s: \"%s\" is not modelled: lora, qlora or full", in->where, recipe_key(in->config, in->form, SAYS_KIND), kind);
    if (*adapts && read_lora(in, &t) < 0)
        return -1;
    if (!*adapts && (read_base(in, &t) < 0 || t.base != BASE_PLAIN))
        return refuse_packed(in, t.base);
    if (kind && !strcmp(kind, "qlora") && t.base != BASE_NF4 && t.base != BASE_NF4_DOUBLE)
        return fail("%s: adapter: axolotl refuses qlora without load_in_4bit", in->where);
    bool names = in->form == RECIPE_AXOLOTL;
    if (names && !*adapts && recipe_unfrozen(in->config, in->where, &in->p->model, false, &t, in->notes) < 0)
        return -1;
    if (training_apply(&in->p->model, &t, in->where) < 0)
        return -1;
    return names && *adapts ? recipe_unfrozen(in->config, in->where, &in->p->model, true, &t, in->notes) : 0;
}

/* ---- the Trainer's numbers ---- */

static int read_precision(struct import *in, bool pure)
{
    bool trl = in->form == RECIPE_TRL, bf16 = in->form == RECIPE_AXOLOTL || trl, fp16 = false;     /* axolotl's bf16 is auto, as TRL's */

    const json_t *said = json_object_get(in->config, recipe_key(in->config, in->form, SAYS_BF16));
    bool automatic = json_is_string(said) && !strcmp(json_string_value(said), "auto");

    if (in->form == RECIPE_AXOLOTL && json_is_null(said))
        bf16 = false;                           /* null is not the default there */
    if (get_bool(in, SAYS_BF16, &bf16) < 0 || get_bool(in, SAYS_FP16, &fp16) < 0)
        return -1;
    bf16 = bf16 || (in->form == RECIPE_AXOLOTL && json_is_true(json_object_get(in->config, "bfloat16")));     /* core/builders/base.py */
    if (trl && !value(in, SAYS_BF16) && !fp16)
        notes_add(in->notes, "bf16 is not given: TRL since August 2025 trains in bf16 unless fp16 is set (before: fp32)");
    bf16 = bf16 || pure;                        /* LLaMA-Factory's pure_bf16 stands in bf16's place */
    in->half = in->form == RECIPE_AXOLOTL && !bf16 && !fp16 && json_is_true(json_object_get(in->config, "float16"));    /* utils/config, torch_dtype */
    in->p->precision = fp16 && !(bf16 && value(in, SAYS_BF16) && !automatic) ? DT_FP16 : bf16 ? DT_BF16 : in->half ? DT_FP16 : DT_FP32;
    return 0;
}

static int choose_precision(struct import *in, const json_t *launch, bool fsdp, bool adapts)
{
    const char *type = json_string_value(json_object_get(launch, "distributed_type"));
    bool deepspeed = value(in, SAYS_DEEPSPEED) || (type && !strcasecmp(type, "DEEPSPEED"));

    in->formats = (struct recipe_precision){ in->config, launch, in->form, in->where, adapts, deepspeed, fsdp || (type && !strcasecmp(type, "FSDP")), 0, 0, false };
    return in->half ? 0 : recipe_choose_precision(&in->formats, in->p, in->notes);
}

/* A number of the recipe that no other form has. */
static int64_t count_of(const struct import *in, const char *key, int64_t usual)
{
    const json_t *v = json_object_get(in->config, key);

    return json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) <= PLAN_MAX_BATCH ? (int64_t)json_integer_value(v) : usual;
}

/* Tokens of a sample where the recipe says none; 0: only the script knows.  GRPO's is a prompt and its completion. */
static int64_t usual_seq(const struct import *in)
{
    if (in->form == RECIPE_TRL && recipe_trl_trainer(in->config) == TRL_GRPO)
        return count_of(in, "max_prompt_length", 512) + count_of(in, "max_completion_length", 512);
    return in->form == RECIPE_TRANSFORMERS ? count_of(in, "block_size", count_of(in, "model_max_length", 0)) : in->form == RECIPE_TRL ? 1024
         : in->form == RECIPE_AXOLOTL ? 512 : 2048;
}

/* Sequences that the model sees of one sample: preference training runs the chosen and the rejected one in a batch (TRL's
 * concatenated_forward(), LLaMA-Factory's PairwiseDataCollatorWithPadding). */
static int64_t rows_of_a_sample(const struct import *in)
{
    const char *stage = in->form == RECIPE_FACTORY ? json_string_value(json_object_get(in->config, "stage")) : NULL;
    const char *rl = in->form == RECIPE_AXOLOTL ? json_string_value(json_object_get(in->config, "rl")) : NULL;
    bool rewards = in->form == RECIPE_AXOLOTL && json_is_true(json_object_get(in->config, "reward_model"));
    enum trl_trainer trainer = in->form == RECIPE_TRL ? recipe_trl_trainer(in->config) : TRL_SFT;
    bool pairs = trainer == TRL_DPO || trainer == TRL_REWARD || rewards || (stage && (!strcmp(stage, "dpo") || !strcmp(stage, "rm")))
              || (rl && (!strcmp(rl, "dpo") || !strcmp(rl, "ipo") || !strcmp(rl, "orpo") || !strcmp(rl, "simpo")));

    if (pairs)
        notes_add(in->notes, "each sample is a chosen and a rejected sequence, which run as one batch: micro-batch 2 x %s",
                  recipe_key(in->config, in->form, SAYS_BATCH));
    if (pairs && stage)
        notes_add(in->notes, "the loss of pairs is planned as that of SFT over the same tokens: log-probabilities of whole logits in fp32");
    return pairs ? 2 : 1;
}

static int read_batch(const struct import *in)
{
    struct plan *p = in->p;
    int64_t batch = in->form == RECIPE_AXOLOTL ? 1 : 8, steps = 1, seq = usual_seq(in);

    if (get_count(in, SAYS_BATCH, &batch) < 0 || get_count(in, SAYS_ACCUMULATION, &steps) < 0)
        return -1;
    if (!value(in, SAYS_BATCH) && p->micro_batch == 0)
        notes_add(in->notes, "%s is not given: %s's default is %" PRId64, recipe_key(in->config, in->form, SAYS_BATCH), recipe_form_name(in->form), batch);
    p->micro_batch = p->micro_batch > 0 ? p->micro_batch : batch * rows_of_a_sample(in);
    if (in->form == RECIPE_AXOLOTL && !value(in, SAYS_ACCUMULATION))         /* batch_size: samples of a rank in a step (utils/config) */
        steps = count_of(in, "batch_size", batch) / batch > 0 ? count_of(in, "batch_size", batch) / batch : 1;
    p->accumulation = p->accumulation > 0 ? p->accumulation : steps;
    if (seq > 0 && p->seq == 0 && get_count(in, SAYS_SEQ, &seq) < 0)
        return -1;
    if (p->seq == 0 && seq == 0)
        return fail("%s: TrainingArguments do not say how long samples are: give --seq", in->where);
    if (p->seq == 0 && in->form == RECIPE_TRL && json_is_null(json_object_get(in->config, recipe_key(in->config, in->form, SAYS_SEQ))))
        return fail("%s: %s: null: samples are as long as they are: give --seq", in->where, recipe_key(in->config, in->form, SAYS_SEQ));
    if (p->seq == 0 && in->form == RECIPE_TRL && recipe_trl_trainer(in->config) == TRL_GRPO)
        notes_add(in->notes, "a sample is max_prompt_length %" PRId64 " and max_completion_length %" PRId64 " tokens%s", count_of(in, "max_prompt_length", 512),
                  count_of(in, "max_completion_length", 512), count_of(in, "max_prompt_length", 0) ? "" : ": TRL 1.10 cuts no prompts, older ones at 512 tokens");
    else if (p->seq == 0 && in->form == RECIPE_TRANSFORMERS)
        notes_add(in->notes, "%s %" PRId64 " is taken as the samples' length", count_of(in, "block_size", 0) > 0 ? "block_size" : "model_max_length", seq);
    else if (p->seq == 0 && !value(in, SAYS_SEQ))
        notes_add(in->notes, "%s is not given: %s's default is %" PRId64 " tokens", recipe_key(in->config, in->form, SAYS_SEQ),
                  recipe_form_name(in->form), seq);
    p->seq = p->seq > 0 ? p->seq : seq;
    return 0;
}

/* ---- who shares what ---- */

/* A document itself, or the file that is named. */
static json_t *section(const struct import *in, enum recipe_word word)
{
    const json_t *v = value(in, word);
    const char *name = json_string_value(v);
    char path[512];

    if (json_is_object(v))
        return json_deep_copy(v);
    if (!name || strlen(name) >= sizeof path) {
        expected(in, word, "a mapping or the path of a file");
        return NULL;
    }
    files_find_above(in->where, name, path, sizeof path);
    if (!files_is_beside(in->where, name, path))
        notes_add(in->notes, "%s: %.300s is read", recipe_key(in->config, in->form, word), path);
    return files_read_json_file(path);
}

static json_t *fsdp_document(const struct import *in, const char *words)
{
    static const char *const mixed[] = { [DT_FP32] = "no", [DT_BF16] = "bf16", [DT_FP16] = "fp16" };
    json_t *section_of = value(in, SAYS_FSDP_CONFIG) ? section(in, SAYS_FSDP_CONFIG) : json_object(), *doc = NULL;
    json_t *wrapped = json_object_get(in->config, "fsdp_transformer_layer_cls_to_wrap");        /* TrainingArguments' own until 5.0 */
    double version = 0;

    if (section_of && wrapped && !json_is_null(wrapped))
        json_object_set(section_of, "transformer_layer_cls_to_wrap", wrapped);
    if (section_of && get_number(in, SAYS_FSDP_VERSION, 1, &version) == 0)
        doc = recipe_fsdp_document(&(struct recipe_fsdp){ in->form, in->where, words, in->config, section_of, (int64_t)version,
                                                          mixed[in->p->precision], in->p->cluster.world_size, in->notes });
    json_decref(section_of);
    return doc;
}

/* TrainingArguments set HfTrainerDeepSpeedConfig before the model is made, so that from_pretrained() works under zero.Init. */
static int read_deepspeed(struct import *in)
{
    json_t *ds = section(in, SAYS_DEEPSPEED);
    size_t said = json_object_size(ds);

    int rc = ds ? accelerate_check_zero(ds, in->where) : -1;
    if (rc == 0) {
        recipe_fill_deepspeed(&in->formats, ds);
        rc = ds_config_read(ds, in->where, in->p, in->notes);
    }

    const char *clip = json_string_value(json_object_get(ds, "gradient_clipping"));

    in->ds_optimizer = json_object_get(ds, "optimizer") != NULL;
    in->ds_clips = clip && !strcmp(clip, "auto");
    in->p->ds.zero_init = rc == 0 && in->p->strategy == STRAT_ZERO3;
    rc = rc == 0 ? recipe_check_deepspeed(&in->formats, in->p, json_object_size(ds) > said) : rc;
    json_decref(ds);
    return rc;
}

static int read_fsdp(const struct import *in, const char *words)
{
    json_t *doc = fsdp_document(in, words);
    int rc = doc ? accelerate_read(doc, in->where, in->p, in->notes) : -1;

    json_decref(doc);
    recipe_fsdp_experts(in->config, in->form, in->p, in->notes);
    return rc;
}

/* The model itself is in 16 bits.  torch.amp.GradScaler, which fp16 has under autocast, looks at gradients in fp32 alone. */
static int load_narrow(const struct import *in)
{
    if (in->p->precision == DT_FP16 && !in->half && training_is_all(&in->p->train))
        return fail("%s: fp16: the model is loaded in fp16 and trains as a whole, whose gradients torch.amp.GradScaler refuses in the first step "
                    "(\"Attempting to unscale FP16 gradients\"): bf16", in->where);
    in->p->ddp.model_dtype = (int)in->p->precision;
    return 0;
}

/* What float16 is planned with. */
static int check_half(const struct import *in, bool adapts)
{
    const struct plan *p = in->p;

    if (in->half && (adapts || p->strategy != STRAT_DDP || p->dialect != DIALECT_TORCH))
        return fail("%s: float16: a model in fp16 without autocast is planned as a whole and under PyTorch's DDP alone: bf16", in->where);
    return 0;
}

/* accelerate's config, with the recipe's number format; `narrow` as below. */
static int read_launch(struct import *in, const json_t *launch, const char *by, bool narrow)
{
    static const char *const words[] = { [DT_FP32] = "no", [DT_BF16] = "bf16", [DT_FP16] = "fp16" };
    const json_t *ds = json_object_get(launch, "deepspeed_config"), *clip = json_object_get(ds, "gradient_clipping"), *steps;
    json_t *doc = json_deep_copy(launch);

    steps = json_object_get(ds, "gradient_accumulation_steps");
    if (json_is_integer(steps) && json_integer_value(steps) != in->p->accumulation) {       /* trainer_config_process() */
        json_decref(doc);
        return fail("%s: gradient_accumulation_steps is %" JSON_INTEGER_FORMAT " there and %" PRId64 " in the recipe: the Trainer refuses what differs", by,
                    json_integer_value(steps), in->p->accumulation);
    }

    in->ds_clips = !json_object_get(ds, "deepspeed_config_file") && (!clip || json_is_string(clip));
    json_object_set_new(doc, "mixed_precision", json_string(words[in->formats.deepspeed ? in->formats.mixed : in->p->precision]));
    int rc = accelerate_read(doc, by, in->p, in->notes);
    if (rc == 0 && in->formats.deepspeed)
        rc = recipe_check_deepspeed(&in->formats, in->p, false);
    if (rc == 0 && in->p->strategy == STRAT_DDP && in->p->dialect == DIALECT_TORCH && narrow && in->p->precision != DT_FP32)
        rc = load_narrow(in);
    json_decref(doc);
    return rc;
}

/* Plain DDP.  `narrow`: the model itself is in 16 bits. */
static int read_ddp(const struct import *in, bool narrow)
{
    struct plan *p = in->p;
    int64_t batch = p->micro_batch, steps = p->accumulation;
    double bucket = -1;
    bool sync = true;

    plan_defaults(p, STRAT_DDP, DIALECT_TORCH, p->precision);
    p->micro_batch = batch;
    p->accumulation = steps;
    p->sync_every_micro_step = steps == 1;              /* Accelerator.accumulate() */
    if (get_number(in, SAYS_BUCKET, 0, &bucket) < 0 || get_bool(in, SAYS_UNUSED, &p->ddp.find_unused_parameters) < 0
        || get_bool(in, SAYS_BUFFERS, &sync) < 0 || get_bool(in, SAYS_STATIC, &p->ddp.static_graph) < 0)
        return -1;
    p->ddp.bucket_cap_mb = bucket;
    p->ddp.broadcast_buffers = sync;
    if (p->cluster.world_size == 1) {
        p->ddp.wrapped = false;
        notes_add(in->notes, "on one GPU the Trainer has no DistributedDataParallel (ddp.wrapped false); started by torchrun it has one, whose buckets "
                  "take as much as the gradients once more");
    }
    p->ddp.model_dtype = -1;
    return narrow && p->precision != DT_FP32 ? load_narrow(in) : 0;
}

/* ---- what all of them have ---- */

/* Whose optimizer steps under DeepSpeed where it is not the Trainer's: that of DeepSpeed's file (integrations/deepspeed.py,
 * deepspeed_optim_sched()), or on the host DeepSpeedCPUAdam (accelerate's map_pytorch_optim_to_deepspeed()).  NULL: the Trainer's. */
static const char *instead_of_ours(const struct import *in)
{
    const struct plan *p = in->p;

    if (p->dialect != DIALECT_DEEPSPEED)
        return NULL;
    if (in->ds_optimizer)
        return "the optimizer of DeepSpeed's file is taken";
    if (p->ds.offload_optimizer.device != OFFLOAD_NONE)
        return "accelerate makes it DeepSpeedCPUAdam";
    return NULL;
}

/* The Trainer's AdamW under stage 0 in 16 bits: in FP16_UnfusedOptimizer, for which FP16_Optimizer stands. */
static bool is_unfused(const struct plan *p)
{
    return p->dialect == DIALECT_DEEPSPEED && p->strategy == STRAT_DDP && p->precision != DT_FP32;
}

/* Shards on the host are planned with foreach alone (plan_check.c). */
static bool lacks_fused(const struct plan *p) { return p->strategy == STRAT_FSDP && p->fsdp.cpu_offload; }

/* Trainer.create_optimizer() makes two parameter groups, and deepspeed.initialize() keeps them, unless DeepSpeed's file has the optimizer. */
static void group_parameters(const struct import *in)
{
    struct plan *p = in->p;
    const char *beside = deepspeed_groups_beside(p);

    if (!knob_has(p, "deepspeed", "decay_groups") || in->ds_optimizer || !strcmp(p->train.what, "lora"))
        return;                     /* adapters all decay: one group */
    p->ds.decay_groups = !beside;
    if (beside)
        notes_add(in->notes, "the Trainer's two parameter groups, one without weight decay, are planned as one beside %s", beside);
}

static int read_optimizer(const struct import *in)
{
    static const struct { const char *word, *ours; enum optimizer_form form; } words[] = {
        { "adamw_torch", "adamw", OPTIMIZER_FOREACH }, { "adamw_torch_fused", "adamw", OPTIMIZER_FUSED },
        { "adamw_8bit", "adamw_bnb_8bit", OPTIMIZER_FOREACH }, { "paged_adamw", "paged_adamw_32bit", OPTIMIZER_FOREACH },
        { "adamw_anyprecision", "", OPTIMIZER_FOREACH },
    };
    const struct knob *k = knob_find("", "optimizer", knob_cell(in->p)), *form = knob_find("", "optimizer_form", knob_cell(in->p));
    const char *word = get_text(in, SAYS_OPTIM), *ours = word ? word : "adamw_torch_fused";
    enum optimizer_form as = OPTIMIZER_FOREACH;
    json_t *v;
    int rc;

    if (value(in, SAYS_OPTIM) && !word)
        return expected(in, SAYS_OPTIM, "an optimizer's name");
    if (recipe_has_muon(in->config, in->form))
        return recipe_read_muon(in->where, in->p, in->notes);
    if (instead_of_ours(in)) {
        if (word && strncmp(word, "adamw_torch", 11))
            notes_add(in->notes, "%s is not followed: %s", recipe_key(in->config, in->form, SAYS_OPTIM), instead_of_ours(in));
        return 0;
    }
    if (!word && form)
        notes_add(in->notes, "%s is not given: adamw_torch_fused, the default since transformers 5 with PyTorch 2.8; before it was adamw_torch, "
                  "which needs more memory", recipe_key(in->config, in->form, SAYS_OPTIM));
    if (is_unfused(in->p)) {
        notes_add(in->notes, "stage 0 in %s has the Trainer's AdamW in FP16_UnfusedOptimizer; planned is FP16_Optimizer, whose step takes up to "
                  "4 bytes a parameter more", dtype_name(in->p->precision));
        form = NULL;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(ours, words[i].word)) {
            as = words[i].form;
            ours = words[i].ours;
            break;
        }
    if (form && as == OPTIMIZER_FUSED && lacks_fused(in->p)) {
        notes_add(in->notes, "adamw_torch_fused is planned as foreach on the host");
        as = OPTIMIZER_FOREACH;
    }
    if (form && !strcmp(ours, "adamw"))        /* others have one form, their cell's own */
        knob_set(in->p, form, as);
    v = json_string(ours);
    rc = k->type == KNOB_FIXED && strcmp(ours, "adamw") ? -1 : knob_read(v, in->where, k, in->p);
    json_decref(v);
    rc = rc == 0 && optimizer_traits(in->p->optimizer)->by == BY_OTHERS ? -1 : rc;         /* a plan's word, and none of transformers' */
    return rc < 0 ? fail("%s: %s: %s is not modelled for %s/%s", in->where, recipe_key(in->config, in->form, SAYS_OPTIM), word,
                         strategy_name(in->p->strategy), dialect_name(in->p->dialect)) : 0;
}

/* axolotl's activation_offloading is what its gradient_checkpointing "offload" became; with adapters it is not planned, and listed. */
static bool offloads_activations(const struct import *in)
{
    return in->form == RECIPE_AXOLOTL && json_is_true(json_object_get(in->config, "activation_offloading")) && training_is_all(&in->p->train);
}

static int read_rest(const struct import *in)
{
    struct plan *p = in->p;
    bool on = in->form == RECIPE_FACTORY || in->form == RECIPE_TRL, off = false, eager = false;
    const char *attention = get_text(in, SAYS_ATTENTION), *away = get_text(in, SAYS_CHECKPOINT);
    bool offloads = (away && !strcmp(away, "offload")) || offloads_activations(in);
    double clip = 1;

    if (in->form == RECIPE_TRL && !value(in, SAYS_CHECKPOINT))
        notes_add(in->notes, "gradient_checkpointing is not given: TRL's default is true since August 2025 (before: false)");
    if (offloads)
        on = true;
    else if (get_bool(in, SAYS_CHECKPOINT, &on) < 0)
        return -1;
    if (get_bool(in, SAYS_NO_CHECKPOINT, &off) < 0 || get_number(in, SAYS_CLIP, 0, &clip) < 0 || get_bool(in, SAYS_EAGER, &eager) < 0)
        return -1;
    if (on && value(in, SAYS_CHECKPOINT) && recipe_checkpoints_twice(in->form, in->where, p) < 0)
        return -1;
    if (on && !off && p->recompute == RECOMPUTE_NONE) {
        p->recompute = offloads && training_is_all(&p->train) ? RECOMPUTE_OFFLOAD : RECOMPUTE_FULL;
        p->recompute_interval = 1;
    }
    if (p->dialect != DIALECT_DEEPSPEED || (value(in, SAYS_CLIP) && in->ds_clips))
        p->clip = clip;
    if (eager || (attention && (!strcmp(attention, "eager") || !strcmp(attention, "disabled"))))
        p->kernels = KERNELS_TORCH_EAGER;
    return recipe_liger(in->config, in->form, in->where, p, in->notes);
}

/* DDP's find_unused_parameters where the recipe does not say: the Trainer looks for them but where a PreTrainedModel, which PEFT's is not,
 * recomputes (create_accelerator_and_postprocess()); LLaMA-Factory does not with LoRA, axolotl's causal trainer never. */
static void find_unused(const struct import *in, bool adapts)
{
    struct plan *p = in->p;
    bool usual = adapts || p->recompute == RECOMPUTE_NONE;

    if (in->form == RECIPE_FACTORY)
        usual = !adapts && p->recompute == RECOMPUTE_NONE;
    if (in->form == RECIPE_AXOLOTL && !recipe_has_preferences(in->config))
        usual = false;
    if (p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH && p->cluster.world_size > 1 && !value(in, SAYS_UNUSED))
        p->ddp.find_unused_parameters = usual;
}

int recipe_read_launched(const json_t *config, const char *where, const json_t *launch, const char *by, struct plan *p, struct notes *notes)
{
    int form = recipe_form(config), rc;
    struct import in = { config, where, p, notes, form < 0 ? RECIPE_TRANSFORMERS : (enum recipe_form)form, false, false, false, { 0 } };
    char words[160];
    bool adapts = false, pure = false, narrow;

    if (!json_is_object(config))
        return fail("%s: a recipe is a mapping", where);
    if (form < 0)
        return recipe_refuse_unclaimed(where);
    if (in.form == RECIPE_TITAN)
        return titan_read(config, where, p, notes);
    if (recipe_is_factorys_second(config))
        return fail("%s: model: LLaMA-Factory's second form (USE_V1) is not read: give the keys of its first, model_name_or_path and others",
                    where);
    if (recipe_check_types(config, in.form, where) < 0 || recipe_check_text(config, in.form, where) < 0 || recipe_check_attention(config, in.form, where) < 0)
        return -1;
    if (!recipe_fsdp_is_said(value(&in, SAYS_FSDP)))
        return expected(&in, SAYS_FSDP, "words, or true");
    recipe_fsdp_words(value(&in, SAYS_FSDP), words);
    if (value(&in, SAYS_DEEPSPEED) && (words[0] || value(&in, SAYS_FSDP_CONFIG)))
        return fail("%s: deepspeed and fsdp exclude each other", where);
    if (recipe_check_trains(config, in.form, where, notes) < 0 || read_training(&in, &adapts) < 0 || get_bool(&in, SAYS_PURE, &pure) < 0 || read_precision(&in, pure) < 0
        || choose_precision(&in, launch, words[0] || value(&in, SAYS_FSDP_CONFIG), adapts) < 0 || read_batch(&in) < 0)
        return -1;
    p->framework_version[0] = '\0';
    narrow = pure || in.form == RECIPE_AXOLOTL || (in.form == RECIPE_TRL ? recipe_loads_narrow(config, in.form, notes) : adapts);
    bool shares = value(&in, SAYS_DEEPSPEED) || words[0];
    if (shares && accelerate_starts_ranks_alone(launch))
        launch = NULL;                          /* the Trainer tells accelerate what the recipe says */
    if (launch && shares)
        return fail("%s: %s: the recipe and accelerate's config (%s) both say who shares what: give one", where,
                    value(&in, SAYS_DEEPSPEED) ? "deepspeed" : "fsdp", by);
    if (launch)
        rc = read_launch(&in, launch, by, narrow);
    else if (value(&in, SAYS_DEEPSPEED))
        rc = read_deepspeed(&in);
    else if (words[0] || (value(&in, SAYS_FSDP_CONFIG) && in.form == RECIPE_AXOLOTL))
        rc = read_fsdp(&in, words);
    else
        rc = read_ddp(&in, narrow);
    if (rc == 0 && pure && p->dialect == DIALECT_DEEPSPEED)
        return fail("%s: pure_bf16: a model in bf16 that DeepSpeed takes for one in fp32 is not modelled: bf16", where);
    /* axolotl's fsdp2_prepare_model() (monkeypatch/accelerate/fsdp2.py) widens nothing; accelerate does, under mixed precision alone. */
    bool keeps = pure || (in.form == RECIPE_AXOLOTL && p->dialect == DIALECT_TORCH && p->precision == DT_BF16 && training_is_all(&p->train));
    if (keeps && p->strategy == STRAT_FSDP)
        p->fsdp.model_dtype = DT_BF16;
    if (rc == 0 && adapts)
        recipe_keep_wide(config, in.form, p, notes);
    if (rc < 0 || check_half(&in, adapts) < 0 || recipe_fsdp_check_mesh(config, in.form, where, p) < 0 || read_optimizer(&in) < 0 || read_rest(&in) < 0)
        return -1;
    if (in.form == RECIPE_TRL && recipe_trl_loss(config, where, p, notes) < 0)
        return -1;
    recipe_fsdp_root(in.form, p, notes);
    group_parameters(&in);
    if (adapts && p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH && p->train.base != BASE_PLAIN)
        p->fsdp.autocast_adapter_dtype = in.form != RECIPE_TRL && !pure;    /* TRL casts adapters of packed weights to bf16 */
    p->train.narrow = adapts && pure && p->train.base == BASE_PLAIN && p->dialect == DIALECT_TORCH;    /* the Trainer has no autocast then */
    recipe_choose_checkpoint(config, in.form, p, notes);
    find_unused(&in, adapts);
    if (in.form == RECIPE_AXOLOTL && recipe_read_rounding(config, where, p, notes) < 0)
        return -1;
    struct recipe_about about = { config, in.form, adapts, pure, launch != NULL };
    recipe_read_attention(&about, p);
    if (recipe_check_embedding(&about, p, where) < 0 || recipe_check_int8(&about, p, where) < 0 || recipe_read_compile(config, in.form, where, p, notes) < 0)
        return -1;
    recipe_note(&about, p, notes);
    recipe_note_bare(&in.formats, p, notes);
    recipe_list_rest(config, in.form, notes);
    plan_resolve(p);
    return plan_check(p, where);
}

int recipe_read(const json_t *config, const char *where, struct plan *p, struct notes *notes)
{
    return recipe_read_launched(config, where, NULL, NULL, p, notes);
}
