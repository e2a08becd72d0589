/* engine_reduce.c -- a plan for more ranks than there are, made smaller: what a rank computes of a block stays as it is. */
#include "exec/engine/engine.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

/* Lists with an element for each layer: the first ones. */
static void shorter_lists(json_t *model, int64_t layers, int64_t left)
{
    static const char *const lists[] = { "layer_types", "mlp_layer_types", "moe_layer_freq", "no_rope_layers" };

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_t *v = json_object_get(model, lists[i]);
        if (json_is_array(v) && (int64_t)json_array_size(v) == layers)
            while ((int64_t)json_array_size(v) > left)
                json_array_remove(v, json_array_size(v) - 1);
    }
}

/* As many of the layers as ranks are left of those that share them: a rank's part of the model stays as large. */
static int fewer_layers(json_t *model, const struct plan *p, int64_t ranks, int64_t *left)
{
    static const char *const keys[] = { "num_hidden_layers", "n_layer", "num_layers", "n_layers" };
    bool shared = p->strategy != STRAT_DP && p->strategy != STRAT_DDP;

    *left = shared ? p->model.layers * ranks / p->cluster.world_size : p->model.layers;
    if (*left < p->parallel.pipeline)       /* a block for each stage; 1 where there is none */
        *left = p->parallel.pipeline;
    shorter_lists(model, p->model.layers, *left);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(model, keys[i]))
            return json_object_set_new(model, keys[i], json_integer(*left));
    return fail("--reduce: the model's config does not say its layers by a name that is known");
}

/* One node of so many ranks; whole copies of the model and runs of ranks that were larger are as large as it. */
static void fewer_ranks(json_t *doc, const struct plan *p, int64_t ranks)
{
    json_t *cluster = json_object_get(doc, "cluster");

    json_object_set_new(cluster, "nodes", json_integer(1));
    json_object_set_new(cluster, "gpus_per_node", json_integer(ranks));
    json_object_set_new(cluster, "world_size", json_integer(ranks));
    int64_t most = ranks / (p->parallel.tensor * p->parallel.pipeline);
    if (most > 0 && json_object_get(doc, "shard_group") && p->shard_group > most)
        json_object_set_new(doc, "shard_group", json_integer(most));
}

int engine_reduce(struct plan *p, int64_t ranks)
{
    int64_t world = p->cluster.world_size, layers = p->model.layers, left = layers;
    struct plan small;

    if (ranks >= world)
        return fail("--reduce %" PRId64 ": the plan has %" PRId64 " ranks", ranks, world);
    json_t *doc = plan_to_json(p);
    int rc = doc ? fewer_layers(json_object_get(doc, "model"), p, ranks, &left) : fail("out of memory for the reduced plan");
    if (rc == 0) {
        fewer_ranks(doc, p, ranks);
        rc = plan_from_json(doc, "--reduce: the smaller plan", &small);
    }
    json_decref(doc);
    if (rc < 0)
        return -1;
    plan_free(p);
    *p = small;
    fprintf(stderr, "dpx: reduced from %" PRId64 " ranks and %" PRId64 " layers to %" PRId64 " and %" PRId64 ": samples, sequence and shapes of a rank are the same. "
            "This shows kernels, activations and the order of collectives; not time over a network, nor the bytes of more ranks\n", world, layers, ranks, left);
    return 0;
}
