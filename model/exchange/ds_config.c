/* ds_config.c -- DeepSpeed configs, read as DeepSpeed 0.19.6 reads them
 * (runtime/config.py, runtime/zero/config.py, runtime/precision_config.py).
 *
 * Every key is one of four kinds: it sets an option of the plan; it is known to
 * change nothing that a plan describes; it asks for something plans do not have
 * yet, which is refused by name; or it is not known, which is noted. */
#include "model/exchange/ds_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/ds_names.h"
#include "model/exchange/ds_optimizer.h"
#include "model/exchange/ds_removed.h"
#include "model/plan/knob.h"
#include "model/plan/parallel_check.h"

struct import {
    const char   *where;
    struct plan  *p;
    struct notes *notes;
};

static bool is_auto(const json_t *v)
{
    const char *s = json_string_value(v);

    return s && !strcmp(s, "auto");
}

static bool listed(const char *const *list, const char *name)
{
    for (int i = 0; list[i]; i++)
        if (!strcmp(list[i], name))
            return true;
    return false;
}

/* ---- what decides the defaults: stage and precision ---- */

static int read_stage(const json_t *config, const char *where, enum strategy *out)
{
    static const enum strategy of[] = { STRAT_DDP, STRAT_ZERO1, STRAT_ZERO2, STRAT_ZERO3 };
    const json_t *zero = json_object_get(config, "zero_optimization");
    const json_t *stage = json_object_get(zero, "stage");

    *out = STRAT_DDP;
    if (!zero || json_is_false(zero))
        return 0;
    if (json_is_true(zero)) {               /* the deprecated form: stage 1 */
        *out = STRAT_ZERO1;
        return 0;
    }
    if (!json_is_object(zero))
        return fail("%s: zero_optimization: expected an object", where);
    if (!stage)
        return 0;
    if (!json_is_integer(stage) || json_integer_value(stage) < 0 || json_integer_value(stage) > 3)
        return fail("%s: zero_optimization.stage: expected 0, 1, 2 or 3", where);
    *out = of[json_integer_value(stage)];
    return 0;
}

/* 1 on, 0 off, -1 refused.  "auto" is filled in from the command line's choice. */
static int enabled(const struct import *in, const json_t *section, const char *name, enum dtype t)
{
    const json_t *v = json_object_get(section, "enabled");

    if (!section || (json_is_object(section) && !v))
        return 0;
    if (is_auto(v)) {
        notes_add(in->notes, "%s.enabled is \"auto\": %s, as the command line has it", name,
                  in->p->precision == t ? "true" : "false");
        return in->p->precision == t;
    }
    if (!json_is_boolean(v))
        return fail("%s: %s.enabled: expected true, false or \"auto\"", in->where, name);
    return json_is_true(v);
}

static const json_t *bf16_section(const json_t *config)
{
    const json_t *v = json_object_get(config, "bf16");

    return v ? v : json_object_get(config, "bfloat16");
}

static int read_precision(const struct import *in, const json_t *config, enum dtype *out)
{
    int bf16 = enabled(in, bf16_section(config), "bf16", DT_BF16);
    int fp16 = enabled(in, json_object_get(config, "fp16"), "fp16", DT_FP16);

    if (bf16 < 0 || fp16 < 0)
        return -1;
    if (bf16 && fp16)
        return fail("%s: fp16.enabled: bf16 and fp16 cannot both be enabled", in->where);
    *out = bf16 ? DT_BF16 : fp16 ? DT_FP16 : DT_FP32;
    return 0;
}

/* ---- batch sizes ---- */

/* A positive count, 0 for absent or "auto". */
static int read_count(const struct import *in, const json_t *config, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(config, key);

    *out = 0;
    if (!v || json_is_null(v) || is_auto(v))
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > SIZE_LIMIT)
        return fail("%s: %s: expected a positive whole number or \"auto\"", in->where, key);
    *out = json_integer_value(v);
    return 0;
}

