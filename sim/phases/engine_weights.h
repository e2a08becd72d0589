/* engine_weights.h -- which weights a rank of an inference engine has, and in how many bytes.
 *
 * Ranks of an engine are `tensor` by `pipeline`.  A stage of a pipeline has whole layers: vLLM 0.11.2 gives those that are left over to the stages
 * before the last one, from the last of them on (distributed/utils.py: get_pp_indices()), SGLang 0.5.23 to the last stages.  The first has the
 * embedding, the last norm and head, and a tied embedding too.
 *
 * Experts are cut as other layers are, over all ranks that share them, or shared out whole over `expert` ranks.  vLLM: enable_expert_parallel, over
 * tensor and data-parallel ranks; where they do not divide some ranks have one more (fused_moe/layer.py: determine_expert_map()).  SGLang: ep_size
 * of the tensor ranks, of which those that are left cut each expert: the same bytes.
 *
 * Quantised are the products' weights but those of routers and the head (is_layer_skipped(), lm_head_quantized of the methods in
 * model_executor/layers/quantization).  A weight takes
 *     fp8         1 byte, and a scale a tensor
 *     fp8-block   1 byte, and 4 for each block of 128 x 128 (weight_scale_inv)
 *     awq, gptq   half a byte, and of each group of 128 inputs a scale in the model's dtype and a zero point of 4 bits (awq.py, gptq.py:
 *                 create_weights(): qweight, qzeros, scales) */
#ifndef DPX_ENGINE_WEIGHTS_H
#define DPX_ENGINE_WEIGHTS_H

#include "sim/phases/engine.h"

/* Layers of a stage: the first one, and the one behind the last. */
struct engine_stage { int64_t from, to; bool first, last; };
struct engine_stage engine_stage(const struct engine *e, const struct model *m, int64_t stage);

/* Whether a rank of the stage has a part of the tensor, and how many elements. */
bool    engine_has(const struct engine_stage *s, const struct model *m, const struct tensor *t);
int64_t engine_share(const struct engine *e, const struct model *m, const struct tensor *t);
/* Bytes of n elements of it. */
double  engine_bytes(const struct engine *e, const struct tensor *t, double n);
bool    engine_is_coded(const struct engine *e, const struct tensor *t);

/* All of a stage's rank. */
int64_t engine_weights(const struct engine *e, const struct model *m, int64_t stage);

#endif
