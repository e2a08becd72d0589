/* Activations that leave the device beside compute: on the simulated clock and on an asynchronous device whose streams have
 * clocks (fake_device.h) the same entries begin and end at the same moments, and what a link could carry in half of the step
 * is hidden but for the last block's, which nothing computes beside. */
#define _GNU_SOURCE
#include "tests/exec/fake_device.h"

#include "sim/clock/clock.h"
#include "tests/exec/offload.h"

enum { MOST_ENTRIES = 4096 };

struct step { double s, start[MOST_ENTRIES], end[MOST_ENTRIES]; int op[MOST_ENTRIES]; int64_t iteration[MOST_ENTRIES], n; };

/* A steady step on the device, each kernel taking a second; seconds from its first entry on. */
static void run_step(const struct plan *p, const struct schedules *s, double link, struct step *out)
{
    static int32_t ids[256], labels[256];
    static int64_t samples[16];
    struct weights *w = weights_from_seed(&p->model, 11);
    struct device *d = fake_open(1);
    struct fake *f = d->self;
    f->kernel_s = 1;
    f->link = link;
    struct executor *x = begun(p, s, d, w);
    struct exec_step step = { .number = 1, .ids = ids, .labels = labels, .samples = samples,
                              .adamw = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1, .grad_scale = 1 } };
    if (executor_run(x, SCHED_FIRST, &step) < 0)
        fail_msg("a step fails");
    int64_t marks = f->marks;
    if (executor_run(x, SCHED_STEADY, &step) < 0 || executor_record(x, true) < 0)
        fail_msg("a step fails");
    f->unseen = 2 * f->marks - marks;           /* the next step makes as many */
    if (executor_run(x, SCHED_STEADY, &step) < 0)
        fail_msg("a step fails");
    const struct exec_ran *ran = executor_ran(x, &out->n);
    double first = INFINITY;
    assert_in_range(out->n, 1, MOST_ENTRIES);
    for (int64_t i = 0; i < out->n; i++)
        first = fmin(first, ran[i].start);      /* of entries that no stream has NaN, which fmin() passes over */
    out->s = 0;
    for (int64_t i = 0; i < out->n; i++) {
        out->op[i] = ran[i].op;
        out->iteration[i] = ran[i].iteration;
        out->start[i] = ran[i].start - first;
        out->end[i] = ran[i].end - first;
        out->s = fmax(out->s, out->end[i]);
    }
    executor_free(x);
    device_close(d);
    weights_close(w);
}

/* The same schedule on the simulated clock, with the seconds that each entry took there. */
static double simulated(const struct schedules *s, const struct step *of)
{
    double *work = calloc((size_t)s->nops, sizeof *work), *issue = calloc((size_t)s->nops, sizeof *issue);
    struct contention alone = { .copy_slow = 1 };
    struct timeline line;
    struct run run;

    for (int64_t i = 0; i < of->n; i++)
        if (of->end[i] > of->start[i])
            work[of->op[i]] = of->end[i] - of->start[i];
    assert_true(clock_one(s, SCHED_STEADY, &(struct durations){ work, issue }, &alone, &line, &run));
    assert_int_equal(run.n, of->n);
    for (int64_t i = 0; i < run.n; i++) {
        assert_int_equal(run.ran[i].op, of->op[i]);
        assert_int_equal(run.ran[i].iteration, of->iteration[i]);
        if (!isnan(of->start[i]) && (fabs(run.ran[i].start - of->start[i]) > 1e-6 || fabs(run.ran[i].end - of->end[i]) > 1e-6))
            fail_msg("entry %d, \"%s\": %.6f to %.6f on the clock, %.6f to %.6f on the device", (int)i, s->ops[of->op[i]].what,
                     run.ran[i].start, run.ran[i].end, of->start[i], of->end[i]);
    }
    run_free(&run);
    free(work);
    free(issue);
    return line.step_s;
}

/* One direction's bytes of a step, and of its largest copy. */
static int64_t down(const struct schedules *s, int64_t *largest)
{
    struct moved_table t = { 0 };

    *largest = 0;
    for (int i = s->begin[SCHED_STEADY]; i < s->end[SCHED_STEADY]; i++)
        if (s->ops[i].kind == OP_COPY && s->ops[i].stream == STREAM_D2H && s->ops[i].u.copy.writes > *largest)
            *largest = s->ops[i].u.copy.writes;
    moved_add(s, SCHED_STEADY, 1, &t);
    assert_int_equal(t.of[SPACE_PINNED][SPACE_DEVICE].bytes, t.of[SPACE_DEVICE][SPACE_PINNED].bytes);
    return t.of[SPACE_DEVICE][SPACE_PINNED].bytes;
}

static void offloaded(struct plan *p, struct schedules *s)
{
    tiny(p);
    p->activation_offload = OFFLOAD_STREAMS;
    if (plan_check(p, "tiny") < 0)
        fail_msg("the plan is refused");
    lowered(p, s);
}

/* Copies of both ways take half of the step.  What shows is a block a micro-step, down and up. */
static void copies_that_half_a_step_would_hide_are_hidden(void **state)
{
    (void)state;
    static struct step plain, away_;
    struct schedules was, s;
    struct plan p;
    int64_t block, bytes;

    tiny(&p);
    lowered(&p, &was);
    run_step(&p, &was, 1, &plain);
    assert_close(simulated(&was, &plain), plain.s, 1e-9);
    offloaded(&p, &s);
    bytes = down(&s, &block);
    assert_int_equal(bytes, p.accumulation * p.model.layers * block);
    double link = 2 * (double)bytes / (plain.s / 2), shows = (double)p.accumulation * 2 * (double)block / link;
    run_step(&p, &s, link, &away_);
    assert_close(simulated(&s, &away_), away_.s, 1e-9);
    if (away_.s > plain.s + shows + 1e-6)
        fail_msg("%.3f s, without offload %.3f: more than %.3f s of %.3f show", away_.s, plain.s, shows, plain.s / 2);
    schedules_free(&s);
    schedules_free(&was);
}

/* A link so slow that each way takes twice the step: then it sets the pace, in both. */
static void copies_that_take_longer_are_not(void **state)
{
    (void)state;
    static struct step plain, away_;
    struct schedules was, s;
    struct plan p;
    int64_t block, bytes;

    tiny(&p);
    lowered(&p, &was);
    run_step(&p, &was, 1, &plain);
    offloaded(&p, &s);
    bytes = down(&s, &block);
    run_step(&p, &s, (double)bytes / (2 * plain.s), &away_);
    assert_close(simulated(&s, &away_), away_.s, 1e-9);
    assert_true(away_.s >= 4 * plain.s);
    schedules_free(&s);
    schedules_free(&was);
}

static int load(void **state) { (void)state; models_load(); return 0; }
static int unload(void **state) { (void)state; models_free(); return 0; }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_that_half_a_step_would_hide_are_hidden),
        cmocka_unit_test(copies_that_take_longer_are_not),
    };
    return cmocka_run_group_tests_name("exec/offload_hidden", tests, load, unload);
}
