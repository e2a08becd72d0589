/* test_limits.c -- the largest model and micro-batch, the fewest GPUs; the papers' claims. */
#include "tests/check.h"
#include "model/memory/evaluate.h"
#include "sim/search/limits.h"

/* How large a model's states fit 80 GB (8e10 bytes), in the paper's recipe: of
 * each 64 parameters on 64 ranks stage 1 holds 64*4 + 12 = 268 bytes, stage 2
 * 64*2 + 14 = 142, stage 3 16; without sharding each parameter holds 16. */
static void eighty_gigabytes_hold_what_the_sources_say(void **state)
{
    (void)state;
    static const int64_t memory = 80000000000;
    static const struct { enum strategy s; int64_t world, per, of; double billions; } want[] = {
        { STRAT_DDP,   1,  16,  1,  5.0 }, { STRAT_DDP,  64, 16,  1,  5.0 },
        { STRAT_ZERO1, 64, 268, 64, 19 },  { STRAT_ZERO2, 64, 142, 64, 36 },
        { STRAT_ZERO3, 64, 16,  64, 320 }, { STRAT_FSDP, 64, 16,  64, 320 },
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct limit l;
        assert_int_equal(limit_states(memory, want[i].world, want[i].s, DIALECT_PAPER, DT_BF16, &l), 0);
        assert_int_equal(l.max_params, memory / want[i].per * want[i].of);
        assert_close(l.bytes_per_param, (double)want[i].per / (double)want[i].of, 1e-9);
        assert_close((double)l.max_params / 1e9, want[i].billions, 0.01);
    }
}

/* One byte less and it is one rank's worth of parameters less. */
static void one_byte_less_holds_less(void **state)
{
    (void)state;
    struct limit a, b;

    assert_int_equal(limit_states(16000, 1, STRAT_DDP, DIALECT_PAPER, DT_BF16, &a), 0);
    assert_int_equal(limit_states(15999, 1, STRAT_DDP, DIALECT_PAPER, DT_BF16, &b), 0);
    assert_int_equal(a.max_params, 1000);
    assert_int_equal(b.max_params, 999);
}

static void what_holds_no_parameter_holds_none(void **state)
{
    (void)state;
    struct limit l;

    assert_int_equal(limit_states(15, 1, STRAT_DDP, DIALECT_PAPER, DT_BF16, &l), 0);
    assert_int_equal(l.max_params, 0);
}

/* Frameworks keep whole gradients too: fp32 parameter, gradient and two moments under
 * autocast; DeepSpeed 2 + 2 + 12 bytes. */
static void frameworks_hold_gradients_as_well(void **state)
{
    (void)state;
    static const struct { enum strategy s; enum dialect d; } want[] = {
        { STRAT_DDP, DIALECT_TORCH }, { STRAT_DDP, DIALECT_DEEPSPEED }, { STRAT_DP, DIALECT_TORCH },
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct limit l;
        assert_int_equal(limit_states(80000000000, 8, want[i].s, want[i].d, DT_BF16, &l), 0);
        assert_close(l.bytes_per_param, 16, 1e-3);
    }
}

/* DataParallel is one process: two nodes answer as one does. */
static void data_parallel_is_asked_on_one_node(void **state)
{
    (void)state;
    struct plan p = { .seq = 1024, .micro_batch = 1, .accumulation = 1, .kernels = KERNELS_TORCH_SDPA,
                      .recompute_interval = 1 };
    struct limit one, two;

    assert_int_equal(model_load("gpt2", &p.model), 0);
    assert_int_equal(cluster_load("8xl4", &p.cluster), 0);
    assert_int_equal(limit_real(&p, STRAT_DP, DIALECT_TORCH, DT_BF16, ELSEWHERE_NOTHING, &one), 0);
    assert_int_equal(cluster_load("2x8xl4", &p.cluster), 0);
    assert_int_equal(limit_real(&p, STRAT_DP, DIALECT_TORCH, DT_BF16, ELSEWHERE_NOTHING, &two), 0);
    assert_int_equal(one.max_layers, two.max_layers);
    assert_int_equal(one.max_micro_batch, two.max_micro_batch);
    assert_int_equal(one.min_gpus, 1);
    plan_free(&p);
}

