/* limits_answer.c -- see limits_answer.h. */
#include "sim/plan/limits_answer.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/plan/attention.h"
#include "model/plan/optimizer_choice.h"
#include "sim/plan/commands.h"

const char *const limits_dialects[] = { "paper", "torch", "torch-fsdp1", "deepspeed", "megatron", NULL };

struct asking {
    struct limits_asked a;
    struct plan base;
    int (*each)(void *of, const struct limits_row *row);
    void *of;
    int some, answered;         /* cells that hold any model; that have an answer */
};

/* ---- the question ---- */

static int complete_cluster(struct limits_asked *a, struct plan *base)
{
    if (named_cluster(a->cluster, a->cluster_doc, &base->cluster) < 0)
        return -1;
    if (a->memory == 0)
        a->memory = cluster_available(&base->cluster);
    else
        base->cluster.memory = a->memory;
    if (a->host_memory > 0)
        base->cluster.node.memory = a->host_memory;
    if (a->elsewhere != ELSEWHERE_NOTHING)
        cluster_say_assumed(&base->cluster);
    if (a->world == 0)
        a->world = base->cluster.world_size;
    return 0;
}

/* What the question leaves open, from the cluster or refused. */
static int complete(struct limits_asked *a, struct plan *base)
{
    bool cluster = a->cluster || a->cluster_doc, model = a->model || a->model_doc;

    if (a->framework >= 0 && a->dialect >= 0 && !(search_framework_dialects(a->framework) >> a->dialect & 1))
        return fail("limits --dialect %s: not one of --framework %s", limits_dialects[a->dialect], search_frameworks[a->framework]);
    if (!cluster && !a->states_only)
        return fail("limits: give --cluster and --model, or --memory, --world and --states-only");
    if (a->world && !a->states_only)
        return fail("limits: --world goes with --states-only; otherwise the cluster says how many ranks there are");
    if (a->world > CLUSTER_MAX_RANKS)
        return fail("limits --world: at most %d ranks", CLUSTER_MAX_RANKS);
    if (cluster && complete_cluster(a, base) < 0)
        return -1;
    if (a->states_only && a->elsewhere != ELSEWHERE_NOTHING)
        return fail("limits --offload: goes with --model, whose hosts and disks the cluster describes");
    if (a->states_only && a->tuned.lora)
        return fail("limits --lora: goes with --model, whose layers get adapters");
    if (a->states_only && optimizer_is_chosen(&a->tuned.optimizer))
        return fail("limits --optimizer: goes with --model, whose tensors' shapes decide what states there are");
    if (a->states_only)
        return a->memory > 0 && a->world > 0 ? 0 : fail("limits --states-only: give --memory and --world, or --cluster");
    if (!model || a->seq == 0)
        return fail("limits: give --model and --seq, or --states-only");
    struct model m;
    if (named_model(a->model, a->model_doc, &m) < 0)
        return -1;
    base->model = m;
    return search_tune(&a->tuned, &base->model);
}

/* Of that framework alone, which has kernels of its own. */
static bool is_megatron(const struct limits_asked *a) { return a->dialect == DIALECT_MEGATRON || a->framework == FRAMEWORK_MEGATRON; }

static int open_question(struct asking *q)
{
    struct limits_asked *a = &q->a;
    const struct optimizer_choice *chosen = &a->tuned.optimizer;

    if (money_check(&a->money) < 0 || (a->money.tokens && a->states_only && fail("limits: --tokens needs --model") < 0))
        return -1;
    q->base = (struct plan){ .micro_batch = 1, .accumulation = 1, .seq = a->seq, .recompute = (enum recompute)a->recompute,
                             .recompute_interval = 1, .optimizer = (enum optimizer)(chosen->optimizer < 0 ? 0 : chosen->optimizer),
                             .optimizer_form = (enum optimizer_form)(chosen->form < 0 ? 0 : chosen->form) };
    if (complete(a, &q->base) < 0)
        return -1;
    if (a->precision < 0) {
        a->precision = (int)(a->cluster || a->cluster_doc ? search_precision(&q->base.cluster.gpu) : DT_BF16);
        if (a->precision != DT_BF16)
            notes_say("dpx: %s: %s has no bf16", dtype_name((enum dtype)a->precision), q->base.cluster.gpu.title);
    }
    q->base.kernels = a->kernels >= 0 ? (enum kernel_set)a->kernels : !is_megatron(a) ? attention_default(&q->base.model)
                    : a->precision == DT_FP32 ? KERNELS_MEGATRON_LOCAL : KERNELS_TE;
    if (a->elsewhere == ELSEWHERE_DISK && (a->dialect < 0 || a->dialect == DIALECT_DEEPSPEED))
        notes_say("dpx: models of thousands of blocks are tried: this can take some minutes");
    return 0;
}

