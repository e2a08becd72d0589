/* A Hugging Face config to a struct model.
 *
 * Nothing in a config is trusted: every number is bounded before it is used, and
 * what would give another model than the config means is refused by the name of
 * the field.  Fields that change no tensor and no figure here are not looked at. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/printable.h"
#include "model/arch/hf_act.h"
#include "model/arch/hf_rope.h"
#include "model/arch/hf_text.h"
#include "model/arch/recorded.h"
#include "model/arch/transformer.h"
#include "model/family/family.h"

/* ---- Fields, by the family's table ---- */

static void *field(struct model *m, const struct hf_key *k) { return (char *)m + k->at; }

/* A family's constants: bools, but for these two. */
static void set_constant(struct model *m, const struct hf_key *k)
{
    if (k->at == offsetof(struct model, act))
        m->act = (enum activation)(int)k->dflt;
    else if (k->at == offsetof(struct model, norm_eps))
        m->norm_eps = k->dflt;
    else
        *(bool *)field(m, k) = k->dflt != 0;
}

static int read_int(const struct hf *c, const struct hf_key *k, const char *key, int64_t *out)
{
    int64_t max = k->at == offsetof(struct model, layers) ? MODEL_MAX_LAYERS : MODEL_MAX_DIM;

    if (k->null_derives && hf_is_null(c, key)) {
        *out = HF_DERIVED;
        return 0;
    }
    return hf_int(c, key, (int64_t)k->dflt, max, out);
}

static int read_act(const struct hf *c, const struct hf_key *k, const char *key, struct model *m)
{
    const char *name, *usual = hf_act_name((enum activation)((int)k->dflt % 16), (enum activation_code)((int)k->dflt / 16));

    if (hf_string(c, key, usual, &name) < 0)
        return -1;
    if (hf_act_parse(name, &m->act, &m->act_code) < 0)
        return hf_refuse(c, key, "gelu, gelu_new, gelu_pytorch_tanh, relu, relu2 or silu");
    return 0;
}

/* transformers lets the alias win; two answers to one question are refused. */
static int choose_key(const struct hf *c, const struct hf_key *k, const char **key)
{
    *key = k->key;
    if (!k->alias || !hf_has(c, k->alias))
        return 0;
    *key = k->alias;
    if (!hf_has(c, k->key)
        || json_equal(json_object_get(c->root, k->key), json_object_get(c->root, k->alias)))
        return 0;
    return fail("%s: \"%s\" and \"%s\" mean the same and differ: state one of them",
                c->where, k->key, k->alias);
}

static int read_key(const struct hf *c, const struct hf_key *k, struct model *m)
{
    const char *key;

    if (k->kind == HF_SET) {
        set_constant(m, k);
        return 0;
    }
    if (choose_key(c, k, &key) < 0)
        return -1;
    switch (k->kind) {
    case HF_EXTRA:
    case HF_INT:  return read_int(c, k, key, field(m, k));
    case HF_BOOL: return hf_bool(c, key, k->dflt != 0, field(m, k));
    case HF_RATE: return hf_real(c, key, k->dflt, 0, 1, field(m, k));
    case HF_ACT:  return read_act(c, k, key, m);
    case HF_REAL:
        *(double *)field(m, k) = 0;
        return hf_is_null(c, key) ? 0 : hf_real(c, key, k->dflt, 0, 0, field(m, k));
    case HF_SET:  break;
    }
    assert(!"unknown kind of field");
    return -1;
}

static int check_fixed(const struct hf *c, const struct hf_fixed *f)
{
    struct hf at = *c;
    json_t *want;
    const json_t *got;
    bool ok;
    char wanted[160];

    if (f->section && hf_section(c, f->section, &at) < 0)
        return -1;
    got = json_object_get(at.root, f->key);
    if (!got || (json_is_null(got) && (!f->value || !strcmp(f->value, "false"))))
        return 0;
    if (!f->value) {
        snprintf(wanted, sizeof wanted, "absent: %s", f->why);
        return hf_refuse(&at, f->key, wanted);
    }
    want = json_loads(f->value, JSON_DECODE_ANY, NULL);
    ok = json_equal(got, want);
    json_decref(want);
    snprintf(wanted, sizeof wanted, "%s: %s", f->value, f->why);
    return ok ? 0 : hf_refuse(&at, f->key, wanted);
}

