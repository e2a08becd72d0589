/* phases_advice.c -- the smallest change with which a phase plan fits: each is made alone, in the plan's own words, and evaluated. */
#include "sim/plan/phases.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

/* A share is lowered in steps of this, not below LEAST_SHARE. */
#define SHARE_STEP  0.05
#define LEAST_SHARE 0.1

struct trial { const struct phases *p; struct phases_change *out; int n; };

static json_t *role_of(json_t *doc, const char *name) { return json_object_get(json_object_get(doc, "roles"), name); }

/* Does the changed plan fit?  Then it is kept, with its words.  Takes the document. */
static bool try(struct trial *t, json_t *doc, const char *words)
{
    struct phases with;
    char why[1024];
    struct fail_sink before = fail_divert(why, sizeof why);
    json_t *notes = json_array(), *notes_before = notes_divert(notes);
    int rc = phases_changed(t->p, doc, false, &with);
    bool fits = rc == 0 && with.fits;

    fail_restore(before);
    notes_divert(notes_before);
    json_decref(notes);
    if (fits && t->n < PHASE_CHANGES) {
        snprintf(t->out[t->n].words, sizeof t->out[t->n].words, "%s", words);
        t->out[t->n++].needed = with.moment[with.largest].needed;
    }
    if (rc == 0)
        phases_free(&with);
    json_decref(doc);
    return fits;
}

/* One key of a role. */
static void try_key(struct trial *t, const char *role, const char *key, json_t *value, const char *words)
{
    json_t *doc = json_deep_copy(t->p->doc);

    json_object_set_new(role_of(doc, role), key, value);
    try(t, doc, words);
}

static void try_engine(struct trial *t)
{
    const struct phase_role *r = &t->p->plan.role[t->p->engine];
    const char *share = engine_share_name(r->engine.kind);
    char words[160];

    if (!r->engine.sleep && !role_is_apart(r)) {
        snprintf(words, sizeof words, "let %s sleep while others work (\"sleep\": 1)", engine_kind_name(r->engine.kind));
        try_key(t, r->name, "sleep", json_integer(1), words);
    }
    for (double s = ceil(r->engine.share / SHARE_STEP - 1 - 1e-9) * SHARE_STEP; s > LEAST_SHARE - 1e-9; s -= SHARE_STEP) {
        json_t *doc = json_deep_copy(t->p->doc);
        json_object_set_new(role_of(doc, r->name), share, json_real(round(s * 100) / 100));
        snprintf(words, sizeof words, "%s %.2f instead of %g", share, s, r->engine.share);
        if (try(t, doc, words))
            break;
    }
    if (2 * r->engine.tensor <= t->p->engine_cluster.gpus_per_node) {
        snprintf(words, sizeof words, "%s over %" PRId64 " GPUs instead of %" PRId64, engine_kind_name(r->engine.kind), 2 * r->engine.tensor, r->engine.tensor);
        try_key(t, r->name, "tensor", json_integer(2 * r->engine.tensor), words);
    }
}

static void try_places(struct trial *t, const struct phase_role *r)
{
    char words[160];

    for (int w = (int)r->between + 1; w <= WHERE_HOST; w++) {
        if (r->kind == ROLE_INFERS && w == WHERE_STATES_AWAY)
            continue;
        snprintf(words, sizeof words, "%s: between phases %s in host memory", r->name, w == WHERE_HOST ? "all of it" : "optimizer states");
        try_key(t, r->name, "between", json_string(role_where_name((enum role_where)w)), words);
    }
    if (!r->empties) {
        snprintf(words, sizeof words, "empty PyTorch's cache behind phases of %s (torch.cuda.empty_cache())", r->name);
        try_key(t, r->name, "empties_cache", json_true(), words);
    }
}

