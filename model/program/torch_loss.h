/* torch_loss.h -- what turns the last hidden states into a loss, by the plan's "loss". */
#ifndef DPX_TORCH_LOSS_H
#define DPX_TORCH_LOSS_H

#include "model/program/torch_model.h"

/* Logits of n, the hidden states behind the final norm, and their cross-entropy, on the tape; the names n and logits
 * are dropped. */
var torch_loss(struct torch_model *b, var n);

#endif
