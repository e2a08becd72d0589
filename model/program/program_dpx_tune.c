/* program_dpx_tune.c -- our own kernels where not everything trains, and adapters beside layers (LoRA, Hu et al. 2021).
 *
 * A frozen layer has no dW, and so does not keep its input; gradients go through it all the same, down to the last part
 * that something trains in: of the first block behind an embedding that does not train, that is one of its own parts.  What
 * only parts below it would have read is not kept.
 *
 * An adapter of rank r adds s B (A x) to its layer's output, s = alpha / r:
 *     forward    low = s x A^T [N, r], kept;  y += low B^T
 *     backward   dB = dy^T low;  dlow = s dy B;  dA = dlow^T x;  dx += dlow A, behind the layer's own dx
 * With dropout on x, of which each adapter has its own, x is dropped into a tensor for A's product and once more for dA: the
 * elements are a function of a counter, and nothing is kept.  dlow A is then dropped likewise before it is added.
 *
 * A frozen weight in NF4 is made into numbers before each product that reads it, one layer at a time. */
#include "model/program/program_dpx.h"

#include "model/arch/packed.h"
#include "model/arch/training.h"

/* ---- what trains ---- */

static enum dpx_part part_of(enum tensor_role role)
{
    switch (role) {
    case ROLE_Q: case ROLE_K: case ROLE_V: case ROLE_QKV: return DPX_QKV;
    case ROLE_ATTN_OUT: return DPX_OUT;
    case ROLE_NORM_MLP: return DPX_NORM2;
    case ROLE_GATE: case ROLE_UP: case ROLE_GATE_UP: return DPX_UP;
    case ROLE_DOWN: return DPX_DOWN;
    default: return DPX_NORM1;
    }
}

int dpx_least(const struct dpx *d, bool first)
{
    const struct model *m = d->m;
    int least = DPX_DOWN;

    if (!first)
        return DPX_BELOW;
    for (int t = m->block0; t < m->block0 + m->per_block; t++)
        if (!m->tensors[t].frozen && (int)part_of(m->tensors[t].role) < least)
            least = (int)part_of(m->tensors[t].role);
    return least;
}

bool dpx_reaches(const struct dpx *d, enum dpx_part part) { return d->least <= (int)part; }

bool dpx_passes(const struct dpx *d, enum tensor_role role) { return d->block != 0 || d->least < (int)part_of(role); }

bool dpx_trains(const struct dpx *d, enum tensor_role role, bool bias)
{
    const struct model *m = d->m;
    bool tied = role == ROLE_HEAD && m->tied && !bias;
    int block = tied ? TENSOR_EMBED : d->block;

    if (training_is_all(&m->training))
        return true;
    for (int t = 0; t < m->ntensors; t++) {
        const struct tensor *x = &m->tensors[t];
        if (x->block == block && x->role == (tied ? ROLE_TOKENS : role) && x->is_bias == bias && x->adapter == ADAPTER_NONE)
            return !x->frozen;
    }
    return false;
}

bool dpx_is_adapted(const struct dpx *d, enum tensor_role role)
{
    return torch_piece_part(d->m, d->block, role, false, ADAPTER_LORA_A) >= 0;
}

bool dpx_reads(const struct dpx *d, enum tensor_role role) { return dpx_trains(d, role, false) || dpx_is_adapted(d, role); }

/* ---- adapters ---- */

static int *low_of(struct dpx *d, enum tensor_role role, enum slot *slot)
{
    switch (role) {
    case ROLE_K:        *slot = SLOT_LOW_K; break;
    case ROLE_V:        *slot = SLOT_LOW_V; break;
    case ROLE_ATTN_OUT: *slot = SLOT_LOW_OUT; break;
    case ROLE_GATE:     *slot = SLOT_LOW_GATE; break;
    case ROLE_UP:       *slot = SLOT_LOW_UP; break;
    case ROLE_DOWN:     *slot = SLOT_LOW_DOWN; break;
    default:            *slot = SLOT_LOW_Q; break;
    }
    return &d->k.low[*slot - SLOT_LOW_Q];
}

static void use_adapter(struct dpx *d, enum tensor_role role, enum adapter as)
{
    dpx_use(d, role);
    d->adapter = as;
    d->t.module = torch_piece_module(d->m, d->block, role, as);
}

static struct kernel *gemm(struct dpx *d, enum kernel_fn fn, const char *name, enum tensor_role role, enum adapter as, int64_t m,
                           int64_t n, int64_t k)
{
    use_adapter(d, role, as);
    return dpx_gemm(d, fn, name, m, n, k);
}

