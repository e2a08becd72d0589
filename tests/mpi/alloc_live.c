/* alloc_live.c -- bytes in live malloc() blocks of a rank, step by step: preloaded, it stands before malloc() and MPI.
 *
 *     DPX_LIVE=FILE LD_PRELOAD=alloc_live.so dpxrun ...       writes FILE.RANK: one line "step bytes blocks" a step
 *
 * Counted is what malloc_usable_size() says of each block of any library (dpx, Open MPI, SQLite, the C library); at
 * the end of a step all ranks find the slowest one's time: an MPI_Allreduce of a double with MPI_MAX. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_STEPS = 100000 };

static _Atomic long long bytes, blocks;
static long long at[MOST_STEPS][2];
static int nsteps;

/* glibc's own, under these names. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void  __libc_free(void *);

static void *count(void *p)
{
    if (p) {
        bytes += (long long)malloc_usable_size(p);
        blocks++;
    }
    return p;
}

static void discount(void *p)
{
    if (p) {
        bytes -= (long long)malloc_usable_size(p);
        blocks--;
    }
}

void *malloc(size_t n) { return count(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) { return count(__libc_calloc(n, size)); }
void *memalign(size_t align, size_t n) { return count(__libc_memalign(align, n)); }
void *aligned_alloc(size_t align, size_t n) { return count(__libc_memalign(align, n)); }

void free(void *p)
{
    discount(p);
    __libc_free(p);
}

void *realloc(void *p, size_t n)
{
    size_t had = p ? malloc_usable_size(p) : 0;
    void *q = __libc_realloc(p, n);

    if (!q && n > 0)
        return NULL;                    /* the old block stays */
    if (p) {
        bytes -= (long long)had;
        blocks--;
    }
    return count(q);
}

int posix_memalign(void **to, size_t align, size_t n)
{
    void *p = __libc_memalign(align, n);

    if (!p)
        return ENOMEM;
    *to = count(p);
    return 0;
}

int MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int rc = PMPI_Allreduce(in, out, n, type, op, comm);

    if (type == MPI_DOUBLE && op == MPI_MAX && nsteps < MOST_STEPS) {
        at[nsteps][0] = bytes;
        at[nsteps++][1] = blocks;
    }
    return rc;
}

int MPI_Finalize(void)
{
    const char *name = getenv("DPX_LIVE");
    char path[4096];
    int rank;
    FILE *f;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s.%d", name ? name : "/dev/null", rank);
    if (name && (f = fopen(path, "w"))) {
        for (int i = 0; i < nsteps; i++)
            fprintf(f, "%d %lld %lld\n", i + 1, at[i][0], at[i][1]);
        fclose(f);
    }
    return PMPI_Finalize();
}
