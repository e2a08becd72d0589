/* From shape fields to the tensor table: the only place where a tensor's extents
 * and the number of parameters are computed. */
#include "model/arch/transformer.h"
#include "model/arch/tied.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/fail.h"
#include "model/arch/recorded.h"
#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/family/hybrid.h"

/* ---- One part: is it there, how large, with a bias? ---- */

static bool is_norm(enum tensor_role role)
{
    switch (role) {
    case ROLE_EMBED_NORM: case ROLE_NORM_ATTN: case ROLE_NORM_ATTN_POST:
    case ROLE_NORM_MLP: case ROLE_NORM_MLP_POST: case ROLE_NORM_FINAL:
        return true;
    default:
        return false;
    }
}

static bool is_there(const struct model *m, const struct module_row *p)
{
    if (is_norm(p->role) && !m->norm_weight)
        return false;
    switch (p->when) {
    case ALWAYS:           return true;
    case IF_UNTIED:        return !m->tied;
    case IF_PLAIN:         return m->mlp == MLP_PLAIN;
    case IF_GATED:         return m->mlp == MLP_GATED;
    case IF_LEARNED:       return m->position == POS_LEARNED;
    case IF_QK_NORM:       return m->qk_norm;
    case IF_QK_NORM_EACH:  return m->qk_norm;
    case IF_NORM_FIRST:    return m->norm_place == NORM_FIRST;
    case IF_NORM_AROUND:   return m->norm_place == NORM_AROUND;
    case IF_SEQUENTIAL:    return !m->parallel;
    case IF_PROJECTED:     return m->token_width != m->hidden;
    case IF_ONE_NORM:      return m->parallel && !m->mlp_norm;
    case IF_TWO_NORMS:     return m->parallel && m->mlp_norm;
    case IF_Q_RANK:        return m->q_rank > 0;
    case IF_NO_Q_RANK:     return m->q_rank == 0;
    }
    assert(!"unknown condition");
    return false;
}

static bool has_bias(const struct model *m, const struct family *f, enum tensor_role role)
{
    switch (role) {
    case ROLE_Q: case ROLE_K: case ROLE_V: case ROLE_QKV:
        return m->qkv_bias && m->kv_rank == 0;
    case ROLE_Q_A: case ROLE_KV_A:
        return m->qkv_bias;
    case ROLE_ROUTER:
        return f->router_bias;
    case ROLE_ATTN_OUT:
        return m->out_bias;
    case ROLE_GATE: case ROLE_UP: case ROLE_GATE_UP: case ROLE_DOWN:
        return m->mlp_bias;
    case ROLE_Q_NORM: case ROLE_K_NORM:
        return m->qk_norm_bias;
    case ROLE_HEAD:
        return m->head_bias;
    case ROLE_SSM_CONV:
        return m->ssm_conv_bias;
    default:
        return is_norm(role) && m->norm_bias;
    }
}

static bool in_mlp_half(enum tensor_role role)
{
    switch (role) {
    case ROLE_NORM_MLP: case ROLE_NORM_MLP_POST:
    case ROLE_GATE: case ROLE_UP: case ROLE_GATE_UP: case ROLE_DOWN:
    case ROLE_ROUTER: case ROLE_EXPERTS_IN: case ROLE_EXPERTS_UP: case ROLE_EXPERTS_OUT:
    case ROLE_SHARED_GATE: case ROLE_SHARED_UP: case ROLE_SHARED_GATE_UP: case ROLE_SHARED_DOWN:
        return true;
    default:
        return false;
    }
}

static bool is_linear(enum tensor_role role)
{
    return role == ROLE_QKV || role == ROLE_ATTN_OUT || role == ROLE_UP || role == ROLE_DOWN;
}

/* So many times x, with B and C of each group. */
static bool inner_and_states(const struct model *m, int64_t times, int64_t *n)
{
    int64_t inner, states;

    return checked_mul(times * m->ssm_heads, m->ssm_head_dim, &inner) && checked_mul(2 * m->ssm_groups, m->ssm_state, &states) &&
           checked_add(inner, states, n);
}

