/* kineto_products.h -- the operators of a trace that multiply matrices, and their sizes: a kernel's operator has its "External id".
 *
 *     struct kineto_operators o = { 0 };
 *     kineto_products_add(k, &o, event);                   for each event of the host
 *     kineto_products_sort(&o);
 *     w->product = kineto_products_find(&o, external);
 *     free(o.at); */
#ifndef DPX_KINETO_PRODUCTS_H
#define DPX_KINETO_PRODUCTS_H

#include "calib/trace/kineto_load.h"
#include "calib/trace/trace_read.h"

/* An operator that does many products, and is planned as a whole. */
enum { KINETO_PARTS = -1 };

struct kineto_operators { struct kineto_operator { int64_t external; int32_t product; } *at; int64_t n, cap; };

/* An event of an operator: its sizes go to k->product. */
void kineto_products_add(struct kineto *k, struct kineto_operators *o, const struct trace_event *e);
void kineto_products_sort(struct kineto_operators *o);

/* 1 + which of k->product; 0: none is known; KINETO_PARTS. */
int32_t kineto_products_find(const struct kineto_operators *o, int64_t external);

#endif
