/* form_primerl.c -- prime-rl's fine-tuning (`sft @ sft.toml`; prime_rl/configs/sft.py and trainer.py, November 2026): [model], [data],
 * [optim].  Its runs of reinforcement learning are phase plans (sim/plan/phases_primerl.c), whose trainer is read here.
 *
 * What its trainer does (prime_rl/trainer/model.py, sft/train.py): FSDP2, a unit a block; weights in model.optimization_dtype
 * (fp32), compute in bf16, gradients reduced in model.reduce_dtype (fp32).  Usual values decide much: every block is
 * recomputed and compiled, what blocks keep waits in host memory, and so do optimizer states between steps.  A micro-step
 * is one row of micro_batch_size x seq_len tokens. */
#include <string.h>

#include "base/fail.h"
#include "model/exchange/unread.h"
#include "model/form/form_bound.h"
#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/form/form_rows.h"
#include "model/plan/root_units.h"

static const struct form_row rows[] = {
    { "model.name", ROW_READ, NULL }, { "model.optimization_dtype", ROW_READ, NULL }, { "model.reduce_dtype", ROW_READ, NULL },
    { "model.compile", ROW_READ, NULL }, { "model.compile.fullgraph", ROW_SILENT, NULL },
    { "model.ac", ROW_READ, NULL }, { "model.ac.mode", ROW_READ, NULL }, { "model.ac.freq", ROW_READ, NULL },
    { "model.ac.targets", ROW_READ, NULL },
    { "model.ac_offloading", ROW_READ, NULL }, { "model.ac_offloading.pin_memory", ROW_SILENT, NULL },
    { "model.ac_offloading.max_inflight_activations", ROW_SILENT, NULL },       /* of streams, which it does not use */
    { "model.fsdp_cpu_offload", ROW_READ, NULL }, { "model.optim_cpu_offload", ROW_READ, NULL },
    { "model.full_offload", ROW_REFUSED, "an optimizer on the host within backward is not planned" },
    { "model.reshard_after_forward", ROW_READ, NULL }, { "model.dp_replicate", ROW_READ, NULL },
    { "model.cp", ROW_READ, NULL }, { "model.cp_style", ROW_READ, NULL }, { "model.ep", ROW_READ, NULL },
    { "model.ep_comm_backend", ROW_READ, NULL }, { "model.deepep_num_sms", ROW_SILENT, NULL },
    { "model.deepep_token_chunk_size", ROW_SILENT, NULL },
    { "model.fused_lm_head_token_chunk_size", ROW_READ, NULL },
    { "model.lora", ROW_READ, NULL }, { "model.lora.rank", ROW_READ, NULL }, { "model.lora.alpha", ROW_READ, NULL },
    { "model.lora.dropout", ROW_READ, NULL }, { "model.lora.target_modules", ROW_READ, NULL }, { "model.lora.modules_to_save", ROW_READ, NULL },
    { "model.vlm", ROW_REFUSED, "models with a vision encoder are not planned" },
    { "model.vlm.*", ROW_REFUSED, "models with a vision encoder are not planned" },
    { "model.quantization.*", ROW_REFUSED, "its float8 of blocks is not modelled" },
    { "model.debug.num_layers", ROW_REFUSED, "another number of layers than the model has: give its config.json with --model" },
    { "model.debug.random_init", ROW_SILENT, NULL }, { "model.debug.force_balanced_routing", ROW_SILENT, NULL },
    { "model.attn", ROW_READ, NULL },
    { "model.impl", ROW_SILENT, NULL }, { "model.seq_len", ROW_SILENT, NULL }, { "model.trust_remote_code", ROW_SILENT, NULL },
    { "model.conversion_dir", ROW_SILENT, NULL },
    { "model.moe_use_grouped_mm", ROW_SILENT, NULL }, { "model.moe_router_dtype", ROW_MATTERS, "routers compute in the plan's precision" },
    { "model.moe_fused_kernel", ROW_MATTERS, "experts' products are planned as grouped products" },
    { "model.freeze_moe_router", ROW_REFUSED, "frozen routers are not planned" },
    { "model.index_cache.*", ROW_REFUSED, "sparse attention is not modelled" },
    { "data.type", ROW_SILENT, NULL }, { "data.seq_len", ROW_READ, NULL }, { "data.batch_size", ROW_READ, NULL },
    { "data.micro_batch_size", ROW_READ, NULL }, { "data.name", ROW_SILENT, NULL }, { "data.subsets", ROW_SILENT, NULL },
    { "data.splits", ROW_SILENT, NULL }, { "data.probabilities", ROW_SILENT, NULL }, { "data.stopping_strategy", ROW_SILENT, NULL },
    { "data.shuffle", ROW_SILENT, NULL }, { "data.seed", ROW_SILENT, NULL }, { "data.num_workers", ROW_SILENT, NULL },
    { "data.length", ROW_SILENT, NULL }, { "data.input_ids", ROW_SILENT, NULL }, { "data.loss_mask.*", ROW_SILENT, NULL },
    { "optim.type", ROW_READ, NULL }, { "optim.max_norm", ROW_READ, NULL }, { "optim.lr", ROW_SILENT, NULL },
    { "optim.weight_decay", ROW_SILENT, NULL }, { "optim.betas1", ROW_SILENT, NULL }, { "optim.betas2", ROW_SILENT, NULL },
    { "deployment.type", ROW_READ, NULL }, { "deployment.num_train_gpus", ROW_READ, NULL },
    { "deployment.num_train_nodes", ROW_READ, NULL },
    { "deployment.gpus_per_node", ROW_READ, NULL }, { "deployment.nodes_per_fsdp_group", ROW_READ, NULL },
    { "deployment.num_infer_gpus", ROW_SILENT, NULL }, { "deployment.num_eval_gpus", ROW_SILENT, NULL },
    { "deployment.num_infer_nodes", ROW_SILENT, NULL }, { "deployment.num_eval_nodes", ROW_SILENT, NULL },
    { "max_steps", ROW_SILENT, NULL }, { "scheduler.*", ROW_SILENT, NULL }, { "ckpt.*", ROW_SILENT, NULL },
    { "resume.*", ROW_SILENT, NULL },
    { "val.*", ROW_SILENT, NULL }, { "eval.*", ROW_SILENT, NULL }, { "inference.*", ROW_SILENT, NULL },
    { "weight_broadcast.*", ROW_SILENT, NULL },
    { "tokenizer.*", ROW_SILENT, NULL }, { "renderer.*", ROW_SILENT, NULL }, { "log.*", ROW_SILENT, NULL },
    { "monitors.*", ROW_SILENT, NULL },
    { "wandb.*", ROW_SILENT, NULL }, { "run.*", ROW_SILENT, NULL }, { "slurm.*", ROW_SILENT, NULL }, { "gc.*", ROW_SILENT, NULL },
    { "heartbeat.*", ROW_SILENT, NULL }, { "env_vars.*", ROW_SILENT, NULL }, { "output_dir", ROW_SILENT, NULL },
    { "clean", ROW_SILENT, NULL },
    { "matmul_precision", ROW_SILENT, NULL }, { "memory_profiler_path", ROW_SILENT, NULL }, { "trace_path", ROW_SILENT, NULL },
    { "dist_timeout_seconds", ROW_SILENT, NULL }, { "dry_run", ROW_SILENT, NULL },
};

