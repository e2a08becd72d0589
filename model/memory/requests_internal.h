/* requests_internal.h -- the state of a walk over schedules (requests.c), and how far it knows streams to be
 * (requests_streams.c). */
#ifndef DPX_REQUESTS_INTERNAL_H
#define DPX_REQUESTS_INTERNAL_H

#include "model/memory/requests.h"

enum { NONE = -1, EMBEDDING = -2, HEAD = -1, NOBODY = -3 };      /* "blocks" of the ends */

/* The pool of all CUDA graphs: a stream that no entry is on. */
enum { GRAPH_POOL = NSTREAM, NPOOL = 2 };

_Static_assert((int)GRAPH_POOL < (int)CACHING_STREAMS, "each stream has a pool of its own, and so have the graphs");

struct instance {
    int    *block, n;               /* what it consists of */
    int     family;                 /* the buffer that it is one of */
    int64_t cap;
    int64_t pending;                /* bytes of gradients that are yet to come */
    uint8_t stream;
    uint16_t uses;                  /* AFTER() bits of other streams that used it */
};

/* Tensors that are there by age: all, those of a micro-step, those of an owner in a micro-step. */
enum chain { ALL, STEP, OWN, NCHAIN };
struct link { int older, newer; };
struct ends { int oldest, newest; };

struct made {
    int64_t bytes;
    int     block, owner;           /* its request, NONE: it has no memory; which block of the model made it */
    int32_t tensor;                 /* its name among those of its owner */
    int32_t step;                   /* of a pipeline: which micro-step made it, ... */
    struct link in[NCHAIN];         /* in[ALL].older also links unused ones */
    uint8_t mem, pass, left;        /* left: enum left */
    uint8_t chunk;                  /* ... in which of the rank's stages */
    bool    handed_on, kept;        /* kept: its gradients become .grad */
};

/* What the kernels of a piece's pass ask of the allocator, in order.  Step i does what move `move` does, is a product's workspace (WORKSPACE),
 * or the end of a kernel that hands gradients out (KERNEL_ENDS).  `mate`: the one that frees what it makes, or makes what it frees, where
 * nothing else is done with that in between; itself where it touches a workspace; else NONE.  Kernel k's begin at first[k]. */
enum { WORKSPACE = -2, KERNEL_ENDS = -3 };
struct step { int move, mate, asked; bool grads, captured; };      /* asked: requests before it */
struct steps {
    struct step *of;
    struct caching_step *does;          /* what steps with mates do, ... */
    int *block, *first;                 /* ... and with which block */
    struct { int from, to; bool in_place; } run;        /* of the entry that ran last; */
    int *own_end;                       /* of its step i: requests_own_end(); 0: not yet looked for */
};

/* What a step finds: the walk's state in words, and the requests that it holds in the order of these. */
struct walk_state { int64_t *word; int n; int64_t cap; int *held; int nheld; int64_t cap_held; };

struct walk {
    const struct plan *p;
    const struct schedules *s;
    const struct request_target *t;
    struct request_options o;
    struct request_report *out;
    struct instance *instances; int *first;     /* of each family */
    struct made *tensors; int ntensors; int64_t cap_tensors;
    struct ends all, *of_step, *own;            /* of these, by requests_tensors.c */
    int     nsteps;                             /* micro-steps that have chains of their own: others share them, modulo this */
    int     unused;
    int     ngrads;                             /* of these, there and MEM_GRADS */
    struct steps steps[NPIECE][NPASS];
    int    *pending; int npending; int64_t cap_pending; /* instances that wait for gradients, oldest first */
    int    *dropped; int ndropped; int64_t cap_dropped; /* requests that end with the kernel */
    struct caching_step *parts; int64_t cap_parts;      /* of a buffer, all at once */
    int     workspace[NPOOL][NPASS];    /* [1]: of captured products */
    bool    captures;                   /* kernels that graphs hold are in their pool */
    bool    captured;                   /* the kernel that runs is */
    bool    records, over;
    bool    forward;                    /* without gradients (requests_turns.c): ends at the first backward, with what training alone has left out */
    bool    named;                      /* the loop has a name for logits: */
    int     logits;                     /* their block */
    int64_t *skips; int nskips; int64_t cap_skips; int at_skip;     /* after each iteration of the first time: how many were left out */
    struct walk_state before;           /* of the step that is walked twice */
    bool    watched;                    /* the first time: the target wrote down what it did */
    bool    follows, met;               /* it is the second time; the rest would be as the first time */
    int     pasts;                              /* repeats under way that ask for trails: */
    uint64_t trail;                             /* a number for the addresses of an iteration's requests */
    int64_t skipped_retries, skipped_calls;     /* of iterations that were not walked, as those that they are like */
    int64_t iteration;                  /* of the entry that runs */
    int32_t step; uint8_t chunk;        /* its micro-step in a pipeline, and its stage of the rank's */
    int64_t known[NSTREAM][NSTREAM];    /* [a][b]: events of b that are done when stream a gets here */
    int64_t (*at_event)[NSTREAM];       /* the same where an event was recorded */
    int64_t (*issued)[NSTREAM];         /* events of each stream that had been issued then */
    int64_t pace[NSTREAM];              /* the same at the event that the issuing thread last waited for */
};

