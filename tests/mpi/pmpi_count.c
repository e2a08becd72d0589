/* pmpi_count.c -- counts, at the MPI calls of any program, what it gives MPI to send.
 *
 *     mpicc -shared -fPIC -o pmpi_count.so pmpi_count.c -pthread
 *     mpirun -x LD_PRELOAD=$PWD/pmpi_count.so -x DPX_MPI_COUNTS=$PWD/counts -n 4 program
 *
 * It knows nothing of dpx: it stands between a program and MPI (the standard's profiling
 * interface) and so witnesses what dpxrun says it sends.  At MPI_Finalize each rank appends one
 * line to the file that DPX_MPI_COUNTS names:
 *
 *     rank 0; "dpx world" sent 12 4096; "dpx world" to 1 12 4096; "MPI_COMM_WORLD" MPI_Barrier 3 0
 *
 * `sent` are messages and payload bytes of MPI_Send, MPI_Isend, their synchronous and ready forms
 * and MPI_Put; `to` the same by rank of the world; then calls of collectives with the bytes of
 * their full buffers: what is reduced, or what gathered, scattered or broadcast in all.  What
 * MPI itself sends inside them is not seen here.  Communicators are told apart by name, as it
 * was at the first call; those of one name count together. */
#include <mpi.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef AT_MESSAGE
#define AT_MESSAGE() ((void)0)              /* pmpi_delay.c sleeps here */
#endif
#ifndef AT_SEND
#define AT_SEND(b, bytes) ((void)0)         /* matrix_witness.h shows it to a sanitizer */
#define AT_RECV(b, bytes) ((void)0)
#endif

struct count { int64_t messages, bytes; };

enum { NAMES = 64, HANDLES = 256, CALLS = 32 };

struct record {                     /* one name */
    char name[MPI_MAX_OBJECT_NAME];
    struct count sent, *to;         /* to: by rank of the world */
    struct { const char *name; struct count n; } calls[CALLS];
};

static struct record *records[NAMES];
static int nrecords;

static struct {
    MPI_Comm       comm;
    struct record *record;
    int           *world;           /* rank in the world of each rank */
} handles[HANDLES];
static int nhandles, world_size;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A wrong count is worse than none. */
static void die(const char *why)
{
    fprintf(stderr, "pmpi_count: %s\n", why);
    PMPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

static void *take(size_t n, size_t size)
{
    void *p = calloc(n, size);

    if (!p)
        die("out of memory");
    return p;
}

/* ---- communicators ---- */

static struct record *record_of(const char *name)
{
    for (int i = 0; i < nrecords; i++)
        if (strcmp(records[i]->name, name) == 0)
            return records[i];
    if (nrecords == NAMES)
        die("too many names of communicators");
    struct record *r = records[nrecords++] = take(1, sizeof *r);
    snprintf(r->name, sizeof r->name, "%s", name);
    r->to = take((size_t)world_size, sizeof *r->to);
    return r;
}

/* The rank of the world of each rank that messages on `comm` can go to. */
static int *world_ranks(MPI_Comm comm)
{
    MPI_Group group, world;
    int n, inter, *from, *to;

    PMPI_Comm_test_inter(comm, &inter);
    if (inter)
        PMPI_Comm_remote_group(comm, &group);
    else
        PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_size(group, &n);
    from = take((size_t)n, sizeof *from);
    to = take((size_t)n, sizeof *to);
    for (int i = 0; i < n; i++)
        from[i] = i;
    PMPI_Group_translate_ranks(group, n, from, world, to);
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    free(from);
    return to;
}

static int handle_of(MPI_Comm comm)
{
    char name[MPI_MAX_OBJECT_NAME];
    int len;

    for (int i = 0; i < nhandles; i++)
        if (handles[i].comm == comm)
            return i;
    if (nhandles == HANDLES)
        die("too many communicators");
    if (world_size == 0)
        PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
    PMPI_Comm_get_name(comm, name, &len);
    handles[nhandles].comm = comm;
    handles[nhandles].record = record_of(name);
    handles[nhandles].world = world_ranks(comm);
    return nhandles++;
}

/* The handle may come again for another communicator. */
static void forget(MPI_Comm comm)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < nhandles; i++)
        if (handles[i].comm == comm) {
            free(handles[i].world);
            handles[i] = handles[--nhandles];
        }
    pthread_mutex_unlock(&lock);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    forget(*comm);
    return PMPI_Comm_free(comm);
}

