/* accelerate.c -- accelerate configs, read as `accelerate launch` 1.15 reads
 * them: commands/launch.py (defaults of the arguments), utils/dataclasses.py
 * (FullyShardedDataParallelPlugin, DeepSpeedPlugin), utils/fsdp_utils.py. */
#include "model/arch/training.h"
#include "model/exchange/accelerate.h"
#include "model/exchange/accelerate_checks.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/yaml.h"
#include "model/exchange/ds_config.h"
#include "model/exchange/export.h"
#include "model/exchange/recipe_compile.h"
#include "model/exchange/unread.h"
#include "model/plan/attention.h"
#include "model/plan/knob.h"
#include "model/plan/root_units.h"

struct import {
    const char   *where;
    struct plan  *p;
    struct notes *notes;
};

static bool listed(const char *const *list, const char *name)
{
    for (int i = 0; list[i]; i++)
        if (!strcmp(list[i], name))
            return true;
    return false;
}

/* ---- values of a section ---- */

/* accelerate passes everything through the environment, so "true" and true are
 * the same to it.  `out` keeps its value where the key is absent or null. */
static int get_bool(const struct import *in, const json_t *section, const char *key, bool *out)
{
    const json_t *v = json_object_get(section, key);
    const char *s = json_string_value(v);

    if (!v || json_is_null(v))
        return 0;
    if (json_is_boolean(v))
        *out = json_is_true(v);
    else if (s && (!strcasecmp(s, "true") || !strcasecmp(s, "false")))
        *out = !strcasecmp(s, "true");
    else
        return fail("%s: %s: expected true or false", in->where, key);
    return 0;
}

static int get_count(const struct import *in, const json_t *section, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(section, key);

    if (!v || json_is_null(v))
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 1)
        return fail("%s: %s: expected a positive whole number", in->where, key);
    *out = json_integer_value(v);
    return 0;
}

/* The index of a word, or the number minus one, as accelerate takes both. */
static int get_word(const struct import *in, const json_t *section, const char *key,
                    const char *const *words, int *out)
{
    const json_t *v = json_object_get(section, key);
    const char *s = json_string_value(v);
    int64_t number = json_integer_value(v) - 1;

    if (!v || json_is_null(v))
        return 0;
    for (int i = 0; words[i]; i++)
        if ((s && !strcasecmp(s, words[i])) || (json_is_integer(v) && number == i)) {
            *out = i;
            return 0;
        }
    return fail("%s: %s: \"%s\" is not one of accelerate's values", in->where, key, s ? s : "?");
}

/* The value of a knob by its own name in accelerate. */
static int get_knob(const struct import *in, const json_t *section, const struct knob *k)
{
    const struct knob_name *n = &k->accelerate;
    const char *key = knob_spelt(k, n);
    int word = (int)(n->silent ? n->absent : knob_get(in->p, k));
    bool truth = word > 0;

    if ((k->type == KNOB_WORD ? get_word(in, section, key, n->words ? n->words : k->words, &word)
                              : get_bool(in, section, key, &truth)) < 0)
        return -1;
    knob_set(in->p, k, k->type == KNOB_WORD ? word : truth);
    return 0;
}

/* A section may hold only known keys, and those of knobs; those for which plans have nothing are
 * ignored, and `refused` ones are refused when on. */
static int check_keys(const struct import *in, const json_t *section, const char *of, const char *const *known,
                      const char *const *refused, const char *why)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)section, name, v) {
        bool on = json_is_true(v) || (json_is_string(v) && !strcasecmp(json_string_value(v), "true"))
               || (json_is_string(v) && strstr(name, "device")
                   && strcasecmp(json_string_value(v), "none"));
        if (listed(refused, name)) {
            if (on)
                return fail("%s: %s: %s", in->where, name, why);
        } else if (!listed(known, name) && !knob_named_cells(KNOB_ACCELERATE, of, name)) {
            notes_add(in->notes, "%s is not known and was ignored", name);
        }
    }
    return 0;
}

/* ---- the cluster and the batch ---- */

/* `NO` unquoted is YAML's false. */
static bool is_alone(const json_t *kind)
{
    return json_is_false(kind) || (json_is_string(kind) && !strcasecmp(json_string_value(kind), "NO"));
}

