/* phases_primerl.c -- phase plans of prime-rl's runs of reinforcement learning (`rl @ rl.toml`; prime_rl/configs/rl.py, orchestrator.py,
 * inference.py and trainer/rl/train.py, August 2026).
 *
 * A trainer and vLLM have GPUs of their own, and the orchestrator a CPU: responses of the next step are generated while a step trains.
 * Log-probabilities of the policy come from vLLM with the responses, so that no forward goes before the update, and no reference
 * model is there.  What is shared stands at the top, and goes to the sections below (utils/validation.py, propagate_shared_fields()).
 *
 * The trainer is the one of prime-rl's fine-tuning (form_primerl.c): its step has rows of seq_len tokens into which samples are packed
 * (trainer/batch.py), as many on each rank.  torch.cuda.empty_cache() goes before weights are broadcast, behind the optimizer. */
#include "sim/plan/phases_import.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/unread.h"
#include "sim/plan/named.h"

#define VLLM "inference.vllm."
#define ORCH "orchestrator."
#define TYPE(path) path ".type"

bool phases_is_primerl(const struct form_file *f)
{
    return f->kind == FORM_TOML && json_is_object(json_object_get(f->doc, "orchestrator")) && json_is_object(json_object_get(f->doc, "trainer"));
}

/* ---- what is refused, and what is told ---- */

static bool is_none(const struct importing *in, const char *path)
{
    const json_t *v = form_value(in->f->doc, path);
    const char *s = json_string_value(v);

    return !v || json_is_null(v) || (s && (!strcmp(s, "None") || !strcmp(s, "none") || !strcmp(s, "null")));
}

/* Where nothing is said weights go by NCCL, and adapters, of which no other way is there, through files (configs/rl.py, auto_setup_weight_broadcast()). */
static const char *broadcast(struct importing *in) { return import_text(in, TYPE("weight_broadcast"), is_none(in, "trainer.model.lora") ? "nccl" : "filesystem"); }

static int refuses(struct importing *in)
{
    static const struct { const char *path, *why; } set[] = {
        { "trainer.data.fake", "a benchmark of the trainer: dpxplan import reads its fine-tuning" },
        { VLLM "kv_transfer_config", "an engine whose KV cache travels is not planned" },
        { VLLM "speculative_config", "a draft model is not planned" },
        { "inference.kv_cache_offload", "a KV cache in host memory is not planned" },
    };
    static const struct { const char *path, *why; } on[] = {
        { "weight_broadcast.quantize_in_weight_transfer", "quantised weights in an engine are not planned" },
    };
    const char *deployed = import_text(in, TYPE("inference.deployment"), "single_node"), *way = broadcast(in);

    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (!is_none(in, set[i].path))
            return fail("%s: %s: %s", in->f->path, set[i].path, set[i].why);
    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        if (import_flag(in, on[i].path, false))
            return fail("%s: %s: %s", in->f->path, on[i].path, on[i].why);
    if (is_none(in, "inference"))
        return fail("%s: inference: left out: vLLM is started by something else, and this file does not say on which GPUs", in->f->path);
    if (!strcmp(deployed, "disaggregated"))
        return fail("%s: inference.deployment.type: engines that only read prompts or only write are not planned", in->f->path);
    const char *codes = is_none(in, VLLM "quantization") ? "none" : import_text(in, VLLM "quantization", "none");
    if (strcmp(codes, "none") != 0 && strcmp(codes, "fp8") != 0 && strcmp(codes, "awq") != 0 && strcmp(codes, "gptq") != 0)
        return fail("%s: " VLLM "quantization: %.20s: fp8, awq and gptq are planned", in->f->path, codes);
    if (strcmp(way, "filesystem") != 0 && strcmp(way, "nccl") != 0)
        return fail("%s: weight_broadcast.type: %.20s: filesystem and nccl are planned", in->f->path, way);
    if (!strcmp(way, "nccl") && !is_none(in, "trainer.model.lora"))
        return fail("%s: weight_broadcast.type: nccl: prime-rl refuses it of adapters: filesystem", in->f->path);
    return in->failed ? -1 : 0;
}

