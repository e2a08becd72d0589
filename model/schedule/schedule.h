/* schedule.h -- what one rank does, in issue order: the one description that the
 * simulator and the executor both read.
 *
 * A plan is lowered to three schedules over one table of buffers: `init`,
 * `first` (the first optimizer step) and `steady` (every later one).  Steady
 * leaves live exactly what it found live.  A plan that changes what it does after
 * a number of steps (PowerSGD) has a fourth, `early`, for so many behind the first;
 * it leaves live what it found, too.
 *
 * Entries are issued in order by one thread.  An entry starts when it has been
 * issued, the stream it is on and (for a collective) its process group are free,
 * every stream in `after` has finished what had been issued on it before this
 * entry, and the events in `wait` were recorded.  An entry on STREAM_ISSUE that
 * waits blocks the issuing thread itself.
 *
 * Activations and temporaries inside a compute entry are the program's (struct
 * span); the family "activations" of device memory names, for the executor, what
 * a block keeps from forward to backward.
 *
 * A buffer is a family of `count` equal instances (one per unit or block).
 * Entries act on instances: allocate when the entry is issued, use, free once
 * it is issued.  All allocations of an entry come before its work, all frees
 * after it.
 *
 * A buffer lies in one space.  Compute, collectives and the optimizer on the
 * compute stream work in device memory.  STREAM_HOST is the host's threads: they
 * work in pinned and pageable host memory alone (the CPU's Adam, its casts, norms
 * and first weights).  A copy that reads one space and writes another moves bytes
 * as they are (COPY_SET by 1, or COPY_NOTHING), on any stream between device and
 * host: frameworks have copies on their reduction or gather streams as well as on
 * STREAM_H2D and STREAM_D2H.  Files are bytes of SPACE_DISK: a copy from disk to
 * host memory on STREAM_DISK_READ, from host memory to disk on STREAM_DISK_WRITE.
 * schedules_check() holds schedules to all of it.
 *
 * What a block keeps for backward leaves device memory by a copy that reads and frees an instance of its family
 * "activations" there and allocates and writes one of the same size elsewhere, after the block's forward; the
 * copy back, before its backward, does the opposite.
 *
 * What the executor needs beyond that, which elements of which tensors a buffer holds, is in
 * layouts: they are described only when asked for (`detailed`), since planning does not read
 * them.  A copy or a collective moves, between the buffers that its entry reads and those
 * it writes, the elements that both hold; nothing else is said about where data goes.
 *
 * A send and a receive match by the pair of ranks and the tag, in order: the first send with the
 * first receive, and so on.  Neither is done before the other rank's is issued and its stream free
 * (a rendezvous, as NCCL's).  They are ordered by the stream they are on alone; a process group's
 * collectives follow each other, sends and receives do not wait for them.
 *
 * An all-to-all sends part i of what is read to rank i of the group, and writes what rank i
 * sent as part i.  Parts are equal, or as a table has them (`parts`: its first of group_size rows
 * in coll_parts; 0: equal); `elems` is all that the rank sends, its own part included.
 *
 * REPEAT n ... END issues its body n times.  An index inside the body (a unit,
 * a buffer instance) is `at + by * iteration` of the innermost repeat. */
#ifndef DPX_SCHEDULE_H
#define DPX_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/dtype.h"
#include "model/plan/plan_groups.h"
#include "model/program/program.h"

enum sched_id { SCHED_INIT, SCHED_FIRST, SCHED_STEADY, SCHED_EARLY, NSCHED };

enum category {
    CAT_PARAMS, CAT_GRADS, CAT_OPTIMIZER,           /* persistent: sharded or whole, as the strategy has it */
    CAT_ACTIVATIONS, CAT_TEMPORARIES,
    CAT_UNSHARDED, CAT_UNSHARDED_GRADS,             /* gathered parameters; full gradients of a unit */
    CAT_ALL_GATHER, CAT_REDUCE_SCATTER, CAT_BUCKET, /* collective buffers */
    CAT_OVERHEAD,                                   /* workspaces, staging */
    NCAT
};

