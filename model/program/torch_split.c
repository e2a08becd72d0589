/* torch_split.c -- graphs of compiled blocks under DistributedDataParallel. */
#include "model/program/torch_split.h"

#include <string.h>

#include "model/program/tape_internal.h"
#include "model/program/torch_parts.h"

void torch_splits_init(struct torch_splits *s, const struct plan *p)
{
    *s = (struct torch_splits){ .on = p->kernels == KERNELS_TORCH_COMPILE && p->strategy == STRAT_DDP && p->ddp.wrapped };
    s->cap = p->ddp.bucket_cap_mb >= 0 ? (int64_t)(p->ddp.bucket_cap_mb * 1048576) : p->limits.ddp_bucket;
    s->first = p->limits.ddp_first_bucket;
}

void torch_splits_begin(struct torch_splits *s) { s->at = s->ngraphs = 0; }

/* Operations in front of the first one that reads parameters are part of its graph. */
void torch_splits_decide(struct torch_splits *s)
{
    int64_t sum = 0;
    bool first = true;

    for (int i = s->n - 1; i > 0; i--) {
        sum += s->bytes[i];
        s->cut[i] = sum >= s->cap || (first && sum >= s->first);
        if (s->cut[i]) {
            sum = 0;
            first = false;
        }
    }
    s->known = true;
}

static int64_t trained_bytes(const struct torch_model *b, enum tensor_role role, bool bias, enum adapter as)
{
    int part = torch_piece_part(b->m, b->block, role, bias, as), at = part < 0 ? -1 : program_tensor(b->p, PIECE_BLOCK, b->block, part);

    if (at < 0 || !plan_gets_gradient(b->p, &b->m->tensors[at]))
        return 0;
    return b->m->tensors[at].numel * dtype_bytes(as == ADAPTER_NONE ? b->own_dt : b->param_dt);
}

void torch_splits_use(struct torch_model *b, enum tensor_role role, enum adapter as)
{
    struct torch_splits *s = b->splits;

    if (!s || !s->on || !b->t->compiled || b->t->backward || b->t->forget)
        return;
    int64_t bytes = trained_bytes(b, role, false, as) + trained_bytes(b, role, true, as);
    if (bytes == 0)
        return;
    if (s->at == TORCH_USES) {
        b->t->bad = true;
        return;
    }
    if (s->known && s->cut[s->at]) {
        tape_split(b->t);
        s->graph[s->ngraphs++] = b->t->nnodes;
    }
    s->bytes[s->at++] = bytes;
    s->n = s->known ? s->n : s->at;
}
