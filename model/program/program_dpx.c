/* program_dpx.c -- the block programs of our own executor (exec/kernels/kernels.h).
 *
 * Buffers are rounded up to 64 bytes.  With N tokens, e bytes an element, h hidden,
 * q = heads * head_dim, kv = kv_heads * head_dim, f the MLP's width, a block keeps
 *
 *     x, norm(x), q k v, attention output, mid, norm(mid)  e*N*(4h + 2q + 2kv)
 *     log-sum-exp of the scores                            4*N*heads
 *     mean and 1/sigma of both norms (RMS: 1/sigma)        16*N (8*N)
 *     MLP: pre-activation and product                      e*N*2f, gated e*N*3f
 *
 * with one h each per post norm, and q and k a second time where they are normed.  Dropout keeps no mask (its random
 * numbers are a function of a counter), bias, residual and dropout are part of the
 * kernel that produces their input, and backward adds into the gradient of the
 * residual in place.  Cross-entropy overwrites the logits (N*V*e, not cut into chunks)
 * with their gradient. */
#include "model/program/program_dpx.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/program/program_internal.h"

static int store(struct dpx *d, enum slot slot, int64_t numel, int64_t e, enum mem mem)
{
    int s = tape_alloc(&d->t, numel, e, mem);

    tape_name(&d->t, s, slot);
    return s;
}

int dpx_keep(struct dpx *d, enum slot slot, int64_t numel, int64_t e)
{
    return store(d, slot, numel, e, d->recompute ? MEM_TEMPORARIES : MEM_ACTIVATIONS);
}

int dpx_temp(struct dpx *d, enum slot slot, int64_t numel, int64_t e)
{
    return store(d, slot, numel, e, MEM_TEMPORARIES);
}

int dpx_hand_on(struct dpx *d, enum slot slot, int64_t numel, int64_t e)
{
    return store(d, slot, numel, e, MEM_ACTIVATIONS);
}

void dpx_gone(struct dpx *d, int *store)
{
    tape_unref(&d->t, *store);
    *store = 0;
}

void dpx_param_grad(struct dpx *d, enum tensor_role role, bool bias, int64_t numel)
{
    int tensor = torch_piece_part(d->m, d->block, role, bias, d->adapter);
    struct recipe r = plan_recipe(d->p);
    enum dtype dt = r.autocast ? DT_FP32 : r.used;

    if (d->adapter == ADAPTER_NONE && !dpx_trains(d, role, bias))
        return;
    if (role == ROLE_HEAD && tensor < 0 && !bias)
        tensor = TAPE_TIED;
    if (role == ROLE_TOKENS && d->m->tied) {    /* adds into what the head left */
        struct kernel *k = &d->t.out[d->t.nout - 1];
        k->ready[0] = tensor;
        k->ready_bytes = d->t.stores[d->t.tied_grad].bytes;
        return;
    }
    if (tensor < 0)
        return;
    /* As large as the buffers that lowerings keep gradients in. */
    int64_t e = dtype_bytes(dt);
    int g = tape_alloc(&d->t, round_up(numel * e, 512) / e, e, MEM_GRADS);
    tape_grad_arrived(&d->t, &(struct edge){ .tensor = tensor, .numel = numel, .dt = dt }, g);
}

struct kernel *dpx_kernel(struct dpx *d, enum kernel_fn fn, const char *name, enum kernel_class kc, int64_t bytes)
{
    dpx_gone(d, &d->weight);

    struct kernel *k = tape_kernel(&d->t, name, kc);

    k->bytes = bytes;
    k->fn = (uint8_t)fn;
    k->role = (uint8_t)d->role;
    k->adapter = (uint8_t)d->adapter;
    d->t.module = -1;                   /* dpx_use() is for one kernel */
    return k;
}

