/* megatron_graphs.h -- Megatron-LM's options of CUDA graphs, in and out. */
#ifndef DPX_MEGATRON_GRAPHS_H
#define DPX_MEGATRON_GRAPHS_H

#include <stdio.h>

#include "model/exchange/megatron_read.h"

/* 0, or -1 with the option named. */
int  megatron_read_graphs(struct import *in);
void megatron_write_graphs(const struct plan *p, FILE *to);

#endif
