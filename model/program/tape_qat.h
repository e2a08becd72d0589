/* tape_qat.h -- torchao's fake quantisation on the tape (0.18, quantization/qat/fake_quantizer.py, quant_primitives.py), single operations of
 * Python all:
 *
 *     scale, zero point     of each token's, or each group's, extremes; without a graph
 *     x * (1 / scale)       in fp32; keeps 1 / scale
 *     round, + zero point   in fp32; a rounding hands its gradient on
 *     clamp                 keeps its input, in fp32
 *     copy, - zero point    in x's dtype
 *     * scale               in fp32
 *     back to x's dtype     which the product keeps
 *
 * So a layer keeps 6 bytes for each number of its input, and 6 for each of its weight where that trains, 2 where it is frozen. */
#ifndef DPX_TAPE_QAT_H
#define DPX_TAPE_QAT_H

#include "model/program/tape.h"

/* x, rounded in so many groups of one scale; per token asymmetrically (with a zero point that is not 0), which takes two kernels more.
 * `holds`: the scales are counted here, not with what the layer keeps from step to step. */
var  tape_rounded(struct tape *t, var x, int64_t groups, bool tokens, bool holds);

/* Backward of the node of its clamp. */
void tape_run_clamp(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

/* A weight as Int4WeightFakeQuantizer has it beside inputs in bf16, which is what axolotl asks for: in fp32, with a scale and a zero point for
 * each of so many groups through which gradients go, too.  It keeps w, w less its group's smallest, the rounded numbers, and those less 8, 16
 * bytes for each number, beside the rounded weight that the product keeps.
 *
 *     w -> fp32; largest, smallest; scale = clamp(largest - smallest) / 15, zero point = smallest + 8 scale
 *     round((w - smallest) / scale), clamp, - 8, * scale, + zero point, -> w's dtype */
var  tape_rounded_mslk(struct tape *t, var w, int64_t groups);
void tape_run_mslk(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
