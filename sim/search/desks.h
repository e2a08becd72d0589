/* desks.h -- what a thread needs to look at a plan: prices that are kept from the last one, and room for schedules.
 *
 *     struct desks all = DESKS;
 *     struct desk *d = desks_take(&all, &plan);       (any thread)
 *     ... d->cache fits the plan ...
 *     desks_give(&all, d);
 *     desks_free(&all);
 *
 * Prices do not depend on the desk.  The one that was given back last is taken first: there are as many as threads at once. */
#ifndef DPX_DESKS_H
#define DPX_DESKS_H

#include <pthread.h>

#include "model/schedule/schedule.h"
#include "sim/clock/simulate.h"
#include "sim/price/kernel_cost.h"

struct desk {
    struct cost_cache *cache;
    struct coll_memo   memo;
    struct schedules   s;
    struct desk       *next;
};

struct desks { pthread_mutex_t lock; struct desk *free; };
#define DESKS { .lock = PTHREAD_MUTEX_INITIALIZER }

struct desk *desks_take(struct desks *all, const struct plan *p);
void         desks_give(struct desks *all, struct desk *d);
/* Gives back the room for schedules of those that nobody has; their prices are kept. */
void         desks_clear(struct desks *all);
/* All were given back. */
void         desks_free(struct desks *all);

#endif
