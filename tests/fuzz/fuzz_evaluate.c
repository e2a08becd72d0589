/* The input chooses a plan: the cell of the strategy x dialect table, the
 * model, the ranks, and a value for each key that the cell has.  Whatever it
 * chooses is evaluated, with schedules that hold together, or refused with a
 * reason. */
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/dtype.h"
#include "model/arch/transformer.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob.h"

struct input {
    const uint8_t *at, *end;
};

/* The next byte, less than n; 0 when there are no more. */
static int choose(struct input *in, int n)
{
    return in->at < in->end ? *in->at++ % n : 0;
}

static json_t *whole(struct input *in, const struct knob *k)
{
    int64_t small = choose(in, 24), big = INT64_C(1) << choose(in, 60);
    int64_t value[] = { k->lo + small, big, big - 1, k->lo, k->hi };

    return json_integer(value[choose(in, 5)]);
}

static json_t *word(struct input *in, const struct knob *k)
{
    int n = 0;

    while (k->words[n])
        n++;
    return json_string(k->words[choose(in, n)]);
}

static json_t *value(struct input *in, const struct knob *k)
{
    static const char *const units[] = { "model", "block", "2 blocks", "3 blocks", "half-block",
                                         "tensor", "module" };

    switch (k->type) {
    case KNOB_INT:        return whole(in, k);
    case KNOB_REAL:       return json_real(choose(in, 2) ? choose(in, 256) : choose(in, 256) / 4096.0);
    case KNOB_BOOL:
    case KNOB_FLAG:       return json_boolean(choose(in, 2));
    case KNOB_UNIT:       return json_string(units[choose(in, 7)]);
    case KNOB_RESHARD:    return choose(in, 2) ? json_boolean(choose(in, 2)) : whole(in, k);
    case KNOB_GRAD_ACCUM: return json_string("fp32");
    case KNOB_TEXT:       return json_null();
    case KNOB_LIST:       return choose(in, 2) && k->words[1] && k->words[1][0] ? json_string(k->words[1 + choose(in, 2)]) : json_null();
    case KNOB_FIXED:
    case KNOB_WORD:
    case KNOB_WORD_BOOL:  return word(in, k);
    }
    return json_null();
}

/* One byte in two leaves a key at its default. */
static void choose_keys(struct input *in, json_t *plan, uint64_t cell)
{
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++) {
        if ((k->cells & cell) && (k->required || choose(in, 2)))
            json_object_set_new(knob_object_at(plan, k->object), k->name, value(in, k));
    }
}

/* The real model with a few of its layers: blocks are alike, and a run takes a tenth of the time. */
static json_t *shallow(int i)
{
    static const struct { const char *name; int layers; } models[] = {
        { "gpt2", 4 }, { "llama-3.1-8b", 5 }, { "mixtral-8x7b", 2 }, { "opt-13b", 3 },
    };
    struct model whole, few;
    json_t *config;

    must_hold(model_load(models[i].name, &whole) == 0 && model_with_layers(&whole, models[i].layers, &few) == 0);
    config = model_to_config(&few);
    must_hold(config);
    model_free(&few);
    model_free(&whole);
    return config;
}

static json_t *choose_plan(struct input *in)
{
    static json_t *models[4];
    int strategy = choose(in, NSTRATEGY), dialect = choose(in, NDIALECT);
    int nodes = 1 + choose(in, 9), gpus = 1 + choose(in, 9), seq = 1 + 16 * choose(in, 64);
    char cluster[32];
    json_t *plan;

    snprintf(cluster, sizeof cluster, "%dx%dxh100", nodes, gpus);
    for (int i = 0; i < 4 && !models[3]; i++)
        models[i] = shallow(i);
    plan = json_pack("{s:i, s:O, s:s, s:s, s:s}", "dpx_plan", 1, "model", models[choose(in, 4)],
                     "cluster", cluster, "strategy", strategy_name((enum strategy)strategy),
                     "dialect", dialect_name((enum dialect)dialect));
    must_hold(plan);
    choose_keys(in, plan, CELL(strategy, dialect));
    if (choose(in, 8))          /* else whatever the key's whole range gave */
        json_object_set_new(plan, "seq", json_integer(seq));
    return plan;
}

static void check(const struct evaluation *e, const struct plan *p)
{
    char why[256];

    must_hold(schedules_check(&e->schedules, why, sizeof why));
    must_hold(e->m.rank >= 0 && e->m.rank < p->cluster.world_size);
    must_hold(e->allocated_peak > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, data + size };
    json_t *j = choose_plan(&in);
    struct evaluation e;
    struct plan p;

    fuzz_quiet();
    if (plan_from_json(j, "fuzz", &p) == 0) {
        fuzz_said[0] = '\0';
        if (evaluate(&p, &e) == 0) {
            check(&e, &p);
            evaluation_free(&e);
        } else {
            must_hold(fuzz_said[0]);
        }
        plan_free(&p);
    } else {
        must_hold(fuzz_said[0]);
    }
    json_decref(j);
    return 0;
}
