/* megatron_import.c -- see megatron_import.h. */
#include "model/exchange/megatron_import.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/input.h"
#include "base/yaml.h"
#include "model/plan/knob.h"

/* ---- reading ---- */

/* "--micro-batch-size" is micro_batch_size. */
static void name_of(const char *word, size_t n, char out[96])
{
    size_t from = n > 2 && word[0] == '-' && word[1] == '-' ? 2 : 0, len = 0;

    for (size_t i = from; i < n && len < 95; i++)
        out[len++] = word[i] == '-' ? '_' : word[i];
    out[len] = '\0';
}

static json_t *value_of(const char *text)
{
    char *end;
    long long whole = strtoll(text, &end, 10);

    if (*text && *end == '\0')
        return json_integer(whole);
    double real = strtod(text, &end);
    return *text && *end == '\0' ? json_real(real) : json_string(text);
}

/* A second value makes a list of the first. */
static void give(json_t *to, const char *name, const char *text)
{
    json_t *before = json_object_get(to, name);

    if (!before || json_is_true(before)) {
        json_object_set_new(to, name, value_of(text));
        return;
    }
    if (!json_is_array(before)) {
        json_object_set_new(to, name, json_pack("[O]", before));
        before = json_object_get(to, name);
    }
    json_array_append_new(before, value_of(text));
}

/* The next word, blanks, line continuations and comments skipped; NULL: none. */
static char *next_word(char **at)
{
    char *s = *at, *word;

    for (;;) {
        s += strspn(s, " \t\r\n");
        if (*s == '\\' && (s[1] == '\n' || s[1] == '\r'))
            s++;
        else if (*s == '#')
            s += strcspn(s, "\n");
        else
            break;
    }
    if (!*s)
        return NULL;
    word = s;
    s += strcspn(s, " \t\r\n");
    *at = *s ? s + 1 : s;
    *s = '\0';
    return word;
}

