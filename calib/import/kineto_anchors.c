/* kineto_anchors.c -- products and attention of a step, found by name, placed by their dimensions. */
#include "calib/import/kineto_anchors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "base/sort.h"
#include "calib/trace/kineto_class.h"

/* Products of which the plan knows nothing (the angles of rotary embeddings are one): together at most this share of a
 * step's products' time. */
#define SMALL .005

/* ---- anchors and stretches ---- */

void anchors_more(struct stretch *s, const struct stretch *more)
{
    s->ns += more->ns;
    s->covered += more->covered;
    s->optimizer_ns += more->optimizer_ns;
    if (more->ns > 0 && more->op >= 0)
        s->op = more->op;
}

static void stretch_add(struct stretch *s, const struct work *w, const struct busies *b)
{
    struct stretch one = { .ns = w->end - w->start, .optimizer_ns = w->phase == WORK_OPTIMIZER ? w->end - w->start : 0 };

    one.covered = beside_cover(b, w->start, w->end, &one.op);
    anchors_more(s, &one);
}

/* Kernels of one attention follow each other; what adds a split product's parts belongs to it. */
static void anchors_add(struct anchors *a, const struct work *w, bool small, const struct busies *b)
{
    static const enum expect_kind kinds[KINETO_CLASSES] = {
        [KINETO_STREAMING] = EXPECT_STREAMING, [KINETO_PRODUCT] = EXPECT_PRODUCT, [KINETO_PRODUCT_SUM] = EXPECT_PRODUCT,
        [KINETO_ATTENTION] = EXPECT_ATTENTION, [KINETO_ATTENTION_BACK] = EXPECT_ATTENTION_BACK };
    enum expect_kind kind = small ? EXPECT_STREAMING : kinds[w->what];
    bool follows = a->n > 0 && a->after.ns == 0 && a->at[a->n - 1].kind == kind &&
                   (kind != EXPECT_PRODUCT || w->what == KINETO_PRODUCT_SUM);

    if (kind == EXPECT_STREAMING)
        stretch_add(&a->after, w, b);
    else if (follows)
        stretch_add(&a->at[a->n - 1].of, w, b);
    else {
        a->at = room_for(a->at, a->n, &a->cap, sizeof *a->at);
        a->at[a->n] = (struct anchor){ .kind = kind, .product = w->product, .before = a->after, .of = { .op = -1 } };
        stretch_add(&a->at[a->n++].of, w, b);
        a->after = (struct stretch){ .op = -1 };
    }
}

static int by_size(const void *a, const void *b)
{
    return (*(const int64_t *)a > *(const int64_t *)b) - (*(const int64_t *)a < *(const int64_t *)b);
}

/* The length up to which products are none of the plan's: the shortest, where there are more than it has.  -1: none. */
static int64_t small_product(const struct expectation *x, const struct work *const *at, int64_t n)
{
    int64_t *length = room_new((size_t)n + 1, sizeof *length), found = 0, all = 0, few = 0, limit = -1;

    for (int64_t i = 0; i < n; i++)
        if (at[i]->what == KINETO_PRODUCT)
            all += length[found++] = at[i]->end - at[i]->start;
    if (found > x->nproducts) {
        sort_stable(length, (size_t)found, sizeof *length, by_size);
        for (int64_t i = 0; i < found - x->nproducts; i++)
            few += length[i];
        if ((double)few <= SMALL * (double)all)
            limit = length[found - x->nproducts - 1];
    }
    free(length);
    return limit;
}

struct anchors anchors_of(const struct work *const *at, int64_t n, const struct expectation *x, const struct busies *b)
{
    struct anchors a = { .after = { .op = -1 } };
    int64_t limit = small_product(x, at, n);

    for (int64_t i = 0; i < n; i++)
        anchors_add(&a, at[i], at[i]->what == KINETO_PRODUCT && at[i]->end - at[i]->start <= limit, b);
    return a;
}

void anchors_free(struct anchors *a)
{
    free(a->at);
    *a = (struct anchors){ 0 };
}

/* ---- which is which ---- */

/* The plan's anchors that no anchor of the trace is yet: from `low` on. */
struct places {
    const struct expected **of;
    bool   *taken;
    int64_t n, low;
};

static bool are(int64_t a, int64_t b, int64_t m, int64_t n)
{
    return (a == m && b == n) || (a == n && b == m);
}

/* Groups of rows are equally large in the plan, and in the trace what the tokens chose: all of them, to a quarter. */
static bool about(int64_t found, int64_t planned)
{
    return 4 * llabs(found - planned) <= planned;
}

