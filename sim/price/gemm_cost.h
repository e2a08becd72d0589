/* gemm_cost.h -- how long one matrix product takes.
 *
 *     t = t_prior(m,n,k) * residual(m,n,k)
 *
 * The prior counts: the result is cut into tiles, a tile is one thread block, the SMs work
 * them off in waves, and all the while memory must keep up.  The library is assumed to pick
 * the best of its tiles and of its ways to split k.  The residual is what measurements say
 * on top, smooth where times are not: a weighted mean of ln(measured/prior) over the points
 * nearby in ln m, ln n, ln k, drawn to the mean of all where there are none.
 *
 * The prior never falls when m, n or k grows; neither does it rise within a wave. */
#ifndef DPX_GEMM_COST_H
#define DPX_GEMM_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "model/cluster/cluster.h"

/* Where the rows of a product's matrices start. */
enum gemm_rows {
    ROWS_WHOLE,             /* on 16 bytes */
    ROWS_OFF,               /* on fewer */
    ROWS_ODD_OPERAND,       /* of an operand, */
    ROWS_ODD_RESULT,        /* of the result: on a single element of 16 bits, since they have an odd number of them */
};

/* A layer's three products.  m is the number of tokens in the first two, k is in the third: rows have the other two. */
enum gemm_of { GEMM_FORWARD, GEMM_DX, GEMM_DW };

/* Where rows of 16-bit elements start.  A layer's odd width, which is n in its forward, is in backward that of the gradient, an operand of
 * both products. */
enum gemm_rows gemm_rows_16(enum gemm_of of, int64_t m, int64_t n, int64_t k);

/* batch products C[m,n] += A[m,k] B[k,n]. */
struct gemm {
    int64_t batch, m, n, k;
    int64_t bytes;          /* read and written, each operand once */
    enum gemm_rows rows;
    int64_t sums;           /* of bytes, those of a result that it adds to */
};

/* What it runs on: rates as they are reached, not those of the datasheet. */
struct gemm_device {
    int    sms;             /* 1: a host's core */
    double flops;           /* of all SMs with a 256x128 tile and endless k */
    double bytes;           /* per second, memory */
    double launch;          /* seconds per kernel, first to last block */
    double block;           /* seconds a 256x128 tile takes beyond its products */
    double feed;            /* columns of a tile that take as long as its operands: small tiles lose */
    bool   persistent;      /* no more blocks than SMs, each with tiles of its own: blocks that find no SM wait for one to end */
    double calm;            /* of the time of its turn: a turn that leaves most SMs idle is not held back by power; 1: nor are others */
};

struct gemm_choice {
    int     tile_m, tile_n, split;
    int64_t blocks, waves;
    bool    memory_bound;
};

struct gemm_point {         /* one measurement: median seconds */
    int64_t m, n, k;
    double  s;
};

/* A GPU type as the table of gpu_rates.h has it. */
struct gemm_device gemm_device(const struct gpu *g, enum dtype t);

/* Seconds by counting; `how` may be NULL. */
double gemm_prior(const struct gemm_device *d, const struct gemm *g, struct gemm_choice *how);

/* How many times longer the product takes where only `sms` of the device's multiprocessors are free: the tiles chosen
 * for all of them in more waves; where blocks are persistent, all of them as often as there are turns.  1 where memory
 * sets its pace. */
double gemm_held(const struct gemm_device *d, const struct gemm *g, int sms);
/* The same of each of n numbers of multiprocessors. */
void gemm_held_each(const struct gemm_device *d, const struct gemm *g, const int *sms, int n, double *out);

/* ln(measured/prior) of points taken on a machine like d, at ln m, ln n, ln k. */
#define GEMM_MAX_POINTS 512
struct gemm_residuals {
    int    n;
    double mean;
    double at[GEMM_MAX_POINTS][3], r[GEMM_MAX_POINTS];
};

/* What lies beyond GEMM_MAX_POINTS is left out. */
void gemm_residuals(const struct gemm_device *d, const struct gemm_point *points, int n,
                    struct gemm_residuals *out);

/* measured / prior where g is; 1 without points. */
double gemm_residual(const struct gemm_residuals *all, const struct gemm *g);

/* Published 16-bit points for a GPU type, the type that they were taken on, and the share of its peak that their machine
 * reached: residuals taken against that one carry shape, not level.  0 where there are none. */
int gemm_published(const struct gpu *g, const struct gpu **on, const struct gemm_point **points, double *level);

#endif
