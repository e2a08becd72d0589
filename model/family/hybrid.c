/* hybrid.c -- see hybrid.h. */
#include "model/family/hybrid.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/family/model.h"

static const char letters[NBLOCK_KIND + 1] = "M*-E";

char hybrid_letter(enum block_kind kind) { return letters[kind]; }

struct hybrid *hybrid_of_pattern(const char *pattern, char *other)
{
    struct hybrid *h = room_new(1, sizeof *h);

    h->refs = 1;
    for (; pattern[h->n]; h->n++) {
        const char *at = strchr(letters, pattern[h->n]);
        *other = pattern[h->n];
        if (!at || h->n == HYBRID_BLOCKS) {
            hybrid_free(h);
            return NULL;
        }
        h->kind[h->n] = (uint8_t)(at - letters);
    }
    return h;
}

struct hybrid *hybrid_share(struct hybrid *h)
{
    if (h)
        __atomic_add_fetch(&h->refs, 1, __ATOMIC_RELAXED);
    return h;
}

void hybrid_free(struct hybrid *h)
{
    if (h && __atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free(h);
}

enum block_kind hybrid_kind(const struct model *m, int64_t block)
{
    return m->hybrid ? (enum block_kind)m->hybrid->kind[block] : BLOCK_ATTENTION;
}

int64_t hybrid_blocks(const struct model *m, enum block_kind kind)
{
    int64_t n = 0;

    for (int64_t b = 0; m->hybrid && b < m->layers; b++)
        n += m->hybrid->kind[b] == kind;
    return n;
}

int64_t hybrid_attending(const struct model *m) { return m->hybrid ? hybrid_blocks(m, BLOCK_ATTENTION) : m->layers; }

/* A block belongs to the first sort of its kind whose next member it is. */
static int find_sorts(struct hybrid *h)
{
    int members[HYBRID_BLOCKS] = { 0 }, sorts = 0;

    for (int u = 0; u < h->n; u++) {
        h->alike[u] = u;
        h->stride[u] = 0;
        for (int v = 0; v < u && h->alike[u] == u; v++)
            if (h->alike[v] == v && h->kind[v] == h->kind[u] && (h->stride[v] == 0 || h->first[u] == h->first[v] + members[v] * h->stride[v])) {
                h->alike[u] = v;
                h->stride[v] = h->stride[v] ? h->stride[v] : h->first[u] - h->first[v];
            }
        h->place[u] = members[h->alike[u]]++;
        sorts += h->alike[u] == u;
    }
    return sorts;
}

int hybrid_lay_out(struct model *m, int64_t from, const char *where)
{
    struct hybrid *old = m->hybrid, *h;

    if (!old)
        return 0;
    assert(from >= 0 && from + m->layers <= old->n);
    h = room_new(1, sizeof *h);
    h->refs = 1;
    h->n = (int)m->layers;
    memcpy(h->kind, old->kind + from, (size_t)h->n);
    for (int t = 0; t < m->ntensors; t++)
        if (m->tensors[t].block >= 0 && h->ntensors[m->tensors[t].block]++ == 0)
            h->first[m->tensors[t].block] = t;
    h->first[h->n] = h->n ? h->first[h->n - 1] + h->ntensors[h->n - 1] : m->block0;
    m->hybrid = h;
    hybrid_free(old);
    return find_sorts(h) <= HYBRID_SORTS ? 0 : fail("%s: the kinds of its blocks change in more than %d ways: not planned", where, HYBRID_SORTS);
}
