/* script_keys.h -- what a tool's file leaves to the training script: comments at its head, which an import reads back.
 *
 *     # The training script decides:
 *     #   seq 8192
 *     #   accumulation 4
 *
 * Always written: seq, micro_batch, accumulation, clip, loss, optimizer and its form; besides them each key that differs from its
 * default.  Keys that the file itself has are left out. */
#ifndef DPX_SCRIPT_KEYS_H
#define DPX_SCRIPT_KEYS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/plan/plan.h"

/* `tool` is KNOB_ACCELERATE, KNOB_DS or KNOB_TITAN. */
void script_keys_write(const struct plan *p, size_t tool, FILE *to);

/* The whole number behind such a key in a file's text; 0: it is not there. */
int64_t script_keys_count(const char *text, const char *name);

#endif