static json_t *command_line(char *text, const char *where)
{
    json_t *out = json_object();
    char *script = strstr(text, ".py"), name[96] = "", *word, *equal;

    if (script)
        text = script + 3;
    while ((word = next_word(&text))) {
        if (strchr(word, '$')) {
            fail("%s: \"%s\": a shell's variable: write its value", where, word);
            json_decref(out);
            return NULL;
        }
        if (!strncmp(word, "--", 2)) {
            equal = strchr(word, '=');
            name_of(word, equal ? (size_t)(equal - word) : strlen(word), name);
            json_object_set_new(out, name, json_true());
            if (equal)
                give(out, name, equal + 1);
        } else if (name[0]) {
            give(out, name, word);
        } else {
            fail("%s: \"%s\": expected an option such as --tensor-model-parallel-size 8", where, word);
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* Below MODEL_ARGS, or at the top. */
static json_t *from_yaml(const char *path)
{
    json_t *j = yaml_read_file(path), *args = j && json_object_get(j, "MODEL_ARGS") ? json_object_get(j, "MODEL_ARGS") : j, *out, *v;
    const char *key;
    char name[96];

    if (!j)
        return NULL;
    if (!json_is_object(args)) {
        fail("%s: expected options and their values", path);
        json_decref(j);
        return NULL;
    }
    out = json_object();
    json_object_foreach(args, key, v) {
        name_of(key, strlen(key), name);
        if (!json_is_false(v) && !json_is_null(v))
            json_object_set(out, name, v);
    }
    json_decref(j);
    return out;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && !strcmp(s + n - m, end);
}

enum { LARGEST = 1 << 20 };

json_t *megatron_import_file(const char *path)
{
    FILE *f;
    char *text;
    json_t *out = NULL;

    if (ends_with(path, ".yaml") || ends_with(path, ".yml"))
        return from_yaml(path);
    if (!(f = input_open(path)))
        return NULL;
    text = calloc(1, LARGEST + 1);
    size_t n = text ? fread(text, 1, LARGEST, f) : 0;
    if (!text || ferror(f))
        fail("%s: cannot be read", path);
    else if (n == LARGEST || memchr(text, '\0', n))
        fail("%s: expected a command line of Megatron-LM: text of less than a MiB", path);
    else
        out = command_line(text, path);
    free(text);
    fclose(f);
    return out;
}

/* ---- what an option says ---- */

struct import { const json_t *from; const char *where; struct plan *p; };

/* What a plan has no word for, and why; a value that asks for nothing (0 or 1 as given) passes. */
static const struct { const char *name, *why; int64_t nothing; } lacks[] = {
    { "fp16", "fp16 with loss scaling is not modelled yet", 0 },
    { "fp8", "8-bit floats are not planned in dialect megatron yet", 0 },
    { "fp8_format", "8-bit floats are not planned in dialect megatron yet", 0 },
    { "fp8_param_gather", "8-bit floats are not planned in dialect megatron yet", 0 },
    { "num_experts", "experts are not planned in dialect megatron yet", 0 },
    { "expert_model_parallel_size", "experts are not planned in dialect megatron yet", 1 },
    { "expert_tensor_parallel_size", "experts are not planned in dialect megatron yet", 1 },
    { "multi_latent_attention", "latent attention is not planned in dialect megatron yet", 0 },
    { "mtp_num_layers", "multi-token prediction is not planned", 0 },
    { "tp_comm_overlap", "userbuffers' overlap is not modelled yet", 0 },
    { "distribute_saved_activations", "it is not modelled yet", 0 },
    { "recompute_modules", "only the attention core is modelled", 0 },
    { "num_distributed_optimizer_instances", "several instances are not modelled yet", 1 },
    { "use_precision_aware_optimizer", "states in other formats are not modelled yet", 0 },
    { "optimizer_cpu_offload", "it is not modelled yet", 0 },
    { "use_torch_fsdp2", "that is dialect torch", 0 },
    { "use_megatron_fsdp", "Megatron-FSDP is not modelled", 0 },
    { "pipeline_model_parallel_layout", "layouts of a pipeline are not modelled yet", 0 },
    { "use_tp_pp_dp_mapping", "another order of ranks is not modelled yet", 0 },
    { "defer_embedding_wgrad_compute", "it is not modelled yet", 0 },
    { "delay_wgrad_compute", "it is not modelled yet", 0 },
    { "no_gradient_accumulation_fusion", "gradients that are added by a kernel of their own are not modelled yet", 0 },
    { "overlap_p2p_communication_warmup_flush", "it is not modelled yet", 0 },
    { "calculate_per_token_loss", "it is not modelled yet", 0 },
    { "enable_cuda_graph", "CUDA graphs are not modelled", 0 },
    { "cuda_graph_impl", "CUDA graphs are not modelled", 0 },
    { "cpu_offloading", "it is not modelled yet", 0 },
    { "freeze_all_layers", "it is not modelled yet", 0 },
};

/* Beginnings of options that change nothing that a plan describes. */
static const char *const beside[] = {
    "lr", "min_lr", "weight_decay", "start_weight_decay", "end_weight_decay", "adam_", "train_iters", "train_samples", "exit_", "data_", "split", "log_", "save", "load",
    "eval_", "seed", "init_method", "distributed_", "tokenizer", "vocab_", "merge_file", "tensorboard", "wandb", "num_workers", "mock_data", "ckpt", "use_checkpoint", "dist_ckpt",
    "async_", "timing_", "attention_softmax_in_fp32", "no_masked_softmax_fusion", "use_mcore_models", "use_flash_attn", "attention_backend", "optimizer", "use_legacy_models",
    "manual_gc", "rampup", "no_load", "no_save", "reset_", "finetune", "override_", "norm_epsilon", "layernorm_epsilon", "rotary_", "use_rotary", "use_rope", "rope_",
    "position_embedding_type", "max_position_embeddings", "swiglu", "squared_relu", "normalization", "disable_bias_linear", "add_qkv_bias", "qk_layernorm", "untie_embeddings", "group_query_attention",
    "kv_channels", "apply_layernorm_1p", "no_bias", "no_rope_fusion", "no_create_attention_mask", "check_weight_hash", "local_rank", "straggler", "profile", "nvtx", "num_dataset",
    "ddp_num_buckets", "te_rng", "no_mmap", "legacy", "export_", "router", "accumulate_allreduce_grads_in_fp32", "use_cpu_initialization", "no_initialization", "cross_entropy", "no_persist",
};

/* What is applied below. */
static const char *const known[] = {
    "tensor_model_parallel_size", "sequence_parallel", "pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank",
    "context_parallel_size", "cp_comm_type", "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "micro_batch_size", "global_batch_size",
    "seq_length", "bf16", "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "ddp_bucket_size", "ddp_average_in_collective",
    "ddp_pad_buckets_for_high_nccl_busbw", "no_check_for_nan_in_loss_and_grad", "no_overlap_p2p_communication", "microbatch_group_size_per_virtual_pipeline_stage",
    "make_vocab_size_divisible_by", "grad_reduce_in_bf16", "recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_activations", "clip_grad",
    "hidden_dropout", "attention_dropout", "transformer_impl", "cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "num_layers", "hidden_size", "ffn_hidden_size",
    "num_attention_heads", "num_query_groups",
};

static bool has(const struct import *in, const char *name) { return json_object_get(in->from, name) != NULL; }

static int integer(const struct import *in, const char *name, int64_t usual, int64_t *out)
{
    const json_t *v = json_object_get(in->from, name);

    *out = usual;
    if (!v)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 1)
        return fail("%s: %s: expected a number from 1 on", in->where, name);
    *out = json_integer_value(v);
    return 0;
}

static bool says(const struct import *in, const char *name, const char *word)
{
    const char *s = json_string_value(json_object_get(in->from, name));

    return s && !strcmp(s, word);
}

static bool one_of(const char *name, const char *const *list, size_t n, bool begins)
{
    for (size_t i = 0; i < n; i++)
        if (begins ? !strncmp(name, list[i], strlen(list[i])) : !strcmp(name, list[i]))
            return true;
    return false;
}

static int check_names(const struct import *in)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)in->from, name, v) {
        for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
            if (!strcmp(name, lacks[i].name) && !(lacks[i].nothing && json_is_integer(v) && json_integer_value(v) == lacks[i].nothing) &&
                !(!strcmp(name, "recompute_modules") && says(in, name, "core_attn")))
                return fail("%s: %s: %s", in->where, name, lacks[i].why);
        if (!one_of(name, known, sizeof known / sizeof *known, false) && !one_of(name, beside, sizeof beside / sizeof *beside, true) &&
            strcmp(name, "num_distributed_optimizer_instances") && strncmp(name, "expert_", 7) && strcmp(name, "recompute_modules"))
            return fail("%s: %s: no option of Megatron-LM 0.16.1 that a plan knows", in->where, name);
    }
    return 0;
}

