/* gather.c -- see gather.h.  Rank 0 asks the others piece by piece for what it has not got: never
 * more than one piece is in flight. */
#include "exec/run/gather.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "exec/data/safetensors.h"
#include "exec/kernels/half.h"

struct part { int tensor; int64_t from, n; float *values; };

struct grad_file {
    const struct model *m;
    const struct own_tensors *own;
    bool trained;                       /* frozen tensors are left out */
    struct part *part;
    int n, room;
    bool bad;
};

struct grad_file *gather_grad_file_new(const struct model *m, const struct own_tensors *own, bool trained)
{
    struct grad_file *f = calloc(1, sizeof *f);

    if (f)
        *f = (struct grad_file){ .m = m, .own = own, .trained = trained };
    else
        fail("out of memory to gather tensors");
    return f;
}

/* Is the tensor one of the file's? */
static bool is_written(const struct grad_file *f, int tensor) { return !(f->trained && f->m->tensors[tensor].frozen); }

void gather_grad_file_free(struct grad_file *f)
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
    const uint16_t *half = p;

    return t == DT_FP32 ? ((const float *)p)[i] : t == DT_FP16 ? half_from_fp16(half[i]) : half_from_bf16(half[i]);
}

static void add(struct grad_file *f, const struct own_run *at, const char *values, enum dtype t)
{
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
    float *copy = malloc((size_t)at->n * sizeof *copy);
    if (!copy) {
        f->bad = true;
        return;
    }
    for (int64_t i = 0; i < at->n; i++)
        copy[i] = widened(values, t, i);
    f->part[f->n++] = (struct part){ at->tensor, at->from, at->n, copy };
}

void gather_grad_file_add(void *arg, int tensor, int64_t from, int64_t n, const void *values, enum dtype t)
{
    struct grad_file *f = arg;
    struct own_run run;

    for (int64_t at = 0; at < n; at += run.n) {
        run = own_tensors_run(f->own, tensor, from + at, n - at);
        if (is_written(f, run.tensor))
            add(f, &run, (const char *)values + at * dtype_bytes(t), t);
    }
}

/* ---- one piece of a tensor ---- */

/* Elements [at, at + n) of a tensor, and which of them are there. */
struct whole { int tensor; int64_t at, n; float *value; uint8_t *have; };

/* Fills what is missing of it from this rank's parts. */
static void fill(const struct grad_file *f, struct whole *w)
{
    for (int i = 0; i < f->n; i++) {
        const struct part *p = &f->part[i];
        int64_t from = p->from > w->at ? p->from : w->at;
        int64_t to = p->from + p->n < w->at + w->n ? p->from + p->n : w->at + w->n;
        for (int64_t k = from; p->tensor == w->tensor && k < to; k++)
            if (!w->have[k - w->at]) {
                w->value[k - w->at] = p->values[k - p->from];
                w->have[k - w->at] = 1;
            }
    }
}

/* An error mostly means that another rank has died: mpirun, which knows which one, then ends this process before
 * it says something less exact. */
static int mpi_ok(int status, const char *call)
{
    if (status == MPI_SUCCESS)
        return 0;
    sleep(3);
    return fail("%s failed while tensors were gathered", call);
}

/* Rank r's piece goes to rank 0, which takes what it lacks. */
static int take_from(int r, int rank, MPI_Comm control, struct whole *w, struct whole *theirs)
{
    int n = (int)w->n;

    if (rank == r && (mpi_ok(MPI_Send(w->have, n, MPI_UINT8_T, 0, 1, control), "MPI_Send") < 0 ||
                      mpi_ok(MPI_Send(w->value, n, MPI_FLOAT, 0, 2, control), "MPI_Send") < 0))
        return -1;
    if (rank != 0)
        return 0;
    if (mpi_ok(MPI_Recv(theirs->have, n, MPI_UINT8_T, r, 1, control, MPI_STATUS_IGNORE), "MPI_Recv") < 0 ||
        mpi_ok(MPI_Recv(theirs->value, n, MPI_FLOAT, r, 2, control, MPI_STATUS_IGNORE), "MPI_Recv") < 0)
        return -1;
    for (int64_t k = 0; k < w->n; k++)
        if (!w->have[k] && theirs->have[k]) {
            w->value[k] = theirs->value[k];
            w->have[k] = 1;
        }
    return 0;
}

