/* public_rows.h -- published training throughput against what dpx predicts.
 *
 *     struct public_set set;
 *     if (public_read("tests/accuracy/llm_foundry.csv", PUBLIC_LLM_FOUNDRY, &set) < 0)
 *         return 1;
 *     public_predict(&set);
 *     public_baseline(&set);
 *     struct public_score s = public_score(&set, "h100", PUBLIC_STEP, NULL, NULL);
 *
 * A row becomes a plan by what its software did, never by what would agree: see
 * public_rows.c.  Errors are of step time: predicted / published - 1.  Shared by
 * accuracy_public.c, which prints, and tests/sim/test_accuracy_public.c, which asserts. */
#ifndef DPX_PUBLIC_ROWS_H
#define DPX_PUBLIC_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/clock/simulate.h"
#include "sim/search/ties.h"

enum public_source { PUBLIC_LLM_FOUNDRY, PUBLIC_TORCHTITAN };

/* Predicted; one MFU for all. */
enum public_guess { PUBLIC_STEP, PUBLIC_BASELINE };

/* What dpx says of the memory of a run that was published, hence ran: fits; tight, in the headroom alone or with
 * the cache given back; refused, since these alone are more than the device has: what is allocated, that and the
 * context and NCCL, or what the allocator reserves. */
enum public_memory { MEMORY_FITS, MEMORY_HEADROOM, MEMORY_RETRIES, MEMORY_ALLOCATED, MEMORY_CONTEXT, MEMORY_RESERVED,
                     NMEMORY };

#define PUBLIC_ROWS 256

struct public_row {
    char    model[48], gpu[16];         /* as dpx names them */
    double  watts;                      /* to which a GPU was limited; 0: not stated */
    char    table[24], skipped[64];     /* skipped: why it is not a plan, else "" */
    char    source[96];                 /* rows of one were run one after the other */
    char    how[48];                    /* what stands for what dpx has no word for, else "" */
    int64_t gpus, seq, micro_batch, accumulation, tensor, pipeline;
    enum float8_recipe float8;
    bool    float8_gather, float8_precomputed, interleaved;
    enum fsdp1_sharding sharding;       /* FSDP1 */
    bool    fsdp1, pure, recompute, by_operator, fused_optimizer, mixed_reduce, compiled, flash_2, async_tensor;
    int64_t recompute_interval, reshard;
    double  tokens;                     /* published, per second and GPU */
    double  reserved, allocated;        /* published peaks, bytes; 0: not stated */
    bool    keeps_logits;               /* the trainer does, in fp32, through backward */
    bool    keeps_abs;                  /* recompute by operator does, of float8's operands */

    bool    done;                       /* predicted */
    double  predicted, low, high;       /* tokens per second and GPU */
    double  flops, peak;                /* of the usual MFU */
    double  baseline;
    struct timing t;
    double  view[TIES_VIEWS];           /* ties.h, seconds for a token of each GPU */
    enum public_memory memory;
    double  over;                       /* what is active by the allocator's limit, less 1 */
    bool    peak_in_head;
};

struct public_set {
    enum public_source source;
    struct public_row  row[PUBLIC_ROWS];
    int n;
};

/* 0, or -1 with the reason reported. */
int public_read(const char *path, enum public_source source, struct public_set *out);
/* Every row that is a plan; 0, or -1 when dpx refuses one. */
int public_predict(struct public_set *set);
/* One median MFU per GPU type, of the rows of all other models. */
void public_baseline(struct public_set *set);

/* 0, or -1 where the row's plan cannot be made; free with plan_free(). */
int public_plan(const struct public_set *set, const struct public_row *r, struct plan *out);
/* Bytes that the trainer keeps beside the plan: logits, what abs() gave. */
int64_t public_beside(const struct public_row *r, const struct plan *p);

struct public_score {
    int    n, inside;                   /* in the 90 % interval */
    double mape, median, p90, worst, bias;
    double tau, tau_mfu;                /* Kendall's tau-b: tokens/s, and MFU */
    double width;                       /* median (high - low) / predicted step time */
};
/* Of the rows that `of` says yes to (NULL: all) on one GPU type (NULL: all). */
struct public_score public_score(const struct public_set *set, const char *gpu, enum public_guess guess,
                                 bool (*of)(const struct public_row *r, void *arg), void *arg);

/* Pairs of rows that differ in one choice and nothing else. */
enum public_choice { CHOICE_RECOMPUTE, CHOICE_STRATEGY, CHOICE_MICRO_BATCH, CHOICE_GPUS, NCHOICE };
const char *public_choice_name(enum public_choice c);

/* Of the pairs of a set: how many there are, in how many the faster one is the one predicted to be, or a tie was
 * predicted and the published difference lies within what it leaves open; how many were predicted as ties. */
struct public_pairs { int n, right, ties; };
void public_pairs(const struct public_set *set, struct public_pairs out[NCHOICE]);

double public_error(const struct public_row *r, enum public_guess guess);

#endif
