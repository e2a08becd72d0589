/* fit_answer.c -- a search for each number of GPUs, until one has a plan that fits. */
#include "sim/plan/fit_answer.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/notes.h"
#include "base/parallel.h"
#include "model/arch/sample.h"
#include "model/plan/liger.h"
#include "sim/plan/commands.h"
#include "sim/plan/search_words.h"
#include "sim/search/lack.h"
#include "sim/search/limits.h"
#include "sim/search/ranking.h"

enum { TRAIN_ALL, TRAIN_LORA, TRAIN_QLORA };
const char *const fit_trains[] = { "all", "lora", "qlora", NULL };

static const char *const rented[] = { "rtx4090", "l40s", "a100-40gb", "a100-80gb", "h100", "h200", "b200", "mi300x" };
enum { NRENTED = sizeof rented / sizeof *rented };

/* ---- the question ---- */

/* Several in one word, or a name with blanks: how it is written. */
static int refuse_gpu(const char *name)
{
    char nearest[128], joined[64];
    size_t n = 0;

    for (const char *c = name; *c && n + 1 < sizeof joined; c++)
        if (*c != ' ' && *c != '_')
            joined[n++] = *c;
    joined[n] = '\0';
    const struct gpu *g = gpu_find(joined);
    if (g)
        return fail("fit: no GPU '%.40s' is known: write %s", name, g->name);
    if (strchr(name, ','))
        return fail("fit: no GPU '%.40s' is known: give each as a word of its own, such as dpxplan fit MODEL h100 h200", name);
    gpu_nearest(name, nearest, sizeof nearest);
    return fail("fit: no GPU '%.40s' is known; similar names: %s", name, nearest);
}

/* A name that stands for one of several: which it was taken for. */
static void say_taken(const char *name, const struct gpu *g)
{
    const struct gpu *other;
    size_t n = strlen(name);
    char others[128] = "";

    for (int i = 0; (other = gpu_at(i)); i++)
        if (other != g && !strncasecmp(other->name, name, n) && other->name[n] == '-')
            snprintf(others + strlen(others), sizeof others - strlen(others), "%s%s", others[0] ? ", " : "", other->name);
    if (strcasecmp(name, g->name) && others[0])
        notes_say("dpx: %s is taken as %s; there are also %s", name, g->name, others);
}

/* "8xh100": that number alone. */
static int add_cluster(const char *name, struct fit_answer *f)
{
    struct cluster c;
    struct fit_row r = { .money = MONEY_NONE };

    if (cluster_load(name, &c) < 0)
        return -1;
    if (c.is_host)
        return fail("fit: %.40s has no GPUs", name);
    r.gpu = gpu_find(c.gpu.name);
    r.number = c.world_size;
    snprintf(r.cluster, sizeof r.cluster, "%.79s", name);
    f->row[f->n++] = r;
    return 0;
}

static int add_gpu(const char *name, struct fit_answer *f)
{
    const struct gpu *g = gpu_find(name);

    if (!g)
        return cluster_is_spec(name) && (isdigit((unsigned char)*name) || !strchr(name, ' ')) ? add_cluster(name, f) : refuse_gpu(name);
    say_taken(name, g);
    for (int i = 0; i < f->n; i++)
        if (f->row[i].gpu == g && !f->row[i].number)
            return 0;
    f->row[f->n++] = (struct fit_row){ .gpu = g, .money = MONEY_NONE };
    return 0;
}

static int name_gpus(const struct fit_asked *a, struct fit_answer *f)
{
    int rc = 0;

    for (int i = 0; i < a->gpus.n && rc == 0; i++)
        rc = add_gpu(a->gpus.at[i], f);
    for (int i = 0; a->gpus.n == 0 && i < NRENTED; i++)
        add_gpu(rented[i], f);
    return rc;
}

/* What trains: that of a recipe, unless it is said.  A rank alone asks for adapters. */
static int choose_training(const struct fit_asked *a, struct fit_model *m)
{
    struct search_tuned *t = &m->ask.tuned;

    if (a->train == TRAIN_ALL && a->lora)
        return fail("fit: --lora %" PRId64 " is the rank of adapters, and --train all has none: give one of them", a->lora);
    if (a->train == TRAIN_ALL)
        *t = (struct search_tuned){ .optimizer = t->optimizer };
    if (a->train == TRAIN_LORA || a->train == TRAIN_QLORA) {
        t->lora = t->lora ? t->lora : FIT_RANK;
        t->base = a->train == TRAIN_QLORA ? BASE_NF4 : BASE_PLAIN;
    }
    if (a->lora)
        t->lora = a->lora;
    return 0;
}

