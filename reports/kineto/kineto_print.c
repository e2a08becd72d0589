/* kineto_print.c -- the same figures of trace and plan side by side, as a table and as a document. */
#include "reports/kineto/kineto_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#include "base/columns.h"
#include "base/page.h"
#include "base/percent.h"
#include "base/size.h"

static const char *op_name(int op)
{
    return op == COLL_OTHER ? "send, receive" : coll_name((enum coll_op)op);
}

static const struct { const char *words, *key; int m; } rows[] = {
    { "step",                       "step",      M_STEP },
    { "forward compute",            "forward",   M_FORWARD },
    { "backward compute",           "backward",  M_BACKWARD },
    { "optimizer",                  "optimizer", M_OPTIMIZER },
    { "collectives run",            "comm",      M_COMM },
    { "  without compute beside",   "exposed",   M_EXPOSED },
};
enum { NROWS = sizeof rows / sizeof *rows };

int kineto_prefetch(const struct measures *m)
{
    if (!(m->v[M_GATHERS] > 0))
        return -1;
    return 2 * m->v[M_ISSUED_AHEAD] > m->v[M_GATHERS];
}

double kineto_busbw(const struct kineto_kernel *k)
{
    if (k->bytes < 0 || k->group_size < 2 || k->op >= COLL_BROADCAST || !(k->seconds > 0))
        return NAN;
    return (double)coll_sent_bytes((enum coll_op)k->op, k->group_size, k->bytes) / k->seconds;
}

/* ---- notes ---- */

__attribute__((format(printf, 3, 4)))
static void note(char notes[NOTES][NOTE_SIZE], int *n, const char *fmt, ...)
{
    va_list ap;

    if (*n == NOTES)
        return;
    va_start(ap, fmt);
    vsnprintf(notes[(*n)++], NOTE_SIZE, fmt, ap);
    va_end(ap);
}

static void note_calls(const struct kineto *k, const struct kineto_plan *p, char notes[NOTES][NOTE_SIZE],
                       int *n)
{
    for (int op = 0; op < NCOLL; op++) {
        const double *t = &k->median.v[m_coll(op, 0)], *q = &p->m.v[m_coll(op, 0)];

        if (t[M_CALLS] != q[M_CALLS])
            note(notes, n, "%s: %.0f calls of a step in the trace, %.0f in the plan: not the same units, "
                 "buckets or accumulation", op_name(op), t[M_CALLS], q[M_CALLS]);
        else if (t[M_BYTES] != q[M_BYTES] && !isnan(t[M_BYTES]) && !isnan(q[M_BYTES]))
            note(notes, n, "%s: as many calls as the plan has, but %.0f bytes where it has %.0f: not the same "
                 "model, padding or number format", op_name(op), t[M_BYTES], q[M_BYTES]);
    }
}

static void note_plan(const struct kineto *k, const struct kineto_plan *p, char notes[NOTES][NOTE_SIZE],
                      int *n)
{
    int trace = kineto_prefetch(&k->median), plan = kineto_prefetch(&p->m);

    if (k->info.world_size < 0 && p->world_size > 1)
        note(notes, n, "the trace does not say of how many ranks it is (distributedInfo): the plan is of %" PRId64, p->world_size);
    if (k->gpu == p->host)
        note(notes, n, "the trace is of %s, the plan's ranks are %s", k->gpu ? "a GPU" : "operators of a host",
             p->host ? "processes of a host" : "GPUs");
    note_calls(k, p, notes, n);
    if (trace >= 0 && plan >= 0 && trace != plan)
        note(notes, n, "backward prefetch is %s in the run and %s in the plan", trace ? "on" : "off",
             plan ? "on" : "off");
    if (!p->whole)
        note(notes, n, "the plan has too many entries to be kept one by one: only its step, calls and bytes "
             "are shown");
}

static double extreme(const struct kineto *k, bool most)
{
    double x = k->step[0].v[M_STEP];

    for (int i = 1; i < k->nsteps; i++)
        if ((k->step[i].v[M_STEP] > x) == most)
            x = k->step[i].v[M_STEP];
    return x;
}