static bool extent(const struct model *m, enum extent e, int64_t *n)
{
    int64_t q_and_2kv;

    switch (e) {
    case EXT_NONE:      *n = 1;            return true;
    case EXT_VOCAB:     *n = m->vocab;     return true;
    case EXT_POSITIONS: *n = m->positions; return true;
    case EXT_HIDDEN:    *n = m->hidden;    return true;
    case EXT_HEAD_DIM:  *n = m->head_dim;  return true;
    case EXT_FFN:       *n = m->ffn;       return true;
    case EXT_HEADS:     *n = m->heads;     return true;
    case EXT_KV_HEADS:  *n = m->kv_heads;  return true;
    case EXT_TOKEN:     *n = m->token_width; return true;
    case EXT_EXPERTS:   *n = m->experts;   return true;
    case EXT_EXPERT_FFN: *n = m->expert_ffn; return true;
    case EXT_SHARED_FFN: *n = m->shared_ffn; return true;
    case EXT_Q_RANK:    *n = m->q_rank;    return true;
    case EXT_KV_RANK:   *n = m->kv_rank;   return true;
    case EXT_KV_RANK_ROPE: return checked_add(m->kv_rank, m->rope_dim, n);
    case EXT_VALUES:    return checked_mul(m->heads, m->value_dim ? m->value_dim : m->head_dim, n);
    case EXT_KV_UP:     return checked_mul(m->heads, m->head_dim - m->rope_dim + m->value_dim, n);
    case EXT_2EXPERT_FFN: return checked_mul(2, m->expert_ffn, n);
    case EXT_Q:         return checked_mul(m->heads, m->head_dim, n);
    case EXT_KV:        return checked_mul(m->kv_heads, m->head_dim, n);
    case EXT_2FFN:      return checked_mul(2, m->ffn, n);
    case EXT_SSM_HEADS: *n = m->ssm_heads; return true;
    case EXT_SSM_TAPS:  *n = m->ssm_conv;  return true;
    case EXT_SSM_INNER: return checked_mul(m->ssm_heads, m->ssm_head_dim, n);
    case EXT_SSM_CONV:  return inner_and_states(m, 1, n);
    case EXT_SSM_IN:    return inner_and_states(m, 2, n) && checked_add(*n, m->ssm_heads, n);
    case EXT_QKV:       return checked_add(m->heads, 2 * m->kv_heads, &q_and_2kv)
                            && checked_mul(q_and_2kv, m->head_dim, n);
    }
    assert(!"unknown extent");
    return false;
}

/* A head of numbers stands where the family's has logits. */
static bool is_of_numbers(const struct model *m, const struct module_row *p) { return p->role == ROLE_HEAD && m->head != HEAD_LOGITS; }

static bool rows_of(const struct model *m, const struct module_row *p, int64_t *n)
{
    *n = 1;
    return is_of_numbers(m, p) || extent(m, p->out, n);
}

/* ---- Counting, then filling ---- */

struct count { int modules, tensors; };

/* Of a list of modules at most as many as there are heads, which MODEL_MAX_LISTED bounds. */
static int copies(const struct model *m, const struct module_row *p)
{
    if (p->when != IF_QK_NORM_EACH)
        return 1;
    return (int)(p->role == ROLE_Q_NORM ? m->heads : m->kv_heads);
}

/* "mlp.experts:down_proj": what is behind the colon; NULL: the parameter is called weight. */
static const char *own_name(const struct module_row *p)
{
    const char *colon = strchr(p->module, ':');

    return colon ? colon + 1 : NULL;
}

static int module_length(const struct module_row *p) { return (int)strcspn(p->module, ":"); }

/* A further parameter of the module of the part before it. */
static bool joins(const struct module_row *list, const struct module_row *p)
{
    return p > list && own_name(p) && module_length(p) == module_length(p - 1)
        && !strncmp(p->module, p[-1].module, (size_t)module_length(p));
}

static int tensors_of(const struct model *m, const struct family *f, const struct module_row *p)
{
    return !own_name(p) && has_bias(m, f, p->role) ? 2 : 1;
}

static struct count count_parts(const struct model *m, const struct family *f, const struct module_row *list)
{
    struct count c = { 0, 0 };

    for (const struct module_row *p = list; p && p->module; p++) {
        if (!is_there(m, p))
            continue;
        c.modules += joins(list, p) ? 0 : copies(m, p);
        c.tensors += copies(m, p) * tensors_of(m, f, p);
    }
    return c;
}

static int too_large(const struct model *m, const char *where, const char *tensor)
{
    return fail("%s: more than 2^60 parameters at tensor \"%s\": the fields for layers (%lld), "
                "hidden size (%lld), MLP size (%lld), heads (%lld) or vocabulary (%lld) "
                "are too large together", where, tensor, (long long)m->layers,
                (long long)m->hidden, (long long)m->ffn, (long long)m->heads,
                (long long)m->vocab);
}