/* Ranks in order, until the piece is whole.  All ranks take part, so that none needs a message. */
static int collect(const struct grad_file *f, MPI_Comm control, struct whole *w, struct whole *theirs)
{
    int rank = 0, world = 1;

    memset(w->have, 0, (size_t)w->n);
    fill(f, w);
    if (control == MPI_COMM_NULL)
        return 0;
    MPI_Comm_rank(control, &rank);
    MPI_Comm_size(control, &world);
    for (int r = 1; r < world; r++) {
        int wanted = rank == 0 && memchr(w->have, 0, (size_t)w->n) != NULL;
        if (mpi_ok(MPI_Bcast(&wanted, 1, MPI_INT, 0, control), "MPI_Bcast") < 0)
            return -1;
        if (!wanted)
            return 0;
        if (take_from(r, rank, control, w, theirs) < 0)
            return -1;
    }
    return 0;
}

static struct st_writer *create(const struct grad_file *f, const char *path)
{
    const struct model *m = f->m;
    struct st_entry *e = calloc((size_t)m->ntensors + 1, sizeof *e);
    struct st_writer *w = NULL;
    int n = 0;

    if (!e) {
        fail("out of memory for %s", path);
        return NULL;
    }
    for (int t = 0; t < m->ntensors; t++) {
        if (!is_written(f, t))
            continue;
        e[n] = (struct st_entry){ .name = m->tensors[t].name, .dtype = DT_FP32, .ndim = m->tensors[t].ndim };
        for (int d = 0; d < m->tensors[t].ndim; d++)
            e[n].shape[d] = m->tensors[t].shape[d];
        n++;
    }
    w = safetensors_create(path, e, n);
    free(e);
    return w;
}

/* Whether one of the ranks failed. */
static int agree(MPI_Comm control, int rc)
{
    int any = rc;

    if (control != MPI_COMM_NULL)
        MPI_Allreduce(&rc, &any, 1, MPI_INT, MPI_MIN, control);
    return any;
}

/* Piece after piece: MPI's counts are int, and a tensor need not fit twice.  Nothing is made of what was received
 * before all ranks have agreed that it came whole: of a rank that was killed there may be garbage. */
static int write_tensor(const struct grad_file *f, MPI_Comm control, struct st_writer *out, bool first, int tensor, int entry,
                        int64_t piece, struct whole *w, struct whole *theirs)
{
    int64_t numel = f->m->tensors[tensor].numel;
    int rc = 0;

    w->tensor = tensor;
    for (w->at = 0; w->at < numel && rc == 0; w->at += piece) {
        w->n = numel - w->at < piece ? numel - w->at : piece;
        rc = agree(control, collect(f, control, w, theirs));
        if (rc == 0 && first && memchr(w->have, 0, (size_t)w->n))
            rc = fail("no rank holds all of %s", f->m->tensors[tensor].name);
        if (rc == 0 && out)
            rc = safetensors_write(out, entry, w->at, w->n, w->value);
        rc = agree(control, rc);
    }
    return rc;
}

static bool whole_new(struct whole *w, int64_t piece)
{
    w->value = malloc((size_t)piece * sizeof *w->value);
    w->have = malloc((size_t)piece);
    return w->value && w->have;
}

static void whole_free(struct whole *w)
{
    free(w->value);
    free(w->have);
}

int gather_grad_file_write(struct grad_file *f, MPI_Comm control, int64_t piece, const char *path)
{
    int rank = 0, rc;
    struct st_writer *out = NULL;
    struct whole w = { 0 }, theirs = { 0 };

    if (piece == 0)
        piece = GRAD_FILE_PIECE;
    if (control != MPI_COMM_NULL)
        MPI_Comm_rank(control, &rank);
    rc = f->bad || !whole_new(&w, piece) || (rank == 0 && !whole_new(&theirs, piece))
       ? fail("out of memory to gather tensors") : 0;
    if (rank == 0 && rc == 0 && !(out = create(f, path)))
        rc = -1;
    rc = agree(control, rc);
    for (int t = 0, entry = 0; t < f->m->ntensors && rc == 0; t++)
        if (is_written(f, t))
            rc = write_tensor(f, control, out, rank == 0, t, entry++, piece, &w, &theirs);
    if (rc < 0)
        safetensors_discard(out);
    else if (out)
        rc = safetensors_finish(out);
    whole_free(&w);
    whole_free(&theirs);
    return agree(control, rc);
}
