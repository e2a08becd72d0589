/* dpxrun_stages.c -- a pipeline's stages side by side: one rank of each, predicted entry by entry and, after the run, as it
 * ran its last sampled step. */
#include "exec/process/dpxrun.h"

#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "calib/store/runs_stages.h"
#include "model/plan/plan_groups.h"
#include "sim/clock/step.h"
#include "sim/clock/step_ran.h"

/* The ranks along the pipe that go with rank 0; with --comm null, with the one that is played. */
static void find_ranks(struct dpxrun *r)
{
    struct mesh m = plan_mesh(&r->here);
    struct mesh_group pipe = mesh_group(&m, MESH_AXIS(AXIS_PIPE));
    int64_t with = r->o.comm == COMM_NULL ? r->o.rank : 0;

    r->stages.n = (int)mesh_ranks(&pipe);
    r->stages.own = (int)mesh_place(&pipe, with);
    r->stages.of = room_new((size_t)r->stages.n, sizeof *r->stages.of);
    for (int i = 0; i < r->stages.n; i++)
        r->stages.of[i].rank = mesh_member(&pipe, with, i);
}

/* The entries of all stages on one clock. */
static int run_step(struct dpxrun *r, const struct schedules *const *of, struct run *kept, struct timeline *lines)
{
    struct cost_cache *cache = cost_cache_new(&r->here);
    struct coll_memo memo = { 0 };
    struct stages *all = &r->stages;
    struct timeline line;
    struct step st;
    int rc = step_open(&r->here, of, all->n, cache, &memo, &st);

    if (rc == 0) {
        rc = step_run(&st, NULL, lines, kept, &all->predicted_s);
        if (rc == 0)
            step_parts(&st, lines, all->predicted_s, &line, &all->predicted);
        step_close(&st);
    }
    cost_cache_free(cache);
    return rc;
}

/* Of the stage whose entries rank 0 records. */
static void phases(struct dpxrun *r, const struct timeline *line)
{
    const struct stage_part *own = &r->stages.predicted.stage[r->stages.own];
    double *phase = r->predicted.phase;

    phase[RP_COMPUTE] = line->compute_s;
    phase[RP_EXPOSED] = line->exposed_s;
    phase[RP_OPTIMIZER] = line->optimizer_s;
    phase[RP_IDLE] = line->idle_s;
    phase[RP_BUBBLE] = own->bubble_s;
}

int stages_predict(struct dpxrun *r)
{
    const struct schedules *of[EVALUATION_STAGES];
    struct stages *all = &r->stages;

    if (r->here.parallel.pipeline == 1)
        return 0;
    find_ranks(r);
    if (r->rank != 0)
        return 0;
    struct run *kept = room_new((size_t)all->n, sizeof *kept);
    struct timeline *lines = room_new((size_t)all->n, sizeof *lines);
    int rc = 0;

    for (int i = 0; i < all->n && rc == 0; i++) {
        rc = lower(&r->here, all->of[i].rank, &all->of[i].s);
        of[i] = &all->of[i].s;
    }
    if (rc == 0)
        rc = run_step(r, of, kept, lines);
    for (int i = 0; i < all->n; i++)
        all->of[i].predicted = kept[i];
    if (rc == 0)
        phases(r, &lines[all->own]);
    free(kept);
    free(lines);
    return rc;
}

bool stages_has(const struct dpxrun *r, int64_t rank)
{
    for (int i = 0; i < r->stages.n; i++)
        if (r->stages.of[i].rank == rank)
            return true;
    return false;
}

/* ---- what happened ---- */

enum { TAG_COUNT = 1, TAG_ENTRIES };

static const struct sample *last_sample(const struct dpxrun *r)
{
    const struct measured *m = &r->measured;
    const struct sample *a = m->nsamples > 0 ? &m->sample[m->nsamples - 1] : NULL;

    return a && a->id == SCHED_STEADY ? a : NULL;
}

static int send_sample(const struct sample *a)
{
    int64_t n = a ? a->n : 0;

    if (MPI_Send(&n, 1, MPI_INT64_T, 0, TAG_COUNT, MPI_COMM_WORLD) != MPI_SUCCESS ||
        (n > 0 && MPI_Send(a->ran, (int)(n * (int64_t)sizeof *a->ran), MPI_BYTE, 0, TAG_ENTRIES, MPI_COMM_WORLD) != MPI_SUCCESS))
        return fail("MPI_Send of a stage's entries failed");
    return 0;
}

