/* mpi.h -- as much of MPI as exec/ and calib/ call, for a world of one process: `make MPI=0`, on a
 * machine that has a GPU and no MPI.
 *
 * Collectives copy.  There is no other rank: point-to-point calls fail, and a probe finds
 * nothing.  Every communicator is the world. */
#ifndef DPX_NOMPI_MPI_H
#define DPX_NOMPI_MPI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MPI_SUCCESS, MPI_ERR_OTHER };
enum { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
enum { MPI_MAX_ERROR_STRING = 64, MPI_MAX_OBJECT_NAME = 64, MPI_MAX_LIBRARY_VERSION_STRING = 64 };
enum { MPI_ANY_SOURCE = -1, MPI_COMM_TYPE_SHARED = 1 };

typedef enum { MPI_COMM_NULL, MPI_COMM_WORLD } MPI_Comm;
typedef enum { MPI_GROUP_NULL, MPI_GROUP_ONE } MPI_Group;
typedef enum { MPI_REQUEST_NULL } MPI_Request;
typedef enum { MPI_INFO_NULL } MPI_Info;
typedef enum { MPI_ERRORS_RETURN } MPI_Errhandler;
typedef enum { MPI_OP_NULL, MPI_SUM, MPI_MAX, MPI_MIN, MPI_BOR, MPI_OP_USER } MPI_Op;
typedef struct { int MPI_SOURCE, MPI_TAG, MPI_ERROR; } MPI_Status;
typedef long MPI_Aint;

/* A type is its size, and a number to tell it by. */
#define DPX_TYPE(number, type) ((number) << 8 | (int)sizeof(type))
typedef enum {
    MPI_DATATYPE_NULL,
    MPI_BYTE     = DPX_TYPE(1, char),     MPI_CHAR     = DPX_TYPE(2, char),
    MPI_INT      = DPX_TYPE(3, int),      MPI_INT32_T  = DPX_TYPE(4, int32_t),
    MPI_INT64_T  = DPX_TYPE(5, int64_t),  MPI_UINT64_T = DPX_TYPE(6, uint64_t),
    MPI_UINT16_T = DPX_TYPE(7, uint16_t), MPI_UINT8_T  = DPX_TYPE(8, uint8_t),
    MPI_FLOAT    = DPX_TYPE(9, float),    MPI_DOUBLE   = DPX_TYPE(10, double)
} MPI_Datatype;

typedef void MPI_User_function(void *in, void *inout, int *n, MPI_Datatype *t);

#define MPI_IN_PLACE ((void *)1)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)

/* ---- the process ---- */

static inline int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
    (void)argc, (void)argv;
    *provided = wanted;
    return MPI_SUCCESS;
}

static inline int MPI_Finalize(void) { return MPI_SUCCESS; }

static inline int MPI_Abort(MPI_Comm c, int status)
{
    (void)c;
    fflush(NULL);
    _Exit(status);
}

static inline int MPI_Error_string(int status, char *text, int *n)
{
    *n = snprintf(text, MPI_MAX_ERROR_STRING, "built without MPI: there is no other rank (%d)", status);
    return MPI_SUCCESS;
}

static inline int MPI_Get_library_version(char *text, int *n)
{
    *n = snprintf(text, MPI_MAX_LIBRARY_VERSION_STRING, "no MPI");
    return MPI_SUCCESS;
}

/* ---- communicators ---- */

static inline int MPI_Comm_rank(MPI_Comm c, int *rank) { (void)c; *rank = 0; return MPI_SUCCESS; }
static inline int MPI_Comm_size(MPI_Comm c, int *size) { (void)c; *size = 1; return MPI_SUCCESS; }
static inline int MPI_Comm_dup(MPI_Comm c, MPI_Comm *to) { *to = c; return MPI_SUCCESS; }
static inline int MPI_Comm_free(MPI_Comm *c) { *c = MPI_COMM_NULL; return MPI_SUCCESS; }
static inline int MPI_Comm_set_name(MPI_Comm c, const char *name) { (void)c, (void)name; return MPI_SUCCESS; }
static inline int MPI_Comm_group(MPI_Comm c, MPI_Group *g) { (void)c; *g = MPI_GROUP_ONE; return MPI_SUCCESS; }
static inline int MPI_Group_free(MPI_Group *g) { *g = MPI_GROUP_NULL; return MPI_SUCCESS; }

enum { MPI_TAG_UB = 1 };

static inline int MPI_Comm_get_attr(MPI_Comm c, int key, void *value, int *there)
{
    (void)c, (void)key, (void)value;
    *there = 0;
    return MPI_SUCCESS;
}

static inline int MPI_Comm_set_errhandler(MPI_Comm c, MPI_Errhandler h)
{
    (void)c, (void)h;
    return MPI_SUCCESS;
}

static inline int MPI_Group_incl(MPI_Group g, int n, const int *ranks, MPI_Group *to)
{
    *to = g;
    return n == 1 && ranks[0] == 0 ? MPI_SUCCESS : MPI_ERR_OTHER;
}

static inline int MPI_Comm_create_group(MPI_Comm c, MPI_Group g, int tag, MPI_Comm *to)
{
    (void)g, (void)tag;
    *to = c;
    return MPI_SUCCESS;
}

static inline int MPI_Comm_split_type(MPI_Comm c, int type, int key, MPI_Info info, MPI_Comm *to)
{
    (void)type, (void)key, (void)info;
    *to = c;
    return MPI_SUCCESS;
}

