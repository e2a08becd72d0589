/* recorded_steps.h -- steps whose memory was recorded from PyTorch (tests/golden/memory), each lowered: what its trackers
 * count of the device, and what was counted of the host and of copies between both. */
#ifndef DPX_TEST_RECORDED_STEPS_H
#define DPX_TEST_RECORDED_STEPS_H

#include "tests/check.h"

#include <string.h>

#include "model/lower/lower.h"
#include "model/schedule/ledger.h"
#include "tests/model/as_recorded.h"

struct step {
    json_t          *line;
    const char      *name;
    struct plan      plan;
    struct schedules schedules;
    struct ledger    ledger;
};

static inline int64_t recorded(const struct step *s, const char *table, const char *category)
{
    const json_t *steady = json_object_get(s->line, "steady");

    return json_integer_value(json_object_get(json_object_get(steady, table), category));
}

static inline void load(struct step *s, const char *text, const json_t *models)
{
    memset(s, 0, sizeof *s);
    s->line = json_loads(text, 0, NULL);
    assert_non_null(s->line);
    s->name = json_string_value(json_object_get(s->line, "name"));
    json_t *plan = json_object_get(s->line, "plan");
    const char *model = json_string_value(json_object_get(plan, "model"));
    json_object_set(plan, "model", json_object_get(models, model));
    as_recorded(plan);
    assert_int_equal(plan_from_json(plan, s->name, &s->plan), 0);
    assert_int_equal(lower(&s->plan, 0, &s->schedules), 0);
    ledger_run(&s->schedules, &s->ledger);
}

static inline void release(struct step *s)
{
    schedules_free(&s->schedules);
    plan_free(&s->plan);
    json_decref(s->line);
}

static inline int each_line(const char *path, void (*check)(const struct step *))
{
    char text[32768];
    FILE *f = fopen(path, "r");
    int n = 0;

    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    json_t *head = json_loads(text, 0, NULL);
    while (fgets(text, sizeof text, f)) {
        struct step s;
        load(&s, text, json_object_get(head, "models"));
        check(&s);
        release(&s);
        n++;
    }
    json_decref(head);
    fclose(f);
    return n;
}

static inline int64_t on_host(const struct step *s, const char *when, const char *what)
{
    const json_t *host = json_object_get(json_object_get(s->line, "steady"), "host");

    return json_integer_value(json_object_get(json_object_get(host, when), what));
}

/* The device's peak.  The tracker's account and ours differ by the batch, some kilobytes. */
static inline void device_agrees(const struct step *s)
{
    const json_t *steady = json_object_get(s->line, "steady");
    int64_t want = json_integer_value(json_object_get(steady, "peak_total")), got = s->ledger.phase[SCHED_STEADY].bytes;

    if (fabs((double)(got - want)) > fmax(1e-4 * (double)want, 8192))
        fail_msg("%s: %lld, PyTorch takes %lld (%+.3f %%)", s->name, (long long)got, (long long)want,
                 100 * (double)(got - want) / (double)want);
}

struct copied { int64_t up, down, copies; };

static inline int count_copy(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct copied *c = arg;
    enum space from, to;

    (void)iteration;
    if (o->kind != OP_COPY || !sched_crosses(s, o, &from, &to) || (from != SPACE_DEVICE && to != SPACE_DEVICE))
        return 0;
    c->up += to == SPACE_DEVICE ? o->u.copy.writes : 0;
    c->down += from == SPACE_DEVICE ? o->u.copy.reads : 0;
    c->copies += o->u.copy.reads > 0;
    return 0;
}

static inline void agrees(const struct step *s, const char *what, int64_t got, int64_t want)
{
    if (got != want)
        fail_msg("%s: %s: %lld, PyTorch counts %lld", s->name, what, (long long)got, (long long)want);
}

/* Bytes in each direction and calls, of the second step; `scalar`: of a number that travels both ways beside them. */
static inline void copies_agree(const struct step *s, int64_t scalar)
{
    struct copied c = { 0, 0, 0 };

    sched_walk(&s->schedules, SCHED_STEADY, count_copy, &c);
    agrees(s, "bytes to the device", c.up + scalar, on_host(s, "copied", "up"));
    agrees(s, "bytes to the host", c.down + scalar, on_host(s, "copied", "down"));
    agrees(s, "copies", c.copies + (scalar ? 2 : 0), on_host(s, "copied", "copies"));
}

#endif
