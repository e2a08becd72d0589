/* runs_stages.h -- where the time of each stage of a pipeline went in a steady step: predicted before a run, measured after it.
 *
 *     runs_stages_predicted(db, run, stage, n);        (right after runs_begin)
 *     runs_stages_measured(db, run, stage, n);         (before runs_end)
 *     struct run_stages l;
 *     if (runs_stages(db, run, &l) == 0) { ... run_stages_free(&l); }
 *
 * work + messages + bubble is the step, the same for all stages (sim/clock/step.h). */
#ifndef DPX_RUNS_STAGES_H
#define DPX_RUNS_STAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "calib/store/db.h"

struct run_stage_s { double work, messages, bubble; };         /* seconds; NaN: not known */
struct run_stage { int64_t stage, rank; struct run_stage_s predicted, measured; };

/* Of the side that the name says.  0, or -1 with nothing recorded.  A prediction cannot be changed. */
int runs_stages_predicted(struct db *db, int64_t run, const struct run_stage *s, int n);
int runs_stages_measured(struct db *db, int64_t run, const struct run_stage *s, int n);

/* By stage; n = 0: it had no pipeline.  0, or -1 reported. */
struct run_stages { struct run_stage *stage; int n; };
int  runs_stages(struct db *db, int64_t run, struct run_stages *out);
void run_stages_free(struct run_stages *s);

/* Bubble as a share of the step, the mean over stages; NaN: not known, or no stages. */
double runs_stages_bubble(const struct run_stage *s, int n, bool predicted);

#endif
