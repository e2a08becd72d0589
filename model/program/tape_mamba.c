/* tape_mamba.c -- see tape_mamba.h.  Read at state-spaces/mamba e9594ce1: mamba_ssm/ops/triton/ssd_combined.py (MambaSplitConv1dScanCombinedFn,
 * _mamba_chunk_scan_combined_fwd(), _bwd()) with ssd_chunk_state.py, ssd_state_passing.py, ssd_bmm.py, ssd_chunk_scan.py and layernorm_gated.py; and
 * Dao-AILab/causal-conv1d, causal_conv1d/cpp_functions.py.  A Python name holds a tensor until it is rebound or its function returns.
 *
 * Kernels are priced by the bytes that they pass over.  Those that multiply do so on tensor cores, at some tens of FLOPs a byte: nobody has timed them
 * here, and their time is said to be known within a factor of three. */
#include "model/program/tape_mamba.h"

#include "base/dtype.h"
#include "model/program/tape_internal.h"

enum { ROUGH = 3 };

/* Numbers in what the kernels read and write. */
struct sizes {
    int64_t rows, inner, conv, all;     /* tokens; a token's x, its x with B and C, all that the function is given of it */
    int64_t chunks;                     /* of all sequences, the last of each filled up */
    int64_t steps;                      /* a number a head and position */
    int64_t states, last;               /* of all chunks, of all sequences */
    int64_t scores;                     /* C B of each group in its chunk */
    int64_t splits;                     /* into which sums over a group's heads are cut, so that all multiprocessors have some */
    double  inside, across;             /* FLOPs of the products within chunks for a head's numbers, of those with its states */
    double  pairs;                      /* of C B */
};

static struct sizes sizes_of(const struct mamba_shape *s)
{
    int64_t inner = s->heads * s->head_dim, conv = inner + 2 * s->groups * s->state, chunks = s->batch * ceil_div(s->seq, s->chunk);
    int64_t ratio = s->heads / s->groups, sms = s->sms > 0 ? s->sms : 1, each = ceil_div(chunks * s->heads, sms);

    each = each < ratio ? each : ratio;
    double positions = (double)chunks * (double)s->chunk;
    return (struct sizes){ .rows = s->batch * s->seq, .inner = inner, .conv = conv, .all = inner + conv + s->heads, .chunks = chunks,
                           .steps = s->heads * chunks * s->chunk, .states = chunks * inner * s->state, .last = s->batch * inner * s->state,
                           .scores = chunks * s->groups * s->chunk * s->chunk, .splits = ceil_div(ratio, each),
                           .inside = positions * (double)s->chunk * (double)inner, .across = 2 * positions * (double)inner * (double)s->state,
                           .pairs = 2 * positions * (double)s->chunk * (double)(s->groups * s->state) };
}

/* A kernel of the pass that runs; flops 0: it multiplies no matrices. */
static void kernel(struct tape *t, const char *name, int64_t bytes, double flops)
{
    struct kernel *k = tape_pass(t, name, KC_ELEMENTWISE, bytes);

    k->flops = flops;
    k->rough = flops > 0 ? ROUGH : 0;
}

/* Channels lie innermost, at a stride of which causal_conv1d wants a multiple of 8 (ensure_stride()). */
static int convolve(struct tape *t, const struct sizes *z, enum dtype dt)
{
    int64_t bytes = 2 * z->rows * z->conv * dtype_bytes(dt);
    int copy = 0;

    if (z->all % 8 && z->conv % 8 == 0) {
        kernel(t, "mamba channels in one piece", bytes, 0);
        copy = tape_new(t, z->rows * z->conv, dt);
    }
    kernel(t, "mamba convolution", bytes, 0);
    int made = tape_new(t, z->rows * z->conv, dt);
    tape_unref(t, copy);
    return made;
}

/* Steps and their sums in fp32. */
struct sums { int dt, da; };

