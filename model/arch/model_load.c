/* A model by what the user typed: a built-in name, a file or a folder, an id of the Hugging Face hub.  A folder of
 * the id's name, as a clone leaves it, is read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/notes.h"
#include "model/arch/builtin.h"
#include "model/arch/hf_notes.h"
#include "model/arch/hf_text.h"
#include "model/arch/recorded.h"
#include "model/arch/transformer.h"

/* DeepseekV3ForCausalLM leaves it out: its weights are for speculative decoding. */
static void note_prediction_layers(const json_t *config, const char *path)
{
    static const char *const keys[] = { "num_nextn_predict_layers", "num_mtp_layers" };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_int_t n = json_integer_value(json_object_get(config, keys[i]));
        if (n > 0)
            notes_say("dpx: %s: note: \"%s\" is %lld: transformers' model for training has no layers of multi-token prediction, nor has "
                      "ours (dialect megatron: megatron.mtp_num_layers)", path, keys[i], (long long)n);
    }
}

/* load_balancing_loss_func() of MixtralForCausalLM and those like it, which a coefficient above 0 alone does not switch on. */
static void note_balancing_loss(const json_t *config, const char *path, const struct model *m)
{
    const json_t *text = hf_has_text(config) ? json_object_get(config, "text_config") : config;

    if (json_is_true(json_object_get(text, "output_router_logits")))
        notes_say("dpx: %s: note: \"output_router_logits\" is true: transformers then adds the load-balancing loss of all routers "
                  "(\"router_aux_loss_coef\"); the logits and probabilities that it keeps, %lld numbers a token, are not counted", path,
                  (long long)(2 * (m->layers - m->dense_first) / (m->moe_every > 0 ? m->moe_every : 1) * m->experts));
}

/* gpt2, opt, bloom and mpt look at no head size. */
static void note_head_dim(const json_t *config, const char *path, const struct model *m)
{
    json_int_t stated = json_integer_value(json_object_get(config, "head_dim"));

    if (stated > 0 && stated != m->head_dim && m->kv_rank == 0 && !hf_has_text(config))
        notes_say("dpx: %s: note: \"head_dim\" is %lld: transformers' %s does not look at it, its heads have %lld numbers", path,
                  (long long)stated, m->family, (long long)m->head_dim);
}

static int load_file(const char *path, struct model *out)
{
    json_t *config = files_read_json_python(path);
    int rc;

    if (!config)
        return -1;
    if (json_object_get(config, "dpx_model")) {
        rc = recorded_model(config, path, path, out);
        json_decref(config);
        return rc;
    }
    rc = model_from_config(config, path, out);
    if (rc == 0 && hf_has_text(config))
        notes_say("dpx: %s: note: of this multimodal model the text model is taken: %s, %lld parameters",
                  path, out->family, (long long)out->params);
    if (rc == 0)
        hf_notes_say(config, path, out->family);
    if (rc == 0)
        note_head_dim(config, path, out);
    if (rc == 0 && out->kv_rank > 0)
        note_prediction_layers(config, path);
    if (rc == 0 && out->experts > 0)
        note_balancing_loss(config, path, out);
    json_decref(config);
    return rc;
}

static int load_folder(const char *path, struct model *out)
{
    size_t n = strlen(path), size = n + sizeof "/config.json";
    char *file = malloc(size);
    int rc;

    if (!file)
        return fail("out of memory for %s", path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    snprintf(file, size, "%.*s/config.json", (int)n, path);
    rc = load_file(file, out);
    free(file);
    return rc;
}

/* By its id, not by the name of a folder. */
static int load_cached(const char *id, const char *path, struct model *out)
{
    int rc = load_file(path, out);

    if (rc == 0) {
        snprintf(out->name, sizeof out->name, "%s", strrchr(id, '/') + 1);
        notes_say("dpx: %s: note: read from the Hugging Face cache, %s", id, path);
    }
    return rc;
}

/* A built-in by an id of the hub.  Of a multimodal model it is the text model. */
static int load_known(const char *id, const char *name, struct model *out)
{
    const char *known, *about = "";

    for (int i = 0; (known = model_builtin(i, &about)) && strcmp(known, name); i++)
        ;
    if (known && strstr(about, "its text model"))
        notes_say("dpx: %s: note: of this multimodal model the text model is taken: its towers for pictures, whose weights take memory too, are not planned", id);
    return builtin_load(name, out);
}

/* A file's or a folder's, by its looks: no id of the hub begins with / or . or ~ or ends like a file. */
static bool is_path(const char *spec)
{
    static const char *const ends[] = { ".json", ".yaml", ".yml", ".toml", ".sh", ".py", "/" };
    size_t n = strlen(spec);

    if (strchr("/.~", spec[0]))
        return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && !strcmp(spec + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

/* What is neither a name nor a file. */
static int unknown(const char *spec, int error)
{
    const char *near = hf_ids_nearest(spec);

    if (hf_unplanned(spec))
        return fail("%s: %s", spec, hf_unplanned(spec));
    if (is_path(spec))
        return fail("%s: %s", spec, strerror(error));
    return fail("%s: dpx knows no model of this name (%s%s%s), the Hugging Face cache has none, and %s%s%s",
                spec, near ? "did you mean " : "dpxplan list models shows them", near ? near : "", near ? "?" : "", error == ENOENT ? "there is no such file or folder" : "as a file or folder: ",
                error == ENOENT ? "" : strerror(error),
                strchr(spec, '/') ? "; its config.json is enough: `hf download MODEL config.json`, or --model config.json" : "");
}

int model_unknown(const char *spec) { return unknown(spec, ENOENT); }

/* "qwen2.5-7b:score": the name without its end, and which head that asks for. */
static enum head_kind head_of(const char *spec, size_t *n)
{
    static const struct { const char *end; enum head_kind head; } heads[] = { { ":score", HEAD_SCORE }, { ":value", HEAD_VALUE } };
    size_t length = strlen(spec);

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        *n = length - strlen(heads[i].end);
        if (length > strlen(heads[i].end) && !strcmp(spec + *n, heads[i].end))
            return heads[i].head;
    }
    return HEAD_LOGITS;
}

size_t model_name_length(const char *spec)
{
    size_t n;

    return head_of(spec, &n) == HEAD_LOGITS ? strlen(spec) : n;
}

static int load_with_head(const char *spec, size_t n, enum head_kind head, struct model *out)
{
    struct model plain;
    char *name = strndup(spec, n);
    int rc = name ? model_load(name, &plain) : fail("out of memory for %s", spec);

    free(name);
    if (rc < 0)
        return -1;
    rc = model_with_head(&plain, head, out);
    model_free(&plain);
    return rc;
}

int model_load(const char *spec, struct model *out)
{
    struct stat st;
    size_t n;
    enum head_kind head = head_of(spec, &n);

    if (head != HEAD_LOGITS)
        return load_with_head(spec, n, head, out);

    if (builtin_exists(spec))
        return builtin_load(spec, out);
    if (stat(spec, &st) < 0) {
        int error = errno;
        const char *known = hf_ids_find(spec);
        char path[1500];
        if (known)
            return load_known(spec, known, out);
        if (hf_cache_find(spec, path, sizeof path))
            return load_cached(spec, path, out);
        return unknown(spec, error);
    }
    return S_ISDIR(st.st_mode) ? load_folder(spec, out) : load_file(spec, out);
}
