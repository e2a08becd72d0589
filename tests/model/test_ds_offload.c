/* DeepSpeed's offload_optimizer of stages 1 and 2: sizes and bytes by hand (the vectors of DeepSpeed's rules;
 * p2(): the next power of two), and beside what DeepSpeed itself pinned, kept and copied on CPU ranks (tests/golden/offload). */
#include "tests/model/plans.h"

#include <glob.h>

#include "tests/model/recorded_sizes.h"

#define GOLDEN "tests/golden/offload/"

/* ---- counting ---- */

static int64_t bytes_of(const struct schedules *s, const char *what)
{
    for (int b = 0; b < s->nbufs; b++)
        if (!strcmp(s->bufs[b].what, what))
            return s->bufs[b].bytes;
    fail_msg("no buffer \"%s\"", what);
    return 0;
}

/* Bytes over PCIe each way, and how many copies. */
struct traffic { int64_t down, up; int ndown, nup; };

static int add_copy(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct traffic *t = arg;
    enum space from, to;

    (void)iteration;
    if (!sched_crosses(s, o, &from, &to))
        return 0;
    if (from == SPACE_DEVICE) {
        t->down += o->u.copy.writes;
        t->ndown++;
    } else if (to == SPACE_DEVICE) {
        t->up += o->u.copy.writes;
        t->nup++;
    }
    return 0;
}

static struct traffic traffic_of(const struct schedules *s, enum sched_id id)
{
    struct traffic t = { 0 };

    sched_walk(s, id, add_copy, &t);
    return t;
}

/* ---- vectors ---- */

/* One tensor of P elements. */
static void synthetic(struct plan *p, int64_t params, int64_t world, enum strategy stage, int64_t accumulation)
{
    *p = (struct plan){ .seq = 1, .micro_batch = 1 };
    assert_int_equal(model_synthetic(params, &p->model), 0);
    world_of(&p->cluster, world);
    plan_defaults(p, stage, DIALECT_DEEPSPEED, DT_BF16);
    p->accumulation = accumulation;
    p->ds.offload_optimizer.device = OFFLOAD_CPU;
    plan_resolve(p);
}

/* Master, staging, gradient, Adam's two states. */
static int64_t states(const struct schedules *s)
{
    return bytes_of(s, "fp32 partition") + bytes_of(s, "updated partition on its way up") +
           bytes_of(s, "fp32 gradient of the partition") + bytes_of(s, "exp_avg") + bytes_of(s, "exp_avg_sq");
}

static int64_t states_of(int64_t params, int64_t world)
{
    struct schedules s = { 0 };
    struct plan p;

    synthetic(&p, params, world, STRAT_ZERO2, 1);
    lowered(&p, 0, &s);
    int64_t bytes = states(&s);
    schedules_free(&s);
    plan_free(&p);
    return bytes;
}

static void pinned_blocks_are_powers_of_two(void **state)
{
    (void)state;
    assert_int_equal(pinned_bytes(100000000), 134217728);           /* vectors 1 and 2 */
    assert_int_equal(pinned_bytes(134217728), 134217728);
    assert_int_equal(pinned_bytes(134217729), 268435456);
}

/* 2 p2(4 Q) + p2(2 Q) + 8 Q */
static void host_memory_of_stage_2(void **state)
{
    (void)state;
    assert_int_equal(states_of(1000000000, 1), 18737418240);        /* vector 7: Q = 1e9 */
    assert_int_equal(states_of(7000000000, 8), 17737418240);        /* vector 8: Q = 875e6 */
    assert_int_equal(8 * states_of(7000000000, 8), 141899345920);
    assert_int_equal(states_of(8800000000, 8), 30274836480);        /* vector 9: Q = 1.1e9 */
}

/* Not pinned: 18 bytes an element. */
static void pageable_buffers_are_as_large_as_they_are(void **state)
{
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    synthetic(&p, 1000000000, 1, STRAT_ZERO2, 1);
    p.ds.offload_optimizer.pin_memory = false;
    lowered(&p, 0, &s);
    assert_int_equal(states(&s), 18000000000);
    schedules_free(&s);
    plan_free(&p);
}

/* The vectors have Q = 875e6, one rank, F = Q; 64 elements more are whole units of 512 bytes on the device. */
enum { Q = 875000064 };

static struct traffic steady_traffic(int64_t accumulation, bool fp32)
{
    struct schedules s = { 0 };
    struct plan p;