void dpx_use(struct dpx *d, enum tensor_role role)
{
    d->role = role;
    d->adapter = ADAPTER_NONE;
    d->t.module = torch_piece_module(d->m, d->block, role, ADAPTER_NONE);
    if (role == ROLE_HEAD && d->t.module < 0)
        d->t.module = MODULE_TIED;
}

struct kernel *dpx_gemm(struct dpx *d, enum kernel_fn fn, const char *name, int64_t m, int64_t n, int64_t k)
{
    int codes = dpx_unpack(d, fn), weight = codes ? codes : dpx_float8_weight(d, fn);
    struct kernel *kn = dpx_kernel(d, fn, name, KC_GEMM, (m * k + n * k + m * n) * d->e);

    d->weight = weight;
    kn->m = m, kn->n = n, kn->k = k, kn->batch = 1;
    kn->flops = 2.0 * (double)m * (double)n * (double)k;
    return kn;
}

static enum slot stats_slot(int which) { return (enum slot)(SLOT_STATS1 + which); }

int dpx_norm(struct dpx *d, const char *name, enum tensor_role role, int which, enum slot out)
{
    dpx_use(d, role);
    dpx_kernel(d, FN_NORM, name, KC_NORM, 2 * d->r * d->h * d->e);
    d->k.stats[which] = dpx_keep(d, stats_slot(which), d->r * (d->m->norm == NORM_LAYER ? 2 : 1), 4);
    return dpx_keep(d, out, d->r * d->h, d->e);
}

void dpx_norm_back(struct dpx *d, const char *name, enum tensor_role role, int which)
{
    dpx_use(d, role);
    dpx_kernel(d, FN_NORM_BACK, name, KC_NORM, 5 * d->r * d->h * d->e);
    dpx_param_grad(d, role, false, d->h);
    dpx_param_grad(d, role, true, d->h);
    dpx_gone(d, &d->k.stats[which]);
}

void dpx_linear_dw(struct dpx *d, const struct gemm_names *names, enum tensor_role role, int64_t n, int64_t k, int *x)
{
    bool bias = d->ranks == 1 || (role != ROLE_ATTN_OUT && role != ROLE_DOWN);      /* else dpx_bias_back() */

    dpx_use(d, role);
    if (dpx_trains(d, role, false))
        dpx_gemm(d, FN_LINEAR_DW, names->dw, k, n, d->n);
    else if (bias && dpx_trains(d, role, true))
        dpx_kernel(d, FN_LINEAR_DB, "bias gradient", KC_ELEMENTWISE, d->n * n * d->e);
    if (bias)
        dpx_param_grad(d, role, true, n);
    dpx_param_grad(d, role, false, n * k);
    if (x)
        dpx_gone(d, x);
}

void dpx_linear_dx(struct dpx *d, const struct gemm_names *names, enum tensor_role role, int64_t n, int64_t k, int *dx,
                   enum slot dx_slot)
{
    dpx_use(d, role);
    dpx_gemm(d, FN_LINEAR_DX, names->dx, d->n, k, n);
    if (!*dx)
        *dx = dpx_temp(d, dx_slot, d->n * k, d->e);
}

void dpx_linear_back(struct dpx *d, const struct gemm_names *names, enum tensor_role role, int64_t n,
                     int64_t k, int *x, int *dx, enum slot dx_slot)
{
    int dlow = 0, dy8 = 0;

    dpx_adapter_back(d, role, n, k, &dlow);
    dpx_float8_dy(d, role, n, false, &dy8);
    dpx_float8_in(d, role, k, PASS_BACKWARD);
    dpx_linear_dw(d, names, role, n, k, x);
    dpx_float8_read(d, role, PASS_BACKWARD);
    dpx_float8_dy(d, role, n, true, &dy8);
    if (dpx_passes(d, role))
        dpx_linear_dx(d, names, role, n, k, dx, dx_slot);
    dpx_gone(d, &dy8);
    dpx_adapter_dx(d, role, k, &dlow);
}

/* ---- pieces ---- */