/* What a forward without gradients has none of. */
static inline bool category_is_of_training(enum category c)
{
    return c == CAT_GRADS || c == CAT_OPTIMIZER || c == CAT_UNSHARDED_GRADS || c == CAT_REDUCE_SCATTER || c == CAT_BUCKET;
}

#define AFTER(s) ((uint16_t)(1u << (s)))
_Static_assert(NSTREAM <= 16, "`after` of struct op has a bit for each stream");

/* Its entries run on the host whatever the device is. */
static inline bool stream_is_host(enum stream s) { return s >= STREAM_HOST; }

/* Where a buffer lies.  Device memory is a rank's own; the ranks of a node share the rest. */
enum space {
    SPACE_DEVICE,
    SPACE_PINNED,           /* host memory that is page-locked and known to the device */
    SPACE_HOST,             /* pageable host memory */
    SPACE_DISK,             /* files on the node's own disks */
    NSPACE
};
#define IN(s) (1u << (s))
enum { IN_HOST = IN(SPACE_PINNED) | IN(SPACE_HOST) };   /* all of a node's DRAM */


/* What one rank of an all-to-all sends to, and receives from, one rank of the group: elements. */
struct coll_part { int64_t sent, received; };

/* What a collective moves where it is not buffers. */
enum coll_of {
    OF_BUFFERS,
    OF_NORM,                /* the squared gradient norm; with more than one element, one of each tensor */
    OF_OVERFLOW,            /* whether a gradient is not finite */
    OF_TOKENS,              /* token ids of the batch, and labels */
    OF_LOSS,                /* losses, or their gradient */
    OF_AMAX,                /* largest magnitudes of the tensors that the entry's buffers hold, one of each (COPY_AMAX) */
    OF_META,                /* sizes, orders: what ranks exchange or compare */
    OF_PLACES,              /* what kernels of a block program hand to each other: slots of the entry's piece */
};

/* An exact sum of squares of fp32 numbers, on the wire: 20 limbs of 32 bits, each an int64 with
 * room for carries, and one that counts what is not finite. */
enum { NORM_LIMBS = 21 };

/* What a copy does with what it reads (exec/README.md, "Data"). */
enum copy_fn {
    COPY_NOTHING,           /* its work is part of another entry: only bytes */
    COPY_SET,               /* written = scale * read, where both hold the same elements; from numbers to DT_FP8: with the scale of
                             * the largest magnitude that the last OF_AMAX left */
    COPY_ADD,               /* written += scale * read */
    COPY_ZERO,              /* written = 0 */
    COPY_NORM,              /* the sum of squares of what is read is added to the gradient norm */
    COPY_CLIP,              /* what is read and written is scaled to the norm that the plan allows */
    COPY_OVERFLOW,          /* the overflow flag is set where what is read is not finite */
    COPY_LOSS,              /* the losses that were gathered: their mean */
    COPY_AMAX,              /* the largest magnitude of each tensor's elements that are read is noted */
    /* Of whole regions, by sched_quantises(); the first acts say which, in this order. */
    COPY_QUANTIZE,          /* reads numbers; writes their codes, the scales of their groups */
    COPY_DEQUANTIZE,        /* reads codes, scales; writes numbers */
    COPY_REQUANTIZE,        /* reads `ranks` arrays of codes, of scales; writes the codes of their sum, its scales */
    COPY_MEAN,              /* reads `nodes` arrays of numbers; writes their sum, scaled */
    /* Of whole regions, by sched_narrows(), where struct narrow has the matrices: M is a bucket, Ps and Qs follow each other. */
    COPY_DRAW_Q,            /* writes Qs: standard normal numbers, the same on each rank, others in each call */
    COPY_ORTHOGONAL_P,      /* reads and writes Ps: columns become orthonormal */
    COPY_ORTHOGONAL_Q,      /* the same of Qs */
    COPY_P_OF_Q,            /* reads M, Qs; writes Ps = M Q */
    COPY_Q_OF_P,            /* reads M, Ps; writes Qs = M' P */
    COPY_M_OF_BOTH,         /* reads Ps, Qs; writes M = P Q' */
    COPY_SCALE_Q,           /* reads and writes Qs, scaled */
    COPY_LOST,              /* reads two arrays of tensors' elements; writes the first less the second */
};

