/* bench_program.c -- the kernels of block programs, timed one after the other in their program's
 * order: embedding, blocks, head, and back.  A kernel in a loop on the same operands would find
 * them in the caches, where in training they are not; so there are several blocks, each with
 * weights, activations and gradients of its own, while temporaries share their memory as they do
 * in the arena.  The calls are exec/'s own (executor_kernel_run). */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "calib/bench/bench.h"
#include "exec/data/weights.h"
#include "exec/kernels/rope.h"
#include "exec/run/executor_internal.h"
#include "model/plan/local_model.h"
#include "model/plan/loss_scaling.h"
#include "model/program/workspace.h"

enum { EMBED, HEAD, BLOCK0, MOST_BLOCKS = 4, NCONTEXT = BLOCK0 + MOST_BLOCKS };
enum { MOST_KERNELS = 96, MOST_REPS = 200 };

/* What keeps several megabytes of one core's caches, or a device's second level, from holding a block's
 * operands. */
static const int64_t FOOTPRINT_HOST = 64 << 20, FOOTPRINT_CUDA = 256 << 20;

struct timed { const struct kernel *k; struct bench_span *s; int n; };

struct bench_block_program {
    struct bench    *b;
    struct local_model local;               /* what bench_program_rank() has */
    struct plan      p;                     /* of that rank's model */
    struct program   g;
    struct executor  x;                     /* as much of it as executor_kernel_run() reads */
    struct schedules s;
    struct exec_step step;
    int      nblocks;
    void    *at[NCONTEXT][NSLOT], *shared[NSLOT];
    bool     live[NSLOT];                   /* of shared[]: it has come in this pass, and not gone yet */
    void   **param, **grad;                 /* [ntensors]; NULL: of a block that is left out */
    struct { void *p; int64_t bytes; } memory[2048]; int nmemory;
    int32_t *ids;                           /* the host's: executor_kernel_run() hands them over */
    int64_t  samples[1];
    struct timed timed[MOST_KERNELS]; int ntimed;
    bool     recording;
};

static void *memory(struct bench_block_program *w, int64_t bytes)
{
    void *p = w->nmemory < 2048 ? bench_map(w->b, bytes) : NULL;

    if (p) {
        w->memory[w->nmemory].p = p;
        w->memory[w->nmemory++].bytes = bytes;
    }
    return p;
}

/* ---- operands ---- */

static enum piece_id piece_of(int context)
{
    return context == EMBED ? PIECE_EMBED : context == HEAD ? PIECE_HEAD : PIECE_BLOCK;
}

static bool is_shared(const struct place *p)
{
    return p->slot == SLOT_IDS || p->slot == SLOT_DX || p->mem == MEM_TEMPORARIES;
}

static int allocate_places(struct bench_block_program *w, int context, enum pass pass)
{
    const struct piece *g = &w->g.piece[piece_of(context)];

    for (int k = 0; k < g->nkernels[pass]; k++)
        for (int i = 0; i < g->kernels[pass][k].nplaces; i++) {
            const struct place *p = &g->places[pass][g->kernels[pass][k].place0 + i];
            void **to = is_shared(p) ? &w->shared[p->slot] : &w->at[context][p->slot];
            if (p->comes && !*to && !(*to = memory(w, p->bytes)))
                return -1;
        }
    return 0;
}

/* Temporaries of one slot have the same size in every piece but for DX, DU and the like of the head:
 * the largest comes first. */
static int64_t shared_bytes(const struct bench_block_program *w, int slot)
{
    int64_t most = 0;

    for (int c = EMBED; c <= BLOCK0; c++)
        for (int pass = 0; pass < NPASS; pass++) {
            const struct piece *g = &w->g.piece[piece_of(c)];
            for (int k = 0; k < g->nkernels[pass]; k++)
                for (int i = 0; i < g->kernels[pass][k].nplaces; i++) {
                    const struct place *p = &g->places[pass][g->kernels[pass][k].place0 + i];
                    if (p->comes && p->slot == slot && is_shared(p) && p->bytes > most)
                        most = p->bytes;
                }
        }
    return most;
}

