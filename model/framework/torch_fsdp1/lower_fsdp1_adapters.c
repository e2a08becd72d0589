/* lower_fsdp1_adapters.c -- blocks whose adapters are units of their own, inside the block's.
 *
 * PEFT's fsdp_auto_wrap_policy (peft/utils/other.py, 0.21), which transformers' Trainer takes for its models, wraps beside
 * each block every module without children whose weight trains: each lora_A and lora_B.  The block's own FlatParameter is
 * then frozen as a whole.  Order, by _runtime_utils.py:
 *
 * - forward gathers and drops each adapter around its one product, while the block's unit is there;
 * - backward comes to them in the reverse of the order in which forward ended, and prefetches likewise: the block's
 *   _pre_backward_hook() its last adapter, each adapter the one before it, the first one the block before;
 * - a frozen unit has no gradient to hang a hook on.  _register_post_backward_reshard_only_hook() hangs it on the block's
 *   input, where the block before has its _pre_backward_hook() already: that runs, and prefetches, first;
 * - a block that is checkpointed calls its adapters again: each is gathered and dropped once more.  The last one, which is
 *   prefetched by then, is not gathered again but dropped, and so gathered for its backward; unless nothing behind it is needed:
 *   the checkpoint then stops within it, before it is dropped (torch.utils.checkpoint, early stop).  That one's own
 *   _pre_backward_hook(), and what it prefetches, then precedes the recomputation, which drops what was prefetched. */
#include "model/framework/torch_fsdp1/lower_fsdp1.h"

#include "model/program/torch_model.h"

/* A pass of one block, up to kernel `k`. */
struct inside {
    struct fsdp1 *f;
    struct at block;
    int number;                 /* of the block */
    enum piece_id piece;
    enum pass pass;
    int k;
};

bool fsdp1_adapters_apart(const struct fsdp1 *f) { return f->walk.map.nadapters > 0; }

void fsdp1_adapters_setup(struct fsdp1 *f)
{
    for (int i = 0; i < f->walk.map.nadapters; i++) {
        const struct tensor *t = &f->m->tensors[f->walk.map.adapter[i]];
        f->module[i] = torch_piece_module(f->m, t->block, t->role, t->adapter);
        for (int way = 0; way < NWAYS; way++)
            for (int ring = 0; ring < RING; ring++)
                f->ev_adapter[way][ring][i] = sched_event(f->s);
    }
}

static struct inside enter(struct fsdp1 *f, struct at block, enum pass pass)
{
    int number = unit_at(&f->walk.map, block.position).block;

    return (struct inside){ f, block, number, program_piece_of_block(f->p, number), pass, 0 };
}

static const struct kernel *kernels(const struct inside *w) { return w->f->s->program.piece[w->piece].kernels[w->pass]; }
static int nkernels(const struct inside *w) { return w->f->s->program.piece[w->piece].nkernels[w->pass]; }

static struct at unit_of(const struct inside *w, int adapter)
{
    struct at u = w->block;

    u.c = (enum unit_class)(UC_ADAPTER + adapter);
    return u;
}

static int adapter_of(const struct inside *w, int k)
{
    for (int i = 0; i < w->f->walk.map.nadapters; i++)
        if (kernels(w)[k].module == w->f->module[i])
            return i;
    return -1;
}

/* The next adapter from kernel k on and before kernel `end`, and its kernels [*from, *to); -1: there is none.  Our own kernels add to the
 * layer's dX what goes through A behind it, which is then among A's. */
static int next_adapter(const struct inside *w, int k, int end, int *from, int *to)
{
    int a = -1;

    for (; k < end && a < 0; k++) {
        a = adapter_of(w, k);
        *from = k;
    }
    for (int i = *to = k; i < end; i++)
        if (a >= 0 && adapter_of(w, i) == a)
            *to = i + 1;
    return a;
}

static bool hands_out(const struct inside *w, int k1)
{
    for (int k = w->k; k < k1; k++)
        if (kernels(w)[k].ready_bytes > 0)
            return true;
    return false;
}

/* Kernels up to k1: what lies between adapters (-1), or all that read one. */
static void compute(struct inside *w, int k1, int adapter)
{
    struct fsdp1 *f = w->f;
    bool forward = w->pass == PASS_FORWARD;
    enum phase phase = forward ? PHASE_FORWARD : PHASE_BACKWARD;

    if (k1 <= w->k)
        return;
    sched_compute(f->s, phase, w->piece, w->pass, w->k, k1, GRADS_KEEP, CAT_UNSHARDED_GRADS);
    sched_of(f->s, "block", w->number, w->block.by_block);
    sched_act(f->s, ACT_R, fsdp1_params(f, w->block.c, phase), w->block.i, w->block.by);
    if (adapter >= 0)
        sched_act(f->s, ACT_R, fsdp1_params(f, unit_of(w, adapter).c, phase), w->block.i, w->block.by);
    if (forward && w->k == 0)
        sched_act(f->s, ACT_ALLOC, f->walk.acts[w->piece], w->number, w->block.by_block);
    if (!forward && k1 == nkernels(w))
        sched_act(f->s, ACT_FREE, f->walk.acts[w->piece], w->number, w->block.by_block);
    if (!forward && adapter >= 0 && hands_out(w, k1))
        sched_act(f->s, ACT_ALLOC | ACT_WRITE, f->fam[unit_of(w, adapter).c].handed, w->block.i, w->block.by);
    w->k = k1;
}