/* Blocks of numbers as codes of `bits`, symmetric about 0, with one fp32 scale for each of `groups` groups of equal size; numbers are
 * fp16.  elems: of one array.  ranks x nodes parts of the array, in the order of the ranks, are written in the order in which ranks
 * of a node send to each other first: part r + ranks * m is the (r * nodes + m)-th (1 x 1: as they are). */
struct quant { int64_t elems, groups; int32_t bits, ranks, nodes; };

/* A matrix of rows x cols fp32 numbers from element `at` of a bucket on, as the product of P, rows x rank from element p of the
 * bucket's Ps on, and the transpose of Q, cols x rank from element q of its Qs on. */
struct narrow { int64_t rows, cols, rank, at, p, q; };

enum op_kind {
    OP_COMPUTE,             /* kernels [k0,k1) of a pass of a piece */
    OP_COLL,                /* a collective */
    OP_COPY,                /* a memory-bound pass: cast, copy-in, copy-out, scale, add, zero */
    OP_OPTIMIZER,           /* AdamW on `elems` elements: `passes` over memory (of
                             * `each` tensor by itself), `bytes` an element in all */
    OP_WAIT,                /* the issuing thread waits (on STREAM_ISSUE) */
    OP_MEMORY,              /* buffers come or go, nothing runs */
    OP_REPEAT, OP_END,
};

enum phase { PHASE_INIT, PHASE_FORWARD, PHASE_BACKWARD, PHASE_REDUCE, PHASE_OPTIMIZER, NPHASE };

struct buf {
    const char   *what;     /* "unsharded parameters", "bucket" ... static */
    const char   *of;       /* what an instance is one of: "block", "unit", "bucket"; NULL: only one */
    int32_t       first;    /* number of instance 0 in those words */
    int32_t       count;
    int64_t       bytes;    /* of one instance, rounded as the framework's allocator does */
    enum category category;
    int32_t       layout;   /* what an instance holds; 0: not described, or nothing */
    bool          cyclic;   /* instances are numbered modulo count: of micro-steps, as many as are in flight */
    enum space    space;
    int32_t       part0, nparts;    /* its allocations, where it is several: parts[part0 ..], bytes in all */
    bool          copied;           /* its parts are copies, made one by one, of temporaries as large: each goes when the next one is there */
    bool          experts;          /* gradients of weights of experts, and of no others */
    bool          stands;           /* an upper bound for the ledger only; the allocator's replay uses the parts instead */
    int32_t       late;             /* how many of the last parts are allocated behind all others of their category in the entry (sched_part_late()) */
};

/* Whether an instance is memory of its own.  What a block keeps from forward to backward is not, in device memory: it comes
 * and goes kernel by kernel, spans have it, and acts on its family only name it. */
static inline bool buf_is_place(const struct buf *b)
{
    return b->category != CAT_ACTIVATIONS || b->space != SPACE_DEVICE;
}

/* Elements [from, from+n) of a tensor, `at` bytes from the buffer's begin. */
enum holds { HOLDS_PARAM, HOLDS_GRAD, HOLDS_MASTER, HOLDS_EXP_AVG, HOLDS_EXP_AVG_SQ,
             HOLDS_ROW_VAR, HOLDS_COL_VAR,      /* Adafactor's: element i is of row, or column, i of the tensor */
             HOLDS_MAX_AVG, HOLDS_MAX_SQ };     /* of moments in 8 bits (DT_UINT8: codes): element i is of block i */
struct slice {
    int32_t tensor;         /* of model->tensors */
    uint8_t holds, dtype;
    int64_t from, n, at;
};

/* Instance i of a family holds tensors `stride` * i further on. */
struct layout { int32_t slice0, nslices, stride; };

