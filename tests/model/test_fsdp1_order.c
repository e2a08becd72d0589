/* FSDP1: what is issued when, and what waits for what. */
#include "tests/model/happens_before.h"
#include "tests/model/plans.h"

static struct schedules s;

static void fsdp1(struct plan *p, const char *model, int64_t layers, int64_t world, enum dtype t,
                  enum fsdp1_sharding how)
{
    plan_of(p, model, layers, world, STRAT_FSDP, DIALECT_TORCH_FSDP1, t);
    p->fsdp.sharding_strategy = how;
}

static bool is_hybrid(enum fsdp1_sharding how)
{
    return how == FSDP1_HYBRID_SHARD || how == FSDP1_HYBRID_SHARD_ZERO2;
}

/* ---- soundness ---- */

static void sound(const struct plan *p, int64_t rank)
{
    struct hb h;

    lowered(p, rank, &s);
    hb_init(&h, &s);
    if (!hb_run(&h))
        fail_msg("strategy %d, %d layers, prefetch %d, accumulation %d: %s", (int)p->fsdp.sharding_strategy,
                 (int)p->model.layers, (int)p->fsdp.backward_prefetch, (int)p->accumulation, h.why);
    hb_free(&h);
}

static void all_options(struct plan *p)
{
    for (int i = 0; i < 5 * 3 * 16; i++)
        for (int m = 1; m <= 4; m++) {
            p->fsdp.sharding_strategy = (enum fsdp1_sharding)(i % 5);
            p->fsdp.backward_prefetch = (enum prefetch)(i / 5 % 3);
            p->fsdp.forward_prefetch = i / 15 % 2;
            p->fsdp.limit_all_gathers = i / 30 % 2;
            p->fsdp.use_orig_params = i / 60 % 2;
            p->sync_every_micro_step = i / 120;
            p->accumulation = m;
            p->shard_group = is_hybrid(p->fsdp.sharding_strategy) ? 3 : 6;
            sound(p, i % 6);
        }
}

static void schedules_are_sound_whatever_the_options(void **state)
{
    static const int64_t layers[] = { 1, 2, 3, 4, 5, 9, 12 };
    struct plan p;

    (void)state;
    for (int l = 0; l < 7; l++) {
        fsdp1(&p, "gpt2", layers[l], 6, l % 2 ? DT_BF16 : DT_FP32, FSDP1_FULL_SHARD);
        p.reduce_dtype = l % 3 ? DT_FP32 : DT_BF16;
        if (l == 5) {
            p.recompute = RECOMPUTE_FULL;
            p.recompute_interval = 3;
        }
        all_options(&p);
        plan_free(&p);
    }
    fsdp1(&p, "gpt2", 3, 6, DT_BF16, FSDP1_FULL_SHARD);
    p.unit = UNIT_MODEL;
    all_options(&p);
    plan_free(&p);
}

/* ---- the rate limiter ---- */

/* Frees ("+f3": after forward of the third block) and what the issuing thread waits
 * for, in order; an event means its latest recorder. */
struct trace {
    char text[4096], owner[32][8];
    char freed[256][8], awaited[256][8];
    int  nfreed, nawaited;
};

static int trace_op(const struct schedules *sc, const struct op *o, int64_t iteration, void *arg)
{
    struct trace *t = arg;
    char name[8];
    size_t end = strlen(t->text);

    (void)sc;
    if (o->kind == OP_WAIT && o->wait[0]) {
        memcpy(name, t->owner[o->wait[0]], sizeof name);
        snprintf(t->text + end, sizeof t->text - end, "%s ", name);
        memcpy(t->awaited[t->nawaited++], name, sizeof name);
    } else if (o->record && !strcmp(o->what, "reshard")) {
        int unit = (int)(o->unit + o->unit_by * iteration) + 1;
        if (!strcmp(o->of, "root"))
            snprintf(name, sizeof name, "br");
        else
            snprintf(name, sizeof name, "%c%d", o->phase == PHASE_FORWARD ? 'f' : 'b', unit % 1000);
        memcpy(t->owner[o->record], name, sizeof name);
        snprintf(t->text + end, sizeof t->text - end, "+%s ", name);
        memcpy(t->freed[t->nfreed++], name, sizeof name);
    }
    return 0;
}

