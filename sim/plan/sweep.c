/* sweep.c -- values of axes, points, rows. */
#include "sim/plan/sweep.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/chart_sweep.h"
#include "base/fail.h"
#include "base/notes.h"
#include "base/files.h"
#include "base/room.h"
#include "base/size.h"
#include "base/sort.h"
#include "model/arch/sample.h"
#include "sim/plan/commands.h"
#include "sim/plan/plan_value.h"
#include "sim/search/ranking.h"

/* ---- values ---- */

static int add_value(struct sweep_axis *a, const char *text)
{
    a->value = room_for(a->value, a->n, &a->room, sizeof *a->value);
    a->value[a->n] = strdup(text);
    if (!a->value[a->n])
        abort();
    a->n++;
    return a->n <= SWEEP_POINTS ? 0 : fail("--over %s: more than %d values", a->key, SWEEP_POINTS);
}

/* Equal texts by their place. */
static int by_text(const void *a, const void *b)
{
    char *const *x = *(char *const *const *)a, *const *y = *(char *const *const *)b;
    int order = strcmp(*x, *y);

    return order ? order : (x > y) - (x < y);
}

/* A value that is there already is the same point. */
static void drop_repeated(struct sweep_axis *a)
{
    char ***at = room_new((size_t)a->n + 1, sizeof *at);
    bool *again = room_new((size_t)a->n + 1, sizeof *again);
    int kept = 0;

    for (int i = 0; i < a->n; i++)
        at[i] = &a->value[i];
    sort_stable(at, (size_t)a->n, sizeof *at, by_text);
    for (int i = 1; i < a->n; i++)
        again[at[i] - a->value] = !strcmp(*at[i - 1], *at[i]);
    for (int i = 0; i < a->n; i++)
        if (again[i])
            free(a->value[i]);
        else
            a->value[kept++] = a->value[i];
    a->n = kept;
    free(again);
    free(at);
}

/* A number of a range: 8, 1.5, and of tokens 8k. */
static int bound(const char *key, const char *text, double *out)
{
    char *end;
    int64_t n;

    *out = strtod(text, &end);
    if (end != text && !*end && isfinite(*out))
        return 0;
    if ((!strcmp(key, "seq") ? length_parse : count_parse)(key, text, &n) < 0)
        return -1;
    *out = (double)n;
    return 0;
}

/* FROM..TO, FROM..TO+STEP, FROM..TO*FACTOR */
static int add_range(struct sweep_axis *a, const char *item, const char *dots)
{
    char from[64], to[64];
    size_t n = strcspn(dots + 2, "+*");
    double first, last, step = 1;
    char how = dots[2 + n];

    snprintf(from, sizeof from, "%.*s", (int)(dots - item), item);
    snprintf(to, sizeof to, "%.*s", (int)n, dots + 2);
    if (bound(a->key, from, &first) < 0 || bound(a->key, to, &last) < 0 || (how && bound(a->key, dots + 3 + n, &step) < 0))
        return -1;
    if (last < first || (how == '*' ? !(step > 1) || !(first > 0) : !(step > 0)))
        return fail("--over %s=%s: a range goes upwards: 1..8, 1..64*2, 100..800+100", a->key, item);
    if (how != '*' && (last - first) / step > SWEEP_POINTS)
        return fail("--over %s=%s: more than %d values", a->key, item, SWEEP_POINTS);
    for (int64_t k = 0; k <= SWEEP_POINTS; k++) {
        double x = how == '*' ? first * pow(step, (double)k) : first + step * (double)k;
        char text[40];
        if (x > last * (1 + 1e-12))
            break;
        snprintf(text, sizeof text, "%.12g", x);
        if (add_value(a, text) < 0)
            return -1;
    }
    return 0;
}

