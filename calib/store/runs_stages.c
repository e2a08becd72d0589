/* runs_stages.c -- see runs_stages.h. */
#include "calib/store/runs_stages.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "calib/store/query.h"

static const char predicted_sql[] =
    "INSERT INTO stage (run, stage, rank, predicted_work_s, predicted_messages_s, predicted_bubble_s) VALUES (?, ?, ?, ?, ?, ?)";
static const char measured_sql[] =
    "INSERT INTO stage (run, stage, rank, work_s, messages_s, bubble_s) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (run, stage)"
    " DO UPDATE SET work_s = excluded.work_s, messages_s = excluded.messages_s, bubble_s = excluded.bubble_s";

static int put(struct db *db, const char *sql, int64_t run, const struct run_stage *s, int n, bool predicted)
{
    struct query q;

    query_open(&q, db, sql);
    for (int i = 0; i < n; i++) {
        const struct run_stage_s *of = predicted ? &s[i].predicted : &s[i].measured;
        query_put_int(&q, run);
        query_put_int(&q, s[i].stage);
        query_put_int(&q, s[i].rank);
        query_put_real(&q, of->work);
        query_put_real(&q, of->messages);
        query_put_real(&q, of->bubble);
        query_done(&q);
    }
    return query_close(&q);
}

static int record(struct db *db, const char *sql, int64_t run, const struct run_stage *s, int n, bool predicted)
{
    int rc = db_begin(db);

    if (rc == 0)
        rc = db_end(db, put(db, sql, run, s, n, predicted));
    return rc < 0 ? db_fail(db, "recording the stages of run %" PRId64, run) : 0;
}

int runs_stages_predicted(struct db *db, int64_t run, const struct run_stage *s, int n)
{
    return record(db, predicted_sql, run, s, n, true);
}

int runs_stages_measured(struct db *db, int64_t run, const struct run_stage *s, int n)
{
    return record(db, measured_sql, run, s, n, false);
}

int runs_stages(struct db *db, int64_t run, struct run_stages *out)
{
    struct query q;

    memset(out, 0, sizeof *out);
    query_open(&q, db, "SELECT stage, rank, predicted_work_s, predicted_messages_s, predicted_bubble_s, work_s, messages_s,"
                       " bubble_s FROM stage WHERE run = ? ORDER BY stage");
    query_put_int(&q, run);
    while (query_row(&q)) {
        out->stage = query_array_grow(out->stage, out->n, sizeof *out->stage);
        struct run_stage *s = &out->stage[out->n++];
        s->stage = query_get_int(&q);
        s->rank = query_get_int(&q);
        double *const of[] = { &s->predicted.work, &s->predicted.messages, &s->predicted.bubble, &s->measured.work,
                               &s->measured.messages, &s->measured.bubble };
        for (size_t i = 0; i < sizeof of / sizeof *of; i++)
            *of[i] = query_get_real(&q);
    }
    if (query_close(&q) == 0)
        return 0;
    run_stages_free(out);
    return db_fail(db, "reading the stages of run %" PRId64, run);
}

void run_stages_free(struct run_stages *s)
{
    free(s->stage);
    memset(s, 0, sizeof *s);
}

double runs_stages_bubble(const struct run_stage *s, int n, bool predicted)
{
    double share = n ? 0 : NAN;

    for (int i = 0; i < n; i++) {
        const struct run_stage_s *of = predicted ? &s[i].predicted : &s[i].measured;
        share += of->bubble / (of->work + of->messages + of->bubble) / n;
    }
    return share;
}
