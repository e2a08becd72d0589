/* coll_rows.h -- data/collectives_published.csv: one published timing of a collective a row, each with its source. */
#ifndef DPX_COLL_ROWS_H
#define DPX_COLL_ROWS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/cluster/cluster.h"
#include "model/schedule/schedule.h"

#define COLL_ROWS_CSV "tests/sim/data/collectives_published.csv"

struct coll_row {
    char   cluster[32], how[40], source[128];
    double inter, seconds;      /* inter: bytes/s out of a node, where the source says it */
    int    nics, ranks, per_node;
    enum coll_op op;
    int64_t bytes;
};

static inline int coll_rows_op(const char *name)
{
    for (int op = 0; op < NCOLL; op++) {
        char word[32];
        snprintf(word, sizeof word, "%s", coll_name((enum coll_op)op));
        for (char *c = word; *c; c++)
            if (*c == '-')
                *c = '_';
        if (!strcmp(word, name))
            return op;
    }
    return -1;
}

/* Reads at most `most` rows; returns how many, -1 where one is malformed. */
static inline int coll_rows_read(struct coll_row *rows, int most)
{
    char  line[512];
    int   n = 0;
    FILE *f = fopen(COLL_ROWS_CSV, "r");

    if (!f || !fgets(line, sizeof line, f))
        return -1;
    while (n < most && fgets(line, sizeof line, f)) {
        char *field[10], *at = line;
        struct coll_row *r = &rows[n++];
        int op;

        for (int i = 0; i < 10; i++) {
            field[i] = at;
            at += strcspn(at, ",\n");
            if (*at)
                *at++ = '\0';
        }
        snprintf(r->cluster, sizeof r->cluster, "%.31s", field[0]);
        snprintf(r->how, sizeof r->how, "%.39s", field[8]);
        snprintf(r->source, sizeof r->source, "%.127s", field[9]);
        r->inter = atof(field[1]) * 1e9;
        r->nics = atoi(field[2]);
        r->ranks = atoi(field[3]);
        r->per_node = atoi(field[4]);
        op = coll_rows_op(field[5]);
        r->bytes = atoll(field[6]);
        r->seconds = atof(field[7]) * 1e-6;
        if (op < 0 || r->ranks < 2 || r->per_node < 1 || r->bytes < 1 || r->seconds <= 0) {
            fprintf(stderr, COLL_ROWS_CSV ": row %d\n", n + 1);
            fclose(f);
            return -1;
        }
        r->op = (enum coll_op)op;
    }
    fclose(f);
    return n;
}

/* The cluster that a row was taken on.  0 or -1. */
static inline int coll_rows_cluster(const struct coll_row *r, struct cluster *out)
{
    if (cluster_load(r->cluster, out) < 0)
        return -1;
    if (r->nics) {
        out->inter = r->inter;
        out->nics = r->nics;
    }
    return 0;
}

#endif
