/* fuzz_model.c -- any bytes as a config.json. */
#include "tests/fuzz/fuzz.h"

#include "base/dtype.h"
#include "model/arch/transformer.h"

static void check(const struct model *m)
{
    int64_t module_tensors = 0;

    must_hold(m->layers >= 1 && m->layers <= MODEL_MAX_LAYERS);
    must_hold(m->params > 0 && m->params <= SIZE_LIMIT);
    must_hold(model_numel(m, 0, m->ntensors) == m->params);
    must_hold(m->block0 + m->per_block * m->layers <= m->ntensors);
    for (int i = 0; i < m->ntensors; i++) {
        const struct tensor *t = &m->tensors[i];

        must_hold(t->numel == t->shape[0] * t->shape[1] * t->shape[2] && t->numel > 0);
        must_hold(t->module >= 0 && t->module < m->nmodules);
    }
    for (int i = 0; i < m->nmodules; i++)
        module_tensors += m->modules[i].ntensors;
    must_hold(module_tensors == m->ntensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *config, *again;
    struct model m, n;

    config = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (!config)
        return 0;
    fuzz_quiet();
    if (model_from_config(config, "fuzz", &m) < 0) {
        must_hold(fuzz_said[0]);
    } else {
        check(&m);
        again = model_to_config(&m);
        must_hold(again && model_from_config(again, "again", &n) == 0);
        must_hold(n.params == m.params && n.ntensors == m.ntensors);
        json_decref(again);
        model_free(&n);
        model_free(&m);
    }
    json_decref(config);
    return 0;
}
