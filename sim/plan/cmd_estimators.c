/* cmd_estimators.c -- dpxplan estimators: DeepSpeed's own estimate and Megatron-LM's own report, to the byte, and what our schedules say
 * beside them. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/columns.h"
#include "base/fail.h"
#include "base/opts.h"
#include "base/page.h"
#include "base/size.h"
#include "model/exchange/estimators.h"
#include "model/exchange/megatron_memory.h"
#include "model/memory/evaluate.h"
#include "model/plan/elsewhere.h"
#include "sim/plan/commands.h"

struct args {
    const char *model, *cluster, *megatron;
    int64_t params, largest_layer, gpus_per_node, nodes, seq, micro_batch;
    double factor;
    bool json;
};

/* ---- Megatron-LM's report ---- */

static int64_t states_of(const struct memory_verdict *m)
{
    return m->ledger.most[CAT_PARAMS] + m->ledger.most[CAT_GRADS] + m->ledger.most[CAT_OPTIMIZER];
}

static json_t *bytes_json(double weights, double activations)
{
    return json_pack("{s:f, s:f, s:f}", "weights_and_optimizer_bytes", weights, "activations_bytes", activations, "total_bytes", weights + activations);
}

static const struct column report_columns[] = { { "a rank of the first stage", false, 0 }, { "Megatron-LM", true, 0 }, { "dpx", true, 0 } };

static void report_row(struct columns *t, const char *what, double theirs, int64_t ours)
{
    columns_cell(t, "%s", what);
    columns_cell(t, "%s", size_text((int64_t)theirs).s);
    columns_cell(t, "%s", size_text(ours).s);
}

static int print_report_words(const struct plan *p, const struct megatron_report *r, const struct evaluation *e)
{
    const struct memory_verdict *m = e->stage ? &e->stage[0].m : &e->m;
    struct columns *t = columns_new(report_columns, 3);
    FILE *to = page_open(stdout);

    if (!to)
        return EXIT_FAILED;
    report_row(t, "weights and optimizer", r->weights, states_of(m));
    report_row(t, "activations", r->activations, m->ledger.most[CAT_ACTIVATIONS]);
    report_row(t, "together", r->weights + r->activations, m->ledger.peak.bytes);
    columns_print(t, to, page_width(stdout));
    fprintf(to, "\nMegatron-LM's activations are those of %s.\n"
            "dpx has the most of each kind that its schedules hold (kernels %s). Together is the peak, temporaries and buffers of communication included. "
            "The fullest rank is %" PRId64 ": %s.\n",
            r->by_positions ? "sequence parallelism with selective recompute" : "tensor parallelism alone, whatever is recomputed, and 5 %",
            kernels_name(p->kernels), e->m.rank, size_text(e->m.ledger.peak.bytes).s);
    page_close(to);
    return EXIT_DONE;
}

/* Of both, the first stage; Megatron-LM takes it for the fullest. */
static int print_report(const struct plan *p, const struct megatron_report *r, const struct evaluation *e, bool json)
{
    const struct memory_verdict *m = e->stage ? &e->stage[0].m : &e->m;
    int64_t states = states_of(m);
    int64_t activations = m->ledger.most[CAT_ACTIVATIONS], peak = m->ledger.peak.bytes;

    if (json)
        return dpxplan_print_json(json_pack("{s:o, s:b, s:{s:I, s:I, s:I, s:I, s:I}}", "megatron", bytes_json(r->weights, r->activations),
            "by_positions", r->by_positions, "dpx", "model_states_bytes", (json_int_t)states, "activations_bytes", (json_int_t)activations,
            "gpu_peak_bytes", (json_int_t)peak, "fullest_rank", (json_int_t)e->m.rank, "fullest_rank_peak_bytes",
            (json_int_t)e->m.ledger.peak.bytes), EXIT_DONE);
    return print_report_words(p, r, e);
}

static int report(const struct args *a)
{
    struct megatron_report r;
    struct evaluation e;
    struct plan p;
    int rc = EXIT_MISUSE;

    if (plan_read(a->megatron, &p) < 0)
        return EXIT_MISUSE;
    if (p.dialect != DIALECT_MEGATRON)
        fail("%s: dialect: the report is of dialect megatron, this plan is of %s", a->megatron, dialect_name(p.dialect));
    else if (megatron_report_of(&p, &r) == 0 && evaluate_allocated(&p, &e) == 0) {
        rc = print_report(&p, &r, &e, a->json);
        evaluation_free(&e);
    }
    plan_free(&p);
    return rc;
}

/* ---- DeepSpeed's estimate ---- */

/* What a DeepSpeed run really holds, by our schedules: bf16, its default options. */
struct ours { int64_t peak, states, host, pinned; bool known; char why[256]; };

