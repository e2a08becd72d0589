/* test_kineto.c -- a trace of PyTorch's profiler beside a plan: steps, collectives, exposure, prefetch. */
#include "tests/check.h"
#include "base/fail.h"
#include "reports/kineto/kineto.h"
#include "reports/kineto/kineto_print.h"
#include "calib/trace/kineto_windows.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define GOLDEN "tests/golden/kineto/"

static char path[] = "/tmp/dpx-kineto-XXXXXX";
static char said[512];
static char text[1 << 16];

static int make_path(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_text(const char *s)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(s, f);
    assert_int_equal(fclose(f), 0);
}

/* nccl.json, to be changed. */
static void read_hand_made(void)
{
    FILE *f = fopen(GOLDEN "nccl.json", "r");
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    assert_true(n < sizeof text - 1);
    text[n] = '\0';
    fclose(f);
}

/* Everywhere in `text`; both are of one length. */
static void replace(const char *a, const char *b)
{
    int n = 0;

    assert_int_equal(strlen(a), strlen(b));
    for (char *at = text; (at = strstr(at, a)); at += strlen(b), n++)
        memcpy(at, b, strlen(b));
    assert_true(n > 0);
}

static void load_text(struct kineto *k)
{
    write_text(text);
    assert_int_equal(kineto_load(path, k), 0);
}

/* README.md beside nccl.json has the step's timeline, from which these are added up. */
static void check_hand_made(const struct kineto *k)
{
    const double *v = k->median.v;

    assert_close(v[M_FORWARD], 180e-6, 1e-9);
    assert_close(v[M_BACKWARD], 200e-6, 1e-9);
    assert_close(v[M_OPTIMIZER], 40e-6, 1e-9);
    assert_close(v[M_COMPUTE], 420e-6, 1e-9);
    assert_close(v[M_COMM], 520e-6, 1e-9);
    assert_close(v[M_EXPOSED], 280e-6, 1e-9);
    assert_close(v[m_coll(COLL_ALL_GATHER, M_CALLS)], 4, 0);
    assert_close(v[m_coll(COLL_ALL_GATHER, M_BYTES)], 4 * 4194304 * 2, 0);
    assert_close(v[m_coll(COLL_ALL_GATHER, M_TIME)], 340e-6, 1e-9);
    assert_close(v[m_coll(COLL_ALL_GATHER, M_ALONE)], 180e-6, 1e-9);
    assert_close(v[m_coll(COLL_REDUCE_SCATTER, M_CALLS)], 2, 0);
    assert_close(v[m_coll(COLL_REDUCE_SCATTER, M_BYTES)], 2 * 4194304 * 4, 0);
    assert_close(v[m_coll(COLL_REDUCE_SCATTER, M_TIME)], 180e-6, 1e-9);
    assert_close(v[m_coll(COLL_REDUCE_SCATTER, M_ALONE)], 100e-6, 1e-9);
}

static void the_hand_made_step_has_the_figures_it_was_made_with(void **state)
{
    struct kineto k;

    (void)state;
    assert_int_equal(kineto_load(GOLDEN "nccl.json", &k), 0);
    assert_true(k.gpu);
    assert_int_equal(k.nsteps, 2);
    assert_string_equal(k.steps_by, "ProfilerStep");
    assert_close(k.median.v[M_STEP], 1000e-6, 1e-9);
    assert_close(k.median.v[M_SHARDING], 0.52, 1e-9);
    check_hand_made(&k);
    assert_int_equal(kineto_prefetch(&k.median), 1);
    assert_close(k.median.v[M_GATHERS], 1, 0);
    assert_close(k.median.v[M_STARTED_AHEAD], 1, 0);
    kineto_free(&k);
}