/* ---- What is refused before any shape is read ---- */

static int refuse_unknown_family(const struct hf *c)
{
    char known[768] = "";
    size_t n = 0;
    const struct family *f;

    for (int i = 0; (f = family_at(i)) != NULL && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "one of ", f->name);
    return hf_refuse(c, "model_type", known);
}

static int refuse_experts(const struct hf *c)
{
    static const char *const counts[] = {
        "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts",
    };
    static const char only[] = "absent or 1: this family has no experts (MoE)";

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const json_t *n = json_object_get(c->root, counts[i]);
        if (n && !json_is_null(n) && !(json_is_integer(n) && json_integer_value(n) <= 1))
            return hf_refuse(c, counts[i], only);
    }
    return 0;
}

/* Refused with a better reason than "unknown". */
static bool is_moe(const char *model_type)
{
    static const char *const moe[] = {
        "qwen2_moe", "qwen3_next", "deepseek_v2", "deepseek_v32", "dbrx", "phimoe", "jamba", "glm4_moe_lite", "ernie4_5_moe",
        "hunyuan_v1_moe", "minimax", "jetmoe", "switch_transformers", "nllb-moe", "arctic", "grok-1", "bailing_moe", "dots1",
        "flex_olmo", "granitemoeshared", "granitemoehybrid",
    };

    for (size_t i = 0; i < sizeof moe / sizeof *moe; i++)
        if (!strcmp(moe[i], model_type))
            return true;
    return false;
}

static const struct family *family_of_type(const char *type)
{
    const struct family *f = family_find(type);

    for (int i = 0; !f && family_at(i); i++)
        if (family_at(i)->also && !strcmp(family_at(i)->also, type))
            f = family_at(i);
    return f;
}

static int find_family(const struct hf *c, const struct family **f)
{
    const char *type;

    if (hf_has(c, "dpx_plan"))
        return fail("%s: a plan, not a model: its model is what \"model\" says in it; dpxplan eval, explain and sweep take plans", c->where);
    if (!hf_has(c, "model_type"))
        return refuse_unknown_family(c);
    if (hf_string(c, "model_type", NULL, &type) < 0)
        return -1;
    if (is_moe(type))
        return fail("%s: \"%smodel_type\" is \"%s\": of mixtures of experts (MoE) mixtral, qwen3_moe, deepseek_v3, glm4_moe, gpt_oss, "
                    "llama4_text, granitemoe and olmoe are supported", c->where, c->section ? "text_config." : "", type);
    *f = family_of_type(type);
    if (!*f)
        return refuse_unknown_family(c);
    return (*f)->experts || (*f)->kinds[0] ? 0 : refuse_experts(c);     /* a hybrid pattern says whether it has some */
}

static const struct hf_fixed always_fixed[] = {
    { NULL, "is_encoder_decoder", "false", "only decoders are supported" },
    { NULL, "per_layer_config", NULL, "layers that differ are not supported" },
    { 0 }
};

static int check_all_fixed(const struct hf *c, const struct hf_fixed *f)
{
    for (; f && f->key; f++)
        if (check_fixed(c, f) < 0)
            return -1;
    return 0;
}

/* ---- The model ---- */

static void take_traits(struct model *m, const struct family *f)
{
    snprintf(m->family, sizeof m->family, "%s", f->name);
    m->norm          = f->norm;
    m->mlp           = f->mlp;
    m->position      = f->position;
    m->fused_qkv     = f->fused_qkv;
    m->fused_gate_up = f->fused_gate_up;
    m->qkv_grouped   = f->qkv_grouped;
    m->qk_norm       = f->qk_norm;
    m->qk_norm_bias  = f->qk_norm_bias;
    m->norm_place    = f->norm_place;
    m->norm_bias     = f->norm_bias;
    m->head_bias     = f->head_bias;
    m->parallel      = f->parallel;
    m->mlp_norm      = !f->one_norm;
}

/* The name of the key behind a field, for messages. */
static const char *key_of(const struct hf *c, const struct family *f, size_t at)
{
    for (const struct hf_key *k = f->keys; !hf_key_end(k); k++)
        if (k->key && k->at == at)
            return k->alias && hf_has(c, k->alias) ? k->alias : k->key;
    return "num_kv_heads";                      /* falcon's, read by its function */
}

