/* eval.h -- every figure of one plan: the question, the answer, and the answer as a document.  dpxplan eval and dpx_eval()
 * are both this.
 *
 *     struct eval_args a = EVAL_ARGS;
 *     const struct opt opts[] = { EVAL_OPTS(a), { 0 } };
 *     ... opts_parse() or opts_json() ...
 *     struct eval_answer e;
 *     int rc = eval_ask(&a, &e);
 *     if (rc == EXIT_DONE || rc == EXIT_NO) {
 *         ... e.e, e.t, eval_json(&a, &e) ...
 *         eval_free(&e);
 *     } */
#ifndef DPX_EVAL_H
#define DPX_EVAL_H

#include "model/memory/evaluate.h"
#include "base/size.h"
#include "sim/clock/jitter.h"
#include "sim/clock/simulate.h"
#include "sim/plan/money.h"
#include "sim/plan/plan_source.h"

struct eval_args {
    struct plan_given plan;
    struct opt_pairs set;
    const char *noise, *conf, *db;
    int64_t host_memory;            /* bytes of a node; 0: the cluster's */
    struct money_question money;
};

#define EVAL_ARGS { .money = MONEY_NONE }
#define EVAL_OPTS(a) \
    OPTS_EXAMPLE("dpxplan eval llama-3.1-8b 8xh100"), \
    OPTS_EXAMPLE("dpxplan eval demo/8b-fsdp.json --set seq=16k nodes=2"), \
    { "PLAN.json", "the plan; or a model's name, or a file of a training framework (both with --cluster); - is standard input", .str = &(a).plan.path, .doc = &(a).plan.doc, .positional = true, .required = true }, \
    PLAN_GIVEN_OPTS((a).plan), \
    { "set", "change keys of the plan, such as seq=8k nodes=4 fsdp.reshard_after_forward=false", .pairs = &(a).set, .often = true }, \
    { "env", "set environment variables of the job, such as NCCL_NVLS_ENABLE=0", .pairs = &(a).set, .value = "NAME=VALUE ..." }, \
    { "jitter", "what noise would add: shares and seconds, such as 0.03,20e-6,1e-6,0.5", .str = &(a).noise, \
      .value = "SIGMA_P[,SIGMA_T[,LAMBDA,D]]" }, \
    { "alloc-conf", "options of PyTorch's allocator, as PYTORCH_CUDA_ALLOC_CONF has them", .str = &(a).conf, \
      .value = "KEY:VALUE,..." }, \
    { "host-memory", "bytes of a node's host memory, instead of the cluster's", .bytes = &(a).host_memory, .min = MEMORY_LEAST }, \
    MONEY_OPTS((a).money), \
    { "db", "the database of calibrations", .str = &(a).db, .value = "FILE" }

struct eval_answer {
    struct plan plan;
    struct evaluation e;
    struct timing t;
    bool noisy;                     /* noise was asked about: */
    struct jitter noise;
    struct jitter_added added;
};

/* EXIT_DONE, or EXIT_NO where the plan does not fit; another exit status with the reason reported and nothing to free. */
int     eval_ask(const struct eval_args *a, struct eval_answer *out);
/* The document that --json prints (new reference). */
json_t *eval_json(const struct eval_args *a, const struct eval_answer *e);
void    eval_free(struct eval_answer *e);

/* Words of `eval` that others say too: what is taken of a GPU for all that is allocated (evaluation_taken); "host memory of a node"; what a step's idle time is, where bytes lie outside of
 * device memory and where none do. */
#define EVAL_TAKEN "reserved for that"
const char *eval_space_name(enum space m);
const char *eval_idle_name(bool elsewhere);

#endif
