/* form_litgpt.c -- litgpt's YAML (config_hub/, 0.5 and later): `litgpt finetune` names a checkpoint_dir, `litgpt pretrain` a
 * model_name; both have a section train with micro_batch_size.
 *
 * What its scripts do (litgpt/finetune/full.py, lora.py, litgpt/pretrain.py): one GPU is not wrapped.  On several, full
 * fine-tuning is FSDP1 with a unit a block and every block recomputed, LoRA FSDP2 likewise.  Pretraining compiles the whole
 * model: refused.  "bf16-true" keeps weights and states in 16 bits, "bf16-mixed" in fp32. */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/unread.h"
#include "model/family/family.h"
#include "model/form/form_bound.h"
#include "model/form/form_rows.h"

static const struct form_row rows[] = {
    { "checkpoint_dir", ROW_READ, NULL }, { "model_name", ROW_READ, NULL },
    { "model_config", ROW_REFUSED, "a model of one's own: give its config.json with --model, and leave model_config out" },
    { "precision", ROW_READ, NULL }, { "quantize", ROW_READ, NULL }, { "devices", ROW_READ, NULL }, { "num_nodes", ROW_READ, NULL },
    { "lora_r", ROW_READ, NULL }, { "lora_alpha", ROW_READ, NULL }, { "lora_dropout", ROW_READ, NULL }, { "lora_query", ROW_READ, NULL },
    { "lora_key", ROW_READ, NULL }, { "lora_value", ROW_READ, NULL }, { "lora_projection", ROW_READ, NULL }, { "lora_mlp", ROW_READ, NULL },
    { "lora_head", ROW_READ, NULL },
    { "train.micro_batch_size", ROW_READ, NULL }, { "train.global_batch_size", ROW_READ, NULL }, { "train.max_seq_length", ROW_READ, NULL },
    { "train.max_norm", ROW_REFUSED, "litgpt's fine-tuning refuses it" }, { "train.tie_embeddings", ROW_READ, NULL },
    { "train.save_interval", ROW_SILENT, NULL }, { "train.log_interval", ROW_SILENT, NULL }, { "train.lr_warmup_steps", ROW_SILENT, NULL },
    { "train.lr_warmup_fraction", ROW_SILENT, NULL }, { "train.epochs", ROW_SILENT, NULL }, { "train.max_tokens", ROW_SILENT, NULL },
    { "train.max_steps", ROW_SILENT, NULL }, { "train.max_time", ROW_SILENT, NULL }, { "train.min_lr", ROW_SILENT, NULL },
    { "optimizer", ROW_READ, NULL }, { "optimizer.class_path", ROW_READ, NULL }, { "optimizer.init_args", ROW_SILENT, NULL },
    { "optimizer.init_args.lr", ROW_SILENT, NULL }, { "optimizer.init_args.weight_decay", ROW_SILENT, NULL },
    { "optimizer.init_args.betas", ROW_SILENT, NULL }, { "optimizer.init_args.eps", ROW_SILENT, NULL },
    { "data", ROW_SILENT, NULL }, { "data.*", ROW_SILENT, NULL }, { "eval.*", ROW_SILENT, NULL }, { "log.*", ROW_SILENT, NULL },
    { "out_dir", ROW_SILENT, NULL }, { "logger_name", ROW_SILENT, NULL }, { "seed", ROW_SILENT, NULL }, { "resume", ROW_SILENT, NULL },
    { "tokenizer_dir", ROW_SILENT, NULL }, { "initial_checkpoint_dir", ROW_SILENT, NULL }, { "access_token", ROW_SILENT, NULL },
};

static bool claims(const struct form_file *f)
{
    bool named = json_is_string(json_object_get(f->doc, "checkpoint_dir")) || json_is_string(json_object_get(f->doc, "model_name"));

    return named && form_value(f->doc, "train.micro_batch_size");
}

/* "checkpoints/meta-llama/Llama-3.2-1B": organisation and name; a model_name as it is. */
static const char *model(const struct form_file *f)
{
    const char *dir = json_string_value(json_object_get(f->doc, "checkpoint_dir")), *at;

    if (!dir)
        return json_string_value(json_object_get(f->doc, "model_name"));
    at = strrchr(dir, '/');
    while (at && at > dir && at[-1] != '/')
        at--;
    return at ? at : dir;
}