/* 8 MiB from 4 ranks in 85 us: 3/4 of them cross each link. */
static void kernels_are_listed_by_name_and_size(void **state)
{
    struct kineto k;

    (void)state;
    assert_int_equal(kineto_load(GOLDEN "nccl.json", &k), 0);
    assert_int_equal(k.nkernels, 2);
    assert_string_equal(k.kernel[0].name, "ncclDevKernel_AllGather_RING_LL");
    assert_string_equal(k.kernel[0].dtype, "BFloat16");
    assert_int_equal(k.kernel[0].group_size, 4);
    assert_int_equal(k.kernel[0].bytes, 8 << 20);
    assert_close(k.kernel[0].calls, 4, 0);
    assert_close(k.kernel[0].seconds, 85e-6, 1e-9);
    assert_close(kineto_busbw(&k.kernel[0]), 0.75 * (8 << 20) / 85e-6, 1e-9);
    kineto_free(&k);
}

static void without_marks_steps_end_with_the_optimizer(void **state)
{
    struct kineto k;

    (void)state;
    read_hand_made();
    replace("ProfilerStep#1", "Something___#1");
    load_text(&k);
    assert_string_equal(k.steps_by, "optimizer");
    assert_int_equal(k.nsteps, 1);
    check_hand_made(&k);
    kineto_free(&k);
}

static void without_any_mark_steps_are_what_repeats(void **state)
{
    struct kineto k;

    (void)state;
    read_hand_made();
    replace("ProfilerStep#1", "Something___#1");
    replace("Optimizer.step", "Something.else");
    load_text(&k);
    assert_string_equal(k.steps_by, "repetition");
    assert_int_equal(k.nsteps, 2);
    assert_close(k.median.v[M_COMM], 520e-6, 1e-9);
    assert_close(k.median.v[M_EXPOSED], 280e-6, 1e-9);
    kineto_free(&k);
}

/* The all-gather of the last unit is issued, and runs, only when the unit before is reduced. */
static void prefetch_that_is_off_is_seen(void **state)
{
    struct kineto k;

    (void)state;
    read_hand_made();
    replace("\"ts\": 5000044,", "\"ts\": 5000061,");
    replace("\"ts\": 5001044,", "\"ts\": 5001061,");
    replace("\"dur\": 80, \"ts\": 5000380", "\"dur\": 80, \"ts\": 5000500");
    replace("\"dur\": 80, \"ts\": 5001380", "\"dur\": 80, \"ts\": 5001500");
    replace("\"ts\": 5000062, \"dur\": 28", "\"ts\": 5000060, \"dur\": 30");
    replace("\"ts\": 5001062, \"dur\": 28", "\"ts\": 5001060, \"dur\": 30");
    load_text(&k);
    assert_close(k.median.v[M_GATHERS], 1, 0);
    assert_int_equal(kineto_prefetch(&k.median), 0);
    assert_close(k.median.v[M_STARTED_AHEAD], 0, 0);
    kineto_free(&k);
}

/* Older profilers leave sizes with the host's record of the call, around the launch. */
static void sizes_come_from_the_hosts_record_where_kernels_have_none(void **state)
{
    struct kineto k;

    (void)state;
    write_text("[{\"ph\":\"X\",\"cat\":\"Operator\",\"name\":\"ProfilerStep#7\",\"ts\":0,\"dur\":100},"
               "{\"ph\":\"X\",\"cat\":\"Operator\",\"name\":\"record_param_comms\",\"ts\":10,\"dur\":5,\"args\":{"
               "\"Collective name\":\"allreduce\",\"In msg nelems\":1000,\"Out msg nelems\":1000,\"dtype\":\"Float\","
               "\"Group size\":2}},"
               "{\"ph\":\"X\",\"cat\":\"Runtime\",\"name\":\"cudaLaunchKernel\",\"ts\":12,\"dur\":1,\"args\":{\"correlation\":5}},"
               "{\"ph\":\"X\",\"cat\":\"Kernel\",\"name\":\"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)\","
               "\"ts\":50,\"dur\":20,\"args\":{\"correlation\":5,\"stream\":14}}]");
    assert_int_equal(kineto_load(path, &k), 0);
    assert_int_equal(k.nkernels, 1);
    assert_int_equal(k.kernel[0].op, COLL_ALL_REDUCE);
    assert_int_equal(k.kernel[0].bytes, 4000);
    assert_int_equal(k.kernel[0].group_size, 2);
    assert_close(k.median.v[M_EXPOSED], 20e-6, 1e-9);
    assert_false(k.phases);
    assert_true(isnan(k.median.v[M_BACKWARD]));
    kineto_free(&k);
}

