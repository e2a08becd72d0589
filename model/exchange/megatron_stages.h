/* megatron_stages.h -- Megatron-LM's uneven stages as the layout that a plan has: --pipeline-model-parallel-layout, and
 * --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers (megatron-core 0.16.1, core/transformer/transformer_block.py,
 * get_num_layers_to_build()). */
#ifndef DPX_MEGATRON_STAGES_H
#define DPX_MEGATRON_STAGES_H

#include <jansson.h>

#include "model/plan/plan.h"

/* Chunks of a rank by a layout, `ranks` being the pipeline's: 0: the options have none; -1 reported. */
int64_t megatron_stages_chunks(const json_t *options, const char *where, int64_t ranks);

/* Sets p->megatron.pipeline_layout, from the options where they say what stages have, of `ranks` ranks with so many chunks each.  0, or -1
 * reported. */
int megatron_stages_read(const json_t *options, const char *where, int64_t ranks, int64_t chunks, struct plan *p);

#endif
