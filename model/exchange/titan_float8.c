/* titan_float8.c -- see titan_float8.h. */
#include "model/exchange/titan_float8.h"

#include <string.h>

#include "base/fail.h"
#include "model/exchange/export.h"

/* models/llama3/model.py (torchtitan), modeling_llama.py (transformers). */
static const struct { const char *titan, *ours; } modules[] = {
    { "lm_head", "lm_head" }, { "output", "lm_head" }, { "attention.wq", "q_proj" }, { "attention.wk", "k_proj" }, { "attention.wv", "v_proj" },
    { "attention.wo", "o_proj" }, { "feed_forward.w1", "gate_proj" }, { "feed_forward.w2", "down_proj" }, { "feed_forward.w3", "up_proj" },
    { "wq", "q_proj" }, { "wk", "k_proj" }, { "wv", "v_proj" }, { "wo", "o_proj" }, { "w1", "gate_proj" }, { "w2", "down_proj" },
    { "w3", "up_proj" }, { "attention", "self_attn" }, { "feed_forward", "mlp" }, { "auto_filter_small_kn", "auto_filter_small_kn" },
};
#define NMODULES (sizeof modules / sizeof *modules)

static const char *const names[] = { "none", "tensorwise", "rowwise", "rowwise_with_gw_hp" };
/* [float8] up to 2025; [quantize.linear.float8] is three objects, one in the other (titan_text.c). */
static const json_t *section(const json_t *config, int i)
{
    const json_t *linear = json_object_get(json_object_get(config, "quantize"), "linear");

    return json_object_get(i ? linear : config, "float8");
}

/* ---- in ---- */

static const json_t *value(const json_t *config, const char *key)
{
    for (int i = 0; i < 2; i++) {
        const json_t *v = json_object_get(section(config, i), key);
        if (v && !json_is_null(v))
            return v;
    }
    return NULL;
}

static int boolean(const json_t *config, const char *where, const char *key, bool *out)
{
    const json_t *v = value(config, key);

    *out = json_is_true(v);
    return v && !json_is_boolean(v) ? fail("%s: float8.%s: expected true or false", where, key) : 0;
}

static bool is_float8(const char *converter) { return !strcmp(converter, "float8") || !strcmp(converter, "quantize.linear.float8"); }

static int converts(const json_t *config, const char *where, bool *out)
{
    const json_t *all = json_object_get(json_object_get(config, "model"), "converters");
    bool is_text = json_is_string(all) && *json_string_value(all);
    size_t n = is_text ? 1 : json_array_size(all);

    if (boolean(config, where, "enable_float8_linear", out) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const char *one = json_string_value(is_text ? all : json_array_get(all, i));
        if (!one || !is_float8(one))
            return fail("%s: model.converters: \"%s\": float8 is planned, others are not", where, one ? one : "");
        *out = true;
    }
    return 0;
}

static int read_recipe(const json_t *config, const char *where, struct plan *p)
{
    const json_t *v = value(config, "recipe_name");
    const char *text = json_string_value(v);

    p->float8.recipe = FLOAT8_TENSORWISE;
    for (int i = FLOAT8_TENSORWISE; text && i < NFLOAT8; i++)
        if (!strcmp(text, names[i])) {
            p->float8.recipe = (enum float8_recipe)i;
            return 0;
        }
    return v ? fail("%s: float8.recipe_name: expected tensorwise, rowwise, rowwise_with_gw_hp", where) : 0;
}

/* An option's "attention.wk,output" as the list that a file has (torchtitan's string_list).  Free with json_decref(). */
static json_t *names_of(const char *text)
{
    json_t *all = json_array();

    while (*text) {
        size_t n = strcspn(text, ",");
        json_array_append_new(all, json_stringn(text, n));
        text += n + (text[n] == ',');
    }
    return all;
}

/* Beside nothing else the head alone is what a plan leaves out by default. */
static int read_names(const json_t *all, const char *where, struct plan *p)
{
    const json_t *one;
    size_t i, at = 0;

    if (json_array_size(all) == 0) {
        snprintf(p->float8.filter, sizeof p->float8.filter, "none");
        return 0;
    }
    if (json_array_size(all) == 1 && json_string_value(json_array_get(all, 0)) && (!strcmp(json_string_value(json_array_get(all, 0)), "output") || !strcmp(json_string_value(json_array_get(all, 0)), "lm_head")))
        return 0;
    json_array_foreach((json_t *)(uintptr_t)all, i, one) {
        const char *name = json_string_value(one);
        size_t k = 0;
        while (name && k < NMODULES && strcmp(name, modules[k].titan))
            k++;
        if (!name || k == NMODULES)
            return fail("%s: float8.filter_fqns: \"%s\": layers that float8 leaves out are planned by the names of llama3's alone", where, name ? name : "");
        int wrote = snprintf(p->float8.filter + at, sizeof p->float8.filter - at, "%s%s", at ? "," : "", modules[k].ours);
        if (wrote < 0 || (at += (size_t)wrote) >= sizeof p->float8.filter)
            return fail("%s: float8.filter_fqns: too many names", where);
    }
    return 0;
}

