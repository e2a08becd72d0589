/* exec_copy.c -- entries that move or change data in memory: what is read and what is written
 * is met element by element of the tensors, whatever the buffers look like. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "exec/run/executor_internal.h"
#include "model/memory/moved.h"

/* n elements, contiguous on both sides.  A side on disk has no address: it begins at `file`.  behind: bytes that follow
 * on both sides in the instances that it ends in, of which no other run is; up to a run where it is `inner`. */
struct run { void *to; const void *from; int64_t n, file, behind; int32_t tensor; uint8_t dt, st; bool inner; };

struct copy_task {
    struct executor *x;
    const struct op *op;
    enum copy_fn fn;
    double scale;
    bool crosses, counts;           /* from one memory to another, between buffers: */
    enum space from, to;
    int n;
    int64_t room;
    struct run *run;
    const struct inst *to_inst, *from_inst;     /* in which the last run ends, and where */
    int64_t to_end, from_end;
};

/* ---- runs ---- */

static int64_t run_bytes(const struct run *r) { return r->n * dtype_bytes((enum dtype)r->dt); }

/* Is r, on either side, what comes after the last run?  A side without an address is a file, or dry. */
static bool goes_on(const struct copy_task *c, const struct run *r)
{
    const struct run *l = c->n > 0 ? &c->run[c->n - 1] : NULL;
    bool file = c->from == SPACE_DISK || c->to == SPACE_DISK;

    return l && l->dt == r->dt && l->st == r->st && l->dt == l->st && (!file || l->file + run_bytes(l) == r->file) &&
           (!l->to || (char *)l->to + run_bytes(l) == (char *)r->to) &&
           (!l->from || (const char *)l->from + run_bytes(l) == (const char *)r->from);
}

static void add_run(struct copy_task *c, const struct run *r)
{
    c->run = room_for(c->run, c->n, &c->room, sizeof *c->run);
    c->run[c->n++] = *r;
}

/* Where in its file a view on disk has an element; 0 elsewhere. */
static int64_t file_at(const struct view *v, int64_t at)
{
    return v->space == SPACE_DISK ? v->at + (at - v->from) * dtype_bytes(v->dtype) : 0;
}

/* Where a tensor's element can be read, looking first where the last one was found. */
static const struct view *source(const struct views *reads, const struct view *w, int64_t at, int *hint)
{
    for (int i = 0; i < reads->n; i++) {
        int k = (*hint + i) % reads->n;
        const struct view *v = &reads->v[k];
        if (v->tensor == w->tensor && v->holds == w->holds && at >= v->from && at < v->from + v->n) {
            *hint = k;
            return v;
        }
    }
    return NULL;
}

/* What crosses goes in runs as long as they can be: tensors contiguous in one instance on both sides are one
 * (contiguous instances are files of their own). */
static void go_on(struct copy_task *c, const struct view *w, const struct view *r, const struct run *run)
{
    if (c->crosses && c->to_inst == w->inst && c->from_inst == r->inst && goes_on(c, run))
        c->run[c->n - 1].n += run->n;
    else
        add_run(c, run);
}

/* Where a view has element i, in its memory. */
static int64_t place_of(const struct view *v, int64_t i) { return v->at + (i - v->from) * dtype_bytes(v->dtype); }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Elements [at, at + n) have become part of run n - 1, or a run of their own. */
static void ends(struct copy_task *c, int before, const struct view *w, const struct view *r, int64_t at, int64_t n)
{
    if (before > 0 && before < c->n && (c->to_inst == w->inst || c->from_inst == r->inst)) {
        struct run *last = &c->run[before - 1];
        int64_t gap = place_of(w, at) - c->to_end;
        bool same = c->to_inst == w->inst && c->from_inst == r->inst && gap == place_of(r, at) - c->from_end;
        last->behind = same && gap > 0 ? gap : 0;
        last->inner = true;
    }
    c->to_inst = w->inst;
    c->from_inst = r->inst;
    c->to_end = place_of(w, at + n);
    c->from_end = place_of(r, at + n);
    c->run[c->n - 1].behind = least(w->end - c->to_end, r->end - c->from_end);
}

