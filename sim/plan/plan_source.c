/* plan_source.c -- reading a plan, and changing single keys of it. */
#include "sim/plan/plan_source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "base/files.h"
#include "base/notes.h"
#include "base/size.h"
#include "model/plan/knob.h"
#include "model/plan/knob_rules.h"
#include "sim/plan/plan_value.h"
#include "sim/plan/plan_words.h"

enum { KEY = 96 };

static const struct { const char *name, *key; } aliases[] = {
    { "nodes", "cluster.nodes" }, { "gpus_per_node", "cluster.gpus_per_node" }, { "gpu", "cluster.gpu" },
    { "network", "cluster.inter.gbit_per_s" }, { "memory", "cluster.memory_bytes" },
    { "headroom", "cluster.headroom" }, { "power_limit", "cluster.power_limit_w" }, { "host_memory", "cluster.node.memory_bytes" },
};
#define NALIASES (sizeof aliases / sizeof *aliases)

/* NCCL_NVLS_ENABLE: in capitals, as environment variables are. */
static bool is_variable(const char *key) { return key[0] >= 'A' && key[0] <= 'Z' && key[strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == '\0'; }

const char *plan_source_split(const char *pair, char *key, size_t size)
{
    size_t n = strcspn(pair, "=");

    snprintf(key, size, "%.*s", (int)n, pair);
    for (size_t i = 0; i < NALIASES; i++)
        if (!strcmp(key, aliases[i].name))
            snprintf(key, size, "%s", aliases[i].key);
    if (!strncmp(key, "node.", 5))
        snprintf(key, size, "cluster.%.*s", (int)n, pair);
    if (is_variable(key))
        snprintf(key, size, "environment.%.*s", (int)n, pair);
    return pair[n] ? pair + n + 1 : "";
}

/* ---- keys ---- */

/* What users of other tools type, and a key without its object: "tp", "tensor" are parallel.tensor.  NULL: neither. */
static const char *key_of_word(const char *word, char name[KEY])
{
    static const struct { const char *word, *key; } words[] = {
        { "tp", "parallel.tensor" }, { "sp", "parallel.sequence" }, { "cp", "parallel.context" }, { "pp", "parallel.pipeline" },
        { "ep", "parallel.expert" }, { "batch_size", "micro_batch" }, { "per_device_train_batch_size", "micro_batch" },
        { "gradient_accumulation_steps", "accumulation" }, { "train_batch_size", "global_batch" }, { "zero_stage", "strategy" },
        { "gradient_checkpointing", "recompute" }, { "activation_checkpointing", "recompute" }, { "dtype", "precision" },
        { "mixed_precision", "precision" }, { "attn_implementation", "kernels" }, { "torch_compile", "kernels" }, { "max_length", "seq" },
        { "sequence_len", "seq" }, { "cutoff_len", "seq" }, { "max_grad_norm", "clip" }, { "optim", "optimizer" }, { "lora_r", "lora.rank" },
        { "load_in_4bit", "base_dtype" }, { "use_liger_kernel", "loss" },
    };
    const struct knob *k;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(word, words[i].word))
            return words[i].key;
    for (int i = 0; (k = knob_at(i)); i++) {
        if (k->object[0] && !strcmp(word, k->name)) {
            knob_key_text(k, name, KEY);
            return name;
        }
    }
    return NULL;
}

/* Why a path that frameworks know is not a key of plans; NULL: it is no such path. */
static const char *refused(const char *key)
{
    const char *dot = strrchr(key, '.');
    char object[KEY] = "";

    if (dot)
        snprintf(object, sizeof object, "%.*s", (int)(dot - key), key);
    json_t *asks = json_true();
    return knob_not_yet(object, dot ? dot + 1 : key, asks);
}