static int receive_sample(struct stage_run *of, struct exec_ran **ran)
{
    int rank = (int)of->rank;

    if (MPI_Recv(&of->n, 1, MPI_INT64_T, rank, TAG_COUNT, MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return fail("MPI_Recv of a stage's entries failed");
    *ran = room_new((size_t)of->n + 1, sizeof **ran);
    if (of->n > 0 && MPI_Recv(*ran, (int)(of->n * (int64_t)sizeof **ran), MPI_BYTE, rank, TAG_ENTRIES, MPI_COMM_WORLD,
                              MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return fail("MPI_Recv of a stage's entries failed");
    return 0;
}

/* As the clock writes entries down. */
static void take(struct stage_run *of, const struct exec_ran *ran)
{
    of->ran = room_new((size_t)of->n + 1, sizeof *of->ran);
    for (int64_t i = 0; i < of->n; i++)
        of->ran[i] = (struct ran){ ran[i].op, ran[i].iteration, ran[i].issued, ran[i].start, ran[i].end, -1 };
}

/* Every stage has as many entries as rank 0's schedule of it says, or none is compared. */
static bool complete(const struct stages *all)
{
    for (int i = 0; i < all->n; i++) {
        const struct stage_run *of = &all->of[i];
        if (of->n == 0)
            return false;
        for (int64_t k = 0; k < of->n; k++)
            if (of->ran[k].op < of->s.begin[SCHED_STEADY] || of->ran[k].op >= of->s.end[SCHED_STEADY])
                return false;
    }
    return true;
}

static void compare(struct dpxrun *r)
{
    struct stages *all = &r->stages;
    struct step_ran *ran = room_new((size_t)all->n, sizeof *ran);
    double **since = room_new((size_t)all->n, sizeof *since), *phase = r->measured.phase;

    for (int i = 0; i < all->n; i++) {
        ran[i] = (struct step_ran){ &all->of[i].s, all->of[i].ran, all->of[i].n };
        since[i] = all->of[i].since = room_new((size_t)all->of[i].n, sizeof *since[i]);
    }
    step_ran_parts(ran, all->n, &all->measured, &all->step_s);
    step_ran_since(ran, all->n, since);
    free(since);
    free(ran);
    phase[RP_BUBBLE] = all->measured.stage[all->own].bubble_s;
    phase[RP_EXPOSED] = fmax(0, all->step_s - phase[RP_COMPUTE] - phase[RP_OPTIMIZER] - phase[RP_IDLE] - phase[RP_BUBBLE]);
}

int stages_measure(struct dpxrun *r)
{
    struct stages *all = &r->stages;
    const struct sample *mine = last_sample(r);

    if (all->n == 0 || r->o.comm == COMM_NULL)
        return 0;
    if (r->rank != 0)
        return stages_has(r, r->rank) ? send_sample(mine) : 0;
    for (int i = 0; i < all->n; i++) {
        struct stage_run *of = &all->of[i];
        struct exec_ran *got = NULL;
        of->n = of->rank == 0 && mine ? mine->n : 0;
        if (of->rank != 0 && receive_sample(of, &got) < 0) {
            free(got);
            return -1;
        }
        take(of, of->rank == 0 ? mine ? mine->ran : NULL : got);
        free(got);
    }
    all->compared = complete(all);
    if (all->compared)
        compare(r);
    return 0;
}

void stages_free(struct stages *all)
{
    for (int i = 0; i < all->n; i++) {
        schedules_free(&all->of[i].s);
        run_free(&all->of[i].predicted);
        free(all->of[i].ran);
        free(all->of[i].since);
    }
    free(all->of);
}

/* ---- saying it ---- */

/* Both sides, as the database has them; NaN: not compared. */
static struct run_stage *both(const struct stages *all)
{
    struct run_stage *s = room_new((size_t)all->n + 1, sizeof *s);

    for (int i = 0; i < all->n; i++) {
        const struct stage_part *p = &all->predicted.stage[i], *m = &all->measured.stage[i];
        s[i] = (struct run_stage){ i, all->of[i].rank, { p->work_s, p->messages_s, p->bubble_s }, { NAN, NAN, NAN } };
        if (all->compared)
            s[i].measured = (struct run_stage_s){ m->work_s, m->messages_s, m->bubble_s };
    }
    return s;
}

static json_t *real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

void stages_json(const struct dpxrun *r, json_t *doc)
{
    const struct stages *all = &r->stages;
    struct run_stage *s = both(all);
    json_t *list = json_array();

    for (int i = 0; i < all->n; i++)
        json_array_append_new(list, json_pack("{s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "stage", i, "rank", (json_int_t)s[i].rank,
                                              "work_s", real(s[i].measured.work), "predicted_work_s", real(s[i].predicted.work),
                                              "messages_s", real(s[i].measured.messages), "predicted_messages_s",
                                              real(s[i].predicted.messages), "bubble_s", real(s[i].measured.bubble),
                                              "predicted_bubble_s", real(s[i].predicted.bubble)));
    if (all->n > 0) {
        json_object_set(doc, "stages", list);
        json_object_set_new(doc, "bubble_share", real(runs_stages_bubble(s, all->n, false)));
        json_object_set_new(doc, "predicted_bubble_share", real(runs_stages_bubble(s, all->n, true)));
    }
    json_decref(list);
    free(s);
}

void stages_print(const struct dpxrun *r, FILE *to)
{
    const struct stages *all = &r->stages;
    struct run_stage *s = both(all);

    if (all->n > 0)
        fprintf(to, "  %-28s %12.1f %%", "bubble, of all stages", 100 * runs_stages_bubble(s, all->n, true));
    if (all->n > 0 && all->compared)    /* one rank alone has not seen the others */
        fprintf(to, " %12.1f %%", 100 * runs_stages_bubble(s, all->n, false));
    if (all->n > 0)
        fprintf(to, "\n");
    free(s);
}

int stages_record(struct dpxrun *r, bool predicted)
{
    const struct stages *all = &r->stages;
    struct run_stage *s = both(all);
    int rc = 0;

    if (all->n > 0 && (predicted || all->compared))
        rc = (predicted ? runs_stages_predicted : runs_stages_measured)(r->db, r->run_id, s, all->n);
    free(s);
    return rc;
}
