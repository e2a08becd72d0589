/* fuzz_accelerate.c -- any bytes as an accelerate config. */
#include "tests/fuzz/fuzz.h"

#include "base/yaml.h"
#include "model/exchange/accelerate.h"

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

/* What is exported is an accelerate config that reads back, as the same
 * strategy in the same dialect. */
static void check(const struct plan *p)
{
    struct plan again = plan;
    json_t *config = accelerate_export(p);

    if (!config) {
        must_hold(fuzz_said[0]);
        return;
    }
    again.accumulation = p->accumulation;
    must_hold(accelerate_read(config, "again", &again, NULL) == 0);
    must_hold(again.strategy == p->strategy && again.dialect == p->dialect);
    must_hold(again.precision == p->precision && again.shard_group == p->shard_group);
    json_decref(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan p;
    json_t *config;

    fuzz_quiet();
    set_up();
    config = yaml_read((const char *)data, size, "fuzz");
    if (!config)
        return 0;
    p = plan;                   /* shares the model, which neither frees */
    if (accelerate_read(config, "fuzz", &p, NULL) < 0) {
        must_hold(fuzz_said[0]);
    } else {
        must_hold(plan_check(&p, "fuzz") == 0);
        check(&p);
    }
    json_decref(config);
    return 0;
}