static int read_values(struct sweep_axis *a, const char *values)
{
    for (const char *s = values;; s++) {
        size_t n = strcspn(s, ",");
        char item[128];
        if (n == 0 || n >= sizeof item)
            return fail("--over %s=%.60s: a value is %s", a->key, values, n ? "too long" : "missing");
        snprintf(item, sizeof item, "%.*s", (int)n, s);
        const char *dots = strstr(item, "..");
        bool path = strchr(item, '/') != NULL;          /* of a file: ../llama.json */
        if ((dots && !path ? add_range(a, item, dots) : add_value(a, item)) < 0)
            return -1;
        s += n;
        if (!*s)
            break;
    }
    double x;
    drop_repeated(a);
    a->numeric = true;
    for (int i = 0; i < a->n; i++)
        a->numeric &= chart_sweep_number(a->value[i], &x);
    return 0;
}

/* What a search can be asked at a point. */
static const char *const searched[] = { "model", "strategy", "dialect", "seq", "global_batch", "micro_batch", "precision",
                                        "recompute", "kernels", "optimizer", "optimizer_form" };

static int check_key(const struct sweep *s, const char *typed, const char *key)
{
    if (plan_source_check_key(key) < 0)
        return -1;
    if (s->has_plan || plan_value_is_cluster(key))
        return 0;
    for (size_t i = 0; i < sizeof searched / sizeof *searched; i++)
        if (!strcmp(key, searched[i]))
            return 0;
    return fail("--over %s: a search chooses it; give a PLAN.json to vary it", typed);
}

/* Of a link's rate without its unit. */
static size_t without_unit(const char *key)
{
    const char *unit = strstr(key, ".gb_per_s");

    unit = unit ? unit : strstr(key, ".gbit_per_s");
    return unit ? (size_t)(unit - key) : strlen(key);
}

/* A key that is an axis already, in this unit or another, or a cluster beside a part of it: one of them would win. */
static int check_alone(const struct sweep *s, const struct opt_pairs *over, int last, const char *key)
{
    for (int i = 0; i < last; i++) {
        char other[96];
        plan_source_split(over->at[i], other, sizeof other);
        if (without_unit(other) == without_unit(key) && !strncmp(other, key, without_unit(key)))
            return fail("--over %s: it is an axis twice; give all values in one: %s=1,2,4", s->axis[last].key, s->axis[last].key);
        if (plan_value_is_cluster(key) && plan_value_is_cluster(other) && (!strcmp(key, "cluster") || !strcmp(other, "cluster")))
            return fail("--over %s beside --over %s: a cluster says both; vary one of them", s->axis[i].key, s->axis[last].key);
    }
    return 0;
}

int sweep_axes(struct sweep *s, const struct opt_pairs *over)
{
    if (over->n == 0)
        return fail("sweep: --over is missing: --over nodes=1..64*2 seq=4k,8k");
    if (over->n > SWEEP_AXES)
        return fail("sweep: %d axes; at most %d", over->n, SWEEP_AXES);
    s->points = 1;
    for (int i = 0; i < over->n; i++) {
        struct sweep_axis *a = &s->axis[s->naxes++];
        char key[96];
        const char *values = plan_source_split(over->at[i], key, sizeof key);
        snprintf(a->key, sizeof a->key, "%.*s", (int)strcspn(over->at[i], "="), over->at[i]);
        if (check_key(s, a->key, key) < 0 || check_alone(s, over, i, key) < 0 || read_values(a, values) < 0)
            return -1;
        a->world = !strcmp(key, "cluster.nodes") || !strcmp(key, "cluster.gpus_per_node") || !strcmp(key, "cluster");
        s->points *= a->n;
        if (s->points > SWEEP_POINTS)
            return fail("sweep: more than %d points", SWEEP_POINTS);
    }
    int last = s->naxes - 1, scale = -1, numeric = -1;
    for (int i = 0; i <= last; i++) {
        scale = s->axis[i].world ? i : scale;
        s->scales |= s->axis[i].world && s->axis[i].n > 1;
        numeric = s->axis[i].numeric ? i : numeric;
    }
    int fastest = scale >= 0 ? scale : numeric >= 0 ? numeric : last;
    struct sweep_axis moved = s->axis[fastest];
    memmove(&s->axis[fastest], &s->axis[fastest + 1], (size_t)(last - fastest) * sizeof moved);
    s->axis[last] = moved;
    return 0;
}

/* A search's options: by what name --over and --set have each (NULL: by none), and whether a search needs it. */
struct asked { const char *name, *key; bool given, needed; };