static void fill_auto(const struct import *in, const json_t *config, const char *key,
                      const char *option, int64_t given, int64_t *out)
{
    bool says_auto = is_auto(json_object_get(config, key));

    if (*out > 0)
        return;
    if (given > 0)
        *out = given;
    else if (says_auto) {
        *out = 1;
        notes_add(in->notes, "%s is \"auto\", which the launcher fills in: taken as 1; give %s",
                  key, option);
    }
}

/* DeepSpeedConfig._set_batch_related_parameters: any two give the third. */
static int read_batch(const struct import *in, const json_t *config, int64_t given_micro,
                      int64_t given_accumulation)
{
    struct plan *p = in->p;
    int64_t world = plan_batch_ranks(p), micro, steps, all, product;

    if (read_count(in, config, "train_micro_batch_size_per_gpu", &micro) < 0
        || read_count(in, config, "gradient_accumulation_steps", &steps) < 0
        || read_count(in, config, "train_batch_size", &all) < 0)
        return -1;
    if (!(all && steps))
        fill_auto(in, config, "train_micro_batch_size_per_gpu", "--micro-batch", given_micro, &micro);
    if (!(all && micro))
        fill_auto(in, config, "gradient_accumulation_steps", "--accumulation", given_accumulation,
                  &steps);
    if (all && !micro && !steps)
        steps = 1;
    if (all && !steps && micro <= all / world)
        steps = all / world / micro;
    if (all && !micro)          /* too small a batch: the product below will not match */
        micro = all / world / steps > 0 ? all / world / steps : 1;
    if (!micro)
        return fail("%s: train_micro_batch_size_per_gpu: missing, and train_batch_size too",
                    in->where);
    if (!steps)
        steps = 1;
    if (!checked_mul(micro, steps, &product) || !checked_mul(product, world, &product))
        return fail("%s: train_micro_batch_size_per_gpu: the global batch exceeds 2^60", in->where);
    if (all && product != all)
        return fail("%s: train_batch_size: %" PRId64 " is not micro batch %" PRId64
                    " * accumulation %" PRId64 " * %" PRId64 " ranks = %" PRId64, in->where,
                    all, micro, steps, world, product);
    p->micro_batch = micro;
    p->accumulation = steps;
    return 0;
}

/* ---- one key into the plan ---- */

static const struct knob *row_of(const struct import *in, const char *section, const char *name)
{
    return knob_named(KNOB_DS, section, name, knob_cell(in->p));
}

/* Reads a value by the row of DeepSpeed's key, naming it as DeepSpeed does. */
static int set(const struct import *in, const char *section, const char *name, const json_t *v)
{
    const struct knob *k = row_of(in, section, name);
    struct knob named;

    if (!k && !strcmp(section, "zero_optimization") && (!strncmp(name, "zero_quantized_", 15) || !strncmp(name, "zero_hpz_", 9)) &&
        (json_is_true(v) || json_integer_value(v) > 1))
        notes_add(in->notes, "zero_optimization.%s has no effect below stage 3", name);
    if (!k)
        return ds_names_check_idle(in->where, section, name, v);
    named = *k;
    named.object = section;
    named.name = name;
    return knob_read(v, in->where, &named, in->p);
}

/* "auto", which the Trainer fills in from the model's hidden size. */
static int fill_hidden(const struct import *in, const char *name)
{
    const struct knob *any = knob_named(KNOB_DS, "zero_optimization", name, ~UINT32_C(0));
    const struct knob *k = row_of(in, "zero_optimization", name);
    int64_t h = in->p->model.hidden, v;

    if (!any->ds_auto)
        notes_add(in->notes, "zero_optimization.%s is \"auto\", which is not filled in for this key: DeepSpeed's default", name);
    if (!any->ds_auto || !k)
        return 0;
    v = k->ds_auto(h);
    knob_set(in->p, k, (double)v);
    notes_add(in->notes, "zero_optimization.%s is \"auto\": %" PRId64 " from hidden size %" PRId64, name, v, h);
    return 0;
}

