/* cmd_list.c -- dpxplan list: what dpx knows by name. */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/size.h"
#include "model/plan/knob.h"
#include "sim/plan/commands.h"
#include "sim/plan/list_parallel.h"

static int list_models(json_t *to)
{
    const char *name, *about;

    for (int i = 0; (name = model_builtin(i, &about)); i++) {
        struct model m;
        if (model_load(name, &m) < 0)
            return -1;
        if (to)
            json_array_append_new(to, json_pack("{s:s, s:s, s:s, s:I}", "name", name, "about", about,
                                                "family", m.family, "params", (json_int_t)m.params));
        else
            printf("%-20s %10s  %-10s %s\n", name, count_text(m.params).s, m.family, about);
        model_free(&m);
    }
    return 0;
}

static int list_gpus(json_t *to)
{
    const struct gpu *g;

    for (int i = 0; (g = gpu_at(i)); i++)
        if (to)
            json_array_append_new(to, json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:i, s:f, s:s}", "name", g->name,
                "title", g->title, "memory_bytes", (json_int_t)g->memory, "hbm_bytes_per_s", g->hbm,
                "bf16_flops", g->bf16, "link_bytes_per_s", g->link, "sms", g->sms, "board_watts", power_watts(g->name, NULL), "source", g->source));
        else
            printf("%-14s %-30s %11s  %6.0f GB/s  bf16 %6.1f TFLOP/s  link %4.0f GB/s  %5.0f W\n", g->name, g->title,
                   size_text(g->memory).s, g->hbm / 1e9, g->bf16 / 1e12, g->link / 1e9, power_watts(g->name, NULL));
    return 0;
}

static int list_clusters(json_t *to)
{
    const char *name, *about;

    for (int i = 0; (name = cluster_builtin(i, &about)); i++)
        if (to)
            json_array_append_new(to, json_pack("{s:s, s:s}", "name", name, "about", about));
        else
            printf("%-16s %s\n", name, about);
    if (!to)
        printf("%-16s %s\n", "NxGxGPU", "N nodes of G GPUs of a type of `dpxplan list gpus`: 4x8xh100");
    return 0;
}

static int list_strategies(json_t *to)
{
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            if (!dialect_has((enum dialect)d, (enum strategy)s))
                continue;
            if (to)
                json_array_append_new(to, json_pack("{s:s, s:s}", "strategy", strategy_name((enum strategy)s),
                                                    "dialect", dialect_name((enum dialect)d)));
            else
                printf("%-8s %s\n", strategy_name((enum strategy)s), dialect_name((enum dialect)d));
        }
    return 0;
}

static json_t *cells_json(uint32_t cells)
{
    json_t *all = json_array();

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            if (cells & CELL(s, d))
                json_array_append_new(all, json_pack("{s:s, s:s}", "strategy", strategy_name((enum strategy)s),
                                                     "dialect", dialect_name((enum dialect)d)));
    return all;
}

/* A row where a person reads it: "B. Values: V. Default: D. In: C." */
struct key_text { char key[64], values[256], usual[96], cells[512]; };

static void key_text(const struct knob *k, struct key_text *t)
{
    knob_key_text(k, t->key, sizeof t->key);
    knob_range_text(k, t->values, sizeof t->values);
    knob_default_text(k, t->usual, sizeof t->usual);
    knob_cells_short(k->cells, t->cells, sizeof t->cells);
}

static int list_keys(json_t *to)
{
    const struct knob *k;
    struct key_text t;

    for (int i = 0; (k = knob_at(i)); i++) {
        key_text(k, &t);
        if (to)
            json_array_append_new(to, json_pack("{s:s, s:s, s:s, s:s, s:o}", "key", t.key, "about", k->about,
                                                "values", t.values, "default", t.usual, "cells", cells_json(k->cells)));
        else
            printf("%s: %s\n    values %s; default %s\n    %s\n", t.key, k->about, t.values, t.usual, t.cells);
    }
    return 0;
}

