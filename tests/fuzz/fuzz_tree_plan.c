/* Whole plans, model and cluster embedded, changed by their structure: what the parser takes is
 * evaluated, put on the clock and exported. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tree.h"

#include <math.h>
#include <stdio.h>

#include "model/exchange/export.h"
#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"

const char *const fuzz_words[] = {
    "\"strategy\": \"ddp\"", "\"strategy\": \"zero1\"", "\"strategy\": \"zero2\"", "\"strategy\": \"zero3\"",
    "\"strategy\": \"fsdp\"", "\"strategy\": \"dp\"", "\"dialect\": \"paper\"", "\"dialect\": \"torch\"",
    "\"dialect\": \"torch-fsdp1\"", "\"dialect\": \"deepspeed\"", "\"kernels\": \"dpx\"", "\"kernels\": \"torch-eager\"",
    "\"kernels\": \"torch-sdpa\"", "\"precision\": \"bf16\"", "\"precision\": \"fp16\"", "\"precision\": \"fp32\"",
    "\"reduce_dtype\": \"bf16\"", "\"reduce_dtype\": \"fp32\"", "\"recompute\": \"full\"", "\"recompute\": \"selective\"",
    "\"recompute\": \"none\"", "\"unit\": \"block\"", "\"unit\": \"2 blocks\"", "\"unit\": \"half-block\"",
    "\"unit\": \"tensor\"", "\"unit\": \"model\"", "\"unit\": \"module\"", "\"shard_group\": 2", "\"shard_group\": 4",
    "\"clip\": 1.0", "\"clip\": null", "\"dropout\": 0.1", "\"deterministic\": true", "\"sync_every_micro_step\": false",
    "\"accumulation\": 3", "\"recompute_interval\": 2", "\"framework_version\": \"2.9\"", "\"framework_version\": null",
    "\"cluster\": \"2x4xa100\"", "\"cluster\": \"8xh100\"", "\"cluster\": \"localhost:3\"", "\"model\": \"gpt2\"",
    "\"model\": \"gpt-lite\"", "\"fsdp\": {\"reshard_after_forward\": 2}", "\"fsdp\": {\"reshard_after_forward\": false}",
    "\"fsdp\": {\"root_reshard_after_forward\": true}", "\"fsdp\": {\"sharding_strategy\": \"HYBRID_SHARD\"}",
    "\"fsdp\": {\"sharding_strategy\": \"SHARD_GRAD_OP\", \"backward_prefetch\": \"BACKWARD_POST\"}",
    "\"fsdp\": {\"forward_prefetch\": true, \"limit_all_gathers\": false, \"use_orig_params\": true}",
    "\"ddp\": {\"bucket_cap_mb\": 0.01}", "\"ddp\": {\"gradient_as_bucket_view\": true, \"static_graph\": true}",
    "\"ddp\": {\"find_unused_parameters\": true}", "\"ddp\": {\"model_dtype\": \"bf16\"}",
    "\"ddp\": {\"parameters_as_bucket_view\": true}", "\"deepspeed\": {\"reduce_bucket_size\": 1000}",
    "\"deepspeed\": {\"overlap_comm\": false, \"reduce_scatter\": false}", "\"deepspeed\": {\"sub_group_size\": 5000}",
    "\"deepspeed\": {\"stage3_max_live_parameters\": 0, \"stage3_max_reuse_distance\": 0}",
    "\"deepspeed\": {\"stage3_param_persistence_threshold\": 0, \"stage3_prefetch_bucket_size\": 0}",
    "\"deepspeed\": {\"round_robin_gradients\": true, \"contiguous_gradients\": false}",
    "\"deepspeed\": {\"grad_accum_dtype\": \"fp32\"}", "\"deepspeed\": {\"communication_data_type\": \"fp32\"}",
    "\"dp\": {\"gather\": \"logits\"}", "\"num_key_value_heads\": 1", "\"tie_word_embeddings\": true",
    "\"attention_bias\": true", "\"activation_function\": \"relu\"", "\"headroom\": 0", "\"memory_bytes\": 1000000",
    "\"dialect\": \"megatron\"", "\"kernels\": \"te\"", "\"kernels\": \"megatron-local\"", "\"kernels\": \"torch-compile\"",
    "\"recompute\": \"op\"", "\"recompute\": \"offload\"", "\"optimizer\": \"adamw_bnb_8bit\"", "\"optimizer\": \"lion_8bit\"",
    "\"optimizer\": \"sgd\"", "\"optimizer\": \"adafactor\"", "\"optimizer\": \"muon\"", "\"optimizer\": \"adamw_torch_4bit\"",
    "\"optimizer\": \"paged_adamw_8bit\"", "\"optimizer_form\": \"fused\"", "\"optimizer_form\": \"loop\"", "\"loss\": \"chunked\"",
    "\"loss\": \"fused-linear\"", "\"loss\": \"fused\"", "\"liger\": {\"rope\": true}", "\"activation_offload\": \"streams\"", "\"activation_offload\": \"save_on_cpu\"",
    "\"train\": \"lora\"", "\"train\": \"all\"", "\"train\": [\"*.mlp.*\"]", "\"base_dtype\": \"nf4-double\"", "\"base_dtype\": \"int8\"",
    "\"lora\": {\"rank\": 4, \"dropout\": 0.1, \"target_modules\": \"all-linear\"}",
    "\"lora\": {\"target_modules\": [\"c_attn\", \"c_fc\"]}", "\"lora\": {\"modules_to_save\": [\"lm_head\"]}", "\"fp8\": \"tensorwise\"",
    "\"fp8\": \"rowwise_with_gw_hp\"", "\"fp8_filter\": [\"mlp\"]", "\"fp8_filter\": \"auto_filter_small_kn\"",
    "\"fsdp\": {\"enable_fsdp_float8_all_gather\": true, \"precompute_float8_dynamic_scale_for_fsdp\": true}",
    "\"fsdp\": {\"cpu_offload\": true}", "\"ddp\": {\"comm_hook\": \"fp16_compress_hook\"}",
    "\"ddp\": {\"comm_hook\": \"powerSGD_hook\", \"PowerSGDState\": {\"matrix_approximation_rank\": 2, \"start_powerSGD_iter\": 2}}",
    "\"PowerSGDState\": {\"min_compression_rate\": 1.0, \"use_error_feedback\": false, \"warm_start\": false}",
    "\"parallel\": {\"tensor\": 2, \"sequence\": true}",
    "\"parallel\": {\"context\": 2, \"context_method\": \"ulysses\", \"context_balance\": false}",
    "\"parallel\": {\"pipeline\": 2, \"pipeline_schedule\": \"zbv\"}",
    "\"parallel\": {\"pipeline\": 2, \"pipeline_schedule\": \"interleaved\", \"virtual_stages\": 2}",
    "\"parallel\": {\"expert\": 2, \"expert_imbalance\": 1.5}",
    "\"parallel\": {\"tensor\": 2, \"sequence\": true, \"expert\": 2, \"expert_tensor\": 1}", "\"pipeline_schedule\": \"dualpipev\"",
    "\"expert_imbalance\": 3.7", "\"megatron\": {\"overlap_grad_reduce\": true, \"overlap_param_gather\": true}",
    "\"megatron\": {\"ddp_bucket_size\": 1000}", "\"megatron\": {\"fp8_format\": \"hybrid\"}",
    "\"megatron\": {\"fp8_format\": \"hybrid\", \"fp8_recipe\": \"mxfp8\", \"fp8_param_gather\": true, \"reuse_grad_buf_for_mxfp8_param_ag\": true}",
    "\"megatron\": {\"fp4_format\": \"e2m1\"}", "\"fp8_recipe\": \"blockwise\"",
    "\"megatron\": {\"tp_comm_overlap\": true, \"attention_backend\": \"flash\"}",
    "\"megatron\": {\"recompute_modules\": [\"mlp\", \"core_attn\"]}", "\"megatron\": {\"recompute_num_layers\": 1}",
    "\"megatron\": {\"calculate_per_token_loss\": true}", "\"pipeline_model_parallel_layout\": \"Et|tL\"",
    "\"megatron\": {\"hierarchical_a2a_ranks\": 2}", "\"microbatch_group_size_per_vp_stage\": 3",
    "\"deepspeed\": {\"zero_quantized_weights\": true, \"zero_hpz_partition_size\": 2}",
    "\"deepspeed\": {\"zero_quantized_gradients\": true}", "\"deepspeed\": {\"zero_quantized_nontrainable_weights\": true}",
    "\"deepspeed\": {\"offload_optimizer\": {\"device\": \"cpu\"}}",
    "\"deepspeed\": {\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/x\", \"buffer_size\": 100000}}",
    "\"num_local_experts\": 3", "\"num_experts_per_tok\": 3", "\"activation_function\": \"gelu_fast\"", "\"hidden_act\": \"gelu_python\"",
    NULL
};

/* In Python, YAML and command lines a name from a plan stays inside the place it was given. */
static void check_exports(const struct plan *p)
{
    static const char *const targets[] = { "deepspeed", "accelerate", "torchtitan", "fsdp", "megatron" };

    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        char *text = NULL;
        size_t size = 0;
        FILE *to = open_memstream(&text, &size);

        must_hold(to);
        fuzz_said[0] = '\0';
        int rc = export_plan(p, targets[i], to);
        fclose(to);
        must_hold(rc == 0 || (fuzz_said[0] && size == 0));
        for (size_t k = 0; k < size; k++)
            must_hold(text[k] == '\n' || ((unsigned char)text[k] >= ' ' && text[k] != 127));
        free(text);
    }
}

