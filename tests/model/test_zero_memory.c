/* What DeepSpeed's stages hold: what persists, to the byte, and what comes and goes
 * and when, by formulas from reading its source (model/framework/deepspeed_012/README.md derives them). */
#include "tests/model/zero.h"

/* ---- what persists, to the byte ---- */

static struct ledger l;

static void persists(int64_t params, int64_t grads, int64_t optimizer, int64_t bucket, int64_t unsharded)
{
    ledger_run(&s, &l);
    assert_int_equal(l.persistent[CAT_PARAMS], params);
    assert_int_equal(l.persistent[CAT_GRADS], grads);
    assert_int_equal(l.persistent[CAT_OPTIMIZER], optimizer);
    assert_int_equal(l.persistent[CAT_BUCKET], bucket);
    assert_int_equal(l.persistent[CAT_UNSHARDED], unsharded);
    for (int c = 0; c < NCAT; c++)
        if (c != CAT_PARAMS && c != CAT_GRADS && c != CAT_OPTIMIZER && c != CAT_BUCKET && c != CAT_UNSHARDED)
            assert_int_equal(l.persistent[c], 0);
}

static int64_t width(const struct plan *p) { return p->precision == DT_FP32 ? 4 : 2; }

/* FP16_Optimizer: 2P + 12P.  In fp32 the parameters themselves, 4P + 8P. */
static void persistent_0(const struct plan *p)
{
    int64_t n = p->model.params;

    if (p->precision == DT_FP32)
        persists(each(&p->model, 4), 0, 2 * each(&p->model, 4), 0, 0);
    else
        persists(r512(2 * n), 0, 3 * r512(4 * n), 0, 0);
}

/* 2A + 12A/N; in fp32 4A + 12A/N, for the partition is cloned. */
static void persistent_1_2(const struct plan *p)
{
    int64_t a = up(p->model.params, 2 * p->cluster.world_size);

    persists(r512(width(p) * a), 0, 3 * r512(4 * a / p->cluster.world_size), 0, 0);
}

/* 6A + 12A/N: parameters, and gradients in fp32.  Those in bf16 go after the step. */
static void persistent_bf16(const struct plan *p)
{
    int64_t a = up(p->model.params, 2 * p->cluster.world_size);

    persists(r512(2 * a), r512(4 * a), 3 * r512(4 * a / p->cluster.world_size), 0, 0);
}

/* 2Q + 2Q + 12Q (in fp32 4Q + 4Q + 12Q, for the partition is cloned), the bucket, and a
 * whole copy of each persistent parameter. */
static void persistent_3(const struct plan *p)
{
    int64_t n = p->cluster.world_size, q = parts(&p->model, n), e = width(p), kept = 0;

    for (int i = 0; i < p->model.ntensors; i++)
        if (p->model.tensors[i].numel <= 100000 && n > 1)
            kept += r512(up(p->model.tensors[i].numel, n) * e);
    persists(r512(e * q), r512(e * q), 3 * r512(4 * q), r512(500000000 * e), kept);
}

static void what_persists_is_exact(void **state)
{
    (void)state;
    for (enum dtype t = DT_FP32; t <= DT_FP16; t++) {
        everywhere(STRAT_DDP, t, NULL, persistent_0);
        everywhere(STRAT_ZERO1, t, NULL, persistent_1_2);
        everywhere(STRAT_ZERO2, t, thrice, persistent_1_2);
        everywhere(STRAT_ZERO3, t, thrice, persistent_3);
    }
    everywhere(STRAT_ZERO1, DT_BF16, accumulate_in_fp32, persistent_bf16);
}

/* ---- what comes and goes ---- */

/* The bucket's own 1.0e9 bytes whatever the model; before the all-reduce it is
 * concatenated once more, unless it is all one rank's. */
static void bucket_and_its_copy(const struct plan *p)
{
    int64_t n = p->cluster.world_size, buffers = p->ds.overlap_comm ? 2 : 1;

    if (p->model.params > p->ds.reduce_bucket_size)
        return;
    ledger_run(&s, &l);
    assert_int_equal(l.most[CAT_BUCKET], buffers * 1000000000 + (n > 1 ? r512(2 * p->model.params) : 0));
}

static void overlapping(struct plan *p) { p->ds.overlap_comm = true; }