/* A name that grows, cut at its room.  Each tensor and module of a model has one: too many for snprintf(). */
struct name { char *to; size_t size, n; };

static void add_text(struct name *x, const char *text, size_t n)
{
    size_t room = x->size - 1 - x->n;

    n = n < room ? n : room;
    memcpy(x->to + x->n, text, n);
    x->n += n;
    x->to[x->n] = '\0';
}

static void add_number(struct name *x, int number)
{
    char digits[12];
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    add_text(x, digits + at, sizeof digits - at);
}

/* Appends a tensor to the module being filled, the last of m->modules. */
static bool add_tensor(struct model *m, const struct family *f, const struct module_row *p, bool bias)
{
    struct tensor *t = &m->tensors[m->ntensors];
    struct module *owner = &m->modules[m->nmodules - 1];
    const char *own = own_name(p);
    bool of_experts = role_is_of_experts(p->role);
    int64_t out, in, each = of_experts ? m->experts : 1;
    int at = of_experts;

    memset(t, 0, sizeof *t);
    owner->ntensors++;
    own = own ? own : bias ? "bias" : "weight";
    struct name name = { t->name, sizeof t->name, 0 };
    add_text(&name, owner->name, strlen(owner->name));
    add_text(&name, ".", 1);
    add_text(&name, own, strlen(own));
    if (!rows_of(m, p, &out) || !extent(m, p->in, &in))
        return false;
    bias |= of_experts && p->in == EXT_NONE;
    t->role     = p->role;
    t->is_bias  = bias;
    t->module   = m->nmodules - 1;
    t->block    = owner->block;
    t->mlp_half = owner->block >= 0 && in_mlp_half(p->role);
    t->ndim     = bias || p->in == EXT_NONE ? 1 : 2;
    bool turned = t->ndim == 2 && f->in_out && is_linear(p->role);
    t->in_out   = turned || (of_experts && t->ndim == 2 && f->experts_in_out);
    t->shape[0] = each;
    t->shape[at] = turned ? in : out;
    t->shape[at + 1] = t->ndim == 1 ? 1 : turned ? out : in;
    t->shape[2] = at == 1 ? t->shape[2] : 1;
    t->ndim    += at;
    if (p->role == ROLE_SSM_CONV && !bias) {    /* nn.Conv1d: a channel to itself */
        t->shape[2] = t->shape[1];
        t->shape[1] = 1;
        t->ndim = 3;
    }
    m->ntensors++;
    m->ntrainable++;
    if (!checked_mul(t->shape[0], t->shape[1], &t->numel) || !checked_mul(t->numel, t->shape[2], &t->numel))
        return false;
    m->active += of_experts ? t->numel / m->experts * m->experts_used : t->numel;   /* at most params, which is checked */
    return checked_add(m->params, t->numel, &m->params)
        && checked_add(m->trainable, t->numel, &m->trainable);
}

static void add_module(struct model *m, const struct family *f, const struct module_row *p, int block, int copy)
{
    struct module *owner = &m->modules[m->nmodules++];
    struct name name = { owner->name, sizeof owner->name, 0 };

    memset(owner, 0, sizeof *owner);
    if (block >= 0) {
        add_text(&name, f->blocks, strlen(f->blocks));
        add_text(&name, ".", 1);
        add_number(&name, block);
        add_text(&name, ".", 1);
    }
    if (is_of_numbers(m, p))
        add_text(&name, "score", strlen("score"));
    else
        add_text(&name, p->module, (size_t)module_length(p));
    if (p->when == IF_QK_NORM_EACH) {
        add_text(&name, ".", 1);
        add_number(&name, copy);
    }
    owner->block    = block;
    owner->first    = m->ntensors;
    owner->ntensors = 0;
}

static int add_part(struct model *m, const struct family *f, const struct module_row *p, const char *where)
{
    for (int n = tensors_of(m, f, p), bias = 0; bias < n; bias++)
        if (!add_tensor(m, f, p, bias != 0))
            return too_large(m, where, m->tensors[m->modules[m->nmodules - 1].first].name);
    return 0;
}

/* The parts outside the blocks say by their role where they belong: OPT's final
 * norm is the head's although it is registered before the blocks. */
static int outside(enum tensor_role role)
{
    return role == ROLE_NORM_FINAL || role == ROLE_PROJECT_OUT || role == ROLE_HEAD ? TENSOR_HEAD : TENSOR_EMBED;
}

