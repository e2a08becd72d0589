/* sweep.h -- one question at many points: axes, their points, what each of them gives.  dpxplan sweep and dpx_sweep() are both
 * this.
 *
 *     struct sweep_asked a = SWEEP_ASKED;
 *     const struct opt opts[] = { SWEEP_OPTS(a), { 0 } };
 *     ... opts_parse() or opts_json() ...
 *     struct sweep s;
 *     if (sweep_open(&a, &s) < 0)                              `--over nodes=1..64*2 seq=4k,8k`
 *         return 2;
 *     for (int64_t i = 0; i < s.points; i++) {
 *         struct sweep_row row;
 *         sweep_point(&s, i, &row);
 *         ...
 *     }
 *     sweep_free(&s);
 *
 * VALUES of an axis: words or numbers with commas between them (ddp,fsdp), FROM..TO (whole steps of 1), FROM..TO+STEP,
 * FROM..TO*FACTOR, and any of these together (1..4,8).
 *
 * With a plan each point is that plan with keys changed (plan_source.h) and is evaluated; without one each point is
 * searched, and its row is that of the first plan of the answer.  The last axis runs fastest; the one that changes the
 * number of ranks is put last, so that its efficiency refers to the first point of its own series. */
#ifndef DPX_SWEEP_H
#define DPX_SWEEP_H

#include "base/chart/unit.h"
#include "sim/plan/money.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/plan_source.h"
#include "sim/plan/search_args.h"

enum { SWEEP_AXES = 8, SWEEP_WHAT = 200 };
#define SWEEP_POINTS 500000

struct sweep_axis {
    char   key[96];             /* as it was typed */
    char **value;
    int    n;
    int64_t room;               /* values that `value` has room for */
    bool   numeric, world;      /* all values are numbers; it changes how many ranks there are */
};

struct sweep_asked {
    struct plan_given plan;             /* not given: each point is searched */
    struct opt_pairs over, set;
    struct search_args ask;             /* of a search; with a plan its global_batch, if not 0 */
    struct money_question money;
};

#define SWEEP_ASKED { .ask = SEARCH_ARGS, .money = MONEY_NONE }
#define SWEEP_OPTS(a) \
    OPTS_EXAMPLE("dpxplan sweep demo/8b-fsdp.json --over nodes=1..4*2 seq=4k,8k"), \
    OPTS_EXAMPLE("dpxplan sweep --over gpu=a100,h100 --model llama-3.1-8b \\\n      --cluster 8xh100 --seq 4k --global-batch 64"), \
    { "PLAN.json", "the plan to evaluate at each point; without one each point is searched", .str = &(a).plan.path, \
      .doc = &(a).plan.doc, .positional = true }, \
    { "over", "an axis, such as nodes=1..64*2, seq=2k,4k,8k, network=100..800+100, gpu=a100,h100, or any key of the plan", \
      .pairs = &(a).over, .value = "KEY=VALUES ...", .often = true }, \
    { "set", "change keys of the plan first", .pairs = &(a).set, .often = true }, \
    { "env", "set environment variables of the job, such as NCCL_NVLS_ENABLE=0", .pairs = &(a).set, .value = "NAME=VALUE ..." }, \
    SEARCH_OPTS((a).ask, false), \
    MONEY_OPTS((a).money)

struct sweep {
    struct sweep_axis axis[SWEEP_AXES];
    int      naxes;
    int64_t  points;
    struct plan plan;
    bool     has_plan;                  /* else each point is searched */
    const struct search_args *ask;
    const struct money_question *money;
    bool     sends;                     /* some point has several GPUs */
    bool     scales;                    /* an axis changes the number of GPUs: there is an efficiency */
    const char *rate;                   /* "tokens/s", or "samples/s" of a model whose samples have none */
    double   base;                      /* such a rate of a GPU at the first point of the series; 0: none fitted yet */
    int64_t  base_gpus;                 /* that point's */
    char     base_gpu[32];
    struct sweep_lowered *lowered;      /* the last plan that was evaluated, for points that differ from it in the network alone; NULL */
};

enum sweep_state { SWEEP_FITS, SWEEP_TIGHT, SWEEP_NO, SWEEP_REFUSED };

struct sweep_row {
    enum sweep_state state;
    int64_t gpus, bytes, available;     /* bytes: allocated on the fullest GPU, with NCCL's; */
    int64_t sent;                       /* what that GPU puts on the wire in a step; 0: it sends nothing, or there is no plan */
    int64_t taken;                      /* and what decides beside `available` (evaluation_taken); 0: not known */
    double  step_s, low_s, high_s, rate, each, mfu;     /* rate: tokens or samples a second; each: of a GPU */
    bool    tokens;                     /* tokens */
    double  efficiency;                 /* each / that of the series' first point that fits, on another number of GPUs of that type; below 0: none */
    char    gpu[32];                    /* the type */
    double  days, cost;                 /* below 0: not asked */
    char    decides[64];                /* the memory of a node that is short: "needs 200.00 GiB of 128.00 GiB of host memory"; "": none */
    char    what[SWEEP_WHAT];           /* the plan's label, or why there is none */
    char    words[PLAN_WORDS];          /* the plan in words; "" where there is none */
};

/* The question, which has to outlive it.  0, or -1 with the reason reported and nothing to free.  Keys are checked, values
 * only when their point is reached. */
int  sweep_open(const struct sweep_asked *a, struct sweep *s);
/* Its axes alone. */
int  sweep_axes(struct sweep *s, const struct opt_pairs *over);
void sweep_free(struct sweep *s);

/* What all points were, for the exit status: EXIT_MISUSE, reported, where every one was refused; EXIT_NO where none fits. */
struct sweep_count { int64_t done, refused, fit; char why[SWEEP_WHAT]; };
void sweep_count_row(struct sweep_count *c, const struct sweep_row *r);
int  sweep_count_status(const struct sweep_count *c);

/* The value of axis a at point i. */
const char *sweep_value(const struct sweep *s, int64_t i, int a);

/* The points must be asked for in their order.  A point that cannot be is SWEEP_REFUSED with the reason in `what`;
 * nothing is reported. */
void sweep_point(struct sweep *s, int64_t i, struct sweep_row *out);

const char *sweep_state_name(enum sweep_state s);

/* Columns that a figure can show: "tokens_per_s" ... ended by NULL; a row's value, NAN where it has none; its axis in
 * words, and its unit. */
enum sweep_column { SWEEP_TOKENS, SWEEP_EACH, SWEEP_STEP, SWEEP_MFU, SWEEP_EFFICIENCY, SWEEP_MEMORY, SWEEP_DAYS, SWEEP_COST, SWEEP_SENT };
extern const char *const sweep_metrics[];
double       sweep_metric(const struct sweep_row *r, int metric);
const char  *sweep_metric_words(const struct sweep *s, int metric);
enum measure sweep_metric_unit(int metric);

#endif