/* Runs of reinforcement learning have an orchestrator beside the trainer. */
static bool is_rl(const struct form_file *f)
{
    return json_is_object(json_object_get(f->doc, "orchestrator")) && json_is_object(json_object_get(f->doc, "trainer"));
}

/* A [data] with a batch is many programs'. */
static bool claims(const struct form_file *f)
{
    static const char *const own[] = { "data.loss_mask", "model.ac_offloading", "model.optimization_dtype", "model.optim_cpu_offload" };
    bool has = is_rl(f) || (form_value(f->doc, "data.batch_size") && form_value(f->doc, "data.seq_len"));

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        has = has || form_value(f->doc, own[i]);
    return f->kind == FORM_TOML && has;
}

static int check(const struct form_file *f)
{
    return is_rl(f) ? fail("%s: orchestrator: a run of reinforcement learning is a phase plan: dpxplan phases, or dpxplan import FILE --cluster", f->path) : 0;
}

static const char *model(const struct form_file *f)
{
    return json_string_value(form_value(f->doc, "model.name"));
}

/* Is the section, on unless it is told otherwise, left out?  TOML has no null: "None" stands for it. */
static bool is_none(struct form_reading *r, const char *path)
{
    const json_t *v = form_value(r->file->doc, path);
    const char *word = json_string_value(v);
    bool none = word && (!strcmp(word, "None") || !strcmp(word, "null") || !strcmp(word, "none"));

    if (v && !none && !json_is_object(v) && !json_is_true(v))
        form_fail(r, "%s: expected a section, or \"None\"", path);
    return none;
}