static void trace(enum sched_id id, struct trace *t)
{
    t->text[0] = '\0';
    t->nfreed = t->nawaited = 0;
    sched_walk(&s, id, trace_op, t);
}

/* Recorded from PyTorch 2.15 with seven blocks: _FreeEventQueue's enqueue() and
 * dequeue_if_needed(), steps 1 and 3. */
static void the_rate_limiter_waits_for_what_pytorch_waits_for(void **state)
{
    static const char *const first =
        "+f1 +f2 f1 +f3 f2 +f4 f3 +f5 f4 +f6 f5 +f7 f6 "
        "+b7 f7 +b6 b7 +b5 b6 +b4 b5 +b3 b4 +b2 +b1 +br ";
    static const char *const steady =
        "b3 b2 +f1 b1 +f2 br +f3 f1 +f4 f2 +f5 f3 +f6 f4 +f7 f5 f6 "
        "+b7 f7 +b6 b7 +b5 b6 +b4 b5 +b3 b4 +b2 +b1 +br ";
    static const char *const forward_prefetch =
        "b4 b3 b2 +f1 b1 +f2 br +f3 f1 +f4 f2 +f5 f3 +f6 +f7 f4 f5 f6 "
        "+b7 f7 +b6 b7 +b5 b6 +b4 b5 +b3 +b2 +b1 +br ";
    static const char *const grad_op =
        "b3 b2 b1 +b7 br +b6 b7 +b5 b6 +b4 b5 +b3 b4 +b2 +b1 +br ";
    struct trace t = { .nfreed = 0 };
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 7, 2, DT_FP32, FSDP1_FULL_SHARD);
    lowered(&p, 0, &s);
    trace(SCHED_FIRST, &t);
    assert_string_equal(t.text, first);
    trace(SCHED_STEADY, &t);
    assert_string_equal(t.text, steady);
    p.fsdp.forward_prefetch = true;
    lowered(&p, 0, &s);
    trace(SCHED_FIRST, &t);
    assert_string_equal(t.text, first);
    trace(SCHED_STEADY, &t);
    trace(SCHED_STEADY, &t);
    assert_string_equal(t.text, forward_prefetch);
    p.fsdp.forward_prefetch = false;
    p.fsdp.sharding_strategy = FSDP1_SHARD_GRAD_OP;
    lowered(&p, 0, &s);
    trace(SCHED_FIRST, &t);
    trace(SCHED_STEADY, &t);
    assert_string_equal(t.text, grad_op);
    p.fsdp.limit_all_gathers = false;
    lowered(&p, 0, &s);
    trace(SCHED_STEADY, &t);
    assert_string_equal(t.text, "");
    plan_free(&p);
}

/* Once settled, a step awaits all that it freed, each once, oldest first: folded
 * into repeats or not. */
static void every_free_is_awaited_once_and_in_order(void **state)
{
    struct plan p;

    (void)state;
    for (int i = 0; i < 3 * 2 * 2 * 31; i++) {
        struct trace t = { .nfreed = 0 };
        int shift = 0;
        fsdp1(&p, "gpt2", 1 + i % 31, 2, DT_BF16, i / 31 % 2 ? FSDP1_FULL_SHARD : FSDP1_SHARD_GRAD_OP);
        p.fsdp.backward_prefetch = (enum prefetch)(i / 62 % 3);
        p.fsdp.forward_prefetch = i / 186;
        lowered(&p, 0, &s);
        trace(SCHED_FIRST, &t);
        trace(SCHED_STEADY, &t);
        trace(SCHED_STEADY, &t);
        assert_int_equal(t.nfreed, t.nawaited);
        while (shift < t.nfreed && strcmp(t.awaited[shift], t.freed[0]))
            shift++;
        for (int k = 0; k < t.nfreed; k++)
            assert_string_equal(t.awaited[(k + shift) % t.nfreed], t.freed[k]);
        plan_free(&p);
    }
}

/* Units gathered besides the root: in issue order, and if what was freed is only
 * done once the issuing thread has waited for it. */
struct crowd { int live, held, most_live, most_held, freed[32]; };

