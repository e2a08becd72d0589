/* titan_import.c -- see titan_import.h. */
#include "model/exchange/titan_import.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/input.h"
#include "model/arch/recorded.h"
#include "model/exchange/titan_float8.h"
#include "model/exchange/titan_keys.h"
#include "model/exchange/titan_registry.h"
#include "model/exchange/titan_text.h"
#include "model/family/family.h"
#include "model/plan/knob.h"
#include "model/plan/root_units.h"

/* micro, steps: what goes before the config's samples of a micro-step and micro-steps; 0: nothing. */
struct import { const json_t *config; const char *where; struct plan *p; struct notes *notes; int64_t micro, steps; };

/* ---- values ---- */

/* Where the key is now, or was in 2024. */
static const json_t *value(const struct import *in, const char *section, const char *key)
{
    const char *const sections[] = { section, "training", "experimental" };

    for (int i = 0; i < 3; i++) {
        const json_t *v = json_object_get(json_object_get(in->config, sections[i]), key);
        if (v && !json_is_null(v))
            return v;
    }
    return NULL;
}

static int expected(const struct import *in, const char *section, const char *key, const char *what)
{
    return fail("%s: %s.%s: expected %s", in->where, section, key, what);
}

static int integer(const struct import *in, const char *section, const char *key, int64_t usual, int64_t least, int64_t *out)
{
    const json_t *v = value(in, section, key);
    char what[64];

    *out = v ? (int64_t)json_integer_value(v) : usual;
    snprintf(what, sizeof what, "a whole number from %" PRId64 " on", least);
    return (v && !json_is_integer(v)) || *out < least || *out > PLAN_MAX_BATCH ? expected(in, section, key, what) : 0;
}

static int boolean(const struct import *in, const char *section, const char *key, bool usual, bool *out)
{
    const json_t *v = value(in, section, key);

    *out = v ? json_is_true(v) : usual;
    return v && !json_is_boolean(v) ? expected(in, section, key, "true or false") : 0;
}

/* One of the words: its place. */
static int chosen(const struct import *in, const char *section, const char *key, const char *const *words, int usual, int *out)
{
    const json_t *v = value(in, section, key);
    const char *text = json_string_value(v);
    char all[160] = "";
    size_t n = 0;

    *out = usual;
    if (!v)
        return 0;
    for (int i = 0; words[i]; i++) {
        if (text && *words[i] && !strcmp(text, words[i])) {
            *out = i;
            return 0;
        }
        if (*words[i] && n < sizeof all)
            n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", words[i]);
    }
    return expected(in, section, key, all);
}

/* ---- keys that are knobs ---- */

static int read_knob(const struct import *in, const struct knob *k)
{
    char section[64], key[96];
    int word;

    if (!titan_keys_named(k, section, key) || !value(in, section, key))
        return 0;
    const json_t *v = value(in, section, key);
    if (k->titan.words) {
        if (chosen(in, section, key, k->titan.words, 0, &word) < 0)
            return -1;
        knob_set(in->p, k, word);
    } else if (k->type == KNOB_BOOL) {
        if (!json_is_boolean(v))
            return expected(in, section, key, "true or false");
        knob_set(in->p, k, json_is_true(v));
    } else if (k->type == KNOB_REAL && json_is_string(v) && !strcmp(json_string_value(v), "inf")) {
        knob_set(in->p, k, 0);
    } else if (k->type == KNOB_REAL || k->type == KNOB_INT) {
        if (!json_is_number(v) || (k->type == KNOB_INT && !json_is_integer(v)))
            return expected(in, section, key, k->type == KNOB_INT ? "a whole number" : "a number");
        knob_set(in->p, k, json_number_value(v));
        return knob_check(in->p, k, in->where);
    }
    return 0;
}

