/* checkpoint.c -- see checkpoint.h. */
#define _GNU_SOURCE                 /* O_DIRECTORY */
#include "exec/train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/room.h"
#include "exec/train/checkpoint_file.h"

#define NAME     "checkpoint.json"
#define PARTIAL  ".partial"
enum { PATH = 4096, VERSION = 1 };

struct work {
    struct train *t;
    const char *folder;
    json_t *run;
    int rank;
    int64_t step, world;
    char at[PATH];                      /* the checkpoint's folder while it is written or read */
    struct checkpoint_file_sum sum;     /* of this rank */
    int64_t *bytes, *state, *hash;      /* of all, on rank 0 */
};

static int path_of(char to[PATH], const char *folder, int64_t step, const char *end)
{
    int n = snprintf(to, PATH, "%s/step-%08" PRId64 "%s", folder, step, end);

    return n >= PATH ? fail("%s: the name is too long", folder) : 0;
}

static int file_of(char to[PATH], const char *folder, const char *name)
{
    int n = snprintf(to, PATH, "%s/%s", folder, name);

    return n >= PATH ? fail("%s: the name is too long", folder) : 0;
}

static int rank_file(char to[PATH], const struct work *w)
{
    char name[40];

    snprintf(name, sizeof name, "rank-%05d.state", w->rank);
    return file_of(to, w->at, name);
}

/* ---- folders ---- */

/* "step-00000040" is 40, "step-00000040.partial" too with *partial set; else -1. */
static int64_t step_of(const char *name, bool *partial)
{
    int64_t step;
    int end = 0;

    if (sscanf(name, "step-%" SCNd64 "%n", &step, &end) != 1 || step < 1)
        return -1;
    *partial = strcmp(name + end, PARTIAL) == 0;
    return *partial || !name[end] ? step : -1;
}

static void remove_folder(const char *path)
{
    DIR *d = opendir(path);
    char file[PATH];

    for (struct dirent *e; d && (e = readdir(d)); )
        if ((strcmp(e->d_name, NAME) == 0 || strncmp(e->d_name, "rank-", 5) == 0) && file_of(file, path, e->d_name) == 0)
            unlink(file);
    if (d)
        closedir(d);
    rmdir(path);
}

/* The newest whole checkpoint's step that is below `below`; 0: there is none. */
static int64_t newest(const char *folder, int64_t below)
{
    DIR *d = opendir(folder);
    int64_t found = 0;
    bool partial;

    for (struct dirent *e; d && (e = readdir(d)); ) {
        int64_t step = step_of(e->d_name, &partial);
        if (step > found && step < below && !partial)
            found = step;
    }
    if (d)
        closedir(d);
    return found;
}

/* What is half written, and whole ones from step `below` on (of a run that went back further) or too old. */
static void sweep(const char *folder, bool partials, int64_t oldest)
{
    DIR *d = opendir(folder);
    char path[PATH];
    bool partial;

    for (struct dirent *e; d && (e = readdir(d)); ) {
        int64_t step = step_of(e->d_name, &partial);
        if (step > 0 && (partial ? partials : step < oldest) && file_of(path, folder, e->d_name) == 0)
            remove_folder(path);
    }
    if (d)
        closedir(d);
}

static int sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || fsync(fd) < 0 ? fail("%s: %s", path, strerror(errno)) : 0;

    if (fd >= 0)
        close(fd);
    return rc;
}

/* ---- saving ---- */

static int begin(void *arg)
{
    struct work *w = arg;

    if (w->rank != 0)
        return 0;
    if (mkdir(w->folder, 0777) < 0 && errno != EEXIST)
        return fail("%s: cannot be made: %s", w->folder, strerror(errno));
    sweep(w->folder, true, 0);
    return mkdir(w->at, 0777) < 0 ? fail("%s: cannot be made: %s", w->at, strerror(errno)) : 0;
}

struct writing { struct checkpoint_file *f; struct lanes *lanes; };

static int write_part(void *arg, const struct exec_part *part, void *bytes)
{
    const struct writing *w = arg;

    lanes_alive(w->lanes);              /* a slow disk is not a hang */
    return checkpoint_file_write(w->f, part, bytes);
}

static int write_rank(void *arg)
{
    struct work *w = arg;
    struct writing to = { NULL, executor_lanes(train_executor(w->t)) };
    char path[PATH];

    if (rank_file(path, w) < 0 || !(to.f = checkpoint_file_create(path)))
        return -1;
    int rc = train_state_out(w->t, write_part, &to);
    return checkpoint_file_close(to.f, rc, &w->sum);
}

static json_t *document(const struct work *w)
{
    struct train_progress p = train_progress(w->t);
    json_t *ranks = json_array();

    for (int64_t r = 0; r < w->world; r++)
        json_array_append_new(ranks, json_pack("{s:I, s:I}", "bytes", (json_int_t)w->bytes[r], "hash", (json_int_t)w->hash[r]));
    return json_pack("{s:i, s:I, s:{s:f, s:I, s:I, s:I}, s:O, s:o}", "dpx_checkpoint", VERSION, "step", (json_int_t)p.step, "loss_scale",
                     "scale", p.scale, "since", (json_int_t)p.since, "lets_pass", (json_int_t)p.lets_pass, "skipped",
                     (json_int_t)p.skipped, "run", w->run, "ranks", ranks);
}

static int write_document(const struct work *w)
{
    char path[PATH];
    json_t *doc = document(w);
    FILE *f = file_of(path, w->at, NAME) < 0 ? NULL : fopen(path, "w");
    int rc = -1;

    if (!f)
        fail("%s: %s", path, strerror(errno));
    else if (json_dumpf(doc, f, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) < 0 || fflush(f) != 0 || fsync(fileno(f)) < 0)
        fail("%s: %s", path, strerror(errno));
    else
        rc = 0;
    if (f)
        fclose(f);
    json_decref(doc);
    return rc;
}