static struct sums sum_steps(struct tape *t, const struct mamba_shape *s, const struct sizes *z, enum dtype dt)
{
    kernel(t, "mamba step sums", z->rows * s->heads * dtype_bytes(dt) + 8 * z->steps, 0);
    int step = tape_new(t, z->steps, DT_FP32);
    return (struct sums){ step, tape_new(t, z->steps, DT_FP32) };
}

static int make_states(struct tape *t, const struct mamba_shape *s, const struct sizes *z, enum dtype dt)
{
    kernel(t, "mamba chunk states", z->rows * (z->inner + s->groups * s->state) * dtype_bytes(dt) + 8 * z->steps + 4 * z->states, z->across);
    return tape_new(t, z->states, DT_FP32);
}

/* From chunk to chunk; what the last leaves goes to *last.  Takes `states`. */
static int pass_states(struct tape *t, const struct sizes *z, int states, enum dtype to, int *last)
{
    kernel(t, "mamba state passing", z->states * (4 + dtype_bytes(to)) + 4 * z->last, 0);
    int passed = tape_new(t, z->states, to);
    *last = tape_new(t, z->last, DT_FP32);
    tape_unref(t, states);
    return passed;
}

static int make_scores(struct tape *t, const struct mamba_shape *s, const struct sizes *z, enum dtype dt)
{
    kernel(t, "mamba chunk scores", 2 * z->rows * s->groups * s->state * dtype_bytes(dt) + 4 * z->scores, z->pairs);
    return tape_new(t, z->scores, DT_FP32);
}

/* The scan: its output, before the gate; behind it (`gated`) where the norm is not within. */
static int scan(struct tape *t, const struct mamba_shape *s, const struct sizes *z, enum dtype dt, int *gated)
{
    int64_t e = dtype_bytes(dt), inner = z->rows * z->inner * e;
    int scores = make_scores(t, s, z, dt);

    kernel(t, "mamba chunk scan", inner * (gated ? 4 : 2) + z->rows * s->groups * s->state * e + 4 * z->scores + 8 * z->steps + z->states * dtype_bytes(dt),
           z->inside + z->across);
    if (gated)
        *gated = tape_new(t, z->rows * z->inner, dt);
    int made = tape_new(t, z->rows * z->inner, dt);
    tape_unref(t, scores);
    return made;
}

static void product(struct kernel *k, int64_t m, int64_t n, int64_t inner, enum dtype dt)
{
    k->kind = KC_GEMM;
    k->m = m, k->n = n, k->k = inner, k->batch = 1;
    k->flops = 2.0 * (double)m * (double)n * (double)inner;
    k->bytes = (m * inner + n * inner + m * n) * dtype_bytes(dt);
}

static void edges(struct tape *t, struct node *n, const struct mamba_inputs *in)
{
    const var of[] = { in->zxbcdt, in->conv, in->conv_bias, in->dt_bias, in->a, in->d, in->norm, in->out };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i])
            tape_edge(t, n, of[i]);
}

/* The node with what it keeps, which is read behind the function's last kernel; its parameters are elsewhere, but for a cast of the last one. */
static int add_node(struct tape *t, const struct mamba_shape *s, const struct mamba_inputs *in, int scanned, int rstd, int cast)
{
    struct node *n = tape_node(t, NODE_MAMBA, "mamba", KC_ELEMENTWISE);

    n->mamba = *s;
    n->m = in->out > 0;
    n->n = in->conv_bias > 0;
    edges(t, n, in);
    tape_save_var(t, n, in->zxbcdt);
    tape_save(t, n, scanned);
    tape_save_var(t, n, in->a);
    tape_save_var(t, n, in->dt_bias);       /* a parameter, or Megatron's copy in fp32 */
    if (rstd)
        tape_save(t, n, rstd);
    if (cast)
        tape_save(t, n, cast);
    return t->nnodes - 1;
}

