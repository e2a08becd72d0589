/* recipe_loss.h -- the loss of TRL's SFTTrainer. */
#ifndef DPX_RECIPE_LOSS_H
#define DPX_RECIPE_LOSS_H

#include <jansson.h>

#include "base/notes.h"
#include "model/plan/plan.h"

/* Of its SFTTrainer alone.  TRL since 1.15 has no whole logits (loss "chunked-logprob"), whatever loss_type says.  Where that is not planned
 * of this model or strategy, whole logits are, with a note.  Older versions had others: told, with what they take. */
void recipe_trl_loss(const json_t *config, struct plan *p, struct notes *notes);

#endif
