/* cmd_limits.c -- dpxplan limits: how large a model, how large a micro-batch, how
 * few GPUs, strategy by strategy. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/size.h"
#include "model/plan/attention.h"
#include "model/plan/knob.h"
#include "sim/plan/commands.h"
#include "sim/plan/money.h"
#include "sim/plan/search_args.h"
#include "sim/search/limits.h"

struct args {
    const char *cluster, *model;
    int64_t memory, world, seq;
    int dialect, kernels, precision, recompute, elsewhere;
    struct money_question money;
    bool states_only, json;
};

/* The training with the largest micro-batch, one of them a step on each rank; *t: of that plan.  1 done, 0 nothing is
 * asked or nothing fits, -1 reported. */
static int train(const struct args *a, const struct plan *base, const struct limit *l, struct plan *p, struct timing *t)
{
    struct evaluation e;

    if (!a->money.tokens || !l->max_micro_batch || limit_plan(base, l, (enum dtype)a->precision, (enum elsewhere)a->elsewhere, p) < 0)
        return 0;
    if (evaluate(p, &e) < 0)
        return -1;
    int rc = simulate_plan(p, &e, t, NULL) < 0 ? -1 : 1;
    evaluation_free(&e);
    return rc;
}

static int add_deadline(const struct args *a, const struct plan *p, const struct timing *t, char *to, size_t size)
{
    struct money_fewest f;
    size_t n = strlen(to);

    if (a->money.days < 0 || p->cluster.is_host)
        return 0;
    if (money_fewest_gpus(&a->money, p, t, &f) < 0)
        return -1;
    if (f.gpus)
        snprintf(to + n, size - n, "; in %g days with %" PRId64 " GPUs", a->money.days, f.gpus);
    else
        snprintf(to + n, size - n, "; not in %g days with this batch", a->money.days);
    return 0;
}

static void print_row(const struct args *a, const struct limit *l, const char *training)
{
    printf("%-8s %-12s %9.4f B/param  largest model %9s", strategy_name(l->strategy), dialect_name(l->dialect),
           l->bytes_per_param, count_text(l->max_params).s);
    if (!a->states_only) {
        printf(" (%" PRId64 " block%s", l->max_layers, l->max_layers == 1 ? "" : "s");
        if (a->elsewhere == ELSEWHERE_NOTHING)
            fputs(")", stdout);
        else if (l->then_short[0])
            printf("; then %s %s short)", l->then_short, strstr(l->then_short, " and ") ? "are" : "is");
        else
            fputs("; more were not looked at)", stdout);
        if (l->max_micro_batch)
            printf("  micro-batch up to %-5" PRId64, l->max_micro_batch);
        else
            printf("  does not fit here    ");
        if (l->min_gpus)
            printf("  from %" PRId64 " GPU%s", l->min_gpus, l->min_gpus > 1 ? "s" : "");
        else
            printf("  nor on more GPUs");
    }
    puts(training);
}

static json_t *row_json(const struct args *a, const struct limit *l)
{
    json_t *o = json_pack("{s:s, s:s, s:f, s:I}", "strategy", strategy_name(l->strategy), "dialect",
                          dialect_name(l->dialect), "bytes_per_param", l->bytes_per_param, "max_params",
                          (json_int_t)l->max_params);
    if (!a->states_only) {
        json_object_set_new(o, "max_layers", json_integer(l->max_layers));
        json_object_set_new(o, "then_short", l->then_short[0] ? json_string(l->then_short) : json_null());
        json_object_set_new(o, "max_micro_batch", json_integer(l->max_micro_batch));
        json_object_set_new(o, "min_gpus", json_integer(l->min_gpus));
    }
    return o;
}

static bool is_asked(const struct args *a, enum strategy s, enum dialect d)
{
    return (a->dialect >= 0 ? (int)d == a->dialect : !a->states_only || d == DIALECT_PAPER) && dialect_has(d, s) &&
           elsewhere_has(s, d, (enum elsewhere)a->elsewhere);
}