static int allocate_slots(struct bench_block_program *w)
{
    for (int slot = 1; slot < NSLOT; slot++) {
        int64_t bytes = shared_bytes(w, slot);
        if (bytes > 0 && !(w->shared[slot] = memory(w, bytes)))
            return -1;
    }
    for (int c = EMBED; c < BLOCK0 + w->nblocks; c++)
        if (allocate_places(w, c, PASS_FORWARD) < 0 || allocate_places(w, c, PASS_BACKWARD) < 0)
            return -1;
    for (int i = 0; i < w->nblocks; i++)
        w->at[BLOCK0 + i][SLOT_X] = w->at[i ? BLOCK0 + i - 1 : EMBED][SLOT_Y];
    w->at[HEAD][SLOT_X] = w->at[BLOCK0 + w->nblocks - 1][SLOT_Y];
    return 0;
}

static enum dtype grad_dtype(const struct bench_block_program *w)
{
    return w->x.recipe.autocast ? DT_FP32 : w->x.recipe.used;
}

/* What training begins with; a large tensor repeats its beginning.  Made-up numbers would do for products,
 * but not for attention: scores that are far apart underflow in its softmax, and on such numbers processors
 * take several times as long, as they do not in training. */
static int fill_tensor(struct bench_block_program *w, const struct weights *from, int t)
{
    enum { MADE = 1 << 22 };
    int64_t n = w->p.model.tensors[t].numel, made = n < MADE ? n : MADE;
    enum dtype dt = w->x.recipe.used;
    float *host = room_new((size_t)made, sizeof *host);
    int rc = weights_fill(from, t, 0, made, host);

    for (int64_t i = 0; i < n && rc == 0; i += made)
        rc = kernels_ops(w->b->k)->load(w->b->k, n - i < made ? n - i : made, (char *)w->param[t] + i * dtype_bytes(dt), dt,
                                        host);
    if (rc == 0)
        rc = kernels_ops(w->b->k)->finish(w->b->k);
    free(host);
    return rc;
}

static int allocate_tensors(struct bench_block_program *w)
{
    const struct model *m = &w->p.model;
    struct weights *from = weights_from_seed(m, 1);
    int rc = from ? 0 : -1;

    w->param = room_new((size_t)m->ntensors, sizeof *w->param);
    w->grad = room_new((size_t)m->ntensors, sizeof *w->grad);
    for (int t = 0; t < m->ntensors && rc == 0; t++) {
        const struct tensor *of = &m->tensors[t];
        if (of->block >= w->nblocks)
            continue;
        w->param[t] = memory(w, of->numel * dtype_bytes(w->x.recipe.used));
        w->grad[t] = memory(w, of->numel * dtype_bytes(grad_dtype(w)));
        rc = w->param[t] && w->grad[t] ? fill_tensor(w, from, t) : -1;
    }
    weights_close(from);
    return rc;
}

static int allocate_tokens(struct bench_block_program *w)
{
    int64_t n = w->p.micro_batch * w->p.seq;

    w->ids = room_new((size_t)(2 * n), sizeof *w->ids);
    for (int64_t i = 0; i < 2 * n; i++)
        w->ids[i] = (int32_t)(i * 7919 % w->p.model.vocab);
    w->step = (struct exec_step){ .number = 1, .ids = w->ids, .labels = w->ids + n, .samples = w->samples };
    if (w->p.precision == DT_FP16)      /* without it gradients are subnormal or vanish, as they do not in training */
        w->step.loss_scale = LOSS_SCALING_FIRST;
    return 0;
}

/* ---- one kernel ---- */

static int tensor_of_role(const struct bench_block_program *w, int context, int role, bool bias)
{
    const struct model *m = &w->p.model;
    int in = context == EMBED ? TENSOR_EMBED : context == HEAD ? TENSOR_HEAD : context - BLOCK0;

    for (int t = 0; t < m->ntensors; t++)
        if ((int)m->tensors[t].role == role && m->tensors[t].is_bias == bias && m->tensors[t].block == in)
            return t;
    for (int t = 0; role == ROLE_HEAD && m->tied && !bias && t < m->ntensors; t++)
        if (m->tensors[t].role == ROLE_TOKENS)
            return t;
    return -1;
}

