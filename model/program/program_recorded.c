/* program_recorded.c -- the pieces of a recorded model, at a plan's micro-batch and size: embedding and head are what runs before the first unit and
 * behind the last one, each kind of units is a piece. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/plan/recorded_check.h"
#include "model/program/program_internal.h"

static enum kernel_class kind_of(enum rec_class c)
{
    static const enum kernel_class kinds[NREC_CLASS] = {
        [REC_GEMM] = KC_GEMM, [REC_CONV] = KC_GEMM, [REC_ATTENTION] = KC_ATTENTION, [REC_NORM] = KC_NORM, [REC_ELEMENTWISE] = KC_ELEMENTWISE,
        [REC_SOFTMAX] = KC_SOFTMAX, [REC_EMBEDDING] = KC_EMBEDDING, [REC_LOSS] = KC_LOSS, [REC_COPY] = KC_COPY, [REC_POOL] = KC_ELEMENTWISE,
        [REC_REDUCE] = KC_ELEMENTWISE, [REC_RECURRENCE] = KC_ELEMENTWISE, [REC_FFT] = KC_ELEMENTWISE, [REC_CUSTOM] = KC_ELEMENTWISE };

    return kinds[c];
}

/* ---- which program, which piece ---- */

static const struct rec_program *of_plan(const struct plan *p)
{
    return recorded_program(p->model.recorded, recorded_precision(p), recorded_again(p), recorded_stage3(p));
}

/* Plans are asked for their pieces before they are checked. */
enum piece_id program_recorded_piece(const struct plan *p, int64_t b)
{
    const struct rec_program *g = of_plan(p);

    return (enum piece_id)(PIECE_KIND + (g ? g->of_unit[b] : 0));
}

/* Have units from `from` on the same pieces and tensors every `every`? */
static bool repeats(const struct plan *p, const struct rec_program *g, int from, int every)
{
    const struct recorded *r = p->model.recorded;

    for (int u = from; u + every < r->nunits; u++)
        if (g->of_unit[u] != g->of_unit[u + every] || r->alike[u] != r->alike[u + every] || r->turn[u] != r->turn[u + every])
            return false;
    return true;
}

enum { LONGEST_PATTERN = 8 };

int program_recorded_period(const struct plan *p, int *alone)
{
    const struct rec_program *g = of_plan(p);
    int n = p->model.recorded->nunits;

    for (int from = 0; g && !p->model.recorded->uneven && from <= 2; from++)
        for (int every = 1; every <= LONGEST_PATTERN && 2 * every + from <= n; every++)
            if (repeats(p, g, from, every)) {
                *alone = from;
                return every;
            }
    *alone = 0;
    return n;
}

/* ---- tensors ---- */

/* A unit of a piece. */
static int unit_of(const struct plan *p, enum piece_id piece)
{
    const struct rec_program *g = of_plan(p);
    int u = 0;

    while (g && u < p->model.recorded->nunits - 1 && g->of_unit[u] != (int)piece - PIECE_KIND)
        u++;
    return u;
}

static int root_tensors(const struct plan *p, enum piece_id piece)
{
    const struct recorded *r = p->model.recorded;
    int n = 0;

    for (int i = 0; i < r->nroot; i++)
        n += (p->model.tensors[r->root[i]].block == TENSOR_EMBED) == (piece == PIECE_EMBED);
    return n;
}

int program_recorded_ntensors(const struct plan *p, enum piece_id piece)
{
    return piece_is_block(piece) ? p->model.recorded->ntensors[unit_of(p, piece)] : root_tensors(p, piece);
}

int program_recorded_tensor(const struct plan *p, enum piece_id piece, int64_t block, int i)
{
    const struct recorded *r = p->model.recorded;

    if (piece_is_block(piece))
        return recorded_tensor(r, block, i);
    for (int k = 0; k < r->nroot; k++)
        if ((p->model.tensors[r->root[k]].block == TENSOR_EMBED) == (piece == PIECE_EMBED) && i-- == 0)
            return r->root[k];
    return i;               /* what is left, counted behind the piece's own, is an index of the table */
}

/* The other way round: a tensor of the table as a piece counts it. */
static int of_piece(const struct plan *p, enum piece_id piece, int tensor)
{
    int n = program_recorded_ntensors(p, piece);

    if (piece_is_block(piece))
        return tensor;
    for (int i = 0; i < n; i++)
        if (program_recorded_tensor(p, piece, 0, i) == tensor)
            return i;
    return n + tensor;
}

/* ---- kernels ---- */

struct build {
    const struct plan *p;
    const struct recorded *r;
    enum piece_id id;
    enum pass pass;
    struct kernel *kernels; int64_t n, kernels_room;
    struct move   *moves;   int64_t nmoves, moves_room;
    int *returns;                   /* of the program, by pass */
};