static int take(struct dpx *d, struct piece *out, enum pass pass, int from)
{
    dpx_gone(d, &d->weight);

    int to = tape_cut(&d->t);

    if (d->t.bad)
        return fail("the activations of this plan exceed 2^60 bytes: reduce micro_batch, seq or the model");
    if (piece_take(out, pass, d->t.out + from, to - from) < 0)
        return -1;
    if (piece_collectives(out, pass, d->t.colls) < 0)
        return -1;
    return piece_places(out, pass, d->t.places);
}

static int build_block(struct dpx *d, struct piece *out, bool recomputed, bool first)
{
    bool full = recomputed && recompute_whole(d->p->recompute);
    int from = tape_cut(&d->t);

    d->block = 0;
    d->least = dpx_least(d, first);
    memset(&d->k, 0, sizeof d->k);
    tape_cut(&d->t);
    d->k.x = dpx_hand_on(d, SLOT_X, d->r * d->h, d->e);     /* by the piece before */
    from = d->t.nout;
    d->recompute = full;
    int y = dpx_block_forward(d);
    d->recompute = false;
    if (recomputed && !full && dpx_reaches(d, DPX_QKV))
        dpx_forget_attention(d);
    if (take(d, out, PASS_FORWARD, from) < 0)
        return -1;

    tape_cut(&d->t);
    d->dx = dpx_temp(d, SLOT_DX, d->r * d->h, d->e);
    from = d->t.nout;
    if (full)
        dpx_block_recompute(d);         /* up to the last GEMM's input */
    dpx_block_backward(d);
    if (take(d, out, PASS_BACKWARD, from) < 0)
        return -1;
    dpx_gone(d, &d->dx);
    dpx_gone(d, &y);
    return 0;
}

int dpx_labels(struct dpx *d) { return d->stages ? dpx_temp(d, SLOT_LABELS, d->n, 4) : 0; }

/* Forward's kernels are those of PIECE_BLOCK. */
static int build_split_block(struct dpx *d, struct piece *out)
{
    int from;

    d->block = 0;
    d->least = DPX_BELOW;
    memset(&d->k, 0, sizeof d->k);
    tape_cut(&d->t);
    d->k.x = dpx_hand_on(d, SLOT_X, d->r * d->h, d->e);
    dpx_block_forward(d);
    tape_cut(&d->t);
    d->dx = dpx_temp(d, SLOT_DX, d->r * d->h, d->e);
    from = d->t.nout;
    out->split = dpx_split_block(d) - from;
    return take(d, out, PASS_BACKWARD, from);
}

static void head_backward(struct dpx *d, struct dpx_head *h)
{
    if (d->ranks > 1)
        dpx_cut_logits_back(d);
    else
        dpx_linear_back(d, GEMM("logits"), ROLE_HEAD, d->m->vocab, d->h, NULL, &d->dx, SLOT_DX);
    dpx_gone(d, &h->logits);
    dpx_gone(d, &h->losses);
    dpx_gone(d, &h->y);
    dpx_norm_back(d, "final norm backward", ROLE_NORM_FINAL, 0);     /* in place */
    dpx_gone(d, &h->x);
}