/* ---- collectives ---- */

static inline int dpx_copy(const void *from, void *to, int n, MPI_Datatype t)
{
    if (from != MPI_IN_PLACE && to != MPI_IN_PLACE && from != to && n > 0)
        memmove(to, from, (size_t)n * ((size_t)t & 0xff));
    return MPI_SUCCESS;
}

static inline int MPI_Barrier(MPI_Comm c) { (void)c; return MPI_SUCCESS; }

static inline int MPI_Ibarrier(MPI_Comm c, MPI_Request *r)
{
    (void)c;
    *r = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

static inline int MPI_Bcast(void *x, int n, MPI_Datatype t, int root, MPI_Comm c)
{
    (void)x, (void)n, (void)t, (void)root, (void)c;
    return MPI_SUCCESS;
}

static inline int MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c)
{
    (void)op, (void)c;
    return dpx_copy(from, to, n, t);
}

static inline int MPI_Reduce(const void *from, void *to, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c)
{
    (void)op, (void)root, (void)c;
    return dpx_copy(from, to, n, t);
}

static inline int MPI_Reduce_scatter(const void *from, void *to, const int *n, MPI_Datatype t, MPI_Op op, MPI_Comm c)
{
    (void)op, (void)c;
    return dpx_copy(from, to, n[0], t);
}

static inline int MPI_Gather(const void *from, int n, MPI_Datatype t, void *to, int m, MPI_Datatype u, int root,
                             MPI_Comm c)
{
    (void)m, (void)u, (void)root, (void)c;
    return dpx_copy(from, to, n, t);
}

static inline int MPI_Scatter(const void *from, int n, MPI_Datatype t, void *to, int m, MPI_Datatype u, int root,
                              MPI_Comm c)
{
    return MPI_Gather(from, n, t, to, m, u, root, c);
}

static inline int MPI_Allgather(const void *from, int n, MPI_Datatype t, void *to, int m, MPI_Datatype u, MPI_Comm c)
{
    return MPI_Gather(from, n, t, to, m, u, 0, c);
}

static inline int MPI_Alltoall(const void *from, int n, MPI_Datatype t, void *to, int m, MPI_Datatype u, MPI_Comm c)
{
    return MPI_Gather(from, n, t, to, m, u, 0, c);
}

static inline int MPI_Alltoallv(const void *from, const int *n, const int *at, MPI_Datatype t, void *to, const int *m,
                                const int *there, MPI_Datatype u, MPI_Comm c)
{
    (void)at, (void)there;
    return MPI_Gather(from, n[0], t, to, m[0], u, 0, c);
}

static inline int MPI_Op_create(MPI_User_function *f, int commutes, MPI_Op *op)
{
    (void)f, (void)commutes;
    *op = MPI_OP_USER;
    return MPI_SUCCESS;
}

static inline int MPI_Op_free(MPI_Op *op) { *op = MPI_OP_NULL; return MPI_SUCCESS; }

/* ---- types: only for buffers that one call cannot name, which one rank has no use for ---- */

static inline int MPI_Type_contiguous(int n, MPI_Datatype of, MPI_Datatype *to)
{
    (void)n, (void)of, (void)to;
    return MPI_ERR_OTHER;
}

static inline int MPI_Type_create_resized(MPI_Datatype of, MPI_Aint from, MPI_Aint extent, MPI_Datatype *to)
{
    (void)of, (void)from, (void)extent, (void)to;
    return MPI_ERR_OTHER;
}

static inline int MPI_Type_commit(MPI_Datatype *t) { (void)t; return MPI_ERR_OTHER; }
static inline int MPI_Type_free(MPI_Datatype *t) { *t = MPI_DATATYPE_NULL; return MPI_SUCCESS; }

/* ---- to another rank: there is none ---- */

static inline int MPI_Send(const void *x, int n, MPI_Datatype t, int to, int tag, MPI_Comm c)
{
    (void)x, (void)n, (void)t, (void)to, (void)tag, (void)c;
    return MPI_ERR_OTHER;
}

static inline int MPI_Recv(void *x, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *st)
{
    (void)x, (void)n, (void)t, (void)from, (void)tag, (void)c, (void)st;
    return MPI_ERR_OTHER;
}

static inline int MPI_Isend(const void *x, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r)
{
    *r = MPI_REQUEST_NULL;
    return MPI_Send(x, n, t, to, tag, c);
}

static inline int MPI_Issend(const void *x, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r)
{
    return MPI_Isend(x, n, t, to, tag, c, r);
}

static inline int MPI_Irecv(void *x, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r)
{
    *r = MPI_REQUEST_NULL;
    return MPI_Recv(x, n, t, from, tag, c, MPI_STATUS_IGNORE);
}

static inline int MPI_Iprobe(int from, int tag, MPI_Comm c, int *there, MPI_Status *st)
{
    (void)from, (void)tag, (void)c;
    *there = 0;
    if (st != MPI_STATUS_IGNORE)
        *st = (MPI_Status){ 0, 0, 0 };
    return MPI_SUCCESS;
}

static inline int MPI_Test(MPI_Request *r, int *done, MPI_Status *st)
{
    (void)r, (void)st;
    *done = 1;
    return MPI_SUCCESS;
}

static inline int MPI_Testall(int n, MPI_Request *r, int *done, MPI_Status *st)
{
    (void)n;
    return MPI_Test(r, done, st);
}

#endif