/* The first three blocks of DeepSeek-V3 have no experts, and fewer blocks are no mixture: the question began at one block, and had no
 * answer.  A block of experts has 257 x 3 x 7168 x 2048 parameters (the shared one among them): at 16 bytes each over 8 GPUs 22.6 GB, and
 * gathered, with its gradients in fp32 and what reduces them, ten bytes each or more, 113 GB: of 80 none fits, of 270 more than one. */
static void a_mixture_is_asked_from_its_first_experts_on(void **state)
{
    (void)state;
    struct plan p = { .seq = 4096, .micro_batch = 1, .accumulation = 1, .kernels = KERNELS_TORCH_SDPA, .recompute = RECOMPUTE_FULL,
                      .recompute_interval = 1 };
    struct limit l;

    assert_int_equal(model_load("deepseek-v3", &p.model), 0);
    assert_int_equal(cluster_load("8xb300", &p.cluster), 0);
    assert_int_equal(p.model.dense_first, 3);
    assert_int_equal(limit_real(&p, STRAT_FSDP, DIALECT_TORCH, DT_BF16, ELSEWHERE_NOTHING, &l), 0);
    assert_in_range(l.max_layers, 5, 3 + (int64_t)(270e9 / 22.6e9));
    assert_int_equal(cluster_load("8xh100", &p.cluster), 0);
    assert_int_equal(limit_real(&p, STRAT_FSDP, DIALECT_TORCH, DT_BF16, ELSEWHERE_NOTHING, &l), 0);
    assert_int_equal(l.max_layers, 0);
    plan_free(&p);
}

/* Without recompute 80 blocks of 70B keep 34 bytes of each of 4096 x 8192 elements and more: 85 GiB, whatever the number of GPUs.
 * With it stage 3 holds 70B on enough L4s, and that is said beside "none". */
static void the_fewest_gpus_are_those_of_the_best_way(void **state)
{
    (void)state;
    struct plan p = { .seq = 4096, .micro_batch = 1, .accumulation = 1, .kernels = KERNELS_TORCH_SDPA, .recompute_interval = 1 };
    struct limit plain, full;

    assert_int_equal(model_load("llama-3.1-70b", &p.model), 0);
    assert_int_equal(cluster_load("1x1xl4", &p.cluster), 0);
    assert_int_equal(limit_real(&p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16, ELSEWHERE_NOTHING, &plain), 0);
    p.recompute = RECOMPUTE_FULL;
    assert_int_equal(limit_real(&p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16, ELSEWHERE_NOTHING, &full), 0);
    assert_true(plain.min_gpus == 0 && full.min_gpus > 0 && full.min_gpus_recompute == 0);
    assert_int_equal(plain.min_gpus_recompute, full.min_gpus);
    assert_true(full.min_gpus * (p.cluster.memory - 80 * (int64_t)2 * 4096 * 8192) > 16 * p.model.params);      /* states and inputs alone */
    plan_free(&p);
}

/* A recorded module is not varied.  Its largest micro-batch is one that fits, and one more does not. */
static void a_recorded_module_is_asked_as_it_is(void **state)
{
    (void)state;
    static const struct { enum strategy s; enum dialect d; } cells[] = {
        { STRAT_DDP, DIALECT_TORCH }, { STRAT_FSDP, DIALECT_TORCH }, { STRAT_ZERO2, DIALECT_DEEPSPEED },
    };
    struct plan p = { .seq = 1024, .micro_batch = 1, .accumulation = 1, .kernels = KERNELS_TORCH_SDPA, .recompute_interval = 1 };

    assert_int_equal(model_load("demo/nanogpt.json", &p.model), 0);
    assert_int_equal(cluster_load("2xrtx4090", &p.cluster), 0);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        struct limit l;
        assert_int_equal(limit_real(&p, cells[i].s, cells[i].d, DT_BF16, ELSEWHERE_NOTHING, &l), 0);
        assert_int_equal(l.max_params, p.model.params);
        assert_int_equal(l.min_gpus, 1);
        for (int64_t more = 0; more <= 1; more++) {
            struct limit one_more = l;
            struct plan q;
            struct evaluation e;
            one_more.max_micro_batch = l.max_micro_batch + more;
            assert_int_equal(limit_plan(&p, &one_more, DT_BF16, ELSEWHERE_NOTHING, &q), 0);
            assert_int_equal(evaluate(&q, &e), 0);
            assert_int_equal(e.m.fits, !more);
            evaluation_free(&e);
        }
    }
    plan_free(&p);
}

