/* search_words.h -- what a search found, in sentences: why the first comes first, what the nearest that does not fit
 * lacks, what data outside of device memory cost.  The text and the document of an answer say the same. */
#ifndef DPX_SEARCH_WORDS_H
#define DPX_SEARCH_WORDS_H

#include <stdio.h>

#include <jansson.h>

#include "sim/search/lack.h"
#include "sim/search/ranking.h"
#include "sim/search/search.h"

/* Bytes that hold any of the sentences. */
enum { SEARCH_SENTENCE = 1200 };

/* The fastest fitting plan of each strategy and dialect, of data parallelism alone and with a grid; how many. */
enum { SEARCH_BESTS = 2 * NSTRATEGY * NDIALECT };
int search_bests(const struct search_result *r, int64_t best[SEARCH_BESTS]);

/* Does the plan wait for memory, which its step time leaves out? */
bool search_waits(const struct found *f);
/* Finds that out for n of the plans found, on all cores. */
void search_learn_waits(struct search_result *r, const int64_t *of, int64_t n);

/* Is the second of n ranked a plainer, tight plan that the first's room keeps it behind (ranking.h)? */
bool search_second_is_plain(const struct ranked *of, int64_t n);

/* Why the first of n ranked comes first; "" where n is 0. */
void search_why_words(const struct search_result *r, const struct ranked *of, int64_t n, int64_t tied, char *to, size_t size);

/* What the nearest that does not fit lacks; false with the reason reported, or where it fits after all. */
bool search_nearest_lacks(const struct found *f, struct lack *l);
/* What would make it fit; `name` says another plan (knob_label(), or plan_words()). */
void search_to_fit_words(const struct search_options *o, const struct found *f, const struct lack *l,
                         void (*name)(const struct plan *p, char *to, size_t size), char *to, size_t size);

/* Where an optimizer or its form was chosen: which strategies fall away, and why, a line for each reason; NULL: none does (allocated).
 * The same as a list of objects (new reference), empty where none does or nothing was chosen. */
char   *search_left_out_words(const struct search_options *o);
json_t *search_left_out_json(const struct search_options *o);

/* The fastest plan that keeps all in device memory; NULL: none fits. */
const struct found *search_best_in_place(const struct search_result *r);

/* Whether plans that keep data elsewhere are needed, and what the first of the answer costs for it; "" where it keeps
 * all in device memory.  For people, and as the object "offload" (new reference). */
void    search_elsewhere_say(const struct search_result *r, const struct found *f, FILE *to);
json_t *search_elsewhere_json(const struct search_result *r, const struct found *f);

#endif
