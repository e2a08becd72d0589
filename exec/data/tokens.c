/* tokens.c -- the order of samples, and tokens from bytes, from .bin files or from the built-in source. */
#include "exec/data/tokens.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/input.h"
#include "exec/kernels/rng.h"

enum { SUCCESSORS = 4, MAX_STATES = 256 };

/* How tokens lie in a file. */
struct layout {
    const char *name;
    int32_t magic, version;             /* of the header's first two numbers */
    int64_t header;                     /* bytes */
    int64_t width;                      /* bytes of a token, unsigned */
};

/* llm.c, dev/data/data_common.py: the header is 256 32-bit numbers, the third of which
 * counts the tokens. */
static const struct layout token_files[] = {
    { "16-bit tokens", 20240520, 1, 1024, 2 },
    { "32-bit tokens", 20240801, 7, 1024, 4 },
};
static const struct layout byte_file = { "bytes as tokens", 0, 0, 0, 1 };

struct tokens {
    struct tokens_args a;
    char    about[512];
    /* files */
    char   *path;
    int     fd;
    const struct layout *layout;
    int64_t ntokens, windows;
    unsigned char *raw;                 /* a window and the token after it */
    /* the chain */
    int32_t states;
    int32_t next[MAX_STATES][SUCCESSORS];
};

/* ---- The chain ---- */

static int open_chain(struct tokens *t)
{
    uint64_t tau = rng_key(t->a.seed, RNG_DATA_CHAIN, 0), sigma = rng_key(t->a.seed, RNG_DATA_CHAIN, 1);
    int64_t n = t->a.vocab < MAX_STATES ? t->a.vocab : MAX_STATES;

    if (n < SUCCESSORS)
        return fail("the built-in data needs a vocabulary of at least %d tokens, not %" PRId64,
                    SUCCESSORS, t->a.vocab);
    t->states = (int32_t)n;
    for (int64_t k = 0; k < n; k++)
        for (int64_t j = 0; j < SUCCESSORS; j++)
            t->next[k][j] = (int32_t)rng_permuted(sigma, n, (rng_permuted(tau, n, k) + j) % n);
    snprintf(t->about, sizeof t->about, "built-in data: a Markov chain of %d tokens, whose loss cannot "
             "go below %.4f", (int)n, tokens_entropy(t));
    return 0;
}

/* Of the eight outcomes of three bits four are j = 0, two j = 1, one each j = 2 and 3. */
static int successor(uint64_t bits)
{
    static const int j[8] = { 0, 0, 0, 0, 1, 1, 2, 3 };

    return j[bits & 7];
}

static void sample_chain(const struct tokens *t, int64_t index, int32_t *ids, int32_t *labels)
{
    uint64_t key = rng_key(t->a.seed, RNG_DATA_SAMPLE, (uint64_t)index);
    int32_t at = (int32_t)(rng_bits(key, 0) % (uint64_t)t->states);

    for (int64_t i = 0; i < t->a.seq; i++) {
        ids[i] = at;
        at = t->next[at][successor(rng_bits(key, (uint64_t)i + 1))];
        labels[i] = at;
    }
}

double tokens_entropy(const struct tokens *t)
{
    /* 1/2 log 2 + 1/4 log 4 + 2 * 1/8 log 8 */
    return t->a.path ? NAN : 1.75 * log(2);
}

/* ---- Files ---- */

