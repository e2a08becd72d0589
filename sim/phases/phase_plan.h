/* phase_plan.h -- post-training as its users run it: several models that take turns on the same GPUs.
 *
 *     { "dpx_phases": 1, "cluster": "8xh100", "samples": 1024, "of_prompt": 8, "prompt": 512, "response": { "mean": 700, "longest": 2048 },
 *       "roles": {
 *         "actor":     { "train": { ... a plan ... }, "between": "host", "empties_cache": true },
 *         "reference": { "infer": "actor", "between": "host" },
 *         "engine":    { "engine": "vllm", "version": "0.11", "tensor": 2, "gpu_memory_utilization": 0.5, "sleep": 1 } },
 *       "phases": [
 *         { "name": "weights",   "hand_over": "actor", "to": "engine" },
 *         { "name": "generate",  "generate": "engine" },
 *         { "name": "reference", "forward": "reference", "micro_batch": 4 },
 *         { "name": "update",    "update": "actor" } ] }
 *
 * A role trains, infers (an inference-only copy: no gradient, no states), or is an engine.  Those that train or infer are one process
 * a GPU, with one allocator, whose state goes from phase to phase.  A copy that "shares_weights" has none of its own.  "between" is where a role is while others act: "device" (all of it),
 * "states on host", "weights on host", "host"; a phase may say otherwise for itself: "where": { "reference": "device" }.  An engine with a "cluster" of its own is apart.
 * "places": { "critics": "4xh100" } are further GPUs; a role with "place": "critics" is there.  A phase "with_before" begins with the one before it: what
 * shares GPUs takes turns, other phases run at the same time.
 * What a plan of a role leaves out: dpx_plan and cluster. */
#ifndef DPX_PHASE_PLAN_H
#define DPX_PHASE_PLAN_H

#include <jansson.h>

#include "sim/phases/engine.h"
#include "sim/phases/generate.h"

enum { PHASE_ROLES = 8, PHASE_STEPS = 24, PHASE_NAME = 40, PHASE_PLACES = 4 };

enum role_kind { ROLE_TRAINS, ROLE_INFERS, ROLE_IS_ENGINE };
/* What goes to host memory into memory that is allocated anew each time (Tensor.to("cpu")). */
enum role_anew { ANEW_NONE, ANEW_STATES, ANEW_ALL, NANEW };
enum role_where { WHERE_DEVICE, WHERE_STATES_AWAY, WHERE_HOST, WHERE_WEIGHTS_AWAY, NWHERE };

struct phase_role {
    char name[PHASE_NAME];
    enum role_kind kind;
    const json_t *plan;             /* of a role that trains or infers: an object, or the name of a file */
    enum role_where between;
    bool empties;                   /* torch.cuda.empty_cache() behind each of its phases */
    int  place;                     /* of place[]; an engine's that is not apart: 0 */
    bool own_process;               /* of a role that trains or infers: an allocator, communicators and a CUDA context of its own */
    bool unpadded;                  /* of a role that trains or infers: samples are as long as they are, without padding */
    bool packed;                    /* and as many share a micro-step as find room in its tokens */
    bool even;                      /* of a role that trains or infers: all ranks' experts get as many tokens (phases_role.h) */
    bool frees;                     /* of a role that trains: gradient buffers are there in its updates alone */
    enum role_anew anew;            /* of a role that trains or infers */
    bool shares;                    /* of a role that infers: its weights are another role's (adapters switched off) */
    struct engine engine;
    const json_t *model, *cluster;  /* of an engine; NULL: those of the first role that trains */
};

enum phase_does { DOES_GENERATE, DOES_FORWARD, DOES_UPDATE, DOES_HAND_OVER, DOES_NOTHING, NDOES };

struct phase_step {
    char name[PHASE_NAME];
    enum phase_does does;
    int     role, to;               /* who acts; of a hand over, the engine.  -1: nobody */
    int     beside;                 /* of an update: the role whose forward is in each micro-step; -1: none */
    int64_t micro_batch;            /* of a forward; 0: the role's */
    bool    swaps;                  /* of a forward of a role that trains: other weights of its shape, which wait in host memory, take the place of its own */
    int64_t forwards;               /* of `beside` in each micro-step, one behind the other */
    int64_t held;                   /* bytes that the one that trains holds during the forward of `beside`, and neither keeps for backward */
    int64_t epochs;                 /* of an update: times that each response is seen */
    int64_t bucket;                 /* of a hand over; 0: a tensor at a time */
    bool    overlapped;             /* of a hand over: buckets are gathered, sent and loaded beside each other (handover.h) */
    int64_t samples;                /* 0: all responses */
    bool    with_before;            /* it begins with the phase before */
    double  seconds;                /* of a phase in which no role acts: as stated */
    int     where[PHASE_ROLES];     /* enum role_where; -1: as between phases */
};

struct phase_plan {
    const json_t *cluster;
    char framework[24];             /* who runs it, for the words */
    struct { char name[PHASE_NAME]; const json_t *cluster; } place[PHASE_PLACES];   /* the first one is the plan's "cluster" */
    int nplaces;
    struct phase_role role[PHASE_ROLES];
    int nroles;
    struct phase_step step[PHASE_STEPS];
    int nsteps;
    int64_t samples, of_prompt;     /* responses of an iteration, all GPUs; of them to one prompt */
    double prompt;                  /* tokens of one */
    struct lengths response;
    bool asynchronous;              /* an engine that is apart generates the next iteration's responses meanwhile */
    int64_t ahead;                  /* those of so many iterations at once */
};

/* The document stays the caller's, and must outlive *out.  0, or -1 with the key reported. */
int phase_plan_read(const json_t *doc, const char *where, struct phase_plan *out);

/* "device", "states on host", "host", "weights on host"; "generates", "forward", "update", "hands over", "-". */
const char *role_where_name(enum role_where w);
const char *phase_does_name(enum phase_does d);
/* Whether an engine has GPUs of its own. */
static inline bool role_is_apart(const struct phase_role *r) { return r->kind == ROLE_IS_ENGINE && r->cluster != NULL; }
/* The GPUs on which a phase runs: of place[], or PHASE_PLACES of an engine that is apart. */
int phase_place(const struct phase_plan *p, const struct phase_step *s);

#endif
