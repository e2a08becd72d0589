/* search_codes.c -- see search_codes.h. */
#include "sim/plan/search_codes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/percent.h"
#include "base/room.h"
#include "model/plan/knob.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/search_words.h"
#include "sim/search/crossover.h"

enum { MOST = 8, OCTAVES = 6 };        /* plans that are considered; networks up to 64 times slower than this one */

/* A plan that fits and could be offered. */
struct candidate { struct plan plan; struct crossover_plan *slowed; };
struct candidates { struct candidate of[MOST]; int n; };

/* The plan offered, and its step: shorter than the first one's on this network, or on a slower one.  cross: bytes/s and node at which
 * both take as long; 0: not known. */
struct offer { struct plan plan; double step_s, cross; bool now; };

/* What a plan's step would be; NULL: the framework refuses it. */
static struct crossover_plan *opened(const struct search_options *o, const struct plan *p)
{
    struct crossover_plan *s = NULL;
    char why[512];

    struct fail_sink before = fail_divert(why, sizeof why);
    if (plan_check(p, "search") == 0 && (!o->accept || o->accept(p, o->accept_what)))
        s = crossover_open(p);
    fail_restore(before);
    return s;
}

/* What codes leave of a plan's step: all but its waits for communication, and of its computation half, the most that it loses
 * beside collectives (LEAST_LEFT of overlap.c).  Entries are added, none goes: the issuing thread takes no less. */
static double least_of(const struct found *f) { return f->step_s - f->exposed_s - f->compute_s / 2; }

/* The fastest plan of a cell, where codes might make it the fastest of all. */
static const struct plan *fastest(const struct search_result *r, enum strategy s, enum dialect d)
{
    for (int64_t i = 0; i < r->nfit; i++)
        if (r->found[i].plan.strategy == s && r->found[i].plan.dialect == d && !r->found[i].elsewhere)
            return least_of(&r->found[i]) < r->found[0].step_s ? &r->found[i].plan : NULL;
    return NULL;
}

static void consider(const struct search_options *o, struct plan p, struct candidates *to)
{
    plan_resolve(&p);
    struct crossover_plan *s = to->n < MOST ? opened(o, &p) : NULL;
    if (s)
        to->of[to->n++] = (struct candidate){ p, s };
}

/* Only those that fit. */
static void drop_full(struct candidates *all)
{
    int n = 0;

    for (int i = 0; i < all->n; i++)
        if (crossover_fits(all->of[i].slowed))
            all->of[n++] = all->of[i];
        else
            crossover_close(all->of[i].slowed);
    all->n = n;
}

/* ZeRO++; int4 gradients in fp16 alone: of others DeepSpeed's kernels read the bits as fp16. */
static void consider_zeropp(const struct search_options *o, const struct search_result *r, struct candidates *to)
{
    const struct plan *f = fastest(r, STRAT_ZERO3, DIALECT_DEEPSPEED);
    int64_t node = o->cluster->gpus_per_node;

    for (int i = 0; f && i < (f->precision == DT_FP16 ? 4 : 2); i++) {
        struct plan p = *f;
        p.ds.zero_quantized_weights = true;
        p.ds.zero_hpz_partition_size = i & 1 && node > 1 ? node : 1;
        p.ds.zero_quantized_gradients = i & 2;
        consider(o, p, to);
    }
}

/* DDP's hooks; PowerSGD of rank 4, the largest of those that its documentation calls usual. */
static void consider_hooks(const struct search_options *o, const struct search_result *r, struct candidates *to)
{
    const struct plan *f = fastest(r, STRAT_DDP, DIALECT_TORCH);

    for (int hook = 0; f && hook < NCOMM_HOOK; hook++) {
        struct plan p = *f;
        if (!comm_hook((enum comm_hook)hook)->tried)
            continue;
        p.ddp.comm_hook = (enum comm_hook)hook;
        p.ddp.powersgd.rank = 4;
        consider(o, p, to);
    }
}

/* The candidate that takes least on a network of `by` times the speed, if that is less than the first plan found takes; NULL. */
static const struct candidate *least(const struct candidates *all, struct crossover_plan *first, double by)
{
    struct crossover_plan *of[MOST + 1];
    const struct candidate *best = NULL;
    double s[MOST + 1];

    for (int i = 0; i < all->n; i++)
        of[i] = all->of[i].slowed;
    of[all->n] = first;
    crossover_steps(of, all->n + 1, by, s);
    double most = s[all->n];
    for (int i = 0; i < all->n; i++)
        if (s[i] > 0 && s[i] < most) {
            most = s[i];
            best = &all->of[i];
        }
    return best;
}