/* Change nothing that a plan describes. */
static const char *const zero_harmless[] = {
    "stage", "load_from_fp32_weights", "elastic_checkpoint", "ignore_unused_parameters",
    "stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save",
    "memory_efficient_linear", "override_module_apply", "pipeline_loading_checkpoint",
    "log_trace_cache_warnings", "enable_sanity_checks", "save_muon_momentum_buffer_in_memory", NULL
};

/* In the sections of offload: SuperOffload's, which is refused. */
static const char *const offload_harmless[] = { "cpuadam_cores_perc", NULL };

/* A section within another: "zero_optimization.offload_param", "aio".  `object` is the plan's name for it. */
static int read_section(const struct import *in, const char *section, const char *object, const json_t *j)
{
    const char *name, *not_yet;
    json_t *v;

    if (json_is_null(j))
        return 0;
    if (!json_is_object(j))
        return fail("%s: %s: expected an object", in->where, section);
    json_object_foreach((json_t *)(uintptr_t)j, name, v) {
        if (knob_named_cells(KNOB_DS, section, name)) {
            if (set(in, section, name, v) < 0)
                return -1;
            continue;
        }
        not_yet = knob_not_yet(object, name, v);
        if (not_yet && not_yet[0])
            return fail("%s: %s.%s: %s", in->where, section, name, not_yet);
        if (!not_yet && !listed(offload_harmless, name))
            notes_add(in->notes, "%s.%s is not known and was ignored", section, name);
    }
    return 0;
}

/* ---- offload ---- */

static const struct { const char *key, *old; } offloads[] = {
    { "offload_optimizer", "cpu_offload" }, { "offload_param", "cpu_offload_param" },
};
enum { NOFFLOADS = sizeof offloads / sizeof *offloads };

/* The spelling of up to DeepSpeed 0.3: DeepSpeedZeroConfig maps `true` to device cpu. */
static int read_old_offload(const struct import *in, const json_t *zero, int i)
{
    const json_t *old = json_object_get(zero, offloads[i].old);
    char section[64];
    json_t *cpu;
    int rc;

    if (!json_is_true(old))
        return !old || json_is_false(old) || json_is_null(old) ? 0
             : fail("%s: zero_optimization.%s: expected true or false", in->where, offloads[i].old);
    if (json_object_get(zero, offloads[i].key))
        return fail("%s: zero_optimization.%s: DeepSpeed refuses it beside %s, which replaces it", in->where,
                    offloads[i].old, offloads[i].key);
    snprintf(section, sizeof section, "zero_optimization.%s", offloads[i].key);
    cpu = json_string("cpu");
    rc = set(in, section, "device", cpu);
    json_decref(cpu);
    return rc;
}

/* The device that a section asks for, or NULL. */
static const char *device_of(const json_t *zero, int i)
{
    const char *device = json_string_value(json_object_get(json_object_get(zero, offloads[i].key), "device"));

    if (json_is_true(json_object_get(zero, offloads[i].old)))
        device = "cpu";
    return device && strcmp(device, "none") ? device : NULL;
}

