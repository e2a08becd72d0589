/* Recorded models, changed by their structure: what the reader takes is lowered and counted under DDP, FSDP1, FSDP2 and DeepSpeed's
 * stages 2 and 3. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tree.h"

#include <string.h>

#include "model/memory/evaluate.h"

const char *const fuzz_words[] = {
    "\"dpx_model\": 2", "\"size\": {\"only\": 224}", "\"size\": {\"least\": 8, \"step\": 8, \"most\": 64}", "\"precision\": \"bf16\"", "\"precision\": \"autocast\"",
    "\"recompute\": \"full\"", "\"class\": \"attention\"", "\"class\": \"conv\"", "\"class\": \"custom\"", "\"causal\": true", "\"head_dim\": 64",
    "\"flops\": \"b^8*s^8\"", "\"bytes\": \"1152921504606846976*b\"", "\"bytes\": \"s/3\"", "\"bytes\": \"-b\"", "\"before\": 1", "\"after\": 1",
    "\"product\": [1, \"b*s\", 0, 4]", "\"product\": [\"b\", \"s^2\", 4096, 4096]", "\"does\": []", "\"does\": [[\"+\", 7, \"b*s\"], [\"-\", 7]]",
    "\"does\": [[\"+\", 7, 4, \"gradient\"]]", "\"does\": [[\"=\", \".weight\", null]]", "\"does\": [[\"-forward\", \"4096*b*s\"]]", "\"buffers\": [[\"x\", [4, 4], \"int64\"]]",
    "\"stage3\": true", "\"views\": [\"layer.weight\"]", "\"hooks\": {\"forward\": [[0, \"fetch\", \".\"], [1, \"release\", \".\"]], \"backward\": []}",
    "[0, \"fetch\", \"\"]", "[1, \"fetch back\", \".\"]", "[1, \"release back\", \".\"]", "[1, \"gradient\", \".weight\"]",
    "\"assumed\": [\"all of b*s in layer\"]", "\"assumed\": [\"\"]", "\"batch\": 3", "\"batch\": 16777216", "\"shared\": [[\"head.weight\", \"layer.weight\"]]",
    "\"loss\": [1, 1]", "\"loss\": [0, 2]", "\"recompute\": \"op\"", "\"unused\": [\"layer.weight\"]", "\"tensors\": [[\"layer.weight\", []]]", "\"tensors\": [[\"layer.weight\", [7, 3, 3, 3], \"frozen\"]]", NULL };

static void check(const struct model *m, const char *strategy, const char *dialect)
{
    json_t *config = model_to_config(m);
    json_t *plan = json_pack("{s:i,s:o,s:s,s:s,s:s,s:i,s:i,s:s}", "dpx_plan", 1, "model", config, "cluster", "8xh100", "strategy", strategy, "dialect", dialect,
                             "seq", 64, "micro_batch", 3, "precision", "fp32");
    struct plan p;
    struct evaluation e;
    char why[256];

    fuzz_said[0] = '\0';
    if (plan_from_json(plan, "fuzz", &p) < 0) {
        must_hold(fuzz_said[0]);
    } else {
        fuzz_said[0] = '\0';
        if (evaluate(&p, &e) < 0) {
            must_hold(fuzz_said[0] && !strstr(fuzz_said, "internal error"));
        } else {
            must_hold(schedules_check(&e.schedules, why, sizeof why));
            must_hold(e.allocated_peak > 0);
            evaluation_free(&e);
        }
        plan_free(&p);
    }
    json_decref(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *j = json_loadb((const char *)data, size, 0, NULL);
    struct model m;
    bool taken;

    fuzz_quiet();
    taken = json_object_get(j, "dpx_model") && model_from_config(j, "fuzz", &m) == 0;
    if (taken) {
        check(&m, "ddp", "torch");
        check(&m, "fsdp", "torch");
        check(&m, "fsdp", "torch-fsdp1");
        check(&m, "zero2", "deepspeed");
        check(&m, "zero3", "deepspeed");
        model_free(&m);
    }
    json_decref(j);
    return fuzz_count(data, size, taken);
}
