/* DeepSpeed's Muon under stages 1 and 2: who keeps which matrices, counted by hand; what muon_update() takes, as recorded. */
#include "tests/model/zero.h"

#include "model/framework/deepspeed_012/lower_zero12.h"
#include "model/lower/lower.h"
#include "model/plan/optimizer_choice.h"

#define GOLDEN "tests/golden/tune/muon_update.jsonl"

static void muon_of(struct plan *p, const char *model, int64_t n, enum strategy st, enum dtype t)
{
    deepspeed(p, model, 2, n, st, t);
    p->optimizer = OPTIMIZER_MUON;
    strcpy(p->framework_version, "0.19.8");
    plan_resolve(p);
}

/* The rule of DeepSpeed's set_optimizer_flags(): a matrix, and neither embed nor lm_head in its name. */
static bool is_matrix(const struct tensor *t)
{
    return t->ndim > 1 && !strstr(t->name, "embed") && !strstr(t->name, "lm_head");
}

/* Python's order of shapes, which are tuples. */
static bool before(const struct tensor *a, const struct tensor *b)
{
    return a->shape[0] != b->shape[0] ? a->shape[0] > b->shape[0] : a->shape[1] > b->shape[1];
}

/* Those of a half in the optimizer's order: matrices by shape, larger first, equal ones as they were.  How many. */
static int in_order(const struct model *m, bool matrices, const struct tensor **out)
{
    int n = 0;

    for (int i = 0; i < m->ntensors; i++)
        if (is_matrix(&m->tensors[i]) == matrices)
            out[n++] = &m->tensors[i];
    for (int pass = 0; pass < n && matrices; pass++)
        for (int i = 0; i + 1 < n; i++)
            if (before(out[i + 1], out[i])) {
                const struct tensor *t = out[i];
                out[i] = out[i + 1];
                out[i + 1] = t;
            }
    return n;
}

/* Elements of a half of the parameters, A of it on a rank, and of whole tensors of it that touch rank r's. */
static int64_t half(const struct model *m, bool matrices, int64_t n, int64_t r, int64_t *whole)
{
    const struct tensor *t[256];
    int64_t all = 0, at = 0, part;
    int k = in_order(m, matrices, t);

    for (int i = 0; i < k; i++)
        all += t[i]->numel;
    part = up(all, 2 * n) / n;
    *whole = 0;
    for (int i = 0; i < k; at += t[i++]->numel)
        *whole += at < (r + 1) * part && at + t[i]->numel > r * part ? t[i]->numel : 0;
    return part;
}

static int64_t all_named(const char *what)
{
    int64_t sum = 0;

    for (int i = 0; i < s.nbufs; i++)
        sum += !strcmp(s.bufs[i].what, what) ? s.bufs[i].bytes : 0;
    return sum;
}

static void check_states(const struct plan *p, int64_t rank)
{
    int64_t e = p->precision == DT_FP32 ? 4 : 2, n = p->cluster.world_size, whole, none;
    int64_t matrices = half(&p->model, true, n, rank, &whole), rest = half(&p->model, false, n, rank, &none);

    assert_int_equal(lower(p, rank, &s), 0);
    assert_int_equal(named("momentum of whole matrices")->bytes, r512(whole * e));
    assert_int_equal(named("momentum of the step")->bytes, r512(whole * e));
    assert_int_equal(all_named("fp32 partition"), r512(matrices * 4) + r512(rest * 4));
    assert_int_equal(all_named("exp_avg, exp_avg_sq"), 2 * r512(rest * 4));
    schedules_free(&s);
    memset(&s, 0, sizeof s);
}

/* Momentum is that of whole matrices, of the gradients' dtype, twice; Adam's states are of the rest alone. */
static void states_are_those_of_whole_matrices(void **state)
{
    static const enum dtype dtypes[] = { DT_FP32, DT_BF16, DT_FP16 };

    (void)state;
    for (int m = 0; m < NMODELS; m++)
        for (int64_t n = 1; n <= 3; n++)
            for (int i = 0; i < 3; i++) {
                struct plan p;
                muon_of(&p, models[m], n, i % 2 ? STRAT_ZERO1 : STRAT_ZERO2, dtypes[i]);
                for (int64_t r = 0; r < n; r++)
                    check_states(&p, r);
                plan_free(&p);
            }
}

/* 3 Psi on the wire as with Adam: nothing more is sent, but a second norm, of 4 bytes. */
static int add_sent(const struct schedules *of, const struct op *o, int64_t iteration, void *arg)
{
    (void)of, (void)iteration;
    if (o->kind == OP_COLL && o->u.coll.elems > 1)
        *(int64_t *)arg += o->u.coll.elems * (o->u.coll.op == COLL_ALL_REDUCE ? 2 : 1);
    return 0;
}

static void nothing_more_is_sent(void **state)
{
    (void)state;
    for (int m = 0; m < NMODELS; m++) {
        int64_t with = 0, without = 0;
        struct plan p;
        muon_of(&p, models[m], 2, STRAT_ZERO2, DT_BF16);
        assert_int_equal(lower(&p, 0, &s), 0);
        sched_walk(&s, SCHED_STEADY, add_sent, &with);
        schedules_free(&s);
        memset(&s, 0, sizeof s);
        p.optimizer = OPTIMIZER_ADAMW;
        assert_int_equal(lower(&p, 0, &s), 0);
        sched_walk(&s, SCHED_STEADY, add_sent, &without);
        schedules_free(&s);
        memset(&s, 0, sizeof s);
        assert_true(with >= without && with - without <= 4);    /* each half is padded to a multiple of 2 N */
        plan_free(&p);
    }
}