/* What DeepSpeed refuses, fails on, or does not look at in this stage. */
static int check_offload(const struct import *in, const json_t *zero)
{
    const json_t *ratio = json_object_get(json_object_get(zero, "offload_optimizer"), "ratio");
    const struct deepspeed_options *ds = &in->p->ds;
    bool stage3 = in->p->strategy == STRAT_ZERO3;

    if (json_object_get(zero, "cpu_offload_params"))
        return fail("%s: zero_optimization.cpu_offload_params: DeepSpeed refuses this key: write \"offload_param\": "
                    "{\"device\": \"cpu\"}", in->where);
    if (in->p->strategy == STRAT_DDP && device_of(zero, 0))
        return fail("%s: zero_optimization.offload_optimizer: stage 0 keeps parameters on the GPU, where DeepSpeed's CPU Adam "
                    "fails: stages 1, 2 and 3 offload", in->where);
    if (ratio && !stage3 && json_number_value(ratio) < 1)
        return fail("%s: zero_optimization.offload_optimizer.ratio: DeepSpeed takes a share below 1 in stage 3 only",
                    in->where);
    if (!stage3 && device_of(zero, 1))
        notes_add(in->notes, "zero_optimization.offload_param has no effect below stage 3");
    if (json_object_get(zero, "cpu_offload_use_pin_memory"))
        notes_add(in->notes, "zero_optimization.cpu_offload_use_pin_memory is not read by DeepSpeed: pin_memory of "
                  "offload_optimizer and offload_param is");
    if (ds->offload_optimizer.device == OFFLOAD_NVME && stage3 && !ds->offload_optimizer.nvme_path[0])
        return fail("%s: zero_optimization.offload_optimizer.nvme_path: missing: DeepSpeed needs it for device nvme", in->where);
    if (ds->offload_param.device == OFFLOAD_NVME && !ds->offload_param.nvme_path[0])
        return fail("%s: zero_optimization.offload_param.nvme_path: missing: DeepSpeed needs it for device nvme", in->where);
    return 0;
}

static bool is_offload(const char *name)
{
    for (int i = 0; i < NOFFLOADS; i++)
        if (!strcmp(name, offloads[i].key) || !strcmp(name, offloads[i].old))
            return true;
    return !strncmp(name, "cpu_offload_", 12);
}

static int read_offload(const struct import *in, const json_t *zero)
{
    for (int i = 0; i < NOFFLOADS; i++) {
        const json_t *j = json_object_get(zero, offloads[i].key);
        char section[64], object[64];
        snprintf(section, sizeof section, "zero_optimization.%s", offloads[i].key);
        snprintf(object, sizeof object, "deepspeed.%s", offloads[i].key);
        if ((j && read_section(in, section, object, j) < 0) || read_old_offload(in, zero, i) < 0)
            return -1;
    }
    return check_offload(in, zero);
}

/* ---- zero_optimization ---- */

static int read_zero_key(const struct import *in, const char *name, const json_t *v)
{
    const char *not_yet = knob_not_yet("deepspeed", name, v);

    if (knob_named_cells(KNOB_DS, "zero_optimization", name))
        return is_auto(v) ? fill_hidden(in, name) : set(in, "zero_optimization", name, v);
    if (not_yet && not_yet[0])
        return fail("%s: zero_optimization.%s: %s", in->where, name, not_yet);
    if (!strcmp(name, "allgather_partitions") && !json_is_true(v))
        return fail("%s: zero_optimization.allgather_partitions: %s", in->where, json_is_false(v) ? "false is not supported" : "expected true or false");
    if (!strcmp(name, "leaf_module"))
        notes_add(in->notes, "zero_optimization.leaf_module is not followed: modules are fetched "
                  "one by one");
    else if (!not_yet && !listed(zero_harmless, name) && !is_offload(name) && strcmp(name, "allgather_partitions"))
        notes_add(in->notes, "zero_optimization.%s is not known and was ignored", name);
    return 0;
}

static int read_zero(const struct import *in, const json_t *zero)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)zero, name, v)
        if (read_zero_key(in, name, v) < 0)
            return -1;
    return read_offload(in, zero);
}

static int read_half(const struct import *in, const char *section, const json_t *j)
{
    static const char *const refused[] = {
        "bf16_master_weights_and_grads", "bf16_optimizer_states", "fp16_master_weights_and_grads", NULL
    };
    const json_t *check = json_object_get(j, "check_grad_overflow");

    for (int i = 0; refused[i]; i++)
        if (json_is_true(json_object_get(j, refused[i])))
            return fail("%s: %s.%s: 16-bit master weights are not supported yet", in->where,
                        section, refused[i]);
    if (check && in->p->precision == DT_BF16 && section[0] == 'b')
        return set(in, "bf16", "check_grad_overflow", check);
    return 0;
}