/* The options that describe the model agree with it. */
static int check_model(const struct import *in)
{
    const struct model *m = &in->p->model;
    const struct { const char *name; int64_t is; } of[] = {
        { "num_layers", m->layers }, { "hidden_size", m->hidden }, { "ffn_hidden_size", m->ffn }, { "num_attention_heads", m->heads },
        { "num_query_groups", m->kv_heads },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        int64_t v;
        if (integer(in, of[i].name, of[i].is, &v) < 0)
            return -1;
        if (v != of[i].is)
            return fail("%s: %s: %" PRId64 ", but %s has %" PRId64, in->where, of[i].name, v, m->name, of[i].is);
    }
    return 0;
}

static int read_pipeline(struct import *in, int64_t pipe)
{
    struct plan *p = in->p;
    int64_t chunks, layers;

    if (integer(in, "num_virtual_stages_per_pipeline_rank", 1, &chunks) < 0 || integer(in, "num_layers_per_virtual_pipeline_stage", 0, &layers) < 0)
        return -1;
    p->parallel.first_stage_less = has(in, "account_for_embedding_in_pipeline_split");
    p->parallel.last_stage_less = has(in, "account_for_loss_in_pipeline_split");
    int64_t all = p->model.layers + p->parallel.first_stage_less + p->parallel.last_stage_less;
    if (layers && all % (pipe * layers))
        return fail("%s: num_layers_per_virtual_pipeline_stage: %" PRId64 " layers do not divide into stages of %" PRId64 " on %" PRId64 " ranks", in->where, all, layers,
                    pipe);
    chunks = layers ? all / (pipe * layers) : chunks;
    if (pipe == 1 && chunks > 1)
        return fail("%s: virtual stages need pipeline_model_parallel_size", in->where);
    p->parallel.pipeline_schedule = chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
    knob_follow(p, NULL, NULL);
    p->parallel.virtual_stages = chunks;
    p->parallel.first_stage_less = has(in, "account_for_embedding_in_pipeline_split");
    p->parallel.last_stage_less = has(in, "account_for_loss_in_pipeline_split");
    p->megatron.overlap_p2p_comm = chunks == 1 || !has(in, "no_overlap_p2p_communication");
    return chunks == 1 ? 0 : integer(in, "microbatch_group_size_per_virtual_pipeline_stage", pipe, &p->megatron.microbatch_group_size_per_vp_stage);
}

