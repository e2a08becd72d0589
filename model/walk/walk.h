/* walk.h -- the one walk over a training step, which calls a framework where the framework's own code would be called.
 *
 *     struct paper { struct walk walk; ... };
 *     static void gather(void *paper, struct at u) { ... }
 *     static const struct walk_hooks hooks = { .pre_forward = gather, .post_forward = drop, ... };
 *     walk_open(&z.walk, local, s, &hooks, &z);        then buffers, of the units of z.walk.map
 *     return walk_steps(&z.walk);
 *
 * The walk has init, the first step and every later one; the micro-steps of a step, or the order of a pipeline's stage; in each a
 * forward and a backward over the root's pieces and the units; in each unit its blocks, halves of blocks, the two halves of a
 * backward; and it folds equal stretches into repeats.  It appends the compute entries with what a block keeps from forward to
 * backward, and no other entry but the messages of a stage.
 *
 * A hook appends what the framework does there.  It does not go over units: where it needs a neighbour, that is walk_at().  A hook
 * that is NULL does nothing. */
#ifndef DPX_WALK_H
#define DPX_WALK_H

#include "model/lower/common/stage_ports.h"

/* Instance i of a class's families, a unit; its place in the order of forward, outside of [0, n) of a root; in a repeat, by how much instances,
 * and blocks, move with each iteration. */
struct at { enum unit_class c; int i, by, position, by_block; };

static const struct at walk_root = { UC_ROOT, 0, 0, -1, 0 };

/* Of a backward: a pipeline may run the gradients of inputs and those of weights apart. */
enum walk_part { WHOLE_BACKWARD, INPUT_PART, WEIGHT_PART };

/* A compute entry: a pass of a piece, or its segment. */
struct walk_run {
    struct at      u;               /* whose parameters it reads: a unit, or the root; of a stage that has none, c is NUC */
    enum piece_id  piece;
    bool           forward;
    int            block, by;       /* of a block's piece */
    bool           begins, ends;    /* it is the first segment of its pass, the last one */
    bool           opens;           /* of the unit's pass, or the root's pieces, it is the first block or piece */
    bool           loss;            /* it is the trainer's loss, outside of the model */
    bool           both;            /* it computes a block anew of which another unit has the other half */
    bool           weights;         /* of backward: it makes gradients of weights */
    int            k0, k1;          /* its kernels */
};

struct walk_hooks {
    /* Whole steps.  `begin` comes before the micro-steps, `end_of_backward` behind them, `end` when the loss has been read. */
    void (*init)(void *of);
    void (*begin)(void *of);
    void (*end_of_backward)(void *of);
    void (*optimizer)(void *of);
    void (*end)(void *of);

    /* A micro-step: before its forward and before its backward, walk.forward, .first and .last say which; behind its backward.  A stage has
     * the former alone, ahead of what it received, and end_of_pass() behind what it sends. */
    void (*begin_pass)(void *of);
    void (*end_of_micro_step)(void *of);
    /* Does the next micro-step begin as the one did whose entries became a repeat, in an earlier step?  Then they are copied.  NULL: no. */
    bool (*comes_again)(void *of);
    void (*end_of_pass)(void *of);

    /* Around a unit's module, and around the root's, which has no parameters where its class has no unit.  The embedding's and the head's
     * where they are units of their own (UC_EMBED, UC_OUTPUT): around their pieces; tied ones are one unit, around the first and the last
     * of both; a head's that the loss calls for each part of the tokens, around each call
     * (walk.call).  Of a stage without a root's parameters its c is NUC. */
    void (*pre_forward)(void *of, struct at u);
    void (*post_forward)(void *of, struct at u);
    void (*pre_backward)(void *of, struct at u);
    void (*post_backward)(void *of, struct at u);

    /* Behind a pass's units, or the blocks of a model that is one unit. */
    void (*end_of_units)(void *of);

