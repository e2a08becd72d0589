/* torch_moves.h -- what the kernels of a piece allocate and free, in order. */
#ifndef DPX_TORCH_MOVES_H
#define DPX_TORCH_MOVES_H

#include "model/program/tape.h"

/* The tape replays the embedding (part 0), two or three blocks and the head; each is two parts, forward and backward. */
struct torch_trace {
    const struct tape *t;
    int  part;                          /* what is copied, as its part of forward; likewise */
    int  head;                          /* the head, which frees what blocks leave behind, */
    int  last;                          /* the block that stands for all, */
    int  odd;                           /* and the block that frees what is made once for all of them */
    bool settles;                       /* what settling added to a kernel's net becomes moves of this piece */
};

/* Copies the moves of a pass's kernels, which piece_take() took from the tape, to the piece.  0, or -1 with the
 * reason reported. */
int torch_moves(const struct torch_trace *of, struct piece *out, enum pass pass);

#endif