static int refuse_dialect(const struct args *a)
{
    char cells[256] = "";
    size_t n = 0;

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT && n < sizeof cells; d++)
            if (dialect_has((enum dialect)d, (enum strategy)s) && elsewhere_has((enum strategy)s, (enum dialect)d, (enum elsewhere)a->elsewhere))
                n += (size_t)snprintf(cells + n, sizeof cells - n, "%s%s of %s", n ? ", " : "", strategy_name((enum strategy)s),
                                      dialect_name((enum dialect)d));
    return fail("limits --offload %s: no strategy of %s has it; those that have: %s", elsewhere_words[a->elsewhere],
                dialect_name((enum dialect)a->dialect), cells);
}

/* One cell; a cell that has no answer says why.  1 answered, 0 not, -1 reported. */
static int ask_cell(const struct args *a, const struct plan *base, enum strategy s, enum dialect d, struct limit *l, char *why, size_t size)
{
    if (a->states_only)
        return limit_states(a->memory, a->world, s, d, (enum dtype)a->precision, l) < 0 ? -1 : 1;
    why[0] = '\0';
    struct fail_sink before = fail_divert(why, size);
    int rc = limit_real(base, s, d, (enum dtype)a->precision, (enum elsewhere)a->elsewhere, l);
    fail_restore(before);
    return rc == 0;
}

/* Rows without an answer, after the others; where none has one, the first reason is the command's.  0, or -1 reported. */
static int say_refused(const json_t *refused, bool answered, json_t *rows)
{
    size_t i;
    json_t *r;

    json_array_foreach(refused, i, r) {
        if (!answered)
            return fail("%s", json_string_value(json_object_get(r, "refused")));
        if (rows)
            json_array_append(rows, r);
        else
            printf("%-8s %-12s no answer: %s\n", json_string_value(json_object_get(r, "strategy")),
                   json_string_value(json_object_get(r, "dialect")), json_string_value(json_object_get(r, "refused")));
    }
    return 0;
}

/* Cells that hold any model at all, or -1. */
static int each_cell(const struct args *a, struct plan *base, json_t *rows)
{
    char why[512];
    int some = 0, answered = 0;
    json_t *refused = json_array();

    if (a->elsewhere == ELSEWHERE_DISK && (a->dialect < 0 || a->dialect == DIALECT_DEEPSPEED))
        fputs("dpx: models of thousands of blocks are looked at: this can take some minutes\n", stderr);

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            struct limit l;
            if (!is_asked(a, (enum strategy)s, (enum dialect)d))
                continue;
            fflush(stdout);
            int rc = ask_cell(a, base, (enum strategy)s, (enum dialect)d, &l, why, sizeof why);
            if (rc < 0)
                goto failed;
            if (rc == 0) {
                json_array_append_new(refused, json_pack("{s:s, s:s, s:s}", "strategy", strategy_name((enum strategy)s), "dialect",
                                                         dialect_name((enum dialect)d), "refused", why));
                continue;
            }
            answered++;
            some += l.max_params > 0;
            struct plan p;
            struct timing t;
            char training[96] = "";
            int timed = train(a, base, &l, &p, &t);
            if (timed < 0)
                goto failed;
            if (rows) {
                json_t *row = row_json(a, &l);
                if (a->money.tokens)
                    json_object_set_new(row, "training", timed ? money_json(&a->money, &p, &t) : json_null());
                json_array_append_new(rows, row);
                continue;
            }
            if (timed)
                money_short(&a->money, &p, t.line.step_s, training, sizeof training);
            if (timed && add_deadline(a, &p, &t, training, sizeof training) < 0)
                goto failed;
            print_row(a, &l, training);
        }
    if (!answered && json_array_size(refused) == 0)
        some = refuse_dialect(a);
    else if (say_refused(refused, answered > 0, rows) < 0)
        some = -1;
    json_decref(refused);
    return some;
failed:
    json_decref(refused);
    return -1;
}

