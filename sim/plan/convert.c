/* convert.c -- a config of a framework into a plan, and a plan into the text of a config. */
#include "sim/plan/convert.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/yaml.h"
#include "model/exchange/accelerate.h"
#include "model/exchange/ds_config.h"
#include "model/exchange/megatron_import.h"
#include "model/exchange/recipe.h"
#include "model/exchange/titan_import.h"
#include "sim/plan/commands.h"

static int load_cluster(const struct import_args *a, struct cluster *out)
{
    if (search_cluster_load(a->cluster, a->cluster_doc, out) < 0)
        return -1;
    if (a->host_memory)
        out->node.memory = a->host_memory;
    return 0;
}

/* *said: the config itself says how many micro-steps a step has. */
static int import_deepspeed(const struct import_args *a, struct plan *p, bool *said)
{
    json_t *j = a->ds_doc ? json_incref((json_t *)a->ds_doc) : files_read_json_file(a->ds);
    int rc;

    if (!j)
        return -1;
    *said = json_is_integer(json_object_get(j, "gradient_accumulation_steps")) ||
            json_is_integer(json_object_get(j, "train_batch_size"));
    rc = ds_config_import(j, a->ds_doc ? "ds_config" : a->ds, p);
    json_decref(j);
    return rc;
}

static int import_accelerate(const struct import_args *a, struct plan *p)
{
    return a->accelerate_doc ? accelerate_import(a->accelerate_doc, "accelerate", p) : accelerate_import_file(a->accelerate, p);
}

/* What a step's samples say of the micro-steps, before the config is read: what it says itself must agree. */
static int by_global_batch(int64_t batch, struct plan *p)
{
    int64_t each = p->cluster.world_size * (p->micro_batch ? p->micro_batch : 1);

    if (!batch)
        return 0;
    if (p->accumulation)
        return fail("import: --global-batch and --accumulation say the same: give one of them");
    if (batch % each)
        return fail("import: --global-batch %lld is not a multiple of %lld ranks%s", (long long)batch,
                    (long long)p->cluster.world_size, p->micro_batch ? " x the micro-batch" : "");
    if (p->micro_batch)
        p->accumulation = batch / each;
    return 0;
}

/* What the file left out. */
static int complete(struct plan *p, int64_t batch, bool said, int recompute)
{
    int64_t each = p->cluster.world_size * p->micro_batch;

    if (recompute >= 0) {
        p->recompute = (enum recompute)recompute;
        p->recompute_interval = 1;
    }
    if (batch && plan_global_batch(p) != batch && !said && batch % each == 0)
        p->accumulation = batch / each;
    if (batch && plan_global_batch(p) != batch)
        return fail("import: --global-batch %lld, but the config makes it %lld (micro-batch %lld x accumulation %lld x "
                    "%lld ranks)", (long long)batch, (long long)plan_global_batch(p), (long long)p->micro_batch,
                    (long long)p->accumulation, (long long)p->cluster.world_size);
    return plan_check(p, "import");
}

/* Its own batches count; the options of other frameworks that leave them open do not go with it. */
static int import_titan(const struct import_args *a, struct plan *out)
{
    struct plan p = { .seq = a->seq };
    json_t *config = a->titan_doc ? json_incref((json_t *)a->titan_doc) : titan_read_file(a->titan);
    const char *where = a->titan_doc ? "torchtitan" : a->titan, *own = titan_model(config);
    int rc = -1;

    if (config && (a->micro_batch || a->accumulation || a->global_batch || a->precision >= 0 || a->recompute >= 0))
        fail("import: --micro-batch, --accumulation, --global-batch, --precision and --recompute are in torchtitan's config");
    else if (config && !own && !a->model && !a->model_doc)
        fail("%s: model: no built-in model is its name and flavor: give --model", where);
    else if (config && search_model_load(a->model || a->model_doc ? a->model : own, a->model_doc, &p.model) == 0)
        rc = load_cluster(a, &p.cluster) < 0 ? -1 : titan_import(config, where, &p);
    json_decref(config);
    if (rc < 0) {
        plan_free(&p);
        return EXIT_MISUSE;
    }
    *out = p;
    return EXIT_DONE;
}

