/* accelerate_export.c -- a plan as an accelerate config.  What accelerate has no
 * words for is refused by name; batch sizes, accumulation and clipping belong to
 * the training script. */
#include "model/exchange/accelerate.h"

#include <string.h>

#include "base/fail.h"
#include "model/exchange/export.h"
#include "model/plan/attention.h"
#include "model/plan/knob.h"

static json_t *refuse(const char *key, const char *why)
{
    fail("export to accelerate: %s: %s", key, why);
    return NULL;
}

static void put(json_t *doc, const char *key, json_t *v)
{
    json_object_set_new(doc, key, v);
}

/* A knob's value in accelerate's words. */
static json_t *value(const struct plan *p, const struct knob *k)
{
    const struct knob_name *n = &k->accelerate;

    if (k->type == KNOB_WORD)
        return json_string((n->words ? n->words : k->words)[(int)knob_get(p, k)]);
    if (k->type == KNOB_RESHARD)
        return json_boolean(p->fsdp.reshard_after_forward != 0);
    return k->type == KNOB_REAL ? json_real(knob_get(p, k)) : knob_write(p, k);
}

/* Writes a knob of the plan itself into accelerate's section, where that has it. */
static void put_knob(json_t *section, const struct plan *p, const char *name)
{
    const struct knob *k = knob_find("", name, knob_cell(p));

    put(section, knob_spelt(k, &k->accelerate), value(p, k));
}

/* The options of one object that accelerate has, into its section; the first one that it cannot say is
 * refused: 0, or -1. */
static int put_options(json_t *section, const struct plan *p, const char *object)
{
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++) {
        bool kept = !strcmp(k->name, "model_dtype") && plan_has_wide_adapters(p);       /* prepare_model() leaves what is frozen */
        if (!knob_concerns(k, &k->accelerate, knob_cell(p)) || strcmp(k->object, object) || kept)
            continue;
        if (!knob_sayable(p, k, &k->accelerate)) {
            char key[96];
            knob_key_text(k, key, sizeof key);
            refuse(key, k->accelerate.lacks);
            return -1;
        }
        if (k->accelerate.section)
            put(section, knob_spelt(k, &k->accelerate), value(p, k));
    }
    return 0;
}

static json_t *common(const struct plan *p, const char *type)
{
    json_t *doc = json_object();

    put(doc, "compute_environment", json_string("LOCAL_MACHINE"));
    put(doc, "debug", json_false());
    put(doc, "distributed_type", json_string(type));
    put(doc, "machine_rank", json_integer(0));
    put(doc, "main_training_function", json_string("main"));
    put_knob(doc, p, "precision");
    put(doc, "num_machines", json_integer(p->cluster.nodes));
    put(doc, "num_processes", json_integer(p->cluster.world_size));
    put(doc, "rdzv_backend", json_string(p->cluster.nodes > 1 ? "c10d" : "static"));
    put(doc, "same_network", json_true());
    put(doc, "use_cpu", json_false());
    return doc;
}

/* Options common to FSDP 1 and 2, or NULL when one cannot be expressed. */
static json_t *fsdp_section(const struct plan *p, int version)
{
    const char *layer = export_block_class(p);
    json_t *fsdp;

    if (p->unit != UNIT_BLOCK && p->unit != UNIT_MODEL)
        return refuse("unit", "only whole blocks (TRANSFORMER_BASED_WRAP) or the whole model (NO_WRAP)");
    if (p->unit == UNIT_BLOCK && !layer)
        return refuse("model", "the block's class in transformers is not known");
    if (p->reduce_dtype != p->precision)
        return refuse("reduce_dtype", "accelerate reduces in the precision of compute");
    if (p->recompute == RECOMPUTE_SELECTIVE || p->recompute == RECOMPUTE_MODULES || p->recompute == RECOMPUTE_OP || p->recompute_interval > 1)
        return refuse("recompute", "accelerate recomputes whole blocks, all or none");
    fsdp = json_object();
    put(fsdp, "fsdp_version", json_integer(version));
    put(fsdp, "fsdp_auto_wrap_policy",
        json_string(p->unit == UNIT_BLOCK ? "TRANSFORMER_BASED_WRAP" : "NO_WRAP"));
    if (p->unit == UNIT_BLOCK)
        put(fsdp, "fsdp_transformer_layer_cls_to_wrap", json_string(layer));
    put(fsdp, "fsdp_activation_checkpointing", json_boolean(recompute_whole(p->recompute)));
    if (version == 2)
        put(fsdp, "fsdp_activation_checkpointing_offload", json_boolean(p->recompute == RECOMPUTE_OFFLOAD));
    else if (p->recompute == RECOMPUTE_OFFLOAD) {
        json_decref(fsdp);
        return refuse("recompute", "accelerate offloads checkpoints with FSDP2 only");
    }
    put(fsdp, "fsdp_cpu_ram_efficient_loading", json_true());
    put(fsdp, "fsdp_state_dict_type", json_string("SHARDED_STATE_DICT"));
    if (put_options(fsdp, p, "fsdp") < 0) {
        json_decref(fsdp);
        return NULL;
    }
    return fsdp;
}

static json_t *export_fsdp1(const struct plan *p)
{
    json_t *doc, *fsdp;

    if (p->fsdp.sharding_strategy >= FSDP1_HYBRID_SHARD
        && p->shard_group != p->cluster.gpus_per_node)
        return refuse("shard_group", "hybrid sharding takes one node as the group");
    if (!(fsdp = fsdp_section(p, 1)))
        return NULL;
    put(fsdp, "fsdp_sync_module_states", json_true());
    doc = common(p, "FSDP");
    put(doc, "fsdp_config", fsdp);
    return doc;
}

