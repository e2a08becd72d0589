/* training.c -- see training.h. */
#include "model/arch/training.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/fail.h"
#include "model/arch/training_bridge.h"
#include "model/arch/training_experts.h"
#include "model/arch/training_names.h"
#include "model/family/family.h"

struct training training_default(void) { return (struct training){ .rank = 8, .alpha = 8 }; }

const char *training_usual_targets(const char *family)
{
    const struct family *f = family_find(family);

    return f ? f->lora_targets : NULL;
}

const char *training_base_name(enum base_dtype base)
{
    static const char *const names[NBASE] = { "their own dtype", "NF4", "NF4 (double quantisation)", "int8", "torchao's int8", "torchao's int4",
                                              "torchao's int4 (tile_packed_to_4d)", "torchao's NF4" };

    return names[base];
}

/* Is a tensor's name one of the patterns? */
static bool matches(const struct training *t, const struct tensor *x)
{
    char pattern[TRAINING_LIST];

    for (int i = 0; training_name_at(t->what, i, pattern); i++)
        if (fnmatch(pattern, x->name, 0) == 0)
            return true;
    return false;
}

/* ---- what becomes of a module ---- */

enum fate { FATE_STAYS, FATE_ADAPTED, FATE_COPIED, FATE_WRAPPED };      /* WRAPPED: adapters of parameters, not of a layer */

/* Llama4Router is nn.Linear's child; other routers are modules of their own (modeling_llama4.py, modeling_mixtral.py). */
static bool is_linear_router(const struct model *m, const struct tensor *t) { return t->role == ROLE_ROUTER && family_for(m)->linear_router; }

static bool is_linear(const struct tensor *t)
{
    switch (t->role) {
    case ROLE_Q: case ROLE_K: case ROLE_V: case ROLE_QKV: case ROLE_ATTN_OUT: case ROLE_GATE: case ROLE_UP:
    case ROLE_GATE_UP: case ROLE_DOWN: case ROLE_PROJECT_IN: case ROLE_PROJECT_OUT: case ROLE_HEAD:
    case ROLE_SHARED_GATE: case ROLE_SHARED_UP: case ROLE_SHARED_DOWN:
        return t->ndim == 2 || t->is_bias;
    default:
        return false;
    }
}

int training_linear_names(const struct model *m, bool children, char out[TRAINING_LIST])
{
    size_t n = 0;

    out[0] = '\0';
    for (int i = 0; i < m->nmodules; i++) {
        const struct tensor *first = &m->tensors[m->modules[i].first];
        const char *last = strrchr(m->modules[i].name, '.'), *name = last ? last + 1 : m->modules[i].name;
        bool linear = first->block >= 0 && (is_linear(first) || (children && is_linear_router(m, first)));
        if (!linear || training_listed(out, name, false))
            continue;
        if (n + strlen(name) + 2 > TRAINING_LIST)
            return -1;
        n += (size_t)snprintf(out + n, TRAINING_LIST - n, "%s%s", n ? "," : "", name);
    }
    return 0;
}

static int count_wrapped(const struct model *m, const struct training *t, const struct module *of)
{
    int n = 0;

    for (int i = of->first; i < of->first + of->ntensors; i++)
        n += training_wrapped_rank(m, t, &m->tensors[i]) > 0;
    return n;
}

/* `targets`: names of modules (training_modules()). */
static enum fate fate_of(const struct model *m, const struct training *t, const char *targets, const struct module *of)
{
    const struct tensor *first = &m->tensors[of->first];

    if (training_listed(t->modules_to_save, of->name, true))
        return FATE_COPIED;
    if (count_wrapped(m, t, of) > 0)
        return FATE_WRAPPED;
    if (!strcmp(targets, "all-linear"))
        return (is_linear(first) && first->role != ROLE_HEAD) || is_linear_router(m, first) ? FATE_ADAPTED : FATE_STAYS;
    return training_listed(targets, of->name, false) ? FATE_ADAPTED : FATE_STAYS;
}

static int check_expression(const struct model *m, const char *expression, const char *where)
{
    if (training_whole_name_matches(expression, "") < 0)
        return fail("%s: lora.target_modules: \"%s\" is no regular expression that dpx reads: name the modules, or \"all-linear\"", where, expression);
    for (int k = 0; k < m->nmodules; k++)
        if (training_whole_name_matches(expression, m->modules[k].name) > 0)
            return 0;
    return fail("%s: lora.target_modules: \"%s\" matches no module with weights of %s, such as %s", where, expression, m->family,
                m->modules[m->tensors[m->block0].module].name);
}

