/* phases_role.h -- one role of a phase plan: its plan, bytes and seconds. */
#ifndef DPX_PHASES_ROLE_H
#define DPX_PHASES_ROLE_H

#include "sim/plan/phases.h"

/* The plan of role i, on the phases' cluster.  0, or -1 reported. */
int phases_role_plan(struct phases *p, int i);
/* Bytes between steps and at the peak of one, and its seconds.  0, or -1 reported. */
int phases_role_figures(struct phases *p, int i, const char *db, bool timed);
/* A forward of role i in step k, with so many samples a rank.  0, or -1 reported. */
int phases_role_forward(struct phases *p, int k, int i, int64_t micro_batch, const char *db, struct forward *out);

/* Frees an evaluation, and its plan where that is not NULL; *e may be NULL. */
void phases_drop(struct plan *p, struct evaluation **e);

#endif
