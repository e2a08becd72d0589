/* Plans with offload, run: on the host and on an asynchronous device (fake_device.h) losses and weights are those of the
 * same plan without it, bit by bit, and what each memory allocated is what its ledger says. */
#define _GNU_SOURCE
#include "tests/exec/fake_device.h"

#include "tests/exec/offload.h"

static void plan_for(struct plan *p, enum strategy s, enum dialect d, enum dtype t)
{
    memset(p, 0, sizeof *p);
    p->model = model[0];
    if (cluster_load("localhost:1", &p->cluster) < 0)
        fail_msg("no cluster");
    p->seq = SEQ;
    p->micro_batch = 2;
    plan_defaults(p, s, d, t);
    p->kernels = KERNELS_DPX;
    p->accumulation = 3;
    p->clip = 0.5;
    p->dropout = 0;
}

static void run_plan(const struct plan *p, struct device *d, struct outcome *out)
{
    struct schedules s;

    if (plan_check(p, "offload") < 0)
        fail_msg("the plan is refused");
    lowered(p, &s);
    if (!schedules_check(&s, why, sizeof why))
        fail_msg("%s", why);
    run_on(p, &s, d, out);
    schedules_free(&s);
    device_close(d);
}

static void same(const struct outcome *a, const struct outcome *b, const char *what)
{
    for (int i = 0; i < STEPS; i++)
        if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) != 0)
            fail_msg("%s: loss %.17g in step %d, without offload %.17g", what, b->loss[i], i + 1, a->loss[i]);
    if (a->weights != b->weights)
        fail_msg("%s: other weights", what);
    assert_true(isfinite(a->loss[STEPS - 1]) && memcmp(&a->loss[0], &a->loss[1], sizeof a->loss[0]) != 0);
}

/* With and without pinned memory, with gradients reduced every micro-step or once, in both precisions. */
static void cpu_offload_policy_changes_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct outcome want, got;
        struct plan p;
        plan_for(&p, STRAT_FSDP, DIALECT_TORCH, i & 1 ? DT_BF16 : DT_FP32);
        p.sync_every_micro_step = (i & 2) != 0;
        run_plan(&p, NULL, &want);
        p.fsdp.cpu_offload = true;
        p.fsdp.pin_memory = (i & 4) != 0;
        run_plan(&p, NULL, &got);
        same(&want, &got, "CPUOffloadPolicy");
        run_plan(&p, fake_open(200 + (unsigned)i), &got);
        same(&want, &got, "CPUOffloadPolicy on a device");
    }
}

/* Of those that need no communicator in a world of one. */
static const struct { enum strategy s; enum dialect d; } cells[] = {
    { STRAT_FSDP, DIALECT_TORCH }, { STRAT_DDP, DIALECT_PAPER }, { STRAT_ZERO2, DIALECT_PAPER },
    { STRAT_ZERO3, DIALECT_PAPER },
};

/* Every way; with full recompute, and inputs of recomputed blocks alone. */
static void activations_on_the_host_change_no_bit(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
        for (int full = 0; full < 2; full++) {
            struct outcome want, got;
            struct plan p;
            plan_for(&p, cells[c].s, cells[c].d, full ? DT_BF16 : DT_FP32);
            p.recompute = full ? RECOMPUTE_FULL : RECOMPUTE_NONE;
            run_plan(&p, NULL, &want);
            for (int way = OFFLOAD_SAVE_ON_CPU; way < NACTIVATION_OFFLOAD; way++) {
                p.activation_offload = (enum activation_offload)way;
                run_plan(&p, way == OFFLOAD_STREAMS ? fake_open(300 + (unsigned)c) : NULL, &got);
                same(&want, &got, "activations");
            }
            p.activation_offload = OFFLOAD_NOTHING;
            p.recompute = RECOMPUTE_OFFLOAD;
            if (full)
                run_plan(&p, fake_open(400 + (unsigned)c), &got);
            if (full)
                same(&want, &got, "recompute \"offload\"");
        }
}

static int load(void **state) { (void)state; models_load(); return 0; }
static int unload(void **state) { (void)state; models_free(); return 0; }

int main(void)
{
    (void)tiny;
    (void)lowered_as;

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_offload_policy_changes_no_bit),
        cmocka_unit_test(activations_on_the_host_change_no_bit),
    };
    return cmocka_run_group_tests_name("exec/offload_plans", tests, load, unload);
}