static const char *const dtypes[] = { "float32", "bfloat16", NULL };

static bool has_lora(struct form_reading *r) { return form_value(r->file->doc, "model.lora") && !is_none(r, "model.lora"); }

/* GPUs and nodes that the file states must be the cluster's. */
static void note_deployment(struct form_reading *r, const struct plan *p)
{
    static const char *const types[] = { "single_node", "multi_node", NULL };
    bool several = form_word(r, "deployment.type", types, 0) == 1;
    int64_t node = form_count(r, "deployment.gpus_per_node", 8), world = p->cluster.world_size;
    int64_t stated = several ? node * form_count(r, "deployment.num_train_nodes", 2) : form_count(r, "deployment.num_train_gpus", world);

    unread_ranks(r->notes, "deployment", stated, world);
}

static int64_t copies(struct form_reading *r)
{
    int64_t nodes = form_count(r, "deployment.num_train_nodes", 2), each = form_count(r, "deployment.nodes_per_fsdp_group", nodes);

    return nodes > each && nodes % each == 0 ? nodes / each : form_count(r, "model.dp_replicate", 1);
}

static void read_sharding(struct form_reading *r, const struct plan *p)
{
    static const char *const styles[] = { "ring", "ulysses", NULL };
    int64_t cp = form_count(r, "model.cp", 1), world = p->cluster.world_size, replicate = copies(r), expert = 1;
    int style = form_word(r, "model.cp_style", styles, 0);

    if (world % replicate || world / replicate % cp) {
        form_fail(r, "model: dp_replicate %lld x cp %lld do not divide the cluster's %lld GPUs", (long long)replicate, (long long)cp, (long long)world);
        return;
    }
    if (p->model.experts > 0 && !json_is_integer(form_value(r->file->doc, "model.ep")))
        expert = world / replicate < 8 ? world / replicate : 8;             /* "auto": resolve_ep() */
    else if (json_is_integer(form_value(r->file->doc, "model.ep")))
        expert = form_count(r, "model.ep", 1);
    if (expert > 1)
        form_set(r, "parallel.expert", json_integer(expert));
    if (cp > 1) {
        form_set(r, "parallel.context", json_integer(cp));
        form_set(r, "parallel.context_method", json_string(style ? "ulysses" : "all-gather"));
        form_set(r, "parallel.context_balance", json_false());
        if (!style)
            notes_add(r->notes, "model.cp_style: its ring gathers keys and values one head at a time: planned as one gather of all");
    }
    if (replicate > 1)
        form_set(r, "shard_group", json_integer(world / replicate));
    if (form_word(r, "model.ep_comm_backend", (const char *const[]){ "torch", "deepep", NULL }, 0) == 1)
        form_fail(r, "model.ep_comm_backend: DeepEP's exchange of tokens is not modelled");
}

static void read_batch(struct form_reading *r, const struct plan *p)
{
    int64_t each = form_count(r, "data.micro_batch_size", 1), global = form_count(r, "data.batch_size", 128);

    form_set(r, "seq", json_integer(form_count(r, "data.seq_len", 128)));
    form_set(r, "micro_batch", json_integer(each));
    form_set(r, "accumulation", json_integer(form_micro_steps(r, p, "data.batch_size", global, each)));
}

