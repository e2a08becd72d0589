/* zero3_tree.c -- a model's modules from its tensors and its family's order of calls. */
#include "model/framework/deepspeed_3/zero3_tree.h"

#include <stdio.h>
#include <string.h>

#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/plan/loss_check.h"
#include "model/program/torch_model.h"

static void open_node(struct z3_tree *p, int k)  { p->order[p->norder++] = k + 1; }
static void close_node(struct z3_tree *p, int k) { p->order[p->norder++] = -(k + 1); }

static int find_module(const struct model *m, const char *path)
{
    for (int i = 0; i < m->nmodules; i++)
        if (m->modules[i].block <= 0 && !strcmp(m->modules[i].name, path))
            return i;
    return -1;
}

static int find_below(const struct model *m, const char *path)
{
    for (int i = 0; i < m->nmodules; i++)
        if (m->modules[i].block <= 0 && zero3_tree_below(&m->modules[i], path))
            return i;
    return -1;
}

bool zero3_tree_below(const struct module *of, const char *path)
{
    size_t n = strlen(path);

    return !strncmp(of->name, path, n) && of->name[n] == '.';
}

static bool eager_alibi(const struct local_model *local)
{
    return !kernels_take_sdpa(local->plan->kernels) && local->model->position == POS_ALIBI;
}

/* ---- what PEFT puts in a layer's place ----
 *
 * Linear (tuners/lora/layer.py) calls the layer that it stands for, the adapter's dropout (nn.Identity where it is 0), A and B,
 * and before them asks for the dtype of A's weight: stage 3 gathers what is not there then, and from there on takes it for the
 * wrapper's own, too (parameter_offload.py, ZeROOrderedDict).  Our own kernels run A before the layer.  ModulesToSaveWrapper
 * (utils/other.py) calls the copy. */

static int add_part(struct z3_tree *t, const struct local_model *local, const char *of, const char *part, bool no_release)
{
    struct z3_node *x = &t->node[t->n];

    *x = (struct z3_node){ .no_release = no_release, .external = -1, .asks = -1 };
    snprintf(x->path, sizeof x->path, "%.70s.%s", of, part);
    x->module = find_module(local->model, x->path);
    open_node(t, t->n);
    close_node(t, t->n);
    return t->n++;
}

static int part_of(const struct model *m, const char *of, const char *part)
{
    char path[96];

    snprintf(path, sizeof path, "%.70s.%s", of, part);
    return find_module(m, path);
}

/* The parts of node `at`, if it is such a place. */
static void add_parts(struct z3_tree *t, const struct local_model *local, int at)
{
    static const char *const torch[] = { "base_layer", "lora_dropout.default", "lora_A.default", "lora_B.default" };
    static const char *const own[] = { "lora_dropout.default", "lora_A.default", "base_layer", "lora_B.default" };
    bool ours = local->plan->kernels == KERNELS_DPX;
    struct z3_node *x = &t->node[at];
    int a = part_of(local->model, x->path, "lora_A.default");

    if (part_of(local->model, x->path, "modules_to_save.default") >= 0)       /* that of a tied head has no original of its own */
        add_part(t, local, x->path, "modules_to_save.default", x->no_release);
    for (int i = 0; i < 4 && a >= 0; i++) {
        int k = add_part(t, local, x->path, (ours ? own : torch)[i], false);
        t->node[k].dropout = strstr((ours ? own : torch)[i], "dropout") && local->plan->train.dropout > 0;
        if (i == 0 && !ours)
            t->node[k].asks = a;
    }
    x->external = a;
    x->asks = ours ? a : -1;
}

/* One word of a tree below `prefix`; returns the node if it is a container. */
static int parse_word(struct z3_tree *t, const struct local_model *local, const char *word, size_t len,
                      const char *prefix)
{
    struct z3_node *x = &t->node[t->n];
    bool container = false, optional = false, alibi = false, twice = false, asks = false;

    *x = (struct z3_node){ .module = -1, .external = -1, .asks = -1 };
    for (; len > 0 && strchr("!~?$%*&=^+<[", word[len - 1]); len--) {
        x->no_release |= word[len - 1] == '!' || word[len - 1] == '~';
        x->no_hook |= word[len - 1] == '~';
        x->dropout |= word[len - 1] == '?';
        x->saves |= word[len - 1] == '$';
        x->function |= word[len - 1] == '%';
        x->leaf |= word[len - 1] == '^';
        x->rotary |= word[len - 1] == '<';
        optional |= word[len - 1] == '*';
        alibi |= word[len - 1] == '&';
        twice |= word[len - 1] == '=' && torch_has_two_tables(local->model);
        container |= word[len - 1] == '[';
        asks |= word[len - 1] == '+';
    }
    bool head = len == strlen("lm_head") && !strncmp(word, "lm_head", len);
    if (head && loss_reads_head(local->plan->loss))
        return -1;                              /* the loss reads its weight, it is not called: z3_trace_build() */
    if (head && local->model->head != HEAD_LOGITS) {
        word = "score";
        len = strlen(word);
    }
    snprintf(x->path, sizeof x->path, "%.56s%.*s", prefix, len < 32 ? (int)len : 32, word);
    x->module = x->leaf ? find_below(local->model, x->path) : find_module(local->model, x->path);
    if ((optional && x->module < 0 && part_of(local->model, x->path, "original_module") < 0) || (alibi && !eager_alibi(local))
        || (x->rotary && !local->model->l2_norm))
        return -1;
    if (asks)
        x->external = part_of(local->model, x->path, "embed_tokens");
    int at = t->n++;
    open_node(t, at);
    if (!container) {
        add_parts(t, local, at);
        close_node(t, at);
    }
    if (twice) {
        open_node(t, at);
        close_node(t, at);
    }
    return container ? at : -1;
}

