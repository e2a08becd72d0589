/* desks.c -- see desks.h. */
#include "sim/search/desks.h"

#include <stdlib.h>

#include "base/room.h"

struct desk *desks_take(struct desks *all, const struct plan *p)
{
    pthread_mutex_lock(&all->lock);
    struct desk *d = all->free;
    if (d)
        all->free = d->next;
    pthread_mutex_unlock(&all->lock);
    if (!d) {
        d = room_new(1, sizeof *d);
        d->cache = cost_cache_new(p);
    }
    cost_cache_use(d->cache, p);
    return d;
}

void desks_give(struct desks *all, struct desk *d)
{
    pthread_mutex_lock(&all->lock);
    d->next = all->free;
    all->free = d;
    pthread_mutex_unlock(&all->lock);
}

void desks_clear(struct desks *all)
{
    pthread_mutex_lock(&all->lock);
    for (struct desk *d = all->free; d; d = d->next)
        schedules_free(&d->s);
    pthread_mutex_unlock(&all->lock);
}

void desks_free(struct desks *all)
{
    for (struct desk *d; (d = all->free); ) {
        all->free = d->next;
        cost_cache_free(d->cache);
        schedules_free(&d->s);
        free(d);
    }
    pthread_mutex_destroy(&all->lock);
}
