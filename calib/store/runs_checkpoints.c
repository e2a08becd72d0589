/* runs_checkpoints.c -- see runs_checkpoints.h. */
#include "calib/store/runs_checkpoints.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "calib/store/query.h"

int runs_checkpoint(struct db *db, int64_t run, const struct run_checkpoint *one)
{
    struct query q;

    query_open(&q, db, "INSERT INTO checkpoint (run, step, loaded, predicted_bytes, bytes, predicted_s, seconds) VALUES (?, ?, ?, ?, ?, ?, ?)");
    query_put_int(&q, run);
    query_put_int(&q, one->step);
    query_put_int(&q, one->loaded);
    query_put_int(&q, one->predicted_bytes);
    query_put_int(&q, one->bytes);
    query_put_real(&q, one->predicted_s);
    query_put_real(&q, one->seconds);
    query_done(&q);
    return query_close(&q) < 0 ? db_fail(db, "recording a checkpoint of run %" PRId64, run) : 0;
}

int runs_checkpoints(struct db *db, int64_t run, struct run_checkpoints *out)
{
    struct query q;

    memset(out, 0, sizeof *out);
    query_open(&q, db, "SELECT step, loaded, predicted_bytes, bytes, predicted_s, seconds FROM checkpoint WHERE run = ? ORDER BY step, loaded DESC");
    query_put_int(&q, run);
    while (query_row(&q)) {
        out->of = query_array_grow(out->of, out->n, sizeof *out->of);
        struct run_checkpoint *c = &out->of[out->n++];
        c->step = query_get_int(&q);
        c->loaded = query_get_int(&q) != 0;
        c->predicted_bytes = query_get_int(&q);
        c->bytes = query_get_int(&q);
        c->predicted_s = query_get_real(&q);
        c->seconds = query_get_real(&q);
    }
    if (query_close(&q) == 0)
        return 0;
    run_checkpoints_free(out);
    return db_fail(db, "reading the checkpoints of run %" PRId64, run);
}

void run_checkpoints_free(struct run_checkpoints *l)
{
    free(l->of);
    memset(l, 0, sizeof *l);
}