/* Keys of the sections that decide beside the trainer's, whose own the form knows; another one may be misspelt. */
static const struct { const char *section, *keys; } known[] = {
    { "", " trainer orchestrator inference env_vars run output_dir clean log ckpt resume monitors model tokenizer max_steps seq_len weight_broadcast "
          "rollout_transport deployment slurm dry_run " },
    { "model", " name vlm " },
    { "deployment", " type gpus_per_node num_train_gpus num_infer_gpus num_train_nodes num_infer_nodes num_infer_replicas nodes_per_fsdp_group "
                    "orchestrator_on_inference " },
    { "orchestrator", " algo model train tokenizer renderer eval log env_vars monitors collect_inference_metrics inference_metrics_roles ckpt resume "
                      "weight_broadcast rollout_transport output_dir tasks_per_minute env_server_base_port batch_size token_batch_size concurrency group_size "
                      "seq_len num_train_workers pad_to_multiple_of max_steps max_off_policy_steps heartbeat " },
    { "orchestrator.model", " name trust_remote_code vlm lora client " },
    { "orchestrator.model.lora", " name rank alpha " },
    { "orchestrator.model.client", " wait_for_ready_timeout base_url api_key_var headers headers_from_env extra_headers_from_state skip_model_check admin_base_url " },
    { "orchestrator.renderer", " name tool_parser reasoning_parser thinking_retention clear_thinking truncate_history_thinking enable_thinking preserve_all_thinking "
                               "preserve_thinking_between_tool_calls pool_size " },
    { "orchestrator.train", " source sampling filter_zero_advantages " },
    { "orchestrator.train.source", " env serve name ratio sampling group_size algo curriculum " },
    { "orchestrator.train.sampling", " temperature max_completion_tokens extra_body " },
    { "orchestrator.concurrency", " initial_inflight min_inflight max_inflight " },
    { "inference", " server vllm deployment router env_vars weight_broadcast kv_cache_offload log slurm output_dir use_deep_gemm enable_fp32_lm_head enable_fp32_router_logits use_pd_kv_transfer dry_run "
                   "backend_port run clean " },
    { "inference.vllm", " model dtype max_model_len enforce_eager trust_remote_code chat_template tool_call_parser reasoning_parser rope_scaling "
                        "tensor_parallel_size data_parallel_size data_parallel_size_local data_parallel_rpc_port api_server_count seed gpu_memory_utilization "
                        "enable_prefix_caching quantization enable_lora max_loras max_cpu_loras max_lora_rank lora_target_modules enable_expert_parallel "
                        "all2all_backend enable_eplb enable_dbo enable_return_routed_experts max_num_seqs max_num_batched_tokens block_size kv_cache_dtype "
                        "pipeline_parallel_size safetensors_load_strategy kv_transfer_config speculative_config " },
    { "monitors", " wandb file prime " },
    { "monitors.wandb", " project entity name group tags offline " },
    { "weight_broadcast", " type host port timeout session_id quantize_in_weight_transfer " },
};

static void tell_others(struct importing *in, const json_t *section, const char *name, const char *keys)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)section, key, v) {
        char word[80];
        snprintf(word, sizeof word, " %.70s ", key);
        if (!strstr(keys, word))
            notes_add(in->notes, "%s%s%s: not known: is it spelt right?", name, *name ? "." : "", key);
    }
}

/* Of a list each member. */
static void tell_unknown(struct importing *in)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const json_t *section = *known[i].section ? form_value(in->f->doc, known[i].section) : in->f->doc;
        tell_others(in, section, known[i].section, known[i].keys);
        for (size_t k = 0; k < json_array_size(section); k++)
            tell_others(in, json_array_get(section, k), known[i].section, known[i].keys);
    }
}

