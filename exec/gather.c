/* gather.c -- see gather.h.  Rank 0 asks the others tensor by tensor for what it has not got:
 * never more than one tensor is in flight. */
#include "exec/gather.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/safetensors.h"
#include "model/fail.h"

struct part { int tensor; int64_t from, n; float *values; };

struct grad_file {
    const struct model *m;
    struct part *part;
    int n, room;
    bool bad;
};

struct grad_file *grad_file_new(const struct model *m)
{
    struct grad_file *f = calloc(1, sizeof *f);

    if (f)
        f->m = m;
    else
        fail("out of memory to put tensors together");
    return f;
}

void grad_file_free(struct grad_file *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->n; i++)
        free(f->part[i].values);
    free(f->part);
    free(f);
}

static float widened(const void *p, enum dtype t, int64_t i)
{
    union { uint32_t u; float f; } w;

    if (t == DT_FP32)
        return ((const float *)p)[i];
    w.u = (uint32_t)((const uint16_t *)p)[i] << 16;
    return w.f;
}

void grad_file_add(void *arg, int tensor, int64_t from, int64_t n, const void *values, enum dtype t)
{
    struct grad_file *f = arg;

    if (f->n == f->room) {
        int more = f->room ? 2 * f->room : 64;
        void *p = realloc(f->part, (size_t)more * sizeof *f->part);
        if (!p) {
            f->bad = true;
            return;
        }
        f->part = p;
        f->room = more;
    }
    float *copy = malloc((size_t)n * sizeof *copy);
    if (!copy) {
        f->bad = true;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        copy[i] = widened(values, t, i);
    f->part[f->n++] = (struct part){ tensor, from, n, copy };
}

/* ---- one tensor ---- */

/* Fills what is missing of `whole` from this rank's parts; have[i]: element i is there. */
static void fill(const struct grad_file *f, int tensor, float *whole, uint8_t *have)
{
    for (int i = 0; i < f->n; i++)
        for (int64_t k = 0; f->part[i].tensor == tensor && k < f->part[i].n; k++)
            if (!have[f->part[i].from + k]) {
                whole[f->part[i].from + k] = f->part[i].values[k];
                have[f->part[i].from + k] = 1;
            }
}

/* One tensor, and on rank 0 what another rank has of it. */
struct whole { float *values, *theirs; uint8_t *have, *they_have; };

static int whole_new(struct whole *w, int64_t n, bool receives)
{
    *w = (struct whole){ .values = malloc((size_t)n * sizeof *w->values), .have = malloc((size_t)n) };
    if (receives) {
        w->theirs = malloc((size_t)n * sizeof *w->theirs);
        w->they_have = malloc((size_t)n);
    }
    if (!w->values || !w->have || (receives && !(w->theirs && w->they_have)))
        return fail("out of memory to put tensors together");
    return 0;
}

static void whole_free(struct whole *w)
{
    free(w->values);
    free(w->theirs);
    free(w->have);
    free(w->they_have);
}

/* An error mostly means that another rank has died: mpirun, which knows which one, then ends this process before
 * it says something less exact. */
static int mpi_ok(int status, const char *call)
{
    if (status == MPI_SUCCESS)
        return 0;
    sleep(3);
    return fail("%s failed while tensors were put together", call);
}

/* On rank 0: what rank r has of the tensor. */
static int receive(struct whole *w, int64_t n, int r, MPI_Comm control)
{
    if (mpi_ok(MPI_Recv(w->they_have, (int)n, MPI_UINT8_T, r, 1, control, MPI_STATUS_IGNORE), "MPI_Recv") < 0 ||
        mpi_ok(MPI_Recv(w->theirs, (int)n, MPI_FLOAT, r, 2, control, MPI_STATUS_IGNORE), "MPI_Recv") < 0)
        return -1;
    for (int64_t k = 0; k < n; k++)
        if (!w->have[k] && w->they_have[k]) {
            w->values[k] = w->theirs[k];
            w->have[k] = 1;
        }
    return 0;
}

/* Ranks in order, until the tensor is whole.  Everybody takes part, so that no rank has to be told. */
static int collect(const struct grad_file *f, MPI_Comm control, int tensor, struct whole *w)
{
    int64_t n = f->m->tensors[tensor].numel;
    int rank = 0, world = 1, rc = 0;

    memset(w->have, 0, (size_t)n);
    fill(f, tensor, w->values, w->have);
    if (control == MPI_COMM_NULL)
        return 0;
    MPI_Comm_rank(control, &rank);
    MPI_Comm_size(control, &world);
    for (int r = 1; r < world && rc == 0; r++) {
        int wanted = rank == 0 && memchr(w->have, 0, (size_t)n) != NULL;
        if (mpi_ok(MPI_Bcast(&wanted, 1, MPI_INT, 0, control), "MPI_Bcast") < 0)
            return -1;
        if (!wanted)
            return 0;
        if (rank == r && (mpi_ok(MPI_Send(w->have, (int)n, MPI_UINT8_T, 0, 1, control), "MPI_Send") < 0 ||
                          mpi_ok(MPI_Send(w->values, (int)n, MPI_FLOAT, 0, 2, control), "MPI_Send") < 0))
            return -1;
        if (rank == 0)
            rc = receive(w, n, r, control);
    }
    return rc;
}

static struct st_writer *create(const struct model *m, const char *path)
{
    struct st_entry *e = calloc((size_t)m->ntensors + 1, sizeof *e);
    struct st_writer *w = NULL;

    if (!e) {
        fail("out of memory for %s", path);
        return NULL;
    }
    for (int t = 0; t < m->ntensors; t++) {
        e[t] = (struct st_entry){ .name = m->tensors[t].name, .dtype = DT_FP32, .ndim = m->tensors[t].ndim };
        for (int d = 0; d < m->tensors[t].ndim; d++)
            e[t].shape[d] = m->tensors[t].shape[d];
    }
    w = safetensors_create(path, e, m->ntensors);
    free(e);
    return w;
}

/* Whether one of the ranks failed. */
static int agree(MPI_Comm control, int rc)
{
    int any = rc;

    if (control != MPI_COMM_NULL && mpi_ok(MPI_Allreduce(&rc, &any, 1, MPI_INT, MPI_MIN, control), "MPI_Allreduce") < 0)
        return -1;
    return any;
}

/* Nothing is made of what was received before all ranks have agreed that it came whole: of a rank that was killed
 * there may be garbage. */
static int write_one(const struct grad_file *f, MPI_Comm control, struct st_writer *to, bool first, int tensor)
{
    int64_t n = f->m->tensors[tensor].numel;
    struct whole w;
    int rc = agree(control, whole_new(&w, n, first));

    if (rc == 0)
        rc = agree(control, collect(f, control, tensor, &w));
    if (rc == 0 && first && memchr(w.have, 0, (size_t)n))
        rc = fail("no rank holds all of %s", f->m->tensors[tensor].name);
    if (rc == 0 && to)
        rc = safetensors_write(to, tensor, 0, n, w.values);
    whole_free(&w);
    return rc;
}

int grad_file_write(struct grad_file *f, MPI_Comm control, const char *path)
{
    int rank = 0, rc;
    struct st_writer *w = NULL;

    if (control != MPI_COMM_NULL)
        MPI_Comm_rank(control, &rank);
    if (rank == 0)
        w = create(f->m, path);
    rc = agree(control, f->bad || (rank == 0 && !w) ? -1 : 0);
    for (int t = 0; t < f->m->ntensors && rc == 0; t++)
        rc = agree(control, write_one(f, control, w, rank == 0, t));
    if (rc < 0)
        safetensors_discard(w);
    else if (w)
        rc = safetensors_finish(w);
    return agree(control, rc);
}
