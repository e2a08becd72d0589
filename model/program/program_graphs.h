/* program_graphs.h -- which kernels of a program CUDA graphs replay (model/plan/graphs.h). */
#ifndef DPX_PROGRAM_GRAPHS_H
#define DPX_PROGRAM_GRAPHS_H

#include "model/program/program.h"

/* Sets `captured` of all kernels, once the lists are complete. */
void program_mark_graphs(const struct plan *p, struct program *g);

#endif
