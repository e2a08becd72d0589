/* fit_answer.h -- does it fit, and what is the least that holds it: the question, its rows, and the answer as a document.  dpxplan fit
 * and dpx_fit() are both this.
 *
 *     struct fit_asked a = FIT_ASKED;
 *     const struct opt opts[] = { FIT_OPTS(a), { 0 } };
 *     ... opts_parse() or opts_json() ...
 *     struct fit_answer f;
 *     int rc = fit_answer(&a, &f);
 *     if (rc == EXIT_DONE || rc == EXIT_NO) {
 *         ... f.row[0 .. f.n - 1], fit_json(&a, &f) ...
 *         fit_free(&f);
 *     }
 *
 * Each number of a GPU is a search: 1, 2, 4 ... GPUs of a node, then 2, 4, 8 ... nodes, up to FIT_MOST GPUs; the first number that has
 * a plan that fits is the answer, and the first of its ranking the plan.  Of "8xh100" that number alone is asked about.  Where that is more than one, or none, fewer are asked about with
 * Liger-Kernel's loss without logits, which frameworks have as an option; where nothing else fits it is the row's plan.  States, parameters and activations stay on the GPUs unless
 * offload is asked for. */
#ifndef DPX_FIT_ANSWER_H
#define DPX_FIT_ANSWER_H

#include "base/opts.h"
#include "sim/plan/fit_model.h"
#include "sim/plan/money.h"

enum { FIT_MOST = 1024, FIT_ROWS = 32, FIT_RANK = 16, FIT_BATCH = 1 << 20 };  /* FIT_BATCH: micro-steps of a plan at most */

struct fit_asked {
    const char *model, *price, *db;
    const struct json_t *model_doc;
    struct opt_pairs gpus;
    int64_t seq, batch, tokens, samples, lora;      /* 0: not given */
    double  epochs;                                 /* below 0: not given */
    int     train, framework, loss;                 /* -1: not given */
    bool    offload;
    /* Asked now and then, by any thread: may it go on?  `done` of `total` numbers of GPUs are known.  NULL: it goes on. */
    bool  (*go_on)(void *of, int64_t done, int64_t total);
    void   *go_on_of;
};

#define FIT_ASKED { .train = -1, .loss = -1, .framework = FRAMEWORK_ANY, .epochs = -1 }
extern const char *const fit_trains[];
#define FIT_OPTS(a) \
    OPTS_EXAMPLE("dpxplan fit llama-3.1-8b"), \
    OPTS_EXAMPLE("dpxplan fit llama-3.1-8b 4xh100"), \
    OPTS_EXAMPLE("dpxplan fit llama-3.1-8b rtx4090 h100 --train qlora --samples 50000 --epochs 3"), \
    { "MODEL", "a model's name, a Hugging Face id, a config.json, or a training recipe", .str = &(a).model, .doc = &(a).model_doc, .names = model_builtin, \
      .positional = true, .required = true }, \
    { "GPU", "types of GPU, as `dpxplan list gpus` names them, or what you have, such as 8xh100; without one eight that people rent: rtx4090, l40s, a100-40gb, " \
      "a100-80gb, h100, h200, b200, mi300x", .many = &(a).gpus, .positional = true }, \
    { "train", "all weights (all), LoRA adapters (lora), or those on weights in 4 bits (qlora); all, or what a recipe says", .word = &(a).train, \
      .words = fit_trains, .often = true }, \
    { "seq", "tokens of a sample (4096, or fewer where the model takes fewer)", .length = &(a).seq, .min = 1, .often = true }, \
    { "batch", "samples of an optimizer step, over all GPUs (64; more where there are more GPUs)", .i = &(a).batch, .min = 1, .often = true }, \
    { "tokens", "tokens of the whole training, such as 2B: hours, and with --price what it costs", .i = &(a).tokens, .min = 1, .often = true }, \
    { "price", "of a GPU-hour: 2.10, or h100=2.10,a100-80gb=1.35; with a currency sign if you like", .str = &(a).price, .value = "PRICE", .often = true }, \
    { "samples", "samples of the data set, in the place of --tokens", .i = &(a).samples, .min = 1, .group = "How long" }, \
    { "epochs", "how often the samples or tokens are trained on (1)", .num = &(a).epochs, .group = "How long" }, \
    { "lora", "rank of the adapters (16); alone it asks for --train lora", .i = &(a).lora, .min = 1, .group = "What may be tried" }, \
    { "framework", "what you can run: torch, deepspeed, megatron, or any of them", .word = &(a).framework, .words = search_frameworks, .group = "What may be tried" }, \
    { "loss", "only plans with this loss, such as fused-linear, Liger-Kernel's without logits (what the framework does)", .word = &(a).loss, \
      .words = knob_words("loss"), .group = "What may be tried" }, \
    { "offload", "also plans that keep states, parameters or activations in host memory", .flag = &(a).offload, .group = "What may be tried" }, \
    { "db", "the database of calibrations", .str = &(a).db, .value = "FILE" }

/* The least number of one type.  Too few for the weights alone are not searched. */
struct fit_row {
    const struct gpu *gpu;
    int64_t number;                 /* the one that is asked about, of the cluster that is written below; 0: which is the least? */
    int64_t gpus;                   /* that many hold it; 0: no number up to FIT_MOST does, or not the one that is asked about, */
    int64_t tried;                  /* the largest that was searched (0: none), and what a plan needs there at least, bytes of a GPU; */
    int64_t needed, available;
    char    why[512];               /* why larger ones are no question: a batch that they cannot share; "": they were not tried */
    struct plan plan;               /* shares the model of the answer */
    int64_t usable, taken;          /* memory of a GPU, its reserve and headroom aside; what decides of it (evaluation_taken) */
    bool    tight, waits;           /* as ranking.h */
    double  step_s, low_s, high_s, tokens_per_s;
    struct money_question money;    /* tokens 0: not asked */
    struct money training;
    char    cluster[80];            /* "2x8xh100" */
};

struct fit_answer {
    struct fit_model of;
    struct model model;
    int64_t tokens;                 /* of the training; 0: not asked */
    char    sign[8];                /* the currency of prices: "$", "EUR", or "" */
    bool    stopped;                /* by go_on(): rows without a number are not known */
    int     n, best;                /* best: the row of the next commands, the cheapest or that with the fewest GPUs; -1: none fits */
    struct fit_row row[FIT_ROWS];
    struct fit_row fused[FIT_ROWS]; /* gpus above 0: so many hold it, fewer than the row's, where the loss keeps no logits (Liger-Kernel's) */
};

/* EXIT_DONE, EXIT_NO where no number of any type holds it, or another exit status with the reason reported and nothing to free. */
int     fit_answer(const struct fit_asked *a, struct fit_answer *out);
void    fit_free(struct fit_answer *f);
/* The document that --json prints (new reference). */
json_t *fit_json(const struct fit_asked *a, const struct fit_answer *f);

/* The commands that go on from a row, words of a shell: a search whose first plan is the row's, written to plan.json, and every figure of it.  `wrap`:
 * in lines of at most so many columns, with a backslash at each end; 0: one line. */
enum { FIT_COMMAND = 1600 };
void    fit_search_command(const struct fit_answer *f, const struct fit_asked *a, const struct fit_row *r, int wrap, char to[FIT_COMMAND]);
#define FIT_EVAL_COMMAND "dpxplan eval plan.json"

#endif
