/* arena.h -- one memory of a rank: one region, every byte of it accounted.  A rank has an arena for each space
 * (schedule.h) in which its buffers lie; that of the disk is a meter alone.
 *
 * Addresses are decided when an entry is issued, long before it runs.  A block that was given
 * back can be taken again at once where the schedule's own waits put the new user behind the
 * last use of the old one; otherwise another place is found.  So no task waits for memory,
 * and the same schedule gets the same addresses on every run: a dry run beforehand finds how
 * large the region must be.
 *
 *     struct arena *a = arena_new(false);
 *     int64_t at = arena_take(a, bytes, CAT_BUCKET, &when);    offsets into the region
 *     arena_give(a, at, &last_use);
 *     ... arena_map(a, arena_extent(a)) ... arena_at(a, at)
 *
 * Two meters: *allocated*, here, counts from arena_take() to arena_give(), in issue order;
 * *held*, lanes.h, from the start of the work that takes until the last use is done. */
#ifndef DPX_ARENA_H
#define DPX_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "model/schedule/schedule.h"

/* A moment in a partial order: on each stream, how many entries have been done at least. */
struct when { int64_t done[NSTREAM]; };

static inline void when_join(struct when *a, const struct when *b)
{
    for (int s = 0; s < NSTREAM; s++)
        if (b->done[s] > a->done[s])
            a->done[s] = b->done[s];
}

/* Is everything that `a` waits for done at `b`? */
static inline bool when_before(const struct when *a, const struct when *b)
{
    for (int s = 0; s < NSTREAM; s++)
        if (a->done[s] > b->done[s])
            return false;
    return true;
}

/* most: since the last arena_mark(). */
struct arena_meter { int64_t live, peak, most, live_by[NCAT], at_peak[NCAT]; };

struct arena;

/* `guarded`: every block ends at a page that faults when touched, and starts as NaN.  Free with
 * arena_free(), which accepts NULL. */
struct arena *arena_new(bool guarded);
void          arena_free(struct arena *a);
/* From now on blocks begin at multiples of `align`, itself one of 64, and not only of 64; guarded they do not. */
void          arena_align(struct arena *a, int align);

/* Offset of `bytes` bytes, aligned to 64, not below `at`; 0 bytes are a place
 * too.  Never fails for want of space before it is mapped; after that -1, reported. */
int64_t arena_take(struct arena *a, int64_t bytes, enum category cat, const struct when *at);
/* Bytes that come (or go: negative) at a place that is not this arena's: files have their own (store.h).  Only the meter. */
void    arena_account(struct arena *a, int64_t bytes, enum category cat);
/* Gives a block back whose uses are done at `last`. */
void    arena_give(struct arena *a, int64_t offset, const struct when *last);
/* What is taken from here on repeats what was taken since the last call: the n-th take gets the place of the n-th then, if
 * that is free (a guarded arena does so anyway, by size).  Until arena_reset(). */
void    arena_repeat(struct arena *a);
/* Everybody has waited for `done`: what is free since then lies together again. */
void    arena_settled(struct arena *a, const struct when *done);

/* All uses so far are done, and counts of done tasks begin anew at 0. */
void    arena_all_done(struct arena *a);

/* Bytes of address space used so far. */
int64_t arena_extent(const struct arena *a);
/* One number for all that places depend on: where blocks lie, which of them are taken, where takes that repeat were. */
uint64_t arena_layout(const struct arena *a);
const struct arena_meter *arena_meter(const struct arena *a);
void arena_mark(struct arena *a);
/* Bytes of a live block, as asked for. */
int64_t arena_bytes(const struct arena *a, int64_t offset);

/* Starts anew, everything free; the mapping and its extent stay. */
void arena_reset(struct arena *a);
/* Maps `extent` bytes, all of them really there (populated); more are added when needed, up to
 * four times as many.  0, or -1 reported. */
int   arena_map(struct arena *a, int64_t extent);
/* On an asynchronous device in place of the host: exactly `extent` bytes, and never more.  The device
 * outlives the arena, which is not guarded. */
struct device;
int   arena_map_on(struct arena *a, struct device *d, int64_t extent);
/* Pinned host memory, which an asynchronous device copies from and to without the host: exactly `extent` bytes.  On
 * the host it is ordinary memory. */
int   arena_map_pinned(struct arena *a, struct device *d, int64_t extent);
void *arena_at(const struct arena *a, int64_t offset);

/* For a debug run: block `offset`, whose bytes are NaN from now on. */
void arena_poison(const struct arena *a, int64_t offset, int64_t bytes);

#endif
