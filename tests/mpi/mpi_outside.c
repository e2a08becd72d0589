/* mpi_outside.c -- steps take no memory beside what is accounted.
 *
 * malloc and its kin and mmap are this program's own: they count what is live, whatever part of the
 * process asks.  After three steps, in which primitives are built and MPI makes its connections,
 * further steps may raise it by 1 MiB at most.  Says what mpi_matrix says. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic int64_t live, highest;

static void count(int64_t bytes)
{
    int64_t now = atomic_fetch_add(&live, bytes) + bytes, before = atomic_load(&highest);

    while (now > before && !atomic_compare_exchange_weak(&highest, &before, now))
        ;
}

/* ---- the allocator's names, on glibc's own functions ---- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void  __libc_free(void *p);

static void *counted(void *p)
{
    if (p)
        count((int64_t)malloc_usable_size(p));
    return p;
}

static void uncount(void *p)
{
    if (p)
        count(-(int64_t)malloc_usable_size(p));
}

/* The libraries have to find these. */
#pragma GCC visibility push(default)

void *malloc(size_t n)                          { return counted(__libc_malloc(n)); }
void *calloc(size_t n, size_t size)             { return counted(__libc_calloc(n, size)); }
void *memalign(size_t align, size_t n)          { return counted(__libc_memalign(align, n)); }
void *aligned_alloc(size_t align, size_t n)     { return memalign(align, n); }
void  free(void *p)                             { uncount(p); __libc_free(p); }

void *realloc(void *p, size_t n)
{
    int64_t before = p ? (int64_t)malloc_usable_size(p) : 0;
    void *q = __libc_realloc(p, n);

    if (q || n == 0)
        count(-before);
    return counted(q);
}

int posix_memalign(void **p, size_t align, size_t n)
{
    *p = memalign(align, n);
    return *p ? 0 : ENOMEM;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    void *p = (void *)syscall(SYS_mmap, at, n, prot, flags, fd, from);

    if (p != MAP_FAILED)
        count((int64_t)n);
    return p;
}

int munmap(void *p, size_t n)
{
    int rc = (int)syscall(SYS_munmap, p, n);

    if (rc == 0)
        count(-(int64_t)n);
    return rc;
}

#pragma GCC visibility pop

/* ---- the steps ---- */

#include "tests/mpi/matrix_ranks.h"

#include "model/plan/knob.h"

enum { WARM_UP = 3, STEPS = 6, ALLOWED = 1 << 20 };

/* Large enough that a buffer too many would show. */
static const char config[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 192, \"n_head\": 4, \"n_positions\": 128,"
    " \"vocab_size\": 2000, \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.1, \"attn_pdrop\": 0.1}";

static const struct { enum strategy s; enum dialect d; enum dtype t; enum recompute r; } ways[] = {
    { STRAT_DP,    DIALECT_TORCH,       DT_FP32, RECOMPUTE_NONE },
    { STRAT_DDP,   DIALECT_TORCH,       DT_FP32, RECOMPUTE_NONE },
    { STRAT_DDP,   DIALECT_TORCH,       DT_BF16, RECOMPUTE_FULL },
    { STRAT_ZERO1, DIALECT_TORCH,       DT_FP32, RECOMPUTE_NONE },
    { STRAT_ZERO2, DIALECT_DEEPSPEED,   DT_BF16, RECOMPUTE_NONE },
    { STRAT_ZERO3, DIALECT_DEEPSPEED,   DT_FP32, RECOMPUTE_NONE },
    { STRAT_FSDP,  DIALECT_TORCH,       DT_FP32, RECOMPUTE_FULL },
    { STRAT_FSDP,  DIALECT_TORCH_FSDP1, DT_BF16, RECOMPUTE_NONE },
};
enum { NWAYS = sizeof ways / sizeof *ways };

/* Does it see what others ask for?  strdup() is in another library. */
static void check_counter(void)
{
    enum { LONG = 2 * ALLOWED };
    static char text[LONG];
    int64_t before = atomic_load(&live);

    memset(text, 'x', LONG - 1);
    char *copy = strdup(text);
    if (atomic_load(&live) - before < LONG)
        complain("rank %d: the counter does not see what a library takes\n", rank);
    free(copy);
}

static void run_steps(const struct plan *p)
{
    struct train_args a = args_of(p, false);
    struct train_report r;
    int64_t before = 0;

    a.steps = STEPS;
    struct train *t = train_open(&a, &(struct train_refusal){ 0 });
    for (int i = 0; t && i < STEPS; i++) {
        if (i == WARM_UP) {
            before = atomic_load(&live);
            atomic_store(&highest, before);
        }
        if (train_step(t, false, &r) < 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (!t)
        complain("it does not begin\n");
    else if (atomic_load(&highest) - before > ALLOWED)
        complain("rank %d: steps take %lld bytes beside what is accounted\n", rank,
                 (long long)(atomic_load(&highest) - before));
    train_close(t);
}

int main(int argc, char **argv)
{
    struct model m;
    struct plan p;
    char name[64];
    json_t *j = json_loads(config, 0, NULL);

    start_ranks(&argc, &argv);
    if (!j || model_from_config(j, "outside", &m) < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    json_decref(j);
    for (int i = argc > 1 ? atoi(argv[1]) : 0; i < NWAYS; i++) {
        memset(&p, 0, sizeof p);
        p.model = m;
        p.cluster = (struct cluster){ .world_size = world, .gpus_per_node = world, .nodes = 1 };
        p.seq = 64;
        p.micro_batch = 4;
        plan_defaults(&p, ways[i].s, ways[i].d, ways[i].t);
        p.kernels = KERNELS_DPX;
        p.recompute = ways[i].r;
        p.clip = 1;
        p.ds.reduce_bucket_size = 500000;
        snprintf(name, sizeof name, "%s/%s in %s", strategy_name(p.strategy), dialect_name(p.dialect),
                 dtype_name(p.precision));
        plan_begins(i, name);
        check_counter();
        run_steps(&p);
        plan_ends();
    }
    model_free(&m);
    MPI_Finalize();
    return 0;
}
