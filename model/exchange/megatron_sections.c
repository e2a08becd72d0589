/* megatron_sections.c -- see megatron_sections.h. */
#include "model/exchange/megatron_sections.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/exchange/megatron_read.h"
#include "model/exchange/unread.h"

struct sections { const json_t *doc; const char *where; json_t *out; };

/* Where fields stand; of a list each member.  Those of the number format come first: they take the place of others'
 * (MixedPrecisionConfig.setup()). */
static const char *const places[] = {
    "mixed_precision", "trainer.plugins", "model", "model.config", "trainer.strategy", "trainer.strategy.ddp", "trainer.callbacks", "train", "ddp",
    "optimizer", "optim.config", "comm_overlap", "data", "dataset",
};
enum { PLACES = sizeof places / sizeof *places, PRECISION = 2 };

static const json_t *member(const json_t *in, const char *name, size_t n)
{
    char key[64];

    if (!json_is_object(in) || n + sizeof "_config" > sizeof key)
        return NULL;
    memcpy(key, name, n);
    key[n] = '\0';
    const json_t *v = json_object_get(in, key);
    if (!v) {                           /* an override file's */
        strcpy(key + n, "_config");
        v = json_object_get(in, key);
    }
    return v;
}

static const json_t *at(const json_t *doc, const char *path)
{
    for (size_t n; doc && *path; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");
        doc = member(doc, path, n);
    }
    return doc;
}

/* A field of a section, or of a member of a list of them; NULL: it is not there, or null. */
static const json_t *field(const json_t *section, const char *key)
{
    const json_t *v = json_object_get(section, key);

    for (size_t i = 0; !v && i < json_array_size(section); i++)
        v = json_object_get(json_array_get(section, i), key);
    return json_is_null(v) ? NULL : v;
}

static bool has_word(const json_t *v, const char *word) { return json_is_string(v) && strstr(json_string_value(v), word); }

/* What the sections say of a field, all of those from places[first] on the same; NULL and 0: nothing.  -1 reported. */
static int said(const struct sections *s, const char *key, int first, const json_t **out)
{
    *out = NULL;
    for (int i = first; i < PLACES; i++) {
        const json_t *v = field(at(s->doc, places[i]), key);
        if (v && *out && !json_equal(v, *out))
            return fail("%s: %s: two sections say different things of it (the second: %s)", s->where, key, places[i]);
        *out = v ? v : *out;
    }
    return 0;
}

/* ---- fields with a value ---- */

static const struct { const char *key, *option; } same[] = {
    { "tensor_model_parallel_size", NULL }, { "pipeline_model_parallel_size", NULL }, { "context_parallel_size", NULL }, { "cp_comm_type", NULL },
    { "hierarchical_context_parallel_sizes", NULL }, { "virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank" },
    { "microbatch_group_size_per_vp_stage", "microbatch_group_size_per_virtual_pipeline_stage" },
    { "num_layers_in_first_pipeline_stage", "decoder_first_pipeline_num_layers" },
    { "num_layers_in_last_pipeline_stage", "decoder_last_pipeline_num_layers" }, { "pipeline_model_parallel_layout", NULL },
    { "micro_batch_size", NULL }, { "global_batch_size", NULL }, { "seq_length", NULL }, { "sequence_length", "seq_length" },
    { "recompute_granularity", NULL }, { "recompute_method", NULL }, { "recompute_num_layers", NULL }, { "recompute_modules", NULL },
    { "hidden_dropout", NULL }, { "attention_dropout", NULL }, { "clip_grad", NULL }, { "optimizer", NULL }, { "bucket_size", "ddp_bucket_size" },
    { "num_layers", NULL }, { "hidden_size", NULL }, { "ffn_hidden_size", NULL }, { "num_attention_heads", NULL }, { "num_query_groups", NULL }, { "kv_channels", NULL },
    { "normalization", NULL }, { "position_embedding_type", NULL }, { "make_vocab_size_divisible_by", NULL }, { "transformer_impl", NULL },
    { "cross_entropy_fusion_impl", NULL }, { "num_moe_experts", "num_experts" }, { "expert_model_parallel_size", NULL },
    { "expert_tensor_parallel_size", NULL }, { "moe_router_topk", NULL }, { "moe_ffn_hidden_size", NULL }, { "moe_layer_freq", NULL },
    { "moe_shared_expert_intermediate_size", NULL }, { "moe_token_dispatcher_type", NULL }, { "moe_expert_capacity_factor", NULL },
    { "moe_router_score_function", NULL }, { "moe_router_num_groups", NULL }, { "moe_router_group_topk", NULL }, { "moe_router_dtype", NULL },
    { "moe_aux_loss_coeff", NULL }, { "moe_router_load_balancing_type", NULL }, { "moe_z_loss_coeff", NULL }, { "moe_latent_size", NULL }, { "q_lora_rank", NULL }, { "kv_lora_rank", NULL },
    { "qk_head_dim", NULL }, { "qk_pos_emb_head_dim", NULL }, { "v_head_dim", NULL }, { "rope_type", NULL }, { "softmax_type", NULL },
    { "window_size", NULL }, { "window_attn_skip_freq", NULL }, { "glu_linear_offset", NULL }, { "activation_func_clamp_value", NULL }, { "mtp_num_layers", NULL }, { "mtp_loss_scaling_factor", NULL }, { "num_distributed_optimizer_instances", NULL }, { "fp8", NULL },
    { "fp4", "fp4_format" }, { "cuda_graph_impl", NULL }, { "cuda_graph_scope", NULL }, { "cuda_graph_modules", NULL }, { "rampup_batch_size", NULL }, { "timing_log_level", NULL },
    { "num_buckets", "ddp_num_buckets" },
};

