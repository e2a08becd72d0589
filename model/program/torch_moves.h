/* torch_moves.h -- what the kernels of a piece allocate and free, in order. */
#ifndef DPX_TORCH_MOVES_H
#define DPX_TORCH_MOVES_H

#include "model/program/tape.h"

/* Copies the moves of a pass's kernels, which piece_take() took from the tape, to the piece.  A piece is what
 * the tape replayed as its parts `part` (forward) and part+1 (backward); `head` is the head's forward, which
 * frees what blocks leave behind.  What settling added to a kernel's net becomes a move of its own.  0, or -1
 * with the reason reported. */
int torch_moves(const struct tape *t, int part, int head, bool settles, struct piece *out, enum pass pass);

#endif