static int read_data_types(const struct import *in, const json_t *j)
{
    static const char *const fixed[] = { "param_dtype", "buffer_dtype", NULL };
    const json_t *accum = json_object_get(j, "grad_accum_dtype");
    const char *word = json_string_value(accum);
    struct plan *p = in->p;

    for (int i = 0; fixed[i]; i++) {
        const json_t *v = json_object_get(j, fixed[i]);
        const char *s = json_string_value(v);
        if (v && !json_is_null(v) && !is_auto(v) && !(s && !strcmp(s, dtype_name(p->precision))))
            return fail("%s: data_types.%s: only the model's own dtype is supported", in->where,
                        fixed[i]);
    }
    if (!accum || json_is_null(accum) || is_auto(accum))
        return 0;
    if (p->strategy == STRAT_DDP && !(word && !strcmp(word, dtype_name(p->precision))))
        return fail("%s: data_types.grad_accum_dtype: stage 0 takes only the model's own dtype, %s",
                    in->where, dtype_name(p->precision));
    if (p->strategy == STRAT_ZERO2 && !plan_has_deepspeed_0_19_8(p)) {
        notes_add(in->notes, "data_types.grad_accum_dtype: this stage accumulates in %s all the same",
                  dtype_name(p->precision));
        return 0;
    }
    return set(in, "data_types", "grad_accum_dtype", accum);
}

/* ---- the top level ---- */

static const char *const harmless[] = {
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",    /* read_batch() */
    "zero_optimization", "dpx",                                                             /* read elsewhere */
    "scheduler", "steps_per_print", "wall_clock_breakdown", "memory_breakdown", "dump_state",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "tensorboard", "wandb",
    "csv_monitor", "comet", "monitor_config", "flops_profiler", "comms_logger", "comms_config",
    "checkpoint", "nebula", "dataloader_drop_last", "timers", "vocabulary_size",
    "managed_gradient_accumulation", "use_data_before_expert_parallelism", "graph_harvesting",
    "hybrid_engine", "inference", "log_level", "seed",
    "autotuning", "gradient_allreduce_op", NULL
};

/* Refused when on: `true`, an object with "enabled" true, a size above 1, or
 * (for sections without such a key) present at all. */
static const struct { const char *name, *why; } refused[] = {
    { "amp", "Apex AMP is not supported" },
    { "torch_autocast", "torch_autocast is not supported yet" },
    { "sparse_gradients", "sparse gradients are not supported" },
    { "prescale_gradients", "prescaled gradients are not supported yet" },
    { "disable_allgather", "training without the all-gather is not supported" },
    { "sparse_attention", "sparse attention is not supported" },
    { "progressive_layer_drop", "layer dropping is not supported" },
    { "curriculum_learning", "a changing sequence length is not supported" },
    { "data_efficiency", "a changing sequence length is not supported" },
    { "elasticity", "an elastic world size is not supported" },
    { "quantize_training", "quantised training is not supported yet" },
    { "compression_training", "compression is not supported" },
    { "weight_quantization", "quantised weights are not supported yet" },
    { "msamp", "MS-AMP is not supported" }, { "eigenvalue", "eigenvalues of blocks are not supported" },
    { "num-layers", "GPT-NeoX's model beside DeepSpeed's keys is not read" }, { "num_layers", "GPT-NeoX's model beside DeepSpeed's keys is not read" },
};

static bool is_on(const json_t *v)
{
    const json_t *on = json_object_get(v, "enabled");
    const json_t *size = json_object_get(v, "autotp_size");

    if (json_is_object(v)) {
        if (on)
            return json_is_true(on);
        if (size)
            return json_number_value(size) > 1;
        return json_object_size(v) > 0;
    }
    return json_is_true(v) || json_number_value(v) > 1 || json_is_array(v) || json_is_string(v);
}

