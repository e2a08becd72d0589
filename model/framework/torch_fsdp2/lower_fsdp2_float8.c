/* lower_fsdp2_float8.c -- torchao's weights that are cast to 8-bit floats before FSDP2 gathers them.
 *
 * WeightWithDynamicFloat8CastTensor of torchao 0.18 (float8/fsdp_utils.py), called by FSDPParam.all_gather_inputs (torch 2.15), one weight
 * after the other on the copy-in stream: |w|, its largest value, that of all shards (an all-reduce of one number; not where
 * precompute_float8_dynamic_scale_for_fsdp() has made them behind the optimizer, of all weights in one), both in the dtype in which shards are
 * kept, w times the scale and clamped, both in fp32, and a byte an element. A unit with other tensors beside them travels as bytes. */
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

#include "model/plan/float8.h"

int64_t fsdp2_used_bytes(const struct fsdp2 *f, const struct tensor *t) { return float8_gathers(f->p, t) ? 1 : dtype_bytes(f->r.used); }

enum dtype fsdp2_wire(const struct fsdp2 *f, enum unit_class c)
{
    int tensors = 0;

    if (f->size[c].float8 == 0)
        return f->r.wire_gather;
    while (unit_tensor(&f->walk.map, c, tensors) >= 0)
        tensors++;
    return f->size[c].float8 == tensors ? DT_FP8 : DT_UINT8;
}

/* Of weights that are used in the dtype in which shards are kept, codes alone are made before the copy. */
int64_t fsdp2_code_bytes(const struct fsdp2 *f, enum unit_class c)
{
    int64_t bytes = 0;

    for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++)
        bytes += float8_gathers(f->p, &f->m->tensors[t]) ? round512(fsdp2_padded_share(f, t)) : 0;
    return bytes;
}

/* Of one weight's shard of so many elements: times the scale, and clamped, beside those that are cast already. */
int64_t fsdp2_cast_work(const struct fsdp2 *f, enum unit_class c)
{
    int64_t done = 0, most = 0;

    for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++) {
        int64_t shard = fsdp2_padded_share(f, t);
        if (!float8_gathers(f->p, &f->m->tensors[t]))
            continue;
        done += round512(shard);
        most = done + 2 * round512(4 * shard) > most ? done + 2 * round512(4 * shard) : most;
    }
    return most > done ? most - done : 0;
}

bool fsdp2_scales(struct fsdp2 *f, struct at u, enum phase phase, uint16_t after)
{
    if (f->size[u.c].float8 == 0 || (f->p->fsdp.float8_precomputed && f->walk.step != SCHED_FIRST))       /* the first step comes before there are any */
        return false;
    for (int i = 0, t; (t = unit_tensor(&f->walk.map, u.c, i)) >= 0; i++) {
        int64_t bytes = dtype_bytes(f->r.kept) * fsdp2_padded_share(f, t);
        if (!float8_gathers(f->p, &f->m->tensors[t]))
            continue;
        int layout = fsdp2_describe_shard(f, u.c, i);
        struct op *o = sched_copy(f->s, f->copy_in, phase, "largest value", 2 * bytes, bytes);
        o->after = after;
        walk_name(&f->walk, u);
        sched_does(f->s, COPY_AMAX, 1);
        sched_act_as(f->s, ACT_R, f->fam[u.c].shard, u.i, u.by, layout);
        sched_coll(f->s, STREAM_GROUP, phase, COLL_ALL_REDUCE, f->group, f->r.kept, RED_MAX, 1)->after = AFTER(f->copy_in);
        walk_name(&f->walk, u);
        sched_moves(f->s, OF_AMAX);
        sched_act_as(f->s, ACT_R, f->fam[u.c].shard, u.i, u.by, layout);
    }
    return true;
}

/* Acts of the last entry on the shards of all weights that are gathered in float8. */
static void all_shards(struct fsdp2 *f)
{
    for (int c = 0; c < NUC; c++)
        for (int i = 0, t; f->walk.map.of_class[c] > 0 && (t = unit_tensor(&f->walk.map, (enum unit_class)c, i)) >= 0; i++) {
            int layout = float8_gathers(f->p, &f->m->tensors[t]) ? fsdp2_describe_shard(f, (enum unit_class)c, i) : -1;
            for (int u = 0; layout >= 0 && u < f->walk.map.of_class[c]; u++)
                sched_act_as(f->s, ACT_R, f->fam[c].shard, u, 0, layout);
        }
}

void fsdp2_precompute_scales(struct fsdp2 *f)
{
    int64_t weights = 0, elems = 0;

    if (!f->p->fsdp.float8_precomputed)
        return;
    for (int t = 0; t < f->m->ntensors; t++)
        if (float8_gathers(f->p, &f->m->tensors[t])) {
            weights++;
            elems += fsdp2_local_share(f, t);
        }
    sched_copy(f->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "largest values", dtype_bytes(f->r.kept) * elems, dtype_bytes(f->r.kept) * weights);
    sched_does(f->s, COPY_AMAX, 1);
    all_shards(f);
    sched_coll(f->s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_ALL_REDUCE, f->group, f->r.kept, RED_MAX, weights)->after = AFTER(STREAM_COMPUTE);
    sched_moves(f->s, OF_AMAX);
    all_shards(f);
    if (f->local->share.tensor_ranks > 1)
        sched_coll(f->s, STREAM_TENSOR, PHASE_OPTIMIZER, COLL_ALL_REDUCE, GROUP_TENSOR, f->r.kept, RED_MAX, weights)->after = AFTER(STREAM_GROUP);
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "await scales")->after = AFTER(STREAM_GROUP) | AFTER(STREAM_TENSOR);
}