/* Without a distributed type launch.py has its simple_launcher() start one process, whatever num_processes says. */
static int check_cluster(const struct import *in, const json_t *config)
{
    int64_t processes = 0, machines = 0;
    const struct cluster *c = &in->p->cluster;

    if (is_alone(json_object_get(config, "distributed_type")))
        return c->world_size == 1 ? 0 : fail("%s: distributed_type: NO starts one process: give a cluster of one GPU", in->where);
    if (get_count(in, config, "num_processes", &processes) < 0
        || get_count(in, config, "num_machines", &machines) < 0)
        return -1;
    unread_ranks(in->notes, "num_processes", processes, c->world_size);
    if (machines && machines != c->nodes)
        notes_add(in->notes, "num_machines: the file starts %" PRId64 " nodes, the plan has %" PRId64 ", those of --cluster", machines, (int64_t)c->nodes);
    return 0;
}

static int read_precision(const struct import *in, const json_t *config, enum dtype *out)
{
    const json_t *v = json_object_get(config, "mixed_precision");
    const char *s = json_string_value(v);

    *out = DT_FP32;
    if (!v || json_is_null(v) || json_is_false(v) || (s && !strcasecmp(s, "no")))
        return 0;               /* an unquoted `no` is YAML's false */
    if (s && !strcasecmp(s, "bf16"))
        *out = DT_BF16;
    else if (s && !strcasecmp(s, "fp16"))
        *out = DT_FP16;
    else
        return fail("%s: mixed_precision: \"%s\" is not supported; no, bf16 and fp16 are",
                    in->where, s ? s : "?");
    return 0;
}

/* Batch sizes are the script's, not the file's. */
static void set_batch(const struct import *in, int64_t micro, int64_t steps)
{
    if (micro < 1)
        notes_add(in->notes, "the batch size is in the training script: taken as 1; give "
                  "--micro-batch");
    in->p->micro_batch = micro > 0 ? micro : 1;
    in->p->accumulation = steps > 0 ? steps : 1;
    /* Accelerator.accumulate() is no_sync() on all but the last micro-step */
    if (in->p->dialect != DIALECT_DEEPSPEED && in->p->accumulation > 1)
        in->p->sync_every_micro_step = false;
}

/* ---- FSDP ---- */

static const char *const policies[]   = { "TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP",
                                          NULL };

/* But those of knobs. */
static const char *const fsdp_known[] = {
    "fsdp_version", "fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params",
    "fsdp_backward_prefetch_policy", "fsdp_state_dict_type", "fsdp_cpu_ram_efficient_loading",
    "fsdp_sync_module_states", "fsdp_ignored_modules", "fsdp_activation_checkpointing_offload", "fsdp_limit_all_gathers", NULL
};

static const char *const nothing[] = { NULL };

/* dataclasses.py, FullyShardedDataParallelPlugin.__post_init__, and fsdp2_apply_ac(). */
static int read_checkpointing(const struct import *in, const json_t *fsdp, bool fsdp2)
{
    bool on = false, away = false;

    if (get_bool(in, fsdp, "fsdp_activation_checkpointing", &on) < 0
        || get_bool(in, fsdp, "fsdp_activation_checkpointing_offload", &away) < 0)
        return -1;
    if (away && !on)
        return fail("%s: fsdp_activation_checkpointing_offload: accelerate requires fsdp_activation_checkpointing", in->where);
    if (away && !fsdp2)
        return fail("%s: fsdp_activation_checkpointing_offload: accelerate requires fsdp_version 2", in->where);
    in->p->recompute = away ? RECOMPUTE_OFFLOAD : on ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    return 0;
}

static int read_wrap(const struct import *in, const json_t *fsdp)
{
    int policy = 2;         /* the plugin's own default is NO_WRAP */

    if (get_word(in, fsdp, "fsdp_auto_wrap_policy", policies, &policy) < 0)
        return -1;
    if (policy == 1)
        return fail("%s: fsdp_auto_wrap_policy: SIZE_BASED_WRAP is not supported; "
                    "TRANSFORMER_BASED_WRAP and NO_WRAP are", in->where);
    in->p->unit = policy == 0 ? UNIT_BLOCK : UNIT_MODEL;
    if (policy == 0 && accelerate_check_wrapped(fsdp, in->where, in->p, in->notes) < 0)
        return -1;
    if (json_object_get(fsdp, "fsdp_ignored_modules")
        && !json_is_null(json_object_get(fsdp, "fsdp_ignored_modules")))
        return fail("%s: fsdp_ignored_modules: modules left out of FSDP are not supported",
                    in->where);
    return 0;
}

