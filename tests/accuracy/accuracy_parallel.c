/* accuracy_parallel.c -- the plans of `make accuracy` with tensor, context and pipeline parallelism, which no fit has seen.
 *
 *     accuracy_parallel DIR N [CLUSTER]    N plans, for 2 and 4 ranks of this machine (or CLUSTER's), as DIR/NNN.json
 *
 * A group is a model on so many ranks; its plans do the same work, and a planner has to choose among them.  It takes them from
 * every combination of degrees, strategy, schedule, micro-batch, recompute and the axes' own options that plan_check() and
 * dpxrun accept: of each combination of degrees one in turn, by a fixed generator.  Expert parallelism has no executor.  On stdout
 * one line a plan: name, group, what it is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "model/lower/lower.h"
#include "model/plan/can_run.h"
#include "model/plan/knob.h"
#include "tests/accuracy/accuracy_models.h"

enum { BATCH = 8, KINDS = 64, IDLE = 20, FIRST = 101 };     /* names beside those of accuracy_plans.c */

static const struct { enum strategy s; enum dialect d; } cells[] = {
    { STRAT_DDP, DIALECT_PAPER }, { STRAT_ZERO1, DIALECT_PAPER }, { STRAT_ZERO2, DIALECT_PAPER }, { STRAT_ZERO3, DIALECT_PAPER },
    { STRAT_FSDP, DIALECT_PAPER }, { STRAT_DDP, DIALECT_TORCH }, { STRAT_FSDP, DIALECT_TORCH },
};
enum { CELLS = sizeof cells / sizeof *cells };

/* Of each combination of degrees so many were met; one is kept, each with equal chance. */
struct choice {
    struct plan plan[KINDS];
    int64_t     met[KINDS];
    uint64_t    state;
};

static int logarithm(int64_t n) { return n < 2 ? 0 : 1 + logarithm(n / 2); }

static int kind_of(const struct plan *p)
{
    return logarithm(p->parallel.tensor) + 4 * logarithm(p->parallel.context) + 16 * logarithm(p->parallel.pipeline);
}

static void offer(struct choice *c, const struct plan *p)
{
    char why[512];
    struct fail_sink before = fail_divert(why, sizeof why);
    bool runs = plan_check(p, "plan") == 0 && lower_check(p) == 0 && can_run(p) == 0;

    fail_restore(before);
    if (runs && draw(&c->state) % (uint64_t)++c->met[kind_of(p)] == 0)
        c->plan[kind_of(p)] = *p;
}

/* Every value of the options of the axes that there are. */
static void offer_options(struct choice *c, struct plan *p)
{
    struct parallel_options *o = &p->parallel, kept = *o;

    for (int tensor = 0; tensor < (kept.tensor > 1 ? 4 : 1); tensor++)
        for (int context = 0; context < (kept.context > 1 ? 6 : 1); context++) {
            if (kept.tensor > 1) {
                o->sequence = tensor & 1;
                o->loss_parallel = tensor >> 1;
            }
            if (kept.context > 1) {
                o->context_balance = context & 1;
                o->context_method = (enum context_method)(context >> 1);
            }
            offer(c, p);
        }
    *o = kept;
}

static void offer_schedules(struct choice *c, struct plan *p)
{
    if (p->parallel.pipeline == 1)
        offer_options(c, p);
    for (int kind = 0; kind < NPIPELINE && p->parallel.pipeline > 1; kind++)
        for (int chunks = 1; chunks <= 2; chunks++) {
            p->parallel.pipeline_schedule = (enum pipeline_kind)kind;
            p->parallel.virtual_stages = chunks;
            offer_options(c, p);
        }
}

static void offer_degrees(struct choice *c, const struct plan *base, int64_t t, int64_t x, int64_t pipe)
{
    int64_t data = base->cluster.world_size / (t * x * pipe);

    for (int cell = 0; cell < CELLS; cell++)
        for (int64_t b = 1; b * data <= BATCH; b *= 2)
            for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) {
                struct plan p = *base;
                p.micro_batch = b;
                plan_defaults(&p, cells[cell].s, cells[cell].d, DT_FP32);
                p.parallel.tensor = t;
                p.parallel.context = x;
                p.parallel.pipeline = pipe;
                knob_follow_parallel(&p, NULL, NULL);
                p.kernels = KERNELS_DPX;
                p.recompute = (enum recompute)r;
                p.accumulation = BATCH / (b * data);
                offer_schedules(c, &p);
            }
}