/* One item of --price, "2.10" or "$2.10"; all have the same currency. */
static int read_price(const char *text, size_t n, struct fit_answer *f, double *price)
{
    char item[64], sign[8];
    bool first = true;

    for (int i = 0; i < f->n; i++)
        first &= f->row[i].money.price < 0;
    snprintf(item, sizeof item, "%.*s", (int)n, text);
    if (gpu_find(item))
        return fail("fit --price: %s is a GPU: its price is written %s=2.10", item, item);
    if (opts_money("fit --price", item, price, &sign) < 0)
        return -1;
    if (!first && strcmp(sign, f->sign))
        return fail("fit --price: '%s' is in another currency than the other prices: give all in one", item);
    memcpy(f->sign, sign, sizeof sign);
    return 0;
}

/* "2.10": of all GPUs that have no price of their own. */
static int price_of_all(const char *item, size_t n, const char *all, struct fit_answer *f)
{
    double price;

    if (read_price(item, n, f, &price) < 0)
        return -1;
    for (int i = 0; i < f->n; i++) {
        if (f->row[i].money.price >= 0)
            return fail("fit --price: '%s' has two prices for all GPUs: write 2.10 with a point, or h100=2.10,a100-80gb=1.35", all);
        f->row[i].money.price = price;
    }
    return 0;
}

/* "h100=2.10"; `named` marks the rows that have one. */
static int price_of_one(const char *item, size_t n, struct fit_answer *f, bool named[FIT_ROWS])
{
    size_t name = strcspn(item, "=");
    char gpu[64];
    bool any = false;

    snprintf(gpu, sizeof gpu, "%.*s", (int)name, item);
    const struct gpu *g = gpu_find(gpu);
    for (int i = 0; i < f->n; i++)
        if (f->row[i].gpu == g) {
            if (named[i])
                return fail("fit --price: %s has two prices", gpu);
            named[i] = any = true;
            if (read_price(item + name + 1, n - name - 1, f, &f->row[i].money.price) < 0)
                return -1;
        }
    return any ? 0 : fail("fit --price: %s is not among the GPUs of this question", gpu);
}

/* That of all first, so that the order of the items does not matter. */
static int read_prices(const struct fit_asked *a, struct fit_answer *f)
{
    bool named[FIT_ROWS] = { false };
    int rc = 0;

    for (int of_one = 0; of_one < 2; of_one++)
        for (const char *at = a->price; at && *at && rc == 0; at += strcspn(at, ","), at += *at == ',') {
            size_t n = strcspn(at, ",");
            if ((memchr(at, '=', n) != NULL) == of_one)
                rc = of_one ? price_of_one(at, n, f, named) : price_of_all(at, n, a->price, f);
        }
    return rc;
}

/* Tokens of the whole training, once seq is known. */
static int count_tokens(const struct fit_asked *a, struct fit_answer *f)
{
    double epochs = a->epochs >= 0 ? a->epochs : 1, once = (double)a->tokens + (double)a->samples * (double)f->of.ask.seq;

    if (a->tokens && a->samples)
        return fail("fit: --tokens and --samples say the same: give one of them");
    if (a->tokens && sample_refuse_tokens(&f->model) < 0)
        return -1;
    if (!a->tokens && !a->samples)
        return a->price ? fail("fit: --price needs --tokens or --samples: how long is the training?") :
               a->epochs >= 0 ? fail("fit: --epochs needs --samples or --tokens") : 0;
    if (once * epochs < 1 || once * epochs > 1e18)
        return fail("fit: %g tokens are no training", once * epochs);
    f->tokens = (int64_t)(once * epochs);
    for (int i = 0; i < f->n; i++)
        f->row[i].money.tokens = f->tokens;
    return 0;
}

/* A larger one fits only with larger micro-batches, whose memory would then decide how many GPUs it needs. */
static int check_batch(const struct fit_asked *a)
{
    return a->batch > FIT_BATCH ? fail("fit: --batch %" PRId64 " is more samples than a step has: at most %d", a->batch, FIT_BATCH) : 0;
}

