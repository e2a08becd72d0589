/* list.c -- see list.h. */
#include "sim/plan/list.h"

#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "sim/plan/commands.h"
#include "sim/plan/list_options.h"
#include "sim/plan/list_parallel.h"

const char *const list_words[] = { "models", "clusters", "gpus", "strategies", "parallel", "keys", "options", "refused", NULL };

static int list_models(json_t *to)
{
    const char *name, *about;

    for (int i = 0; (name = model_builtin(i, &about)); i++) {
        struct model m;
        if (model_load(name, &m) < 0)
            return -1;
        json_array_append_new(to, json_pack("{s:s, s:s, s:s, s:I}", "name", name, "about", about,
                                            "family", m.family, "params", (json_int_t)m.params));
        if (m.experts)
            json_object_set_new(json_array_get(to, json_array_size(to) - 1), "active_params", json_integer(m.active));
        model_free(&m);
    }
    return 0;
}

static int list_gpus(json_t *to)
{
    const struct gpu *g;

    for (int i = 0; (g = gpu_at(i)); i++)
        json_array_append_new(to, json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:i, s:f, s:s}", "name", g->name,
            "title", g->title, "memory_bytes", (json_int_t)g->memory, "hbm_bytes_per_s", g->hbm,
            "bf16_flops", g->bf16, "link_bytes_per_s", g->link, "sms", g->sms, "board_watts", power_watts(g->name, NULL), "source", g->source));
    return 0;
}

static int list_clusters(json_t *to)
{
    const char *name, *about;

    for (int i = 0; (name = cluster_builtin(i, &about)); i++)
        json_array_append_new(to, json_pack("{s:s, s:s}", "name", name, "about", about));
    return 0;
}

static int list_strategies(json_t *to)
{
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            if (dialect_has((enum dialect)d, (enum strategy)s))
                json_array_append_new(to, json_pack("{s:s, s:s}", "strategy", strategy_name((enum strategy)s),
                                                    "dialect", dialect_name((enum dialect)d)));
    return 0;
}

static json_t *cells_json(uint64_t cells)
{
    json_t *all = json_array();

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            if (cells & CELL(s, d))
                json_array_append_new(all, json_pack("{s:s, s:s}", "strategy", strategy_name((enum strategy)s),
                                                     "dialect", dialect_name((enum dialect)d)));
    return all;
}

void list_cells_text(const json_t *cells, char *to, size_t size)
{
    uint64_t mask = 0;

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            json_t *one = json_pack("{s:s, s:s}", "strategy", strategy_name((enum strategy)s), "dialect", dialect_name((enum dialect)d)), *c;
            size_t i;
            json_array_foreach((json_t *)cells, i, c)
                mask |= json_equal(one, c) ? CELL(s, d) : 0;
            json_decref(one);
        }
    knob_cells_short(mask, to, size);
}

void list_key_text(const struct knob *k, struct list_key *t)
{
    knob_key_text(k, t->key, sizeof t->key);
    knob_range_text(k, t->values, sizeof t->values);
    knob_default_text(k, t->usual, sizeof t->usual);
    knob_cells_short(k->cells, t->cells, sizeof t->cells);
}

static int list_keys(json_t *to)
{
    const struct knob *k;
    struct list_key t;

    for (int i = 0; (k = knob_at(i)); i++) {
        list_key_text(k, &t);
        json_array_append_new(to, json_pack("{s:s, s:s, s:s, s:s, s:o}", "key", t.key, "about", k->about,
                                            "values", t.values, "default", t.usual, "cells", cells_json(k->cells)));
    }
    return 0;
}

/* What frameworks have and plans do not: the table that makes the refusals. */
static int list_refused(json_t *to)
{
    struct knob_refusal r;

    for (size_t i = 0; knob_refusal_at(i, &r); i++)
        json_array_append_new(to, json_pack("{s:o, s:s?, s:s}", "key", json_sprintf("%s%s%s", r.object, r.object[0] ? "." : "", r.name),
                                            "value", r.value, "why", r.why));
    return 0;
}

int list_json(const char *what, json_t **doc)
{
    static int (*const lists[])(json_t *to) = { list_models, list_clusters, list_gpus, list_strategies, list_parallel, list_keys, list_options, list_refused };
    const char *near;

    for (int i = 0; list_words[i]; i++)
        if (!strcmp(what, list_words[i])) {
            json_t *rows = json_array();
            *doc = json_pack("{s:i, s:o}", "dpx", 1, what, rows);
            if (lists[i](rows) == 0)
                return 0;
            json_decref(*doc);
            return -1;
        }
    near = opts_nearest_word(what, list_words);
    return fail("list \"%.60s\": expected models, clusters, gpus, strategies, parallel, keys, options or refused%s%s%s", what, near ? "; did you mean " : "",
                near ? near : "", near ? "?" : "");
}