static void offer_all(struct choice *c, const struct plan *base)
{
    int64_t world = base->cluster.world_size;

    for (int64_t t = 1; t <= world; t *= 2)
        for (int64_t x = 1; t * x <= world; x *= 2)
            for (int64_t pipe = 1; t * x * pipe <= world; pipe *= 2)
                if (t * x * pipe > 1)
                    offer_degrees(c, base, t, x, pipe);
}

static void say(const struct plan *p, const char *group, int number)
{
    const struct parallel_options *o = &p->parallel;

    printf("%03d\t%s\t%s %s", number, group, strategy_name(p->strategy), dialect_name(p->dialect));
    if (o->tensor > 1)
        printf(" tp%" PRId64 "%s%s", o->tensor, o->sequence ? "+s" : "", o->loss_parallel ? "+l" : "");
    if (o->context > 1)
        printf(" cp%" PRId64 "%s%s", o->context, o->context_method == CONTEXT_ALL_GATHER ? "" : o->context_method == CONTEXT_RING
               ? " ring" : " ulysses", o->context_balance ? "+b" : "");
    if (o->pipeline > 1)
        printf(" pp%" PRId64 " %s v%" PRId64, o->pipeline, pipeline_name(o->pipeline_schedule), o->virtual_stages);
    printf(" b%" PRId64 "x%" PRId64 " %s\n", p->micro_batch, p->accumulation, recompute_name(p->recompute));
}

static int write_plan(const char *dir, int number, const char *group, const char *cluster, const struct plan *p, json_t *doc)
{
    char path[4096];

    json_object_set_new(doc, "cluster", json_string(cluster));
    snprintf(path, sizeof path, "%s/%03d.json", dir, number);
    say(p, group, number);
    return json_dump_file(doc, path, JSON_INDENT(1)) < 0 ? fail("%s: cannot write", path) : 0;
}

/* Whether the group has this plan already. */
static bool known(json_t *seen, json_t *doc)
{
    for (size_t i = 0; i < json_array_size(seen); i++)
        if (json_equal(json_array_get(seen, i), doc))
            return true;
    json_array_append(seen, doc);
    return false;
}

/* How many of n it has. */
static int write_group(const char *dir, int g, const char *cluster, const struct plan *base, int first, int n)
{
    static struct choice made;
    json_t *seen = json_array();
    char group[64];
    int done = 0, rc = 0;

    snprintf(group, sizeof group, "%s-x%" PRId64, models[g].name, base->cluster.world_size);
    for (int turn = 0, idle = 0; done < n && idle < IDLE && rc == 0; turn++) {         /* there may be fewer */
        int before = done;
        memset(&made, 0, sizeof made);
        made.state = (uint64_t)(100 * base->cluster.world_size + 1000 * g + turn + 1);
        offer_all(&made, base);
        for (int k = 0; k < KINDS && done < n && rc == 0; k++) {
            json_t *doc = made.met[k] > 0 ? plan_to_json(&made.plan[k]) : NULL;
            if (doc && !known(seen, doc))
                rc = write_plan(dir, first + done++, group, cluster, &made.plan[k], doc);
            json_decref(doc);
        }
        idle = done > before ? 0 : idle + 1;
    }
    json_decref(seen);
    return rc < 0 ? -1 : done;
}

int main(int argc, char **argv)
{
    static const char *const here[] = { "localhost:2", "localhost:4" };
    int n = argc == 3 || argc == 4 ? atoi(argv[2]) : 0, worlds = argc == 4 ? 1 : 2, groups = 2 * worlds, written = 0;

    if (n < groups)
        return fail("usage: accuracy_parallel DIR N [CLUSTER], N at least %d", groups), 2;
    for (int i = 0; i < groups; i++) {
        const char *cluster = argc == 4 ? argv[3] : here[i / 2];
        json_t *j = json_loads(models[i % 2].config, 0, NULL);
        struct plan base = { .seq = SEQ };
        if (!j || model_from_config(j, models[i % 2].name, &base.model) < 0 || cluster_load(cluster, &base.cluster) < 0)
            return 1;
        json_decref(j);
        int made = write_group(argv[1], i % 2, cluster, &base, FIRST + written, n / groups + (i < n % groups));
        model_free(&base.model);
        if (made < 0)
            return 1;
        written += made;
    }
    return 0;
}