/* Where none takes less here: the first that does as the network slows. */
static bool choose(const struct search_options *o, const struct candidates *all, struct crossover_plan *first, struct offer *out)
{
    const struct candidate *best = NULL;
    bool slower;
    int k = 0;

    for (; !best && k <= OCTAVES; k++)
        best = least(all, first, ldexp(1, -k));
    if (!best)
        return false;
    *out = (struct offer){ best->plan, crossover_step(best->slowed, 1), .now = k == 1 };
    out->cross = crossover_share(first, best->slowed, &slower) * o->cluster->inter;
    out->cross = slower ? out->cross : 0;
    return true;
}

static void drop(struct candidates *all)
{
    for (int i = 0; i < all->n; i++)
        crossover_close(all->of[i].slowed);
}

static bool find(const struct search_options *o, const struct search_result *r, struct offer *out)
{
    struct candidates all = { .n = 0 };
    struct crossover_plan *first = NULL;
    bool found = false;

    if (r->nfit > 0 && o->cluster->nodes > 1) {
        consider_zeropp(o, r, &all);
        consider_hooks(o, r, &all);
        drop_full(&all);
        first = all.n > 0 ? crossover_open(&r->found[0].plan) : NULL;
    }
    if (first) {
        crossover_fits(first);                  /* it does; where it retries, its step takes longer */
        found = choose(o, &all, first, out);
    }
    drop(&all);
    crossover_close(first);
    return found;
}

/* Transformer Engine's 8-bit floats in linear layers: by tensor, from Blackwell on in blocks of 32. */
static void consider_megatron(const struct search_options *o, const struct search_result *r, struct candidates *all)
{
    for (int s = STRAT_DDP; s <= STRAT_ZERO1; s++) {
        const struct plan *f = r->nfit > 0 ? fastest(r, (enum strategy)s, DIALECT_MEGATRON) : NULL;
        if (!f || f->kernels != KERNELS_TE || plan_scaled(f))
            continue;
        struct plan p = *f;
        p.megatron.fp8_format = FP8_HYBRID;
        p.megatron.fp8_recipe = gpu_lacks_scaled(&p.cluster.gpu, SCALED_MXFP8) ? FP8_DELAYED : FP8_MXFP8;
        p.megatron.fp8_param_gather = s == STRAT_ZERO1;
        p.megatron.reuse_grad_buf_for_mxfp8_param_ag = s == STRAT_ZERO1 && p.megatron.fp8_recipe == FP8_MXFP8;
        consider(o, p, all);
    }
}

static int fastest_of(const double *s, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        best = s[i] < s[best] ? i : best;
    return best;
}

/* torchao's float8 linear layers, one scale a tensor, with FSDP2's float8 gathers where it has them: of the kernels that were searched. */
static bool find_float8(const struct search_options *o, const struct search_result *r, struct offer *out)
{
    const struct plan *f = r->nfit > 0 ? fastest(r, STRAT_FSDP, DIALECT_TORCH) : NULL;
    struct candidates all = { .n = 0 };
    double most = r->nfit > 0 ? r->found[0].step_s : 0;
    bool found = false;

    for (int gathers = 0; f && f->float8.recipe == FLOAT8_NONE && gathers < 2; gathers++) {
        struct plan p = *f;
        p.float8.recipe = FLOAT8_TENSORWISE;
        p.fsdp.float8_all_gather = p.fsdp.float8_precomputed = gathers;
        consider(o, p, &all);
    }
    consider_megatron(o, r, &all);
    struct crossover_plan *of[MOST];
    double step_s[MOST];
    for (int i = 0; i < all.n; i++)
        of[i] = all.of[i].slowed;
    crossover_steps(of, all.n, 1, step_s);
    for (int left = all.n; left > 0 && !found; left--) {        /* the fastest first: to ask the allocator takes longer than the clock */
        int best = fastest_of(step_s, all.n);
        if (step_s[best] > 0 && step_s[best] < most && crossover_fits(all.of[best].slowed)) {
            double s = crossover_step(all.of[best].slowed, 1);
            found = s < most;
            *out = (struct offer){ .plan = all.of[best].plan, .step_s = s, .now = true };
        }
        step_s[best] = INFINITY;
    }
    drop(&all);
    return found;
}