/* The part of a written view that is read from somewhere, in runs.  `covered` receives elements. */
static void meet(struct executor *x, const struct views *reads, const struct view *w, struct copy_task *c,
                 int64_t *covered)
{
    int hint = 0;

    for (int64_t at = w->from, end = w->from + w->n; at < end; ) {
        const struct view *r = source(reads, w, at, &hint);
        if (!r) {                           /* on to the next element that is read */
            int64_t next = end;
            for (int i = 0; i < reads->n; i++)
                if (reads->v[i].tensor == w->tensor && reads->v[i].holds == w->holds &&
                    reads->v[i].from > at && reads->v[i].from < next)
                    next = reads->v[i].from;
            at = next;
            continue;
        }
        int64_t n = r->from + r->n < end ? r->from + r->n - at : end - at;
        int before = c->n;
        go_on(c, w, r, &(struct run){ view_at(x, w, at), view_at(x, r, at), n, file_at(w, at) + file_at(r, at), 0, w->tensor,
                                      (uint8_t)w->dtype, (uint8_t)r->dtype, false });
        *covered += n;
        at += n;
        ends(c, before, w, r, at - n, n);
    }
}

static struct copy_task *new_task(struct executor *x, const struct op *o, enum copy_fn fn)
{
    struct copy_task *c = room_new(1, sizeof *c);

    *c = (struct copy_task){ .x = x, .op = o, .fn = fn, .scale = (double)o->u.copy.scale };
    c->crosses = sched_crosses(x->s, o, &c->from, &c->to);
    c->counts = moved_buffers(x->s, o, &c->from, &c->to);
    return c;
}

/* ---- running ---- */

static struct kernels *kernels_of(const struct copy_task *c) { return c->x->kernels[c->op->stream]; }

/* Bytes as they are, from one memory to another. */
static int cross(const struct copy_task *c, const struct run *r)
{
    struct device *d = c->x->d;
    struct CUstream_st *s = device_cuda_stream(d, (enum stream)c->op->stream);
    int64_t bytes = run_bytes(r);

    if (c->from == SPACE_DISK)
        return store_read(c->x->store, r->file, r->to, bytes);
    if (c->to == SPACE_DISK)
        return store_write(c->x->store, r->file, r->from, bytes);
    if (device_async(d))
        return c->from == SPACE_DEVICE ? device_fetch(d, s, r->to, r->from, bytes) : device_store(d, s, r->to, r->from, bytes);
    memcpy(r->to, r->from, (size_t)bytes);
    return 0;
}

/* Both memories are the host's own: its kernels work there. */
static bool stays_host(const struct copy_task *c)
{
    return (IN(c->from) & IN_HOST) && (IN(c->to) & IN_HOST);
}

static int move(const struct copy_task *c, const struct run *r, double scale, bool add)
{
    struct kernels *k = kernels_of(c);

    if (c->crosses && !stays_host(c))
        return cross(c, r);
    if (r->dt == DT_FP8 && r->st != DT_FP8)
        return exec_float8_codes(c->x, k, r->tensor, r->n, r->to, r->from, (enum dtype)r->st);
    return kernels_ops(k)->copy(k, r->n, r->to, (enum dtype)r->dt, r->from, (enum dtype)r->st, scale, add);
}

/* ---- what the host learns: the gradients' norm, overflow, largest magnitudes ---- */

/* All of what is read is looked at, nothing written. */
static bool only_reads(enum copy_fn fn) { return fn == COPY_NORM || fn == COPY_OVERFLOW || fn == COPY_AMAX; }

/* *number is there after finish(). */
static int ask(const struct copy_task *c, const struct run *r, double *number)
{
    struct kernels *k = kernels_of(c);

    if (c->fn == COPY_OVERFLOW)
        return kernels_ops(k)->not_finite(k, r->n, r->from, (enum dtype)r->st, number);
    if (c->x->p->deterministic)
        return kernels_ops(k)->exact_squares(k, r->n, r->from, (enum dtype)r->st, &c->x->exact);
    return kernels_ops(k)->sum_squares(k, r->n, r->from, (enum dtype)r->st, number);
}

