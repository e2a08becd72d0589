/* CUDA graphs as a part of a plan: what is refused and in whose words, which kernels are captured, and whose memory is whose. */
#include "tests/model/megatron_text.h"
#include "tests/model/plans.h"

#include "base/fail.h"
#include "model/exchange/export.h"
#include "model/lower/lower.h"
#include "model/memory/evaluate.h"
#include "model/memory/requests.h"
#include "model/plan/graphs.h"
#include "model/plan/knob.h"

#define MiB ((int64_t)1 << 20)

/* Keys beside those of every plan here. */
static int read_plan(const char *model, const char *dialect, const char *words, struct plan *p)
{
    char text[1024];
    bool torch = !strcmp(dialect, "torch");

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": %s, \"cluster\": \"2x8xh100\", \"seq\": 1024, \"micro_batch\": 1, \"dialect\": \"%s\","
             " \"precision\": \"bf16\", \"strategy\": \"%s\"%s%s }", model, dialect, torch ? "fsdp" : "zero1", *words ? ", " : "", words);
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    int rc = plan_from_json(j, "plan", p);
    json_decref(j);
    return rc;
}

#define LLAMA "\"llama-3.1-8b\""
#define MIXTRAL "\"mixtral-8x7b\""
#define REDUCE "\"kernels\": \"torch-compile\", \"compile_mode\": \"reduce-overhead\""

static void what_excludes_graphs_is_said_in_the_frameworks_words(void **state)
{
    static const struct { const char *model, *dialect, *words, *because; } row[] = {
        { LLAMA, "torch", "\"compile_mode\": \"reduce-overhead\"", "kernels are not \"torch-compile\"" },
        { LLAMA, "torch", REDUCE ", \"parallel\": { \"tensor\": 2 }", "Inductor's built-in cudagraph integration cannot handle NCCL ops" },
        { LLAMA, "torch", REDUCE ", \"parallel\": { \"pipeline\": 2 }, \"accumulation\": 4", "before their backwards" },
        { LLAMA, "torch", REDUCE ", \"accumulation\": 2, \"sync_every_micro_step\": false",
          "accessing gradient tensor output of CUDAGraphs that has been overwritten by a subsequent run" },
        { LLAMA, "torch", REDUCE ", \"activation_offload\": \"streams\"", "cannot leave it" },
        { LLAMA, "megatron", "\"megatron\": { \"cuda_graph_scope\": [\"attn\"] }", "megatron.cuda_graph_impl is none" },
        { LLAMA, "megatron", "\"megatron\": { \"cuda_graph_impl\": \"local\", \"cuda_graph_scope\": [\"norm\"] }", "expected attn, mlp" },
        { LLAMA, "megatron", "\"megatron\": { \"cuda_graph_impl\": \"local\", \"cuda_graph_scope\": [\"mamba\"] }", "models with Mamba-2 layers" },
        { LLAMA, "megatron", "\"megatron\": { \"cuda_graph_impl\": \"local\", \"cuda_graph_scope\": [\"moe\"] }",
          "moe cuda graph is only supported for MoE." },
        { LLAMA, "megatron", "\"megatron\": { \"cuda_graph_impl\": \"transformer_engine\", \"cuda_graph_scope\": \"full_iteration\" }",
          "please use cuda_graph_impl=local instead" },
        { LLAMA, "megatron", "\"megatron\": { \"cuda_graph_impl\": \"local\", \"cuda_graph_scope\": \"full_iteration\" }",
          "check_for_nan_in_loss_and_grad false" },
        { LLAMA, "megatron", "\"recompute\": \"full\", \"megatron\": { \"cuda_graph_impl\": \"local\" }",
          "full recompute is only supported with full iteration CUDA graph." },
        { MIXTRAL, "megatron", "\"megatron\": { \"cuda_graph_impl\": \"local\" }", "the host reads how many tokens each expert gets" },
        { MIXTRAL, "megatron", "\"megatron\": { \"cuda_graph_impl\": \"local\", \"cuda_graph_scope\": [\"mlp\"] }",
          "mlp cuda graph is only supported for dense layers, but not found in the model." },
        { MIXTRAL, "megatron", "\"megatron\": { \"cuda_graph_impl\": \"local\", \"cuda_graph_scope\": [\"attn\", \"moe\"] }",
          "moe cuda graph is only supported with drop-padding MoE." },
        { MIXTRAL, "megatron", "\"megatron\": { \"cuda_graph_impl\": \"transformer_engine\", \"cuda_graph_scope\": [\"moe_preprocess\"] }",
          "moe_preprocess cuda graph is only supported with moe_router cuda graph." },
        { MIXTRAL, "megatron", "\"megatron\": { \"cuda_graph_impl\": \"local\", \"cuda_graph_scope\": [\"moe\", \"moe_router\"] }",
          "cuda_graph_scope must not contain both moe and moe_router." },
        { MIXTRAL, "megatron", "\"megatron\": { \"cuda_graph_impl\": \"local\", \"cuda_graph_scope\": [\"moe_router\"],"
          " \"moe_expert_capacity_factor\": 1 }",
          "when there are DtoH copies and synchronizations in the preprocess step." },
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char why[600] = "";
        struct plan p;
        fail_capture(why, sizeof why);
        int rc = read_plan(row[i].model, row[i].dialect, row[i].words, &p);
        fail_capture(NULL, 0);
        if (rc == 0 || !strstr(why, row[i].because))
            fail_msg("%s: refused with \"%s\", not \"%s\"", row[i].words, why, row[i].because);
    }
}