/* Beside fp8 or fp4 alone: a config that is written whole has them in 16 bits too.  fp8_params is NeMo 2's name, fp8_param Bridge's. */
static const struct { const char *key, *option; bool is_truth; } of_codes[] = {
    { "fp8_recipe", "fp8_recipe", false }, { "fp4_recipe", "fp4_recipe", false }, { "fp8_amax_history_len", "fp8_amax_history_len", false },
    { "fp8_param_gather", "fp8_param_gather", true }, { "fp8_param", "fp8_param_gather", true }, { "fp8_params", "fp8_param_gather", true },
    { "reuse_grad_buf_for_mxfp8_param_ag", "reuse_grad_buf_for_mxfp8_param_ag", true }, { "tp_only_amax_red", "tp_only_amax_red", true },
    { "first_last_layers_bf16", "first_last_layers_bf16", true }, { "num_layers_at_start_in_bf16", "num_layers_at_start_in_bf16", false },
    { "num_layers_at_end_in_bf16", "num_layers_at_end_in_bf16", false },
};

/* ---- fields that are true or false ---- */

/* `usual`: what megatron-core takes where nothing is said; the option is given where the field `is`. */
static const struct { const char *key, *option; bool usual, is; } truths[] = {
    { "sequence_parallel", NULL, false, true }, { "account_for_embedding_in_pipeline_split", NULL, false, true },
    { "account_for_loss_in_pipeline_split", NULL, false, true }, { "use_distributed_optimizer", NULL, false, true },
    { "overlap_grad_reduce", NULL, false, true }, { "overlap_param_gather", NULL, false, true },
    { "average_in_collective", "ddp_average_in_collective", false, true }, { "pad_buckets_for_high_nccl_busbw", "ddp_pad_buckets_for_high_nccl_busbw", false, true },
    { "check_for_nan_in_grad", "no_check_for_nan_in_loss_and_grad", false, false }, { "overlap_p2p_comm", "no_overlap_p2p_communication", true, false },
    { "tp_comm_overlap", NULL, false, true }, { "cross_entropy_loss_fusion", NULL, false, true }, { "calculate_per_token_loss", NULL, false, true },
    { "gradient_accumulation_fusion", "no_gradient_accumulation_fusion", true, false }, { "multi_latent_attention", NULL, false, true },
    { "distribute_saved_activations", NULL, false, true }, { "cpu_offloading", NULL, false, true }, { "defer_embedding_wgrad_compute", NULL, false, true },
    { "delay_wgrad_compute", NULL, false, true }, { "enable_cuda_graph", NULL, false, true }, { "external_cuda_graph", NULL, false, true }, { "use_megatron_fsdp", NULL, false, true },
    { "use_torch_fsdp2", NULL, false, true }, { "use_tp_pp_dp_mapping", NULL, false, true }, { "use_precision_aware_optimizer", NULL, false, true },
    { "optimizer_cpu_offload", NULL, false, true }, { "qk_layernorm", NULL, false, true }, { "add_qkv_bias", NULL, false, true },
    { "moe_grouped_gemm", NULL, false, true }, { "moe_router_enable_expert_bias", NULL, false, true }, { "moe_permute_fusion", NULL, false, true },
    { "moe_router_fusion", NULL, false, true }, { "moe_router_pre_softmax", NULL, false, true }, { "moe_shared_expert_overlap", NULL, false, true },
    { "moe_shared_expert_gate", NULL, false, true }, { "moe_apply_probs_on_input", NULL, false, true }, { "moe_pad_expert_input_to_capacity", NULL, false, true },
    { "moe_router_padding_for_fp8", NULL, false, true }, { "moe_router_padding_for_quantization", NULL, false, true },
    { "overlap_moe_expert_parallel_comm", NULL, false, true }, { "apply_rope_fusion", "no_rope_fusion", true, false },
    { "bias_dropout_fusion", "no_bias_dropout_fusion", false, false },
    { "bias_activation_fusion", "no_bias_swiglu_fusion", true, false },
    { "fp32_residual_connection", NULL, false, true }, { "moe_layer_recompute", NULL, false, true }, { "nccl_ub", NULL, false, true },
    { "fine_grained_activation_offloading", NULL, false, true }, { "overlap_param_gather_with_optimizer_step", NULL, false, true },
    { "use_custom_fsdp", NULL, false, true }, { "store_param_remainders", "no_store_param_remainders", true, false },
};