int plan_source_check_key(const char *key)
{
    enum { MOST = 256 };
    char names[MOST][KEY], whole[KEY];
    const char *words[MOST + 1];
    const struct knob *k;
    int n = 0;

    if (plan_value_is_head(key) || !strcmp(key, "global_batch") || !strncmp(key, "environment.", 12) || plan_value_row(key))
        return 0;
    if (refused(key))
        return fail("%.60s: %s", key, refused(key));
    for (size_t i = 0; i < NALIASES; i++)
        words[n++] = aliases[i].name;
    words[n++] = "global_batch";
    words[n++] = "strategy";
    words[n++] = "dialect";
    for (int i = 0; (k = knob_at(i)) && n < MOST; i++) {
        knob_key_text(k, names[n], sizeof names[n]);
        words[n] = names[n];
        n++;
    }
    words[n] = NULL;
    const char *near = key_of_word(key, whole);
    if (!near)
        near = opts_nearest_word(key, words);
    return fail("'%.60s' is not a key of a plan; %s%s%s", key, near ? "did you mean " : "dpxplan list keys shows them",
                near ? near : "", near ? "?" : "");
}

/* The object of a path ("deepspeed.aio", "": the document); NULL: it is not there. */
static json_t *object_in(json_t *doc, const char *path)
{
    char name[KEY];

    for (size_t n; doc && *path; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        doc = json_object_get(doc, name);
    }
    return doc;
}

/* Objects on a path that hold nothing go, the innermost first. */
static void drop_empty(json_t *in, const char *path)
{
    size_t n = strcspn(path, ".");
    char name[KEY];

    if (!*path)
        return;
    snprintf(name, sizeof name, "%.*s", (int)n, path);
    json_t *of = json_object_get(in, name);
    if (path[n])
        drop_empty(of, path + n + 1);
    if (json_is_object(of) && json_object_size(of) == 0)
        json_object_del(in, name);
}

/* ---- the cluster ---- */

/* Has it the links of its GPUs' usual node? */
static bool is_usual(const struct cluster *c)
{
    struct cluster u;

    cluster_of_gpu(&u, &c->gpu, c->nodes, c->gpus_per_node);
    return u.nics == c->nics && !(u.intra < c->intra) && !(u.intra > c->intra) && !(u.inter < c->inter) &&
           !(u.inter > c->inter);
}

/* What a user says of a cluster beside its GPUs stays when these change. */
static void keep_said(const struct cluster *base, struct cluster *out)
{
    out->headroom = base->headroom;
    out->power_limit_w = base->power_limit_w;   /* read_changed() asks whether the other board can have it */
    memcpy(out->calibration, base->calibration, sizeof out->calibration);
}

static int another_gpu(const char *name, const struct cluster *base, struct cluster *out)
{
    const struct gpu *g = gpu_find(name);
    char nearest[128];

    if (!g) {
        gpu_nearest(name, nearest, sizeof nearest);
        return fail("gpu: no GPU '%.40s' is known; similar names: %s", name, nearest);
    }
    if (cluster_node_check(g, base->nodes, base->gpus_per_node, "gpu") < 0)
        return -1;
    cluster_of_gpu(out, g, base->nodes, base->gpus_per_node);
    keep_said(base, out);
    return 0;
}

static int read_changed(json_t *doc, const struct cluster *was, struct cluster *out)
{
    struct cluster c;

    json_object_del(doc, "world_size");
    if (cluster_from_json(doc, "cluster", &c) < 0)
        return -1;
    bool shape = c.nodes != was->nodes || c.gpus_per_node != was->gpus_per_node || strcmp(c.gpu.name, was->gpu.name);
    if (shape)
        snprintf(c.name, sizeof c.name, "%" PRId64 "x%" PRId64 "x%s", c.nodes, c.gpus_per_node, c.gpu.name);
    *out = c;
    return 0;
}