static void built(const char *model, const char *dialect, const char *words, struct plan *p, struct program *g)
{
    memset(g, 0, sizeof *g);
    assert_int_equal(read_plan(model, dialect, words, p), 0);
    assert_int_equal(program_build(p, g), 0);
}

static void unbuilt(struct plan *p, struct program *g)
{
    program_free(g);
    plan_free(p);
}

/* Of the kernels of a pass of that half (-1: of both), those that a graph holds, and all. */
struct count { int held, all; };

static struct count count(const struct program *g, enum piece_id id, enum pass pass, int half)
{
    struct count n = { 0 };

    for (int i = 0; i < g->piece[id].nkernels[pass]; i++) {
        const struct kernel *k = &g->piece[id].kernels[pass][i];
        if (half >= 0 && k->half != half)
            continue;
        n.held += k->captured;
        n.all++;
    }
    return n;
}

static void a_scope_names_halves_of_a_block(void **state)
{
    static const struct { const char *words; int holds[2], ends; } row[] = {
        { "\"megatron\": { \"cuda_graph_impl\": \"none\" }", { 0, 0 }, 0 },
        { "\"megatron\": { \"cuda_graph_impl\": \"local\" }", { 1, 1 }, 0 },
        { "\"megatron\": { \"cuda_graph_impl\": \"local\", \"cuda_graph_scope\": [\"attn\"] }", { 1, 0 }, 0 },
        { "\"megatron\": { \"cuda_graph_impl\": \"transformer_engine\", \"cuda_graph_scope\": [\"mlp\"] }", { 0, 1 }, 0 },
        { "\"megatron\": { \"cuda_graph_impl\": \"transformer_engine\", \"cuda_graph_scope\": [\"attn\", \"mlp\"] }", { 1, 1 }, 0 },
        { "\"megatron\": { \"cuda_graph_impl\": \"local\", \"cuda_graph_scope\": \"full_iteration\","
          " \"check_for_nan_in_loss_and_grad\": false }", { 1, 1 }, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int pass = 0; pass < NPASS; pass++) {
            struct plan p;
            struct program g;
            built(LLAMA, "megatron", row[i].words, &p, &g);
            for (int half = 0; half < 2; half++) {
                struct count n = count(&g, PIECE_BLOCK, (enum pass)pass, half);
                assert_true(n.all > 0);
                assert_int_equal(n.held, row[i].holds[half] * n.all);
            }
            assert_int_equal(count(&g, PIECE_HEAD, (enum pass)pass, -1).held, row[i].ends * count(&g, PIECE_HEAD, (enum pass)pass, -1).all);
            unbuilt(&p, &g);
        }
}

/* Of a mixture the router is in the graph, rows' exchange and experts are not; padded to a capacity all of it may be. */
static void the_router_is_captured_and_the_experts_are_not(void **state)
{
    static const char *const router = "\"parallel\": { \"expert\": 4 }, \"megatron\": { \"cuda_graph_impl\": \"transformer_engine\","
                                      " \"cuda_graph_scope\": [\"attn\", \"moe_router\", \"moe_preprocess\"] }";
    static const char *const padded = "\"parallel\": { \"expert\": 4 }, \"megatron\": { \"cuda_graph_impl\": \"local\","
                                      " \"cuda_graph_scope\": [\"moe\"],"
                                      " \"moe_expert_capacity_factor\": 1, \"moe_pad_expert_input_to_capacity\": true }";
    struct plan p;
    struct program g;

    (void)state;
    built(MIXTRAL, "megatron", router, &p, &g);
    for (int pass = 0; pass < NPASS; pass++) {
        const struct piece *piece = &g.piece[PIECE_BLOCK];
        struct count mlp = count(&g, PIECE_BLOCK, (enum pass)pass, 1), attn = count(&g, PIECE_BLOCK, (enum pass)pass, 0);
        assert_int_equal(attn.held, attn.all);
        assert_true(mlp.held > 0 && mlp.held < mlp.all);
        for (int i = 0; i < piece->nkernels[pass]; i++)
            if (!strncmp(piece->kernels[pass][i].name, "experts", 7))
                assert_false(piece->kernels[pass][i].captured);
        for (int i = 0; i < piece->ncollectives[pass]; i++)
            if (piece->collectives[pass][i].op == COLL_ALL_TO_ALL || piece->collectives[pass][i].waits)
                assert_false(piece->kernels[pass][piece->collectives[pass][i].kernel].captured);
    }
    unbuilt(&p, &g);
    built(MIXTRAL, "megatron", padded, &p, &g);
    for (int pass = 0; pass < NPASS; pass++) {
        assert_int_equal(count(&g, PIECE_BLOCK, (enum pass)pass, 1).held, count(&g, PIECE_BLOCK, (enum pass)pass, 1).all);
        assert_int_equal(count(&g, PIECE_BLOCK, (enum pass)pass, 0).held, 0);
    }
    unbuilt(&p, &g);
}

/* A collective that a graph holds is marked in the schedule: its replay issues it. */
static void collectives_of_captured_layers_are_marked(void **state)
{
    struct schedules s = { 0 };
    struct plan p;
    int inside = 0, marked = 0;

    (void)state;
    assert_int_equal(read_plan(LLAMA, "megatron", "\"parallel\": { \"tensor\": 8, \"sequence\": true },"
                               " \"megatron\": { \"cuda_graph_impl\": \"local\" }", &p), 0);
    assert_int_equal(lower(&p, 0, &s), 0);
    for (int i = 0; i < s.nops; i++)
        if (s.ops[i].kind == OP_COLL && s.ops[i].stream == STREAM_TENSOR && s.ops[i].of && !strcmp(s.ops[i].of, "block")) {
            inside++;
            marked += (s.ops[i].flags & OPF_GRAPH) != 0;
        }
    assert_true(inside > 0);
    assert_int_equal(marked, inside);
    schedules_free(&s);
    plan_free(&p);
}

/* ---- memory ---- */

/* The requests of a plan, added up by pool: [1] is the graphs'. */
struct pools { int64_t now[2], peak[2]; int64_t bytes[1 << 20]; int in[1 << 20], n, emptied, kept; struct caching_stats none; };

static int  take(void *of, int64_t bytes, int stream)
{
    struct pools *p = of;
    int in = stream == NSTREAM;

    assert_true(p->n < 1 << 20);
    p->bytes[p->n] = bytes;
    p->in[p->n] = in;
    p->now[in] += bytes;
    p->peak[in] = p->now[in] > p->peak[in] ? p->now[in] : p->peak[in];
    return p->n++;
}

static void give(void *of, int block)                           { struct pools *p = of; p->now[p->in[block]] -= p->bytes[block]; }
static void record(void *of, int block, int stream)             { (void)of; (void)block; (void)stream; }
static void complete(void *of, int stream, int64_t event)       { (void)of; (void)stream; (void)event; }
static int64_t events(void *of, int stream)                     { (void)of; (void)stream; return 0; }
static void emptied(void *of)                                     { ((struct pools *)of)->emptied++; }
static void keep(void *of, int stream)                          { struct pools *p = of; assert_int_equal(stream, NSTREAM); p->kept++; }

static struct pools *walked(const char *model, const char *dialect, const char *words, int64_t *saved, int64_t *most, int64_t *layers)
{
    struct pools *x = calloc(1, sizeof *x);
    struct schedules s = { 0 };
    struct request_target t = { .of = x, .allocate = take, .release = give, .record = record, .complete = complete, .events = events, .stats = &x->none,
                                .empty = emptied, .keep = keep };
    struct request_report r;
    struct plan p;

    assert_int_equal(read_plan(model, dialect, words, &p), 0);
    assert_int_equal(lower(&p, 0, &s), 0);
    requests_walk(&p, &s, (struct request_options){ 0 }, &t, &r);
    assert_int_equal(r.unmatched, 0);
    *saved = s.program.piece[PIECE_BLOCK].saved;
    *most = 0;
    for (int pass = 0; pass < NPASS; pass++) {
        const int64_t *peak = s.program.whole[PIECE_BLOCK][pass][p.dialect == DIALECT_MEGATRON ? GRADS_IN_PLACE : GRADS_KEEP].peak;
        int64_t sum = peak[MEM_ACTIVATIONS] + peak[MEM_TEMPORARIES] + peak[MEM_GRADS];
        *most = sum > *most ? sum : *most;
    }
    *layers = p.model.layers;
    schedules_free(&s);
    plan_free(&p);
    return x;
}

/* What all blocks keep from forward to backward lies in the graphs' pool, and beside it at most what one block takes while it runs; nothing
 * is left there behind a step.  Without graphs that pool is empty. */
static void captured_layers_allocate_in_a_pool_of_their_own(void **state)
{
    static const struct { const char *dialect, *words; int graphs, later; } row[] = {
        { "torch", "\"kernels\": \"torch-compile\"", 0, 0 },
        { "torch", REDUCE, 1, 0 },
        { "megatron", "\"megatron\": { \"cuda_graph_impl\": \"none\" }", 0, 0 },
        { "megatron", "\"megatron\": { \"cuda_graph_impl\": \"local\" }", 1, 1 },
        { "megatron", "\"megatron\": { \"cuda_graph_impl\": \"transformer_engine\" }", 1, 1 },
    };
    int64_t saved, most, layers;

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct pools *x = walked(LLAMA, row[i].dialect, row[i].words, &saved, &most, &layers);
        assert_int_equal(x->kept, row[i].graphs);
        assert_int_equal(x->emptied, row[i].later);
        assert_int_equal(x->now[1], 0);
        if (!row[i].graphs)
            assert_int_equal(x->peak[1], 0);
        else
            assert_true(x->peak[1] >= layers * saved && x->peak[1] <= layers * saved + most + 64 * 512);
        free(x);
    }
}

