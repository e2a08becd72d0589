/* flat_param.c -- a FlatParameter with its padding, and the shard of a rank. */
#include "model/framework/torch_fsdp1/flat_param.h"

#include "model/schedule/sharding.h"

/* A walk over the parameters of a unit in the order in which they are flattened. */
struct walk {
    int64_t align;              /* elements; 1: none */
    int64_t end;                /* of what was laid out so far */
    int64_t from, to;           /* this rank's part of the flat parameter */
    int64_t each;               /* bytes of an element */
    int64_t bytes, pieces;      /* of its pieces, each a storage of its own */
    bool    exact;              /* not in blocks of 512 */
};

/* Elements that t adds: itself and what aligns its start. */
static int64_t lay_out(const struct tensor *t, const void *arg)
{
    struct walk *w = *(struct walk *const *)arg;
    int64_t begin = w->end;

    w->end = round_up(begin, w->align) + t->numel;
    return w->end - begin;
}

/* Elements of t in [from, to), if it trains. */
static int64_t lay_out_piece(const struct tensor *t, const void *arg)
{
    struct walk *w = *(struct walk *const *)arg;

    lay_out(t, arg);
    int64_t begin = w->end - t->numel, lo = begin > w->from ? begin : w->from;
    int64_t hi = w->end < w->to ? w->end : w->to;
    if (hi <= lo || t->frozen)
        return 0;
    w->pieces++;
    w->bytes += w->exact ? (hi - lo) * w->each : round512((hi - lo) * w->each);
    return hi - lo;
}

static int64_t kept_bytes(const struct tensor *t, const void *rule)
{
    const struct flat_rule *r = rule;

    return round512(t->numel * dtype_bytes(r->kept));
}

static int64_t alignment(const struct flat_rule *r)
{
    return r->orig_params ? 16 / dtype_bytes(r->used) : 1;
}

struct flat_param flat_param(const struct unit_map *m, enum unit_class c, const struct flat_rule *r)
{
    int64_t each = dtype_bytes(r->kept);
    struct walk w = { .align = alignment(r) }, *walk = &w;
    struct flat_param f = { .numel = unit_sum(m, c, units_tensor_numel, NULL), .original_bytes = unit_sum(m, c, kept_bytes, r) };

    f.flat = unit_sum(m, c, lay_out, &walk);
    if (r->orig_params)
        f.flat = round_up(f.flat, r->nranks);
    f.shard = r->sharded ? ceil_div(f.flat, r->nranks) : f.flat;
    f.padded = r->sharded ? f.shard * r->nranks : f.flat;
    f.optim_numel = f.shard;
    f.optim_tensors = 1;
    f.optim_bytes = r->host ? f.shard * each : round512(f.shard * each);
    if (r->orig_params) {
        int64_t first = r->sharded ? r->rank * f.shard : 0;
        w = (struct walk){ .align = w.align, .from = first, .to = first + f.shard, .each = each, .exact = r->host };
        f.optim_numel = unit_sum(m, c, lay_out_piece, &walk);
        f.optim_bytes = w.bytes;
        f.optim_tensors = w.pieces;
    }
    return f;
}

int64_t flat_piece(const struct unit_map *m, int t, const struct flat_rule *r)
{
    const struct tensor *tensor = &m->model->tensors[t];
    enum unit_class c = m->n == 0 || tensor->block < 0 ? UC_ROOT : model_is_uneven(m->model) ? unit_at(m, tensor->block).cls : UC_FULL;
    int64_t shard = flat_param(m, c, r).shard, from = r->sharded ? r->rank * shard : 0, end = 0;
    int stride = unit_stride(m, c), own;

    for (int i = 0; (own = unit_tensor(m, c, i)) >= 0; i++) {
        int64_t begin = round_up(end, alignment(r));
        end = begin + m->model->tensors[own].numel;
        if (stride > 0 ? (t - own) % stride == 0 && t >= own : t == own) {
            int64_t a = from > begin ? from : begin, b = from + shard < end ? from + shard : end;
            return b > a ? b - a : 0;
        }
    }
    return 0;
}

void flat_slices(const struct unit_map *m, struct schedules *s, enum unit_class c, const struct flat_rule *r,
                 int holds, enum dtype dt, int64_t from, int64_t n, int64_t at, bool apart)
{
    struct sharding x = { s, m->model->tensors, (enum holds)holds, dt, at, from, n, 0 };
    int64_t e = dtype_bytes(dt), place = at;

    sharding_begins(&x, unit_tensor(m, c, 0));
    for (int i = 0, t; s->detailed && (t = unit_tensor(m, c, i)) >= 0; i++) {
        x.next = round_up(x.next, alignment(r));
        if (apart && holds != HOLDS_PARAM && m->model->tensors[t].frozen) {
            x.next += m->model->tensors[t].numel;
            continue;
        }
        if (apart)
            x.at = place - (x.next > from ? x.next - from : 0) * e;
        int64_t bytes = sharding_flat(&x, t) * e;
        place += r->host ? bytes : round512(bytes);
    }
}
