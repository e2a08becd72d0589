/* lower_fsdp2_offload.c -- FSDP2 with CPUOffloadPolicy: what is the host's, and what travels by itself (model/schedule/schedule_states.h).
 *
 * Source: PyTorch 2.15.  Sharded parameters are the host's (FSDPParam._init_sharded_param, reset_sharded_param).
 * FSDPParam.all_gather_inputs copies each to the device by itself, in its own dtype, and casts it there: so a unit
 * takes one copy a parameter, on the stream of the copy-in.  On one rank nothing is gathered: wait_for_unshard() brings a
 * parameter and copies it into its unsharded tensor before it brings the next, so that a unit's unsharded tensors come one
 * by one.  foreach_reduce sends each parameter's reduced gradient
 * back on the stream that reduced it: into pinned memory (a copy that does not block), or, where it is to be added to an
 * earlier micro-step's or nothing is pinned, into pageable memory, which the CPU waits for and adds itself; where AllReduceState
 * holds what was reduced, it is there until the end of backward.
 * finalize_backward waits for the copies.  AdamW finds CPU parameters: a loop over them (_default_to_fused_or_foreach),
 * on the issuing thread. */
#include <stdlib.h>

#include "base/room.h"
#include "model/lower/common/pinned.h"
#include "model/framework/torch_fsdp2/lower_fsdp2.h"
#include "model/schedule/sharding.h"

void fsdp2_offload_setup(struct fsdp2 *f)
{
    f->offload = f->p->fsdp.cpu_offload;
    f->s->steps_on_host = f->offload;
    f->home = !f->offload ? SPACE_DEVICE : f->p->fsdp.pin_memory ? SPACE_PINNED : SPACE_HOST;
    f->param_room = f->grad_room = !f->offload ? round512 : f->home == SPACE_PINNED ? pinned_bytes : pageable_bytes;
    f->state_room = f->offload ? pageable_bytes : round512;
}

/* ---- buffers ---- */

static const char *of_class(enum unit_class c) { return c == UC_ROOT ? NULL : unit_class_name(c); }

static struct states_part part(struct fsdp2 *f, enum unit_class c, int tensor)
{
    const struct tensor *x = &f->m->tensors[tensor];
    enum dtype kept = fsdp2_kept(f, x);
    int64_t share = fsdp2_padded_share(f, tensor), e = dtype_bytes(kept);
    int n = f->walk.map.of_class[c];
    struct states_part t = { .up = share * e, .used = share * dtype_bytes(f->r.used), .trains = !x->frozen };

    t.down = t.trains ? fsdp2_local_share(f, tensor) * e : 0;
    t.staged = sched_buf(f->s, CAT_TEMPORARIES, "shard on its way", of_class(c), 0, n, round512(t.up));
    t.cast = f->r.used == kept ? t.staged : sched_buf(f->s, CAT_TEMPORARIES, "cast shard", of_class(c), 0, n, round512(t.used));
    if (fsdp2_brings_alone(f))
        t.unsharded = sched_buf(f->s, CAT_UNSHARDED, "unsharded param", of_class(c), 0, n, round512(t.used));
    return t;
}

static void describe_part(struct fsdp2 *f, enum unit_class c, int i, struct states_part *t, int64_t param_at, int64_t grad_at, int64_t reduced_at)
{
    const struct tensor *x = &f->m->tensors[unit_tensor(&f->walk.map, c, i)];
    enum dtype kept = fsdp2_kept(f, x);

    sched_holds(f->s, t->staged, fsdp2_describe_one(f, c, HOLDS_PARAM, kept, i, 0));
    if (t->cast != t->staged)
        sched_holds(f->s, t->cast, fsdp2_describe_one(f, c, HOLDS_PARAM, f->r.used, i, 0));
    t->shard = fsdp2_describe_one(f, c, HOLDS_PARAM, kept, i, param_at);
    if (fsdp2_brings_alone(f))
        sched_holds(f->s, t->unsharded, fsdp2_describe_one(f, c, HOLDS_PARAM, f->r.used, i, 0));
    if (x->frozen)
        return;
    t->grad = fsdp2_describe_one(f, c, HOLDS_GRAD, kept, i, grad_at);
    t->reduced = fsdp2_describe_one(f, c, HOLDS_GRAD, kept, i, reduced_at);
    t->arrived = fsdp2_describe_one(f, c, HOLDS_GRAD, kept, i, 0);
}