static int add_list(struct model *m, const struct family *f, const struct module_row *list,
                    int block, const char *where)
{
    for (const struct module_row *p = list; p->module; p++) {
        int b = block >= 0 ? block : outside(p->role);
        for (int i = 0; is_there(m, p) && i < copies(m, p); i++) {
            if (!joins(list, p))
                add_module(m, f, p, b, i);
            if (add_part(m, f, p, where) < 0)
                return -1;
        }
    }
    return 0;
}

static const struct module_row *parts_of_block(const struct model *m, const struct family *f, int64_t block)
{
    return m->hybrid ? f->kinds[hybrid_kind(m, block)] : f->dense && !model_has_experts(m, block) ? f->dense : f->block;
}

/* A name of block `of` becomes that of block b. */
static void rename_of(const struct family *f, const char *from, int of, int b, char *to, size_t size)
{
    struct name name = { to, size, 0 };
    size_t prefix = strlen(f->blocks) + 1, digits = 1;

    for (int n = of; n >= 10; n /= 10)
        digits++;
    add_text(&name, from, prefix);
    add_number(&name, b);
    add_text(&name, from + prefix + digits, strlen(from + prefix + digits));
}

/* A block in the tables: its tensors and modules from these numbers on, and what they add up to. */
struct tabled { int block, tensor, module, ntensors, nmodules; int64_t params, active; };

static void copy_tables(struct model *m, const struct family *f, const struct tabled *of, int b)
{
    int tensors = m->ntensors - of->tensor, modules = m->nmodules - of->module;

    for (int i = of->module; i < of->module + of->nmodules; i++) {
        struct module *to = &m->modules[i + modules];
        *to = m->modules[i];
        rename_of(f, m->modules[i].name, of->block, b, to->name, sizeof to->name);
        to->first += tensors;
        to->block = b;
    }
    for (int i = of->tensor; i < of->tensor + of->ntensors; i++) {
        struct tensor *to = &m->tensors[i + tensors];
        *to = m->tensors[i];
        rename_of(f, m->tensors[i].name, of->block, b, to->name, sizeof to->name);
        to->module += modules;
        to->block = b;
    }
    m->ntensors += of->ntensors;
    m->ntrainable += of->ntensors;
    m->nmodules += of->nmodules;
}

/* A block's tables are those of the first block of its list, under other names.  `seen`: that block, of each of the family's lists. */
static int add_block(struct model *m, const struct family *f, int b, struct tabled seen[2 + NBLOCK_KIND], const char *where)
{
    const struct module_row *list = parts_of_block(m, f, b);
    struct tabled *of = &seen[m->hybrid ? 2 + hybrid_kind(m, b) : list == f->dense];
    int64_t params = m->params, active = m->active, sum;

    if (of->ntensors && checked_add(params, of->params, &sum)) {        /* trainable is params until training_apply() */
        copy_tables(m, f, of, b);
        m->params = m->trainable = sum;
        m->active += of->active;
        return 0;
    }
    *of = (struct tabled){ .block = b, .tensor = m->ntensors, .module = m->nmodules };
    if (add_list(m, f, list, b, where) < 0)
        return -1;
    of->ntensors = m->ntensors - of->tensor;
    of->nmodules = m->nmodules - of->module;
    of->params = m->params - params;
    of->active = m->active - active;
    return 0;
}

static int allocate(struct model *m, const struct family *f)
{
    struct count before = count_parts(m, f, f->before);
    struct count block  = count_parts(m, f, f->block);
    struct count dense  = count_parts(m, f, f->dense);
    struct count after  = count_parts(m, f, f->after);
    struct count kinds[NBLOCK_KIND], all = { before.modules + after.modules, before.tensors + after.tensors };
    bool differ = false;

    for (int i = 0; i < NBLOCK_KIND; i++)
        kinds[i] = count_parts(m, f, f->kinds[i]);
    for (int64_t b = 0; b < m->layers; b++) {
        bool is_dense = !m->hybrid && parts_of_block(m, f, b) != f->block;
        struct count of = m->hybrid ? kinds[hybrid_kind(m, b)] : is_dense ? dense : block;
        all.modules += of.modules;
        all.tensors += of.tensors;
        differ |= is_dense;
    }
    m->block0    = before.tensors;
    m->per_block = m->hybrid ? kinds[hybrid_kind(m, 0)].tensors : block.tensors;
    m->per_dense = differ ? dense.tensors : 0;
    m->tensors = malloc(((size_t)all.tensors + 1) * sizeof *m->tensors);
    m->modules = malloc(((size_t)all.modules + 1) * sizeof *m->modules);
    return m->tensors && m->modules ? 0 : fail("out of memory for the tensor table");
}