int plan_source_cluster(const struct cluster *base, const char *pair, struct cluster *out)
{
    char key[KEY];
    const char *text = plan_source_split(pair, key, sizeof key);
    struct cluster c = *base, was = *base;
    json_t *value, *doc;

    if (!strcmp(key, "cluster"))
        return cluster_load(text, out);
    if (!strcmp(key, "cluster.gpu") && another_gpu(text, base, &c) < 0)
        return -1;
    if (base->is_host && (!strcmp(key, "cluster.nodes") || !strcmp(key, "cluster.gpus_per_node")))
        return fail("%s: not of %s: give cluster=localhost:N", key + 8, base->name);
    if (!(value = plan_value_of(key, text)))
        return -1;
    if (!strcmp(key, "cluster.gpus_per_node") && is_usual(&c) && json_integer_value(value) >= 1 &&
        json_integer_value(value) <= CLUSTER_MAX_GPUS_PER_NODE) {
        if (cluster_node_check(&base->gpu, base->nodes, json_integer_value(value), "gpus_per_node") < 0)
            return json_decref(value), -1;
        cluster_of_gpu(&c, &base->gpu, base->nodes, json_integer_value(value));
        keep_said(base, &c);
    }
    doc = cluster_to_json(&c);
    if (strcmp(key, "cluster.gpu"))
        plan_value_put(doc, key + strlen("cluster."), json_incref(value));
    if (!strcmp(key, "cluster.inter.gbit_per_s"))       /* one or the other */
        json_object_del(json_object_get(doc, "inter"), "gb_per_s");
    if (!json_string_length(json_object_get(doc, "name")))
        json_object_del(doc, "name");
    int rc = read_changed(doc, &was, out);
    json_decref(doc);
    json_decref(value);
    return rc;
}

/* ---- the plan ---- */

/* What a set of changes asks beside the document's keys, and what they leave out of it. */
struct change {
    const char *const *pairs;
    int  n;
    int64_t global_batch;
    bool cell, dialect;
    char dropped[256];              /* keys of the plan that the new strategy or dialect has not */
};

/* The last value that the changes give a key; NULL: it is not among them. */
static const char *named(const struct change *ch, const char *key)
{
    const char *value = NULL, *text;
    char name[KEY];

    for (int i = 0; i < ch->n; i++) {
        text = plan_source_split(ch->pairs[i], name, sizeof name);
        if (!strcmp(name, key))
            value = text;
    }
    return value;
}

/* Another strategy or dialect than the plan's. */
static bool changes_cell(const struct plan *p, const struct change *ch)
{
    const char *strategy = named(ch, "strategy"), *dialect = named(ch, "dialect");

    return (strategy && strcmp(strategy, strategy_name(p->strategy))) || (dialect && strcmp(dialect, dialect_name(p->dialect)));
}

/* Has the version that the changes name another default? */
static bool has_another_default(const struct plan *plain, const struct knob *k, const struct change *ch)
{
    const char *version = named(ch, "framework_version");
    struct plan q = *plain;             /* shares the model */

    if (!version)
        return false;
    snprintf(q.framework_version, sizeof q.framework_version, "%s", version);
    double was = knob_default(plain, k), is = knob_default(&q, k);
    return was < is || was > is;
}

/* Does a key that holds its default stay as the file has it?  plan_source.h; `plain`: the plan with defaults alone. */
static bool stays(const struct plan *p, const struct plan *plain, int row, const struct knob *k, const struct change *ch)
{
    if (!ch || !(p->stated.rows[row / 8] >> row % 8 & 1))
        return false;
    if (changes_cell(p, ch))
        return !p->stated.all && !k->object[0] && k->type == KNOB_REAL;
    return !p->stated.all || has_another_default(plain, k, ch);
}

/* A usual value of a key that says something only beside another: it goes with that one.  Where the plan changes so does one that follows from
 * another, such as what trains: it is made anew. */
static bool follows_another(const struct plan *p, const struct knob *k, bool changes)
{
    bool number = k->type == KNOB_INT || k->type == KNOB_BOOL || k->type == KNOB_REAL || k->type == KNOB_WORD;
    double v = knob_get(p, k), usual = knob_default(p, k);

    return (k->idle || (changes && k->follows)) && number && !(v < usual) && !(v > usual);
}