/* All but model and cluster are in the options. */
static int import_megatron(const struct import_args *a, struct plan *out)
{
    struct plan p = { .seq = a->seq };
    json_t *options = a->megatron_doc ? json_incref((json_t *)a->megatron_doc) : megatron_import_file(a->megatron);
    int rc = -1;

    if (options && (a->micro_batch || a->accumulation || a->global_batch || a->precision >= 0 || a->recompute >= 0))
        fail("import: --micro-batch, --accumulation, --global-batch, --precision and --recompute are in Megatron-LM's options");
    else if (options && !a->model && !a->model_doc)
        fail("import: --model: required: Megatron-LM's options name none");
    else if (options && search_model_load(a->model, a->model_doc, &p.model) == 0)
        rc = load_cluster(a, &p.cluster) < 0 ? -1 : megatron_import(options, a->megatron_doc ? "megatron" : a->megatron, &p);
    json_decref(options);
    if (rc < 0) {
        plan_free(&p);
        return EXIT_MISUSE;
    }
    *out = p;
    return EXIT_DONE;
}

/* A recipe says all but the cluster; what is given of the batch and the samples' length takes its place. */
static int import_recipe(const struct import_args *a, struct plan *out)
{
    struct plan p = { .seq = a->seq, .micro_batch = a->micro_batch, .accumulation = a->accumulation };
    json_t *config = a->recipe_doc ? json_incref((json_t *)a->recipe_doc) : yaml_read_file(a->recipe);    /* JSON is YAML too */
    const char *where = a->recipe_doc ? "recipe" : a->recipe, *own = config ? recipe_model(config) : NULL;
    int rc = -1;

    if (config && (a->global_batch || a->precision >= 0 || a->recompute >= 0))
        fail("import: --global-batch, --precision and --recompute are in the recipe");
    else if (config && !own && !a->model && !a->model_doc)
        fail("%s: %s's recipe names no model: give --model", where, recipe_form_name(recipe_form(config)));
    else if (config && search_model_load(a->model || a->model_doc ? a->model : own, a->model_doc, &p.model) == 0)
        rc = load_cluster(a, &p.cluster) < 0 ? -1 : recipe_import(config, where, &p);
    json_decref(config);
    if (rc < 0) {
        plan_free(&p);
        return EXIT_MISUSE;
    }
    *out = p;
    return EXIT_DONE;
}

int convert_import(const struct import_args *a, struct plan *out)
{
    struct plan p = { .seq = a->seq, .micro_batch = a->micro_batch, .accumulation = a->accumulation };
    bool ds = a->ds || a->ds_doc, titan = a->titan || a->titan_doc, recipe = a->recipe || a->recipe_doc, said = false;
    bool megatron = a->megatron || a->megatron_doc;

    if (ds + titan + recipe + megatron + (a->accelerate || a->accelerate_doc) != 1) {
        fail("import: give one of --ds-config, --accelerate, --torchtitan, --megatron and --recipe");
        return EXIT_MISUSE;
    }
    if (recipe)
        return import_recipe(a, out);
    if (megatron)
        return import_megatron(a, out);
    if (titan)
        return import_titan(a, out);
    if (!(a->model || a->model_doc) || a->seq == 0) {
        fail("import: --%s: required", a->seq == 0 ? "seq" : "model");
        return EXIT_MISUSE;
    }
    if (a->precision >= 0)
        p.precision = (enum dtype)a->precision;
    if (search_model_load(a->model, a->model_doc, &p.model) < 0)
        return EXIT_MISUSE;
    if (load_cluster(a, &p.cluster) < 0 || by_global_batch(a->global_batch, &p) < 0 ||
        (ds ? import_deepspeed(a, &p, &said) : import_accelerate(a, &p)) < 0 ||
        complete(&p, a->global_batch, said, a->recompute) < 0) {
        plan_free(&p);
        return EXIT_MISUSE;
    }
    *out = p;
    return EXIT_DONE;
}

int convert_export(const struct export_args *a, char **text)
{
    struct plan p;
    size_t size;

    if (plan_source_given(&a->plan, NULL, &p) < 0)
        return EXIT_MISUSE;
    *text = NULL;
    FILE *f = open_memstream(text, &size);
    if (!f)
        abort();
    int rc = export_plan(&p, a->to, f) < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (fclose(f) != 0)
        abort();
    plan_free(&p);
    if (rc != EXIT_DONE)
        free(*text);
    return rc;
}
