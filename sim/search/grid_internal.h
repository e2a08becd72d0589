/* grid_internal.h -- what grid.c and grid_cells.c share: the candidates, and how far their evaluation is. */
#ifndef DPX_GRID_INTERNAL_H
#define DPX_GRID_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "sim/search/desks.h"
#include "sim/search/grid.h"
#include "sim/search/program_store.h"

/* Candidates, as they are enumerated. */
struct grid_candidates {
    struct found *found;            /* those in question */
    struct found *cut;              /* by memory: those that a bound leaves out */
    int64_t n, room, ncut, cut_room, considered, same_cut, too_long;        /* same_cut: hopeless without a look at their programs */
    int64_t shared;                 /* of those considered, those of which no rank has the whole model to compute */
    uint64_t looked;                /* dialects that had a candidate, */
    char    refusal[NDIALECT][256]; /* and why the first of each was refused by plan_check() */
};

struct grid_attempt;

struct grid {
    const struct search_options *o;
    uint64_t dialects;
    bool beside;                    /* only what data parallelism alone is not, and only short steps */
    bool collects;                  /* only what was hopeless when they were enumerated before */
    struct grid_candidates all;
    struct program_store programs;
    struct desks desks;
    pthread_t   caller;             /* who asked for the search, and may be asked whether to go on */
    atomic_bool stopped, unwanted;

    pthread_mutex_t lock;           /* of what follows, while candidates are evaluated */
    struct grid_attempt *attempt;   /* of each of those in question */
    int64_t evaluated;              /* so many of those in question are settled */
    double  best_s;                 /* the fastest of these that fits */
    bool    closed, failed;         /* no other is wanted; one that is could not be planned: */
    char    why[256];
};

/* The thread that called asks whether to go on, between plans too: one of them may take a second. */
bool grid_may_go_on(struct grid *g, int64_t done, int64_t of);
int  grid_stop(void);               /* -1, reported */

#endif
