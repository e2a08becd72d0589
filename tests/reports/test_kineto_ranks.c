/* test_kineto_ranks.c -- traces of ranks that share a model, of a machine whose every time is written here: a trace calibrates, and
 * beside it the plan then shows the same rank.
 *
 * A product takes 300 TFLOP/s, attention 200, everything else 1.4 TB/s and 2 us, a collective 150 GB/s and 20 us.  The order of launches
 * is the plan's schedule of the rank; names and arguments are those of tests/golden/kineto. */
#include "tests/check.h"
#include "base/fail.h"
#include "calib/import/import_kineto.h"
#include "calib/store/measured_for.h"
#include "calib/trace/kineto_load.h"
#include "model/lower/lower.h"
#include "reports/kineto/kineto.h"
#include "reports/kineto/kineto_plan.h"
#include "sim/clock/simulate.h"
#include "tests/calib/folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char said[512];

struct machine {
    FILE   *to;
    double  host, tail[32];     /* us */
    int64_t id;
    const struct schedules *s;
    const struct plan *p;
    double  begin;              /* of the phase that is marked */
    const char *mark;
};

static char trace_path[64], plan_path[64], db_path_of[64];

static void slice(struct machine *m, const char *cat, const char *name, double start, double end)
{
    fprintf(m->to, "{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 1, \"tid\": 1, \"ts\": %.3f, \"dur\": %.3f},\n", cat, name,
            start, end - start);
}

/* A kernel of a stream, 2 us of the host. */
static void launch(struct machine *m, int stream, const char *name, double seconds, const char *args)
{
    double start;

    m->host += 2;
    m->id++;
    start = m->host + 3 > m->tail[stream] ? m->host + 3 : m->tail[stream];
    for (int other = 0; other < 32; other++)            /* one after the other: nothing is beside anything */
        start = m->tail[other] > start ? m->tail[other] : start;
    m->tail[stream] = start + 1e6 * seconds;
    fprintf(m->to, "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, \"tid\": 1,"
            " \"ts\": %.3f, \"dur\": 1, \"args\": {\"correlation\": %" PRId64 "}},\n", m->host, m->id);
    fprintf(m->to, "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"%s\", \"pid\": 0, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f,"
            " \"args\": {%s\"stream\": %d, \"correlation\": %" PRId64 "}},\n", name, stream, start, 1e6 * seconds, args, stream, m->id);
}

static void streaming(struct machine *m, int stream, int64_t bytes)
{
    if (bytes > 0)
        launch(m, stream, "void at::native::vectorized_elementwise_kernel<4>(int)", (double)bytes / 1.4e12 + 2e-6, "");
}

static void kernel(struct machine *m, const struct kernel *k, bool back)
{
    if (k->m > 0)
        launch(m, 7, "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", k->flops / 300e12, "");
    else if (k->kind == KC_ATTENTION)
        launch(m, 7, back ? "void pytorch_flash::flash_bwd_kernel<true>()" : "void pytorch_flash::flash_fwd_kernel<true>()",
               k->flops / 200e12, "");
    else
        streaming(m, 7, k->bytes);
}

static void collective(struct machine *m, const struct op *o)
{
    static const char *const kernels[] = { [COLL_ALL_REDUCE] = "AllReduce_Sum_bf16_RING_LL", [COLL_ALL_GATHER] = "AllGather_RING_LL",
        [COLL_REDUCE_SCATTER] = "ReduceScatter_Sum_f32_RING_LL", [COLL_BROADCAST] = "Broadcast_RING_LL", [COLL_ALL_TO_ALL] = "SendRecv" };
    static const char *const names[] = { [COLL_ALL_REDUCE] = "allreduce", [COLL_ALL_GATHER] = "_allgather_base",
        [COLL_REDUCE_SCATTER] = "_reduce_scatter_base", [COLL_BROADCAST] = "broadcast", [COLL_ALL_TO_ALL] = "all_to_allv" };
    struct mesh_lie lie = plan_groups_slowest(m->p, &m->s->groups, o->u.coll.group);
    int64_t full = o->u.coll.elems, part = full / lie.ranks, bytes = full * dtype_bytes((enum dtype)o->u.coll.dtype);
    char name[128], args[512];
    bool message = coll_is_message((enum coll_op)o->u.coll.op);

    if (lie.ranks < 2)
        return;
    snprintf(name, sizeof name, "ncclDevKernel_%s(ncclDevKernelArgsStorage<4096ul>)", message ? "SendRecv" : kernels[o->u.coll.op]);
    snprintf(args, sizeof args, "\"Collective name\": \"%s\", \"In msg nelems\": %" PRId64 ", \"Out msg nelems\": %" PRId64
             ", \"Group size\": %" PRId64 ", \"dtype\": \"%s\", ", message ? o->u.coll.op == COLL_SEND ? "send" : "recv" : names[o->u.coll.op],
             o->u.coll.op == COLL_ALL_GATHER ? part : full, o->u.coll.op == COLL_REDUCE_SCATTER ? part : full, message ? 2 : lie.ranks,
             o->u.coll.dtype == DT_FP32 ? "Float" : o->u.coll.dtype == DT_BF16 ? "BFloat16" : "Long");
    launch(m, message ? 26 : 24, name, (double)bytes / 150e9 + 20e-6, args);
}