const char *training_tied_head(const struct model *m)
{
    const struct module_row *row = m->tied ? family_for(m)->after : NULL;

    for (; row && row->module; row++)
        if (row->role == ROLE_HEAD && !strchr(row->module, '.'))
            return row->module;
    return "";
}

static bool adapts_tied_head(const struct model *m, const char *targets)
{
    const char *head = training_tied_head(m);

    return *head && strcmp(targets, "all-linear") != 0 && training_listed(targets, head, false);
}

/* PEFT copies a tied head and its embedding each by itself: the copies are not tied (peft/utils/other.py, ModulesToSaveWrapper). */
static bool copies_tied_head(const struct model *m, const struct training *t)
{
    return *training_tied_head(m) && training_listed(t->modules_to_save, training_tied_head(m), true);
}

/* Every name of a list has to be some module's. */
static int check_list(const struct model *m, const char *list, bool anywhere, const char *key, const char *where)
{
    char name[TRAINING_LIST];

    if (!anywhere && training_is_expression(list))
        return check_expression(m, list, where);
    for (int i = 0; training_name_at(list, i, name); i++) {
        bool found = false;
        for (int k = 0; k < m->nmodules; k++)
            found |= training_ends_with(m->modules[k].name, name, anywhere);
        found |= *training_tied_head(m) && !strcmp(name, training_tied_head(m));
        if (!found)
            return fail("%s: lora.%s: \"%s\" is no module with weights of %s; its first block has %s and others", where, key, name,
                        m->family, m->modules[m->tensors[m->block0].module].name);
    }
    return 0;
}

/* PEFT's layer of an embedding (lora/layer.py, Embedding). */
static int check_embedding(const struct model *m, const struct module *of, const char *where)
{
    if (family_for(m)->scaled_table)     /* by the embedding itself, and its adapters likewise */
        return fail("%s: lora.target_modules: \"%s\": adapters of %s's embedding are not supported yet", where, of->name, m->family);
    return m->tied ? fail("%s: lora.target_modules: \"%s\" is tied to the head: not supported yet", where, of->name) : 0;
}

static int check_fate(const struct model *m, const struct training *t, const struct module *of, enum fate fate, const char *where)
{
    const struct tensor *first = &m->tensors[of->first];

    if (fate == FATE_ADAPTED && is_linear_router(m, first))
        return fail("%s: lora.target_modules: \"%s\": PEFT's layer fails with Llama 4's router, which returns two tensors (\"'tuple' object has no "
                    "attribute 'dtype'\"): name q_proj, k_proj, v_proj, o_proj and shared_expert's layers", where, of->name);
    if (fate == FATE_ADAPTED && (first->role == ROLE_ROUTER || role_is_of_experts(first->role)))
        return fail("%s: lora.target_modules: \"%s\" holds parameters, no linear layer: lora.target_parameters names those of experts", where, of->name);
    if (fate == FATE_ADAPTED && first->role == ROLE_TOKENS)
        return check_embedding(m, of, where);
    if (fate == FATE_ADAPTED && !is_linear(first))
        return fail("%s: lora.target_modules: \"%s\" is no linear layer: adapters of it are not supported yet", where, of->name);
    if (fate == FATE_ADAPTED && first->block < 0 && first->role != ROLE_HEAD)
        return fail("%s: lora.target_modules: \"%s\": adapters of linear layers between embedding and blocks are not supported yet", where, of->name);
    if (fate == FATE_COPIED && m->tied && first->role == ROLE_TOKENS && !copies_tied_head(m, t))
        return fail("%s: lora.modules_to_save: \"%s\" is tied to the head: not supported yet without the head's name beside it", where, of->name);
    return 0;
}

/* The same becomes of a module in every block of a kind. */
static int check_alike(const struct model *m, const struct training *t, const char *targets, const struct module *of, const char *where)
{
    if (of->block < 0)
        return 0;
    const struct tensor *first = &m->tensors[model_block_first(m, model_first_alike(m, of->block)) + of->first - model_block_first(m, of->block)];
    const struct module *like = &m->modules[first->module];

    return fate_of(m, t, targets, of) == fate_of(m, t, targets, like) && count_wrapped(m, t, of) == count_wrapped(m, t, like) ? 0
         : fail("%s: lora: %s: blocks that differ in what trains are not supported yet", where, of->name);
}