static int size_at(const struct build *b, const struct rec_kernel *k, const char *what, struct rec_size z, int64_t *out)
{
    if (recorded_at(b->r, z, b->p->micro_batch, b->p->seq, out) == 0)
        return 0;
    return fail("%s: %s of %s have no whole number from 0 to 2^60 at micro_batch %" PRId64 " and seq %" PRId64 ": was it recorded at such sizes?", b->r->name, what,
                k->name, b->p->micro_batch, b->p->seq);
}

static struct kernel *new_kernel(struct build *b, const char *name, enum kernel_class kind)
{
    b->kernels = room_for(b->kernels, b->n, &b->kernels_room, sizeof *b->kernels);
    struct kernel *k = &b->kernels[b->n++];
    *k = (struct kernel){ .name = name, .kind = kind, .module = -1, .half = 1, .move0 = (int)b->nmoves, .ready = { -1, -1, -1, -1 } };
    return k;
}

/* What its moves make of the live bytes. */
static void account(struct kernel *k, const struct move *moves)
{
    int64_t at[NMEM] = { 0 }, top = 0;

    for (int i = k->move0; i < k->move0 + k->nmoves; i++) {
        bool comes = moves[i].kind == MOVE_ALLOC;
        if (!comes && moves[i].kind != MOVE_FREE && moves[i].kind != MOVE_FREE_OTHERS)
            continue;
        at[moves[i].mem] += comes ? moves[i].bytes : -moves[i].bytes;
        if (at[MEM_ACTIVATIONS] + at[MEM_TEMPORARIES] + at[MEM_GRADS] > top) {
            top = at[MEM_ACTIVATIONS] + at[MEM_TEMPORARIES] + at[MEM_GRADS];
            memcpy(k->peak, at, sizeof at);
        }
    }
    memcpy(k->net, at, sizeof at);
}

/* An empty tensor is no request. */
static void add_move(struct build *b, const struct move *m)
{
    if (m->bytes == 0 && m->kind != MOVE_READY)
        return;
    b->moves = room_for(b->moves, b->nmoves, &b->moves_room, sizeof *b->moves);
    b->moves[b->nmoves++] = *m;
    b->kernels[b->n - 1].nmoves++;
}

/* Of one tensor: 256 TiB.  Sums over blocks, micro-steps and ranks stay whole numbers. */
#define MOST_BYTES (INT64_C(1) << 48)

static int add_moves(struct build *b, const struct rec_kernel *of)
{
    static const enum move_kind kinds[] = { [REC_COMES] = MOVE_ALLOC, [REC_GOES] = MOVE_FREE, [REC_GOES_OTHERS] = MOVE_FREE_OTHERS, [REC_READY] = MOVE_READY };
    static const enum mem mems[] = { [REC_ACTIVATION] = MEM_ACTIVATIONS, [REC_TEMPORARY] = MEM_TEMPORARIES, [REC_GRADIENT] = MEM_GRADS };
    int nready = 0;

    for (int i = 0; i < of->nmoves; i++) {
        const struct rec_move *m = &b->r->moves[of->move0 + i];
        int64_t bytes;
        if (size_at(b, of, "bytes", m->bytes, &bytes) < 0)
            return -1;
        if (bytes > MOST_BYTES)
            return fail("%s: a tensor of %s has %" PRId64 " bytes: at most %" PRId64 " are planned", b->r->name, of->name, bytes,
                        MOST_BYTES);
        struct move to = { .bytes = round_up(bytes, 512), .tensor = m->does == REC_GOES_OTHERS ? INT32_MIN : m->id, .kind = (uint8_t)kinds[m->does], .mem = (uint8_t)mems[m->mem],
                           .pass = (uint8_t)(m->does == REC_GOES_OTHERS ? m->backward : b->pass), .handed_on = m->handed_on };
        if (m->does == REC_READY && nready == 4) {      /* more than one kernel hands out: another, which runs nothing */
            new_kernel(b, "ready", KC_COPY);
            nready = 0;
        }
        if (m->does == REC_READY) {
            struct kernel *k = &b->kernels[b->n - 1];
            k->ready[nready++] = of_piece(b->p, b->id, m->tensor);
            k->ready_bytes += to.bytes;
            if (m->id < 0 && to.bytes == 0)
                continue;
        }
        add_move(b, &to);
    }
    return 0;
}