/* The knobs of the plan's object "fsdp". */
static int read_fsdp_knobs(const struct import *in, const json_t *fsdp)
{
    uint64_t cell = knob_cell(in->p);
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++)
        if (knob_concerns(k, &k->accelerate, cell) && !strcmp(k->object, "fsdp") && k->accelerate.section &&
            k->type != KNOB_RESHARD && get_knob(in, fsdp, k) < 0)
            return -1;
    return 0;
}

static int read_fsdp1(const struct import *in, const json_t *fsdp)
{
    struct plan *p = in->p;

    if (json_object_get(fsdp, "fsdp_backward_prefetch_policy")
        && !json_object_get(fsdp, "fsdp_backward_prefetch"))
        notes_add(in->notes, "fsdp_backward_prefetch_policy is not read by accelerate launch; "
                  "fsdp_backward_prefetch is");
    if (json_object_get(fsdp, "fsdp_reshard_after_forward") && !json_is_null(json_object_get(fsdp, "fsdp_reshard_after_forward")))
        notes_add(in->notes, "fsdp_reshard_after_forward is FSDP2's: with fsdp_version 1 fsdp_sharding_strategy says it");
    if (read_fsdp_knobs(in, fsdp) < 0 || get_bool(in, fsdp, "fsdp_limit_all_gathers", &p->fsdp.limit_all_gathers) < 0)
        return -1;
    if (p->fsdp.sharding_strategy >= FSDP1_HYBRID_SHARD)
        p->shard_group = p->cluster.gpus_per_node;
    return 0;
}

/* parallelism_config's sizes: ParallelismConfig's mesh is (dp_replicate, dp_shard, cp, sp, tp). */
struct mesh_sizes { int64_t replicate, shard, tensor, context, ulysses; };

static int read_sizes(const struct import *in, const json_t *mesh, struct mesh_sizes *s)
{
    *s = (struct mesh_sizes){ 1, 1, 1, 1, 1 };
    if (get_count(in, mesh, "parallelism_config_dp_replicate_size", &s->replicate) < 0
        || get_count(in, mesh, "parallelism_config_dp_shard_size", &s->shard) < 0
        || get_count(in, mesh, "parallelism_config_tp_size", &s->tensor) < 0
        || get_count(in, mesh, "parallelism_config_cp_size", &s->context) < 0
        || get_count(in, mesh, "parallelism_config_sp_size", &s->ulysses) < 0)
        return -1;
    if (s->replicate * s->shard > in->p->cluster.world_size || s->tensor * s->context * s->ulysses > in->p->cluster.world_size
        || s->replicate * s->shard * s->tensor * s->context * s->ulysses != in->p->cluster.world_size)
        return fail("%s: parallelism_config: dp_replicate %" PRId64 " x dp_shard %" PRId64 " x cp %" PRId64 " x sp %" PRId64 " x tp %" PRId64
                    " are not the cluster's %" PRId64 " GPUs", in->where, s->replicate, s->shard, s->context, s->ulysses, s->tensor,
                    in->p->cluster.world_size);
    return 0;
}

/* Of FSDP2: shards lie over dp_shard and cp; tp is transformers' tp_plan, columns and rows without sequence parallelism. */
static int read_mesh(const struct import *in, const json_t *mesh)
{
    static const char *const methods[] = { "allgather", "alltoall" };
    const char *method = json_string_value(json_object_get(mesh, "parallelism_config_cp_comm_strategy"));
    struct parallel_options *of = &in->p->parallel;
    struct mesh_sizes s;

    if (!json_object_size(mesh))
        return 0;
    if (read_sizes(in, mesh, &s) < 0)
        return -1;
    if (s.ulysses > 1)
        return fail("%s: parallelism_config_sp_size: Ulysses is DeepSpeed's: distributed_type DEEPSPEED has it", in->where);
    if (method && strcmp(method, methods[0]) && strcmp(method, methods[1]))
        return fail("%s: parallelism_config_cp_comm_strategy: expected allgather or alltoall", in->where);
    of->tensor = s.tensor;
    of->context = s.context;
    knob_follow(in->p, NULL, NULL);
    of->context_method = method && !strcmp(method, methods[1]) ? CONTEXT_RING : CONTEXT_ALL_GATHER;
    if (s.tensor > 1) {
        of->sequence = of->loss_parallel = false;
        notes_add(in->notes, "parallelism_config_tp_size: planned as column and row cuts without sequence parallelism, logits gathered");
    }
    in->p->shard_group = s.shard * s.context;
    knob_reset_idle(in->p);
    return 0;
}