/* ---- the new tables ---- */

static bool add_tensor(struct model *to, const struct tensor *t)
{
    struct tensor *mine = &to->tensors[to->ntensors++];

    *mine = *t;
    mine->module = to->nmodules - 1;
    to->modules[mine->module].ntensors++;
    to->ntrainable += !t->frozen;
    return checked_add(to->params, t->numel, &to->params)
        && checked_add(to->trainable, t->frozen ? 0 : t->numel, &to->trainable);
}

static void add_module(struct model *to, const struct module *like, const char *child)
{
    struct module *mine = &to->modules[to->nmodules++];

    *mine = (struct module){ .first = to->ntensors, .block = like->block };
    snprintf(mine->name, sizeof mine->name, "%.69s%s%s", like->name, child[0] ? "." : "", child);
}

/* The tensors of a module as they are, but frozen, or a copy of them that trains. */
static bool add_own(struct model *to, const struct model *from, const struct module *of, const char *child, enum adapter as,
                    bool frozen)
{
    bool fits = true;

    add_module(to, of, child);
    for (int i = of->first; i < of->first + of->ntensors; i++) {
        struct tensor t = from->tensors[i];
        t.frozen = frozen;
        t.adapter = as;
        if (!frozen)
            snprintf(t.name, sizeof t.name, "base_model.model.%.80s", from->tensors[i].name);
        fits = add_tensor(to, &t) && fits;
    }
    return fits;
}

int64_t training_part_columns(const struct model *m, int parts)
{
    int64_t kv = m->kv_heads * m->head_dim;

    return (parts & PART_Q ? m->heads * m->head_dim : 0) + (parts & PART_K ? kv : 0) + (parts & PART_V ? kv : 0);
}

static int parts_of(int parts) { return !!(parts & PART_Q) + !!(parts & PART_K) + !!(parts & PART_V); }

/* DoRA's, named as PEFT saves it. */
static bool add_magnitude(struct model *to, const struct module *of, const struct tensor *base, int64_t out)
{
    struct tensor t = *base;

    t.adapter = ADAPTER_MAGNITUDE;
    t.in_out = t.frozen = false;
    t.ndim = 1;
    t.numel = t.shape[0] = out;
    t.shape[1] = 1;
    snprintf(t.name, sizeof t.name, "base_model.model.%.50s.lora_magnitude_vector", of->name);
    add_module(to, of, "lora_magnitude_vector");
    return add_tensor(to, &t);
}

/* Of an embedding A has a column for each token; of parts of a fused layer, rows for each part, and B rows for their columns alone. */
static bool add_lora(struct model *to, const struct model *from, const struct module *of, const struct training *as)
{
    const struct tensor *base = &from->tensors[of->first];
    bool table = base->role == ROLE_TOKENS, cut = base->role == ROLE_QKV && as->qkv_parts;
    int64_t rank = as->rank;
    int64_t out = base->shape[base->in_out != table], in = base->shape[base->in_out == table];
    bool fits = add_own(to, from, of, "base_layer", ADAPTER_NONE, true);

    for (int i = 0; i < 2; i++) {
        struct tensor t = *base;
        t.adapter = i ? ADAPTER_LORA_B : ADAPTER_LORA_A;
        t.in_out = t.frozen = false;
        t.shape[0] = i ? (cut ? training_part_columns(from, as->qkv_parts) : out) : (cut ? parts_of(as->qkv_parts) * rank : rank);
        t.shape[1] = i ? rank : in;
        snprintf(t.name, sizeof t.name, table ? "base_model.model.%.60s.lora_embedding_%c" : "base_model.model.%.64s.lora_%c.weight", of->name, i ? 'B' : 'A');
        add_module(to, of, table ? (i ? "lora_embedding_B" : "lora_embedding_A") : i ? "lora_B.default" : "lora_A.default");
        fits = checked_mul(t.shape[0], t.shape[1], &t.numel) && fits && add_tensor(to, &t);
    }
    return as->dora ? add_magnitude(to, of, base, out) && fits : fits;
}

