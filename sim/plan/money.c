/* money.c -- days, GPU-hours, cost and energy of a training; the fewest GPUs for a deadline. */
#include "sim/plan/money.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/size.h"
#include "sim/plan/plan_source.h"

#define DAY 86400.0
#define HOUR 3600.0

int money_check(const struct money_question *q)
{
    if (q->days >= 0 && !(q->days > 0))
        return fail("--days: a deadline is more than 0 days");
    if (q->tokens)
        return 0;
    if (q->price >= 0)
        return fail("--price needs --tokens");
    if (q->days >= 0)
        return fail("--days: a deadline for how many tokens? give --tokens");
    return q->watts > 0 ? fail("--watts: for how many tokens? give --tokens") : 0;
}

static void of_step(const struct money_question *q, const struct plan *p, double step, double low, double high,
                    struct money *out)
{
    int64_t each = plan_global_batch(p) * p->seq;
    double steps;

    memset(out, 0, sizeof *out);
    out->steps = ceil_div(q->tokens, each);
    steps = (double)out->steps;
    out->days = steps * step / DAY;
    out->low_days = steps * low / DAY;
    out->high_days = steps * high / DAY;
    out->gpu_hours = steps * step / HOUR * (double)p->cluster.world_size;
    out->cost = q->price >= 0 ? q->price * out->gpu_hours : -1;
    out->watts = q->watts > 0 ? q->watts : p->cluster.is_host ? 0 : p->cluster.power_limit_w > 0 ? p->cluster.power_limit_w
               : power_watts(p->cluster.gpu.name, NULL);
    out->kwh = out->watts * out->gpu_hours / 1000;
}

void money_of(const struct money_question *q, const struct plan *p, const struct timing *t, struct money *out)
{
    of_step(q, p, t->line.step_s, t->low_s, t->high_s, out);
}

/* ---- a deadline ---- */

/* GPUs that work on the same samples: tensor x context x pipeline. */
static int64_t gpus_together(const struct plan *p) { return p->cluster.world_size / plan_batch_ranks(p); }

/* The plan on another world with the same global batch and another micro-batch; 1: there is none. */
static int on_world(const struct plan *p, int64_t gpus, int64_t micro_batch, struct plan *out)
{
    int64_t per = p->cluster.gpus_per_node;
    char shape[2][64], batches[2][64], why[256];
    const char *pairs[] = { shape[0], shape[1], batches[0], batches[1] };

    snprintf(shape[0], sizeof shape[0], "gpus_per_node=%" PRId64, gpus < per ? gpus : per);
    snprintf(shape[1], sizeof shape[1], "nodes=%" PRId64, gpus < per ? 1 : gpus / per);
    snprintf(batches[0], sizeof batches[0], "micro_batch=%" PRId64, micro_batch);
    snprintf(batches[1], sizeof batches[1], "global_batch=%" PRId64, plan_global_batch(p));
    struct fail_sink before = fail_divert(why, sizeof why);          /* a world that the dialect refuses is none */
    int rc = plan_source_with(p, pairs, 4, out);
    fail_restore(before);
    return rc < 0;
}

/* 1: it fits and the training takes m->days; 0: not; -1 reported. */
static int try_world(const struct money_question *q, const struct plan *p, int64_t gpus, int64_t micro_batch, struct money *m)
{
    struct plan at;
    struct evaluation e;
    struct timing t;
    int rc;

    if (on_world(p, gpus, micro_batch, &at))
        return 0;
    at.cluster.measured = p->cluster.measured;
    if (evaluate(&at, &e) < 0) {
        plan_free(&at);
        return -1;
    }
    rc = e.m.fits ? simulate_plan(&at, &e, &t, NULL) < 0 ? -1 : 1 : 0;
    if (rc > 0)
        money_of(q, &at, &t, m);
    evaluation_free(&e);
    plan_free(&at);
    return rc;
}

/* Do they divide the global batch, and are they whole nodes? */
static bool can_share(const struct plan *p, int64_t gpus)
{
    int64_t per = p->cluster.gpus_per_node;

    return plan_global_batch(p) % (gpus / gpus_together(p)) == 0 && (gpus <= per || gpus % per == 0);
}

int money_on_world(const struct plan *p, int64_t gpus, struct plan *out)
{
    int64_t b = p->micro_batch;

    if (gpus < gpus_together(p) || gpus % gpus_together(p) != 0 || !can_share(p, gpus))
        return 1;
    int64_t each = plan_global_batch(p) / (gpus / gpus_together(p));
    while (b > 1 && each % b != 0)
        b--;
    if (on_world(p, gpus, b, out))
        return 1;
    out->cluster.measured = p->cluster.measured;
    return 0;
}

