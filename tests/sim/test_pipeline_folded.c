/* Pipelines whose equal iterations are a repeat, beside the same entry by entry: random ones of every order, framework and code, of 2 to
 * 16 stages.  The entries are the same, one by one: what they do, on which buffers, and behind which entry each waits.  So are
 * what every stage holds, what PyTorch's allocator reserves, and what it moves; and the step's times to 1e-12.
 *
 * Of pipelines of hundreds of micro-steps the replay leaves out iterations that come again: it is the one that walks them all.
 *
 *     test_pipeline_folded [PLANS]                     60; make test-folds takes 1000 */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "model/lower/lower.h"
#include "model/memory/evaluate.h"
#include "sim/clock/step.h"

enum { STAGES = 16 };

static int plans = 60;

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

/* ---- plans ---- */

/* Frameworks, and the orders from `first` on that they may have; a plan that is refused is drawn again. */
static const struct { const char *keys; int first, orders; } frameworks[] = {
    { "'strategy': 'fsdp', 'dialect': 'torch'", 0, 7 }, { "'strategy': 'fsdp', 'dialect': 'torch'", 2, 5 },
    { "'strategy': 'fsdp', 'dialect': 'torch', 'framework_version': '2.9'", 0, 4 }, { "'strategy': 'ddp', 'dialect': 'torch'", 0, 4 },
    { "'strategy': 'ddp', 'dialect': 'torch', 'framework_version': '2.9'", 0, 4 }, { "'strategy': 'zero1', 'dialect': 'megatron'", 1, 2 },
    { "'strategy': 'zero1', 'dialect': 'megatron', 'megatron': { 'overlap_p2p_comm': true }", 2, 1 },
    { "'strategy': 'ddp', 'dialect': 'megatron'", 1, 2 }, { "'strategy': 'ddp', 'dialect': 'deepspeed'", 1, 1 },
    { "'strategy': 'zero1', 'dialect': 'deepspeed'", 1, 1 },
};
static const char *const orders[] = { "gpipe", "1f1b", "interleaved", "looped-bfs", "zb1p", "zbv", "dualpipev" };

/* The keys of "parallel" that say the order; chunks of a rank. */
static int text_of_order(int order, bool deepspeed, uint64_t *rng, char *text, size_t size)
{
    int chunks = order < 2 ? 1 : order > 4 ? 2 : 2 + (int)draw(rng, 3);

    *text = '\0';
    if (!deepspeed)
        snprintf(text, size, "'pipeline_schedule': '%s', 'virtual_stages': %d, ", orders[order], chunks);
    return chunks;
}

/* `times`: as many micro-steps. */
static void text_of_plan(uint64_t *rng, int times, char *text, int size)
{
    int with = (int)draw(rng, 10), order = frameworks[with].first + (int)draw(rng, (uint32_t)frameworks[with].orders);
    char says[128];
    int chunks = text_of_order(order, with > 7, rng, says, sizeof says), pipe = 2 << draw(rng, chunks > 1 ? 3 : 4), tensor = 1 << draw(rng, 2);
    int steps = order > 1 ? pipe * (pipe < 8 ? 6 + (int)draw(rng, 12) : 4 + (int)draw(rng, 8)) : 1 + (int)draw(rng, 100);
    int layers = pipe * chunks * (1 + (int)draw(rng, 2)) + (draw(rng, 4) ? 0 : 1), data = 1 + (int)draw(rng, 2);

    steps *= times;
    snprintf(text, (size_t)size,
             "{ 'dpx_plan': 1, 'model': { 'model_type': 'llama', 'hidden_size': 1024, 'intermediate_size': 2816, 'num_hidden_layers': %d,"
             " 'num_attention_heads': 8, 'vocab_size': %d, 'tie_word_embeddings': %s }, 'cluster': '%dx8xh100', %s, 'seq': 2048,"
             " 'micro_batch': 1, 'accumulation': %d, 'precision': '%s', 'recompute': '%s', 'parallel': { %s'pipeline': %d, 'tensor': %d } }",
             layers, draw(rng, 2) ? 64 : 32000, draw(rng, 6) ? "false" : "true", (pipe * tensor * data + 7) / 8, frameworks[with].keys, steps,
             draw(rng, 4) ? "bf16" : "fp32", draw(rng, 2) ? "none" : "full", says, pipe, tensor);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
}