/* Of a tied head: its weight is the embedding's. */
static bool add_tied_head(struct model *to, const struct model *from, const struct module *table, int64_t rank)
{
    struct module head = { .block = TENSOR_HEAD };
    const struct tensor *tokens = &from->tensors[table->first];
    bool fits = true;

    snprintf(head.name, sizeof head.name, "%s", training_tied_head(from));
    for (int i = 0; i < 2; i++) {
        struct tensor t = *tokens;
        t.role = ROLE_HEAD;
        t.block = TENSOR_HEAD;
        t.adapter = i ? ADAPTER_LORA_B : ADAPTER_LORA_A;
        t.in_out = t.frozen = false;
        t.shape[0] = i ? from->vocab : rank;
        t.shape[1] = i ? rank : from->token_width;
        snprintf(t.name, sizeof t.name, "base_model.model.%.64s.lora_%c.weight", head.name, i ? 'B' : 'A');
        add_module(to, &head, i ? "lora_B.default" : "lora_A.default");
        fits = checked_mul(t.shape[0], t.shape[1], &t.numel) && fits && add_tensor(to, &t);
    }
    return fits;
}

/* The copy of a tied head, which is a tensor of its own; the original stays the embedding's. */
static bool add_tied_copy(struct model *to, const struct model *from, const struct module *table)
{
    struct module head = { .block = TENSOR_HEAD };
    struct tensor t = from->tensors[table->first];

    snprintf(head.name, sizeof head.name, "%s", training_tied_head(from));
    t.role = ROLE_HEAD;
    t.block = TENSOR_HEAD;
    t.adapter = ADAPTER_NONE;
    t.frozen = false;
    snprintf(t.name, sizeof t.name, "base_model.model.%.72s.weight", head.name);
    add_module(to, &head, "modules_to_save.default");
    to->tied = false;               /* model_with_layers() knows it by the missing original */
    return add_tensor(to, &t);
}

/* An adapter of all experts' weights of one kind: A of (rank x experts, in), B of (out, rank x experts); of a router's as a layer has it.  But for gpt_oss, whose class says that it
 * is transposed, PEFT takes them for [expert, out, in], llama4's too, which are [expert, in, out] (layer.py, ParamWrapper.update_layer()). */
static bool add_parameter_lora(struct model *to, const struct model *from, const struct module *of, const struct tensor *base, int64_t rank, const char *at, bool halves)
{
    bool turned = family_for(from)->clamped_gate, fits = true;
    int64_t experts = base->ndim == 3 ? base->shape[0] : 1;
    const int64_t *shape = base->ndim == 3 ? base->shape + 1 : base->shape;

    for (int i = 0; i < 2; i++) {
        struct tensor t = *base;
        t.adapter = i ? ADAPTER_LORA_B : ADAPTER_LORA_A;
        t.in_out = t.frozen = false;
        t.ndim = 2;
        t.shape[0] = i ? shape[turned] : rank * experts;
        t.shape[1] = i ? rank * experts / (halves ? 2 : 1) : shape[!turned];        /* halves: gate's of w1's rank, up's of w3's */
        t.shape[2] = 1;
        snprintf(t.name, sizeof t.name, "base_model.model.%.50s%s.lora_%c.weight", of->name, at, i ? 'B' : 'A');
        add_module(to, of, at[0] ? (i ? "base_layer.lora_B.default" : "base_layer.lora_A.default") : i ? "lora_B.default" : "lora_A.default");
        fits = checked_mul(t.shape[0], t.shape[1], &t.numel) && fits && add_tensor(to, &t);
    }
    return fits;
}

/* ParamWrapper holds one parameter, and those of a module lie in each other: the first one's is the innermost. */
static bool add_wrapped(struct model *to, const struct model *from, const struct module *of, const struct training *t)
{
    const struct tensor *wrapped[2] = { NULL };
    int n = 0;

    for (int i = of->first; i < of->first + of->ntensors; i++)
        if (training_wrapped_rank(from, t, &from->tensors[i]) > 0 && n < 2)
            wrapped[n++] = &from->tensors[i];
    bool fits = add_own(to, from, of, n == 2 ? "base_layer.base_layer" : "base_layer", ADAPTER_NONE, true);
    for (int i = 0; i < n; i++)
        fits = add_parameter_lora(to, from, of, wrapped[i], training_wrapped_rank(from, t, wrapped[i]), i < n - 1 ? ".base_layer" : "",
                                  t->grouped && wrapped[i]->role == ROLE_EXPERTS_IN) && fits;
    return fits;
}