/* READ, WRITE and ADD (added to what is there) say what an entry does with the data; USE, that it
 * needs the buffer. */
enum { ACT_ALLOC = 1, ACT_USE = 2, ACT_FREE = 4, ACT_READ = 8, ACT_WRITE = 16, ACT_ADD = 32 };
/* Of an entry's acts, summed up: some allocate or free bytes of device memory, or of another. */
enum { ACTS_DEVICE = 64, ACTS_ELSEWHERE = 128 };
enum { ACT_R = ACT_USE | ACT_READ, ACT_W = ACT_USE | ACT_WRITE, ACT_RW = ACT_R | ACT_W, ACT_A = ACT_USE | ACT_ADD };

struct act {
    int32_t buf;            /* index of the family */
    int32_t at, by;         /* instance: at + by * iteration (sched_instance) */
    int32_t n;              /* and the n-1 after it */
    int32_t layout;         /* what it holds for this entry; 0: the family's */
    uint8_t what;           /* ACT_ bits */
};

enum {
    OPF_GUARDED = 1,        /* skipped when the gradient overflowed */
    OPF_LOAD = 2,           /* initial weights appear in the parameters that it writes */
    OPF_ENGINE = 8,         /* a collective that copy engines run, not multiprocessors */
    OPF_HOOK = 4,           /* a collective, or the copy that one rank makes instead, which a Python hook issues, not C++ (a reducer, an executor) */
    OPF_LOCAL = 8,          /* an edge between two stages of one rank: a tensor is handed over, not copied */
    OPF_GRAPH = 32,         /* a collective inside a CUDA graph, whose replay issues it */
    OPF_LAYER = 64,         /* a collective of an eager layer that computes on DTensors: Python, and more of it around the layer's operators */
    OPF_EMPTIES = 128,      /* an OP_MEMORY behind which the framework calls torch.cuda.empty_cache() */
    OPF_DTENSOR = 16,       /* a collective with which DTensor brings an operator's input to its place: Python, less than a hook's; or an optimizer of DTensors */
};

struct op {
    uint8_t     kind, stream, phase, flags;
    uint16_t    after;          /* AFTER() bits */
    uint16_t    record;         /* event recorded when it is done, 0: none */
    uint16_t    wait[2];        /* events waited for, 0: none */
    uint32_t    nacts;
    uint32_t    act0;           /* its buffer actions: acts[act0 .. act0+nacts) */
    uint8_t     acting;         /* ACT_ bits that any of them has; ACTS_ bits */
    uint8_t     chunk;          /* of a pipeline: whose pass or message it belongs to, of a rank's several stages ... */
    int32_t     step, step_by;  /* ... and of which micro-step; -1: of none */
    const char *what;           /* "all-gather", "copy-out", "forward" ... static */
    int32_t     unit, unit_by;  /* which unit, block or bucket; -1: none */
    const char *of;             /* "unit", "block", "bucket", "rank"; NULL: none */
    union {
        struct { uint8_t piece, pass, fate, grads; uint16_t k0, k1; int32_t span;
                 int64_t granted; } compute;    /* bytes it allocates of category `grads` */
        struct { uint8_t op, group, dtype, red;     /* group: of groups.group[] */
                 uint8_t of, piece, from, into;     /* the last three: OF_PLACES */
                 union { int32_t root, peer; };     /* place in the group; peer: of a send or receive */
                 union { int32_t tag, parts, tensors; };    /* tag: of a send or receive; parts: of an all-to-all; tensors: that a hook gathers in one */
                 int64_t elems; } coll;             /* elements of the full buffer */
        struct { int64_t reads, writes; uint8_t fn; uint16_t quant; float scale;
                 int32_t kernels;           /* of so many, 0: one */
                 int32_t narrow0, narrows; } copy;      /* bytes; quant: of quants[]; narrows[narrow0 ..] */
        struct { int64_t elems; int32_t tensors; uint32_t bytes; uint8_t passes; bool each, fp32; double flops; } optimizer;  /* tensors in its list;
                                                        * of matrix products in 16 bits or fp32, beside the passes */
        struct { int64_t reads; } wait;         /* numbers that are read back one by one behind it, each with a wait of its own */
        struct { int64_t n; int32_t other; } repeat;  /* other: index of the matching END (REPEAT) */
    } u;
};

