/* bill.h -- a whole training with its checkpoints and interruptions: when it ends, what it costs, and where the money goes.  dpxplan
 * bill and --json are both this.
 *
 *     struct bill_asked a = BILL_ASKED;
 *     const struct opt opts[] = { BILL_OPTS(a), { 0 } };
 *     ...
 *     struct bill b;
 *     int rc = bill_answer(&a, &b);
 *     if (rc == EXIT_DONE || rc == EXIT_NO) {
 *         ... b.time.total_s ...
 *         bill_free(&b);
 *     }
 *
 * What is not asked is as the cluster states it ("storage", "failures"); what neither states stays unknown: without --storage a checkpoint has bytes and no seconds, without --mtbf there are no interruptions
 * to count; both then have a table of what would be. */
#ifndef DPX_BILL_H
#define DPX_BILL_H

#include "sim/bill/failures.h"
#include "sim/bill/goodput.h"
#include "sim/bill/saved.h"
#include "sim/plan/eval.h"

struct bill_asked {
    struct eval_args eval;
    int64_t samples, epochs;
    int64_t eval_samples, eval_every;       /* of an evaluation pass; steps between two */
    const char *mtbf, *storage, *storage_node, *every, *recover, *warm_up, *repair, *start, *step, *preempted, *queue;
    bool    async, shrink, training_network, requeue;
    double  packed;                 /* tokens of a sample on average, where samples are packed; 0: each fills a sequence */
    int64_t neighbour;              /* checkpoints in the memory of another node, each so many-th on disk; 0: none there */
    bool    worlds;                 /* other numbers of GPUs as well */
    double  memory_lost;
    int64_t spares;                 /* nodes; below 0: one is always there */
};

#define BILL_ASKED { .eval = EVAL_ARGS, .spares = -1, .epochs = 1 }
#define BILL_OPTS(a) \
    OPTS_EXAMPLE("dpxplan bill demo/8b-fsdp.json --tokens 1T --mtbf llama3 --storage 9GB/s"), \
    { "PLAN.json", "the plan; or a model's name, or a file of a training framework (both with --cluster); - is standard input", .str = &(a).eval.plan.path, .doc = &(a).eval.plan.doc, .positional = true, .required = true }, \
    PLAN_GIVEN_OPTS((a).eval.plan), \
    { "set", "change keys of the plan, such as seq=8k nodes=4", .pairs = &(a).eval.set }, \
    { "env", "set environment variables of the job, such as NCCL_NVLS_ENABLE=0", .pairs = &(a).eval.set, .value = "NAME=VALUE ..." }, \
    { "host-memory", "bytes of a node's host memory, instead of the cluster's", .bytes = &(a).eval.host_memory, .min = MEMORY_LEAST }, \
    { "mtbf", "how long one GPU with its share of the node runs until it interrupts the job: a published rate (llama3, opt-175b, bloom, rsc-1, rsc-2) or a time such as 50000h; " \
      "or by cause, as gpu=60000h,network=2000h: of one GPU, of one node without its GPUs, of the network between nodes", \
      .str = &(a).mtbf, .value = "RATE", .often = true, .group = BILL_FAILURES }, \
    { "recover", "from an interruption until ranks load the checkpoint: found, replaced, started (10min, as MegaScale states)", .str = &(a).recover, .value = "TIME", .group = BILL_FAILURES }, \
    { "warm-up", "from the loaded checkpoint to steps as usual, at the first start too: compile, first step, data; left out: none", .str = &(a).warm_up, .value = "TIME", .group = BILL_FAILURES }, \
    { "spares", "nodes that stand by, and are paid for; left out: one is always there", .i = &(a).spares, .min = 0, .group = BILL_FAILURES }, \
    { "repair", "until a node that failed is back (with --spares)", .str = &(a).repair, .value = "TIME", .group = BILL_FAILURES }, \
    { "shrink", "without a spare go on with fewer nodes instead of waiting", .flag = &(a).shrink, .group = BILL_FAILURES }, \
    { "preempted", "how often the whole job is taken away, on average (spot machines, jobs of higher priority): 8h", .str = &(a).preempted, .value = "TIME", .group = BILL_FAILURES }, \
    { "requeue", "a failed job goes through the queue as well, as Slurm's does, and has sound nodes then", .flag = &(a).requeue, .group = BILL_FAILURES }, \
    { "queue", "until it has its GPUs again, which nobody pays for (with --preempted or --requeue)", .str = &(a).queue, .value = "TIME", .group = BILL_FAILURES }, \
    { "storage", "what all nodes together write to it: 200GB/s; or disk: each node to its own disks", .str = &(a).storage, .value = "RATE", .often = true, .group = BILL_CHECKPOINTS }, \
    { "storage-node", "what one node writes to it at most: 5GB/s", .str = &(a).storage_node, .value = "RATE", .group = BILL_CHECKPOINTS }, \
    { "every", "between checkpoints: a time (30min) or steps (500); left out: what costs least", .str = &(a).every, .value = "TIME", .group = BILL_CHECKPOINTS }, \
    { "async", "ranks wait for the copy to host memory only; it is written beside training", .flag = &(a).async, .group = BILL_CHECKPOINTS }, \
    { "training-network", "with --async: checkpoints go over the network that training uses, which slows the steps meanwhile", .flag = &(a).training_network, .group = BILL_CHECKPOINTS }, \
    { "neighbour", "checkpoints go to another node's host memory, each K-th to the storage as well", .i = &(a).neighbour, .min = 1, .value = "K", .group = BILL_CHECKPOINTS }, \
    { "memory-lost", "share of interruptions that take what lies in memory (with --neighbour)", .num = &(a).memory_lost, .group = BILL_CHECKPOINTS }, \
    { "step", "a step as you measured it (850ms), in the place of the predicted one", .str = &(a).step, .value = "TIME" }, \
    { "worlds", "also a quarter, half, twice and four times as many GPUs with the same global batch: where more of them stop helping", .flag = &(a).worlds }, \
    { "tokens", "tokens of the whole training, such as 15T", .i = &(a).eval.money.tokens, .min = 1, .group = MONEY_GROUP }, \
    { "price", "price of a GPU-hour, with its currency or without: 2.10, $2.10", .num = &(a).eval.money.price, .sign = &(a).eval.money.currency, \
      .group = MONEY_GROUP }, \
    { "watts", "power of a GPU's board, where the table has none", .num = &(a).eval.money.watts, .group = MONEY_GROUP }, \
    { "samples", "samples of --seq tokens, instead of --tokens", .i = &(a).samples, .min = 1, .group = MONEY_GROUP }, \
    { "packed", "tokens of a sample on average, where samples are packed one behind the other into sequences of --seq", .num = &(a).packed, .group = MONEY_GROUP }, \
    { "epochs", "times that each sample is seen", .i = &(a).epochs, .min = 1, .group = MONEY_GROUP }, \
    { "eval-samples", "samples of an evaluation pass, forward alone; each is a sequence", .i = &(a).eval_samples, .min = 1, .group = MONEY_GROUP }, \
    { "eval-every", "steps between two of them", .i = &(a).eval_every, .min = 1, .group = MONEY_GROUP }, \
    { "start", "the first day, YYYY-MM-DD: the answer then has dates", .str = &(a).start, .value = "DATE", .group = MONEY_GROUP }, \
    { "db", "the database of calibrations", .str = &(a).eval.db, .value = "FILE" }