/* ---- rows ---- */

/* Megatron-LM's where it is named: it has kernels of its own, and few use it without tensor parallelism. */
static bool is_asked(const struct limits_asked *a, enum strategy s, enum dialect d)
{
    bool usual = a->framework >= 0 ? search_framework_dialects(a->framework) >> d & 1 : a->states_only ? d == DIALECT_PAPER : d != DIALECT_MEGATRON;

    bool kernels = a->kernels < 0 || kernels_are_megatron((enum kernel_set)a->kernels) == (d == DIALECT_MEGATRON) || a->dialect >= 0;

    return (a->dialect >= 0 ? (int)d == a->dialect : usual && kernels) && dialect_has(d, s) &&
           elsewhere_has(s, d, (enum elsewhere)a->elsewhere);
}

static int refuse_dialect(const struct limits_asked *a)
{
    char cells[256] = "";
    size_t n = 0;

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT && n < sizeof cells; d++)
            if (dialect_has((enum dialect)d, (enum strategy)s) && elsewhere_has((enum strategy)s, (enum dialect)d, (enum elsewhere)a->elsewhere))
                n += (size_t)snprintf(cells + n, sizeof cells - n, "%s%s of %s", n ? ", " : "", strategy_name((enum strategy)s),
                                      dialect_name((enum dialect)d));
    return fail("limits --offload %s: no strategy of %s has it; those that have: %s", elsewhere_words[a->elsewhere],
                a->dialect >= 0 ? dialect_name((enum dialect)a->dialect) : a->framework >= 0 ? search_frameworks[a->framework] : "any dialect", cells);
}

/* The training with the largest micro-batch, one of them a step on each rank.  0, or -1 reported. */
static int train(const struct asking *q, struct limits_row *r)
{
    struct evaluation e;

    if (!q->a.money.tokens || !r->limit.max_micro_batch ||
        limit_plan(&q->base, &r->limit, (enum dtype)q->a.precision, (enum elsewhere)q->a.elsewhere, &r->plan) < 0)
        return 0;
    if (evaluate(&r->plan, &e) < 0)
        return -1;
    r->timed = simulate_plan(&r->plan, &e, &r->t, NULL) == 0;
    evaluation_free(&e);
    return r->timed ? 0 : -1;
}

/* One cell; a cell that has no answer says why in `refused`.  0, or -1 reported. */
static int ask_cell(const struct asking *q, struct limits_row *r)
{
    const struct limits_asked *a = &q->a;

    if (a->states_only)
        return limit_states(a->memory, a->world, r->strategy, r->dialect, (enum dtype)a->precision, &r->limit);
    struct plan cell = q->base;         /* shares the model; not freed */
    struct fail_sink before = fail_divert(r->refused, sizeof r->refused);
    plan_defaults(&cell, r->strategy, r->dialect, (enum dtype)a->precision);
    int rc = optimizer_choose(&cell, &a->tuned.optimizer, "limits") < 0 ? -1 :
             limit_real(&q->base, r->strategy, r->dialect, (enum dtype)a->precision, (enum elsewhere)a->elsewhere, &r->limit);
    fail_restore(before);
    if (rc == 0)
        r->refused[0] = '\0';
    return rc < 0 ? 0 : train(q, r);
}

struct refused { enum strategy strategy; enum dialect dialect; char why[sizeof ((struct limits_row *)0)->refused]; };

