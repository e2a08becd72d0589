/* layers.c -- the layers of a candidate's stages, as Megatron-LM takes them. */
#include "sim/search/layers.h"

#include "model/plan/pipeline_layout.h"

/* A layout of stages that are as even as can be where embedding and loss take a block's place each.  What is over goes to the stages before
 * the last: the first ones hold the most micro-steps, and the last one's head takes longer than a block.  Not where a stage would be empty. */
static void lay_out(struct plan *p, int64_t stages)
{
    struct pipeline_layout l = { .stages = (int)stages, .layers = p->model.layers };
    int64_t each = (p->model.layers + 2) / stages, over = (p->model.layers + 2) % stages;

    if (stages > LAYOUT_STAGES || each < 1 || stages < 3)
        return;
    for (int64_t s = 0; s < stages; s++)
        l.blocks[s] = each + (s < stages - 1 && s >= stages - 1 - over) - (s == 0 || s == stages - 1);
    if (pipeline_layout_text(&l, p->megatron.pipeline_layout, sizeof p->megatron.pipeline_layout) < 0)
        p->megatron.pipeline_layout[0] = '\0';
}

void layers_divide(struct plan *p)
{
    int64_t stages = p->parallel.pipeline * p->parallel.virtual_stages;
    bool even = p->model.layers % stages == 0, counts = !even && (p->model.layers + 2) % stages == 0;

    p->parallel.first_stage_less = p->parallel.last_stage_less = counts;
    p->megatron.pipeline_layout[0] = '\0';
    if (!even && !counts)
        lay_out(p, stages);
}
