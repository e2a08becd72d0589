/* A pipeline's list with its bodies written once is the list: unfolded it is act for act what the generators make, of every order, by
 * every code that runs it, of 2 to 16 ranks, whatever the number of micro-steps. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "model/lower/common/pipeline_fold.h"

static bool one_stage(const struct pipeline *p) { return p->kind == PIPELINE_GPIPE || p->kind == PIPELINE_1F1B; }

/* Whether the code runs the pipeline. */
static bool runs(const struct pipeline *p, enum pipeline_code code)
{
    bool torch = !pipeline_refused(p) && p->group == 0;

    switch (code) {
    case PIPE_RUNTIME:            return torch;
    case PIPE_OWN_LOOP:
    case PIPE_OWN_LOOP_29:        return torch && one_stage(p);
    case PIPE_LOCK_STEP_29:       return torch && !one_stage(p) && !pipeline_refused_in_step(p);
    case PIPE_MEGATRON:           return (p->kind == PIPELINE_1F1B && p->chunks == 1) || (p->kind == PIPELINE_INTERLEAVED && p->group > 0);
    case PIPE_MEGATRON_OVERLAPS:  return p->kind == PIPELINE_INTERLEAVED && p->group > 0;
    case PIPE_DEEPSPEED:          return p->kind == PIPELINE_1F1B && p->chunks == 1;
    }
    return false;
}

static void same_act(const struct pipeline *p, enum pipeline_code code, struct pipeline_act a, const struct pipeline_acts *l, int i)
{
    if (i >= l->n || a.verb != l->act[i].verb || a.with != l->act[i].with || a.chunk != l->act[i].chunk || a.step != l->act[i].step)
        fail_msg("%s, code %d, rank %d of %d, %d chunks, %d micro-steps in rounds of %d: act %d of %d differs", pipeline_name(p->kind), code,
                 p->rank, p->ranks, p->chunks, p->steps, p->group, i, l->n);
}

/* Unfolds and compares; acts that were written. */
static int unfold(const struct pipeline *p, enum pipeline_code code)
{
    struct pipeline_fold f;
    struct pipeline_acts l = { 0 };
    int at = 0, next = 0, n;

    pipeline_folded(p, code, &f);
    pipeline_acts_of(p, code, &l);
    for (int i = 0; i < f.acts.n; ) {
        const struct pipeline_repeat *r = next < f.nrepeats && f.repeat[next].from == i ? &f.repeat[next++] : NULL;
        for (int k = 0; k < (r ? r->n : 1); k++)
            for (int j = 0; j < (r ? r->len : 1); j++)
                same_act(p, code, r ? pipeline_fold_act(&f, i + j, r, k) : f.acts.act[i], &l, at++);
        i += r ? r->len : 1;
    }
    assert_int_equal(at, l.n);
    n = f.acts.n;
    free(l.act);
    pipeline_fold_free(&f);
    return n;
}

static void every_order_is_what_its_fold_unfolds_to(void **state)
{
    static const int ranks[] = { 2, 3, 4, 5, 8, 16 }, chunks[] = { 1, 2, 3, 4, 8 };
    static const int steps[] = { 1, 2, 5, 8, 12, 17, 32, 33, 64, 97, 128, 150 };
    int met[NPIPELINE] = { 0 };

    (void)state;
    for (int kind = 0; kind < NPIPELINE; kind++)
        for (int r = 0; r < 6; r++)
            for (int c = 0; c < 5; c++)
                for (int m = 0; m < 12; m++)
                    for (int code = 0; code <= PIPE_DEEPSPEED; code++)
                        for (int group = 0; group <= 2; group++) {
                            struct pipeline p = { (enum pipeline_kind)kind, .ranks = ranks[r], .chunks = chunks[c], .steps = steps[m],
                                                  .group = group == 2 ? ranks[r] + 1 : group * ranks[r] };
                            if (!runs(&p, (enum pipeline_code)code))
                                continue;
                            if (code == PIPE_RUNTIME || code == PIPE_LOCK_STEP_29)      /* lists of all ranks are made for each */
                                p.rank = (m + c) % p.ranks;
                            for (; p.rank < p.ranks; p.rank += code == PIPE_RUNTIME || code == PIPE_LOCK_STEP_29 ? p.ranks : 1) {
                                unfold(&p, (enum pipeline_code)code);
                                met[kind]++;
                            }
                        }
    for (int kind = 0; kind < NPIPELINE; kind++)
        assert_in_range(met[kind], 40, 100000);
}

/* What is written does not grow with the micro-steps.  Messages that are under way do in GPipe and breadth first alone. */
static void what_is_written_does_not_grow(void **state)
{
    (void)state;
    for (int kind = 0; kind < NPIPELINE; kind++)
        for (int code = 0; code <= PIPE_DEEPSPEED; code++) {
            struct pipeline p = { (enum pipeline_kind)kind, .ranks = 8, .rank = 3, .chunks = pipeline_usual_chunks((enum pipeline_kind)kind),
                                  .steps = 10000, .group = code == PIPE_MEGATRON_OVERLAPS || (code == PIPE_MEGATRON && kind == PIPELINE_INTERLEAVED) ? 8 : 0 };
            struct pipeline_fold f;
            if (!runs(&p, (enum pipeline_code)code))
                continue;
            pipeline_folded(&p, (enum pipeline_code)code, &f);
            bool grows = (kind == PIPELINE_GPIPE || kind == PIPELINE_LOOPED_BFS) && code != PIPE_LOCK_STEP_29;
            assert_in_range(f.nrepeats, 1, 7);
            assert_in_range(f.acts.n, 1, 500);
            for (int way = 0; way < PIPE_WAYS; way++)       /* the runtime waits for gradients that it sent at the very end */
                if (f.under_way[way] > 24)
                    assert_true(f.under_way[way] == p.steps && (grows || (way == PIPE_SEND_B - PIPE_SEND_F && code == PIPE_RUNTIME)));
            pipeline_fold_free(&f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_is_what_its_fold_unfolds_to),
        cmocka_unit_test(what_is_written_does_not_grow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
