/* expert_capacity.h -- how many rows an expert takes at most of the tokens of one rank, where a framework says so. */
#ifndef DPX_EXPERT_CAPACITY_H
#define DPX_EXPERT_CAPACITY_H

#include "model/plan/plan.h"

/* Rows: ceil(tokens x used / experts x factor), `least` at least.  megatron-core 0.16.1, moe_utils.get_capacity(), which has no least;
 * DeepSpeed 0.19.8, moe/sharded_moe.py, _capacity(), whose min_capacity is 4 if nothing else is said. */
int64_t expert_capacity(int64_t tokens, int64_t used, int64_t experts, double factor, int64_t least);

/* Of a plan's micro-step: tokens that a rank routes; of so many what an expert takes, 0: as many as come. */
int64_t expert_capacity_tokens(const struct plan *p);
int64_t expert_capacity_of(const struct plan *p, int64_t tokens);

/* Rows that the busiest rank computes for `rows` that each rank sends: times the imbalance, rounded to the nearest. */
int64_t expert_rows_received(int64_t rows, double imbalance);

/* Products of 8 bits ask for a multiple of so many rows of each expert: 16, with mxfp8 32 (megatron-core's get_fp8_align_size()). */
int64_t expert_rows_unit(const struct plan *p);

/* Of so many tokens the rows that a rank sends, and that the busiest computes, which a capacity bounds. */
struct expert_rows { int64_t sent, received; };
struct expert_rows expert_rows_of(const struct plan *p, int64_t tokens);

#endif
