/* The search against brute force, and what its answers must always hold. */
#include "tests/model/plans.h"

#include <stdlib.h>

#include "model/plan/knob.h"
#include "sim/clock/simulate.h"
#include "sim/plan/commands.h"
#include "sim/search/enumerate.h"
#include "sim/search/lack.h"
#include "sim/search/search.h"

/* dpxplan.c's main program joins the database; here there is none. */
int  measured_load(const char *db, enum dtype precision, enum kernel_set kernels, struct cluster *c) { return (void)db, (void)precision, (void)kernels, (void)c, 0; }
void measured_unload(struct cluster *c) { (void)c; }
int  measured_status(void) { return EXIT_MISUSE; }

/* ---- a small space: four blocks, four GPUs in two nodes, eight samples a step ---- */

struct search_space {
    struct model   m;
    struct cluster c;
    struct search_options o;
};

static void space_init(struct search_space *s)
{
    struct model whole;

    memset(s, 0, sizeof *s);
    assert_int_equal(model_load("gpt2", &whole), 0);
    assert_int_equal(model_with_layers(&whole, 4, &s->m), 0);
    model_free(&whole);
    assert_int_equal(cluster_load("2x2xa100-40gb", &s->c), 0);
    s->o = (struct search_options){
        .model = &s->m, .cluster = &s->c, .seq = 256, .global_batch = 8, .strategies = ~0ull,
        .dialects = ~0ull, .kernels = KERNELS_TORCH_SDPA, .precision = DT_BF16, .recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_SELECTIVE | 1u << RECOMPUTE_FULL, .threads = 1,
        .in_place = true,
    };
}

static void space_free(struct search_space *s)
{
    model_free(&s->m);
}

static struct search_result searched(struct search_space *s)
{
    struct search_result r;

    if (search(&s->o, &r) < 0)
        fail_msg("not searched");
    return r;
}

/* ---- the same answer however it is computed ---- */

static void threads_change_nothing(void **state)
{
    struct search_space s;

    (void)state;
    space_init(&s);
    s.c.memory = (int64_t)2 << 30;      /* so that some do not fit */
    struct search_result one = searched(&s);
    assert_true(one.nfit > 0 && one.nfit < one.n && one.n < one.considered);
    for (s.o.threads = 2; s.o.threads <= 3; s.o.threads++) {
        struct search_result r = searched(&s);
        assert_true(r.n == one.n && r.nfit == one.nfit && r.considered == one.considered);
        for (int64_t i = 0; i < r.n; i++) {
            const struct found *a = &one.found[i], *b = &r.found[i];
            assert_true(a->order == b->order && a->key == b->key && a->needed == b->needed &&
                        a->available == b->available && a->fits == b->fits);
            assert_memory_equal(&a->step_s, &b->step_s, sizeof a->step_s);
            assert_memory_equal(&a->compute_s, &b->compute_s, sizeof a->compute_s);
            assert_memory_equal(&a->exposed_s, &b->exposed_s, sizeof a->exposed_s);
            assert_memory_equal(&a->optimizer_s, &b->optimizer_s, sizeof a->optimizer_s);
            assert_memory_equal(&a->idle_s, &b->idle_s, sizeof a->idle_s);
            assert_memory_equal(a->exposed_by, b->exposed_by, sizeof a->exposed_by);
        }
        search_free(&r);
    }
    search_free(&one);
    space_free(&s);
}

/* ---- brute force ---- */

/* Every candidate on its own, by the way `eval` goes. */
struct tried {
    int64_t order, needed;
    bool    fits;
    double  step_s, retry_s;    /* retry_s: of it (simulate_retry_s) */
    char   *text;               /* its schedules */
    double  over;               /* of the memory that it lacks, needed / there is - 1; 0: it fits */
};

struct brute { struct tried *t; int64_t n, room; };

