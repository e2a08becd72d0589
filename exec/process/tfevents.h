/* tfevents.h -- scalars by step in a file that TensorBoard shows; `python -m dpx.scalars DIR` sends them to Weights & Biases.
 *
 *     struct tfevents *t = tfevents_open("runs/a");            makes the folder
 *     tfevents_scalar(t, 1, "loss", 10.8);
 *     if (tfevents_flush(t) < 0) ...                           after each step: who looks sees it
 *     tfevents_close(t);
 *
 * The file is events.out.tfevents.SECONDS.HOST.PID.dpx: one more of the same folder goes on where the last one ended. */
#ifndef DPX_TFEVENTS_H
#define DPX_TFEVENTS_H

#include <stdint.h>

struct tfevents;

/* Whether a file can be written there: 0, or -1 reported.  The folder is made. */
int tfevents_check(const char *folder);
/* NULL with the reason reported. */
struct tfevents *tfevents_open(const char *folder);
/* Of a step; NaN: it has none, and nothing is written. */
void tfevents_scalar(struct tfevents *t, int64_t step, const char *tag, double v);
/* 0, or -1 reported. */
int  tfevents_flush(struct tfevents *t);
void tfevents_close(struct tfevents *t);        /* accepts NULL */

#endif
