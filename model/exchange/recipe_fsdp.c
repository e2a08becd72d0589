/* recipe_fsdp.c -- see recipe_fsdp.h.  transformers 5.24 (training_args.py, _process_fsdp_args(), _apply_legacy_fsdp_to_config());
 * axolotl (utils/schemas/validation.py, check_fsdp_version_in_fsdp_config(); utils/distributed.py, _get_parallel_config_kwargs()). */
#include "model/exchange/recipe_fsdp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/accelerate.h"

#define COUNT(list) (sizeof (list) / sizeof *(list))

bool recipe_fsdp_is_said(const json_t *fsdp)
{
    const json_t *word;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)fsdp, i, word)
        if (!json_is_string(word))
            return false;
    return !json_is_number(fsdp) && !json_is_object(fsdp);
}

void recipe_fsdp_words(const json_t *fsdp, char out[160])
{
    const json_t *word;
    size_t i, n = 0;

    snprintf(out, 160, "%s", json_is_string(fsdp) ? json_string_value(fsdp) : json_is_true(fsdp) ? "full_shard auto_wrap" : "");
    json_array_foreach((json_t *)(uintptr_t)fsdp, i, word)
        if (json_is_string(word) && n < 120)
            n += (size_t)snprintf(out + n, 160 - n, "%s%.32s", n ? " " : "", json_string_value(word));
}

static bool has(const char *words, const char *word)
{
    const char *at = strstr(words, word);
    size_t n = strlen(word);

    return at && (at == words || at[-1] == ' ' || at[-1] == ',') && (at[n] == '\0' || at[n] == ' ' || at[n] == ',');
}

/* accelerate's names have the prefix fsdp_, transformers' may. */
static json_t *renamed(const struct recipe_fsdp *of)
{
    json_t *to = json_object(), *v;
    const char *key;
    char name[96];

    json_object_foreach((json_t *)(uintptr_t)of->section, key, v) {
        const char *bare = strncmp(key, "fsdp_", 5) ? key : key + 5;
        if (!strcmp(bare, "offload_params") && of->form != RECIPE_AXOLOTL) {
            if (json_is_true(v))
                notes_add(of->notes, "fsdp_config: %s is not read by the Trainer, whose key is cpu_offload: parameters stay on the GPU", key);
            continue;
        }
        bare = strcmp(bare, "cpu_offload") ? bare : "offload_params";
        snprintf(name, sizeof name, "%s%.80s", strncmp(bare, "xla", 3) ? "fsdp_" : "", bare);
        json_object_set(to, name, v);
    }
    return to;
}

/* 1 or 2.  Who says neither gets FSDP2 since transformers 5.10, but axolotl pins 1 and LLaMA-Factory an older transformers. */
static int64_t version_of(const struct recipe_fsdp *of, json_t *to)
{
    const json_t *v = json_object_get(to, "fsdp_version");
    int64_t said = json_is_string(v) ? strtoll(json_string_value(v), NULL, 10) : json_integer_value(v);
    int64_t version = of->version > 0 ? of->version : said;

    if (version == 0) {
        version = of->form == RECIPE_AXOLOTL || of->form == RECIPE_FACTORY ? 1 : 2;
        if (version == 2)
            notes_add(of->notes, "fsdp_config has no version: FSDP2, the default since transformers 5.10 (before: FSDP1)");
    }
    json_object_set_new(to, "fsdp_version", json_integer(version));
    return version;
}

/* FSDPOption of transformers: "full_shard auto_wrap". */
static int check_words(const struct recipe_fsdp *of)
{
    static const char *const known[] = { "full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2", "offload", "auto_wrap", "true" };

    for (const char *at = of->words; at += strspn(at, " ,"), *at; at += strcspn(at, " ,")) {
        size_t n = strcspn(at, " ,"), i = 0;
        while (i < COUNT(known) && (strlen(known[i]) != n || strncmp(at, known[i], n) != 0))
            i++;
        if (i == COUNT(known))
            return fail("%s: fsdp: \"%.*s\" is none of transformers' words: full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2, "
                        "offload, auto_wrap", of->where, (int)n, at);
    }
    return 0;
}

static int set_strategy(const struct recipe_fsdp *of, int64_t version, json_t *to)
{
    static const char *const strategies[] = { "full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2" };
    static const char *const accelerates[] = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2" };

    if (check_words(of) < 0)
        return -1;
    for (size_t i = 0; i < COUNT(strategies); i++) {
        if (!has(of->words, strategies[i]))
            continue;
        if (version > 1 && i > 1)
            return fail("%s: fsdp: transformers has %s with FSDP1 alone: fsdp_config version 1", of->where, strategies[i]);
        if (version == 1)
            json_object_set_new(to, "fsdp_sharding_strategy", json_string(accelerates[i]));
        else if (!json_object_get(to, "fsdp_reshard_after_forward"))
            json_object_set_new(to, "fsdp_reshard_after_forward", json_boolean(i == 0));
    }
    return 0;
}

/* LLaMA-Factory's transformers wraps where it is told to, newer ones always. */
static void set_policy(const struct recipe_fsdp *of, json_t *to)
{
    if (json_object_get(to, "fsdp_auto_wrap_policy"))
        return;
    if (of->form != RECIPE_FACTORY || has(of->words, "auto_wrap") || json_object_get(to, "fsdp_transformer_layer_cls_to_wrap"))
        json_object_set_new(to, "fsdp_auto_wrap_policy", json_string("TRANSFORMER_BASED_WRAP"));
}

/* ---- axolotl's mesh ---- */

static int64_t size_in(const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);

    return json_is_integer(v) && json_integer_value(v) > 1 ? (int64_t)json_integer_value(v) : 1;
}

