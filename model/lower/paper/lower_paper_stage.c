/* lower_paper_stage.c -- a pipeline's stage of the paper's strategies: which units, and its part of a tied embedding. */
#include "model/lower/paper/lower_paper.h"

void paper_enter_chunk(struct paper *z, const struct stage_ports *ports, const struct pipeline_act *a)
{
    int halves = z->map.kind == UNIT_HALF_BLOCK ? 2 : 1;
    bool whole = z->map.kind == UNIT_MODEL;

    z->embeds = stage_ports_embeds(ports, a->chunk);
    z->heads = stage_ports_heads(ports, a->chunk);
    z->block0 = stage_ports_block0(ports, a->chunk);
    z->block1 = stage_ports_block1(ports, a->chunk);
    z->unit0 = z->map.blocks > 1 ? 0 : halves * z->block0;
    z->unit1 = z->map.blocks > 1 ? z->map.n : halves * z->block1;
    z->root = (struct at){ whole || z->embeds || (z->heads && !z->map.of_class[UC_HEAD]) ? UC_ROOT : z->heads ? UC_HEAD : NUC,
                           0, 0 };
    z->ties = z->map.of_class[UC_TIED] && z->root.c != NUC;
    if (z->ties && z->root.c == UC_ROOT && !z->map.of_class[UC_ROOT]) {     /* nothing else than the embedding */
        z->root = (struct at){ UC_TIED, 0, 0 };
        z->ties = false;
    }
    z->kept_blocks = (int)z->local->model->layers * a->step;
    z->kept_ends = a->step;
}

void paper_reduce_tied(struct paper *z)
{
    const struct model *m = z->local->model;
    bool unit = z->map.of_class[UC_TIED] > 0;

    for (int t = 0; t < m->ntensors; t++)
        if (z->local->partial && z->local->partial[t] & MESH_AXIS(AXIS_PIPE)) {
            sched_coll(z->s, STREAM_REDUCE, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_TIED, z->r.wire_reduce, RED_SUM,
                       unit && z->shards_grads ? z->padded[UC_TIED] / z->n : m->tensors[t].numel)->after = AFTER(STREAM_COMPUTE);
            if (unit)
                sched_act(z->s, ACT_RW, z->grads[UC_TIED], 0, 0);
            else
                sched_act_as(z->s, ACT_RW, z->grads[UC_ROOT], 0, 0, z->tied_grads);
        }
}