bool list_plan_key_entry(int i, const char **name, const char **text)
{
    static struct key_text t;
    static char line[1024];
    const struct knob *k = knob_at(i);

    if (!k)
        return false;
    key_text(k, &t);
    snprintf(line, sizeof line, "%s.  Values: %s.  Default: %s.  In %s.", k->about, t.values, t.usual, t.cells);
    *name = t.key;
    *text = line;
    return true;
}

/* A whole cluster file; what is left out takes the GPU's usual node. */
static const char example[] =
"{\n"
"  \"//\": \"a cluster file for dpxplan --cluster FILE; keys that begin with // are for people; all but gpu may be left out\",\n"
"  \"name\": \"mine\",\n"
"  \"nodes\": 4,\n"
"  \"gpus_per_node\": 8,\n"
"  \"// gpu\": \"a type of `dpxplan list gpus`, or an object: name, memory_bytes, hbm_gb_per_s, bf16_tflops, fp32_tflops, sms ...\",\n"
"  \"gpu\": \"h100\",\n"
"  \"// intra\": \"between GPUs of a node: gigabytes (1e9 bytes) a second of one GPU in one direction; alpha_us: microseconds a message\",\n"
"  \"intra\": { \"gb_per_s\": 450, \"alpha_us\": 3 },\n"
"  \"// inter\": \"between nodes: all nics of a node together in one direction, in gigabits (gbit_per_s) or gigabytes (gb_per_s) a second\",\n"
"  \"inter\": { \"gbit_per_s\": 3200, \"alpha_us\": 8, \"nics\": 8 },\n"
"  \"// memory_bytes\": \"of a GPU, as nvidia-smi shows it (here 81559 MiB); context_bytes: what no framework gets of it\",\n"
"  \"memory_bytes\": 85520809984,\n"
"  \"context_bytes\": 1219493888,\n"
"  \"// headroom\": \"share of the memory that is kept free\",\n"
"  \"headroom\": 0.05,\n"
"  \"// node\": \"for offloading: DRAM and disks that the GPUs of a node share; null: not known\",\n"
"  \"node\": { \"memory_bytes\": 2199023255552, \"dram_gb_per_s\": 614.4, \"sockets\": 2,\n"
"            \"disk_bytes\": 30720000000000, \"disk_read_gb_per_s\": 48, \"disk_write_gb_per_s\": 26 }\n"
"}\n";

int cmd_list(int argc, char **argv)
{
    static const struct { const char *name; int (*list)(json_t *to); } lists[] = {
        { "models", list_models }, { "clusters", list_clusters },
        { "gpus", list_gpus }, { "strategies", list_strategies }, { "parallel", list_parallel }, { "keys", list_keys },
    };
    static const char *const words[] = { "models", "clusters", "gpus", "strategies", "parallel", "keys", NULL };
    const char *what = NULL;
    bool json = false, show = false;
    const struct opt opts[] = {
        { "WHAT", "models, clusters, gpus, strategies, parallel (tensor, context, pipeline: which have them), or the keys of plan.json", .str = &what, .words = words,
          .positional = true, .required = true },
        { "example", "clusters: a commented cluster file with units, to be changed", .flag = &show },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan list", "What dpx knows by name.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (show && strcmp(what, "clusters")) {
        fail("list: --example goes with clusters");
        return EXIT_MISUSE;
    }
    if (show) {
        fputs(example, stdout);
        return EXIT_DONE;
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!strcmp(what, lists[i].name)) {
            json_t *array = json ? json_array() : NULL;
            if (lists[i].list(array) < 0)
                return EXIT_FAILED;
            return json ? dpxplan_print_json(json_pack("{s:o}", what, array), EXIT_DONE) : EXIT_DONE;
        }
    const char *near = opts_nearest_word(what, words);
    fail("list \"%s\": expected models, clusters, gpus, strategies, parallel or keys%s%s%s", what, near ? "; did you mean " : "",
         near ? near : "", near ? "?" : "");
    return EXIT_MISUSE;
}
