/* pipeline_layout.h -- Megatron-LM's --pipeline-model-parallel-layout: how many blocks each stage of a pipeline has.
 *
 *     struct pipeline_layout l;
 *     if (pipeline_layout_read("Et*7|(t*8|)*14t*7L", "plan.json", &l) < 0) ...
 *     ... l.stages, l.blocks[3] ...                  16, 8
 *
 * E is the embedding, t a block, m a layer of multi-token prediction, L the loss; | ends a stage, commas say nothing, x*n is x n times, (...)*n a part n times
 * (megatron-core 0.16.1, core/transformer/pipeline_parallel_layer_layout.py, parse_str_to_list()). */
#ifndef DPX_PIPELINE_LAYOUT_H
#define DPX_PIPELINE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum { LAYOUT_STAGES = 1024 };

/* layers: of all stages together; mtp: layers of multi-token prediction, on the last. */
struct pipeline_layout { int stages, mtp; int64_t layers, blocks[LAYOUT_STAGES]; };

/* Stages come in the model's order: stage s is chunk s / ranks of rank s % ranks.  The embedding begins the first, the loss ends the
 * last.  0, or -1 reported, the text named as `where`: megatron.pipeline_model_parallel_layout. */
int pipeline_layout_read(const char *text, const char *where, struct pipeline_layout *out);

/* The text of a layout; equal ones in a row as one part.  0, or -1: it is longer than `size` (not reported). */
int pipeline_layout_text(const struct pipeline_layout *l, char *out, size_t size);

#endif