/* Puts back the first key that is read with another value where the short document leaves it out.  False: none is, or a change has to mend it first. */
static bool put_back(json_t *doc, json_t *all, const struct plan *p)
{
    const struct knob *k;
    struct plan read;
    char why[256];
    bool any = false;

    struct fail_sink before = fail_divert(why, sizeof why);
    bool reads = plan_from_json(doc, "plan", &read) == 0;
    fail_restore(before);
    if (!reads)
        return false;
    json_t *said = plan_to_json(&read);
    for (int i = 0; (k = knob_at(i)) && !any; i++) {
        json_t *v = json_object_get(object_in(all, k->object), k->name), *is = json_object_get(object_in(said, k->object), k->name);
        char key[KEY];
        any = (k->cells & knob_cell(p)) && v && !json_object_get(object_in(doc, k->object), k->name) && !json_equal(v, is);
        knob_key_text(k, key, sizeof key);
        if (any)
            plan_value_put(doc, key, json_deep_copy(v));
    }
    json_decref(said);
    plan_free(&read);
    return any;
}

/* What departs from defaults, what a plan must have, and what stays when it is changed (ch; NULL: nothing does). */
static json_t *brief(const struct plan *p, const struct change *ch)
{
    json_t *doc = plan_to_json(p), *all = json_deep_copy(doc), *usual, *v;
    struct plan plain = *p;
    struct parallel_options none;
    const struct knob *k;

    plain.micro_batch = 0;          /* plan_defaults() keeps what is set, and what the model was made for */
    plain.model.training = training_default();
    plan_defaults(&plain, p->strategy, p->dialect, p->precision);
    none = plain.parallel;
    plain.parallel = p->parallel;
    knob_follow(&plain, NULL, NULL);
    plain.parallel = none;          /* its degrees stay in the document */
    usual = plan_to_json(&plain);
    for (int i = 0; (k = knob_at(i)); i++) {
        json_t *in = object_in(doc, k->object);
        const json_t *of = object_in(usual, k->object);
        if (!(k->cells & knob_cell(p)) || k->required || !strcmp(k->name, "precision") || !strcmp(k->name, "framework_version"))
            continue;                   /* the last: `plain` has it too, for the defaults that it makes */
        v = json_object_get(in, k->name);
        if (v && !stays(p, &plain, i, k, ch) && (json_equal(v, json_object_get(of, k->name)) || follows_another(p, k, ch)))
            json_object_del(in, k->name);
        drop_empty(doc, k->object);
    }
    while (put_back(doc, all, p))
        ;
    json_decref(all);
    json_decref(usual);
    return doc;
}

json_t *plan_source_brief(const struct plan *p) { return brief(p, NULL); }

static void say_dropped(enum strategy s, enum dialect d, struct change *ch)
{
    if (ch->dropped[0])
        notes_say_once("dpx: left out of the plan, because %s has no such key: %s", plan_words_name(s, d), ch->dropped);
    ch->dropped[0] = '\0';
}

static void drop(json_t *in, const char *name, const char *key, enum strategy s, enum dialect d, struct change *ch)
{
    if (strlen(ch->dropped) + strlen(key) + 3 > sizeof ch->dropped)         /* one more line for the rest */
        say_dropped(s, d, ch);
    size_t n = strlen(ch->dropped);
    snprintf(ch->dropped + n, sizeof ch->dropped - n, "%s%s", n ? ", " : "", key);
    json_object_del(in, name);
}

/* Another dialect has versions of its own. */
static void drop_version(json_t *doc, const struct change *ch)
{
    const char *version = json_string_value(json_object_get(doc, "framework_version"));

    if (!version || named(ch, "framework_version"))
        return;
    notes_say_once("dpx: framework_version %s is not of the new dialect, whose default is taken", version);
    json_object_del(doc, "framework_version");
}

/* Of a key that the new cell has not, the value that says what all plans of that cell do; NULL: there is none.  A plan that keeps
 * its states on the host, or trains adapters, is not silently one that does not. */
static const char *value_of_all(const char *key)
{
    static const struct { const char *key, *all; } of[] = {
        { "fsdp.cpu_offload", "false" }, { "train", "all" }, { "deepspeed.offload_optimizer.device", "none" },
        { "deepspeed.offload_param.device", "none" },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!strcmp(key, of[i].key))
            return of[i].all;
    return NULL;
}

static bool is_value(const json_t *v, const char *text)
{
    const char *s = json_is_boolean(v) ? json_is_true(v) ? "true" : "false" : json_string_value(v);

    return s && !strcmp(s, text);
}