static int open_question(const struct fit_asked *a, struct fit_answer *f)
{
    struct search_args *ask = &f->of.ask;

    if (check_batch(a) < 0 || fit_model_read(a->model, a->model_doc, &f->of) < 0)
        return -1;
    ask->framework = a->framework;
    ask->in_place = !a->offload;
    ask->db = a->db;
    ask->loss = a->loss;
    if (choose_training(a, &f->of) < 0 || name_gpus(a, f) < 0 || named_model(ask->model, ask->model_doc, &f->model) < 0)
        return -1;
    ask->seq = a->seq ? a->seq : ask->seq ? ask->seq : search_usual_seq(&f->model);
    if (search_tune(&ask->tuned, &f->model) == 0 && read_prices(a, f) == 0 && count_tokens(a, f) == 0)
        return 0;
    model_free(&f->model);
    return -1;
}

static int64_t batch_on(const struct fit_asked *a, const struct fit_model *m, int64_t gpus)
{
    if (a->batch)
        return a->batch;
    if (m->batch)
        return m->batch_a_gpu ? m->batch * gpus : m->batch;
    return search_usual_batch(gpus);
}

/* ---- one number of one type ---- */

struct asking {
    const struct fit_asked *a;
    struct fit_answer *f;
    int threads;
    int64_t total;                  /* numbers of GPUs, of all rows */
    atomic_llong done;
    atomic_bool stopped;
};

/* The first that is asked about, and the one after n; 0: none. */
static int64_t first_number(const struct fit_row *r) { return r->number ? r->number : 1; }

static int64_t next_number(const struct fit_row *r, int64_t n)
{
    int64_t next = r->number ? 0 : limit_next_gpus(n, r->gpu->node_gpus);

    return next <= FIT_MOST ? next : 0;
}

static int64_t numbers(const struct fit_row *r)
{
    int64_t n = 0;

    for (int64_t gpus = first_number(r); gpus; gpus = next_number(r, gpus))
        n++;
    return n;
}

static bool go_on(void *of, int64_t done, int64_t total)
{
    struct asking *q = of;

    (void)done, (void)total;
    if (q->a->go_on && !q->a->go_on(q->a->go_on_of, q->done, q->total))
        q->stopped = true;
    return !q->stopped;
}

static void keep(const struct ranked *best, int64_t taken, struct fit_row *r)
{
    const struct found *f = best->found;
    struct timing t = { .line.step_s = best->step_s, .low_s = best->low_s, .high_s = best->high_s };

    r->plan = f->plan;
    r->plan.cluster.measured = NULL;            /* it goes with the question */
    r->gpus = r->plan.cluster.world_size;
    r->needed = f->needed;
    r->usable = cluster_available(&r->plan.cluster);
    r->taken = taken;
    r->tight = best->tight;
    r->waits = best->waits;
    r->step_s = best->step_s;
    r->low_s = best->low_s;
    r->high_s = best->high_s;
    r->tokens_per_s = (double)(plan_global_batch(&r->plan) * r->plan.seq) / best->step_s;
    if (r->money.tokens)
        money_of(&r->money, &r->plan, &t, &r->training);
}

/* The search's answer into the row; 0, or -1 reported. */
static int look(const struct search_result *s, struct fit_row *r)
{
    struct ranked best;
    int64_t tied, n = s->nfit ? ranking(s, &best, 1, &tied) : 0;
    struct evaluation e;

    r->why[0] = '\0';
    r->tried = s->n > 0 ? s->found[0].plan.cluster.world_size : r->tried;
    if (n > 0 && best.found->taken) {
        keep(&best, best.found->taken, r);
    } else if (n > 0) {
        if (evaluate(&best.found->plan, &e) < 0)
            return -1;
        keep(&best, evaluation_taken(&e.m, &e.reserved), r);
        evaluation_free(&e);
    }
    else if (n == 0 && s->n > 0) {
        const struct found *f = &s->found[0];
        struct lack l;
        r->needed = f->needed;
        r->available = f->available;
        if (!f->at_least && f->looked_at && search_nearest_lacks(f, &l) && l.reserved)
            r->needed = l.taken;
    }
    return n < 0 ? -1 : 0;
}

/* Bytes of a trained parameter that no plan of the search has fewer of, over all its ranks: the parameter, and where it is AdamW's the
 * optimizer's states. */
