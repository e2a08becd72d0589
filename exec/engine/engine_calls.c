/* engine_calls.c -- a schedule's collectives in the words of the recorded ones: op, the group's ranks, dtype, elements of the full
 * buffer, reduction, root or peer. */
#include "exec/engine/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/plan/plan_groups.h"

void engine_lines_add(struct engine_lines *l, const char *line)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->line = realloc(l->line, (size_t)l->cap * sizeof *l->line);
        if (!l->line)
            abort();
    }
    if (!(l->line[l->n++] = strdup(line)))
        abort();
}

void engine_lines_free(struct engine_lines *l)
{
    for (int64_t i = 0; i < l->n; i++)
        free(l->line[i]);
    free(l->line);
    *l = (struct engine_lines){ 0 };
}

struct note { struct engine_lines *to; bool reductions; };

static int note_call(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    static const bool rooted[NCOLL] = { [COLL_BROADCAST] = true, [COLL_REDUCE] = true, [COLL_SCATTER] = true, [COLL_GATHER] = true,
                                        [COLL_SEND] = true, [COLL_RECV] = true };
    const struct note *n = arg;
    char line[1024];
    int at;

    (void)iteration;
    if (o->kind != OP_COLL)
        return 0;
    enum coll_op op = (enum coll_op)o->u.coll.op;
    const struct mesh_group *g = &sched_group(s, o)->of;
    at = snprintf(line, sizeof line, "%s ", coll_name(op));
    for (int64_t i = 0; i < mesh_ranks(g) && at < (int)sizeof line - 64; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, "%s%" PRId64, i ? "," : "", mesh_member(g, s->rank, i));
    if (op == COLL_BARRIER)
        at += snprintf(line + at, sizeof line - (size_t)at, " -");
    else
        at += snprintf(line + at, sizeof line - (size_t)at, " %s", dtype_name(o->u.coll.dtype));
    at += snprintf(line + at, sizeof line - (size_t)at, " %" PRId64, o->u.coll.elems);
    if (n->reductions && o->u.coll.red)
        at += snprintf(line + at, sizeof line - (size_t)at, " %s", red_name(o->u.coll.red));
    if (n->reductions && rooted[op])
        snprintf(line + at, sizeof line - (size_t)at, " root %d", coll_is_message(op) ? (int)o->u.coll.peer : (int)o->u.coll.root);
    engine_lines_add(n->to, line);
    return 0;
}

void engine_planned_calls(const struct schedules *s, int64_t step, bool reductions, struct engine_lines *out)
{
    struct note n = { out, reductions };

    sched_walk(s, step > 0 ? sched_of_step(s, step) : SCHED_INIT, note_call, &n);
}

int64_t engine_first_difference(const struct engine_lines *a, const struct engine_lines *b)
{
    for (int64_t i = 0; i < a->n || i < b->n; i++)
        if (i >= a->n || i >= b->n || strcmp(a->line[i], b->line[i]) != 0)
            return i;
    return -1;
}

/* Stage 3 compares the ranks' traces of modules in the second step (partitioned_param_coordinator.py), which schedules leave out. */
bool engine_step_2_is_another(const struct plan *p) { return p->dialect == DIALECT_DEEPSPEED && p->strategy == STRAT_ZERO3; }