static bool add_as(struct model *to, const struct model *from, const struct module *of, enum fate fate, const struct training *t)
{
    switch (fate) {
    case FATE_WRAPPED:
        return add_wrapped(to, from, of, t);
    case FATE_STAYS:
        return add_own(to, from, of, "", ADAPTER_NONE, true);
    case FATE_ADAPTED:
        return add_lora(to, from, of, t);
    case FATE_COPIED:
        break;
    }
    return add_own(to, from, of, "original_module", ADAPTER_REPLACED, true)
        && add_own(to, from, of, "modules_to_save.default", ADAPTER_NONE, false);
}

/* `added` tensors of a module: of the first block with experts, or without. */
static void count_of_block(struct model *to, const struct model *from, const struct module *of, int added)
{
    if (of->block < 0 || of->block != model_first_alike(from, of->block))
        return;
    if (model_blocks_differ(from) && !model_has_experts(from, of->block))
        to->per_dense += added;
    else
        to->per_block += added;
}

static int adapt(struct model *m, const struct training *t, const char *where)
{
    const char *said = t->target_modules[0] || t->target_parameters[0] ? t->target_modules : training_usual_targets(m->family);
    char targets[TRAINING_LIST];
    struct model to = *m;
    bool fits = true, any = false, fused = false;

    if (!said)
        return fail("%s: lora.target_modules: PEFT has no default for %s: name the modules, or \"all-linear\"", where, m->family);
    if (training_modules(m, said, targets, where) < 0 || training_check_parameters(m, t, where) < 0)
        return -1;
    if ((strcmp(targets, "all-linear") && check_list(m, targets, false, "target_modules", where) < 0)
        || check_list(m, t->modules_to_save, true, "modules_to_save", where) < 0)
        return -1;
    for (int i = 0; i < m->nmodules; i++)
        if (check_fate(m, t, &m->modules[i], fate_of(m, t, targets, &m->modules[i]), where) < 0
            || check_alike(m, t, targets, &m->modules[i], where) < 0)
            return -1;
    to.ntensors = to.nmodules = to.ntrainable = to.block0 = to.per_block = to.per_dense = 0;
    to.params = to.trainable = 0;
    to.tensors = calloc(4 * (size_t)m->ntensors, sizeof *to.tensors);
    to.modules = calloc(4 * (size_t)m->nmodules, sizeof *to.modules);
    for (int i = 0; i < m->nmodules && to.tensors && to.modules; i++) {
        const struct module *of = &m->modules[i];
        enum fate fate = fate_of(m, t, targets, of);
        int before = to.ntensors;
        if (of->first == m->block0)
            to.block0 = to.ntensors;
        fits = add_as(&to, m, of, fate, t) && fits;
        any |= (fate == FATE_ADAPTED && of->block >= 0) || fate == FATE_WRAPPED;
        fused |= fate == FATE_ADAPTED && m->tensors[of->first].role == ROLE_QKV;
        count_of_block(&to, m, of, to.ntensors - before);
    }
    for (int i = 0; i < m->nmodules && to.tensors && to.modules && (copies_tied_head(m, t) || adapts_tied_head(m, targets)); i++)
        if (m->tensors[m->modules[i].first].role == ROLE_TOKENS)
            fits = (copies_tied_head(m, t) ? add_tied_copy(&to, m, &m->modules[i]) : add_tied_head(&to, m, &m->modules[i], t->rank)) && fits;
    if (!to.tensors || !to.modules || !fits || !any || (t->qkv_parts && !fused)) {
        free(to.tensors);
        free(to.modules);
        if (t->qkv_parts && !fused)
            return fail("%s: lora.qkv_parts: no layer that has an adapter is q, k and v in one", where);
        return fail(!fits ? "%s: lora.rank: %lld makes more than 2^60 parameters" : any ? "%s: out of memory for adapters (%lld)"
                    : "%s: lora.target_modules: none of them is in the blocks: not supported yet (rank %lld)", where, (long long)t->rank);
    }
    free(m->tensors);
    free(m->modules);
    to.training = *t;
    to.active = to.params - (m->params - m->active);
    *m = to;
    return 0;
}

/* ---- frozen weights in 4 or 8 bits ---- */

/* transformers replaces every linear layer but the head (quantizers/base.py, get_keys_to_not_convert()), unless a loader names none to leave out. */
static bool is_packed(const struct tensor *x, const struct training *t)
{
    return (x->block >= 0 || (t->base_head && x->role == ROLE_HEAD)) && x->adapter == ADAPTER_NONE && is_linear(x);
}