static int build_ends(struct dpx *d, struct program *out)
{
    const struct model *m = d->m;
    int from = tape_cut(&d->t);

    d->block = TENSOR_EMBED;
    memset(&d->k, 0, sizeof d->k);
    dpx_use(d, ROLE_TOKENS);
    dpx_kernel(d, d->ranks > 1 ? FN_EMBED_ROWS : FN_EMBED, "token embedding", KC_EMBEDDING, 2 * d->n * d->h * d->e);
    int ids = dpx_keep(d, SLOT_IDS, d->stages ? d->n : 2 * d->n, 4);    /* tokens and labels, int32 */
    int x = d->ranks > 1 ? dpx_cut_tokens(d) : dpx_keep(d, SLOT_Y, d->n * d->h, d->e), raw = 0;
    if (m->position == POS_LEARNED && d->ranks == 1) {
        dpx_use(d, ROLE_POSITIONS);
        dpx_kernel(d, FN_POSITIONS, "position embedding", KC_EMBEDDING, 3 * d->n * d->h * d->e);
    }
    if (torch_piece_tensor(m, TENSOR_EMBED, ROLE_EMBED_NORM, false) >= 0) {
        raw = x;
        x = dpx_norm(d, "embedding norm", ROLE_EMBED_NORM, 0, SLOT_Y);
    }
    d->t.stores[x].slot = SLOT_X;           /* of the head, which frees it */
    if (take(d, &out->piece[PIECE_EMBED], PASS_FORWARD, from) < 0)
        return -1;

    from = d->t.nout;
    d->block = TENSOR_HEAD;
    int stats = d->k.stats[0];
    int y = dpx_norm(d, "final norm", ROLE_NORM_FINAL, 0, SLOT_NORM1);
    int all = dpx_gather(d, SLOT_NORM1, SLOT_GATHERED), losses, labels;
    dpx_float8_in(d, ROLE_HEAD, d->h, PASS_FORWARD);
    dpx_use(d, ROLE_HEAD);
    dpx_gemm(d, FN_LINEAR, "logits", d->n, m->vocab, d->h);
    dpx_float8_read(d, ROLE_HEAD, PASS_FORWARD);
    dpx_gone(d, &all);
    if (!dpx_reads(d, ROLE_HEAD))
        dpx_gone(d, &y);
    int logits = dpx_keep(d, SLOT_LOGITS, dpx_logits(d), d->e);
    if (d->ranks > 1) {
        losses = dpx_cut_loss(d);
    } else {
        dpx_kernel(d, FN_LOSS, "cross-entropy", KC_LOSS, 2 * d->n * m->vocab * d->e);
        losses = dpx_keep(d, SLOT_LOSSES, d->n, 4);
        labels = dpx_labels(d);
        dpx_gone(d, &labels);
    }
    if (take(d, &out->piece[PIECE_HEAD], PASS_FORWARD, from) < 0)
        return -1;

    from = d->t.nout;
    d->dx = 0;
    if (d->split)
        out->piece[PIECE_HEAD].split = dpx_split_head(d, &(struct dpx_head){ x, y, logits, losses }) - from;
    else
        head_backward(d, &(struct dpx_head){ x, y, logits, losses });
    if (take(d, &out->piece[PIECE_HEAD], PASS_BACKWARD, from) < 0)
        return -1;

    from = d->t.nout;
    d->block = TENSOR_EMBED;
    d->k.stats[0] = stats;
    if (raw) {
        dpx_norm_back(d, "embedding norm backward", ROLE_EMBED_NORM, 0);
        dpx_gone(d, &raw);
    }
    if (d->ranks > 1)
        dpx_cut_tokens_back(d);
    bool tokens = dpx_trains(d, ROLE_TOKENS, false);
    if (m->position == POS_LEARNED && (dpx_trains(d, ROLE_POSITIONS, false) || (tokens && d->p->dropout > 0))) {
        dpx_use(d, ROLE_POSITIONS);
        dpx_kernel(d, FN_POSITIONS_BACK, "position embedding backward", KC_EMBEDDING, d->n * d->h * d->e);
        dpx_param_grad(d, ROLE_POSITIONS, false, m->positions * d->h);
    }
    dpx_use(d, ROLE_TOKENS);
    if (tokens)
        dpx_kernel(d, d->ranks > 1 ? FN_EMBED_ROWS_BACK : FN_EMBED_BACK, "token embedding backward", KC_EMBEDDING,
                   2 * d->n * d->h * d->e);
    else
        dpx_kernel(d, FN_NONE, "embedding does not train", KC_COPY, 0);
    dpx_param_grad(d, ROLE_TOKENS, false, m->vocab * d->h);
    dpx_gone(d, &d->dx);
    dpx_gone(d, &d->dgathered);
    dpx_gone(d, &ids);
    return take(d, &out->piece[PIECE_EMBED], PASS_BACKWARD, from);
}

