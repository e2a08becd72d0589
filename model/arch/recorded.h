/* recorded.h -- a model that was recorded: any torch.nn.Module as its tensors, its units in the order of the run, and the programs of its pieces.
 *
 *     struct model m;
 *     if (recorded_model(doc, "model.json", &m) < 0)      0, or -1 with the reason reported
 *         return 2;
 *     ... m.recorded->nprograms ...
 *     model_free(&m);
 *
 * docs/howto/model-file.md is the file; `python -m dpx.record` writes it, and so may a person.  All that is read here is checked here:
 * a file is hostile input.  Sizes are polynomials in the batch b and the size s (tokens, or an image's side): recorded_at() computes them without
 * overflow, or says which one has none there. */
#ifndef DPX_RECORDED_H
#define DPX_RECORDED_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/dtype.h"
#include "model/arch/transformer.h"

/* Behind a refusal of a model that no family has. */
#define RECORDED_WAY "; python -m dpx.record records its module, which search and eval plan"

/* Most that a file may have. */
enum { RECORDED_VERSION = 1, RECORDED_TENSORS = 1 << 18, RECORDED_KERNELS = 1 << 20, RECORDED_PROGRAMS = 16, RECORDED_KINDS = 32, RECORDED_DEGREE = 8,
       RECORDED_TERMS = 64 };

/* Terms [first, first + n) of the model. */
struct rec_size { int32_t first, n; };
/* num/den * b^pb * s^ps; num from -2^60 to 2^60, den from 1 to 2^40. */
struct rec_term { int64_t num, den; uint8_t pb, ps; };

enum rec_does { REC_COMES, REC_GOES, REC_GOES_OTHERS, REC_READY };
enum rec_mem { REC_ACTIVATION, REC_TEMPORARY, REC_GRADIENT };

/* One thing that a kernel does to memory, in order. */
struct rec_move {
    uint8_t         does, mem;      /* enum rec_does, rec_mem */
    uint8_t         backward;       /* of REC_GOES_OTHERS: the pass that made it */
    bool            handed_on;      /* another piece frees it */
    int32_t         id;             /* of its piece; of REC_READY -1: a tensor that another piece made */
    int32_t         tensor;         /* of REC_READY: which of its unit's tensors; of the model's where the unit has it not: see recorded_tensor() */
    struct rec_size bytes;
};

enum rec_class { REC_GEMM, REC_CONV, REC_ATTENTION, REC_NORM, REC_ELEMENTWISE, REC_SOFTMAX, REC_EMBEDDING, REC_LOSS, REC_COPY, REC_POOL, REC_REDUCE,
                 REC_RECURRENCE, REC_FFT, REC_CUSTOM, NREC_CLASS };

struct rec_kernel {
    const char     *name;           /* equal names are one pointer */
    uint8_t         class;          /* enum rec_class */
    bool            causal;         /* of attention: half of the scores count */
    bool            product;        /* it has mnk */
    uint8_t         grouped;        /* 1, 3: m, k is what all groups, as many as `batch`, share evenly; 0: each has the whole */
    int16_t         head_dim;       /* of attention; 0: not said */
    struct rec_size flops, bytes, mnk[4];       /* mnk: batch, m, n, k */
    int             move0, nmoves;
};

/* What DeepSpeed's stage 3 does before the pass's kernel number `kernel`: for a module's forward (in backward: for forward's second run), for its
 * backward; REC_TAKE: takes a gradient that is complete. */
enum rec_hook_kind { REC_FETCH, REC_RELEASE, REC_FETCH_BACK, REC_RELEASE_BACK, REC_TAKE, NREC_HOOK };
struct rec_hook {
    uint8_t kind;                   /* enum rec_hook_kind */
    int32_t kernel;
    int32_t of;                     /* which of the piece's modules; of REC_TAKE a tensor, as in struct rec_move */
};

/* Kernels [kernel0, kernel0 + n) of forward and of backward; the same of hooks, where stage 3 was recorded, and the modules that these name:
 * ".attn.proj" of the unit, "." the unit itself, else a whole path, "" the root. */
struct rec_piece {
    const char *name;
    int kernel0[2], nkernels[2];
    int before, after;              /* kernels of forward before the unit is entered, of backward behind it: the root's */
    int loss[2];                    /* of the last piece: the last kernels of forward and the first of backward, which are no module's */
    int hook0[2], nhooks[2];
    int module0, nmodules;
};

/* What backward runs again: nothing, units as a whole, or all but the operators that torchtitan's `selective op` keeps. */
enum rec_again { REC_NOTHING, REC_WHOLE, REC_BY_OPERATOR, NREC_AGAIN };