static int64_t size_of(const struct recipe_fsdp *of, const char *key) { return size_in(of->config, key); }

/* The sizes as axolotl fills them in; NULL: none is asked for. */
static json_t *mesh(const struct recipe_fsdp *of)
{
    int64_t tensor = size_of(of, "tensor_parallel_size"), replicate = size_of(of, "dp_replicate_size"), shard = size_of(of, "dp_shard_size");
    int64_t expert = size_of(of, "expert_parallel_size"), rest = of->ranks / tensor / expert;

    if (of->form != RECIPE_AXOLOTL || (tensor == 1 && replicate == 1 && shard == 1))
        return NULL;
    if (shard == 1)
        shard = rest > replicate ? rest / replicate : 1;
    else if (replicate == 1)
        replicate = rest > shard ? rest / shard : 1;
    shard *= expert;                /* ranks with other experts take other samples, and share all else (monkeypatch/accelerate/parallelism_config.py) */
    return json_pack("{s:I, s:I, s:I}", "parallelism_config_tp_size", (json_int_t)tensor, "parallelism_config_dp_replicate_size",
                     (json_int_t)replicate, "parallelism_config_dp_shard_size", (json_int_t)shard);
}

json_t *recipe_fsdp_document(const struct recipe_fsdp *of)
{
    json_t *to = renamed(of), *sizes = mesh(of), *doc;
    int64_t version = version_of(of, to);

    if (set_strategy(of, version, to) < 0) {
        json_decref(sizes);
        json_decref(to);
        return NULL;
    }
    if (has(of->words, "offload"))
        json_object_set_new(to, "fsdp_offload_params", json_true());
    set_policy(of, to);
    doc = json_pack("{s:s, s:s, s:o}", "distributed_type", "FSDP", "mixed_precision", of->mixed, "fsdp_config", to);
    if (sizes)
        json_object_set_new(doc, "parallelism_config", sizes);
    return doc;
}

void recipe_fsdp_experts(const json_t *config, enum recipe_form form, struct plan *p, struct notes *notes)
{
    int64_t n = size_in(config, "expert_parallel_size");
    bool alone = size_in(config, "tensor_parallel_size") == 1 && size_in(config, "context_parallel_size") == 1;

    if (form != RECIPE_AXOLOTL || n == 1 || size_in(config, "dp_shard_size") == 1 || !alone || p->strategy != STRAT_FSDP || p->dialect != DIALECT_TORCH)
        return;
    p->parallel.expert = n;
    p->fsdp.root_units = ROOT_TOGETHER;
    notes_add(notes, "expert_parallel_size: routers, experts and their exchange are planned as torchtitan computes them, embedding and head in the root: axolotl's "
              "exchange is DeepEP's, its experts are transformers'");
}

/* `meshes`: the recipe's sizes make FSDP2's mesh. */
static int check_experts(const json_t *config, const char *where, bool meshes, const struct plan *p)
{
    const json_t *said = json_object_get(config, "expert_parallel_size");
    int64_t n = size_in(config, "expert_parallel_size"), shard = size_in(config, "dp_shard_size");

    if (said && !json_is_integer(said) && !json_is_null(said))
        return fail("%s: expert_parallel_size: expected a number", where);
    if (n > 1 && (!meshes || p->parallel.expert <= 1))
        return fail("%s: expert_parallel_size: planned beside FSDP2 (fsdp_version 2) with dp_shard_size alone: without it axolotl leaves each rank's experts to "
                    "no wrapper", where);
    if (n > 1 && n * shard != p->cluster.world_size)
        return fail("%s: expert_parallel_size %" PRId64 " x dp_shard_size %" PRId64 " are not the cluster's %" PRId64 " GPUs, as axolotl wants them to be", where, n,
                    shard, p->cluster.world_size);
    return 0;
}

int recipe_fsdp_check_mesh(const json_t *config, enum recipe_form form, const char *where, const struct plan *p)
{
    static const struct { const char *key, *why; } never[] = {
        { "context_parallel_size", "ranks would share positions" }, { "sequence_parallel_degree", "ranks would share positions" },
        { "expert_model_parallel_size", "ranks would share experts" },
        { "tensor_model_parallel_size", "ranks would share tensors" }, { "pipeline_model_parallel_size", "ranks would share layers" },
    }, meshes[] = {
        { "tensor_parallel_size", "ranks would share tensors" }, { "dp_shard_size", "ranks would share shards" },
        { "dp_replicate_size", "groups of ranks would be copies" },
    };
    bool mesh = form == RECIPE_AXOLOTL && p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH;

    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (size_in(config, never[i].key) > 1)
            return fail("%s: %s: %s, which is not modelled of a recipe", where, never[i].key, never[i].why);
    for (size_t i = 0; !mesh && i < sizeof meshes / sizeof *meshes; i++)
        if (size_in(config, meshes[i].key) > 1)
            return fail("%s: %s: %s: planned of axolotl with fsdp_version 2 alone", where, meshes[i].key, meshes[i].why);
    return check_experts(config, where, mesh, p);
}

/* axolotl's own fsdp2_prepare_model() (monkeypatch/accelerate/fsdp2.py) has the wrap policy's units and one root, which it tells to reshard as it tells them. */
void recipe_fsdp_root(enum recipe_form form, struct plan *p, struct notes *notes)
{
    if (form != RECIPE_AXOLOTL) {
        accelerate_root_units(p, notes);
        return;
    }
    p->fsdp.root_units = ROOT_TOGETHER;
    if (p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH)
        p->fsdp.root_reshard_after_forward = p->fsdp.reshard_after_forward < 0 ? 1 : p->fsdp.reshard_after_forward;
}