/* Each section is a table, and sources are a list of them (pydantic stops at others); one that may be left out is so by "None", too. */
static int check_sections(const struct importing *in)
{
    static const struct { const char *path; bool may_lack; } tables[] = {
        { "trainer", false }, { "orchestrator", false }, { "inference", true }, { "model", true }, { "deployment", false }, { "weight_broadcast", true }, { "log", false },
        { "ckpt", true }, { "resume", true }, { "monitors", false }, { "tokenizer", true }, { "run", false }, { "env_vars", false }, { "slurm", true },
        { "rollout_transport", true },
        { "trainer.model", false }, { "trainer.optim", false }, { "trainer.data", false }, { "trainer.scheduler", false }, { "trainer.loss", false },
        { "trainer.model.lora", true }, { "trainer.ckpt", true }, { "trainer.log", false }, { "trainer.weight_broadcast", true },
        { "orchestrator.algo", false }, { "orchestrator.model", false }, { "orchestrator.model.lora", true }, { "orchestrator.model.client", false },
        { "orchestrator.renderer", false }, { "orchestrator.train", false }, { "orchestrator.train.sampling", false }, { "orchestrator.concurrency", false },
        { "orchestrator.eval", true }, { "orchestrator.log", false }, { "orchestrator.tokenizer", false }, { "orchestrator.ckpt", true }, { "orchestrator.monitors", false },
        { "orchestrator.weight_broadcast", false }, { "inference.server", false }, { "inference.vllm", false }, { "inference.deployment", false },
        { "inference.router", true }, { "inference.weight_broadcast", false }, { "inference.kv_cache_offload", true }, { "inference.log", false },
    };
    const json_t *sources = form_value(in->f->doc, "orchestrator.train.source");

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const json_t *v = form_value(in->f->doc, tables[i].path);
        if (v && !json_is_object(v) && !(tables[i].may_lack && is_none(in, tables[i].path)))
            return fail("%s: %s: expected a section%s", in->f->path, tables[i].path, tables[i].may_lack ? ", or \"None\"" : "");
    }
    for (size_t i = 0; i < json_array_size(sources) || (sources && !json_is_array(sources)); i++)
        if (!json_is_object(json_array_get(sources, i)))
            return fail("%s: orchestrator.train.source: expected sections, [[orchestrator.train.source]]", in->f->path);
    return 0;
}

static void tell(struct importing *in)
{
    const char *algo = import_text(in, TYPE("orchestrator.algo"), "grpo");
    size_t i;
    json_t *source;

    if (!strcmp(algo, "opd") || !strcmp(algo, "sft") || form_value(in->f->doc, "orchestrator.algo.teacher"))
        notes_add(in->notes, "orchestrator.algo.type %s: its teacher is a server elsewhere, whose GPUs and time are not planned", algo);
    if (!strcmp(algo, "opsd"))
        notes_add(in->notes, "orchestrator.algo.type opsd: vLLM scores each response once more, which is not in its time");
    json_array_foreach((json_t *)(uintptr_t)form_value(in->f->doc, "orchestrator.train.source"), i, source) {
        static const char *const own[] = { "group_size", "sampling", "algo" };
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            if (json_object_get(source, own[k]))
                notes_add(in->notes, "orchestrator.train.source[%zu].%s: not followed: that of all sources is", i, own[k]);
    }
    if (form_value(in->f->doc, "orchestrator.concurrency"))
        notes_add(in->notes, "orchestrator.concurrency: responses of a step are planned as begun at once");
    notes_add(in->notes, "environments and what they wait for between turns are not in the times; evaluations neither");
    if (import_count(in, ORCH "max_off_policy_steps", 0, 8) > 1)
        notes_add(in->notes, "orchestrator.max_off_policy_steps: responses of several steps before are planned as one step off");
    if (import_flag(in, "trainer.enable_router_replay", false))
        notes_add(in->notes, "trainer.enable_router_replay: the experts that vLLM chose are planned as the router's own");
}

/* ---- who has which GPUs ---- */

struct split { int64_t train, infer; };

static struct split split_of(struct importing *in)
{
    int64_t node = import_count(in, "deployment.gpus_per_node", 1, 8);

    if (!strcmp(import_text(in, TYPE("deployment"), "single_node"), "single_node"))
        return (struct split){ import_count(in, "deployment.num_train_gpus", 1, 1), import_count(in, "deployment.num_infer_gpus", 1, 1) };
    int64_t served = import_count(in, "inference.deployment.num_nodes", 1, !strcmp(import_text(in, TYPE("inference.deployment"), "single_node"), "multi_node") ? 2 : 1);
    return (struct split){ node * import_count(in, "deployment.num_train_nodes", 1, 1),
                           node * import_count(in, "deployment.num_infer_nodes", 1, served) * import_count(in, "deployment.num_infer_replicas", 1, 1) };
}

static int check_split(struct importing *in, const struct split *s, const struct cluster *all)
{
    if (in->failed)
        return -1;
    if (s->train + s->infer != all->world_size)
        return fail("%s: deployment: %" PRId64 " GPUs train and %" PRId64 " generate, but --cluster has %" PRId64 ": give a cluster of %" PRId64
                    ", or change deployment's keys with --set", in->f->path, s->train, s->infer, all->world_size, s->train + s->infer);
    return 0;
}

/* ---- the trainer ---- */

static void move(json_t *to, const json_t *from, const char *key, const char *as)
{
    json_t *v = json_object_get(from, key);

    if (v)
        json_object_set(to, as, v);
}