static void names_of_collectives_are_understood(void **state)
{
    (void)state;
    assert_int_equal(kineto_coll("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"), COLL_ALL_GATHER);
    assert_int_equal(kineto_coll("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"),
                     COLL_ALL_REDUCE);
    assert_int_equal(kineto_coll("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(...)"), COLL_REDUCE_SCATTER);
    assert_int_equal(kineto_coll("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"), COLL_OTHER);
    assert_int_equal(kineto_coll("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*)"), COLL_BROADCAST);
    assert_int_equal(kineto_coll("ncclDevKernel_Reduce_Sum_f32_RING_LL()"), COLL_REDUCE);
    assert_int_equal(kineto_coll("c10d::_reduce_scatter_base_"), COLL_REDUCE_SCATTER);
    assert_int_equal(kineto_coll("c10d::allreduce_"), COLL_ALL_REDUCE);
    assert_int_equal(kineto_coll("gloo:all_gather"), COLL_ALL_GATHER);
    assert_int_equal(kineto_coll("_allgather_base"), COLL_ALL_GATHER);
    assert_int_equal(kineto_coll("all_to_all"), COLL_ALL_TO_ALL);
    assert_int_equal(kineto_dtype_bytes("c10::BFloat16"), 2);
    assert_int_equal(kineto_dtype_bytes("float"), 4);
    assert_int_equal(kineto_dtype_bytes("TensorList"), 0);
}

/* record.py's model: 3 blocks of B parameters and a root of R, all in fp32.  The root and the blocks
 * are gathered in forward, the blocks again in backward, all are reduced once. */
enum { B = 198272, R = 73984 };

static void a_real_fsdp2_run_moves_what_fsdp2_says(void **state)
{
    struct kineto k;
    const double *v = k.median.v;

    (void)state;
    assert_int_equal(kineto_load(GOLDEN "fsdp2.json.gz", &k), 0);
    assert_false(k.gpu);
    assert_int_equal(k.nsteps, 2);
    assert_int_equal(k.info.world_size, 2);
    assert_string_equal(k.info.backend, "gloo");
    assert_close(v[m_coll(COLL_ALL_GATHER, M_CALLS)], 7, 0);
    assert_close(v[m_coll(COLL_ALL_GATHER, M_BYTES)], 4 * (R + 6 * B), 0);
    assert_close(v[m_coll(COLL_REDUCE_SCATTER, M_CALLS)], 4, 0);
    assert_close(v[m_coll(COLL_REDUCE_SCATTER, M_BYTES)], 4 * (R + 3 * B), 0);
    assert_close(v[m_coll(COLL_ALL_REDUCE, M_CALLS)], 0, 0);
    assert_close(v[M_GATHERS], 2, 0);
    assert_int_equal(kineto_prefetch(&k.median), 1);
    for (int i = 0; i < k.nsteps; i++) {
        const double *s = k.step[i].v;
        assert_true(s[M_COMPUTE] + s[M_EXPOSED] <= s[M_STEP]);
        assert_true(s[M_EXPOSED] <= s[M_COMM]);
        assert_true(s[M_BACKWARD] > 0 && s[M_FORWARD] > 0 && s[M_OPTIMIZER] > 0);
    }
    kineto_free(&k);
}

static void a_real_ddp_run_reduces_every_gradient_once(void **state)
{
    struct kineto k;

    (void)state;
    assert_int_equal(kineto_load(GOLDEN "ddp.json.gz", &k), 0);
    assert_int_equal(k.nsteps, 2);
    assert_close(k.median.v[m_coll(COLL_ALL_REDUCE, M_BYTES)], 4 * (R + 3 * B), 0);
    assert_close(k.median.v[m_coll(COLL_ALL_GATHER, M_CALLS)], 0, 0);
    assert_int_equal(kineto_prefetch(&k.median), -1);
    kineto_free(&k);
}