/* The embedding adds to the gradient that a tied head has left. */
static enum grad_into into(const struct bench_block_program *w, const struct kernel *k)
{
    return k->fn == FN_EMBED_BACK && w->p.model.tied ? GRAD_ADD : GRAD_SET;
}

/* Temporaries come before a kernel and go after it. */
static void pass_over(struct bench_block_program *w, int context, enum pass pass, const struct kernel *k, bool comes)
{
    const struct place *of = &w->g.piece[piece_of(context)].places[pass][k->place0];

    for (int i = 0; i < k->nplaces; i++)
        if (of[i].comes == comes && of[i].mem == MEM_TEMPORARIES)
            w->live[of[i].slot] = comes;
}

/* Kernels ask which slots there are. */
static void *operand(const struct bench_block_program *w, int context, int slot)
{
    bool outlives = slot == SLOT_IDS || slot == SLOT_DX;        /* passes */

    return w->at[context][slot] ? w->at[context][slot] : outlives || w->live[slot] ? w->shared[slot] : NULL;
}

static void find_operands(struct bench_block_program *w, int context, enum pass pass, const struct kernel *k,
                          struct kernel_call *c)
{
    const struct piece *g = &w->g.piece[piece_of(context)];

    for (int i = 0; i < k->nplaces; i++)
        if (g->places[pass][k->place0 + i].comes)
            c->fresh[g->places[pass][k->place0 + i].slot] = true;
    for (int s = 1; s < NSLOT; s++)
        c->at[s] = operand(w, context, s);
    for (int bias = 0; bias < 2; bias++) {
        int t = tensor_of_role(w, context, k->role, bias);
        if (t < 0)
            continue;
        c->param[bias] = w->param[t];
        c->grad[bias] = (struct grad_out){ w->grad[t], grad_dtype(w), into(w, k), true };
    }
    c->grad[0].dt = c->grad[1].dt = grad_dtype(w);
}

static struct timed *timed_of(struct bench_block_program *w, const struct kernel *k)
{
    for (int i = 0; i < w->ntimed; i++)
        if (w->timed[i].k == k)
            return &w->timed[i];
    assert(w->ntimed < MOST_KERNELS);
    w->timed[w->ntimed] = (struct timed){ k, room_new((size_t)MOST_REPS * MOST_BLOCKS, sizeof(struct bench_span)), 0 };
    return &w->timed[w->ntimed++];
}

static int run_kernel(struct bench_block_program *w, int context, enum pass pass, const struct kernel *k)
{
    struct kernel_call c = { .x = &w->x, .k = k, .step = &w->step, .param_dt = w->x.recipe.used,
                             .block = context == EMBED ? -1 : context == HEAD ? -2 : context - BLOCK0 };
    struct timed *t = timed_of(w, k);

    find_operands(w, context, pass, k, &c);
    if (w->recording && bench_begin(w->b, STREAM_COMPUTE) < 0)
        return -1;
    if (executor_kernel_run(&c) < 0)
        return -1;
    return w->recording ? bench_end(w->b, &t->s[t->n++]) : 0;
}

/* Collectives are series of their own (bench_coll.c). */
static int run_pass(struct bench_block_program *w, int context, enum pass pass)
{
    const struct piece *g = &w->g.piece[piece_of(context)];

    for (int i = 0; i < g->nkernels[pass]; i++) {
        const struct kernel *k = &g->kernels[pass][i];
        pass_over(w, context, pass, k, true);
        if (!k->collective && run_kernel(w, context, pass, k) < 0)
            return -1;
        pass_over(w, context, pass, k, false);
    }
    return 0;
}

