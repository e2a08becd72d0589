/* print_plans.c -- plan.json documents for compare.sh, one a line: every cell of the strategy
 * and dialect table in every precision, with the other keys at their defaults or drawn from the
 * table of keys; a third of them over meshes, of mixtures and other families, or with adapters.
 * The same seed gives the same plans.
 *
 *     print_plans COUNT
 *
 * Model and cluster are named, not embedded, so that a change to how either is read or written
 * shows in the comparison. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/arch/transformer.h"
#include "tests/model/random_plan.h"

static const char *const models[] = { "gpt2", "gpt-lite", "llama-3.2-1b", "llama-3.1-8b", "opt-1.3b",
                                      "qwen2.5-0.5b", "qwen3-1.7b", "gpt3-13b" };
/* Ranks on cores, as localhost is, but with memory that does not vary. */
#define HOST "{\"name\": \"cores\", \"host\": true, \"nodes\": 2, \"gpus_per_node\": 2, \"gpu\": {\"name\": \"cpu\"," \
             "\"memory_bytes\": 12000000000}, \"intra\": {\"gb_per_s\": 5}, \"inter\": {\"gb_per_s\": 1, \"nics\": 1}}"
static const char *const clusters[] = { "h100", "2xh100", "3xa100", "8xh100", "2x2xa100-80gb", "4x8xh100",
                                        "3x8xh100", "2x6xh100", "16x8xh200", HOST };
enum { NMODELS = sizeof models / sizeof *models, NCLUSTERS = sizeof clusters / sizeof *clusters };

/* Those of meshes and of adapters: ranks that share the model's tensors, sequence, layers or experts. */
static const char *const shared_models[] = { "llama-3.2-1b", "qwen3-0.6b", "gemma-3-4b", "olmo-2-7b", "falcon-7b", "mixtral-8x7b",
                                             "qwen3-30b-a3b", "moonlight-16b-a3b", "gpt-oss-20b", "granite-3.0-1b-a400m" };
static const char *const shared_clusters[] = { "8xh100", "4x8xh100", "2x2xa100-80gb", "16x8xh200" };
enum { NSHARED = sizeof shared_models / sizeof *shared_models, NSHARED_CLUSTERS = sizeof shared_clusters / sizeof *shared_clusters };

static const int64_t seqs[] = { 64, 512, 1000, 2048 };

/* A cluster's name, or the document that it is. */
static json_t *cluster_document(const char *cluster)
{
    return cluster[0] == '{' ? json_loads(cluster, 0, NULL) : json_string(cluster);
}

static int load_cluster(const char *cluster, struct cluster *out)
{
    json_t *j = cluster_document(cluster);
    int rc = json_is_string(j) ? cluster_load(cluster, out) : cluster_from_json(j, "HOST", out);

    json_decref(j);
    return rc;
}

/* The document without what model and cluster embed. */
static void print(const struct plan *p, const char *model, const char *cluster)
{
    json_t *j = plan_to_json(p);

    json_object_set_new(j, "model", json_string(model));
    json_object_set_new(j, "cluster", cluster_document(cluster));
    json_dumpf(j, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(j);
}

/* Hybrid sharding, in groups that divide the world but not always the nodes. */
static void draw_shard_group(struct plan *p, uint64_t *rng)
{
    int64_t world = p->cluster.world_size, n = 1 + draw(rng, (uint32_t)world);

    if (!plan_group_is_choice(p->strategy, p->dialect))
        return;
    while (world % n)
        n--;
    p->shard_group = n;
    if (p->dialect == DIALECT_TORCH_FSDP1)
        p->fsdp.sharding_strategy = draw(rng, 2) ? FSDP1_HYBRID_SHARD : FSDP1_HYBRID_SHARD_ZERO2;
}

/* A plan of this cell and precision; `plain` leaves every other key at its default.  False, with
 * nothing printed, where the drawn options exclude each other. */
static bool print_one(const char *model, const char *cluster, enum strategy s, enum dialect d,
                      enum dtype t, bool plain, uint64_t *rng)
{
    char why[512];
    struct plan p = { 0 };
    bool good;
    const struct knob *k;

    if (model_load(model, &p.model) < 0 || load_cluster(cluster, &p.cluster) < 0)
        exit(1);
    p.seq = seqs[draw(rng, 4)];
    p.micro_batch = 1 + draw(rng, 4);
    plan_defaults(&p, s, d, t);
    for (int i = 0; !plain && (k = knob_at(i)); i++)
        if ((k->cells & CELL(s, d)) && strcmp(k->name, "precision") && strcmp(k->name, "seq"))
            draw_key(&p, k, rng);
    if (p.ddp.model_dtype >= 0)
        p.ddp.model_dtype = (int)p.precision;
    p.micro_batch = p.micro_batch ? p.micro_batch : 1;
    if (!plain && draw(rng, 2))
        draw_shard_group(&p, rng);
    plan_resolve(&p);
    fail_capture(why, sizeof why);
    good = plan_check(&p, "drawn") == 0;
    if (good)
        print(&p, model, cluster);
    fail_capture(NULL, 0);
    plan_free(&p);
    return good;
}

/* A plan of this cell whose ranks share more than data, or of which not everything trains. */
static bool print_shared(enum strategy s, enum dialect d, uint64_t *rng)
{
    const char *model = shared_models[draw(rng, NSHARED)], *cluster = shared_clusters[draw(rng, NSHARED_CLUSTERS)];
    struct model whole, m;
    struct cluster c;
    struct plan p;
    bool good;

    if (model_load(model, &whole) < 0 || cluster_load(cluster, &c) < 0)
        exit(1);
    draw_model(&whole, rng, &m);
    model_free(&whole);
    good = draw_plan_of(&m, &c, rng, s, d, &p);
    if (good)
        print(&p, model, cluster);
    model_free(&m);
    return good;
}

int main(int argc, char **argv)
{
    int64_t count = argc > 1 ? strtoll(argv[1], NULL, 10) : 4000;
    uint64_t rng = 20261122;

    for (int64_t i = 0; i < count; )
        for (int cell = 0; cell < NSTRATEGY * NDIALECT * 3 && i < count; cell++) {
            enum strategy s = (enum strategy)(cell / 3 % NSTRATEGY);
            enum dialect d = (enum dialect)(cell / 3 / NSTRATEGY);

            if (!dialect_has(d, s))
                continue;
            if (draw(&rng, 3) == 0)
                i += print_shared(s, d, &rng);
            else
                i += print_one(models[draw(&rng, NMODELS)], clusters[draw(&rng, NCLUSTERS)], s, d,
                          (enum dtype)(cell % 3), draw(&rng, 4) == 0, &rng);
        }
    return 0;
}