static const char *const batch_keys[] = { "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", NULL };

/* autotp_size 0, the default, is none, as 1 is. */
static int read_tensor_parallel(const struct import *in, const json_t *j)
{
    static const char *const harmless_here[] = { "autotp_size", "dtype", "enabled", "tp", NULL };
    const json_t *size = json_object_get(j, "autotp_size");
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)j, name, v)
        if (!listed(harmless_here, name))
            return fail("%s: tensor_parallel.%s: only autotp_size is supported yet", in->where, name);
    if (!size || (json_is_integer(size) && json_integer_value(size) == 0))
        return 0;
    return set(in, "tensor_parallel", "autotp_size", size);
}

/* module_inject/auto_ep_config.py, parse_autoep_config(): keys that say what is modelled, which is their default, or nothing of it. */
static int read_expert_parallel(const struct import *in, const json_t *j)
{
    static const struct { const char *name; bool on; const char *word; } as_modelled[] = {
        { "validate_folding_routing", false, NULL }, { "async_split_plan", false, NULL }, { "use_grouped_mm", true, NULL },
        { "combine_impl", false, "weighted_sum" }, { "row_weighting_impl", false, "eager" }, { "gate_up_impl", false, "separate" },
        { "comm_backend", false, "comm" }, { "score_apply", false, "post" }, { "score_func", false, "softmax" },
    };
    static const char *const harmless_here[] = { "enabled", "autoep_size", "preset_model", "disable_triton_grouped_mm", "comm_num_sm", "comm_qp_margin",
                                                 "comm_max_tokens_per_rank", NULL };
    const json_t *size = json_object_get(j, "autoep_size");
    const char *name, *word, *preset = json_string_value(json_object_get(j, "preset_model"));
    json_t *v;

    if (!json_is_object(j))
        return fail("%s: expert_parallel: expected an object", in->where);
    if (!json_is_true(json_object_get(j, "enabled")))
        return 0;
    json_object_foreach((json_t *)(uintptr_t)j, name, v) {
        size_t i = 0, n = sizeof as_modelled / sizeof *as_modelled;
        for (; i < n && strcmp(as_modelled[i].name, name); i++)
            ;
        word = json_string_value(v);
        if (listed(harmless_here, name) || json_is_null(v) || (word && !strcmp(word, "auto"))
            || (i < n && (as_modelled[i].word ? word && !strcmp(word, as_modelled[i].word) : json_is_boolean(v) && json_is_true(v) == as_modelled[i].on))
            || (!strcmp(name, "expert_tensor_parallel_size") && json_integer_value(v) == 1))
            continue;
        return fail("%s: expert_parallel.%s: not modelled yet at another value than AutoEP's default", in->where, name);
    }
    if (preset && strcmp(preset, "auto") && strcmp(preset, in->p->model.family))
        return fail("%s: expert_parallel.preset_model: \"%.60s\", where the model is %s", in->where, preset, in->p->model.family);
    if (!json_is_integer(size) || json_integer_value(size) <= 1)
        return fail("%s: expert_parallel.autoep_size: with 1, its default, AutoEP replaces the experts' modules and every rank has all of them: "
                    "not modelled yet: more than 1, or enabled false", in->where);
    return set(in, "expert_parallel", "autoep_size", size);
}

/* runtime/config.py, get_pipeline_config(); the number of stages and the partition are PipelineModule's arguments, which DeepSpeed does
 * not read from here. */
