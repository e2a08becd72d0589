/* Megatron-LM's defer_embedding_wgrad_compute: the output layer's weight gradients behind the last backward. */
#include "tests/model/plans.h"

#include "model/lower/lower.h"
#include "model/plan/knob.h"
#include "model/plan/megatron_model.h"

/* Llama-3.1 8B of 4 blocks on `world` ranks, in a pipeline of two stages. */
static void of(struct plan *p, int64_t world, int64_t tensor, int64_t chunks, int64_t steps)
{
    plan_of(p, "llama-3.1-8b", 4, world, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    p->kernels = KERNELS_TE;
    p->parallel.tensor = tensor;
    p->parallel.pipeline = 2;
    p->parallel.pipeline_schedule = chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
    p->parallel.virtual_stages = chunks;
    p->accumulation = steps;
    knob_follow(p, NULL, NULL);
    p->parallel.virtual_stages = chunks;
    p->dropout = 0;
    plan_resolve(p);
}

struct acts { char does[64]; int n; int64_t flops; };

/* F a forward of the head, B a backward, P the product of its weight's gradient. */
static int act_of(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct acts *a = arg;
    enum piece_id piece = o->kind == OP_COMPUTE ? (enum piece_id)o->u.compute.piece : NPIECE;
    const struct piece *p = &s->program.piece[piece < NPIECE ? piece : 0];

    (void)iteration;
    for (int k = o->u.compute.k0; piece < NPIECE && k < o->u.compute.k1; k++) {
        const struct kernel *kernel = &p->kernels[o->u.compute.pass][k];
        bool head = piece == PIECE_HEAD || piece == PIECE_HEAD_SPLIT;
        a->flops += (int64_t)kernel->flops;
        assert_true(a->n + 2 < (int)sizeof a->does);
        if (head && k == 0)
            a->does[a->n++] = o->u.compute.pass == PASS_FORWARD ? 'F' : 'B';
        if (head && !strcmp(kernel->name, "logits dW"))
            a->does[a->n++] = 'P';
    }
    return 0;
}

static struct acts acts_of(const struct plan *p, struct schedules *s)
{
    struct acts a = { 0 };

    lowered(p, p->cluster.world_size - 1, s);
    sched_walk(s, SCHED_STEADY, act_of, &a);
    return a;
}

static int64_t held(const struct schedules *s)
{
    int64_t sum = 0;

    for (int i = 0; i < s->nbufs; i++)
        sum += strcmp(s->bufs[i].what, "deferred operands of the head") ? 0 : s->bufs[i].bytes * s->bufs[i].count;
    return sum;
}

/* The order of the last stage's products, and the bytes that wait for them, are those of megatron-core (record_deferred.py); nothing is computed
 * twice, or left out. */
static void deferred_products_come_when_megatrons_do(void **state)
{
    FILE *in = fopen("tests/golden/megatron/deferred.jsonl", "r");
    char line[2048];
    int seen = 0;

    (void)state;
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) {
        struct schedules s = { 0 };
        struct plan p;
        json_t *j = json_loads(line, 0, NULL);
        assert_non_null(j);
        assert_int_equal(plan_from_json(json_object_get(j, "plan"), "deferred", &p), 0);
        struct acts late = acts_of(&p, &s);
        assert_string_equal(late.does, json_string_value(json_object_get(j, "does")));
        assert_int_equal(held(&s), json_integer_value(json_object_get(j, "waits")));
        json_decref(j);
        p.megatron.defer_embedding_wgrad_compute = false;
        p.megatron.wgrad_deferral_limit = 0;
        struct acts usual = acts_of(&p, &s);
        assert_int_equal(late.flops, usual.flops);
        assert_int_equal(held(&s), 0);
        schedules_free(&s);
        plan_free(&p);
        seen++;
    }
    fclose(in);
    assert_int_equal(seen, 4);
}

/* Llama-3.1 8B's head on two tensor-parallel ranks: 64128 + 384 rows of 4096, of 512 tokens in bf16.  The fullest moment is the last head's backward: then
 * those before it wait, all of them or the first two.  Adam's states are small beside: of 16 ranks. */
static void what_is_deferred_waits_in_memory(void **state)
{
    const int64_t each = 2 * 512 * (4096 + megatron_vocab(128256, 128, 2) / 2);
    int64_t usual = 0;

    (void)state;
    for (int64_t limit = -1; limit <= 2; limit++) {
        struct memory_verdict m;
        struct schedules s = { 0 };
        struct plan p;
        if (limit == 1)
            continue;
        of(&p, 64, 2, 1, 6);
        p.seq = 512;
        p.megatron.defer_embedding_wgrad_compute = limit >= 0;
        p.megatron.wgrad_deferral_limit = limit > 0 ? limit : 0;
        assert_int_equal(plan_check(&p, "plan"), 0);
        struct program g = { 0 };
        assert_int_equal(program_build(&p, &g), 0);
        assert_int_equal(evaluate_stage(&p, &g, 1, &s, &m), 0);
        if (limit < 0)
            usual = m.kind[0].peak;
        else
            assert_int_equal(m.kind[0].peak - usual, (limit ? limit : 5) * each);
        schedules_free(&s);
        program_free(&g);
        plan_free(&p);
    }
}

static void what_deferral_is_not_planned_with(void **state)
{
    struct plan p;

    (void)state;
    for (int k = 0; k < 5; k++) {
        of(&p, 8, k == 1 ? 2 : 1, k == 2 ? 2 : 1, 4);
        p.kernels = k == 0 ? KERNELS_MEGATRON_LOCAL : KERNELS_TE;
        p.parallel.sequence = k == 1;
        p.megatron.defer_embedding_wgrad_compute = true;
        p.megatron.wgrad_deferral_limit = k == 3;
        p.megatron.overlap_grad_reduce = k == 4;
        plan_refused(&p, k == 0 ? "megatron-local, whose layers fail" : k == 1 ? "parallel.sequence" : k == 2 ? "interleaved" : k == 3 ? "one micro-step" :
                "overlap_grad_reduce");
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deferred_products_come_when_megatrons_do),
        cmocka_unit_test(what_is_deferred_waits_in_memory),
        cmocka_unit_test(what_deferral_is_not_planned_with),
    };
    return cmocka_run_group_tests_name("model/megatron_deferred", tests, NULL, NULL);
}