/* Of a cell that has no such key, what all its plans do. */
static bool says_nothing(const struct knob *k, const char *key, const json_t *v)
{
    static const char *const ways[] = { "tensor", "context", "pipeline", "expert" };
    const char *all = value_of_all(key);

    for (size_t i = 0; !strcmp(k->object, "parallel") && i < sizeof ways / sizeof *ways; i++)
        if (!strcmp(k->name, ways[i]))
            return json_integer_value(v) == 1;
    return (all && is_value(v, all)) || (!strcmp(key, "fp8") && is_value(v, "none"));
}

/* A key of the document that the cell has not: 0 left out, or -1 with the reason reported. */
static int drop_key(json_t *in, const struct knob *k, const char *key, enum strategy s, enum dialect d, struct change *ch)
{
    const char *cell = strategy_name(s), *of = dialect_name(d), *value = named(ch, key), *all = value_of_all(key);
    bool nothing = says_nothing(k, key, json_object_get(in, k->name));

    if (value && !nothing)
        return fail("%s=%.60s: %s of %s has no such key", key, value, cell, of);
    if (all && !nothing)
        return fail("%s: %s of %s has no such key: set %s=%s as well", key, cell, of, key, all);
    if (nothing)
        json_object_del(in, k->name);
    else
        drop(in, k->name, key, s, d, ch);
    return 0;
}

/* Keys that changes name, which the document's cell has not, with what all its plans do: left out. */
static void drop_named_for_nothing(json_t *doc, const struct change *ch)
{
    const char *strategy = json_string_value(json_object_get(doc, "strategy"));
    const char *dialect = json_string_value(json_object_get(doc, "dialect"));
    int s = strategy ? strategy_parse(strategy) : -1, d = dialect ? dialect_parse(dialect) : -1;
    const struct knob *k;

    for (int i = 0; s >= 0 && d >= 0 && (k = knob_at(i)); i++) {
        json_t *in = object_in(doc, k->object);
        char key[KEY];
        knob_key_text(k, key, sizeof key);
        if (named(ch, key) && !knob_find(k->object, k->name, CELL(s, d)) && says_nothing(k, key, json_object_get(in, k->name))) {
            json_object_del(in, k->name);
            drop_empty(doc, k->object);
        }
    }
}

/* After another strategy or dialect: keys that the cell has not are left out; a dialect that has no such strategy makes place
 * for the usual one.  0, or -1 reported. */
static int drop_foreign(json_t *doc, struct change *ch)
{
    const char *strategy = json_string_value(json_object_get(doc, "strategy"));
    const char *dialect = json_string_value(json_object_get(doc, "dialect"));
    int s = strategy ? strategy_parse(strategy) : -1, d = dialect ? dialect_parse(dialect) : -1;
    const struct knob *k;

    if (s >= 0 && d >= 0 && !ch->dialect && !dialect_has((enum dialect)d, (enum strategy)s)) {
        bool zero = s == STRAT_ZERO1 || s == STRAT_ZERO2 || s == STRAT_ZERO3;   /* plan_json.c, usual_dialect() */
        d = zero ? DIALECT_DEEPSPEED : DIALECT_TORCH;
        notes_say_once("dpx: dialect %s has no %s: taken as dialect %s has it", dialect, strategy, dialect_name((enum dialect)d));
        json_object_set_new(doc, "dialect", json_string(dialect_name((enum dialect)d)));
        drop_version(doc, ch);
    }
    if (s < 0 || d < 0 || !dialect_has((enum dialect)d, (enum strategy)s))
        return 0;                       /* refused as a plan */
    for (int i = 0; (k = knob_at(i)); i++) {
        json_t *in = object_in(doc, k->object);
        char key[KEY];
        knob_key_text(k, key, sizeof key);
        if (json_object_get(in, k->name) && !knob_find(k->object, k->name, CELL(s, d)) &&
            drop_key(in, k, key, (enum strategy)s, (enum dialect)d, ch) < 0)
            return -1;
        drop_empty(doc, k->object);
    }
    say_dropped((enum strategy)s, (enum dialect)d, ch);
    return 0;
}