int kineto_notes(const struct kineto *k, const struct kineto_plan *p, char notes[NOTES][NOTE_SIZE])
{
    int n = 0;

    if (p)
        note_plan(k, p, notes, &n);
    if (k->nsteps > 1 && extreme(k, true) > 1.5 * extreme(k, false))
        note(notes, &n, "steps take %.4g to %.4g s: figures are medians; leave out warm-up "
             "(schedule(wait, warmup, active))", extreme(k, false), extreme(k, true));
    if (!k->phases)
        note(notes, &n, "forward and backward cannot be told apart without ProfilerActivity.CPU");
    for (int op = 0; op < KINETO_COLLS; op++)
        if (isnan(k->median.v[m_coll(op, M_BYTES)]))
            note(notes, &n, "%s: the trace does not say how many bytes%s", op_name(op),
                 k->gpu ? "" : " (record_shapes=True would)");
    note(notes, &n, "a collective's time in a trace includes waiting for the slowest rank");
    return n;
}

/* ---- text ---- */

struct cell { char s[32]; };

static struct cell cell(const char *fmt, double x)
{
    struct cell c = { "-" };

    if (!isnan(x))
        snprintf(c.s, sizeof c.s, fmt, x);
    return c;
}

static struct cell ms(double s)
{
    return cell("%.3f ms", 1e3 * s);
}

static struct cell percent(double part, double of)
{
    struct cell c;

    snprintf(c.s, sizeof c.s, "%s", percent_share(of > 0 ? part / of : NAN).s);
    return c;
}

static struct cell bytes(double b)
{
    struct cell c = { "-" };

    if (!isnan(b))
        snprintf(c.s, sizeof c.s, "%s", size_text((int64_t)b).s);
    return c;
}

static struct cell prefetch(const struct measures *m)
{
    static const char *const words[] = { "not known", "off", "on" };
    struct cell c;

    snprintf(c.s, sizeof c.s, "%s", words[kineto_prefetch(m) + 1]);
    return c;
}

static void line(FILE *to, const char *what, struct cell trace, const struct cell *plan, double ratio)
{
    fprintf(to, "%-40s %14s", what, trace.s);
    if (plan)
        fprintf(to, " %14s %8s", plan->s, cell("%.3f", ratio).s);
    fputc('\n', to);
}

static double exposed_share(const struct measures *m)
{
    return m->v[M_COMM] > 0 ? m->v[M_EXPOSED] / m->v[M_COMM] : NAN;
}

static void print_step(const struct kineto *k, const struct kineto_plan *p, FILE *to)
{
    const struct measures *t = &k->median, *q = p ? &p->m : NULL;
    struct cell c;

    fprintf(to, "%-40s %14s%s\n", "one step", "trace", p ? "           plan    ratio" : "");
    for (int i = 0; i < NROWS; i++) {
        double x = t->v[rows[i].m], y = q ? q->v[rows[i].m] : NAN;
        c = ms(y);
        line(to, rows[i].words, ms(x), q ? &c : NULL, y > 0 ? x / y : NAN);
    }
    c = percent(q ? exposed_share(q) : NAN, 1);
    line(to, "  exposed share of collectives", percent(exposed_share(t), 1), q ? &c : NULL, NAN);
    c = percent(q ? q->v[M_SHARDING] : NAN, 1);
    line(to, "all-gather, reduce-scatter, of the step", percent(t->v[M_SHARDING], 1), q ? &c : NULL, NAN);
    c = q ? prefetch(q) : c;
    line(to, "backward prefetch", prefetch(t), q ? &c : NULL, NAN);
    if (t->v[M_GATHERS] > 0)
        fprintf(to, "  of %.0f all-gathers %.0f were issued before the gradients of the unit before were\n"
                "  reduced, %.0f started before it was done\n", t->v[M_GATHERS], t->v[M_ISSUED_AHEAD],
                t->v[M_STARTED_AHEAD]);
}

static void add_coll(struct columns *c, const char *who, const struct measures *m, int op, bool named)
{
    const double *v = &m->v[m_coll(op, 0)];

    columns_cell(c, "%s", named ? op_name(op) : "");
    columns_cell(c, "%s", who);
    columns_cell(c, "%s", cell("%.0f", v[M_CALLS]).s);
    columns_cell(c, "%s", bytes(v[M_BYTES]).s);
    columns_cell(c, "%s", ms(v[M_TIME]).s);
    columns_cell(c, "%s", ms(v[M_ALONE]).s);
    columns_cell(c, "%s", percent(v[M_ALONE], v[M_TIME]).s);
    columns_cell(c, "%s", percent(v[M_TIME], m->v[M_STEP]).s);
}