/* ---- what the papers claim ---- */

static json_t *parsed(const char *text)
{
    json_error_t why;
    json_t *j = json_loads(text, 0, &why);

    assert_non_null(j);
    return j;
}

/* A GPT of this shape with full recompute in fp16, 1024 tokens, on one GPU of a DGX-2 (32 GB, 1.5 TiB of host memory)
 * or on all 16. */
static struct plan gpt(const char *shape, bool alone)
{
    struct plan p = { .seq = 1024, .micro_batch = 1, .accumulation = 1, .kernels = KERNELS_TORCH_SDPA,
                      .recompute = RECOMPUTE_FULL, .recompute_interval = 1 };
    json_t *model = parsed(shape), *cluster =
        parsed("{\"gpu\": \"v100-32gb\", \"gpus_per_node\": 1, \"node\": {\"memory_bytes\": 1649267441664,"
               "\"dram_gb_per_s\": 256, \"sockets\": 2, \"cores\": 48, \"disk_bytes\": 30720000000000}}");

    assert_int_equal(model_from_config(model, "gpt", &p.model), 0);
    if (alone)
        assert_int_equal(cluster_from_json(cluster, "one V100", &p.cluster), 0);
    else
        assert_int_equal(cluster_load("dgx-2", &p.cluster), 0);
    json_decref(model);
    json_decref(cluster);
    return p;
}

#define GPT_13B "{\"model_type\": \"gpt2\", \"n_embd\": 5120, \"n_layer\": 40, \"n_head\": 40, \"n_positions\": 1024}"

/* ZeRO-Offload (arXiv 2101.06840): "13B on one V100 of 32 GB", parameters and a gradient bucket on the GPU.  Stage 3
 * of DeepSpeed with optimizer states on the host holds them; without offload not 3B (16 bytes each). */
static void zero_offload_holds_13b_on_one_v100(void **state)
{
    (void)state;
    struct plan p = gpt(GPT_13B, true);
    struct limit with, without;

    assert_int_equal(limit_real(&p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_FP16, ELSEWHERE_OPTIMIZER, &with), 0);
    assert_int_equal(limit_real(&p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_FP16, ELSEWHERE_NOTHING, &without), 0);
    assert_true(with.max_params >= 13000000000 && with.max_micro_batch >= 1 && with.min_gpus == 1);
    assert_true(without.max_params < 3000000000 && without.max_micro_batch == 0);
    plan_free(&p);
}

/* Stage 2, which the paper is about, holds 13B in a step: 2 bytes each and what a step adds.  But DeepSpeed of today
 * clones the partition on the GPU first (stage_1_and_2.py: detach().clone().to(self.device)): 4 bytes each in init. */
static void stage_2_holds_13b_in_a_step_but_not_in_its_start(void **state)
{
    (void)state;
    struct plan p = gpt(GPT_13B, true);
    struct evaluation e;
    struct limit l;
    int64_t available = cluster_available(&p.cluster), all = p.cluster.memory - p.cluster.context;

    assert_int_equal(limit_real(&p, STRAT_ZERO2, DIALECT_DEEPSPEED, DT_FP16, ELSEWHERE_OPTIMIZER, &l), 0);
    assert_true(l.max_params >= 8000000000 && 4 * l.max_params <= all);
    plan_defaults(&p, STRAT_ZERO2, DIALECT_DEEPSPEED, DT_FP16);
    p.recompute = RECOMPUTE_FULL;
    assert_true(elsewhere_set(&p, ELSEWHERE_OPTIMIZER));
    assert_int_equal(evaluate_allocated(&p, &e), 0);
    assert_int_equal(e.m.ledger.peak.sched, SCHED_INIT);
    assert_true(e.m.ledger.phase[SCHED_INIT].bytes >= 4 * p.model.params);
    assert_true(e.m.ledger.phase[SCHED_STEADY].bytes >= 2 * p.model.params);
    assert_true(e.m.ledger.phase[SCHED_STEADY].bytes <= available);
    evaluation_free(&e);
    plan_free(&p);
}