static char *text_of(const struct schedules *s)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    assert_non_null(f);
    for (int id = 0; id < NSCHED; id++)
        sched_print(s, (enum sched_id)id, f);
    fprintf(f, "groups");
    for (int g = 0; g < s->groups.n; g++)
        if (s->communicates >> g & 1)
            fprintf(f, " %s %lld", s->groups.group[g].name, (long long)s->groups.group[g].ranks);
    fclose(f);
    return text;
}

static int try_one(const struct plan *p, void *arg)
{
    struct brute *b = arg;
    struct evaluation e;
    struct timing t;

    if (b->n == b->room) {
        b->room = b->room ? 2 * b->room : 256;
        b->t = realloc(b->t, (size_t)b->room * sizeof *b->t);
        assert_non_null(b->t);
    }
    assert_int_equal(plan_check(p, "test"), 0);
    assert_int_equal(evaluate(p, &e), 0);
    assert_int_equal(simulate_plan(p, &e, &t, NULL), 0);
    struct lack l;
    double over = lack_of(p, &e, &l) ? (double)(l.needed - l.available) / (l.available > 1 ? (double)l.available : 1) : 0;
    b->t[b->n] = (struct tried){ b->n, e.m.needed, e.m.fits, t.line.step_s, t.retry_s, text_of(&e.schedules), over };
    b->n++;
    evaluation_free(&e);
    return 0;
}

static void brute_free(struct brute *b)
{
    for (int64_t i = 0; i < b->n; i++)
        free(b->t[i].text);
    free(b->t);
}

/* A corner of the space, so that each candidate can be printed. */
static void corner_init(struct search_space *s)
{
    space_init(s);
    s->o.recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_FULL;
    s->o.strategies = 1u << STRAT_DDP | 1u << STRAT_ZERO2 | 1u << STRAT_FSDP;
    s->o.micro_batch = 1;
    s->o.exhaustive = true;
    s->c.memory = (int64_t)2 << 30;
}

static void the_winner_is_the_minimum_over_everything(void **state)
{
    struct brute b = { 0 };
    struct search_space s;
    int64_t best = -1, fits = 0;

    (void)state;
    corner_init(&s);
    struct search_result r = searched(&s);
    assert_int_equal(enumerate(&s.o, try_one, &b), 0);
    int64_t at_first = b.n, later = b.n;
    assert_true(b.n < r.considered);            /* then come those with AdamW's fused form, which DeepSpeed's have by default */
    for (int64_t i = 0; i < r.n; i++) {
        const struct plan *p = &r.found[i].plan;
        assert_true((p->optimizer_form == OPTIMIZER_FUSED && p->dialect != DIALECT_DEEPSPEED) == (r.found[i].order >= at_first));
        assert_true(r.found[i].order < at_first || try_one(p, &b) == 0);
    }
    for (int64_t i = 0; i < b.n; i++) {
        const struct tried *t = &b.t[i];
        fits += t->fits;
        if (t->fits && (best < 0 || t->step_s < b.t[best].step_s))
            best = i;
    }
    assert_true(best >= 0 && fits < b.n);
    assert_close(r.found[0].step_s, b.t[best].step_s, 1e-12);
    for (int64_t i = 0; i < r.n; i++) {         /* and each has the figures that eval would give it */
        const struct found *f = &r.found[i];
        const struct tried *t = &b.t[f->order < at_first ? f->order : later++];
        bool refused = !f->fits && f->looked_at && !t->fits && f->needed != t->needed;
        assert_true(f->at_least ? f->needed <= t->needed : refused ? f->needed > t->needed : f->needed == t->needed);
        /* PyTorch's allocator may still refuse one that nothing has brought to the top. */
        assert_true(f->fits == t->fits || (f->fits && !f->looked_at && i >= SEARCH_LOOKS));
        if (f->fits)
            assert_close(f->step_s, f->looked_at ? t->step_s : t->step_s - t->retry_s, 1e-12);
    }
    brute_free(&b);
    search_free(&r);
    space_free(&s);
}

