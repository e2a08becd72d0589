/* torch_number.h -- the loss of a model whose head has one column: a reward model's, a critic's. */
#ifndef DPX_TORCH_NUMBER_H
#define DPX_TORCH_NUMBER_H

#include "model/program/torch_model.h"

/* Numbers of n, the hidden states behind the final norm, and their loss, on the tape; n's name is dropped. */
var torch_number_loss(struct torch_model *b, var n);
/* A critic's loss of a number a token. */
var torch_number_of_tokens(struct torch_model *b, var values);

#endif