/* All that say the same there as here; ranks, batches and what depends on them are read apart. */
static int read_knobs(const struct import *in)
{
    static const char *const apart[] = { "seq", "micro_batch", "precision", "shard_group", "reshard_after_forward", "recompute" };
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++) {
        bool here = (k->cells & knob_cell(in->p)) != 0;
        for (size_t a = 0; a < sizeof apart / sizeof *apart; a++)
            here = here && strcmp(k->name, apart[a]) != 0;
        if (here && read_knob(in, k) < 0)
            return -1;
    }
    return 0;
}

/* ---- ranks ---- */

struct degrees { int64_t replicate, shard, context, tensor, pipeline; };

static int read_degrees(const struct import *in, struct degrees *d)
{
    int64_t copy, n;

    if (integer(in, "parallelism", "expert_tensor_parallel_degree", 1, 1, &n) < 0 || n > 1)
        return fail("%s: parallelism.expert_tensor_parallel_degree: experts that tensor-parallel ranks cut are not planned yet", in->where);
    if (integer(in, "parallelism", "data_parallel_replicate_degree", 1, 1, &d->replicate) < 0 ||
        integer(in, "parallelism", "data_parallel_shard_degree", -1, -1, &d->shard) < 0 ||
        integer(in, "parallelism", "context_parallel_degree", 1, 1, &d->context) < 0 ||
        integer(in, "parallelism", "tensor_parallel_degree", 1, 1, &d->tensor) < 0 ||
        integer(in, "parallelism", "pipeline_parallel_degree", 1, 1, &d->pipeline) < 0)
        return -1;
    if (!checked_mul(d->replicate * d->context, d->tensor * d->pipeline, &copy))
        copy = in->p->cluster.world_size + 1;
    if (d->shard < 0)
        d->shard = copy <= in->p->cluster.world_size ? in->p->cluster.world_size / copy : 1;
    if (d->shard == 0 || !checked_mul(copy, d->shard, &n) || n != in->p->cluster.world_size)
        return fail("%s: parallelism: replicate %" PRId64 " x shard %" PRId64 " x context %" PRId64 " x tensor %" PRId64 " x pipeline %"
                    PRId64 " are not the cluster's %" PRId64 " ranks", in->where, d->replicate, d->shard, d->context, d->tensor,
                    d->pipeline, in->p->cluster.world_size);
    return 0;
}

/* Stages of a rank by the blocks of each, embedding and head counted as the blocks in whose place they are. */
static int read_stages(const struct import *in)
{
    struct parallel_options *of = &in->p->parallel;
    int64_t each, all = in->p->model.layers + of->first_stage_less + of->last_stage_less;

    of->virtual_stages = pipeline_usual_chunks(of->pipeline_schedule);
    if (value(in, "parallelism", "module_fqns_per_model_part"))
        return fail("%s: parallelism.module_fqns_per_model_part: stages by lists of modules are not modelled", in->where);
    if (!value(in, "parallelism", "pipeline_parallel_layers_per_stage"))
        return 0;
    if (integer(in, "parallelism", "pipeline_parallel_layers_per_stage", 1, 1, &each) < 0)
        return -1;
    if (ceil_div(all, each) % of->pipeline)
        return fail("%s: parallelism.pipeline_parallel_layers_per_stage: %" PRId64 " stages of %" PRId64 " are no multiple of %" PRId64
                    " ranks", in->where, ceil_div(all, each), each, of->pipeline);
    of->virtual_stages = ceil_div(all, each) / of->pipeline;
    return 0;
}