/* Of the model: all of these are stated, or it is not told whether it is the plan's. */
static const struct { const char *key, *option; bool is; } of_model[] = {
    { "gated_linear_unit", "swiglu", true }, { "add_bias_linear", "disable_bias_linear", false },
    { "share_embeddings_and_output_weights", "untie_embeddings_and_output_weights", false },
};

static int read_values(struct sections *s)
{
    const json_t *v;

    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const char *option = same[i].option ? same[i].option : same[i].key;
        if (said(s, same[i].key, 0, &v) < 0)
            return -1;
        if (v && json_object_get(s->out, option) && !json_equal(v, json_object_get(s->out, option)))
            return fail("%s: %s: two sections say different things of it", s->where, option);
        if (v)
            json_object_set(s->out, option, (json_t *)(uintptr_t)v);
    }
    return 0;
}

static int read_codes(struct sections *s)
{
    bool fp8 = json_object_get(s->out, "fp8") != NULL, fp4 = json_object_get(s->out, "fp4_format") != NULL;
    const json_t *v;

    for (size_t i = 0; i < sizeof of_codes / sizeof *of_codes; i++) {
        bool beside = !strncmp(of_codes[i].key, "fp8", 3) ? fp8 : !strncmp(of_codes[i].key, "fp4", 3) ? fp4 : fp8 || fp4;
        if (!beside)
            continue;
        if (said(s, of_codes[i].key, 0, &v) < 0)
            return -1;
        if (v && (!of_codes[i].is_truth || json_is_true(v)))
            json_object_set(s->out, of_codes[i].option, (json_t *)(uintptr_t)v);
    }
    return 0;
}

static int read_truth(struct sections *s, const char *key, const json_t **out)
{
    if (said(s, key, 0, out) < 0)
        return -1;
    return *out && !json_is_boolean(*out) ? fail("%s: %s: expected true or false", s->where, key) : 0;
}

/* A function by its name: "...quick_gelu", or {_target_: "...quick_gelu"}. */
static int read_activation(struct sections *s)
{
    const json_t *v;

    if (said(s, "activation_func", 0, &v) < 0)
        return -1;
    if ((has_word(v, "quick_gelu") || has_word(json_object_get(v, "_target_"), "quick_gelu")) && json_object_del(s->out, "swiglu") == 0)
        json_object_set_new(s->out, "quick_geglu", json_true());
    return 0;
}

static bool says_none(const struct sections *s, const char *key)
{
    for (int i = 0; i < PLACES; i++)
        if (json_is_null(json_object_get(at(s->doc, places[i]), key)))
            return true;
    return false;
}

