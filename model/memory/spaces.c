/* spaces.c -- accounts of host memory and disks, by node. */
#include "model/memory/spaces.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "model/schedule/ledger.h"

/* The spaces whose sum an account is. */
static unsigned spaces_in(enum space s) { return s == SPACE_HOST ? (unsigned)IN_HOST : IN(s); }

void spaces_add(const struct schedules *s, int64_t ranks, struct space_accounts *node)
{
    struct ledger l;

    for (enum space m = SPACE_PINNED; m < NSPACE; m++) {
        if (!(s->spaces & spaces_in(m)))
            continue;
        ledger_run_in(s, spaces_in(m), &l);
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
        if (lower_using(p, r, g, s) < 0)
            return -1;
        spaces_add(s, alike ? each : 1, node);
    }
    return 0;
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
        if (add_node(p, g, s, ranks[i], n == 1, &node) < 0)
            return -1;
        for (int m = 0; m < NSPACE; m++) {
            out->of[m].used |= node.of[m].used;
            if (node.of[m].rank_peak > out->of[m].rank_peak)
                out->of[m].rank_peak = node.of[m].rank_peak;
            if (node.of[m].peak > out->of[m].peak)
                out->of[m].peak = node.of[m].peak;
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

void spaces_why_not(const struct space_accounts *a, char *to, int size)
{
    int m = spaces_short(a), n;

    to[0] = '\0';
    if (m < 0)
        return;
    n = snprintf(to, (size_t)size, "%s of a node: needs %s of %s", m == SPACE_HOST ? "host memory" : "disk space",
                 size_text(a->of[m].peak).s, size_text(a->of[m].available).s);
    if (m == SPACE_HOST && a->of[SPACE_PINNED].peak > 0 && n > 0 && n < size)
        snprintf(to + n, (size_t)(size - n), ", pinned buffers are %s of it", size_text(a->of[SPACE_PINNED].peak).s);
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
