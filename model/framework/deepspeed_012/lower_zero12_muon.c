/* lower_zero12_muon.c -- DeepSpeed's Muon under stages 1 and 2: MuonWithAuxAdam of 0.19.8, AdamW of what is no matrix of its own.
 *
 * Sources: set_optimizer_flags() (deepspeed/__init__.py) tags matrices, _muon_param_groups() (runtime/engine.py) makes two parameter groups
 * of them, get_flat_partition() (runtime/zero/stage_1_and_2.py) orthogonalises, muon_update() (runtime/zero/muon/original_muon.py) is
 * how, with ns_method "gram", the default.  Gradients are all-reduced anyway, so every rank that has a part of a matrix in its partition
 * keeps the whole gradient, its whole momentum twice (committed, and of the step under way), and computes the whole update: nothing more
 * is sent.  Of each update the rank's part steps its fp32 partition, which has no other state.
 *
 * The temporaries of muon_update() are counted as PyTorch makes them one by one; DeepSpeed compiles it, which may take less. */
#include "model/framework/deepspeed_012/lower_zero12.h"

enum { ITERATIONS = 5, RESTART = 2 };       /* ns_steps, restart_at */

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static void sides(const struct tensor *t, int64_t *short_side, int64_t *long_side)
{
    *short_side = t->shape[0] < t->shape[1] ? t->shape[0] : t->shape[1];
    *long_side = t->numel / *short_side;
}

/* ---- what muon_update() takes ---- */

/* Of a square matrix x: A = x x^T, b A, c A A, their sum; a x, B x, their sum: all of 2 bytes.  Of others the Gram matrix r of the short
 * side: Z from r, b r, c r r; Q from Z, a Q, Z Q; at the restart and in the end Q x beside x. */
static int64_t newton_schulz_bytes(int64_t m, int64_t k)
{
    int64_t square = round512(2 * m * m), x = round512(2 * m * k);

    if (m == k)
        return 6 * square;
    return most(x + 7 * square, 2 * x + 4 * square);
}

/* The momentum's mean with the gradient and where() of it; or the gradient (of fp16 a copy in fp32) divided by its norm, and that in fp16;
 * or the iteration; or the update in fp16 and as it leaves, which where() copies once more: that copy is what is kept.  Beside all of it
 * the flag of overflow, before which isfinite() has the absolute values and three flags of each: (x == x) * (|x| != inf), in C++ one
 * expression. */
int64_t z12_muon_temporaries(const struct tensor *t, enum dtype dt)
{
    enum dtype wide = dt == DT_FP16 ? DT_FP32 : dt;
    int64_t m, k, whole = round512(t->numel * dtype_bytes(dt)), half = round512(t->numel * 2);
    int64_t divided = round512(t->numel * dtype_bytes(wide)), all;

    sides(t, &m, &k);
    all = most(2 * whole, divided * (1 + (wide != dt)) + half);
    all = most(all, newton_schulz_bytes(m, k));
    all = most(all, half + whole);
    return most(all + round512(1), whole + 3 * round512(t->numel)) - whole;
}

/* X X^T again at the restart, and Q X there and in the end: 2 m^2 k each; r r of every iteration, Q of all but the first and that of the
 * restart, two products of the next r but before the restart and in the end: 2 m^3 each.  Of a square matrix three products an
 * iteration. */
double z12_muon_flops(const struct tensor *t)
{
    int64_t m, k;

    sides(t, &m, &k);
    double cube = 2.0 * (double)m * (double)m * (double)m, wide = 2.0 * (double)m * (double)m * (double)k;
    return m == k ? ITERATIONS * (2 * wide + cube) : 4 * wide + (ITERATIONS + (ITERATIONS - 2) + 2 * (ITERATIONS - 2)) * cube;
}

/* ---- buffers ---- */

static int64_t update_bytes(const struct ds *d, const struct tensor *t)
{
    return plan_orthogonalises(d->p, t) ? ds_tensor_bytes(d, t) : 0;
}