static int read_parallel(const struct import *in, const struct degrees *d)
{
    static const char *const methods[] = { "allgather", "alltoall", NULL };
    static const char *const when[] = { "default", "always", "never", NULL };
    const json_t *balance = value(in, "parallelism", "context_parallel_load_balancer");
    struct parallel_options *of = &in->p->parallel;
    bool off, async, also;
    int method, reshard;

    of->context = d->context;
    if (boolean(in, "parallelism", "disable_loss_parallel", false, &off) < 0 ||
        boolean(in, "parallelism", "enable_async_tensor_parallel", false, &async) < 0 ||
        boolean(in, "compile", "enable_async_tensor_parallel", false, &also) < 0 ||
        chosen(in, "parallelism", "context_parallel_rotate_method", methods, 0, &method) < 0 ||
        chosen(in, "parallelism", "fsdp_reshard_after_forward", when, 0, &reshard) < 0)
        return -1;
    of->loss_parallel = !off;
    of->async_tensor = (async || also) && d->tensor > 1;
    of->context_method = method ? CONTEXT_RING : CONTEXT_ALL_GATHER;
    if (balance && (!json_is_string(balance) || strcmp(json_string_value(balance), "headtail")))
        return fail("%s: parallelism.context_parallel_load_balancer: \"headtail\" is modelled", in->where);
    if (of->pipeline > 1 && read_stages(in) < 0)
        return -1;
    knob_reset_idle(in->p);
    if (in->p->strategy != STRAT_FSDP)
        return 0;
    in->p->shard_group = d->shard * d->context;
    if (reshard > 0)
        in->p->fsdp.reshard_after_forward = reshard == 1;
    if (reshard == 1)
        in->p->fsdp.root_reshard_after_forward = 1;
    return 0;
}

/* ---- batches ---- */

/* A pipeline's micro-steps are cut out of the local batch: releases say how many samples each has, the tree between 0.2.2 and 0.3.0 how
 * many there are. */
static int read_batch(const struct import *in, const struct degrees *d)
{
    int64_t local, global, each, parts, data = d->replicate * d->shard;
    const char *key = value(in, "training", "batch_size") ? "batch_size" : "local_batch_size";

    if (integer(in, "training", key, 8, 1, &local) < 0 || integer(in, "training", "global_batch_size", -1, -1, &global) < 0 ||
        integer(in, "parallelism", "pipeline_parallel_microbatch_size", 1, 1, &each) < 0 ||
        integer(in, "parallelism", "num_pp_microbatches", local / each, 1, &parts) < 0)
        return -1;
    local = in->micro > 0 && d->pipeline == 1 ? in->micro : local;
    if (global > 0 && in->steps == 0 && global % (local * data))
        return fail("%s: training.global_batch_size: %" PRId64 " is not a multiple of %" PRId64 " samples on %" PRId64 " ranks",
                    in->where, global, local, data);
    in->p->micro_batch = local;
    in->p->accumulation = in->steps > 0 ? in->steps : global > 0 ? global / (local * data) : 1;
    if (d->pipeline == 1)
        return 0;
    if (in->p->accumulation > 1)
        return fail("%s: training.global_batch_size: accumulation around a pipeline is not modelled: %" PRId64 " samples a step, or a larger "
                    "local_batch_size", in->where, local * data);
    if (local % parts)
        return fail("%s: training.%s: %" PRId64 " samples do not divide into %" PRId64 " micro-batches", in->where, key, local, parts);
    in->p->micro_batch = local / parts;
    in->p->accumulation = parts;
    return 0;
}

/* ---- compute ---- */

static int read_recompute(const struct import *in)
{
    static const char *const modes[] = { "selective", "full", "none", NULL };
    const json_t *of = value(in, "activation_checkpoint", "selective_ac_option");
    int mode;

    if (chosen(in, "activation_checkpoint", "mode", modes, 0, &mode) < 0)
        return -1;
    in->p->recompute = mode == 2 ? RECOMPUTE_NONE : RECOMPUTE_FULL;
    if (mode > 0)
        return 0;
    if (json_is_string(of) && !strcmp(json_string_value(of), "op")) {
        in->p->recompute = RECOMPUTE_OP;
        return 0;
    }
    int64_t every = json_is_integer(of) ? (int64_t)json_integer_value(of) : json_is_string(of) ? strtoll(json_string_value(of), NULL, 10) : 2;
    if (every < 1 || every > MODEL_MAX_LAYERS)
        return expected(in, "activation_checkpoint", "selective_ac_option", "\"op\", or every how many blocks");
    in->p->recompute_interval = every;
    return 0;
}