static void drop_tables(struct model *m)
{
    free(m->tensors);
    free(m->modules);
    m->tensors = NULL;
    m->modules = NULL;
    m->ntensors = m->nmodules = m->ntrainable = m->block0 = m->per_block = m->per_dense = 0;
    m->params = m->active = m->trainable = 0;
}

int model_tabulate(struct model *m, const char *where)
{
    const struct family *f = family_find(m->family);
    struct tabled seen[2 + NBLOCK_KIND] = { 0 };
    int rc = -1;

    assert(f && m->layers >= 1 && m->layers <= MODEL_MAX_LAYERS);
    m->tensors = NULL;
    m->modules = NULL;
    m->ntensors = m->nmodules = m->ntrainable = 0;
    m->params = m->active = m->trainable = 0;
    if (allocate(m, f) < 0 || add_list(m, f, f->before, -1, where) < 0)
        goto out;
    for (int b = 0; b < (int)m->layers; b++)
        if (add_block(m, f, b, seen, where) < 0)
            goto out;
    rc = add_list(m, f, f->after, -1, where) < 0 ? -1 : hybrid_lay_out(m, 0, where);
out:
    if (rc < 0)
        drop_tables(m);
    return rc;
}

/* ---- Models from models, and none ---- */

int model_synthetic(int64_t params, struct model *out)
{
    if (params < 1 || params > SIZE_LIMIT)
        return fail("a synthetic model of %lld parameters: must be from 1 to 2^60",
                    (long long)params);
    *out = (struct model){
        .name = "synthetic", .family = "dpx_synthetic", .layers = 1, .hidden = 1, .heads = 1,
        .kv_heads = 1, .head_dim = 1, .ffn = params, .vocab = 1, .context = 1, .tied = true, .token_width = 1,
        .attn_scalar = 1, .ntensors = 1, .nmodules = 1, .per_block = 1, .params = params, .active = params, .trainable = params,
        .ntrainable = 1,
    };
    out->tensors = calloc(1, sizeof *out->tensors);
    out->modules = calloc(1, sizeof *out->modules);
    if (!out->tensors || !out->modules) {
        model_free(out);
        return fail("out of memory for the tensor table");
    }
    *out->tensors = (struct tensor){ .name = "unit.weight", .shape = { params, 1, 1 }, .ndim = 1,
                                     .numel = params, .role = ROLE_UP, .mlp_half = true };
    *out->modules = (struct module){ .name = "unit", .ntensors = 1 };
    return 0;
}

bool model_is_tied_below(const struct model *m)
{
    bool copy = false, original = false;

    for (int i = 0; i < m->ntensors && training_is_lora(&m->training); i++) {
        const struct tensor *x = &m->tensors[i];
        copy |= x->role == ROLE_HEAD && x->adapter == ADAPTER_NONE && !x->frozen;
        original |= x->role == ROLE_HEAD && x->adapter == ADAPTER_REPLACED;
    }
    return m->tied || (copy && !original);
}

int model_with_layers(const struct model *m, int64_t layers, struct model *out)
{
    if (!family_find(m->family))
        return fail("%s: a %s model has no blocks to vary", m->name, m->family);
    if (layers < 1 || layers > MODEL_MAX_LAYERS)
        return fail("%s: %lld layers: must be from 1 to %d", m->name, (long long)layers,
                    MODEL_MAX_LAYERS);
    *out = *m;
    if (m->hybrid && layers > m->layers)
        return fail("%s: with %lld blocks: its pattern says the kinds of %lld", m->name, (long long)layers, (long long)m->layers);
    out->layers = layers;
    out->tied = model_is_tied_below(m);
    memset(&out->training, 0, sizeof out->training);
    hybrid_share(out->hybrid);
    if (model_tabulate(out, m->name) < 0) {
        hybrid_free(out->hybrid);
        return -1;
    }
    json_incref(out->rope_scaling);
    recorded_share(out->recorded);
    if (training_apply(out, &m->training, m->name) < 0) {
        model_free(out);
        return -1;
    }
    return 0;
}