static int read_bytes(const struct tokens *t, int64_t at, int64_t n, void *into)
{
    for (char *to = into; n > 0; ) {
        ssize_t got = pread(t->fd, to, (size_t)n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail("%s: %s", t->path, strerror(errno));
        if (got == 0)
            return fail("%s: ends at byte %" PRId64 ": it was longer when it was opened", t->path, at);
        to += got;
        at += got;
        n -= got;
    }
    return 0;
}

/* The i-th token of raw bytes. */
static uint32_t token_at(const struct layout *l, const unsigned char *raw, int64_t i)
{
    uint32_t token = 0;

    for (int64_t b = l->width - 1; b >= 0; b--)         /* little-endian */
        token = token << 8 | raw[i * l->width + b];
    return token;
}

static int beyond(const struct tokens *t, int64_t at, uint32_t token)
{
    return fail("%s: token %" PRId64 " is %" PRIu32 ": the model's vocabulary has %" PRId64, t->path, at,
                token, t->a.vocab);
}

static int32_t header_number(const unsigned char *header, int i)
{
    static const struct layout number = { .width = 4 };

    return (int32_t)token_at(&number, header, i);
}

/* The layout whose magic number the file begins with, or NULL. */
static const struct layout *by_magic(const unsigned char *header)
{
    for (size_t i = 0; i < sizeof token_files / sizeof *token_files; i++)
        if (header_number(header, 0) == token_files[i].magic)
            return &token_files[i];
    return NULL;
}

static int check_header(struct tokens *t, const struct layout *l, const unsigned char *header,
                        int64_t size)
{
    if (header_number(header, 1) != l->version)
        return fail("%s: a token file of version %d: must be %d", t->path, header_number(header, 1),
                    l->version);
    t->layout = l;
    t->ntokens = header_number(header, 2);
    if (t->ntokens < 0 || l->header + t->ntokens * l->width != size)
        return fail("%s: its header says %" PRId64 " tokens of %" PRId64 " bytes, but it has %" PRId64
                    " bytes in all", t->path, t->ntokens, l->width, size);
    return 0;
}

static int take_bytes(struct tokens *t, int64_t size)
{
    size_t n = strlen(t->path);

    if (n >= 4 && !strcmp(t->path + n - 4, ".bin"))
        return fail("%s: not a token file of llm.c: does not begin with %d or %d (to train on its "
                    "bytes, rename it)", t->path, token_files[0].magic, token_files[1].magic);
    if (t->a.vocab < 256)
        return fail("%s: bytes as tokens need a vocabulary of at least 256, not %" PRId64, t->path,
                    t->a.vocab);
    t->layout = &byte_file;
    t->ntokens = size;
    return 0;
}

static int find_layout(struct tokens *t)
{
    unsigned char header[1024] = { 0 };
    const struct layout *l;
    int64_t size;

    t->fd = input_file(t->path, &size);
    if (t->fd < 0 || read_bytes(t, 0, size < 1024 ? size : 1024, header) < 0)
        return -1;
    l = by_magic(header);
    return l ? check_header(t, l, header, size) : take_bytes(t, size);
}

/* Whether its largest token is within any vocabulary it was opened with. */
static bool any_token_fits(const struct tokens *t)
{
    return t->layout->width < 4 && t->a.vocab >= (int64_t)1 << 8 * t->layout->width;
}

/* Better now than in the middle of a run. */
static int check_tokens(const struct tokens *t)
{
    static const int64_t piece = 16384;
    unsigned char *raw = malloc((size_t)(piece * t->layout->width));
    int rc = raw ? 0 : fail("%s: out of memory", t->path);

    for (int64_t at = 0; rc == 0 && at < t->ntokens; at += piece) {
        int64_t n = t->ntokens - at < piece ? t->ntokens - at : piece;
        rc = read_bytes(t, t->layout->header + at * t->layout->width, n * t->layout->width, raw);
        for (int64_t i = 0; rc == 0 && i < n; i++)
            if (token_at(t->layout, raw, i) >= t->a.vocab)
                rc = beyond(t, at + i, token_at(t->layout, raw, i));
    }
    free(raw);
    return rc;
}

static int open_file(struct tokens *t)
{
    if (find_layout(t) < 0)
        return -1;
    t->windows = t->ntokens > 0 ? (t->ntokens - 1) / t->a.seq : 0;
    if (t->windows == 0)
        return fail("%s: has %" PRId64 " tokens: a sample needs %" PRId64, t->path, t->ntokens, t->a.seq + 1);
    if (!any_token_fits(t) && check_tokens(t) < 0)
        return -1;
    t->raw = malloc((size_t)((t->a.seq + 1) * t->layout->width));
    if (!t->raw)
        return fail("%s: out of memory", t->path);
    snprintf(t->about, sizeof t->about, "%s: %" PRId64 " %s, %" PRId64 " samples an epoch", t->path,
             t->ntokens, t->layout->name, t->windows);
    return 0;
}

static int64_t window_of(const struct tokens *t, int64_t index)
{
    int64_t epoch = index / t->windows, at = index % t->windows;

    if (t->a.order == TOKENS_SEQUENTIAL)
        return at;
    return rng_permuted(rng_key(t->a.seed, RNG_DATA_ORDER, (uint64_t)epoch), t->windows, at);
}

static int sample_file(const struct tokens *t, int64_t index, int32_t *ids, int32_t *labels)
{
    const struct layout *l = t->layout;
    int64_t first = window_of(t, index) * t->a.seq;

    if (read_bytes(t, l->header + first * l->width, (t->a.seq + 1) * l->width, t->raw) < 0)
        return -1;
    for (int64_t i = 0; i <= t->a.seq; i++) {
        uint32_t token = token_at(l, t->raw, i);
        if (token >= t->a.vocab)                /* the file changed since it was opened */
            return beyond(t, first + i, token);
        if (i < t->a.seq)
            ids[i] = (int32_t)token;
        if (i > 0)
            labels[i - 1] = (int32_t)token;
    }
    return 0;
}

/* ---- Interface ---- */

struct tokens *tokens_open(const struct tokens_args *a)
{
    struct tokens *t = calloc(1, sizeof *t);

    assert(a->seq >= 1 && a->vocab >= 1 && a->vocab <= INT32_MAX);
    if (!t || (a->path && !(t->path = strdup(a->path)))) {
        fail("out of memory for the data");
        free(t);
        return NULL;
    }
    t->a = *a;
    t->a.path = t->path;
    t->fd = -1;
    if ((t->path ? open_file(t) : open_chain(t)) == 0)
        return t;
    tokens_close(t);
    return NULL;
}

void tokens_close(struct tokens *t)
{
    if (!t)
        return;
    if (t->fd >= 0)
        close(t->fd);
    free(t->raw);
    free(t->path);
    free(t);
}

int tokens_sample(struct tokens *t, int64_t index, int32_t *ids, int32_t *labels)
{
    assert(index >= 0);
    if (t->path)
        return sample_file(t, index, ids, labels);
    sample_chain(t, index, ids, labels);
    return 0;
}

int64_t     tokens_windows(const struct tokens *t) { return t->windows; }
const char *tokens_about(const struct tokens *t)   { return t->about; }

/* ---- Who computes what ---- */

struct tokens_place tokens_place(int64_t i, int64_t micro_batch, int64_t world)
{
    return (struct tokens_place){ i / (micro_batch * world), i / micro_batch % world, i % micro_batch };
}

int64_t tokens_index(const struct tokens_place *p, int64_t micro_batch, int64_t world)
{
    return (p->micro_step * world + p->rank) * micro_batch + p->slot;
}
