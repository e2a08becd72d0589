/* search_answer.h -- a search: the question, the answer, and the answer as a document.  dpxplan search and dpx_search()
 * are both this.
 *
 *     struct search_asked a = SEARCH_ASKED;
 *     const struct opt opts[] = { SEARCH_ASKED_OPTS(a), { 0 } };
 *     ... opts_parse() or opts_json() ...
 *     struct search_answer s;
 *     int rc = search_answer_open(&a, &s);                         the question; answer_question() says it
 *     if (rc != EXIT_DONE)
 *         return rc;
 *     rc = search_answer_find(&a, &s);
 *     if (rc == EXIT_DONE || rc == EXIT_NO)
 *         ... s.ranked[0 .. s.n - 1], search_answer_json(&a, &s) ...
 *     search_answer_free(&s); */
#ifndef DPX_SEARCH_ANSWER_H
#define DPX_SEARCH_ANSWER_H

#include "sim/plan/money.h"
#include "sim/plan/search_args.h"
#include "sim/plan/search_bill.h"
#include "sim/search/ranking.h"

struct search_asked {
    struct search_args ask;
    int64_t  top;
    struct money_question money;
    int      goal;                  /* enum search_goal */
    struct bill_asked bill;         /* of GOAL_BILL: its money is `money` */
    bool   (*go_on)(void *of, int64_t done, int64_t total);     /* as search_options has it */
    void    *go_on_of;
    bool     keeps;
    bool     brief;                 /* nothing but search_brief() says the answer */
};

enum search_goal { GOAL_STEP, GOAL_BILL };
extern const char *const search_goals[];        /* ended by NULL */

#define SEARCH_ASKED { .ask = SEARCH_ARGS, .top = 10, .money = MONEY_NONE, .bill = BILL_ASKED }
#define SEARCH_ASKED_OPTS(a) \
    OPTS_EXAMPLE("dpxplan search llama-3.1-8b 8xh100 --seq 8k --global-batch 64"), \
    SEARCH_OPTS((a).ask, true), \
    MONEY_OPTS((a).money), \
    { "goal", "what the best plan is best at: its step; or bill: the whole training with checkpoints and interruptions, which needs --tokens, --mtbf and --storage", \
      .word = &(a).goal, .words = search_goals, .group = SEARCH_BILL }, \
    { "mtbf", "with --goal bill: how long one GPU runs until it interrupts the job, as bill has it (llama3, 50000h)", .str = &(a).bill.mtbf, .value = "RATE", .group = SEARCH_BILL }, \
    { "storage", "what all nodes together write checkpoints at: 200GB/s; or disk: each node to its own disks", .str = &(a).bill.storage, .value = "RATE", .group = SEARCH_BILL }, \
    { "storage-node", "what one node writes at most: 5GB/s", .str = &(a).bill.storage_node, .value = "RATE", .group = SEARCH_BILL }, \
    { "recover", "from an interruption until ranks load the checkpoint (10min)", .str = &(a).bill.recover, .value = "TIME", .group = SEARCH_BILL }, \
    { "warm-up", "from the loaded checkpoint to steps as usual", .str = &(a).bill.warm_up, .value = "TIME", .group = SEARCH_BILL }, \
    { "async", "checkpoints are written beside training; ranks wait for the copy to host memory", .flag = &(a).bill.async, .group = SEARCH_BILL }, \
    { "top", "ideas to show", .i = &(a).top, .min = 1 }

#define SEARCH_BILL "The whole training"

struct search_answer {
    struct question q;
    struct search_result r;
    struct ranked *ranked;          /* n ideas, the best first */
    int64_t n, tied;
    struct search_bill_row *bill;   /* of GOAL_BILL: nbill plans, the first to end first */
    int64_t nbill;
    double  started;                /* by a clock */
};

/* EXIT_DONE, or the exit status with the reason reported and nothing to free. */
int     search_answer_open(const struct search_asked *a, struct search_answer *out);
/* EXIT_DONE, EXIT_NO where nothing fits, or the exit status with the reason reported. */
int     search_answer_find(const struct search_asked *a, struct search_answer *s);
/* Seconds since the question was opened. */
double  search_answer_seconds(const struct search_answer *s);
/* The document that --json prints (new reference).  Its search_s are the seconds until it is complete. */
json_t *search_answer_json(const struct search_asked *a, const struct search_answer *s);
void    search_answer_free(struct search_answer *s);

#endif
