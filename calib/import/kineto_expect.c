/* kineto_expect.c -- a plan's schedule as the list of kernels that its trace must show. */
#include "calib/import/kineto_expect.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"

static void add(struct expectation *x, enum expect_kind kind, const struct kernel *k, enum pass pass, int64_t bytes)
{
    x->at = room_for(x->at, x->n, &x->cap, sizeof *x->at);
    x->at[x->n++] = (struct expected){ kind, k, pass, bytes };
    x->issued[pass] += kind != EXPECT_OPTIMIZER;
}

/* An attention of backward that does what one of forward does is that one, recomputed. */
static bool is_recomputed(const struct piece *p, const struct kernel *k)
{
    for (int i = 0; i < p->nkernels[PASS_FORWARD]; i++) {
        const struct kernel *of = &p->kernels[PASS_FORWARD][i];
        if (of->kind == k->kind && of->m == k->m && of->flops == k->flops && of->bytes == k->bytes)
            return true;
    }
    return false;
}

static void add_kernel(struct expectation *x, const struct piece *p, const struct kernel *k, enum pass pass)
{
    if (k->m > 0) {
        add(x, EXPECT_PRODUCT, k, pass, k->bytes);
        x->nproducts++;
    } else if (k->kind == KC_ATTENTION) {
        add(x, pass == PASS_BACKWARD && !is_recomputed(p, k) ? EXPECT_ATTENTION_BACK : EXPECT_ATTENTION, k, pass, k->bytes);
        x->nattention++;
    } else if (k->bytes > 0)
        add(x, EXPECT_STREAMING, k, pass, k->bytes);
}

/* A recomputed block's backward begins with its forward's kernels. */
static void add_compute(struct expectation *x, const struct schedules *s, const struct op *o)
{
    const struct piece *piece = &s->program.piece[o->u.compute.piece];
    enum pass pass = (enum pass)o->u.compute.pass;

    for (int k = o->u.compute.k0; k < o->u.compute.k1; k++)
        add_kernel(x, piece, &piece->kernels[pass][k], pass);
}

static void add_copy(struct expectation *x, const struct schedules *s, const struct op *o)
{
    int64_t bytes = o->u.copy.reads + o->u.copy.writes;
    enum pass pass = o->phase == PHASE_BACKWARD || o->phase == PHASE_REDUCE ? PASS_BACKWARD : PASS_FORWARD;
    enum space from, to;

    if (bytes <= 0 || stream_is_host((enum stream)o->stream) || sched_crosses(s, o, &from, &to))
        return;
    if (o->stream == STREAM_COMPUTE) {
        add(x, EXPECT_COPY, NULL, pass, bytes);
        return;
    }
    x->side = room_for(x->side, x->nside, &x->cap_side, sizeof *x->side);
    x->side[x->nside++] = (struct expected){ EXPECT_COPY, NULL, pass, bytes };
    x->issued[pass]++;
}

struct walk { const struct plan *p; struct expectation *x; };

static void add_coll(struct walk *w, const struct schedules *s, const struct op *o)
{
    struct mesh_lie lie = plan_groups_slowest(w->p, &s->groups, o->u.coll.group);
    struct expectation *x = w->x;

    if (lie.ranks < 2 || coll_is_message((enum coll_op)o->u.coll.op))
        return;                         /* a send waits for the other stage: its time in a trace is not what it takes */
    x->coll = room_for(x->coll, x->ncolls, &x->cap_colls, sizeof *x->coll);
    x->coll[x->ncolls++] = (struct expected_coll){ (enum coll_op)o->u.coll.op, (enum dtype)o->u.coll.dtype,
        o->u.coll.elems * dtype_bytes((enum dtype)o->u.coll.dtype), lie.ranks, lie.most };
}

static int take(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct walk *w = arg;

    (void)iteration;
    if (o->kind == OP_COMPUTE)
        add_compute(w->x, s, o);
    else if (o->kind == OP_COPY)
        add_copy(w->x, s, o);
    else if (o->kind == OP_COLL)
        add_coll(w, s, o);
    else if (o->kind == OP_OPTIMIZER && o->stream == STREAM_COMPUTE)
        add(w->x, EXPECT_OPTIMIZER, NULL, PASS_FORWARD, o->u.optimizer.bytes * o->u.optimizer.elems);
    return 0;
}

int kineto_expect_check(const struct plan *p)
{
    if (p->kernels == KERNELS_DPX)
        return fail("\"kernels\" of the plan is dpx, and a trace of PyTorch's profiler is of PyTorch's kernels: torch-sdpa or torch-eager");
    if (p->cluster.is_host)
        return fail("\"cluster\" of the plan is this host, and a trace calibrates a type of GPU");
    return 0;
}

void kineto_expect(const struct plan *p, const struct schedules *s, struct expectation *out)
{
    struct walk w = { p, out };

    memset(out, 0, sizeof *out);
    out->hooks = s->hooks;
    sched_walk(s, SCHED_STEADY, take, &w);
}

void kineto_expect_free(struct expectation *x)
{
    free(x->at);
    free(x->side);
    free(x->coll);
    memset(x, 0, sizeof *x);
}
