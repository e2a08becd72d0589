/* lower_paper.h -- what the files of the papers' strategies share. */
#ifndef DPX_LOWER_PAPER_H
#define DPX_LOWER_PAPER_H

#include "model/lower/common/lower_internal.h"

struct at { enum unit_class c; int i, by; };

struct paper {
    const struct plan *p;
    const struct local_model *local;
    struct schedules  *s;
    struct unit_map    map;
    struct recipe      r;
    int64_t            n;                   /* ranks a shard group has */
    bool shards_optimizer, shards_grads, shards_params, prefetches;
    bool fresh_grads;                       /* a micro-step's gradients have a buffer of their own: stages 2
                                             * and 3, and `deterministic` in all */
    int64_t            numel[NUC], padded[NUC];
    int                params[NUC], grads[NUC], optimizer[NUC], gathered[NUC], full_grads[NUC];
    int                acts[NPIECE];
    int                own_grads[NUC], own_params[NUC];    /* layouts: this rank's part of a whole unit */
    int64_t            partial[NUC];        /* elements of which every tensor-parallel rank has a part of a sum */
    int                partial_grads[NUC], sums[NUC];       /* a layout of them, and a buffer in which they are side by side */
    int                norm_grads[NUC];     /* layouts: of own_grads, what no other rank counts too */
    int                others_grads;                        /* and of the whole model what is not its part */
    int                tied_grads;          /* of a stage: the embedding's, which the last stage has a copy of */
    int64_t            rank_in_group;
    uint16_t           ev_gather;
    enum group         group;               /* where states are sharded */
    /* What the pass that is emitted runs: all, or one stage of a pipeline. */
    struct at          root;                /* its unit of what is no block's; c NUC: it has none */
    int                unit0, unit1, block0, block1;    /* units and blocks, one past the last */
    bool               embeds, heads;
    enum { ALL_OF_IT, OF_INPUTS, OF_WEIGHTS } part;     /* of a backward */
    int                kept_blocks, kept_ends;  /* instances of its micro-step's activations begin here */
};

/* Buffers of a class of units: their sizes, and what they hold. */
void paper_declare(struct paper *z, enum unit_class c);

#endif