static int crowd_op(const struct schedules *sc, const struct op *o, int64_t iteration, void *arg)
{
    struct crowd *c = arg;

    (void)iteration;
    if (o->kind == OP_WAIT) {
        c->held -= o->wait[0] ? c->freed[o->wait[0]] : 0;
        c->freed[o->wait[0]] = 0;
        if (!o->wait[0])            /* read the loss */
            c->held = 0;
    }
    if (!o->of || strcmp(o->of, "unit"))
        return 0;
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        if (sc->bufs[sc->acts[k].buf].category != CAT_UNSHARDED)
            continue;
        if (sc->acts[k].what & ACT_ALLOC)
            c->live++;
        if (c->live > c->most_live)
            c->most_live = c->live;
        if (c->live + c->held > c->most_held)
            c->most_held = c->live + c->held;
        if (sc->acts[k].what & ACT_FREE) {
            c->live--;
            c->held++;
            c->freed[o->record] = 1;
        }
    }
    return 0;
}

static struct crowd crowd(const struct plan *p, enum sched_id id)
{
    struct crowd c = { 0 };

    lowered(p, 0, &s);
    sched_walk(&s, id, crowd_op, &c);
    return c;
}

static void few_units_are_gathered_at_once(void **state)
{
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 24, 4, DT_BF16, FSDP1_FULL_SHARD);
    assert_int_equal(crowd(&p, SCHED_FIRST).most_live, 2);
    assert_int_equal(crowd(&p, SCHED_STEADY).most_live, 2);
    /* One computes, one is gathered; the queue lets a third one be unfinished. */
    assert_int_equal(crowd(&p, SCHED_STEADY).most_held, 3);
    p.fsdp.backward_prefetch = PREFETCH_NONE;
    assert_int_equal(crowd(&p, SCHED_STEADY).most_live, 1);
    assert_int_equal(crowd(&p, SCHED_STEADY).most_held, 2);
    p.fsdp.backward_prefetch = PREFETCH_PRE;
    p.fsdp.forward_prefetch = true;             /* see views_early in lower_fsdp1.c */
    assert_int_equal(crowd(&p, SCHED_FIRST).most_live, 2);
    assert_int_equal(crowd(&p, SCHED_STEADY).most_live, 3);
    p.fsdp.forward_prefetch = false;
    p.fsdp.limit_all_gathers = false;           /* the issuing thread runs through the whole step */
    assert_int_equal(crowd(&p, SCHED_STEADY).most_held, 2 * 24);
    plan_free(&p);
}

/* ---- order ---- */

struct order { char text[512]; };

/* "G3": gather of block 3; "B3": its backward; "R3": its reduce-scatter. */
static int order_op(const struct schedules *sc, const struct op *o, int64_t iteration, void *arg)
{
    struct order *t = arg;
    size_t end = strlen(t->text);
    int i = (int)(o->unit + o->unit_by * iteration) + 1;
    char what = 0;

    (void)sc;
    if (o->kind == OP_COLL && o->u.coll.op == COLL_ALL_GATHER)
        what = 'G';
    else if (o->kind == OP_COLL && o->u.coll.op == COLL_REDUCE_SCATTER)
        what = 'R';
    else if (o->kind == OP_COMPUTE)
        what = o->u.compute.pass == PASS_FORWARD ? 'F' : 'B';
    if (what && (!strcmp(o->of, "unit") || !strcmp(o->of, "block")))
        snprintf(t->text + end, sizeof t->text - end, "%c%d ", what, i);
    return 0;
}

static void issues(const struct plan *p, const char *want)
{
    struct order t = { .text = "" };

    lowered(p, 0, &s);
    sched_walk(&s, SCHED_STEADY, order_op, &t);
    assert_string_equal(t.text, want);
}

