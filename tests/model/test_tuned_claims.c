/* What is known to fit, or not to, of fine-tuning on one GPU. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "model/memory/evaluate.h"

/* The first LLaMAs, as their config.json have them. */
static json_t *llama(int hidden, int ffn, int layers, int heads)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "model_type", "llama", "hidden_size", hidden, "intermediate_size", ffn,
                     "num_hidden_layers", layers, "num_attention_heads", heads, "num_key_value_heads", heads, "vocab_size", 32000,
                     "tie_word_embeddings", 0);
}

static json_t *llama_65b(void) { return llama(8192, 22016, 80, 64); }

/* One GPU, 128 GiB of host memory. */
static void evaluated(json_t *model, const char *gpu, json_t *more, struct evaluation *e)
{
    json_t *j = json_pack("{s:i, s:o, s:{s:i, s:s, s:{s:I}}, s:s, s:s, s:s, s:i, s:s, s:s}", "dpx_plan", 1, "model", model, "cluster", "gpus_per_node", 1,
                          "gpu", gpu, "node", "memory_bytes", (json_int_t)1 << 37, "strategy",
                          "ddp", "dialect", "torch", "kernels", "torch-sdpa", "seq", 512, "precision", "bf16", "recompute", "full");
    struct plan p;

    json_object_update(j, more);
    json_decref(more);
    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    json_decref(j);
    assert_int_equal(evaluate(&p, e), 0);
    plan_free(&p);
}

static json_t *qlora(const char *base, const char *optimizer)
{
    return json_pack("{s:s, s:s, s:{s:i, s:s}, s:s, s:{s:s, s:b}}", "train", "lora", "base_dtype", base, "lora", "rank", 64, "target_modules",
                     "all-linear", "optimizer", optimizer, "ddp", "model_dtype", "bf16", "gradient_as_bucket_view", 1);
}

/* Dettmers et al. 2023 (QLoRA): 65B on one GPU of 48 GB, with NF4, double quantisation, adapters of rank 64 on all linear layers,
 * paged AdamW and checkpoints.  By hand: 80 x (4 x 8192^2 + 3 x 8192 x 22016) weights of 0.516 bytes are 33.4 GB, the tables 1.05,
 * 0.8e9 parameters of adapters 3.2 and their gradients 3.2 GB: 40.9; AdamW's states 6.4 GB more, which do not fit beside
 * it.  One GPU has no DistributedDataParallel: gradients as its buckets' views take as much. */
static void qlora_65b_fits_into_48_gb_with_paged_states(void **state)
{
    struct evaluation e;
    int64_t adapters = 80 * (int64_t)64 * (4 * (2 * 8192) + 3 * (8192 + 22016));

    (void)state;
    evaluated(llama_65b(), "l40s", qlora("nf4-double", "paged_adamw_32bit"), &e);
    assert_close((double)e.m.ledger.persistent[CAT_PARAMS], 33.4e9 + 1.05e9 + 4 * (double)adapters, 0.005);
    assert_true(e.m.fits);
    evaluation_free(&e);
    evaluated(llama_65b(), "l40s", qlora("nf4-double", "adamw"), &e);
    assert_false(e.m.fits);
    evaluation_free(&e);
}

/* The same paper, appendix: 33B at one sample of 512 tokens with checkpoints needs paged optimizers on 24 GB.  By hand: 60 x (4 x
 * 6656^2 + 3 x 6656 x 17920) weights of 0.516 bytes are 16.6 GB, the tables 0.85, adapters and their gradients 3.9: 21.4 GB, and 3.9
 * more of states. */
static void qlora_33b_needs_paged_states_on_24_gb(void **state)
{
    struct evaluation e;

    (void)state;
    evaluated(llama(6656, 17920, 60, 52), "rtx3090", qlora("nf4-double", "paged_adamw_32bit"), &e);
    assert_true(e.m.fits);
    evaluation_free(&e);
    evaluated(llama(6656, 17920, 60, 52), "rtx3090", qlora("nf4-double", "adamw"), &e);
    assert_false(e.m.fits);
    evaluation_free(&e);
}