int model_with_head(const struct model *m, enum head_kind head, struct model *out)
{
    static const char *const names[] = { [HEAD_SCORE] = ":score", [HEAD_VALUE] = ":value" };
    size_t n = strlen(m->name);

    if (!family_find(m->family) || m->head != HEAD_LOGITS)
        return fail("%s: it has no head of logits that another one could replace", m->name);
    *out = *m;
    out->head = head;
    if (head != HEAD_LOGITS) {
        out->tied = false;
        out->head_bias = head == HEAD_VALUE;
        snprintf(out->name + (n < sizeof out->name - 7 ? n : sizeof out->name - 7), 7, "%s", names[head]);
    }
    memset(&out->training, 0, sizeof out->training);
    hybrid_share(out->hybrid);
    if (model_tabulate(out, m->name) < 0) {
        hybrid_free(out->hybrid);
        return -1;
    }
    json_incref(out->rope_scaling);
    return 0;
}

bool model_has_experts(const struct model *m, int64_t layer)
{
    if (m->hybrid)
        return hybrid_kind(m, layer) == BLOCK_EXPERTS;
    return m->experts > 0 && layer >= m->dense_first && (layer + 1) % m->moe_every == 0;
}

/* Blocks before this one that have no experts. */
static int64_t dense_before(const struct model *m, int64_t block)
{
    int64_t first = m->dense_first < block ? m->dense_first : block, rest = block - first;

    return first + rest - (block / m->moe_every - first / m->moe_every);
}

bool model_is_uneven(const struct model *m) { return m->hybrid || (m->recorded && m->recorded->uneven); }

int model_block_first(const struct model *m, int64_t block)
{
    if (m->hybrid)
        return m->hybrid->first[block];
    if (model_is_uneven(m))
        return block < m->layers ? m->recorded->first[block] : m->ntensors;
    int64_t dense = model_blocks_differ(m) ? dense_before(m, block) : 0;

    return m->block0 + (int)(dense * m->per_dense + (block - dense) * m->per_block);
}

int model_block_tensors(const struct model *m, int64_t block)
{
    if (model_is_uneven(m))
        return m->hybrid ? m->hybrid->ntensors[block] : m->recorded->ntensors[block];
    return model_blocks_differ(m) && !model_has_experts(m, block) ? m->per_dense : m->per_block;
}

int64_t model_place_in_kind(const struct model *m, int64_t block)
{
    if (model_is_uneven(m))
        return m->hybrid ? m->hybrid->place[block] : m->recorded->place[block];
    int64_t dense = model_blocks_differ(m) ? dense_before(m, block) : 0;

    return model_blocks_differ(m) && !model_has_experts(m, block) ? dense : block - dense;
}

int64_t model_first_alike(const struct model *m, int64_t block)
{
    int64_t b = 0;

    if (model_is_uneven(m))
        return m->hybrid ? m->hybrid->alike[block] : m->recorded->alike[block];
    while (model_blocks_differ(m) && model_has_experts(m, b) != model_has_experts(m, block))
        b++;
    return b;
}

int model_sort_stride(const struct model *m, int64_t block) { return m->hybrid ? m->hybrid->stride[block] : m->recorded->stride[block]; }

int64_t model_routers(const struct model *m)
{
    int64_t n = m->experts > 0 ? m->mtp : 0;

    for (int64_t b = 0; b < m->layers; b++)
        n += model_has_experts(m, b);
    return n;
}

int64_t model_numel(const struct model *m, int first, int n)
{
    int64_t sum = 0;

    assert(first >= 0 && n >= 0 && first + n <= m->ntensors);
    for (int i = first; i < first + n; i++)
        sum += m->tensors[i].numel;
    return sum;
}

void model_free(struct model *m)
{
    drop_tables(m);
    json_decref(m->rope_scaling);       /* accepts NULL */
    m->rope_scaling = NULL;
    recorded_free(m->recorded);
    m->recorded = NULL;
    hybrid_free(m->hybrid);
    m->hybrid = NULL;
}

int model_next_tensor(const struct model *m, int block, int after)
{
    int i = after + 1;

    if (block >= 0) {
        int first = model_block_first(m, block);

        i = i < first ? first : i;
        return i < first + model_block_tensors(m, block) && i < m->ntensors ? i : -1;
    }
    for (int end = model_block_first(m, m->layers);; i++) {
        if (i >= m->block0 && i < end && (m->hybrid || !model_is_uneven(m)))
            i = end;
        if (i >= m->ntensors)
            return -1;
        if (m->tensors[i].block == block)
            return i;
    }
}
