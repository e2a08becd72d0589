/* alike.c -- see alike.h. */
#include "sim/search/alike.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/room.h"

/* Of families: what an act on them moves, and of which category. */
static uint64_t *buf_keys(const struct schedules *s)
{
    uint64_t *key = room_new((size_t)s->nbufs + 1, sizeof *key);

    for (int i = 0; i < s->nbufs; i++)
        key[i] = hash_mix(hash_mix(HASH_BEGIN, (uint64_t)s->bufs[i].bytes), (uint64_t)s->bufs[i].category);
    return key;
}

uint64_t alike_key(const struct schedules *s, int program)
{
    uint64_t h = hash_mix(HASH_BEGIN, (uint64_t)program), *key = buf_keys(s);

    for (int i = 0; i < s->nops; i++) {
        const struct op *o = &s->ops[i];
        h = hash_mix4(h, (uint64_t)o->kind | (uint64_t)o->stream << 8 | (uint64_t)o->phase << 16 |
                             (uint64_t)o->after << 24 | (uint64_t)o->flags << 40,
                      (uint64_t)o->wait[0] | (uint64_t)o->wait[1] << 16 | (uint64_t)o->record << 32,
                      (uint64_t)(uint32_t)o->step | (uint64_t)(uint32_t)o->step_by << 32,
                      (uint64_t)(uint32_t)o->unit | (uint64_t)(uint32_t)o->unit_by << 32);
        switch ((enum op_kind)o->kind) {
        case OP_COMPUTE:
            h = hash_mix(h, (uint64_t)o->u.compute.piece | (uint64_t)o->u.compute.pass << 8 | (uint64_t)o->u.compute.fate << 16 |
                       (uint64_t)o->u.compute.k0 << 24 | (uint64_t)o->u.compute.k1 << 40);
            break;
        case OP_COLL:
            h = hash_mix(hash_mix(h, (uint64_t)o->u.coll.elems), (uint64_t)o->u.coll.op | (uint64_t)sched_group(s, o)->is << 8 |
                       (uint64_t)sched_group(s, o)->ranks << 16 | (uint64_t)o->u.coll.dtype << 52 |
                       (uint64_t)o->u.coll.red << 58);
            h = hash_mix(h, (uint64_t)(uint32_t)o->u.coll.peer | (uint64_t)(uint32_t)o->u.coll.tag << 32);
            for (int64_t k = 0; o->u.coll.op == COLL_ALL_TO_ALL && o->u.coll.parts && k < sched_group(s, o)->ranks; k++) {
                const struct coll_part *part = &s->coll_parts[o->u.coll.parts + k];
                h = hash_mix(hash_mix(h, (uint64_t)part->sent), (uint64_t)part->received);
            }
            break;
        case OP_COPY:
            h = hash_mix(hash_mix(h, (uint64_t)o->u.copy.reads), (uint64_t)o->u.copy.writes);
            break;
        case OP_OPTIMIZER:
            h = hash_mix(hash_mix(h, (uint64_t)o->u.optimizer.elems), (uint64_t)o->u.optimizer.tensors |
                         (uint64_t)o->u.optimizer.bytes << 32 | (uint64_t)o->u.optimizer.passes << 40 | (uint64_t)o->u.optimizer.each << 48);
            h = hash_mix(h, (uint64_t)o->u.optimizer.flops);
            break;
        case OP_REPEAT: case OP_END:
            h = hash_mix(h, (uint64_t)o->u.repeat.n);
            break;
        case OP_WAIT:
            h = hash_mix(h, (uint64_t)o->u.wait.reads);
            break;
        case OP_MEMORY:
            break;
        }
    }
    for (int i = 0; i < s->nacts; i++) {
        const struct act *a = &s->acts[i];
        h = hash_mix(h, key[a->buf] + ((uint64_t)(uint32_t)a->at | (uint64_t)(uint32_t)a->by << 32) * 0xe7037ed1a0b428dbu +
                        ((uint64_t)(uint32_t)a->n | (uint64_t)a->what << 32) * 0x8ebc6af09c88c6e3u);
    }
    free(key);
    return h;
}