/* Two pools never share, so that what is reserved with graphs is more than without; and the bytes that
 * are handed out are the same but for the graphs' inputs: 2 x 1024 x 4096 numbers of 2 bytes. */
static void reserved_is_the_sum_of_two_pools(void **state)
{
    static const char *const words[] = { "\"kernels\": \"torch-compile\"", REDUCE };
    struct evaluation e[2];
    struct plan p[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_plan(LLAMA, "torch", words[i], &p[i]), 0);
        assert_int_equal(evaluate(&p[i], &e[i]), 0);
    }
    assert_int_equal(graphs_static_bytes(&p[1]), 2 * 1024 * 4096 * 2);
    assert_int_equal(e[1].allocated_peak - e[0].allocated_peak, 16 * MiB);
    assert_true(e[1].reserved.reserved_peak > e[0].reserved.reserved_peak + 16 * MiB);
    for (int i = 0; i < 2; i++) {
        evaluation_free(&e[i]);
        plan_free(&p[i]);
    }
}

/* ---- Megatron-LM's options ---- */

static void options_come_in_and_go_out(void **state)
{
    static const struct { const char *options, *impl, *scope; } row[] = {
        { "--cuda-graph-impl local", "local", "" },
        { "--cuda-graph-impl local --cuda-graph-scope full", "local", "" },
        { "--enable-cuda-graph", "local", "" },
        { "--external-cuda-graph --cuda-graph-scope attn", "transformer_engine", "attn" },
        { "--cuda-graph-impl transformer_engine --cuda-graph-scope attn mlp", "transformer_engine", "attn,mlp" },
        { "--cuda-graph-impl transformer_engine --cuda-graph-modules attn,mlp --cuda-graph-warmup-steps 3", "transformer_engine", "attn,mlp" },
        { "--cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad", "local", "full_iteration" },
        { "--cuda-graph-impl none --cuda-graph-scope full", "none", "" },
    };
    struct plan p, in, again;

    (void)state;
    plan_of(&p, "llama-3.1-8b", 4, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[512], *out;
        size_t n;
        snprintf(text, sizeof text, "--micro-batch-size 1 --seq-length 1024 --bf16 --use-distributed-optimizer --hidden-dropout 0"
                 " --attention-dropout 0 %s", row[i].options);
        assert_int_equal(imported(text, "txt", &p, &in), 0);
        assert_int_equal(in.megatron.cuda_graph_impl,
                         !strcmp(row[i].impl, "none") ? GRAPHS_NONE : !strcmp(row[i].impl, "local") ? GRAPHS_LOCAL : GRAPHS_TE);
        assert_string_equal(in.megatron.cuda_graph_scope, row[i].scope);
        FILE *f = open_memstream(&out, &n);
        assert_int_equal(megatron_export(&in, f), 0);
        fclose(f);
        assert_int_equal(imported(out, "txt", &p, &again), 0);
        assert_int_equal(again.megatron.cuda_graph_impl, in.megatron.cuda_graph_impl);
        assert_string_equal(again.megatron.cuda_graph_scope, in.megatron.cuda_graph_scope);
        free(out);
        plan_free(&in);
        plan_free(&again);
    }
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_excludes_graphs_is_said_in_the_frameworks_words),
        cmocka_unit_test(a_scope_names_halves_of_a_block),
        cmocka_unit_test(the_router_is_captured_and_the_experts_are_not),
        cmocka_unit_test(collectives_of_captured_layers_are_marked),
        cmocka_unit_test(captured_layers_allocate_in_a_pool_of_their_own),
        cmocka_unit_test(reserved_is_the_sum_of_two_pools),
        cmocka_unit_test(options_come_in_and_go_out),
    };

    return cmocka_run_group_tests_name("model/graphs", tests, NULL, NULL);
}