/* Whether the acts of `o` on a buffer move bytes.  A copy takes what a block keeps to another memory, or brings it back:
 * all of it, `bytes` of the family. */
static inline bool op_moves(const struct op *o, const struct buf *b) { return buf_is_place(b) || o->kind == OP_COPY; }
/* What an act on it adds to `acting`. */
static inline uint8_t op_acting(const struct op *o, int what, const struct buf *b)
{
    bool comes_or_goes = (what & (ACT_ALLOC | ACT_FREE)) && op_moves(o, b);

    return (uint8_t)(what | (!comes_or_goes ? 0 : b->space == SPACE_DEVICE ? ACTS_DEVICE : ACTS_ELSEWHERE));
}
/* Is it of a step's forward and backward passes, their reductions included? */
static inline bool op_is_of_passes(const struct op *o) { return o->phase > PHASE_INIT && o->phase < PHASE_OPTIMIZER; }

/* Events [first, first + n): of micro-steps modulo n, as many as are under way. */
struct ring { uint16_t first, n; };

/* A unit: what is gathered, reduced or bucketed together. */
struct unit {
    const char *kind;           /* "root", "block", "attention", "mlp", "bucket", "model" ... static */
    int32_t     index;          /* among its kind */
    int64_t     numel, padded;  /* elements, and with the strategy's padding */
    int64_t     shard;          /* elements a rank keeps */
};

/* A schedule of micro-steps that each differ from the one before (buffers of DeepSpeed's that are taken in turn) has so many
 * entries at most. */
enum { SCHED_MOST_OPS = 1 << 21 };

/* What the hooks are of that issue collectives: units of many parameters, single parameters (DeepSpeed's stage 3), or gradients, which go
 * into a bucket one by one (its stages 1 and 2). */
enum hooks_of { HOOKS_NONE, HOOKS_OF_UNITS, HOOKS_OF_PARAMETERS, HOOKS_OF_GRADIENTS };

struct schedules {
    struct buf  *bufs;   int nbufs; int64_t cap_bufs;
    struct op   *ops;    int nops; int64_t cap_ops;
    struct act  *acts;   int nacts; int64_t cap_acts;
    struct unit *units;  int nunits; int64_t cap_units;
    int          begin[NSCHED], end[NSCHED];    /* entries of each schedule in ops[] */
    struct plan_groups groups;                  /* the process groups of the plan */
    uint32_t     communicates;                  /* bit g: some entry is a collective of groups.group[g] */
    unsigned     spaces;                        /* IN(): where buffers lie, device memory aside */
    int         recorded_from;                  /* the first unit of a pipeline's stage */
    const struct recorded *recorded;            /* of a recorded module, which the plan owns: blocks are its units, in words by their paths */
    int64_t      rank, world_size;
    int          nevents;
    struct ring *rings; int64_t cap_rings;      /* by event: its ring, which most have to themselves */
    struct program program;     /* the kernels that compute entries run */
    bool         borrowed;      /* the program has another owner */
    struct span *spans;  int nspans; int64_t cap_spans; /* memory and work of the segments used */
    int          span_at[256];                  /* hash of a segment: an entry that has it, plus 1 */
    struct coll_part *coll_parts; int ncoll_parts; int64_t cap_coll_parts;  /* of unequal all-to-alls; [0] is unused */
    struct quant *quants; int nquants; int64_t cap_quants;  /* each but once; [0] is unused */
    struct narrow *narrows; int nnarrows; int64_t cap_narrows;
    int64_t      early;         /* so many steps behind the first are SCHED_EARLY's */
    bool         detailed;      /* layouts are asked for */
    bool         folds;         /* a pipeline's passes that come again and again become repeats: not for the executor */
    struct slice  *slices;  int nslices; int64_t cap_slices;
    struct layout *layouts; int nlayouts; int64_t cap_layouts;
    int64_t       *parts;   int nparts; int64_t cap_parts;      /* bytes of single allocations */
    bool         tied_apart;    /* a buffer of the schedule stands for the head's part of a tied gradient
                                 * that is dropped; else the program's own store is counted */
    double       seed;          /* a micro-step's mean loss is multiplied with this before backward */
    uint8_t      chunk;         /* of the entries that are appended: sched_in_flight() */
    int32_t      step;
    enum hooks_of hooks;           /* Python hooks issue its collectives: sched_coll() marks them OPF_HOOK */
    bool         dtensors;      /* tensor-parallel layers compute on DTensors: their collectives are OPF_LAYER, but those of a compiled graph */
    /* Python hooks around modules, whether or not they communicate, in a pass of a piece: those of forward, and of backward. */
    uint16_t     module_hooks[NPIECE][NPASS][NPASS];
    bool         steps_on_host; /* schedule_states.h follows: acts of the step are needed, whether detailed or not */
    bool         star;          /* collectives go through rank 0's own link, to or from each rank */
    bool         overflow;      /* a size exceeded SIZE_LIMIT: lower() refuses */
    bool         too_long;      /* micro-steps that do not come to repeat: likewise */
    const char  *notes[8]; int nnotes;          /* sentences for `explain`: what this dialect does here */
};

