/* tokens.h -- what a model is trained on: sample i of the run, and who computes it.
 *
 *     struct tokens *t = tokens_open(&(struct tokens_args){ .path = "corpus.txt",
 *                                        .vocab = 50257, .seq = 1024, .seed = 1 });
 *     tokens_sample(t, step * global_batch + i, ids, labels);
 *     tokens_close(t);
 *
 * Three sources:
 *   - a token file of llm.c, known by its magic number: GPT-2's (20240520, version 1, 16-bit
 *     tokens) and Llama 3's (20240801, version 7, 32-bit tokens);
 *   - any other file: its bytes are the tokens.  A name that ends in .bin is refused, since
 *     tokens without a header (nanoGPT's) would be taken for bytes;
 *   - none (path NULL): a Markov chain, see below.
 *
 * A file of N tokens is cut into W = (N-1)/seq windows; window k predicts tokens
 * k*seq+1 ... k*seq+seq, each from those before it in the window.  Sample i of the run is in
 * epoch i / W; each epoch goes through all windows once, in an order that depends on the
 * seed and the epoch (TOKENS_SHUFFLED), or from first to last (TOKENS_SEQUENTIAL).
 *
 * The chain has A = min(vocab, 256) states, the tokens 0 ... A-1.  From token k it goes to
 *
 *     sigma((tau(k) + j) mod A),  j = 0, 1, 2, 3  with probability  1/2, 1/4, 1/8, 1/8,
 *
 * where sigma and tau are permutations that the seed chooses.  The four are different, so
 * the next token has an entropy of 1.75 bits from wherever the chain is: 1.2130 nats is
 * the mean loss that no model can go below.  All tokens are equally frequent (each j is a
 * permutation), so a model that ignores the context has ln A.  A sample begins at a token
 * drawn uniformly. */
#ifndef DPX_TOKENS_H
#define DPX_TOKENS_H

#include <stdint.h>

struct tokens;

enum tokens_order { TOKENS_SHUFFLED, TOKENS_SEQUENTIAL };

struct tokens_args {
    const char *path;           /* NULL: the chain */
    int64_t  vocab;             /* of the model: no token may be larger */
    int64_t  seq;
    uint64_t seed;
    enum tokens_order order;    /* files only */
};

/* Reads a file of tokens once, to find those beyond the vocabulary.  NULL with the reason
 * reported. */
struct tokens *tokens_open(const struct tokens_args *a);
void tokens_close(struct tokens *t);            /* accepts NULL */

/* ids[seq], and labels[seq]: the token after each.  0, or -1 if the file cannot be read.
 * One thread at a time. */
int tokens_sample(struct tokens *t, int64_t index, int32_t *ids, int32_t *labels);

/* Nats per token that no model can go below; NaN where it is not known: files. */
double tokens_entropy(const struct tokens *t);

/* Windows of the file; 0 for the chain, which never repeats. */
int64_t tokens_windows(const struct tokens *t);

/* One line for the user: "corpus.txt: 1115394 bytes as tokens, 1089 samples an epoch". */
const char *tokens_about(const struct tokens *t);

/* ---- Who computes sample i of a global batch: the only place that says so ----
 *
 *     micro-step i / (micro_batch*world), rank (i / micro_batch) % world, slot i % micro_batch
 *
 * so that a global batch is the same set of samples at any world size. */

struct tokens_place { int64_t micro_step, rank, slot; };

struct tokens_place tokens_place(int64_t i, int64_t micro_batch, int64_t world);

/* The inverse: which i that is. */
int64_t tokens_index(const struct tokens_place *p, int64_t micro_batch, int64_t world);

#endif