static json_t *export_fsdp2(const struct plan *p)
{
    json_t *doc, *fsdp, *mesh;

    if (!(fsdp = fsdp_section(p, 2)))
        return NULL;
    doc = common(p, "FSDP");
    put(doc, "fsdp_config", fsdp);
    if (p->shard_group != p->cluster.world_size) {
        mesh = json_object();
        put(mesh, "parallelism_config_dp_replicate_size",
            json_integer(p->cluster.world_size / p->shard_group));
        put_knob(mesh, p, "shard_group");
        put(doc, "parallelism_config", mesh);
    }
    return doc;
}

/* Without a file of its own, DeepSpeed runs on its defaults: nothing else may
 * differ from them. */
static json_t *export_deepspeed(const struct plan *p)
{
    static const int stage_of[NSTRATEGY] = { [STRAT_ZERO1] = 1, [STRAT_ZERO2] = 2, [STRAT_ZERO3] = 3 };
    static const char *const device_words[] = { [OFFLOAD_NONE] = "none", [OFFLOAD_CPU] = "cpu", [OFFLOAD_NVME] = "nvme" };
    json_t *doc, *ds;
    char name[EXPORT_KEY];
    const char *option = export_first_changed(p, "deepspeed", KNOB_ACCELERATE, name);

    if (option)
        return refuse(option, "accelerate takes it only from a DeepSpeed file: export --to deepspeed "
                              "and name that file in deepspeed_config_file");
    if (p->recompute != RECOMPUTE_NONE)
        return refuse("recompute", "DeepSpeed leaves it to the model (gradient_checkpointing_enable)");
    if (p->ds.offload_param.device == OFFLOAD_NVME
        || (p->ds.offload_optimizer.device == OFFLOAD_NVME && p->strategy == STRAT_ZERO3))
        return refuse("deepspeed.offload_optimizer", "accelerate launch does not pass nvme_path on: export --to deepspeed and "
                      "name that file in deepspeed_config_file");
    doc = common(p, "DEEPSPEED");
    ds = json_object();
    put(ds, "zero_stage", json_integer(stage_of[p->strategy]));
    put_knob(ds, p, "accumulation");
    put_knob(ds, p, "clip");
    put(ds, "offload_optimizer_device", json_string(device_words[p->ds.offload_optimizer.device]));
    put(ds, "offload_param_device", json_string(device_words[p->ds.offload_param.device]));
    put(ds, "zero3_init_flag", json_boolean(p->strategy == STRAT_ZERO3 && p->ds.zero_init));
    put(ds, "zero3_save_16bit_model", json_false());
    put(doc, "deepspeed_config", ds);
    return doc;
}

static json_t *export_ddp(const struct plan *p)
{
    char name[EXPORT_KEY];
    const char *option = export_first_changed(p, "ddp", KNOB_ACCELERATE, name);

    if (option)
        return refuse(option, "a DistributedDataParallelKwargs of the script, not of the config");
    if (p->recompute != RECOMPUTE_NONE)
        return refuse("recompute", "left to the model (gradient_checkpointing_enable)");
    if (p->attention != ATTENTION_BY_SDPA)
        return refuse("attention", knob_find("", "attention", knob_cell(p))->accelerate.lacks);
    return common(p, p->cluster.world_size > 1 ? "MULTI_GPU" : "NO");
}

/* A value that accelerate has neither a key nor another place for.  The optimizer is the script's. */
static bool lacks(const struct plan *p)
{
    const struct knob *k;
    char key[96];

    for (int i = 0; (k = knob_at(i)); i++) {
        const struct knob_name *n = &k->accelerate;
        if (k->object[0] || n->section || !n->lacks || !strcmp(k->name, "optimizer") || !knob_concerns(k, n, knob_cell(p)) || knob_idle(p, k) ||
            knob_sayable(p, k, n))
            continue;
        knob_key_text(k, key, sizeof key);
        refuse(key, n->lacks);
        return true;
    }
    if (p->kernels == KERNELS_TORCH_COMPILE)
        refuse("kernels", "dynamo_config is read, and not written: compile the blocks in the script");
    return p->kernels == KERNELS_TORCH_COMPILE;
}

json_t *accelerate_export(const struct plan *p)
{
    if (lacks(p))
        return NULL;
    if (p->deterministic)
        return refuse("deterministic", "the frameworks have no such reduction");
    if (p->parallel.expert > 1)
        return refuse("parallel.expert", "it has no word for experts over ranks: export --to deepspeed, or --to torchtitan");
    if (p->activation_offload != OFFLOAD_NOTHING)
        return refuse("activation_offload", "it offloads the inputs of checkpointed layers alone (recompute \"offload\")");
    if (p->dialect == DIALECT_DEEPSPEED)
        return export_deepspeed(p);
    if (p->dialect == DIALECT_TORCH_FSDP1)
        return export_fsdp1(p);
    if (p->dialect == DIALECT_TORCH && p->strategy == STRAT_FSDP)
        return export_fsdp2(p);
    if (p->dialect == DIALECT_TORCH && p->strategy == STRAT_DDP)
        return export_ddp(p);
    fail("export to accelerate: strategy: it has no %s of dialect %s", strategy_name(p->strategy),
         dialect_name(p->dialect));
    return NULL;
}
