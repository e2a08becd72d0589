/* dpxrun_checkpoint.c -- --checkpoint-every and --resume: when the state is saved, which checkpoint a run goes on from, and what that took
 * beside what was predicted. */
#include "exec/process/dpxrun.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/percent.h"
#include "base/size.h"
#include "calib/store/runs_checkpoints.h"
#include "exec/process/same_run.h"
#include "exec/train/checkpoint.h"
#include "model/schedule/outlives.h"

#define FOLDER "dpx-checkpoints"

static const char *folder_of(const struct dpxrun *r) { return r->o.checkpoint_dir ? r->o.checkpoint_dir : FOLDER; }

static bool is_asked(const struct options *o) { return o->checkpoint_every > 0 || o->resume; }

int checkpoints_check(const struct dpxrun *r)
{
    const struct options *o = &r->o;
    struct stat st;

    if (o->checkpoint_dir && !is_asked(o))
        return fail("--checkpoint-dir: add --checkpoint-every K, --resume, or both");
    if (!is_asked(o))
        return 0;
    if (o->engine)
        return fail("--%s: with --engine the framework runs the steps; only dpxrun's own executor saves its state", o->resume ? "resume" : "checkpoint-every");
    if (o->comm == COMM_NULL)
        return fail("--%s: with --comm null there is no state worth keeping", o->resume ? "resume" : "checkpoint-every");
    if (stat(folder_of(r), &st) == 0 && (!S_ISDIR(st.st_mode) || access(folder_of(r), R_OK | W_OK | X_OK) < 0))
        return fail("%s: checkpoints cannot be written there: %s", folder_of(r), S_ISDIR(st.st_mode) ? strerror(errno) : "it is not a folder");
    return 0;
}

/* What a run that goes on must have been given: all that ranks must be given, and what only changes how sums are rounded. */
static json_t *document(const struct dpxrun *r)
{
    static const char *const no_matter[] = { "--save", "--save-grads", "--grads-step" };
    json_t *all = json_object(), *same = dpxrun_same_document(r);

    for (size_t i = 0; i < sizeof no_matter / sizeof *no_matter; i++)
        json_object_del(same, no_matter[i]);
    json_object_set_new(all, "the number of ranks", json_integer(r->here.cluster.world_size));
    json_object_update(all, same);
    json_object_set_new(all, "--threads", json_integer(dpxrun_threads(r)));
    json_decref(same);
    return all;
}

/* Rank 0: the step to go on from; 0: from the first.  An exit status. */
static int find(struct dpxrun *r)
{
    json_t *run = NULL;
    char name[4096];
    int rc = checkpoint_newest(folder_of(r), &r->saved.from, &run);

    snprintf(name, sizeof name, "%s/step-%08" PRId64, folder_of(r), r->saved.from);
    if (rc == 0 && run && same_run_as(name, run, r->saved.run) < 0)
        rc = -1;
    if (rc == 0 && !run)
        fprintf(stderr, "dpx: %s holds no checkpoint: the run begins with step 1\n", folder_of(r));
    json_decref(run);
    return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
}

int checkpoints_begin(struct dpxrun *r)
{
    int64_t found[2] = { EXIT_DONE, 0 };

    if (!is_asked(&r->o))
        return EXIT_DONE;
    if (r->rank == 0)
        r->saved.run = document(r);
    if (r->rank == 0 && r->o.resume)
        found[0] = find(r);
    found[1] = r->saved.from;
    if (MPI_Bcast(found, 2, MPI_INT64_T, 0, MPI_COMM_WORLD) != MPI_SUCCESS) {
        fail("MPI_Bcast failed before the first step");
        return EXIT_FAILED;
    }
    r->saved.from = found[1];
    return (int)found[0];
}

/* ---- what is expected of a save ---- */

int checkpoints_predict(struct dpxrun *r)
{
    int64_t of[r->rank == 0 ? r->here.cluster.world_size : 1];

    if (!is_asked(&r->o))
        return 0;
    if (train_gather(r->train, outlives_bytes(train_schedules(r->train)), of) < 0)
        return -1;
    for (int64_t i = 0; r->rank == 0 && i < r->here.cluster.world_size; i++)
        r->saved.predicted_bytes += of[i];
    return 0;
}

/* What the disks of all nodes, or the one file system of this machine, need for so many bytes; NaN: their rate is not known. */
static double predicted_s(const struct dpxrun *r, double rate)
{
    return rate > 0 ? (double)r->saved.predicted_bytes / (double)r->here.cluster.nodes / rate : (double)NAN;
}

