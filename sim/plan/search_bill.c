/* search_bill.c -- see search_bill.h. */
#include "sim/plan/search_bill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "base/sort.h"
#include "model/plan/knob.h"
#include "sim/plan/plan_words.h"

int search_bill_check(const struct bill_asked *a, const struct cluster *c)
{
    const struct cluster_runs *stated = &c->runs;
    const char *lacking = !a->eval.money.tokens ? "of how much training? give --tokens 15T"
                        : !a->mtbf && !stated->rate[0] && !(stated->mtbf > 0) && !(stated->node_mtbf > 0) && !(stated->network_mtbf > 0) ? "how often is a job interrupted? give --mtbf, such as llama3 or 50000h"
                        : !a->storage && !a->storage_node && !(stated->storage > 0) && !(stated->storage_node > 0) ? "where do checkpoints go? give --storage, such as 200GB/s" : NULL;

    return lacking ? fail("--goal bill: %s", lacking) : 0;
}

/* The first to end, then the faster step. */
static int by_total(const void *a, const void *b)
{
    const struct search_bill_row *x = a, *y = b;
    double s = x->bill.time.total_s, t = y->bill.time.total_s;

    return s < t ? -1 : s > t ? 1 : x->found < y->found ? -1 : x->found > y->found;
}

/* All fitting plans by their bill.  How many; -1 reported. */
static int64_t bills(const struct bill_asked *a, const struct search_result *r, struct search_bill_row *all)
{
    int64_t n = 0;

    for (int64_t i = 0; i < r->nfit; i++) {
        all[n].found = &r->found[i];
        if (bill_of_step(a, &r->found[i].plan, r->found[i].step_s, &all[n].bill) < 0)
            return -1;
        n += isfinite(all[n].bill.time.total_s);
    }
    sort_stable(all, (size_t)n, sizeof *all, by_total);
    return n;
}

/* Those of the sorted that do fit, the allocator asked, and wait for no memory; with the error of the difference from `first`.  How many;
 * -1 reported. */
static int64_t that_fit(struct search_bill_row *all, int64_t known, const struct ranked *first, int64_t top)
{
    int64_t n = 0;

    for (int64_t i = 0; i < known && n < top; i++) {
        struct ranked beside = { .found = NULL };
        if (all[i].found != first->found && ranking_beside(first, &all[i].found, 1, &beside) < 0)
            return -1;
        if (all[i].found != first->found && (!beside.found || beside.waits))
            continue;
        all[n] = all[i];
        all[n++].unsure_s = beside.found ? beside.unsure_s : 0;
    }
    return n;
}

/* Where the error does not tell the first to end from the answer by the step, that keeps its place. */
static int keep_first(const struct bill_asked *a, const struct ranked *first, struct search_bill_row *row, int64_t *n, int64_t top)
{
    struct search_bill_row by_step = { .found = first->found };
    int64_t at = 0;

    if (*n == 0 || row[0].found == first->found || first->waits)
        return 0;
    if (bill_of_step(a, &first->found->plan, first->found->step_s, &by_step.bill) < 0)
        return -1;
    double error = row[0].unsure_s / first->found->step_s * by_step.bill.time.total_s;
    if (!(by_step.bill.time.total_s - row[0].bill.time.total_s <= error))
        return 0;
    while (at < *n && row[at].found != first->found)
        at++;
    if (at == *n && *n < top)
        (*n)++;
    at = at < *n ? at : *n - 1;
    memmove(row + 1, row, (size_t)at * sizeof *row);
    row[0] = by_step;
    return 0;
}

int search_bill(const struct bill_asked *a, const struct search_result *r, const struct ranked *first, int64_t top,
                struct search_bill_row **row, int64_t *n)
{
    *row = room_new((size_t)r->nfit + 1, sizeof **row);
    *n = bills(a, r, *row);
    if (*n >= 0)
        *n = that_fit(*row, *n, first, top);
    if (*n >= 0 && keep_first(a, first, *row, n, top) == 0)
        return 0;
    free(*row);
    *row = NULL;
    *n = 0;
    return -1;
}

bool search_bill_unsure(const struct search_result *r, const struct search_bill_row *row, int64_t n)
{
    if (r->cut_by_time == 0 || n == 0)
        return false;
    return row[0].bill.time.total_s > SEARCH_NEAR * r->found[0].step_s * (double)row[0].bill.run.steps;
}

json_t *search_bill_json(const struct search_bill_row *row, int64_t n)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < n; i++) {
        const struct bill *b = &row[i].bill;
        char label[KNOB_LABEL], words[PLAN_WORDS];
        knob_label(&row[i].found->plan, label, sizeof label);
        plan_words(&row[i].found->plan, words, sizeof words);
        json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:I, s:I, s:s, s:f, s:f, s:I, s:f, s:f, s:o}", "label", label, "words", words,
            "step_s", b->run.step_s, "checkpoint_bytes", (json_int_t)b->saved.bytes, "node_bytes", (json_int_t)b->saved.node, "written_by",
            b->saved.by, "blocked_s", b->run.blocked_s, "behind_s", b->run.behind_s, "every_steps", (json_int_t)b->run.every, "total_s",
            b->time.total_s, "goodput", b->time.useful_s / b->time.total_s, "plan", plan_to_json(&row[i].found->plan)));
    }
    return list;
}