/* The attention between Ulysses' exchanges (DeepSpeedSequenceParallelConfig). */
static int read_ulysses(const struct import *in, const json_t *mesh)
{
    static const char *const backends[] = { "deepspeed", NULL }, *const attentions[] = { "sdpa", "flash_attention_2", "flash_attention_3", NULL };
    static const enum attention_by by[] = { ATTENTION_BY_SDPA, ATTENTION_BY_FLASH_2, ATTENTION_BY_FLASH_3 };
    bool ignored = false;
    int which = 0;

    if (get_word(in, mesh, "parallelism_config_sp_backend", backends, &which) < 0 || get_bool(in, mesh, "parallelism_config_sp_seq_length_is_variable", &ignored) < 0)
        return -1;
    which = 0;
    if (get_word(in, mesh, "parallelism_config_sp_attn_implementation", attentions, &which) < 0)
        return -1;
    if (attention_takes(in->p, by[which]))
        in->p->attention = by[which];
    return 0;
}

/* Under other distributed types: DeepSpeed has Ulysses, the others no mesh. */
static int read_other_mesh(const struct import *in, const json_t *mesh)
{
    struct mesh_sizes s;

    if (!json_object_size(mesh) || read_sizes(in, mesh, &s) < 0)
        return json_object_size(mesh) ? -1 : 0;
    if (s.tensor > 1 || s.context > 1 || (s.ulysses > 1 && in->p->dialect != DIALECT_DEEPSPEED))
        return fail("%s: parallelism_config: accelerate has %s under FSDP with fsdp_version 2 alone", in->where,
                    s.tensor > 1 ? "tp_size" : s.context > 1 ? "cp_size" : "sp_size (or DEEPSPEED)");
    if (s.ulysses > 1) {
        in->p->parallel.context = s.ulysses;
        knob_follow(in->p, NULL, NULL);
        return read_ulysses(in, mesh);
    }
    return 0;
}

static int read_fsdp2(const struct import *in, const json_t *fsdp)
{
    bool reshard = true, prefetch = false;

    if (read_fsdp_knobs(in, fsdp) < 0 || get_bool(in, fsdp, "fsdp_reshard_after_forward", &reshard) < 0
        || get_bool(in, fsdp, "fsdp_forward_prefetch", &prefetch) < 0)
        return -1;
    if (prefetch)
        return fail("%s: fsdp_forward_prefetch: accelerate refuses it for FSDP2", in->where);
    if (json_object_get(fsdp, "fsdp_sharding_strategy") && !json_is_null(json_object_get(fsdp, "fsdp_sharding_strategy")))
        notes_add(in->notes, "fsdp_sharding_strategy is FSDP1's: with fsdp_version 2 fsdp_reshard_after_forward says it, %s here", reshard ? "true" : "false");
    /* the root is always left at None (fsdp2_prepare_model) */
    in->p->fsdp.reshard_after_forward = reshard ? -1 : 0;
    return 0;
}

