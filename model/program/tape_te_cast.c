/* tape_te_cast.c -- see tape_te_cast.h. */
#include "model/program/tape_te_cast.h"

#include "model/program/tape_collective.h"
#include "model/program/tape_internal.h"

static int make(struct tape *t, int64_t bytes) { return tape_alloc(t, bytes, 1, t->backward ? MEM_TEMPORARIES : MEM_ACTIVATIONS); }

static void pass_over(struct tape *t, const char *name, int64_t bytes)
{
    struct kernel *k = t->backward ? tape_kernel(t, name, KC_ELEMENTWISE) : tape_begin(t, name, KC_ELEMENTWISE);

    k->bytes = bytes;
}

static bool one_serves_both(const struct te_scaled *f) { return f->format == SCALED_FP8_TENSOR && !f->turned; }

struct te_codes te_cast(struct tape *t, const struct te_scaled *f, int64_t numel, enum dtype dt, unsigned ways, bool known, int64_t ranks)
{
    int64_t each = dtype_scaled_bytes((enum scaled)f->format, numel), reads = numel * dtype_bytes(dt);
    bool one = one_serves_both(f);
    struct te_codes c = { 0, 0 };

    if (f->now && !known)
        pass_over(t, "largest number", reads);
    if (f->now && ranks > 1)
        tape_issue(t, "all-reduce", COLL_ALL_REDUCE, RED_MAX, DT_FP32, 1);
    pass_over(t, "cast", reads + each * (one ? 1 : !!(ways & TE_ROWS) + !!(ways & TE_COLUMNS)));
    if (one || ways & TE_ROWS)
        c.rows = make(t, each);
    if (ways & TE_COLUMNS && !one)
        c.columns = make(t, each);
    else if (ways & TE_COLUMNS)
        t->stores[c.columns = c.rows].refs++;
    return c;
}

struct te_codes te_cast_again(struct tape *t, const struct te_scaled *f, int64_t numel, enum dtype dt, int64_t ranks)
{
    bool whole = f->format == SCALED_FP8_TENSOR;

    return te_cast(t, f, numel, dt, !whole ? TE_COLUMNS : ranks > 1 ? TE_ROWS : TE_ROWS | TE_COLUMNS, false, ranks);
}

struct te_codes te_codes_of(struct tape *t, const struct te_scaled *f, int rows, int64_t numel, unsigned ways)
{
    struct te_codes c = { rows, 0 };

    t->stores[rows].refs++;
    if (!(ways & TE_COLUMNS))
        return c;
    c.columns = te_turn(t, f, numel);
    if (!c.columns)
        t->stores[c.columns = rows].refs++;
    return c;
}

int te_turn(struct tape *t, const struct te_scaled *f, int64_t numel)
{
    if (f->format != SCALED_FP8_TENSOR || !f->turned)
        return 0;
    pass_over(t, "transposed copy", 2 * numel);
    return make(t, numel);
}

void te_drop_codes(struct tape *t, struct te_codes c)
{
    tape_unref(t, c.rows);
    tape_unref(t, c.columns);
}