/* ---- building: used by the lowerings only ---- */

/* Clears for reuse without giving memory back; schedules_free() gives it back, schedules_trim() what finished ones do not need. */
void schedules_reset(struct schedules *s);
void schedules_trim(struct schedules *s);
void schedules_free(struct schedules *s);

/* A buffer family; returns its index. */
int  sched_buf(struct schedules *s, enum category cat, const char *what, const char *of,
               int first, int count, int64_t bytes);
/* The same elsewhere than in device memory. */
int  sched_buf_in(struct schedules *s, enum space in, enum category cat, const char *what, const char *of,
                  int first, int count, int64_t bytes);

/* Opens and closes one of the three schedules. */
void sched_begin(struct schedules *s, enum sched_id id);
void sched_end(struct schedules *s, enum sched_id id);

/* Instances of the family are numbered modulo its count: at + by * iteration may be any number from 0. */
void sched_cyclic(struct schedules *s, int buf);

/* Appends an entry and returns it, valid until the next one is appended. */
struct op *sched_op(struct schedules *s, enum op_kind kind, enum stream stream,
                    enum phase phase, const char *what);
/* What is appended from here on belongs to micro-step `step` of a pipeline, in the rank's stage `chunk`. */
void sched_in_flight(struct schedules *s, int chunk, int step);
/* Names the unit/block/bucket of the last entry. */
void sched_of(struct schedules *s, const char *of, int unit, int by);
/* An instance of the family is several allocations: the next one of them.  Those of a family are given one
 * after another; they add up to its bytes. */
void sched_part(struct schedules *s, int buf, int64_t bytes);
/* The same of one that the framework makes when those of the entry's other buffers of its category are there: a walk over a model's tensors meets
 * a root's head behind the blocks.  None but late ones follow. */
void sched_part_late(struct schedules *s, int buf, int64_t bytes);
/* Buffer action of the last entry. */
void sched_act(struct schedules *s, int what, int buf, int at, int by);
/* The same on every instance of the family. */
void sched_act_all(struct schedules *s, int what, int buf);

/* Act `a` of another entry, with these bits; nothing where there are none. */
void sched_act_like(struct schedules *s, const struct act *a, int what);

/* An act with a layout of its own: what the buffer holds for this entry. */
void sched_act_as(struct schedules *s, int what, int buf, int at, int by, int layout);

/* A layout, to which sched_slice() appends; 0 unless `detailed` (then slices are ignored).
 * sched_holds() gives it to a family. */
