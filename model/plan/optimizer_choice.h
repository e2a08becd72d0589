/* optimizer_choice.h -- an optimizer and a form of it that a question chooses for all of its plans; not every cell has them.
 *
 *     struct optimizer_choice c = OPTIMIZER_CHOICE;
 *     c.optimizer = OPTIMIZER_MUON;
 *     plan_defaults(&p, strategy, dialect, precision);
 *     if (optimizer_choose(&p, &c, "search") < 0)
 *         ... the strategy falls away, for the reason reported ... */
#ifndef DPX_OPTIMIZER_CHOICE_H
#define DPX_OPTIMIZER_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

#include "model/plan/plan.h"

/* enum optimizer and enum optimizer_form; -1: not chosen, the plan keeps its own. */
struct optimizer_choice { int optimizer, form; };
#define OPTIMIZER_CHOICE { .optimizer = -1, .form = -1 }

/* NULL chooses nothing. */
static inline bool optimizer_is_chosen(const struct optimizer_choice *c) { return c && (c->optimizer >= 0 || c->form >= 0); }

/* Sets what is chosen (NULL: nothing).  0, or -1 reported: the plan's cell has no such optimizer, or no choice of forms.  What else a
 * dialect refuses of it is plan_check()'s. */
int optimizer_choose(struct plan *p, const struct optimizer_choice *c, const char *where);

/* The optimizer of another plan, and its form where the cell has forms, for a plan that got another cell's defaults.  false: the cell
 * has no such optimizer. */
bool optimizer_carry(const struct plan *from, struct plan *p);

/* ", optimizer muon, optimizer form fused"; "" where nothing is chosen. */
void optimizer_choice_text(const struct optimizer_choice *c, char *to, size_t size);

#endif
