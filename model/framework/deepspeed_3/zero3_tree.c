/* zero3_tree.c -- a model's modules from its tensors and its family's order of calls. */
#include "model/framework/deepspeed_3/zero3_tree.h"

#include <stdio.h>
#include <string.h>

#include "model/arch/family.h"
#include "model/arch/training.h"
#include "model/plan/loss_check.h"
#include "model/program/torch_model.h"

/* ---- module trees ----
 *
 * Names in call order; [ ] holds a container's children, @ stands for the blocks.
 * !  no release in backward: no positional input that needs a gradient
 *    (parameter_offload.py, _post_backward_module_hook)
 * ~  no hook in backward at all
 * ?  a dropout: where it is active, recomputation must reach its mask
 * %  a function, not a module: nn.functional.dropout
 * $  saves a tensor in any case: recomputation must reach it
 * *  only where the model has such a module
 * &  only in the eager code with ALiBi
 * #  a list: one module for each of its numbers
 * +  its forward asks for its first child's weight (input_ids.to(self.embed_tokens.weight.device)), as what PEFT puts in a layer's place does
 * =  called once for each kind of layer, where these rotate by tables of their own
 * <  only in layers with rotary positions, where q and k are normed (llama4)
 * ^  a leaf: no hooks below it (DEFAULT_LEAF_MODULE_CLASSES of leaf_module_config.py: Mixtral's and Qwen3's mixtures)
 * Our own kernels norm q and k once both and v are there: "+dpx" is the tree with them; "+autoep" that of a mixture whose experts AutoEP
 * shares out (AutoEPMoELayer, no leaf); in 0.19.6 a hook calls the gate once more, of which there is no backward (_register_logit_hook()). */
struct tree { const char *families, *outer, *block; };

#define LLAMA_OUTER "model![ embed_tokens! rotary_emb~= @ norm ] lm_head"
#define OPT_OUTER   "model.decoder![ embed_tokens! embed_positions! project_in* @ final_layer_norm* project_out* ] lm_head"
#define LLAMA_MLP   "mlp[ gate_proj act_fn up_proj down_proj ]"

