/* cmd_list.c -- dpxplan list: what dpx knows by name. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/size.h"
#include "sim/plan/commands.h"
#include "sim/plan/list.h"

/* ---- a row where a person reads it ---- */

static const char *word(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }

static double number(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

static int64_t whole(const json_t *row, const char *key) { return json_integer_value(json_object_get(row, key)); }

static void print_model(const json_t *r)
{
    printf("%-20s %10s  %-10s %s\n", word(r, "name"), count_text(whole(r, "params")).s, word(r, "family"), word(r, "about"));
}

static void print_gpu(const json_t *r)
{
    printf("%-14s %-30s %11s  %6.0f GB/s  bf16 %6.1f TFLOP/s  link %4.0f GB/s  %5.0f W\n", word(r, "name"), word(r, "title"),
           size_text(whole(r, "memory_bytes")).s, number(r, "hbm_bytes_per_s") / 1e9, number(r, "bf16_flops") / 1e12,
           number(r, "link_bytes_per_s") / 1e9, number(r, "board_watts"));
}

static void print_cluster(const json_t *r) { printf("%-16s %s\n", word(r, "name"), word(r, "about")); }

static void print_strategy(const json_t *r) { printf("%-8s %s\n", word(r, "strategy"), word(r, "dialect")); }

static void print_parallel(const json_t *r)
{
    const json_t *cells = json_object_get(r, "cells");
    char text[256];

    list_cells_text(cells, text, sizeof text);
    printf("%-22s %-58s %s\n", word(r, "feature"), word(r, "keys"), json_array_size(cells) ? text : "not yet");
}

static void print_key(const json_t *r)
{
    char text[512];

    list_cells_text(json_object_get(r, "cells"), text, sizeof text);
    printf("%s: %s\n    values %s; default %s\n    %s\n", word(r, "key"), word(r, "about"), word(r, "values"), word(r, "default"), text);
}

static void print_option(const json_t *r)
{
    const json_t *words = json_object_get(r, "words"), *w;
    size_t i;

    printf("%s %s: %s", word(r, "command"), word(r, "key"), word(r, "about"));
    json_array_foreach(words, i, w)
        printf("%s%s", i ? ", " : " [", json_string_value(w));
    puts(words ? "]" : "");
}

static void print_refused(const json_t *r)
{
    printf("%s%s%s: %s\n", word(r, "key"), word(r, "value") ? "=" : "", word(r, "value") ? word(r, "value") : "", word(r, "why"));
}

static void print_rows(const char *what, const json_t *doc)
{
    static void (*const print[])(const json_t *row) = { print_model, print_cluster, print_gpu, print_strategy, print_parallel, print_key,
                                                        print_option, print_refused };
    const json_t *row;
    size_t i;
    int k = 0;

    while (strcmp(what, list_words[k]))
        k++;
    json_array_foreach(json_object_get(doc, what), i, row)
        print[k](row);
    if (!strcmp(what, "clusters"))
        printf("%-16s %s\n", "NxGxGPU", "N nodes of G GPUs of a type of `dpxplan list gpus`: 4x8xh100");
}

bool list_plan_key_entry(int i, const char **name, const char **text)
{
    static struct list_key t;
    static char line[1024];
    const struct knob *k = knob_at(i);

    if (!k)
        return false;
    list_key_text(k, &t);
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
"  \"context_bytes\": 1450180608,\n"
"  \"// headroom\": \"share of the memory that is kept free\",\n"
"  \"headroom\": 0.05,\n"
"  \"// node\": \"for offloading: DRAM and disks that the GPUs of a node share; null: not known; issue_us: microseconds that PyTorch takes to issue a kernel\",\n"
"  \"node\": { \"memory_bytes\": 2199023255552, \"dram_gb_per_s\": 614.4, \"sockets\": 2,\n"
"            \"disk_bytes\": 30720000000000, \"disk_read_gb_per_s\": 48, \"disk_write_gb_per_s\": 26,\n"
"            \"issue_us\": 12.8 }\n"
"}\n";

int cmd_list(int argc, char **argv)
{
    const char *what = NULL;
    bool json = false, show = false;
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxplan list gpus"),
        OPTS_EXAMPLE("dpxplan list clusters --example"),
        { "WHAT", "models, clusters, gpus, strategies, parallel (tensor, context, pipeline: which have them), the keys of plan.json, options (of commands, as libdpx has them), or refused: what frameworks have and plans do not", .str = &what, .words = list_words,
          .positional = true, .required = true },
        { "example", "clusters: a commented cluster file with units, to be changed", .flag = &show },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    json_t *doc;
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
    if (list_json(what, &doc) < 0)
        return EXIT_MISUSE;
    if (json)
        return dpxplan_print_json(doc, EXIT_DONE);
    print_rows(what, doc);
    json_decref(doc);
    return EXIT_DONE;
}
