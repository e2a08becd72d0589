/* search.h -- the best plan: enumerate, drop what does not fit, rank the rest.
 *
 *     struct search_result r;
 *     if (search(&options, &r) < 0)
 *         return 2;
 *     for (int64_t i = 0; i < r.nfit; i++)
 *         ... r.found[i].plan, r.found[i].step_s ...      (fastest first)
 *     search_free(&r);
 *
 * Where PyTorch's allocator decides (model/memory/reserved.h), what is allocated drops plans first; the allocator is
 * replayed for those that are shown: the fastest SEARCH_LOOKS, the fastest of each strategy and dialect, and the
 * first SEARCH_FRONT that are worth a line for their memory.  Twice what is allocated has been enough in all plans seen:
 * one with that much room is not replayed, nor is such a stage of a pipeline in which another one needs more.
 *
 * Where no plan of a strategy, micro-batch and recompute fits with room, its variants that save device memory are looked
 * at, too: with AdamW's fused form, and with states, parameters or activations elsewhere (knobs from KNOB_SAVES on), of
 * the one nearest to the framework's defaults, or where none of those fits of the one that needs least.  Data elsewhere is for where it
 * is needed: once as many ideas as are asked for keep all in device memory, grids among them, it is looked at only where it may be as
 * fast as the fastest.
 *
 * The order is that of step time, then of memory, then of enumeration: the same
 * for any number of threads.  Two plans whose schedules are equal, entry for entry
 * and byte for byte, count once. */
#ifndef DPX_SEARCH_H
#define DPX_SEARCH_H

#include <stdint.h>

#include "model/memory/evaluate.h"
#include "model/plan/optimizer_choice.h"
#include "model/plan/plan.h"
#include "sim/clock/timeline.h"
#include "sim/search/ties.h"

/* Tensor, context and pipeline parallelism (grid.h): not looked at; where data parallelism alone has no plan that fits; that, and what
 * is faster than data parallelism alone; nothing else is looked at. */
enum grid_use { GRID_NONE, GRID_NEXT, GRID_BESIDE, GRID_ONLY };

struct search_options {
    const struct model   *model;
    const struct cluster *cluster;
    int64_t      seq, global_batch;
    uint64_t     strategies, dialects;      /* bit sets */
    enum kernel_set kernels;
    bool         usual_kernels;             /* but dialect megatron, which shares no kernels with others, has its usual ones */
    enum dtype   precision;
    int64_t      micro_batch;               /* 0: any that divides */
    uint64_t     recompute;                 /* bit set of enum recompute; 0: the usual ones, which are others for a grid */
    const struct optimizer_choice *optimizer;           /* of all plans; cells without it have none (enumerate_left_out()).  NULL: not chosen */
    const enum loss_kind *loss;             /* of all plans; cells without it have none.  NULL: what each framework does */
    bool         in_place;                  /* no variants that keep data elsewhere than in device memory */
    int          threads;                   /* 0: as many as cores */
    enum grid_use grid;
    int64_t      ideas;                     /* so many are shown (ranking.h); 0: SEARCH_IDEAS */
    bool         exhaustive;                /* no bound leaves a plan out: for tests */
    bool         answer_only;               /* only whether a plan fits, and the first of the ranking: where none does, what lacks least is
                                             * not sought; the best of each strategy and the smallest are not replayed; what is too slow to
                                             * be that first one is not looked at */
    bool         no_front;                  /* the front of memory against time is not shown: its allocators are not replayed for that */
    bool         nearest_in_place;          /* where nothing fits: what lacks least is sought after all, of plans that keep all in device memory */
    /* Which plans count (what a tool can run); NULL: all.  It is handed accept_what. */
    bool       (*accept)(const struct plan *p, const void *what);
    const void  *accept_what;
    /* Sets what that tool leaves no choice of in a plan of defaults; NULL: nothing.  It is handed accept_what, too. */
    void       (*settle)(struct plan *p, const void *what);
    /* Asked now and then by the thread that called search(): may it go on?  `done` of `total` plans, which grows, were
     * looked at; a grid beside data parallelism begins at 0 again; total 0: nothing new is told.  NULL: it goes on. */
    bool       (*go_on)(void *of, int64_t done, int64_t total);
    void        *go_on_of;
    bool         keeps;                     /* once it says no: what was found until then is the answer (`partial`) */
};

/* What a ranking asks of a plan beside its time; the retries of its allocator are in the interval and in no view. */
struct seen_step {
    bool    known;
    double  views[TIES_VIEWS];
    double  low_s, high_s;
    enum basis basis;
};