/* Is the part, "model" or "loss", among compile.components?  Left out: all are. */
static bool compiles(const struct import *in, const char *part)
{
    const json_t *parts = value(in, "compile", "components");
    const char *one = json_string_value(parts);

    for (size_t i = 0; i < json_array_size(parts); i++) {
        const char *name = json_string_value(json_array_get(parts, i));
        if (name && !strcmp(name, part))
            return true;
    }
    return !json_is_array(parts) && !(one && strcmp(one, part));
}

static int read_compute(const struct import *in)
{
    static const char *const adamw[] = { "AdamW", NULL };
    bool on, old, fused;
    int name;

    if (titan_float8_read(in->config, in->where, in->p) < 0 || chosen(in, "optimizer", "name", adamw, 0, &name) < 0 ||
        boolean(in, "compile", "enable", false, &on) < 0 || boolean(in, "training", "compile", false, &old) < 0 ||
        boolean(in, "optimizer", "fused", true, &fused) < 0)
        return -1;
    if (!fused)                         /* before optimizer.implementation, of 2025 */
        in->p->optimizer_form = OPTIMIZER_FOREACH;
    on = on || old;
    in->p->kernels = on && compiles(in, "model") ? KERNELS_TORCH_COMPILE : KERNELS_TORCH_SDPA;
    if (!on || !compiles(in, "loss"))
        return 0;
    if (in->p->parallel.tensor > 1 || in->p->parallel.context > 1)
        notes_add(in->notes, "compile.components: the loss of logits that lie on several ranks is planned uncompiled");
    else
        in->p->loss = LOSS_COMPILED;
    return 0;
}

/* apply_rotary_emb() of its Llama: a cast to fp32, a product of complex numbers, which inductor leaves to PyTorch's own kernel, and a cast back: 20 bytes an
 * element, where the planned rotation, fused, moves 4 (tests/accuracy/public_rows.c adds the same to published steps). */
static void tell_rotation(const struct import *in)
{
    const struct plan *p = in->p;
    double tokens = (double)(p->micro_batch * p->accumulation * p->seq), passes = p->recompute == RECOMPUTE_NONE ? 2 : 3;
    double turned = tokens * (double)((p->model.heads + p->model.kv_heads) * p->model.head_dim * p->model.layers);
    double bytes = 16 * passes * turned / (double)(p->parallel.tensor * p->parallel.pipeline * p->parallel.context);

    if (p->kernels == KERNELS_TORCH_COMPILE && p->cluster.gpu.hbm > 0 && family_for(&p->model)->engine_titan)
        notes_add(in->notes, "compile: torchtitan's Llama turns q and k as complex numbers, which inductor does not fuse: %.3g GB of memory traffic a step "
                  "beside the plan's, %.3g ms or more", bytes / 1e9, 1e3 * bytes / p->cluster.gpu.hbm);
}

/* ---- the config ---- */

static const struct { const char *name, *flavor, *config, *model; } models[] = {
    { "llama3", "8B", "llama3_8b", "llama-3.1-8b" }, { "llama3", "70B", "llama3_70b", "llama-3.1-70b" },
    { "llama3", "405B", "llama3_405b", "llama-3.1-405b" },
    { "qwen3", "0.6B", "qwen3_0_6b", "qwen3-0.6b" }, { "qwen3", "1.7B", "qwen3_1_7b", "qwen3-1.7b" },
    { "qwen3", "4B", "", "qwen3-4b" }, { "qwen3", "8B", "sft_qwen3_8b_math", "qwen3-8b" },
    { "qwen3", "14B", "qwen3_14b", "qwen3-14b" }, { "qwen3", "32B", "qwen3_32b", "qwen3-32b" },
    { "qwen3", "30B-A3B", "", "qwen3-30b-a3b" }, { "qwen3", "235B-A22B", "", "qwen3-235b-a22b" },
    { "llama4", "17bx16e", "llama4_17bx16e", "llama-4-scout" }, { "llama4", "17bx128e", "llama4_17bx128e", "llama-4-maverick" },
    { "deepseek_v3", "671B", "deepseek_v3_671b", "deepseek-v3" },
    { "gpt_oss", "20b", "gpt_oss_20b", "gpt-oss-20b" }, { "gpt_oss", "120b", "gpt_oss_120b", "gpt-oss-120b" },
};