static bool adapts(const struct form_file *f) { return json_object_get(f->doc, "lora_r") || json_object_get(f->doc, "lora_query"); }

/* litgpt's Phi-3 has Llama's blocks (config.py: LLaMAMLP, adapters of q, k and v apart), where transformers' has q, k and v, gate and up in one. */
static int as_llama(const struct form_file *f, struct plan *p)
{
    struct model llama;
    json_t *c = model_to_config(&p->model);

    json_object_set_new(c, "model_type", json_string("llama"));
    int rc = model_from_config(c, f->path, &llama);
    json_decref(c);
    if (rc < 0)
        return -1;
    snprintf(llama.name, sizeof llama.name, "%s", p->model.name);
    model_free(&p->model);
    p->model = llama;
    return 0;
}

static void read_adapters(struct form_reading *r, const struct model *m, bool narrow)
{
    static const struct { const char *key, *modules[3]; bool usual; } of[] = {
        { "lora_query", { "q_proj" }, true }, { "lora_key", { "k_proj" }, false }, { "lora_value", { "v_proj" }, true },
        { "lora_projection", { "o_proj" }, false }, { "lora_mlp", { "gate_proj", "up_proj", "down_proj" }, false },
    };
    static const char *const phis[][2] = { { "o_proj", "dense" }, { "gate_proj", "fc1" }, { "down_proj", "fc2" }, { "up_proj", NULL } };
    static const char *const fused[][2] = { { "o_proj", "dense" }, { "gate_proj", "dense_h_to_4h" }, { "down_proj", "dense_4h_to_h" }, { "up_proj", NULL } };
    json_t *targets = json_array();
    int parts = 0;

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int k = 0; form_true(r, of[i].key, of[i].usual) && k < 3 && of[i].modules[k]; k++) {
            const char *name = of[i].modules[k];
            for (int j = 0; !strcmp(m->family, "phi") && j < 4 && name; j++)        /* Phi-2's names */
                name = !strcmp(name, phis[j][0]) ? phis[j][1] : name;
            for (int j = 0; family_for(m)->fused_qkv && j < 4 && name; j++)         /* Falcon's and GPT-NeoX's */
                name = !strcmp(name, fused[j][0]) ? fused[j][1] : name;
            if (family_for(m)->fused_qkv && i < 3) {
                parts |= 1 << i;
                name = NULL;
            }
            if (name)
                json_array_append_new(targets, json_string(name));
        }
    if (parts) {
        static const char *const words[] = { "layer", "q", "k", "q+k", "v", "q+v", "k+v", "q+k+v" };
        json_array_append_new(targets, json_string("query_key_value"));
        form_set(r, "lora.qkv_parts", json_string(words[parts]));
    }
    if (form_true(r, "lora_head", false))
        json_array_append_new(targets, json_string("lm_head"));
    form_set(r, "train", json_string("lora"));
    form_set(r, "lora.target_modules", targets);
    form_set(r, "lora.rank", json_integer(form_count(r, "lora_r", 8)));
    form_set(r, "lora.alpha", json_real(form_number(r, "lora_alpha", 16)));
    form_set(r, "lora.dropout", json_real(form_number(r, "lora_dropout", 0.05)));
    if (narrow)
        form_narrow_adapters(r, "litgpt");
}

static void read_base(struct form_reading *r, const struct plan *p)
{
    static const char *const words[] = { "bnb.nf4", "bnb.nf4-dq", "bnb.int8", "bnb.int8-training", NULL };
    static const char *const ours[] = { "nf4", "nf4-double", "int8", "int8" };
    int base = form_word(r, "quantize", words, -1);

    if (base < 0)
        return;
    if (p->cluster.world_size > 1)
        form_fail(r, "quantize: litgpt packs weights on one GPU alone");
    form_set(r, "base_dtype", json_string(ours[base]));
    notes_add(r->notes, "quantize: litgpt packs the head, too, which takes %.3g GB less than planned",
              (double)(p->model.vocab * p->model.token_width) / 1e9 * (base > 1 ? 1 : 2 - 0.56));
}

