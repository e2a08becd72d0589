/* zero3_tree.h -- the modules of a model in the order in which they call each other;
 * for zero3_trace.c only. */
#ifndef DPX_ZERO3_TREE_H
#define DPX_ZERO3_TREE_H

#include <stdbool.h>

#include "model/arch/transformer.h"
#include "model/plan/local_model.h"

/* Nodes, and the order in which they open and close: node+1 opens, -(node+1)
 * closes, 0 stands for the blocks.  A block may have a norm for each head, twice; one node
 * outside of the blocks may be called twice. */
enum { Z3_MAX_NODES = 48 + 2 * MODEL_MAX_LISTED };

struct z3_node {
    char path[96];
    int  module;                    /* index in model->modules (of block 0), or -1 */
    bool no_release;                /* no release in backward */
    bool no_hook;                   /* no hook in backward at all */
    bool dropout;
    bool saves;                     /* a tensor that recomputation makes again */
    bool rotary;                    /* only in layers with rotary positions */
    bool function;                  /* called, but not a module: no hooks */
    bool dead_in, dead_out;         /* nothing needs a gradient of what it reads, what it makes; in a block: in the first one
                                     * (zero3_flow.c) */
    int  external;                  /* module whose weight is this one's, too, from the first forward on; -1: none */
    int  asks;                      /* module whose weight's dtype is asked for: where it opens if it has none itself, else
                                     * where it closes; -1: none */
    bool leaf;                      /* all below it is fetched at once; module is the first of these */
};

struct z3_tree {
    struct z3_node node[Z3_MAX_NODES];
    int n;
    int order[2 * Z3_MAX_NODES + 2], norder;
};

/* Is the module below `path`? */
bool zero3_tree_below(const struct module *of, const char *path);

/* What is outside of the blocks, and one block. */
void z3_trees(const struct local_model *local, struct z3_tree *outer, struct z3_tree *block);

/* Marks what is dead where not everything trains (zero3_flow.c). */
void z3_flow(const struct local_model *local, struct z3_tree *outer, struct z3_tree *block);

#endif