/* The world with the micro-batch that is fastest, into `out` where it is faster than what is there.  0, or -1 reported. */
static int look_at(const struct money_question *q, const struct plan *p, int64_t gpus, struct money_fewest *out)
{
    int64_t each = plan_global_batch(p) / (gpus / gpus_together(p)), per = p->cluster.gpus_per_node;
    bool pipeline = p->parallel.pipeline > 1, first = true;

    for (int64_t b = p->micro_batch; b >= 1 && (first || pipeline); b--) {
        struct money m;
        if (each % b)
            continue;
        first = false;
        int rc = try_world(q, p, gpus, b, &m);
        if (rc < 0)
            return -1;
        if (rc > 0 && m.days < out->m.days)
            *out = (struct money_fewest){ .gpus = gpus, .nodes = gpus < per ? 1 : gpus / per, .micro_batch = b,
                                          .accumulation = each / b, .m = m, .meets = m.days <= q->days, .most = out->most };
    }
    return 0;
}

/* A world twice as fast as its number of GPUs says is not expected: smaller ones are not looked at. */
#define SUPERLINEAR 2

int money_fewest_gpus(const struct money_question *q, const struct plan *p, const struct timing *t,
                      struct money_fewest *out)
{
    int64_t batch = plan_global_batch(p), together = gpus_together(p);
    struct money now;

    *out = (struct money_fewest){ .m.days = INFINITY };
    out->most = batch < CLUSTER_MAX_RANKS / together ? batch * together : CLUSTER_MAX_RANKS / together * together;
    money_of(q, p, t, &now);
    double work = now.days * (double)p->cluster.world_size;
    for (int64_t gpus = together; gpus <= out->most && !out->meets; gpus += together)
        if (can_share(p, gpus) && work / (double)gpus <= SUPERLINEAR * q->days && look_at(q, p, gpus, out) < 0)
            return -1;
    for (int64_t gpus = out->most; gpus >= together && !out->gpus; gpus -= together)        /* none could be enough: the largest */
        if (can_share(p, gpus) && look_at(q, p, gpus, out) < 0)
            return -1;
    return 0;
}

/* ---- words ---- */

const char *money_grouped(double x, char *to, size_t size)
{
    char digits[32];
    size_t n, at = 0;

    snprintf(digits, sizeof digits, "%.0f", x);
    n = strlen(digits);
    for (size_t i = 0; i < n && at + 2 < size; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            to[at++] = ',';
        to[at++] = digits[i];
    }
    to[at] = '\0';
    return to;
}

const char *money_hours(double hours, char *to, size_t size)
{
    if (hours >= 1000)
        return money_grouped(hours, to, size);
    snprintf(to, size, "%.4g", hours);
    return to;
}

/* "$2,381,400", "2,381,400 EUR", "12.50".  Cents matter in small sums. */
static const char *cost_text(const struct money_question *q, double x, char *to, size_t size)
{
    bool word = isalpha((unsigned char)q->currency[0]);
    char sum[40];

    if (x >= 1000)
        money_grouped(x, sum, sizeof sum);
    else
        snprintf(sum, sizeof sum, "%.2f", x);
    snprintf(to, size, "%s%s%s%s", word ? "" : q->currency, sum, word ? " " : "", word ? q->currency : "");
    return to;
}

void money_sum(const struct money_question *q, double x, char *to, size_t size)
{
    if (x >= 0)
        cost_text(q, x, to, size);
    else
        snprintf(to, size, "-");
}

/* Hours below three days. */
static double time_unit(double days, const char **name)
{
    *name = days < 3 ? "hours" : "days";
    return days < 3 ? 24 : 1;
}

static void print_energy(const struct money *m, FILE *to)
{
    if (m->kwh >= 1e6)
        fprintf(to, "%.3g GWh", m->kwh / 1e6);
    else if (m->kwh >= 1e3)
        fprintf(to, "%.3g MWh", m->kwh / 1e3);
    else
        fprintf(to, "%.3g kWh", m->kwh);
}

static void print_deadline(const struct money_question *q, const struct plan *p, const struct money_fewest *f, FILE *to)
{
    char a[64], b[64];

    if (!f->meets) {
        fprintf(to, "in %g days: not with up to %s GPUs, among which the global batch of %" PRId64 " can be divided", q->days,
                money_grouped((double)f->most, a, sizeof a), plan_global_batch(p));
        if (f->gpus)
            fprintf(to, "; the fastest looked at, %s, take %.4g days", money_grouped((double)f->gpus, a, sizeof a), f->m.days);
        fputs(". A larger global batch lets more of them work.\n", to);
        return;
    }
    fprintf(to, "in %g days: %s GPU%s (%s node%s; micro-batch %" PRId64 ", accumulation %" PRId64
            ") are the fewest that divide the global batch and are enough: %.4g days", q->days,
            money_grouped((double)f->gpus, a, sizeof a), f->gpus > 1 ? "s" : "", money_grouped((double)f->nodes, b, sizeof b),
            f->nodes > 1 ? "s" : "", f->micro_batch, f->accumulation, f->m.days);
    if (f->m.cost >= 0)
        fprintf(to, ", %s", cost_text(q, f->m.cost, a, sizeof a));
    fputc('\n', to);
}