/* The plan with what the changes name, as far as its cell has it and the values are such. */
static void set_named(json_t *doc, const struct change *ch, struct plan *p)
{
    char name[KEY], ignored[256];
    const struct knob *k;

    struct fail_sink before = fail_divert(ignored, sizeof ignored);
    for (int i = 0; i < ch->n; i++) {
        plan_source_split(ch->pairs[i], name, sizeof name);
        if (!(k = plan_value_row(name)) || !(k = knob_find(k->object, k->name, knob_cell(p))))
            continue;
        const json_t *v = json_object_get(object_in(doc, k->object), k->name);
        struct plan q = *p;
        if (v && knob_read(v, "set", k, &q) == 0)
            *p = q;
    }
    fail_restore(before);
}

/* Keys that say nothing any more beside what is named (parallel.tensor=1: parallel.sequence; fp8=none: fp8_filter) are left out. */
static void drop_idle(json_t *doc, const struct plan *was, const struct change *ch)
{
    struct plan p = *was;               /* shares the model; not freed */
    const struct knob *k;
    char key[KEY];

    set_named(doc, ch, &p);
    for (int i = 0; (k = knob_at(i)); i++) {        /* rows come after those that make them idle, but for a few */
        knob_key_text(k, key, sizeof key);
        if (!(k->cells & knob_cell(was)) || !k->idle || k->idle(was) || !k->idle(&p) || named(ch, key))
            continue;
        json_object_del(object_in(doc, k->object), k->name);
        knob_set(&p, k, knob_default(&p, k));
    }
}

static int apply(json_t *doc, struct cluster *c, const char *pair, struct change *ch)
{
    char key[KEY];
    const char *text = plan_source_split(pair, key, sizeof key);
    json_t *v;

    if (plan_source_check_key(key) < 0)
        return -1;
    if (plan_value_is_cluster(key))
        return plan_source_cluster(c, pair, c);
    if (!strcmp(key, "global_batch"))
        return count_parse(key, text, &ch->global_batch);
    if (!(v = plan_value_of(key, text)))
        return -1;
    ch->dialect |= !strcmp(key, "dialect");
    ch->cell |= !strcmp(key, "strategy") || !strcmp(key, "dialect");
    if (!strcmp(key, "dialect") && !json_equal(v, json_object_get(doc, "dialect")))
        drop_version(doc, ch);
    if (!strcmp(key, "train") && !strcmp(text, "all")) {    /* what says nothing then */
        json_object_del(doc, "lora");
        json_object_del(doc, "base_dtype");
    }
    plan_value_put(doc, key, v);
    return 0;
}

static int by_global_batch(struct plan *p, const struct change *ch)
{
    int64_t each = p->micro_batch * plan_batch_ranks(p), batch = ch->global_batch;

    if (batch < 1 || batch % each)
        return fail("global_batch %" PRId64 " is not a multiple of micro_batch %" PRId64 " x %" PRId64 " ranks", batch,
                    p->micro_batch, plan_batch_ranks(p));
    if (named(ch, "accumulation") && p->accumulation != batch / each)
        return fail("global_batch %" PRId64 " and accumulation %" PRId64 " contradict each other: %" PRId64 " samples are %" PRId64
                    " accumulation steps of micro_batch %" PRId64 " x %" PRId64 " ranks; leave one out",
                    batch, p->accumulation, batch, batch / each, p->micro_batch, plan_batch_ranks(p));
    p->accumulation = batch / each;
    return plan_check(p, "global_batch");
}

/* A cluster is changed from the outside in, in whatever order that is written: its parts would not outlast another whole, nor
 * its links another GPU's usual ones. */
enum { TURNS = 4 };
static int turn_of(const char *pair)
{
    char key[KEY];

    plan_source_split(pair, key, sizeof key);
    return !strcmp(key, "cluster") ? 0 : !strcmp(key, "cluster.gpu") ? 1
         : !strcmp(key, "cluster.nodes") || !strcmp(key, "cluster.gpus_per_node") ? 2 : TURNS - 1;
}

