/* Cluster files changed by their structure: what the parser takes is priced, collective by collective,
 * and is where a plan runs: of which strategy its bytes say. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tree.h"

#include <math.h>
#include <stdio.h>

#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/price/coll_algo.h"

const char *const fuzz_words[] = {
    "\"gpu\": \"h100\"", "\"gpu\": \"a100-80gb\"", "\"gpu\": \"v100\"", "\"gpu\": \"t4\"", "\"gpu\": \"mi300x\"",
    "\"gpu\": {\"name\": \"x\", \"memory_bytes\": 80000000000, \"hbm_gb_per_s\": 2000, \"bf16_tflops\": 300}",
    "\"nodes\": 1", "\"nodes\": 3", "\"nodes\": 125", "\"gpus_per_node\": 1", "\"gpus_per_node\": 7", "\"world_size\": 32",
    "\"intra\": {\"gb_per_s\": 10}", "\"inter\": {\"gb_per_s\": 1}", "\"inter\": {\"gb_per_s\": 25, \"nics\": 1}",
    "\"inter\": {\"gb_per_s\": 400, \"alpha_us\": 20, \"nics\": 16}", "\"headroom\": 0", "\"headroom\": 0.9",
    "\"host\": true", "\"host\": false", "\"sms\": 1", "\"sm_arch\": 70", "\"fp16_tflops\": 0.001",
    "\"fp32_tflops\": 1e6", "\"link_gb_per_s\": 900", "\"pcie_gb_per_s\": 0.1", "\"context_bytes\": 0",
    "\"node\": {\"memory_bytes\": 1000000000000}", "\"node\": {\"dram_gb_per_s\": null}", "\"node\": {}",
    "\"disk_bytes\": 1", "\"disk_read_gb_per_s\": 48", "\"issue_us\": 16.8", "\"sockets\": 2", "\"reserved_bytes\": 1", "\"memory_bytes\": 1", "\"name\": \"cpu\"", NULL
};

static const char *const plans[] = {
    "{\"strategy\": \"ddp\", \"dialect\": \"torch\"}",
    "{\"strategy\": \"dp\", \"dialect\": \"paper\"}",
    "{\"strategy\": \"zero1\", \"dialect\": \"deepspeed\"}",
    "{\"strategy\": \"zero2\", \"dialect\": \"paper\"}",
    "{\"strategy\": \"zero3\", \"dialect\": \"deepspeed\"}",
    "{\"strategy\": \"fsdp\", \"dialect\": \"torch\"}",
    "{\"strategy\": \"fsdp\", \"dialect\": \"torch-fsdp1\", \"fsdp\": {\"sharding_strategy\": \"HYBRID_SHARD\"}}",
};

static json_t *plan_on(const json_t *cluster, const char *text)
{
    json_t *j = json_loads(text, 0, NULL), *model =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i}", "model_type", "gpt2", "n_embd", 64, "n_layer", 2, "n_head", 4, "vocab_size",
                  300, "n_positions", 64);

    must_hold(j && model);
    json_object_set_new(j, "dpx_plan", json_integer(1));
    json_object_set_new(j, "model", model);
    json_object_set_new(j, "cluster", json_deep_copy(cluster));
    json_object_set_new(j, "seq", json_integer(32));
    return j;
}

static void check_plan(const json_t *cluster, const char *text)
{
    json_t *j = plan_on(cluster, text);
    struct evaluation e;
    struct timing t;
    struct plan p;

    fuzz_said[0] = '\0';
    if (plan_from_json(j, "fuzz", &p) == 0) {
        if (evaluate(&p, &e) == 0) {
            must_hold(e.allocated_peak > 0 && e.m.rank < p.cluster.world_size);
            if (simulate_plan(&p, &e, &t, NULL) == 0) {
                must_hold(isfinite(t.line.step_s) && t.line.step_s >= 0);
                must_hold(isfinite(t.low_s) && isfinite(t.high_s) && t.low_s <= t.line.step_s && t.high_s >= t.line.step_s);
                must_hold(t.low_s > 0 || !(t.line.step_s > 0));
            } else
                must_hold(fuzz_said[0]);
            evaluation_free(&e);
        } else
            must_hold(fuzz_said[0]);
        plan_free(&p);
    } else
        must_hold(fuzz_said[0]);
    json_decref(j);
}

static void check_algorithms(const struct cluster *c)
{
    const struct coll_algo *a;
    struct coll_figures f;
    struct coll_net net;

    coll_net_of(c, c->world_size, c->gpus_per_node, &net);
    for (int i = 0; (a = coll_algo_at(i)); i++)
        for (double bytes = 0; bytes <= 1e12; bytes = bytes * 1e6 + 1)
            if (coll_algo_cost(a, &net, bytes, &f))
                must_hold(isfinite(f.time_s) && f.time_s >= 0 && f.sent >= 0 && isfinite(f.total));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *j = json_loadb((const char *)data, size, 0, NULL);
    struct cluster c;
    unsigned sum = 0;
    bool taken;

    fuzz_quiet();
    for (size_t i = 0; i < size; i++)
        sum += data[i];
    taken = j && json_is_object(j) && cluster_from_json(j, "fuzz", &c) == 0;
    if (taken) {
        check_algorithms(&c);
        check_plan(j, plans[sum % (sizeof plans / sizeof *plans)]);
    }
    json_decref(j);
    return fuzz_count(data, size, taken);
}
