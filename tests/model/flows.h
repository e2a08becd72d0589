/* flows.h -- both witnesses on one plan of a model that is small enough for them: data reaches
 * where it must (dataflow.h), and nothing overtakes it (happens_before.h). */
#ifndef DPX_TEST_FLOWS_H
#define DPX_TEST_FLOWS_H

#include "tests/model/dataflow_run.h"
#include "tests/model/happens_before.h"
#include "tests/model/plans.h"

/* A Hugging Face config, in single quotes. */
static inline void tiny_model(const char *config, struct model *out)
{
    char text[400];
    size_t n = strlen(config);

    assert_true(n < sizeof text);
    for (size_t i = 0; i <= n; i++)
        text[i] = config[i] == '\'' ? '"' : config[i];
    json_t *j = json_loads(text, 0, NULL);
    if (!j || model_from_config(j, "test", out) < 0)
        fail_msg("no model %s", config);
    json_decref(j);
}

/* What every cell of PyTorch's has. */
static const enum recompute passes_again[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };

/* A plan of that model, which stays the caller's. */
static inline void tiny_plan(struct plan *p, const struct model *m, int64_t world, enum strategy s,
                             enum dialect d, enum dtype t)
{
    memset(p, 0, sizeof *p);
    p->model = *m;
    world_of(&p->cluster, world);
    p->seq = 4;
    p->micro_batch = 1;
    plan_defaults(p, s, d, t);
    p->kernels = KERNELS_DPX;
    p->clip = 0;
}

static inline void must_flow(const struct plan *p, bool defers)
{
    struct df d;
    bool good;

    if (plan_check(p, "test") < 0)
        fail_msg("refused");
    df_init(&d, p);
    good = df_run(&d);
    for (int64_t r = 0; good && r < d.world; r++) {
        struct hb h;
        hb_init(&h, &d.rank[r].s);
        h.defers = defers;
        h.reads_only = hb_acts_read;
        good = hb_run(&h) && schedules_check(&d.rank[r].s, d.why, sizeof d.why);
        if (h.violations)
            snprintf(d.why, sizeof d.why, "rank %d: %s", (int)r, h.why);
        hb_free(&h);
    }
    if (!good) {
        json_t *j = plan_to_json(p);
        json_object_del(j, "cluster");
        json_object_del(j, "model");
        char *text = json_dumps(j, JSON_COMPACT);
        print_error("%s in a world of %d: %s\n", p->model.family, (int)p->cluster.world_size, text);
        fail_msg("%s", d.why);
    }
    df_free(&d);
}

#endif
