/* sweep.h -- one question at many points: axes, their points, what each of them gives.
 *
 *     struct sweep s;
 *     if (sweep_axes(&s, &over) < 0)                           from `--over nodes=1..64*2 seq=4k,8k`
 *         return 2;
 *     for (int64_t i = 0; i < s.points; i++) {
 *         struct sweep_row row;
 *         sweep_point(&s, i, &row);
 *         ...
 *     }
 *     sweep_free(&s);
 *
 * VALUES of an axis: words or numbers with commas between them (ddp,fsdp), FROM..TO (whole steps of 1), FROM..TO+STEP,
 * FROM..TO*FACTOR, and any of these together (1..4,8).
 *
 * With a plan each point is that plan with keys changed (plan_source.h) and is evaluated; without one each point is
 * searched, and its row is that of the first plan of the answer.  The last axis runs fastest; the one that changes the
 * number of ranks is put last, so that its efficiency refers to the first point of its own series. */
#ifndef DPX_SWEEP_H
#define DPX_SWEEP_H

#include "sim/plan/money.h"
#include "sim/plan/plan_source.h"
#include "sim/plan/search_args.h"

enum { SWEEP_AXES = 8, SWEEP_WHAT = 200 };
#define SWEEP_POINTS 1000000

struct sweep_axis {
    char   key[96];             /* as it was typed */
    char **value;
    int    n;
    bool   numeric, world;      /* all values are numbers; it changes how many ranks there are */
};

struct sweep {
    struct sweep_axis axis[SWEEP_AXES];
    int      naxes;
    int64_t  points;
    const struct plan *plan;            /* NULL: search */
    const struct search_args *ask;      /* of a search; with a plan its global_batch, if not 0 */
    const struct money_question *money;
    const char *db;
    double   base;                      /* tokens/s of a GPU at the first point of the series; 0: none fitted yet */
};

enum sweep_state { SWEEP_FITS, SWEEP_TIGHT, SWEEP_NO, SWEEP_REFUSED };

struct sweep_row {
    enum sweep_state state;
    int64_t gpus, bytes, available;
    double  step_s, low_s, high_s, tokens_per_s, each, mfu;     /* each: tokens/s of a GPU */
    double  efficiency;                 /* each / that of the series' first point that fits */
    double  days, cost;                 /* below 0: not asked */
    char    what[SWEEP_WHAT];           /* the plan's label, or why there is none */
};

/* 0, or -1 with the reason reported.  Keys are checked, values only when their point is reached. */
int  sweep_axes(struct sweep *s, const struct opt_pairs *over);
void sweep_free(struct sweep *s);

/* The value of axis a at point i. */
const char *sweep_value(const struct sweep *s, int64_t i, int a);

/* The points must be asked for in their order.  A point that cannot be is SWEEP_REFUSED with the reason in `what`;
 * nothing is reported. */
void sweep_point(struct sweep *s, int64_t i, struct sweep_row *out);

const char *sweep_state_name(enum sweep_state s);

/* Columns that a figure can show: "tokens_per_s" ... ended by NULL; a row's value, NAN where it has none; its axis in
 * words. */
extern const char *const sweep_metrics[];
double      sweep_metric(const struct sweep_row *r, int metric);
const char *sweep_metric_words(int metric);

#endif
