/* cut_adapter.h -- what DTensor moves for the adapters of a row-parallel layer: the cheaper of two ways, by its own estimate
 * (torch/distributed/tensor/_collective_utils.py, redistribute_cost()). */
#ifndef DPX_CUT_ADAPTER_H
#define DPX_CUT_ADAPTER_H

#include "model/plan/plan.h"

/* `rows` positions by a layer of n outputs: lora_B is gathered; else what lora_A gives is scattered. */
bool cut_adapter_gathers(int64_t rows, int64_t n);
/* By a layer of k inputs, in backward: lora_A's columns would be exchanged for rows; else the gradient of what it gives is gathered. */
bool cut_adapter_exchanges(const struct plan *p, int64_t k);

#endif