static void check_timing(const struct plan *p, const struct evaluation *e, const struct timing *t)
{
    json_t *doc = evaluation_json(p, e);

    must_hold(isfinite(t->line.step_s) && t->line.step_s >= 0);
    must_hold(t->low_s <= t->line.step_s * (1 + 1e-9) && t->high_s >= t->line.step_s * (1 - 1e-9));
    must_hold(t->held_bytes >= 0);
    must_hold(doc);
    simulate_timing_into(doc, p, e, t);
    must_hold(json_is_object(json_object_get(doc, "time")));
    json_decref(doc);
}

static void check(const struct plan *p)
{
    struct evaluation e;
    struct timing t;
    char why[256];

    fuzz_said[0] = '\0';
    if (evaluate(p, &e) < 0) {
        must_hold(fuzz_said[0]);
        return;
    }
    must_hold(schedules_check(&e.schedules, why, sizeof why));
    must_hold(e.m.rank >= 0 && e.m.rank < p->cluster.world_size && e.allocated_peak > 0);
    if (simulate_plan(p, &e, &t, NULL) == 0)
        check_timing(p, &e, &t);
    else
        must_hold(fuzz_said[0]);
    evaluation_free(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *j = json_loadb((const char *)data, size, 0, NULL);
    struct plan p;
    bool taken;

    fuzz_quiet();
    taken = j && plan_from_json(j, "fuzz", &p) == 0;
    if (taken) {
        check(&p);
        check_exports(&p);
        plan_free(&p);
    } else
        must_hold(!j || (fuzz_said[0] && !strchr(fuzz_said, '\n')));
    json_decref(j);
    return fuzz_count(data, size, taken);
}
