/* layers.h -- the layers of a candidate's stages. */
#ifndef DPX_LAYERS_H
#define DPX_LAYERS_H

#include "model/plan/plan.h"

/* Megatron-LM's layers must divide by the stages.  Where they do only with the embedding and the head as one each, these count
 * (account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split); else the stages are laid out. */
void layers_divide(struct plan *p);

#endif
