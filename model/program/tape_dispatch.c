/* tape_dispatch.c -- see tape_dispatch.h. */
#include "model/program/tape_dispatch.h"

#include "model/plan/plan_groups.h"
#include "model/program/tape_internal.h"

static void note(struct tape *t, const char *name, const struct collective *c)
{
    struct kernel *k = tape_begin_copy(t, name);

    if (k != &t->skipped)
        k->collective = tape_note_collective(t, c);
}

static void exchange(struct tape *t, const char *name, enum dtype dt, int64_t sent, int64_t came)
{
    note(t, name, &(struct collective){ .op = COLL_ALL_TO_ALL, .group = GROUP_EXPERT, .dtype = (uint8_t)dt, .stream = STREAM_CONTEXT,
                                        .elems = sent, .came = came == sent ? 0 : came });
}

var tape_dispatch(struct tape *t, const char *name, var x, int64_t numel)
{
    enum dtype dt = tape_var_dtype(t, x);
    struct node *n = tape_node(t, NODE_DISPATCH, name, KC_COPY);
    int node = t->nnodes - 1;

    tape_edge(t, n, x);
    n->k = numel;
    exchange(t, name, dt, tape_var_numel(t, x), numel);
    return tape_var(t, tape_new(t, numel, dt), numel, dt, node, 0);
}

var tape_dispatch_numbers(struct tape *t, const char *name, int64_t numel, enum dtype dt)
{
    exchange(t, name, dt, numel, numel);
    return tape_var(t, tape_new(t, numel, dt), numel, dt, 0, 0);
}

var tape_gather_counts(struct tape *t, const char *name, int64_t numel, int64_t ranks, int group)
{
    note(t, name, &(struct collective){ .op = COLL_ALL_GATHER, .group = (uint8_t)group, .dtype = DT_INT64, .stream = STREAM_CONTEXT,
                                        .elems = numel * ranks });
    return tape_var(t, tape_new(t, numel * ranks, DT_INT64), numel * ranks, DT_INT64, 0, 0);
}

void tape_sum_counts(struct tape *t, const char *name, int64_t numel, int group)
{
    note(t, name, &(struct collective){ .op = COLL_ALL_REDUCE, .group = (uint8_t)group, .dtype = DT_INT64, .red = RED_SUM, .stream = STREAM_CONTEXT,
                                        .elems = numel });
}

void tape_agree_on_most(struct tape *t, const char *name)
{
    note(t, name, &(struct collective){ .op = COLL_ALL_REDUCE, .group = GROUP_EXPERT, .dtype = DT_INT64, .red = RED_MAX, .stream = STREAM_CONTEXT,
                                        .elems = 1 });
}

void tape_await_host(struct tape *t, const char *name)
{
    note(t, name, &(struct collective){ .waits = true });
}

void tape_run_dispatch(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct edge *e = &n->edges[0];

    t->module = n->module;
    t->half = n->half;
    exchange(t, n->name, e->dt, n->k, e->numel);
    out[0] = tape_new(t, e->numel, e->dt);
}
