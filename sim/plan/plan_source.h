/* plan_source.h -- a plan as a command line names it: a file or standard input, with some of its keys changed.
 *
 *     struct opt_pairs set = { 0 };            from `--set seq=8k nodes=4`
 *     struct plan p;
 *     if (plan_source_given(&(struct plan_given){ .path = "plan.json" }, &set, &p) < 0)
 *         return 2;
 *
 * A change keeps what the plan's file says, whatever it changes beside that, and lets the rest follow: with another precision or number of
 * nodes, keys that hold their default take the new one.  Of a file that says everything (dpx wrote it, with its defaults) those that hold
 * their default follow as well, but for what another framework_version has another default of.  With another strategy or dialect all that
 * hold their default follow but numbers of the training (clip, dropout) that the file says.  Keys that the new strategy or dialect has not
 * are left out, and said in one line; where the changes themselves name one it is refused.
 *
 * A plan that is refused is changed as it is written: it may be accepted then.
 *
 * Keys are those of plan.json ("fsdp.reshard_after_forward", "cluster.inter.gb_per_s") and
 *     nodes, gpus_per_node, gpu   the cluster's shape; another GPU type comes with its usual node and network
 *     network                     Gbit/s of a node, all adapters together: cluster.inter.gbit_per_s
 *     memory, headroom            cluster.memory_bytes, cluster.headroom
 *     host_memory, node.*         cluster.node.memory_bytes, cluster.node.*
 *     global_batch                samples of an optimizer step, by the accumulation */
#ifndef DPX_PLAN_SOURCE_H
#define DPX_PLAN_SOURCE_H

#include "base/opts.h"
#include "model/plan/plan.h"

/* A plan by the name of its file, or the document itself (with both the document was read from there); a file of another form (form.h) takes its cluster, and what it
 * leaves out, from options; so does a model, by its name or its config.json: its plan is the one that search recommends. */
struct plan_given {
    const char *path, *model, *cluster;
    const struct json_t *doc, *model_doc, *cluster_doc;
    int64_t seq, global_batch;      /* 0: not given */
};

/* Rows of the options that go with such a file. */
#define PLAN_GIVEN_OPTS(g) \
    { "cluster", "where PLAN is a model, a recipe, a config or a command of a framework: on which GPUs, such as 8xh100", .str = &(g).cluster, \
      .doc = &(g).cluster_doc, .names = cluster_builtin, .value = "CLUSTER", .bare = true, .bare_if = cluster_is_spec, .often = true }, \
    { "seq", "likewise: tokens per sample, where the file does not say (of a model 4096)", .length = &(g).seq, .min = 1, .often = true }, \
    { "global-batch", "likewise: samples of an optimizer step (of a model 64, or more on more GPUs)", .i = &(g).global_batch, .min = 1, .often = true }, \
    { "model", "where PLAN is a recipe or a config: its model, where the file names none", .str = &(g).model, .doc = &(g).model_doc, .names = model_builtin, \
      .value = "MODEL" }

/* What is given: 0, and the document of a plan.json in *written (new reference), named *where; 1, and the plan of a file of another form
 * in *out; or -1 with the reason reported. */
int plan_given_read(const struct plan_given *given, json_t **written, const char **where, struct plan *out);

/* The plan that is given, with these changes (NULL: none).  0, or -1 with the reason reported. */
int plan_source_given(const struct plan_given *given, const struct opt_pairs *set, struct plan *out);

/* `base` with changes "KEY=VALUE"; plan_free() the result, which shares nothing.  0, or -1 reported. */
int plan_source_with(const struct plan *base, const char *const *pairs, int n, struct plan *out);

/* One change of a cluster: keys nodes, gpus_per_node, gpu, network, memory, headroom, and cluster.* ; *out may be
 * *base.  0, or -1 reported. */
int plan_source_cluster(const struct cluster *base, const char *pair, struct cluster *out);

/* The document with what departs from defaults, and what a plan must have (new reference). */
json_t *plan_source_brief(const struct plan *p);

/* The key of "KEY=VALUE" as plan.json calls it, in `key`; the value. */
const char *plan_source_split(const char *pair, char *key, size_t size);

/* 0, or -1 with an unknown key refused and the nearest named. */
int plan_source_check_key(const char *key);

#endif
