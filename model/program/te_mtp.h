/* te_mtp.h -- multi-token prediction of Megatron-LM: a layer more behind the decoder, which predicts the token after the next, and its loss. */
#ifndef DPX_TE_MTP_H
#define DPX_TE_MTP_H

#include "model/program/te_model.h"

/* *hidden, the decoder's normed output, and *ahead, what the depth makes of it: parts of one tensor.  table: the output layer's
 * weight, where tokens are embedded by it; else 0.  again: the layer runs again in backward (b->region). */
void te_mtp(struct torch_model *b, var table, bool again, var *hidden, var *ahead);
/* What runs again: all but the embedding. */
var  te_mtp_layer(struct torch_model *b, var hidden, var next);
/* The depth's loss by the output layer `l`; x, whose gradient will begin it.  Takes over the name `ahead`. */
var  te_mtp_loss(struct torch_model *b, const struct te_linear *l, var x, var ahead);

#endif
