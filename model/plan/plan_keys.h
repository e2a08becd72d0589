/* plan_keys.h -- the keys of plan.json, one row each.
 *
 * A row says which object the key is in, its type and range, which cells of the
 * strategy x dialect table have it, its default there, and where it lives in
 * struct plan.  Reading, writing, checking and documenting all go by these rows.
 * A key whose default depends on the cell has several rows with disjoint cells.
 *
 * `dpx_plan`, `model`, `cluster`, `strategy` and `dialect` are not here: they
 * decide which rows hold. */
#ifndef DPX_PLAN_KEYS_H
#define DPX_PLAN_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "model/plan/plan.h"

enum key_type {
    KEY_INT,            /* int64_t; a real with an integral value is taken too (5e8) */
    KEY_REAL,           /* double */
    KEY_BOOL,           /* bool */
    KEY_FLAG,           /* int, 0 or 1: false or true; a null value: -1 */
    KEY_WORD,           /* an enum (int): index into words */
    KEY_WORD_BOOL,      /* bool: index into two words */
    KEY_UNIT,           /* unit and unit_blocks */
    KEY_RESHARD,        /* null, false, true or ranks: FSDP2's reshard_after_forward */
    KEY_GRAD_ACCUM,     /* null or a dtype: bool, "is fp32 while the model is not" */
    KEY_TEXT,           /* char array */
    KEY_FIXED,          /* only words[0]; not stored */
};

enum key_null {
    NULL_REFUSED,
    NULL_VALUE,         /* null is a value of its own: null_value */
    NULL_DEFAULT,       /* null says: the default */
};

struct plan_key {
    const char         *object;     /* "" for the document itself, "ddp", "fsdp" ... */
    const char         *name;
    enum key_type       type;
    size_t              offset;     /* in struct plan */
    uint32_t            cells;      /* CELL() bits */
    int64_t             lo, hi;     /* KEY_INT: inclusive; KEY_REAL: likewise, `above` excludes lo */
    bool                above;
    double              def;        /* default; WORD: the index.  Ignored where plan_defaults() computes it */
    bool                computed;   /* plan_defaults() computes the default */
    bool                required;
    enum key_null       null;
    double              null_value;
    const char *const  *words;
    const char         *about;
};

#define CELL(s, d) (UINT32_C(1) << ((s) * NDIALECT + (d)))

/* Row i, NULL after the last. */
const struct plan_key *plan_key_at(int i);

/* The row of a key in a cell; NULL when the cell has no such key. */
const struct plan_key *plan_key_find(const char *object, const char *name, uint32_t cell);

/* All cells that have the key, 0 when no cell has. */
uint32_t plan_key_cells(const char *object, const char *name);

/* "ddp/torch, zero1/torch" into `out`. */
void plan_cells_text(uint32_t cells, char *out, size_t size);

/* The key of that object in that cell whose spelling is nearest, or NULL when
 * none is near. */
const char *plan_key_nearest(const char *object, const char *name, uint32_t cell);

/* Reads one value into the plan by its row, and writes it (new reference).  What
 * a message calls the key is where, k->object and k->name. */
int     plan_key_read(const json_t *v, const char *where, const struct plan_key *k, struct plan *p);
json_t *plan_key_write(const struct plan *p, const struct plan_key *k);

/* Edit distance, for suggestions. */
int  plan_distance(const char *a, const char *b);

/* Why a key that frameworks know is not in plans yet ("offloading is not
 * supported yet"); "" when its value asks for nothing (null, false, 1 rank,
 * device none); NULL when it is no such key. */
const char *plan_unsupported(const char *object, const char *name, const json_t *value);

#endif