/* What MLATransformerConfig has where nothing is said of it: other numbers than the command line's. */
static void take_usual(struct sections *s)
{
    static const struct { const char *key; int64_t usual; } of[] = { { "q_lora_rank", 512 }, { "kv_lora_rank", 512 } };

    for (size_t i = 0; i < sizeof of / sizeof *of && json_object_get(s->out, "multi_latent_attention"); i++)
        if (!json_object_get(s->out, of[i].key) && !says_none(s, of[i].key))
            json_object_set_new(s->out, of[i].key, json_integer(of[i].usual));
}

static int read_truths(struct sections *s)
{
    bool stated = json_object_get(s->out, "normalization") && json_object_get(s->out, "position_embedding_type");
    const json_t *v;

    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++) {
        if (read_truth(s, truths[i].key, &v) < 0)
            return -1;
        if ((v ? json_is_true(v) : truths[i].usual) == truths[i].is)
            json_object_set_new(s->out, truths[i].option ? truths[i].option : truths[i].key, json_true());
        if (v && json_is_true(v) && !strcmp(truths[i].key, "apply_rope_fusion"))
            json_object_set_new(s->out, "rope_fusion_stated", json_true());         /* fuses_rope() */
    }
    for (size_t i = 0; i < sizeof of_model / sizeof *of_model; i++) {
        if (read_truth(s, of_model[i].key, &v) < 0)
            return -1;
        stated = stated && v;
        if (v && json_is_true(v) == of_model[i].is)
            json_object_set_new(s->out, of_model[i].option, json_true());
    }
    if (!stated)
        json_object_set_new(s->out, "partly_stated", json_true());
    else
        take_usual(s);
    return read_activation(s);
}

/* The number format: a section of its own, which reduces gradients in fp32 unless it says otherwise, or its name; else the fields of the
 * others, which reduce in the model's format unless ddp says fp32. */
static int read_precision(struct sections *s)
{
    static const char *const flags[] = { "bf16", "fp16", "grad_reduce_in_fp32" };
    const json_t *bf16 = NULL, *fp16 = NULL, *wide = NULL, *v;
    bool section = false, is = false, half = false, fields = false;

    for (int i = 0; i < PLACES; i++)
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
            if (field(at(s->doc, places[i]), flags[k]) && !json_is_boolean(field(at(s->doc, places[i]), flags[k])))
                return fail("%s: %s.%s: expected true or false", s->where, places[i], flags[k]);
    for (int i = 0; i < PRECISION; i++) {
        const json_t *place = at(s->doc, places[i]), *name = json_is_object(place) || json_is_array(place) ? field(place, "precision") : json_is_null(place) ? NULL : place;
        section = section || json_is_string(place) || json_is_object(place) || json_array_size(place) > 0;
        fields = fields || json_is_object(place) || json_array_size(place) > 0;
        is = is || has_word(name, "bf16") || json_is_true(field(place, "bf16"));
        half = half || (has_word(name, "16") && !has_word(name, "bf16")) || json_is_true(field(place, "fp16"));
        wide = wide ? wide : field(place, "grad_reduce_in_fp32");
        if (has_word(name, "fp8") || has_word(name, "fp4"))
            return fail("%s: %s: \"%s\": 8- and 4-bit floats are read from fields (bf16, fp8, fp8_recipe, fp8_param_gather, fp4), not by name", s->where,
                        *places[i] ? places[i] : "precision", json_string_value(name));
        if (name && !has_word(name, "16") && !has_word(name, "32"))
            return fail("%s: %s: expected the name of a number format, such as bf16_mixed, bf16-mixed", s->where, places[i]);
    }
    if (said(s, "bf16", section ? PLACES : PRECISION, &bf16) < 0 || said(s, "fp16", section ? PLACES : PRECISION, &fp16) < 0 || said(s, "grad_reduce_in_fp32", section ? PLACES : PRECISION, &v) < 0)
        return -1;
    is = is || json_is_true(bf16);
    wide = wide ? wide : v;
    if (is)
        json_object_set_new(s->out, "bf16", json_true());
    if (is && (wide ? !json_is_true(wide) : !section))
        json_object_set_new(s->out, "grad_reduce_in_bf16", json_true());
    if (half || json_is_true(fp16))     /* fp16_mixed has gradients in 16 bits, a section that is written out in fp32 unless it says else */
        json_object_set_new(s->out, "fp16", json_true());
    if ((half || json_is_true(fp16)) && (wide ? json_is_true(wide) : fields))
        json_object_set_new(s->out, "accumulate_allreduce_grads_in_fp32", json_true());
    return 0;
}

