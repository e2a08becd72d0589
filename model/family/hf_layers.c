/* hf_layers.c -- configs whose layers differ: by a sliding window, by having no rotary positions, by their experts. */
#include "model/family/hf_keys.h"

#include <string.h>

bool hf_given(const struct hf *c, const char *key) { return hf_has(c, key) && !hf_is_null(c, key); }

/* Of one flag a layer, the n for which every n-th is set and no other; 0 if none is,
 * -1 if there is no such n. */
static int64_t period_of(const bool *set, int64_t n)
{
    int64_t first = 0;

    while (first < n && !set[first])
        first++;
    for (int64_t i = 0; i < n; i++)
        if (set[i] != ((i + 1) % (first + 1) == 0))
            return -1;
    return first < n ? first + 1 : 0;
}

/* Reads a list with an entry a layer into `set`: which are `is`. */
static int flags_of(const struct hf *c, const char *key, const struct model *m,
                    bool (*is)(const json_t *v, bool *known), bool *set)
{
    const json_t *list = json_object_get(c->root, key);

    if (!json_is_array(list) || (int64_t)json_array_size(list) != m->layers)
        return hf_refuse(c, key, "a list with one entry a layer");
    for (size_t i = 0; i < json_array_size(list); i++) {
        bool known = true;
        set[i] = is(json_array_get(list, i), &known);
        if (!known)
            return hf_refuse(c, key, "a list of layers that dpx knows");
    }
    return 0;
}

int hf_layer_list(const struct hf *c, const char *key, const struct model *m,
                  bool (*is)(const json_t *v, bool *known), int64_t *every)
{
    bool set[MODEL_MAX_LAYERS];

    if (flags_of(c, key, m, is, set) < 0)
        return -1;
    *every = period_of(set, m->layers);
    return *every >= 0 ? 0 : hf_refuse(c, key, "a list in which every n-th layer differs");
}

static bool is_full(const json_t *v, bool *known)
{
    const char *s = json_is_string(v) ? json_string_value(v) : "";

    *known = !strcmp(s, "full_attention") || !strcmp(s, "sliding_attention");
    return !strcmp(s, "full_attention");
}

/* No layer has a window: nor is there one. */
static int settle(struct model *m)
{
    if (model_windowed_layers(m) == 0)
        m->window = m->window_from = m->full_every = 0;
    return 0;
}

int hf_windows_read(const struct hf *c, struct model *m, int64_t window, const char *pattern_key, int64_t every)
{
    m->full_every = every;
    if (pattern_key && hf_given(c, pattern_key) && !hf_given(c, "layer_types")
        && hf_int(c, pattern_key, every, MODEL_MAX_LAYERS, &m->full_every) < 0)
        return -1;
    if (hf_given(c, "layer_types") && hf_layer_list(c, "layer_types", m, is_full, &m->full_every) < 0)
        return -1;
    m->window = 0;
    if (!hf_is_null(c, "sliding_window")
        && hf_int(c, "sliding_window", window, INT64_MAX, &m->window) < 0)
        return -1;
    return settle(m);
}

int hf_windows_write(const struct model *m, json_t *config)
{
    json_t *types = json_array();
    int rc = 0;

    for (int64_t i = 0; i < m->layers; i++)
        rc |= json_array_append_new(types, json_string(model_windowed(m, i) ? "sliding_attention" : "full_attention"));
    rc |= json_object_set_new(config, "layer_types", types);
    return rc | json_object_set_new(config, "sliding_window", m->window ? json_integer(m->window) : json_null());
}

/* Full layers first, or every n-th one. */
static int qwen_types(const struct hf *c, struct model *m)
{
    bool full[MODEL_MAX_LAYERS];
    int64_t from = 0, sliding;

    if (flags_of(c, "layer_types", m, is_full, full) < 0)
        return -1;
    while (from < m->layers && full[from])
        from++;
    for (sliding = from; sliding < m->layers && !full[sliding]; )
        sliding++;
    m->window_from = sliding == m->layers ? from : 0;
    m->full_every = sliding == m->layers ? 0 : period_of(full, m->layers);
    return m->full_every >= 0 ? 0
        : hf_refuse(c, "layer_types", "full attention first, sliding_attention behind it, or in every n-th layer");
}