static void an_update_takes_what_deepspeeds_takes(void **state)
{
    FILE *f = fopen(GOLDEN, "r");
    json_t *head = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL), *c;
    int cases = 0;

    (void)state;
    assert_string_equal(json_string_value(json_object_get(head, "deepspeed")), "0.19.8");
    for (; (c = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); cases++) {
        const json_t *shape = json_object_get(c, "shape");
        struct tensor t = { .ndim = 2, .shape = { json_integer_value(json_array_get(shape, 0)), json_integer_value(json_array_get(shape, 1)) } };
        const char *name = json_string_value(json_object_get(c, "dtype"));
        enum dtype dt = !strcmp(name, "fp32") ? DT_FP32 : !strcmp(name, "fp16") ? DT_FP16 : DT_BF16;
        t.numel = t.shape[0] * t.shape[1];
        int64_t got = z12_muon_temporaries(&t, dt) + r512(t.numel * dtype_bytes(dt)), want = json_integer_value(json_object_get(c, "bytes"));
        if (got != want)
            fail_msg("%lld x %lld in %s: %lld bytes, DeepSpeed's takes %lld", (long long)t.shape[0], (long long)t.shape[1], name,
                     (long long)got, (long long)want);
        assert_true(z12_muon_flops(&t) == (double)json_integer_value(json_object_get(c, "flops")));
        json_decref(c);
    }
    assert_true(cases >= 24);
    json_decref(head);
    fclose(f);
}

/* ---- refusals ---- */

static void old_version(struct plan *p)      { p->framework_version[0] = '\0'; }
static void on_the_host(struct plan *p)      { p->ds.offload_optimizer.device = OFFLOAD_CPU; }
static void wide_sums(struct plan *p)        { p->ds.grad_accum_fp32 = true; }
static void by_owner(struct plan *p)         { p->ds.use_multi_rank_bucket_allreduce = false; }
static void by_rows(struct plan *p)          { p->optimizer = OPTIMIZER_ADAFACTOR; }
static void beside_others(struct plan *p)    { p->parallel.tensor = 2; }

static void what_is_not_modelled_is_refused_by_name(void **state)
{
    static const struct { enum strategy st; void (*set)(struct plan *p); const char *says; } cases[] = {
        { STRAT_ZERO2, beside_others, "tensor" },
        { STRAT_ZERO2, old_version, "0.19.8" },
        { STRAT_ZERO2, on_the_host, "offload_optimizer" },
        { STRAT_ZERO2, wide_sums, "grad_accum_dtype" },
        { STRAT_ZERO1, by_owner, "use_multi_rank_bucket_allreduce" },
        { STRAT_ZERO1, by_rows, "adamw, muon, bitsandbytes' and torchao's of 8 and 4 bits so far, not with adafactor" },
    };
    char why[512];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p;
        muon_of(&p, "gpt2", 2, cases[i].st, DT_BF16);
        cases[i].set(&p);
        fail_capture(why, sizeof why);
        int rc = plan_check(&p, "plan");
        fail_capture(NULL, 0);
        if (rc == 0 || !strstr(why, cases[i].says))
            fail_msg("case %zu: %s", i, rc == 0 ? "is taken" : why);
        plan_free(&p);
    }
}

/* A question's choice is taken by cells that have it, with DeepSpeed's version that has it; others say why not. */
static void a_choice_is_taken_or_refused(void **state)
{
    static const struct { enum strategy st; int optimizer, form; const char *says; } cases[] = {
        { STRAT_ZERO1, OPTIMIZER_MUON, -1, NULL },
        { STRAT_ZERO2, OPTIMIZER_MUON, -1, NULL },
        { STRAT_ZERO2, OPTIMIZER_ADAMW, -1, NULL },
        { STRAT_ZERO3, OPTIMIZER_ADAMW, -1, NULL },
        { STRAT_ZERO3, OPTIMIZER_MUON, -1, "\"Muon and reduce scatter cannot be used together\"" },
        { STRAT_DDP, OPTIMIZER_MUON, -1, "DeepSpeed's own (zero1, zero2;" },
        { STRAT_DDP, OPTIMIZER_SGD, -1, "planned with adamw alone so far, not with sgd" },
        { STRAT_ZERO1, OPTIMIZER_ADAMW, OPTIMIZER_LOOP, NULL },
        { STRAT_ZERO1, OPTIMIZER_MUON, OPTIMIZER_LOOP, "optimizer_form" },
        { STRAT_DDP, OPTIMIZER_ADAMW, OPTIMIZER_FOREACH, "FP16_UnfusedOptimizer" },
    };
    char why[512];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct optimizer_choice c = { cases[i].optimizer, cases[i].form };
        struct plan p;
        deepspeed(&p, "gpt2", 2, 2, cases[i].st, DT_BF16);
        fail_capture(why, sizeof why);
        int rc = optimizer_choose(&p, &c, "plan") < 0 || plan_check(&p, "plan") < 0 ? -1 : 0;
        fail_capture(NULL, 0);
        if ((rc == 0) != !cases[i].says || (rc < 0 && !strstr(why, cases[i].says)))
            fail_msg("case %zu: %s", i, rc == 0 ? "is taken" : why);
        assert_true(rc < 0 || (int)p.optimizer == cases[i].optimizer);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_those_of_whole_matrices),
        cmocka_unit_test(nothing_more_is_sent),
        cmocka_unit_test(an_update_takes_what_deepspeeds_takes),
        cmocka_unit_test(what_is_not_modelled_is_refused_by_name),
        cmocka_unit_test(a_choice_is_taken_or_refused),
    };
    return cmocka_run_group_tests_name("model/zero muon", tests, NULL, NULL);
}