static bool is_axis(const struct sweep_asked *a, const char *key)
{
    char name[96];

    for (int i = 0; i < a->over.n && key; i++) {
        plan_source_split(a->over.at[i], name, sizeof name);
        if (!strcmp(name, key))
            return true;
    }
    return false;
}

static int check_with_plan(const struct asked *o)
{
    if (!o->given || !strcmp(o->name, "global-batch"))          /* which is each point's */
        return 0;
    if (!o->key)
        return fail("sweep: --%s beside PLAN.json: it is a search's", o->name);
    return fail("sweep: --%s beside PLAN.json: change the plan with --set %s=VALUE, or vary it with --over", o->name, o->key);
}

static int check_option(const struct sweep_asked *a, const struct asked *o, bool has_plan)
{
    bool axis = is_axis(a, o->key);

    if (o->given && axis)
        return fail("sweep: --%s beside --over %s=...: give one of them", o->name, o->key);
    if (has_plan)
        return check_with_plan(o);
    return o->needed && !o->given && !axis ? fail("sweep: --%s is missing, or give a PLAN.json", o->name) : 0;
}

/* What is asked besides the axes: everything with a search, nothing of it with a plan. */
static int check(const struct sweep_asked *a, bool has_plan)
{
    const struct search_args *q = &a->ask;
    const struct search_tuned *t = &q->tuned;
    const struct asked of[] = {
        { "model", "model", q->model || q->model_doc, true }, { "cluster", "cluster", q->cluster || q->cluster_doc, true },
        { "seq", "seq", q->seq > 0, false }, { "global-batch", "global_batch", q->global_batch > 0, false },
        { "micro-batch", "micro_batch", q->micro_batch > 0, false }, { "strategy", "strategy", q->strategies != 0, false },
        { "dialect", "dialect", q->dialect >= 0, false }, { "kernels", "kernels", q->kernels >= 0, false },
        { "precision", "precision", q->precision >= 0, false }, { "recompute", "recompute", q->recompute != NRECOMPUTE, false },
        { "optimizer", "optimizer", t->optimizer.optimizer >= 0, false },
        { "optimizer-form", "optimizer_form", t->optimizer.form >= 0, false }, { "lora", "lora.rank", t->lora > 0, false },
        { "lora-targets", "lora.target_modules", t->targets != NULL, false }, { "base-dtype", "base_dtype", t->base != 0, false },
        { "lora-dropout", "lora.dropout", t->dropout > 0, false }, { "lora-save", "lora.modules_to_save", t->saves != NULL, false },
        { "memory", "cluster.memory_bytes", q->memory > 0, false },
        { "host-memory", "cluster.node.memory_bytes", q->host_memory > 0, false }, { "headroom", "cluster.headroom", q->headroom >= 0, false },
        { "framework", NULL, q->framework != FRAMEWORK_ANY, false }, { "export-to", NULL, q->export_to >= 0, false },
        { "no-offload", NULL, q->in_place, false }, { "grid", NULL, q->grid, false }, { "no-grid", NULL, q->no_grid, false },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (check_option(a, &of[i], has_plan) < 0)
            return -1;
    if (!has_plan && a->set.n)
        return fail("sweep: --set goes with PLAN.json");
    return money_check(&a->money);
}

/* The plan with --set and the i-th value of each axis, the last of those that have fewer; i < 0: of none.  Reports nothing. */
static bool with_point(const struct plan_given *given, const struct opt_pairs *set, const struct sweep *s, int i, struct plan *out)
{
    enum { MOST = sizeof set->at / sizeof *set->at };
    struct opt_pairs all = *set;
    char pair[SWEEP_AXES][256], why[512];

    for (int x = 0; x < s->naxes && i >= 0 && all.n < MOST; x++) {
        const struct sweep_axis *a = &s->axis[x];
        snprintf(pair[x], sizeof pair[x], "%s=%s", a->key, a->value[i < a->n ? i : a->n - 1]);
        all.at[all.n++] = pair[x];
    }
    struct fail_sink before = fail_divert(why, sizeof why);
    bool taken = plan_source_given(given, &all, out) == 0;
    fail_restore(before);
    return taken;
}

/* A plan that is refused as it is written may be accepted at a point: all of them have the axes' keys. */
static int load_plan(const struct sweep_asked *a, struct sweep *s)
{
    struct plan_given given = a->plan;
    json_t *doc = given.doc ? json_incref((json_t *)(uintptr_t)given.doc) : files_read_json_file(strcmp(given.path, "-") ? given.path : "/dev/stdin");
    bool taken;
    int most = 0;

    if (!doc)
        return -1;
    given.doc = doc;
    for (int x = 0; x < s->naxes; x++)
        most = s->axis[x].n > most ? s->axis[x].n : most;
    taken = with_point(&given, &a->set, s, -1, &s->plan);
    for (int i = 0; !taken && i < most; i++)
        taken = with_point(&given, &a->set, s, i, &s->plan);
    int rc = taken ? 0 : plan_source_given(&given, &a->set, &s->plan);     /* says why */
    json_decref(doc);
    return rc;
}

/* What rates count; "tokens/s" where the model is none, which each point will say. */
static const char *rate_of(const struct sweep *s, const struct search_args *q)
{
    json_t *said = json_array(), *notes = notes_divert(said);
    const char *rate = s->has_plan ? sample_rate_unit(&s->plan.model) : "tokens/s";
    char why[512];
    struct model m;

    struct fail_sink before = fail_divert(why, sizeof why);
    if (!s->has_plan && q->model && model_load(q->model, &m) == 0) {
        rate = sample_rate_unit(&m);
        model_free(&m);
    }
    fail_restore(before);
    notes_divert(notes);
    json_decref(said);
    return rate;
}

int sweep_open(const struct sweep_asked *a, struct sweep *s)
{
    bool has_plan = a->plan.path || a->plan.doc;

    *s = (struct sweep){ .ask = &a->ask, .money = &a->money, .has_plan = has_plan };
    if (check(a, has_plan) < 0)
        return -1;
    int rc = sweep_axes(s, &a->over);
    if (rc == 0 && has_plan)
        rc = load_plan(a, s);
    s->rate = rc == 0 ? rate_of(s, &a->ask) : NULL;
    s->sends = !has_plan || s->scales || (rc == 0 && s->plan.cluster.world_size > 1);
    if (rc == 0 && a->money.tokens && strcmp(s->rate, "tokens/s"))
        rc = fail("--tokens: a sample of the model has no tokens; fit and bill take --samples");
    if (rc == 0)
        return 0;
    if (s->has_plan && s->rate)
        plan_free(&s->plan);
    s->has_plan = false;
    sweep_free(s);
    return -1;
}

/* A plan and what was lowered of it, which no rate of a link changes. */
struct sweep_lowered {
    char   others[(SWEEP_AXES + 1) * 256];      /* the point's pairs, the network's left out */
    struct plan plan;
    struct evaluation e;
};

static void forget_lowered(struct sweep *s)
{
    if (!s->lowered)
        return;
    evaluation_free(&s->lowered->e);
    plan_free(&s->lowered->plan);
    free(s->lowered);
    s->lowered = NULL;
}

void sweep_free(struct sweep *s)
{
    for (int a = 0; a < s->naxes; a++) {
        for (int i = 0; i < s->axis[a].n; i++)
            free(s->axis[a].value[i]);
        free(s->axis[a].value);
    }
    forget_lowered(s);
    if (s->has_plan)
        plan_free(&s->plan);
}

void sweep_count_row(struct sweep_count *c, const struct sweep_row *r)
{
    c->done++;
    c->fit += r->state == SWEEP_FITS || r->state == SWEEP_TIGHT;
    if (r->state == SWEEP_REFUSED && c->refused++ == 0)
        memcpy(c->why, r->what, sizeof c->why);
}

int sweep_count_status(const struct sweep_count *c)
{
    if (c->refused == c->done) {
        fail("sweep: no point can be planned; the first: %s", c->why);
        return EXIT_MISUSE;
    }
    return c->fit ? EXIT_DONE : EXIT_NO;
}

const char *sweep_value(const struct sweep *s, int64_t i, int a)
{
    for (int later = s->naxes - 1; later > a; later--)
        i /= s->axis[later].n;
    return s->axis[a].value[i % s->axis[a].n];
}

/* ---- one point ---- */

static void fill(const struct sweep *s, const struct plan *p, const struct timing *t, struct sweep_row *out)
{
    out->gpus = p->cluster.world_size;
    snprintf(out->gpu, sizeof out->gpu, "%s", p->cluster.gpu.name);
    out->step_s = t->line.step_s;
    out->low_s = t->low_s;
    out->high_s = t->high_s;
    out->rate = sample_rate(&p->model, p->seq, t->tokens_per_s);
    out->tokens = sample_has_tokens(&p->model);
    out->each = out->rate / (double)out->gpus;
    out->mfu = t->mfu;
    if (s->money->tokens) {
        struct money m;
        money_of(s->money, p, t, &m);
        out->days = m.days;
        out->cost = m.cost;
    }
}

/* What a GPU takes is in the table; where that is not what is short, what is. */
static void decided_by(const struct evaluation *e, struct sweep_row *out)
{
    int space = e->m.elsewhere ? spaces_short(&e->m.spaces) : -1;

    if (!e->m.fits && e->m.needed <= e->m.available && space >= 0)
        snprintf(out->decides, sizeof out->decides, "needs %s of %s of %s", size_text(e->m.spaces.of[space].peak).s,
                 size_text(e->m.spaces.of[space].available).s, space_name((enum space)space));
}

/* The row of an evaluated plan.  0, or -1 reported. */
static int of_evaluated(const struct sweep *s, const struct plan *p, const struct evaluation *e, struct sweep_row *out)
{
    struct timing t;
    int rc = 0;

    knob_label(p, out->what, sizeof out->what);
    plan_words(p, out->words, sizeof out->words);
    out->gpus = p->cluster.world_size;
    out->bytes = e->m.needed;
    out->taken = evaluation_taken(&e->m, &e->reserved);
    out->available = e->m.available;
    out->sent = e->comm.sent_bytes;
    out->state = !e->m.fits ? SWEEP_NO : e->verdict == VERDICT_TIGHT ? SWEEP_TIGHT : SWEEP_FITS;
    decided_by(e, out);
    if (e->m.fits && (rc = simulate_plan(p, e, &t, NULL)) == 0)
        fill(s, p, &t, out);
    return rc;
}

static int of_plan(const struct sweep *s, const struct plan *p, struct sweep_row *out)
{
    struct evaluation e;

    if (evaluate(p, &e) < 0)
        return -1;
    int rc = of_evaluated(s, p, &e, out);
    evaluation_free(&e);
    return rc;
}

/* A rate of a link: prices follow it, and nothing else. */
static bool is_of_link(const char *pair)
{
    static const char *const keys[] = { "cluster.inter.gbit_per_s", "cluster.inter.gb_per_s", "cluster.intra.gb_per_s" };
    char key[96];
    size_t i = 0, n = sizeof keys / sizeof *keys;

    plan_source_split(pair, key, sizeof key);
    while (i < n && strcmp(keys[i], key))
        i++;
    return i < n;
}

/* Evaluates the plan, which it takes over, or knows that it is the last one but for its links; then the row of it. */
static int of_point(struct sweep *s, const char *const *pairs, int n, struct plan *p, struct sweep_row *out)
{
    char others[sizeof s->lowered->others] = "";
    size_t at = 0;

    for (int i = 0; i < n; i++)
        if (!is_of_link(pairs[i]))
            at += (size_t)snprintf(others + at, sizeof others - at, "%s\n", pairs[i]);
    if (s->lowered && !strcmp(s->lowered->others, others)) {
        int rc = of_evaluated(s, p, &s->lowered->e, out);
        measured_unload(&p->cluster);
        plan_free(p);
        return rc;
    }
    forget_lowered(s);
    struct sweep_lowered *l = room_new(1, sizeof *l);
    memcpy(l->others, others, sizeof others);
    l->plan = *p;
    int rc = evaluate(&l->plan, &l->e);
    if (rc == 0) {
        s->lowered = l;
        rc = of_evaluated(s, &l->plan, &l->e, out);
    }
    measured_unload(&l->plan.cluster);
    if (!s->lowered) {
        plan_free(&l->plan);
        free(l);
    }
    return rc;
}

static int evaluate_point(struct sweep *s, const char *const *pairs, int n, struct sweep_row *out)
{
    struct plan p;

    if (plan_source_with(&s->plan, pairs, n, &p) < 0)
        return -1;
    if (measured_load(s->ask->db, p.precision, p.kernels, &p.cluster) < 0) {
        plan_free(&p);
        return -1;
    }
    return of_point(s, pairs, n, &p, out);
}

/* The word of an option, by its index. */
static int word_of(const char *key, const char *text, const char *const *words, int *out)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], text)) {
            *out = i;
            return 0;
        }
    return fail("%s: '%.60s' is not known", key, text);
}

