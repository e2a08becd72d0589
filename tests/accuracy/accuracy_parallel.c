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

#include "base/fail.h"
#include "model/plan/knob.h"
#include "tests/accuracy/accuracy_list.h"
#include "tests/accuracy/accuracy_models.h"

enum { BATCH = 8, KINDS = 64, IDLE = 20, FIRST = 101 };     /* names beside those of accuracy_plans.c */

static const struct { enum strategy s; enum dialect d; } cells[] = {
    { STRAT_DDP, DIALECT_PAPER }, { STRAT_ZERO1, DIALECT_PAPER }, { STRAT_ZERO2, DIALECT_PAPER }, { STRAT_ZERO3, DIALECT_PAPER },
    { STRAT_FSDP, DIALECT_PAPER }, { STRAT_DDP, DIALECT_TORCH }, { STRAT_FSDP, DIALECT_TORCH },
};
enum { CELLS = sizeof cells / sizeof *cells };

/* Of each combination of degrees so many were met; one is kept, each with equal chance. */
struct choice {
    struct accuracy_draw of[KINDS];
    uint64_t             state;
};

static int logarithm(int64_t n) { return n < 2 ? 0 : 1 + logarithm(n / 2); }

static int kind_of(const struct plan *p)
{
    return logarithm(p->parallel.tensor) + 4 * logarithm(p->parallel.context) + 16 * logarithm(p->parallel.pipeline);
}

static void offer(struct choice *c, const struct plan *p)
{
    accuracy_offer(&c->of[kind_of(p)], p, &c->state);
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
                knob_follow(&p, NULL, NULL);
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

static void say(const struct plan *p, char *to, size_t size)
{
    const struct parallel_options *o = &p->parallel;
    FILE *f = fmemopen(to, size, "w");

    fprintf(f, "%s %s", strategy_name(p->strategy), dialect_name(p->dialect));
    if (o->tensor > 1)
        fprintf(f, " tp%" PRId64 "%s%s", o->tensor, o->sequence ? "+s" : "", o->loss_parallel ? "+l" : "");
    if (o->context > 1)
        fprintf(f, " cp%" PRId64 "%s%s", o->context, o->context_method == CONTEXT_ALL_GATHER ? "" : o->context_method == CONTEXT_RING
                ? " ring" : " ulysses", o->context_balance ? "+b" : "");
    if (o->pipeline > 1)
        fprintf(f, " pp%" PRId64 " %s v%" PRId64, o->pipeline, pipeline_name(o->pipeline_schedule), o->virtual_stages);
    fprintf(f, " b%" PRId64 "x%" PRId64 " %s", p->micro_batch, p->accumulation, recompute_name(p->recompute));
    fclose(f);
}

/* How many of n it has. */
static int write_group(struct accuracy_list *l, int g, const struct plan *base, int n)
{
    static struct choice made;
    char group[64], what[96];
    int done = 0, rc = 0;

    l->seen = json_array();
    snprintf(group, sizeof group, "%s-x%" PRId64, models[g].name, base->cluster.world_size);
    for (int turn = 0, idle = 0; done < n && idle < IDLE && rc >= 0; turn++) {         /* there may be fewer */
        int before = done;
        memset(&made, 0, sizeof made);
        made.state = (uint64_t)(100 * base->cluster.world_size + 1000 * g + turn + 1);
        offer_all(&made, base);
        for (int k = 0; k < KINDS && done < n && rc >= 0; k++) {
            if (made.of[k].met == 0)
                continue;
            say(&made.of[k].plan, what, sizeof what);
            rc = accuracy_list_add(l, group, what, &made.of[k].plan);
            done += rc == 1;
        }
        idle = done > before ? 0 : idle + 1;
    }
    json_decref(l->seen);
    return rc < 0 ? -1 : done;
}

int main(int argc, char **argv)
{
    static const char *const here[] = { "localhost:2", "localhost:4" };
    int n = argc == 3 || argc == 4 ? atoi(argv[2]) : 0, worlds = argc == 4 ? 1 : 2, groups = 2 * worlds;
    struct accuracy_list l = { .dir = argv[1], .number = FIRST };

    if (n < groups)
        return fail("usage: accuracy_parallel DIR N [CLUSTER], N at least %d", groups), 2;
    for (int i = 0; i < groups; i++) {
        json_t *j = json_loads(models[i % 2].config, 0, NULL);
        struct plan base = { .seq = SEQ };
        l.cluster = argc == 4 ? argv[3] : here[i / 2];
        if (!j || model_from_config(j, models[i % 2].name, &base.model) < 0 || cluster_load(l.cluster, &base.cluster) < 0)
            return 1;
        json_decref(j);
        int made = write_group(&l, i % 2, &base, n / groups + (i < n % groups));
        model_free(&base.model);
        if (made < 0)
            return 1;
    }
    return 0;
}
