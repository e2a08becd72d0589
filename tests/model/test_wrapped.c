/* FSDP1 where each matrix of an adapter is a unit (fsdp.wrap_adapters): the memory that was recorded by tests/golden/tune/record_wrapped.py, the
 * order of entries, and what is refused.  Its lists of collectives are in test_collectives.c. */
#include "tests/model/recorded_steps.h"

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/plan/attention.h"
#include "tests/model/plans.h"

#define GOLDEN "tests/golden/tune/wrapped.jsonl"

/* As device_agrees(), but for what an attention kernel takes within its call, which no tracker sees. */
static void check_peak(const struct step *s)
{
    int64_t over = s->ledger.phase[SCHED_STEADY].bytes - json_integer_value(json_object_get(json_object_get(s->line, "steady"), "peak_total"));
    char why[256];

    if (!(over > 0 && over <= attention_scratch(&s->plan)))
        device_agrees(s);
    if (!schedules_check(&s->schedules, why, sizeof why))
        fail_msg("%s: %s", s->name, why);
}

static void peaks_agree(void **state)
{
    (void)state;
    assert_true(each_line(GOLDEN, check_peak) >= 9);
}

/* GPT-2's first five blocks with adapters on these layers, on four ranks. */
static void adapted(struct plan *p, const char *targets)
{
    plan_of(p, "gpt2", 5, 4, STRAT_FSDP, DIALECT_TORCH_FSDP1, DT_FP32);
    p->train = training_default();
    strcpy(p->train.what, "lora");
    strcpy(p->train.target_modules, targets);
    assert_int_equal(training_apply(&p->model, &p->train, "test"), 0);
    p->fsdp.wrap_adapters = true;
}

static struct schedules s;

struct calls { int gathers, scatters; int64_t gathered, scattered; };

static int count(const struct schedules *of, const struct op *o, int64_t iteration, void *arg)
{
    struct calls *c = arg;

    (void)of, (void)iteration;
    if (o->kind == OP_COLL && o->u.coll.op == COLL_ALL_GATHER) {
        c->gathers++;
        c->gathered += o->u.coll.elems;
    }
    if (o->kind == OP_COLL && o->u.coll.op == COLL_REDUCE_SCATTER) {
        c->scatters++;
        c->scattered += o->u.coll.elems;
    }
    return 0;
}

/* Of GPT-2's blocks with r = 8 beside c_attn: A has 8 x 768 elements, B 2304 x 8, both of which 4 ranks share evenly; the rest of a block 7,087,872,
 * the root 39,385,344, gathered once.  Blocks and adapters are gathered twice, adapters' gradients are reduced. */
static void adapters_are_gathered_twice_and_reduced_by_themselves(void **state)
{
    const int64_t block = 7087872, root = 39385344, a = 8 * 768, b = 2304 * 8;
    struct calls c = { 0 };
    struct plan p;

    (void)state;
    adapted(&p, "c_attn");
    lowered(&p, 0, &s);
    sched_walk(&s, SCHED_STEADY, count, &c);
    assert_int_equal(c.gathers, 1 + 2 * 5 * 3);
    assert_int_equal(c.gathered, root + 2 * 5 * (block + a + b));
    assert_int_equal(c.scatters, 5 * 2);
    assert_int_equal(c.scattered, 5 * (a + b));
    plan_free(&p);
}

/* What has no recorded list: every prefetch, recomputed or not, units freed behind forward or not, over two micro-batches. */
static void every_order_gathers_what_it_reads(void **state)
{
    const enum prefetch when[] = { PREFETCH_PRE, PREFETCH_POST, PREFETCH_NONE };
    char why[256];
    struct plan p;

    (void)state;
    for (int i = 0; i < 3 * 2 * 2 * 2; i++) {
        adapted(&p, i & 4 ? "c_attn" : "all-linear");
        p.accumulation = 2;
        p.recompute = i & 1 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
        if (i & 2)
            p.fsdp.sharding_strategy = FSDP1_SHARD_GRAD_OP;
        p.fsdp.backward_prefetch = when[i / 8];
        lowered(&p, 0, &s);
        if (!schedules_check(&s, why, sizeof why))
            fail_msg("order %d: %s", i, why);
        plan_free(&p);
    }
}

/* Parameters: a quarter of each unit, 4 bytes an element, in blocks of 512 bytes.  AdamW's states: of adapters alone. */
static void frozen_units_have_no_states(void **state)
{
    const int64_t block = 7087872, root = 39385344, a = 8 * 768, b = 2304 * 8;
    struct ledger l;
    struct plan p;

    (void)state;
    adapted(&p, "c_attn");
    lowered(&p, 0, &s);
    ledger_run(&s, &l);
    assert_int_equal(l.persistent[CAT_PARAMS], round512(root) + 5 * (round512(block) + a + b));
    assert_int_equal(l.persistent[CAT_OPTIMIZER], 2 * 4 * 5 * (a + b) / 4);
    plan_free(&p);
}

static void refused(struct plan *p, const char *words)
{
    char why[512];

    fail_capture(why, sizeof why);
    assert_int_equal(plan_check(p, "test"), -1);
    fail_capture(NULL, 0);
    if (!strstr(why, "wrap_adapters") || !strstr(why, words))
        fail_msg("no \"%s\" in: %s", words, why);
}

static void what_is_not_modelled_is_refused_by_name(void **state)
{
    struct plan p;

    (void)state;
    adapted(&p, "c_attn");
    assert_int_equal(plan_check(&p, "test"), 0);
    p.fsdp.forward_prefetch = true;
    refused(&p, "need fsdp.forward_prefetch false");
    p.fsdp.forward_prefetch = false;
    p.unit = UNIT_MODEL;
    refused(&p, "need unit block");
    p.unit = UNIT_BLOCK;
    p.fsdp.wrap_adapters = p.fsdp.use_orig_params = false;
    refused(&p, "use_orig_params");         /* either of both */
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_agree),
        cmocka_unit_test(adapters_are_gathered_twice_and_reduced_by_themselves),
        cmocka_unit_test(every_order_gathers_what_it_reads),
        cmocka_unit_test(frozen_units_have_no_states),
        cmocka_unit_test(what_is_not_modelled_is_refused_by_name),
    };
    int rc = cmocka_run_group_tests_name("model/wrapped adapters", tests, NULL, NULL);

    schedules_free(&s);
    return rc;
}
