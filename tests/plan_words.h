/* plan_words.h -- for tests: plans written as a reader of a plan file would, why one is refused, and what a schedule sends.
 *
 *     struct plan p = plan_in_words("{ 'dpx_plan': 1, 'model': 'gpt2', 'cluster': '%s', 'strategy': 'ddp', 'seq': 512 }", "8xh100");
 *     plan_words_refused("does not divide", "{ ... 'parallel': { 'tensor': 3 } }");
 *
 * JSON with 'single' or "double" quotes, written as printf() has it. */
#ifndef DPX_TESTS_PLAN_WORDS_H
#define DPX_TESTS_PLAN_WORDS_H

#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "base/fail.h"
#include "model/plan/plan.h"
#include "model/schedule/schedule.h"

/* 0, or -1 with the reason in `why`. */
static inline int plan_words_read(struct plan *p, char why[512], const char *format, va_list words)
{
    char text[2048];
    struct fail_sink before;

    assert_true(vsnprintf(text, sizeof text, format, words) < (int)sizeof text);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *j = json_loads(text, 0, NULL);
    if (!j)
        fail_msg("no JSON: %s", text);
    why[0] = '\0';
    before = fail_divert(why, 512);
    int rc = plan_from_json(j, "plan", p);
    fail_restore(before);
    json_decref(j);
    return rc;
}

/* The caller frees it. */
static inline struct plan plan_in_words(const char *format, ...)
{
    char why[512];
    struct plan p;
    va_list words;

    va_start(words, format);
    int rc = plan_words_read(&p, why, format, words);
    va_end(words);
    if (rc < 0)
        fail_msg("refused: %s", why);
    return p;
}

static inline void plan_words_refused(const char *because, const char *format, ...)
{
    char why[512];
    struct plan p;
    va_list words;

    va_start(words, format);
    int rc = plan_words_read(&p, why, format, words);
    va_end(words);
    if (rc == 0)
        fail_msg("taken, not refused with \"%s\"", because);
    if (!strstr(why, because))
        fail_msg("\"%s\" does not say \"%s\"", why, because);
}

/* ---- what is sent ---- */

/* Collectives of a steady step over groups that are for `is`, in one phase, of one kind (an enum coll_op; -1: any): their calls, and
 * what a rank puts on the wire. */
struct sent_over { enum group is; enum phase phase; int op; int64_t bytes, calls; };

static inline int sent_over_add(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct sent_over *c = arg;

    (void)iteration;
    if (o->kind == OP_COLL && sched_group(s, o)->is == c->is && o->phase == c->phase && (c->op < 0 || (int)o->u.coll.op == c->op)) {
        c->bytes += sched_sent_bytes(s, o);
        c->calls++;
    }
    return 0;
}

static inline struct sent_over sent_over(const struct schedules *s, enum group is, enum phase phase, int op)
{
    struct sent_over c = { .is = is, .phase = phase, .op = op };

    sched_walk(s, SCHED_STEADY, sent_over_add, &c);
    return c;
}

#endif