#define KEY_OF(c, f, name) key_of(c, f, offsetof(struct model, name))

static int check_heads(const struct hf *c, const struct family *f, const struct model *m)
{
    bool divides = m->hidden % m->heads == 0;

    if (!divides && (f->heads_divide || !m->head_dim))
        return fail("%s: \"%s\" is %" PRId64 ": must be a multiple of \"%s\", which is %" PRId64,
                    c->where, KEY_OF(c, f, hidden), m->hidden, KEY_OF(c, f, heads), m->heads);
    if (m->kv_heads && m->heads % m->kv_heads != 0)
        return fail("%s: \"%s\" is %" PRId64 ": must divide \"%s\", which is %" PRId64,
                    c->where, KEY_OF(c, f, kv_heads), m->kv_heads, KEY_OF(c, f, heads), m->heads);
    return 0;
}

/* Where the modelling code reads a head size for a part only (rotary tables), it must at least not contradict. */
static int check_head_dim(const struct hf *c, const struct family *f, const struct model *m)
{
    int64_t stated;

    if (f->own_head_dim || hf_is_null(c, "head_dim") || m->kv_rank > 0)    /* DeepseekV3Config writes its rotated part there */
        return 0;
    if (hf_int(c, "head_dim", m->head_dim, MODEL_MAX_DIM, &stated) < 0)
        return -1;
    return stated == m->head_dim ? 0
        : hf_refuse(c, "head_dim", "absent or the hidden size over the heads in this family");
}

static int check_experts(const struct hf *c, const struct family *f, struct model *m)
{
    if (m->experts_used > m->experts)
        return fail("%s: \"num_experts_per_tok\" is %" PRId64 ": must be at most \"%s\", which is %" PRId64, c->where,
                    m->experts_used, KEY_OF(c, f, experts), m->experts);
    m->moe_every += m->moe_every == 0;
    for (int64_t i = 0; i < m->layers; i++)
        if (model_has_experts(m, i))
            return 0;
    return fail("%s: none of the %" PRId64 " layers has experts: the family without them is meant", c->where, m->layers);
}

static int derive(const struct hf *c, const struct family *f, struct model *m)
{
    if (check_heads(c, f, m) < 0)
        return -1;
    if (!m->head_dim)
        m->head_dim = m->hidden / m->heads;
    if (check_head_dim(c, f, m) < 0)
        return -1;
    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (!m->ffn)
        m->ffn = m->experts ? m->expert_ffn : 4 * m->hidden;
    if (m->experts && check_experts(c, f, m) < 0)
        return -1;
    if (m->ffn > MODEL_MAX_DIM)                 /* the config written would not read back */
        return hf_refuse(c, KEY_OF(c, f, hidden),
                         "at most 4194304, since the MLP is four times as wide");
    if (!m->token_width)
        m->token_width = m->hidden;
    if (!m->attn_scalar)
        m->attn_scalar = m->head_dim;
    if (m->position == POS_LEARNED)
        m->positions = m->context + f->extra_positions;
    if (m->position == POS_ROPE && hf_rope_read(c, f, m) < 0)
        return -1;
    if (m->kv_rank > 0)
        m->rotary_dim = m->rope_dim;
    return 0;
}

/* At most size-1 bytes, not ending inside a UTF-8 sequence: the name is written
 * into JSON again. */
static void copy_name(char *into, size_t size, const char *name, size_t n)
{
    if (n >= size) {
        n = size - 1;
        while (n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80)
            n--;
    }
    memcpy(into, name, n);
    into[n] = '\0';
}