/* One change of what a search is asked. */
static int ask(struct search_args *a, const char *key, const char *text)
{
    int w = 0;

    if (!strcmp(key, "model")) {
        a->model = text;
        a->model_doc = NULL;
        return 0;
    }
    if (!strcmp(key, "strategy")) {
        int rc = word_of(key, text, search_strategies, &w);
        a->strategies = UINT64_C(1) << w;
        return rc;
    }
    if (!strcmp(key, "dialect"))
        return word_of(key, text, search_dialects, &a->dialect);
    if (!strcmp(key, "recompute"))
        return word_of(key, text, search_recomputes, &a->recompute);
    if (!strcmp(key, "optimizer") || !strcmp(key, "optimizer_form"))
        return word_of(key, text, knob_words(key), key[9] ? &a->tuned.optimizer.form : &a->tuned.optimizer.optimizer);
    if (!strcmp(key, "precision") || !strcmp(key, "kernels"))
        return word_of(key, text, knob_words(key), key[0] == 'p' ? &a->precision : &a->kernels);
    if (!strcmp(key, "seq"))
        return length_parse(key, text, &a->seq) < 0 || a->seq < 1 ? fail("seq: '%.60s' is not a length", text) : 0;
    int64_t *to = !strcmp(key, "micro_batch") ? &a->micro_batch : &a->global_batch;
    return count_parse(key, text, to) < 0 || *to < 1 ? fail("%s: '%.60s' is too small", key, text) : 0;
}

