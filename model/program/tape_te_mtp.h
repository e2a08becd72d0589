/* tape_te_mtp.h -- autograd functions of multi-token prediction: see te_mtp.h. */
#ifndef DPX_TAPE_TE_MTP_H
#define DPX_TAPE_TE_MTP_H

#include "model/program/tape.h"

/* gather_from_tensor_model_parallel_region(): columns that ranks have, put together; back: the rank's own, without a collective. */
var te_gather_columns(struct tape *t, const char *name, var x, int64_t ranks);
/* MTPLossAutoScaler: x itself, whose backward is the beginning of the loss's too; keeps the loss. */
var te_attach_loss(struct tape *t, const char *name, var x, var loss);

/* Backward of the nodes that these make. */
void tape_run_te_mtp(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