/* The plan of a role that trains, where it is in the document itself. */
static void try_training(struct trial *t, int i)
{
    const struct phase_role *r = &t->p->plan.role[i];
    const struct plan *p = &t->p->role[i].plan;
    char words[160];

    if (r->kind != ROLE_TRAINS || !json_is_object(r->plan))
        return;
    if (p->micro_batch % 2 == 0) {
        json_t *doc = json_deep_copy(t->p->doc), *plan = json_object_get(role_of(doc, r->name), "train");
        json_object_set_new(plan, "micro_batch", json_integer(p->micro_batch / 2));
        json_object_set_new(plan, "accumulation", json_integer(p->accumulation * 2));
        snprintf(words, sizeof words, "%s: micro-batch %" PRId64 " instead of %" PRId64 ", twice as many accumulation steps", r->name, p->micro_batch / 2, p->micro_batch);
        try(t, doc, words);
    }
    if (p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH && p->cluster.world_size > 1) {
        json_t *doc = json_deep_copy(t->p->doc), *plan = json_object_get(role_of(doc, r->name), "train");
        json_object_set_new(plan, "strategy", json_string("fsdp"));
        json_object_del(plan, "ddp");
        snprintf(words, sizeof words, "%s: sharded by FSDP2 instead of DistributedDataParallel", r->name);
        try(t, doc, words);
    }
    if (p->recompute == RECOMPUTE_NONE) {
        json_t *doc = json_deep_copy(t->p->doc);
        json_object_set_new(json_object_get(role_of(doc, r->name), "train"), "recompute", json_string("full"));
        snprintf(words, sizeof words, "%s: every block recomputed (gradient checkpointing)", r->name);
        try(t, doc, words);
    }
}

/* ---- several at once ---- */

/* Everything that moves memory out of the way, one after the other until it fits. */
static const struct { const char *words; enum role_kind of; const char *key; const char *value; } together[] = {
    { "the engine asleep while others work", ROLE_IS_ENGINE, "sleep", "1" },
    { "PyTorch's cache emptied behind each phase", ROLE_TRAINS, "empties_cache", "true" },
    { "copies in host memory between phases", ROLE_INFERS, "between", "\"host\"" },
    { "what trains in host memory between phases", ROLE_TRAINS, "between", "\"host\"" },
    { NULL, ROLE_IS_ENGINE, NULL, "0.3" }      /* the share, by its name */,
};

static bool set_all(const struct phases *p, json_t *doc, size_t i)
{
    bool any = false;

    for (int r = 0; r < p->plan.nroles; r++) {
        const struct phase_role *role = &p->plan.role[r];
        const char *key = together[i].key ? together[i].key : engine_share_name(role->engine.kind);
        json_t *object = role_of(doc, role->name), *value = json_loads(together[i].value, JSON_DECODE_ANY, NULL);
        bool lower = together[i].key || role->engine.share > 0.3;
        if (role->kind == together[i].of && lower && !role_is_apart(role) && !json_equal(json_object_get(object, key), value)) {
            json_object_set(object, key, value);
            any = true;
        }
        json_decref(value);
    }
    return any;
}

static void try_together(struct trial *t)
{
    json_t *doc = json_deep_copy(t->p->doc);
    char words[240] = "together: ";
    size_t n = strlen(words);

    for (size_t i = 0; i < sizeof together / sizeof *together; i++) {
        char part[80];
        if (!set_all(t->p, doc, i))
            continue;
        if (together[i].key)
            snprintf(part, sizeof part, "%s", together[i].words);
        else
            snprintf(part, sizeof part, "%s 0.30", engine_share_name(t->p->plan.role[t->p->engine].engine.kind));
        n += (size_t)snprintf(words + n, sizeof words - n, "%s%s", n > strlen("together: ") ? "; " : "", part);
        if (n >= sizeof words || try(t, json_deep_copy(doc), words))
            break;
    }
    json_decref(doc);
}

int phases_changes(const struct phases *p, struct phases_change out[PHASE_CHANGES])
{
    struct trial t = { p, out, 0 };

    for (int i = 0; i < p->plan.nroles; i++)
        if (p->plan.role[i].kind != ROLE_IS_ENGINE)
            try_places(&t, &p->plan.role[i]);
    if (p->engine >= 0)
        try_engine(&t);
    for (int i = 0; i < p->plan.nroles; i++)
        try_training(&t, i);
    if (t.n == 0)
        try_together(&t);
    return t.n;
}
