/* cmd_estimators.c -- dpxplan estimators: DeepSpeed's own estimate, to the byte,
 * and with a model what our schedules say beside it. */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/size.h"
#include "model/exchange/estimators.h"
#include "model/memory/evaluate.h"
#include "sim/plan/commands.h"

struct args {
    const char *model, *cluster;
    int64_t params, largest_layer, gpus_per_node, nodes, seq, micro_batch;
    double factor;
    bool json;
};

/* What a DeepSpeed run of this stage really holds, by our schedules: bf16, its
 * default options, no offload. */
static int ours(const struct args *a, enum strategy stage, int64_t *peak, int64_t *states)
{
    struct plan p = { .seq = a->seq, .micro_batch = a->micro_batch, .accumulation = 1 };
    struct evaluation e;
    char spec[96];
    int rc = -1;

    snprintf(spec, sizeof spec, "%lldx%lldx%s", (long long)a->nodes, (long long)a->gpus_per_node, a->cluster);
    if (model_load(a->model, &p.model) < 0)
        return -1;
    if (cluster_load(spec, &p.cluster) < 0)
        goto out;
    plan_defaults(&p, stage, DIALECT_DEEPSPEED, DT_BF16);
    if (plan_check(&p, "estimators") < 0 || evaluate(&p, &e) < 0)
        goto out;
    *peak = e.m.ledger.peak.bytes;
    *states = e.m.ledger.most[CAT_PARAMS] + e.m.ledger.most[CAT_GRADS] + e.m.ledger.most[CAT_OPTIMIZER];
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

static int print(const struct args *a, const struct estimate_row rows[ESTIMATE_ROWS])
{
    json_t *doc = json_object();
    int64_t peak[2] = { 0 }, states[2] = { 0 };
    bool with_ours = a->model != NULL;

    if (with_ours && (ours(a, STRAT_ZERO2, &peak[0], &states[0]) < 0 ||
                      ours(a, STRAT_ZERO3, &peak[1], &states[1]) < 0)) {
        json_decref(doc);
        return EXIT_MISUSE;
    }
    if (!a->json)
        printf("%-24s %15s %15s %15s %15s%s\n", "estimate", "GPU, zero.Init", "CPU", "GPU, no init", "CPU",
               with_ours ? "   dpx: peak of a rank (states alone)" : "");
    for (int i = 0; i < ESTIMATE_ROWS; i++) {
        const struct estimate_row *r = &rows[i];
        json_t *o = json_pack("{s:o, s:o}", "zero_init", pair(&r->zero_init), "no_zero_init", pair(&r->no_zero_init));
        int stage = !strcmp(r->name, "zero2") ? 0 : !strcmp(r->name, "zero3") ? 1 : -1;
        if (!a->json)
            printf("%-24s %15s %15s %15s %15s", r->name, size_text(r->zero_init.gpu_bytes).s,
                   size_text(r->zero_init.cpu_bytes).s, size_text(r->no_zero_init.gpu_bytes).s,
                   size_text(r->no_zero_init.cpu_bytes).s);
        if (with_ours && stage >= 0) {
            json_object_set_new(o, "dpx", json_pack("{s:I, s:I}", "gpu_peak_bytes", (json_int_t)peak[stage],
                                                    "model_states_bytes", (json_int_t)states[stage]));
            if (!a->json)
                printf("   %s (%s)", size_text(peak[stage]).s, size_text(states[stage]).s);
        }
        if (!a->json)
            putchar('\n');
        json_object_set_new(doc, r->name, o);
    }
    if (a->json)
        return print_json(doc, EXIT_DONE);
    json_decref(doc);
    if (with_ours)
        printf("\ndpx counts what the estimate leaves out: the reduction bucket, flattening and cast copies,\n"
               "persistent and prefetched parameters, activations and logits (seq %lld, micro-batch %lld, bf16).\n"
               "Offload is not modelled yet, so those rows stand alone.\n",
               (long long)a->seq, (long long)a->micro_batch);
    return EXIT_DONE;
}

int cmd_estimators(int argc, char **argv)
{
    struct args a = { .cluster = "h100", .gpus_per_node = 1, .nodes = 1, .seq = 1024, .micro_batch = 1,
                      .factor = ESTIMATOR_BUFFER_FACTOR };
    const struct opt opts[] = {
        { "model", "a built-in name, a config.json or its folder", .str = &a.model },
        { "params", "parameters, when no model is given", .i = &a.params, .min = 1 },
        { "largest-layer", "parameters of the largest layer", .i = &a.largest_layer, .min = 1 },
        { "gpus-per-node", "GPUs of a node", .i = &a.gpus_per_node, .min = 1 },
        { "nodes", "nodes", .i = &a.nodes, .min = 1 },
        { "buffer-factor", "additional_buffer_factor", .num = &a.factor },
        { "gpu", "GPU type for dpx's own figure", .str = &a.cluster },
        { "seq", "sequence length for dpx's own figure", .length = &a.seq, .min = 1 },
        { "micro-batch", "samples per rank for dpx's own figure", .i = &a.micro_batch, .min = 1 },
        { "json", "print one JSON document", .flag = &a.json },
        { 0 }
    };
    struct estimate_row rows[ESTIMATE_ROWS];
    int rc = opts_parse("dpxplan estimators",
                        "DeepSpeed's estimate_zero2/zero3_model_states_mem_needs, to the byte.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
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
    struct estimator_input in = { .params = a.params, .largest_layer = a.largest_layer,
                                  .gpus_per_node = a.gpus_per_node, .nodes = a.nodes,
                                  .buffer_factor = a.factor };
    if (estimate_all(&in, rows) < 0)
        return EXIT_MISUSE;
    return print(&a, rows);
}