/* Answer.AI 2024 (fsdp_qlora): 70B over two cards of 24 GB, which they ran with parameters offloaded to the host.  By hand, of a
 * rank: half of the codes, 68.5e9 of half a byte, are 17.1 GB; all of the statistics, 1/64 and 1/4096 of a byte each, 1.09 GB;
 * half of 1.05 GB of tables and of 1.66 GB of adapters in bf16 1.35: 19.5 GB, then gradients and AdamW's states in bf16 2.5 GB, and
 * a unit or two gathered.  Without offload it lacks a little; the weights are where the bytes are. */
static void qlora_70b_lacks_a_little_on_two_cards_of_24_gb(void **state)
{
    const double packed = 80 * (2 * 8192.0 * 8192 + 2 * 8192.0 * 1024 + 3 * 8192.0 * 28672), tables = 2 * 32000 * 8192.0;
    const double adapters = 80 * 64 * (2 * (8192.0 + 8192) + 2 * (8192.0 + 1024) + 3 * (8192.0 + 28672));
    json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:{s:i, s:s}, s:s, s:{s:s}}", "dpx_plan", 1, "model",
                          "llama-2-70b", "cluster", "2xrtx3090", "strategy", "fsdp", "dialect", "torch", "kernels", "torch-sdpa", "seq", 512,
                          "precision", "bf16", "recompute", "full", "train", "lora", "lora", "rank", 64, "target_modules", "all-linear",
                          "base_dtype", "nf4-double", "fsdp", "model_dtype", "bf16");
    struct evaluation e;
    struct plan p;

    (void)state;
    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    json_decref(j);
    assert_int_equal(evaluate(&p, &e), 0);
    assert_close((double)e.m.ledger.persistent[CAT_PARAMS], packed / 4 + packed / 64 + packed / 4096 + tables + adapters, 0.002);
    assert_close((double)e.m.ledger.persistent[CAT_OPTIMIZER], 2 * adapters, 0.002);
    assert_false(e.m.fits);
    assert_true(e.m.needed < 1.1 * (double)e.m.available);
    evaluation_free(&e);
    plan_free(&p);
}

/* The same run as it was made: parameters wait on the host, two samples of 2048 tokens, adapters of rank 64 on all linear layers but
 * attention's output.  By hand, what stays on a device: all statistics, 1/64 and 1/4096 of a byte a weight, 1.09 GB.  What waits, of a rank: half
 * of the codes, of both tables and of the adapters in bf16, 18.7 GB, in blocks of powers of two; then moments of 4 bytes an element of the
 * adapters.  A full block of 0.43 GB is gathered and copied out, twice at a time; 80 checkpoints of 2 x 2048 x 8192 elements are 5.4 GB. */
