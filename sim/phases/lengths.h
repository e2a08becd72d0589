/* lengths.h -- how long responses are, from their mean and the longest.
 *
 * Of all densities on 0 to the longest with that mean the one of largest entropy, c e^(x/s): nothing else is assumed. */
#ifndef DPX_LENGTHS_H
#define DPX_LENGTHS_H

#include <stdint.h>

/* Tokens of a response. */
struct lengths { double mean, longest; };

/* 0, or -1 reported: a mean above the longest, or below 1. */
int    lengths_check(const struct lengths *l);
/* The length that a share u of the responses does not exceed. */
double lengths_quantile(const struct lengths *l, double u);
/* E[x^2] / 2 E[x]. */
double lengths_age(const struct lengths *l);
/* Rows of `capacity` tokens that n responses behind a prompt each need: the longest first, each into the first row that has room for it. */
int64_t lengths_rows(const struct lengths *l, double prompt, double capacity, int64_t n);

#endif