static int publish(void *arg)
{
    struct work *w = arg;
    char whole[PATH];

    if (w->rank != 0)
        return 0;
    if (write_document(w) < 0 || sync_folder(w->at) < 0 || path_of(whole, w->folder, w->step, "") < 0)
        return -1;
    remove_folder(whole);               /* of a run that began anew */
    if (rename(w->at, whole) < 0)
        return fail("%s: cannot be renamed: %s", w->at, strerror(errno));
    if (sync_folder(w->folder) < 0)
        return -1;
    int64_t oldest = w->step;
    for (int i = 1; i < CHECKPOINTS_KEPT && oldest > 0; i++)
        oldest = newest(w->folder, oldest);
    sweep(w->folder, false, oldest);
    return 0;
}

static int gather(struct work *w)
{
    return train_gather(w->t, w->sum.bytes, w->bytes) < 0 || train_gather(w->t, w->sum.state, w->state) < 0 ||
           train_gather(w->t, (int64_t)w->sum.hash, w->hash) < 0 ? -1 : 0;
}

static void moved(const struct work *w, double began, struct checkpoint_moved *out)
{
    *out = (struct checkpoint_moved){ .step = w->step, .seconds = lanes_now() - began };
    for (int64_t r = 0; w->rank == 0 && r < w->world; r++)
        out->bytes += w->state[r];
}

static struct work work_of(struct train *t, const char *folder, int rank, int64_t step)
{
    size_t world = (size_t)train_schedules(t)->world_size, each = sizeof(int64_t);

    return (struct work){ .t = t, .folder = folder, .rank = rank, .step = step, .world = (int64_t)world,
                          .bytes = room_new(world, each), .state = room_new(world, each), .hash = room_new(world, each) };
}

static int done(struct work *w, int rc)
{
    free(w->bytes);
    free(w->state);
    free(w->hash);
    return rc;
}

int checkpoint_save(struct train *t, const char *folder, int rank, json_t *run, struct checkpoint_moved *out)
{
    struct work w = work_of(t, folder, rank, train_progress(t).step);
    double began = lanes_now();

    w.run = run;
    if (path_of(w.at, folder, w.step, PARTIAL) < 0 || train_together(t, begin, &w) < 0 || train_together(t, write_rank, &w) < 0 ||
        gather(&w) < 0 || train_together(t, publish, &w) < 0)
        return done(&w, -1);
    moved(&w, began, out);
    return done(&w, 0);
}

/* ---- loading ---- */

static json_t *read_document(const char *folder, int64_t step)
{
    char at[PATH], path[PATH];
    json_int_t version = 0, saved = 0;

    if (path_of(at, folder, step, "") < 0 || file_of(path, at, NAME) < 0)
        return NULL;
    json_t *doc = files_read_json_data(path);
    if (!doc)
        return NULL;
    if (json_unpack(doc, "{s:I, s:I}", "dpx_checkpoint", &version, "step", &saved) == 0 && version == VERSION && saved == step &&
        json_is_object(json_object_get(doc, "run")) && json_is_array(json_object_get(doc, "ranks")))
        return doc;
    fail("%s: is not a checkpoint of step %" PRId64 " in version %d", path, step, VERSION);
    json_decref(doc);
    return NULL;
}

int checkpoint_newest(const char *folder, int64_t *step, json_t **run)
{
    *run = NULL;
    *step = newest(folder, INT64_MAX);
    if (*step == 0)
        return 0;
    json_t *doc = read_document(folder, *step);
    if (!doc)
        return -1;
    *run = json_incref(json_object_get(doc, "run"));
    json_decref(doc);
    return 0;
}

static int read_part(void *arg, const struct exec_part *part, void *bytes)
{
    const struct writing *w = arg;

    lanes_alive(w->lanes);
    return checkpoint_file_read(w->f, part, bytes);
}

static int read_rank(void *arg)
{
    struct work *w = arg;
    struct writing from = { NULL, executor_lanes(train_executor(w->t)) };
    struct train_progress at = { .step = w->step };
    json_int_t since, lets_pass, skipped, bytes, hash;
    json_t *doc = read_document(w->folder, w->step);
    char path[PATH];
    int rc = -1;

    if (!doc)
        return -1;
    if (json_unpack(doc, "{s:{s:F, s:I, s:I, s:I}}", "loss_scale", "scale", &at.scale, "since", &since, "lets_pass", &lets_pass,
                    "skipped", &skipped) < 0 ||
        json_unpack(json_array_get(json_object_get(doc, "ranks"), (size_t)w->rank), "{s:I, s:I}", "bytes", &bytes, "hash", &hash) < 0) {
        fail("%s: " NAME " lacks rank %d", w->at, w->rank);
    } else if (rank_file(path, w) == 0 && (from.f = checkpoint_file_open(path))) {
        at.since = since, at.lets_pass = lets_pass, at.skipped = skipped;
        rc = checkpoint_file_close(from.f, train_state_in(w->t, &at, read_part, &from), &w->sum);
        if (rc == 0 && (w->sum.bytes != bytes || w->sum.hash != (uint64_t)hash))
            rc = fail("%s: is not the file that was saved", path);
    }
    json_decref(doc);
    return rc;
}

int checkpoint_load(struct train *t, const char *folder, int rank, int64_t step, struct checkpoint_moved *out)
{
    struct work w = work_of(t, folder, rank, step);
    double began = lanes_now();

    if (path_of(w.at, folder, step, "") < 0 || train_together(t, read_rank, &w) < 0 || gather(&w) < 0)
        return done(&w, -1);
    moved(&w, began, out);
    return done(&w, 0);
}