static bool draw_plan(uint64_t *rng, int times, struct plan *p, char *text, int size)
{
    char why[400];
    struct fail_sink before = fail_divert(why, sizeof why);
    json_t *j;

    text_of_plan(rng, times, text, size);
    j = json_loads(text, 0, NULL);
    assert_non_null(j);
    bool ok = plan_from_json(j, "plan", p) == 0;
    fail_restore(before);
    json_decref(j);
    return ok;
}

/* ---- entries ---- */

/* An entry as it runs: its number among those that record and that it waits for. */
struct issued { const struct op *o; int64_t iteration; int waits[2]; };
struct list { const struct schedules *s; struct issued *at; int n, *recorded; };

static int issue(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct list *l = arg;
    struct issued *e = &l->at[l->n];

    *e = (struct issued){ o, iteration, { -1, -1 } };
    for (int w = 0; w < 2; w++)
        if (o->wait[w])
            e->waits[w] = l->recorded[sched_event_at(s, o, o->wait[w], iteration)];
    if (o->record)
        l->recorded[sched_event_at(s, o, o->record, iteration)] = l->n;
    l->n++;
    return 0;
}

static int count(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    (void)s, (void)o, (void)iteration;
    ++*(int *)arg;
    return 0;
}

static void list_of(const struct schedules *s, enum sched_id id, struct list *l)
{
    int n = 0;

    sched_walk(s, id, count, &n);
    *l = (struct list){ .s = s, .at = calloc((size_t)n + 1, sizeof *l->at), .recorded = malloc(((size_t)s->nevents + 1) * sizeof *l->recorded) };
    for (int e = 0; e <= s->nevents; e++)
        l->recorded[e] = -1;
    sched_walk(s, id, issue, l);
}

static bool same_acts(const struct list *a, const struct list *b, int i)
{
    const struct op *o = a->at[i].o, *p = b->at[i].o;
    bool same = o->nacts == p->nacts;

    for (uint32_t k = 0; same && k < o->nacts; k++) {
        const struct act *x = &a->s->acts[o->act0 + k], *y = &b->s->acts[p->act0 + k];
        same = x->buf == y->buf && x->what == y->what && x->n == y->n && x->at + x->by * a->at[i].iteration == y->at + y->by * b->at[i].iteration;
    }
    return same;
}

static bool same_entry(const struct list *a, const struct list *b, int i)
{
    const struct issued *x = &a->at[i], *y = &b->at[i];
    const struct op *o = x->o, *p = y->o;

    return o->kind == p->kind && o->stream == p->stream && o->phase == p->phase && o->flags == p->flags && o->after == p->after &&
           o->chunk == p->chunk && o->what == p->what && o->of == p->of && o->unit + o->unit_by * x->iteration == p->unit + p->unit_by * y->iteration &&
           o->step + o->step_by * x->iteration == p->step + p->step_by * y->iteration && x->waits[0] == y->waits[0] && x->waits[1] == y->waits[1] &&
           !o->record == !p->record && same_acts(a, b, i) && (o->kind != OP_COMPUTE || (o->u.compute.k0 == p->u.compute.k0 &&
           o->u.compute.k1 == p->u.compute.k1 && o->u.compute.piece == p->u.compute.piece && o->u.compute.pass == p->u.compute.pass &&
           o->u.compute.granted == p->u.compute.granted)) && (o->kind != OP_COLL || (o->u.coll.elems == p->u.coll.elems && o->u.coll.op == p->u.coll.op &&
           o->u.coll.group == p->u.coll.group && o->u.coll.root == p->u.coll.root));
}

static void same_entries(const struct schedules *folded, const struct schedules *whole, const char *text)
{
    for (int id = 0; id < NSCHED; id++) {
        struct list a, b;
        list_of(folded, (enum sched_id)id, &a);
        list_of(whole, (enum sched_id)id, &b);
        for (int i = 0; i < a.n && i < b.n; i++)
            if (!same_entry(&a, &b, i))
                fail_msg("%s\n%s entry %d of rank %lld: %s %s, %s %s unfolded", text, sched_name((enum sched_id)id), i, (long long)folded->rank,
                         a.at[i].o->what, a.at[i].o->of ? a.at[i].o->of : "", b.at[i].o->what, b.at[i].o->of ? b.at[i].o->of : "");
        if (a.n != b.n)
            fail_msg("%s\n%s: %d entries, %d unfolded", text, sched_name((enum sched_id)id), a.n, b.n);
        free(a.at), free(a.recorded), free(b.at), free(b.recorded);
    }
}

/* ---- memory ---- */