/* The optimizer's number formats: torch.bfloat16, bfloat16, bf16, or {_target_: torch.bfloat16}; fp8 is torch.uint8. */
static int read_states(struct sections *s)
{
    static const char *const keys[] = { "main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype" };
    static const struct { const char *torch, *word; } of[] = { { "float32", "fp32" }, { "bfloat16", "bf16" }, { "float16", "fp16" }, { "uint8", "fp8" } };
    const json_t *v;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *word = NULL, *text;
        if (said(s, keys[i], 0, &v) < 0)
            return -1;
        if (!v)
            continue;
        v = json_is_object(v) ? json_object_get(v, "_target_") : v;
        text = json_is_string(v) ? json_string_value(v) : "";
        text += strncmp(text, "torch.", 6) ? 0 : 6;
        for (size_t k = 0; k < sizeof of / sizeof *of; k++)
            word = !strcmp(text, of[k].torch) || !strcmp(text, of[k].word) ? of[k].word : word;
        if (!word)
            return fail("%s: %s: expected a number format: torch.float32, torch.bfloat16, torch.float16, torch.uint8", s->where, keys[i]);
        json_object_set_new(s->out, keys[i], json_string(word));
    }
    return 0;
}

/* Of Hydra and of fiddle: how a section becomes an object. */
static bool is_hydras(const char *key)
{
    static const char *const of[] = { "_target_", "_partial_", "_args_", "_recursive_", "_convert_", "_call_", "_mode_" };

    return unread_is_among(key, of, sizeof of / sizeof *of);
}

static bool is_read(const char *key)
{
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (!strcmp(key, same[i].key))
            return true;
    for (size_t i = 0; i < sizeof of_codes / sizeof *of_codes; i++)
        if (!strcmp(key, of_codes[i].key))
            return true;
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
        if (!strcmp(key, truths[i].key))
            return true;
    for (size_t i = 0; i < sizeof of_model / sizeof *of_model; i++)
        if (!strcmp(key, of_model[i].key))
            return true;
    return !strcmp(key, "precision") || !strcmp(key, "bf16") || !strcmp(key, "fp16") || !strcmp(key, "grad_reduce_in_fp32") ||
           !strcmp(key, "activation_func") || !strcmp(key, "devices") || !strcmp(key, "num_nodes") || is_hydras(key);
}

/* Is `path` a place, or does one lie below it?  A section may be named with "_config" behind. */
static bool is_place(const char *path)
{
    size_t n = strlen(path);
    size_t m = n > 7 && !strcmp(path + n - 7, "_config") ? n - 7 : n;

    for (int i = 0; i < PLACES; i++)
        if ((!strncmp(places[i], path, n) && strchr(".", places[i][n])) || (!strncmp(places[i], path, m) && strchr(".", places[i][m])))
            return true;
    return false;
}

/* Weights in fp32 beside products in 16 bits. */
static bool keeps_wide(const struct sections *s, const char *key, const json_t *v)
{
    bool half = json_object_get(s->out, "bf16") || json_object_get(s->out, "fp16");

    return half && !strcmp(key, "params_dtype") && (has_word(v, "32") || has_word(json_object_get(v, "_target_"), "32"));
}

/* Fields that nothing above reads go on as they are: import tells or refuses them as it does unknown options. */
static void pass_rest(struct sections *s)
{
    static const bool lists[PLACES] = { [1] = true, [2] = true, [6] = true, [12] = true, [13] = true };      /* of parts, which list_sections() looks at, or of data */
    const char *key;
    char path[160];
    json_t *v;

    for (int i = 0; i < PLACES; i++) {
        const json_t *place = at(s->doc, places[i]);
        json_object_foreach((json_t *)(uintptr_t)place, key, v) {
            snprintf(path, sizeof path, "%s.%.100s", places[i], key);
            bool known = megatron_knows(key) || unread_is_name(key), nests = json_is_object(v) || json_is_array(v);
            if (is_read(key) || json_object_get(s->out, key) || (megatron_field_is_usual(key, v) && !(i == 0 && keeps_wide(s, key, v))) || (nests && (known || lists[i] || is_place(path))) || (known && unread_asks_nothing(v)))
                continue;
            json_object_set(s->out, key, v);
        }
    }
}

