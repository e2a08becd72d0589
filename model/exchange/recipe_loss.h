/* recipe_loss.h -- the loss of TRL's trainers. */
#ifndef DPX_RECIPE_LOSS_H
#define DPX_RECIPE_LOSS_H

#include <jansson.h>

#include "base/notes.h"
#include "model/plan/plan.h"

/* Of SFT, GRPO and RLOO.  TRL since 1.15 has no whole logits (loss "chunked-logprob"), whatever loss_type says.  Where that is not planned of
 * this model or strategy, whole logits are, with a note.  Older versions had others: told, with what they take.  0, or -1 reported: what TRL
 * itself refuses. */
int recipe_trl_loss(const json_t *config, const char *where, struct plan *p, struct notes *notes);

#endif
