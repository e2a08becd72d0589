/* tape_parts.h -- products in parts beside the collective that feeds them or takes their result: "async TP".
 *
 * torch/_inductor/fx_passes/micro_pipeline_tp.py joins a gather with the products that read it, and a product with the
 * reduce-scatter of its result; tests/golden/grid/compile.jsonl has which.  torch/distributed/_symmetric_memory/__init__.py
 * (2.15) then runs n parts on two streams, _pipelined_all_gather_and_consume() and _pipelined_produce_and_all2all():
 *
 *     gather    a rank's share into its workspace; products of its own share, beside them the copy of the next rank's share,
 *               products of that, beside them ...
 *     scatter   the product for the next rank into the workspace, the one after it beside that rank's copy of it, ..., its own
 *               last; then the sum of n parts
 *
 * A copy is a rank's pull of one part out of another's memory, by copy engines: an all-to-all in which all goes to one rank.
 * The parts of a product take what its own shape takes; that two streams fill each other's last wave is not counted, nor are
 * the barriers. */
#ifndef DPX_TAPE_PARTS_H
#define DPX_TAPE_PARTS_H

#include "model/program/tape.h"

/* A gather of `elems` elements in all, `ranks` parts, that the products which follow read part by part; its store. */
int  tape_gather_in_parts(struct tape *t, int64_t elems, enum dtype dt, int64_t ranks);
/* The last kernel, a product whose result has memory: by parts, if it reads what is gathered so or is scattered so. */
void tape_product_in_parts(struct tape *t, int operand, enum dtype dt);
/* The products that read it are there. */
void tape_parts_gathered(struct tape *t);
/* The sum of the parts of the product before: a kernel that needs them all.  False: that product is whole. */
bool tape_sum_parts(struct tape *t, int64_t elems, enum dtype dt);

#endif