static void the_bucket_costs_a_gigabyte_and_a_copy(void **state)
{
    (void)state;
    everywhere(STRAT_ZERO1, DT_BF16, NULL, bucket_and_its_copy);
    everywhere(STRAT_ZERO1, DT_BF16, overlapping, bucket_and_its_copy);
    everywhere(STRAT_ZERO2, DT_BF16, NULL, bucket_and_its_copy);
    everywhere(STRAT_ZERO2, DT_FP16, overlapping, bucket_and_its_copy);
}

/* Without reduce_scatter the bucket itself is reduced; without a contiguous bucket
 * the concatenation of the gradients is all there is. */
static void plain(struct plan *p)         { p->ds.reduce_scatter = false; }
static void scattered(struct plan *p)     { p->ds.contiguous_gradients = false; }

static void bucket_alone(const struct plan *p)
{
    if (p->model.params > p->ds.reduce_bucket_size)
        return;
    ledger_run(&s, &l);
    assert_int_equal(l.most[CAT_BUCKET], 1000000000);
}

static void copy_alone(const struct plan *p)
{
    if (p->model.params > p->ds.reduce_bucket_size)
        return;
    ledger_run(&s, &l);
    assert_int_equal(l.most[CAT_BUCKET], r512(2 * p->model.params));
}

static void a_bucket_reduced_in_place_has_no_copy(void **state)
{
    (void)state;
    everywhere(STRAT_ZERO1, DT_BF16, plain, bucket_alone);
    everywhere(STRAT_ZERO2, DT_BF16, plain, bucket_alone);
    everywhere(STRAT_ZERO1, DT_BF16, scattered, copy_alone);
    everywhere(STRAT_ZERO2, DT_BF16, scattered, copy_alone);
}

/* stage_1_and_2.py and stage3.py flush when the sum would be above the bucket. */
static void a_bucket_may_be_filled_to_the_last_element(void **state)
{
    struct plan p;

    (void)state;
    deepspeed(&p, "gpt2", 2, 4, STRAT_ZERO2, DT_BF16);
    for (int less = 0; less < 2; less++) {
        p.ds.reduce_bucket_size = p.model.params - less;
        lowered(&p, 0, &s);         /* and overflow, norm */
        assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).count, 1 + less + 2);
    }
    plan_free(&p);
    deepspeed(&p, "gpt2", 2, 4, STRAT_ZERO3, DT_BF16);
    for (int less = 0; less < 2; less++) {
        p.ds.reduce_bucket_size = p.model.params - less;
        lowered(&p, 0, &s);
        assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_REDUCE_SCATTER).count, 1 + less);
    }
    plan_free(&p);
}

/* _create_fp16_sub_groups: a group ends where its sum reaches the size.  On one
 * rank wte alone is 38,597,376. */
static void a_sub_group_ends_where_its_size_is_reached(void **state)
{
    struct plan p;

    (void)state;
    for (int more = 0; more < 2; more++) {
        deepspeed(&p, "gpt2", 2, 1, STRAT_ZERO3, DT_BF16);
        p.ds.sub_group_size = 38597376 + more;
        lowered(&p, 0, &s);         /* one norm for each */
        assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).count, 2);
        for (int i = 0; i < s.nbufs; i++)
            if (!strcmp(s.bufs[i].what, "fp32 partition")) {
                assert_int_equal(s.bufs[i].bytes, r512(4 * (38597376 + (more ? 1024 * 768 : 0))));
                break;
            }
        plan_free(&p);
    }
}

/* Casting the flat fp32 gradients for the wire: 2A. */
static void cast_of_all_gradients(const struct plan *p)
{
    ledger_run(&s, &l);
    assert_int_equal(l.most[CAT_BUCKET], r512(2 * up(p->model.params, 2 * p->cluster.world_size)));
}

/* Stage 3 concatenates its bucket once more, padded tensor by tensor. */
static void bucket_in_parts(const struct plan *p)
{
    int64_t n = p->cluster.world_size;

    if (p->model.params > p->ds.reduce_bucket_size)
        return;
    ledger_run(&s, &l);
    assert_int_equal(l.most[CAT_REDUCE_SCATTER], r512(2 * n * parts(&p->model, n)));
    assert_int_equal(l.most[CAT_BUCKET], 1000000000);
}

static void the_other_copies_of_gradients(void **state)
{
    (void)state;
    everywhere(STRAT_ZERO1, DT_BF16, accumulate_in_fp32, cast_of_all_gradients);
    everywhere(STRAT_ZERO3, DT_BF16, thrice, bucket_in_parts);
}

