/* engine.h -- a plan run by the framework that it is for.
 *
 *     struct engine_job j = { .engine = ENGINE_TORCH, .plan = &plan, .python = "python3", ... };
 *     if (engine_follows(j.engine, j.plan, j.cuda) < 0 || engine_find(&j) < 0)      what it lacks is refused by name
 *         return 2;
 *     engine_folder(&j);  engine_write(&j);                   job.json, tokens, weights, the runner
 *     engine_run(&j, &end);                                   ranks, watched until the last has ended
 *     engine_read(&j, &rows);                                 what each rank recorded
 *     engine_remove(&j);
 *
 *     engine_reduce.c   fewer ranks than it is for
 *     engine_job.c      the folder that ranks read
 *     engine_start.c    python, the launcher, the watch over both
 *     engine_rows.c     what ranks wrote
 *     engine_calls.c    the plan's collectives beside theirs */
#ifndef DPX_ENGINE_H
#define DPX_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "model/exchange/engines.h"
#include "model/plan/plan.h"
#include "model/schedule/schedule.h"

enum { ENGINE_MOST_RANKS = 1024 };      /* of one run */

enum engine_launcher { LAUNCH_SELF, LAUNCH_TORCHRUN, LAUNCH_MPIRUN, LAUNCH_SRUN };

struct engine_job {
    enum engine engine;
    enum engine_launcher launcher;
    const struct plan *plan;
    const char *python;             /* a name in PATH, or a path */
    const char *init, *data;        /* NULL: weights of the seed, dpxrun's own tokens */
    bool        sequential;
    uint64_t    seed;
    int64_t     steps;
    const double *lr;               /* of each step */
    double      beta1, beta2, eps, weight_decay;
    bool        cuda;
    int         threads;            /* of a rank */
    char        folder[512];        /* "": none yet */
    char        versions[256];      /* "torch 2.15.0, transformers 5.24.0", from engine_find() */
    char        framework[32];      /* the framework's own, without what follows a "+" */
    int         gpus;               /* that the framework sees, likewise */
};

/* Asks the python for the framework: 0, or -1 reported. */
int engine_find(struct engine_job *j);

/* The same plan on fewer ranks, with fewer layers where ranks share them; says what that shows.  0, or -1 reported with `p` as it was. */
int engine_reduce(struct plan *p, int64_t ranks);

/* 0, or -1 reported. */
int  engine_folder(struct engine_job *j);
int  engine_write(const struct engine_job *j);
void engine_remove(struct engine_job *j);

/* How the ranks ended. */
enum engine_ended { ENDED_WELL, ENDED_REFUSED, ENDED_OOM, ENDED_FAILED, ENDED_HUNG, ENDED_BY_SIGNAL };
struct engine_end { enum engine_ended how; int rank, signal; char why[1200]; };

/* Called once a rank's first step is behind it and after each step of rank 0: for a progress line.  May be NULL. */
typedef void engine_step_done(void *arg, int64_t step, double seconds, double loss);

/* Starts the ranks and waits for them; nothing of them is left afterwards.  0 with `end` set, or -1 reported: they could not be
 * started. */
int engine_run(const struct engine_job *j, engine_step_done *f, void *arg, struct engine_end *end);

/* ---- what ranks wrote ---- */

enum engine_phase { EP_INIT, EP_FIRST, EP_SECOND, EP_STEADY, NEP };
extern const char *const engine_phase_names[NEP];

/* Peaks in bytes; -1: not known. */
struct engine_memory { int64_t allocated, active, reserved, retries; };

/* Medians while steps ran, and the most that the GPU can, in MHz; -1: not known. */
struct engine_clocks { int64_t sm, sm_most, memory, memory_most; };

struct engine_lines { char **line; int64_t n, cap; };

struct engine_rank {
    struct engine_memory phase[NEP];
    struct engine_lines  calls[NEP];    /* collectives in their order: "all_gather 0,1 fp32 1024" */
    double *loss, *seconds, *norm;      /* of each step; NaN: it has none */
    int64_t steps;                      /* done */
    int64_t driver;                     /* bytes that the driver says the process holds; -1 */
    struct engine_clocks clocks;        /* of its GPU */
    char    device[96], versions[256];
};

/* The last of more than four steps is traced by PyTorch's profiler on every rank, and takes longer. */
static inline bool engine_traces(int64_t steps) { return steps > 4; }
/* Of rank `rank`. */
void engine_trace_path(const struct engine_job *j, int64_t rank, char *path, size_t size);

struct engine_rows { struct engine_rank *rank; int64_t n; };

/* 0, or -1 reported with nothing to free. */
int  engine_read(const struct engine_job *j, struct engine_rows *out);
void engine_rows_free(struct engine_rows *r);

/* ---- the plan's collectives beside them ---- */

void engine_lines_add(struct engine_lines *l, const char *line);
void engine_lines_free(struct engine_lines *l);

/* The plan's own list of init (step 0) or of an optimizer step, for the rank of the schedules, in the same words. */
void engine_planned_calls(const struct schedules *s, int64_t step, bool reductions, struct engine_lines *out);

/* Whether the second step issues what no schedule has. */
bool engine_step_2_is_another(const struct plan *p);

/* Where two lists part: index of the first entry that differs, -1 where none does. */
int64_t engine_first_difference(const struct engine_lines *a, const struct engine_lines *b);

#endif
