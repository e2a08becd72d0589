/* cmd_limits.c -- dpxplan limits: how large a model, how large a micro-batch, how
 * few GPUs, strategy by strategy. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/size.h"
#include "sim/plan/commands.h"
#include "sim/plan/limits_answer.h"

static int add_deadline(const struct limits_row *r, char *to, size_t size)
{
    const struct money_question *money = &r->asked->money;
    struct money_fewest f;
    size_t n = strlen(to);

    if (money->days < 0 || r->plan.cluster.is_host)
        return 0;
    if (money_fewest_gpus(money, &r->plan, &r->t, &f) < 0)
        return -1;
    if (f.meets)
        snprintf(to + n, size - n, "; in %g days with %" PRId64 " GPUs", money->days, f.gpus);
    else
        snprintf(to + n, size - n, "; not in %g days", money->days);
    return 0;
}

static void print_reach(const struct limits_asked *a, const struct limit *l)
{
    printf(" (%" PRId64 " block%s", l->max_layers, l->max_layers == 1 ? "" : "s");
    if (a->elsewhere == ELSEWHERE_NOTHING)
        fputs(")", stdout);
    else if (l->then_short[0])
        printf("; then %s %s short)", l->then_short, strstr(l->then_short, " and ") ? "are" : "is");
    else
        fputs("; more were not tried)", stdout);
    if (l->max_micro_batch)
        printf("  micro-batch up to %-5" PRId64, l->max_micro_batch);
    else
        printf("  does not fit here    ");
    if (l->min_gpus && !l->max_micro_batch && l->min_gpus < a->world)
        printf("  but on %" PRId64 " GPU%s it does", l->min_gpus, l->min_gpus > 1 ? "s" : "");
    else if (l->min_gpus)
        printf("  from %" PRId64 " GPU%s", l->min_gpus, l->min_gpus > 1 ? "s" : "");
    else if (l->min_gpus_recompute)
        printf("  from %" PRId64 " GPU%s with full recompute", l->min_gpus_recompute, l->min_gpus_recompute > 1 ? "s" : "");
    else
        printf("  nor on more GPUs");
}

/* Cells that have no answer for the same reason are one line. */
struct printing {
    bool begun;
    int  nrefused;
    struct { char cells[320], why[sizeof ((struct limits_row *)0)->refused]; } refused[NSTRATEGY * NDIALECT];
};

static void keep_refused(struct printing *p, const struct limits_row *r)
{
    int i = 0;

    while (i < p->nrefused && strcmp(p->refused[i].why, r->refused))
        i++;
    size_t n = strlen(p->refused[i].cells);
    snprintf(p->refused[i].cells + n, sizeof p->refused[i].cells - n, "%s%s %s", n ? ", " : "", strategy_name(r->strategy), dialect_name(r->dialect));
    memcpy(p->refused[i].why, r->refused, sizeof r->refused);
    p->nrefused += i == p->nrefused;
}

static void print_refused(const struct printing *p)
{
    for (int i = 0; i < p->nrefused; i++)
        if (strchr(p->refused[i].cells, ','))
            printf("no answer of %s: %s\n", p->refused[i].cells, p->refused[i].why);
        else
            printf("%-21s no answer: %s\n", p->refused[i].cells, p->refused[i].why);
}

/* The first row is preceded by what holds for all. */
static int print_row(void *of, const struct limits_row *r)
{
    const struct limits_asked *a = r->asked;
    char training[160] = "";
    struct printing *p = of;

    if (!p->begun && a->states_only)
        printf("model states alone in %s on %" PRId64 " rank%s: no activations, no buffers\n", size_text(a->memory).s,
               a->world, a->world > 1 ? "s" : "");
    p->begun = true;
    if (r->refused[0]) {
        keep_refused(p, r);
        return 0;
    }
    if (r->timed) {
        money_short(&a->money, &r->plan, r->t.line.step_s, training, sizeof training);
        size_t n = strlen(training);
        snprintf(training + n, sizeof training - n, " with a global batch of %" PRId64, plan_global_batch(&r->plan));
        if (add_deadline(r, training, sizeof training) < 0)
            return -1;
    }
    printf("%-8s %-12s %9.4g B/param  largest model %9s", strategy_name(r->strategy), dialect_name(r->dialect),
           r->limit.bytes_per_param, count_text(r->limit.max_params).s);
    if (!a->states_only)
        print_reach(a, &r->limit);
    if (r->narrow)
        fputs("; weights and states in bf16 (ddp.model_dtype)", stdout);
    puts(training);
    fflush(stdout);
    return 0;
}

int cmd_limits(int argc, char **argv)
{
    struct limits_asked a = LIMITS_ASKED;
    struct printing printing = { 0 };
    bool json = false;
    const struct opt opts[] = {
        LIMITS_OPTS(a),
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    json_t *doc;
    int rc = opts_parse("dpxplan limits", "Per strategy: the largest model, the largest micro-batch, the fewest GPUs.  "
                        "Exits with 3 when\nno strategy holds any model.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (!json) {
        rc = limits_answer(&a, print_row, &printing);
        print_refused(&printing);
        return rc;
    }
    rc = limits_json(&a, &doc);
    return doc ? dpxplan_print_json(doc, rc) : rc;
}