/* Gated norm and product behind the scan; leaves what the norm made in *normed. */
static int project(struct tape *t, const struct mamba_shape *s, const struct sizes *z, const struct mamba_inputs *in, int *normed, int *rstd, int *cast)
{
    enum dtype dt = tape_var_dtype(t, in->zxbcdt), own = tape_var_dtype(t, in->out);
    int64_t inner = z->rows * z->inner * dtype_bytes(dt);

    kernel(t, "mamba gated norm", 3 * inner, 0);
    *normed = tape_new(t, z->rows * z->inner, dt);
    *rstd = tape_new(t, z->rows * s->groups, DT_FP32);
    if (own != dt) {                    /* out and its weight are cast where autocast is on, whatever trains */
        kernel(t, "cast", s->hidden * z->inner * (dtype_bytes(own) + dtype_bytes(dt)), 0);
        *cast = tape_new(t, s->hidden * z->inner, dt);
    }
    product(tape_begin_saving(t, "mamba out", KC_GEMM), z->rows, s->hidden, z->inner, dt);
    return tape_new(t, z->rows * s->hidden, dt);
}

var tape_mamba(struct tape *t, const struct mamba_shape *s, const struct mamba_inputs *in)
{
    const struct sizes z = sizes_of(s);
    enum dtype dt = tape_var_dtype(t, in->zxbcdt);
    bool whole = in->out > 0;
    int last, gated = 0, normed = 0, rstd = 0, cast = 0, made;

    int conv = convolve(t, &z, dt);
    struct sums sums = sum_steps(t, s, &z, dt);
    int states = pass_states(t, &z, make_states(t, s, &z, dt), dt, &last);
    int scanned = scan(t, s, &z, dt, whole ? NULL : &gated);
    if (whole)
        made = project(t, s, &z, in, &normed, &rstd, &cast);
    else {
        tape_begin_saving(t, "mamba keeps", KC_COPY);
        made = gated;
    }
    int node = add_node(t, s, in, scanned, rstd, cast);
    const int names[] = { conv, sums.dt, sums.da, states, last, scanned, normed, rstd, cast };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_unref(t, names[i]);
    return tape_var(t, made, whole ? z.rows * s->hidden : z.rows * z.inner, dt, node, 0);
}

/* ---- backward ---- */

/* dB or dC of each split of a group's heads, then their sum. */
static int summed(struct tape *t, const char *name, const struct sizes *z, int64_t each, int64_t bytes, double flops)
{
    kernel(t, name, bytes + 4 * z->splits * each, flops);
    int parts = tape_new(t, z->splits * each, DT_FP32);
    kernel(t, "mamba sum of heads", 4 * (z->splits + 1) * each, 0);
    int sum = tape_new(t, each, DT_FP32);
    tape_unref(t, parts);
    return sum;
}

/* What the states and their gradients become in 16 bits, passed back from chunk to chunk.  Takes both. */
static void pass_back(struct tape *t, const struct mamba_shape *s, const struct sizes *z, enum dtype dt, int states[2])
{
    int64_t e = dtype_bytes(dt);

    kernel(t, "mamba state passing backward", z->states * (8 + 2 * e), 0);
    int gradient = tape_new(t, z->states, dt), kept = dt == DT_FP32 ? tape_share(t, states[0]) : tape_new(t, z->states, dt);
    int decay = tape_new(t, s->heads * z->chunks * ceil_div(s->head_dim * s->state, 64), DT_FP32);
    tape_unref(t, decay);
    tape_unref(t, states[0]);
    tape_unref(t, states[1]);
    states[0] = kept;
    states[1] = gradient;
}