static int64_t seq_of(struct importing *in) { return import_count(in, "trainer.model.seq_len", 1, import_count(in, "seq_len", 1, 2048)); }

/* Samples packed without gaps into rows of seq tokens, as many on each rank. */
static int64_t rows_of(int64_t samples, double tokens, int64_t seq, int64_t ranks)
{
    double all = ceil((double)samples * tokens / (double)seq / (double)ranks);

    return (int64_t)(all > 1 ? all : 1) * ranks;
}

/* As the form of its fine-tuning reads it. */
static json_t *as_sft(struct importing *in, const struct split *s, int64_t rows, int64_t seq)
{
    static const char *const others[] = { "optim", "scheduler", "ckpt", "log", "monitors", "matmul_precision", "max_steps", "memory_profiler_path", "gc", "trace_path",
                                          "dist_timeout_seconds", "heartbeat", "env_vars", "tokenizer", "weight_broadcast", "resume", "output_dir" };
    static const char *const silent[] = { "model", "data", "loss", "rollout_transport", "enable_router_replay", "metrics_server", "enable_token_export" };
    const json_t *trainer = json_object_get(in->f->doc, "trainer"), *shared = json_object_get(in->f->doc, "model");
    json_t *doc = json_object(), *model = json_object_get(trainer, "model"), *v;
    const char *key;

    model = json_is_object(model) ? json_deep_copy(model) : json_object();
    if (!json_object_get(model, "name"))
        move(model, shared, "name", "name");
    if (!json_object_get(model, "vlm"))
        move(model, shared, "vlm", "vlm");
    json_object_set_new(doc, "model", model);
    json_object_foreach((json_t *)(uintptr_t)trainer, key, v) {
        bool moves = false, is = false;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            moves |= !strcmp(key, others[i]);
        for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
            is |= !strcmp(key, silent[i]);
        if (moves)
            json_object_set(doc, key, v);
        else if (!is)
            notes_add(in->notes, "trainer.%s: not known: is it spelt right?", key);
    }
    json_object_set_new(doc, "data", json_pack("{s:I, s:I, s:i}", "seq_len", (json_int_t)seq, "batch_size", (json_int_t)rows, "micro_batch_size", 1));
    json_object_set_new(doc, "deployment", json_pack("{s:s, s:I}", "type", "single_node", "num_train_gpus", (json_int_t)s->train));
    int64_t nodes = import_count(in, "deployment.num_train_nodes", 1, 1), each = import_count(in, "deployment.nodes_per_fsdp_group", 1, nodes);
    if (nodes > each && nodes % each == 0)
        json_object_set_new(model, "dp_replicate", json_integer(nodes / each));
    return doc;
}

/* ---- the engine ---- */

/* On one node, and on each of several without enable_expert_parallel, engines that share no tensor ranks are one of data parallelism
 * (configs/rl.py: data_parallel_size), whose ranks cut or share out experts. */
static int add_engine(struct importing *in, const struct split *s, const struct cluster *all)
{
    const char *cache = import_text(in, VLLM "kv_cache_dtype", "auto");
    int64_t tensor = import_count(in, VLLM "tensor_parallel_size", 1, 1);
    static const char *const counts[] = { "max_num_seqs", "max_num_batched_tokens", "block_size" };
    char path[60];

    if (strcmp(cache, "auto") != 0 && strcmp(cache, "bfloat16") != 0 && strncmp(cache, "fp8", 3) != 0)
        return fail("%s: " VLLM "kv_cache_dtype: %.20s: auto, bfloat16 and fp8 are planned", in->f->path, cache);
    if (s->infer % tensor)
        return fail("%s: " VLLM "tensor_parallel_size: %" PRId64 " does not divide %" PRId64 " GPUs that generate", in->f->path, tensor, s->infer);
    json_t *engine = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:f, s:b, s:i, s:o}", "engine", "vllm", "version", "0.26", "driven", "server", "dtype", "bf16", "kv_cache_dtype",
                               strncmp(cache, "fp8", 3) ? "bf16" : "fp8", "tensor", (json_int_t)tensor, "gpu_memory_utilization",
                               import_number(in, VLLM "gpu_memory_utilization", 0.9), "enforce_eager", import_flag(in, VLLM "enforce_eager", false), "sleep", 0,
                               "cluster", phases_part_of(all, s->infer));
    int64_t sharing = import_flag(in, VLLM "enable_expert_parallel", false) || s->infer < all->gpus_per_node ? s->infer : all->gpus_per_node;
    import_positive(engine, "pipeline", import_count(in, VLLM "pipeline_parallel_size", 1, 1));
    if (in->actor.model.experts > 0 && (sharing > tensor || import_flag(in, VLLM "enable_expert_parallel", false)))
        import_positive(engine, "expert", sharing);
    if (!is_none(in, VLLM "quantization"))
        json_object_set_new(engine, "quantization", json_string(import_text(in, VLLM "quantization", "none")));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        snprintf(path, sizeof path, VLLM "%s", counts[i]);
        int64_t n = import_count(in, path, 1, 0);
        if (n)
            json_object_set_new(engine, counts[i], json_integer(n));
    }
    if (!is_none(in, "trainer.model.lora") || import_flag(in, VLLM "enable_lora", false))
        notes_add(in->notes, VLLM "enable_lora: the engine's room for adapters, and their products, are not counted");
    import_role(in, "engine", engine);
    return 0;
}