int MPI_Comm_set_name(MPI_Comm comm, const char *name)
{
    forget(comm);
    return PMPI_Comm_set_name(comm, name);
}

/* ---- counting ---- */

static void add(struct count *c, int64_t bytes)
{
    c->messages++;
    c->bytes += bytes;
}

static int64_t bytes_of(int64_t count, MPI_Datatype type)
{
    int size;

    PMPI_Type_size(type, &size);
    return count * size;
}

static void message(MPI_Comm comm, int to, int64_t bytes)
{
    AT_MESSAGE();
    if (to == MPI_PROC_NULL)
        return;
    pthread_mutex_lock(&lock);
    int h = handle_of(comm);
    add(&handles[h].record->sent, bytes);
    if (handles[h].world[to] >= 0)
        add(&handles[h].record->to[handles[h].world[to]], bytes);
    pthread_mutex_unlock(&lock);
}

static void collective(MPI_Comm comm, const char *call, int64_t bytes)
{
    int i = 0;

    AT_MESSAGE();
    pthread_mutex_lock(&lock);
    struct record *r = handles[handle_of(comm)].record;
    while (i < CALLS && r->calls[i].name && strcmp(r->calls[i].name, call) != 0)
        i++;
    if (i == CALLS)
        die("too many kinds of collectives");
    r->calls[i].name = call;
    add(&r->calls[i].n, bytes);
    pthread_mutex_unlock(&lock);
}

static int64_t size_of(MPI_Comm comm)
{
    int n;

    PMPI_Comm_size(comm, &n);
    return n;
}

static int64_t sum(const int *counts, MPI_Comm comm)
{
    int64_t total = 0;

    for (int64_t i = size_of(comm); i-- > 0;)
        total += counts[i];
    return total;
}

/* ---- messages ---- */

#define SEND(call)                                                                              \
    int MPI_##call(const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c)           \
    {                                                                                           \
        message(c, to, bytes_of(n, t));                                                         \
        AT_SEND(b, bytes_of(n, t));                                                             \
        return PMPI_##call(b, n, t, to, tag, c);                                                \
    }
SEND(Send) SEND(Ssend) SEND(Rsend) SEND(Bsend)

#define ISEND(call)                                                                             \
    int MPI_##call(const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c,           \
                   MPI_Request *r)                                                              \
    {                                                                                           \
        message(c, to, bytes_of(n, t));                                                         \
        AT_SEND(b, bytes_of(n, t));                                                             \
        return PMPI_##call(b, n, t, to, tag, c, r);                                             \
    }
ISEND(Isend) ISEND(Issend) ISEND(Irsend) ISEND(Ibsend)

int MPI_Sendrecv(const void *b, int n, MPI_Datatype t, int to, int tag, void *rb, int rn, MPI_Datatype rt,
                 int from, int rtag, MPI_Comm c, MPI_Status *s)
{
    message(c, to, bytes_of(n, t));
    return PMPI_Sendrecv(b, n, t, to, tag, rb, rn, rt, from, rtag, c, s);
}

/* Under the window's name; a window has no communicator to ask, so its targets are not known
 * apart. */
int MPI_Put(const void *b, int n, MPI_Datatype t, int to, MPI_Aint at, int tn, MPI_Datatype tt, MPI_Win w)
{
    char name[MPI_MAX_OBJECT_NAME];
    int len;

    PMPI_Win_get_name(w, name, &len);
    pthread_mutex_lock(&lock);
    if (world_size == 0)
        PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
    add(&record_of(name)->sent, bytes_of(n, t));
    pthread_mutex_unlock(&lock);
    return PMPI_Put(b, n, t, to, at, tn, tt, w);
}

/* ---- collectives: each blocking and not ---- */