/* Whatever is missing from the result has a twin in it, entry for entry. */
static void only_equal_schedules_count_once(void **state)
{
    struct brute b = { 0 };
    struct search_space s;
    int64_t dropped = 0;

    (void)state;
    corner_init(&s);
    struct search_result r = searched(&s);
    assert_int_equal(enumerate(&s.o, try_one, &b), 0);
    bool *kept = calloc((size_t)r.considered, sizeof *kept);
    int64_t first = 0;                          /* those with AdamW's fused form come after them */
    for (int64_t i = 0; i < r.n; first += r.found[i++].order < b.n)
        kept[r.found[i].order] = true;
    for (int64_t i = 0; i < b.n; i++) {
        if (kept[i])
            continue;
        bool twin = false;
        for (int64_t j = 0; j < i && !twin; j++)
            twin = kept[j] && b.t[j].needed == b.t[i].needed && !strcmp(b.t[j].text, b.t[i].text);
        if (!twin)
            fail_msg("candidate %lld was dropped, but no kept one has its schedules", (long long)i);
        dropped++;
    }
    assert_true(dropped > 0);
    assert_int_equal(dropped, b.n - first);
    free(kept);
    brute_free(&b);
    search_free(&r);
    space_free(&s);
}

/* ---- what holds for every answer ---- */

static void every_answer_is_a_plan_that_keeps_the_global_batch(void **state)
{
    struct search_space s;

    (void)state;
    space_init(&s);
    s.c.memory = (int64_t)2 << 30;
    struct search_result r = searched(&s);
    for (int64_t i = 0; i < r.n; i++) {
        const struct found *f = &r.found[i];
        assert_int_equal(plan_check(&f->plan, "test"), 0);
        assert_int_equal(plan_global_batch(&f->plan), 8);
        /* With kernels of PyTorch the headroom may be used. */
        assert_true(!f->fits || f->needed <= f->plan.cluster.memory - f->plan.cluster.context);
        assert_true(f->fits || f->needed > f->available);
        assert_int_equal(f->fits, i < r.nfit);
        if (i == 0 || i == r.nfit)
            continue;
        const struct found *before = f - 1;
        if (f->fits)
            assert_true(before->step_s < f->step_s ||
                        (before->step_s == f->step_s && (before->tight < f->tight || before->needed <= f->needed)));
        else
            assert_true(before->over <= f->over);
    }
    search_free(&r);
    space_free(&s);
}

static void the_parts_of_a_step_add_up(void **state)
{
    struct search_space s;

    (void)state;
    space_init(&s);
    struct search_result r = searched(&s);
    for (int64_t i = 0; i < r.nfit; i++) {
        const struct found *f = &r.found[i];
        double by = 0;
        for (int op = 0; op < NCOLL; op++)
            by += f->exposed_by[op];
        assert_close(f->compute_s + f->optimizer_s + f->exposed_s + f->idle_s + f->slowest_s, f->step_s, 1e-9);
        assert_true(fabs(by - f->exposed_s) <= 1e-9 * f->step_s);
    }
    search_free(&r);
    space_free(&s);
}

static void the_pareto_front_is_a_front(void **state)
{
    struct search_space s;
    int64_t marked = 0;

    (void)state;
    space_init(&s);
    struct search_result r = searched(&s);
    bool *front = calloc((size_t)r.nfit, sizeof *front);
    search_pareto(&r, front);
    assert_true(front[0]);
    for (int64_t i = 0; i < r.nfit; i++) {
        const struct found *f = &r.found[i];
        bool beaten = false, matched = false;
        for (int64_t j = 0; j < r.nfit; j++) {
            const struct found *g = &r.found[j];
            bool no_worse = j != i && g->step_s <= f->step_s && g->needed <= f->needed;
            beaten |= no_worse && (g->step_s < f->step_s || g->needed < f->needed);
            matched |= no_worse;
        }
        assert_true(front[i] ? !beaten : matched);
        marked += front[i];
    }
    assert_true(marked > 1 && marked < r.nfit);
    free(front);
    search_free(&r);
    space_free(&s);
}

