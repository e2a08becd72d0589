/* measured.h -- what was measured on one machine, as the clock reads it.
 *
 * calib/ fits it from its samples, sim/ prices schedules with it; neither knows the other.  One
 * struct is one device, one precision of plans and one number of ranks that were busy at once.
 * Any array may be empty, any single time 0: then the clock falls back on what is published, and
 * says so.  Seconds are medians, or means where ranks
 * shared cores (calib/store/fit.c).  A spread is a share of its time: half of the range in which nine
 * samples in ten lie, divided by the median.
 *
 * Kernels are keyed as block programs have them (model/program/program.h): a point says "this kernel of
 * a program took so long". */
#ifndef DPX_MEASURED_H
#define DPX_MEASURED_H

#include <stdbool.h>
#include <stdint.h>

#include "model/program/program.h"
#include "model/schedule/schedule.h"

/* A kernel of a block program, timed in the program's order: caches are as in training.  The fields
 * that do not apply are 0: a product has m, n, k, attention has seq and dim, the others only bytes. */
struct measured_kernel {
    uint8_t fn;                 /* enum kernel_fn; FN_NONE: of another implementation (then kind and `what` count) */
    uint8_t kind;               /* enum kernel_class */
    uint8_t set;                /* enum kernel_set: others than KERNELS_DPX are of a framework's trace */
    uint32_t what;              /* measured_word() of the kernel in a framework's program; else 0 */
    int64_t batch, m, n, k;     /* as struct kernel */
    int64_t seq, dim;           /* tokens of a sample, width of a head */
    bool    scaled;             /* a product of operands in 8 or 4 bits */
    bool    dropout;            /* taken in a plan that drops: some kernels then draw random numbers */
    int64_t bytes;              /* as struct kernel: read and written, each operand once */
    double  flops;              /* as struct kernel */
    double  s, spread;
};

/* What the executor does with memory outside of block programs: by bytes read and written. */
enum measured_pass {
    MP_COPY,                    /* same dtype on both sides; memcpy */
    MP_SCALE,                   /* the same with a factor */
    MP_RESCALE,                 /* with a factor, in place */
    MP_ADD,                     /* dst += src: reads both */
    MP_CAST,                    /* fp32 to 16 bits or back */
    MP_ZERO,                    /* memset: writes */
    MP_ADAMW,                   /* parameters, moments, gradient, and a 16-bit copy if there is one */
    MP_SQUARES,                 /* the norm of a gradient: reads */
    MP_TO_HOST,                 /* of a device, into pinned memory: by the bytes that cross, not twice them */
    MP_FROM_HOST,
    MP_HOST_ADAMW,              /* by the host's threads beside a device: as MP_ADAMW, of fp32 */
    MP_DISK_READ,               /* files, as the executor reads and writes them (store.h): by the bytes that move */
    MP_DISK_WRITE,
    MP_CAST_FP16,               /* fp32 to fp16 or back */
    MP_QUANTIZE8, MP_DEQUANTIZE8, MP_QUANTIZE4, MP_DEQUANTIZE4, MP_REQUANTIZE4,    /* codes of fp16 numbers (enum copy_fn), of so many bits */
    MP_MEAN_FP16,
    MP_NARROW_P, MP_NARROW_Q, MP_NARROW_M,      /* PowerSGD's products with matrices of MEASURED_RANK columns: P = M Q, Q = M' P, M = P Q' */
    MP_ORTHOGONAL,              /* such a matrix's columns: read and written */
    NMEASURED_PASS
};
enum { MEASURED_RANK = 4 };
struct measured_bytes { enum measured_pass pass; int64_t bytes; double s, spread; uint8_t set; };

/* A collective on an idle machine (every rank in it), queued back to back; the slowest rank's time. */
struct measured_coll {
    enum coll_op op;
    enum dtype   dtype;         /* sums of 16-bit numbers take longer than of 32 */
    bool         star;          /* through rank 0's own link, one rank after the other */
    int64_t      ranks, per_node;
    int64_t      bytes;         /* the full buffer, as struct op and nccl-tests count */
    double       s, spread;
    double       unsure;        /* half of the 95 % interval of the median, as a share of it: much of few samples */
};