/* 0.19.8 adds what it reduces to the partition in fp32, 4A/N, from the first bucket on until the step is over; there
 * is no other copy of the gradients in it but the slice that is added, in fp32. */
static void sum_in_the_partition(struct plan *p)
{
    strcpy(p->framework_version, "0.19.8");
    accumulate_in_fp32(p);
}

static void one_fp32_partition(const struct plan *p)
{
    int64_t part = up(p->model.params, 2 * p->cluster.world_size) / p->cluster.world_size, slice = 0, n = 0;

    assert_int_equal(named("fp32 gradients of the partition")->bytes, r512(4 * part));
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++)
        for (uint32_t k = s.ops[i].act0; k < s.ops[i].act0 + s.ops[i].nacts; k++) {
            const struct buf *b = &s.bufs[s.acts[k].buf];
            if (s.acts[k].what & ACT_ALLOC) {
                assert_string_not_equal(b->what, "flat gradient partition");
                assert_string_not_equal(b->what, "gradients that touch the partition");
                n += !strcmp(b->what, "fp32 gradients of the partition");
                if (!strcmp(b->what, "one slice in fp32") && b->bytes > slice)
                    slice = b->bytes;
            }
        }
    assert_int_equal(n, 1);         /* though there are two micro-steps */
    assert_true(slice > 0 && slice <= r512(4 * part));
}

static void version_0_19_8_sums_gradients_in_the_partition(void **state)
{
    (void)state;
    everywhere(STRAT_ZERO2, DT_BF16, sum_in_the_partition, persistent_1_2);
    everywhere(STRAT_ZERO2, DT_BF16, sum_in_the_partition, one_fp32_partition);
    everywhere(STRAT_ZERO2, DT_FP16, sum_in_the_partition, one_fp32_partition);
    everywhere(STRAT_ZERO1, DT_FP16, sum_in_the_partition, one_fp32_partition);
}

static bool says(const char *word)
{
    for (int i = 0; i < s.nnotes; i++)
        if (strstr(s.notes[i], word))
            return true;
    return false;
}

/* Gradients 1 and 2 of two ranks stay 1 and 2 in 0.19.6, and become 1.5 in 0.19.8. */
static void a_plan_that_0_19_6_does_not_average_says_so(void **state)
{
    struct plan p;

    (void)state;
    deepspeed(&p, "gpt2", 2, 4, STRAT_ZERO1, DT_FP16);
    accumulate_in_fp32(&p);
    lowered(&p, 0, &s);
    assert_true(says("each rank's own"));
    sum_in_the_partition(&p);
    lowered(&p, 0, &s);
    assert_false(says("each rank's own"));
    plan_free(&p);
}

/* Before the optimizer: 2A/N flattened and 4A/N in fp32, of which the first is gone
 * when the optimizer runs; the norm takes one gradient at a time in fp64. */
static void gradients_for_the_step(const struct plan *p)
{
    int64_t part = up(p->model.params, 2 * p->cluster.world_size) / p->cluster.world_size;

    assert_int_equal(named("flat gradient partition")->bytes, r512(2 * part));
    assert_int_equal(named("fp32 gradient partition")->bytes, r512(4 * part));
    ledger_run(&s, &l);
    assert_true(l.most[CAT_TEMPORARIES] >= r512(2 * part) + r512(4 * part));
}

static void the_step_copies_the_partition_twice(void **state)
{
    (void)state;
    everywhere(STRAT_ZERO1, DT_BF16, NULL, gradients_for_the_step);
    everywhere(STRAT_ZERO2, DT_FP16, thrice, gradients_for_the_step);
}

/* Optimizer states are born at the first step, but FP16_Optimizer steps in its
 * constructor. */
static void optimizer_states_are_born_at_the_first_step(void **state)
{
    static const enum strategy stages[] = { STRAT_DDP, STRAT_ZERO1, STRAT_ZERO2, STRAT_ZERO3 };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct plan p;
        int families = 0;
        deepspeed(&p, "gpt2", 2, 4, stages[i], DT_BF16);
        lowered(&p, 0, &s);
        for (int id = 0; id < NSCHED; id++)
            for (int k = s.begin[id]; k < s.end[id]; k++)
                for (uint32_t a = s.ops[k].act0; a < s.ops[k].act0 + s.ops[k].nacts; a++)
                    if ((s.acts[a].what & ACT_ALLOC) && !strcmp(s.bufs[s.acts[a].buf].what, "exp_avg, exp_avg_sq")) {
                        assert_int_equal(id, i == 0 ? SCHED_INIT : SCHED_FIRST);
                        families++;
                    }
        assert_int_equal(families, 1);
        plan_free(&p);
    }
}