static void same_peak(const struct schedules *a, const struct peak *x, const struct schedules *b, const struct peak *y)
{
    char at[2][128];

    assert_int_equal(x->bytes, y->bytes);
    assert_memory_equal(x->by, y->by, sizeof x->by);
    assert_int_equal(x->sched, y->sched);
    if (x->op < 0 || y->op < 0)
        return;
    evaluation_op_in_words(a, x->op, x->iteration, at[0], sizeof at[0]);
    evaluation_op_in_words(b, y->op, y->iteration, at[1], sizeof at[1]);
    assert_string_equal(at[0], at[1]);
}

/* The edges of a micro-step that is under way stand for the embedding and the head up to what these make and free at other kernels: a
 * few KiB, and each tensor that is passed on is of megabytes. */
enum { EDGES = 4 << 10 };

/* The requests to an allocator without a limit: each tensor that is freed was there, what two steps leave is what the ledger counts
 * between steps, and the peak is the ledger's. */
static void adds_up(const struct plan *p, const struct schedules *s, const struct ledger *l, const char *text)
{
    struct caching_options o = caching_allocator_defaults();
    struct request_report r;
    int64_t persistent = 0, edges = EDGES * p->accumulation * (p->parallel.virtual_stages > 1 ? p->parallel.virtual_stages : 1);

    o.expandable_segments = true;
    struct caching_allocator *a = caching_allocator_new((int64_t)1 << 48, &o);
    const struct caching_meter *c = &caching_allocator_stats(a)->requested;
    struct request_target t = reserved_target(a);
    t.watch = NULL;                     /* to the end of the last step */
    requests_walk(p, s, (struct request_options){ 0 }, &t, &r);
    for (int i = 0; i < NCAT; i++)
        persistent += l->persistent[i];
    if (r.unmatched || c->now != persistent || c->peak < l->peak.bytes - edges || c->peak > l->peak.bytes + edges)
        fail_msg("%s\nrank %lld%s: %lld frees of nothing; peak %lld, ledger %+lld; then %lld, ledger %+lld", text, (long long)s->rank,
                 s->folds ? "" : " unfolded", (long long)r.unmatched, (long long)c->peak, (long long)(l->peak.bytes - c->peak),
                 (long long)c->now, (long long)(persistent - c->now));
    caching_allocator_delete(a);
}

/* As reserved_of(), with nothing left out but what is proven. */
static void figures_of(const struct plan *p, const struct schedules *s, const struct overhead *o, int64_t out[11])
{
    struct request_options options = reserved_options(p);
    struct request_report r = { .out_of_memory = true };
    int64_t limit = p->cluster.memory - p->cluster.context - o->by[OVERHEAD_OUTSIDE], refused = 0;

    options.proven = true;
    for (int with_room = limit > 0 ? 0 : 1; with_room < 2 && r.out_of_memory; with_room++) {
        struct caching_options own = caching_allocator_defaults();
        caching_allocator_configure(&own, p->environment.alloc_conf);
        struct caching_allocator *a = caching_allocator_new(with_room ? (int64_t)1 << 48 : limit, &own);
        const struct caching_stats *c = caching_allocator_stats(a);
        struct request_target t = reserved_target(a);
        requests_walk(p, s, options, &t, &r);
        refused = with_room ? refused : r.refused;
        const int64_t x[11] = { with_room, refused, c->allocated.peak, c->active.peak, c->reserved.peak, c->idle_at_peak, c->inactive_split.peak,
                                r.retries, r.steady_retries, r.steady_calls, r.requests };
        memcpy(out, x, sizeof x);
        caching_allocator_delete(a);
    }
}

static void same_memory(const struct plan *p, const struct memory_verdict *m, const struct schedules *folded, const struct schedules *whole,
                        const char *text)
{
    struct ledger l;
    struct comm_table t[2];
    int64_t x[11], y[11];

    ledger_run(whole, &l);
    for (int id = 0; id < NSCHED; id++)
        same_peak(folded, &m->ledger.phase[id], whole, &l.phase[id]);
    same_peak(folded, &m->ledger.peak, whole, &l.peak);
    assert_memory_equal(m->ledger.persistent, l.persistent, sizeof l.persistent);
    assert_memory_equal(m->ledger.most, l.most, sizeof l.most);
    for (int id = 0; id < NSCHED; id++) {
        evaluation_comm_count(folded, (enum sched_id)id, &t[0]);
        evaluation_comm_count(whole, (enum sched_id)id, &t[1]);
        assert_int_equal(t[0].n, t[1].n);
        assert_int_equal(t[0].sent_bytes, t[1].sent_bytes);
        for (int i = 0; i < t[0].n; i++)
            assert_true(t[0].line[i].count == t[1].line[i].count && t[0].line[i].bytes == t[1].line[i].bytes);
    }
    adds_up(p, folded, &l, text);
    adds_up(p, whole, &l, text);
    figures_of(p, folded, &m->overhead, x);
    figures_of(p, whole, &m->overhead, y);
    for (int i = 0; i < 11; i++)
        if (x[i] != y[i])
            fail_msg("figure %d of the allocator: %lld, unfolded %lld", i, (long long)x[i], (long long)y[i]);
}