/* Rows with an answer, as they are known; those without are kept. */
static int each_cell(struct asking *q, struct refused *refused, int *nrefused)
{
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            struct limits_row r = { .asked = &q->a, .strategy = (enum strategy)s, .dialect = (enum dialect)d, .recorded = q->base.model.recorded != NULL };
            if (!is_asked(&q->a, r.strategy, r.dialect))
                continue;
            if (ask_cell(q, &r) < 0)
                return -1;
            r.narrow = !q->a.states_only && limit_narrow(&q->base.model, r.strategy, r.dialect, (enum dtype)q->a.precision);
            if (r.refused[0]) {
                struct refused *no = &refused[(*nrefused)++];
                no->strategy = r.strategy;
                no->dialect = r.dialect;
                memcpy(no->why, r.refused, sizeof no->why);
                continue;
            }
            q->answered++;
            q->some += r.limit.max_params > 0;
            if (q->each(q->of, &r) < 0)
                return -1;
        }
    return 0;
}

static int say_refused(struct asking *q, const struct refused *refused, int n)
{
    for (int i = 0; i < n; i++) {
        struct limits_row r = { .asked = &q->a, .strategy = refused[i].strategy, .dialect = refused[i].dialect };
        memcpy(r.refused, refused[i].why, sizeof r.refused);
        if (q->each(q->of, &r) < 0)
            return -1;
    }
    return 0;
}

int limits_answer(const struct limits_asked *given, int (*each)(void *of, const struct limits_row *row), void *of)
{
    struct refused refused[NSTRATEGY * NDIALECT];
    struct asking q = { .a = *given, .each = each, .of = of };
    int n = 0, rc = open_question(&q) < 0 || each_cell(&q, refused, &n) < 0 ? -1 : 0;

    if (rc == 0 && q.answered == 0)         /* where none has an answer, the first reason is that of all */
        rc = n > 0 ? fail("%s", refused[0].why) : refuse_dialect(&q.a);
    if (rc == 0)
        rc = say_refused(&q, refused, n);
    plan_free(&q.base);
    return rc < 0 ? EXIT_MISUSE : q.some > 0 ? EXIT_DONE : EXIT_NO;
}

/* ---- the document ---- */

static int add_row(void *of, const struct limits_row *r)
{
    const struct limits_asked *a = r->asked;
    const struct limit *l = &r->limit;
    json_t *o = json_pack("{s:s, s:s}", "strategy", strategy_name(r->strategy), "dialect", dialect_name(r->dialect));

    json_array_append_new(of, o);
    if (r->refused[0])
        return json_object_set_new(o, "refused", json_string(r->refused));
    json_object_set_new(o, "bytes_per_param", json_real(l->bytes_per_param));
    json_object_set_new(o, "max_params", json_integer(l->max_params));
    if (!a->states_only) {
        if (r->narrow)
            json_object_set_new(o, "model_dtype", json_string(dtype_name(DT_BF16)));
        json_object_set_new(o, "max_layers", json_integer(l->max_layers));
        json_object_set_new(o, "then_short", l->then_short[0] ? json_string(l->then_short) : json_null());
        json_object_set_new(o, "max_micro_batch", json_integer(l->max_micro_batch));
        json_object_set_new(o, "min_gpus", json_integer(l->min_gpus));
        if (l->min_gpus_recompute)
            json_object_set_new(o, "min_gpus_with_full_recompute", json_integer(l->min_gpus_recompute));
    }
    if (r->timed)
        json_object_set_new(o, "global_batch", json_integer(plan_global_batch(&r->plan)));
    if (a->money.tokens)
        json_object_set_new(o, "training", r->timed ? money_json(&a->money, &r->plan, &r->t) : json_null());
    return 0;
}

int limits_json(const struct limits_asked *given, json_t **doc)
{
    json_t *rows = json_array();
    int rc = limits_answer(given, add_row, rows);

    *doc = rc == EXIT_DONE || rc == EXIT_NO ? json_pack("{s:i, s:O}", "dpx", 1, "limits", rows) : NULL;
    json_decref(rows);
    return rc;
}
