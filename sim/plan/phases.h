/* phases.h -- what several models that take turns on the same GPUs hold in each phase, and how long an iteration takes.  dpxplan phases and
 * --json are both this.
 *
 *     struct phases_asked a = PHASES_ASKED;
 *     struct phases p;
 *     int rc = phases_answer(&a, &p);
 *     if (rc == EXIT_DONE || rc == EXIT_NO) {
 *         ... p.moment[p.largest] ...
 *         phases_free(&p);
 *     } */
#ifndef DPX_PHASES_H
#define DPX_PHASES_H

#include "base/notes.h"
#include "base/opts.h"
#include "base/size.h"
#include "model/memory/reserved.h"
#include "sim/phases/forward.h"
#include "sim/phases/handover.h"
#include "sim/phases/moments.h"
#include "sim/plan/plan_source.h"

struct phases_asked {
    struct plan_given plan;         /* of a file of another form: its cluster */
    const char *db, *response, *accelerate;
    const json_t *accelerate_doc;
    int64_t host_memory;
    struct opt_pairs set;
    bool search;
};

#define PHASES_ASKED { .plan = { .path = NULL } }
#define PHASES_OPTS(a) \
    OPTS_EXAMPLE("dpxplan phases demo/grpo.json"), \
    OPTS_EXAMPLE("dpxplan phases demo/verl-grpo.yaml 8xh100 --response 300,1024"), \
    { "FILE", "a phase plan (\"dpx_phases\": 1), or a recipe of TRL, LLaMA-Factory, axolotl, verl, OpenRLHF, NeMo-RL or prime-rl; - is standard input", .str = &(a).plan.path, \
      .doc = &(a).plan.doc, .positional = true, .required = true }, \
    { "cluster", "where FILE is a recipe: on which GPUs, such as 8xh100", .str = &(a).plan.cluster, .doc = &(a).plan.cluster_doc, \
      .names = cluster_builtin, .value = "CLUSTER", .bare = true, .bare_if = cluster_is_spec, .often = true }, \
    { "model", "likewise: its model, where the file names none", .str = &(a).plan.model, .doc = &(a).plan.model_doc, .names = model_builtin, .value = "MODEL" }, \
    { "seq", "likewise: tokens of a sample, where the file does not say", .length = &(a).plan.seq, .min = 1 }, \
    { "response", "likewise: tokens of a response on average and at most, such as 700,2048, and of a prompt where the file does not say (NeMo-RL, OpenRLHF, prime-rl); " \
      "left out: all as long as they may be", .str = &(a).response, .value = "MEAN,LONGEST", .often = true }, \
    { "set", "change keys of FILE, such as roles.engine.sleep=1, or of verl's actor_rollout_ref.rollout.n=8", .pairs = &(a).set, .often = true }, \
    { "search", "other layouts of the same GPUs: engine and trainers together or apart, who sleeps where, the engine's ranks and share, micro-batches", .flag = &(a).search }, \
    { "accelerate", "likewise: accelerate's config that TRL's goes with, which says who shares what", .str = &(a).accelerate, .doc = &(a).accelerate_doc, \
      .value = "CONFIG" }, \
    { "host-memory", "bytes of a node's host memory, instead of the cluster's", .bytes = &(a).host_memory, .min = MEMORY_LEAST }, \
    { "db", "the database of calibrations", .str = &(a).db, .value = "FILE" }

/* Draws of what is not known: in draw i each source of error (phases_iteration.c) is at the same place of its interval in every plan. */
enum { PHASE_DRAWS = 521 };

/* A role as it is planned. */
struct phases_role {
    struct plan plan;               /* of an engine: none */
    bool planned;
    struct reserved_left left;
    struct cost step, short_step;   /* of a role that trains: with samples as long as they may be, and as long as they are where it has no padding */
    int64_t kept;                   /* what it holds between forward and backward */
    bool fits;                      /* alone */
    struct evaluation *is;          /* of a role that trains; NULL: none */
};

/* A phase's forward: its plan, and that plan's evaluation; NULL: none. */
struct phases_forward { struct plan as; struct evaluation *is; };

/* GPUs beside the first ones, and what their roles hold. */
struct phases_place {
    struct cluster cluster;
    struct moment  moment[PHASE_STEPS];
    int     largest;
    int64_t available, limit, host, host_available;
};

struct phases {
    json_t *doc;                    /* which the plan points into */
    char where[200];
    const char *db;                 /* the caller's */
    bool search;                    /* layouts were asked for */
    struct phase_plan plan;
    struct cluster cluster;
    struct phases_place more[PHASE_PLACES];     /* by the plan's place[]; the first one is what follows here */
    struct phases_role role[PHASE_ROLES];
    struct role_bytes bytes[PHASE_ROLES];
    struct phases_forward forward[PHASE_STEPS];
    struct replayed replayed[PHASE_PLACES];
    int engine;                     /* of the roles; -1: none */
    struct model engine_model;
    struct cluster engine_cluster;
    bool engine_open;
    struct engine_memory served;
    struct generation generation;
    struct handover handover;
    bool generates, hands_over;
    char no_generation[200];        /* why the engine generates nothing: no room for its KV cache */

