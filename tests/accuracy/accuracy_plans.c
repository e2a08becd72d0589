/* accuracy_plans.c -- the plans of `make accuracy`: ones that no fit has seen.
 *
 *     accuracy_plans DIR N [CLUSTER]   about N plans for CLUSTER (default localhost:2: two ranks of
 *                                      this machine), as DIR/NNN.json
 *     accuracy_plans --models DIR      their models
 *
 * Two models, two numbers of tokens a step each (one, of fewer than 40 plans): four groups, within which a
 * planner has to choose.
 * A group takes its plans from the enumeration that `dpxplan search` looks at, one of each strategy
 * and dialect in turn, by a fixed generator: the same plans on every machine.  On stdout one line a
 * plan: name, group, what it is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "model/plan/can_run.h"
#include "sim/search/enumerate.h"
#include "tests/accuracy/accuracy_list.h"
#include "tests/accuracy/accuracy_models.h"

enum { CELLS = NSTRATEGY * NDIALECT };

static const int64_t batches[] = { 4, 8 };          /* samples a step */
enum { GROUPS = 4 };

/* Of each cell of the table so many were met; one of them is kept, each with equal chance. */
struct choice {
    struct accuracy_draw of[CELLS];
    uint64_t state;
    int      turn;                      /* which recompute each cell is to have */
};

static int take(const struct plan *p, void *arg)
{
    struct choice *c = arg;
    int cell = (int)p->strategy * NDIALECT + (int)p->dialect;

    if ((int)p->recompute == (cell + c->turn) % NRECOMPUTE)
        accuracy_offer(&c->of[cell], p, &c->state);
    return 0;
}

/* Rounds over the table, each with other draws, until there are n plans. */
static int write_group(struct accuracy_list *l, int g, int n)
{
    char group[64], where[64], what[96];
    json_t *j = json_loads(models[g / 2].config, 0, NULL);
    struct cluster c;
    struct model m;
    int done = 0, rc = 0;

    snprintf(where, sizeof where, "model %s", models[g / 2].name);
    snprintf(group, sizeof group, "%s-%" PRId64, models[g / 2].name, batches[g % 2] * SEQ);
    if (!j || model_from_config(j, where, &m) < 0 || cluster_load(l->cluster, &c) < 0)
        return -1;
    json_decref(j);
    l->seen = json_array();
    struct search_options o = { .model = &m, .cluster = &c, .seq = SEQ, .global_batch = batches[g % 2],
                                .strategies = ~0ull, .dialects = ~0ull, .kernels = KERNELS_DPX,
                                .precision = DT_FP32, .recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_SELECTIVE | 1u << RECOMPUTE_FULL };
    for (int round = 0; done < n && round < 100; round++) {
        static struct choice made;
        memset(&made, 0, sizeof made);
        made.turn = g + round;
        made.state = (uint64_t)(1000 * g + round + 1);
        if (enumerate(&o, take, &made) < 0)
            return -1;
        for (int i = 0; i < CELLS && done < n && rc >= 0; i++) {
            const struct accuracy_draw *d = &made.of[(i + round) % CELLS];
            const struct plan *p = &d->plan;
            if (d->met == 0)
                continue;
            snprintf(what, sizeof what, "%s %s b%" PRId64 "x%" PRId64 " recompute %s", strategy_name(p->strategy),
                     dialect_name(p->dialect), p->micro_batch, p->accumulation, recompute_name(p->recompute));
            rc = accuracy_list_add(l, group, what, p);
            done += rc == 1;
        }
    }
    json_decref(l->seen);
    model_free(&m);
    return rc;
}

/* As files that dpxcal can be given. */
static int write_models(const char *dir)
{
    char path[4096];

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        json_t *j = json_loads(models[i].config, 0, NULL);
        snprintf(path, sizeof path, "%s/%s.json", dir, models[i].name);
        int rc = j ? json_dump_file(j, path, JSON_INDENT(1)) : -1;
        json_decref(j);
        if (rc < 0)
            return fail("%s: cannot write", path);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--models"))
        return write_models(argv[2]) < 0;
    int n = argc == 3 || argc == 4 ? atoi(argv[2]) : 0;
    struct accuracy_list l = { .dir = argv[1], .cluster = argc == 4 ? argv[3] : "localhost:2", .number = 1 };

    if (n < GROUPS)
        return fail("usage: accuracy_plans DIR N [CLUSTER], N at least %d", GROUPS), 2;
    /* In a group of fewer than 10 there is little to choose from: then one number of tokens will do. */
    int every = n < 10 * GROUPS ? 2 : 1, groups = GROUPS / every;
    for (int g = 0; g < groups; g++)
        if (write_group(&l, g * every, n / groups + (g < n % groups)) < 0)
            return 1;
    return 0;
}