/* As the paper states it, stage 2 has 2 bytes a parameter on the device, and a unit's gradients and activations: 13B fit. */
static void the_papers_stage_2_holds_13b(void **state)
{
    (void)state;
    struct plan p = gpt(GPT_13B, true);
    struct limit l;

    p.kernels = KERNELS_DPX;
    assert_int_equal(limit_real(&p, STRAT_ZERO2, DIALECT_PAPER, DT_FP16, ELSEWHERE_OPTIMIZER, &l), 0);
    assert_true(l.max_params >= 13000000000 && 2 * l.max_params <= cluster_available(&p.cluster) && l.max_micro_batch >= 1);
    assert_int_equal(limit_real(&p, STRAT_ZERO2, DIALECT_PAPER, DT_FP16, ELSEWHERE_NOTHING, &l), 0);
    assert_true(l.max_params < 2000000000);
    plan_free(&p);
}

#define GPT_12288(layers) "{\"model_type\": \"gpt2\", \"n_embd\": 12288, \"n_layer\": " layers ", \"n_head\": 96, \"n_positions\": 1024}"

/* ZeRO-Infinity (arXiv 2104.07857): "a trillion parameters on one DGX-2".  Its GPUs and its disks hold them: states and
 * parameters are 14 bytes each and, swapped, the fp32 gradients 4 more.  Its host memory does not, as DeepSpeed is today:
 * each rank keeps its 16-bit gradients pinned beside what it swaps (stage3.py: grad_partitions_flat_buffer), 2 TiB here.
 * 1e12 is 552 blocks of 12 x 12288^2. */
static void a_trillion_is_short_of_host_memory_alone(void **state)
{
    (void)state;
    struct plan p = gpt(GPT_12288("552"), false);
    struct evaluation e;

    assert_true(p.model.params >= 1000000000000);
    plan_defaults(&p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_FP16);
    p.recompute = RECOMPUTE_FULL;
    assert_true(elsewhere_set(&p, ELSEWHERE_DISK));
    assert_int_equal(plan_check(&p, "t"), 0);
    assert_int_equal(evaluate_allocated(&p, &e), 0);
    assert_true(e.m.needed <= e.m.available);
    assert_true(e.m.spaces.of[SPACE_DISK].fits);
    assert_close((double)e.m.spaces.of[SPACE_DISK].peak, 18. * (double)p.model.params, 1e-3);   /* vectors have no file */
    assert_true(!e.m.spaces.of[SPACE_HOST].fits && spaces_short(&e.m.spaces) == SPACE_HOST);
    assert_true(e.m.spaces.of[SPACE_PINNED].peak >= 16 * ((int64_t)1 << 37));
    evaluation_free(&e);
    plan_free(&p);
}

/* As the paper states it: 16 bytes a parameter in files, a unit's parameters and gradients on the device, two units' states
 * in host memory.  A trillion of 12288 wide blocks fits; the paper's own shape, 128 blocks of 25600, needs each block's
 * products cut in tiles ("memory-centric tiling", section 5.1.3), which is not modelled: its MLP of 8 x 25600^2 has 9.77 GiB
 * of parameters and as much of gradients, and beside them 4.88 GiB of attention's, read as the block is computed anew. */
