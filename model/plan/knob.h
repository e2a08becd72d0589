/* knob.h -- the knobs of a plan, one row each.
 *
 * A row says which object of plan.json the key is in, its type and range, which cells of the
 * strategy x dialect table have it, its default, where it lives in struct plan, one sentence for
 * people, which values are worth searching, its word in a plan's label, and its names in other
 * tools.  Parsing, checking, defaults, the complete document, search, labels, import,
 * export, manual pages and completion all go by these rows: a new knob is one more.
 *
 * What a row cannot say with a number or a word is a function that it points to (knob_rules.c).  A key
 * whose default or names depend on the cell has several rows with disjoint cells.
 *
 * `dpx_plan`, `model`, `cluster`, `strategy` and `dialect` are not here: they decide which rows hold. */
#ifndef DPX_KNOB_H
#define DPX_KNOB_H

#include <stddef.h>
#include <stdint.h>

#include "model/plan/plan.h"

enum knob_type {
    KNOB_INT,           /* int64_t; a real with an integral value is taken too (5e8) */
    KNOB_REAL,          /* double */
    KNOB_BOOL,          /* bool */
    KNOB_FLAG,          /* int, 0 or 1: false or true; a null value: -1 */
    KNOB_WORD,          /* an enum (int): index into words */
    KNOB_WORD_BOOL,     /* bool: index into two words */
    KNOB_UNIT,          /* unit and unit_blocks */
    KNOB_RESHARD,       /* null, false, true or ranks: FSDP2's reshard_after_forward */
    KNOB_GRAD_ACCUM,    /* null or a dtype: bool, "is fp32 while the model is not" */
    KNOB_TEXT,          /* char array of `hi` bytes; words[0] says what it holds */
    KNOB_LIST,          /* names, separated by commas in a char array of `hi` bytes.  words[0] says what they are; the
                         * others stand for a list as they are, and words[1] for none ("": null does) */
    KNOB_FIXED,         /* only words[0]; not stored */
};

enum knob_null {
    KNOB_NULL_REFUSED,
    KNOB_NULL_VALUE,    /* null is a value of its own: null_value */
    KNOB_NULL_DEFAULT,  /* null says: the default */
};

/* A knob in another tool's config. */
struct knob_name {
    uint64_t           cells;       /* in which of the row's cells this holds */
    const char        *section;     /* the object or table it is in there, "" the document itself; NULL: the tool
                                     * has no such key */
    const char        *name;        /* NULL: as the row's */
    const char *const *words;       /* its words, by index of the row's; "": it has none for that one.  NULL: the
                                     * row's */
    const char        *lacks;       /* why a value that it has no word for is refused; NULL: not checked */
    double             only;        /* without a section: the one value that the tool has */
    bool               silent;      /* a config without the key does not mean the row's default, */
    double             absent;      /* but this */
};

/* Knobs from the turn KNOB_SAVES on are for plans that lack device memory: search leaves them at their defaults at
 * first.  Those from KNOB_LATER on move data out of device memory. */
enum { KNOB_SAVES = 19, KNOB_LATER = 20 };

enum knob_tried { KNOB_NO_MORE, KNOB_SKIPPED, KNOB_TRIED };

struct knob {
    const char         *object;     /* "" for the document itself, "ddp", "deepspeed.aio" for an object in another */
    const char         *name;
    enum knob_type      type;
    size_t              offset;     /* in struct plan */
    uint64_t            cells;      /* CELL() bits */
    int64_t             lo, hi;     /* KNOB_INT: inclusive; KNOB_REAL: likewise, `above` excludes lo */
    bool                above;
    bool                required;
    enum knob_null      null;
    double              null_value;
    const char *const  *words;
    const char         *about;      /* one sentence for people */

    double              def;        /* the default; WORD: the index */
    double            (*usual)(const struct plan *p);   /* or computed from strategy, dialect, precision, version, */
    const char         *usually;    /* and then in words */
    bool                follows;    /* the default follows from the degrees of "parallel", or from what trains: knob_follow() */
    bool                everywhere; /* cells without the key have that value, too */
    bool              (*idle)(const struct plan *p);    /* says nothing beside the plan's other values: then it has its
                                     * default and is not written */

    int                 turn;       /* search: 1 varies outermost, higher turns inside; 0: not varied; from KNOB_SAVES
                                     * on: only where plans lack device memory */
    const double       *tries;      /* the values worth searching, */
    int                 ntries;
    enum knob_tried   (*try_with)(struct plan *p, int i);   /* or what writes the i-th of them */

    const char         *label;      /* in a plan's label where the value is not the default: a format for the number,
                                     * or (%s) the word; NULL: not in the label */
    int               (*say)(const struct plan *p, char *to, size_t size);      /* or what prints it, as snprintf() */

    struct knob_name    ds;         /* DeepSpeed's JSON; section "dpx": what only we say there */
    int64_t           (*ds_auto)(int64_t hidden);   /* what transformers makes of "auto"; NULL: not known there */
    struct knob_name    accelerate, titan;          /* accelerate's YAML; torchtitan's options */
};

/* Of a cell in knob.cells: 30 of 64 bits. */
#define CELL(s, d) (UINT64_C(1) << ((s) * NDIALECT + (d)))
_Static_assert(NSTRATEGY * NDIALECT <= 64, "the cells of the strategy x dialect table fit a mask");

/* The cell of a plan. */
static inline uint64_t knob_cell(const struct plan *p) { return CELL(p->strategy, p->dialect); }

/* ---- the table ---- */

/* Row i, NULL after the last. */
const struct knob *knob_at(int i);