    synthetic(&p, Q, 1, STRAT_ZERO2, accumulation);
    if (fp32) {
        strcpy(p.framework_version, "0.19.8");
        p.ds.grad_accum_fp32 = true;
    }
    lowered(&p, 0, &s);
    struct traffic t = traffic_of(&s, SCHED_STEADY);
    if (fp32)
        assert_int_equal(bytes_of(&s, "fp32 gradients of the partition"), (int64_t)4 * Q);
    schedules_free(&s);
    plan_free(&p);
    return t;
}

/* Stage 2, one micro-step: 4 Q down, 2 Q up; m micro-steps: 2 m F more down, 2 (m - 1) F more up. */
static void bytes_over_pcie(void **state)
{
    struct traffic t = steady_traffic(1, false);

    (void)state;
    assert_int_equal(t.down, (int64_t)4 * Q);                       /* vector 10: 3.5e9, */
    assert_int_equal(t.up, (int64_t)2 * Q);                         /* 1.75e9 */
    t = steady_traffic(4, false);
    assert_int_equal(t.down, (int64_t)(2 * 4 + 4) * Q);             /* vector 11: 10.5e9, */
    assert_int_equal(t.up, (int64_t)(2 * 3 + 2) * Q);               /* 7e9 */
    t = steady_traffic(4, true);
    assert_int_equal(t.down, (int64_t)4 * Q);                       /* vector 13, and 4 Q on the device */
    assert_int_equal(t.up, (int64_t)2 * Q);
}

/* Vector 12, of GPT-2 on 8 ranks: pad(124,439,808, 16) / 8 = 15,554,976 elements. */
static void stage_1_copies_with_the_last_micro_step_alone(void **state)
{
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    plan_of(&p, "gpt2", 0, 8, STRAT_ZERO1, DIALECT_DEEPSPEED, DT_BF16);
    p.accumulation = 4;
    p.ds.offload_optimizer.device = OFFLOAD_CPU;
    lowered(&p, 0, &s);
    struct traffic t = traffic_of(&s, SCHED_STEADY);
    assert_int_equal(t.down, 4 * 15554976);
    assert_int_equal(t.up, 2 * 15554976);
    schedules_free(&s);
    plan_free(&p);
}

/* Vector 14: a parameter of 100e6 elements, of which the rank owns 1e6: its sum is whole, p2(200e6). */
static void sums_of_gradients_are_whole(void **state)
{
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    synthetic(&p, 100000000, 100, STRAT_ZERO2, 2);
    lowered(&p, 3, &s);
    assert_int_equal(bytes_of(&s, "sum of gradients"), 268435456);
    schedules_free(&s);
    plan_free(&p);
}

/* ---- beside DeepSpeed ---- */

/* Each tensor that DeepSpeed pinned in that phase is a block of the schedule's, and the other way round. */
static void same_pinned(const char *name, const struct schedules *s, enum sched_id id, const json_t *calls)
{
    static struct sizes ours, theirs;

    ours.n = theirs.n = 0;
    sched_walk(s, id, add_pinned, &ours);
    add_calls(calls, true, &theirs);
    same_sizes(name, "pinned", &ours, &theirs);
}

/* Bytes that a function of DeepSpeed's wrote by copy_(), and how often. */
static int64_t wrote(const json_t *copies, const char *function, int *calls)
{
    const json_t *c;
    size_t i;

    json_array_foreach(copies, i, c)
        if (!strcmp(json_string_value(json_array_get(c, 0)), function)) {
            *calls += (int)json_integer_value(json_array_get(c, 1));
            return json_integer_value(json_array_get(c, 3));
        }
    return 0;
}

/* Gradients: their sums both ways and themselves down; step() casts into the staging buffer and copies that up. */
static void same_copies(const char *name, const struct schedules *s, enum sched_id id, const json_t *copies)
{
    struct traffic t = traffic_of(s, id);
    int ndown = 0, nup = 0, nstep = 0;
    int64_t down = wrote(copies, "copy_gradients_to_cpu", &ndown) +
                   wrote(copies, "async_inplace_copy_grad_to_fp32_buffer_from_gpu", &ndown) +
                   wrote(copies, "copy_grads_in_partition", &ndown);
    int64_t up = wrote(copies, "accumulate_gradients", &nup) + wrote(copies, "step", &nstep) / 2;

    if (t.down != down || t.ndown != ndown || t.up != up || t.nup != nup + 1 || nstep != 2)
        fail_msg("%s, %s: %lld bytes down in %d copies, %lld up in %d; DeepSpeed %lld in %d, %lld in %d", name, sched_name(id),
                 (long long)t.down, t.ndown, (long long)t.up, t.nup, (long long)down, ndown, (long long)up, nup + 1);
}