/* ---- time ---- */

static void same_line(const struct timeline *a, const struct timeline *b, double step, const char *text)
{
    const double x[] = { a->step_s, a->compute_s, a->optimizer_s, a->exposed_s, a->idle_s, a->bubble_s, a->comm_s };
    const double y[] = { b->step_s, b->compute_s, b->optimizer_s, b->exposed_s, b->idle_s, b->bubble_s, b->comm_s };

    for (int i = 0; i < 7; i++)
        if (fabs(x[i] - y[i]) > 1e-12 * step)
            fail_msg("%s\nfigure %d of a stage: %.17g, unfolded %.17g, of a step of %g s", text, i, x[i], y[i], step);
}

static void same_times(const struct plan *p, const struct schedules *const *folded, const struct schedules *const *whole, int n, const char *text)
{
    static const struct step_view views[] = { { STEP_BACKWARD, true, 0, 1 }, { .slow = 1, .issue = STEP_ISSUE_HIGH } };
    struct cost_cache *cache = cost_cache_new(p);
    struct coll_memo memo = { 0 };
    struct step a, b;
    struct timeline x[STAGES], y[STAGES];
    double s[2];

    assert_int_equal(step_open(p, folded, n, cache, &memo, &a), 0);
    assert_int_equal(step_open(p, whole, n, cache, &memo, &b), 0);
    for (int v = -1; v < 2; v++) {
        assert_int_equal(step_run(&a, v < 0 ? NULL : &views[v], x, NULL, &s[0]), 0);
        assert_int_equal(step_run(&b, v < 0 ? NULL : &views[v], y, NULL, &s[1]), 0);
        assert_close(s[0], s[1], 1e-12);
        for (int i = 0; i < n; i++)
            same_line(&x[i], &y[i], s[1], text);
    }
    step_close(&a);
    step_close(&b);
    cost_cache_free(cache);
}

/* ---- all ---- */

struct seen { int folds[NPIPELINE], dialects[NDIALECT], shorter; };

static bool has_repeat(const struct schedules *s)
{
    for (int i = s->begin[SCHED_STEADY]; i < s->end[SCHED_STEADY]; i++)
        if (s->ops[i].kind == OP_REPEAT && s->ops[i + 1].step_by)
            return true;
    return false;
}

static void compare(const struct plan *p, const char *text, struct seen *seen)
{
    struct schedules folded[STAGES] = { { 0 } }, whole[STAGES] = { { 0 } };
    const struct schedules *of[2][STAGES];
    struct program g = { 0 };
    int n = (int)p->parallel.pipeline;
    bool folds = false;
    char why[300];

    assert_int_equal(program_build(p, &g), 0);
    for (int i = 0; i < n; i++) {
        struct memory_verdict m;
        assert_int_equal(evaluate_stage(p, &g, i, &folded[i], &m), 0);
        assert_true(folded[i].folds);
        assert_int_equal(lower_using(p, m.rank, &g, &whole[i]), 0);
        if (!schedules_check(&folded[i], why, sizeof why))
            fail_msg("%s\n%s", text, why);
        same_entries(&folded[i], &whole[i], text);
        same_memory(p, &m, &folded[i], &whole[i], text);
        folds |= has_repeat(&folded[i]);
        seen->shorter += folded[i].nops < whole[i].nops / 2;
        of[0][i] = &folded[i];
        of[1][i] = &whole[i];
    }
    seen->folds[p->parallel.pipeline_schedule] += folds;
    seen->dialects[p->dialect] += folds;
    same_times(p, of[0], of[1], n, text);
    for (int i = 0; i < n; i++) {
        schedules_free(&folded[i]);
        schedules_free(&whole[i]);
    }
    program_free(&g);
}