/* A micro-step; without its ends, the blocks of one.  Queued, on a device. */
static int queue_step(struct bench_block_program *w, bool ends)
{
    if (ends && run_pass(w, EMBED, PASS_FORWARD) < 0)
        return -1;
    for (int i = 0; i < w->nblocks; i++)
        if (run_pass(w, BLOCK0 + i, PASS_FORWARD) < 0)
            return -1;
    if (ends && (run_pass(w, HEAD, PASS_FORWARD) < 0 || run_pass(w, HEAD, PASS_BACKWARD) < 0))
        return -1;
    for (int i = w->nblocks; i-- > 0; )
        if (run_pass(w, BLOCK0 + i, PASS_BACKWARD) < 0)
            return -1;
    return ends ? run_pass(w, EMBED, PASS_BACKWARD) : 0;
}

static int run_step(struct bench_block_program *w, bool ends)
{
    struct kernels *k = w->x.kernels[STREAM_COMPUTE];

    return queue_step(w, ends) < 0 || bench_settle(w->b) < 0 ? -1 : kernels_ops(k)->finish(k);
}

/* ---- a program ---- */

int64_t bench_program_rank(const struct plan *p) { return p->parallel.tensor * (p->parallel.context - 1); }

static int64_t block_bytes(const struct bench_block_program *w)
{
    const struct model *m = &w->p.model;

    return w->g.piece[PIECE_BLOCK].saved + 2 * dtype_bytes(w->x.recipe.used) * model_numel(m, m->block0, m->per_block);
}

/* Rotary positions' frequencies, where kernels read them. */
static int open_frequencies(struct bench_block_program *w)
{
    int64_t bytes = (w->p.model.rotary_dim / 2 + 1) * (int64_t)sizeof(float);
    float *f = rope_frequencies(&w->p.model, w->p.seq);
    int rc = -1;

    if (f && (w->x.inv_freq = memory(w, bytes)))
        rc = bench_put(w->b, w->x.inv_freq, f, w->p.model.rotary_dim / 2 * (int64_t)sizeof(float));
    free(f);
    return rc;
}

static int open_kernels(struct bench_block_program *w)
{
    const struct bench *b = w->b;
    bool cuda = device_async(b->device);
    int64_t bytes = cuda ? workspace_device(&w->p) : workspace_kernels(&w->p, b->threads);

    w->x.workspace = memory(w, bytes);
    if (w->x.workspace)
        w->x.kernels[STREAM_COMPUTE] = kernels_open_on(b->device, STREAM_COMPUTE, b->threads, w->x.workspace, bytes,
                                                       false);
    return w->x.kernels[STREAM_COMPUTE] ? 0 : -1;
}

static int open_program(struct bench_block_program *w, const struct plan *whole)
{
    int64_t footprint = device_async(w->b->device) ? FOOTPRINT_CUDA : FOOTPRINT_HOST;

    if (local_model_of(whole, bench_program_rank(whole), &w->local) < 0)
        return -1;
    const struct plan *p = w->local.plan;
    w->p = *p;
    w->s.seed = 1;
    w->x = (struct executor){ .p = &w->p, .s = &w->s, .recipe = plan_recipe(p), .a = { .seed = 1, .share = &w->local.share },
                             .d = w->b->device };
    for (w->nblocks = 2; w->nblocks < MOST_BLOCKS && w->nblocks * block_bytes(w) < footprint; )
        w->nblocks++;
    if (w->nblocks > p->model.layers)
        w->nblocks = (int)p->model.layers;
    if (allocate_slots(w) < 0 || allocate_tensors(w) < 0 || allocate_tokens(w) < 0 || open_kernels(w) < 0)
        return -1;
    return p->model.position == POS_ROPE ? open_frequencies(w) : 0;
}

static void close_program(struct bench_block_program *w)
{
    kernels_close(w->x.kernels[STREAM_COMPUTE]);
    for (int i = 0; i < w->nmemory; i++)
        bench_unmap(w->b, w->memory[i].p, w->memory[i].bytes);
    free(w->ids);
    for (int i = 0; i < w->ntimed; i++)
        free(w->timed[i].s);
    free(w->param);
    free(w->grad);
    program_free(&w->g);
    local_model_free(&w->local);
    free(w);
}

