/* measured_gaps.h -- what of a plan's step was not measured on the machine, in words. */
#ifndef DPX_MEASURED_GAPS_H
#define DPX_MEASURED_GAPS_H

#include <jansson.h>

#include "model/plan/plan.h"
#include "model/schedule/schedule.h"

struct gap {
    char what[96];              /* "all-gather fp32 of 96 MiB", "qkv 512 x 1152 x 384" ... */
    bool outside;               /* something like it was measured: this is extrapolated from there */
};

enum { GAPS_MOST = 64 };

/* Different ones, in order of appearance in the steady step; how many, at most GAPS_MOST.  None where
 * the cluster's machines were not measured at all. */
int measured_gaps(const struct plan *p, const struct schedules *s, struct gap out[GAPS_MOST]);

/* {"basis": ..., "missing": [...], "outside": [...]}, or null without any measurement. */
json_t *measured_json(const struct plan *p, const struct schedules *s);

/* The same as lines for a person. */
void measured_print(const struct plan *p, const struct schedules *s, FILE *to);

#endif