static void a_folded_pipeline_is_the_same(void **state)
{
    uint64_t rng = 20261128;
    struct seen seen = { 0 };

    (void)state;
    for (int i = 0, tries = 0; i < plans; tries++) {
        struct plan p;
        char text[1200];
        assert_true(tries < 100 * plans);
        if (!draw_plan(&rng, 1, &p, text, sizeof text))
            continue;
        if (p.kernels != KERNELS_DPX) {
            compare(&p, text, &seen);
            i++;
        }
        plan_free(&p);
    }
    for (int k = 0; k < NPIPELINE; k++)
        if (seen.folds[k] < plans / 100)
            fail_msg("%s folds %d times", pipeline_name((enum pipeline_kind)k), seen.folds[k]);
    assert_in_range(seen.dialects[DIALECT_TORCH], plans / 30, plans);
    assert_in_range(seen.dialects[DIALECT_MEGATRON], plans / 30, plans);
    assert_in_range(seen.dialects[DIALECT_DEEPSPEED], plans / 30, plans);
    assert_in_range(seen.shorter, plans / 4, STAGES * plans);
}

/* ---- iterations that come again ---- */

static int64_t made;

static int count_made(void *of, int64_t bytes, int stream)
{
    made++;
    return caching_allocator_malloc(of, bytes, stream);
}

/* What a walk tells and leaves, in numbers; how many requests it made. */
struct walked { struct request_report r; struct caching_stats stats; int64_t *state, n, made; };

static struct walked walk(const struct plan *p, const struct schedules *s, bool all)
{
    struct walked w = { 0 };
    struct caching_allocator *a = caching_allocator_new((int64_t)1 << 48, NULL);
    struct request_target t = reserved_target(a);

    t.allocate = count_made;
    t.serve = NULL;
    t.watch = NULL;                     /* to the end of the last step */
    if (all)
        t.state = NULL;
    struct request_options options = reserved_options(p);
    options.proven = true;
    made = 0;
    requests_walk(p, s, options, &t, &w.r);
    w.made = made;
    w.stats = *caching_allocator_stats(a);
    w.n = caching_allocator_state(a, NULL);
    w.state = calloc((size_t)(w.n > 0 ? w.n : 1), sizeof *w.state);
    caching_allocator_state(a, w.state);
    caching_allocator_delete(a);
    return w;
}

static bool is_same(const struct walked *x, const struct walked *y)
{
    return x->r.requests == y->r.requests && x->r.unmatched == y->r.unmatched && x->r.steady_retries == y->r.steady_retries &&
           x->r.steady_calls == y->r.steady_calls && x->r.op == y->r.op && x->r.iteration == y->r.iteration && !memcmp(&x->stats, &y->stats, sizeof x->stats) &&
           x->n == y->n && !memcmp(x->state, y->state, (size_t)x->n * sizeof *x->state);
}

/* Of every order: the same counters, peaks, and address of each block; on a device with room, so that none is asked for in what is
 * left out.  Some must have left out much. */
static void iterations_that_come_again_are_left_out(void **state)
{
    uint64_t rng = 20261129;
    int much = 0, n = plans / 2;

    (void)state;
    for (int i = 0, tries = 0; i < n; tries++) {
        struct plan p;
        struct program g = { 0 };
        char text[1200];
        assert_true(tries < 100 * plans);
        if (!draw_plan(&rng, 10, &p, text, sizeof text))
            continue;
        assert_int_equal(program_build(&p, &g), 0);
        for (int k = 0; k < 2 && p.kernels != KERNELS_DPX; k++) {
            struct schedules s = { 0 };
            struct memory_verdict m;
            int stage = (int)draw(&rng, (uint32_t)p.parallel.pipeline);
            assert_int_equal(evaluate_stage(&p, &g, stage, &s, &m), 0);
            struct walked x = walk(&p, &s, false), y = walk(&p, &s, true);
            if (!is_same(&x, &y))
                fail_msg("%s\nstage %d: peak %lld, walked %lld", text, stage, (long long)x.stats.reserved.peak, (long long)y.stats.reserved.peak);
            much += x.made < y.made / 2;
            free(x.state), free(y.state);
            schedules_free(&s);
        }
        i += p.kernels != KERNELS_DPX;
        program_free(&g);
        plan_free(&p);
    }
    assert_in_range(much, n / 10, 2 * n);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_folded_pipeline_is_the_same), cmocka_unit_test(iterations_that_come_again_are_left_out) };

    if (argc > 1)
        plans = atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