static int read_fsdp(const struct import *in, const json_t *config, enum dtype t)
{
    const json_t *fsdp = json_object_get(config, "fsdp_config");
    int64_t version = 1, micro = in->p->micro_batch, steps = in->p->accumulation;

    if (get_count(in, fsdp, "fsdp_version", &version) < 0)
        return -1;
    if (version > 2)
        return fail("%s: fsdp_version: expected 1 or 2", in->where);
    plan_defaults(in->p, STRAT_FSDP, version == 2 ? DIALECT_TORCH : DIALECT_TORCH_FSDP1, t);
    if (version == 2 && read_mesh(in, json_object_get(config, "parallelism_config")) < 0)
        return -1;
    in->p->reduce_dtype = t;        /* set_mixed_precision() sets param_dtype and reduce_dtype alike */
    if (check_keys(in, fsdp, "fsdp_config", fsdp_known, nothing, "") < 0
        || read_wrap(in, fsdp) < 0 || read_checkpointing(in, fsdp, version == 2) < 0
        || (version == 2 ? read_fsdp2(in, fsdp) : read_fsdp1(in, fsdp)) < 0)
        return -1;
    set_batch(in, micro, steps);
    return 0;
}

/* ---- DeepSpeed ---- */

static const char *const deepspeed_known[] = {
    "zero_stage", "zero3_init_flag",
    "zero3_save_16bit_model", "deepspeed_multinode_launcher", "deepspeed_hostfile",
    "deepspeed_exclusion_filter", "deepspeed_inclusion_filter", "deepspeed_config_file",
    "deepspeed_moe_layer_cls_names", "offload_optimizer_nvme_path", "offload_param_nvme_path", NULL
};
static const char *const none_refused[] = { NULL };
static const char *const offloads[] = { "offload_optimizer", "offload_param", NULL };

/* As utils/launch.py passes it on. */
static json_t *lower_case(const char *word)
{
    char lower[16];
    size_t n = 0;

    for (; word[n] && n < sizeof lower - 1; n++)
        lower[n] = (char)tolower((unsigned char)word[n]);
    return json_stringn(lower, n);
}

/* Device and folder of one of DeepSpeed's sections, as the plugin writes them.  None where it says "none". */
static void add_offload(const struct import *in, const json_t *section, const char *of, json_t *zero)
{
    char key[64];
    const char *device, *path;

    snprintf(key, sizeof key, "%s_device", of);
    device = json_string_value(json_object_get(section, key));
    if (!device || !strcasecmp(device, "none"))
        return;             /* accelerate_check_deepspeed() has seen others */
    snprintf(key, sizeof key, "%s_nvme_path", of);
    path = json_string_value(json_object_get(section, key));
    if (!strcasecmp(device, "nvme"))
        notes_add(in->notes, "%s is not passed on by accelerate launch: DeepSpeed would write into a folder \"none\"; name it "
                  "in a DeepSpeed file", key);
    json_object_set_new(zero, of, json_pack("{s:o, s:s}", "device", lower_case(device), "nvme_path", path ? path : "none"));
}

/* accelerate launch raises on these beside a file. */
static int refuse_beside_file(const struct import *in, const json_t *section)
{
    char key[64];

    for (int i = 0; offloads[i]; i++) {
        const char *device;
        snprintf(key, sizeof key, "%s_device", offloads[i]);
        device = json_string_value(json_object_get(section, key));
        if (device && strcasecmp(device, "none"))
            return fail("%s: %s: accelerate refuses it beside deepspeed_config_file: say it in that file", in->where, key);
    }
    return 0;
}

/* The DeepSpeed file, relative to this one's folder. */
static json_t *load_beside(const char *where, const char *name)
{
    const char *slash = strrchr(where, '/');
    size_t folder = slash && name[0] != '/' ? (size_t)(slash - where) + 1 : 0;
    char *path = malloc(folder + strlen(name) + 1);
    json_error_t e;
    json_t *j;

    if (!path)
        return NULL;
    memcpy(path, where, folder);
    strcpy(path + folder, name);
    j = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (!j)
        fail("%s: deepspeed_config_file: %s: %s", where, path, e.text);
    free(path);
    return j;
}

/* What DeepSpeedPlugin.__post_init__ writes when no file is named. */
static json_t *plugin_config(const struct import *in, const json_t *section)
{
    const json_t *clip = json_object_get(section, "gradient_clipping");
    const json_t *steps = json_object_get(section, "gradient_accumulation_steps");
    json_t *config = json_object(), *zero = json_object();
    int64_t stage = 2;
    const json_t *v = json_object_get(section, "zero_stage");

    if (v && !json_is_null(v))
        stage = json_is_string(v) ? strtoll(json_string_value(v), NULL, 10) : json_integer_value(v);
    json_object_set_new(zero, "stage", json_integer(stage));
    for (int i = 0; offloads[i]; i++)
        add_offload(in, section, offloads[i], zero);
    json_object_set_new(config, "zero_optimization", zero);
    json_object_set_new(config, "train_micro_batch_size_per_gpu", json_string("auto"));
    json_object_set_new(config, "gradient_accumulation_steps",
                        steps ? json_incref((json_t *)(uintptr_t)steps) : json_string("auto"));
    json_object_set_new(config, "gradient_clipping",
                        clip ? json_incref((json_t *)(uintptr_t)clip) : json_string("auto"));
    return config;
}

