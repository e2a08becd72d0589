/* alike.h -- plans whose schedules are the same count once in a search. */
#ifndef DPX_ALIKE_H
#define DPX_ALIKE_H

#include "model/schedule/schedule.h"

/* A hash of everything in the schedules that decides bytes, order or time; `program` is the number of their program
 * among those that the search has made. */
uint64_t alike_key(const struct schedules *s, int program);

#endif
