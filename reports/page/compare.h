/* compare.h -- the runs of a report: which ones, and what can be said of each.
 *
 *     struct comparison c;
 *     if (compare_read(db, ids, n, &c) < 0) ...
 *     ... c.run[i], c.best ...
 *     compare_free(&c);
 *
 * Runs stand side by side when they do the same work on the same machine: model, tokens of a step,
 * number of ranks, host and device.  Unless runs are asked for by number, the group is shown of which
 * most plans finished, of each plan the newest run. */
#ifndef DPX_COMPARE_H
#define DPX_COMPARE_H

#include <stdbool.h>

#include "calib/store/runs.h"
#include "calib/store/runs_memory.h"
#include "calib/store/runs_rates.h"
#include "calib/store/runs_checkpoints.h"
#include "calib/store/runs_stages.h"

enum { MAX_RUNS = 12, MAX_OPS = 8 };

/* What a plan says of its work; texts are static or "". */
struct work {
    int64_t seq, micro_batch, tokens;       /* tokens of the global batch; 0: the plan does not say */
    char    precision[8], recompute[32];      /* "full", "full every 4 blocks" */
    char    degrees[96], schedule[32];      /* "tp 2 pp 4", "1f1b" */
};

/* One collective in the sampled step of rank 0: time on its stream, and that part of it during
 * which nothing ran on the compute stream.  NaN: not known. */
struct use { const char *op; double predicted_s, measured_s, predicted_exposed_s, exposed_s; };

struct chosen {
    struct run_record  rec;
    struct run_parts   parts;
    struct run_moments moments;
    struct run_checkpoints saved;           /* n = 0: it saved and loaded none */
    struct run_stages  stages;              /* n = 0: no pipeline */
    int64_t     available;                  /* -1: not known */
    struct work work;
    char        label[160];
    int64_t     step, rank;                 /* whose entries are drawn; step -1: none of a steady step */
    double      late;                       /* how many times too long the machine's calibration may be; 1: it was quiet */
    double      predicted_span, span;       /* from the begin of that step to the end of its last entry */
    struct use  use[MAX_OPS];
    int         nuses;
};

struct comparison {
    struct run_list all;
    struct rates    rates;
    struct chosen  *run;
    int  n;
    bool together;              /* all of `run` do the same work on the same machine */
    int  left_out;              /* of the group, for want of room */
    int  best, second;          /* by tokens/s among finished runs; -1: none */
};

/* ids: the runs asked for, n = 0: the largest group.  0, or -1 reported with nothing to free. */
int  compare_read(struct db *db, const int64_t *ids, int n, struct comparison *out);
void compare_free(struct comparison *c);

void compare_work_of(const char *plan, struct work *out);
/* Model's name, "a model" where the plan has none. */
const char *compare_model_words(const struct run_row *r);
/* dp, ddp, zero1, zero2, zero3, fsdp: 0 to 5; others 6. */
int  compare_strategy_rank(const char *strategy);
/* Is this entry of the sampled step? */
bool compare_entry_sampled(const struct chosen *r, const struct run_entry *e);

#endif
