/* Stage 3 with optimizer states and parameters outside of device memory: what lies where, and what is copied.
 * Expected values are arithmetic on the model's elements.
 *
 * The models are made so that every tensor divides by the world: 36 layers of width 4000 and 21530 rows of embeddings
 * are 7e9 parameters, 875e6 a rank among 8. */
#include "tests/model/plans.h"
#include "model/lower/common/pinned.h"
#include "model/schedule/ledger.h"

static const char seven[] = "{\"model_type\": \"gpt2\", \"n_layer\": 36, \"n_embd\": 4000, \"n_head\": 40, "
                            "\"n_positions\": 1024, \"vocab_size\": 20506}";
enum { Q = 875000000 };
#define GB ((int64_t)1000000000)

/* 7e9 parameters on 8 ranks in bf16, one sub-group, optimizer on the host; gathered in forward and in backward. */
static void plan_seven(struct plan *p)
{
    json_t *j = json_loads(seven, 0, NULL);

    memset(p, 0, sizeof *p);
    if (!j || model_from_config(j, "test", &p->model) < 0)
        fail_msg("no model");
    json_decref(j);
    world_of(&p->cluster, 8);
    p->seq = 64;
    p->micro_batch = 1;
    plan_defaults(p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    p->clip = 0;
    p->ds.stage3_max_reuse_distance = 0;
    p->ds.stage3_max_live_parameters = 0;
    p->ds.stage3_param_persistence_threshold = 0;
    p->ds.offload_optimizer.device = OFFLOAD_CPU;
}

static void offload_params(struct plan *p, bool pin)
{
    p->ds.offload_param.device = OFFLOAD_CPU;
    p->ds.offload_param.pin_memory = pin;
}

static int64_t persistent_in(const struct schedules *s, unsigned in)
{
    struct ledger l;
    int64_t sum = 0;

    ledger_run_in(s, in, &l);
    for (int c = 0; c < NCAT; c++)
        sum += l.persistent[c];
    return sum;
}

struct moved { bool from_device; int64_t bytes; };

static int add_moved(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct moved *m = arg;
    enum space from, to;

    (void)iteration;
    if (sched_crosses(s, o, &from, &to) && (m->from_device ? from : to) == SPACE_DEVICE)
        m->bytes += o->u.copy.reads;
    return 0;
}

/* Bytes that a step copies from the device, or to it. */
static int64_t copied(const struct schedules *s, bool from_device)
{
    struct moved m = { from_device, 0 };

    sched_walk(s, SCHED_STEADY, add_moved, &m);
    return m.bytes;
}

static void assert_bytes(int64_t got, int64_t want)
{
    if (got != want)
        fail_msg("%lld bytes, on paper %lld", (long long)got, (long long)want);
}

static void pinned_blocks_are_powers_of_two(void **state)
{
    (void)state;
    assert_bytes(pinned_bytes(100000000), 134217728);           /* vectors 1 and 2 */
    assert_bytes(pinned_bytes(134217728), 134217728);
    assert_bytes(pinned_bytes(134217729), 268435456);
    assert_bytes(pinned_bytes(0), 0);
    assert_bytes(pinned_bytes(1), 1);
}

/* Vector 15: fp32 weights 4 Q pageable, their gradients p2(4 Q) and 16-bit ones p2(2 Q) pinned, Adam 8 Q pageable. */
static void optimizer_on_the_host_takes_sixteen_bytes_an_element_and_rounding(void **state)
{
    static struct schedules s;
    struct plan p;

    (void)state;
    plan_seven(&p);
    lowered(&p, 0, &s);
    assert_int_equal(p.model.params, 7 * GB);
    assert_bytes(persistent_in(&s, IN_HOST), 16942450944);
    assert_bytes(persistent_in(&s, IN(SPACE_PINNED)), pinned_bytes(4 * (int64_t)Q) + pinned_bytes(2 * (int64_t)Q));
    p.ds.offload_optimizer.pin_memory = false;
    lowered(&p, 0, &s);
    assert_bytes(persistent_in(&s, IN_HOST), 18 * (int64_t)Q);
    assert_bytes(persistent_in(&s, IN(SPACE_PINNED)), 0);
    schedules_free(&s);
    plan_free(&p);
}

/* Vector 16: partitions are p2(2 Q) more, pinned whatever pin_memory says; and blocks of single partitions that were
 * pinned before they became one stay with the allocator. */
static void partitions_on_the_host_are_pinned_and_leave_blocks_behind(void **state)
{
    static struct schedules s;
    struct plan p;
    int64_t kept = 0;

    (void)state;
    plan_seven(&p);
    offload_params(&p, false);
    lowered(&p, 0, &s);
    assert_bytes(persistent_in(&s, IN_HOST), 19089934592);
    offload_params(&p, true);
    lowered(&p, 0, &s);
    for (int t = 0; t < p.model.ntensors; t++)
        kept += pinned_bytes(p.model.tensors[t].numel / 8 * 2);
    assert_true(kept > 2 * (int64_t)Q);
    assert_bytes(persistent_in(&s, IN_HOST), 19089934592 + kept);
    schedules_free(&s);
    plan_free(&p);
}

/* Vectors 17 and 18: a micro-step's 16-bit gradients go down and come back, at the last one they go down in fp32, and the
 * step brings 2 Q of new weights. */
static void gradients_cross_three_times(void **state)
{
    static struct schedules s;
    struct plan p;

    (void)state;
    plan_seven(&p);
    lowered(&p, 0, &s);
    assert_bytes(copied(&s, true), 5250000000);
    assert_bytes(copied(&s, false), 3500000000);
    p.accumulation = 4;
    lowered(&p, 0, &s);
    assert_bytes(copied(&s, true), 10500000000);
    assert_bytes(copied(&s, false), 8750000000);
    schedules_free(&s);
    plan_free(&p);
}

/* Vector 19: partitions come up for each gather, 2 Q for all of them; the step copies nothing up. */
static void partitions_come_up_for_every_gather(void **state)
{
    static struct schedules s;
    struct plan p;

    (void)state;
    plan_seven(&p);
    offload_params(&p, true);
    lowered(&p, 0, &s);
    int64_t gathered = tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER).elems / 8;
    assert_bytes(copied(&s, true), 5250000000);
    assert_bytes(copied(&s, false), 2 * (int64_t)Q + 2 * gathered);
    /* The last block stays from forward to backward; the tied embedding is used four times. */
    assert_true(gathered > 19 * (int64_t)Q / 10 && gathered <= 2 * (int64_t)Q + 2 * p.model.tensors[0].numel / 8);
    schedules_free(&s);
    plan_free(&p);
}