static void the_papers_infinity_holds_a_trillion(void **state)
{
    (void)state;
    static const struct { const char *shape; bool fits; } want[] = {
        { GPT_12288("552"), true },
        { "{\"model_type\": \"gpt2\", \"n_embd\": 25600, \"n_layer\": 128, \"n_head\": 160, \"n_positions\": 1024}", false },
    };

    for (int i = 0; i < 2; i++) {
        struct plan p = gpt(want[i].shape, false);
        struct evaluation e;
        assert_true(p.model.params >= 1000000000000);
        plan_defaults(&p, STRAT_ZERO3, DIALECT_PAPER, DT_FP16);
        p.kernels = KERNELS_DPX;
        p.recompute = RECOMPUTE_OFFLOAD;
        p.unit = UNIT_HALF_BLOCK;
        assert_true(elsewhere_set(&p, ELSEWHERE_DISK));
        assert_int_equal(plan_check(&p, "t"), 0);
        assert_int_equal(evaluate_allocated(&p, &e), 0);
        assert_int_equal(e.m.needed <= e.m.available, want[i].fits);
        assert_true(e.m.spaces.of[SPACE_DISK].fits && e.m.spaces.of[SPACE_HOST].fits);
        assert_close((double)e.m.spaces.of[SPACE_DISK].peak, 16. * (double)p.model.params, 1e-3);   /* and padding */
        if (!want[i].fits)
            assert_true((double)e.m.needed > (2 * 8. + 4) * 25600 * 25600 * 2);
        evaluation_free(&e);
        plan_free(&p);
    }
}

/* With DeepSpeed's 5 buffers and its usual distance of reuse, buffers ran out in the 32nd block. */
static void a_deep_model_runs_from_disks(void **state)
{
    (void)state;
    struct plan p = { .seq = 4096, .micro_batch = 1, .accumulation = 1 };
    struct evaluation e;

    assert_int_equal(model_load("llama-3.1-8b", &p.model), 0);
    assert_int_equal(cluster_load("8xh100", &p.cluster), 0);
    plan_defaults(&p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    p.recompute = RECOMPUTE_FULL;
    assert_true(elsewhere_set(&p, ELSEWHERE_DISK));
    assert_int_equal(evaluate_allocated(&p, &e), 0);
    evaluation_free(&e);
    plan_free(&p);
}

/* What ends it is host memory, of which 95 % of 1.5 TiB are usable.  At its peak each of 16 ranks has its 16-bit gradients
 * pinned, in 2^35 bytes; a swap buffer of the whole parameters of a sub-group (16 slices of 1e9 elements of 2 bytes); and 5
 * buffers of its own slice in fp32.  What is left is the overflow mask's, a byte a parameter.  The bisection stops at one
 * block in 64, and a sub-group may be larger than 1e9 by a part of a tensor.  Without the disks it holds less. */
static void infinity_ends_with_host_memory(void **state)
{
    (void)state;
    struct plan p = gpt(GPT_12288("96"), false);
    struct limit disk, host;
    double left = .95 * 1.5 * (double)((int64_t)1 << 40) - 16 * ((double)((int64_t)1 << 35) + 2 * 16e9 + 5 * 4e9);

    assert_int_equal(limit_real(&p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_FP16, ELSEWHERE_DISK, &disk), 0);
    assert_string_equal(disk.then_short, "host memory of a node");
    assert_true((double)disk.max_params <= left && (double)disk.max_params > left * 31 / 32);
    assert_int_equal(limit_real(&p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_FP16, ELSEWHERE_ALL, &host), 0);
    assert_true(host.max_params > 40000000000 && host.max_params < disk.max_params);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eighty_gigabytes_hold_what_the_sources_say),
        cmocka_unit_test(one_byte_less_holds_less),
        cmocka_unit_test(what_holds_no_parameter_holds_none),
        cmocka_unit_test(frameworks_hold_gradients_as_well),
        cmocka_unit_test(data_parallel_is_asked_on_one_node),
        cmocka_unit_test(a_mixture_is_asked_from_its_first_experts_on),
        cmocka_unit_test(the_fewest_gpus_are_those_of_the_best_way),
        cmocka_unit_test(a_recorded_module_is_asked_as_it_is),
        cmocka_unit_test(zero_offload_holds_13b_on_one_v100),
        cmocka_unit_test(stage_2_holds_13b_in_a_step_but_not_in_its_start),
        cmocka_unit_test(a_trillion_is_short_of_host_memory_alone),
        cmocka_unit_test(the_papers_stage_2_holds_13b),
        cmocka_unit_test(the_papers_infinity_holds_a_trillion),
        cmocka_unit_test(a_deep_model_runs_from_disks),
        cmocka_unit_test(infinity_ends_with_host_memory),
    };
    return cmocka_run_group_tests_name("sim/limits", tests, NULL, NULL);
}