/* The plan is lowered without knowing the trace: PyTorch is the witness of calls, bytes, prefetch. */
static void check_plan(const char *trace, const char *plan)
{
    struct kineto_plan p;
    struct kineto k;

    assert_int_equal(kineto_load(trace, &k), 0);
    assert_int_equal(kineto_plan_load(plan, NULL, &k.info, &p), 0);
    for (int op = 0; op < KINETO_COLLS; op++) {
        assert_close(p.m.v[m_coll(op, M_CALLS)], k.median.v[m_coll(op, M_CALLS)], 0);
        assert_close(p.m.v[m_coll(op, M_BYTES)], k.median.v[m_coll(op, M_BYTES)], 0);
    }
    assert_int_equal(kineto_prefetch(&p.m), kineto_prefetch(&k.median));
    assert_true(p.m.v[M_FORWARD] > 0 && p.m.v[M_BACKWARD] > p.m.v[M_FORWARD]);
    assert_true(p.m.v[M_COMPUTE] + p.m.v[M_EXPOSED] <= p.m.v[M_STEP] * (1 + 1e-6));
    kineto_free(&k);
}

static void plans_have_the_calls_bytes_and_prefetch_of_real_runs(void **state)
{
    (void)state;
    check_plan(GOLDEN "fsdp2.json.gz", GOLDEN "plan_fsdp2.json");
    check_plan(GOLDEN "ddp.json.gz", GOLDEN "plan_ddp.json");
}

/* Of a model that ranks share: tensor and sequence parallelism over 2, FSDP2 over 2.  gloo's all-gathers of functional collectives
 * do not say their bytes. */
static void a_real_rank_of_four_moves_what_its_plan_says(void **state)
{
    struct kineto_plan p;
    struct kineto k;

    (void)state;
    assert_int_equal(kineto_load(GOLDEN "tensor_rank3.json.gz", &k), 0);
    assert_int_equal(k.info.rank, 3);
    assert_int_equal(kineto_plan_load(GOLDEN "plan_tensor.json", NULL, &k.info, &p), 0);
    assert_string_equal(p.rank, "rank 3");
    for (int op = 0; op < KINETO_COLLS; op++) {
        assert_close(p.m.v[m_coll(op, M_CALLS)], k.median.v[m_coll(op, M_CALLS)], 0);
        if (op != COLL_ALL_GATHER)
            assert_close(p.m.v[m_coll(op, M_BYTES)], k.median.v[m_coll(op, M_BYTES)], 0);
    }
    /* A norm's gradient on each of 5; in and out of attention and MLP of 2 blocks, logits, and FSDP's. */
    assert_close(k.median.v[m_coll(COLL_ALL_REDUCE, M_CALLS)], 5, 0);
    assert_close(k.median.v[m_coll(COLL_ALL_GATHER, M_CALLS)], 16, 0);
    assert_close(k.median.v[m_coll(COLL_REDUCE_SCATTER, M_CALLS)], 13, 0);
    kineto_free(&k);
}

static void what_differs_is_said(void **state)
{
    char notes[NOTES][NOTE_SIZE];
    struct kineto_plan p;
    struct kineto k;

    (void)state;
    assert_int_equal(kineto_load(GOLDEN "nccl.json", &k), 0);
    k.info.world_size = -1;
    assert_int_equal(kineto_plan_load(GOLDEN "plan_ddp.json", NULL, &k.info, &p), 0);
    assert_true(kineto_notes(&k, &p, notes) >= 5);
    assert_string_equal(notes[0], "the trace does not say of how many ranks it is (distributedInfo): the plan is of 2");
    assert_string_equal(notes[1], "the trace is of a GPU, the plan's ranks are processes of a host");
    assert_non_null(strstr(notes[2], "all_reduce: 0 calls of a step in the trace, 2 in the plan"));
    assert_non_null(strstr(notes[3], "all_gather: 4 calls"));
    kineto_free(&k);
}

