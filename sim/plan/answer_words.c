/* answer_words.c -- see answer_words.h. */
#include "sim/plan/answer_words.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "base/page.h"
#include "model/arch/sample.h"
#include "model/arch/training.h"
#include "sim/price/flops.h"
#include "sim/search/lack.h"

/* Three digits, and never an exponent. */
static struct answer_text number(double x, const char *unit)
{
    struct answer_text out;

    snprintf(out.s, sizeof out.s, fabs(x) < 999.5 ? "%.3g%s" : "%.0f%s", x, unit);
    return out;
}

/* How many seconds a unit has in which the time is best said. */
static double unit_of(double s, const char **name)
{
    *name = s < 1 ? " ms" : s < 7200 ? " s" : " hours";
    return s < 1 ? 1e-3 : s < 7200 ? 1 : 3600;
}

struct answer_text answer_seconds(double s)
{
    const char *name;
    double unit = unit_of(s, &name);

    return number(s / unit, name);
}

/* "8.29 to 9.77 s" without its unit: "(8.29 to 9.77)". */
static struct answer_text interval(double low_s, double s, double high_s)
{
    const char *name;
    double unit = unit_of(s, &name);
    struct answer_text out;

    snprintf(out.s, sizeof out.s, "%.20s to %.20s", number(low_s / unit, "").s, number(high_s / unit, "").s);
    return out;
}

struct answer_text answer_rate(const struct plan *p, double tokens_per_s)
{
    double x = sample_rate(&p->model, p->seq, tokens_per_s);
    char unit[24];

    snprintf(unit, sizeof unit, "%s%s", x < 1e4 ? " " : x < 1e6 ? "k " : "M ", sample_rate_unit(&p->model));
    return number(x < 1e4 ? x : x < 1e6 ? x / 1e3 : x / 1e6, unit);
}

struct answer_text answer_network(double bytes_per_s) { return number(8 * bytes_per_s / 1e9, " Gbit/s"); }


void answer_cluster(const struct cluster *c, FILE *to)
{
    if (c->is_host)
        fprintf(to, "%" PRId64 " rank%s on CPU cores (%s usable%s)", c->world_size, c->world_size == 1 ? "" : "s", size_text(cluster_available(c)).s,
                c->world_size == 1 ? "" : " each");
    else
        fprintf(to, "%" PRId64 " %s (%s on the card, %s usable)", c->world_size, c->gpu.title, size_text(c->memory).s, size_text(cluster_available(c)).s);
}

void answer_question(const struct question *q, FILE *to)
{
    const struct cluster *c = &q->cluster;
    const struct search_options *o = &q->options;
    char optimizer[96];

    optimizer_choice_text(&q->optimizer, optimizer, sizeof optimizer);
    fprintf(to, "%s (%s parameters%s) on ", q->model.name, count_text(q->model.params).s, q->model.experts ? ", a mixture of experts" : "");
    answer_cluster(c, to);
    fprintf(to, ".\n%" PRId64 " sample%s of %s a step, %s%s%s", o->global_batch, o->global_batch == 1 ? "" : "s",
            sample_text(&q->model, o->seq).s, dtype_name(o->precision), q->chosen && o->precision != DT_BF16 ? " (the GPU has no bf16)" : "", optimizer);
    if (c->gpus_per_node > 1 && !c->is_host)
        fprintf(to, ", %.4g GB/s between the GPUs of a node", c->intra / 1e9);
    if (c->nodes > 1)
        fprintf(to, ", %s between nodes", answer_network(c->inter).s);
    fputs(o->accept_what ? "; only plans for " : "", to);
    fprintf(to, "%s.\n", o->accept_what ? (const char *)o->accept_what : "");
}

void answer_training(const struct search_tuned *t, FILE *to)
{
    if (t->lora)
        fprintf(to, "LoRA adapters of rank %" PRId64 "%s%s", t->lora, t->base == BASE_PLAIN ? "" : " on weights in ",
                t->base == BASE_PLAIN ? "" : training_base_name(t->base));
    else
        fputs("all weights trained", to);
}

/* ---- of one plan ---- */

static void ink(enum terminal_ink colour, const char *word, FILE *to)
{
    fprintf(to, "  %s%s%s: ", page_ink(to, colour), word, page_ink(to, TERMINAL_PLAIN));
}