/* Before anything is changed: may the tensor be packed, should it be? */
static int check_packed(const struct model *m, const struct training *t, const char *where)
{
    for (int i = 0; i < m->ntensors && t->base != BASE_PLAIN; i++) {
        const struct tensor *x = &m->tensors[i];
        bool copied = training_is_lora(t) && training_listed(t->modules_to_save, m->modules[x->module].name, true);
        if (x->role == ROLE_PROJECT_IN || x->role == ROLE_PROJECT_OUT)
            return fail("%s: base_dtype: %s, a linear layer outside of blocks, is not supported yet", where, x->name);
        if (is_packed(x, t) && (copied || (!training_is_lora(t) && matches(t, x))))
            return fail("%s: %s: %s: weights in %s do not train, nor do their layer's biases", where,
                        copied ? "lora.modules_to_save" : "train", x->name, training_base_name(t->base));
    }
    return 0;
}

static void pack(struct model *m)
{
    for (int i = 0; i < m->ntensors; i++)
        m->tensors[i].packed = is_packed(&m->tensors[i], &m->training) ? m->training.base : BASE_PLAIN;
}

/* ---- some of the tensors ---- */

static int check_patterns(const struct model *m, const struct training *t, const char *where)
{
    char pattern[TRAINING_LIST];

    for (int i = 0; training_name_at(t->what, i, pattern); i++) {
        bool found = false;
        for (int k = 0; k < m->ntensors; k++)
            found |= fnmatch(pattern, m->tensors[k].name, 0) == 0;
        if (!found)
            return fail("%s: train: \"%s\" matches no tensor of %s, such as %s", where, pattern, m->family,
                        m->tensors[m->block0].name);
    }
    return 0;
}

static int freeze(struct model *m, const struct training *t, const char *where)
{
    int in_block = 0;

    if (check_patterns(m, t, where) < 0)
        return -1;
    for (int i = m->block0; i < m->block0 + m->per_block; i++)
        in_block += matches(t, &m->tensors[i]);
    if (in_block == 0)
        return fail("%s: train: the blocks have a tensor each that trains, or all of them train: blocks without one are not "
                    "supported yet", where);
    for (int i = m->block0; i < m->block0 + (int)m->layers * m->per_block; i++)
        if (matches(t, &m->tensors[i]) != matches(t, &m->tensors[m->block0 + (i - m->block0) % m->per_block]))
            return fail("%s: train: %s: blocks that differ in what trains are not supported yet", where, m->tensors[i].name);
    m->ntrainable = 0;
    m->trainable = 0;
    for (int i = 0; i < m->ntensors; i++) {
        struct tensor *x = &m->tensors[i];
        x->frozen = !matches(t, x);
        m->ntrainable += !x->frozen;
        m->trainable += x->frozen ? 0 : x->numel;
    }
    m->training = *t;
    return 0;
}

int training_adapters(const struct model *m)
{
    int n = 0;

    for (int t = m->block0; t < m->block0 + m->per_block; t++)
        n += tensor_is_adapter(&m->tensors[t]);
    return n;
}

/* A list ends where training_name_at() has nothing: a name in it that is empty would hide those behind it. */
static int check_gaps(const char *list, const char *key, const char *where)
{
    size_t n = strlen(list);

    if (n == 0 || (list[0] != ',' && list[n - 1] != ',' && !strstr(list, ",,")))
        return 0;
    return fail("%s: %s: \"%s\": a name is empty, or has a comma of its own, as no module's has", where, key, list);
}

int training_apply(struct model *m, const struct training *t, const char *where)
{
    if (training_is_all(t)) {
        m->training = *t;
        return 0;
    }
    if (m->hybrid)
        return fail("%s: train: adapters and frozen weights of blocks of several kinds (%s) are not planned yet", where, m->family);
    if (check_gaps(t->what, "train", where) < 0
        || (!training_is_expression(t->target_modules) && check_gaps(t->target_modules, "lora.target_modules", where) < 0)
        || check_gaps(t->target_parameters, "lora.target_parameters", where) < 0 || check_gaps(t->modules_to_save, "lora.modules_to_save", where) < 0)
        return -1;
    if (t->bridge)
        return training_bridge_apply(m, t, where);
    if (m->experts && training_check_mixture(m, t, where) < 0)
        return -1;
    if (check_packed(m, t, where) < 0 || (training_is_lora(t) ? adapt(m, t, where) : freeze(m, t, where)) < 0)
        return -1;
    pack(m);
    return 0;
}
