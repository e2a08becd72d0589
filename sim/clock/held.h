/* held.h -- what entries that ran change about held memory (held.c), one by one in order of issue. */
#ifndef DPX_HELD_H
#define DPX_HELD_H

#include "model/schedule/ledger.h"
#include "sim/clock/timeline.h"

/* At t so many bytes more, or less, are held; `at`: the position of the entry that it is of. */
struct held_change { double t; int64_t bytes, at; };
struct held_changes { struct held_change *c; int64_t n, room; };

struct held {
    const struct schedules *s;
    unsigned in;                    /* which spaces: IN() */
    int64_t *base;                  /* of each buffer, its first instance in last_use[] */
    double  *last_use;
    struct held_changes changes;
};

void held_open(struct held *h, const struct schedules *s, unsigned in);
void held_close(struct held *h);
/* The next entry in order of issue, which is done. */
void held_take(struct held *h, const struct ran *ran, int64_t at);
/* By time; at one instant what goes, goes first; then in order of issue. */
void held_sort(struct held_changes *l);

#endif