static int first_of_answer(const struct sweep *s, const struct search_options *o, struct sweep_row *out)
{
    struct search_result r;
    struct ranked best;
    int64_t tied;
    int rc = -1;

    if (search(o, &r) < 0)
        return -1;
    int64_t n = r.nfit ? ranking(&r, &best, 1, &tied) : 0;
    if (n > 0)
        rc = of_plan(s, &best.found->plan, out);
    else if (n == 0) {
        out->state = SWEEP_NO;
        out->gpus = o->cluster->world_size;
        out->bytes = r.n ? r.found[0].needed : 0;
        out->available = cluster_available(o->cluster);
        snprintf(out->what, sizeof out->what, "nothing fits");
        rc = 0;
    }
    search_free(&r);
    return rc;
}

static int search_point(const struct sweep *s, const char *const *pairs, int n, struct sweep_row *out)
{
    struct search_args a = *s->ask;
    struct question q;
    struct cluster c;
    struct model m;
    char key[96];
    int rc = 0;

    for (int i = 0; i < n && rc == 0; i++) {
        const char *text = plan_source_split(pairs[i], key, sizeof key);
        if (!strcmp(key, "cluster")) {
            a.cluster = text;
            a.cluster_doc = NULL;
        } else if (!plan_value_is_cluster(key))
            rc = ask(&a, key, text);
    }
    if (rc < 0 || named_cluster(a.cluster, a.cluster_doc, &c) < 0)
        return -1;
    for (int i = 0; i < n && rc == 0; i++) {
        plan_source_split(pairs[i], key, sizeof key);
        if (plan_value_is_cluster(key) && strcmp(key, "cluster"))
            rc = plan_source_cluster(&c, pairs[i], &c);
    }
    if (rc < 0 || named_model(a.model, a.model_doc, &m) < 0)
        return -1;
    if (search_tune(&a.tuned, &m) < 0 || search_args_options(&a, &m, &c, &q) != EXIT_DONE) {
        model_free(&m);
        return -1;
    }
    search_args_grid(&a, &q.options);
    rc = first_of_answer(s, &q.options, out);
    search_question_free(&q);
    return rc;
}