/* A key that is given two values is one mistaken for another: neither is taken. */
static int check_once(const struct change *ch)
{
    char key[KEY];

    for (int i = 0; i < ch->n; i++) {
        const char *text = plan_source_split(ch->pairs[i], key, sizeof key), *last = named(ch, key);
        if (strcmp(text, last))
            return fail("%s is set twice, to %.60s and to %.60s: give it once", key, text, last);
    }
    return 0;
}

/* The changes that are of the document; c: the cluster with those that are of it. */
static int apply_all(json_t *doc, struct cluster *c, struct change *ch)
{
    if (check_once(ch) < 0)
        return -1;
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < ch->n; i++)
            if (turn_of(ch->pairs[i]) == turn && apply(doc, c, ch->pairs[i], ch) < 0)
                return -1;
    return 0;
}

/* The plan of a changed document, without the keys that its cell has not. */
static int read_changed_plan(json_t *doc, const char *where, struct change *ch, struct plan *out)
{
    if (!ch->cell)
        drop_named_for_nothing(doc, ch);
    else if (drop_foreign(doc, ch) < 0)
        return -1;
    if (plan_from_json(doc, where, out) < 0)
        return -1;
    if (ch->global_batch && by_global_batch(out, ch) < 0) {
        plan_free(out);
        return -1;
    }
    return 0;
}

int plan_source_with(const struct plan *base, const char *const *pairs, int n, struct plan *out)
{
    struct plan start = *base;
    struct change ch = { .pairs = pairs, .n = n };
    struct cluster c;
    json_t *doc;
    int rc;

    start.cluster.measured = NULL;
    c = start.cluster;
    doc = brief(&start, &ch);
    rc = apply_all(doc, &c, &ch);
    if (rc == 0) {
        drop_idle(doc, &start, &ch);
        json_object_set_new(doc, "cluster", cluster_to_json(&c));
        rc = read_changed_plan(doc, "plan", &ch, out);
    }
    json_decref(doc);
    if (rc < 0)
        return -1;
    snprintf(out->cluster.name, sizeof out->cluster.name, "%s", c.name);
    if (!named(&ch, "model"))
        snprintf(out->model.name, sizeof out->model.name, "%s", base->model.name);
    return 0;
}

/* A plan that is refused, with changes of the document as it is written. */
static int mend(const json_t *written, const char *where, const struct opt_pairs *set, struct plan *out)
{
    struct change ch = { .pairs = set->at, .n = set->n };
    json_t *doc = json_deep_copy(written);
    struct cluster c = { 0 };
    bool clustered = false;
    char key[KEY];
    int rc = 0;

    for (int i = 0; i < set->n; i++) {
        plan_source_split(set->at[i], key, sizeof key);
        clustered |= plan_value_is_cluster(key);
    }
    if (clustered && !named(&ch, "cluster"))
        rc = plan_read_cluster(where, json_object_get(doc, "cluster"), &c);
    if (rc == 0)
        rc = apply_all(doc, &c, &ch);
    if (rc == 0 && clustered)
        json_object_set_new(doc, "cluster", cluster_to_json(&c));
    if (rc == 0)
        rc = read_changed_plan(doc, where, &ch, out);
    json_decref(doc);
    return rc;
}

int plan_source_given(const struct plan_given *given, const struct opt_pairs *set, struct plan *out)
{
    const char *where;
    json_t *doc = NULL;
    struct plan p;
    char why[1024];
    int rc = plan_given_read(given, &doc, &where, &p);

    if (rc < 0)
        return -1;
    if (!set || set->n == 0) {
        if (rc == 1)
            *out = p;
        rc = rc == 1 ? 0 : plan_from_json(doc, where, out);
        json_decref(doc);
        return rc;
    }
    bool refused = false;
    if (rc == 0) {
        struct fail_sink before = fail_divert(why, sizeof why);
        refused = plan_from_json(doc, where, &p) < 0;
        fail_restore(before);
    }
    if (refused && !json_is_object(doc))
        rc = plan_from_json(doc, where, out);
    else
        rc = refused ? mend(doc, where, set, out) : plan_source_with(&p, set->at, set->n, out);
    if (!refused)
        plan_free(&p);
    json_decref(doc);
    return rc;
}
