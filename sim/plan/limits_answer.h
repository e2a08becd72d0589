/* limits_answer.h -- how far each strategy reaches: the question, its rows, and the answer as a document.  dpxplan limits and
 * dpx_limits() are both this.
 *
 *     struct limits_asked a = LIMITS_ASKED;
 *     const struct opt opts[] = { LIMITS_OPTS(a), { 0 } };
 *     ... opts_parse() or opts_json() ...
 *     int rc = limits_answer(&a, print_row, NULL);         or limits_json(&a, &doc) */
#ifndef DPX_LIMITS_ANSWER_H
#define DPX_LIMITS_ANSWER_H

#include "base/opts.h"
#include "base/size.h"
#include "model/plan/knob.h"
#include "sim/plan/money.h"
#include "sim/plan/search_args.h"
#include "sim/search/limits.h"

struct limits_asked {
    const char *cluster, *model;
    const struct json_t *cluster_doc, *model_doc;       /* in the place of names */
    int64_t memory, host_memory, world, seq, accumulation;
    int     framework, dialect, kernels, precision, recompute, elsewhere;       /* -1: not given */
    bool    states_only;
    struct search_tuned tuned;
    struct money_question money;
};

#define LIMITS_ASKED { .accumulation = 1, .framework = -1, .dialect = -1, .kernels = -1, .precision = -1, .recompute = -1, .tuned = SEARCH_TUNED, .money = MONEY_NONE }
extern const char *const limits_dialects[];
#define LIMITS_OPTS(a) \
    OPTS_EXAMPLE("dpxplan limits llama-3.1-8b 8xh100 --seq 8k"), \
    OPTS_EXAMPLE("dpxplan limits --states-only --memory 80GB --world 64"), \
    { "model", "the family whose number of blocks is varied", .str = &(a).model, .doc = &(a).model_doc, .names = model_builtin, .bare = true, .often = true, .value = "MODEL" }, \
    { "cluster", "a cluster file, a built-in name, 4x8xh100", .str = &(a).cluster, .doc = &(a).cluster_doc, .names = cluster_builtin, .bare = true, .bare_if = cluster_is_spec, .often = true, .value = "CLUSTER" }, \
    { "memory", "bytes of a rank, instead of the cluster's", .bytes = &(a).memory, .min = MEMORY_LEAST, .group = SEARCH_GPUS }, \
    { "host-memory", "bytes of a node's host memory, instead of the cluster's", .bytes = &(a).host_memory, .min = MEMORY_LEAST, .group = SEARCH_GPUS }, \
    { "world", "ranks, with --memory", .i = &(a).world, .min = 1, .group = SEARCH_GPUS }, \
    { "framework", "only what runs in it: torch, deepspeed, megatron, or any of them (any); without it torch and deepspeed", .word = &(a).framework, .words = search_frameworks, .often = true }, \
    { "dialect", "only this dialect (with --states-only: paper)", .word = &(a).dialect, .words = limits_dialects, .group = SEARCH_TRIES }, \
    { "states-only", "parameters, gradients and optimizer states of one unit of P parameters", .flag = &(a).states_only, .group = SEARCH_GPUS }, \
    { "seq", "tokens per sample (4096, or fewer where the model takes fewer)", .length = &(a).seq, .min = 1, .often = true }, \
    { "accumulation", "accumulation steps of a plan (1); more than one keep gradients between them", .i = &(a).accumulation, .min = 1, .group = SEARCH_TRIES }, \
    { "kernels", "kernel set (what transformers picks for the model)", .word = &(a).kernels, .words = knob_words("kernels"), .group = SEARCH_TRIES }, \
    { "precision", "number format (bf16, or fp16 where the GPU has no bf16)", .word = &(a).precision, .words = knob_words("precision"), .group = SEARCH_TRIES }, \
    { "recompute", "activation recompute; without it the answer for none, and for every block", .word = &(a).recompute, .words = knob_words("recompute"), .often = true }, \
    { "offload", "what is kept elsewhere: optimizer states, parameters too, both in files", .word = &(a).elsewhere, \
      .words = elsewhere_words, .group = SEARCH_TRIES }, \
    SEARCH_TUNED_OPTS((a).tuned), \
    MONEY_OPTS((a).money)

/* One strategy of one dialect, and what is recomputed.  `refused`: why it has no answer; "" where it has one. */
struct limits_row {
    const struct limits_asked *asked;       /* with what was left open filled in */
    const struct plan *base;                /* what is the same in all rows: model (but with states only), cluster, optimizer */
    enum recompute recompute;
    enum strategy strategy;
    enum dialect  dialect;
    struct limit  limit;
    bool   narrow;                          /* with weights in bf16 (limit_narrow()) */
    bool   timed;                           /* a training was asked for, and this is its plan's: */
    struct plan   plan;
    struct timing t;
    char   refused[512];
};

/* Calls `each` for every row as it is known, those without an answer last.  Where the question leaves recompute open a strategy has two
 * rows, one behind the other: without it, and with every block recomputed.  EXIT_DONE, EXIT_NO where no strategy holds any
 * model, or another exit status with the reason reported. */
int limits_answer(const struct limits_asked *given, int (*each)(void *of, const struct limits_row *row), void *of);

/* The document that --json prints (new reference) with EXIT_DONE and EXIT_NO. */
int limits_json(const struct limits_asked *given, json_t **doc);

#endif
