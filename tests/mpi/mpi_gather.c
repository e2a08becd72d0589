/* mpi_gather.c -- a file of tensors put together from what each rank holds, in pieces of any length.
 *
 *     mpirun -n 3 mpi_gather FILE
 *
 * Ranks hold runs of each tensor in turns, runs that end inside pieces and pieces that end inside
 * runs; some elements are on two ranks.  Rank 0 reads the file back: element i of tensor t is
 * known.  Where no rank holds an element, all ranks report it.  Complaints on stdout. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "base/fail.h"
#include "exec/data/safetensors.h"
#include "exec/run/gather.h"

static int rank, world, complaints;

/* Whole numbers up to 255 are exact in bf16. */
static float value(int t, int64_t i) { return (float)((i * 7 + t * 31) % 256); }

static bool holds(int t, int64_t run, bool twice)
{
    return (int)((run + t) % world) == rank || (twice && (int)((run + t + 1) % world) == rank);
}

/* Runs of 5 + t elements; every third run is on two ranks.  Without tensor `lacking`'s last run. */
static struct grad_file *own_parts(const struct model *m, int lacking)
{
    struct grad_file *f = gather_grad_file_new(m, NULL, false);
    float run[64];

    for (int t = 0; f && t < m->ntensors; t++) {
        int64_t length = 5 + t % 50, numel = m->tensors[t].numel;
        for (int64_t at = 0, k = 0; at < numel; at += length, k++) {
            int64_t n = numel - at < length ? numel - at : length;
            if (!holds(t, k, k % 3 == 0) || (t == lacking && at + n == numel))
                continue;
            for (int64_t i = 0; i < n; i++)
                run[i] = value(t, at + i);
            gather_grad_file_add(f, t, at, n, run, DT_FP32);
        }
    }
    return f;
}

static void check_file(const struct model *m, const char *path)
{
    struct safetensors *s = safetensors_open(path);

    for (int t = 0; t < m->ntensors; t++) {
        int64_t n = m->tensors[t].numel;
        const struct st_tensor *x = s ? safetensors_find(s, m->tensors[t].name) : NULL;
        float *got = malloc((size_t)n * sizeof *got);
        if (!got || !x || x->numel != n || safetensors_read(s, x, 0, n, got) < 0) {
            printf("%s is not in the file\n", m->tensors[t].name);
            complaints++;
        } else
            for (int64_t i = 0; i < n; i++)
                if (got[i] != value(t, i) && complaints++ < 8)
                    printf("%s[%d] is %g, not %g\n", m->tensors[t].name, (int)i, (double)got[i], (double)value(t, i));
        free(got);
    }
    safetensors_close(s);
}

static void try_piece(const struct model *m, int64_t piece, int lacking, const char *path)
{
    struct grad_file *f = own_parts(m, lacking);
    char said[256] = "";

    fail_capture(said, sizeof said);
    int rc = f ? gather_grad_file_write(f, MPI_COMM_WORLD, piece, path) : -1;
    fail_capture(NULL, 0);
    if (rc != (lacking < 0 ? 0 : -1)) {
        printf("rank %d, pieces of %d: returns %d: %s\n", rank, (int)piece, rc, said);
        complaints++;
    }
    if (rank == 0 && lacking < 0 && rc == 0)
        check_file(m, path);
    gather_grad_file_free(f);
}

int main(int argc, char **argv)
{
    static const int64_t pieces[] = { 1, 7, 100, 1000, 0 };
    json_t *j = json_loads("{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 6, \"n_head\": 2,"
                           " \"n_positions\": 11, \"vocab_size\": 37}", 0, NULL);
    struct model m;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (argc != 2 || !j || model_from_config(j, "test", &m) < 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        try_piece(&m, pieces[i], -1, argv[1]);
        try_piece(&m, pieces[i], 3, argv[1]);
    }
    json_decref(j);
    model_free(&m);
    MPI_Finalize();
    return complaints > 0;
}
