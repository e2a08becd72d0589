/* search_args.h -- the question that search, sweep and init ask: its options, and what they stand for.
 *
 *     struct search_args a = SEARCH_ARGS;
 *     const struct opt opts[] = { SEARCH_OPTS(a, true), ..., { 0 } };
 *     ... opts_parse() ...
 *     struct question q;
 *     int rc = search_args_load(&a, &q);
 *     if (rc != EXIT_DONE)
 *         return rc;
 *     ... search(&q.options, &result) ...
 *     search_question_free(&q); */
#ifndef DPX_SEARCH_ARGS_H
#define DPX_SEARCH_ARGS_H

#include <stdio.h>

#include "model/exchange/export.h"
#include "base/size.h"
#include "model/plan/knob.h"
#include "model/plan/optimizer_choice.h"
#include "sim/plan/named.h"
#include "sim/search/search.h"

/* What trains: adapters of a rank (0: everything), of these layers (NULL: all linear ones), beside a model kept in enum base_dtype;
 * and what steps it. */
struct search_tuned {
    int64_t     lora;
    const char *targets, *saves;    /* saves: modules that train whole beside them; NULL: none */
    double      dropout;
    int         base;
    struct optimizer_choice optimizer;
};
#define SEARCH_TUNED { .optimizer = OPTIMIZER_CHOICE }

struct search_args {
    const char *model, *cluster, *db;
    const struct json_t *model_doc, *cluster_doc;       /* in the place of names */
    int64_t  seq, global_batch, micro_batch, memory, host_memory, threads;
    double   headroom;
    int      framework, dialect, kernels, precision, recompute, loss, export_to;        /* -1: not given */
    uint64_t strategies;
    bool     in_place, grid, no_grid;
    struct search_tuned tuned;
};

enum { FRAMEWORK_TORCH, FRAMEWORK_DEEPSPEED, FRAMEWORK_ANY, FRAMEWORK_MEGATRON };

#define SEARCH_ARGS { .framework = FRAMEWORK_ANY, .dialect = -1, .kernels = -1, .precision = -1, .recompute = NRECOMPUTE, .loss = -1, \
                      .headroom = -1, .export_to = -1, .tuned = SEARCH_TUNED }

/* The number format where none is asked for: bf16, or what the GPU has in its place. */
enum dtype search_precision(const struct gpu *g);

/* Words of the options, ended by NULL. */
/* The dialects that run in a framework, as bits; any: in one of them. */
uint64_t search_framework_dialects(int framework);
extern const char *const search_frameworks[], *const search_strategies[], *const search_dialects[],
                  *const search_recomputes[];

#define SEARCH_TUNED_OPTS(a) \
    { "lora", "train LoRA adapters of this rank beside the frozen model", .i = &(a).lora, .min = 1, .group = SEARCH_TRAINS }, \
    { "lora-targets", "layers that get them, such as q_proj,v_proj (all linear layers)", .str = &(a).targets, .value = "NAMES", .group = SEARCH_TRAINS }, \
    { "lora-dropout", "dropout of what the adapters read", .num = &(a).dropout, .group = SEARCH_TRAINS }, \
    { "lora-save", "modules that train whole beside them, such as lm_head", .str = &(a).saves, .value = "NAMES", .group = SEARCH_TRAINS }, \
    { "base-dtype", "what the frozen model's blocks are kept in; with torchao's int4 nothing trains", .word = &(a).base, .words = knob_words("base_dtype"), .group = SEARCH_TRAINS }, \
    { "optimizer", "only plans with this optimizer, as plan.json names it (adamw)", .word = &(a).optimizer.optimizer, .words = knob_words("optimizer"), .group = SEARCH_TRAINS }, \
    { "optimizer-form", "only plans that can have this form of it (foreach; search takes fused where memory is short)", .word = &(a).optimizer.form, .words = knob_words("optimizer_form"), .group = SEARCH_TRAINS }

/* Headings of --help. */
#define SEARCH_TRAINS "What trains"
#define SEARCH_TRIES  "What may be tried"
#define SEARCH_GPUS   "The GPUs"

