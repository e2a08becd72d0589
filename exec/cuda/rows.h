/* rows.h -- launchers of the kernels that go through rows: embeddings (embed.cu), norms (norms.cu), sums of
 * columns (rows.cu) and the loss (loss.cu).
 *
 * Each queues on stream `s` and returns its cudaError_t (0: queued).  The operands are those of
 * exec/kernels/kernels.h.  Nothing is a sum in the order of arrival, so results are equal on every run of the same
 * device (norms and column sums are cut by its number of multiprocessors).  Rows that start on multiples of
 * 16 bytes are moved 16 bytes a thread, others an element a thread; cross-entropy's any way.
 *
 * Workspaces start on a multiple of 16 bytes and are free again when the call is done on the stream. */
#ifndef DPX_ROWS_H
#define DPX_ROWS_H

#include "exec/cuda/elements.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Partial sums of dw and db, of columns; equal tokens summed at a time. */
enum { ROWS_NORM_PARTS = 512, ROWS_COLUMN_PARTS = 256, ROWS_SEGMENT = 256 };

static inline int64_t rows_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Bytes of workspace; none needs more than its n (rows) asks for. */
static inline int64_t rows_norm_workspace(int64_t n, int64_t h)
{
    return 2 * 4 * h * rows_least(n, ROWS_NORM_PARTS);
}

static inline int64_t rows_column_sums_workspace(int64_t n, int64_t cols)
{
    return 4 * cols * rows_least(n, ROWS_COLUMN_PARTS);
}

/* Where each id's tokens begin and where the next goes, the tokens twice, sums of 1024 counts, and an fp32
 * row for every ROWS_SEGMENT tokens. */
static inline int64_t rows_embed_workspace(int64_t n, int64_t h, int64_t vocab)
{
    return 4 * (2 * (vocab + 1) + 2 * n + (vocab + 1023) / 1024 + 5 * 4 + n / ROWS_SEGMENT * h);
}

/* x[n, h] = table[ids[i], :]; a row of NaN where the id is not one of the vocabulary */
int rows_embed(int64_t n, int64_t h, int64_t vocab, const int32_t *ids, const void *table, enum dtype wt,
               void *x, enum dtype at, struct CUstream_st *s);
/* The same of rows [first, first + rows) of the vocabulary, which `table` has; 0 where the id is another */
int rows_embed_part(int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids, const void *table,
                    enum dtype wt, void *x, enum dtype at, struct CUstream_st *s);
/* x[i, :] = dropout(x[i, :] + table[i % seq, :]); table NULL: only dropout */
int rows_embed_positions(int64_t n, int64_t h, int64_t seq, const void *table, enum dtype wt, void *x,
                         enum dtype at, struct cuda_drop d, struct CUstream_st *s);
/* dtable[vocab, h] = (or += if add) sums of rows of dx by id - first; ids that are none of its rows are left out.
 * Rows of an id are added in the order of the samples, in runs of up to ROWS_SEGMENT whose sums are then
 * added in that order.  n below 2^31. */
int rows_embed_back(int64_t n, int64_t h, int64_t first, int64_t vocab, const int32_t *ids, const void *dx, enum dtype at,
                    void *dtable, enum dtype gt, bool add, void *workspace, struct CUstream_st *s);
/* dtable[rows, h] = (+=) the sum over samples; rows beyond seq become 0 (stay). */
int rows_embed_positions_back(int64_t n, int64_t h, int64_t seq, int64_t rows, const void *dx, enum dtype at,
                              void *dtable, enum dtype gt, bool add, struct CUstream_st *s);

/* centred: LayerNorm, stats [2n]; else RMSNorm, stats [n].  w, b of dtype wt, or NULL.  y may be x. */
int rows_norm(bool centred, int64_t n, int64_t h, double eps, const void *x, const void *w, const void *b,
              enum dtype wt, void *y, enum dtype at, float *stats, struct CUstream_st *s);
/* dx = (+= if add_dx; may be dy if not), dw, db = (+= if add_dw; NULL: none) of dtype gt. */
int rows_norm_back(bool centred, int64_t n, int64_t h, const void *dy, const void *x, const void *w,
                   enum dtype wt, const float *stats, enum dtype at, void *dx, bool add_dx, void *dw,
                   void *db, enum dtype gt, bool add_dw, void *workspace, struct CUstream_st *s);

/* sums[cols] = (+=) the sum of the rows of x[n, cols], ld apart: a linear layer's db; narrows: as fp16 has the sum. */
int rows_column_sums(int64_t n, int64_t cols, const void *x, int64_t ld, enum dtype at, void *sums,
                     enum dtype gt, bool add, bool narrows, void *workspace, struct CUstream_st *s);

/* losses[i] = -log softmax(logits[i, :])[labels[i]]; logits become scale * their gradient.  A label that is
 * not one of the vocabulary makes its loss and its row NaN. */
int rows_cross_entropy(int64_t n, int64_t vocab, void *logits, enum dtype at, const int32_t *labels,
                       float *losses, float scale, struct CUstream_st *s);

/* struct cut_logits of kernels.h, and its calls. */
struct rows_logits { int64_t n, vocab, part, rank; enum dtype at; };
int rows_logits_most(const struct rows_logits *l, const void *logits, float *most, struct CUstream_st *s);
int rows_logits_label(const struct rows_logits *l, const void *logits, const int32_t *labels, float *at_label,
                      struct CUstream_st *s);
int rows_logits_sum(const struct rows_logits *l, const void *logits, const float *most, float *sum, struct CUstream_st *s);
int rows_logits_loss(const struct rows_logits *l, void *logits, const int32_t *labels, const float *most,
                     const float *at_label, const float *sum, float *losses, float scale, struct CUstream_st *s);
int rows_logits_whole(const struct rows_logits *l, const void *all, void *logits, const int32_t *labels, float *losses,
                      float scale, struct CUstream_st *s);

#ifdef __cplusplus
}
#endif
#endif