    struct moment moment[PHASE_STEPS];
    struct cost time[PHASE_STEPS];
    int64_t times[PHASE_STEPS];     /* optimizer steps of an update, micro-steps of a forward */
    int largest;
    int64_t available, limit;       /* of a GPU, with the headroom kept and without */
    int64_t host, host_available;   /* of a node: the largest phase's */
    struct cost iteration;
    double draw[PHASE_DRAWS];       /* its seconds in each draw */
    struct cost moves[PHASE_STEPS]; /* of time[]: to host memory and back */
    double moves_s;                 /* all of moves[] */
    double apart_s;                 /* asynchronous: the shorter of the two sides; its GPUs are idle for the rest */
    bool fits, tight;
    char why_not[400];
    struct notes notes;
};

/* EXIT_DONE, or EXIT_NO where a phase does not fit; another exit status with the reason reported and nothing to free. */
int     phases_answer(const struct phases_asked *a, struct phases *out);
/* New reference. */
json_t *phases_json(const struct phases *p);
void    phases_free(struct phases *p);

/* The same plan changed, a document; `timed`: with times.  0, or -1 reported and nothing to free. */
int     phases_changed(const struct phases *base, json_t *doc, bool timed, struct phases *out);

/* ---- phases_advice.c ---- */

/* A change that makes the plan fit. */
struct phases_change { char words[240]; int64_t needed; };
enum { PHASE_CHANGES = 8 };
/* Those that do, the smallest change first; where none does alone, several together.  Returns how many. */
int phases_changes(const struct phases *p, struct phases_change out[PHASE_CHANGES]);

/* ---- phases_search.c ---- */

/* A layout that fits. */
struct phases_layout {
    json_t *doc;                    /* the plan; the caller's to json_decref() */
    bool    apart;
    char    others[64];             /* where roles are that the plan has on GPUs of their own: "critic on 2", "all roles" of those that join */
    int64_t trainer_gpus;           /* of the first roles */
    int64_t engine_gpus, tensor;    /* of all GPUs those with an engine, and an engine's ranks */
    double  share;
    int     sleep;
    enum role_where between;        /* of roles that train */
    int64_t update_times, forward_times;    /* as many samples in a micro-step as the plan asked for */
    struct cost iteration;
    double  draw[PHASE_DRAWS];
    bool    tight;                  /* it fits, but as phases.tight says */
    double  idle;                   /* share of GPU time in which nothing runs */
    int64_t needed;
};
enum { PHASE_LAYOUTS = 256 };
/* Layouts of the same GPUs that fit, the fastest first: engine and trainers together, the engine asleep or not, trainers on the host or not;
 * or apart, one step off (of a plan whose engine is apart, these alone); roles with GPUs of their own there, on half or twice as many, or with the trainers; the fastest two with larger micro-batches too.  The engine has the largest share that fits.  Returns how many; *tried: plans that were evaluated. */
int phases_search(const struct phases *p, struct phases_layout out[PHASE_LAYOUTS], int *tried);
/* phases_changed() without a word.  false: it is refused. */
bool phases_evaluated(const struct phases *base, json_t *doc, bool timed, struct phases *out);

/* ---- phases_iteration.c ---- */

struct cost phases_sum_of(const struct cost *a, const struct cost *b);
/* The iteration and its draws, of the phases' times. */
void    phases_iterate(struct phases *p);

/* ---- phases_faster.c ---- */

/* The first one's seconds over the second one's, with its 90 % interval. */
struct phases_quotient { double middle, low, high; };
struct phases_quotient phases_quotient_of(const struct phases_layout *a, const struct phases_layout *b);
/* -1: the first is faster, 1: the second, all over the interval of their quotient; 0: that cannot be told. */
int     phases_faster(const struct phases_layout *a, const struct phases_layout *b);
/* The fastest layout together and the fastest apart; NULL: there is none. */
const struct phases_layout *phases_fastest(const struct phases_layout *l, int n, bool apart);

/* ---- phases_picture.c ---- */

/* Memory of a GPU by phase as bars, in so many columns. */
void phases_picture(const struct phases *p, int width, FILE *to);

/* ---- phases_gpus.c ---- */

/* A cluster of so many GPUs of this one's kind (new reference): whole nodes, or some GPUs of one. */
json_t *phases_part_of(const struct cluster *c, int64_t gpus);
/* All GPUs of the trainers and of an engine that is apart.  false: these are not of one kind, in one node or in nodes of one size. */
bool    phases_all_gpus(const struct phases *p, struct cluster *out);
/* Roles of a place on so many GPUs of this kind, with the same global batch.  false: it does not divide, or a plan is in a file of its own. */
bool    phases_resize(const struct phases *p, json_t *doc, int place, const struct cluster *of, int64_t gpus);
/* New documents, or NULL: a place with so many of its GPUs and the trainers', which have the rest; all roles on the GPUs of all places. */
json_t *phases_divided(const struct phases *p, int place, int64_t gpus);
json_t *phases_joined(const struct phases *p);

/* ---- phases_import.c ---- */

/* A phase plan of a recipe (new reference), or NULL reported. */
struct form_file;
json_t *phases_import(const struct phases_asked *a, const struct form_file *f, struct notes *notes);
bool    phases_imports(const struct form_file *f);
/* Is it a recipe whose step of training has a second model in it, so that no plan of one step says it? */
bool    phases_beside(const struct form_file *f);
/* Reports that the file is neither, with the framework whose recipe it is where that is known. */
void    phases_not_read(const struct form_file *f);

#endif