/* What a recomputation finds gathered: the adapter whose backward comes first, and the one behind it; -1: neither. */
struct found { int first, second; };

/* Forward's kernels up to `end`, in forward or again in backward, where adapter `first` comes first then.  Whether that one is left
 * gathered. */
static bool forward_to(struct inside *w, int end, struct found found, int first)
{
    struct fsdp1 *f = w->f;
    enum phase phase = w->pass == PASS_FORWARD ? PHASE_FORWARD : PHASE_BACKWARD;
    int from, to, a, k = w->k;
    bool left = found.first >= 0;

    while (phase == PHASE_BACKWARD && k < end && adapter_of(w, k) >= 0)     /* the backward's own sum, which reads no weight */
        k++;
    while ((a = next_adapter(w, k, end, &from, &to)) >= 0) {
        struct at u = unit_of(w, a);
        bool there = a == found.first || a == found.second;
        compute(w, from, -1);
        f->now.way = phase == PHASE_FORWARD ? WAY_FORWARD : there ? WAY_BACKWARD : WAY_AGAIN;
        if (!there)
            fsdp1_unshard(f, u, phase, false);
        fsdp1_await(f, u, phase);
        compute(w, to, a);
        if (phase == PHASE_BACKWARD && a == first && to == end)
            left = true;
        else if (phase == PHASE_FORWARD || f->frees_after_forward || !f->sharded) {
            fsdp1_reshard(f, u, phase);
            left = left && a != first;
        }
        k = to;
    }
    compute(w, end, -1);
    f->now.way = phase == PHASE_FORWARD ? WAY_FORWARD : WAY_BACKWARD;
    return left;
}

/* ---- backward ---- */

/* Backward's first kernel that is not forward's again. */
static int recomputed(const struct inside *w)
{
    return piece_is_recomputed(w->piece) ? program_again(&w->f->s->program.piece[w->piece]) : 0;
}

/* Gathers adapter `next`, or behind the last one the block before. */
static void prefetch(struct inside *w, int next)
{
    if (next >= 0)
        fsdp1_unshard(w->f, unit_of(w, next), PHASE_BACKWARD, false);
    else
        fsdp1_prefetch_backward(w->f, w->block.position - 1, w->block.by);
}

static int after(const struct inside *w, int k)
{
    int from, to;

    return next_adapter(w, k, nkernels(w), &from, &to);
}

/* One adapter's backward: its kernels [from, to); whether it is gathered, and has had its _pre_backward_hook(). */
static void adapter_back(struct inside *w, int adapter, int from, int to, bool there, bool hooked)
{
    struct fsdp1 *f = w->f;
    struct at u = unit_of(w, adapter);
    enum prefetch when = f->p->fsdp.backward_prefetch;

    compute(w, from, -1);
    if (!there)
        fsdp1_unshard(f, u, PHASE_BACKWARD, false);
    fsdp1_await(f, u, PHASE_BACKWARD);
    if (when == PREFETCH_PRE && !hooked)
        prefetch(w, after(w, to));
    compute(w, to, adapter);
    fsdp1_concatenate(f, u);
    fsdp1_reshard(f, u, PHASE_BACKWARD);
    if (when == PREFETCH_POST)
        prefetch(w, after(w, to));
    if (f->now.reduce)
        fsdp1_reduce(f, u);
    else
        fsdp1_leave_grads(f, u);
}

/* The adapter whose backward comes behind that of the first one, from kernel k on. */
static int second_of(const struct inside *w, int k)
{
    int from, to;

    return next_adapter(w, k, nkernels(w), &from, &to) >= 0 ? after(w, to) : -1;
}

static void backward(struct fsdp1 *f, struct at block)
{
    struct inside w = enter(f, block, PASS_BACKWARD);
    bool pre = f->p->fsdp.backward_prefetch == PREFETCH_PRE, there = pre;
    int again = recomputed(&w), first = after(&w, again), from, to, a;
    bool hooked = again > 0 && first >= 0 && adapter_of(&w, 0) == first;    /* the block ends with it: its hook asks for the rest */
    struct found found = { pre ? first : -1, -1 };

    f->now.way = WAY_BACKWARD;
    if (pre)
        prefetch(&w, first);
    if (block.position + 1 < f->walk.map.n)
        fsdp1_reshard(f, walk_at(&f->walk, block.position + 1, block.by), PHASE_BACKWARD);
    if (hooked && pre)
        prefetch(&w, found.second = second_of(&w, again));
    else if (hooked)
        fsdp1_unshard(f, unit_of(&w, found.first = first), PHASE_BACKWARD, false);
    if (again > 0)
        there = forward_to(&w, again, found, first);
    while ((a = next_adapter(&w, w.k, nkernels(&w), &from, &to)) >= 0) {
        adapter_back(&w, a, from, to, there, hooked);
        there = f->p->fsdp.backward_prefetch != PREFETCH_NONE && !(hooked && pre);
        hooked = false;
    }
    compute(&w, nkernels(&w), -1);
}

bool fsdp1_adapters_run(void *fsdp1, struct at u, bool forward)
{
    struct fsdp1 *f = fsdp1;
    struct inside w = enter(f, u, PASS_FORWARD);

    if (!fsdp1_adapters_apart(f))
        return false;
    if (forward)
        forward_to(&w, nkernels(&w), (struct found){ -1, -1 }, -1);
    else
        backward(f, u);
    return true;
}