int money_print(const struct money_question *q, const struct plan *p, const struct timing *t, FILE *to)
{
    struct money m;
    char a[64], b[64], c[64], d[64];
    const char *source = NULL, *name;
    double unit;

    if (!q->tokens)
        return 0;
    money_of(q, p, t, &m);
    unit = time_unit(m.days, &name);
    fprintf(to, "\n%s token%s: %s step%s of %s tokens, %.4g %s (90 %%: %.4g to %.4g), %s GPU-hours\n",
            count_text(q->tokens).s, q->tokens == 1 ? "" : "s", money_grouped((double)m.steps, a, sizeof a), m.steps == 1 ? "" : "s",
            money_grouped((double)(plan_global_batch(p) * p->seq), b, sizeof b), unit * m.days, name, unit * m.low_days, unit * m.high_days,
            money_hours(m.gpu_hours, c, sizeof c));
    if (m.cost >= 0)
        fprintf(to, "cost %s (90 %%: %s to %s) at %s a GPU-hour\n", cost_text(q, m.cost, a, sizeof a),
                cost_text(q, m.cost * m.low_days / m.days, b, sizeof b),
                cost_text(q, m.cost * m.high_days / m.days, c, sizeof c), cost_text(q, q->price, d, sizeof d));
    if (m.kwh > 0) {
        fputs("energy at most ", to);
        print_energy(&m, to);
        power_watts(p->cluster.gpu.name, &source);
        fprintf(to, " at %g W a GPU (%s); hosts, network and cooling come on top\n", m.watts,
                q->watts > 0 || !source ? "as given" : p->cluster.power_limit_w > 0 ? "the cluster's power_limit_w" : source);
    }
    if (q->days >= 0) {
        struct money_fewest f;
        if (p->cluster.is_host) {
            fprintf(to, "in %g days: a cluster of cores is not scaled\n", q->days);
            return 0;
        }
        if (money_fewest_gpus(q, p, t, &f) < 0)
            return -1;
        print_deadline(q, p, &f, to);
    }
    return 0;
}

void money_short(const struct money_question *q, const struct plan *p, double step_s, char *to, size_t size)
{
    struct money m;
    char cost[64];
    const char *name;

    to[0] = '\0';
    if (!q->tokens)
        return;
    of_step(q, p, step_s, step_s, step_s, &m);
    double unit = time_unit(m.days, &name);
    if (m.cost >= 0)
        snprintf(to, size, "; %.4g %s, %s", unit * m.days, name, cost_text(q, m.cost, cost, sizeof cost));
    else
        snprintf(to, size, "; %.4g %s", unit * m.days, name);
}

/* ---- JSON ---- */

static json_t *deadline_json(const struct money_question *q, const struct plan *p, const struct timing *t)
{
    struct money_fewest f;

    if (q->days < 0 || p->cluster.is_host || money_fewest_gpus(q, p, t, &f) < 0)
        return json_null();
    if (!f.meets)
        return json_pack("{s:f, s:n, s:I, s:o, s:o}", "days", q->days, "gpus", "most_gpus_looked_at", (json_int_t)f.most,
                         "best_days", f.gpus ? json_real(f.m.days) : json_null(),
                         "best_gpus", f.gpus ? json_integer(f.gpus) : json_null());
    return json_pack("{s:f, s:I, s:I, s:I, s:I, s:f, s:o}", "days", q->days, "gpus", (json_int_t)f.gpus, "nodes",
                     (json_int_t)f.nodes, "micro_batch", (json_int_t)f.micro_batch, "accumulation",
                     (json_int_t)f.accumulation, "takes_days", f.m.days, "cost",
                     f.m.cost >= 0 ? json_real(f.m.cost) : json_null());
}

json_t *money_json(const struct money_question *q, const struct plan *p, const struct timing *t)
{
    struct money m;

    if (!q->tokens)
        return json_null();
    money_of(q, p, t, &m);
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "tokens", (json_int_t)q->tokens,
                     "steps", (json_int_t)m.steps, "days", m.days, "low_days", m.low_days, "high_days", m.high_days,
                     "gpu_hours", m.gpu_hours, "price", q->price >= 0 ? json_real(q->price) : json_null(),
                     "cost", m.cost >= 0 ? json_real(m.cost) : json_null(),
                     "board_watts", m.watts > 0 ? json_real(m.watts) : json_null(),
                     "energy_kwh_at_most", m.kwh > 0 ? json_real(m.kwh) : json_null(), "deadline",
                     deadline_json(q, p, t));
}