static void note_devices(struct form_reading *r, const struct plan *p)
{
    const json_t *devices = form_value(r->file->doc, "devices");
    const char *word = json_string_value(devices);
    if (devices && !json_is_integer(devices) && !(word && (!strcmp(word, "auto") || strspn(word, "0123456789") == strlen(word)))) {       /* Union[int, str] */
        form_fail(r, "devices: expected a number or \"auto\"");
        return;
    }
    bool all = word && !strcmp(word, "auto") ? true : devices ? false : form_value(r->file->doc, "checkpoint_dir") == NULL;    /* "auto"; usual: 1 of finetune's */
    int64_t nodes = form_count(r, "num_nodes", 1), each = all ? p->cluster.gpus_per_node : form_count(r, "devices", 1);

    unread_ranks(r->notes, "devices", each * nodes, p->cluster.world_size);
}

static void read_optimizer(struct form_reading *r)
{
    const json_t *whole = form_value(r->file->doc, "optimizer");
    const char *name = json_is_string(whole) ? json_string_value(whole) : form_text(r, "optimizer.class_path", "AdamW"), *dot = strrchr(name, '.');

    if (whole && !json_is_string(whole) && !json_is_object(whole))
        form_fail(r, "optimizer: expected a name, or class_path and init_args");
    name = dot ? dot + 1 : name;
    if (form_value(r->file->doc, "quantize")) {             /* instantiate_bnb_optimizer(): PagedAdamW, for AdamW alone */
        if (strcmp(name, "AdamW") != 0)
            form_fail(r, "optimizer: %.60s: litgpt takes AdamW alone beside quantize", name);
        form_set(r, "optimizer", json_string("paged_adamw_32bit"));
        return;
    }
    if (!strcmp(name, "AdamW") || !strcmp(name, "Adam"))
        form_set(r, "optimizer_form", json_string("foreach"));
    else
        form_fail(r, "optimizer: %.60s is not modelled", name);
}

static void read_batch(struct form_reading *r, const struct plan *p)
{
    int64_t each = form_count(r, "train.micro_batch_size", 4), global = form_count(r, "train.global_batch_size", 64);
    int64_t rank = global / p->cluster.world_size;         /* litgpt's own division */

    form_set(r, "micro_batch", json_integer(each));
    if (rank / each < 1)
        form_fail(r, "train.global_batch_size: %lld samples are fewer than a micro-batch of %lld on each of %lld GPUs", (long long)global, (long long)each,
                  (long long)p->cluster.world_size);
    else
        form_set(r, "accumulation", json_integer(rank / each));
    if (p->cluster.world_size > 1 && rank / each > 1)
        form_set(r, "sync_every_micro_step", json_false());         /* fabric.no_backward_sync(): gradients stay whole until the last */
    if (form_value(r->file->doc, "train.max_seq_length"))
        form_set(r, "seq", json_integer(form_count(r, "train.max_seq_length", 1)));
    else if (p->seq == 0)
        form_fail(r, "train.max_seq_length: not given, so samples are as long as the data: give --seq");
}

/* litgpt/model.py, GPT: the head has a weight of its own, a copy of the embedding's where a checkpoint has none. */
static int untie(const struct form_file *f, struct plan *p, struct notes *notes)
{
    json_t *config = model_to_config(&p->model);
    struct model made;

    json_object_set_new(config, "tie_word_embeddings", json_false());
    int rc = model_from_config(config, f->path, &made);
    json_decref(config);
    if (rc < 0)
        return -1;
    notes_add(notes, "model: litgpt has %s's head as a weight of its own, which the model ties to the embedding: %.3g GB more of weights in bf16",
              p->model.name, (double)(made.params - p->model.params) * 2 / 1e9);
    snprintf(made.name, sizeof made.name, "%s", p->model.name);
    model_free(&p->model);
    p->model = made;
    return 0;
}

/* litgpt/pretrain.py compiles the model in any case. */
static int check(const struct form_file *f)
{
    return json_object_get(f->doc, "checkpoint_dir") ? 0 : fail("%s: model_name: `litgpt pretrain` has torch.compile() of the whole model, which is not "
                                                                "planned: its finetune is", f->path);
}