static bool flag_off(const json_t *v)
{
    return json_is_false(v) || (json_is_string(v) && !strcasecmp(json_string_value(v), "false"));
}

static int read_deepspeed(const struct import *in, const json_t *config, enum dtype t)
{
    static const char *const section_of[] = { [DT_BF16] = "bf16", [DT_FP16] = "fp16" };
    const json_t *section = json_object_get(config, "deepspeed_config");
    const char *file = json_string_value(json_object_get(section, "deepspeed_config_file"));
    json_t *ds;
    int rc;

    if (check_keys(in, section, "deepspeed_config", deepspeed_known, none_refused, "") < 0 || accelerate_check_deepspeed(section, in->where, in->notes) < 0
        || (file && refuse_beside_file(in, section) < 0))
        return -1;
    ds = file ? load_beside(in->where, file) : plugin_config(in, section);
    if (!ds)
        return -1;
    if (accelerate_check_zero(ds, in->where) < 0) {
        json_decref(ds);
        return -1;
    }
    in->p->precision = t;       /* fills in "auto" */
    if (t != DT_FP32 && !json_object_get(ds, section_of[t]))
        json_object_set_new(ds, section_of[t], json_pack("{s:b}", "enabled", 1));
    rc = ds_config_read(ds, in->where, in->p, in->notes);
    json_decref(ds);
    if (rc == 0 && in->p->strategy == STRAT_ZERO3) {
        in->p->ds.zero_init = true;     /* set_deepspeed_weakref(): from_pretrained() shards as it loads, whatever the flag says */
        if (flag_off(json_object_get(section, "zero3_init_flag")))
            notes_add(in->notes, "zero3_init_flag false has no effect on transformers' models, which accelerate 1.15 builds under zero.Init all the same");
    }
    return rc;
}

/* ---- the file ---- */

/* Fields of ClusterConfig: accelerate refuses every other key. */
static const char *const top_known[] = {
    "compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "fp16",
    "dynamo_backend", "num_processes", "machine_rank", "num_machines", "gpu_ids", "main_process_ip",
    "main_process_port", "rdzv_backend", "same_network", "main_training_function",
    "enable_cpu_affinity", "fp8_config", "deepspeed_config", "fsdp_config", "parallelism_config",
    "megatron_lm_config", "mpirun_config", "downcast_bf16", "tpu_name", "tpu_zone",
    "tpu_use_cluster", "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env",
    "dynamo_config", NULL
};

static const char *const mesh_known[] = {
    "parallelism_config_dp_replicate_size", "parallelism_config_dp_shard_size", "parallelism_config_tp_size", "parallelism_config_cp_size",
    "parallelism_config_cp_backend", "parallelism_config_cp_comm_strategy", "parallelism_config_sp_size", "parallelism_config_sp_backend",
    "parallelism_config_sp_seq_length", "parallelism_config_sp_seq_length_is_variable", "parallelism_config_sp_attn_implementation", NULL
};
static const char *const dynamo_known[] = {
    "dynamo_backend", "dynamo_mode", "dynamo_use_dynamic", "dynamo_use_fullgraph", "dynamo_use_regional_compilation", NULL
};

static int check_top(const struct import *in, const json_t *config)
{
    static const char *const sections[] = { "fsdp_config", "deepspeed_config", "parallelism_config",
                                            NULL };
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)config, name, v)
        if (!listed(top_known, name))
            return fail("%s: %s: unknown key; accelerate refuses it too", in->where, name);
    bool cpu = false;
    if (accelerate_check_environment(config, in->where) < 0 || get_bool(in, config, "use_cpu", &cpu) < 0)
        return -1;
    if (cpu)
        return fail("%s: use_cpu: training on CPUs is not planned: false is", in->where);
    for (int i = 0; sections[i]; i++) {
        const json_t *section = json_object_get(config, sections[i]);
        if (section && !json_is_object(section) && !json_is_null(section))
            return fail("%s: %s: expected a mapping", in->where, sections[i]);
    }
    check_keys(in, json_object_get(config, "parallelism_config"), "", mesh_known, nothing, "");
    return check_keys(in, json_object_get(config, "dynamo_config"), "", dynamo_known, nothing, "");
}

