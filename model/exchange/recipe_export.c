/* recipe_export.c -- a plan as a recipe of axolotl or LLaMA-Factory: LoRA, QLoRA or full fine-tuning under DDP or DeepSpeed.
 *
 * Keys and defaults: axolotl 0.19 (utils/schemas/), LLaMA-Factory 0.9.5 (hparams/).  Every key whose default differs between releases or depends
 * on another is written.  Data, learning rate and steps are the reader's. */
#include "model/exchange/export.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/yaml.h"
#include "model/arch/builtin.h"
#include "model/arch/training.h"
#include "model/exchange/ds_config.h"
#include "model/plan/knob.h"
#include "model/plan/optimizer_traits.h"

struct recipe_out { const struct plan *p; const char *tool; bool axolotl; json_t *doc; };

static int refuse(const struct recipe_out *r, const char *key, const char *why)
{
    return fail("export to %s: %s: %s", r->tool, key, why);
}

/* A whole number is written as one. */
static json_t *number(double v)
{
    return v >= floor(v) && v <= floor(v) ? json_integer((json_int_t)v) : json_real(v);
}

/* axolotl's name, LLaMA-Factory's name. */
static void put(const struct recipe_out *r, const char *axolotls, const char *factorys, json_t *v)
{
    const char *key = r->axolotl ? axolotls : factorys;

    if (key)
        json_object_set_new(r->doc, key, v);
    else
        json_decref(v);
}

/* "q_proj,v_proj" as a list; LLaMA-Factory takes the text itself. */
static json_t *names(const struct recipe_out *r, const char *list)
{
    json_t *all = json_array();

    if (!r->axolotl) {
        json_decref(all);
        return json_string(list);
    }
    for (const char *at = list; *at; at += strspn(at, ",")) {
        size_t n = strcspn(at, ",");
        json_array_append_new(all, json_stringn(at, n));
        at += n;
    }
    return all;
}

static int put_base(const struct recipe_out *r, enum base_dtype base)
{
    bool four = base == BASE_NF4 || base == BASE_NF4_DOUBLE;

    if (base != BASE_PLAIN && !four && base != BASE_INT8)
        return refuse(r, "base_dtype", "it packs with bitsandbytes alone: nf4, nf4-double, int8");
    if (r->axolotl) {
        put(r, "load_in_4bit", NULL, json_boolean(four));
        put(r, "load_in_8bit", NULL, json_boolean(base == BASE_INT8));
        if (four)
            put(r, "bnb_config_kwargs", NULL, json_pack("{s:b}", "bnb_4bit_use_double_quant", base == BASE_NF4_DOUBLE));
    } else if (base != BASE_PLAIN) {
        put(r, NULL, "quantization_bit", json_integer(four ? 4 : 8));
        put(r, NULL, "double_quantization", json_boolean(base != BASE_NF4));
    }
    return 0;
}

static int put_adapters(const struct recipe_out *r)
{
    const struct training *t = &r->p->train;
    bool four = t->base == BASE_NF4 || t->base == BASE_NF4_DOUBLE, all = !strcmp(t->target_modules, "all-linear");
    const char *targets = t->target_modules[0] ? t->target_modules : training_usual_targets(r->p->model.family);

    if (t->narrow)
        return refuse(r, "lora.narrow", "its adapters are in fp32");
    if (t->dora)
        return refuse(r, "lora.use_dora", "PEFT's DoRA beside adapters in fp32 is not the plan's: torchtune's is");
    if (t->qkv_parts)
        return refuse(r, "lora.qkv_parts", "its adapters are of whole layers");
    if (t->dropout_position == DROPOUT_POST)
        return refuse(r, "lora.dropout_position", "its dropout is on what adapters read");
    if (t->target_parameters[0])
        return refuse(r, "lora.target_parameters", "write lora_target_parameters by hand");
    if (!targets)
        return refuse(r, "lora.target_modules", "PEFT has none of its own for the model: name them");
    put(r, "adapter", NULL, json_string(four ? "qlora" : "lora"));
    put(r, "lora_r", "lora_rank", json_integer(t->rank));
    put(r, "lora_alpha", "lora_alpha", number(t->alpha));
    put(r, "lora_dropout", "lora_dropout", json_real(t->dropout));
    if (all)
        put(r, "lora_target_linear", "lora_target", r->axolotl ? json_true() : json_string("all"));
    else
        put(r, "lora_target_modules", "lora_target", names(r, targets));
    if (t->modules_to_save[0])
        put(r, "lora_modules_to_save", "additional_target", names(r, t->modules_to_save));
    if (r->axolotl)
        for (int i = 0; i < 4; i++)         /* on by themselves, and not modelled */
            put(r, ((const char *const[]){ "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel" })[i], NULL, json_false());
    return put_base(r, t->base);
}