int  sched_layout(struct schedules *s, int stride);
void sched_slice(struct schedules *s, enum holds h, enum dtype t, int tensor, int64_t from, int64_t n,
                 int64_t at);
void sched_holds(struct schedules *s, int buf, int layout);

/* What the last entry, a copy, does; what the last entry, a collective, moves or where its
 * root is. */
void sched_does(struct schedules *s, enum copy_fn fn, double scale);
/* It is n kernels, which share the bytes evenly. */
void sched_kernels(struct schedules *s, int64_t n);
void sched_moves(struct schedules *s, enum coll_of of);
void sched_root(struct schedules *s, int root);
/* The last entry, a copy, quantises numbers, or makes numbers of codes; scale: of COPY_MEAN. */
void sched_quantises(struct schedules *s, enum copy_fn fn, struct quant q, double scale);
/* Appends a matrix.  The last entry, a copy, works on the n matrices from number narrow0 on (COPY_LOST: none). */
void sched_narrow(struct schedules *s, const struct narrow *of);
void sched_narrows(struct schedules *s, enum copy_fn fn, int narrow0, int n, double scale);
/* It moves slot `from` of a piece into slot `into`; the entry names the block. */
void sched_moves_places(struct schedules *s, enum piece_id piece, enum slot from, enum slot into);

/* A collective of the group with purpose `g`, which the plan has. */
struct op *sched_coll(struct schedules *s, enum stream stream, enum phase phase, enum coll_op op,
                      enum group g, enum dtype t, enum red_op red, int64_t elems);
/* COLL_SEND to, or COLL_RECV from, the rank at place `peer` of the group. */
struct op *sched_message(struct schedules *s, enum stream stream, enum phase phase, enum coll_op op,
                         enum group g, int peer, int tag, enum dtype t, int64_t elems);
/* The last entry, an all-to-all, has unequal parts: n rows, one for each rank of its group.  Its
 * `elems` becomes their sum. */
void sched_parts(struct schedules *s, const struct coll_part *parts, int n);
struct op *sched_copy(struct schedules *s, enum stream stream, enum phase phase, const char *what,
                      int64_t reads, int64_t writes);
/* The same of a copy that writes what it reads. */
struct op *sched_set(struct schedules *s, enum stream stream, enum phase phase, const char *what, int64_t reads, int64_t writes);
/* Kernels [k0,k1) of a pass; k1 < 0: to its end.  With GRADS_KEEP the entry also
 * allocates buffers of category `grads` for the gradients that it hands out; the
 * ledger knows from the program that they come one by one, and that a tied
 * embedding's first half is there before the gradient is handed out. */
struct op *sched_compute(struct schedules *s, enum phase phase, enum piece_id piece, enum pass pass,
                         int k0, int k1, enum grad_fate fate, enum category grads);
/* n >= 0 iterations of what is appended until sched_repeat_end(). */
void sched_repeat(struct schedules *s, int64_t n);
void sched_repeat_end(struct schedules *s);
/* A fresh event number (1, 2, ...); the first of a ring of n, 0: there are not as many numbers left. */
uint16_t sched_event(struct schedules *s);
uint16_t sched_ring(struct schedules *s, int n);
void sched_note(struct schedules *s, const char *sentence);
int  sched_unit(struct schedules *s, const char *kind, int index, int64_t numel,
                int64_t padded, int64_t shard);

/* Ranks of the group with purpose `g`; 0: the plan has none. */
int64_t sched_group_ranks(const struct schedules *s, enum group g);

/* ---- reading ---- */

/* The schedule of optimizer step `step` = 1, 2, ...; how often a schedule has run after so many steps. */
static inline enum sched_id sched_of_step(const struct schedules *s, int64_t step)
{
    return step == 1 ? SCHED_FIRST : step <= 1 + s->early ? SCHED_EARLY : SCHED_STEADY;
}
static inline bool sched_has(const struct schedules *s, enum sched_id id) { return id != SCHED_EARLY || s->early > 0; }
/* The schedules in the order in which they run, i = 0 to NSCHED - 1. */
static inline enum sched_id sched_in_turn(int i)
{
    return i < SCHED_STEADY ? (enum sched_id)i : i == SCHED_STEADY ? SCHED_EARLY : SCHED_STEADY;
}
int64_t sched_times(const struct schedules *s, enum sched_id id, int64_t steps);