    /* What a compute entry, just appended, reads and leaves, but for what blocks keep.  Before it is appended (k1 is not known), and
     * behind it. */
    void (*compute)(void *of, const struct walk_run *r);
    void (*pre_run)(void *of, const struct walk_run *r);
    void (*post_run)(void *of, const struct walk_run *r);
    /* Where walk.cuts: called with each kernel of a pass in turn, does its entry end with kernel k?  (With the last it does.) */
    bool (*cut)(void *of, const struct walk_run *r, int k);
    /* The same where entries end before a kernel that is known later: in place of a pass's entries, it makes them with walk_to(). */
    void (*pass)(void *of, const struct walk_run *r);
    /* In place of a unit's compute entries, for units inside of blocks; false: there are none. */
    bool (*inside)(void *of, struct at u, bool forward);

    /* Of a stage: an act that is no pass; if it is a message or a wait for one, before its entries and behind them.  Behind the last act. */
    void (*pre_stage_act)(void *of, const struct pipeline_act *a);
    void (*stage_act)(void *of, const struct pipeline_act *a);
    void (*end_of_stage)(void *of);
    /* Of what is emitted again and again, as lower_emit_settled() has it. */
    settled_fn *settled;

    bool by_chunk;                  /* of a stage: which blocks are computed anew is counted from its chunk's first */
    bool loss_apart;                /* the trainer's loss is outside of the root's module (struct program, `returns`) */
    enum grad_fate fate;            /* of gradients of weights, and their category: sched_compute() */
    enum category grads;
};

struct walk {
    const struct walk_hooks *hooks;
    void *of;                       /* the framework */
    const struct local_model *local;
    struct schedules *s;
    struct unit_map map;
    int acts[NPIECE];               /* families of what blocks keep */

    /* A framework sets these before walk_steps(). */
    bool first_differs, last_differs;       /* the first and the last micro-step are not like those between */
    int64_t apart;                  /* micro-steps before this one differ from those after; may change from one to the next */
    struct { enum pipeline_code code; struct stage_memory memory; bool keeps, connects; } stage;    /* stage_ports_open() */

    /* Where the walk is. */
    enum sched_id step;
    bool forward;
    bool first, last;               /* of the micro-steps; neither in a repeat */
    int64_t flush;                  /* of a pipeline's schedule in its step */
    int64_t number;                 /* of the micro-step in its step; -1: in a repeat */
    int again0, again1;             /* entries of the micro-step that became a repeat; none: both are 0 */
    enum grad_fate fate;            /* of the hooks, unless begin_pass() sets another */
    bool cuts;                      /* likewise: entries end where hooks.cut() or hooks.pass() says so, and nothing is a repeat */
    bool defers;                    /* likewise: a head's backward leaves its weight's gradient to later (PIECE_HEAD_SPLIT) */
    bool alone, last_alone;         /* likewise: no blocks are a repeat, as in a stage; the last block is in none, in backward */
    enum walk_part part;
    int chunk;                      /* of a stage */
    struct at root;                 /* of the pass; c NUC: it has none */
    bool embeds, heads, ties;       /* the pass has the embedding, the head; needs the tied embedding, a unit of its own */
    int call, calls;                /* of a head's module that the loss calls for each part: which one of this pass, of how many; 0: once, in its place */
    int unit0, unit1, block0, block1;       /* its units and blocks, one past the last */
    int logits;                     /* buffer of logits that have a name until backward ends; -1: none do */
    int kept_blocks, kept_ends;     /* instances of its activations begin here */
    struct stage_ports ports;
};

/* A walk at rest, over the plan's units (units NULL) or those of another plan of the same model. */
void walk_open(struct walk *w, const struct local_model *local, const struct plan *units, struct schedules *s, const struct walk_hooks *hooks,
               void *of);

/* Appends all schedules.  0, or -1 reported. */
int walk_steps(struct walk *w);

/* The unit at a position, stepping by `by` in a repeat; the root, which does not, outside of [0, n). */
struct at walk_at(const struct walk *w, int position, int by);

/* Within hooks.pass(): the entry of the pass's kernels [r->k0, k1), if there are any; then r->k0 is k1. */
void walk_to(struct walk *w, struct walk_run *r, int k1);

/* Names the unit of the last entry. */
void walk_name(struct walk *w, struct at u);

static inline bool walk_is_stage(const struct walk *w) { return w->local->plan->parallel.pipeline > 1; }

/* Is the unit half a block that backward computes anew?  Its MLP's turn, which comes first, does so and reads attention's parameters
 * as well. */
bool walk_needs_both(const struct walk *w, struct at u);

#endif