static void prefetches_come_where_the_framework_issues_them(void **state)
{
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 3, 2, DT_FP32, FSDP1_FULL_SHARD);
    issues(&p, "G1 F1 G2 F2 G3 F3 G3 G2 B3 R3 G1 B2 R2 B1 R1 ");
    p.fsdp.backward_prefetch = PREFETCH_POST;
    issues(&p, "G1 F1 G2 F2 G3 F3 G3 B3 G2 R3 B2 G1 R2 B1 R1 ");
    p.fsdp.backward_prefetch = PREFETCH_NONE;
    issues(&p, "G1 F1 G2 F2 G3 F3 G3 B3 R3 G2 B2 R2 G1 B1 R1 ");
    p.fsdp.forward_prefetch = true;
    issues(&p, "G1 G2 F1 G3 F2 F3 G3 B3 G2 B2 R3 G1 B1 R2 R1 ");
    p.fsdp.backward_prefetch = PREFETCH_PRE;
    issues(&p, "G1 G2 F1 G3 F2 F3 G3 G2 B3 G1 B2 R3 B1 R2 R1 ");
    p.fsdp.sharding_strategy = FSDP1_SHARD_GRAD_OP;
    issues(&p, "G1 G2 F1 G3 F2 F3 B3 B2 R3 B1 R2 R1 ");
    plan_free(&p);
}

static int count_what(const struct schedules *sc, const struct op *o, int64_t iteration, void *arg)
{
    struct { const char *what; int stream, n; } *c = arg;

    (void)sc;
    (void)iteration;
    c->n += !strcmp(o->what, c->what) && (c->stream < 0 || o->stream == c->stream);
    return 0;
}

static int entries(const char *what, int stream)
{
    struct { const char *what; int stream, n; } c = { what, stream, 0 };

    sched_walk(&s, SCHED_STEADY, count_what, &c);
    return c.n;
}

/* 8 = 4 * 2, so both divisions are there; 2 = 2 * 1. */
static void gradients_are_divided_before_and_after(void **state)
{
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 3, 8, DT_FP32, FSDP1_FULL_SHARD);
    lowered(&p, 0, &s);
    assert_int_equal(entries("divide grads", STREAM_REDUCE), 2 * 4);
    plan_move(&p, 2);
    lowered(&p, 0, &s);
    assert_int_equal(entries("divide grads", STREAM_REDUCE), 4);
    plan_free(&p);
}

static void hybrid_sharding_has_a_stream_of_its_own_since_2_1(void **state)
{
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 3, 8, DT_FP32, FSDP1_HYBRID_SHARD);
    p.shard_group = 4;
    lowered(&p, 0, &s);
    assert_int_equal(entries("all_reduce", STREAM_ALL_REDUCE), 4);
    assert_int_equal(sched_group_ranks(&s, GROUP_SHARD), 4);
    assert_int_equal(sched_group_ranks(&s, GROUP_REPLICA), 2);
    snprintf(p.framework_version, sizeof p.framework_version, "2.0");
    lowered(&p, 0, &s);
    assert_int_equal(entries("all_reduce", STREAM_REDUCE), 4);
    plan_free(&p);
}

/* use_orig_params pads to whole chunks at the start, so that nothing is copied later. */
static void a_gradient_is_padded_only_where_it_does_not_divide(void **state)
{
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 3, 7, DT_FP32, FSDP1_FULL_SHARD);
    lowered(&p, 0, &s);
    assert_int_equal(entries("pad grads", STREAM_REDUCE), 4);
    p.fsdp.use_orig_params = true;
    lowered(&p, 0, &s);
    assert_int_equal(entries("pad grads", STREAM_REDUCE), 0);
    plan_move(&p, 8);
    p.fsdp.use_orig_params = false;
    lowered(&p, 0, &s);
    assert_int_equal(entries("pad grads", STREAM_REDUCE), 0);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_are_sound_whatever_the_options),
        cmocka_unit_test(the_rate_limiter_waits_for_what_pytorch_waits_for),
        cmocka_unit_test(every_free_is_awaited_once_and_in_order),
        cmocka_unit_test(few_units_are_gathered_at_once),
        cmocka_unit_test(prefetches_come_where_the_framework_issues_them),
        cmocka_unit_test(gradients_are_divided_before_and_after),
        cmocka_unit_test(hybrid_sharding_has_a_stream_of_its_own_since_2_1),
        cmocka_unit_test(a_gradient_is_padded_only_where_it_does_not_divide),
    };
    int failed = cmocka_run_group_tests_name("model/fsdp1_order", tests, NULL, NULL);

    schedules_free(&s);
    return failed;
}