/* One row of the database. */
static int record(const struct dpxrun *r, const struct checkpoint_moved *one, bool loaded)
{
    const struct cluster_node *n = &r->here.cluster.node;

    if (r->rank != 0 || r->run_id <= 0)
        return 0;
    return runs_checkpoint(r->db, r->run_id, &(struct run_checkpoint){ one->step, loaded, one->bytes, r->saved.predicted_bytes, one->seconds,
                                                                       predicted_s(r, loaded ? n->disk_read : n->disk_write) });
}

/* On every rank, which must not end before rank 0 has: 0, or -1 on all. */
static int keep(struct dpxrun *r, const struct checkpoint_moved *one, bool loaded)
{
    return train_agree(r->train, record(r, one, loaded) < 0);
}

/* ---- saving and loading ---- */

/* Said when every rank has its state: of one that is damaged a refusal is the only line. */
int checkpoints_load(struct dpxrun *r)
{
    if (r->saved.from == 0)
        return 0;
    if (checkpoint_load(r->train, folder_of(r), r->rank, r->saved.from, &r->saved.loaded) < 0)
        return -1;
    if (r->rank == 0)
        fprintf(stderr, "dpx: goes on from %s/step-%08" PRId64 "\n", folder_of(r), r->saved.from);
    return keep(r, &r->saved.loaded, true);
}

/* After the last step there is nothing to go on with. */
int checkpoints_step(struct dpxrun *r, int64_t step)
{
    struct checkpoint_moved one;

    if (r->o.checkpoint_every < 1 || step % r->o.checkpoint_every != 0 || step >= r->o.steps)
        return 0;
    if (checkpoint_save(r->train, folder_of(r), r->rank, r->saved.run, &one) < 0)
        return -1;
    r->saved.saves++;
    r->saved.seconds += one.seconds;
    r->saved.bytes = one.bytes;
    return keep(r, &one, false);
}

void checkpoints_free(struct dpxrun *r) { json_decref(r->saved.run); }

/* ---- beside the prediction ---- */

static json_t *real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

void checkpoints_json(const struct dpxrun *r, json_t *doc)
{
    const struct checkpoints *c = &r->saved;
    const struct cluster_node *n = &r->here.cluster.node;

    if (!is_asked(&r->o))
        return;
    json_object_set_new(doc, "first_step", json_integer(c->from + 1));
    json_object_set_new(doc, "checkpoints", json_pack("{s:s, s:I, s:o, s:I, s:o, s:o, s:o, s:o}", "folder", folder_of(r), "saved",
        (json_int_t)c->saves, "bytes", c->saves ? json_integer(c->bytes) : c->from ? json_integer(c->loaded.bytes) : json_null(),
        "predicted_bytes", (json_int_t)c->predicted_bytes, "save_s", real(c->saves ? c->seconds / (double)c->saves : (double)NAN),
        "predicted_save_s", real(predicted_s(r, n->disk_write)), "load_s", real(c->from ? c->loaded.seconds : (double)NAN),
        "predicted_load_s", real(predicted_s(r, n->disk_read))));
}

static void row(FILE *to, const char *what, double predicted, double measured)
{
    char before[32] = "-", change[32] = "";

    if (isfinite(predicted)) {
        snprintf(before, sizeof before, "%.4f s", predicted);
        snprintf(change, sizeof change, "%s", percent_change(measured / predicted).s);
    }
    fprintf(to, "  %-28s %14s %12.4f s %10s\n", what, before, measured, change);
}

void checkpoints_print(const struct dpxrun *r, FILE *to)
{
    const struct checkpoints *c = &r->saved;
    const struct cluster_node *n = &r->here.cluster.node;

    if (c->saves == 0 && c->from == 0)
        return;
    fprintf(to, "checkpoints in %s: %" PRId64 " saved", folder_of(r), c->saves);
    if (c->from > 0)
        fprintf(to, ", went on from step %" PRId64, c->from);
    fprintf(to, "\n  %-28s %14s %14s %10s\n", "state of all ranks", size_text(c->predicted_bytes).s,
           size_text(c->saves ? c->bytes : c->loaded.bytes).s,
           percent_change((double)(c->saves ? c->bytes : c->loaded.bytes) / (double)c->predicted_bytes).s);
    if (c->saves > 0)
        row(to, "a save", predicted_s(r, n->disk_write), c->seconds / (double)c->saves);
    if (c->from > 0)
        row(to, "the load", predicted_s(r, n->disk_read), c->loaded.seconds);
}
