/* fuzz_dsconfig.c -- any bytes as a DeepSpeed config. */
#include "tests/fuzz/fuzz.h"

#include "model/exchange/ds_config.h"

static struct plan plan;        /* model, cluster and what a command line says */

static void set_up(void)
{
    if (plan.seq)
        return;
    must_hold(model_load("gpt2", &plan.model) == 0);
    must_hold(cluster_load("2x4xh100", &plan.cluster) == 0);
    plan.seq = 1024;
    plan.micro_batch = 2;
    plan.accumulation = 1;
}

/* What is exported reads back as the plan that wrote it. */
static void check(const struct plan *p)
{
    struct plan again = plan;
    json_t *config = ds_config_export(p), *once, *twice;

    if (!config) {
        must_hold(fuzz_said[0]);
        return;
    }
    must_hold(ds_config_read(config, "again", &again, NULL) == 0);
    once = plan_to_json(p);
    twice = plan_to_json(&again);
    must_hold(json_equal(once, twice));
    json_decref(once);
    json_decref(twice);
    json_decref(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *config = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    struct plan p;

    if (!config)
        return 0;
    fuzz_quiet();
    set_up();
    p = plan;                   /* shares the model, which neither frees */
    if (ds_config_read(config, "fuzz", &p, NULL) < 0) {
        must_hold(fuzz_said[0]);
    } else {
        must_hold(plan_check(&p, "fuzz") == 0);
        check(&p);
    }
    json_decref(config);
    return 0;
}