static const struct tree trees[] = {
    { " gpt2 ", "transformer![ wte! wpe! drop @ ln_f ] lm_head",
      "ln_1 attn[ c_attn c_proj resid_dropout ] ln_2 mlp[ c_fc act c_proj dropout? ]" },
    { " llama mistral qwen2 gemma ministral ministral3 granite smollm3 ernie4_5 ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm " LLAMA_MLP },
    { " mixtral ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp^" },
    { " qwen3_moe ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] post_attention_layernorm mlp^" },
    { " gpt_oss ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp[ router experts ]" },
    { " llama4_text ", "model!+[ embed_tokens! rotary_emb~= @ norm ] lm_head",
      "input_layernorm self_attn![ q_proj k_proj v_proj qk_norm< qk_norm< o_proj ] post_attention_layernorm "
      "feed_forward[ router experts[ act_fn ] shared_expert[ gate_proj activation_fn up_proj down_proj ] ]" },
    { " mixtral+autoep ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm "
      "mlp[ router[ gate ] experts combine%$ ]" },
    { " mixtral+autoep-0.19.6 ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm "
      "mlp[ router[ gate gate~ ] experts combine%$ ]" },
    { " qwen3_moe+autoep ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] post_attention_layernorm "
      "mlp[ router[ gate ] experts combine%$ ]" },
    { " qwen3_moe+autoep-0.19.6 ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] post_attention_layernorm "
      "mlp[ router[ gate gate~ ] experts combine%$ ]" },
    { " olmoe ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] post_attention_layernorm "
      "mlp[ gate experts[ act_fn ] ]" },
    { " granitemoe ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm "
      "block_sparse_moe[ router experts[ act_fn ] ]" },
    { " seed_oss ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm "
      "mlp[ gate_proj act_fn up_proj down_proj dropout%? ]" },
    { " qwen3 ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] "
      "post_attention_layernorm " LLAMA_MLP },
    { " qwen3+dpx ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj q_norm k_norm o_proj ] "
      "post_attention_layernorm " LLAMA_MLP },
    { " gemma2 ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm "
      "pre_feedforward_layernorm " LLAMA_MLP " post_feedforward_layernorm" },
    { " phi3 ", LLAMA_OUTER,
      "input_layernorm self_attn![ qkv_proj o_proj ] resid_attn_dropout post_attention_layernorm "
      "mlp[ gate_up_proj activation_fn down_proj ] resid_mlp_dropout?" },
    { " starcoder2 ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm "
      "mlp[ c_fc act c_proj dropout%? ]" },
    { " gemma3_text ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj q_norm k_norm o_proj ] post_attention_layernorm "
      "pre_feedforward_layernorm " LLAMA_MLP " post_feedforward_layernorm" },
    { " olmo2 olmo3 ", LLAMA_OUTER,
      "self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] post_attention_layernorm " LLAMA_MLP
      " post_feedforward_layernorm" },
    { " exaone4 ", LLAMA_OUTER,
      "self_attn![ q_proj k_proj v_proj q_norm k_norm o_proj ] post_attention_layernorm " LLAMA_MLP
      " post_feedforward_layernorm" },
    { " hunyuan_v1_dense ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj query_layernorm key_layernorm o_proj ] "
      "post_attention_layernorm " LLAMA_MLP },
    { " phi ", "model![ embed_tokens! embed_dropout rotary_emb~ @ final_layernorm ] lm_head",
      "input_layernorm self_attn![ q_proj k_proj v_proj dense ] resid_dropout mlp[ fc1 activation_fn fc2 ] "
      "resid_dropout?" },
    { " stablelm ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm* " LLAMA_MLP " dropout?" },
    { " stablelm+qk ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj q_layernorm[ norms# ] k_layernorm[ norms# ] o_proj ] "
      "post_attention_layernorm* " LLAMA_MLP " dropout?" },
    { " phi+qk ", "model![ embed_tokens! embed_dropout rotary_emb~ @ final_layernorm ] lm_head",
      "input_layernorm self_attn![ q_proj k_proj v_proj q_layernorm k_layernorm dense ] resid_dropout "
      "mlp[ fc1 activation_fn fc2 ] resid_dropout?" },
    { " cohere cohere2 ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] " LLAMA_MLP },
    { " cohere+qk ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj q_norm k_norm o_proj ] " LLAMA_MLP },
    { " glm ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm "
      "mlp[ gate_up_proj activation_fn down_proj ]" },
    { " glm4 ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_self_attn_layernorm "
      "post_attention_layernorm mlp[ gate_up_proj activation_fn down_proj ] post_mlp_layernorm" },
    { " nemotron arcee ", LLAMA_OUTER,
      "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm "
      "mlp[ up_proj act_fn down_proj ]" },
    { " gpt_neox ", "gpt_neox![ embed_in! emb_dropout rotary_emb~ @ final_layer_norm ] lm_head",
      "input_layernorm attention[ query_key_value dense ] post_attention_dropout post_attention_layernorm "
      "mlp[ dense_h_to_4h act dense_4h_to_h ] post_mlp_dropout?" },
    { " opt ", OPT_OUTER,
      "self_attn_layer_norm self_attn![ q_proj k_proj v_proj out_proj ] final_layer_norm "
      "fc1 activation_fn fc2 dropout%?" },
    { " opt+sums ", OPT_OUTER,
      "self_attn![ q_proj k_proj v_proj out_proj ] self_attn_layer_norm fc1 activation_fn fc2 "
      "final_layer_norm" },
    { " bloom ", "transformer![ word_embeddings! word_embeddings_layernorm @ ln_f ] lm_head",
      "input_layernorm self_attention[ query_key_value attention_dropout dense ] "
      "post_attention_layernorm mlp[ dense_h_to_4h gelu_impl dense_4h_to_h dropout%? ]" },
    { " mpt ", "transformer![ wte! @ norm_f ] lm_head",
      "norm_1 attn[ Wqkv out_proj ] resid_attn_dropout norm_2 ffn[ up_proj act down_proj ]" },
    { " falcon ", "transformer![ word_embeddings! rotary_emb~ @ ln_f ] lm_head",
      "input_layernorm* ln_attn* ln_mlp* self_attention[ query_key_value attention_dropout& dense ] "
      "post_attention_layernorm* mlp[ dense_h_to_4h act dense_4h_to_h ] dropout%?" },
};

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

    if (part_of(local->model, x->path, "original_module") >= 0)
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
    if (loss_reads_head(local->plan->loss) && len == 7 && !strncmp(word, "lm_head", len))
        return -1;                              /* the loss reads its weight, it is not called: z3_trace_build() */
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

static const struct tree *find_tree(const char *family, const char *kernels)
{
    char word[40];

    snprintf(word, sizeof word, " %s%s ", family, kernels);
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        if (strstr(trees[i].families, word))
            return &trees[i];
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
    const struct tree *t = other ? find_tree(m->family, other) : NULL;
    bool lora = training_is_lora(&m->training);
    char prefix[96];
    int first, n;

    *outer = *block = (struct z3_tree){ 0 };
    first_block(m, &first, &n);
    if (!t)
        t = find_tree(m->family, variant(m, f));
    if (!t || !f) {
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