/* Efficiency compares numbers of GPUs: it says nothing of other networks, GPU types or batches on as many. */
static void put_efficiency(struct sweep *s, struct sweep_row *out)
{
    bool first = out->each > 0 && !(s->base > 0);

    out->efficiency = -1;
    if (first) {
        s->base = out->each;
        s->base_gpus = out->gpus;
        memcpy(s->base_gpu, out->gpu, sizeof s->base_gpu);
    }
    if (s->scales && out->each > 0 && !strcmp(s->base_gpu, out->gpu) && (first || out->gpus != s->base_gpus))
        out->efficiency = out->each / s->base;
}

void sweep_point(struct sweep *s, int64_t i, struct sweep_row *out)
{
    char pair[SWEEP_AXES + 1][256], why[SWEEP_WHAT];
    const char *pairs[SWEEP_AXES + 1];
    int n = s->naxes;

    for (int a = 0; a < n; a++) {
        snprintf(pair[a], sizeof pair[a], "%s=%s", s->axis[a].key, sweep_value(s, i, a));
        pairs[a] = pair[a];
    }
    if (s->has_plan && s->ask->global_batch) {
        snprintf(pair[n], sizeof pair[n], "global_batch=%" PRId64, s->ask->global_batch);
        pairs[n] = pair[n];
        n++;
    }
    if (i % s->axis[s->naxes - 1].n == 0)
        s->base = 0;
    *out = (struct sweep_row){ .efficiency = -1, .days = -1, .cost = -1 };
    why[0] = '\0';
    struct fail_sink before = fail_divert(why, sizeof why);
    int rc = s->has_plan ? evaluate_point(s, pairs, n, out) : search_point(s, pairs, n, out);
    fail_restore(before);
    if (rc < 0) {
        *out = (struct sweep_row){ .state = SWEEP_REFUSED, .efficiency = -1, .days = -1, .cost = -1 };
        snprintf(out->what, sizeof out->what, "%s", why[0] ? why : "cannot be planned");
    }
    put_efficiency(s, out);
}

