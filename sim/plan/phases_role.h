/* phases_role.h -- one role of a phase plan: its plan, bytes and seconds. */
#ifndef DPX_PHASES_ROLE_H
#define DPX_PHASES_ROLE_H

#include <stdbool.h>

#include "sim/plan/phases.h"

/* The plan of role i, on the phases' cluster.  0, or -1 reported. */
int phases_role_plan(struct phases *p, int i);
/* Bytes between steps and at the peak of one, and its seconds.  0, or -1 reported. */
int phases_role_figures(struct phases *p, int i, const char *db, bool timed);
/* A forward of role i in step k, with so many samples a rank.  0, or -1 reported. */
int phases_role_forward(struct phases *p, int k, int i, int64_t micro_batch, const char *db, struct forward *out);

/* The engine's responses of a phase are as many as can be followed: 0, or -1 reported. */
int phases_role_check_responses(const struct phases *p);

/* ---- samples as long as they are, of a role without padding ---- */

/* Micro-steps that so many samples of all ranks take, `micro` of them in one, or packed; and what one has for "seq". */
struct phases_rows { int64_t rows, seq; };
struct phases_rows phases_rows_of(const struct phases *p, int i, int64_t micro, int64_t samples);
/* Is a sample shorter than what role i is planned for, and not padded? */
bool phases_is_short(const struct phases *p, int i);
/* Seconds of a forward of such micro-steps.  0, or -1 reported. */
int phases_short_forward(const struct phases *p, int i, int64_t micro, int64_t seq, const char *db, struct cost *first, struct cost *next);

/* ---- routers that nothing balances ----
 *
 * A router sends what it learned to send, and no framework of post-training balances it (moe_router_load_balancing_type "none", aux losses off).  The
 * busiest of the ranks that share experts then gets 1.30 to 4.01 times the mean of tokens, in each micro-batch and layer (UltraEP, arXiv 2606.04101, its
 * abstract: mixtures of 106B to 671B, training and prefill, before balancing).  Seconds are those of the geometric mean, 2.28; the interval's ends those of
 * 1.30 and 4.01.  Another rank is the busiest in each layer, and they wait for each other there, while over all layers each holds about the
 * mean: bytes stay those of the plan. */
bool phases_is_uneven(const struct phases *p, int i);

/* Frees an evaluation, and its plan where that is not NULL; *e may be NULL. */
void phases_drop(struct plan *p, struct evaluation **e);

#endif
