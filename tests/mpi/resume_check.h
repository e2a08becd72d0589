/* resume_check.h -- a run that goes on in another train, bit for bit: one train makes all steps and hands out its state after some of them;
 * another begins with such a state and must have the same losses, norms and, at the end, the same state, byte by byte.  Handing it out
 * changes nothing: what it is held against is a third train that was not asked. */
#ifndef DPX_TESTS_MPI_RESUME_CHECK_H
#define DPX_TESTS_MPI_RESUME_CHECK_H

#include "tests/mpi/matrix_ranks.h"

#include <math.h>

#include "base/hash.h"
#include "base/room.h"
#include "exec/data/xxh64.h"

enum { RESUME_STEPS = 5 };              /* PowerSGD's residuals are there from the third on */

/* ---- a state in memory ---- */

struct kept_state { struct train_progress at; struct exec_part *part; void **bytes; int64_t n, room, room_bytes, next; };

static int keep_part(void *arg, const struct exec_part *part, void *bytes)
{
    struct kept_state *s = arg;

    s->part = room_for(s->part, s->n, &s->room, sizeof *s->part);
    s->bytes = room_for(s->bytes, s->n, &s->room_bytes, sizeof *s->bytes);
    s->part[s->n] = *part;
    s->bytes[s->n] = memcpy(room_new((size_t)part->n + 1, 1), bytes, (size_t)part->n);
    s->n++;
    return 0;
}

static int give_part(void *arg, const struct exec_part *part, void *bytes)
{
    struct kept_state *s = arg;

    if (s->next >= s->n || memcmp(&s->part[s->next], part, sizeof *part) != 0) {
        complain("rank %d: part %d of the state is not what was kept\n", rank, (int)s->next);
        return -1;
    }
    memcpy(bytes, s->bytes[s->next++], (size_t)part->n);
    return 0;
}

static void forget_kept(struct kept_state *s)
{
    for (int64_t i = 0; i < s->n; i++)
        free(s->bytes[i]);
    free(s->part);
    free(s->bytes);
    *s = (struct kept_state){ 0 };
}

static int hash_part(void *arg, const struct exec_part *part, void *bytes)
{
    uint64_t *h = arg;

    *h = hash_mix(hash_mix(hash_mix(*h, (uint64_t)part->family), (uint64_t)part->instance), xxh64(bytes, (size_t)part->n));
    return 0;
}

/* ---- runs ---- */

struct resume_bits { double loss[RESUME_STEPS], norm[RESUME_STEPS]; uint64_t state; };

static bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

/* From step `from` on; kept[k]: the state after step k + 1, NULL: is not asked for. */
static bool resume_run(struct train *t, int from, struct kept_state *kept, struct resume_bits *out)
{
    struct train_report r;

    for (int i = from; i < RESUME_STEPS; i++) {
        if (train_step(t, false, &r) < 0) {
            complain("rank %d: step %d fails: %s\n", rank, i + 1, train_why(t));
            return false;
        }
        out->loss[i] = r.loss;
        out->norm[i] = r.norm_taken ? r.grad_norm : -1;
        if (kept && i + 1 < RESUME_STEPS) {
            kept[i].at = train_progress(t);
            if (train_state_out(t, keep_part, &kept[i]) < 0)
                complain("rank %d: no state after step %d\n", rank, i + 1);
        }
    }
    out->state = HASH_BEGIN;
    return train_state_out(t, hash_part, &out->state) == 0;
}

static struct train *resume_open(const struct plan *p, struct device *d, bool resume)
{
    struct train_args a = args_of(p, false);

    a.device = d;
    a.resume = resume;
    struct train *t = train_open(&a, &(struct train_refusal){ 0 });
    if (!t)
        complain("rank %d: it does not begin\n", rank);
    return t;
}

static void compare_from(const struct plan *p, struct device *d, int from, struct kept_state *kept, const struct resume_bits *want)
{
    struct resume_bits got = *want;
    struct train *t = resume_open(p, d, true);

    if (t && train_state_in(t, &kept->at, give_part, kept) == 0 && resume_run(t, from, NULL, &got)) {
        for (int i = from; i < RESUME_STEPS; i++)
            if (!same_bits(got.loss[i], want->loss[i]) || !same_bits(got.norm[i], want->norm[i]))
                complain("rank %d, from step %d on: loss %.17g and norm %.17g in step %d, not %.17g and %.17g\n", rank, from + 1, got.loss[i],
                         got.norm[i], i + 1, want->loss[i], want->norm[i]);
        if (kept->next != kept->n || got.state != want->state)
            complain("rank %d, from step %d on: another state at the end\n", rank, from + 1);
        if (executor_meter(train_executor(t))->peak != executor_allocated_peak(train_executor(t)))
            complain("rank %d, from step %d on: another peak than the dry run's\n", rank, from + 1);
    } else if (t) {
        complain("rank %d: it does not go on from step %d\n", rank, from + 1);
    }
    train_close(t);
}

/* On the host (NULL) or another device. */
static inline void resume_plan(const struct plan *p, struct device *d)
{
    struct kept_state kept[RESUME_STEPS] = { 0 };
    struct resume_bits want = { .state = 0 }, asked = { .state = 0 };
    struct train *t;

    steps = RESUME_STEPS;
    if ((t = resume_open(p, d, false)) && resume_run(t, 0, NULL, &want)) {
        train_close(t);
        if ((t = resume_open(p, d, false)) && resume_run(t, 0, kept, &asked) && memcmp(&asked, &want, sizeof want) != 0)
            complain("rank %d: handing the state out changes the run\n", rank);
        train_close(t);
        for (int k = 1; k < RESUME_STEPS; k++)
            compare_from(p, d, k, &kept[k - 1], &want);
    } else {
        train_close(t);
    }
    for (int k = 0; k < RESUME_STEPS; k++)
        forget_kept(&kept[k]);
}

#endif