static void read_recompute(struct form_reading *r)
{
    static const char *const modes[] = { "full", "selective", NULL };
    bool away = !is_none(r, "model.ac_offloading"), on = !is_none(r, "model.ac") || away;   /* ac_offloading_requires_ac() */
    int64_t every = form_count(r, "model.ac.freq", 1);

    if (form_word(r, "model.ac.mode", modes, 0) == 1)
        form_fail(r, "model.ac.mode: selective: recompute of parts by name (model.ac.targets) is not planned");
    if (on)
        form_set(r, "recompute", json_string(away ? "offload" : "full"));
    if (on && every > 1)
        form_set(r, "recompute_interval", json_integer(every));
    if (away && every > 1)
        form_fail(r, "model.ac.freq: blocks that keep all of their activations on the host (model.ac_offloading%s) are not planned",
                  form_value(r->file->doc, "model.ac_offloading") ? "" : ", which is usual");
    if (away && !form_value(r->file->doc, "model.ac_offloading"))
        notes_add(r->notes, "model.ac_offloading is usual: inputs of recomputed blocks wait in host memory");
}

/* Of a block that is checkpointed and compiled AOTAutograd saves inputs alone, as of one that is not compiled, and the rotary tables
 * (tests/golden/offload/hooks.py).  A plan's blocks are not compiled beside positions on several ranks, or adapters. */
static void read_compile(struct form_reading *r)
{
    bool on = !is_none(r, "model.compile"), cut = form_count(r, "model.cp", 1) > 1, lora = has_lora(r);

    form_set(r, "kernels", json_string(on && !cut && !lora ? "torch-compile" : "torch-sdpa"));
    if (on && cut)
        form_fail(r, "model.compile%s: compiled blocks beside cp are not planned: set one of them to \"None\"",
                  form_value(r->file->doc, "model.compile") ? "" : " (usual)");
    if (on && lora)
        notes_add(r->notes, "model.compile: blocks with adapters are planned uncompiled: they take more memory and time than compiled ones");
}

static const char *const attentions[] = { "auto", "flash_attention_2", "flash_attention_3", "flash_attention_4", NULL };

/* trainer/model.py, resolve_auto_attn(): by compute capability.  Of the finished plan. */
static void put_attention(struct plan *p, int said, struct notes *notes)
{
    int arch = p->cluster.gpu.sm_arch;

    form_put_attention(p, "model.attn", attentions[said > 0 ? said : arch == 100 ? 3 : arch == 90 ? 2 : 1], notes);
}

/* The base's weights and the adapters are in optimization_dtype both (lora.py: apply_lora_to_model()). */
static void read_lora(struct form_reading *r)
{
    const json_t *targets = form_value(r->file->doc, "model.lora.target_modules"), *saved = form_value(r->file->doc, "model.lora.modules_to_save");

    if (!has_lora(r))
        return;
    form_set(r, "train", json_string("lora"));
    form_set(r, "lora.rank", json_integer(form_count(r, "model.lora.rank", 16)));
    form_set(r, "lora.alpha", json_real(form_number(r, "model.lora.alpha", 32)));
    form_set(r, "lora.dropout", json_real(form_number(r, "model.lora.dropout", 0)));
    form_set(r, "lora.target_modules", targets ? json_deep_copy(targets) : json_string("all-linear"));
    if (json_array_size(saved) > 0)
        form_set(r, "lora.modules_to_save", json_deep_copy(saved));
    if (form_word(r, "model.optimization_dtype", dtypes, 0) == 0)
        form_set(r, "fsdp.model_dtype", json_string("fp32"));
}

/* trainer/models/layers/moe.py; experts of other ranks are planned so anyway. */
static void read_experts(struct form_reading *r, const struct plan *p)
{
    if (family_for(&p->model)->autoep && !model_blocks_differ(&p->model) && !form_value(r->plan, "parallel.expert"))
        form_set(r, "fsdp.grouped_experts", json_true());
}