static void keep(const struct copy_task *c, const struct run *r, double number)
{
    struct executor *x = c->x;

    if (c->fn == COPY_OVERFLOW) {
        x->overflow |= number > 0;
        return;
    }
    number /= loss_scale_of(x->step) * loss_scale_of(x->step);
    x->norm_local += number;
    x->norm_of[r->tensor] += number;
}

/* Sums are added in the order of the runs, whenever they were made. */
static int run_told(const struct copy_task *c)
{
    struct kernels *k = kernels_of(c);
    double *number = room_new((size_t)c->n, sizeof *number);
    int rc = 0;

    for (int i = 0; i < c->n && rc == 0; i++)
        rc = ask(c, &c->run[i], &number[i]);
    if (kernels_ops(k)->finish(k) < 0)      /* even so: it writes to number[] */
        rc = -1;
    for (int i = 0; i < c->n && rc == 0; i++)
        keep(c, &c->run[i], number[i]);
    free(number);
    return rc;
}

/* Of each tensor that has a run. */
static int run_amax(const struct copy_task *c)
{
    struct kernels *k = kernels_of(c);
    float *most = c->x->amax_local;
    int rc = 0;

    for (int i = 0; i < c->n; i++)
        most[c->run[i].tensor] = 0;
    for (int i = 0; i < c->n && rc == 0; i++)
        rc = kernels_ops(k)->largest(k, c->run[i].n, c->run[i].from, (enum dtype)c->run[i].st, &most[c->run[i].tensor]);
    return kernels_ops(k)->finish(k) < 0 ? -1 : rc;
}

double executor_norm_value(const struct executor *x)
{
    return sqrt(x->p->deterministic ? exact_value(&x->exact) : x->norm_sum + x->norm_local);
}

/* min(1, clip / (norm + 1e-6)): torch.nn.utils.clip_grad_norm_, DeepSpeed's unscale_and_clip_grads. */
static double clip_factor(const struct executor *x)
{
    double norm_all = executor_norm_value(x);

    if (x->p->clip <= 0)
        return 1;
    return x->p->clip / (norm_all + 1e-6) < 1 ? x->p->clip / (norm_all + 1e-6) : 1;
}

static int run_one(const struct copy_task *c, const struct run *r, double factor)
{
    struct kernels *k = kernels_of(c);

    switch (c->fn) {
    case COPY_SET:      return move(c, r, c->scale, false);
    case COPY_ADD:      return move(c, r, c->scale, true);
    case COPY_CLIP:     return factor == 1 && r->to == r->from ? 0 : move(c, r, factor, false);
    case COPY_ZERO:     return kernels_ops(k)->zero(k, r->n, r->to);
    case COPY_NORM: case COPY_OVERFLOW: case COPY_AMAX: case COPY_NOTHING: case COPY_LOSS:
    case COPY_QUANTIZE: case COPY_DEQUANTIZE: case COPY_REQUANTIZE: case COPY_MEAN:
    case COPY_DRAW_Q: case COPY_ORTHOGONAL_P: case COPY_ORTHOGONAL_Q: case COPY_P_OF_Q: case COPY_Q_OF_P: case COPY_M_OF_BOTH:
    case COPY_SCALE_Q: case COPY_LOST:
        break;
    }
    return 0;
}

/* On the lane's own thread, as the collectives' counts. */
static void count(const struct copy_task *c)
{
    struct exec_count *n = &c->x->moved[c->from][c->to];
    int64_t bytes = 0;

    for (int i = 0; i < c->n; i++)
        bytes += run_bytes(&c->run[i]);
    atomic_fetch_add(&n->count, 1);
    atomic_fetch_add(&n->bytes, bytes);
}