/* A call's parameters and arguments come in parentheses; `bytes` may use them. */
#define BOTH(call, icall, bytes, args, ...)                                                     \
    int MPI_##call(__VA_ARGS__, MPI_Comm c)                                                     \
    {                                                                                           \
        collective(c, "MPI_" #call, bytes);                                                     \
        return PMPI_##call(ARGS args, c);                                                       \
    }                                                                                           \
    int MPI_##icall(__VA_ARGS__, MPI_Comm c, MPI_Request *q)                                    \
    {                                                                                           \
        collective(c, "MPI_" #icall, bytes);                                                    \
        return PMPI_##icall(ARGS args, c, q);                                                   \
    }
#define ARGS(...) __VA_ARGS__

BOTH(Bcast, Ibcast, bytes_of(n, t), (b, n, t, root), void *b, int n, MPI_Datatype t, int root)
BOTH(Reduce, Ireduce, bytes_of(n, t), (s, r, n, t, o, root),
     const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, int root)
BOTH(Allreduce, Iallreduce, bytes_of(n, t), (s, r, n, t, o),
     const void *s, void *r, int n, MPI_Datatype t, MPI_Op o)
BOTH(Reduce_scatter, Ireduce_scatter, bytes_of(sum(n, c), t), (s, r, n, t, o),
     const void *s, void *r, const int *n, MPI_Datatype t, MPI_Op o)
BOTH(Reduce_scatter_block, Ireduce_scatter_block, bytes_of(n * size_of(c), t), (s, r, n, t, o),
     const void *s, void *r, int n, MPI_Datatype t, MPI_Op o)
BOTH(Allgather, Iallgather, bytes_of(rn * size_of(c), rt), (s, n, t, r, rn, rt),
     const void *s, int n, MPI_Datatype t, void *r, int rn, MPI_Datatype rt)
BOTH(Allgatherv, Iallgatherv, bytes_of(sum(rn, c), rt), (s, n, t, r, rn, at, rt),
     const void *s, int n, MPI_Datatype t, void *r, const int *rn, const int *at, MPI_Datatype rt)
/* A part's size is the receiver's or the sender's, whichever the rank is. */
BOTH(Gather, Igather, bytes_of((s == MPI_IN_PLACE ? rn : n) * size_of(c), s == MPI_IN_PLACE ? rt : t),
     (s, n, t, r, rn, rt, root), const void *s, int n, MPI_Datatype t, void *r, int rn, MPI_Datatype rt,
     int root)
BOTH(Scatter, Iscatter, bytes_of((r == MPI_IN_PLACE ? n : rn) * size_of(c), r == MPI_IN_PLACE ? t : rt),
     (s, n, t, r, rn, rt, root), const void *s, int n, MPI_Datatype t, void *r, int rn, MPI_Datatype rt,
     int root)
BOTH(Alltoall, Ialltoall, bytes_of(rn * size_of(c), rt), (s, n, t, r, rn, rt),
     const void *s, int n, MPI_Datatype t, void *r, int rn, MPI_Datatype rt)

int MPI_Barrier(MPI_Comm c)
{
    collective(c, "MPI_Barrier", 0);
    return PMPI_Barrier(c);
}

int MPI_Ibarrier(MPI_Comm c, MPI_Request *q)
{
    collective(c, "MPI_Ibarrier", 0);
    return PMPI_Ibarrier(c, q);
}

/* ---- the line ---- */

static char  *text;
static size_t used, size_of_text;

__attribute__((format(printf, 1, 2)))
static void say(const char *format, ...)
{
    va_list ap;
    int n;

    if (size_of_text - used < 1024) {
        size_of_text = 2 * size_of_text + 4096;
        text = realloc(text, size_of_text);
        if (!text)
            die("out of memory");
    }
    va_start(ap, format);
    n = vsnprintf(text + used, size_of_text - used, format, ap);
    va_end(ap);
    used += (size_t)n;
}

static void say_count(const struct record *r, const char *what, const struct count *c)
{
    if (c->messages > 0)
        say("; \"%s\" %s %lld %lld", r->name, what, (long long)c->messages, (long long)c->bytes);
}

static void say_record(const struct record *r)
{
    char to[32];

    say_count(r, "sent", &r->sent);
    for (int i = 0; i < world_size; i++) {
        snprintf(to, sizeof to, "to %d", i);
        say_count(r, to, &r->to[i]);
    }
    for (int i = 0; i < CALLS && r->calls[i].name; i++)
        say_count(r, r->calls[i].name, &r->calls[i].n);
}

/* One write() to a file open for appending: lines of ranks on one machine do not mix. */
int MPI_Finalize(void)
{
    const char *path = getenv("DPX_MPI_COUNTS");
    int rank, fd;

    if (!path)
        return PMPI_Finalize();
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    say("rank %d", rank);
    for (int i = 0; i < nrecords; i++)
        say_record(records[i]);
    say("\n");
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0 || write(fd, text, used) != (ssize_t)used || close(fd) < 0)
        die("the counts could not be written");
    return PMPI_Finalize();
}