/* Of a convolution's backward, the gradient of the input or of the weight. */
static bool are_of_convolution(const struct kernel *k, const struct kineto_product *p)
{
    int64_t a[] = { k->m, k->n, k->k }, b[] = { p->m, p->n, p->k };

    sort_stable(a, 3, sizeof *a, by_size);
    sort_stable(b, 3, sizeof *b, by_size);
    return !memcmp(a, b, sizeof a) && p->batch == (k->batch > 1 ? k->batch : 1);
}

/* The plan may have the transposed result. */
static bool has_dimensions(const struct kernel *k, const struct kineto_product *p)
{
    int64_t groups = k->batch > 1 ? k->batch : 1;

    if (p->convolution)
        return are_of_convolution(k, p);
    if (p->batch == groups && p->k == k->k && are(p->m, p->n, k->m, k->n))
        return true;
    if (p->batch != 1 || groups == 1)
        return false;
    if (p->k == k->k)
        return (p->n == k->n && about(p->m, k->m * groups)) || (p->m == k->n && about(p->n, k->m * groups));
    return about(p->k, k->k * groups) && are(p->m, p->n, k->m, k->n);
}

/* Takes the first place that the anchor may have; -1: none. */
static int64_t take(struct places *s, const struct anchor *a, const struct kineto_product *p)
{
    while (s->low < s->n && s->taken[s->low])
        s->low++;
    for (int64_t i = s->low; i < s->n; i++)
        if (!s->taken[i] && s->of[i]->kind == a->kind && (!p || has_dimensions(s->of[i]->kernel, p))) {
            s->taken[i] = true;
            return i;
        }
    return -1;
}

static int64_t count_products(const struct anchors *a)
{
    int64_t n = 0;

    for (int64_t i = 0; i < a->n; i++)
        n += a->at[i].kind == EXPECT_PRODUCT;
    return n;
}

static bool all_have_dimensions(const struct anchors *a)
{
    for (int64_t i = 0; i < a->n; i++)
        if (a->at[i].kind == EXPECT_PRODUCT && !a->at[i].product)
            return false;
    return true;
}

static int other_plan(const struct anchors *a, const struct expectation *x, const char *path, int step, const char *how)
{
    int64_t products = count_products(a);

    return fail("%s: step %d has %" PRId64 " products and %" PRId64 " attention kernels%s, the plan's has %" PRId64 " and %" PRId64
                ": --plan has to be the plan that was traced (model, kernels, recompute, accumulation, stage)", path, step,
                products, a->n - products, how, x->nproducts, x->nattention);
}

static int no_place(const struct kineto_product *p, const char *path, int step)
{
    char batch[32] = "";

    if (p->batch > 1)
        snprintf(batch, sizeof batch, "%" PRId64 " times ", p->batch);
    return fail("%s: step %d has more products %s[%" PRId64 ", %" PRId64 "] by [%" PRId64 ", %" PRId64 "] than the plan's: --plan has to be "
                "the plan that was traced (model, kernels, sequence, micro-batch, recompute)", path, step, batch, p->m, p->k, p->k, p->n);
}

/* As the plan has them: by kind, and by dimensions where an operator says them. */
static bool in_order(struct anchors *a, const struct places *s, const struct kineto *k)
{
    for (int64_t i = 0; i < a->n; i++) {
        const struct kineto_product *p = a->at[i].product > 0 ? &k->product[a->at[i].product - 1] : NULL;
        if (a->at[i].kind != s->of[i]->kind || (p && a->at[i].kind == EXPECT_PRODUCT && !has_dimensions(s->of[i]->kernel, p)))
            return false;
        a->at[i].which = i;
    }
    return true;
}

static int place_all(struct anchors *a, struct places *s, const struct expectation *x, const struct kineto *k, const char *path, int step)
{
    if (!all_have_dimensions(a))
        return in_order(a, s, k) ? 0 : other_plan(a, x, path, step, " in another order, or of other sizes");
    for (int64_t i = 0; i < a->n; i++) {
        const struct kineto_product *p = a->at[i].kind == EXPECT_PRODUCT ? &k->product[a->at[i].product - 1] : NULL;
        a->at[i].which = take(s, &a->at[i], p);
        if (a->at[i].which < 0)
            return p ? no_place(p, path, step) : other_plan(a, x, path, step, " in another order");
    }
    return 0;
}

int anchors_place(struct anchors *a, const struct expectation *x, const struct kineto *k, const char *path, int step)
{
    struct places s = { .of = room_new((size_t)x->n + 1, sizeof *s.of), .taken = room_new((size_t)x->n + 1, sizeof *s.taken) };
    int rc;

    for (int64_t i = 0; i < x->n; i++)
        if (expected_anchor(&x->at[i]))
            s.of[s.n++] = &x->at[i];
    if (a->n != s.n || count_products(a) != x->nproducts)
        rc = other_plan(a, x, path, step, "");
    else
        rc = place_all(a, &s, x, k, path, step);
    free(s.of);
    free(s.taken);
    return rc;
}