static void options_narrow_the_search(void **state)
{
    struct search_space s;

    (void)state;
    space_init(&s);
    s.o.dialects = 1u << DIALECT_DEEPSPEED;
    s.o.strategies = 1u << STRAT_ZERO1 | 1u << STRAT_ZERO3 | 1u << STRAT_FSDP;
    s.o.recompute = 1u << RECOMPUTE_FULL;
    s.o.micro_batch = 2;
    struct search_result r = searched(&s);
    for (int64_t i = 0; i < r.n; i++) {
        const struct plan *p = &r.found[i].plan;
        assert_int_equal(p->dialect, DIALECT_DEEPSPEED);
        assert_true(p->strategy == STRAT_ZERO1 || p->strategy == STRAT_ZERO3);
        assert_true(p->recompute == RECOMPUTE_FULL && p->micro_batch == 2 && p->accumulation == 1);
    }
    search_free(&r);
    space_free(&s);
}

/* The first of those that do not fit, by what it would really need, whether bounds left it out or not. */
static void nearest_is_the_nearest(bool exhaustive)
{
    struct brute b = { 0 };
    struct search_space s;
    double least = INFINITY;

    corner_init(&s);
    s.o.exhaustive = exhaustive;
    s.c.memory = s.c.context + ((int64_t)1 << 28);      /* nothing fits */
    struct search_result r = searched(&s);
    assert_int_equal(r.nfit, 0);
    assert_int_equal(enumerate(&s.o, try_one, &b), 0);
    for (int64_t i = 0; i < b.n; i++)
        if (!b.t[i].fits && b.t[i].over < least)
            least = b.t[i].over;
    assert_true(r.nfit < r.n);
    assert_false(r.found[r.nfit].at_least);
    /* By what eval would say it lacks, of what its framework may use; AdamW's fused form may lack less still. */
    assert_true(r.found[r.nfit].over <= least);
    if (r.found[r.nfit].order < b.n)
        assert_close(b.t[r.found[r.nfit].order].over, least, 1e-12);
    brute_free(&b);
    search_free(&r);
    space_free(&s);
}

static void the_nearest_is_the_nearest(void **state)
{
    (void)state;
    nearest_is_the_nearest(true);
    nearest_is_the_nearest(false);
}

static void what_cannot_be_searched_is_said(void **state)
{
    struct search_result r;
    struct search_space s;
    char why[256] = "";

    (void)state;
    space_init(&s);
    fail_capture(why, sizeof why);
    s.o.global_batch = 6;
    assert_int_equal(search(&s.o, &r), -1);
    assert_non_null(strstr(why, "--global-batch 6"));
    s.o.global_batch = 8;
    s.o.micro_batch = 3;
    assert_int_equal(search(&s.o, &r), -1);
    assert_non_null(strstr(why, "--micro-batch 3"));
    /* Once tried 2^59 micro-batches, one by one. */
    s.o.micro_batch = 0;
    s.o.global_batch = (int64_t)1 << 61;
    assert_int_equal(search(&s.o, &r), -1);
    assert_non_null(strstr(why, "--global-batch"));
    s.o.micro_batch = 1;
    s.o.global_batch = ((int64_t)PLAN_MAX_BATCH + 1) * s.c.world_size;
    assert_int_equal(search(&s.o, &r), -1);
    assert_non_null(strstr(why, "1048576 micro-batches"));
    fail_capture(NULL, 0);
    space_free(&s);
}

/* ---- the command ---- */

/* dpxplan's own prints it; here it is looked at. */
static json_t *printed;

int dpxplan_print_json(json_t *doc, int status)
{
    printed = doc;
    return status;
}

