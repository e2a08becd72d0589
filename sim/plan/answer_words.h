/* answer_words.h -- sentences that answers share: what was asked, whether a plan fits and why it is tight, how long its step takes. */
#ifndef DPX_ANSWER_WORDS_H
#define DPX_ANSWER_WORDS_H

#include <stdio.h>

#include "sim/clock/simulate.h"
#include "sim/plan/search_args.h"

struct answer_text { char s[48]; };

/* Said of each step in which streams would wait for memory (simulate_waits_for_memory). */
#define ANSWER_WAITS "time leaves out waits for memory"

/* "8.93 s", "12.3 ms", "2.4 hours" */
struct answer_text answer_seconds(double s);
/* "58.7k tokens/s"; of a model without tokens "262 samples/s" */
struct answer_text answer_rate(const struct plan *p, double tokens_per_s);
/* "400 Gbit/s": what links between nodes are sold by; within a node they are GB/s. */
struct answer_text answer_network(double bytes_per_s);

/* Model, GPUs with their one capacity, batch and precision of a question. */
void answer_question(const struct question *q, FILE *to);
/* "8 H100 SXM5 80GB (79.65 GiB on the card, 74.31 GiB usable)". */
void answer_cluster(const struct cluster *c, FILE *to);

/* "all weights trained", "LoRA adapters of rank 16 on weights in NF4". */
void answer_training(const struct search_tuned *t, FILE *to);

/* The release since which a plan's peak is where it is, in a sentence; NULL: all releases that are known have it there. */
const char *answer_release(const struct plan *p, const struct evaluation *e);

/* Why a plan does not fit: "needs 54.88 GiB of 31.33 GiB usable, 23.55 GiB too much", or what a node lacks. */
void answer_lack(const struct plan *p, const struct evaluation *e, char *to, size_t size);
/* "  Fits: reserves 37.89 GiB of 74.31 GiB usable (28.14 GiB allocated).", "  Tight: ..." with the reason, or "  Does not fit: ...". */
void answer_memory(const struct plan *p, const struct evaluation *e, const struct timing *t, FILE *to);
/* "  Step 8.93 s (8.29 to 9.77), 58.7k tokens/s, MFU 39.0 %." and what times rest on. */
void answer_step(const struct plan *p, const struct timing *t, FILE *to);

#endif
