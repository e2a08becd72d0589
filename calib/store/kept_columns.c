/* kept_columns.c -- the columns of a file of fits. */
#include "calib/store/kept_internal.h"
#include "calib/store/words.h"

static const char *fn_of(int i)    { return fn_words[i]; }
static const char *class_of(int i) { return class_words[i]; }
static const char *pass_of(int i)  { return pass_words[i]; }
static const char *coll_of(int i)  { return i == NCOLL ? "copy" : coll_name((enum coll_op)i); }
static const char *type_of(int i)  { return dtype_name((enum dtype)i); }

_Static_assert(sizeof(enum measured_pass) == sizeof(int) && sizeof(enum coll_op) == sizeof(int) && sizeof(enum dtype) == sizeof(int) &&
               sizeof(enum kernel_class) == sizeof(int), "WORD");

#define AT(type, field) offsetof(struct measured_##type, field)
static const struct column kernel_columns[] = {
    { "fn", BYTE, AT(kernel, fn), fn_of, NKERNEL_FN }, { "kind", BYTE, AT(kernel, kind), class_of, NKERNEL_CLASS },
    { "batch", WHOLE, AT(kernel, batch), NULL, 0 }, { "m", WHOLE, AT(kernel, m), NULL, 0 }, { "n", WHOLE, AT(kernel, n), NULL, 0 },
    { "k", WHOLE, AT(kernel, k), NULL, 0 }, { "seq", WHOLE, AT(kernel, seq), NULL, 0 }, { "dim", WHOLE, AT(kernel, dim), NULL, 0 },
    { "scaled", FLAG, AT(kernel, scaled), NULL, 0 }, { "dropout", FLAG, AT(kernel, dropout), NULL, 0 },
    { "bytes", WHOLE, AT(kernel, bytes), NULL, 0 }, { "flops", REAL, AT(kernel, flops), NULL, 0 },
    { "s", REAL, AT(kernel, s), NULL, 0 }, { "spread", REAL, AT(kernel, spread), NULL, 0 }, { 0 },
};
static const struct column pass_columns[] = {
    { "pass", WORD, AT(bytes, pass), pass_of, NMEASURED_PASS }, { "bytes", WHOLE, AT(bytes, bytes), NULL, 0 },
    { "s", REAL, AT(bytes, s), NULL, 0 }, { "spread", REAL, AT(bytes, spread), NULL, 0 }, { 0 },
};
static const struct column coll_columns[] = {
    { "op", WORD, AT(coll, op), coll_of, NCOLL }, { "dtype", WORD, AT(coll, dtype), type_of, NDTYPE },
    { "star", FLAG, AT(coll, star), NULL, 0 }, { "ranks", WHOLE, AT(coll, ranks), NULL, 0 },
    { "per_node", WHOLE, AT(coll, per_node), NULL, 0 }, { "bytes", WHOLE, AT(coll, bytes), NULL, 0 },
    { "s", REAL, AT(coll, s), NULL, 0 }, { "spread", REAL, AT(coll, spread), NULL, 0 }, { "unsure", REAL, AT(coll, unsure), NULL, 0 }, { 0 },
};
static const struct column overlap_columns[] = {
    { "kind", WORD, AT(overlap, kind), class_of, NKERNEL_CLASS }, { "op", WORD, AT(overlap, op), coll_of, NCOLL + 1 },
    { "bytes", WHOLE, AT(overlap, bytes), NULL, 0 }, { "compute", REAL, AT(overlap, compute), NULL, 0 },
    { "other", REAL, AT(overlap, other), NULL, 0 }, { "spread", REAL, AT(overlap, spread), NULL, 0 },
    { "alone_s", REAL, AT(overlap, alone_s), NULL, 0 }, { "ranks", WHOLE, AT(overlap, ranks), NULL, 0 },
    { "per_node", WHOLE, AT(overlap, per_node), NULL, 0 }, { 0 },
};

#define ROWS(name, columns, type, array) \
    { name, columns, sizeof(struct measured_##type), offsetof(struct measured_device, array), offsetof(struct measured_device, n##array) }
const struct rows kept_arrays[KEPT_ARRAYS] = {
    ROWS("kernels", kernel_columns, kernel, kernel), ROWS("passes", pass_columns, bytes, bytes),
    ROWS("collectives", coll_columns, coll, coll), ROWS("overlaps", overlap_columns, overlap, overlap),
};

#define OF(field) offsetof(struct measured_device, field)
const struct column kept_numbers[] = {
    { "precision", WORD, OF(precision), type_of, NDTYPE }, { "ranks", WHOLE, OF(ranks), NULL, 0 }, { "threads", WHOLE, OF(threads), NULL, 0 },
    { "cores", WHOLE, OF(cores), NULL, 0 }, { "probe_s", REAL, OF(probe_s), NULL, 0 }, { "drift", REAL, OF(drift), NULL, 0 },
    { "unsteady", REAL, OF(unsteady), NULL, 0 }, { "late", REAL, OF(late), NULL, 0 }, { "taken", REAL, OF(taken), NULL, 0 }, { 0 },
};
const struct column kept_times[] = {
    { "issue_kernel", REAL, OF(own.issue_kernel), NULL, 0 }, { "issue_entry", REAL, OF(own.issue_entry), NULL, 0 },
    { "handover", REAL, OF(own.handover), NULL, 0 }, { "wake", REAL, OF(own.wake), NULL, 0 }, { "cold", REAL, OF(own.cold), NULL, 0 },
    { "step", REAL, OF(own.step), NULL, 0 }, { "alone", REAL, OF(alone), NULL, 0 }, { "together", REAL, OF(together), NULL, 0 }, { 0 },
};
