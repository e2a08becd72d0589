/* search_beyond.c -- see search_beyond.h. */
#include "sim/plan/search_beyond.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/search/enumerate.h"

enum { ITEMS = 8, WHAT = 320 };

struct items {
    int n;
    struct { char what[WHAT]; const char *option; } of[ITEMS];
};

static void add(struct items *all, const char *what, const char *option)
{
    snprintf(all->of[all->n].what, WHAT, "%s", what);
    all->of[all->n++].option = option;
}

static const int frameworks[] = { FRAMEWORK_TORCH, FRAMEWORK_DEEPSPEED, FRAMEWORK_MEGATRON };
enum { NFRAMEWORKS = sizeof frameworks / sizeof *frameworks };

/* Those that were not asked for. */
static void add_not_asked(const struct search_args *a, const struct search_options *o, struct items *all)
{
    char names[WHAT] = "";
    size_t n = 0;

    for (int i = 0; i < NFRAMEWORKS; i++)
        if (!(o->dialects & search_framework_dialects(frameworks[i])))
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? " and " : "", search_frameworks[frameworks[i]]);
    if (n)
        add(all, names, a->dialect >= 0 ? "without --dialect" : "--framework any");
}

/* Why a framework that was asked for has no candidate. */
static void why_none(const struct search_options *o, const struct search_result *r, uint64_t dialects, char *to, size_t size)
{
    struct search_options one = *o;
    struct left_out cells[NSTRATEGY * NDIALECT];
    bool any = false;

    const char *grid = "";

    for (int d = 0; d < NDIALECT; d++) {
        for (int s = 0; s < NSTRATEGY; s++)
            any |= (dialects >> d & 1) && (o->strategies >> s & 1) && dialect_has((enum dialect)d, (enum strategy)s);
        if ((dialects >> d & 1) && !grid[0])
            grid = r->why_none[d] + (strncmp(r->why_none[d], "search: ", 8) ? 0 : 8);
    }
    one.dialects = dialects;
    if (!any)
        snprintf(to, size, "it has none of the strategies that were asked for");
    else if (enumerate_left_out(&one, cells) > 0)
        snprintf(to, size, "%.255s", cells[0].why);
    else
        snprintf(to, size, "%.255s", grid[0] ? grid : "no micro-batch divides the global batch");
}

static void add_unable(const struct search_options *o, const struct search_result *r, struct items *all)
{
    for (int i = 0; i < NFRAMEWORKS; i++) {
        uint64_t dialects = o->dialects & search_framework_dialects(frameworks[i]);
        char why[256], what[WHAT];
        if (!dialects || (r->looked & dialects))
            continue;
        why_none(o, r, dialects, why, sizeof why);
        snprintf(what, sizeof what, "%s, which has no such plan: %s", search_frameworks[frameworks[i]], why);
        add(all, what, NULL);
    }
}

static void add_grids(const struct search_args *a, const struct search_options *o, const struct search_result *r, struct items *all)
{
    bool alone = r->alone[0] == '\0';           /* data parallelism alone was the answer */

    if (o->cluster->world_size < 2 || o->cluster->is_host || o->grid == GRID_ONLY)
        return;
    if (o->grid == GRID_NONE)
        add(all, "tensor, context and pipeline parallelism", a->no_grid ? "without --no-grid" : "--grid");
    else if (o->grid == GRID_NEXT && alone)
        add(all, "tensor, context and pipeline parallelism", "--grid");
    else if (o->grid == GRID_BESIDE && alone && (o->dialects >> DIALECT_DEEPSPEED & 1) && !o->model->experts)
        add(all, "DeepSpeed's tensor, sequence and pipeline parallelism", "--grid");
    if (r->too_long > 0) {
        char what[WHAT];
        snprintf(what, sizeof what, "%" PRId64 " pipelines and tensor cuts with long steps", r->too_long);
        add(all, what, "--grid");
    }
}

static struct items beyond(const struct search_args *a, const struct search_options *o, const struct search_result *r)
{
    struct items all = { .n = 0 };

    if (!o->cluster->is_host) {         /* cores run dpx's own kernels */
        add_not_asked(a, o, &all);
        add_unable(o, r, &all);
    }
    add_grids(a, o, r, &all);
    if (o->in_place)
        add(&all, "offload", "without --no-offload");
    return all;
}

void search_beyond_words(const struct search_args *a, const struct search_options *o, const struct search_result *r,
                         char to[SEARCH_BEYOND])
{
    struct items all = beyond(a, o, r);
    int n = 0;

    to[0] = '\0';
    for (int i = 0; i < all.n && n < SEARCH_BEYOND; i++)
        n += snprintf(to + n, (size_t)(SEARCH_BEYOND - n), "%s%s%s%s%s", i ? "; " : "not looked at: ", all.of[i].what,
                      all.of[i].option ? " (" : "", all.of[i].option ? all.of[i].option : "", all.of[i].option ? ")" : "");
}

json_t *search_beyond_json(const struct search_args *a, const struct search_options *o, const struct search_result *r)
{
    struct items all = beyond(a, o, r);
    json_t *list = json_array();

    for (int i = 0; i < all.n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s?}", "what", all.of[i].what, "option", all.of[i].option));
    return list;
}