/* Alone there is nothing to gather: parameters come up whole.  On paper: 2 bytes of each, once or twice. */
static void one_rank_copies_its_parameters_up(void **state)
{
    static struct schedules s;
    struct plan p;

    (void)state;
    plan_of(&p, "gpt2", 2, 1, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    offload_params(&p, true);
    lowered(&p, 0, &s);
    assert_bytes(tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER).count, 0);
    assert_bytes(copied(&s, true), 4 * p.model.params);         /* the optimizer is on the device: fp32 goes down */
    assert_true(copied(&s, false) >= 2 * p.model.params && copied(&s, false) <= 4 * p.model.params);
    schedules_free(&s);
    plan_free(&p);
}

/* ---- Twin-Flow ---- */

static void count_masters(const struct schedules *s, int *all, int *device)
{
    *all = *device = 0;
    for (int b = 0; b < s->nbufs; b++)
        if (!strcmp(s->bufs[b].what, "fp32 partition")) {
            ++*all;
            *device += s->bufs[b].space == SPACE_DEVICE;
        }
}

/* A plan with n sub-groups. */
static void plan_groups_of(struct plan *p, int n, struct schedules *s)
{
    static const int64_t sizes[] = { 1000000000, 3000000, 1000000, 800000, 500000, 20000, 1 };
    int all, device;

    for (int layers = 1; layers <= 4; layers++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            plan_of(p, "gpt2", layers, 1, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
            p->ds.sub_group_size = sizes[i];
            p->ds.offload_optimizer.device = OFFLOAD_CPU;
            lowered(p, 0, s);
            count_masters(s, &all, &device);
            if (all == n)
                return;
            plan_free(p);
        }
    fail_msg("no plan with %d sub-groups", n);
}

/* Vectors 20 to 24: sub-groups [0, int((1 - ratio) n)) stay, in floats. */
static void a_ratio_is_cut_to_whole_sub_groups(void **state)
{
    static const struct { double ratio; int n, device; } rows[] = {
        { 0.3, 1, 0 }, { 0.3, 4, 2 }, { 0.8, 5, 0 }, { 0.4, 5, 3 }, { 1, 5, 0 }, { 0, 5, 5 } };
    static struct schedules s;
    struct plan p;
    int all, device;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plan_groups_of(&p, rows[i].n, &s);
        p.ds.offload_optimizer.ratio = rows[i].ratio;
        lowered(&p, 0, &s);
        count_masters(&s, &all, &device);
        assert_int_equal(device, rows[i].device);
        plan_free(&p);
    }
    schedules_free(&s);
}

/* What stays is 16 bytes an element, gradients included; it crosses 4 times fewer: no fp32 gradient goes down, no
 * weight comes up. */
static void a_sub_group_that_stays_does_not_cross(void **state)
{
    static struct schedules s;
    struct plan p;

    (void)state;
    plan_groups_of(&p, 1, &s);
    int64_t n = p.model.params;
    assert_bytes(copied(&s, true), 6 * n);
    assert_bytes(copied(&s, false), 4 * n);
    p.ds.offload_optimizer.ratio = 0;
    lowered(&p, 0, &s);
    assert_bytes(copied(&s, true), 2 * n);
    assert_bytes(copied(&s, false), 2 * n);
    assert_bytes(persistent_in(&s, IN_HOST) - pinned_bytes(2 * n), pinned_bytes(4 * n));    /* its zeros' block */
    schedules_free(&s);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pinned_blocks_are_powers_of_two),
        cmocka_unit_test(optimizer_on_the_host_takes_sixteen_bytes_an_element_and_rounding),
        cmocka_unit_test(partitions_on_the_host_are_pinned_and_leave_blocks_behind),
        cmocka_unit_test(gradients_cross_three_times),
        cmocka_unit_test(partitions_come_up_for_every_gather),
        cmocka_unit_test(one_rank_copies_its_parameters_up),
        cmocka_unit_test(a_ratio_is_cut_to_whole_sub_groups),
        cmocka_unit_test(a_sub_group_that_stays_does_not_cross),
    };
    return cmocka_run_group_tests_name("model/zero3_offload", tests, NULL, NULL);
}
