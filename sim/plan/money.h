/* money.h -- what a whole training takes: steps, days, GPU-hours, cost, energy, and the fewest GPUs for a deadline.
 *
 *     struct money_question q = MONEY_NONE;
 *     const struct opt opts[] = { ..., MONEY_OPTS(q), { 0 } };
 *     ...
 *     if (money_check(&q) < 0)
 *         return 2;
 *     if (q.tokens)
 *         money_of(&q, &plan, &timing, &m);
 *
 * A step takes the predicted time every time: restarts, evaluation, checkpoints and failures are left out.  The
 * interval is that of the step.  Energy is the boards' limit (cluster.h, power_watts()) times GPU-hours: at most that,
 * without hosts, network and cooling.  Cost has the unit of the price, and its currency where one is given. */
#ifndef DPX_MONEY_H
#define DPX_MONEY_H

#include <stdbool.h>
#include <stdio.h>

#include "sim/clock/simulate.h"

/* 0 tokens: nothing is asked; a price or number of days below 0: not given; watts 0: the table's. */
struct money_question { int64_t tokens; double price, days, watts; char currency[8]; };

#define MONEY_NONE { .tokens = 0, .price = -1, .days = -1, .watts = 0 }
#define MONEY_GROUP "Hours and money"
#define MONEY_OPTS(q) \
    { "tokens", "tokens of the whole training, such as 15T: days, GPU-hours", .i = &(q).tokens, .min = 1, .group = MONEY_GROUP }, \
    { "price", "price of a GPU-hour, with its currency or without: 2.10, $2.10", .num = &(q).price, .sign = &(q).currency, \
      .group = MONEY_GROUP }, \
    { "days", "a deadline: the fewest GPUs for it", .num = &(q).days, .group = MONEY_GROUP }, \
    { "watts", "power of a GPU's board, where the table has none", .num = &(q).watts, .group = MONEY_GROUP }

struct money {
    int64_t steps;                      /* optimizer steps */
    double  days, low_days, high_days;
    double  gpu_hours;
    double  cost;                       /* price x GPU-hours; below 0: no price */
    double  watts, kwh;                 /* of a board, of all; 0: not known */
};

/* The smallest world with which the same global batch meets the deadline. */
struct money_fewest {
    bool    meets;                      /* false: none does; the rest is of the fastest looked at */
    int64_t gpus, nodes;                /* 0: no world could be looked at */
    int64_t micro_batch, accumulation;
    struct money m;
    int64_t most;                       /* GPUs among which the global batch can be divided at most */
};

/* 0, or -1 with one line: an option that needs --tokens. */
int money_check(const struct money_question *q);

void money_of(const struct money_question *q, const struct plan *p, const struct timing *t, struct money *out);

/* Every world whose ranks with samples of their own (GPUs / (tensor x context x pipeline)) divide the global batch is
 * evaluated, from the smallest that could be enough.  The micro-batch is kept where it divides their part, else it is
 * the largest that does; that of a pipeline may be smaller, when more micro-batches are faster.  0, or -1 reported. */
int money_fewest_gpus(const struct money_question *q, const struct plan *p, const struct timing *t,
                      struct money_fewest *out);

/* The plan on so many GPUs with the same global batch: the micro-batch is the largest, of those up to the plan's, that divides a rank's part.
 * 1: it is not possible; else 0 and *out, plan_free() it. */
int money_on_world(const struct plan *p, int64_t gpus, struct plan *out);

/* The same answers in words, and as the object "training" (new reference; null without a question). */
int     money_print(const struct money_question *q, const struct plan *p, const struct timing *t, FILE *to);
json_t *money_json(const struct money_question *q, const struct plan *p, const struct timing *t);

/* 2381400 as "2,381,400"; whole.  Returns `to`. */
const char *money_grouped(double x, char *to, size_t size);
/* GPU-hours: four digits, of thousands all. */
const char *money_hours(double hours, char *to, size_t size);

/* "$2,381,400", "2,381,400 EUR", "12.50"; "-" of a sum below 0. */
void money_sum(const struct money_question *q, double x, char *to, size_t size);

/* "; 92.3 days, $2,381,400" for the end of a row; "" without a question. */
void money_short(const struct money_question *q, const struct plan *p, double step_s, char *to, size_t size);

#endif