static int bytes_that_stay(const struct asking *q, const struct gpu *g)
{
    uint64_t dialects = search_framework_dialects(q->a->framework < 0 ? FRAMEWORK_ANY : q->a->framework);
    int least = INT_MAX;

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            if (!(dialects >> d & 1) || !dialect_has((enum dialect)d, (enum strategy)s))
                continue;
            struct plan p = { .model = q->f->model, .cluster = { .gpu = *g, .world_size = 1, .nodes = 1, .gpus_per_node = 1 }, .micro_batch = 1 };
            char why[256];
            plan_defaults(&p, (enum strategy)s, (enum dialect)d, search_precision(g));
            struct fail_sink before = fail_divert(why, sizeof why);
            int chosen = optimizer_choose(&p, &q->f->of.ask.tuned.optimizer, "fit");
            fail_restore(before);
            struct recipe r = plan_recipe(&p);
            int each = (int)dtype_bytes(r.kept) + (p.optimizer == OPTIMIZER_ADAMW ? r.optimizer : 0);
            least = chosen == 0 && each < least ? each : least;
        }
    return least < INT_MAX ? least : 0;
}

/* Bytes of a GPU that parameters and optimizer states alone take where all GPUs share them evenly, of a packed base 4 bits each: no plan
 * that keeps them in GPU memory takes less on its fullest rank. */
static int64_t least_bytes(const struct asking *q, const struct fit_row *r, int64_t gpus)
{
    const struct model *m = &q->f->model;
    double frozen = q->f->of.ask.tuned.base == BASE_PLAIN ? 2 : .5;
    bool last = !next_number(r, gpus);          /* what its plans need is part of the answer: searched */
    int each = last ? 2 : bytes_that_stay(q, r->gpu);

    return (int64_t)((each * (double)m->trainable + frozen * (double)(m->params - m->trainable)) / (double)gpus);
}

/* Too few, without a search. */
static bool is_hopeless(const struct asking *q, struct fit_row *r, int64_t gpus)
{
    int64_t least = least_bytes(q, r, gpus);

    if (q->a->offload || least <= r->gpu->memory)
        return false;
    r->tried = gpus;
    r->needed = least;
    r->available = r->gpu->memory;
    return true;
}

/* Is there a loss of Liger-Kernel without logits that was not asked for, nor ruled out? */
static bool may_fuse(const struct asking *q)
{
    struct liger_options kernels;
    enum loss_kind usual;
    const char *lacks;

    return q->a->loss < 0 && q->a->framework != FRAMEWORK_MEGATRON && liger_usual(&q->f->model, &kernels, &usual, &lacks) && usual == LOSS_FUSED_LINEAR;
}

/* With the name that fit's option has. */
static void keep_reason(const char *why, struct fit_row *r)
{
    static const char of_search[] = "--global-batch";
    const char *at = strstr(why, of_search);

    if (at)
        snprintf(r->why, sizeof r->why, "%.*s--batch%s", (int)(at - why), why, at + strlen(of_search));
    else
        snprintf(r->why, sizeof r->why, "%s", why);
}

/* What the search refuses (a batch that these ranks cannot share, say) is no answer: r->why.  0, or -1 reported. */
static int ask_number(struct asking *q, struct fit_row *r, int64_t gpus, int loss)
{
    struct search_args ask = q->f->of.ask;
    struct question one;
    struct search_result s;
    struct cluster c;
    int64_t per = r->gpu->node_gpus;

    if (!r->number && gpus <= per)
        snprintf(r->cluster, sizeof r->cluster, "%" PRId64 "x%s", gpus, r->gpu->name);
    else if (!r->number)
        snprintf(r->cluster, sizeof r->cluster, "%" PRId64 "x%" PRId64 "x%s", gpus / per, per, r->gpu->name);
    ask.global_batch = batch_on(q->a, &q->f->of, gpus);
    ask.threads = q->threads;
    ask.loss = loss;
    if (cluster_load(r->cluster, &c) < 0 || search_args_options(&ask, &q->f->model, &c, &one) != EXIT_DONE)
        return -1;
    one.options.answer_only = true;
    one.options.go_on = go_on;
    one.options.go_on_of = q;
    search_args_grid(&ask, &one.options);
    char why[sizeof r->why] = "";
    struct fail_sink before = fail_divert(why, sizeof why);
    int rc = search(&one.options, &s);
    fail_restore(before);
    if (rc == 0)
        rc = look(&s, r);
    else if (!r->why[0] && !q->stopped)
        keep_reason(why, r);
    search_free(&s);
    measured_unload(&one.cluster);
    return why[0] ? 0 : rc;
}

/* The number that was asked about before n; 0: none. */
static int64_t number_before(const struct gpu *g, int64_t n)
{
    int64_t before = 0;

    for (int64_t k = 1; k < n && k <= FIT_MOST; k = limit_next_gpus(k, g->node_gpus))
        before = k;
    return before;
}