/* ---- the command ---- */

static int run(const char *trace, const char *plan, bool json, char **out)
{
    size_t size;
    FILE *f = open_memstream(out, &size);
    int rc;

    assert_non_null(f);
    fail_capture(said, sizeof said);
    json_t *doc = NULL;
    rc = kineto_cmd(trace, plan, NULL, json ? NULL : f, json ? &doc : NULL);
    if (doc)
        json_dumpf(doc, f, 0);
    json_decref(doc);
    fail_capture(NULL, 0);
    fclose(f);
    return rc;
}

static void the_json_document_has_both_sides(void **state)
{
    json_t *doc, *first;
    char *out;

    (void)state;
    assert_int_equal(run(GOLDEN "nccl.json", GOLDEN "plan_fsdp2.json", true, &out), 2);
    assert_non_null(strstr(said, "the trace is of 4 ranks and the plan of 2: give the plan that was traced"));
    free(out);
    read_hand_made();
    replace("\"world_size\"", "\"some_words\"");      /* as traces of older profilers, which do not say it */
    write_text(text);
    assert_int_equal(run(path, GOLDEN "plan_fsdp2.json", true, &out), 0);
    doc = json_loads(out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(doc);
    assert_close(json_real_value(json_object_get(json_object_get(doc, "trace"), "exposed_s")), 280e-6, 1e-9);
    assert_close(json_real_value(json_object_get(json_object_get(doc, "trace"), "gather_scatter_fraction")), 0.52, 1e-9);
    assert_true(json_is_true(json_object_get(json_object_get(json_object_get(doc, "trace"), "backward_prefetch"), "on")));
    first = json_array_get(json_object_get(json_object_get(doc, "plan"), "collectives"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "op")), "all_gather");
    assert_int_equal(json_integer_value(json_object_get(first, "count")), 7);
    assert_true(json_array_size(json_object_get(doc, "notes")) > 0);
    json_decref(doc);
    free(out);
    assert_int_equal(run(GOLDEN "nccl.json", NULL, true, &out), 0);
    doc = json_loads(out, 0, NULL);
    assert_true(json_is_null(json_object_get(doc, "plan")));
    json_decref(doc);
    free(out);
}

static void the_table_shows_both_sides(void **state)
{
    char *out;

    (void)state;
    assert_int_equal(run(GOLDEN "fsdp2.json.gz", GOLDEN "plan_fsdp2.json", false, &out), 0);
    assert_non_null(strstr(out, "rank 0 of 2 on gloo"));
    assert_non_null(strstr(out, "plan: FSDP2 on 2 ranks"));
    assert_non_null(strstr(out, "backward prefetch"));
    free(out);
}

static void refused(const char *content, const char *why)
{
    char *out;

    write_text(content);
    assert_int_equal(run(path, NULL, false, &out), 2);
    assert_int_equal(strlen(out), 0);
    if (!strstr(said, why) || strchr(said, '\n'))
        fail_msg("said: %s", said);
    free(out);
}

static void what_cannot_be_compared_is_refused_in_one_line(void **state)
{
    char *out;

    (void)state;
    refused("{\"traceEvents\": [", "cut short");
    refused("{\"traceEvents\": []}", "there are no kernels, operators or collectives");
    refused("[{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"nccl:all_reduce\",\"ts\":1,\"dur\":1}]",
            "ProfilerActivity.CUDA");
    refused("[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"a\",\"ts\":1,\"dur\":1},"
            "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"b\",\"ts\":2,\"dur\":1}]", "no steps");
    assert_int_equal(run(GOLDEN "nccl.json", "/nonexistent.json", false, &out), 2);
    free(out);
}

/* ---- repetition ---- */