static void read_optimizer(struct form_reading *r)
{
    static const char *const types[] = { "adamw", NULL };
    bool away = form_true(r, "model.optim_cpu_offload", true), cpu = form_true(r, "model.fsdp_cpu_offload", false);

    form_word(r, "optim.type", types, 0);
    form_set(r, "optimizer_form", json_string(away || cpu ? "foreach" : "fused"));
    form_set(r, "clip", is_none(r, "optim.max_norm") ? json_null() : json_real(form_number(r, "optim.max_norm", 1)));
    if (away && cpu)
        form_fail(r, "model.fsdp_cpu_offload: prime-rl refuses it beside optim_cpu_offload, which is usual: set that to false");
    if (cpu) {
        form_set(r, "fsdp.cpu_offload", json_true());
        notes_add(r->notes, "optim: fused AdamW on the host is planned as a loop over tensors");
    }
    if (away && !cpu)
        form_set(r, "fsdp.optimizer_offload", json_true());
}

/* models/layers/lm_head.py: products of 8192 tokens with 8192 columns, forward and again in backward, each followed by passes over logits in fp32: as
 * verl's chunks of 512 tokens with all columns are, which are planned.  A ring has no such plan: cut cross-entropy's kernel, which is faster. */
static void read_head(struct form_reading *r)
{
    static const char key[] = "model.fused_lm_head_token_chunk_size";
    const char *chunk = json_string_value(form_value(r->file->doc, key)), *method = json_string_value(form_value(r->plan, "parallel.context_method"));
    bool vanilla = chunk && !strcmp(chunk, "disabled"), ring = method && !strcmp(method, "all-gather");

    if (!vanilla)
        form_count(r, key, 8192);
    form_set(r, "loss", json_string(vanilla ? "fp32" : ring ? "cut-cross-entropy" : "actor-chunks"));
    if (!vanilla && ring)
        notes_add(r->notes, "%s: chunks of the head are planned as cut cross-entropy, whose kernel keeps no logits and passes over none: a lower bound of the head's "
                  "memory and time", key);
}

/* What backward has at once beside the gradient of hidden states.  verl's (tape_actor.c): of 512 rows with all columns 20 bytes, or 14 beside a product's
 * gradient of the whole weight; the chunk's before and, where the weight trains, their sum stay.  prime-rl's (_SequenceChunkedLogProbEntropyFn.backward()): of
 * `chunk` rows with 8192 columns 22 bytes, 18 where there is no chunk before, and the sum. */
static double head_more(const struct plan *p, double chunk)
{
    double tokens = (double)(p->micro_batch * plan_rank_seq(p)), vocab = (double)p->model.vocab, sums = training_is_lora(&p->train) ? 0 : 1;
    double some = tokens < 512 ? tokens : 512, weight = 2 * vocab * (double)p->model.hidden, before = tokens > 512 ? 1 : 0;
    double few = 20 * some * vocab + (sums + before) * weight, wide = 14 * some * vocab + (sums + before + 1) * weight;
    double at_once = tokens < chunk ? tokens : chunk, columns = vocab < 8192 ? vocab : 8192;

    return (few > wide ? few : wide) - ((tokens <= chunk && vocab <= 8192 ? 18 : 22) * at_once * columns + sums * weight);
}

static void note_head(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    static const char key[] = "model.fused_lm_head_token_chunk_size";
    const json_t *chunk = form_value(f->doc, key);
    double more = head_more(p, json_is_integer(chunk) ? (double)json_integer_value(chunk) : 8192);

    if (p->loss == LOSS_ACTOR_CHUNKS)
        notes_add(notes, "%s: chunks of the head are planned as verl's (actor-chunks), which take as many passes and at their largest moment %.2g GB %s", key,
                  1e-9 * (more < 0 ? -more : more), more < 0 ? "less" : "more");
}

/* Evaluations on GPUs of their own (sft/train.py). */
static void note_engine(const struct form_file *f, struct notes *notes)
{
    if (json_is_object(form_value(f->doc, "inference")))
        notes_add(notes, "inference: an engine on GPUs of its own evaluates each eval.interval steps: neither it nor the time in which weights go there is in the plan");
}

/* setup_fsdp() (trainer/model.py): an untied embedding is a unit, head and last norm are another, which stays gathered; else
 * the root has them, and is freed as blocks are. */