static int run_copy(struct task *t)
{
    struct copy_task *c = t->self;
    double factor = c->fn == COPY_CLIP ? clip_factor(c->x) : 1;
    int rc = 0;

    if (c->fn == COPY_NORM)
        c->x->norm_taken = c->x->norm_new = true;
    if (guarded_off(c->x, c->op))
        c->x->guarded++;
    else if (only_reads(c->fn))
        rc = c->x->a.no_compute ? 0 : c->fn == COPY_AMAX ? run_amax(c) : run_told(c);
    else
        for (int i = 0; i < c->n && rc == 0 && !c->x->a.no_compute; i++)
            rc = run_one(c, &c->run[i], factor);
    if (rc == 0 && c->counts && !guarded_off(c->x, c->op))
        count(c);
    free(c->run);
    return rc;
}

/* ---- issuing ---- */

/* Padding between and behind what moves goes along, where that is what the schedule counts beyond the elements:
 * frameworks copy, read and write flat buffers whole. */
static void with_padding(const struct op *o, struct copy_task *c)
{
    int64_t more = o->u.copy.writes, inside = 0, outside = 0;

    for (int i = 0; i < c->n; i++) {
        more -= run_bytes(&c->run[i]);
        *(c->run[i].inner ? &inside : &outside) += c->run[i].behind;
    }
    bool all = inside + outside == more || (c->n == 1 && outside >= more);
    if (more <= 0 || (!all && inside != more))
        return;
    for (int i = 0; i < c->n; i++) {
        struct run *r = &c->run[i];
        int64_t add = r->inner || all ? least(more, r->behind) : 0;
        r->n += add / dtype_bytes((enum dtype)r->dt);
    }
}

static int written_from_read(struct executor *x, const struct op *o, struct copy_task *c)
{
    int64_t want = 0, covered = 0;

    for (int i = 0; i < x->writes.n; i++) {
        want += x->writes.v[i].n;
        meet(x, &x->reads, &x->writes.v[i], c, &covered);
    }
    if (covered < want)
        return fail("the schedule's entry \"%s\" writes %lld elements and reads %lld of them", o->what,
                    (long long)want, (long long)covered);
    if (c->counts)
        with_padding(o, c);
    for (int i = 0; i < c->n && c->crosses && !stays_host(c); i++)
        if (c->run[i].dt != c->run[i].st)
            return fail("the schedule's entry \"%s\" casts %s on its way from %s to %s memory", o->what,
                        tensor_of(x, c->run[i].tensor)->name, space_name(c->from), space_name(c->to));
    return 0;
}

static void each(struct executor *x, struct copy_task *c, const struct views *v)
{
    for (int i = 0; i < v->n; i++)
        add_run(c, &(struct run){ view_at(x, &v->v[i], v->v[i].from), view_at(x, &v->v[i], v->v[i].from),
                                  v->v[i].n, 0, 0, v->v[i].tensor, (uint8_t)v->v[i].dtype, (uint8_t)v->v[i].dtype, false });
}

/* Whole instances, padding too; only elements where an act has a layout of its own or kernels have
 * made the tensors one by one. */
static void zero_acts(struct executor *x, const struct op *o, int64_t iteration, struct copy_task *c)
{
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct act *a = &x->s->acts[k];
        for (int j = 0; (a->what & ACT_WRITE) && j < a->n; j++) {
            const struct inst *i = inst_of(x, a, iteration, j);
            if (!a->layout && !i->granted)
                add_run(c, &(struct run){ arena_at(x->in[x->s->bufs[a->buf].space], i->at), NULL,
                                          x->s->bufs[a->buf].bytes, 0, 0, 0, DT_UINT8, DT_UINT8, false });
        }
    }
    views_of(x, o, iteration, ACT_WRITE, &x->writes);
    for (int i = 0; i < x->writes.n; i++) {
        const struct view *v = &x->writes.v[i];
        if (v->own || v->inst->granted)
            add_run(c, &(struct run){ view_at(x, v, v->from), NULL, v->n * dtype_bytes(v->dtype), 0, 0, v->tensor,
                                      DT_UINT8, DT_UINT8, false });
    }
}

/* ---- what a block keeps, to another memory and back ---- */