/* The instance of its family that an act is about, the first of its n. */
static inline int64_t sched_instance(const struct schedules *s, const struct act *a, int64_t iteration)
{
    int64_t i = a->at + a->by * iteration;

    return s->bufs[a->buf].cyclic ? i % s->bufs[a->buf].count : i;
}

/* Whether an event of the entry is another one in each iteration of the innermost repeat: the next of its ring.  Which one it is. */
static inline bool sched_event_turns(const struct schedules *s, const struct op *o, uint16_t event)
{
    return o->step_by && event && o->step_by % s->rings[event].n;
}

static inline int sched_event_at(const struct schedules *s, const struct op *o, uint16_t event, int64_t iteration)
{
    if (!sched_event_turns(s, o, event))
        return event;
    const struct ring *r = &s->rings[event];
    int64_t i = (event - r->first + o->step_by * iteration) % r->n;
    return r->first + (int)(i < 0 ? i + r->n : i);
}

/* The group of a collective. */
const struct plan_group *sched_group(const struct schedules *s, const struct op *o);

/* Whether a copy goes from one space to another, and between which.  A side without a buffer is host memory
 * that counts as pinned where the stream is STREAM_H2D or STREAM_D2H (a module that moves to the device); else it
 * is where the other side is.  A copy between two buffers' spaces has its acts whether `detailed` or not. */
bool sched_crosses(const struct schedules *s, const struct op *o, enum space *from, enum space *to);

/* What a compute entry changes beyond its buffer actions, by MEM_: activations and
 * temporaries as the program has them, gradients less the buffers it allocates for
 * them.  Zero, summed over a micro-step. */
void sched_inner(const struct schedules *s, const struct op *o, int64_t net[NMEM]);
/* The same at the fullest moment inside of it, on top of its allocations. */
void sched_inner_peak(const struct schedules *s, const struct op *o, int64_t peak[NMEM]);

const char *category_name(enum category c);
const char *stream_name(enum stream s);
const char *space_name(enum space s);
const char *coll_name(enum coll_op op);
/* A send or a receive: between two ranks of a group. */
bool coll_is_message(enum coll_op op);
const char *red_name(enum red_op r);
const char *phase_name(enum phase p);
const char *sched_name(enum sched_id id);

/* Calls f for every entry of a schedule in issue order, repeats unrolled;
 * iteration is that of the innermost repeat.  Stops early when f returns non-zero
 * and returns that. */
int sched_walk(const struct schedules *s, enum sched_id id,
               int (*f)(const struct schedules *s, const struct op *op, int64_t iteration, void *arg),
               void *arg);

/* The schedule as text, one line an entry. */
void sched_print(const struct schedules *s, enum sched_id id, FILE *to);

/* Bytes this rank puts on the wire for one collective of `bytes` (full buffer)
 * in a group of n, by ring: nccl-tests doc/PERFORMANCE.md.  Rounded to the
 * nearest byte; tree-less broadcast and reduce count one full buffer.  An all-to-all of equal parts
 * sends all but its own (nccl-tests alltoall.cu), a send all, a receive nothing. */
int64_t coll_sent_bytes(enum coll_op op, int64_t n, int64_t bytes);

/* The same for an entry of these schedules: what their rank sends.  In a star rank
 * 0 sends a broadcast to each other rank and the others send their part to it. */
int64_t sched_sent_bytes(const struct schedules *s, const struct op *o);

/* Every broken invariant of a finished set of schedules, as a sentence into
 * `why`: an act outside its family, a buffer freed twice or used while dead,
 * an unbalanced repeat, steady not leaving what it found, a wait on an event
 * that no entry records.  true when sound. */
bool schedules_check(const struct schedules *s, char *why, int size);

#endif