/* Flavors of its tests, which nobody else has: models/llama3/__init__.py and qwen3/__init__.py.  With ' for ". */
static const struct { const char *name, *flavor, *configs, *shape; } debugs[] = {
    { "llama3", "debugmodel", "llama3_debugmodel", "{'model_type':'llama','hidden_size':256,'intermediate_size':768,'num_hidden_layers':6,'num_attention_heads':16,"
      "'num_key_value_heads':16,'vocab_size':2048,'max_position_embeddings':131072,'rms_norm_eps':1e-5,'rope_theta':500000,'tie_word_embeddings':false}" },
    { "qwen3", "debugmodel", "qwen3_debugmodel", "{'model_type':'qwen3','hidden_size':256,'intermediate_size':3072,'num_hidden_layers':8,'num_attention_heads':16,"
      "'num_key_value_heads':8,'head_dim':128,'vocab_size':2048,'max_position_embeddings':4096,'rms_norm_eps':1e-6,'rope_theta':1000000,'tie_word_embeddings':true}" },
};

json_t *titan_config(const json_t *config)
{
    const json_t *model = json_object_get(config, "model");
    const char *name = json_string_value(json_object_get(model, "name")), *flavor = json_string_value(json_object_get(model, "flavor"));
    const char *option = json_string_value(json_object_get(config, "config"));

    for (size_t i = 0; i < sizeof debugs / sizeof *debugs; i++)
        if ((name && flavor && !strcmp(name, debugs[i].name) && !strcmp(flavor, debugs[i].flavor)) ||
            (option && !strncmp(option, debugs[i].configs, strlen(debugs[i].configs))))
            return titan_registry_parse(debugs[i].shape);
    return NULL;
}

/* Its models of pictures, which take the same sections. */
int titan_check_model(const json_t *config, const char *where)
{
    static const char *const pictures[] = { "flux", "vlm", "qwen3_vl" };
    const char *name = json_string_value(json_object_get(json_object_get(config, "model"), "name")), *module = json_string_value(json_object_get(config, "module"));

    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++)
        if ((name && !strcmp(name, pictures[i])) || (module && !strcmp(module, pictures[i])))
            return fail("%s: model.name: %s: a model of pictures is not planned" RECORDED_WAY, where, pictures[i]);
    return 0;
}

int titan_refuse_model(const json_t *config, const char *where)
{
    const json_t *model = json_object_get(config, "model");
    const char *name = json_string_value(json_object_get(model, "name")), *flavor = json_string_value(json_object_get(model, "flavor"));
    char known[200] = "";
    size_t n = 0;

    for (size_t i = 0; name && i < sizeof models / sizeof *models && n < sizeof known; i++)
        if (!strcmp(name, models[i].name))
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", models[i].flavor);
    if (name && flavor && n)
        return fail("%s: model.flavor: of %.40s \"%.40s\" is not known (%s are): give --model", where, name, flavor, known);
    if (name && flavor)
        return fail("%s: model.name: \"%.40s\" is not known: give --model", where, name);
    return fail("%s: torchtitan's file names no model: give --model", where);
}

/* experiments/transformers_modeling_backend: transformers' own module, named in a section of its own.  Its other flavor, debugmodel, has other sizes. */
static bool is_backend(const char *name, const char *flavor)
{
    return name && flavor && !strcmp(name, "transformers_modeling_backend") && !strcmp(flavor, "full");
}