/* The row of a key in a cell; NULL when the cell has no such key. */
const struct knob *knob_find(const char *object, const char *name, uint64_t cell);

/* Has the plan's cell the key? */
bool knob_has(const struct plan *p, const char *object, const char *name);

/* All cells that have the key, 0 when no cell has. */
uint64_t knob_cells(const char *object, const char *name);

/* Is it the path of an object that holds keys ("ddp", "deepspeed.aio")? */
bool knob_is_object(const char *name);

/* The words of a key of the document itself ("recompute"), ended by NULL. */
const char *const *knob_words(const char *name);

/* "ddp/torch, zero1/torch" into `out`; and shorter where a dialect has all of them: "deepspeed, fsdp/torch",
 * "every cell". */
void knob_cells_text(uint64_t cells, char *out, size_t size);
void knob_cells_short(uint64_t cells, char *out, size_t size);

/* The key of that object in that cell whose spelling is nearest, or NULL when
 * none is near. */
const char *knob_nearest(const char *object, const char *name, uint64_t cell);

/* Why a key that frameworks know is not in plans yet ("pipeline parallelism is
 * not supported yet"); "" when its value asks for nothing (null, false, 1 rank,
 * device none); NULL when it is no such key. */
const char *knob_not_yet(const char *object, const char *name, const json_t *value);

/* Why a value that frameworks know is not one of the key's; NULL when it is no such value.  Case does not count, as in
 * DeepSpeed's names of optimizers. */
const char *knob_lacks(const char *object, const char *name, const char *value);

/* Row i of what both refuse, for lists; false behind the last.  value is NULL where the key as a whole is refused. */
struct knob_refusal { const char *object, *name, *value, *why; };
bool knob_refusal_at(size_t i, struct knob_refusal *r);

/* ---- values ---- */

/* As a number: an index for words, the kind for units; 0 for texts; 1 for lists that are not empty. */
double knob_get(const struct plan *p, const struct knob *k);
void   knob_set(struct plan *p, const struct knob *k, double v);

/* The default, given strategy, dialect, precision, version, model and cluster of p. */
double knob_default(const struct plan *p, const struct knob *k);

/* After the degrees of "parallel" were set or changed: the keys whose default follows from them (shard_group,
 * virtual_stages ...) have it.  Not those that somebody chose: given(arg, row); NULL: nobody chose any. */
void knob_follow(struct plan *p, bool (*given)(const void *arg, const struct knob *k), const void *arg);

/* Reads one value into the plan by its row, and writes it (new reference).  What
 * a message calls the key is where, k->object and k->name. */
int     knob_read(const json_t *v, const char *where, const struct knob *k, struct plan *p);
json_t *knob_write(const struct plan *p, const struct knob *k);

/* The object of a path ("deepspeed.aio", "": the document) in a document, made where it is not there yet. */
json_t *knob_object_at(json_t *doc, const char *path);

/* Does it say nothing in this plan?  Gives such knobs their defaults. */
static inline bool knob_idle(const struct plan *p, const struct knob *k) { return k->idle && k->idle(p); }
void knob_reset_idle(struct plan *p);

/* 0, or -1 with the value refused by the row's range, or because it has one and is idle. */
int knob_check(const struct plan *p, const struct knob *k, const char *where);

/* ---- search and labels ---- */

/* Writes the i-th value worth searching: KNOB_TRIED; KNOB_SKIPPED where it makes no sense in this plan;
 * KNOB_NO_MORE after the last (at once where the plan has no choice). */
enum knob_tried knob_try(struct plan *p, const struct knob *k, int i);

enum { KNOB_LABEL = 320 };      /* characters of a label that are shown */
/* "zero3 deepspeed b1x4, recompute full, reuse 0": a plan's label among others of a search. */
void knob_label(const struct plan *p, char *to, size_t size);
/* What one row adds to it (", recompute full"), as snprintf(); 0: nothing. */
int  knob_label_part(const struct plan *p, const struct knob *k, char *to, size_t size);

/* ---- for people ---- */

/* "fsdp.forward_prefetch"; what values it takes ("1 to 65536", "true, false"); its default. */
void knob_key_text(const struct knob *k, char *out, size_t size);
enum { KNOB_RANGE_TEXT = 384 };         /* bytes that hold what any key takes */
void knob_range_text(const struct knob *k, char *out, size_t size);
void knob_default_text(const struct knob *k, char *out, size_t size);

/* ---- other tools ---- */

/* The row of a cell that a tool's key stands for; NULL: none.  `tool` is the offset of ds, accelerate or titan. */
const struct knob *knob_named(size_t tool, const char *section, const char *name, uint64_t cell);
#define KNOB_DS         offsetof(struct knob, ds)
#define KNOB_ACCELERATE offsetof(struct knob, accelerate)
#define KNOB_TITAN      offsetof(struct knob, titan)

/* All cells in which the tool has such a key. */
uint64_t knob_named_cells(size_t tool, const char *section, const char *name);

static inline const struct knob_name *knob_name_in(const struct knob *k, size_t tool)
{
    return (const struct knob_name *)(const void *)((const char *)k + tool);
}

/* Does the tool's key (or its lack of one) concern a plan in that cell? */
static inline bool knob_concerns(const struct knob *k, const struct knob_name *n, uint64_t cell)
{
    return (k->cells & n->cells & cell) != 0;
}

/* The tool's own spelling of the key. */
static inline const char *knob_spelt(const struct knob *k, const struct knob_name *n)
{
    return n->name ? n->name : k->name;
}

/* Can the tool say this plan's value?  Where it has the key, a word for it; where not, the only value. */
bool knob_sayable(const struct plan *p, const struct knob *k, const struct knob_name *n);

#endif