/* What these kernels have no form of. */
static int check_described(const struct model *m)
{
    int norm = torch_piece_tensor(m, 0, ROLE_Q_NORM, false);
    const char *what = m->norm_place == NORM_BEHIND ? "norms only behind attention and MLP"
                     : m->norm_place == NORM_OF_SUM ? "norms of the residual stream"
                     : m->token_width != m->hidden ? "token embeddings of another width than the blocks"
                     : norm >= 0 && (m->norm != NORM_RMS || m->tensors[m->block0 + norm].numel != m->head_dim)
                       ? "norms of q and k other than one RMSNorm for all heads" : NULL;

    return what ? fail("%s: kernels \"dpx\" have no %s: plan with \"torch-eager\" or \"torch-sdpa\"",
                       m->name, what) : 0;
}

static struct dpx *open_tape(const struct local_model *local, bool stages)
{
    const struct plan *p = local->plan;
    const struct model *m = local->model;
    struct dpx *d = calloc(1, sizeof *d);

    if (!d) {
        fail("out of memory for a block program");
        return NULL;
    }
    d->p = p;
    d->m = m;
    d->e = dtype_bytes(plan_recipe(p).autocast ? p->precision : plan_recipe(p).used);
    d->n = p->micro_batch * p->seq;
    d->context = p->parallel.context;
    d->h = m->hidden;
    d->whole = local->whole;
    d->ranks = local->share.tensor_ranks;
    d->sequence = local->share.sequence;
    d->stages = stages;
    d->r = d->sequence ? d->n / d->ranks : d->n;
    d->q = m->heads * m->head_dim;
    d->kv = m->kv_heads * m->head_dim;
    d->f = m->ffn;
    tape_init(&d->t, 64);
    d->t.learning = true;               /* categories as given */
    d->t.tied = torch_piece_tensor(m, TENSOR_EMBED, ROLE_TOKENS, false);
    return d;
}

static void close_tape(struct dpx *d)
{
    tape_free(&d->t);
    free(d);
}

int program_build_dpx(const struct local_model *local, bool stages, struct program *out)
{
    bool recomputes = local->plan->recompute != RECOMPUTE_NONE;
    struct dpx *d;
    int rc = -1;

    if (check_described(local->model) < 0 || !(d = open_tape(local, stages)))
        return -1;
    if (build_ends(d, out) == 0 && build_block(d, &out->piece[PIECE_BLOCK], false, false) == 0 &&
        (!recomputes || build_block(d, &out->piece[PIECE_BLOCK_RECOMPUTED], true, false) == 0))
        rc = 0;
    if (rc == 0 && program_first_differs(local->plan) &&
        (build_block(d, &out->piece[PIECE_FIRST], false, true) < 0 ||
         (recomputes && build_block(d, &out->piece[PIECE_FIRST_RECOMPUTED], true, true) < 0)))
        rc = -1;
    out->boundary = round_up(d->r * d->h * d->e, 64);
    close_tape(d);
    return rc;
}

/* Of the ends only the head's backward is another. */
int program_add_split_dpx(const struct local_model *local, struct program *out)
{
    struct dpx *d = open_tape(local, true);
    struct program ends = { 0 };
    int rc;

    if (!d)
        return -1;
    d->split = dpx_split_is(d);
    if (!d->split) {
        close_tape(d);
        return program_add_split(local->plan, out);
    }
    rc = build_ends(d, &ends) < 0 ? -1 : build_split_block(d, &out->piece[PIECE_BLOCK_SPLIT]);
    if (rc == 0)
        piece_give_pass(&ends.piece[PIECE_HEAD], PASS_BACKWARD, &out->piece[PIECE_HEAD_SPLIT]);
    program_free(&ends);
    close_tape(d);
    return rc;
}
