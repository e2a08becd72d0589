/* spaces.c -- accounts of host memory and disks, by node. */
#include "model/memory/spaces.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "model/schedule/ledger.h"

/* The spaces whose sum an account is. */
static unsigned spaces_in(enum space s) { return s == SPACE_HOST ? (unsigned)IN_HOST : IN(s); }

static bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

/* Is every allocation in this space a power of two? */
static bool rounds(const struct schedules *s, enum space in)
{
    bool any = false;

    for (int i = 0; i < s->nbufs; i++) {
        const struct buf *b = &s->bufs[i];
        if (b->space != in || b->bytes == 0)
            continue;
        any = true;
        if (b->nparts == 0 && !is_power_of_two(b->bytes))
            return false;
        for (int k = 0; k < b->nparts; k++)
            if (s->parts[b->part0 + k] && !is_power_of_two(s->parts[b->part0 + k]))
                return false;
    }
    return any;
}

void spaces_add(const struct schedules *s, int64_t ranks, struct space_accounts *node)
{
    struct ledger l;

    for (enum space m = SPACE_PINNED; m < NSPACE; m++) {
        if (!(s->spaces & spaces_in(m)))
            continue;
        ledger_run_in(s, spaces_in(m), &l);
        node->of[m].powers_of_two = (!node->of[m].used || node->of[m].powers_of_two) && rounds(s, m);
        node->of[m].used = true;
        node->of[m].peak += ranks * l.peak.bytes;
        if (l.peak.bytes > node->of[m].rank_peak)
            node->of[m].rank_peak = l.peak.bytes;
    }
}

/* All ranks of the node that `rank` is on; where all ranks are alike, one stands for them. */
static int add_node(const struct plan *p, const struct program *g, struct schedules *s, int64_t rank, bool alike,
                    struct space_accounts *node)
{
    int64_t each = p->cluster.gpus_per_node, first = rank / each * each;

    memset(node, 0, sizeof *node);
    for (int64_t r = alike ? rank : first; r < (alike ? rank + 1 : first + each); r++) {
        if (lower_unless(p, r, g, s) < 0)
            return -1;
        spaces_add(s, alike ? each : 1, node);
    }
    return 0;
}

/* Is ranks[i] on the node of one before it?  All ranks of a node are accounted together. */
static bool node_was(const struct plan *p, const int64_t *ranks, int i)
{
    int64_t each = p->cluster.gpus_per_node;

    for (int k = 0; k < i; k++)
        if (ranks[k] / each == ranks[i] / each)
            return true;
    return false;
}

int spaces_judge(const struct cluster *c, int64_t device, struct space_accounts *a)
{
    if (a->of[SPACE_HOST].used && cluster_host_memory(c, &a->of[SPACE_HOST].available) < 0)
        return -1;
    a->of[SPACE_PINNED].available = a->of[SPACE_HOST].available;
    if (a->of[SPACE_DISK].used && cluster_disk(c, &a->of[SPACE_DISK].available) < 0)
        return -1;
    if (c->is_host && a->of[SPACE_HOST].used)
        a->of[SPACE_HOST].peak += device * c->gpus_per_node;
    for (int m = 0; m < NSPACE; m++)
        a->of[m].fits = !a->of[m].used || a->of[m].peak <= a->of[m].available;
    return 0;
}

int spaces_account(const struct plan *p, const struct program *g, struct schedules *s, const int64_t *ranks, int n,
                   int64_t device, struct space_accounts *out)
{
    struct space_accounts node;

    memset(out, 0, sizeof *out);
    for (int i = 0; i < n; i++) {
        if (node_was(p, ranks, i))
            continue;
        if (add_node(p, g, s, ranks[i], n == 1, &node) < 0)
            return -1;
        for (int m = 0; m < NSPACE; m++) {
            out->of[m].used |= node.of[m].used;
            if (node.of[m].rank_peak > out->of[m].rank_peak)
                out->of[m].rank_peak = node.of[m].rank_peak;
            if (node.of[m].peak > out->of[m].peak) {
                out->of[m].peak = node.of[m].peak;
                out->of[m].powers_of_two = node.of[m].powers_of_two;
            }
        }
    }
    return spaces_judge(&p->cluster, device, out);
}

/* Pinned memory is short only as part of host memory. */
int spaces_short(const struct space_accounts *a)
{
    for (int m = SPACE_HOST; m < NSPACE; m++)
        if (a->of[m].used && !a->of[m].fits)
            return m;
    return -1;
}

static int says(char *to, int size, int at, const char *words)
{
    return at < size ? at + snprintf(to + at, (size_t)(size - at), "%s", words) : at;
}

void spaces_why_not(const struct space_accounts *a, char *to, int size)
{
    const struct space_account *pinned = &a->of[SPACE_PINNED];
    char words[160];
    int n = 0;

    to[0] = '\0';
    for (int m = SPACE_HOST; m < NSPACE; m++) {
        if (!a->of[m].used || a->of[m].fits)
            continue;
        snprintf(words, sizeof words, "%s%s of a node: needs %s of %s", n ? "; " : "",
                 m == SPACE_HOST ? "host memory" : "disk space", size_text(a->of[m].peak).s, size_text(a->of[m].available).s);
        n = says(to, size, n, words);
        if (m != SPACE_HOST || pinned->peak == 0)
            continue;
        snprintf(words, sizeof words, ", pinned buffers%s are %s of it",
                 pinned->powers_of_two ? " rounded to powers of two" : "", size_text(pinned->peak).s);
        n = says(to, size, n, words);
    }
}

json_t *spaces_json(const struct space_accounts *a, int64_t device_peak, int64_t device_available)
{
    json_t *list = json_array();

    json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:s}", "space", space_name(SPACE_DEVICE), "peak_bytes",
                                          (json_int_t)device_peak, "available_bytes", (json_int_t)device_available,
                                          "per", "rank"));
    for (int m = SPACE_PINNED; m < NSPACE; m++)
        if (a->of[m].used)
            json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:s}", "space", space_name((enum space)m),
                                                  "peak_bytes", (json_int_t)a->of[m].peak, "available_bytes",
                                                  (json_int_t)a->of[m].available, "per", "node"));
    return list;
}