/* torch.compile() around the model, by TorchDynamoPlugin; accelerate reads an older file's dynamo_backend as a dynamo_config of its own, in
 * place of one that is there (config_args.py). */
static int read_compile(const struct import *in, const json_t *config)
{
    static const char *const backends[] = { "NO", "EAGER", "AOT_EAGER", "INDUCTOR", "AOT_TS_NVFUSER", "NVPRIMS_NVFUSER", "CUDAGRAPHS", "OFI", "FX2TRT", "ONNXRT",
                                            "TENSORRT", "AOT_TORCHXLA_TRACE_ONCE", "TORCHXLA_TRACE_ONCE", "IPEX", "TVM", "HPU_BACKEND", NULL };
    const json_t *old = json_object_get(config, "dynamo_backend"), *dynamo = old && !json_is_null(old) ? NULL : json_object_get(config, "dynamo_config");
    const json_t *said = dynamo ? json_object_get(dynamo, "dynamo_backend") : old;
    const char *mode = json_string_value(json_object_get(dynamo, "dynamo_mode")), *backend;
    struct plan *p = in->p;
    int which = 0;

    if (!json_is_false(said) && get_word(in, dynamo ? dynamo : config, "dynamo_backend", backends, &which) < 0)
        return -1;
    backend = backends[which];
    if (which == 0)
        return 0;
    bool graphs = mode && (!strcmp(mode, "reduce-overhead") || !strcmp(mode, "max-autotune"));
    bool inductor = !strcasecmp(backend, "INDUCTOR"), ddp = p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH;
    bool blocks = inductor && json_is_true(json_object_get(dynamo, "dynamo_use_regional_compilation")) &&
                  (ddp || (p->strategy == STRAT_FSDP && (p->dialect == DIALECT_TORCH || p->fsdp.use_orig_params)));
    if (!strcasecmp(backend, "CUDAGRAPHS") || (graphs && (!blocks || ddp || p->dialect != DIALECT_TORCH)))
        return fail("%s: dynamo_config: %s: CUDA graphs are modelled of inductor's kernels, where it compiles the blocks of FSDP2 one by one "
                    "(dynamo_use_regional_compilation, fsdp_version 2): mode \"default\" or \"max-autotune-no-cudagraphs\" has none",
                    in->where, !strcasecmp(backend, "CUDAGRAPHS") ? backend : mode);
    if (blocks) {
        p->kernels = KERNELS_TORCH_COMPILE;
        p->compile_mode = graphs ? COMPILE_REDUCE_OVERHEAD : COMPILE_DEFAULT;
    } else if (inductor && ddp && compiles_whole(p)) {
        return compile_whole_model(p, "dynamo_config", in->where, in->notes);
    } else {
        notes_add(in->notes, "dynamo_config: backend %s: planned with kernels \"%s\"; torch.compile is modelled where it compiles the blocks "
                  "of FSDP one by one (dynamo_use_regional_compilation; fsdp_version 1 with fsdp_use_orig_params)", backend, kernels_name(p->kernels));
    }
    return 0;
}

