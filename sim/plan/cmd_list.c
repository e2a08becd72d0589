/* cmd_list.c -- dpxplan list: what dpx knows by name. */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/size.h"
#include "model/plan/plan.h"
#include "sim/plan/commands.h"

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
            json_array_append_new(to, json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:i, s:s}", "name", g->name,
                "title", g->title, "memory_bytes", (json_int_t)g->memory, "hbm_bytes_per_s", g->hbm,
                "bf16_flops", g->bf16, "link_bytes_per_s", g->link, "sms", g->sms, "source", g->source));
        else
            printf("%-14s %-30s %11s  %6.0f GB/s  bf16 %6.1f TFLOP/s  link %4.0f GB/s\n", g->name, g->title,
                   size_text(g->memory).s, g->hbm / 1e9, g->bf16 / 1e12, g->link / 1e9);
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

int cmd_list(int argc, char **argv)
{
    static const struct { const char *name; int (*list)(json_t *to); } lists[] = {
        { "models", list_models }, { "clusters", list_clusters },
        { "gpus", list_gpus }, { "strategies", list_strategies },
    };
    const char *what = NULL;
    bool json = false;
    const struct opt opts[] = {
        { "WHAT", "models, clusters, gpus or strategies", .str = &what, .positional = true, .required = true },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan list", "What dpx knows by name.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!strcmp(what, lists[i].name)) {
            json_t *array = json ? json_array() : NULL;
            if (lists[i].list(array) < 0)
                return EXIT_FAILED;
            return json ? print_json(json_pack("{s:o}", what, array), EXIT_DONE) : EXIT_DONE;
        }
    fail("list \"%s\": expected models, clusters, gpus or strategies", what);
    return EXIT_MISUSE;
}
