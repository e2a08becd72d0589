/* plans.h -- plans and hand-built schedules for the tests of lowerings. */
#ifndef DPX_TEST_PLANS_H
#define DPX_TEST_PLANS_H

#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "model/schedule/units.h"
#include "tests/hand_group.h"

/* World sizes for the closed formulas: one, small, odd, a power, large. */
static const int64_t worlds[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64, 1000 };
enum { NWORLDS = sizeof worlds / sizeof *worlds };

/* A world of so many ranks, on one node while that is thinkable; only their number
 * matters (to DataParallel the node, too). */
static inline void world_of(struct cluster *c, int64_t n)
{
    if (cluster_load("h100", c) < 0)
        fail_msg("no cluster");
    c->world_size = n;
    c->gpus_per_node = n <= 16 ? n : 1;
    c->nodes = n / c->gpus_per_node;
}

/* Owns `model` (built-in, cut to `layers` blocks; 0: all).  No clipping, so that
 * only what the strategy itself sends is sent. */
static inline void plan_of(struct plan *p, const char *model, int64_t layers, int64_t world,
                           enum strategy s, enum dialect d, enum dtype t)
{
    struct model whole;

    memset(p, 0, sizeof *p);
    if (model_load(model, &whole) < 0)
        fail_msg("no model %s", model);
    if (layers > 0) {
        if (model_with_layers(&whole, layers, &p->model) < 0)
            fail_msg("%s of %d layers", model, (int)layers);
        model_free(&whole);
    } else {
        p->model = whole;
    }
    world_of(&p->cluster, world);
    p->seq = 64;
    p->micro_batch = 1;
    plan_defaults(p, s, d, t);
    p->clip = 0;
}

/* The same plan in another world. */
static inline void plan_move(struct plan *p, int64_t world)
{
    world_of(&p->cluster, world);
    p->shard_group = world;
    plan_resolve(p);
}

static inline void lowered(const struct plan *p, int64_t rank, struct schedules *s)
{
    char why[512];

    if (plan_check(p, "test") < 0 || lower(p, rank, s) < 0)
        fail_msg("not lowered");
    if (!schedules_check(s, why, sizeof why))
        fail_msg("%s", why);
}

/* Neither checked nor lowered, for a reason with these words. */
static inline void plan_refused(const struct plan *p, const char *words)
{
    struct schedules s = { 0 };
    char why[512] = "";

    fail_capture(why, sizeof why);
    int rc = plan_check(p, "plan") < 0 ? -1 : lower(p, 0, &s);
    fail_capture(NULL, 0);
    schedules_free(&s);
    if (rc == 0 || !strstr(why, words))
        fail_msg("\"%s\" where \"%s\" was due", why, words);
}

/* Calls and full bytes of one collective in a schedule, whatever group and dtype. */
struct tally { int64_t count, bytes, elems; };

static inline struct tally tally_of(const struct schedules *s, enum sched_id id, enum coll_op op)
{
    struct comm_table t;
    struct tally sum = { 0 };

    evaluation_comm_count(s, id, &t);
    for (int i = 0; i < t.n; i++)
        if (t.line[i].op == op) {
            sum.count += t.line[i].count;
            sum.bytes += t.line[i].bytes;
            sum.elems += t.line[i].bytes / dtype_bytes(t.line[i].dtype);
        }
    return sum;
}

static inline int64_t sent(const struct schedules *s, enum sched_id id)
{
    struct comm_table t;

    evaluation_comm_count(s, id, &t);
    return t.sent_bytes;
}

static inline void unit_map_of(struct unit_map *m, const struct plan *p)
{
    struct local_model local;

    assert_int_equal(local_model_of(p, 0, &local), 0);
    unit_map_init(m, &local);
}

/* ---- schedules by hand ---- */

/* Three empty schedules in a world of 4. */
static inline void hand_begin(struct schedules *s)
{
    schedules_reset(s);
    s->world_size = 4;
    hand_group(s, GROUP_DATA, 4);
}

static inline void empty(struct schedules *s, enum sched_id id)
{
    sched_begin(s, id);
    sched_end(s, id);
}

/* An entry that runs nothing on the compute stream, with one buffer action. */
static inline void touch(struct schedules *s, int what, int buf, int at, int by)
{
    sched_copy(s, STREAM_COMPUTE, PHASE_FORWARD, "touch", 0, 0);
    sched_act(s, what, buf, at, by);
}

#endif