static struct series series_of(const struct bench *b, const struct plan *p, const struct kernel *k)
{
    struct series s = { .kind = SERIES_KERNEL, .name = k->name, .fn = k->fn, .class = (int)k->kind,
                        .dtype = p->precision, .ranks = b->nranks, .per_node = b->per_node, .threads = b->threads,
                        .batch = k->batch, .m = k->m, .n = k->n, .k = k->k, .bytes = k->bytes, .flops = k->flops,
                        .dropout = p->dropout > 0 };

    if (k->kind == KC_ATTENTION) {
        s.seq = plan_rank_seq(p);
        s.dim = p->model.head_dim;
    }
    return s;
}

static bool runs(const struct kernel *k) { return k->fn != FN_NONE && (k->bytes > 0 || k->flops > 0); }

/* 1 when the calibration has every kernel of the program. */
static int all_known(struct bench *b, const struct plan *p, const struct program *g)
{
    static const enum piece_id pieces[] = { PIECE_EMBED, PIECE_BLOCK, PIECE_HEAD };
    int known = 1;

    for (int i = 0; i < 3; i++)
        for (int pass = 0; pass < NPASS; pass++)
            for (int k = 0; k < g->piece[pieces[i]].nkernels[pass] && known == 1; k++) {
                const struct kernel *of = &g->piece[pieces[i]].kernels[pass][k];
                struct series s = series_of(b, p, of);
                if (runs(of))
                    known = bench_known(b, &s);
            }
    return known;
}

static void forget(struct bench_block_program *w)
{
    for (int i = 0; i < w->ntimed; i++)
        w->timed[i].n = 0;
    w->recording = false;
}

/* Half of the time for the ends: with many words in the vocabulary they take most of a step.  The
 * first step makes the primitives and does not count, unless it has taken all the time that there is
 * (16-bit numbers on a processor that has none, 10 times slower): then it is what is known, of a
 * block's kernels a sample for each block and rank. */
static int measure(struct bench_block_program *w, double seconds)
{
    double whole, blocks, from = lanes_now();

    w->recording = true;
    if (run_step(w, true) < 0)
        return -1;
    double spent = bench_max(lanes_now() - from);
    if (!(spent < seconds))
        return isnan(spent) ? -1 : 0;
    forget(w);
    from = lanes_now();
    if (run_step(w, true) < 0 || bench_barrier() < 0)
        return -1;
    whole = lanes_now() - from;
    from = lanes_now();
    if (run_step(w, false) < 0)
        return -1;
    blocks = lanes_now() - from;
    double left = seconds - spent - whole - blocks;
    int ends = bench_reps(left / 2, whole, 3, MOST_REPS / 2);
    int all = ends + bench_reps(left - ends * whole, blocks, 2, MOST_REPS - ends);
    if (bench_barrier() < 0)
        return -1;
    w->recording = true;
    for (int i = 0; i < all; i++)                   /* spread evenly */
        if (run_step(w, i * ends / all != (i + 1) * ends / all) < 0)
            return -1;
    return 0;
}

static int keep(struct bench_block_program *w, double started)
{
    for (int i = 0; i < w->ntimed; i++) {
        struct series s = series_of(w->b, &w->p, w->timed[i].k);
        double seconds[MOST_REPS * MOST_BLOCKS];
        s.started = started;
        bench_seconds(w->timed[i].s, w->timed[i].n, seconds);
        if (runs(w->timed[i].k) && bench_keep(w->b, &s, seconds, w->timed[i].n, false) < 0)
            return -1;
    }
    return bench_flush(w->b);
}

int bench_program(struct bench *b, const struct plan *p, double seconds)
{
    struct bench_block_program *w = room_new(1, sizeof *w);
    double started = bench_wall_clock();
    int rc;

    w->b = b;
    rc = program_build(p, &w->g);
    if (rc == 0)
        rc = all_known(b, p, &w->g);
    if (rc == 0)
        rc = open_program(w, p);
    if (rc == 0)
        rc = measure(w, seconds);
    if (rc == 0)
        rc = keep(w, started);
    close_program(w);
    return rc < 0 ? -1 : 0;
}
