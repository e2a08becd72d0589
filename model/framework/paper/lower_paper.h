/* lower_paper.h -- what the files of the papers' strategies share. */
#ifndef DPX_LOWER_PAPER_H
#define DPX_LOWER_PAPER_H

#include "model/walk/walk.h"

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
};

struct paper {
    struct walk        walk;
    const struct plan *p;
    const struct local_model *local;
    struct schedules  *s;
    struct recipe      r;
    int64_t            n;                   /* ranks a shard group has */
    bool shards_optimizer, shards_grads, shards_params, prefetches;
    bool fresh_grads;                       /* a micro-step's gradients have a buffer of their own: stages 2
                                             * and 3, and `deterministic` in all */
    bool reduces_each, sums_each;           /* the whole model's, within every micro-step; and each is added to what the owners
                                             * have of those before */
    int64_t            numel[NUC], padded[NUC];     /* of a unit's tensors that train */
    int                params[NUC], grads[NUC], optimizer[NUC], gathered[NUC], full_grads[NUC];
    int64_t            frozen_padded[NUC];          /* and of those that do not: a flat parameter of their own */
    int                frozen[NUC], frozen_gathered[NUC];
    int                own_grads[NUC], own_params[NUC];    /* layouts: this rank's part of a whole unit */
    int64_t            partial[NUC];        /* elements of which every tensor-parallel rank has a part of a sum */
    int                partial_grads[NUC], sums[NUC];       /* a layout of them, and a buffer in which they are side by side */
    int                norm_grads[NUC];     /* layouts: of own_grads, what no other rank counts too */
    int                others_grads;                        /* and of the whole model what is not its part */
    int                tied_grads;          /* of a stage: the embedding's, which the last stage has a copy of */
    int64_t            rank_in_group;
    uint16_t           ev_gather;
    enum group         group;               /* where states are sharded */
    struct paper_away  away;
};

/* Has a unit something that trains?  One without parameters, as of a model without embedding and head, is treated so. */
static inline bool paper_trains(const struct paper *z, enum unit_class c) { return z->numel[c] > 0 || z->frozen_padded[c] == 0; }

/* ---- lower_paper_layout.c ---- */

/* Buffers of a class of units: their sizes, and what they hold. */
void paper_declare(struct paper *z, enum unit_class c);
/* Elements that this rank's optimizer updates. */
int64_t paper_own_elems(const struct paper *z);
/* A layout of elements [from, from+n) of what trains of the unit, `at` bytes into the buffer; and slices appended to it. */
int  paper_flat(struct paper *z, enum unit_class c, enum holds h, enum dtype t, int64_t from, int64_t n, int64_t at);
void paper_slices(struct paper *z, enum unit_class c, enum holds h, enum dtype t, int64_t from, int64_t n, int64_t at);

/* ---- lower_paper_whole.c ---- */

/* Gradients of the whole model: averaged, or only `summed` up to now.  Averages may be taken again of what is added up so far;
 * the tensor-parallel ranks' parts are added up once, with the `last` micro-step's. */
void paper_reduce_model(struct paper *z, bool summed, bool last);
/* What was handed to its owners must not be handed over again with the next micro-step's. */
void paper_forget_others(struct paper *z);
/* Parameters that every rank has whole: each updated its part. */
void paper_gather_updated(struct paper *z);

/* ---- lower_paper_partial.c ---- */

/* The buffer of a class of units in which what is partial is side by side; where a model that is one unit has the embedding that another
 * stage has, too. */
void paper_find_partial(struct paper *z, enum unit_class c, const char *of, int n);
void paper_describe_tied(struct paper *z);
/* A unit's partial gradients, in `family`, are added up. */
void paper_sum_partial(struct paper *z, struct at u, int family);
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
/* Before a step's first pass: a hook. */
void paper_away_begin(void *paper);
/* Before the gradients of the next unit leave: those of the one before have. */
void paper_away_await(struct paper *z);
/* A unit's gradients, reduced when `after` is done, go to their memory, or are added to those there. */
void paper_away_gradient(struct paper *z, struct at u, uint16_t after);
/* The norm of gradients that are in files: they are read for it. */
void paper_away_norm(struct paper *z, const struct norm_sum *sums, int n);
/* AdamW on the host, unit by unit. */
void paper_away_step(struct paper *z);

#endif
