/* evaluate.h -- every figure about bytes of one plan: its schedules are lowered
 * for each kind of rank of each stage of its pipeline, the ledger is run, and the fullest rank counts.
 *
 *     struct evaluation e;
 *     if (evaluate(&plan, &e) < 0)
 *         return 2;
 *     ... e.m.fits, e.m.ledger.peak.bytes ...
 *     evaluation_free(&e);                 (e.schedules stay usable until then) */
#ifndef DPX_EVALUATE_H
#define DPX_EVALUATE_H

#include "model/lower/lower.h"
#include "model/memory/overhead.h"
#include "model/memory/reserved.h"
#include "model/memory/spaces.h"
#include "model/schedule/ledger.h"

/* All calls of one collective with one group and dtype in one schedule. */
struct comm_line {
    enum coll_op op;
    int          group;             /* of groups.group[] of the schedules */
    enum dtype   dtype;
    int64_t      count, bytes;      /* calls; their full buffers added up */
    int64_t      sent;              /* of them, what the rank puts on the wire */
};
enum { COMM_LINES = NCOLL * PLAN_GROUPS * NDTYPE };

struct comm_table {
    struct comm_line line[COMM_LINES];
    int              n;             /* lines in use, in order of first appearance */
    int64_t          sent_bytes;    /* what the rank puts on the wire, ring (or star) */
};

/* What a plan holds, and the verdict: all that a search needs. */
struct memory_verdict {
    int64_t         rank;               /* the fullest */
    struct ledger   ledger;             /* of that rank */
    struct overhead overhead;
    int64_t         needed;             /* ledger's peak and all overhead */
    int64_t         available;
    bool            elsewhere;          /* it holds bytes outside of device memory: */
    struct space_accounts spaces;
    bool            fits;               /* in every memory; in device memory by allocated bytes, in an evaluation by the verdict */
    int             nkinds;             /* kinds of rank of its stage: one of each, and its ledger's peak */
    struct { int64_t rank, peak; } kind[LOWER_KINDS];
};

/* One stage of a pipeline, by its fullest rank. */
struct evaluation_stage {
    struct schedules schedules;
    struct memory_verdict m;            /* but for spaces, which nodes have and not stages */
    struct reserved  reserved;
    enum verdict     verdict;
};

enum { EVALUATION_STAGES = 128 };       /* at most */

struct evaluation {
    /* Of a plan with a pipeline every stage, the first one first; else 0 and NULL.  The schedules of the fullest
     * stage are the evaluation's own. */
    struct evaluation_stage *stage;
    int              nstages, fullest;
    bool             borrowed;          /* the program is the caller's */
    struct schedules schedules;         /* of the fullest rank */
    struct memory_verdict m;
    struct reserved  reserved;          /* for kernels of PyTorch: its allocator decides whether the plan fits */
    enum verdict     verdict;
    int64_t          allocated_peak;    /* ledger's peak plus workspaces from the same allocator */
    struct peak      first_over;        /* op < 0 when it fits */
    char             peak_at[96];       /* "backward block 31" */
    char             over_at[96];
    char             why_not[400];
    struct comm_table comm;             /* one steady step */
};

/* 0, or -1 with the reason reported and nothing to free. */
int  evaluate(const struct plan *p, struct evaluation *out);
/* The same without PyTorch's allocator: nothing is known of what it reserves, and the verdict is that of what is
 * allocated. */
int  evaluate_allocated(const struct plan *p, struct evaluation *out);
/* The same as evaluate() of the figures of the fullest stage; those of others may be left unknown. */
int  evaluate_within(const struct plan *p, struct evaluation *out);
/* evaluate_allocated() with a program that fits the plan (see lower_using), which stays the caller's and must outlive `out`: a search
 * has one for many plans. */
int  evaluate_using(const struct plan *p, const struct program *g, struct evaluation *out);
void evaluation_free(struct evaluation *e);

/* Bytes of a GPU that decide, beside m.available: what PyTorch's allocator reserves and libraries take beside it (NCCL); without that
 * allocator m.needed. */
int64_t evaluation_taken(const struct memory_verdict *m, const struct reserved *r);

/* The schedules of one rank of each stage, the first stage first; without a pipeline those of the fullest rank.
 * Returns how many. */
int  evaluation_roles(const struct evaluation *e, const struct schedules *of[EVALUATION_STAGES]);

/* Replays the allocator with options `conf` (NULL: torch's defaults) for an evaluated plan and sets reserved, verdict,
 * fits and why_not.  0, or -1 as reserved_of(): the evaluation is then as it was. */
int  evaluation_reserve(const struct plan *p, struct evaluation *e, const struct caching_options *conf);
/* The same as a search asks: where a request fails the figures are those up to it (reserved_within()). */
int  evaluation_reserve_within(const struct plan *p, struct evaluation *e);

/* Lowers the plan for each kind of rank of each stage with a program that fits it (see lower_using)
 * and leaves the fullest rank's schedules in `s`. */
int evaluate_memory(const struct plan *p, const struct program *g, struct schedules *s,
                    struct memory_verdict *out);

/* The schedules of the first stage alone, without its memory; the caller frees them.  0, or -1 reported: the plan has none. */
int evaluate_schedules(const struct plan *p, const struct program *g, struct schedules *s);

/* evaluate_memory() of one stage of a pipeline (0 where there is none), memories beside the device's left out.  Where one stage does not
 * fit a search need not lower the others. */
int evaluate_stage(const struct plan *p, const struct program *g, int stage, struct schedules *s,
                   struct memory_verdict *out);

/* Collectives of one schedule, repeats multiplied out. */
void evaluation_comm_count(const struct schedules *s, enum sched_id id, struct comm_table *out);

/* The largest buffer that entry i allocates, and its bytes: what an allocator would have
 * refused.  A compute entry's own working set if it allocates none. */
void evaluation_op_largest_new(const struct schedules *s, int i, const char **what, int64_t *bytes);

/* "rank 4, stage 1 of 4", or without a pipeline "rank 4": of whom the figures are. */
struct evaluation_where { char s[64]; };
struct evaluation_where evaluation_where(const struct evaluation *e);

/* "backward block 31", "all_gather unit 4": the entry in words. */
void evaluation_op_in_words(const struct schedules *s, int op, int64_t iteration, char *to, int size);

/* One element of search's `plans`; `time`, and the `peak_bytes` of memory and of its `roles`, are null until
 * the simulator fills them in.  New reference. */
json_t *evaluation_json(const struct plan *p, const struct evaluation *e);
/* The `model` and `cluster` objects of the same document. */
json_t *evaluation_model_json(const struct model *m);
json_t *evaluation_cluster_json(const struct cluster *c);

/* Bytes of a micro-batch's scores that blocks keep for backward, of single operations (torch-eager): what grows with the square of the sequence.  0: none do, or it
 * is not known. */
double evaluate_scores(const struct plan *p);

#endif