void z12_muon_declare(struct z12 *z)
{
    struct z12_group *g = &z->group[0];
    int64_t bytes = round512(g->whole * z->d.e);

    g->momentum = sched_buf(z->d.s, CAT_OPTIMIZER, "momentum of whole matrices", NULL, 0, 1, bytes);
    g->staged = sched_buf(z->d.s, CAT_OPTIMIZER, "momentum of the step", NULL, 0, 1, bytes);
    ds_declare(&z->d, &z->updates, CAT_GRADS, "orthogonalised gradient", 1, update_bytes);
    ds_hold(&z->d, &z->updates, HOLDS_GRAD, z->d.dt);
}

/* ---- entries ---- */

/* _muon_momentum_buffer() and _muon_staging_momentum(): zeros at first; then the step begins with a copy. */
static void stage_momentum(struct z12 *z, const struct z12_group *g, bool first)
{
    struct schedules *s = z->d.s;
    int64_t bytes = g->whole * z->d.e;

    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "momentum of the step", bytes, first ? 2 * bytes : bytes);
    sched_does(s, COPY_NOTHING, 1);
    sched_act(s, first ? ACT_ALLOC : ACT_USE, g->momentum, 0, 0);
    sched_act(s, first ? ACT_ALLOC : ACT_USE, g->staged, 0, 0);
}

/* Kernels as torch.compile leaves them: the products, and between two of them one for all that is done to their elements; 6 for the flag of
 * overflow, the momentum, the norm and the end. */
static int launches(const struct tensor *t)
{
    int64_t m, k;

    sides(t, &m, &k);
    return 6 + 2 * (m == k ? 3 * ITERATIONS : 4 + ITERATIONS + 3 * (ITERATIONS - 2));
}

/* Bytes an element of e: isfinite() reads it; lerp() and where() read two and write one, copy_() one; lerp_() again; the norm reads, the
 * division reads and writes, the cast reads it; in the end the cast writes it and where() reads two and writes one: 20, and 2 and 2
 * bytes of flags and casts, 4 of the scale, 2 of the last cast. */
static void orthogonalise(struct z12 *z, int t)
{
    struct ds *d = &z->d;
    const struct tensor *of = &d->m->tensors[t];
    struct op *o = sched_op(d->s, OP_OPTIMIZER, STREAM_COMPUTE, PHASE_OPTIMIZER, "Newton-Schulz");

    o->u.optimizer.elems = of->numel;
    o->u.optimizer.tensors = 1;
    o->u.optimizer.bytes = (uint32_t)(20 * d->e + 10);
    o->u.optimizer.passes = (uint8_t)launches(of);
    o->u.optimizer.each = true;
    o->u.optimizer.flops = z12_muon_flops(of);
    ds_act(d, &z->updates, ACT_ALLOC, t, 0);
    sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "Newton-Schulz of one matrix",
                                                     z12_muon_temporaries(of, d->dt)), 0, 0);
}

void z12_muon_orthogonalise(struct z12 *z, bool first)
{
    const struct z12_group *g = &z->group[0];

    if (g->nown == 0)
        return;
    stage_momentum(z, g, first);
    for (int i = 0, n = z12_members(z, 0, z->members); i < n; i++)
        if (z12_owns(z, z->members[i]))
            orthogonalise(z, z->members[i]);
}

/* _commit_muon_momentum(), after the norm. */
void z12_muon_commit(struct z12 *z)
{
    const struct z12_group *g = &z->group[0];
    int64_t bytes = g->whole * z->d.e;

    if (g->nown == 0)
        return;
    sched_copy(z->d.s, STREAM_COMPUTE, PHASE_OPTIMIZER, "commit momentum", bytes, bytes);
    sched_does(z->d.s, COPY_NOTHING, 1);
    sched_act(z->d.s, ACT_USE, g->momentum, 0, 0);
    sched_act(z->d.s, ACT_USE, g->staged, 0, 0);
}

/* MuonWithAuxAdam.step() of a flat partition: mul_() reads and writes 4 bytes, add_() reads the update, too. */
struct op *z12_muon_step(struct z12 *z)
{
    struct op *o = sched_op(z->d.s, OP_OPTIMIZER, STREAM_COMPUTE, PHASE_OPTIMIZER, "Muon");

    o->u.optimizer.elems = z->of->part;
    o->u.optimizer.tensors = 1;
    o->u.optimizer.bytes = 20;
    o->u.optimizer.passes = 2;
    return o;
}