/* Gradients of the sums of steps, which several kernels have parts of. */
static void step_gradients(struct tape *t, const struct mamba_shape *s, const struct sizes *z, enum dtype dt, int ddt, int next, int prev)
{
    int64_t e = dtype_bytes(dt);

    kernel(t, "mamba step sums backward", 16 * z->steps, 0);            /* flip, cumsum, flip */
    int flipped = tape_new(t, z->steps, DT_FP32), sum = tape_new(t, z->steps, DT_FP32);
    tape_unref(t, flipped);
    int back = tape_new(t, z->steps, DT_FP32);
    tape_unref(t, sum);
    kernel(t, "mamba scores' step gradients", 2 * z->rows * z->inner * e + 4 * z->scores + 4 * z->steps * ceil_div(s->chunk, 32), z->inside);
    int parts = tape_new(t, z->steps * ceil_div(s->chunk, 32), DT_FP32);
    kernel(t, "mamba step gradients", 4 * z->steps * (ceil_div(s->chunk, 32) + 1), 0);
    int da = tape_new(t, z->steps, DT_FP32);
    tape_unref(t, parts);
    kernel(t, "mamba step gradients", 24 * z->steps, 0);
    int added = tape_new(t, z->steps, DT_FP32);
    tape_unref(t, added);
    kernel(t, "mamba steps backward", 12 * z->steps + z->rows * s->heads * 2 * e, 0);
    const int names[] = { back, da, ddt, next, prev };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_unref(t, names[i]);
}

/* _mamba_chunk_scan_combined_bwd(): dx, dB, dC, the steps' and the gate's gradients lie in tensors of the caller's.  `gates`: the gate is within the scan. */
static void scan_back(struct tape *t, const struct mamba_shape *s, const struct sizes *z, enum dtype dt, bool gates)
{
    int64_t e = dtype_bytes(dt), inner = z->rows * z->inner * e, group = z->rows * s->groups * s->state, tiles = ceil_div(s->chunk, 32);
    int last, states[2], dout = 0;

    kernel(t, "mamba steps in one piece", 2 * z->rows * s->heads * e, 0);
    int in = tape_new(t, z->rows * s->heads, dt);
    struct sums sums = sum_steps(t, s, z, dt);
    int scores = make_scores(t, s, z, dt);
    states[0] = pass_states(t, z, make_states(t, s, z, dt), DT_FP32, &last);
    if (gates) {
        kernel(t, "mamba gate backward", 6 * inner, 0);
        int parts = tape_new(t, tiles * z->chunks * z->inner, DT_FP32);
        dout = tape_new(t, z->rows * z->inner, dt);
        tape_unref(t, parts);
    }
    kernel(t, "mamba states backward", inner + group * e + 4 * z->states + 4 * z->steps, z->across);
    states[1] = tape_new(t, z->states, DT_FP32);
    pass_back(t, s, z, dt, states);
    kernel(t, "mamba chunk scan backward x", 3 * inner + group * e + 4 * z->scores + z->states * e + 12 * z->steps, z->inside + z->across);
    int parts = tape_new(t, tiles * z->chunks * s->heads, DT_FP32), ddt = tape_new(t, z->steps, DT_FP32);
    tape_unref(t, parts);
    int next = tape_new(t, z->steps, DT_FP32), db = summed(t, "mamba chunk states backward B", z, group, inner + z->states * e + 12 * z->steps, z->across);
    int prev = tape_new(t, z->steps, DT_FP32), dc = summed(t, "mamba chunk scan backward C", z, group, inner + z->states * e + 8 * z->steps, z->across);
    int dcb = summed(t, "mamba chunk scan backward scores", z, z->scores, 2 * inner + 8 * z->steps, z->inside);
    for (int i = 0; i < 2; i++)
        kernel(t, i ? "mamba chunk scores backward B" : "mamba chunk scores backward C", 4 * z->scores + group * (4 + 2 * e), z->pairs);
    step_gradients(t, s, z, dt, ddt, next, prev);
    const int names[] = { in, sums.dt, sums.da, scores, last, states[0], states[1], dout, db, dc, dcb };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_unref(t, names[i]);
}

