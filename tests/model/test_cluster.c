/* test_cluster.c -- clusters by name and from files: units, defaults, refusals. */
#include "tests/check.h"
#include "base/fail.h"
#include "base/notes.h"
#include "model/cluster/cluster.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MiB ((int64_t)1 << 20)

static char said[512];

/* Words of a command line that stand for GPUs, and those that stand for models and files. */
static void a_number_of_gpus_is_told_from_other_words(void **state)
{
    static const char *const gpus[] = { "8xh100", "2x8xh100", "8X4090", "h100", "a100", "dgx-h100", "4xdgx-h100", "localhost", "localhost:4", "8xh101", "h100x8",
        "8 x H100", "8xh100@atlas" };
    static const char *const others[] = { "gpt2", "llama-3.1-8b", "mixtral-8x7b", "Qwen/Qwen3-32B", "plan.json", "./8xh100", "8xh100.json", "-", "", "70b", "h101" };

    (void)state;
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (!cluster_is_spec(gpus[i]))
            fail_msg("'%s' is a number of GPUs", gpus[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (cluster_is_spec(others[i]))
            fail_msg("'%s' is no number of GPUs", others[i]);
}

static struct cluster load(const char *spec)
{
    struct cluster c;

    if (cluster_load(spec, &c) < 0)
        fail_msg("%s was refused", spec);
    return c;
}

/* Refused in one line that names `field`. */
static void says(int rc, const char *field)
{
    fail_capture(NULL, 0);
    assert_int_equal(rc, -1);
    if (!strstr(said, field) || strchr(said, '\n'))
        fail_msg("no '%s', or several lines, in: %s", field, said);
}

static void refused(const char *spec, const char *field)
{
    struct cluster c;

    fail_capture(said, sizeof said);
    says(cluster_load(spec, &c), field);
}

static int parse(const char *text, struct cluster *c)
{
    json_error_t e;
    json_t      *j = json_loads(text, 0, &e);
    int          rc;

    if (!j)
        fail_msg("the test's own JSON: %s", e.text);
    rc = cluster_from_json(j, "here", c);
    json_decref(j);
    return rc;
}

static void json_refused(const char *text, const char *field)
{
    struct cluster c;

    fail_capture(said, sizeof said);
    says(parse(text, &c), field);
}

static void nodes_times_gpus_times_type(void **state)
{
    struct cluster c = load("4x8xh100");

    (void)state;
    assert_int_equal(c.nodes, 4);
    assert_int_equal(c.gpus_per_node, 8);
    assert_int_equal(c.world_size, 32);
    assert_string_equal(c.name, "4x8xh100");
    assert_string_equal(c.gpu.name, "h100");
    assert_int_equal(c.memory, 81559 * MiB);
    assert_close(c.intra, 450e9, 0);
    assert_int_equal(c.nics, 8);
    assert_close(c.inter, 8 * 400e9 / 8, 0);        /* eight adapters of 400 Gb/s */
    assert_int_equal(load("8xH100").nodes, 1);
    assert_int_equal(load("8xh100").world_size, 8);
    assert_int_equal(load("h100").world_size, 1);
    assert_int_equal(load("2x8x3090").world_size, 16);
}

/* Half a node has half the adapters, one GPU still has one. */
static void adapters_follow_the_size_of_the_node(void **state)
{
    (void)state;
    assert_int_equal(load("2x4xh100").nics, 4);
    assert_int_equal(load("2x1xl4").nics, 1);
    assert_int_equal(load("2xdgx-2").nics, 8);
    assert_close(load("2x4xh100").inter, 200e9, 0);
}

static void names_and_aliases_in_any_case(void **state)
{
    (void)state;
    assert_string_equal(gpu_find("H100-SXM")->name, "h100");
    assert_string_equal(gpu_find("h100-80GB")->name, "h100");
    assert_string_equal(gpu_find("a100")->name, "a100-80gb");
    assert_string_equal(gpu_find("V100")->name, "v100-16gb");
    assert_null(gpu_find("h10"));
    assert_null(gpu_find(""));
    assert_string_equal(load("DGX-A100").gpu.name, "a100-80gb");
}

static void every_row_of_the_table_is_complete(void **state)
{
    int n = 0;

    (void)state;
    for (const struct gpu *g; (g = gpu_at(n)); n++) {
        assert_ptr_equal(gpu_find(g->name), g);
        assert_true(g->source[0] && g->fabric[0] && g->title[0]);
        assert_non_null(memchr(g->source, 0, sizeof g->source));
        assert_non_null(memchr(g->fabric, 0, sizeof g->fabric));
        assert_in_range(g->memory, (int64_t)10 << 30, (int64_t)288 << 30);
        assert_in_range(g->hbm / 1e9, 300, 8000);
        assert_true(g->fp32 > 8e12 && g->fp16 >= g->fp32 && g->sms > 0 && g->pcie > 0);
        assert_true(g->bf16 <= g->fp16 && (g->fp8 <= 0 || g->fp8 / g->fp16 > 1.9));
        assert_true(g->reserved < 1280 * MiB && g->context >= 256 * MiB);
        assert_true(g->nics > 0 && g->node_gpus > 0 && g->nic > 0);
    }
    assert_null(gpu_at(-1));
    assert_true(n >= 20);
}

/* What nvidia-smi shows is the memory, to the MiB, and what is not reserved of it is torch's total_memory, to a hundredth of a GiB.  Names count
 * in GiB or nearly so: a "270GB" that is read as 270e9 bytes is 7 % too small. */
static void memory_is_what_the_driver_and_pytorch_report(void **state)
{
    const struct gpu *g;
    int seen = 0;

    (void)state;
    for (int i = 0; (g = gpu_at(i)); i++) {
        const char *smi = strstr(g->source, "nvidia-smi "), *torch = strstr(g->source, "torch "), *size = strrchr(g->title, ' ');
        if (smi)
            assert_int_equal(g->memory, atoll(smi + strlen("nvidia-smi ")) * MiB);
        if (torch) {
            char *unit;
            double total = strtod(torch + strlen("torch "), &unit);
            assert_true(fabs((double)(g->memory - g->reserved) / (1 << 30) - total / (strncmp(unit, " MiB", 4) ? 1 : 1024)) <= .0065);
        }
        if (size && strstr(size, "GB"))
            assert_in_range((double)g->memory / (1 << 30) / atof(size) * 1000, 935, 1005);
        seen += smi && torch;
    }
    assert_true(seen >= 20);
}

/* Multiply-accumulates per SM and clock times SMs times clock: H100's 4096 dense bf16
 * FLOP at 1.83 GHz on 132 SMs, A100's 2048 at 1.41 GHz on 108. */
static void peaks_follow_from_sms_and_clock(void **state)
{
    (void)state;
    assert_close(gpu_find("h100")->bf16, 132 * 4096 * 1.83e9, 0.001);
    assert_close(gpu_find("a100")->bf16, 108 * 2048 * 1.41e9, 0.001);
    assert_close(gpu_find("v100")->fp16, 80 * 1024 * 1.53e9, 0.003);
    assert_close(gpu_find("rtx4090")->bf16, 128 * 512 * 2.52e9, 0.001);
}

static void available_is_memory_less_context_less_headroom(void **state)
{
    struct cluster c = load("h100");

    (void)state;
    assert_int_equal(c.context, (551 + 832) * MiB);
    assert_int_equal(cluster_available(&c),
                     81559 * MiB - 1383 * MiB - (int64_t)(0.05 * (double)(81559 * MiB)));
    c.memory = c.context = 100;
    assert_int_equal(cluster_available(&c), 0);
}

static void builtins_load_and_multiply(void **state)
{
    const char *name, *about;

    (void)state;
    for (int i = 0; (name = cluster_builtin(i, &about)); i++) {
        struct cluster c = load(name);
        assert_int_equal(c.nodes, 1);
        assert_true(about[0] && c.inter > 0);
    }
    assert_close(load("p4d").inter, 400e9 / 8, 0);      /* 4 x 100 Gb/s */
    assert_close(load("p5").inter, 3200e9 / 8, 0);
    assert_int_equal(load("4xdgx-h100").world_size, 32);
    assert_int_equal(load("p4d").memory, 40960 * MiB);
}

static void localhost_shares_what_is_available(void **state)
{
    struct cluster one = load("localhost"), four = load("localhost:4");

    (void)state;
    assert_true(one.is_host && four.is_host);
    assert_int_equal(one.world_size, 1);
    assert_int_equal(four.world_size, 4);
    assert_int_equal(four.nodes, 1);
    /* Two readings of a live system: not the same, but near. */
    assert_close((double)four.memory * 4, (double)one.memory, 0.2);
    assert_string_equal(four.gpu.name, "cpu");
}

static void several_hosts_have_a_network(void **state)
{
    struct cluster c;

    (void)state;
    assert_int_equal(parse("{\"host\": true, \"nodes\": 2, \"gpus_per_node\": 3, \"gpu\": {\"name\": \"cpu\","
                           " \"memory_bytes\": 1000000}, \"intra\": {\"gb_per_s\": 4}, \"inter\": {\"gb_per_s\": 0.125}}", &c), 0);
    assert_true(c.is_host);
    assert_int_equal(c.nodes, 2);
    assert_int_equal(c.world_size, 6);
    assert_close(c.inter, 125e6, 0);

    /* Ranks that were meant for one machine, on two. */
    struct cluster four = load("localhost:4");
    int64_t memory = four.memory;
    cluster_over_machines(&four, 2);
    assert_int_equal(four.nodes, 2);
    assert_int_equal(four.gpus_per_node, 2);
    assert_int_equal(four.memory, 2 * memory);
    assert_true(four.inter > 0);
    /* And the other way: the links are assumed, the memory is stated. */
    assert_int_equal(parse("{\"host\": true, \"nodes\": 2, \"gpu\": {\"name\": \"cpu\", \"memory_bytes\": 1000000},"
                           " \"inter\": {\"gb_per_s\": 0.125}}", &c), 0);
    cluster_over_machines(&c, 1);
    assert_int_equal(c.gpus_per_node, 2);
    assert_int_equal(c.memory, 1000000);
    assert_true(c.intra > 0);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    refused("", "empty");
    refused("h10", "h100");
    refused("8xh10o", "h100");
    refused("4x8xfoo", "no such GPU");
    refused("0xh100", "GPUs per node");
    refused("0x8xh100", "nodes");
    refused("4x0xh100", "GPUs per node");
    refused("4000000x8xh100", "world size");
    refused("16384xh100", "GPUs per node");
    refused("99999999999999999999x8xh100", "nodes");
    refused("10000000xdgx-h100", "world size");
    refused("2x4xdgx-h100", "no such GPU");
    refused("-1xh100", "no such GPU");
    refused("localhost:", "ranks");
    refused("localhost:0", "ranks");
    refused("localhost:-4", "ranks");
    refused("localhost:4x", "ranks");
    refused("localhost:99999", "ranks");
    refused("bad\nname", "bad?name");
    refused("no/such/file.json", "no/such/file.json");
}

/* 64xh100 would be one NVLink domain of 64 GPUs, whatever the network. */
static void a_node_has_no_more_gpus_than_its_type(void **state)
{
    (void)state;
    refused("64xh100", "a node of h100 has 8: write 8x8xh100");
    refused("2x16xh200", "write 4x8xh200");
    refused("12xh100", "a node of h100 has 8 (a larger node: a cluster file");
    refused("16xv100-32gb", "or dgx-2 for 16 in one");
    refused("16xa100-40gb", "or a2-megagpu-16g for 16 in one");
    refused("12xrtx4090", "a node of rtx4090 has 10");
    refused("73xgb200", "a node of gb200 has 72");
    const struct gpu *g;
    for (int i = 0; (g = gpu_at(i)); i++) {
        char spec[64];
        snprintf(spec, sizeof spec, "%dx%s", cluster_most(g), g->name);
        assert_int_equal(load(spec).gpus_per_node, cluster_most(g));
        snprintf(spec, sizeof spec, "%dx%s", cluster_most(g) + 1, g->name);
        refused(spec, "GPUs in a node");
    }
    assert_int_equal(load("dgx-2").world_size, 16);
    assert_int_equal(load("2xgb300-nvl72").world_size, 144);
}

/* A file may describe such a node, with its link. */
static void a_file_may_describe_a_larger_node(void **state)
{
    struct cluster c;

    (void)state;
    json_refused("{\"gpu\": \"h100\", \"gpus_per_node\": 64}", "a node of h100 has 8");
    assert_int_equal(parse("{\"gpu\": \"h100\", \"gpus_per_node\": 64, \"intra\": {\"gb_per_s\": 450}}", &c), 0);
    assert_int_equal(c.gpus_per_node, 64);
    assert_int_equal(parse("{\"gpu\": {\"name\": \"mine\", \"memory_bytes\": 80000000000, \"hbm_gb_per_s\": 2000, \"bf16_tflops\": 400,"
                           " \"link_gb_per_s\": 200}, \"gpus_per_node\": 64}", &c), 0);
}

/* Where no reference node says how much host memory there is, twice that of the GPUs is assumed, and said. */
static void host_memory_that_is_not_known_is_assumed(void **state)
{
    struct cluster c = load("2x2xrtx4090");
    int64_t bytes;

    (void)state;
    json_t *notes = json_array(), *before = notes_divert(notes);
    assert_int_equal(cluster_assumed_memory(&c), 2 * 2 * 24564 * MiB);
    c.headroom = 0;
    assert_int_equal(cluster_host_memory(&c, &bytes), 0);
    assert_int_equal(bytes, 2 * 2 * 24564 * MiB);
    cluster_say_assumed(&c);
    assert_non_null(strstr(json_string_value(json_array_get(notes, 0)), "rtx4090 is not known: 95.95 GiB assumed"));
    c.node.memory = 1000;
    assert_int_equal(cluster_assumed_memory(&c), 0);
    cluster_say_assumed(&c);
    assert_int_equal(json_array_size(notes), 1);
    c = load("8xh100");
    assert_int_equal(cluster_assumed_memory(&c), 0);
    notes_divert(before);
    json_decref(notes);
}

static void other_spellings_name_the_right_one(void **state)
{
    static const char *const of[][2] = {
        { "8 x H100", "write 8xh100" }, { "8*h100", "write 8xh100" }, { "8 h100", "write 8xh100" }, { "h100x8", "write 8xh100" },
        { "h100*8", "write 8xh100" }, { "8\xc3\x97h100", "write 8xh100" }, { "4 x 8 x h100", "write 4x8xh100" },
        { "4x8 A100 80GB", "write 4x8xa100-80gb" }, { "64 x h100", "write 8x8xh100" }, { "rtx4090x2", "write 2xrtx4090" },
        { "2 dgx-h100", "write 2xdgx-h100" }, { "8 4090", "write 8x4090" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        refused(of[i][0], of[i][1]);
    refused("h100x", "no such GPU");
    refused("8 x nothing", "no such GPU");
    refused("2x4 dgx-h100", "no such GPU");
}

static void a_file_states_links(void **state)
{
    struct cluster c;

    (void)state;
    assert_int_equal(parse("{\"nodes\": 2, \"gpus_per_node\": 4, \"gpu\": \"A100-40GB\","
                           " \"intra\": {\"gb_per_s\": 250.5, \"alpha_us\": 3},"
                           " \"inter\": {\"gb_per_s\": 25, \"alpha_us\": 8, \"nics\": 2},"
                           " \"headroom\": 0.1, \"context_bytes\": 1000}", &c), 0);
    assert_int_equal(c.world_size, 8);
    assert_close(c.intra, 250.5e9, 0);
    assert_close(c.inter, 25e9, 0);
    assert_close(c.alpha_intra, 3e-6, 1e-15);
    assert_close(c.alpha_inter, 8e-6, 1e-15);
    assert_int_equal(c.nics, 2);
    assert_int_equal(c.context, 1000);
    assert_close(c.headroom, 0.1, 0);
    assert_int_equal(c.memory, 40960 * MiB);
}

static void an_unknown_gpu_is_described(void **state)
{
    struct cluster c;

    (void)state;
    assert_int_equal(parse("{\"gpus_per_node\": 2, \"gpu\": {\"name\": \"x1\","
                           " \"memory_bytes\": 1000000, \"bf16_tflops\": 10, \"hbm_gb_per_s\": 900,"
                           " \"link_gb_per_s\": 5}}", &c), 0);
    assert_close(c.gpu.bf16, 10e12, 0);
    assert_close(c.intra, 5e9, 0);
    assert_int_equal(c.memory, 1000000);
    json_refused("{\"gpu\": {\"name\": \"x1\"}}", "memory_bytes");
    json_refused("{\"gpu\": {\"memory_bytes\": 5}}", "name");
    json_refused("{\"gpus_per_node\": 2, \"gpu\": {\"name\": \"x\", \"memory_bytes\": 5, \"hbm_gb_per_s\": 1,"
                 " \"fp32_tflops\": 1}}", "intra");
    json_refused("{\"nodes\": 2, \"gpu\": {\"name\": \"x\", \"memory_bytes\": 5, \"hbm_gb_per_s\": 1,"
                 " \"fp32_tflops\": 1}}", "inter");
    /* Without rates it would be timed as a host's core. */
    json_refused("{\"gpu\": {\"name\": \"x\", \"memory_bytes\": 5, \"fp32_tflops\": 1}}", "hbm_gb_per_s");
    json_refused("{\"gpu\": {\"name\": \"x\", \"memory_bytes\": 5, \"hbm_gb_per_s\": 1}}", "fp32_tflops");
    json_refused("{\"gpu\": {\"name\": \"x\", \"memory_bytes\": 5, \"hbm_gb_per_s\": 0}}",
                 "hbm_gb_per_s");
    json_refused("{\"gpu\": {\"name\": \"x\", \"memory_bytes\": 5, \"colour\": 0}}", "colour");
}

static void bad_fields_are_refused_by_name(void **state)
{
    (void)state;
    json_refused("[]", "object");
    json_refused("{}", "gpu");
    json_refused("{\"gpu\": 5}", "gpu");
    json_refused("{\"gpu\": \"h10\"}", "h100");
    json_refused("{\"gpu\": \"h100\", \"gpuz\": 1}", "gpuz");
    json_refused("{\"gpu\": \"h100\", \"nodes\": 0}", "nodes");
    json_refused("{\"gpu\": \"h100\", \"nodes\": -1}", "nodes");
    json_refused("{\"gpu\": \"h100\", \"nodes\": 2.0}", "nodes");
    json_refused("{\"gpu\": \"h100\", \"nodes\": \"2\"}", "nodes");
    json_refused("{\"gpu\": \"h100\", \"nodes\": 5000000, \"gpus_per_node\": 8}", "gpus_per_node");
    json_refused("{\"gpu\": \"h100\", \"gpus_per_node\": 1025}", "gpus_per_node");
    json_refused("{\"gpu\": \"h100\", \"nodes\": 2, \"world_size\": 3}", "world_size");
    json_refused("{\"gpu\": \"h100\", \"intra\": {\"gb_per_s\": 0}}", "intra: \"gb_per_s\"");
    json_refused("{\"gpu\": \"h100\", \"intra\": {\"gb_per_s\": -1}}", "gb_per_s");
    json_refused("{\"gpu\": \"h100\", \"intra\": {\"gb_per_s\": 1, \"alpha_us\": 0}}", "alpha_us");
    json_refused("{\"gpu\": \"h100\", \"intra\": {\"gb_per_s\": 5e-324}}", "at least 1e-06");
    json_refused("{\"gpu\": \"h100\", \"inter\": {\"gb_per_s\": 1e300}}", "inter: \"gb_per_s\"");
    json_refused("{\"gpu\": \"h100\", \"inter\": {\"alpha_us\": -1}}", "alpha_us");
    json_refused("{\"gpu\": \"h100\", \"inter\": {\"nics\": 1e9}}", "nics");
    json_refused("{\"gpu\": \"h100\", \"intra\": {\"nics\": 8}}", "intra: unknown key \"nics\"");
    json_refused("{\"gpu\": \"h100\", \"inter\": 50}", "inter");
    json_refused("{\"gpu\": \"h100\", \"memory_bytes\": 0}", "memory_bytes");
    json_refused("{\"gpu\": \"h100\", \"memory_bytes\": 9223372036854775807}", "memory_bytes");
    json_refused("{\"gpu\": \"h100\", \"memory_bytes\": 5}", "context_bytes");
    json_refused("{\"gpu\": \"h100\", \"headroom\": 1}", "headroom");
    json_refused("{\"gpu\": \"h100\", \"headroom\": \"5%\"}", "headroom");
    json_refused("{\"gpu\": \"h100\", \"power_limit_w\": 701}", "between 200 and 700");
    json_refused("{\"gpu\": \"h100\", \"power_limit_w\": 150}", "power_limit_w");
    json_refused("{\"gpu\": \"gh200\", \"power_limit_w\": 700}", "board power");
    json_refused("{\"gpu\": \"h100\", \"name\": \"a\\nb\"}", "name");
    json_refused("{\"gpu\": \"h100\", \"host\": 1}", "host");
}

/* A NaN cannot be written in JSON, but a caller may build one. */
static void a_nan_is_refused(void **state)
{
    json_t *j = json_pack("{s:s, s:{s:f}}", "gpu", "h100", "intra", "gb_per_s", 1.0);
    struct cluster c;

    (void)state;
    if (json_real_set(json_object_get(json_object_get(j, "intra"), "gb_per_s"), (double)NAN) == 0) {
        fail_capture(said, sizeof said);
        says(cluster_from_json(j, "here", &c), "gb_per_s");
    }
    json_decref(j);
}

static void same(const struct cluster *a, const struct cluster *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->world_size, b->world_size);
    assert_int_equal(a->memory, b->memory);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->nics, b->nics);
    assert_int_equal(a->is_host, b->is_host);
    assert_close(a->intra, b->intra, 0);
    assert_close(a->inter, b->inter, 0);
    assert_close(a->headroom, b->headroom, 0);
    assert_close(a->power_limit_w, b->power_limit_w, 0);
    assert_string_equal(a->gpu.name, b->gpu.name);
    assert_string_equal(a->gpu.source, b->gpu.source);
    assert_int_equal(a->gpu.memory, b->gpu.memory);
    assert_int_equal(a->gpu.reserved, b->gpu.reserved);
    assert_close(a->gpu.bf16, b->gpu.bf16, 1e-15);
    assert_close(a->gpu.hbm, b->gpu.hbm, 1e-15);
    assert_true(a->node.memory == b->node.memory && a->node.disk == b->node.disk && a->node.sockets == b->node.sockets);
    assert_true(a->node.cores == b->node.cores && a->node.links == b->node.links);
    assert_close(a->node.dram, b->node.dram, 1e-15);
    assert_close(a->node.disk_read, b->node.disk_read, 1e-15);
    assert_close(a->node.disk_write, b->node.disk_write, 1e-15);
}

static void round_trip(const struct cluster *c)
{
    struct cluster back;
    json_t        *j = cluster_to_json(c);

    assert_int_equal(cluster_from_json(j, "back", &back), 0);
    same(c, &back);
    json_decref(j);
}

static void what_is_written_reads_back(void **state)
{
    struct cluster c;
    const char    *name;

    (void)state;
    for (int i = 0; (name = cluster_builtin(i, NULL)); i++) {
        c = load(name);
        round_trip(&c);
    }
    for (int i = 0; gpu_at(i); i++) {
        cluster_of_gpu(&c, gpu_at(i), 3, 8);
        snprintf(c.name, sizeof c.name, "all of it");
        round_trip(&c);
        /* A type that the table lacks is written out whole. */
        snprintf(c.gpu.name, sizeof c.gpu.name, "other");
        round_trip(&c);
    }
    c = load("localhost:3");
    round_trip(&c);
}

/* DGX H100: 32 x 64 GiB, 2 x 8 channels of 8 bytes at 4.8 GT/s, 8 x 3.84 TB. */
static void nodes_have_memory_and_disks(void **state)
{
    struct cluster c = load("4x8xh100");
    int64_t bytes;

    (void)state;
    assert_int_equal(c.node.memory, (int64_t)32 * 64 << 30);
    assert_close(c.node.dram, 614.4e9, 1e-12);
    assert_int_equal(c.node.disk, 30720000000000);
    assert_int_equal(c.node.sockets, 2);
    assert_true(c.node.disk_read <= 0 && c.node.disk_write <= 0);        /* in no datasheet */
    c.headroom = 0;
    assert_int_equal(cluster_host_memory(&c, &bytes), 0);
    assert_int_equal(bytes, (int64_t)32 * 64 << 30);
    c.headroom = 0.25;
    assert_int_equal(cluster_host_memory(&c, &bytes), 0);
    assert_int_equal(bytes, (int64_t)24 * 64 << 30);
    assert_true(c.node.cores == 2 * 56 && c.node.links == 8);
    c = load("8xa100");                                 /* two GPUs to a PCIe switch */
    assert_true(c.node.cores == 2 * 64 && c.node.links == 4);
    assert_int_equal(load("1xa100").node.links, 1);
    assert_int_equal(load("dgx-2").node.links, 4);
    c = load("4xh100");                                 /* half a node */
    assert_true(c.node.cores == 56 && c.node.links == 4);
    assert_int_equal(c.node.memory, (int64_t)16 * 64 << 30);
    assert_close(c.node.dram, 307.2e9, 1e-12);
    assert_int_equal(c.node.sockets, 1);
    assert_int_equal(load("p4d").node.memory, (int64_t)1152 << 30);
    assert_close(load("p4d").node.disk_read, 16e9, 0);
    assert_int_equal(load("dgx-2").node.memory, (int64_t)1536 << 30);
    assert_int_equal(load("dgx-1").node.memory, (int64_t)512 << 30);
    assert_true(load("p5").node.dram <= 0);
    for (int i = 0; gpu_at(i); i++) {
        assert_true(gpu_at(i)->node.memory == 0 || gpu_at(i)->node.memory >= gpu_at(i)->node_gpus * ((int64_t)32 << 30));
        assert_true(gpu_at(i)->node.dram < 3e12 && gpu_at(i)->node.disk < (int64_t)100 << 40);
    }
}

static void ranks_on_cores_have_the_nodes_memory(void **state)
{
    struct cluster c = load("localhost:4");
    int64_t bytes;

    (void)state;
    c.headroom = 0;
    assert_int_equal(cluster_host_memory(&c, &bytes), 0);
    assert_int_equal(bytes, 4 * c.memory);
    assert_int_equal(cluster_disk(&c, &bytes), 0);      /* what is free where files would be */
    assert_true(bytes > 0);
    c.node.disk = 1000;
    assert_int_equal(cluster_disk(&c, &bytes), 0);
    assert_int_equal(bytes, 1000);
    c = load("8xl4");                                   /* no reference node */
    says((fail_capture(said, sizeof said), cluster_disk(&c, &bytes)), "\"disk_bytes\"");
}

static void a_file_states_its_nodes(void **state)
{
    struct cluster c;

    (void)state;
    assert_int_equal(parse("{\"gpu\": \"h100\", \"gpus_per_node\": 8, \"node\": {\"memory_bytes\": 1000, \"disk_read_gb_per_s\": 48,"
                           " \"dram_gb_per_s\": null, \"cores\": 96, \"gpu_links\": null, \"issue_us\": 16.8}}", &c), 0);
    assert_close(c.node.issue, 16.8e-6, 1e-12);
    assert_true(c.node.cores == 96 && c.node.links == 0 && c.node.sockets == 2);
    assert_int_equal(c.node.memory, 1000);
    assert_close(c.node.disk_read, 48e9, 1e-15);
    assert_true(c.node.dram <= 0);                      /* null: not known */
    assert_int_equal(c.node.disk, 30720000000000);      /* left out: the usual node's */
    round_trip(&c);
    json_refused("{\"gpu\": \"h100\", \"node\": {\"ram\": 5}}", "node: unknown key \"ram\"");
    json_refused("{\"gpu\": \"h100\", \"node\": 5}", "node: must be an object");
    json_refused("{\"gpu\": \"h100\", \"node\": {\"memory_bytes\": 0}}", "\"memory_bytes\"");
    json_refused("{\"gpu\": \"h100\", \"node\": {\"cores\": 0}}", "\"cores\"");
    json_refused("{\"gpu\": \"h100\", \"node\": {\"disk_write_gb_per_s\": -1}}", "\"disk_write_gb_per_s\"");
    json_refused("{\"gpu\": \"h100\", \"node\": {\"issue_us\": 0}}", "\"issue_us\"");
    json_refused("{\"gpu\": \"h100\", \"node\": {\"issue_us\": 2000}}", "at most 1000");
}

/* What the usual node has need not be written: documents are what they were. */
static void the_usual_node_is_not_written(void **state)
{
    static const struct { const char *spec; bool written; } want[] = { { "8xh100", false }, { "3x4xa100", false },
                                                                       { "8xl4", false }, { "p5", true }, { "dgx-h200", false } };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct cluster c = load(want[i].spec);
        json_t *j = cluster_to_json(&c);
        assert_int_equal(json_object_get(j, "node") != NULL, want[i].written);
        json_decref(j);
    }
}

static void a_file_is_read_and_its_errors_have_lines(void **state)
{
    char  path[] = "/tmp/dpx-cluster-XXXXXX";
    int   fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    struct cluster c;

    (void)state;
    fputs("{\"gpu\": \"h200\",\n \"nodes\": 2}", f);
    fclose(f);
    c = load(path);
    assert_int_equal(c.world_size, 2);
    assert_string_equal(c.name, strrchr(path, '/') + 1);
    f = fopen(path, "w");
    fputs("{\"gpu\": \"h200\",\n \"nodes\": }", f);
    fclose(f);
    refused(path, ":2:");
    f = fopen(path, "w");
    fputs("\"h100\"", f);
    fclose(f);
    refused(path, "");
    unlink(path);
}

static void every_gpu_of_the_table_has_a_board_power_with_its_source(void **state)
{
    (void)state;
    const char *source = NULL;
    for (int i = 0; gpu_at(i); i++) {
        assert_true(power_watts(gpu_at(i)->name, &source) > 0);
        assert_non_null(source);
    }
    assert_true(power_watts("cpu", NULL) <= 0);
    assert_close(power_gpu_watts("gb200"), 1200, 0);        /* its share of a superchip is 1350 with half a Grace */
    assert_close(power_gpu_watts("h100"), 700, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gpu_of_the_table_has_a_board_power_with_its_source),
        cmocka_unit_test(nodes_times_gpus_times_type),
        cmocka_unit_test(adapters_follow_the_size_of_the_node),
        cmocka_unit_test(names_and_aliases_in_any_case),
        cmocka_unit_test(every_row_of_the_table_is_complete),
        cmocka_unit_test(memory_is_what_the_driver_and_pytorch_report),
        cmocka_unit_test(peaks_follow_from_sms_and_clock),
        cmocka_unit_test(available_is_memory_less_context_less_headroom),
        cmocka_unit_test(builtins_load_and_multiply),
        cmocka_unit_test(localhost_shares_what_is_available),
        cmocka_unit_test(several_hosts_have_a_network),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
        cmocka_unit_test(a_node_has_no_more_gpus_than_its_type), cmocka_unit_test(a_file_may_describe_a_larger_node),
        cmocka_unit_test(host_memory_that_is_not_known_is_assumed), cmocka_unit_test(other_spellings_name_the_right_one), cmocka_unit_test(a_file_states_links),
        cmocka_unit_test(an_unknown_gpu_is_described), cmocka_unit_test(a_number_of_gpus_is_told_from_other_words),
        cmocka_unit_test(bad_fields_are_refused_by_name),
        cmocka_unit_test(a_nan_is_refused),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(nodes_have_memory_and_disks),
        cmocka_unit_test(ranks_on_cores_have_the_nodes_memory),
        cmocka_unit_test(a_file_states_its_nodes),
        cmocka_unit_test(the_usual_node_is_not_written),
        cmocka_unit_test(a_file_is_read_and_its_errors_have_lines),
    };
    return cmocka_run_group_tests_name("model/cluster", tests, NULL, NULL);
}