/* The act on device memory's "activations", or on their place elsewhere; NULL. */
static const struct act *kept_act(const struct executor *x, const struct op *o, bool device)
{
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct buf *b = &x->s->bufs[x->s->acts[k].buf];
        if (b->category == CAT_ACTIVATIONS && buf_is_place(b) != device)
            return &x->s->acts[k];
    }
    return NULL;
}

/* All that block has at hand, one after the other into the instance. */
static int64_t leave_device(struct executor *x, struct context *block, struct inst *to, enum space in, struct copy_task *c)
{
    int64_t at = 0;

    to->kept = room_new(1, sizeof *to->kept);
    for (int s = 0; s < NSLOT; s++) {
        int64_t bytes = block->at[s] >= 0 ? arena_bytes(x->arena, block->at[s]) : -1;
        to->kept->bytes[s] = bytes;
        if (bytes < 0)
            continue;
        add_run(c, &(struct run){ .to = x->lanes ? (char *)arena_at(x->in[in], to->at) + at : NULL,
                                  .from = arena_at(x->arena, block->at[s]), .n = bytes, .dt = DT_UINT8, .st = DT_UINT8 });
        at += bytes;
    }
    return at;
}

static int64_t come_back(struct executor *x, struct context *block, const struct inst *from, enum space in, struct copy_task *c)
{
    int64_t at = 0;

    for (int s = 0; s < NSLOT; s++) {
        int64_t bytes = from->kept->bytes[s];
        if (bytes < 0)
            continue;
        if ((block->at[s] = executor_take(x, bytes, CAT_ACTIVATIONS)) < 0)
            return -1;
        add_run(c, &(struct run){ .to = arena_at(x->arena, block->at[s]),
                                  .from = x->lanes ? (char *)arena_at(x->in[in], from->at) + at : NULL, .n = bytes,
                                  .dt = DT_UINT8, .st = DT_UINT8 });
        at += bytes;
    }
    return at;
}

static int issue_kept(struct executor *x, const struct op *o, int64_t iteration, struct copy_task *c)
{
    const struct act *d = kept_act(x, o, true), *p = kept_act(x, o, false);
    const struct buf *kept = &x->s->bufs[d->buf];
    int64_t block = d->at + d->by * iteration, moved;

    if (!p || d->n != 1 || p->n != 1 || !kept->of || strcmp(kept->of, "block") || x->s->bufs[p->buf].space == SPACE_DISK)
        return fail("the schedule's entry \"%s\" moves activations other than one block's between device and host memory",
                    o->what);
    struct context *ctx = &x->ctx[CTX_BLOCK0 + block];
    struct inst *i = inst_of(x, p, iteration, 0);
    enum space in = x->s->bufs[p->buf].space;
    moved = c->from == SPACE_DEVICE ? leave_device(x, ctx, i, in, c) : come_back(x, ctx, i, in, c);
    if (moved >= 0 && moved != kept->bytes)
        return fail("block %lld keeps %lld bytes, and the schedule's entry \"%s\" moves %lld", (long long)block,
                    (long long)moved, o->what, (long long)kept->bytes);
    return moved < 0 ? -1 : 0;
}

/* The copy is on its way: its places on the device are free when it is done. */
static void give_kept(struct executor *x, const struct op *o, int64_t iteration)
{
    const struct act *d = kept_act(x, o, true);
    struct context *ctx = &x->ctx[CTX_BLOCK0 + d->at + d->by * iteration];

    for (int s = 0; s < NSLOT && (d->what & ACT_FREE); s++)
        if (ctx->at[s] >= 0) {
            executor_give(x, ctx->at[s], &x->order.lane[o->stream]);
            ctx->at[s] = -1;
        }
}

