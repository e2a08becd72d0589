/* program_internal.h -- what builds the programs; for program*.c only. */
#ifndef DPX_PROGRAM_INTERNAL_H
#define DPX_PROGRAM_INTERNAL_H

#include "model/plan/local_model.h"
#include "model/program/program.h"

/* Of what a rank has; `stages`: embedding and loss are on different ranks. */
int program_build_torch(const struct local_model *local, bool stages, struct program *out);
int program_build_dpx(const struct local_model *local, bool stages, struct program *out);
/* Of a recorded model (program_recorded.c). */
int program_build_recorded(const struct local_model *local, struct program *out);
enum piece_id program_recorded_piece(const struct plan *p, int64_t b);
int program_recorded_period(const struct plan *p, int *alone);
int program_recorded_ntensors(const struct plan *p, enum piece_id piece);
int program_recorded_tensor(const struct plan *p, enum piece_id piece, int64_t block, int i);

/* Block 0 is a piece of its own: program_first_differs(); or its input may be narrower than what it hands on.  bitsandbytes' layers answer
 * in their input's dtype: behind LayerNorm, which autocast runs in fp32, blocks hand on fp32 where the frozen embedding is in 16 bits. */
bool program_first_is_apart(const struct plan *p);

/* Copies n kernels as a pass of a piece.  0, or -1 reported. */
int piece_take(struct piece *out, enum pass pass, const struct kernel *k, int n);
/* And the collectives that the kernels say they are; of[]: the tape's, with kernels as the tape counts them. */
int piece_collectives(struct piece *out, enum pass pass, const struct collective *of);
/* And the places of these kernels, which begin at the first one's place0; after piece_take(). */
int piece_places(struct piece *out, enum pass pass, const struct place *places);

/* A pass becomes another piece's. */
void piece_give_pass(struct piece *from, enum pass pass, struct piece *to);

/* PIECE_RECEIVED and PIECE_SENT of a plan with a pipeline, once the other pieces are there.  0, or -1 reported. */
int program_add_edges(const struct plan *p, struct program *out);

/* Backwards in two halves, for schedules that have them: of kernels that autograd runs; of our own.  0, or -1 reported. */
int program_add_split(const struct plan *p, struct program *out);
int program_add_split_dpx(const struct local_model *local, struct program *out);

/* A head whose weight gradient is computed behind the step's last backward (Megatron-LM).  0, or -1 reported. */
int program_add_deferred(struct program *g);

/* The names of what a stage receives, a tensor or its gradient, and of what it sends: another tensor. */
enum { EDGE_RECEIVED = 1 << 30, EDGE_SENT };

/* The spans of whole passes, once the kernels are all there. */
void program_measure(struct program *g);

#endif