static void set_units(struct plan *p, struct notes *notes)
{
    if (p->model.tied)
        return;
    p->fsdp.root_units = root_units_of_primerl(p);
    if (p->fsdp.root_units == ROOT_TOGETHER)
        notes_add(notes, "model: prime-rl's embedding is a unit of its own, freed after forward: the plan keeps it with head and norm (%s)", root_units_refused(p));
}

/* Usual target_modules have "experts": adapters of all experts' three products (layers/lora/multi_moe.py).  Of each weights, gradients and two moments
 * in fp32 on the rank that has them, two blocks' gathered in bf16 with gradients in fp32; of a block's tokens what adapters add, its sum with what the
 * experts gave, and the gradients of both. */
static double expert_adapters(struct form_reading *r, const struct plan *p)
{
    const json_t *targets = form_value(r->file->doc, "model.lora.target_modules"), *t;
    const struct model *m = &p->model;
    bool named = !targets;
    size_t i;

    if (p->fsdp.grouped_experts && p->train.grouped)        /* the plan has them */
        return 0;

    json_array_foreach((json_t *)(uintptr_t)targets, i, t)
        named |= json_string_value(t) && strstr(json_string_value(t), "experts");
    if (!has_lora(r) || m->experts == 0 || !named)
        return 0;
    double block = 3.0 * (double)m->experts * (double)p->train.rank * (double)(m->hidden + m->expert_ffn);
    double tokens = (double)p->micro_batch * (double)plan_rank_seq(p) * (double)m->experts_used;

    return block * (double)m->layers * 16 / (double)p->cluster.world_size + block * 2 * (2 + 6) + tokens * (double)(2 * m->expert_ffn + m->hidden) * 2 * 4;
}

static int read(const struct form_file *f, struct plan *p, struct notes *notes)
{
    struct form_reading r;

    form_begin(&r, f, rows, FORM_COUNT(rows), notes);
    form_set(&r, "strategy", json_string("fsdp"));
    form_set(&r, "dialect", json_string("torch"));
    form_set(&r, "precision", json_string("bf16"));
    if (form_word(&r, "model.optimization_dtype", dtypes, 0) == 1)
        form_set(&r, "fsdp.model_dtype", json_string("bf16"));
    form_set(&r, "reduce_dtype", json_string(form_word(&r, "model.reduce_dtype", dtypes, 0) ? "bf16" : "fp32"));
    if (form_value(f->doc, "model.reshard_after_forward"))
        form_set(&r, "fsdp.reshard_after_forward", json_boolean(form_true(&r, "model.reshard_after_forward", true)));
    if (p->model.tied && form_true(&r, "model.reshard_after_forward", true))
        form_set(&r, "fsdp.root_reshard_after_forward", json_true());
    note_deployment(&r, p);
    read_sharding(&r, p);
    read_batch(&r, p);
    read_recompute(&r);
    read_compile(&r);
    read_lora(&r);
    read_experts(&r, p);
    read_optimizer(&r);
    read_head(&r);
    int attention = form_word(&r, "model.attn", attentions, 0);
    if (form_end(&r, p) < 0)
        return -1;
    set_units(p, notes);
    put_attention(p, attention, notes);
    note_head(f, p, notes);
    note_engine(f, notes);
    double beside = expert_adapters(&r, p);
    return beside > 0 ? form_bound(f, p, beside, "model.lora: adapters of experts, whose time is not in the step either,", notes) : 0;
}

/* DEFAULT_TRAINER_ENV_VARS (utils/process.py), which env_vars change. */
static void allocator(const struct form_file *f, struct plan *p, struct notes *notes)
{
    (void)f;
    if (*p->environment.alloc_conf)
        return;
    snprintf(p->environment.alloc_conf, sizeof p->environment.alloc_conf, "expandable_segments:True");
    notes_add(notes, "prime-rl sets PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True of its trainer unless env_vars have another: it is in the plan's environment");
}

const struct form form_primerl = {
    .name = "prime-rl", .sign = "TOML: [data] batch_size and seq_len, [model] optimization_dtype; [orchestrator] and [trainer]",
    .claims = claims, .check = check, .model = model, .read = read, .allocator = allocator, .rows = rows, .nrows = FORM_COUNT(rows),
};
