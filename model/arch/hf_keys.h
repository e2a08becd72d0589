/* hf_keys.h -- which field of a Hugging Face config means which field of struct
 * model, per family, with the default of the family's config class.
 *
 * One table serves both directions: hf_config.c reads a config by it, hf_write.c
 * writes one.  What is more than a field (falcon's decoder architectures, say) is in
 * the family's read and write functions. */
#ifndef DPX_HF_KEYS_H
#define DPX_HF_KEYS_H

#include <stddef.h>

#include "model/arch/hf_value.h"
#include "model/arch/transformer.h"

enum hf_kind {
    HF_SET,         /* not in the config: the family always has this value */
    HF_INT,         /* int64_t, at least 1 */
    HF_EXTRA,       /* the same, of a head size that is no field of the config class: written where it is not hidden / heads */
    HF_BOOL,
    HF_RATE,        /* double from 0 to below 1 */
    HF_REAL,        /* double, not negative; null is 0 */
    HF_ACT,         /* an activation by name */
};

/* Default of an activation: which, and how it is computed. */
#define HF_ACT_BY(act, code) ((act) + 16 * (code))

/* Default of an integer that follows from the others: key/value heads from
 * heads, the head size and the MLP's width from the hidden size. */
#define HF_DERIVED 0

struct hf_key {
    const char  *key, *alias;   /* alias: a second name that transformers accepts */
    enum hf_kind kind;
    bool         null_derives;  /* null is allowed and means HF_DERIVED */
    size_t       at;            /* offset in struct model */
    double       dflt;
};

/* A field that must have one value, because with another the model would have
 * parts that dpx (or transformers itself) does not know. */
struct hf_fixed {
    const char *section, *key;
    const char *value;          /* as JSON; where it is "false", null will do.  NULL: absent */
    const char *why;
};

struct hf_family {
    const char            *name;
    const struct hf_key   *keys;
    const struct hf_fixed *fixed;           /* NULL if none */
    bool                   experts;         /* a mixture of experts */
    bool                   heads_divide;    /* hidden must be a multiple of heads */
    bool                   own_head_dim;    /* the modelling code looks at no head_dim: any is read, and none matters */
    const char            *theta_key;       /* of the rotary base, outside rope_parameters */
    double                 theta;           /* its default, 0: 10000 */
    const char            *local_theta_key; /* of the base in layers with a window; NULL if the same */
    double                 local_theta;     /* its default */
    const char            *partial_key;     /* of the rotated share of a head, NULL if all */
    double                 partial;         /* its default */
    int                  (*read)(const struct hf *c, struct model *m);     /* or NULL */
    int                  (*write)(const struct model *m, json_t *config);  /* or NULL */
};

/* True for the row that ends a list of keys. */
static inline bool hf_key_end(const struct hf_key *k) { return !k->key && !k->at; }

/* NULL if the family is unknown. */
const struct hf_family *hf_family_find(const char *model_type);
/* The same among the families of hf_keys_recent.c. */
const struct hf_family *hf_family_recent(const char *model_type);
/* Of hf_keys_experts.c. */
const struct hf_family *hf_family_of_experts(const char *model_type);

/* Layers that differ; in hf_windows.c.  Is `key` there and not null? */
bool hf_given(const struct hf *c, const char *key);
/* A list with an entry a layer: every how many of them `is` (a string, or an integer as text);
 * 0: none. */
int hf_layer_list(const struct hf *c, const char *key, const struct model *m,
                  bool (*is)(const json_t *v, bool *known), int64_t *every);
/* "sliding_window", and which layers have none: "layer_types", or every n-th as the
 * integer `pattern_key` says, `every` by default (0: all layers have the window). */
int hf_windows_read(const struct hf *c, struct model *m, int64_t window, const char *pattern_key, int64_t every);
int hf_windows_write(const struct model *m, json_t *config);
/* Qwen2Config, Qwen3Config: with use_sliding_window, layers from max_window_layers on have it;
 * layer_types states the same layer by layer. */
int hf_qwen_read(const struct hf *c, struct model *m);
int hf_qwen_write(const struct model *m, json_t *config);

/* The rotary fields, once head_dim is known; and back.  In hf_rope.c. */
int hf_rope_read(const struct hf *c, const struct hf_family *f, struct model *m);
int hf_rope_write(const struct model *m, const struct hf_family *f, json_t *config);

/* True for model types known to be mixtures of experts that are not read. */
bool hf_is_moe(const char *model_type);

/* The activation of a Hugging Face name (0, or -1: unknown); and the name of one. */
int         hf_act_parse(const char *name, enum activation *act, enum activation_code *code);
const char *hf_act_name(enum activation act, enum activation_code code);

#endif
