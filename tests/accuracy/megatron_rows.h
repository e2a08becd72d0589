/* megatron_rows.h -- Megatron-LM's published step times and activations beside dpx's: part of `make accuracy-public`. */
#ifndef DPX_MEGATRON_ROWS_H
#define DPX_MEGATRON_ROWS_H

#include "tests/accuracy/results.h"

/* Reads the file, predicts, adds to `all` and prints: errors by source, GPU and kind; with `rows` every row.  0, or -1 reported. */
int megatron_rows_print(const char *path, int rows, struct results *all);

#endif
