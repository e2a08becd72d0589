/* nccl_internal.h -- what the two readers of nccl-tests' output share: a log being built. */
#ifndef DPX_NCCL_INTERNAL_H
#define DPX_NCCL_INTERNAL_H

#include <stdbool.h>
#include <stdio.h>

#include "calib/import/nccl_log.h"

/* No buffer is larger. */
#define NCCL_MOST_BYTES (INT64_C(1) << 50)

/* Where the reader is: a line of text, or a member of a list in JSON. */
struct nccl_spot { const char *path, *list; int n; };
/* "file:12", "file: results[3]", until the next call. */
const char *nccl_where(const struct nccl_spot *at);

/* 0, or -1 reported; into `out`, which the caller frees. */
int nccl_read_text(const char *path, struct nccl_log *out);
int nccl_read_json(const char *path, struct nccl_log *out);
/* After a byte order mark, if it has one.  NULL with the reason reported. */
FILE *nccl_open(const char *path);

struct nccl_sweep *nccl_new_sweep(struct nccl_log *l);
/* The size's, added if it is new; valid until the next. */
struct nccl_point *nccl_point_of(struct nccl_sweep *s, int64_t bytes, enum dtype t);
/* A sample of `us` microseconds; NaN is left out and counted.  0, or -1 reported. */
int  nccl_add_time(struct nccl_log *l, struct nccl_point *p, const struct nccl_spot *at, double us);
/* 0, or -1 reported: of another GPU or group than the ranks before it. */
int  nccl_add_rank(struct nccl_sweep *s, const struct nccl_spot *at, const char *host, const char *device, int group);
void nccl_leave_out(struct nccl_left *l, const struct nccl_spot *at);
void nccl_leave_type(struct nccl_log *l, const char *type);

/* enum dtype of nccl-tests' word, -1 for those that dpx does not use. */
int nccl_dtype_of(const char *type);
/* By what a row says: the reduction, the root, and busbw over algbw (doc/PERFORMANCE.md): 2(n-1)/n
 * for all-reduce, (n-1)/n for reduce-scatter.  All-gather and all-to-all are alike: -1. */
int nccl_op_of_row(bool reduces, bool rooted, double algbw, double busbw, int64_t n);

#endif