/* A file may be called anything; a name is written into JSON, messages and scripts. */
static void only_printable(char *name)
{
    bool whole = printable(name);

    for (char *p = name; !whole && *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
            *p = '?';
}

/* ".../opt-13b/config.json" and ".../opt-13b.json" are both "opt-13b". */
static void name_by_path(struct model *m, const char *path)
{
    const char *end = path + strlen(path), *base;

    if (end - path > 5 && !strcmp(end - 5, ".json"))
        end -= 5;
    if (end - path > 7 && !memcmp(end - 7, "/config", 7))
        end -= 7;
    for (base = end; base > path && base[-1] != '/'; base--)
        ;
    copy_name(m->name, sizeof m->name, base, (size_t)(end - base));
    only_printable(m->name);
}

static int read_name(const struct hf *c, struct model *m)
{
    const char *name;

    if (hf_string(c, "_name_or_path", "", &name) < 0)
        return -1;
    /* It is written into command lines and scripts (export): a line end would begin one of its own. */
    if (!printable(name))
        return hf_refuse(c, "_name_or_path", "a name without control characters");
    if (*name)
        copy_name(m->name, sizeof m->name, name, strlen(name));
    else
        name_by_path(m, c->where);
    return 0;
}

static int read_synthetic(const struct hf *c, struct model *out)
{
    int64_t params;

    if (hf_int(c, "params", 0, SIZE_LIMIT, &params) < 0)
        return -1;
    return params ? model_synthetic(params, out) : hf_refuse(c, "params", "an integer from 1");
}

static bool is_synthetic(const json_t *config)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));

    return type && !strcmp(type, "dpx_synthetic");
}

/* A class of another head than a language model's, by the end of its name (transformers 5.24, modeling_layers.py: GenericForSequenceClassification and
 * GenericForTokenClassification).  Their configs say num_labels, or list the labels' names; usual are 2. */
static int read_head(const struct hf *c, struct model *m)
{
    static const struct { const char *end; enum head_kind head; } ends[] = {
        { "ForSequenceClassification", HEAD_SCORE }, { "ForTokenClassification", HEAD_VALUE }, { "RewardModel", HEAD_LOGITS }, { "ForQuestionAnswering", HEAD_LOGITS },
        { "ForMultipleChoice", HEAD_LOGITS },
    };
    const char *name = json_string_value(json_array_get(json_object_get(c->root, "architectures"), 0));
    const json_t *ids = json_object_get(c->root, "id2label"), *said = json_object_get(c->root, "num_labels");
    int64_t labels = json_is_integer(said) ? json_integer_value(said) : json_is_object(ids) ? (int64_t)json_object_size(ids) : 2;

    for (size_t i = 0; name && i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(name), e = strlen(ends[i].end);
        if (n < e || strcmp(name + n - e, ends[i].end) != 0)
            continue;
        if (ends[i].head == HEAD_LOGITS || labels != 1)
            return fail("%s: architectures: \"%.60s\"%s: planned are heads of logits, and of one number (ForSequenceClassification or ForTokenClassification with "
                        "num_labels 1)", c->where, name, ends[i].head == HEAD_LOGITS ? "" : " of several labels");
        m->head = ends[i].head;
        m->tied = false;
        m->head_bias = m->head == HEAD_VALUE;
    }
    return 0;
}

static int read_model(const struct hf *c, struct model *out)
{
    const struct family *f = NULL;
    struct model m = { 0 };

    if (find_family(c, &f) < 0 || read_name(c, &m) < 0)
        return -1;
    if (check_all_fixed(c, always_fixed) < 0 || check_all_fixed(c, f->fixed) < 0)
        return -1;
    take_traits(&m, f);
    for (const struct hf_key *k = f->keys; !hf_key_end(k); k++)
        if (read_key(c, k, &m) < 0)
            return -1;
    if ((f->read && f->read(c, &m) < 0) || derive(c, f, &m) < 0 || read_head(c, &m) < 0
        || model_tabulate(&m, c->where) < 0) {
        json_decref(m.rope_scaling);
        hybrid_free(m.hybrid);
        return -1;
    }
    *out = m;
    return 0;
}

static int read_text_model(const struct hf *c, struct model *out)
{
    json_t *text = hf_text_config(c);
    int rc = text ? read_model(&(struct hf){ text, c->where, "text_config" }, out) : -1;

    json_decref(text);
    return rc;
}

int model_from_config(const json_t *config, const char *where, struct model *out)
{
    const struct hf c = { config, where, NULL };

    if (!json_is_object(config))
        return fail("%s: a Hugging Face config must be a JSON object", where);
    if (recorded_is(config))
        return recorded_model((json_t *)config, where, NULL, out);
    if (is_synthetic(config))
        return read_synthetic(&c, out);
    return hf_has_text(config) ? read_text_model(&c, out) : read_model(&c, out);
}
