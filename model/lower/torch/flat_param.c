#include "model/lower/torch/flat_param.h"

#include "model/schedule/schedule.h"

enum { KEPT_BYTES = 4 };        /* the sharded parameter is fp32 in every mode */

/* A walk over the parameters of a unit in the order in which they are flattened. */
struct walk {
    int64_t align;              /* elements; 1: none */
    int64_t end;                /* of what was laid out so far */
    int64_t from, to;           /* this rank's part of the flat parameter */
    int64_t bytes;              /* of its pieces, each a storage of its own */
};

/* Elements that t adds: itself and what aligns its start. */
static int64_t lay_out(const struct tensor *t, const void *arg)
{
    struct walk *w = *(struct walk *const *)arg;
    int64_t begin = w->end;

    w->end = round_up(begin, w->align) + t->numel;
    return w->end - begin;
}

/* Elements of t in [from, to). */
static int64_t lay_out_piece(const struct tensor *t, const void *arg)
{
    struct walk *w = *(struct walk *const *)arg;

    lay_out(t, arg);
    int64_t begin = w->end - t->numel, lo = begin > w->from ? begin : w->from;
    int64_t hi = w->end < w->to ? w->end : w->to;
    if (hi <= lo)
        return 0;
    w->bytes += round512((hi - lo) * KEPT_BYTES);
    return hi - lo;
}

static int64_t fp32_bytes(const struct tensor *t, const void *unused)
{
    (void)unused;
    return round512(t->numel * KEPT_BYTES);
}

static int64_t alignment(const struct flat_rule *r)
{
    return r->orig_params ? 16 / dtype_bytes(r->used) : 1;
}

struct flat_param flat_param(const struct unit_map *m, enum unit_class c, const struct flat_rule *r)
{
    struct walk w = { .align = alignment(r) }, *walk = &w;
    struct flat_param f = { .numel = unit_sum(m, c, units_tensor_numel, NULL),
                            .original_bytes = unit_sum(m, c, fp32_bytes, NULL) };

    f.flat = unit_sum(m, c, lay_out, &walk);
    if (r->orig_params)
        f.flat = round_up(f.flat, r->nranks);
    f.shard = r->sharded ? ceil_div(f.flat, r->nranks) : f.flat;
    f.padded = r->sharded ? f.shard * r->nranks : f.flat;
    f.optim_numel = f.shard;
    f.optim_bytes = round512(f.shard * KEPT_BYTES);
    if (r->orig_params) {
        int64_t first = r->sharded ? r->rank * f.shard : 0;
        w = (struct walk){ .align = w.align, .from = first, .to = first + f.shard };
        f.optim_numel = unit_sum(m, c, lay_out_piece, &walk);
        f.optim_bytes = w.bytes;
    }
    return f;
}

void flat_slices(const struct unit_map *m, struct schedules *s, enum unit_class c, const struct flat_rule *r,
                 int holds, enum dtype dt, int64_t from, int64_t n, int64_t at, bool apart)
{
    int64_t end = 0, e = dtype_bytes(dt), place = at;

    /* Where the part begins, should it begin with padding. */
    sched_slice(s, (enum holds)holds, dt, unit_tensor(m, c, 0), 0, 0, at);
    for (int i = 0, t; s->detailed && (t = unit_tensor(m, c, i)) >= 0; i++) {
        int64_t begin = round_up(end, alignment(r));
        end = begin + m->model->tensors[t].numel;
        int64_t a = from > begin ? from : begin, b = from + n < end ? from + n : end;
        if (b <= a)
            continue;
        sched_slice(s, (enum holds)holds, dt, t, a - begin, b - a, apart ? place : at + (a - from) * e);
        place += round512((b - a) * e);
    }
}