static int add_kernel(struct build *b, const struct rec_kernel *of)
{
    struct kernel *k = new_kernel(b, of->name, kind_of((enum rec_class)of->class));
    int64_t *mnk[] = { &k->batch, &k->m, &k->n, &k->k }, flops = 0;

    if (size_at(b, of, "bytes", of->bytes, &k->bytes) < 0 || size_at(b, of, "FLOPs", of->flops, &flops) < 0)
        return -1;
    k->flops = (double)flops;
    k->rough = (uint8_t)recorded_rough((enum rec_class)of->class);
    for (int i = 0; of->product && i < 4; i++)
        if (size_at(b, of, "sizes", of->mnk[i], mnk[i]) < 0)
            return -1;
    if (of->product)
        k->flops = 2.0 * (of->grouped ? 1.0 : (double)k->batch) * (double)k->m * (double)k->n * (double)k->k;
    if (of->grouped && k->batch > 0)        /* routing is taken to be even */
        *mnk[of->grouped] = ceil_div(*mnk[of->grouped], k->batch);
    if (k->kind == KC_ATTENTION) {      /* of causal attention the scores that count: half */
        k->attends = b->pass == PASS_BACKWARD ? ATTENDS_ALL_BACK : ATTENDS_ALL;
        k->flops *= of->causal ? 0.5 : 1;
    }
    return add_moves(b, of);
}

/* Before kernel i of n (behind the last one: n): is this where the model returned, or where its backward is entered?  Neither is at an end of its pass. */
static void take_return(struct build *b, const struct rec_piece *of, int i, int n)
{
    bool forward = b->pass == PASS_FORWARD, lies_at_end = forward ? b->n == 0 : i == n;

    if (of->loss[b->pass] == 0 || i != (forward ? n - of->loss[b->pass] : of->loss[b->pass]))
        return;
    if (forward && lies_at_end)
        new_kernel(b, "nothing", KC_COPY);
    b->returns[b->pass] = (int)b->n;
    if (!forward && lies_at_end)
        new_kernel(b, "nothing", KC_COPY);
}

static int take_pass(struct build *b, const struct rec_piece *of, struct piece *out)
{
    int from = of->kernel0[b->pass], to = from + of->nkernels[b->pass], outside = b->pass == PASS_FORWARD ? of->before : of->after;

    b->n = b->nmoves = 0;
    for (int i = from; i < to; i++) {
        if (b->pass == PASS_BACKWARD && i == to - outside)
            out->outside[PASS_BACKWARD] = -(int)b->n;
        take_return(b, of, i - from, to - from);
        if (add_kernel(b, &b->r->kernels[i]) < 0)
            return -1;
        if (b->pass == PASS_FORWARD && i == from + outside - 1)
            out->outside[PASS_FORWARD] = (int)b->n;
    }
    take_return(b, of, to - from, to - from);
    if (b->pass == PASS_BACKWARD && outside > 0)
        out->outside[PASS_BACKWARD] += (int)b->n;
    if (b->n == 0)
        new_kernel(b, "nothing", KC_COPY);
    for (int64_t i = 0; i < b->n; i++)
        account(&b->kernels[i], b->moves);
    if (piece_take(out, b->pass, b->kernels, (int)b->n) < 0)
        return -1;
    out->collectives[b->pass] = room_new(1, sizeof **out->collectives);
    out->moves[b->pass] = room_new((size_t)b->nmoves, sizeof *b->moves);
    if (b->nmoves > 0)
        memcpy(out->moves[b->pass], b->moves, (size_t)b->nmoves * sizeof *b->moves);
    return 0;
}

static int take_piece(struct build *b, const struct rec_piece *of, enum piece_id id, struct program *out)
{
    b->id = id;
    for (int pass = 0; pass < NPASS; pass++) {
        b->pass = (enum pass)pass;
        if (take_pass(b, of, &out->piece[id]) < 0)
            return -1;
    }
    return 0;
}

int program_build_recorded(const struct local_model *local, struct program *out)
{
    const struct plan *p = local->plan;
    struct build b = { .p = p, .r = p->model.recorded, .returns = out->returns };
    const struct rec_program *g = of_plan(p);
    int rc;

    if (!g)
        return fail("%s: it was not recorded in %s with recompute %s", p->model.name, recorded_precision(p), recompute_name(p->recompute));
    rc = take_piece(&b, &b.r->pieces[g->first], PIECE_EMBED, out);
    if (rc == 0 && !g->whole && recorded_at(b.r, g->hands, p->micro_batch, p->seq, &out->boundary) < 0)
        rc = fail("%s: programs: cut: no whole number at micro_batch %" PRId64 " and seq %" PRId64, b.r->name, p->micro_batch, p->seq);
    if (rc == 0)
        rc = take_piece(&b, &b.r->pieces[g->last], PIECE_HEAD, out);
    for (int i = 0; i < g->nkinds && rc == 0; i++)
        rc = take_piece(&b, &b.r->pieces[g->kind[i]], (enum piece_id)(PIECE_KIND + i), out);
    free(b.kernels);
    free(b.moves);
    return rc;
}