/* Where edge i's gradient goes. */
static int grad_of(struct tape *t, const struct node *n, int i, enum dtype dt)
{
    return tape_alloc(t, n->edges[i].numel, dtype_bytes(dt), n->edges[i].tensor >= 0 && n->edges[i].dt == dt ? MEM_GRADS : MEM_TEMPORARIES);
}

/* Rows of partial sums of the norm's weight: programs, by the warps that each has (layernorm_gated.py, _layer_norm_bwd()). */
static int64_t norm_rows(const struct mamba_shape *s, const struct sizes *z)
{
    int64_t warps = 1;

    while (warps < 8 && warps * 2 * 256 <= z->inner / s->groups)
        warps *= 2;
    return s->sms > 0 ? ceil_div(s->sms * ceil_div(4, warps), s->groups) : 1;
}

/* The product's and the norm's backward, before the scan's: leaves the gradient of what the scan made, and what else has a name until the end. */
static void project_back(struct tape *t, const struct mamba_shape *s, const struct sizes *z, enum dtype dt, int names[2])
{
    int64_t inner = z->rows * z->inner * dtype_bytes(dt), rows = norm_rows(s, z);

    product(tape_kernel(t, "mamba out dX", KC_GEMM), z->rows, z->inner, s->hidden, dt);
    names[0] = tape_new(t, z->rows * z->inner, dt);
    kernel(t, "mamba gated norm backward", 6 * inner, 0);
    names[1] = tape_new(t, z->rows * z->inner, dt);
    int parts = tape_new(t, rows * z->inner, DT_FP32);
    kernel(t, "mamba gated norm dW", 4 * rows * z->inner, 0);
    tape_unref(t, parts);
}

/* Edges: zxbcdt, the convolution's, dt_bias, A, D, and with the norm within its weight and the product's. */
void tape_run_mamba(struct tape *t, const struct node *n, int out[TAPE_EDGES], enum dtype got[TAPE_EDGES])
{
    const struct mamba_shape *s = &n->mamba;
    const struct sizes z = sizes_of(s);
    enum dtype dt = n->edges[0].dt;
    bool whole = n->m > 0, biased = n->n > 0;
    int last = n->nedges - 1, names[2] = { 0 }, normed = 0;

    tape_back(t, n, "mamba backward");
    if (whole)
        normed = tape_new(t, z.rows * z.inner, dt);             /* made again, for the product's weight */
    int conv = convolve(t, &z, dt);
    out[0] = tape_new(t, z.rows * z.all, dt);
    int dconv = tape_new(t, z.rows * z.conv, dt);
    if (whole)
        project_back(t, s, &z, dt, names);
    if (whole && tape_wants(n, last - 1))
        out[last - 1] = grad_of(t, n, last - 1, n->edges[last - 1].dt);
    scan_back(t, s, &z, dt, !whole);
    for (int i = 2 + biased; i < 5 + biased; i++)               /* dt_bias in fp32, A, D */
        if (tape_wants(n, i)) {
            got[i] = i == 2 + biased ? DT_FP32 : n->edges[i].dt;
            out[i] = grad_of(t, n, i, got[i]);
        }
    if (whole && tape_wants(n, last)) {
        product(tape_kernel(t, "mamba out dW", KC_GEMM), s->hidden, z.inner, z.rows, dt);
        got[last] = dt;
        out[last] = grad_of(t, n, last, dt);
    }
    kernel(t, "mamba convolution backward", 4 * z.rows * z.conv * dtype_bytes(dt), 0);
    for (int i = 1; i < 2 + biased; i++)
        if (tape_wants(n, i)) {
            int wide = n->edges[i].dt == DT_FP32 ? 0 : tape_new(t, n->edges[i].numel, DT_FP32);
            out[i] = grad_of(t, n, i, n->edges[i].dt);
            tape_unref(t, wide);
        }
    const int made[] = { conv, dconv, names[0], names[1], normed };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        tape_unref(t, made[i]);
}