const char *titan_model(const json_t *config)
{
    const json_t *model = json_object_get(config, "model");
    const char *name = json_string_value(json_object_get(model, "name")), *flavor = json_string_value(json_object_get(model, "flavor"));
    const char *option = json_string_value(json_object_get(config, "config"));

    if (is_backend(name, flavor))
        return json_string_value(json_object_get(json_object_get(config, "hf_transformers"), "model"));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if ((name && flavor && !strcmp(name, models[i].name) && !strcmp(flavor, models[i].flavor)) ||
            (option && !strcmp(option, models[i].config)))
            return models[i].model;
    return NULL;
}

static int check_keys(const struct import *in)
{
    const json_t *csv = value(in, "parallelism", "pipeline_parallel_schedule_csv");

    if (csv && (!json_is_string(csv) || *json_string_value(csv)))
        return fail("%s: parallelism.pipeline_parallel_schedule_csv: schedules of one's own are not modelled", in->where);
    return titan_keys_check(in->config, in->where);
}

static int read_whole(const json_t *config, const char *where, struct plan *p, struct notes *notes)
{
    static const char *const precisions[] = { "float32", "bfloat16", NULL }, *const held[] = { "float32", NULL };
    struct import in = { config, where, p, notes, p->micro_batch, p->accumulation };
    struct degrees d;
    int precision, dtype;
    int64_t seq;

    if (json_object_size(config) == 0)
        return fail("%s: expected a torchtitan config: sections with keys, or options", where);
    if (family_for(&p->model)->sinks)
        return fail("%s: torchtitan computes %s's attention by flex attention with a sink a head, which is not planned", where, p->model.family);
    if (check_keys(&in) < 0 || read_degrees(&in, &d) < 0 || chosen(&in, "training", "mixed_precision_param", precisions, 1, &precision) < 0 ||
        chosen(&in, "training", "dtype", held, 0, &dtype) < 0 || integer(&in, "training", "seq_len", p->seq ? p->seq : 2048, 1, &seq) < 0)
        return -1;
    p->seq = p->seq > 0 ? p->seq : seq;
    if (d.replicate > 1 && d.shard * d.context == 1 && d.tensor > 1)
        return fail("%s: parallelism.data_parallel_replicate_degree: torchtitan refuses DDP beside tensor parallelism (\"DDP has not supported > 1D "
                    "parallelism\")", where);
    p->framework_version[0] = '\0';
    plan_defaults(p, d.replicate > 1 && d.shard * d.context == 1 ? STRAT_DDP : STRAT_FSDP, DIALECT_TORCH,
                  precision ? DT_BF16 : DT_FP32);
    p->parallel.tensor = d.tensor;
    p->parallel.pipeline = d.pipeline;
    p->parallel.context = d.context;
    knob_follow(p, NULL, NULL);
    p->clip = 1;
    p->optimizer_form = OPTIMIZER_FUSED;
    if (p->strategy == STRAT_FSDP)
        p->reduce_dtype = DT_FP32;
    else
        p->ddp.bucket_cap_mb = 100;             /* apply_ddp() */
    if (read_recompute(&in) < 0 || read_knobs(&in) < 0 || read_parallel(&in, &d) < 0 || read_batch(&in, &d) < 0 || read_compute(&in) < 0)
        return -1;
    if (p->strategy == STRAT_FSDP) {
        p->fsdp.root_units = root_units_of_torchtitan(p);
        if (p->fsdp.root_units != ROOT_TOGETHER)
            notes_add(notes, "fsdp.root_units \"apart\": units of their own for embedding and head since August 2025; for an earlier tree set \"together\"");
    }
    if (p->model.experts > 0 && p->parallel.expert == 1)
        notes_add(notes, "parallelism.expert_parallel_degree 1: routers and experts are planned as transformers computes them; torchtitan pads each expert's rows");
    tell_rotation(&in);
    titan_keys_list_rest(config, notes);
    plan_resolve(p);
    return plan_check(p, where);
}

