/* hand_group.h -- process groups of schedules that a test writes by hand. */
#ifndef DPX_TEST_HAND_GROUP_H
#define DPX_TEST_HAND_GROUP_H

#include "model/schedule/schedule.h"

/* A group of neighbours; the first of a schedule is to be the world. */
static inline void hand_group(struct schedules *s, enum group is, int64_t ranks)
{
    struct mesh m = { .order = { AXIS_PIPE, AXIS_REPLICA, AXIS_SHARD, AXIS_CONTEXT, AXIS_EXPERT, AXIS_TENSOR },
                      .size = { 1, 1, 1, 1, 1, 1 } };

    m.size[AXIS_SHARD] = ranks;
    plan_groups_add(&s->groups, &m, is, (struct group_rule){ .axes = MESH_AXIS(AXIS_SHARD) });
}

#endif