/* Phases are marked by what the host runs in: nothing, autograd, the optimizer. */
static void phase(struct machine *m, const char *mark)
{
    if (mark == m->mark)
        return;
    if (m->mark)
        slice(m, !strncmp(m->mark, "auto", 4) ? "cpu_op" : "user_annotation", m->mark, m->begin, m->host + 1);
    m->host += 2;
    m->begin = m->host;
    m->mark = mark;
}

static int take(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    static const char backward[] = "autograd::engine::evaluate_function: MmBackward0", optimizer[] = "Optimizer.step#AdamW.step";
    struct machine *m = arg;
    bool back = o->phase == PHASE_BACKWARD || o->phase == PHASE_REDUCE;

    (void)iteration;
    if (o->kind != OP_COMPUTE && o->kind != OP_COLL && o->kind != OP_COPY && o->kind != OP_OPTIMIZER)
        return 0;
    phase(m, o->phase == PHASE_OPTIMIZER ? optimizer : back ? backward : NULL);
    if (o->kind == OP_COMPUTE)
        for (int k = o->u.compute.k0; k < o->u.compute.k1; k++)
            kernel(m, &s->program.piece[o->u.compute.piece].kernels[o->u.compute.pass][k], o->u.compute.pass == PASS_BACKWARD);
    else if (o->kind == OP_COLL)
        collective(m, o);
    else if (o->kind == OP_COPY && !stream_is_host((enum stream)o->stream))
        streaming(m, o->stream == STREAM_COMPUTE ? 7 : 20, o->u.copy.reads + o->u.copy.writes);
    else if (o->kind == OP_OPTIMIZER)
        streaming(m, 7, o->u.optimizer.bytes * o->u.optimizer.elems);
    return 0;
}

enum { STEPS = 3 };

/* The steps of one rank, said to be of another (-1: not said). */
static const char *write_steps(const char *plan, int64_t rank, int64_t says, int64_t world)
{
    const char *path = trace_path;
    struct schedules s = { 0 };
    struct plan p;

    snprintf(trace_path, sizeof trace_path, "%s/trace.json", folder);
    assert_int_equal(plan_read(plan, &p), 0);
    assert_int_equal(lower(&p, rank, &s), 0);
    struct machine m = { .to = fopen(path, "w"), .host = 1e6, .s = &s, .p = &p };
    assert_non_null(m.to);
    fputs("{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H100 80GB HBM3\"}],\n", m.to);
    if (says >= 0)
        fprintf(m.to, "\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": %" PRId64 ", \"world_size\": %" PRId64 "},\n", says, world);
    fputs("\"traceEvents\": [\n", m.to);
    for (int i = 0; i < STEPS; i++) {
        double begin = m.host;
        char name[32];
        sched_walk(&s, SCHED_STEADY, take, &m);
        phase(&m, NULL);
        for (int stream = 0; stream < 32; stream++)
            m.host = m.tail[stream] > m.host ? m.tail[stream] : m.host;
        snprintf(name, sizeof name, "ProfilerStep#%d", i + 10);
        slice(&m, "user_annotation", name, begin, m.host + 1);
        m.host += 10;
    }
    fputs("{\"ph\": \"M\", \"name\": \"end\"}]}\n", m.to);
    fclose(m.to);
    schedules_free(&s);
    plan_free(&p);
    return path;
}

static const char *write_trace(const char *plan, int64_t rank, int64_t world) { return write_steps(plan, rank, rank, world); }
static const char *write_info(const char *plan, int64_t says, int64_t world) { return write_steps(plan, 0, says, world); }