/* "reserves 37.89 GiB of 74.31 GiB usable", or where no allocator of PyTorch decides "28.14 GiB of 74.31 GiB usable". */
static void print_taken(const struct evaluation *e, FILE *to)
{
    fprintf(to, "%s%s of %s usable", e->reserved.known ? "reserves " : "", size_text(evaluation_taken(&e->m, &e->reserved)).s, size_text(e->m.available).s);
}

/* What is tight about it: reserved memory in the part that is usually kept free, or a cache that is given back. */
static void print_tight(const struct plan *p, const struct evaluation *e, FILE *to)
{
    const struct reserved *r = &e->reserved;

    ink(TERMINAL_YELLOW, "Tight", to);
    print_taken(e, to);
    if (r->reserved_peak > r->without_headroom)
        fprintf(to, ", so less than %.3g %% of the card stays free", 100 * p->cluster.headroom);
    if (r->retries > 0)
        fprintf(to, "; the allocator runs full and empties its cache %" PRId64 " time%s in init and three steps", r->retries, r->retries == 1 ? "" : "s");
    fprintf(to, " (%s allocated).\n", size_text(e->m.needed).s);
}

static void print_fits(const struct evaluation *e, FILE *to)
{
    ink(TERMINAL_GREEN, "Fits", to);
    print_taken(e, to);
    if (e->reserved.known)
        fprintf(to, " (%s allocated)", size_text(e->m.needed).s);
    fputs(".\n", to);
}

/* runtime/zero/stage_1_and_2.py flattens on the GPU since 0.18.7 (84af82212, 13 February 2026), where there is room. */
const char *answer_release(const struct plan *p, const struct evaluation *e)
{
    bool flattens = p->dialect == DIALECT_DEEPSPEED && (p->strategy == STRAT_ZERO1 || p->strategy == STRAT_ZERO2) && e->m.ledger.peak.sched == SCHED_INIT;

    return flattens ? "The peak is where DeepSpeed flattens the parameters on the GPU, as since 0.18.7 (February 2026). Older releases do it in host memory." : NULL;
}

void answer_lack(const struct plan *p, const struct evaluation *e, char *to, size_t size)
{
    struct lack l;

    if (!lack_of(p, e, &l) || l.space != SPACE_DEVICE || l.nodes[0])
        snprintf(to, size, "%s", e->why_not);
    else
        lack_words(&l, to, size);
}

static void print_lack(const struct plan *p, const struct evaluation *e, FILE *to)
{
    char why[sizeof e->why_not];

    answer_lack(p, e, why, sizeof why);
    ink(TERMINAL_RED, "Does not fit", to);
    fprintf(to, "%s.\n", why);
    if (e->first_over.op >= 0 && strcmp(why, e->why_not))
        fprintf(to, "  Memory runs out at %s of the %s step, on %s.\n", e->over_at, sched_name(e->first_over.sched), evaluation_where(e).s);
}

void answer_memory(const struct plan *p, const struct evaluation *e, const struct timing *t, FILE *to)
{
    if (e->verdict == VERDICT_DOES_NOT_FIT || !e->m.fits) {
        print_lack(p, e, to);
        return;
    }
    if (e->verdict == VERDICT_TIGHT)
        print_tight(p, e, to);
    else
        print_fits(e, to);
    if (simulate_waits_for_memory(e, t))
        fputs("  Memory is so short that the GPU will at times wait for it: the step " ANSWER_WAITS ".\n", to);
}

static const char *rests_on(enum basis b)
{
    switch (b) {
    case BASIS_PUBLISHED: return "published measurements";
    case BASIS_DATASHEET: return "datasheets";
    default:              return "measurements of this machine";
    }
}

void answer_step(const struct plan *p, const struct timing *t, FILE *to)
{
    char mfu[32] = "";

    if (flops_peak(&p->cluster, p->precision) > 0)      /* of processor cores none is known */
        snprintf(mfu, sizeof mfu, ", MFU %.1f %%", 100 * t->mfu);
    fprintf(to, "  Step %s (90 %%: %s), %s%s.\n  Times rest on %s.\n", answer_seconds(t->line.step_s).s,
            interval(t->low_s, t->line.step_s, t->high_s).s, answer_rate(p, t->tokens_per_s).s, mfu, rests_on(t->basis));
}
