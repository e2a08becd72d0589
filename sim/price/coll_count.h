/* coll_count.h -- what the algorithms of coll_*.c are counted with; theirs alone.
 *
 * p ranks, g of them in a node, k nodes, S bytes, lg = log2.  Comments give the time on one
 * tier; on two, messages between nodes take alpha_inter, and bytes that leave a node share
 * its adapters. */
#ifndef DPX_COLL_COUNT_H
#define DPX_COLL_COUNT_H

#include "sim/price/coll_algo.h"

/* Seconds to move what the busiest port inside a node and the busiest node carry, `flows` of
 * its ranks sending out at once; the two are different wires, and run at once. */
double coll_move(const struct coll_net *n, double port, double crossing, double flows);

/* `steps` messages one after the other, `crossings` of them between nodes. */
double coll_latency(const struct coll_net *n, double steps, double crossings);

/* Levels of a binomial tree of so many ranks. */
double coll_levels(double ranks);

/* (p-1)/p: what is not one's own. */
double coll_share(const struct coll_net *n);

/* A pipeline of d hops, dx of them between nodes, in the best number of chunks. */
double coll_pipeline(const struct coll_net *n, double d, double dx, double whole, double *steps);

/* Time of adding `bytes`. */
void coll_add_reduction(const struct coll_net *n, double bytes, struct coll_figures *f);

/* An all-gather, or a reduce-scatter but for its additions. */
void coll_direct_half(const struct coll_net *n, double s, struct coll_figures *f);
void coll_halving(const struct coll_net *n, double s, struct coll_figures *f);
void coll_ring_half(const struct coll_net *n, double s, struct coll_figures *f);
bool coll_hierarchical_half(const struct coll_net *n, double s, struct coll_figures *f);

/* One way along a tree. */
double coll_binomial(const struct coll_net *n, double s);
double coll_binary_tree(const struct coll_net *n, double s, double *steps);

/* The table's parts, each ended by a row without a name. */
extern const struct coll_algo coll_all_reduce_algos[], coll_shard_algos[], coll_rooted_algos[],
                              coll_exchange_algos[];

#endif
