/* deepspeed_stages.h -- which layers of a DeepSpeed PipelineModule each stage has.
 *
 *     const char *why = deepspeed_stages_refused(plan);
 *     struct local_stage s = deepspeed_stage(plan, 4, 2);      blocks of stage 2 of 4
 *
 * The module's list of layers is the user's; the one planned here is the token embedding, learned positions where there are
 * any, each block, the final norm and the head; a tied head is a TiedLayerSpec of the token embedding. */
#ifndef DPX_DEEPSPEED_STAGES_H
#define DPX_DEEPSPEED_STAGES_H

#include "model/plan/local_share.h"

/* The blocks of a stage, by deepspeed.partition_method. */
struct local_stage deepspeed_stage(const struct plan *p, int64_t stages, int64_t stage);

/* Why the partition cannot be planned: static; NULL: it can. */
const char *deepspeed_stages_refused(const struct plan *p);

#endif