/* How many times longer either takes while both run; at least 1. */
struct measured_overlap {
    enum kernel_class kind;
    int     op;                 /* enum coll_op; NCOLL: a copy on a stream of its own */
    int64_t bytes;              /* of the collective, its full buffer; 0: any */
    double  compute, other;     /* the kernels; the collective or copy */
    double  spread;             /* of both */
    double  alone_s;            /* the collective or copy, seconds; less than in a sweep, whose buffers no cache has */
    int64_t ranks, per_node;    /* that it was of */
};

struct measured_time { double s, spread; };

/* What the executor itself takes: lanes.c and the issuing thread. */
struct measured_overheads {
    struct measured_time issue_kernel;  /* issuing thread, for one kernel of a segment */
    struct measured_time issue_entry;   /* for any other entry */
    struct measured_time handover;      /* end of a task to the start of the next, which was queued, on its lane */
    struct measured_time wake;          /* end of a task to the start of one on another lane that waited for it */
    struct measured_time cold;          /* a collective alone beyond one of a queue: ranks meet, sleepers wake */
    struct measured_time step;          /* between steps, outside all entries */
};

/* What a framework's trace says of its issuing thread: for each kernel or copy of the plan's program, in either pass, and for
 * each collective. */
enum traced_issue { TRACED_FORWARD, TRACED_BACKWARD, TRACED_COLL,
                    TRACED_HOOKED,              /* + each of these: of a training whose hooks gather and reduce */
                    NTRACED_ISSUE = 2 * TRACED_HOOKED };

struct measured_device {
    const struct measured_kernel  *kernel;  int nkernel;        /* by fn, then bytes */
    const struct measured_bytes   *bytes;   int nbytes;         /* by set, pass, then bytes */
    const struct measured_coll    *coll;    int ncoll;          /* by op, dtype, star, ranks, per_node, then bytes */
    const struct measured_overlap *overlap; int noverlap;
    struct measured_overheads      own;

    bool       traced[NKERNELS];    /* sets of which a trace has timed kernels */
    double     traced_issue[NKERNELS][NTRACED_ISSUE];   /* seconds of the issuing thread then; 0: not known */
    enum dtype precision;       /* of the plans for which kernels were timed */
    int64_t    ranks;           /* busy at once; 0: not known (imported sweeps) */
    int64_t    threads;         /* of each rank's kernels */
    int64_t    cores;           /* of the machine; 0: not known */
    struct measured_time alone, together;   /* a product on one rank: while the others sleep, and while all compute; 0: not known */
    double     probe_s;         /* the probe product, median; all times are as if it always took that */
    double     drift;           /* its spread over the whole calibration: what the machine itself does */
    double     unsteady;        /* how much it changes between one probe and the next, likewise */
    double     late;            /* share of a time that others' work on the same cores may be; 0: they were quiet */
    double     now_s;           /* the least of several just before a prediction; 0: none taken */
    double     taken;           /* when it ended, seconds since 1970 */
    char       device[128];     /* "cpu" and its name, or the GPU's */
    char       basis[256];      /* for people: what, when, where */
    char       warning[512];    /* for people: in what it differs from what it is used for; empty: in nothing */
    void      *store;           /* owns the arrays */
};

/* The machine as it is now, by a probe (exec/train/probe.h): all times change with it (measured_pace()), and
 * what is left of `drift` is what happens between two probes.  Nothing changes where the calibration has
 * no probe. */
void measured_now(struct measured_device *m, double probe_s);

/* What tells kernels of a framework's program apart: pass, name and the format of narrow operands, "forward rms", "forward q, fp8 by tensor";
 * and a number for that. */
enum { MEASURED_WORDS = 96 };
void     measured_words(enum pass pass, const struct kernel *k, char out[MEASURED_WORDS]);
uint32_t measured_word(const char *words);

/* What every time is to be multiplied with: the probe now over the probe then. */
static inline double measured_pace(const struct measured_device *m)
{
    return m->now_s > 0 && m->probe_s > 0 ? m->now_s / m->probe_s : 1;
}

/* Accepts what was never filled, if zeroed. */
void measured_device_free(struct measured_device *m);

#endif