/* What A reads: x[N, k], or a tensor of what is left of it (0: there is no dropout). */
static int dropped(struct dpx *d, enum tensor_role role, int64_t k)
{
    if (d->p->train.dropout <= 0)
        return 0;
    use_adapter(d, role, ADAPTER_LORA_A);
    dpx_kernel(d, FN_ADAPTER_DROP, "adapter dropout", KC_ELEMENTWISE, 2 * d->n * k * d->e);
    return dpx_temp(d, SLOT_DROPPED, d->n * k, d->e);
}

void dpx_adapter_in(struct dpx *d, enum tensor_role role, int64_t k)
{
    int64_t rank = d->p->train.rank;
    enum slot slot;

    if (!dpx_is_adapted(d, role))
        return;
    int x = dropped(d, role, k);
    gemm(d, FN_LINEAR, "adapter A", role, ADAPTER_LORA_A, d->n, rank, k);
    int *low = low_of(d, role, &slot);
    *low = dpx_keep(d, slot, d->n * rank, d->e);
    dpx_gone(d, &x);
}

void dpx_adapter_out(struct dpx *d, enum tensor_role role, int64_t n)
{
    enum slot slot;

    if (!dpx_is_adapted(d, role))
        return;
    gemm(d, FN_LINEAR, "adapter B", role, ADAPTER_LORA_B, d->n, n, d->p->train.rank);
    if (d->recompute)
        dpx_gone(d, low_of(d, role, &slot));
}

void dpx_adapter_residual(struct dpx *d, enum tensor_role role)
{
    if (!dpx_is_adapted(d, role))
        return;
    use_adapter(d, role, ADAPTER_LORA_B);
    dpx_kernel(d, FN_RESIDUAL, "residual add", KC_ELEMENTWISE, 3 * d->r * d->h * d->e);
}

void dpx_adapter_back(struct dpx *d, enum tensor_role role, int64_t n, int64_t k, int *dlow)
{
    int64_t rank = d->p->train.rank;
    enum slot slot;

    if (!dpx_is_adapted(d, role))
        return;
    gemm(d, FN_LINEAR_DW, "adapter B dW", role, ADAPTER_LORA_B, rank, n, d->n);
    dpx_param_grad(d, role, false, n * rank);
    dpx_gone(d, low_of(d, role, &slot));
    gemm(d, FN_LINEAR_DX, "adapter B dX", role, ADAPTER_LORA_B, d->n, rank, n);
    *dlow = dpx_temp(d, SLOT_DLOW, d->n * rank, d->e);
    int x = dropped(d, role, k);
    gemm(d, FN_LINEAR_DW, "adapter A dW", role, ADAPTER_LORA_A, k, rank, d->n);
    dpx_param_grad(d, role, false, rank * k);
    dpx_gone(d, &x);
}

void dpx_adapter_dx(struct dpx *d, enum tensor_role role, int64_t k, int *dlow)
{
    bool adds = dpx_is_adapted(d, role) && dpx_passes(d, role);

    if (adds)
        gemm(d, FN_LINEAR_DX, "adapter A dX", role, ADAPTER_LORA_A, d->n, k, d->p->train.rank);
    if (adds && d->p->train.dropout > 0) {
        int dx = dpx_temp(d, SLOT_DROPPED, d->n * k, d->e);
        use_adapter(d, role, ADAPTER_LORA_A);
        dpx_kernel(d, FN_ADAPTER_DROP_BACK, "adapter dropout backward", KC_ELEMENTWISE, 4 * d->n * k * d->e);
        dpx_gone(d, &dx);
    }
    dpx_gone(d, dlow);
}

/* ---- frozen weights in codes ---- */

int dpx_unpack(struct dpx *d, enum kernel_fn fn)
{
    int tensor = torch_piece_part(d->m, d->block, d->role, false, ADAPTER_NONE);
    bool reads = fn == FN_LINEAR || fn == FN_LINEAR_PART || fn == FN_LINEAR_DX;
    int module = d->t.module;

    if (!reads || d->adapter != ADAPTER_NONE || d->block < 0 || tensor < 0)
        return 0;
    const struct tensor *w = &d->m->tensors[d->m->block0 + tensor];
    if (w->packed == BASE_PLAIN)
        return 0;
    dpx_kernel(d, FN_UNPACK, "dequantise", KC_ELEMENTWISE, packed_codes(w) + w->numel * d->e);
    int numbers = dpx_temp(d, SLOT_WEIGHT, w->numel, d->e);
    d->t.module = module;
    return numbers;
}