static void print_colls(const struct kineto *k, const struct kineto_plan *p, FILE *to)
{
    static const struct column columns[] = {
        { "", false, 0 }, { "", false, 0 }, { "calls", true, 0 }, { "bytes", true, 1 }, { "time", true, 0 }, { "exposed", true, 0 },
        { "of it", true, 3 }, { "of step", true, 2 },
    };
    struct columns *c = columns_new(columns, sizeof columns / sizeof *columns);

    for (int op = 0; op < KINETO_COLLS; op++) {
        bool in_trace = k->median.v[m_coll(op, M_CALLS)] > 0, in_plan = p && p->m.v[m_coll(op, M_CALLS)] > 0;

        if (in_trace || in_plan)
            add_coll(c, "trace", &k->median, op, true);
        if (p && (in_trace || in_plan))
            add_coll(c, "plan", &p->m, op, false);
    }
    fputs("\ncollectives of one step\n", to);
    columns_print(c, to, page_width(to));
}

/* Names are long: they stand last, where a page wraps them. */
static void print_kernels(const struct kineto *k, FILE *to)
{
    enum { SHOW = 20 };
    static const struct column columns[] = {
        { "type", false, 0 }, { "ranks", true, 0 }, { "bytes of one", true, 0 }, { "a step", true, 1 }, { "mean time", true, 0 },
        { "bus GB/s", true, 2 }, { "name", false, 0 },
    };
    struct columns *c = columns_new(columns, sizeof columns / sizeof *columns);

    for (int i = 0; i < k->nkernels && i < SHOW; i++) {
        const struct kineto_kernel *e = &k->kernel[i];
        columns_cell(c, "%.8s", *e->dtype ? e->dtype : "-");
        columns_cell(c, "%s", cell("%.0f", e->group_size ? (double)e->group_size : NAN).s);
        columns_cell(c, "%s", bytes(e->bytes >= 0 ? (double)e->bytes : NAN).s);
        columns_cell(c, "%s", cell("%.4g", e->calls).s);
        columns_cell(c, "%s", ms(e->seconds).s);
        columns_cell(c, "%s", cell("%.2f", 1e-9 * kineto_busbw(e)).s);
        columns_cell(c, "%.46s", e->name);
    }
    if (k->nkernels > 0)
        fputs("\nby name and size\n", to);
    columns_print(c, to, page_width(to));
    if (k->nkernels > SHOW)
        fprintf(to, "  ... and %d more\n", k->nkernels - SHOW);
}

void kineto_print(const char *path, const struct kineto *k, const struct kineto_plan *p, FILE *to)
{
    char notes[NOTES][NOTE_SIZE];
    int n = kineto_notes(k, p, notes);

    fprintf(to, "%s\n", path);
    if (k->info.rank >= 0)
        fprintf(to, "rank %" PRId64 " of %" PRId64 "%s%s, ", k->info.rank, k->info.world_size,
                *k->info.backend ? " on " : "", k->info.backend);
    fprintf(to, "%s; %d step%s by %s, each %.4g s (%.4g to %.4g)\n",
            k->gpu ? "GPU kernels" : "operators of the host", k->nsteps, k->nsteps == 1 ? "" : "s", k->steps_by,
            k->median.v[M_STEP], extreme(k, false), extreme(k, true));
    if (p)
        fprintf(to, "plan: %s on %" PRId64 " ranks, %s%sa step %.4g s (90 %%: %.4g to %.4g)\n", p->words, p->world_size, p->rank, p->rank[0] ? ", " : "", p->m.v[M_STEP], p->low_s, p->high_s);
    fputc('\n', to);
    print_step(k, p, to);
    print_colls(k, p, to);
    print_kernels(k, to);
    fputc('\n', to);
    for (int i = 0; i < n; i++)
        fprintf(to, "- %s\n", notes[i]);
}

/* ---- JSON ---- */

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *count(double x)
{
    return isfinite(x) ? json_integer((json_int_t)x) : json_null();
}

