/* torch_split.h -- where TorchDynamo's DDPOptimizer cuts the graph of a compiled block.
 *
 * Inside DistributedDataParallel.forward() a graph is cut (torch/_dynamo/backends/distributed.py, DDPOptimizer.compile_fn()): from its end on, in
 * front of the operation whose parameters make the sum reach DDP's bucket_cap_mb, and once where they reach the size of DDP's first bucket.  Each
 * piece is a graph of its own for AOTAutograd: what crosses a cut lies in memory, a piece keeps its inputs, and its gradients come when it ends. */
#ifndef DPX_TORCH_SPLIT_H
#define DPX_TORCH_SPLIT_H

#include "model/program/torch_model.h"

enum { TORCH_USES = 48 };

struct torch_splits {
    bool    on, known;              /* known: `cut` is; before, uses are counted */
    int64_t cap, first;             /* bytes: of a bucket, of the first one */
    int     n, at;                  /* operations of a block that read parameters that train; how many have come in this block */
    int64_t bytes[TORCH_USES];      /* of those */
    bool    cut[TORCH_USES];        /* a graph begins with it */
    int     graph[TORCH_USES];      /* the first nodes of the graphs of the block that is replayed, but for its first */
    int     ngraphs;
};

/* What DDP makes of a plan. */
void torch_splits_init(struct torch_splits *s, const struct plan *p);
/* A block begins; all of one have come. */
void torch_splits_begin(struct torch_splits *s);
void torch_splits_decide(struct torch_splits *s);
/* The next operation reads the weight and the bias of a role. */
void torch_splits_use(struct torch_model *b, enum tensor_role role, enum adapter as);

#endif
