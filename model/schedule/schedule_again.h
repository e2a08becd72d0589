/* schedule_again.h -- how a pass goes over finished schedules: it takes their entries, and appends them anew with its own between them.
 *
 *     struct again a;
 *     again_open(&a, s);
 *     for (int id = 0; id < NSCHED; id++) {
 *         sched_begin(s, id);
 *         again_each(&a, a.begin[id], a.end[id], entry, arg);     entry() calls again_entry()
 *         sched_end(s, id);
 *     }
 *     again_close(&a); */
#ifndef DPX_SCHEDULE_AGAIN_H
#define DPX_SCHEDULE_AGAIN_H

#include "model/schedule/schedule.h"

/* Schedules as they were. */
struct again {
    struct schedules *s;
    struct op  *ops;
    struct act *acts;
    int begin[NSCHED], end[NSCHED];
};

/* Takes all entries out of `s`; buffers and events stay. */
void again_open(struct again *a, struct schedules *s);
void again_close(struct again *a);

/* Appends entry `o` without its acts; the bits in `mask` of its acts to the last entry; both at once. */
struct op *again_op(struct again *a, const struct op *o);
void       again_acts(struct again *a, const struct op *o, int mask);
void       again_entry(struct again *a, const struct op *o);

/* Appends a repeat for each repeat in [from, to), and calls f for every other entry. */
void again_each(struct again *a, int from, int to, void (*f)(void *arg, const struct op *o), void *arg);

#endif
