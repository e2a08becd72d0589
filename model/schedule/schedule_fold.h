/* schedule_fold.h -- entries that were appended again and again become a repeat.
 *
 *     int at[4] = { 10, 25, 40, 55 };                  three iterations, the last of which ends the list
 *     schedule_fold(s, at, 1000, 1);                      10 .. 26: repeat 1000 { what was 10 .. 24 } */
#ifndef DPX_SCHEDULE_FOLD_H
#define DPX_SCHEDULE_FOLD_H

#include "model/schedule/schedule.h"

/* Entries [at[i], at[i + 1]) of three iterations, each `by` micro-steps behind the one before, become a repeat of n >= 3 where they are
 * the same but for units, instances, micro-steps and events, which move by as much from the second to the third as from the
 * first to the second, and where no instance leaves its family in n iterations.  Else false, and nothing changes. */
bool schedule_fold(struct schedules *s, const int at[4], int64_t n, int by);

/* The entries from `from` on become the body of a repeat of n, which ends the list. */
void schedule_repeat_since(struct schedules *s, int from, int64_t n);

/* Appends entries [from, to) once more; no repeat is among them. */
void schedule_append(struct schedules *s, int from, int to);

#endif