static int read_parallel(struct import *in)
{
    struct plan *p = in->p;

    if (integer(in, "tensor_model_parallel_size", 1, &p->parallel.tensor) < 0 || integer(in, "context_parallel_size", 1, &p->parallel.context) < 0 ||
        integer(in, "pipeline_model_parallel_size", 1, &p->parallel.pipeline) < 0)
        return -1;
    knob_follow(p, NULL, NULL);
    p->parallel.sequence = has(in, "sequence_parallel") && p->parallel.tensor > 1;
    if (p->parallel.context > 1 && has(in, "cp_comm_type") && !says(in, "cp_comm_type", "p2p"))
        return fail("%s: cp_comm_type: p2p is modelled", in->where);
    return read_pipeline(in, p->parallel.pipeline);
}

static int read_batch(struct import *in)
{
    struct plan *p = in->p;
    int64_t batch, each;

    if (integer(in, "micro_batch_size", 0, &p->micro_batch) < 0 || integer(in, "seq_length", p->seq, &batch) < 0)
        return -1;
    if (p->micro_batch == 0)
        return fail("%s: micro_batch_size: missing", in->where);
    if (batch == 0)
        return fail("%s: seq_length: missing", in->where);
    if (p->seq && p->seq != batch)
        return fail("%s: seq_length: %" PRId64 ", but --seq says %" PRId64, in->where, batch, p->seq);
    p->seq = batch;
    each = p->micro_batch * plan_batch_ranks(p);
    if (integer(in, "global_batch_size", each, &batch) < 0)
        return -1;
    if (each == 0 || batch % each)
        return fail("%s: global_batch_size: %" PRId64 " is not a multiple of micro_batch_size x data-parallel ranks, %" PRId64, in->where, batch, each);
    p->accumulation = batch / each;
    return 0;
}

static int read_compute(struct import *in)
{
    struct plan *p = in->p;
    const json_t *clip = json_object_get(in->from, "clip_grad"), *dropout = json_object_get(in->from, "hidden_dropout");

    p->clip = clip ? json_number_value(clip) : 1;
    p->dropout = dropout ? json_number_value(dropout) : 0.1;
    if (has(in, "grad_reduce_in_bf16"))
        p->reduce_dtype = DT_BF16;
    if (says(in, "transformer_impl", "local"))
        p->kernels = KERNELS_MEGATRON_LOCAL;
    if (has(in, "cross_entropy_loss_fusion"))
        p->loss = says(in, "cross_entropy_fusion_impl", "te") ? LOSS_FUSED : LOSS_COMPILED;
    if (says(in, "recompute_granularity", "selective") || has(in, "recompute_activations"))
        p->recompute = RECOMPUTE_SELECTIVE;
    if (!says(in, "recompute_granularity", "full"))
        return 0;
    p->recompute = RECOMPUTE_FULL;
    if (!says(in, "recompute_method", "uniform") || (has(in, "recompute_num_layers") && json_integer_value(json_object_get(in->from, "recompute_num_layers")) != 1))
        return fail("%s: recompute_method: uniform with recompute_num_layers 1 is modelled", in->where);
    return 0;
}

static int read_data(struct import *in)
{
    struct megatron_options *o = &in->p->megatron;

    o->overlap_grad_reduce = has(in, "overlap_grad_reduce");
    o->overlap_param_gather = has(in, "overlap_param_gather");
    o->ddp_average_in_collective = has(in, "ddp_average_in_collective");
    o->ddp_pad_buckets_for_high_nccl_busbw = has(in, "ddp_pad_buckets_for_high_nccl_busbw");
    o->check_for_nan_in_loss_and_grad = !has(in, "no_check_for_nan_in_loss_and_grad");
    if (integer(in, "ddp_bucket_size", o->ddp_bucket_size, &o->ddp_bucket_size) < 0)
        return -1;
    return integer(in, "make_vocab_size_divisible_by", 128, &o->make_vocab_size_divisible_by);
}

int megatron_import(const json_t *options, const char *where, struct plan *p)
{
    struct import in = { options, where, p };
    int64_t seq = p->seq;

    if (json_object_size(options) == 0)
        return fail("%s: expected options of Megatron-LM, such as --tensor-model-parallel-size 8", where);
    if (check_names(&in) < 0 || check_model(&in) < 0)
        return -1;
    p->framework_version[0] = '\0';
    p->seq = seq ? seq : 1;
    plan_defaults(p, has(&in, "use_distributed_optimizer") ? STRAT_ZERO1 : STRAT_DDP, DIALECT_MEGATRON, has(&in, "bf16") ? DT_BF16 : DT_FP32);
    p->seq = seq;
    if (read_parallel(&in) < 0 || read_batch(&in) < 0 || read_compute(&in) < 0 || read_data(&in) < 0)
        return -1;
    plan_resolve(p);
    return plan_check(p, where);
}