/* Of torchtitan that reads TOML, before 23 February 2026 (llama3/infra/parallelize.py, apply_fsdp()): tok_embeddings and [norm, output] are
 * units that each have the one weight.  Since 23 March 2026 ("Add weight tying support") they are one unit. */
static void tell_tied_units(const struct plan *p, struct notes *notes)
{
    double elems = (double)p->model.vocab * (double)p->model.hidden / (double)p->parallel.tensor, shards = (double)p->shard_group;

    if (p->strategy != STRAT_FSDP || !p->model.tied || shards < 2)
        return;
    notes_add(notes, "model: embedding and head share one weight: torchtitan of before 23 March 2026, which reads TOML, gathers it in two units, twice more a "
              "micro-step, and reduces its gradient once more: %.2g GB more sent by a rank in a micro-step; planned as one unit",
              elems * (shards - 1) / shards * (double)(2 * dtype_bytes(p->precision) + dtype_bytes(p->reduce_dtype)) / 1e9);
}

int titan_read(const json_t *config, const char *where, struct plan *p, struct notes *notes)
{
    json_t *whole = titan_registry(config, where);
    int rc = whole ? read_whole(whole, where, p, notes) : -1;
    const char *name = json_string_value(json_object_get(config, "config"));

    if (rc == 0 && !name)
        tell_tied_units(p, notes);

    if (rc == 0 && name)
        notes_add(notes, "config: %.60s's values are those of torchtitan's config_registry.py of April 2026 (0.3.0); in August 2026 losses are taken "
                  "in eight chunks (ChunkedLossWrapper), which keep less, and attention is flex attention, of documents", name);
    if (rc == 0 && name && !strcmp(name, "sft_qwen3_8b_math"))              /* its flavor "8B_varlen" */
        notes_add(notes, "config: %.60s's attention is of documents (varlen): planned as of whole rows", name);
    json_decref(whole);
    return rc;
}

int titan_import(const json_t *config, const char *where, struct plan *p)
{
    struct notes notes = { 0 };
    int rc = titan_read(config, where, p, &notes);

    if (rc == 0)
        notes_print(&notes, where);
    return rc;
}

/* ---- files ---- */

static json_t *read_text(const char *path)
{
    char *text = input_text(path, 1 << 20, NULL);
    json_t *config = text ? titan_text(text, path) : NULL;

    free(text);
    return config;
}

/* A file that options name, from here or from where they are; its last name beside them, as torchtitan's own paths are of its tree. */
static json_t *read_named(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/'), *last = strrchr(name, '/');
    int folder = slash && name[0] != '/' ? (int)(slash - path) + 1 : 0;
    char beside[2][1024];

    snprintf(beside[0], sizeof beside[0], "%.*s%s", folder, path, name);
    snprintf(beside[1], sizeof beside[1], "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, last ? last + 1 : name);
    for (int i = 0; i < 3; i++) {
        const char *at = i ? beside[i - 1] : name;
        if (access(at, R_OK) == 0 && strcmp(at, path) != 0)
            return read_text(at);
    }
    fail("%s: job.config_file: %s: found neither here nor beside the options, which say less than all without it", path, name);
    return NULL;
}

static json_t *with_named(json_t *config, const char *path)
{
    const char *name = json_string_value(json_object_get(json_object_get(config, "job"), "config_file"));

    if (!name)
        return config;
    json_t *file = read_named(path, name);
    if (file)
        json_object_update_recursive(file, config);
    json_decref(config);
    return file;
}

json_t *titan_read_text(const char *text, const char *path) { return with_named(titan_text(text, path), path); }
json_t *titan_read_file(const char *path) { return with_named(read_text(path), path); }