/* Materialised by to_empty(device="cpu"), in pageable memory; the first forward pins one after the other. */
static void describe_born(struct fsdp2 *f, enum unit_class c)
{
    const struct states_unit *u = &f->away[c];
    struct sharding x = { f->s, f->m->tensors, HOLDS_PARAM, f->r.kept, .at = 0 };

    sched_holds(f->s, u->born, sched_layout(f->s, unit_stride(&f->walk.map, c)));
    for (int i = 0; i < u->nparts; i++) {
        int t = unit_tensor(&f->walk.map, c, i);
        x.dtype = fsdp2_kept(f, &f->m->tensors[t]);
        sharding_part(&x, t, fsdp2_padded_share(f, t), f->rank_in_group, u->part[i].up);
    }
}

void fsdp2_offload_declare(struct fsdp2 *f, enum unit_class c)
{
    struct states_unit *u = &f->away[c];
    const struct families *m = &f->fam[c];
    int64_t params = 0, grads = 0, reduced = 0, most = 0, exact = 0;
    struct states_part *parts;
    int t;

    *u = (struct states_unit){ .name = unit_class_name(c), .many = c != UC_ROOT, .params = m->shard, .brought = m->cast, .unsharded = m->unsharded,
                               .grads = m->grads, .home = m->grads, .landing = m->grads_new, .sum = f->cast_grads ? -1 : m->rs_out };
    while (unit_tensor(&f->walk.map, c, u->nparts) >= 0)
        u->nparts++;
    u->part = parts = room_new((size_t)u->nparts, sizeof *parts);
    for (int i = 0; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++) {
        parts[i] = part(f, c, t);
        if (f->s->detailed)
            describe_part(f, c, i, &parts[i], params, grads, reduced);
        params += f->param_room(parts[i].up);
        grads += f->grad_room(parts[i].down);
        reduced += f->m->tensors[t].frozen ? 0 : parts[i].up;
        exact += parts[i].up;
        most = parts[i].down > most ? parts[i].down : most;
        u->pinned += fsdp2_local_share(f, t) * dtype_bytes(fsdp2_kept(f, &f->m->tensors[t]));
    }
    u->arrived = sched_buf_in(f->s, SPACE_HOST, CAT_GRADS, "gradient to be added", of_class(c), 0, f->walk.map.of_class[c], most);
    u->born = sched_buf_in(f->s, SPACE_HOST, CAT_PARAMS, "materialised shards", of_class(c), 0, f->walk.map.of_class[c],
                           f->home == SPACE_PINNED ? exact : 0);
    if (f->s->detailed && f->home == SPACE_PINNED)
        describe_born(f, c);
}

/* _single_tensor_adam: (exp_avg_sq.sqrt() / c).add_(eps) makes two tensors of a parameter while the name `denom` still
 * holds the one before's. */
int64_t fsdp2_loop_bytes(const struct fsdp2 *f)
{
    int64_t before = 0, most = 0;

    for (int t = 0; t < f->m->ntensors; t++) {
        int64_t bytes = fsdp2_local_share(f, t) * dtype_bytes(f->r.kept);
        if (f->m->tensors[t].frozen)
            continue;
        most = before + 2 * bytes > most ? before + 2 * bytes : most;
        before = bytes;
    }
    return most;
}

/* ---- entries ---- */

void fsdp2_offload(struct fsdp2 *f)
{
    struct states_unit unit[NUC];
    struct states_away w = { .unit = unit, .pageable = f->home == SPACE_HOST, .apart = fsdp2_brings_alone(f),
                             .held = f->hybrid && !f->cast_grads };

    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0)
            unit[w.nunits++] = f->away[c];
    schedules_states_away(f->s, &w);
    for (int i = 0; i < w.nunits; i++)
        free((void *)unit[i].part);
}