static int put_optimizer(const struct recipe_out *r)
{
    static const char *const adamw[] = { "adamw_torch", "adamw_torch_fused" };
    const struct plan *p = r->p;
    const struct knob *k = knob_find("", "optimizer", knob_cell(p));

    if (p->optimizer == OPTIMIZER_ADAMW && p->optimizer_form == OPTIMIZER_LOOP)
        return refuse(r, "optimizer_form", "transformers has no word for foreach=False");
    if (optimizer_traits(p->optimizer)->no_trainer && !(r->axolotl && p->optimizer == OPTIMIZER_MUON))     /* Axolotl has a word for Muon */
        return refuse(r, "optimizer", optimizer_traits(p->optimizer)->no_trainer);
    put(r, "optimizer", "optim", json_string(p->optimizer == OPTIMIZER_ADAMW ? adamw[p->optimizer_form == OPTIMIZER_FUSED] : k->words[p->optimizer]));
    return 0;
}

static int put_sharing(const struct recipe_out *r)
{
    const struct plan *p = r->p;
    char name[EXPORT_KEY];

    if (p->dialect == DIALECT_DEEPSPEED) {
        json_t *ds = ds_config_export(p);
        if (!ds)
            return -1;
        if (p->strategy == STRAT_ZERO3 && !p->ds.zero_init) {
            json_decref(ds);
            return refuse(r, "deepspeed.zero_init", "transformers loads a model under stage 3 with zero.Init: true");
        }
        put(r, "deepspeed", "deepspeed", ds);
        return 0;
    }
    if (p->strategy != STRAT_DDP || p->dialect != DIALECT_TORCH)
        return fail("export to %s: strategy: written for ddp/torch and deepspeed, not %s/%s: export --to accelerate has FSDP's config", r->tool,
                    strategy_name(p->strategy), dialect_name(p->dialect));
    struct plan like = *p;
    like.ddp.find_unused_parameters = false;
    like.ddp.broadcast_buffers = true;
    like.ddp.bucket_cap_mb = -1;
    like.ddp.model_dtype = (int)knob_default(p, knob_find("ddp", "model_dtype", knob_cell(p)));     /* put_dtype() looks at it */
    like.ddp.static_graph = false;
    if (p->cluster.world_size > 1 && export_first_changed(&like, "ddp", KNOB_ACCELERATE, name))
        return refuse(r, name, "the Trainer has no key for it");
    if (p->ddp.static_graph && r->axolotl)
        return refuse(r, "ddp.static_graph", "it has no key for it");
    put(r, "ddp_find_unused_parameters", "ddp_find_unused_parameters", json_boolean(p->ddp.find_unused_parameters));
    put(r, "ddp_broadcast_buffers", "ddp_broadcast_buffers", json_boolean(p->ddp.broadcast_buffers));
    if (p->ddp.static_graph)
        put(r, NULL, "ddp_static_graph", json_true());
    if (p->ddp.bucket_cap_mb >= 0)
        put(r, "ddp_bucket_cap_mb", "ddp_bucket_cap_mb", number(p->ddp.bucket_cap_mb));
    return 0;
}

static int check(const struct recipe_out *r)
{
    const struct plan *p = r->p;

    if (p->model.recorded)
        return refuse(r, "model", "it trains models of transformers, not a recorded module");
    if (p->model.head != HEAD_LOGITS)
        return refuse(r, "model", "written for language models, not for a head of one number");
    if (!training_is_all(&p->train) && !training_is_lora(&p->train))
        return refuse(r, "train", "written for lora and for all");
    if (p->loss != LOSS_FP32)
        return refuse(r, "loss", "written for transformers' own, in fp32");
    if (p->qat.kind != QAT_NONE)
        return refuse(r, "qat", "torchtune trains so: tune run qat_distributed");
    if (p->fsdp.reads_positions)
        return refuse(r, "fsdp.reads_positions", "its trainer reads no positions back");
    if (p->fsdp.grouped_experts)
        return refuse(r, "fsdp.grouped_experts", "its experts are transformers' or its own, not torchtitan's");
    if (p->attention == ATTENTION_BY_FLASH_4 && !r->axolotl)
        return refuse(r, "attention", "it has flash-attn 2 and 3");
    if (p->train.base_head)
        return refuse(r, "base_head", "transformers leaves the head as it is");
    if (p->logits_kept != LOGITS_DROPPED)
        return refuse(r, "logits_kept", "its trainer names no logits while backward runs");
    if (p->liger.rope || p->liger.rms_norm || p->liger.glu_activation)
        return refuse(r, "liger", "write the liger_ keys by hand");
    if (p->kernels != KERNELS_TORCH_SDPA && p->kernels != KERNELS_TORCH_EAGER)
        return refuse(r, "kernels", "transformers runs torch-sdpa and torch-eager");
    if (p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_FULL && p->recompute != RECOMPUTE_REENTRANT)
        return refuse(r, "recompute", "written for none, full and reentrant");
    if (p->recompute_interval > 1)
        return refuse(r, "recompute_interval", "it recomputes all blocks or none");
    if (p->activation_offload != OFFLOAD_NOTHING)
        return refuse(r, "activation_offload", "it has no key for it");
    if (p->accumulation > 1 && p->sync_every_micro_step && p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH)
        return refuse(r, "sync_every_micro_step", "the Trainer reduces in the last micro-step");
    if (p->dropout < knob_default(p, knob_find("", "dropout", knob_cell(p))) || p->dropout > knob_default(p, knob_find("", "dropout", knob_cell(p))))
        return refuse(r, "dropout", "it is in the model's config");
    return 0;
}