static int read_pipeline(const struct import *in, const json_t *j)
{
    static const char *const harmless_here[] = { "stages", "partition", "seed_layers", "activation_checkpoint_interval", "pipe_partitioned",
                                                 "grad_partitioned", "use_reentrant", NULL };
    const json_t *stages = json_object_get(j, "stages"), *how = json_object_get(j, "partition");
    int64_t interval = json_integer_value(json_object_get(j, "activation_checkpoint_interval"));
    const char *word = json_string_value(how), *name;
    json_t *v;

    if (!json_is_object(j))
        return fail("%s: pipeline: expected an object", in->where);
    json_object_foreach((json_t *)(uintptr_t)j, name, v)
        if (!listed(harmless_here, name))
            return fail("%s: pipeline.%s: unknown key", in->where, name);
    if (json_object_size(j) == 0)
        return 0;
    if (!json_is_integer(stages))
        return fail("%s: pipeline.stages: how many stages there are is PipelineModule's num_stages: write that number here", in->where);
    if (interval < 0 || interval > 1)
        return fail("%s: pipeline.activation_checkpoint_interval: 0 or 1: groups of several layers are not modelled yet", in->where);
    if (interval == 1)
        in->p->recompute = RECOMPUTE_FULL;
    if (how && !(word && !strcmp(word, "best")) && set(in, "pipeline", "partition", how) < 0)
        return -1;
    return set(in, "pipeline", "stages", stages);
}

/* Ranks that share a sample count as one in the global batch. */
static int read_shares(const struct import *in, const json_t *config)
{
    const json_t *size = json_object_get(config, "sequence_parallel_size");
    const char *word = json_string_value(json_object_get(config, "seq_parallel_communication_data_type"));

    const json_t *tensor = json_object_get(config, "tensor_parallel"), *pipeline = json_object_get(config, "pipeline");
    const json_t *expert = json_object_get(config, "expert_parallel");

    if (size && set(in, "", "sequence_parallel_size", size) < 0)
        return -1;
    if (tensor && !json_is_object(tensor))
        return fail("%s: tensor_parallel: expected an object", in->where);
    if (tensor && read_tensor_parallel(in, tensor) < 0)
        return -1;
    if (pipeline && read_pipeline(in, pipeline) < 0)
        return -1;
    if (expert && read_expert_parallel(in, expert) < 0)
        return -1;
    knob_follow(in->p, NULL, NULL);
    if (in->p->parallel.context > 1 && word && strcmp(word, "fp32"))
        return fail("%s: seq_parallel_communication_data_type: only fp32, the default, is supported", in->where);
    return parallel_check_ranks(in->p, in->where);
}

static int read_top(const struct import *in, const char *name, const json_t *v)
{
    if (!strcmp(name, "gradient_clipping") && is_auto(v))
        return 0;               /* filled in with the defaults */
    if (!strcmp(name, "sequence_parallel_size") || !strcmp(name, "seq_parallel_communication_data_type") || !strcmp(name, "tensor_parallel") ||
        !strcmp(name, "pipeline") || !strcmp(name, "expert_parallel"))
        return 0;               /* read_shares() */
    if (knob_named_cells(KNOB_DS, "", name) && !listed(batch_keys, name))
        return set(in, "", name, v);
    if (!strcmp(name, "bf16") || !strcmp(name, "bfloat16") || !strcmp(name, "fp16"))
        return read_half(in, name, v);
    if (!strcmp(name, "data_types"))
        return read_data_types(in, v);
    if (!strcmp(name, "optimizer"))
        return ds_optimizer_read(v, in->where, in->p);
    if (!strcmp(name, "aio"))
        return read_section(in, "aio", "deepspeed.aio", v);
    if (!strcmp(name, "activation_checkpointing")) {
        if (json_is_true(json_object_get(v, "cpu_checkpointing")))
            return fail("%s: activation_checkpointing.cpu_checkpointing: offloading is not "
                        "supported yet", in->where);
        notes_add(in->notes, "activation_checkpointing only takes effect where the model calls it; "
                  "the plan's recompute says whether it does");
        return 0;
    }
    if (!strcmp(name, "compile"))
        return ds_removed_compile(v, in->where, in->notes);
    if (strcmp(name, "zero_optimization") && strcmp(name, "dpx"))
        ds_names_list_within(name, v, in->notes);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!strcmp(refused[i].name, name))
            return is_on(v) ? fail("%s: %s: %s", in->where, name, refused[i].why) : 0;
    if (!listed(harmless, name))
        notes_add(in->notes, "%s is not known and was ignored", name);
    return 0;
}

