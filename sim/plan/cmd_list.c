/* cmd_list.c -- dpxplan list: what dpx knows by name. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/columns.h"
#include "base/fail.h"
#include "base/opts.h"
#include "base/page.h"
#include "base/size.h"
#include "sim/plan/commands.h"
#include "sim/plan/list.h"

/* ---- a row where a person reads it ---- */

static const char *word(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }

static double number(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

static int64_t whole(const json_t *row, const char *key) { return json_integer_value(json_object_get(row, key)); }

/* ---- tables ---- */

enum { MOST = 7 };
struct table { const char *what; int n; struct column column[MOST]; void (*add)(struct columns *t, const json_t *row); };

static void add_model(struct columns *t, const json_t *r)
{
    columns_cell(t, "%s", word(r, "name"));
    columns_cell(t, "%s", count_text(whole(r, "params")).s);
    columns_cell(t, "%s", word(r, "family"));
    columns_cell(t, "%s", word(r, "about"));
}

static void add_cluster(struct columns *t, const json_t *r)
{
    columns_cell(t, "%s", word(r, "name"));
    columns_cell(t, "%s", word(r, "about"));
}

/* "-" of what a GPU has not: units for bf16, links of its own. */
static void add_rate(struct columns *t, double rate, const char *format)
{
    columns_cell(t, rate > 0 ? format : "-", rate);
}

static void add_gpu(struct columns *t, const json_t *r)
{
    columns_cell(t, "%s", word(r, "name"));
    columns_cell(t, "%s", word(r, "title"));
    columns_cell(t, "%s", size_text(whole(r, "memory_bytes")).s);
    columns_cell(t, "%.0f GB/s", number(r, "hbm_bytes_per_s") / 1e9);
    add_rate(t, number(r, "bf16_flops") / 1e12, "%.1f TFLOP/s");
    add_rate(t, number(r, "link_bytes_per_s") / 1e9, "%.0f GB/s");
    columns_cell(t, "%.0f W", number(r, "board_watts"));
}

static void add_strategy(struct columns *t, const json_t *r)
{
    columns_cell(t, "%s", word(r, "strategy"));
    columns_cell(t, "%s", word(r, "dialect"));
}

static void add_parallel(struct columns *t, const json_t *r)
{
    const json_t *cells = json_object_get(r, "cells");
    char text[256];

    list_cells_text(cells, text, sizeof text);
    columns_cell(t, "%s", word(r, "feature"));
    columns_cell(t, "%s", word(r, "keys"));
    columns_cell(t, "%s", json_array_size(cells) ? text : "not yet");
}

static const struct table tables[] = {
    { "models", 4, { { .title = "" }, { .title = "", .right = true }, { .title = "", .rank = 1 }, { .title = "" } }, add_model },
    { "clusters", 2, { { .title = "" }, { .title = "" } }, add_cluster },
    { "gpus", 7, { { .title = "name" }, { .title = "GPU", .rank = 1 }, { .title = "memory", .right = true }, { .title = "bandwidth", .right = true, .rank = 2 },
                   { .title = "bf16", .right = true }, { .title = "link", .right = true, .rank = 3 }, { .title = "board", .right = true, .rank = 4 } }, add_gpu },
    { "strategies", 2, { { .title = "" }, { .title = "" } }, add_strategy },
    { "parallel", 3, { { .title = "" }, { .title = "" }, { .title = "" } }, add_parallel },
};

static void print_table(const struct table *of, const json_t *rows, FILE *to)
{
    struct columns *t = columns_new(of->column, of->n);
    const json_t *row;
    size_t i;

    json_array_foreach(rows, i, row)
        of->add(t, row);
    if (!strcmp(of->what, "clusters")) {
        columns_cell(t, "NxGxGPU");
        columns_cell(t, "N nodes of G GPUs of a type of `dpxplan list gpus`: 4x8xh100");
    }
    columns_print(t, to, page_width(stdout));
}

/* ---- lines ---- */

static void print_key(const json_t *r, FILE *to)
{
    char text[512];

    list_cells_text(json_object_get(r, "cells"), text, sizeof text);
    fprintf(to, "%s: " PAGE_HANG "%s\n    values " PAGE_HANG "%s; default %s\n    " PAGE_HANG "%s\n", word(r, "key"), word(r, "about"), word(r, "values"),
            word(r, "default"), text);
}

static void print_option(const json_t *r, FILE *to)
{
    const json_t *words = json_object_get(r, "words"), *w;
    size_t i;

    fprintf(to, "%s %s: " PAGE_HANG "%s", word(r, "command"), word(r, "key"), word(r, "about"));
    json_array_foreach(words, i, w)
        fprintf(to, "%s%s", i ? ", " : " [", json_string_value(w));
    fputs(words ? "]\n" : "\n", to);
}

static void print_refused(const json_t *r, FILE *to)
{
    fprintf(to, "%s%s%s: %s\n", word(r, "key"), word(r, "value") ? "=" : "", word(r, "value") ? word(r, "value") : "", word(r, "why"));
}

static int print_rows(const char *what, const json_t *doc)
{
    const json_t *rows = json_object_get(doc, what), *row;
    FILE *to = page_open(stdout);
    bool is_table = false;
    size_t i;

    if (!to)
        return EXIT_FAILED;
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
        if (!strcmp(what, tables[k].what)) {
            print_table(&tables[k], rows, to);
            is_table = true;
        }
    if (!is_table)
        json_array_foreach((json_t *)rows, i, row)
            (!strcmp(what, "keys") ? print_key : !strcmp(what, "options") ? print_option : print_refused)(row, to);
    page_close(to);
    return EXIT_DONE;
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
    int status = print_rows(what, doc);
    json_decref(doc);
    return status;
}