static int read_filter(const json_t *config, const char *where, bool old, struct plan *p)
{
    const json_t *all = value(config, "filter_fqns");

    if (old)                            /* module_filter_fn=lambda mod, fqn: fqn != "output" */
        return 0;
    if (all && !json_is_array(all) && !json_is_string(all))
        return fail("%s: float8.filter_fqns: expected a list of names", where);
    json_t *split = json_is_string(all) ? names_of(json_string_value(all)) : NULL;
    int rc = read_names(split ? split : all, where, p);
    json_decref(split);
    return rc;
}

int titan_float8_read(const json_t *config, const char *where, struct plan *p)
{
    bool on, emulates, old = json_is_true(value(config, "enable_float8_linear"));

    if (converts(config, where, &on) < 0)
        return -1;
    if (!on)
        return 0;
    if (boolean(config, where, "emulate", &emulates) < 0 || read_recipe(config, where, p) < 0 || read_filter(config, where, old, p) < 0 ||
        boolean(config, where, "enable_fsdp_float8_all_gather", &p->fsdp.float8_all_gather) < 0 ||
        boolean(config, where, "precompute_float8_dynamic_scale_for_fsdp", &p->fsdp.float8_precomputed) < 0)
        return -1;
    if (emulates)
        return fail("%s: float8.emulate: products of 8-bit floats on units that have none are not planned", where);
    /* Both count where parameters are sharded (Float8Converter: parallel_dims.dp_shard_enabled). */
    p->fsdp.float8_all_gather &= p->shard_group > 1;
    p->fsdp.float8_precomputed &= p->fsdp.float8_all_gather;
    return 0;
}

/* ---- out ---- */

/* "lm_head", "attention.wk" of 0.3.0; output,attention.wk of 0.2.2. */
static int write_filter(const struct plan *p, bool old, FILE *to)
{
    char list[TRAINING_LIST];
    bool first = true;

    snprintf(list, sizeof list, "%s", !p->float8.filter[0] ? "lm_head" : strcmp(p->float8.filter, "none") ? p->float8.filter : "");
    for (char *at = list, *next; at && *at; at = next) {
        size_t k = 0;
        next = strchr(at, ',');
        if (next)
            *next++ = '\0';
        while (k < NMODULES && (strcmp(at, modules[k].ours) || (old && !strcmp(modules[k].titan, "lm_head"))))
            k++;
        if (k == NMODULES)
            return fail("export to torchtitan: fp8_filter: \"%s\" is none of its linear layers", at);
        fprintf(to, old ? "%s%s" : "%s\"%s\"", first ? "" : old ? "," : ", ", modules[k].titan);
        first = false;
    }
    return 0;
}

/* The gathers are options of their own. */
static int write_old(const struct plan *p, FILE *to)
{
    fprintf(to, "--model.converters quantize.linear.float8\n--quantize.linear.float8.recipe-name %s\n", names[p->float8.recipe]);
    if (p->float8.filter[0] == '\0' || strcmp(p->float8.filter, "none")) {
        fprintf(to, "--quantize.linear.float8.filter-fqns ");
        if (write_filter(p, true, to) < 0)
            return -1;
        fprintf(to, "\n");
    }
    if (p->fsdp.float8_all_gather)
        fprintf(to, "--quantize.linear.float8.enable-fsdp-float8-all-gather\n");
    if (p->fsdp.float8_precomputed)
        fprintf(to, "--quantize.linear.float8.precompute-float8-dynamic-scale-for-fsdp\n");
    return 0;
}

int titan_float8_write(const struct plan *p, bool old, FILE *to)
{
    if (p->float8.recipe == FLOAT8_NONE)
        return 0;
    if (old)
        return write_old(p, to);
    if (p->float8.recipe == FLOAT8_TENSORWISE)
        return fail("export to torchtitan " TORCHTITAN_VERSION ": fp8: it has rowwise and rowwise_with_gw_hp (components/quantization/float8.py); "
                    "tensorwise and float8 gathers are 0.2.2's (export --to torchtitan-0.2.2)");
    fprintf(to, "# float8 linear layers are of its configs, no override sets them: in yours, model_registry(..., converters=[\n"
                "#     Float8LinearConverter.Config(recipe_name=\"%s\", filter_fqns=[", names[p->float8.recipe]);
    if (write_filter(p, false, to) < 0)
        return -1;
    fprintf(to, "], model_compile_enabled=%s)])\n", p->kernels == KERNELS_TORCH_COMPILE ? "True" : "False");
    return 0;
}