static int64_t buffer(const json_t *buffers, const char *name)
{
    const json_t *sizes = json_object_get(buffers, name);
    int64_t sum = 0;

    for (size_t i = 0; i < json_array_size(sizes); i++)
        sum += json_integer_value(json_array_get(sizes, i));
    return sum;
}

/* Buffers that stay, each by itself. */
static void same_buffers(const char *name, const struct plan *p, const struct schedules *s, const json_t *buffers)
{
    static const struct { const char *ours, *theirs; bool may_pin; } all[] = {
        { "fp32 partition", "single_partition_of_fp32_groups", true },
        { "updated partition on its way up", "param_buffer_of_bit16_for_cpu_offload_groups", true },
        { "fp32 gradient of the partition", "grad of masters", true },
        { "temp_grad_buffer_for_cpu_offload", "temp_grad_buffer_for_cpu_offload", true },
        { "exp_avg", "exp_avg", false },
        { "exp_avg_sq", "exp_avg_sq", false },
    };
    bool pins = p->ds.offload_optimizer.pin_memory;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int64_t want = buffer(buffers, all[i].theirs);
        if (pins && all[i].may_pin)
            want = pinned_bytes(want);
        if (bytes_of(s, all[i].ours) != want)
            fail_msg("%s: %s has %lld bytes, DeepSpeed's %lld", name, all[i].ours, (long long)bytes_of(s, all[i].ours),
                     (long long)want);
    }
    assert_int_equal(bytes_of(s, "sum of earlier micro-steps"), round512(buffer(buffers, "temp_grad_buffer_for_gpu_offload")));
}

static void follows(const char *path)
{
    static const char *const phases[] = { "init", "first", "steady" };
    const char *name = strrchr(path, '/') + 1;
    json_t *j = json_load_file(path, 0, NULL), *rank;
    struct schedules s = { 0 };
    struct plan p;
    size_t r;

    assert_non_null(j);
    if (plan_from_json(json_object_get(j, "plan"), name, &p) < 0)
        fail_msg("%s", name);
    json_array_foreach(json_object_get(j, "ranks"), r, rank) {
        lowered(&p, (int64_t)r, &s);
        for (int id = 0; id <= SCHED_STEADY; id++) {
            same_pinned(name, &s, (enum sched_id)id, json_object_get(json_object_get(rank, "pinned"), phases[id]));
            if (id != SCHED_INIT)
                same_copies(name, &s, (enum sched_id)id, json_object_get(json_object_get(rank, "copies"), phases[id]));
        }
        same_buffers(name, &p, &s, json_object_get(rank, "buffers"));
    }
    schedules_free(&s);
    plan_free(&p);
    json_decref(j);
}

static void what_deepspeed_pins_keeps_and_copies(const char *cases, size_t least)
{
    char pattern[128];
    glob_t g;

    snprintf(pattern, sizeof pattern, GOLDEN "%s_*.json", cases);
    assert_int_equal(glob(pattern, 0, NULL, &g), 0);
    assert_true(g.gl_pathc >= least);
    for (size_t i = 0; i < g.gl_pathc; i++)
        follows(g.gl_pathv[i]);
    globfree(&g);
}

static void deepspeed_0_19_6_pins_keeps_and_copies_so(void **state)
{
    (void)state;
    what_deepspeed_pins_keeps_and_copies("0.19.6/s[12]", 17);
}

static void deepspeed_0_19_8_pins_keeps_and_copies_so(void **state)
{
    (void)state;
    what_deepspeed_pins_keeps_and_copies("0.19.8/s[12]", 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pinned_blocks_are_powers_of_two),
        cmocka_unit_test(host_memory_of_stage_2),
        cmocka_unit_test(pageable_buffers_are_as_large_as_they_are),
        cmocka_unit_test(bytes_over_pcie),
        cmocka_unit_test(stage_1_copies_with_the_last_micro_step_alone),
        cmocka_unit_test(sums_of_gradients_are_whole),
        cmocka_unit_test(deepspeed_0_19_6_pins_keeps_and_copies_so),
        cmocka_unit_test(deepspeed_0_19_8_pins_keeps_and_copies_so),
    };
    return cmocka_run_group_tests_name("model/ds_offload", tests, NULL, NULL);
}