struct found {
    struct plan plan;           /* shares the model of the options */
    int64_t needed, available;  /* bytes of the fullest rank; where the allocator refused, of all
                                 * memory with the request that failed */
    double  over;               /* of the memory that is shortest, needed / there is - 1; above 0 where it does not fit */
    bool    fits;
    bool    looked_at;          /* PyTorch's allocator was replayed, or does not decide */
    bool    tight;              /* it needs the headroom, or gives its cache back (model/memory/reserved.h) */
    bool    elsewhere;          /* a variant that keeps data elsewhere than in device memory */
    bool    assessed;           /* it was lowered, or left out by a bound */
    bool    refused;            /* such a one that could not be planned, or priced, on this cluster */
    bool    at_least;           /* left out by a bound, which `needed` is (bounds.h): it stands for all such plans that differ
                                 * only in buckets, units, prefetch and such */
    bool    too_slow;           /* left out by a bound of time while the search runs (by_time.h) */
    bool    waits;              /* for memory (simulate_waits_for_memory), where that is known: */
    bool    waits_known;
    int64_t taken;              /* bytes of a GPU that decide (evaluation_taken), where a replay said that it fits; else 0 */
    bool    told;               /* an evaluation of it has said what it takes for granted (search_brief.c) */
    double  bound_s;            /* of a grid: what its step takes at least (bounds.h) */
    double  step_s;             /* with contention; only of plans that fit */
    double  retry_s;            /* of it, once looked_at: memory taken from the device and given back (simulate_retry_s) */
    int64_t steady_retries, steady_calls;       /* the same as counts (model/memory/reserved.h) */
    double  compute_s, exposed_s, optimizer_s, idle_s, slowest_s;
    double  exposed_by[NCOLL];  /* by collective (enum coll_op) */
    double  away_s[NAWAY];      /* work outside of device memory (timeline.h) */
    int64_t stands_for;         /* so many other plans, which the same bound left out (at_least) */
    struct seen_step seen;      /* of plans of a grid that may be in the answer: the ranking evaluates the others */
    uint64_t key;               /* of its schedules */
    int64_t order;              /* of enumeration */
    int     program;            /* of its kernels, while the search runs; -1: none was kept */
};

enum { SEARCH_LOOKS = 8, SEARCH_FRONT = 8, SEARCH_IDEAS = 10 };
/* A plan that saves less memory than this against a faster one is not worth a line. */
#define SEARCH_WORTH .98
/* How much slower than the fastest a tie may be, however wide the prediction's error. */
#define SEARCH_NEAR 1.05

struct search_result {
    bool    stopped;                /* by go_on(): nothing else is set */
    bool    partial;                /* by go_on() ended it: the counts leave out plans that were not looked at */
    struct found *found;        /* nfit fitting plans by time, then the others by what they lack */
    int64_t n, nfit;
    int64_t considered;         /* plans enumerated, duplicates included; those of one cell, micro-batch and recompute whose kernels
                                 * keep too much count once, unless they were looked at after all.  The sum of the three that follow,
                                 * and what could not be planned on this cluster */
    int64_t cut;                /* of these, left out because a bound says that they do not fit */
    int64_t cut_by_time;        /* of these, left out because a bound says that they are no tie with the fastest */
    int64_t lowered;            /* of these, lowered and put on the ledger */
    int64_t elsewhere;          /* of these, variants that keep data elsewhere than in device memory */
    bool    elsewhere_left_out; /* slow ones of those were not looked at, so that the least memory of all is not known: search_pareto() has none of them */
    int64_t grid;               /* of these, with tensor, context, pipeline or expert parallelism beside data parallelism alone */
    int64_t too_long;           /* such plans that were left out: more than GRID_PASSES passes over blocks in a step */
    uint64_t looked;                /* dialects that had a candidate, as bits; of others, where a grid was tried: */
    char    why_none[NDIALECT][256];    /* why the first was refused */
    char    alone[256];         /* why data parallelism alone has no plan, where a grid's answer took its place; else empty */
    int64_t nrefused;           /* of these, those that could not be planned on this cluster, */
    char    refused[256];       /* and why the first could not; empty: all could */
};

/* 0, or -1 with the reason reported: nothing to search (the global batch does not
 * divide, no cell of the table is left), or go_on() said no. */
int  search(const struct search_options *o, struct search_result *out);

/* The same of data parallelism alone.  `beside`, unless NULL: once it is known what fits in device memory, grids are looked at as well
 * (grid_beside); NULL in it where nothing does.  For grid_join() or grid_drop(), whatever is returned. */
struct grid;
int  search_data(const struct search_options *o, struct grid **beside, struct search_result *out);
/* The order of struct found: what fits first, by time, then by memory, then as enumerated.  For qsort(). */
int  found_by_rank(const void *a, const void *b);
void search_free(struct search_result *r);

/* The verdict on a plan found, evaluated by evaluate_allocated(): the search's where it has replayed the allocator,
 * else that of a replay; `reserved` stays unknown.  Bytes of a GPU that decide, where it replayed and the plan fits; else 0. */
int64_t search_verdict(const struct found *f, struct evaluation *e);

/* Marks on the front of memory against time, among the fitting: out[i] true when no
 * other plan is both faster and smaller. */
void search_pareto(const struct search_result *r, bool *out);
/* The same, were those that `but` marks not there. */
void search_pareto_but(const struct search_result *r, const bool *but, bool *out);

#endif