/* get_default_supported_precision(training=True) of utils.py, in each of its programs; beside quantize they stop at it. */
static int read_precision(struct form_reading *r)
{
    static const char *const words[] = { "bf16-true", "bf16-mixed", "16-mixed", "32-true", NULL };
    bool packs = form_value(r->file->doc, "quantize") != NULL;
    int precision = form_word(r, "precision", words, 1);

    if (!form_value(r->file->doc, "precision"))
        notes_add(r->notes, "precision is not given: litgpt's default is bf16-mixed: weights and states in fp32");
    if (packs && (precision == 1 || precision == 2))
        form_fail(r, "precision: %s beside quantize, where litgpt stops (\"Quantization and mixed precision is not supported.\"): bf16-true", words[precision]);
    return precision;
}

static int read(const struct form_file *f, struct plan *p, struct notes *notes)
{
    static const char *const ours[] = { "bf16", "bf16", "fp16", "fp32" };
    bool alone = p->cluster.world_size == 1, lora = adapts(f);
    struct form_reading r;

    form_begin(&r, f, rows, FORM_COUNT(rows), notes);
    bool ties = form_true(&r, "train.tie_embeddings", false);
    if (ties && !p->model.tied)
        notes_add(notes, "train.tie_embeddings: the plan has %s's embedding and head as two tensors", p->model.name);
    if ((!ties && p->model.tied && untie(f, p, notes) < 0) || (!strcmp(p->model.family, "phi3") && as_llama(f, p) < 0))
        form_fail(&r, "model: litgpt's own form of it is not made");
    int precision = read_precision(&r);
    form_set(&r, "strategy", json_string(alone ? "ddp" : "fsdp"));
    form_set(&r, "dropout", json_real(0));      /* its GPT has none, whatever the config says (model.py) */
    form_set(&r, "dialect", json_string(alone || lora ? "torch" : "torch-fsdp1"));
    form_set(&r, "precision", json_string(ours[precision]));
    form_set(&r, alone ? "ddp.model_dtype" : "fsdp.model_dtype", precision == 0 ? json_string("bf16") : json_null());
    if (!alone && !lora) {
        form_set(&r, "fsdp.use_orig_params", json_true());
        form_set(&r, "fsdp.limit_all_gathers", json_true());
        form_set(&r, "fsdp.sharding_strategy", json_string("FULL_SHARD"));
    }
    if (!alone)
        form_set(&r, "recompute", json_string("full"));
    bool autocast = lora && form_value(f->doc, "quantize");     /* that of plans with packed weights: its cross-entropy is in fp32 */
    bool head = form_true(&r, "lora_head", false);              /* adapters that a loss by the head's weight would leave out */
    form_set(&r, "loss", json_string(autocast ? (head ? "fp32" : "chunked") : precision == 0 ? "bf16" : "fp32"));
    if (!alone && (precision == 1 || precision == 2)) {
        if (!lora)
            form_set(&r, "reduce_dtype", json_string(ours[precision]));
        notes_add(notes, "precision: Fabric's mixed precision gathers weights in fp32 and casts them under autocast: the plan gathers %s", ours[precision]);
    }
    notes_add(notes, "loss: litgpt cuts head and loss into chunks of 128 tokens and computes in the logits' dtype: the plan holds the whole logits%s",
              !autocast ? "" : head ? ", and in fp32 what the loss keeps of them: an upper bound" : ", and its chunks compute in fp32");
    form_set(&r, "clip", json_null());
    note_devices(&r, p);
    read_base(&r, p);
    read_batch(&r, p);
    read_optimizer(&r);
    if (lora)
        read_adapters(&r, &p->model, precision == 0);
    int rc = form_end(&r, p);
    if (rc < 0 || !form_value(f->doc, "quantize"))
        return rc;
    return form_bound(f, p, 2 * (double)(p->model.vocab * p->model.token_width), "quantize: StableEmbedding's gradient, which is never cleared", notes);
}

const struct form form_litgpt = {
    .name = "litgpt", .sign = "train.micro_batch_size with checkpoint_dir or model_name",
    .claims = claims, .check = check, .model = model, .read = read, .rows = rows, .nrows = FORM_COUNT(rows),
};
