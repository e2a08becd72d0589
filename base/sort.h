/* sort.h -- sorting whose ties stay in their order.
 *
 * The C library's qsort() may leave what compares equal in any order, and libraries differ: an answer would depend on
 * the machine that gives it. */
#ifndef DPX_SORT_H
#define DPX_SORT_H

#include <stddef.h>

/* As qsort(); a NULL array has no elements. */
void sort_stable(void *array, size_t n, size_t size, int (*compare)(const void *a, const void *b));

#endif