int executor_issue_copy(struct executor *x, const struct op *o, int64_t iteration)
{
    enum copy_fn fn = (enum copy_fn)o->u.copy.fn;

    if (o->u.copy.quant)
        return executor_issue_quant(x, o, iteration);
    if (fn >= COPY_DRAW_Q)
        return executor_issue_low_rank(x, o, iteration);
    struct copy_task *c = new_task(x, o, fn);
    bool kept = fn == COPY_SET && kept_act(x, o, true);
    int rc = 0;

    views_clear(&x->reads);
    views_clear(&x->writes);
    if (kept) {
        rc = issue_kept(x, o, iteration, c);
    } else if (fn == COPY_ZERO) {
        zero_acts(x, o, iteration, c);
        rc = views_there(x, o, &x->writes);
    } else if (fn != COPY_NOTHING) {
        views_of(x, o, iteration, ACT_READ, &x->reads);
        views_of(x, o, iteration, fn == COPY_ADD ? ACT_ADD : ACT_WRITE, &x->writes);
        rc = views_there(x, o, &x->reads);
        if (only_reads(fn))
            each(x, c, &x->reads);
        else if (rc == 0)
            rc = written_from_read(x, o, c);
    }
    if (!x->lanes || rc < 0) {
        free(c->run);
        c->run = NULL;
    }
    if (rc < 0) {
        free(c);
        return -1;
    }
    executor_put(x, o, run_copy, c);
    if (kept)
        give_kept(x, o, iteration);
    return 0;
}

/* ---- first weights ---- */

struct load_task { struct executor *x; const struct op *op; int n; struct view *v; };

enum { LOAD_PIECE = 1 << 16 };

/* [rows, cols] of the file as [cols, rows]: transformers turns a Conv1D's weight before bitsandbytes codes it. */
static void turned(const struct tensor *t, const float *from, float *to)
{
    int64_t rows = t->shape[0], cols = t->shape[1];

    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            to[j * rows + i] = from[i * cols + j];
}

static int load_packed(const struct load_task *l, const struct view *v, const struct tensor *t)
{
    float *all = room_new((size_t)t->numel, sizeof *all), *other = room_new((size_t)t->numel, sizeof *other);
    struct kernels *k = kernels_for(l->x, l->op);
    struct packed_weight w = exec_packed(t, view_at(l->x, v, 0));
    int rc = weights_fill_own(l->x->a.weights, l->x->a.own, v->tensor, 0, t->numel, all);

    if (t->in_out)
        turned(t, all, other);
    if (rc == 0)
        rc = kernels_ops(k)->pack(k, &w, t->in_out ? other : all);
    free(all);
    free(other);
    return rc;
}

static int load_view(const struct load_task *l, const struct view *v, float *piece)
{
    struct kernels *k = kernels_for(l->x, l->op);
    const struct tensor *t = tensor_of(l->x, v->tensor);

    if (t->packed != BASE_PLAIN && !t->is_bias)
        return load_packed(l, v, t);

    if (v->holds != HOLDS_PARAM && v->holds != HOLDS_MASTER)
        return kernels_ops(k)->zero(k, v->n * dtype_bytes(v->dtype), view_at(l->x, v, v->from));
    for (int64_t at = v->from, end = v->from + v->n; at < end; at += LOAD_PIECE) {
        int64_t n = end - at < LOAD_PIECE ? end - at : LOAD_PIECE;
        if (weights_fill_own(l->x->a.weights, l->x->a.own, v->tensor, at, n, piece) < 0 ||
            kernels_ops(k)->load(k, n, view_at(l->x, v, at), v->dtype, piece) < 0)
            return -1;
    }
    return 0;
}

static int run_load(struct task *t)
{
    struct load_task *l = t->self;
    float *piece = room_new(LOAD_PIECE, sizeof *piece);
    int rc = 0;

    for (int i = 0; i < l->n && rc == 0 && !l->x->a.no_compute; i++)
        rc = load_view(l, &l->v[i], piece);
    free(piece);
    free(l->v);
    return rc;
}

int executor_issue_load(struct executor *x, const struct op *o, int64_t iteration)
{
    struct load_task *l = room_new(1, sizeof *l);

    views_clear(&x->writes);
    views_of(x, o, iteration, ACT_WRITE, &x->writes);
    l->x = x;
    l->op = o;
    l->n = x->writes.n;
    if (x->lanes) {
        l->v = room_new((size_t)l->n, sizeof *l->v);
        memcpy(l->v, x->writes.v, (size_t)l->n * sizeof *l->v);
    }
    executor_put(x, o, run_load, l);
    return 0;
}