/* ---- columns ---- */

const char *sweep_state_name(enum sweep_state s)
{
    static const char *const names[] = { "fits", "tight", "does not fit", "refused" };

    return names[s];
}

const char *const sweep_metrics[] = { "tokens_per_s", "tokens_per_s_per_gpu", "step_s", "mfu", "efficiency", "memory", "days",
                                      "cost", "sent_bytes_per_rank", NULL };

const char *sweep_metric_words(const struct sweep *s, int metric)
{
    bool tokens = !strcmp(s->rate, "tokens/s");
    const char *const words[] = { s->rate, tokens ? "tokens/s of a GPU" : "samples/s of a GPU", "step", "MFU", "scaling efficiency",
                                         "reserved memory of the fullest rank", "days", "cost",
                                         "sent by a rank in a step" };
    return words[metric];
}

enum measure sweep_metric_unit(int metric)
{
    static const enum measure of[] = { UNIT_TOKENS_S, UNIT_TOKENS_S, UNIT_SECONDS, UNIT_SHARE, UNIT_SHARE, UNIT_BYTES, UNIT_COUNT,
                                       UNIT_COUNT, UNIT_BYTES };
    return of[metric];
}

double sweep_metric(const struct sweep_row *r, int metric)
{
    const double values[] = { r->rate, r->each, r->step_s, r->mfu, r->efficiency, (double)(r->taken ? r->taken : r->bytes), r->days, r->cost, (double)r->sent };
    bool there = metric == SWEEP_MEMORY || metric == SWEEP_SENT ? r->state != SWEEP_REFUSED : r->step_s > 0 && values[metric] >= 0;

    return there ? values[metric] : NAN;
}
