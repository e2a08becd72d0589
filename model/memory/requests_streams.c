/* requests_streams.c -- how far the issuing thread knows streams to be: see requests.h. */
#include "model/memory/requests_internal.h"

#include <string.h>

static void learn(int64_t to[NSTREAM], const int64_t from[NSTREAM])
{
    for (int s = 0; s < NSTREAM; s++)
        if (from[s] > to[s])
            to[s] = from[s];
}

void requests_wait_for(struct walk *w, const struct op *o)
{
    int64_t *mine = w->known[o->stream];

    for (unsigned after = o->after; after; after &= after - 1) {
        int s = __builtin_ctz(after);
        w->known[s][s] = w->t->events(w->t->of, s);
        learn(mine, w->known[s]);
    }
    for (int i = 0; i < 2; i++)
        if (o->wait[i])
            learn(mine, w->at_event[o->wait[i]]);
    if (o->stream != STREAM_ISSUE || !(o->after || o->wait[0]))
        return;
    learn(mine, w->pace);
    if (o->wait[0])
        memcpy(w->pace, w->issued[o->wait[0]], sizeof w->pace);
    for (int s = 0; s < NSTREAM; s++)
        w->t->complete(w->t->of, s, mine[s]);
}

void requests_record(struct walk *w, const struct op *o)
{
    int64_t *issued = w->issued[o->record];

    for (int s = 0; s < NSTREAM; s++)
        issued[s] = w->t->events(w->t->of, s);
    w->known[o->stream][o->stream] = issued[o->stream];
    memcpy(w->at_event[o->record], w->known[o->stream], sizeof w->known[o->stream]);
}