static void parse_list(struct z3_tree *t, const struct local_model *local, const char *word, size_t len,
                       const char *prefix)
{
    char name[48];
    int before;

    for (int i = 0; i == 0 || t->n > before; i++) {
        before = t->n;
        snprintf(name, sizeof name, "%.*s.%d*", len < 32 ? (int)len : 32, word, i);
        parse_word(t, local, name, strlen(name), prefix);
    }
}

static void parse(struct z3_tree *t, const struct local_model *local, const char *text, const char *prefix)
{
    int stack[8], depth = 0;
    size_t length[8];               /* of the prefix outside of each open container */
    char where[100];

    snprintf(where, sizeof where, "%s", prefix);
    while (*text) {
        size_t len = strcspn(text, " ");
        if (*text == '@') {
            t->order[t->norder++] = 0;
        } else if (*text == ']') {
            close_node(t, stack[--depth]);
            where[length[depth]] = '\0';
        } else if (len > 0 && text[len - 1] == '#') {
            parse_list(t, local, text, len - 1, where);
        } else if (len > 0) {
            int k = parse_word(t, local, text, len, where);
            if (k >= 0) {
                length[depth] = strlen(where);
                stack[depth++] = k;
                snprintf(where, sizeof where, "%.95s.", t->node[k].path);
            }
        }
        text += len;
        text += *text == ' ';
    }
}

/* get_peft_model()'s two modules around the model, which hand everything on by name. */
static void add_around(struct z3_tree *t, bool open)
{
    for (int i = 0; i < 2 && open; i++) {
        t->node[t->n] = (struct z3_node){ .module = -1, .no_release = true, .external = -1, .asks = -1 };
        open_node(t, t->n++);
    }
    for (int i = 1; i >= 0 && !open; i--)
        close_node(t, i);
}

/* ---- the tree of a model of no family: modules in the order of their roles ---- */

static void add_generic(struct z3_tree *p, const struct model *m, int first, int n, bool last)
{
    for (int role = 0; role <= ROLE_HEAD; role++)
        for (int i = first; i < first + n; i++) {
            if (m->tensors[m->modules[i].first].role != (enum tensor_role)role || p->n == Z3_MAX_NODES)
                continue;
            p->node[p->n] = (struct z3_node){ .module = i, .no_release = role <= ROLE_POSITIONS, .external = -1, .asks = -1 };
            open_node(p, p->n);
            close_node(p, p->n);
            p->n++;
        }
    if (last && m->tied && p->n < Z3_MAX_NODES) {
        p->node[p->n] = (struct z3_node){ .path = "lm_head", .module = -1, .external = -1, .asks = -1 };
        open_node(p, p->n);
        close_node(p, p->n);
        p->n++;
    }
}

/* Embedding, blocks, head. */
static void generic(const struct model *m, int first, int n, struct z3_tree *outer, struct z3_tree *block)
{
    for (int i = 0; i < m->nmodules; i++)
        if (m->modules[i].block == TENSOR_EMBED)
            add_generic(outer, m, i, 1, false);
    outer->order[outer->norder++] = 0;
    for (int i = 0; i < m->nmodules; i++)
        if (m->modules[i].block == TENSOR_HEAD)
            add_generic(outer, m, i, 1, false);
    add_generic(outer, m, 0, 0, true);
    add_generic(block, m, first, n, false);
}

/* The modules of block 0 are one after the other. */
static void first_block(const struct model *m, int *first, int *n)
{
    *first = *n = 0;
    for (int i = 0; i < m->nmodules; i++) {
        if (m->modules[i].block != 0)
            continue;
        if (*n == 0)
            *first = i;
        ++*n;
    }
}

static const struct calls *find_calls(const struct family *f, const char *variant)
{
    for (int i = 0; f && i < FAMILY_CALLS && f->calls[i].outer; i++)
        if (!strcmp(f->calls[i].variant, variant))
            return &f->calls[i];
    return NULL;
}

/* What a model has that its family's others lack: norms of q and k, norms of the sums (OPT-350m). */
static const char *variant(const struct model *m, const struct family *f)
{
    if (m->qk_norm && f && !f->qk_norm)
        return "+qk";
    return m->norm_place == NORM_OF_SUM ? "+sums" : "";
}

static const char *autoep_tree(const struct plan *p) { return plan_has_deepspeed_0_19_8(p) ? "+autoep" : "+autoep-0.19.6"; }

void z3_trees(const struct local_model *local, struct z3_tree *outer, struct z3_tree *block)
{
    const struct plan *p = local->plan;
    const struct model *m = local->model;
    const struct family *f = family_find(m->family);
    const char *other = p->kernels == KERNELS_DPX ? "+dpx" : p->parallel.expert > 1 ? autoep_tree(p) : NULL;
    const struct calls *t = other ? find_calls(f, other) : NULL;
    bool lora = training_is_lora(&m->training);
    char prefix[96];
    int first, n;

    *outer = *block = (struct z3_tree){ 0 };
    first_block(m, &first, &n);
    if (!t)
        t = find_calls(f, variant(m, f));
    if (!t) {
        generic(m, first, n, outer, block);
        return;
    }
    if (lora)
        add_around(outer, true);
    parse(outer, local, t->outer, "");
    if (lora)
        add_around(outer, false);
    snprintf(prefix, sizeof prefix, "%s.0.", f->blocks);
    parse(block, local, t->block, prefix);
    z3_flow(local, outer, block);
}
