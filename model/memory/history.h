/* history.h -- what PyTorch's allocator would record of a plan's step (torch.cuda.memory._record_memory_history): every request and release
 * with its address, every segment, and what is held at the end.
 *
 *     struct history h;
 *     if (history_of(&plan, &schedules, &overhead, &h) == 0)
 *         ... h.event[i], h.piece[i] ...
 *     history_free(&h);
 *
 * Of the second steady step, where the allocator repeats itself; of a plan that runs out of memory the step in which it does, up to there. */
#ifndef DPX_HISTORY_H
#define DPX_HISTORY_H

#include "model/memory/reserved.h"

/* Names of PyTorch's: history_name(). */
enum history_what { HISTORY_ALLOC, HISTORY_FREE_REQUESTED, HISTORY_FREE_COMPLETED, HISTORY_SEGMENT_ALLOC, HISTORY_SEGMENT_FREE, HISTORY_OOM };

/* The entry of a schedule that asks. */
struct history_place { int64_t iteration; int32_t op; enum sched_id sched; };
struct history_event { enum history_what what; int stream; int64_t addr, size; struct history_place at; };
struct history_piece { struct caching_piece is; struct history_place at; };     /* at: who asked for it; op -1: it is free */

struct history {
    struct history_event *event; int64_t n, cap;
    struct history_piece *piece; int64_t npieces, cap_pieces;
    bool    out_of_memory;
    int64_t free;                   /* of an OOM: bytes that the device had left */
};

const char *history_name(enum history_what w);

/* 0, or -1 with the reason reported: of a plan whose kernels are not PyTorch's, or without an end. */
int  history_of(const struct plan *p, const struct schedules *s, const struct overhead *o, struct history *out);
void history_free(struct history *h);

#endif
