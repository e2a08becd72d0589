/* plan_json.c -- plan.json in and out, by the rows of the table of knobs.
 *
 * The order of reading matters: strategy, dialect, precision and
 * framework_version decide the defaults, the defaults are filled in, then every
 * key of the file overwrites one.  A key that no row claims is refused with the
 * cells that have it, or with the nearest key. */
#include "model/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/notes.h"
#include "base/opts.h"
#include "base/opts_words.h"
#include "model/arch/hf_notes.h"
#include "model/arch/training.h"
#include "model/plan/environment.h"
#include "model/plan/knob_rules.h"

static int refuse_unknown(const char *where, const char *object, const char *name,
                          const struct plan *p)
{
    const char *dot = object[0] ? "." : "";
    uint64_t others = knob_cells(object, name);
    const char *near = knob_nearest(object, name, knob_cell(p));
    char cells[512], key[32];

    if (!others && !object[0] && opts_words_key(name, key))
        return fail("%s: %s: unknown key; a plan calls it \"%s\"", where, name, key);
    if (others) {
        knob_cells_text(others, cells, sizeof cells);
        return fail("%s: %s%s%s: not an option of strategy \"%s\" in dialect \"%s\"; it belongs to %s",
                    where, object, dot, name, strategy_name(p->strategy),
                    dialect_name(p->dialect), cells);
    }
    if (near)
        return fail("%s: %s%s%s: unknown key; did you mean \"%s\"?", where, object, dot, name, near);
    return fail("%s: %s%s%s: unknown key", where, object, dot, name);
}

static int read_object(const char *where, const char *object, const json_t *j, struct plan *p);

/* "deepspeed.aio" of "deepspeed" and "aio". */
static void path_of(const char *object, const char *name, char path[64])
{
    snprintf(path, 64, "%s%s%s", object, object[0] ? "." : "", name);
}

/* A key whose limit can be none.  That is 2^63 - 1 in the frameworks' own files, which few readers of JSON hold
 * (a double does not); in plan.json it is null. */
static bool may_be_unlimited(const struct knob *k)
{
    return k->type == KNOB_INT && k->hi == INT64_MAX && k->null == KNOB_NULL_REFUSED;
}

static json_t *write_key(const struct plan *p, const struct knob *k)
{
    json_t *v = knob_write(p, k);

    if (may_be_unlimited(k) && json_integer_value(v) == INT64_MAX) {
        json_decref(v);
        return json_null();
    }
    return v;
}

/* Has the key's framework no such strategy at all, as FSDP's keys for ZeRO? */
static bool of_another_strategy(const char *object, const char *name, const struct plan *p)
{
    uint64_t cells = knob_cells(object, name);

    for (int d = 0; d < NDIALECT; d++)
        if (cells & CELL(p->strategy, (unsigned)d))
            return false;
    return cells != 0;
}

static int read_key(const char *where, const char *object, const char *name, const json_t *v,
                    struct plan *p)
{
    const char *not_yet = knob_not_yet(object, name, v);
    const struct knob *k = knob_find(object, name, knob_cell(p));
    char path[64];

    path_of(object, name, path);
    if (knob_is_object(path))
        return read_object(where, path, v, p);
    if (k && may_be_unlimited(k) && json_is_null(v)) {
        knob_set(p, k, (double)INT64_MAX);
        return 0;
    }
    if (k)
        return knob_read(v, where, k, p);
    if (not_yet && not_yet[0] && !of_another_strategy(object, name, p))
        return fail("%s: %s%s%s: %s", where, object, object[0] ? "." : "", name, not_yet);
    return not_yet && !not_yet[0] ? 0 : refuse_unknown(where, object, name, p);
}

static bool is_head(const char *name)
{
    static const char *const heads[] = { "dpx_plan", "model", "cluster", "strategy", "dialect" };

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (!strcmp(heads[i], name))
            return true;
    return false;
}

/* "// seq": "tokens of a sample" is for people (dpxplan init writes such keys), "$schema" for editors. */
static bool is_comment(const char *name)
{
    return !strncmp(name, "//", 2) || !strcmp(name, "$schema");
}

/* An empty object of another framework says nothing and is let through. */
static int read_object(const char *where, const char *object, const json_t *j, struct plan *p)
{
    const char *name;
    json_t *v;

    if (json_is_null(j))
        return 0;
    if (!json_is_object(j))
        return fail("%s: %s: expected an object", where, object);
    json_object_foreach((json_t *)(uintptr_t)j, name, v)
        if (!is_comment(name) && read_key(where, object, name, v, p) < 0)
            return -1;
    return 0;
}