/* What it would print, and its exit status. */
static json_t *command(int *status, const char *extra)
{
    char words[512], *argv[64] = { 0 };
    int argc = 0;

    snprintf(words, sizeof words, "search --model gpt2 --cluster 2x2xa100-40gb --seq 256 --global-batch 8 "
             "--micro-batch 1 --threads 2 --json %s", extra);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
        argv[argc++] = w;
    printed = NULL;
    *status = cmd_search(argc, argv);
    assert_non_null(printed);
    return printed;
}

static void has(const json_t *j, const char *keys)
{
    char words[512];

    snprintf(words, sizeof words, "%s", keys);
    for (char *k = strtok(words, " "); k; k = strtok(NULL, " "))
        if (!json_object_get(j, k))
            fail_msg("no \"%s\"", k);
}

struct labels { char (*of)[160]; int n, cap; };

static int take_label(const struct plan *p, void *arg)
{
    struct labels *l = arg;

    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 1024;
        l->of = realloc(l->of, (size_t)l->cap * sizeof *l->of);
        assert_non_null(l->of);
    }
    knob_label(p, l->of[l->n++], sizeof *l->of);
    return 0;
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

/* Every knob that is varied has its word. */
static void labels_tell_all_candidates_apart(void **state)
{
    struct labels l = { 0 };
    struct search_space s;

    (void)state;
    space_init(&s);
    assert_int_equal(enumerate(&s.o, take_label, &l), 0);
    assert_true(l.n > 500);
    qsort(l.of, (size_t)l.n, sizeof *l.of, by_text);
    for (int i = 1; i < l.n; i++)
        if (!strcmp(l.of[i - 1], l.of[i]))
            fail_msg("two candidates are called \"%s\"", l.of[i]);
    free(l.of);
    space_free(&s);
}

static void the_document_has_the_promised_keys(void **state)
{
    int status;
    json_t *doc = command(&status, "--recompute none --top 3"), *plan;
    size_t i;

    (void)state;
    assert_int_equal(status, EXIT_DONE);
    assert_int_equal(json_integer_value(json_object_get(doc, "dpx")), 1);
    has(doc, "model cluster searched search_s plans");
    has(json_object_get(doc, "model"), "name family params layers hidden heads kv_heads ffn vocab tied");
    has(json_object_get(doc, "cluster"), "world_size nodes gpus_per_node gpu memory_bytes");
    assert_int_equal(json_array_size(json_object_get(doc, "plans")), 3);
    json_array_foreach(json_object_get(doc, "plans"), i, plan) {
        struct plan p;
        has(plan, "plan fits why_not first_over memory comm time");
        has(json_object_get(plan, "memory"), "peak_bytes allocated_peak_bytes available_bytes rank phase peak_at "
            "params_bytes grads_bytes optimizer_bytes activations_bytes temporaries_bytes buffers_bytes overhead_bytes");
        has(json_object_get(plan, "comm"), "sent_bytes_per_rank ops");
        has(json_object_get(plan, "time"), "step_s compute_s exposed_comm_s optimizer_s idle_s tokens_per_s "
            "tflops_per_gpu mfu hfu flop_convention low_s high_s basis kernels");
        assert_int_equal(plan_from_json(json_object_get(plan, "plan"), "test", &p), 0);
        assert_int_equal(plan_global_batch(&p), 8);
        plan_free(&p);
    }
    json_decref(doc);
}

static void when_nothing_fits_the_answer_is_no_and_the_nearest(void **state)
{
    int status;
    json_t *doc = command(&status, "--memory 1MiB"), *first = json_array_get(json_object_get(doc, "plans"), 0);

    (void)state;
    assert_int_equal(status, EXIT_NO);
    assert_int_equal(json_integer_value(json_object_get(doc, "fitting")), 0);
    assert_true(json_is_false(json_object_get(first, "fits")));
    assert_true(json_is_string(json_object_get(first, "why_not")));
    assert_true(json_integer_value(json_object_get(json_object_get(doc, "nearest_that_does_not_fit"), "over_bytes")) > 0);
    json_decref(doc);
}

