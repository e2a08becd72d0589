/* search_internal.h -- what search.c and saving.c share: the candidates while they are looked at. */
#ifndef DPX_SEARCH_INTERNAL_H
#define DPX_SEARCH_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "sim/search/desks.h"
#include "sim/search/programs.h"
#include "sim/search/search.h"
#include "sim/search/unpriced.h"

struct work {
    const struct search_options *o;
    struct found *found;
    int64_t n, room, seen, twice, cut;  /* twice: of those seen, left out and then looked at after all */
    struct programs programs;
    struct plan *full; int64_t nfull, full_room;        /* the smallest of each run that keeps too much, whatever the micro-batch */
    struct plan *least; int64_t nleast, least_room;     /* of each that stands for plans that a bound left out, the one whose bound is least */
    const struct found *whole;          /* plans are taken that a bound left out, of this one's run; NULL: those that no bound
                                         * leaves out */
    atomic_llong next;              /* the candidate that the next free thread takes */
    atomic_int   failed, stopped;
    pthread_t    caller;
    uint64_t     looked;        /* dialects that had a candidate */
    char         why[256];      /* of the thread that failed first */
    int64_t      first_later;           /* of the candidates, the first variant that saves memory; -1: none yet */
    int64_t      later;                 /* its number in the order of enumeration */
    double       best_s;                /* the fastest that fits and does not wait for memory, of those known */
    atomic_int   refused;               /* of these, how many could not be planned, */
    int64_t      first_refused;         /* the first of them */
    char         why_refused[256];      /* and why it could not */
    pthread_mutex_t lock;               /* of reasons */
    struct unpriced unpriced;
    double       slow_s;                /* what moves data and takes longer is not looked at (saving.c) */
    struct desks desks;
    struct grid *beside;        /* whose candidates are known; NULL */
    bool         no_grid;       /* they could not be enumerated */
    struct cost_cache *bounding;        /* prices of bounds of time */
    struct { struct plan plan; int program; double s; } bounded;        /* the last of these bounds */
};

/* As enumerated, plans that differ only in buckets, units, prefetch and such follow each other. */
bool search_same_run(const struct plan *a, const struct plan *b);

/* A candidate, for enumerate(). */
int  search_take(const struct plan *p, void *work);

/* Lowers plan i and puts it on the ledger; one that fits is timed, unless `desk` is NULL, where none does.  `from`: all from there on were
 * assessed by this thread.  0, or -1 reported. */
int  search_assess(struct work *w, int64_t from, int64_t i, struct schedules *s, struct desk *desk);

/* Plan i could not be planned: keeps why. */
void search_cannot(struct work *w, int64_t i, const char why[256]);

/* The nearest of those that do not fit is looked at, whatever a bound left out.  0, or -1: one of them could not be planned. */
int  search_find_nearest(struct work *w);

/* Looks at all that were taken and not looked at, on all cores. */
void search_run_all(struct work *w);

/* Looks at the variants that save memory of all runs that lack it, smaller micro-batches first.  0, or -1 reported. */
int  saving_look(struct work *w);

/* From which time on what moves data is not looked at, of strategies and dialects that have a plan that fits without: where so many ideas as
 * are asked for keep all in device memory, grids (n of them) among them, what can be no tie with the fastest.  Before that, best_s is known. */
void saving_limit(struct work *w, const struct found *grid, int64_t n);

/* Does the variant keep data elsewhere, and take longer than all that matters (slow_s) by its bound of time? */
bool saving_is_slow(struct work *w, const struct plan *p, int program);

#endif