/* A variable's value as a shell has it: 1 is "1".  Unknown ones are told: what a job exports is for its own purposes, too. */
static int read_variable(const char *where, const char *name, const json_t *v, struct plan *p)
{
    char number[32];
    const char *text = json_string_value(v), *why = NULL;

    if (json_is_null(v))
        return 0;
    snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    if (!text && !json_is_integer(v))
        return fail("%s: environment.%s: expected a text, such as \"1\"", where, name);
    switch (environment_give(p, where, name, text ? text : number, &why)) {
    case ENVIRONMENT_REFUSED: return -1;
    case ENVIRONMENT_LEFT:    return fail("%s: environment.%s: %s: leave it out", where, name, why);
    case ENVIRONMENT_CHANGED: notes_say_once("%s: environment.%s: %s", where, name, why); return 0;
    case ENVIRONMENT_UNKNOWN: notes_say_once("%s: environment.%s is not known to change memory or time", where, name); return 0;
    case ENVIRONMENT_TAKEN:   break;
    }
    return 0;
}

/* Behind the other keys, of some of which variables are other names. */
static int read_environment(const char *where, const json_t *j, struct plan *p)
{
    const char *name;
    json_t *v;

    if (j && !json_is_object(j) && !json_is_null(j))
        return fail("%s: environment: expected an object", where);
    json_object_foreach((json_t *)(uintptr_t)j, name, v)
        if (!is_comment(name) && read_variable(where, name, v, p) < 0)
            return -1;
    return 0;
}

static int read_keys(const char *where, const json_t *j, struct plan *p)
{
    const struct knob *k;
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)j, name, v) {
        if (is_head(name) || is_comment(name) || !strcmp(name, "environment"))
            continue;
        if (read_key(where, "", name, v, p) < 0)
            return -1;
    }
    for (int i = 0; (k = knob_at(i)); i++)
        if (k->required && !json_object_get(j, k->name))
            return fail("%s: %s: missing", where, k->name);
    return read_environment(where, json_object_get(j, "environment"), p);
}

/* ---- model and cluster, embedded or named ---- */

static bool is_builtin(const char *name, const char *(*at)(int, const char **))
{
    const char *about, *s;

    for (int i = 0; (s = at(i, &about)); i++)
        if (!strcmp(s, name))
            return true;
    return false;
}

/* A name that is a file beside the plan becomes its path; every other name is
 * left to the loader, which knows what names there are. */
static char *beside(const char *where, const char *name)
{
    const char *slash = strrchr(where, '/');
    size_t folder = slash && name[0] != '/' ? (size_t)(slash - where) + 1 : 0;
    char *path = malloc(folder + strlen(name) + 1);

    if (!path)
        return NULL;
    memcpy(path, where, folder);
    strcpy(path + folder, name);
    if (access(path, F_OK) != 0)
        strcpy(path, name);
    return path;
}

static int read_model(const char *where, const json_t *j, struct model *out)
{
    const char *name = json_string_value(j);
    char *path;
    int rc;

    if (!j)
        return fail("%s: model: missing; a name, a path or a config object", where);
    if (json_is_object(j)) {
        char *label = malloc(strlen(where) + sizeof ": model");
        if (!label)
            return fail("out of memory");
        sprintf(label, "%s: model", where);
        rc = model_from_config(j, label, out);
        if (rc == 0)
            hf_notes_say(j, label, out->family);
        free(label);
        return rc;
    }
    if (!name)
        return fail("%s: model: expected a name, a path or a config object", where);
    path = is_builtin(name, model_builtin) ? strdup(name) : beside(where, name);
    if (!path)
        return fail("out of memory");
    rc = model_load(path, out);
    free(path);
    return rc;
}

int plan_read_cluster(const char *where, const json_t *j, struct cluster *out)
{
    const char *name = json_string_value(j);
    char *path;
    int rc;

    if (!j)
        return fail("%s: cluster: missing; a name such as 8xh100, a path or an object", where);
    if (json_is_object(j)) {
        char *label = malloc(strlen(where) + sizeof ": cluster");
        if (!label)
            return fail("out of memory");
        sprintf(label, "%s: cluster", where);
        rc = cluster_from_json(j, label, out);
        free(label);
        return rc;
    }
    if (!name)
        return fail("%s: cluster: expected a name, a path or an object", where);
    path = is_builtin(name, cluster_builtin) ? strdup(name) : beside(where, name);
    if (!path)
        return fail("out of memory");
    rc = cluster_load(path, out);
    free(path);
    return rc;
}

