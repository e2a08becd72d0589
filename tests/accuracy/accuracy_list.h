/* accuracy_list.h -- a list of plans for `make accuracy`: each a file DIR/NNN.json and a line on stdout (name, group, what it is). */
#ifndef DPX_ACCURACY_LIST_H
#define DPX_ACCURACY_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "model/plan/plan.h"

/* Of the plans that were offered one is kept, each with equal chance. */
struct accuracy_draw {
    struct plan plan;
    int64_t     met;                    /* that can be run */
};

/* Counts a plan that plan_check(), its lowering and dpxrun accept, and may keep it.  `state` is draw()'s. */
void accuracy_offer(struct accuracy_draw *d, const struct plan *p, uint64_t *state);

struct accuracy_list {
    const char *dir, *cluster;          /* the plan's "cluster" as it is written */
    int         number;                 /* the next plan's name */
    json_t     *seen;                   /* an array of the group's plans */
};

/* Writes a plan of the group, unless the group has it.  1: written, 0: it was there, -1 with the reason reported. */
int accuracy_list_add(struct accuracy_list *l, const char *group, const char *what, const struct plan *p);

#endif