/* ---- elsewhere than in device memory ---- */

/* ZeRO-3 of DeepSpeed, micro-batches 1 and 2, in `memory` bytes of a device and `host` of a node. */
static void offload_init(struct search_space *s, int64_t memory, int64_t host)
{
    space_init(s);
    s->o.strategies = 1u << STRAT_ZERO3;
    s->o.dialects = 1u << DIALECT_DEEPSPEED;
    s->o.recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_FULL;
    s->o.in_place = false;
    s->c.memory = memory;
    s->c.node.memory = host;
}

/* Every run of plans (micro-batch, recompute, interval) offers two of its plans in at most 13 other ways: optimizer and
 * parameters here, on the host or on disk, parameters never further than the optimizer but to the host (7), activations
 * here or there. */
static void offload_is_offered_where_nothing_fits_without(void **state)
{
    struct search_space s;

    (void)state;
    offload_init(&s, (int64_t)1843 << 20, (int64_t)64 << 30);
    struct search_result r = searched(&s);
    assert_true(r.elsewhere > 0 && r.nfit > 0);
    for (int64_t i = 0; i < r.n; i++) {
        const struct found *f = &r.found[i];
        assert_true(f->elsewhere == !enumerate_same_place(&f->plan, &(struct plan[]){ enumerate_in_place(&f->plan) }[0]));
        assert_true(!f->fits || f->elsewhere);
        if (!f->fits)
            continue;
        struct evaluation e;
        assert_int_equal(evaluate(&f->plan, &e), 0);
        assert_true(!f->looked_at || e.m.fits);
        assert_true(e.m.spaces.of[SPACE_HOST].peak > 0 && e.m.spaces.of[SPACE_HOST].fits);
        assert_true(f->away_s[AWAY_DOWN] > 0 && f->away_s[AWAY_UP] > 0);
        evaluation_free(&e);
    }
    assert_true(r.elsewhere <= 2 * 13 * 4 * (1 + s.m.layers));   /* 4 micro-batches at most */
    search_free(&r);
    space_free(&s);
}

static void offload_needs_memory_of_the_host(void **state)
{
    struct search_space s;

    (void)state;
    offload_init(&s, (int64_t)1843 << 20, (int64_t)1 << 28);
    struct search_result r = searched(&s);
    assert_true(r.elsewhere > 0 && r.nfit == 0);
    search_free(&r);
    space_free(&s);
}

/* Disks without stated rates, as an A100's: the variants with files are left out, and the reason is kept.  A search that lowers all of
 * them says the same. */
static void what_the_cluster_does_not_say_is_told(void **state)
{
    struct search_space s;

    (void)state;
    offload_init(&s, (int64_t)1843 << 20, (int64_t)64 << 30);
    struct search_result r = searched(&s);
    assert_non_null(strstr(r.refused, "disk"));
    for (int64_t i = 0; i < r.n; i++)
        assert_true(r.found[i].plan.ds.offload_optimizer.device != OFFLOAD_NVME || !r.found[i].fits);
    s.o.exhaustive = true;
    struct search_result all = searched(&s);
    assert_string_equal(all.refused, r.refused);
    assert_true(all.nfit == r.nfit && !memcmp(&all.found[0].step_s, &r.found[0].step_s, sizeof r.found[0].step_s));
    search_free(&all);
    search_free(&r);
    space_free(&s);
}

static void with_room_nothing_is_offloaded(void **state)
{
    struct search_space s;

    (void)state;
    offload_init(&s, (int64_t)40 << 30, (int64_t)64 << 30);
    struct search_result r = searched(&s);
    assert_true(r.elsewhere == 0 && r.nfit == r.n);
    search_free(&r);
    space_free(&s);
}

