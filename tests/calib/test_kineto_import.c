/* test_kineto_import.c -- traces of PyTorch's profiler taken in as a calibration, on made-up and recorded traces. */
#include "tests/check.h"
#include "base/fail.h"
#include "calib/import/import_kineto.h"
#include "calib/import/kineto_match.h"
#include "calib/store/measured_for.h"
#include "calib/store/portable.h"
#include "calib/store/query.h"
#include "calib/trace/kineto_class.h"
#include "sim/clock/simulate.h"
#include "tests/calib/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN "tests/golden/kineto/"
#define PLAN   GOLDEN "plan_fsdp2_h100.json"
static char *const ranks[] = { (char[]){ GOLDEN "fsdp2_h100_0.json.gz" }, (char[]){ GOLDEN "fsdp2_h100_1.json.gz" } };

static char *const of_module[] = { (char[]){ GOLDEN "resnet_h100.json.gz" } };

static char path[512], said[512];

static const char *in_folder(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Into a database of this name; what is printed is not looked at. */
static int import(const char *name, const char *plan, const char *steps, char *const *paths, int n, bool *refused)
{
    struct import_kineto how = { .plan = plan, .steps = steps };
    struct db *db = db_open(in_folder(name));

    assert_non_null(db);
    fail_capture(said, sizeof said);
    int rc = import_kineto(db, &how, paths, n, refused);
    fail_capture(NULL, 0);
    db_close(db);
    return rc;
}

/* The plan, with another micro-batch if that is not 0; without a database, by what is published. */
static void predict_of(const char *plan, const char *db, int64_t micro_batch, struct timing *t)
{
    struct measured_device d = { 0 };
    struct evaluation e;
    struct run run;
    struct plan p;

    assert_int_equal(plan_read(plan, &p), 0);
    if (micro_batch)
        p.micro_batch = micro_batch;
    if (db)
        assert_int_equal(measured_for(in_folder(db), true, p.precision, p.kernels, &p.cluster, &d), 1);
    assert_int_equal(evaluate(&p, &e), 0);
    assert_int_equal(simulate_plan(&p, &e, t, &run), 0);
    run_free(&run);
    evaluation_free(&e);
    measured_device_free(&d);
    plan_free(&p);
}

static void predict(const char *db, int64_t micro_batch, struct timing *t)
{
    predict_of(PLAN, db, micro_batch, t);
}

/* Median over the traced steps first to last of a figure. */
static double traced(int first, int last, int measure)
{
    struct measures of[16];
    struct kineto k;

    assert_int_equal(kineto_load(ranks[1], &k), 0);
    memcpy(of, k.step + first - 1, (size_t)(last - first + 1) * sizeof *of);
    kineto_free(&k);
    return kineto_measures_median(of, last - first + 1).v[measure];
}

/* The script's noise is 3 % a kernel, and a few hundred kernels a step. */
static void half_of_the_steps_predicts_the_other_half(void **state)
{
    struct timing t;
    bool refused;

    (void)state;
    assert_int_equal(import("half.db", PLAN, "1-4", ranks, 2, &refused), 0);
    predict("half.db", 0, &t);
    assert_int_equal(t.basis, BASIS_TRACED);
    assert_string_equal(basis_name(t.basis), "measured (trace)");
    assert_close(t.line.step_s - t.line.slowest_s, traced(5, 8, M_STEP), .01);
    assert_close(t.line.compute_s, traced(5, 8, M_FORWARD) + traced(5, 8, M_BACKWARD), .01);
    assert_close(t.line.optimizer_s, traced(5, 8, M_OPTIMIZER), .01);
    assert_true(t.low_s < traced(5, 8, M_STEP) && traced(5, 8, M_STEP) < t.high_s);
}

/* No datasheet knows the script's machine. */
static void published_figures_are_of_another_machine(void **state)
{
    struct timing t;

    (void)state;
    predict(NULL, 0, &t);
    assert_true(t.basis > BASIS_TRACED);
    assert_true(traced(1, 8, M_STEP) > 1.25 * t.line.step_s);
}

/* Half the samples: products and attention of shapes that the trace has not.  As wide as they are near: ln 2 away, an
 * interval of 3 % becomes one of 10. */
static void other_shapes_interpolate_with_a_wider_interval(void **state)
{
    struct timing known, other;
    bool refused;

    (void)state;
    assert_int_equal(import("other.db", PLAN, NULL, ranks, 2, &refused), 0);
    predict("other.db", 0, &known);
    predict("other.db", 2, &other);
    assert_int_equal(other.basis, BASIS_TRACED);
    assert_true(other.line.compute_s > .48 * known.line.compute_s && other.line.compute_s < .62 * known.line.compute_s);
    assert_true((other.high_s - other.low_s) / other.line.step_s > 1.5 * (known.high_s - known.low_s) / known.line.step_s);
}

/* The script's recorded module: convolutions, which had a factor of 3 either way, are as certain as the trace.  DDP's copies of single tensors wait for
 * the host, which the trace does not have: 2 % of this batch. */
static void a_trace_of_a_recorded_module_prices_its_plans(void **state)
{
    static const char *const plan = GOLDEN "plan_resnet_h100.json";
    struct timing before, after;
    struct measures of[4];
    struct kineto k;
    bool refused;

    (void)state;
    assert_int_equal(import("module.db", plan, "1-2", of_module, 1, &refused), 0);
    predict_of(plan, NULL, 0, &before);
    predict_of(plan, "module.db", 0, &after);
    assert_int_equal(after.basis, BASIS_TRACED);
    assert_int_equal(kineto_load(of_module[0], &k), 0);
    memcpy(of, k.step, sizeof of);
    kineto_free(&k);
    double compute = kineto_measures_median(of + 2, 2).v[M_FORWARD] + kineto_measures_median(of + 2, 2).v[M_BACKWARD];
    assert_close(after.line.compute_s, compute, .03);
    assert_true(fabs(before.line.compute_s - compute) > .1 * compute);
    assert_true(before.high_s / before.low_s > 1.5 * after.high_s / after.low_s);
}

/* Convolutions' sizes are those of their backward: half the batch is another training. */
static void a_trace_of_another_batch_is_refused(void **state)
{
    FILE *f = fopen(in_folder("half.json"), "w");
    char plan[sizeof path];
    bool refused = false;

    (void)state;
    assert_non_null(f);
    strcpy(plan, path);
    fprintf(f, "{\"dpx_plan\": 1, \"model\": %s, \"cluster\": \"1xh100\", \"strategy\": \"ddp\", \"dialect\": \"torch\", \"seq\": 64, "
               "\"micro_batch\": 256, \"precision\": \"bf16\"}", "{\"file\": \"tests/golden/module/resnet.json\"}");
    fclose(f);
    assert_int_equal(import("batch.db", plan, NULL, of_module, 1, &refused), -1);
    assert_true(refused);
    assert_non_null(strstr(said, "of other sizes, the plan"));
}

/* Every nanosecond of every compute kernel of a step is somewhere. */
static void nothing_of_a_step_is_lost(void **state)
{
    struct expectation x;
    struct evaluation e;
    struct kineto k;
    struct match m;
    struct plan p;
    double sum = 0, all = 0;

    (void)state;
    assert_int_equal(plan_read(PLAN, &p), 0);
    assert_int_equal(evaluate_allocated(&p, &e), 0);
    assert_int_equal(kineto_expect_check(&p), 0);
    kineto_expect(&p, &e.schedules, &x);
    assert_int_equal(kineto_load(ranks[0], &k), 0);
    /* 4 blocks of 7 products and one head, thrice; attention forward and backward. */
    assert_int_equal(x.nproducts, 3 * (4 * 7 + 1));
    assert_int_equal(x.nattention, 2 * 4);
    assert_int_equal(x.ncolls, 9 + 5);
    match_open(&m, &p);
    assert_int_equal(match_trace(&m, &x, &k, ranks[0], 3, 3), 0);
    for (int64_t i = 0; i < k.work.n; i++)
        if (k.work.at[i].window == 2 && !k.work.at[i].coll)
            all += 1e-9 * (double)(k.work.at[i].end - k.work.at[i].start);
    for (int i = 0; i < m.n; i++)
        for (int64_t c = 0; c < m.timed[i]->ncalls; c++)
            if (m.timed[i]->of.kind == SERIES_KERNEL || m.timed[i]->of.kind == SERIES_PASS)
                sum += m.timed[i]->call[c].s;
    assert_close(sum, all, 1e-9);
    assert_int_equal(m.colls_left, 0);
    match_free(&m);
    kineto_free(&k);
    kineto_expect_free(&x);
    evaluation_free(&e);
    plan_free(&p);
}

/* An all-gather of a block: 98 MiB over 8 ranks at 150 GB/s, 20 us, and 3 % either way; its gather's padding is the
 * plan's.  Rank 0 alone would say 40 us more. */
static void of_several_ranks_the_shortest_call_counts(void **state)
{
    struct measured_device d;
    struct plan p;
    bool refused;
    double both = 0, expected = 0;

    (void)state;
    assert_int_equal(import("ranks.db", PLAN, NULL, ranks, 2, &refused), 0);
    assert_int_equal(plan_read(PLAN, &p), 0);
    assert_int_equal(measured_for(in_folder("ranks.db"), true, p.precision, p.kernels, &p.cluster, &d), 1);
    for (int i = 0; i < d.ncoll; i++)
        if (d.coll[i].op == COLL_ALL_GATHER && d.coll[i].bytes < 200 << 20) {
            both = d.coll[i].s;
            expected = (double)d.coll[i].bytes * 7 / 8 / 150e9 + 20e-6;
        }
    assert_true(expected > 0);
    assert_close(both, expected, .03);
    assert_true(d.traced[KERNELS_TORCH_SDPA] && !d.traced[KERNELS_TORCH_EAGER]);
    /* The script's host takes 2 us a launch. */
    assert_close(d.traced_issue[KERNELS_TORCH_SDPA][TRACED_HOOKED + TRACED_COLL], 2e-6, 1e-3);
    assert_true(d.traced_issue[KERNELS_TORCH_SDPA][TRACED_HOOKED + TRACED_FORWARD] > .2e-6 && d.traced_issue[KERNELS_TORCH_SDPA][TRACED_HOOKED + TRACED_FORWARD] < 2e-6);
    /* Kernels that begin beside a collective take 1.2 times as long there. */
    bool found = false;
    for (int i = 0; i < d.noverlap; i++)
        if (d.overlap[i].kind == KC_GEMM && d.overlap[i].op == COLL_REDUCE_SCATTER) {
            found = true;
            assert_close(d.overlap[i].compute, 1.2, .05);
            assert_close(d.overlap[i].other, 1, 1e-9);
        }
    assert_true(found);
    measured_device_free(&d);
    plan_free(&p);
}

static void a_trace_is_taken_once(void **state)
{
    bool refused;

    (void)state;
    assert_int_equal(import("once.db", PLAN, NULL, ranks, 1, &refused), 0);
    assert_int_equal(import("once.db", PLAN, NULL, ranks, 1, &refused), 0);
    struct db *db = db_open(in_folder("once.db"));
    int64_t n;
    assert_non_null(db);
    assert_int_equal(db_value(db, "SELECT count(*) FROM calibration WHERE source = 'kineto' AND threads = 0", &n), 0);
    assert_int_equal(n, 1);
    db_close(db);
}

static void an_export_says_the_same(void **state)
{
    struct timing here, there;
    char file[512];
    bool refused;
    int known;

    (void)state;
    assert_int_equal(import("here.db", PLAN, "3", ranks, 2, &refused), 0);
    snprintf(file, sizeof file, "%s/export.json", folder);
    struct db *db = db_open(in_folder("here.db"));
    assert_int_equal(portable_export(db, 0, file, &refused), 1);
    db_close(db);
    db = db_open(in_folder("there.db"));
    assert_int_equal(portable_import(db, file, &known, &refused), 1);
    db_close(db);
    predict("here.db", 0, &here);
    predict("there.db", 0, &there);
    assert_close(here.line.step_s, there.line.step_s, 0);
    assert_close(here.high_s, there.high_s, 0);
}

/* The plan with one text replaced by another. */
static const char *other_plan(const char *from, const char *to)
{
    static char text[4096];
    static char name[512];
    FILE *f = fopen(PLAN, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);

    fclose(f);
    text[n] = '\0';
    char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(name, sizeof name, "%s/other.json", folder);
    f = fopen(name, "w");
    fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(f);
    return name;
}

static void refuse(const char *plan, const char *steps, char *file, const char *why)
{
    char *const files[] = { file };
    bool refused = false;

    assert_int_equal(import("refused.db", plan, steps, files, 1, &refused), -1);
    assert_true(refused);
    if (!strstr(said, why) || strchr(said, '\n'))
        fail_msg("\"%s\" where \"%s\" was expected", said, why);
}

static void what_is_of_another_training_is_refused(void **state)
{
    (void)state;
    refuse(other_plan("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5"), NULL, ranks[0],
           "step 1 has 88 products and 8 attention kernels, the plan's has 108 and 10");
    refuse(other_plan("8xh100", "8xa100-80gb"), NULL, ranks[0], "a trace of \"NVIDIA H100 80GB HBM3\"");
    refuse(other_plan("8xh100", "4xh100"), NULL, ranks[0], "a trace of 8 ranks, and the plan is for 4");
    refuse(other_plan("torch-sdpa", "dpx"), NULL, ranks[0], "\"kernels\" of the plan is dpx");
    refuse(PLAN, "9", ranks[0], "has 8 steps, from 1");
    refuse(PLAN, "2-x", ranks[0], "steps of the trace are written");
    refuse(PLAN, NULL, (char[]){ GOLDEN "fsdp2.json.gz" }, "no kernels of a GPU");
    refuse(PLAN, NULL, (char[]){ GOLDEN "README.md" }, "where '{'");
    refuse(GOLDEN "none.json", NULL, ranks[0], "none.json");
}

static void a_trace_that_is_cut_is_refused(void **state)
{
    char command[256], cut[128];

    (void)state;
    snprintf(cut, sizeof cut, "%s/cut.json.gz", folder);
    snprintf(command, sizeof command, "head -c 30000 %s >%s", ranks[0], cut);
    assert_int_equal(system(command), 0);
    refuse(PLAN, NULL, cut, "cut short");
}

/* Names as PyTorch 2.1 to 2.11 on A100, H100, H200 and MI300X writes them. */
static void kernels_are_told_by_their_names(void **state)
{
    static const struct { const char *name; enum kineto_class is; } known[] = {
        { "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", KINETO_PRODUCT },
        { "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
          KINETO_PRODUCT },
        { "void at::cuda::detail::prepare_grouped_gemm_data<cutlass::bfloat16_t>(int*)", KINETO_STREAMING },
        { "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", KINETO_PRODUCT },
        { "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(cutlass_80::Params)",
          KINETO_PRODUCT },
        { "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1", KINETO_PRODUCT },
        { "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(cublasLt::cublasSplitKParams<float>)",
          KINETO_PRODUCT_SUM },
        { "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128>>(pytorch_flash::Flash_fwd_params)",
          KINETO_ATTENTION },
        { "void pytorch_flash::flash_bwd_dot_do_o_kernel<true>(pytorch_flash::Flash_bwd_params)", KINETO_ATTENTION_BACK },
        { "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
          KINETO_ATTENTION },
        { "fmha_cutlassB_bf16_aligned_128x64_k128_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<cutlass::bfloat16_t>)",
          KINETO_ATTENTION_BACK },
        { "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_31_64x128x128_4x1x1_kernel0_0", KINETO_ATTENTION },
        { "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x128x128_4x1x1_kernel0_0", KINETO_ATTENTION_BACK },
        { "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*, void*, void*)", KINETO_ATTENTION_BACK },
        { "void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*, unsigned int)", KINETO_ATTENTION_BACK },
        { "void cudnn::fusion::fmha_reduce_head<true>(void const*, void*, unsigned int)", KINETO_ATTENTION_BACK },
        { "sm80_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_kernel_cudnn", KINETO_PRODUCT },
        { "void cudnn::detail::wgrad_alg0_engine<float, 512, 6, 5, 3, 3, 3, true, 512>(int, int, int, float const*)", KINETO_PRODUCT },
        { "void cudnn::cnn::dgrad2d_grouped_direct_kernel<false, true, false>(cudnnTensorStruct, float const*)", KINETO_PRODUCT },
        { "volta_scudnn_128x64_relu_small_nn_v1", KINETO_PRODUCT },
        { "turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_medium_nhwc_tn_v1", KINETO_PRODUCT },
        { "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(float const*)", KINETO_PRODUCT },
        { "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true>(cudnn::ops::nchw2nhwc_params_t<float>)", KINETO_STREAMING },
        { "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(cudnnTensorStruct, float const*)", KINETO_STREAMING },
        { "Memcpy DtoD (Device -> Device)", KINETO_STREAMING },
        { "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)", KINETO_STREAMING },
        { "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", KINETO_STREAMING },
        { "void at::native::(anonymous namespace)::softmax_warp_backward<float, float, float, 10, true>(float*)", KINETO_STREAMING },
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (kineto_class(known[i].name) != known[i].is)
            fail_msg("%s: %d", known[i].name, (int)kineto_class(known[i].name));
}

/* What cuDNN does of a recurrence is many products; a plan has the operator. */
static void products_within_a_recurrence_are_not_the_plans(void **state)
{
    static const char *const text = "{\"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H100\"}], \"traceEvents\": ["
        "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#1\", \"pid\": 1, \"tid\": 1, \"ts\": 1, \"dur\": 20},"
        "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::%s\", \"pid\": 1, \"tid\": 1, \"ts\": 1, \"dur\": 9, \"args\": {\"External id\": 5}},"
        "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, \"tid\": 1, \"ts\": 2, \"dur\": 1, \"args\": {\"correlation\": 7}},"
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"sm90_xmma_gemm_f32f32\", \"pid\": 0, \"tid\": 7, \"ts\": 4, \"dur\": 3, "
        "\"args\": {\"stream\": 7, \"correlation\": 7, \"External id\": 5}}]}\n";
    static const struct { const char *op; enum kineto_class is; } ops[] = { { "_cudnn_rnn_backward", KINETO_STREAMING }, { "matmul", KINETO_PRODUCT } };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        FILE *f = fopen(in_folder("rnn.json"), "w");
        struct kineto k;
        assert_non_null(f);
        fprintf(f, text, ops[i].op);
        fclose(f);
        assert_int_equal(kineto_load(path, &k), 0);
        assert_int_equal(k.work.n, 1);
        assert_int_equal(k.work.at[0].what, ops[i].is);
        kineto_free(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_within_a_recurrence_are_not_the_plans),
        cmocka_unit_test(a_trace_of_a_recorded_module_prices_its_plans),
        cmocka_unit_test(a_trace_of_another_batch_is_refused),
        cmocka_unit_test(kernels_are_told_by_their_names),
        cmocka_unit_test(nothing_of_a_step_is_lost),
        cmocka_unit_test(half_of_the_steps_predicts_the_other_half),
        cmocka_unit_test(published_figures_are_of_another_machine),
        cmocka_unit_test(other_shapes_interpolate_with_a_wider_interval),
        cmocka_unit_test(of_several_ranks_the_shortest_call_counts),
        cmocka_unit_test(a_trace_is_taken_once),
        cmocka_unit_test(an_export_says_the_same),
        cmocka_unit_test(what_is_of_another_training_is_refused),
        cmocka_unit_test(a_trace_that_is_cut_is_refused),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
