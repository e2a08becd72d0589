/* hf_keys.h -- which key of a Hugging Face config means which field of struct model, with the default of the family's config class.
 *
 * One table serves both directions: hf_config.c reads a config by it, hf_write.c writes one.  What is more than a key (falcon's decoder
 * architectures, say) is in the family's read and write functions; what several of these need is in hf_layers.c. */
#ifndef DPX_HF_KEYS_H
#define DPX_HF_KEYS_H

#include <stddef.h>

#include "model/family/hf_value.h"
#include "model/family/model.h"

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

/* True for the row that ends a list of keys. */
static inline bool hf_key_end(const struct hf_key *k) { return !k->key && !k->at; }

/* ---- layers that differ (hf_layers.c) ---- */

/* Is `key` there and not null? */
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
/* "no_rope_layers": 1 is a layer with rotary positions. */
bool hf_has_no_rope(const json_t *v, bool *known);
int hf_no_rope_write(const struct model *m, json_t *config);
/* A list of layers, in any order: set[layer] of each. */
int hf_layers_read(const struct hf *c, const char *key, const struct model *m, bool *set);
/* Experts as DeepSeek-V3 has them: sigmoids choose them, by groups, beside shared ones, behind dense layers.  `dflt`: of their numbers. */
struct hf_routed { int64_t shared, groups, dense; };
int hf_routed_read(const struct hf *c, struct model *m, struct hf_routed dflt);
int hf_routed_write(const struct model *m, json_t *config);

#endif