/* A family whose instances are requests: what a block keeps is its kernels' own, and other memories are not the allocator's. */
static inline bool requests_walks(const struct buf *b) { return b->space == SPACE_DEVICE && b->category != CAT_ACTIVATIONS; }
static inline int64_t requests_device_calls(const struct caching_stats *s) { return s->device_allocs + s->device_frees; }

/* ---- requests.c ---- */

void requests_begin(struct walk *w);
void requests_end(struct walk *w);
/* Entries [from, to). */
void requests_run(struct walk *w, int from, int to, int64_t iteration);
int  requests_request(struct walk *w, int64_t bytes, int stream);
void requests_give_back(struct walk *w, int block);
void requests_free_instance(struct walk *w, int instance);

/* ---- requests_turns.c ---- */

/* Of a forward without gradients: behind a block's last kernel what it keeps for backward goes, its input and what it made for itself. */
void requests_drop_input(struct walk *w, const struct op *o, int64_t iteration);

/* ---- requests_tensors.c ---- */

void requests_tensors_begin(struct walk *w);
void requests_tensors_end(struct walk *w);
/* The tensor is there, the newest; or no longer. */
void requests_tensor_add(struct walk *w, const struct made *t);
void requests_tensor_forget(struct walk *w, int i);
/* What the owner made in the micro-step of the entry that runs, and in those that share its chain: look at requests_is_of_pass(). */
const struct ends *requests_of_owner(const struct walk *w, int owner);
/* Made in the micro-step and the stage of the entry that runs. */
static inline bool requests_is_of_pass(const struct walk *w, const struct made *t) { return t->step == w->step && t->chunk == w->chunk; }
/* Of these the newest of that name; a tensor that another piece handed on.  NONE: there is none. */
int  requests_find(const struct walk *w, int owner, int32_t tensor);
int  requests_find_other(const struct walk *w, const struct move *m, int owner);
/* All tensors get the micro-steps of so many later ones. */
void requests_tensors_shift(struct walk *w, int64_t steps);

/* ---- requests_kernels.c ---- */

struct steps *requests_steps(struct walk *w, int piece, enum pass pass);
/* An entry runs steps [from, to); gradients of parameters have no memory where they are added `in_place`. */
void requests_run_of(struct steps *s, int from, int to, bool in_place);
int  requests_look_for_end(const struct steps *s, int i);
/* The first step of the run from i on that is not of its kernels alone, or in another pool. */
static inline int requests_own_end(struct steps *s, int i)
{
    if (s->own_end[i] == 0)
        s->own_end[i] = requests_look_for_end(s, i);
    return s->own_end[i];
}
void requests_steps_end(struct walk *w);

/* ---- requests_again.c ---- */

/* What the walk and its target were when iterations of a repeat ended. */
struct past;
/* May iterations of the repeat at `open` come back to a state that is known? */
bool requests_come_again(const struct walk *w, int open);
/* NULL: they may not. */
struct past *requests_past_new(struct walk *w, int open);
/* Iteration i has ended: those that follow and need not be walked, since they begin in states of before and end in the one that is. */
int64_t requests_past_skip(struct past *p, struct walk *w, int64_t i);
void requests_past_free(struct past *p, struct walk *w);

/* ---- requests_follow.c ---- */

/* Before a step that is walked twice.  Before its second walk: will the target know when it meets the state of the first? */
void requests_watch(struct walk *w);
bool requests_follow(struct walk *w);
/* After an iteration of a repeat, either time: so many that follow are left out. */
void requests_follow_skip(struct walk *w, int64_t skipped);
void requests_state_free(struct walk_state *s);

/* ---- requests_streams.c ---- */

/* Before an entry's requests: what its waits tell about other streams. */
void requests_wait_for(struct walk *w, const struct op *o);
/* Behind its work, where it records an event. */
void requests_record(struct walk *w, const struct op *o);

#endif
