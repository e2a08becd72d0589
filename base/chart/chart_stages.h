/* chart_stages.h -- a pipeline's step as a figure: a lane for each stage, time to the right.
 *
 *     struct chart *c = chart_new(CHART_SPANS, "pipeline", "Stages by time", "...");
 *     chart_stages(c, "predicted", stages, n, step_s);
 *     chart_stages(c, "measured", stages, n, step_s);
 *
 * Computing covers a lane; collectives and messages show where the stage computes nothing meanwhile, and what is left until
 * the step ends is bubble. */
#ifndef DPX_CHART_STAGES_H
#define DPX_CHART_STAGES_H

#include "base/chart/chart.h"

enum stage_does { STAGE_FORWARD, STAGE_BACKWARD, STAGE_WEIGHTS, STAGE_OPTIMIZER, STAGE_COLLECTIVE, STAGE_MESSAGE, NSTAGE_DOES };

/* number: of the micro-step; below 0: none.  Spans are in the order in which they begin; those of computing do not overlap. */
struct chart_stage_span { enum stage_does does; int number; double from, to; };
struct chart_stage { const char *name; const struct chart_stage_span *span; int64_t n; };

/* Adds lanes under a head (NULL: none).  Everything is copied. */
void chart_stages(struct chart *c, const char *head, const struct chart_stage *stage, int n, double until);

#endif