static void qlora_70b_fits_on_two_cards_of_24_gb_with_its_weights_on_the_host(void **state)
{
    const double packed = 80 * (2 * 8192.0 * 8192 + 2 * 8192.0 * 1024 + 3 * 8192.0 * 28672), tables = 2 * 32000 * 8192.0;
    const double adapters = 80 * 64 * ((8192.0 + 8192) + 2 * (8192.0 + 1024) + 3 * (8192.0 + 28672));
    json_t *j = json_pack("{s:i, s:s, s:{s:s, s:s, s:i, s:i, s:{s:I, s:f, s:i, s:i}}, s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:{s:i, s:[ssssss]}, "
                          "s:s, s:{s:s, s:b}}", "dpx_plan", 1, "model", "llama-2-70b", "cluster", "name", "two cards", "gpu", "rtx3090", "nodes", 1,
                          "gpus_per_node", 2, "node", "memory_bytes", (json_int_t)128 << 30, "dram_gb_per_s", 51.2, "sockets", 1, "cores", 8, "strategy",
                          "fsdp", "dialect", "torch", "kernels", "torch-sdpa", "seq", 2048, "micro_batch", 2, "precision", "bf16", "recompute",
                          "full", "train", "lora", "lora", "rank", 64, "target_modules", "q_proj", "k_proj", "v_proj", "up_proj", "gate_proj",
                          "down_proj", "base_dtype", "nf4-double", "fsdp", "model_dtype", "bf16", "cpu_offload", 1);
    struct evaluation e;
    struct plan p;

    (void)state;
    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    json_decref(j);
    assert_int_equal(evaluate(&p, &e), 0);
    assert_close((double)e.m.ledger.persistent[CAT_PARAMS], packed / 64 + packed / 4096, 0.01);
    assert_true(e.m.fits);
    assert_true((double)e.m.ledger.peak.bytes > packed / 64 + 80 * 2.0 * 2 * 2048 * 8192);
    assert_true((double)e.m.needed < 0.55 * (double)e.m.available);
    double waits = packed / 2 + 2 * tables + 2 * adapters;              /* of both ranks; pinned blocks are up to twice as large */
    assert_true((double)e.m.spaces.of[SPACE_PINNED].peak > waits && (double)e.m.spaces.of[SPACE_PINNED].peak < 2 * waits);
    assert_true((double)e.m.spaces.of[SPACE_HOST].peak > (double)e.m.spaces.of[SPACE_PINNED].peak + 4 * adapters);
    evaluation_free(&e);
    plan_free(&p);
}

/* QLoRA's 780 GB of full fine-tuning in 16 bits, of AdamW in fp32 with fp32 weights: 16 bytes a parameter are 1.04 TB;
 * in bf16 throughout 8 bytes, 522 GB. */
static void full_fine_tuning_of_65b_needs_half_a_terabyte(void **state)
{
    struct evaluation e;

    (void)state;
    evaluated(llama_65b(), "l40s", json_pack("{s:{s:s}}", "ddp", "model_dtype", "bf16"), &e);
    assert_close((double)(e.m.ledger.persistent[CAT_PARAMS] + e.m.ledger.persistent[CAT_OPTIMIZER]), 6 * 65.3e9, 0.005);
    assert_false(e.m.fits);
    evaluation_free(&e);
}

/* All of 7B on one card of 24 GB (6.74e9 parameters): in bf16 weights and gradients are 27 GB; in 8-bit states, too, nothing
 * helps that keeps both on the device.  DeepSpeed's stage 3 with parameters and states in host memory does: the device has a
 * layer or two at a time. */
static void all_of_7b_trains_on_24_gb_from_host_memory(void **state)
{
    struct evaluation e;

    (void)state;
    evaluated(json_string("llama-2-7b"), "rtx3090", json_pack("{s:{s:s}}", "ddp", "model_dtype", "bf16"), &e);
    assert_false(e.m.fits);
    evaluation_free(&e);
    evaluated(json_string("llama-2-7b"), "rtx3090", json_pack("{s:s, s:s}", "train", "lora", "base_dtype", "nf4"), &e);
    assert_true(e.m.fits);
    evaluation_free(&e);
    evaluated(json_string("llama-2-7b"), "rtx3090", json_pack("{s:s, s:s, s:{s:{s:s}, s:{s:s}}}", "strategy", "zero3", "dialect", "deepspeed",
              "deepspeed", "offload_optimizer", "device", "cpu", "offload_param", "device", "cpu"), &e);
    assert_true(e.m.needed < e.m.available);
    evaluation_free(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qlora_65b_fits_into_48_gb_with_paged_states),
        cmocka_unit_test(qlora_33b_needs_paged_states_on_24_gb),
        cmocka_unit_test(qlora_70b_lacks_a_little_on_two_cards_of_24_gb),
        cmocka_unit_test(qlora_70b_fits_on_two_cards_of_24_gb_with_its_weights_on_the_host),
        cmocka_unit_test(full_fine_tuning_of_65b_needs_half_a_terabyte),
        cmocka_unit_test(all_of_7b_trains_on_24_gb_from_host_memory),
    };
    return cmocka_run_group_tests_name("model/tuned claims", tests, NULL, NULL);
}