/* Sections, and fields of a model that are sections, in which nothing says anything of a step (Megatron-Bridge's ConfigContainer, NeMo 2's Run). */
static const char *const beside[] = {
    "_*", "scheduler", "optimizer_config_override_provider", "logger", "log", "tokenizer", "checkpoint", "dist", "rng", "ft", "straggler",
    "nvrx_straggler", "profiling", "rerun_state_machine", "validation", "inprocess_restart", "experimental", "tensor_inspect", "resume", "recipe", "seed", "exp_manager",
    "optim", "name", "run", "ci", "validate", "env", "cluster", "trainer.logger", "trainer.accelerator", "trainer.callbacks", "trainer.plugins", "trainer.limit_*",
    "trainer.max_*", "trainer.val_*", "trainer.log_*", "trainer.num_sanity_val_steps", "trainer.use_*", "trainer.enable_*", "trainer.accumulate_grad_batches",
    "trainer.devices", "trainer.strategy.*", "trainer.min_*", "trainer.fast_dev_run", "trainer.check_val_every_n_epoch",
    "trainer.benchmark", "trainer.profiler", "trainer.detect_anomaly", "trainer.inference_mode", "trainer.barebones", "trainer.default_root_dir",
    "trainer.reload_dataloaders_every_n_epochs", "trainer.model_registry", "model.activation_func", "model.transformer_layer_spec", "model.generation_config", "model.tokenizer",
    "model.*_init_method", "model.init_method", "model.*_dtype", "model.params_dtype", "model.vocab_size", "model.optim", "dataset.*", "data.*", "train.*",
    "mixed_precision.*", "comm_overlap.*", "ddp.*", "optimizer.*",
};

/* Of one of them, names that nobody knows. */
static void list_section(struct unread *u, const char *path, const json_t *v)
{
    const char *key;
    char at[200];
    json_t *each;

    bool known = unread_is_among(path, beside, sizeof beside / sizeof *beside);
    unread_add(u, path, NULL, known);
    json_object_foreach((json_t *)(uintptr_t)v, key, each) {
        snprintf(at, sizeof at, "%.120s.%.60s", path, key);
        if (known && *key != '_' && !unread_is_name(key) && !megatron_knows(key))
            unread_add(u, at, NULL, false);
    }
}

static bool states(const json_t *doc, const char *key)
{
    bool is = false;

    for (int i = 0; i < PLACES; i++)
        is = is || field(at(doc, places[i]), key) || json_object_get(at(doc, places[i]), key);
    return is;
}

/* A file that changes a recipe written in Python leaves its number format to that. */
static int check_format(const json_t *doc, const char *where)
{
    if (json_object_get(doc, "mixed_precision") || at(doc, "mixed_precision") || states(doc, "precision") || states(doc, "bf16") || states(doc, "fp16"))
        return 0;
    return fail("%s: mixed_precision: not given: the file changes a recipe, which decides it and more: give the config that a run writes (run_config.yaml), or put "
                "there what the recipe has, such as mixed_precision: bf16_mixed and ddp.use_distributed_optimizer: true", where);
}

/* What is a section of its own, and none that is read. */
static void list_sections(const struct sections *s)
{
    static const char *const within[] = { "", "model.", "trainer." };
    struct notes notes = { 0 };
    struct unread u = { .notes = &notes };
    const char *key;
    char path[160];
    json_t *v;

    for (int i = 0; i < 3; i++)
        json_object_foreach((json_t *)(uintptr_t)(i == 0 ? s->doc : i == 1 ? at(s->doc, "model") : at(s->doc, "trainer")), key, v) {
            snprintf(path, sizeof path, "%s%.100s", within[i], key);
            bool part = i == 0 || json_is_object(v) || json_is_array(v) || (i == 2 && !unread_asks_nothing(v));
            if (part && !is_place(path) && !is_read(key) && strcmp(key, "peft") && !megatron_field_is_usual(key, v))
                list_section(&u, path, v);
        }
    unread_end(&u);
    notes_print(&notes, s->where);
}

