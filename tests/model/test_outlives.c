/* What a step leaves that nobody reads: by hand, and of plans whose states one can count. */
#include "tests/check.h"

#include <string.h>

#include "model/lower/lower.h"
#include "model/schedule/outlives.h"

enum { HALF = 64 };                     /* elements; a buffer has two halves of fp32 */

struct bed { struct schedules s; int buf, whole, low, high; };

/* A buffer that lives, with layouts of both halves, of the lower and of the upper one. */
static void bed_open(struct bed *b, bool described)
{
    memset(b, 0, sizeof *b);
    b->s.detailed = true;
    b->buf = sched_buf(&b->s, CAT_BUCKET, "bucket", NULL, 0, 1, 2 * HALF * 4);
    int *const of[] = { &b->whole, &b->low, &b->high };
    for (int i = 0; i < 3; i++) {
        *of[i] = sched_layout(&b->s, 0);
        sched_slice(&b->s, HOLDS_GRAD, DT_FP32, 0, i == 2 ? HALF : 0, i ? HALF : 2 * HALF, i == 2 ? HALF * 4 : 0);
    }
    if (described)
        sched_holds(&b->s, b->buf, b->whole);
    sched_begin(&b->s, SCHED_STEADY);
}

static void act(struct bed *b, int what, int layout, int flags)
{
    sched_copy(&b->s, STREAM_COMPUTE, PHASE_BACKWARD, "copy", 0, 0)->flags = (uint8_t)flags;
    sched_act_as(&b->s, what, b->buf, 0, 0, layout);
}

static bool is_scratch(struct bed *b)
{
    int64_t first[2];

    sched_end(&b->s, SCHED_STEADY);
    unsigned char *scratch = outlives_scratch(&b->s, first);
    bool is = scratch[0];
    free(scratch);
    schedules_free(&b->s);
    return is;
}

/* What entries do one after the other: r read, w write, a add, b read and write, u use, g write if no gradient overflowed, f free; of the lower
 * half, with 1 in front of the upper one, with 0 of both. */
static bool after(const char *entries)
{
    struct bed b;

    bed_open(&b, true);
    for (const char *e = entries; *e; e++) {
        int layout = b.low, flags = 0;
        if (*e == '0' || *e == '1') {
            layout = *e == '0' ? b.whole : b.high;
            e++;
        }
        int what = *e == 'r' ? ACT_R : *e == 'w' || *e == 'g' ? ACT_W : *e == 'a' ? ACT_A : *e == 'b' ? ACT_RW : *e == 'f' ? ACT_FREE : ACT_USE;
        flags = *e == 'g' ? OPF_GUARDED : 0;
        act(&b, what, layout, flags);
    }
    return is_scratch(&b);
}

static void what_is_written_before_it_is_read_is_scratch(void **state)
{
    (void)state;
    assert_true(after("0w0r"));
    assert_true(after("w1w0r"));                        /* in two pieces */
    assert_true(after("1ww0r"));
    assert_true(after("wr1w1r"));
    assert_true(after("w"));                            /* nobody reads it at all */
    assert_true(after("wrf0r"));                        /* what is read later is another allocation */
}

static void what_is_read_first_is_kept(void **state)
{
    (void)state;
    assert_false(after("0r0w"));
    assert_false(after("w0r"));                         /* half of it is of the step before */
    assert_false(after("w1r"));
    assert_false(after("0a"));                          /* gradients that add up */
    assert_false(after("0b"));                          /* read and written by one entry */
    assert_false(after("0u0w"));                        /* who knows what it takes */
    assert_false(after("0g0r"));                        /* a write that may be left out */
    assert_false(after(""));                            /* no entry names it */
}

static void what_is_not_described_is_kept(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, false);
    act(&b, ACT_W, 0, 0);
    act(&b, ACT_R, 0, 0);
    assert_false(is_scratch(&b));
}

/* ---- plans ---- */

static int64_t bytes_of(const char *strategy, const char *dialect, const char *precision)
{
    struct plan p;
    struct schedules s = { .detailed = true };
    json_t *doc = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s}", "dpx_plan", 1, "model", "gpt2", "cluster", "2xh100", "strategy", strategy,
                            "dialect", dialect, "kernels", "dpx", "seq", 64, "micro_batch", 1, "precision", precision, "optimizer", "adamw");

    assert_int_equal(plan_from_json(doc, "plan", &p), 0);
    assert_int_equal(lower(&p, 0, &s), 0);
    int64_t bytes = outlives_bytes(&s);
    schedules_free(&s);
    plan_free(&p);
    json_decref(doc);
    return bytes;
}

/* Of GPT-2's 124,439,808 parameters on two ranks; tensors are rounded to 512 bytes.  Stage 3 has a bucket of 5e8 numbers, which holds nothing. */
static void plans_keep_their_states(void **state)
{
    static const struct { const char *strategy, *dialect, *precision; double bytes; } of[] = {
        { "zero3", "deepspeed", "bf16", (2 + 4 + 8) / 2.0 },    /* bf16, fp32 and two moments, sharded */
        { "zero2", "deepspeed", "bf16", 2 + (4 + 8) / 2.0 },
        { "zero1", "deepspeed", "bf16", 2 + (4 + 8) / 2.0 },
        { "fsdp", "torch", "bf16", (4 + 8) / 2.0 },
        { "fsdp", "torch-fsdp1", "bf16", (4 + 8) / 2.0 },
        { "ddp", "torch", "fp32", 4 + 8 },                      /* .grad is None between two steps; buckets hold nothing */
    };
    const double params = 124439808;

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        double got = (double)bytes_of(of[i].strategy, of[i].dialect, of[i].precision) / params;
        if (got < of[i].bytes || got > of[i].bytes + 0.01)
            fail_msg("%s/%s: %.4f bytes a parameter, expected %.4f", of[i].strategy, of[i].dialect, got, of[i].bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_before_it_is_read_is_scratch),
        cmocka_unit_test(what_is_read_first_is_kept),
        cmocka_unit_test(what_is_not_described_is_kept),
        cmocka_unit_test(plans_keep_their_states),
    };

    return cmocka_run_group_tests_name("model/outlives", tests, NULL, NULL);
}
