/* requests_follow.c -- a steady step that is walked once more makes the same requests if the walk's own state is what it was before: all
 * but the numbers of requests, which the target compares by what they stand for.  Where the target has met the state that it was in
 * at the same place, the rest of the step is as the first time. */
#include "model/memory/requests_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/room.h"

static void put(struct walk_state *to, int64_t word)
{
    to->word = room_for(to->word, to->n, &to->cap, sizeof *to->word);
    to->word[to->n++] = word;
}

/* What the number stands for is the target's; that there is one is the walk's. */
static void hold(struct walk_state *to, int request)
{
    put(to, request != NONE);
    if (request == NONE)
        return;
    to->held = room_for(to->held, to->nheld, &to->cap_held, sizeof *to->held);
    to->held[to->nheld++] = request;
}

static void put_instance(struct walk_state *to, const struct instance *x, int i)
{
    put(to, i);
    put(to, x->pending);
    put(to, (int64_t)x->stream << 32 | x->uses);
    put(to, x->n);
    for (int b = 0; b < x->n; b++)
        hold(to, x->block[b]);
}

static void put_tensor(struct walk_state *to, const struct made *t)
{
    put(to, t->bytes);
    put(to, t->owner * (INT64_C(1) << 32) + t->tensor);         /* an end's number is negative */
    put(to, t->chunk * (INT64_C(1) << 32) + t->step);
    put(to, t->mem | t->pass << 8 | t->handed_on << 16 | t->left << 17 | t->kept << 19);
    hold(to, t->block);
}

static void state_of(const struct walk *w, struct walk_state *to)
{
    to->n = to->nheld = 0;
    for (int i = 0; i < w->first[w->s->nbufs]; i++)
        if (w->instances[i].n > 0 || w->instances[i].pending > 0)
            put_instance(to, &w->instances[i], i);
    put(to, NONE);
    for (int i = w->all.oldest; i != NONE; i = w->tensors[i].in[ALL].newer)
        put_tensor(to, &w->tensors[i]);
    put(to, NONE);
    for (int i = 0; i < w->npending; i++)
        put(to, w->pending[i]);
    for (int i = 0; i < NPOOL; i++)
        for (int pass = 0; pass < NPASS; pass++)
            hold(to, w->workspace[i][pass]);
}

/* Of a step with such repeats other iterations may be left out the other time. */
static bool leaves_out(const struct walk *w)
{
    for (int i = w->s->begin[SCHED_STEADY]; i < w->s->end[SCHED_STEADY]; i++)
        if (w->s->ops[i].kind == OP_REPEAT && requests_come_again(w, i))
            return true;
    return false;
}

void requests_watch(struct walk *w)
{
    w->watched = w->t->watch && !leaves_out(w);
    if (!w->watched)
        return;
    state_of(w, &w->before);
    w->t->watch(w->t->of, w->before.held, w->before.nheld);
}

bool requests_follow(struct walk *w)
{
    struct walk_state now = { 0 };
    bool same = w->watched;

    if (!same)
        return false;
    state_of(w, &now);
    same = now.n == w->before.n && !memcmp(now.word, w->before.word, (size_t)now.n * sizeof *now.word) &&
           w->t->follow(w->t->of, now.held, now.nheld);
    requests_state_free(&now);
    return same;
}

/* Where iterations are left out one of the times alone, requests are no longer those of the same place. */
void requests_follow_skip(struct walk *w, int64_t skipped)
{
    if (w->follows) {
        w->follows = w->at_skip < w->nskips && w->skips[w->at_skip] == skipped;
        w->at_skip++;
    } else if (w->watched) {
        w->skips = room_for(w->skips, w->nskips, &w->cap_skips, sizeof *w->skips);
        w->skips[w->nskips++] = skipped;
    }
}

void requests_state_free(struct walk_state *s)
{
    free(s->word);
    free(s->held);
}