/* The section of adapters, which NeMo 2's model may hold; NULL: there is none, or it asks for none. */
static const json_t *adapters(const json_t *doc)
{
    const json_t *peft = json_object_get(doc, "peft");

    peft = peft && !unread_asks_nothing(peft) ? peft : json_object_get(at(doc, "model"), "peft");
    return peft && !unread_asks_nothing(peft) ? peft : NULL;
}

/* Adapters other than LoRA, and sections of NeMo 1, whose trainer and model.optim say what NeMo 2 says elsewhere. */
static int check_kind(const json_t *doc, const char *where)
{
    static const char *const tables[] = { "model", "train", "ddp", "optimizer", "comm_overlap", "dataset", "dist", "logger", "checkpoint" };
    static const char *const first[] = { "megatron_amp_O2", "optim", "encoder_seq_length", "restore_from_path" }, *const distils[] = { "teacher", "kd_config" };
    const json_t *model = at(doc, "model");
    struct training said;

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (json_object_get(doc, tables[i]) && !json_is_object(json_object_get(doc, tables[i])) && !json_is_null(json_object_get(doc, tables[i])))
            return fail("%s: %s: expected a section", where, tables[i]);
    if (adapters(doc) && megatron_adapters(adapters(doc), where, &said) < 0)
        return -1;
    for (size_t i = 0; i < sizeof distils / sizeof *distils; i++)
        if (json_object_get(model, distils[i]))
            return fail("%s: model.%s: distillation holds a second model", where, distils[i]);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (json_object_get(model, first[i]) && at(doc, "trainer"))
            return fail("%s: model.%s: NeMo 1's sections are not read: give Megatron-LM's options, or NeMo 2's recipe", where, first[i]);
    return 0;
}

bool megatron_has_sections(const json_t *doc)
{
    return json_is_object(at(doc, "model")) || json_is_object(at(doc, "trainer")) || json_is_object(at(doc, "train"));
}

/* Of a section in which nothing else matters. */
static void take(struct sections *s, const char *section, const char *key)
{
    const json_t *v = field(at(s->doc, section), key);

    if (v)
        json_object_set(s->out, key, (json_t *)(uintptr_t)v);
}

json_t *megatron_from_sections(const json_t *doc, const char *where)
{
    struct sections s = { doc, where, json_object() };
    const json_t *devices = field(at(doc, "trainer"), "devices"), *nodes = field(at(doc, "trainer"), "num_nodes");

    if (check_kind(doc, where) < 0 || read_values(&s) < 0 || read_codes(&s) < 0 || read_truths(&s) < 0 || read_precision(&s) < 0 ||
        read_states(&s) < 0 || check_format(doc, where) < 0) {
        json_decref(s.out);
        return NULL;
    }
    int64_t each = json_integer_value(devices), n = json_is_integer(nodes) ? json_integer_value(nodes) : 1;
    if (json_is_integer(devices))       /* 0: refused by its name */
        json_object_set_new(s.out, "world_size", json_integer(each > INT32_MAX || n > INT32_MAX || each < 1 || n < 1 ? 0 : each * n));
    take(&s, "dist", "distributed_backend");
    take(&s, "logger", "timing_log_level");
    pass_rest(&s);
    list_sections(&s);
    if (adapters(doc))
        json_object_set(s.out, "peft", (json_t *)(uintptr_t)adapters(doc));
    json_object_set_new(s.out, "in_sections", json_true());
    return s.out;
}

/* megatron-core's own choice differs from that of recipes (Megatron-Bridge's recipes/common.py and gpt_provider.py, NeMo 2's like it). */
void megatron_sections_tell(const json_t *doc, const char *where)
{
    static const struct { const char *key, *usual; } decisive[] = {
        { "use_distributed_optimizer", "false" }, { "overlap_grad_reduce", "false" }, { "overlap_param_gather", "false" }, { "cross_entropy_loss_fusion", "false" },
        { "check_for_nan_in_grad", "false" },
    };
    char open[300] = "";
    size_t n = 0;

    for (size_t i = 0; i < sizeof decisive / sizeof *decisive; i++)
        if (!states(doc, decisive[i].key) && n + 64 < sizeof open)
            n += (size_t)snprintf(open + n, sizeof open - n, "%s%s %s", n ? ", " : "", decisive[i].key, decisive[i].usual);
    if (n)
        notes_say("%s: a recipe in sections: what it leaves open is taken as megatron-core has it, though a recipe in Python may have set it: %s", where, open);
}