/* A model that transformers loaded in 16 bits and PEFT gave adapters, as accelerate prepares it (tests/golden/tune/dtypes.jsonl). */
static void prepare_adapters(const struct import *in)
{
    struct plan *p = in->p;
    bool fsdp1 = p->dialect == DIALECT_TORCH_FSDP1, packed = p->train.base != BASE_PLAIN;

    if (fsdp1) {        /* update_fsdp_plugin_peft(): PEFT's fsdp_auto_wrap_policy() in place of what the file says */
        p->fsdp.wrap_adapters = true;
        p->unit = UNIT_BLOCK;
        notes_add(in->notes, "transformers' Trainer makes each matrix of an adapter a unit of its own: fsdp.wrap_adapters");
    }
    if (p->precision == DT_BF16 && !packed && p->kernels != KERNELS_DPX) {
        p->fsdp.model_dtype = DT_BF16;
        notes_add(in->notes, "frozen weights of a model loaded in bf16 stay so%s; of one loaded in fp32 fsdp.model_dtype is null",
                  fsdp1 ? "" : " (accelerate 1.13 and later; before, all were made fp32)");
    } else if (p->precision == DT_FP16 && !packed) {
        notes_add(in->notes, "frozen weights are taken in fp32; FSDP with them in fp16 is not planned");
    }
    if (p->precision == DT_BF16 && p->model.norm != NORM_RMS)
        notes_add(in->notes, "accelerate's autocast makes LayerNorm's results fp32, which is not planned: activations take more");
}

void accelerate_root_units(struct plan *p, struct notes *notes)
{
    if (p->strategy != STRAT_FSDP || p->dialect != DIALECT_TORCH)
        return;
    p->fsdp.root_units = root_units_of_accelerate(p);
    if (p->fsdp.root_units == ROOT_TOGETHER)
        notes_add(notes, "accelerate 1.14 and later make embedding and head units of their own; the plan has them in the root: %s",
                  root_units_refused(p) ? root_units_refused(p) : "the loss does not call the head's module");
    else
        notes_add(notes, "fsdp.root_units \"%s\": units of their own for embedding and head since accelerate 1.14; for an earlier one set "
                  "\"together\"", root_units_name(p->fsdp.root_units));
}

int accelerate_read(const json_t *config, const char *where, struct plan *p, struct notes *notes)
{
    struct import in = { where, p, notes };
    const char *type = json_string_value(json_object_get(config, "distributed_type"));
    const json_t *kind = json_object_get(config, "distributed_type");
    int64_t micro = p->micro_batch, steps = p->accumulation;
    enum dtype t = DT_FP32;
    int rc;

    if (!json_is_object(config))
        return fail("%s: an accelerate config is a mapping", where);
    if (check_top(&in, config) < 0 || check_cluster(&in, config) < 0
        || read_precision(&in, config, &t) < 0)
        return -1;
    p->framework_version[0] = '\0';
    if (type && !strcasecmp(type, "FSDP")) {
        rc = read_fsdp(&in, config, t);
    } else if (type && !strcasecmp(type, "DEEPSPEED")) {
        rc = read_deepspeed(&in, config, t);
    } else if (is_alone(kind) || (type && !strcasecmp(type, "MULTI_GPU"))) {
        plan_defaults(p, STRAT_DDP, DIALECT_TORCH, t);
        p->ddp.wrapped = p->cluster.world_size > 1;         /* PartialState: DistributedType.NO */
        set_batch(&in, micro, steps);
        rc = 0;
    } else {
        return fail("%s: distributed_type: \"%s\" is not supported; FSDP, DEEPSPEED, MULTI_GPU and "
                    "NO are", where, type ? type : "(missing)");
    }
    if (rc == 0 && !(p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH))
        rc = read_other_mesh(&in, json_object_get(config, "parallelism_config"));
    if (rc < 0 || read_compile(&in, config) < 0)
        return -1;
    if (p->strategy == STRAT_FSDP && training_is_lora(&p->train))
        prepare_adapters(&in);
    if (p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH)
        p->fsdp.root_units = root_units_of_accelerate(p);
    plan_resolve(p);
    return plan_check(p, where);
}

bool accelerate_starts_ranks_alone(const json_t *launch)
{
    const char *type = json_string_value(json_object_get(launch, "distributed_type"));

    return type && !strcmp(type, "MULTI_GPU");
}

static int accelerate_import(const json_t *config, const char *where, struct plan *p)
{
    struct notes notes = { 0 };
    int rc = accelerate_read(config, where, p, &notes);

    if (rc == 0) {
        accelerate_root_units(p, &notes);
        notes_print(&notes, where);
    }
    return rc;
}

int accelerate_import_file(const char *path, struct plan *p)
{
    json_t *config = yaml_read_file(path);      /* JSON is YAML too */
    int rc = config ? accelerate_import(config, path, p) : -1;

    json_decref(config);
    return rc;
}