/* ---- all of it ---- */

static void add_phases(struct importing *in, int64_t rows)
{
    bool files = !strcmp(broadcast(in), "filesystem");

    if (!is_none(in, "trainer.model.lora"))
        notes_add(in->notes, "weight_broadcast: adapters alone go to the engine, through files: their time is not counted");
    else
        import_phase(in, json_pack("{s:s, s:s, s:s}", "name", "weights", "hand_over", "policy", "to", "engine"));
    if (files && is_none(in, "trainer.model.lora"))
        notes_add(in->notes, "weight_broadcast.type filesystem: weights go through files, which take longer than the links that are planned");
    import_phase(in, json_pack("{s:s, s:s}", "name", "generate", "generate", "engine"));
    import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "update", "update", "policy", "samples", (json_int_t)rows));
}

static json_t *run(struct importing *in, const struct cluster *all)
{
    struct split s = split_of(in);
    int64_t seq = seq_of(in), tokens = import_count(in, ORCH "token_batch_size", 1, 0), samples = import_count(in, ORCH "batch_size", 1, tokens ? 0 : 128);
    int64_t most = import_count(in, ORCH "train.sampling.max_completion_tokens", 1, seq), window = import_count(in, VLLM "max_model_len", 1, seq);
    int64_t n = import_count(in, ORCH "group_size", 1, 1), cp = import_count(in, "trainer.model.cp", 1, 1), limit = window < seq ? window : seq;
    json_t *response = NULL, *part, *doc;
    double prompt = 0;

    if (samples && tokens)
        import_refuse(in, ORCH "token_batch_size", "only one of batch_size and token_batch_size");
    if (check_split(in, &s, all) < 0 || import_lengths(in, most < limit ? most : limit, limit, "seq_len", &response, &prompt) < 0)
        return NULL;
    double mean = json_number_value(json_object_get(response, "mean"));
    samples = samples ? samples : (int64_t)fmax(1, (double)tokens / (prompt + mean));
    if (samples % n)
        import_refuse(in, ORCH "group_size", "a divisor of batch_size");
    int64_t rows = rows_of(samples, prompt + mean, seq, s.train % cp == 0 && s.train >= cp ? s.train / cp : s.train);
    in->cluster = part = phases_part_of(all, s.train);
    json_t *sft = as_sft(in, &s, rows, seq);
    int rc = in->failed ? -1 : import_actor(in, sft);
    json_decref(sft);
    doc = NULL;
    if (rc == 0 && add_engine(in, &s, all) == 0) {
        import_role(in, "policy", json_pack("{s:o, s:s, s:b}", "train", plan_to_json(&in->actor), "between", "device", "empties_cache", 1));
        add_phases(in, rows);
        doc = import_document(in, "prime-rl", samples, n, (int64_t)prompt, json_incref(response));
        json_object_set_new(doc, "asynchronous", json_true());
    }
    json_decref(response);
    json_decref(part);
    return doc;
}

json_t *phases_primerl(struct importing *in)
{
    struct cluster all;

    if (check_sections(in) < 0 || refuses(in) < 0)
        return NULL;
    if (!in->a->plan.cluster && !in->a->plan.cluster_doc) {
        fail("%s: say on which GPUs all of it runs: --cluster 8xh100", in->f->path);
        return NULL;
    }
    if (named_cluster(in->a->plan.cluster, in->a->plan.cluster_doc, &all) < 0)
        return NULL;
    tell_unknown(in);
    tell(in);
    return run(in, &all);
}
