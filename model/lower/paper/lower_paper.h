/* lower_paper.h -- what the files of the papers' strategies share. */
#ifndef DPX_LOWER_PAPER_H
#define DPX_LOWER_PAPER_H

#include "model/lower/common/stage_ports.h"

struct at { enum unit_class c; int i, by; };

/* What is kept elsewhere than in device memory: lower_paper_offload.c. */
struct paper_away {
    bool states, params;                    /* gradients and optimizer states; parameters */
    enum space states_in, grads_in, params_in;
    int arrived[NUC], summed[NUC], states_at[NUC], updated[NUC];    /* in host memory, on their way */
    int shard[NUC], staged[NUC];            /* a shard read from its file; and in device memory, to be gathered */
    int64_t shard_elems[NUC];
    uint16_t ev_down;                       /* a unit's gradients have left the device */
    uint16_t ev_read[2], ev_up[2], ev_written;      /* the step, unit by unit */
    uint16_t summed_norm;                       /* what scaling to the norm waits for */
    bool first;                             /* of the micro-steps: no earlier one's gradients are there */
};

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
    int64_t            numel[NUC], padded[NUC];     /* of a unit's tensors that train */
    int                params[NUC], grads[NUC], optimizer[NUC], gathered[NUC], full_grads[NUC];
    int64_t            frozen_padded[NUC];          /* and of those that do not: a flat parameter of their own */
    int                frozen[NUC], frozen_gathered[NUC];
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
    bool               ties;                /* the root's pass needs the tied embedding, a unit of its own */
    enum { ALL_OF_IT, OF_INPUTS, OF_WEIGHTS } part;     /* of a backward */
    struct paper_away  away;
    int                kept_blocks, kept_ends;  /* instances of its micro-step's activations begin here */
};

/* Names the unit of the last entry. */
void paper_name(struct paper *z, struct at u);

/* ---- lower_paper_layout.c ---- */

/* Buffers of a class of units: their sizes, and what they hold. */
void paper_declare(struct paper *z, enum unit_class c);
/* Elements that this rank's optimizer updates. */
int64_t paper_own_elems(const struct paper *z);
/* A layout of elements [from, from+n) of what trains of the unit, `at` bytes into the buffer; and slices appended to it. */
int  paper_flat(struct paper *z, enum unit_class c, enum holds h, enum dtype t, int64_t from, int64_t n, int64_t at);
void paper_slices(struct paper *z, enum unit_class c, enum holds h, enum dtype t, int64_t from, int64_t n, int64_t at);

/* ---- lower_paper_stage.c ---- */

/* What the passes of an act's chunk have: units, root, embedding, head, and where its micro-step's activations begin. */
void paper_enter_chunk(struct paper *z, const struct stage_ports *ports, const struct pipeline_act *a);
/* Where the first and the last stage each have the embedding, their gradients are added up: of a unit of its own what the rank
 * keeps of it, or where it lies in the model's. */
void paper_reduce_tied(struct paper *z);

/* ---- lower_paper_offload.c ---- */

/* Where the plan keeps what; before anything is declared. */
void paper_away_setup(struct paper *z);
/* Bytes of optimizer states an element, a copy in fp32 where the parameters are in 16 bits or in another memory: that alone
 * of an optimizer that works tensor by tensor. */
int  paper_state_bytes(const struct paper *z);
bool paper_has_master(const struct paper *z);
/* The buffers of a class of units that has `shard` elements on each rank, and their layouts. */
void paper_away_declare(struct paper *z, enum unit_class c, int64_t shard);
void paper_away_describe(struct paper *z, enum unit_class c, int64_t from, int64_t n);
/* First weights and states. */
void paper_away_init(struct paper *z);
/* A shard goes to the device, into what is gathered from or, on one rank, into what is computed with.  Returns the
 * former, or -1; the last entry is what it waits for. */
int  paper_away_bring(struct paper *z, struct at u, enum phase phase, uint16_t after);
/* Before a step's first pass. */
void paper_away_begin(struct paper *z);
/* Before the gradients of the next unit leave: those of the one before have. */
void paper_away_await(struct paper *z);
/* A unit's gradients, reduced when `after` is done, go to their memory, or are added to those there. */
void paper_away_gradient(struct paper *z, struct at u, uint16_t after);
/* The norm of gradients that are in files: they are read for it. */
void paper_away_norm(struct paper *z, const struct norm_sum *sums, int n);
/* AdamW on the host, unit by unit. */
void paper_away_step(struct paper *z);

#endif