/* ---- many layers, many divisors ---- */

/* 512 blocks: what each keeps for backward is too much in most plans.  Bounds say so from the kernels of one block, and few
 * plans are lowered. */
static void depth_is_left_out_by_bounds(void **state)
{
    struct search_space s;
    struct model whole;

    (void)state;
    space_init(&s);
    model_free(&s.m);
    assert_int_equal(model_load("gpt2", &whole), 0);
    assert_int_equal(model_with_layers(&whole, 512, &s.m), 0);
    model_free(&whole);
    s.o.strategies = 1u << STRAT_ZERO2 | 1u << STRAT_ZERO3;
    s.o.seq = 1024;
    s.c.memory = (int64_t)16 << 30;
    struct search_result r = searched(&s);
    s.o.exhaustive = true;
    struct search_result all = searched(&s);
    assert_true(r.considered <= all.considered);        /* a run that is left out whole counts once */
    assert_int_equal(all.cut, 0);
    assert_int_equal(r.nfit, all.nfit);
    assert_int_equal(r.cut + r.lowered, r.considered);
    assert_true(r.lowered * 3 < all.lowered);
    for (int64_t i = 0; i < r.nfit; i++)
        assert_true(r.found[i].key == all.found[i].key && r.found[i].needed == all.found[i].needed);
    search_free(&r);
    search_free(&all);
    space_free(&s);
}

static int count_one(const struct plan *p, void *arg)
{
    (void)p;
    ((struct brute *)arg)->n++;
    return 0;
}

/* 4 ranks x 720,720 = 2^4 3^2 5 7 11 13: 240 micro-batches, of which those that do not fit are one line each. */
static void divisors_are_left_out_by_bounds(void **state)
{
    struct search_space s;

    (void)state;
    space_init(&s);
    s.o.strategies = 1u << STRAT_DDP | 1u << STRAT_FSDP;
    s.o.dialects = 1u << DIALECT_TORCH;
    s.o.recompute = 1u << RECOMPUTE_NONE;
    s.o.seq = 1024;
    s.o.global_batch = 4 * 720720;
    struct search_result r = searched(&s);
    s.o.exhaustive = true;
    struct brute b = { 0 };
    assert_int_equal(enumerate(&s.o, count_one, &b), 0);
    assert_true(b.n > 240 * 10);
    assert_true(r.nfit > 0 && r.n < b.n / 4 && r.lowered < b.n / 4);
    for (int64_t i = 0; i < r.n; i++)
        assert_true(r.found[i].fits || r.found[i].needed > 0);
    search_free(&r);
    space_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(the_winner_is_the_minimum_over_everything),
        cmocka_unit_test(only_equal_schedules_count_once),
        cmocka_unit_test(every_answer_is_a_plan_that_keeps_the_global_batch),
        cmocka_unit_test(the_parts_of_a_step_add_up),
        cmocka_unit_test(the_pareto_front_is_a_front),
        cmocka_unit_test(options_narrow_the_search),
        cmocka_unit_test(the_nearest_is_the_nearest),
        cmocka_unit_test(depth_is_left_out_by_bounds),
        cmocka_unit_test(divisors_are_left_out_by_bounds),
        cmocka_unit_test(what_cannot_be_searched_is_said),
        cmocka_unit_test(labels_tell_all_candidates_apart),
        cmocka_unit_test(the_document_has_the_promised_keys),
        cmocka_unit_test(offload_is_offered_where_nothing_fits_without),
        cmocka_unit_test(offload_needs_memory_of_the_host),
        cmocka_unit_test(what_the_cluster_does_not_say_is_told),
        cmocka_unit_test(with_room_nothing_is_offloaded),
        cmocka_unit_test(when_nothing_fits_the_answer_is_no_and_the_nearest),
    };
    return cmocka_run_group_tests_name("sim/search", tests, NULL, NULL);
}