/* ---- writing ---- */

static void flag(FILE *to, bool is, const char *name)
{
    if (is)
        fprintf(to, "%s\n", name);
}

static void number(FILE *to, const char *name, int64_t n) { fprintf(to, "%s %" PRId64 "\n", name, n); }

static void write_parallel(const struct plan *p, FILE *to)
{
    const struct parallel_options *of = &p->parallel;

    number(to, "--tensor-model-parallel-size", of->tensor);
    flag(to, of->sequence && of->tensor > 1, "--sequence-parallel");
    number(to, "--pipeline-model-parallel-size", of->pipeline);
    if (of->context > 1)
        number(to, "--context-parallel-size", of->context);
    if (of->pipeline == 1)
        return;
    flag(to, of->first_stage_less == 1, "--account-for-embedding-in-pipeline-split");
    flag(to, of->last_stage_less == 1, "--account-for-loss-in-pipeline-split");
    if (of->virtual_stages == 1)
        return;
    number(to, "--num-virtual-stages-per-pipeline-rank", of->virtual_stages);
    flag(to, !p->megatron.overlap_p2p_comm, "--no-overlap-p2p-communication");
    if (p->megatron.microbatch_group_size_per_vp_stage != of->pipeline)
        number(to, "--microbatch-group-size-per-virtual-pipeline-stage", p->megatron.microbatch_group_size_per_vp_stage);
}

static void write_data(const struct plan *p, FILE *to)
{
    const struct megatron_options *o = &p->megatron;

    flag(to, p->strategy == STRAT_ZERO1, "--use-distributed-optimizer");
    flag(to, o->overlap_grad_reduce, "--overlap-grad-reduce");
    flag(to, o->overlap_param_gather, "--overlap-param-gather");
    flag(to, p->reduce_dtype == DT_BF16, "--grad-reduce-in-bf16");
    flag(to, o->ddp_average_in_collective, "--ddp-average-in-collective");
    flag(to, o->ddp_pad_buckets_for_high_nccl_busbw, "--ddp-pad-buckets-for-high-nccl-busbw");
    flag(to, !o->check_for_nan_in_loss_and_grad, "--no-check-for-nan-in-loss-and-grad");
    number(to, "--ddp-bucket-size", o->ddp_bucket_size);
    number(to, "--make-vocab-size-divisible-by", o->make_vocab_size_divisible_by);
}

int megatron_export(const struct plan *p, FILE *to)
{
    if (p->dialect != DIALECT_MEGATRON)
        return fail("export to megatron: dialect: the plan is for %s", dialect_name(p->dialect));
    if (p->parallel.first_stage_less > 1 || p->parallel.last_stage_less > 1)
        return fail("export to megatron: parallel.first_stage_less_layers: 0 or 1 (--account-for-embedding-in-pipeline-split)");
    number(to, "--num-layers", p->model.layers);
    number(to, "--hidden-size", p->model.hidden);
    number(to, "--ffn-hidden-size", p->model.ffn);
    number(to, "--num-attention-heads", p->model.heads);
    flag(to, p->model.kv_heads != p->model.heads, "--group-query-attention");
    if (p->model.kv_heads != p->model.heads)
        number(to, "--num-query-groups", p->model.kv_heads);
    number(to, "--seq-length", p->seq);
    number(to, "--micro-batch-size", p->micro_batch);
    number(to, "--global-batch-size", plan_global_batch(p));
    flag(to, p->precision == DT_BF16, "--bf16");
    fprintf(to, "--transformer-impl %s\n", p->kernels == KERNELS_TE ? "transformer_engine" : "local");
    fprintf(to, "--clip-grad %g\n--hidden-dropout %g\n--attention-dropout %g\n", p->clip, p->dropout, p->dropout);
    write_parallel(p, to);
    write_data(p, to);
    flag(to, p->loss != LOSS_FP32, "--cross-entropy-loss-fusion");
    flag(to, p->loss == LOSS_FUSED, "--cross-entropy-fusion-impl te");
    flag(to, p->recompute == RECOMPUTE_SELECTIVE, "--recompute-granularity selective");
    flag(to, p->recompute == RECOMPUTE_FULL, "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1");
    return 0;
}