const char *search_codes_changes(const struct plan *p)
{
    bool gradients = plan_quantised_node(p) > 0;

    if (plan_scaled(p))
        return p->megatron.fp4_format ? "4-bit floats in the products of linear layers" : "8-bit floats in the products of linear layers";
    if (p->float8.recipe != FLOAT8_NONE)
        return p->float8.recipe == FLOAT8_ROWWISE_GW_HP ? "products of linear layers in 8-bit floats, but for weights' gradients"
                                                        : "products of linear layers in 8-bit floats";
    if (p->ddp.comm_hook != HOOK_NONE)
        return comm_hook(p->ddp.comm_hook)->changes;
    if (!plan_quantises(p))
        return NULL;
    if (!p->ds.zero_quantized_weights)
        return "int4 gradients";
    return gradients ? "int8 parameters, int4 gradients" : "int8 parameters";
}

static void words(const struct search_result *r, const struct offer *of, char *to, size_t size)
{
    char label[KNOB_LABEL];
    int n;

    knob_label(&of->plan, label, sizeof label);
    if (of->now)
        n = snprintf(to, size, "%s: %s would take %.4g s a step, %.1f %% less than the first; it changes the numerics: %s.",
                     of->plan.float8.recipe != FLOAT8_NONE || plan_scaled(&of->plan) ? "Products can be of 8-bit floats" : "The network can be relieved", label, of->step_s, 100 * (1 - of->step_s / r->found[0].step_s), search_codes_changes(&of->plan));
    else
        n = snprintf(to, size, "On a slower network %s would take less than the first (here %.4g s a step, %s more); it changes the "
                     "numerics: %s.", label, of->step_s, percent_share(of->step_s / r->found[0].step_s - 1).s, search_codes_changes(&of->plan));
    if (of->cross > 0 && n < (int)size)
        snprintf(to + n, size - (size_t)n, " Both take as long at %s between nodes (here %s).", answer_network(of->cross).s,
                 answer_network(of->plan.cluster.inter).s);
}

static void say(double recommended_s, const struct offer *of, FILE *to)
{
    char words[PLAN_WORDS];
    bool float8 = of->plan.float8.recipe != FLOAT8_NONE || plan_scaled(&of->plan);
    double ratio = of->step_s / recommended_s;

    plan_words(&of->plan, words, sizeof words);
    fprintf(to, "\n%s: %s.\n", float8 ? "With 8-bit floats" : of->now ? "With less on the network" : "On a slower network", words);
    fprintf(to, "  %s step takes %s, %s than recommended. It changes the numbers: %s.\n", of->now ? "Its" : "Here its", answer_seconds(of->step_s).s,
            percent_slower(ratio).s, search_codes_changes(&of->plan));
    if (of->cross > 0)
        fprintf(to, "  It takes as long as the fastest at %s between nodes (here %s).\n", answer_network(of->cross).s,
                answer_network(of->plan.cluster.inter).s);
}

struct search_codes { const struct search_options *o; const struct search_result *r; bool found[2]; struct offer of[2]; };

static int find_one(void *codes, int64_t i)
{
    struct search_codes *c = codes;

    c->found[i] = i ? find_float8(c->o, c->r, &c->of[i]) : find(c->o, c->r, &c->of[i]);
    return 0;
}

struct search_codes *search_codes_find(const struct search_options *o, const struct search_result *r)
{
    struct search_codes *c = room_new(1, sizeof *c);

    *c = (struct search_codes){ .o = o, .r = r };
    parallel_each(2, 0, find_one, c);
    return c;
}

void search_codes_free(struct search_codes *c) { free(c); }

void search_codes_say(const struct search_codes *c, double recommended_s, FILE *to)
{
    for (int i = 0; i < 2; i++)
        if (c->found[i])
            say(recommended_s, &c->of[i], to);
}

static json_t *offer_json(const struct search_result *r, const struct offer *of)
{
    char text[SEARCH_SENTENCE], label[KNOB_LABEL];

    words(r, of, text, sizeof text);
    knob_label(&of->plan, label, sizeof label);
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:s, s:o}", "why", text, "label", label, "step_s", of->step_s, "saves_s",
                     r->found[0].step_s - of->step_s, "crossover_bytes_per_s", of->cross, "changes", search_codes_changes(&of->plan),
                     "plan", plan_to_json(&of->plan));
}

json_t *search_codes_json(const struct search_codes *c) { return c->found[0] ? offer_json(c->r, &c->of[0]) : json_null(); }

json_t *search_codes_float8_json(const struct search_codes *c) { return c->found[1] ? offer_json(c->r, &c->of[1]) : json_null(); }