/* ---- what decides the defaults ---- */

static int read_name(const char *where, const json_t *j, const char *key, int (*parse)(const char *),
                     const char *expected, int missing)
{
    const json_t *v = json_object_get(j, key);
    int i = json_is_string(v) ? parse(json_string_value(v)) : -1;

    if (!v && missing >= 0)
        return missing;
    if (i < 0) {
        const char *words[NSTRATEGY + NDIALECT + 1], *near = NULL;
        int n = 0;
        for (int w = 0; parse == strategy_parse && w < NSTRATEGY; w++)
            words[n++] = strategy_name((enum strategy)w);
        for (int w = 0; parse == dialect_parse && w < NDIALECT; w++)
            words[n++] = dialect_name((enum dialect)w);
        words[n] = NULL;
        if (json_is_string(v))
            near = opts_nearest_word(json_string_value(v), words);
        return fail("%s: %s: %s%s%s%s%s", where, key, v ? "expected one of " : "missing; one of ", expected,
                    near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    return i;
}

/* The framework people mean by a strategy's name when they name none. */
static enum dialect usual_dialect(enum strategy s)
{
    bool zero = s == STRAT_ZERO1 || s == STRAT_ZERO2 || s == STRAT_ZERO3;

    return zero ? DIALECT_DEEPSPEED : DIALECT_TORCH;
}

static int refuse_cell(const char *where, enum strategy s, enum dialect d)
{
    char have[96] = "";
    size_t n = 0;

    for (int i = 0; i < NDIALECT; i++)
        if (dialect_has((enum dialect)i, s))
            n += (size_t)snprintf(have + n, sizeof have - n, "%s%s", n ? ", " : "",
                                  dialect_name((enum dialect)i));
    return fail("%s: dialect: \"%s\" has no strategy \"%s\"; these have it: %s", where,
                dialect_name(d), strategy_name(s), have);
}

static int read_head(const char *where, const json_t *j, struct plan *p)
{
    const json_t *one = json_object_get(j, "dpx_plan");
    const json_t *precision = json_object_get(j, "precision");
    const json_t *version = json_object_get(j, "framework_version");
    int s, d;

    if (!json_is_integer(one) || json_integer_value(one) != 1)
        return fail("%s: dpx_plan: %s", where, one ? "only 1 is known" : "missing; must be 1");
    s = read_name(where, j, "strategy", strategy_parse, "dp, ddp, zero1, zero2, zero3, fsdp", -1);
    if (s < 0)
        return -1;
    d = read_name(where, j, "dialect", dialect_parse, "paper, torch, torch-fsdp1, deepspeed, megatron",
                  (int)usual_dialect((enum strategy)s));
    if (d < 0)
        return -1;
    if (!dialect_has((enum dialect)d, (enum strategy)s))
        return refuse_cell(where, (enum strategy)s, (enum dialect)d);
    p->strategy = (enum strategy)s;
    p->dialect = (enum dialect)d;
    p->precision = DT_FP32;
    if (precision && read_key(where, "", "precision", precision, p) < 0)
        return -1;
    if (json_is_string(version) && d != DIALECT_PAPER
        && read_key(where, "", "framework_version", version, p) < 0)
        return -1;
    plan_defaults(p, (enum strategy)s, (enum dialect)d, p->precision);
    return 0;
}

static bool given(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);

    return v && !json_is_null(v);
}

/* Whether the file has a row's key: knob_follow()'s.  A null that is a value is stated as any other; KNOB_RESHARD's says what the framework
 * does by itself. */
static bool chosen(const void *file, const struct knob *k)
{
    const json_t *section = k->object[0] ? json_object_get(file, k->object) : file;

    return given(section, k->name) || (k->null == KNOB_NULL_VALUE && k->type != KNOB_RESHARD && json_object_get(section, k->name));
}

/* Defaults that other keys of the file decide. */
static void late_defaults(const json_t *j, struct plan *p)
{
    bool hybrid = p->fsdp.sharding_strategy == FSDP1_HYBRID_SHARD
               || p->fsdp.sharding_strategy == FSDP1_HYBRID_SHARD_ZERO2;
    bool deepspeed = p->dialect == DIALECT_DEEPSPEED;
    struct plan resolved;

    knob_follow(p, chosen, j);
    /* FSDP1 without a device mesh shards within a node */
    if (p->dialect == DIALECT_TORCH_FSDP1 && hybrid && !given(j, "shard_group"))
        p->shard_group = p->cluster.gpus_per_node;
    /* In DeepSpeed's words reduce_dtype is communication_data_type */
    if (deepspeed && p->parallel.context <= 1 && given(j, "reduce_dtype") && p->ds.communication_dtype < 0
        && p->reduce_dtype != p->precision)
        p->ds.communication_dtype = (int)p->reduce_dtype;
    if (p->fsdp.model_dtype == DT_FP32)
        p->fsdp.model_dtype = -1;
    if (p->ddp.model_dtype == DT_FP32)
        p->ddp.model_dtype = -1;
    resolved = *p;
    plan_resolve(&resolved);
    if (!given(j, "reduce_dtype"))      /* parameters that are kept in 16 bits were not known when the default was made */
        p->reduce_dtype = p->fsdp.model_dtype >= 0 ? (enum dtype)knob_usual_reduce_dtype(p) : resolved.reduce_dtype;
    if (p->deterministic && p->parallel.pipeline <= 1 && !given(j, "sync_every_micro_step"))
        p->sync_every_micro_step = true;
}

/* The object of a path ("deepspeed.aio", "": the document); NULL: it is not there. */
static const json_t *object_in(const json_t *doc, const char *path)
{
    char name[64];

    for (size_t n; doc && *path; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        doc = json_object_get(doc, name);
    }
    return doc;
}

static struct plan_stated stated_in(const json_t *j, const struct plan *p)
{
    struct plan_stated out = { 0 };
    const struct knob *k;
    int has = 0, all = 0;

    for (int i = 0; (k = knob_at(i)); i++) {
        if (!(k->cells & knob_cell(p)) || knob_idle(p, k))
            continue;
        all++;
        const json_t *v = json_object_get(object_in(j, k->object), k->name);
        if (!v || (json_is_null(v) && k->null != KNOB_NULL_VALUE))
            continue;
        out.rows[i / 8] |= (uint8_t)(1u << i % 8);
        has++;
    }
    out.all = 2 * has > all;
    return out;
}

int plan_from_json(const json_t *j, const char *where, struct plan *out)
{
    struct plan p = { 0 };

    if (!json_is_object(j))
        return fail("%s: a plan is a JSON object", where);
    if (read_model(where, json_object_get(j, "model"), &p.model) < 0)
        return -1;
    if (plan_read_cluster(where, json_object_get(j, "cluster"), &p.cluster) < 0
        || read_head(where, j, &p) < 0 || read_keys(where, j, &p) < 0)
        goto refused;
    p.train.bridge = p.dialect == DIALECT_MEGATRON && !training_is_all(&p.train);
    p.train.grouped = p.fsdp.grouped_experts && training_is_lora(&p.train);
    if (training_apply(&p.model, &p.train, where) < 0)
        goto refused;
    late_defaults(j, &p);
    p.stated = stated_in(j, &p);
    if (plan_check(&p, where) < 0)
        goto refused;
    *out = p;
    return 0;
refused:
    plan_free(&p);
    return -1;
}

int plan_read(const char *path, struct plan *out)
{
    json_t *j = files_read_json_file(path);
    int rc;

    if (!j)
        return -1;
    rc = plan_from_json(j, path, out);
    json_decref(j);
    return rc;
}

/* ---- writing ---- */

json_t *plan_to_json(const struct plan *p)
{
    const struct knob *k;
    json_t *doc = json_object();

    json_object_set_new(doc, "dpx_plan", json_integer(1));
    json_object_set_new(doc, "model", model_to_config(&p->model));
    json_object_set_new(doc, "cluster", cluster_to_json(&p->cluster));
    json_object_set_new(doc, "strategy", json_string(strategy_name(p->strategy)));
    json_object_set_new(doc, "dialect", json_string(dialect_name(p->dialect)));
    for (int i = 0; (k = knob_at(i)); i++)
        if ((k->cells & knob_cell(p)) && !knob_idle(p, k))
            json_object_set_new(knob_object_at(doc, k->object), k->name, write_key(p, k));
    return doc;
}