/* ---- plans ---- */

#define MODEL "\"model\": { \"model_type\": \"llama\", \"hidden_size\": 1024, \"num_hidden_layers\": 5, \"num_attention_heads\": 8," \
              " \"intermediate_size\": 2816, \"vocab_size\": 32000, \"max_position_embeddings\": 4096 }"

static const struct { const char *name, *keys; int64_t world; } plans[] = {
    { "tensor", "\"strategy\": \"fsdp\", \"parallel\": { \"tensor\": 2 }", 4 },
    { "context", "\"strategy\": \"fsdp\", \"parallel\": { \"context\": 2 }", 4 },
    { "pipeline", "\"strategy\": \"fsdp\", \"accumulation\": 4, \"parallel\": { \"pipeline\": 2, \"pipeline_schedule\": \"1f1b\" }", 4 },
    { "uneven", "\"strategy\": \"fsdp\", \"accumulation\": 4, \"parallel\": { \"pipeline\": 2, \"pipeline_schedule\": \"1f1b\","
                " \"last_stage_less_layers\": 1, \"first_stage_less_layers\": 0 }", 4 },
    { "tensor and pipeline", "\"strategy\": \"fsdp\", \"accumulation\": 2, \"parallel\": { \"tensor\": 2, \"pipeline\": 2 }", 4 },
};
enum { NPLANS = sizeof plans / sizeof *plans };

static const char *write_plan(int which)
{
    snprintf(plan_path, sizeof plan_path, "%s/plan.json", folder);
    FILE *f = fopen(plan_path, "w");

    assert_non_null(f);
    fprintf(f, "{ \"dpx_plan\": 1, " MODEL ", \"cluster\": \"%" PRId64 "xh100\", \"dialect\": \"torch\", \"kernels\": \"torch-sdpa\","
            " \"seq\": 2048, \"micro_batch\": 2, \"precision\": \"bf16\", %s }\n", plans[which].world, plans[which].keys);
    fclose(f);
    return plan_path;
}

/* ---- */

static void import(const char *trace, const char *plan, const char *to)
{
    struct import_kineto how = { .plan = plan };
    struct db *db = db_open(to);
    char *one[] = { (char *)(uintptr_t)trace };
    bool refused;

    assert_non_null(db);
    fail_capture(said, sizeof said);
    said[0] = '\0';
    int rc = import_kineto(db, &how, one, 1, &refused);
    fail_capture(NULL, 0);
    db_close(db);
    if (rc < 0)
        fail_msg("%s", said);
}

struct sums { const struct priced *of; double *s; };

static int add_price(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct sums *sums = arg;
    bool back = o->phase == PHASE_BACKWARD || o->phase == PHASE_REDUCE;

    (void)iteration;
    if (o->kind == OP_COMPUTE || o->kind == OP_OPTIMIZER || (o->kind == OP_COPY && !stream_is_host((enum stream)o->stream)))
        sums->s[o->phase == PHASE_OPTIMIZER ? 2 : back] += sums->of->middle.work[o - s->ops];
    return 0;
}

/* Forward, backward, optimizer of a rank, alone: what the clock adds for kernels beside collectives is not in the traces. */
static void priced(const char *plan, int64_t rank, const char *db, double s[3])
{
    static struct coll_memo memo;
    struct measured_device d;
    struct schedules of = { 0 };
    struct priced prices;
    struct plan p;

    memset(s, 0, 3 * sizeof *s);
    memset(&memo, 0, sizeof memo);
    assert_int_equal(plan_read(plan, &p), 0);
    assert_int_equal(measured_for(db, true, p.precision, p.kernels, &p.cluster, &d), 1);
    assert_int_equal(lower(&p, rank, &of), 0);
    struct cost_cache *cache = cost_cache_new(&p);
    assert_int_equal(simulate_price(&p, &of, SCHED_STEADY, cache, &memo, &prices), 0);
    sched_walk(&of, SCHED_STEADY, add_price, &(struct sums){ &prices, s });
    simulate_priced_free(&prices);
    cost_cache_free(cache);
    schedules_free(&of);
    measured_device_free(&d);
    plan_free(&p);
}

/* Of every rank of every plan: forward, backward and optimizer are priced as the trace has them, and calls and bytes of
 * collectives beside it are the trace's. */