/* The same question, without an answer. */
static struct fit_row asked_again(const struct fit_row *r)
{
    struct fit_row again = { .gpu = r->gpu, .number = r->number, .money = r->money };

    memcpy(again.cluster, r->cluster, sizeof again.cluster);
    return again;
}

/* Fewer GPUs than the row's, downwards as long as they hold it; where none holds it the first that does. */
static int ask_fused(struct asking *q, const struct fit_row *r, struct fit_row *out)
{
    bool down = r->gpus > 0;
    int64_t n = !down ? first_number(r) : r->number ? 0 : number_before(r->gpu, r->gpus);
    int rc = 0;

    *out = asked_again(r);
    while (rc == 0 && n > 0 && !q->stopped && may_fuse(q)) {
        struct fit_row one = asked_again(r);
        rc = is_hopeless(q, &one, n) ? 0 : ask_number(q, &one, n, LOSS_FUSED_LINEAR);
        if (one.gpus)
            *out = one;
        if (one.gpus ? !down : down)
            break;
        n = down ? number_before(r->gpu, n) : next_number(r, n);
    }
    return rc;
}

static int ask_row(void *of, int64_t i)
{
    struct asking *q = of;
    struct fit_row *r = &q->f->row[i];
    json_t *notes = json_array(), *before = notes_divert(notes);
    int64_t left = numbers(r);
    int rc = 0;

    for (int64_t n = first_number(r); rc == 0 && r->gpus == 0 && n && !q->stopped; n = next_number(r, n)) {
        rc = is_hopeless(q, r, n) ? 0 : ask_number(q, r, n, q->a->loss);
        q->done++;
        left--;
    }
    q->done += left;
    struct fit_row *fused = &q->f->fused[i];
    rc = rc < 0 ? rc : ask_fused(q, r, fused);
    if (!r->gpus && fused->gpus) {
        *r = *fused;
        fused->gpus = 0;
    }
    notes_divert(before);
    json_decref(notes);
    return rc;
}

static int ask_rows(const struct fit_asked *a, struct fit_answer *f)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct asking q = { .a = a, .f = f, .threads = f->n >= cores ? 1 : 0 };

    for (int i = 0; i < f->n; i++)
        q.total += numbers(&f->row[i]);
    int rc = f->n == 1 ? ask_row(&q, 0) : parallel_each(f->n, 0, ask_row, &q);
    f->stopped = q.stopped;
    return rc;
}

/* ---- the answer ---- */

static bool has_cost(const struct fit_row *r) { return r->money.tokens && r->training.cost >= 0; }

/* The cheaper of two with prices, which come before those without; of those that with fewer GPUs, of as many one that is not tight. */
static bool is_better(const struct fit_row *r, const struct fit_row *best)
{
    if (has_cost(r) != has_cost(best))
        return has_cost(r);
    if (has_cost(r))
        return r->training.cost < best->training.cost;
    return r->gpus < best->gpus || (r->gpus == best->gpus && best->tight && !r->tight);
}

static int choose_best(struct fit_answer *f)
{
    int nasked = 0;

    f->best = -1;
    for (int i = 0; i < f->n; i++) {
        const struct fit_row *r = &f->row[i];
        nasked += r->tried > 0;
        if (r->gpus > 0 && (f->best < 0 || is_better(r, &f->row[f->best])))
            f->best = i;
    }
    if (nasked == 0 && f->stopped) {
        fail("fit: stopped before anything was known");
        return EXIT_FAILED;
    }
    if (nasked == 0) {                          /* no number was a question */
        static const char begins[] = "nothing to search: ";
        fail("fit: %s", f->row[0].why + (strncmp(f->row[0].why, begins, strlen(begins)) ? 0 : strlen(begins)));
        return EXIT_MISUSE;
    }
    return f->best < 0 ? EXIT_NO : EXIT_DONE;
}

int fit_answer(const struct fit_asked *a, struct fit_answer *out)
{
    *out = (struct fit_answer){ .best = -1 };
    if (open_question(a, out) < 0)
        return EXIT_MISUSE;
    int rc = ask_rows(a, out) < 0 ? EXIT_MISUSE : choose_best(out);
    if (a->offload && rc == EXIT_DONE)
        for (int i = 0; i < out->n; i++)
            if (out->row[i].gpus)
                cluster_say_assumed(&out->row[i].plan.cluster);
    if (rc != EXIT_DONE && rc != EXIT_NO)
        fit_free(out);
    return rc;
}

void fit_free(struct fit_answer *f) { model_free(&f->model); }