int hf_qwen_read(const struct hf *c, struct model *m)
{
    const json_t *from = json_object_get(c->root, "max_window_layers");
    bool use;

    if (hf_bool(c, "use_sliding_window", false, &use) < 0)
        return -1;
    if (!use || hf_is_null(c, "sliding_window"))
        return 0;
    if (hf_int(c, "sliding_window", 4096, MODEL_MAX_DIM, &m->window) < 0)
        return -1;
    m->window_from = json_is_integer(from) ? json_integer_value(from) : 28;     /* 0: all of them */
    if (m->window_from < 0)
        return hf_refuse(c, "max_window_layers", "not negative");
    if (hf_given(c, "layer_types") && qwen_types(c, m) < 0)
        return -1;
    return settle(m);
}

int hf_qwen_write(const struct model *m, json_t *config)
{
    return json_object_set_new(config, "use_sliding_window", json_boolean(m->window > 0)) | hf_windows_write(m, config);
}

/* ---- layers without rotary positions ---- */

bool hf_has_no_rope(const json_t *v, bool *known)
{
    *known = json_is_integer(v) && (json_integer_value(v) == 0 || json_integer_value(v) == 1);
    return *known && json_integer_value(v) == 0;
}

int hf_no_rope_write(const struct model *m, json_t *config)
{
    json_t *list = json_array();
    int rc = 0;

    for (int64_t i = 0; i < m->layers; i++)
        rc |= json_array_append_new(list, json_integer(m->nope_every == 0 || (i + 1) % m->nope_every != 0));
    return rc | json_object_set_new(config, "no_rope_layers", list);
}

/* ---- layers with experts ---- */

/* Layers of a list, which has them in any order, each once. */
int hf_layers_read(const struct hf *c, const char *key, const struct model *m, bool *set)
{
    const json_t *list = json_object_get(c->root, key), *v;
    size_t i;

    if (!json_is_array(list))
        return hf_refuse(c, key, "a list of layers");
    json_array_foreach(list, i, v) {
        json_int_t layer = json_integer_value(v);
        if (!json_is_integer(v) || layer < 0 || layer >= m->layers)
            return hf_refuse(c, key, "a list of layers, counted from 0");
        set[layer] = true;
    }
    return 0;
}

/* A count that may be 0. */
static int read_count(const struct hf *c, const char *key, int64_t dflt, int64_t *out)
{
    const json_t *v = json_object_get(c->root, key);

    *out = v && !json_is_null(v) ? json_integer_value(v) : dflt;
    if (v && !json_is_null(v) && (!json_is_integer(v) || *out < 0 || *out > MODEL_MAX_LAYERS))
        return hf_refuse(c, key, "an integer from 0 to 4096");
    return 0;
}

int hf_routed_read(const struct hf *c, struct model *m, struct hf_routed dflt)
{
    int64_t shared;

    if (hf_int(c, "n_shared_experts", dflt.shared, 4096, &shared) < 0
        || hf_int(c, "n_group", dflt.groups, MODEL_MAX_LAYERS, &m->route_groups) < 0
        || read_count(c, "first_k_dense_replace", dflt.dense, &m->dense_first) < 0)
        return -1;
    if (m->experts % m->route_groups)
        return hf_refuse(c, "n_group", "a divisor of the number of experts");
    m->shared_ffn = shared * m->expert_ffn;
    return 0;
}

int hf_routed_write(const struct model *m, json_t *config)
{
    return json_object_set_new(config, "n_shared_experts", json_integer(m->shared_ffn / m->expert_ffn))
        | json_object_set_new(config, "first_k_dense_replace", json_integer(m->dense_first))
        | json_object_set_new(config, "n_group", json_integer(m->route_groups));
}