static json_t *prefetch_json(const struct measures *m)
{
    int on = kineto_prefetch(m);

    return json_pack("{s:o, s:o, s:o, s:o}", "on", on < 0 ? json_null() : json_boolean(on),
                     "gathers", count(m->v[M_GATHERS]), "issued_ahead", count(m->v[M_ISSUED_AHEAD]),
                     "started_ahead", count(m->v[M_STARTED_AHEAD]));
}

static json_t *colls_json(const struct measures *m)
{
    json_t *list = json_array();

    for (int op = 0; op < KINETO_COLLS; op++) {
        const double *v = &m->v[m_coll(op, 0)];
        if (v[M_CALLS] > 0)
            json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "op",
                op == COLL_OTHER ? "other" : coll_name((enum coll_op)op), "count", count(v[M_CALLS]), "bytes",
                count(v[M_BYTES]), "time_s", number(v[M_TIME]), "exposed_s", number(v[M_ALONE]),
                "exposed_fraction", number(v[M_TIME] > 0 ? v[M_ALONE] / v[M_TIME] : NAN)));
    }
    return list;
}

/* The same object for the trace and for the plan. */
static json_t *side_json(const struct measures *m)
{
    json_t *o = json_object();

    for (int i = 0; i < NROWS; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s_s", rows[i].key);
        json_object_set_new(o, key, number(m->v[rows[i].m]));
    }
    json_object_set_new(o, "exposed_fraction", number(exposed_share(m)));
    json_object_set_new(o, "gather_scatter_fraction", number(m->v[M_SHARDING]));
    json_object_set_new(o, "backward_prefetch", prefetch_json(m));
    json_object_set_new(o, "collectives", colls_json(m));
    return o;
}

static json_t *kernels_json(const struct kineto *k)
{
    json_t *list = json_array();

    for (int i = 0; i < k->nkernels; i++) {
        const struct kineto_kernel *e = &k->kernel[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:o, s:o, s:f, s:f, s:o}",
            "name", e->name, "op", e->op == COLL_OTHER ? "other" : coll_name((enum coll_op)e->op),
            "dtype", e->dtype, "group_size", count(e->group_size ? (double)e->group_size : NAN),
            "bytes", count(e->bytes >= 0 ? (double)e->bytes : NAN), "count_per_step", e->calls,
            "mean_s", e->seconds, "busbw", number(kineto_busbw(e))));
    }
    return list;
}

static json_t *trace_json(const char *path, const struct kineto *k)
{
    json_t *o = side_json(&k->median), *steps = json_array();

    for (int i = 0; i < k->nsteps; i++)
        json_array_append_new(steps, number(k->step[i].v[M_STEP]));
    /* NULL where a path is not UTF-8, and then there is no such member. */
    json_object_set_new(o, "path", json_string(path));
    json_object_set_new(o, "rank", count(k->info.rank >= 0 ? (double)k->info.rank : NAN));
    json_object_set_new(o, "world_size", count(k->info.world_size >= 0 ? (double)k->info.world_size : NAN));
    json_object_set_new(o, "backend", json_string(k->info.backend));
    json_object_set_new(o, "device", json_string(k->gpu ? "gpu" : "cpu"));
    json_object_set_new(o, "steps_by", json_string(k->steps_by));
    json_object_set_new(o, "steps_s", steps);
    json_object_set_new(o, "kernels", kernels_json(k));
    return o;
}

static json_t *plan_json(const struct kineto_plan *p)
{
    json_t *o;

    if (!p)
        return json_null();
    o = side_json(&p->m);
    json_object_set_new(o, "strategy", json_string(p->strategy));
    json_object_set_new(o, "dialect", json_string(p->dialect));
    json_object_set_new(o, "world_size", json_integer(p->world_size));
    json_object_set_new(o, "rank", p->rank[0] ? json_string(p->rank) : json_null());
    json_object_set_new(o, "low_s", number(p->low_s));
    json_object_set_new(o, "high_s", number(p->high_s));
    return o;
}

json_t *kineto_json(const char *path, const struct kineto *k, const struct kineto_plan *p)
{
    char notes[NOTES][NOTE_SIZE];
    int n = kineto_notes(k, p, notes);
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_string(notes[i]));
    return json_pack("{s:i, s:o, s:o, s:o}", "dpx", 1, "trace", trace_json(path, k), "plan", plan_json(p),
                     "notes", list);
}