/* The programs of one precision. */
struct rec_program {
    const char *precision;          /* "bf16", "autocast", "fp32" */
    uint8_t     again;              /* enum rec_again */
    bool        stage3;             /* recorded under the hooks of DeepSpeed's stage 3 */
    int         first, last;        /* its pieces */
    int        *of_unit;            /* the piece of each unit, counted among `kind` */
    int        *kind, nkinds;       /* the units' pieces */
    struct rec_size hands;          /* where a unit reads what the one before it hands on and nothing else, so that a pipeline may cut there: its bytes, */
    uint8_t     hands_dtype;        /* enum dtype */
    const char *whole;              /* else why not; NULL: there is `hands` */
};

/* A buffer as a broadcast moves it: tensors of one `kind`, a dtype of PyTorch's, are made one.  Kinds below NDTYPE are that enum dtype. */
struct rec_buffer { int64_t bytes, elems; uint8_t kind, sent; };
enum { REC_BOOL = NDTYPE, REC_INT16, REC_COMPLEX64, REC_COMPLEX128, REC_KINDS };

/* A unit's backward: as others'; it computes no gradient of what the unit is given, which needs none (behind frozen units), so that autograd does
 * not tell a hook on it when the unit is done; there is none. */
enum rec_turn { REC_TURN, REC_LATE, REC_FORWARD_ONLY };

struct recorded {
    int     refs;                   /* models that share it; __atomic */
    struct recorded *cut_from;      /* of a pipeline's stage: the whole, whose pieces these are; else NULL */
    char   *path;                   /* absolute path of the file; NULL: it stood in a plan, as `doc` */
    json_t *doc;
    char    name[96];
    uint8_t of;                     /* what a size counts: enum sample_of */
    int64_t batch;                  /* the only micro-batch that plans may have; 0: any */
    int64_t least, step, most, only;    /* plans take sizes from `least` to `most` in multiples of `step`, or `only` */
    int     nunits;
    char  **unit, **unit_class;     /* module path, class */
    uint8_t *turn;                  /* enum rec_turn */
    int    *first, *ntensors;       /* tensors of each unit */
    int    *alike, *place, *stride; /* the first unit with tensors of the same shapes, and of those behind it all equally far apart in the
                                     * table; how many such are before this one; how far apart (of the first one) */
    bool    uneven;                 /* units differ in their tensors, or do not follow each other in the table */
    int     nroot, *root;           /* tensors of no unit, in the order of the table */
    struct rec_buffer *buffer; int64_t nbuffers, nkept;     /* the module's; behind them what it keeps and has not registered: bytes alone */
    struct { const char *name; int tensor; } *shared;   /* another name of a tensor */
    int     nshared;
    bool   *viewed;                 /* of each tensor: under stage 3 backward keeps a view of it */

    struct rec_term   *terms;   int64_t nterms, terms_room;
    struct rec_kernel *kernels; int64_t nkernels, kernels_room;
    struct rec_move   *moves;   int64_t nmoves, moves_room;
    struct rec_piece  *pieces;  int64_t npieces, pieces_room;
    struct rec_hook   *hooks;   int64_t nhooks, hooks_room;
    const char       **modules; int64_t nmodules, modules_room;
    struct rec_program program[RECORDED_PROGRAMS];
    int     nprograms;
    char  **names; int64_t nnames, names_room;          /* sorted */
};

/* Is it such a file, or a plan's {"file": ...} of one? */
bool recorded_is(const json_t *doc);

/* Reads it; `where` stands before messages, and is the path where the file was read from one, else NULL is given as `path`. */
int recorded_model(json_t *doc, const char *where, const char *path, struct model *out);

struct recorded *recorded_share(struct recorded *r);

/* Units [from, from + part->layers) of it, with the tensors of `part`, a pipeline's stage.  Takes over a share of `whole`. */
struct recorded *recorded_stage(struct recorded *whole, const struct model *part, int from);
void recorded_free(struct recorded *r);

/* What reads back as the same model: {"file": path}, or the document itself.  A new reference. */
json_t *recorded_to_config(const struct recorded *r);

/* The program of a precision ("bf16", "autocast", "fp32"), under the hooks of stage 3 or without; NULL: it was not recorded. */
const struct rec_program *recorded_program(const struct recorded *r, const char *precision, enum rec_again again, bool stage3);

/* Its name in a file: "none", "full", "op". */
const char *recorded_again_name(enum rec_again again);

/* Index in the model's table of tensor `i` of a unit (struct rec_move). */
int recorded_tensor(const struct recorded *r, int64_t unit, int i);

/* The time of kernels of a class is known within this factor either way beside what their price says; 0: there are measurements of such.  A convolution
 * is priced as its implicit product.  Assumed, since none was timed: cuDNN reaches from a third of a product's rate on.  Of recurrences,
 * transforms and custom kernels only the bytes are known. */
int recorded_rough(enum rec_class c);

/* FLOPs of forward and backward of one sample of a size, by one of its programs: of a step that runs so much again.  0: none is known. */
double recorded_flops(const struct recorded *r, int64_t size, enum rec_again again);

/* The polynomial's value.  0, or -1: it is not whole, negative, or above 2^60 there. */
int recorded_at(const struct recorded *r, struct rec_size z, int64_t batch, int64_t size, int64_t *out);

#endif