static const struct { const char *row; enum strategy stage; enum elsewhere how; } runs[ESTIMATE_ROWS] = {
    { "zero2", STRAT_ZERO2, ELSEWHERE_NOTHING },
    { "zero2_offload", STRAT_ZERO2, ELSEWHERE_OPTIMIZER },
    { "zero3", STRAT_ZERO3, ELSEWHERE_NOTHING },
    { "zero3_offload_optimizer", STRAT_ZERO3, ELSEWHERE_OPTIMIZER },
    { "zero3_offload_all", STRAT_ZERO3, ELSEWHERE_ALL },
};

/* Bytes are counted, not judged: a node of any size will do. */
static int ours(const struct args *a, int row, struct ours *out)
{
    struct plan p = { .seq = a->seq, .micro_batch = a->micro_batch, .accumulation = 1 };
    struct evaluation e;
    char spec[96];
    int rc = -1;

    snprintf(spec, sizeof spec, "%lldx%lldx%s", (long long)a->nodes, (long long)a->gpus_per_node, a->cluster);
    if (model_load(a->model, &p.model) < 0)
        return -1;
    if (gpu_find(a->cluster))
        cluster_of_gpu(&p.cluster, gpu_find(a->cluster), a->nodes, a->gpus_per_node);
    else if (cluster_load(spec, &p.cluster) < 0)
        goto out;
    p.cluster.node.memory = SIZE_LIMIT;
    plan_defaults(&p, runs[row].stage, DIALECT_DEEPSPEED, DT_BF16);
    elsewhere_set(&p, runs[row].how);
    if (plan_check(&p, "estimators") < 0 || evaluate_allocated(&p, &e) < 0)
        goto out;
    out->peak = e.m.ledger.peak.bytes;
    out->states = states_of(&e.m);
    out->host = e.m.spaces.of[SPACE_HOST].peak;
    out->pinned = e.m.spaces.of[SPACE_PINNED].peak;
    evaluation_free(&e);
    rc = 0;
out:
    plan_free(&p);
    return rc;
}

static json_t *pair(const struct estimate *e)
{
    return json_pack("{s:I, s:I}", "gpu_bytes", (json_int_t)e->gpu_bytes, "cpu_bytes", (json_int_t)e->cpu_bytes);
}

static json_t *ours_json(const struct ours *o)
{
    if (!o->known)
        return json_pack("{s:s}", "why_not", o->why);
    return json_pack("{s:I, s:I, s:I, s:I}", "gpu_peak_bytes", (json_int_t)o->peak, "model_states_bytes",
                     (json_int_t)o->states, "host_bytes", (json_int_t)o->host, "pinned_bytes", (json_int_t)o->pinned);
}

