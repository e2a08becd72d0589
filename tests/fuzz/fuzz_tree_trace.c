/* Chrome traces changed by their structure: what the reader takes is measured and held against a
 * plan, as dpxreport --kineto does, and matched with one kernel by kernel, as dpxcal import kineto does. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tree.h"

#include <math.h>
#include <stdio.h>

#include "base/page.h"
#include "calib/import/kineto_match.h"
#include "model/memory/evaluate.h"
#include "reports/kineto/kineto_print.h"

const char *const fuzz_words[] = {
    "\"cat\": \"kernel\"", "\"cat\": \"cuda_runtime\"", "\"cat\": \"cpu_op\"", "\"cat\": \"user_annotation\"",
    "\"cat\": \"gpu_memcpy\"", "\"ph\": \"X\"", "\"ph\": \"i\"", "\"name\": \"ProfilerStep#3\"",
    "\"name\": \"Optimizer.step#AdamW.step\"", "\"name\": \"autograd::engine::evaluate_function: MmBackward0\"",
    "\"name\": \"gloo:all_reduce\"", "\"name\": \"aten::mm\"", "\"name\": \"c10d::allreduce_\"",
    "\"name\": \"record_param_comms\"", "\"name\": \"nccl:_all_gather_base\"",
    "\"name\": \"ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)\"", "\"name\": \"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)\"",
    "\"name\": \"ncclDevKernel_SendRecv(x)\"", "\"dtype\": \"Float\"", "\"dtype\": \"c10::BFloat16\"", "\"dtype\": \"Odd\"",
    "\"Collective name\": \"allreduce\"", "\"Collective name\": \"_reduce_scatter_base\"", "\"Collective name\": \"all_to_all\"",
    "\"Group size\": 65537", "\"In msg nelems\": 9223372036854775807", "\"Out msg nelems\": 0", "\"correlation\": 101",
    "\"stream\": 7", "\"Input Dims\": [[4, 1024], [2]]", "\"Input Dims\": [[8, 64], [3, 64, 32]], \"External id\": 5", "\"Input Dims\": [[[3, 5], [7]], []]", "\"Input type\": [\"float\"]",
    "\"dur\": 0", "\"dur\": 1000000000000", "\"ts\": 4000000000000000.0", "\"ts\": -4000000000000000", "\"ts\": \"1e15\"",
    "\"name\": \"sm90_xmma_gemm_bf16\"", "\"name\": \"flash_fwd_kernel\"", "\"name\": \"flash_bwd_kernel\"",
    "\"name\": \"splitKreduce_kernel\"", "\"cat\": \"gpu_memcpy\"", "\"name\": \"Memcpy DtoH (Device -> Pinned)\"", "\"bytes\": 1e30",
    "\"deviceProperties\": [{\"name\": \"NVIDIA H100\"}, 3, []]", "\"args\": {\"stream\": 7, \"correlation\": 101}", "\"distributedInfo\": {\"rank\": 3, \"world_size\": 8, \"backend\": \"gloo\"}",
    NULL
};

static const struct kineto_plan *plan(void)
{
    static struct kineto_plan p;

    if (!p.strategy) {
        setenv("XDG_DATA_HOME", "/nonexistent", 1);
        must_hold(kineto_plan_load("tests/golden/kineto/plan_fsdp2.json", NULL, &(struct trace_info){ .rank = -1, .world_size = -1 }, &p) == 0);    /* ends a capture */
    }
    return &p;
}

/* A plan of one block: a trace of few kernels may be its. */
static const struct expectation *expected(const struct plan **p)
{
    static struct plan one;
    static struct evaluation e;
    static struct expectation x;
    const char *text = "{\"dpx_plan\": 1, \"model\": {\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 1, \"n_head\": 1,"
                       "\"vocab_size\": 64, \"n_positions\": 64}, \"cluster\": \"2xh100\", \"strategy\": \"ddp\", \"dialect\": \"torch\","
                       "\"kernels\": \"torch-sdpa\", \"seq\": 64, \"micro_batch\": 1, \"precision\": \"bf16\"}";

    if (!x.n) {
        json_t *j = json_loads(text, 0, NULL);
        must_hold(j && plan_from_json(j, "plan", &one) == 0 && evaluate_allocated(&one, &e) == 0 && kineto_expect_check(&one) == 0);
        kineto_expect(&one, &e.schedules, &x);
        json_decref(j);
    }
    *p = &one;
    return &x;
}

/* What is taken is finite, and nothing of a matched step's compute is lost. */
static void check_match(const struct kineto *k)
{
    const struct plan *p;
    const struct expectation *x = expected(&p);
    struct match m;

    match_open(&m, p);
    fuzz_said[0] = '\0';
    if (k->gpu && match_trace(&m, x, k, "trace.json", 1, k->nsteps) == 0)
        match_series(&m);
    else
        must_hold(!k->gpu || (fuzz_said[0] && !strchr(fuzz_said, '\n')));
    for (int i = 0; i < m.nseries; i++) {
        must_hold(m.series[i].nsamples > 0);
        for (int s = 0; s < m.series[i].nsamples; s++)
            must_hold(isfinite(m.series[i].seconds[s]) && m.series[i].seconds[s] > 0);
    }
    match_free(&m);
}

static void check(const struct kineto *k)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    json_t *j;

    FILE *page = to ? page_open(to) : NULL;
    must_hold(page && k->nsteps > 0);
    kineto_print("trace.json", k, plan(), page);
    page_close(page);
    fclose(to);
    for (size_t i = 0; i < size; i++)
        must_hold(text[i] == '\n' || (unsigned char)text[i] >= ' ');
    free(text);
    j = kineto_json("trace.json", k, plan());
    must_hold(j);
    json_decref(j);
    for (int i = 0; i < k->nkernels; i++)
        must_hold(k->kernel[i].bytes >= -1 && k->kernel[i].calls > 0 && k->kernel[i].seconds >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kineto k;
    bool taken;

    plan();
    fuzz_quiet();
    fuzz_said[0] = '\0';
    taken = kineto_load(fuzz_file(data, size), &k) == 0;
    if (taken) {
        check(&k);
        check_match(&k);
        kineto_free(&k);
    } else
        must_hold(fuzz_said[0] && !strchr(fuzz_said, '\n'));
    return fuzz_count(data, size, taken);
}
