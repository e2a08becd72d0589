/* measured_gaps.c -- entries of a plan without a measured series, named once each. */
#include "sim/price/measured_gaps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "sim/price/coll_entry.h"
#include "sim/price/kernel_cost.h"
#include "sim/price/measured_cost.h"

struct list { struct gap *gap; int n; };

static void add(struct list *l, const char *what, bool outside)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->gap[i].what, what))
            return;
    if (l->n == GAPS_MOST)
        return;
    snprintf(l->gap[l->n].what, sizeof l->gap[l->n].what, "%s", what);
    l->gap[l->n++].outside = outside;
}

/* ---- kernels ---- */

static void look_at_kernel(struct list *l, const struct plan *p, enum pass pass, const struct kernel *k)
{
    struct gemm_device on = gemm_device(&p->cluster.gpu, p->precision);
    struct kernel_query q = { .k = k, .seq = plan_rank_seq(p), .dim = p->model.head_dim, .dropout = p->dropout > 0,
                              .set = p->kernels, .pass = pass };
    char what[96];
    struct estimate e;
    bool known = measured_kernel(p->cluster.measured, &on, &q, &e);

    if (known && !e.outside)
        return;
    if (k->m > 0)
        snprintf(what, sizeof what, "%s %" PRId64 " x %" PRId64 " x %" PRId64, k->name, k->m, k->n, k->k);
    else
        snprintf(what, sizeof what, "%s over %s", k->name, size_text(k->bytes).s);
    add(l, what, known);
}

static void look_at_kernels(struct list *l, const struct plan *p, const struct schedules *s)
{
    for (int i = 0; i < NPIECE; i++)
        for (int pass = 0; pass < NPASS; pass++)
            for (int k = 0; k < s->program.piece[i].nkernels[pass]; k++) {
                const struct kernel *one = &s->program.piece[i].kernels[pass][k];
                if (one->flops > 0 || one->bytes > 0)
                    look_at_kernel(l, p, (enum pass)pass, one);
            }
}

/* ---- entries ---- */

static void look_at_coll(struct list *l, const struct plan *p, const struct schedules *s, const struct op *o)
{
    struct coll_query q = { .op = (enum coll_op)o->u.coll.op, .dtype = (enum dtype)o->u.coll.dtype, .star = s->star };
    char what[96];
    struct estimate e;

    coll_entry_shape(p, s, o, &q.ranks, &q.per_node);
    if (q.ranks < 2)
        return;
    q.bytes = coll_entry_bytes(p, s, o, q.ranks, q.per_node);
    bool known = measured_coll(&p->cluster, &q, &e);
    if (known && !e.outside)
        return;
    if (coll_is_message(q.op))
        snprintf(what, sizeof what, "%s of %s %s", coll_name(q.op), size_text(q.bytes).s,
                 q.ranks > q.per_node ? "between nodes" : "within a node");
    else
        snprintf(what, sizeof what, "%s of %s among %" PRId64 " ranks", coll_name(q.op), size_text(q.bytes).s, q.ranks);
    add(l, what, known);
}

static void look_at_pass(struct list *l, const struct schedules *s, const struct op *o, struct cost_cache *cache)
{
    struct cost c;

    op_cost(cache, s, o, &c);
    if (c.s > 0 && (c.basis != BASIS_MEASURED || c.outside))
        add(l, o->what, c.basis == BASIS_MEASURED);
}

int measured_gaps(const struct plan *p, const struct schedules *s, struct gap out[GAPS_MOST])
{
    struct list l = { out, 0 };
    struct cost_cache *cache;

    if (!p->cluster.measured)
        return 0;
    cache = cost_cache_new(p);
    if (p->kernels == KERNELS_DPX || p->cluster.measured->traced[p->kernels])
        look_at_kernels(&l, p, s);
    for (int i = s->begin[SCHED_STEADY]; i < s->end[SCHED_STEADY]; i++) {
        if (s->ops[i].kind == OP_COLL)
            look_at_coll(&l, p, s, &s->ops[i]);
        if ((s->ops[i].kind == OP_OPTIMIZER || s->ops[i].kind == OP_COPY) && p->kernels == KERNELS_DPX)
            look_at_pass(&l, s, &s->ops[i], cache);
    }
    cost_cache_free(cache);
    return l.n;
}

/* ---- telling ---- */

json_t *measured_json(const struct plan *p, const struct schedules *s)
{
    struct gap gap[GAPS_MOST];
    int n = measured_gaps(p, s, gap);
    json_t *missing = json_array(), *outside = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(gap[i].outside ? outside : missing, json_string(gap[i].what));
    if (!p->cluster.measured) {
        json_decref(missing);
        json_decref(outside);
        return json_null();
    }
    const struct measured_device *m = p->cluster.measured;
    return json_pack("{s:s, s:f, s:s*, s:o, s:o}", "basis", m->basis, "drift", m->drift, "warning",
                     m->warning[0] ? m->warning : NULL, "missing", missing, "outside", outside);
}

static void print_some(const struct gap *gap, int n, bool outside, const char *title, FILE *to)
{
    int told = 0, all = 0;

    for (int i = 0; i < n; i++)
        all += gap[i].outside == outside;
    if (all == 0)
        return;
    fprintf(to, "  %s: ", title);
    for (int i = 0; i < n && told < 4; i++)
        if (gap[i].outside == outside)
            fprintf(to, "%s%s", told++ ? ", " : "", gap[i].what);
    if (all > told)
        fprintf(to, " and %d more", all - told);
    fputc('\n', to);
}

void measured_print(const struct plan *p, const struct schedules *s, FILE *to)
{
    struct gap gap[GAPS_MOST];
    int n = measured_gaps(p, s, gap);

    if (!p->cluster.measured)
        return;
    fprintf(to, "  measured: %s\n", p->cluster.measured->basis);
    print_some(gap, n, false, "not measured", to);
    print_some(gap, n, true, "outside of the calibrated range", to);
}
