/* trace_read.h -- the events of a Chrome trace, one at a time.
 *
 *     struct trace_reader *r = trace_open("rank0.pt.trace.json.gz");
 *     struct trace_event e;
 *     int rc;
 *     while ((rc = trace_next(r, &e)) > 0)
 *         ... e.name, e.ts, e.dur ...
 *     trace_close(r);
 *
 * A profiler's trace has hundreds of megabytes: it is never in memory as a whole, only the
 * event at hand.  Plain or gzip.  Members may come in any order, unknown ones are passed
 * over, and what Kineto is known to write besides JSON is taken: a comma before the end of a
 * list, bare nan and inf, unknown escapes, control characters in strings.
 *
 * Format: "Trace Event Format" (Google, 2016) and libkineto/src/output_json.cpp. */
#ifndef DPX_TRACE_READ_H
#define DPX_TRACE_READ_H

#include <stdbool.h>
#include <stdint.h>

struct trace_reader;

/* Dimensions of one input of an operator; n is -1 where it is no tensor, a list of tensors, or has more than three. */
enum { TRACE_DIMS = 5 };
struct trace_dims { int n; int64_t of[TRACE_DIMS]; };

/* What the reader knows of an event: strings cut at their size, 0 or "" where it has none. */
struct trace_event {
    char    ph;                     /* 'X': a slice */
    char    name[512], cat[64];
    int64_t ts, dur;                /* ns */
    int64_t pid, tid;               /* 0 where they are words */
    struct {
        int64_t correlation;        /* of a kernel and its launch; -1: none */
        int64_t external;           /* of an operator and its kernels; -1: none */
        int64_t stream;             /* -1: none */
        int64_t in_elems, out_elems;    /* of a collective; -1: not said */
        int64_t dims[2];            /* elements of the first two inputs of an operator; -1: not said */
        struct trace_dims input[3]; /* of the first three; n 0: not said (record_shapes=False) */
        int64_t group_size;         /* 0: not said */
        int64_t bytes;              /* of a copy; -1: not said */
        char    collective[64], dtype[32], group[64];
    } args;
};

/* What the document says of the run, complete once trace_next() has returned 0. */
struct trace_info {
    int64_t rank, world_size;       /* -1: not said */
    char    backend[32];
    char    device[64];             /* as the first GPU calls itself; "": not said */
};

/* NULL with the reason reported. */
struct trace_reader *trace_open(const char *path);

/* 1: *e is the next event; 0: the document has ended, whole; -1: malformed or cut short, reported
 * with line and column. */
int trace_next(struct trace_reader *r, struct trace_event *e);

const struct trace_info *trace_info(const struct trace_reader *r);

/* Accepts NULL. */
void trace_close(struct trace_reader *r);

#endif