static void the_smallest_period_of_the_end_is_found(void **state)
{
    static const uint64_t steps[] = { 9, 8, 1, 2, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3 };
    static const uint64_t none[] = { 1, 2, 3, 4, 5, 6 };
    static const uint64_t tail[] = { 1, 2, 3, 4, 5, 6, 7, 7 };      /* too little of it repeats */

    (void)state;
    assert_int_equal(windows_period_of(steps, 14), 4);
    assert_int_equal(windows_period_of(none, 6), 0);
    assert_int_equal(windows_period_of(tail, 8), 0);
    assert_int_equal(windows_period_of(none, 1), 0);
    assert_int_equal(windows_period_of(none, 0), 0);
}

/* Steps of 10 us, each with one product of 1 us and an all-reduce of 1 us of another size than all others. */
static void write_steps(int n)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs("[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"autograd::engine::evaluate_function: A\",\"ts\":1,\"dur\":1}", f);
    for (int i = 0; i < n; i++)
        fprintf(f, ",{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"ts\":%d,\"dur\":10},"
                   "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"ts\":%d,\"dur\":1},"
                   "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclAllReduce\",\"ts\":%d,\"dur\":1,"
                   "\"args\":{\"dtype\":\"Float\",\"In msg nelems\":%d}}", i, 10 * i, 10 * i + 1, 10 * i + 3, i + 1);
    fputs("]", f);
    assert_int_equal(fclose(f), 0);
}

/* What took steps x kernels x kernels by name took minutes of the processor; it takes under a second, and
 * under sanitizers some. */
static void many_steps_and_kernels_take_work_in_proportion(void **state)
{
    (void)state;
    enum { STEPS = 100000, ENOUGH_S = 20 };
    int status;
    pid_t child;

    write_steps(STEPS);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct kineto k;
        setrlimit(RLIMIT_CPU, &(struct rlimit){ ENOUGH_S, ENOUGH_S });
        int rc = kineto_load(path, &k);
        bool right = rc == 0 && k.nsteps == STEPS && k.nkernels == STEPS
            && fabs(k.median.v[M_STEP] - 10e-6) < 1e-12 && fabs(k.median.v[M_EXPOSED] - 1e-6) < 1e-12;
        _exit(right ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void more_steps_than_anybody_profiles_are_refused(void **state)
{
    (void)state;
    struct kineto k;

    write_steps((1 << 17) + 1);
    fail_capture(said, sizeof said);
    assert_int_equal(kineto_load(path, &k), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, "more than 131072 steps: profile fewer"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hand_made_step_has_the_figures_it_was_made_with),
        cmocka_unit_test(kernels_are_listed_by_name_and_size),
        cmocka_unit_test(without_marks_steps_end_with_the_optimizer),
        cmocka_unit_test(without_any_mark_steps_are_what_repeats),
        cmocka_unit_test(prefetch_that_is_off_is_seen),
        cmocka_unit_test(sizes_come_from_the_hosts_record_where_kernels_have_none),
        cmocka_unit_test(names_of_collectives_are_understood),
        cmocka_unit_test(a_real_fsdp2_run_moves_what_fsdp2_says),
        cmocka_unit_test(a_real_ddp_run_reduces_every_gradient_once),
        cmocka_unit_test(plans_have_the_calls_bytes_and_prefetch_of_real_runs),
        cmocka_unit_test(a_real_rank_of_four_moves_what_its_plan_says),
        cmocka_unit_test(what_differs_is_said),
        cmocka_unit_test(the_json_document_has_both_sides),
        cmocka_unit_test(the_table_shows_both_sides),
        cmocka_unit_test(what_cannot_be_compared_is_refused_in_one_line),
        cmocka_unit_test(the_smallest_period_of_the_end_is_found),
        cmocka_unit_test(many_steps_and_kernels_take_work_in_proportion),
        cmocka_unit_test(more_steps_than_anybody_profiles_are_refused),
    };
    return cmocka_run_group_tests_name("reports/kineto", tests, make_path, remove_path);
}
