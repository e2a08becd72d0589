/* megatron_layers.h -- Megatron-LM's options that have a number for each layer: --moe-layer-freq ([0]*3+[1]*58). */
#ifndef DPX_MEGATRON_LAYERS_H
#define DPX_MEGATRON_LAYERS_H

#include <stdint.h>

#include <jansson.h>

/* A list of 0 and 1, or the text of a Python expression of lists, +, * and parentheses (training/arguments.py, _eval_pattern()): *every is 0, and
 * `of` has that of each of so many layers.  Or one number: *every.  0, or -1 reported. */
int megatron_layers_read(const json_t *v, const char *where, const char *name, int64_t layers, int64_t *every, unsigned char *of);

#endif