static void a_trace_of_one_rank_predicts_that_rank(void **state)
{
    (void)state;
    for (int i = 0; i < NPLANS; i++)
        for (int64_t rank = 0; rank < plans[i].world; rank++) {
            const char *plan = write_plan(i), *trace = write_trace(plan, rank, plans[i].world);
            struct kineto_plan p;
            struct kineto k;
            double own[3];

            snprintf(db_path_of, sizeof db_path_of, "%s/%d-%d.db", folder, i, (int)rank);
            import(trace, plan, db_path_of);
            assert_int_equal(kineto_load(trace, &k), 0);
            assert_int_equal(kineto_plan_load(plan, db_path_of, &k.info, &p), 0);
            priced(plan, rank, db_path_of, own);
            for (int v = M_FORWARD; v <= M_OPTIMIZER; v++)
                /* What lies between two products is shared by bytes, and 2 us of each kernel do not go by bytes. */
                if (!(k.median.v[v] > 0) || fabs(own[v - M_FORWARD] / k.median.v[v] - 1) > .005)
                    fail_msg("%s, rank %d: phase %d takes %g s in the trace, %g in the plan", plans[i].name, (int)rank, v,
                             k.median.v[v], own[v - M_FORWARD]);
            for (int op = 0; op < NCOLL; op++)
                for (int v = M_CALLS; v <= M_BYTES; v++)
                    if (!coll_is_message((enum coll_op)op) && fabs(p.m.v[m_coll(op, v)] - k.median.v[m_coll(op, v)]) > 0)
                        fail_msg("%s, rank %d: %s %g in the trace, %g in the plan", plans[i].name, (int)rank,
                                 coll_name((enum coll_op)op), k.median.v[m_coll(op, v)], p.m.v[m_coll(op, v)]);
            kineto_free(&k);
        }
}

static int compare(const char *trace, const char *plan, char **out)
{
    size_t size;
    FILE *f = open_memstream(out, &size);

    assert_non_null(f);
    fail_capture(said, sizeof said);
    said[0] = '\0';
    int rc = kineto_cmd(trace, plan, NULL, f, NULL);
    fail_capture(NULL, 0);
    fclose(f);
    return rc;
}

static void the_table_says_of_which_rank_it_is(void **state)
{
    const char *plan = write_plan(2);
    char *out;

    (void)state;
    assert_int_equal(compare(write_trace(plan, 3, 4), plan, &out), 0);
    assert_non_null(strstr(out, "rank 3 of 4 on nccl"));
    assert_non_null(strstr(out, "plan: FSDP2 on 4 ranks, rank 3, stage 1 of 2, "));
    free(out);
    plan = write_plan(0);
    assert_int_equal(compare(write_trace(plan, 1, 4), plan, &out), 0);
    assert_non_null(strstr(out, "plan: FSDP2 on 4 ranks, rank 1, "));
    free(out);
}

/* By what distributedInfo says: ranks more, fewer, one that is not there, none. */
static void what_is_not_of_the_plan_s_ranks_is_refused(void **state)
{
    static const struct { int64_t rank, world; const char *why; } of[] = {
        { 0, 2, "the trace is of 2 ranks and the plan of 4" }, { 0, 16, "the trace is of 16 ranks and the plan of 4" },
        { 0, 1, "the trace is of 1 rank and the plan of 4" }, { 4, 4, "the trace is of rank 4, and the plan has 4 ranks" },
        { -1, 0, "the trace does not say of which rank it is (distributedInfo)" },
    };
    const char *plan = write_plan(2);
    char *out;

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        assert_int_equal(compare(write_info(plan, of[i].rank, of[i].world), plan, &out), 2);
        assert_int_equal(strlen(out), 0);
        if (strncmp(said, of[i].why, strlen(of[i].why)))
            fail_msg("said: %s", said);
        free(out);
        struct import_kineto how = { .plan = plan };
        bool refused;
        snprintf(db_path_of, sizeof db_path_of, "%s/refused.db", folder);
        struct db *db = db_open(db_path_of);
        fail_capture(said, sizeof said);
        assert_int_equal(import_kineto(db, &how, (char *[]){ trace_path }, 1, &refused), -1);
        fail_capture(NULL, 0);
        db_close(db);
        assert_true(refused);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_says_of_which_rank_it_is),
        cmocka_unit_test(what_is_not_of_the_plan_s_ranks_is_refused),
        cmocka_unit_test(a_trace_of_one_rank_predicts_that_rank),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