static int read_ours(const struct import *in, const json_t *j)
{
    const char *name;
    json_t *v;

    if (j && !json_is_object(j))
        return fail("%s: dpx: expected an object", in->where);
    json_object_foreach((json_t *)(uintptr_t)j, name, v) {
        if (!knob_named_cells(KNOB_DS, "dpx", name))
            return fail("%s: dpx.%s: unknown key", in->where, name);
        if (set(in, "dpx", name, v) < 0)
            return -1;
    }
    return 0;
}

/* BF16_Optimizer alone reads it: then each gradient is added to its fp32 sum inside of backward. */
static int check_immediate(const struct import *in, const json_t *config)
{
    const struct plan *p = in->p;

    if (p->strategy == STRAT_ZERO1 && p->precision == DT_BF16 && p->ds.grad_accum_fp32 &&
        json_is_true(json_object_get(bf16_section(config), "immediate_grad_update")))
        return fail("%s: bf16.immediate_grad_update: not supported yet: gradients are added to their fp32 sums "
                    "after backward", in->where);
    return 0;
}

/* The version decides defaults, so it is read before they are filled in. */
static int read_version(const struct import *in, const json_t *config)
{
    const json_t *v = json_object_get(json_object_get(config, "dpx"), "framework_version");

    in->p->framework_version[0] = '\0';
    return v ? set(in, "dpx", "framework_version", v) : 0;
}

static int read_aliased(const json_t *config, const char *where, struct plan *p, struct notes *notes)
{
    struct import in = { where, p, notes };
    int64_t micro = p->micro_batch, steps = p->accumulation;
    const char *name;
    json_t *v;
    enum dtype t = DT_FP32;

    p->dialect = DIALECT_DEEPSPEED;
    if (read_stage(config, where, &p->strategy) < 0 || read_precision(&in, config, &t) < 0
        || read_version(&in, config) < 0 || ds_removed_check(config, where, p) < 0)
        return -1;
    plan_defaults(p, p->strategy, DIALECT_DEEPSPEED, t);
    if (p->strategy == STRAT_ZERO3 && ds_names_has_auto(config)) {
        p->ds.zero_init = true;
        notes_add(notes, "\"auto\" is filled in by transformers or accelerate, under which from_pretrained() works under zero.Init");
    }
    if (is_auto(json_object_get(config, "gradient_clipping"))) {
        p->clip = 1;            /* TrainingArguments.max_grad_norm */
        notes_add(notes, "gradient_clipping is \"auto\": 1.0, the Trainer's max_grad_norm");
    }
    ds_names_list_unknown(config, notes);
    if (read_shares(&in, config) < 0 || read_batch(&in, config, micro, steps) < 0)
        return -1;
    json_object_foreach((json_t *)(uintptr_t)config, name, v)
        if (read_top(&in, name, v) < 0)
            return -1;
    if (read_zero(&in, json_object_get(config, "zero_optimization")) < 0
        || read_ours(&in, json_object_get(config, "dpx")) < 0 || check_immediate(&in, config) < 0)
        return -1;
    plan_resolve(p);
    return plan_check(p, where);
}

int ds_config_read(const json_t *config, const char *where, struct plan *p, struct notes *notes)
{
    json_t *aliased;
    int rc;

    if (!json_is_object(config))
        return fail("%s: a DeepSpeed config is a JSON object", where);
    if (!(aliased = ds_names_aliased(config, where, notes)))
        return -1;
    rc = read_aliased(aliased, where, p, notes);
    json_decref(aliased);
    return rc;
}

int ds_config_import(const json_t *config, const char *where, struct plan *p)
{
    struct notes notes = { 0 };
    int rc = ds_config_read(config, where, p, &notes);

    if (rc == 0)
        notes_print(&notes, where);
    return rc;
}