/* `must`: model and cluster are required, and may stand without their names; `usual`: they are what most people use. */
#define SEARCH_OPTS_AS(a, must, usual) \
    { "model", "a built-in name, a Hugging Face id of one, a config.json or its folder", .str = &(a).model, .doc = &(a).model_doc, .names = model_builtin, .required = must, .bare = must, .often = usual, .value = "MODEL" }, \
    { "cluster", "a cluster file, a built-in name, 4x8xh100, localhost", .str = &(a).cluster, .doc = &(a).cluster_doc, .names = cluster_builtin, .required = must, .bare = must, .bare_if = must ? cluster_is_spec : NULL, .often = usual, .value = "CLUSTER" }, \
    { "seq", "tokens per sample, such as 8192 or 8k (4096, or fewer where the model takes fewer)", .length = &(a).seq, .min = 1, .often = usual }, \
    { "global-batch", "samples per optimizer step (64, or more on more GPUs)", .i = &(a).global_batch, .min = 1, .often = usual }, \
    { "framework", "what you can run: torch, deepspeed, megatron, or any of them (any)", .word = &(a).framework, .words = search_frameworks, .often = usual, .value = "FRAMEWORK", .group = SEARCH_TRIES }, \
    { "export-to", "only plans that this tool can run", .word = &(a).export_to, .words = export_targets, .group = SEARCH_TRIES }, \
    { "strategy", "only these, such as ddp,fsdp", .set = &(a).strategies, .words = search_strategies, .group = SEARCH_TRIES }, \
    { "dialect", "only this dialect", .word = &(a).dialect, .words = search_dialects, .group = SEARCH_TRIES }, \
    { "kernels", "kernel set (what transformers picks for the model)", .word = &(a).kernels, .words = knob_words("kernels"), .group = SEARCH_TRIES }, \
    { "micro-batch", "only this micro-batch", .i = &(a).micro_batch, .min = 1, .group = SEARCH_TRIES }, \
    { "precision", "number format (bf16, or fp16 where the GPU has no bf16)", .word = &(a).precision, .words = knob_words("precision"), .group = SEARCH_TRIES }, \
    { "recompute", "activation recompute: none, selective, full, all of these, or op (torchtitan's selective op)", .word = &(a).recompute, .words = search_recomputes, .group = SEARCH_TRIES }, \
    { "loss", "only plans with this loss, such as fused-linear, Liger-Kernel's without logits (what the framework does)", .word = &(a).loss, .words = knob_words("loss"), .group = SEARCH_TRIES }, \
    { "no-offload", "keep states, parameters and activations in device memory", .flag = &(a).in_place, .group = SEARCH_TRIES }, \
    { "grid", "plans with tensor, context and pipeline parallelism, of every dialect that has them (torch, megatron, deepspeed, paper), and nothing else", .flag = &(a).grid, .group = SEARCH_TRIES }, \
    { "no-grid", "no tensor, context or pipeline parallelism (they are searched where dialect torch or megatron may run)", .flag = &(a).no_grid, .group = SEARCH_TRIES }, \
    SEARCH_TUNED_OPTS((a).tuned), \
    { "memory", "bytes of a rank, instead of the cluster's", .bytes = &(a).memory, .min = MEMORY_LEAST, .group = SEARCH_GPUS }, \
    { "host-memory", "bytes of a node's host memory, instead of the cluster's", .bytes = &(a).host_memory, .min = MEMORY_LEAST, .group = SEARCH_GPUS }, \
    { "headroom", "share of memory kept free", .num = &(a).headroom, .group = SEARCH_GPUS }, \
    { "db", "the database of calibrations", .str = &(a).db, .value = "FILE", .group = SEARCH_GPUS }, \
    { "threads", "threads (all cores)", .i = &(a).threads, .min = 1 }
#define SEARCH_OPTS(a, must) SEARCH_OPTS_AS(a, must, must)

struct question {
    struct model   model;
    struct cluster cluster;
    struct search_options options;
    struct optimizer_choice optimizer;
    enum loss_kind loss;
    bool           chosen;          /* the precision was not asked for */
};

/* Tokens of a sample and samples of a step where a question leaves them open: SEARCH_SEQ, or what the model takes where that is less;
 * SEARCH_BATCH, or as many more as that many ranks share evenly. */
enum { SEARCH_SEQ = 4096, SEARCH_BATCH = 64 };
int64_t search_usual_seq(const struct model *m);
int64_t search_usual_batch(int64_t ranks);

/* EXIT_DONE, or the exit status with the reason reported and nothing to free. */
int  search_args_load(const struct search_args *a, struct question *q);
void search_question_free(struct question *q);

/* The same of a model and a cluster at hand (q->model is shared, not freed). */
int  search_args_options(const struct search_args *a, const struct model *m, const struct cluster *c, struct question *q);

/* Which grids a search looks at where neither --grid nor --no-grid says: search, init and every point of a sweep. */
void search_args_grid(const struct search_args *a, struct search_options *o);

/* The model becomes what trains so.  0, or -1 reported. */
int search_tune(const struct search_tuned *a, struct model *m);

#endif