static const struct column columns[] = {
    { "estimate", false, 0 }, { "GPU, zero.Init", true, 0 }, { "CPU", true, 1 }, { "GPU, no init", true, 2 }, { "CPU", true, 3 }, { "dpx", false, 0 },
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void add_row(struct columns *t, const struct estimate_row *r, const struct ours *o)
{
    char mine[512] = "";

    columns_cell(t, "%s", r->name);
    columns_cell(t, "%s", size_text(r->zero_init.gpu_bytes).s);
    columns_cell(t, "%s", size_text(r->zero_init.cpu_bytes).s);
    columns_cell(t, "%s", size_text(r->no_zero_init.gpu_bytes).s);
    columns_cell(t, "%s", size_text(r->no_zero_init.cpu_bytes).s);
    if (o && !o->known)
        snprintf(mine, sizeof mine, "not planned: %s", o->why);
    else if (o && o->host > 0)
        snprintf(mine, sizeof mine, "dpx: %s, states %s; host %s, %s of it pinned", size_text(o->peak).s, size_text(o->states).s, size_text(o->host).s,
                 size_text(o->pinned).s);
    else if (o)
        snprintf(mine, sizeof mine, "dpx: %s, states %s", size_text(o->peak).s, size_text(o->states).s);
    columns_cell(t, "%s", mine);
}

static void print_why(const struct args *a, FILE *to)
{
    fprintf(to, "\ndpx: the peak of a rank, and of it the states alone (seq %" PRId64 ", micro-batch %" PRId64 ", bf16). It counts what the estimate "
            "leaves out: the reduction bucket, flattening and cast copies, persistent and prefetched parameters, activations and logits.\n"
            "On the host it counts each buffer of a node as it is; the estimate has 16 or 18 bytes a parameter, times %g. Pinned buffers come "
            "in powers of two.\n"
            "The estimate without zero.Init is of the whole model that every rank builds in fp32 before it is moved.\n",
            a->seq, a->micro_batch, a->factor);
}

static int print(const struct args *a, const struct estimate_row rows[ESTIMATE_ROWS], const struct ours *mine)
{
    struct columns *t = columns_new(columns, COLUMNS);
    FILE *to = page_open(stdout);

    if (!to)
        return EXIT_FAILED;
    for (int i = 0; i < ESTIMATE_ROWS; i++)
        add_row(t, &rows[i], mine ? &mine[i] : NULL);
    columns_print(t, to, page_width(stdout));
    if (mine)
        print_why(a, to);
    page_close(to);
    return EXIT_DONE;
}

static json_t *rows_json(const struct estimate_row rows[ESTIMATE_ROWS], const struct ours *mine)
{
    json_t *doc = json_object();

    for (int i = 0; i < ESTIMATE_ROWS; i++) {
        json_t *o = json_pack("{s:o, s:o}", "zero_init", pair(&rows[i].zero_init), "no_zero_init", pair(&rows[i].no_zero_init));
        if (mine)
            json_object_set_new(o, "dpx", ours_json(&mine[i]));
        json_object_set_new(doc, rows[i].name, o);
    }
    return doc;
}

static int answer(const struct args *a, const struct estimate_row rows[ESTIMATE_ROWS])
{
    struct ours mine[ESTIMATE_ROWS] = { { 0 } };
    bool with_ours = a->model != NULL;

    for (int i = 0; i < ESTIMATE_ROWS && with_ours; i++) {
        assert(!strcmp(runs[i].row, rows[i].name));
        struct fail_sink said = fail_divert(mine[i].why, sizeof mine[i].why);
        mine[i].known = ours(a, i, &mine[i]) == 0;
        fail_restore(said);
    }
    return a->json ? dpxplan_print_json(rows_json(rows, with_ours ? mine : NULL), EXIT_DONE) : print(a, rows, with_ours ? mine : NULL);
}

int cmd_estimators(int argc, char **argv)
{
    struct args a = { .cluster = "h100", .gpus_per_node = 1, .nodes = 1, .seq = 1024, .micro_batch = 1,
                      .factor = ESTIMATOR_BUFFER_FACTOR };
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxplan estimators --model llama-3.1-8b --nodes 2 --gpus-per-node 8"),
        { "model", "a built-in name, a config.json or its folder", .str = &a.model, .often = true },
        { "params", "parameters, when no model is given", .i = &a.params, .min = 1, .often = true },
        { "largest-layer", "parameters of the largest layer", .i = &a.largest_layer, .min = 1 },
        { "gpus-per-node", "GPUs of a node", .i = &a.gpus_per_node, .min = 1, .often = true },
        { "nodes", "nodes", .i = &a.nodes, .min = 1, .often = true },
        { "buffer-factor", "additional_buffer_factor", .num = &a.factor },
        { "gpu", "GPU type for dpx's own figure", .str = &a.cluster, .group = "For dpx\'s own figure beside them" },
        { "seq", "sequence length for dpx's own figure", .length = &a.seq, .min = 1, .group = "For dpx\'s own figure beside them" },
        { "micro-batch", "samples per rank for dpx's own figure", .i = &a.micro_batch, .min = 1, .group = "For dpx\'s own figure beside them" },
        { "megatron", "a plan in dialect megatron: Megatron-LM's theoretical memory report of it", .str = &a.megatron, .often = true },
        { "json", "print one JSON document", .flag = &a.json },
        { 0 }
    };
    struct estimate_row rows[ESTIMATE_ROWS];
    int rc = opts_parse("dpxplan estimators",
                        "DeepSpeed's estimate_zero2/zero3_model_states_mem_needs, or Megatron-LM's theoretical memory report, to the byte.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (a.megatron && (a.model || a.params > 0 || a.largest_layer > 0)) {
        fail("estimators: --megatron takes a plan, which has the model");
        return EXIT_MISUSE;
    }
    if (a.megatron)
        return report(&a);
    if (a.model ? a.params > 0 || a.largest_layer > 0 : a.params == 0 || a.largest_layer == 0) {
        fail("estimators: give --model, or --params and --largest-layer");
        return EXIT_MISUSE;
    }
    if (a.model) {
        struct model m;
        if (model_load(a.model, &m) < 0)
            return EXIT_MISUSE;
        a.params = m.params;
        a.largest_layer = estimator_largest_layer(&m);
        model_free(&m);
    }
    if (!a.model && a.largest_layer > a.params) {
        fail("estimators: --largest-layer has more parameters than --params: it is one of their layers");
        return EXIT_MISUSE;
    }
    struct estimator_input in = { .params = a.params, .largest_layer = a.largest_layer,
                                  .gpus_per_node = a.gpus_per_node, .nodes = a.nodes,
                                  .buffer_factor = a.factor };
    if (estimate_all(&in, rows) < 0)
        return EXIT_MISUSE;
    return answer(&a, rows);
}
