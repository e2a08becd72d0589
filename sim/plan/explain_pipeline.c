/* explain_pipeline.c -- a pipeline's step: drawn, its busiest stage, and which numbers of blocks would balance it. */
#include "sim/plan/explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/page.h"
#include "base/room.h"
#include "base/size.h"
#include "model/plan/local_share.h"
#include "sim/clock/step.h"
#include "sim/plan/pipeline_plot.h"

/* Beside a stage's row: its name and the bars. */
enum { STAGE_SCALE = 18 };

/* "8 blocks, the embedding". */
static void say_share(const struct plan *p, int64_t rank, FILE *to)
{
    struct local_share s = local_share_of(p, rank);
    int64_t blocks = 0;

    for (int c = 0; c < s.nchunks; c++)
        blocks += s.chunk[c].blocks;
    fprintf(to, "%" PRId64 " block%s%s%s", blocks, blocks == 1 ? "" : "s", s.embeds ? ", the embedding" : "",
            s.heads ? ", the head" : "");
}

static void print_parts(const struct plan *p, const struct evaluation *e, const struct timing *t, FILE *to)
{
    double makespan = t->line.step_s - t->line.slowest_s;

    for (int i = 0; i < e->nstages; i++) {
        const struct stage_part *of = &t->stages.stage[i];
        fprintf(to, "%8s %2d  works %3.0f %%, messages %3.0f %%, waits %3.0f %%; needs %s; ", "stage", i,
                100 * of->work_s / makespan, 100 * of->messages_s / makespan, 100 * of->bubble_s / makespan,
                size_text(e->stage[i].m.needed).s);
        say_share(p, e->stage[i].m.rank, to);
        fprintf(to, "%s%s\n", i == t->stages.busiest ? " (busiest)" : "", i == e->fullest ? " (fullest)" : "");
    }
}

/* ---- balance ---- */

/* One plan's step, by the clock alone. */
struct tried { double step_s, imbalance_s; int busiest; int64_t needed; bool fits; };

static int try_plan(const struct plan *p, struct tried *out)
{
    struct coll_memo memo = { 0 };
    struct cost_cache *cache;
    struct stage_parts parts;
    struct timeline line;
    struct evaluation e;
    int rc;

    if (evaluate_allocated(p, &e) < 0)
        return -1;
    cache = cost_cache_new(p);
    rc = step_time(p, &e, cache, &memo, &line, &parts);
    if (rc == 0)
        *out = (struct tried){ line.step_s, parts.imbalance_s, parts.busiest, e.m.needed, e.m.fits };
    cost_cache_free(cache);
    evaluation_free(&e);
    return rc;
}

/* Worth telling: by more than repeats of one run differ (1 %, ties.h). */
#define WORTH .99
/* Blocks that the first and the last stage may have fewer. */
enum { LESS = 5 };

static bool quietly(const struct plan *p, struct tried *out)
{
    char why[256];
    struct fail_sink before = fail_divert(why, sizeof why);
    bool done = plan_check(p, "balance") == 0 && try_plan(p, out) == 0;

    fail_restore(before);
    return done;
}

/* Every number of blocks fewer, up to LESS, of the first and of the last stage. */
static int try_all(const struct plan *p, struct plan *best, struct tried *found)
{
    int tried = 0;

    for (int64_t first = 0; first < LESS; first++)
        for (int64_t last = 0; last < LESS; last++) {
            struct plan q = *p;
            struct tried now;
            q.parallel.first_stage_less = first;
            q.parallel.last_stage_less = last;
            if ((first == p->parallel.first_stage_less && last == p->parallel.last_stage_less) || !quietly(&q, &now))
                continue;
            tried++;
            if (now.fits && now.step_s < found->step_s) {
                *best = q;
                *found = now;
            }
        }
    return tried;
}

static void print_balance(const struct plan *p, const struct timing *t, FILE *to)
{
    const struct parallel_options *now = &p->parallel;
    struct plan best = *p;
    struct tried found = { .step_s = t->line.step_s };
    int tried = try_all(p, &best, &found);

    if (found.step_s < WORTH * t->line.step_s)
        fprintf(to, "Balance: first_stage_less_layers %" PRId64 ", last_stage_less_layers %" PRId64 " (now %" PRId64 ", %" PRId64
                "): %.4g s, %.1f %% less; imbalance %.2g s, busiest stage %d, the fullest needs %s.\n",
                best.parallel.first_stage_less, best.parallel.last_stage_less, now->first_stage_less, now->last_stage_less,
                found.step_s, 100 * (1 - found.step_s / t->line.step_s), found.imbalance_s, found.busiest,
                size_text(found.needed).s);
    else
        fprintf(to, "Balance: %d other numbers of blocks for the first and last stage were tried; none is faster by 1 %%.\n", tried);
}

void explain_pipeline(const struct plan *p, const struct evaluation *e, const struct timing *t, const struct run *runs,
                      FILE *to)
{
    const struct stage_parts *of = &t->stages;
    struct trace_role *roles = explain_roles(e, runs);

    fputc('\n', to);
    if (roles)
        pipeline_plot_print(roles, e->nstages, t->line.step_s - t->line.slowest_s, page_width(stdout) - STAGE_SCALE, to);
    free(roles);
    print_parts(p, e, t, to);
    fprintf(to, "Stage %d is the bottleneck: it works %.4g s of %.4g s, %.2g s more than the stages' mean (imbalance), and waits"
            " %.4g s for others (bubble).\n", of->busiest, of->stage[of->busiest].work_s, t->line.step_s, of->imbalance_s,
            of->stage[of->busiest].bubble_s);
    print_balance(p, t, to);
}