/* A model that fits no device whole is taken as built under zero.Init: at no
 * moment of init is more of it there than its largest parameter and the partitions. */
static void a_model_too_large_is_built_in_pieces(void **state)
{
    struct plan p;

    (void)state;
    deepspeed(&p, "llama-3.1-405b", 0, 512, STRAT_ZERO3, DT_BF16);
    lowered(&p, 0, &s);
    ledger_run(&s, &l);
    assert_true(l.phase[SCHED_INIT].bytes < 2 * (128256 * (int64_t)16384) + 16 * parts(&p.model, 512) + 1000000000
                + p.model.ntensors * 512);
    plan_free(&p);
}

/* ---- waits ---- */

static int waits_named(enum sched_id id, const char *what)
{
    int n = 0;

    for (int i = s.begin[id]; i < s.end[id]; i++)
        n += s.ops[i].kind == OP_WAIT && !strcmp(s.ops[i].what, what);
    return n;
}

/* allreduce_and_copy synchronizes the device before each reduce; the epilogue once more. */
static void each_reduce_to_an_owner_synchronizes(void **state)
{
    struct plan p;

    (void)state;
    deepspeed(&p, "gpt2", 2, 5, STRAT_ZERO2, DT_BF16);
    p.ds.overlap_comm = true;
    lowered(&p, 0, &s);
    assert_int_equal(waits_named(SCHED_STEADY, "synchronize"), 1);
    p.ds.use_multi_rank_bucket_allreduce = false;
    lowered(&p, 0, &s);             /* one bucket, slices of all five owners */
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_REDUCE).count, 5);
    assert_int_equal(waits_named(SCHED_STEADY, "synchronize"), 6);
    plan_free(&p);
}

/* A parameter's handle holds the flat buffer until the parameter itself is needed,
 * though all were copied out of it when the first one was. */
static void a_flat_buffer_waits_for_its_last_parameter(void **state)
{
    struct plan p;
    int copied = -1, computed = 0, longest = 0;

    (void)state;
    deepspeed(&p, "gpt2", 2, 4, STRAT_ZERO3, DT_BF16);
    lowered(&p, 0, &s);
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++) {
        const struct op *o = &s.ops[i];
        computed += o->kind == OP_COMPUTE && o->u.compute.pass == PASS_FORWARD;
        for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
            if (s.bufs[s.acts[k].buf].category != CAT_ALL_GATHER)
                continue;
            if (!strcmp(o->what, "copy out") && (s.acts[k].what & ACT_USE))
                copied = computed;
            if ((s.acts[k].what & ACT_FREE) && copied >= 0 && computed - copied > longest)
                longest = computed - copied;
        }
    }
    assert_true(longest > 10);      /* from wte to the last matrix of a block */
    plan_free(&p);
}

static int end(void **state)
{
    (void)state;
    schedules_free(&s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_persists_is_exact),
        cmocka_unit_test(the_bucket_costs_a_gigabyte_and_a_copy),
        cmocka_unit_test(a_bucket_reduced_in_place_has_no_copy),
        cmocka_unit_test(a_bucket_may_be_filled_to_the_last_element),
        cmocka_unit_test(a_sub_group_ends_where_its_size_is_reached),
        cmocka_unit_test(the_other_copies_of_gradients),
        cmocka_unit_test(the_step_copies_the_partition_twice),
        cmocka_unit_test(a_plan_that_0_19_6_does_not_average_says_so),
        cmocka_unit_test(version_0_19_8_sums_gradients_in_the_partition),
        cmocka_unit_test(optimizer_states_are_born_at_the_first_step),
        cmocka_unit_test(a_model_too_large_is_built_in_pieces),
        cmocka_unit_test(each_reduce_to_an_owner_synchronizes),
        cmocka_unit_test(a_flat_buffer_waits_for_its_last_parameter),
    };
    return cmocka_run_group_tests_name("model/zero_memory", tests, NULL, end);
}