/* Adapters load their base in 16 bits; full fine-tuning keeps fp32 but for LLaMA-Factory's pure_bf16. */
static int put_dtype(const struct recipe_out *r)
{
    const struct plan *p = r->p;
    bool adapts = training_is_lora(&p->train), narrow = p->ddp.model_dtype >= 0;

    put(r, "bf16", "bf16", json_boolean(p->precision == DT_BF16));
    put(r, "fp16", "fp16", json_boolean(p->precision == DT_FP16));
    if (p->strategy != STRAT_DDP || p->dialect != DIALECT_TORCH || p->precision == DT_FP32)
        return 0;
    if (narrow != adapts)
        return refuse(r, "ddp.model_dtype", adapts ? "what is frozen is loaded in 16 bits: \"bf16\"" : "weights that train are written in fp32: null");
    return 0;
}

static int write_recipe(const struct recipe_out *r)
{
    const struct plan *p = r->p;
    static const char *const attentions[][2] = { { "sdpa", "sdpa" }, { "flash_attention_2", "fa2" }, { "flash_attention_3", "fa3" }, { "flash_attention_4", "" } };
    bool adapts = training_is_lora(&p->train);
    const char *id = hf_ids_of(p->model.name);

    put(r, "base_model", "model_name_or_path", json_string(id ? id : p->model.name));
    put(r, NULL, "stage", json_string("sft"));
    put(r, NULL, "do_train", json_true());
    put(r, NULL, "finetuning_type", json_string(adapts ? "lora" : "full"));
    put(r, "sequence_len", "cutoff_len", json_integer(p->seq));
    put(r, "sample_packing", "packing", json_true());
    put(r, "micro_batch_size", "per_device_train_batch_size", json_integer(p->micro_batch));
    put(r, "gradient_accumulation_steps", "gradient_accumulation_steps", json_integer(p->accumulation));
    put(r, "max_grad_norm", "max_grad_norm", number(p->clip));
    put(r, "gradient_checkpointing", NULL, json_boolean(p->recompute != RECOMPUTE_NONE));
    if (p->recompute != RECOMPUTE_NONE)
        put(r, "gradient_checkpointing_kwargs", "use_reentrant_gc", r->axolotl ? json_pack("{s:b}", "use_reentrant", p->recompute == RECOMPUTE_REENTRANT) : json_boolean(p->recompute == RECOMPUTE_REENTRANT));
    put(r, NULL, "disable_gradient_checkpointing", json_boolean(p->recompute == RECOMPUTE_NONE));
    put(r, "attn_implementation", "flash_attn", json_string(p->kernels != KERNELS_TORCH_SDPA ? (r->axolotl ? "eager" : "disabled") : attentions[p->attention][!r->axolotl]));
    if (put_dtype(r) < 0 || (adapts && put_adapters(r) < 0) || put_optimizer(r) < 0 || put_sharing(r) < 0)
        return -1;
    put(r, "learning_rate", "learning_rate", json_real(adapts ? 2e-4 : 2e-5));
    put(r, "num_epochs", "num_train_epochs", json_integer(1));
    put(r, "output_dir", "output_dir", json_string("out"));
    put(r, NULL, "template", json_string("default"));
    put(r, "datasets", "dataset", r->axolotl ? json_pack("[{s:s, s:s}]", "path", "YOURS", "type", "alpaca") : json_string("YOURS"));
    return 0;
}

static int export_recipe(const struct plan *p, const char *tool, FILE *to)
{
    struct recipe_out r = { p, tool, strcmp(tool, "llamafactory") != 0, json_object() };
    int rc = check(&r) < 0 || write_recipe(&r) < 0 ? -1 : 0;

    if (rc == 0) {
        fprintf(to, "# %s: learning_rate, num_%sepochs and the data are yours.\n", r.axolotl ? "axolotl" : "LLaMA-Factory", r.axolotl ? "" : "train_");
        yaml_write(r.doc, to);
    }
    json_decref(r.doc);
    return rc;
}

int export_axolotl(const struct plan *p, FILE *to) { return export_recipe(p, "axolotl", to); }
int export_llamafactory(const struct plan *p, FILE *to) { return export_recipe(p, "llamafactory", to); }