#define BILL_FAILURES "Interruptions"
#define BILL_CHECKPOINTS "Checkpoints"

struct bill {
    struct eval_answer e;
    struct money money;             /* if nothing fails and nothing is saved */
    struct saved saved;
    struct storage storage;
    struct save_times times;
    struct failures failures;       /* all 0: not known */
    double by_cause[FAILURE_CAUSES];        /* interruptions a second of the job; their sum is 1 / run.mtbf_s */
    double found_s;                 /* of run.recover_s: found, replaced, started */
    int64_t spares;                 /* nodes, as asked or as the cluster states; below 0: one is always there */
    struct long_run run;
    double beside;                  /* how many times as long steps take while a checkpoint is on its way over their network; 1: as long */
    double eval_s;                  /* of one evaluation pass; run.step_s has its part of it.  0: there is none */
    bool   best;                    /* run.every is the best */
    int64_t host_bytes, host_free;  /* of a node, for checkpoints; what is left for them.  0: none are kept there */
    bool   known;                   /* storage is, and interruptions are, or (--every) how often to save if there are none: */
    struct run_time time;           /* ... the mean of the run */
    double low_s, high_s;           /* 90 %, by the step's interval and the chance of interruptions */
    int64_t longest;                /* steps between checkpoints for which the mean is 0.1 % more; 0: --every was given */
    double half, twice;             /* total_s with checkpoints twice and half as often, over that of the best; 0: no such interval */
    bool   endless;                 /* it does not end within a hundred times the time without interruptions */
};

/* EXIT_DONE; EXIT_NO where the plan does not fit, its checkpoints do not fit host memory, or the run would not end; another exit status
 * with the reason reported and nothing to free. */
int     bill_answer(const struct bill_asked *a, struct bill *out);
/* The mean run of a plan whose step is known: neither memory nor the clock is asked, and there is no interval.  The bill shares the plan
 * and is not freed.  0, or -1 reported. */
int     bill_of_step(const struct bill_asked *a, const struct plan *p, double step_s, struct bill *out);
/* New reference. */
json_t *bill_json(const struct bill_asked *a, const struct bill *b);
void    bill_free(struct bill *b);

/* Of so many seconds of the run those with GPUs: time in a queue is not paid for. */
double  bill_paid_s(const struct bill *b, double total_s);

/* The run with another rate, its best interval found anew; the mean in *t.  Returns that interval in steps. */
int64_t bill_with_mtbf(const struct bill *b, double mtbf_of_gpu_s, struct run_time *t);

/* The same training on another number of GPUs with the same global batch, its best interval found anew; the means. */
struct bill_world { int64_t gpus, every; bool possible, fits; double step_s; struct run_time time; };
enum { BILL_WORLDS = 5 };
/* A quarter, half, all, twice and four times as many; where interruptions or storage are not known nothing fails and nothing is saved.
 * 0, or -1 reported. */
int bill_worlds(const struct bill_asked *a, const struct bill *b, struct bill_world out[BILL_WORLDS]);

/* The date so many seconds after --start, "2027-03-12"; "" where none was given. */
struct bill_date { char s[16]; };
struct bill_date bill_date_after(const struct bill_asked *a, double seconds);

#endif
