/* graphs.h -- CUDA graphs: what a plan's framework captures once and replays since.
 *
 * torch.compile(mode="reduce-overhead") records each compiled block's forward and backward (inductor's cudagraph trees), from the first
 * step on.  Megatron-core captures each layer's, or parts of it, behind the first step, which is eager (`local`: CudaGraphManager;
 * `transformer_engine`: make_graphed_callables()), or both passes of a whole step (`local` with full_iteration).
 *
 * A replay is one call of the issuing thread.  What a graph's kernels allocate lies in a pool that all graphs share and nothing
 * else uses; its segments are never given back. */
#ifndef DPX_GRAPHS_H
#define DPX_GRAPHS_H

#include "model/plan/plan.h"

bool graphs_has(const struct plan *p);
/* Whose code replays them, where graphs_has(). */
enum graphs_by { GRAPHS_BY_COMPILER, GRAPHS_BY_MEGATRON, GRAPHS_BY_TE };
enum graphs_by graphs_by(const struct plan *p);
/* Is a step's forward and backward one graph? */
bool graphs_of_step(const struct plan *p);
/* Does a graph hold this part of a layer: "attn", "mlp", "moe", "moe_router"? */
bool graphs_hold(const struct plan *p, const char *part);
/* Is the first step eager, and what it left in PyTorch's cache given back before the capture? */
bool graphs_come_later(const struct plan *p);
/* Bytes outside that pool which a graph reads each time, and which are never freed: what goes into the first of a row of graphs, and the
 * gradient that goes into the last. */
int64_t graphs_static_bytes(const struct plan *p);

/* 0, or -1 with the key named: what the framework refuses, in its words where it has some. */
int graphs_check(const struct plan *p, const char *where);
/* What a user of the plan should know; NULL: nothing. */
const char *graphs_note(const struct plan *p);

#endif