/* What the arguments leave open, from the cluster or refused. */
static int complete(struct args *a, struct plan *base)
{
    if (!a->cluster && !a->states_only)
        return fail("limits: give --cluster and --model, or --memory, --world and --states-only");
    if (a->world && !a->states_only)
        return fail("limits: --world goes with --states-only; otherwise the cluster says how many ranks there are");
    if (a->cluster) {
        if (cluster_load(a->cluster, &base->cluster) < 0)
            return -1;
        if (a->memory == 0)
            a->memory = cluster_available(&base->cluster);
        else
            base->cluster.memory = a->memory;
        if (a->world == 0)
            a->world = base->cluster.world_size;
    }
    if (a->states_only && a->elsewhere != ELSEWHERE_NOTHING)
        return fail("limits --offload: goes with --model, whose hosts and disks the cluster describes");
    if (a->states_only)
        return a->memory > 0 && a->world > 0 ? 0 : fail("limits --states-only: give --memory and --world, or --cluster");
    if (!a->model || a->seq == 0)
        return fail("limits: give --model and --seq, or --states-only");
    return model_load(a->model, &base->model);
}

int cmd_limits(int argc, char **argv)
{
    static const char *const dialects[] = { "paper", "torch", "torch-fsdp1", "deepspeed", NULL };
    struct args a = { .dialect = -1, .kernels = -1, .precision = -1, .recompute = RECOMPUTE_NONE, .money = MONEY_NONE };
    const struct opt opts[] = {
        { "cluster", "a cluster file, a built-in name, 4x8xh100", .str = &a.cluster, .names = cluster_builtin },
        { "memory", "bytes of a rank, instead of the cluster's", .bytes = &a.memory, .min = 1 },
        { "world", "ranks, with --memory", .i = &a.world, .min = 1 },
        { "dialect", "only this dialect (with --states-only: paper)", .word = &a.dialect, .words = dialects },
        { "states-only", "parameters, gradients and optimizer states of one unit of P parameters", .flag = &a.states_only },
        { "model", "the family whose number of blocks is varied", .str = &a.model, .names = model_builtin },
        { "seq", "tokens per sample", .length = &a.seq, .min = 1 },
        { "kernels", "kernel set (what transformers picks for the model)", .word = &a.kernels, .words = knob_words("kernels") },
        { "precision", "number format (bf16, or fp16 where the GPU has no bf16)", .word = &a.precision, .words = knob_words("precision") },
        { "recompute", "activation recompute", .word = &a.recompute, .words = knob_words("recompute") },
        { "offload", "what is kept elsewhere: optimizer states, parameters too, both in files", .word = &a.elsewhere,
          .words = elsewhere_words },
        MONEY_OPTS(a.money),
        { "json", "print one JSON document", .flag = &a.json },
        { 0 }
    };
    struct plan base = { .micro_batch = 1, .accumulation = 1 };
    json_t *rows = NULL;
    int rc = opts_parse("dpxplan limits", "Per strategy: the largest model, the largest micro-batch, the fewest GPUs.  "
                        "Exits with 3 when\nno strategy holds any model.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (money_check(&a.money) < 0 || (a.money.tokens && a.states_only && fail("limits: --tokens needs --model") < 0))
        return EXIT_MISUSE;
    base.seq = a.seq;
    base.recompute = (enum recompute)a.recompute;
    base.recompute_interval = 1;
    if (complete(&a, &base) < 0)
        return EXIT_MISUSE;
    bool chosen = a.precision < 0;
    if (chosen)
        a.precision = (int)(a.cluster ? search_precision(&base.cluster.gpu) : DT_BF16);
    if (chosen && a.precision != DT_BF16)
        fprintf(stderr, "dpx: %s: %s has no bf16\n", dtype_name((enum dtype)a.precision), base.cluster.gpu.title);
    base.kernels = a.kernels < 0 ? attention_default(&base.model) : (enum kernel_set)a.kernels;
    if (a.json)
        rows = json_array();
    else if (a.states_only)
        printf("model states alone in %s on %" PRId64 " rank%s: no activations, no buffers\n", size_text(a.memory).s,
               a.world, a.world > 1 ? "s" : "");
    int some = each_cell(&a, &base, rows);
    rc = some < 0 ? EXIT_MISUSE : some ? EXIT_DONE : EXIT_NO;
    if (a.json && some >= 0)
        rc = dpxplan_print_json(json_pack("{s:O}", "limits", rows), rc);
    json_decref(rows);
    plan_free(&base);
    return rc;
}
