/* recorded_programs.c -- the programs of a recorded model: pieces, kernels, and what they do to memory.
 *
 * A tensor is named by a number of its piece.  Whether it is an activation, a temporary or a gradient follows from who frees it: what forward leaves
 * is an activation; what is handed out as a parameter's gradient is one; all else is temporary. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/arch/recorded_internal.h"
#include "model/arch/recorded_size.h"

enum { FIRST_ID = -1024 };

static const char *const pass_key[2] = { "forward", "backward" };
static const char *const class_name[NREC_CLASS] = { "gemm", "conv", "attention", "norm", "elementwise", "softmax", "embedding", "loss", "copy", "pool", "reduce",
                                                     "recurrence", "fft", "custom" };

/* Who asks, for messages: the program and the piece. */
struct reader {
    struct recorded *r;
    const struct model *m;
    const char *where, *precision, *piece;
    int unit;                       /* the first unit that has the piece; -1: none */
    bool stage3;
};

static int wrong(const struct reader *x, const char *op, const char *what)
{
    return fail("%s: programs: %s: piece \"%.40s\": %.60s: %s", x->where, x->precision, x->piece, op, what);
}

static int read_size(const struct reader *x, const char *op, const char *key, const json_t *j, struct rec_size *out)
{
    char where[400];

    snprintf(where, sizeof where, "%.150s: programs: %s: piece \"%.40s\": %.60s: %.30s", x->where, x->precision, x->piece, op, key);
    return recorded_read_size(x->r, j, where, out);
}

/* ".attn.weight" of the unit, or a whole name.  -1: there is none. */
static int find_tensor(const struct reader *x, const char *name)
{
    const struct recorded *r = x->r;

    if (name[0] == '.') {
        size_t path = x->unit < 0 ? 0 : strlen(r->unit[x->unit]);
        for (int i = 0; x->unit >= 0 && i < r->ntensors[x->unit]; i++)
            if (!strcmp(x->m->tensors[r->first[x->unit] + i].name + path, name))
                return i;
        return -1;
    }
    for (int i = 0; i < r->nroot; i++)
        if (!strcmp(x->m->tensors[r->root[i]].name, name))
            return (x->unit < 0 ? 0 : r->ntensors[x->unit]) + r->root[i];
    return -1;
}

/* Of find_tensor()'s number. */
static bool is_frozen(const struct reader *x, int t)
{
    int own = x->unit < 0 ? 0 : x->r->ntensors[x->unit];

    return x->m->tensors[t < own ? x->r->first[x->unit] + t : t - own].frozen;
}

/* Lives are counted by it: a far one would be a table of gigabytes. */
static bool is_id(const json_t *j)
{
    return json_is_integer(j) && json_integer_value(j) >= FIRST_ID && json_integer_value(j) <= RECORDED_KERNELS;
}

/* ["+", id, size], ["+", id, size, "gradient"], ["-", id], ["-forward", size], ["-backward", size], ["=", name, id or null] */
static int read_move(struct reader *x, const char *op, const json_t *j)
{
    const char *what = json_string_value(json_array_get(j, 0));
    const json_t *a = json_array_get(j, 1), *b = json_array_get(j, 2);
    struct rec_move m = { .id = -1, .mem = REC_TEMPORARY };
    struct recorded *r = x->r;

    if (!what || json_array_size(j) < 2 || json_array_size(j) > 4)
        return wrong(x, op, "does: expected [\"+\", id, size], [\"-\", id], [\"-forward\", size], [\"-backward\", size] or [\"=\", tensor, id]");
    bool of_id = !strcmp(what, "+") || !strcmp(what, "-");
    if ((of_id && !is_id(a)) || (!strcmp(what, "=") && json_is_number(b) && !is_id(b)))
        return wrong(x, op, "does: an id is a whole number from -1024 to 2^20");
    if (!strcmp(what, "+")) {
        m = (struct rec_move){ .does = REC_COMES, .id = (int32_t)json_integer_value(a), .mem = json_array_size(j) > 3 ? REC_GRADIENT : REC_TEMPORARY };
        if (read_size(x, op, "does", b, &m.bytes) < 0)
            return -1;
    } else if (!strcmp(what, "-")) {
        m = (struct rec_move){ .does = REC_GOES, .id = (int32_t)json_integer_value(a) };
    } else if (!strcmp(what, "-forward") || !strcmp(what, "-backward")) {
        m = (struct rec_move){ .does = REC_GOES_OTHERS, .backward = what[1] == 'b', .mem = what[1] == 'b' ? REC_TEMPORARY : REC_ACTIVATION };
        if (read_size(x, op, "does", a, &m.bytes) < 0)
            return -1;
    } else if (!strcmp(what, "=")) {
        m = (struct rec_move){ .does = REC_READY, .mem = REC_GRADIENT, .id = json_is_integer(b) ? (int32_t)json_integer_value(b) : -1 };
        m.tensor = json_is_string(a) ? find_tensor(x, json_string_value(a)) : -1;
        if (m.tensor < 0)
            return fail("%s: programs: %s: piece \"%.40s\": %.60s: does: \"%.80s\" is no tensor of %s", x->where, x->precision, x->piece, op,
                        json_is_string(a) ? json_string_value(a) : "?", x->unit < 0 ? "the root" : "its unit, nor of the root");
        if (is_frozen(x, m.tensor))
            return fail("%s: programs: %s: piece \"%.40s\": %.60s: does: \"%.80s\" is frozen: it gets no gradient", x->where, x->precision, x->piece, op,
                        json_string_value(a));
    } else {
        return wrong(x, op, "does: expected \"+\", \"-\", \"-forward\", \"-backward\" or \"=\"");
    }
    r->moves = room_for(r->moves, r->nmoves, &r->moves_room, sizeof *r->moves);
    r->moves[r->nmoves++] = m;
    return 0;
}

static int class_of(const char *name)
{
    for (int i = 0; name && i < NREC_CLASS; i++)
        if (!strcmp(name, class_name[i]))
            return i;
    return -1;
}

static int read_product(struct reader *x, const char *op, const json_t *j, struct rec_kernel *k)
{
    if (json_array_size(j) != 4)
        return wrong(x, op, "product: expected [batch, m, n, k]");
    k->product = true;
    for (size_t i = 0; i < 4; i++)
        if (read_size(x, op, "product", json_array_get(j, i), &k->mnk[i]) < 0)
            return -1;
    return 0;
}

/* "m" or "k": so many rows, or terms of its sums, the groups of a product share. */
static int read_grouped(struct reader *x, const char *op, const json_t *j, struct rec_kernel *k)
{
    const char *said = json_string_value(j);

    if (!j)
        return 0;
    if (!k->product || !said || (strcmp(said, "m") && strcmp(said, "k")))
        return wrong(x, op, "grouped: expected \"m\" or \"k\", of a product whose batch counts the groups");
    k->grouped = said[0] == 'm' ? 1 : 3;
    return 0;
}

static int read_kernel(struct reader *x, const json_t *j)
{
    struct recorded *r = x->r;
    const char *op = json_string_value(json_object_get(j, "op"));
    const json_t *does = json_object_get(j, "does"), *flops = json_object_get(j, "flops"), *product = json_object_get(j, "product");
    int class = class_of(json_string_value(json_object_get(j, "class")));
    struct rec_kernel k = { .class = (uint8_t)class, .causal = json_is_true(json_object_get(j, "causal")), .move0 = (int)r->nmoves };

    json_int_t dim = json_integer_value(json_object_get(j, "head_dim"));

    if (dim < 0 || dim > 4096)
        return wrong(x, op ? op : "a kernel", "head_dim: expected a number up to 4096");
    k.head_dim = (int16_t)dim;
    if (!op || !op[0] || strlen(op) > 120)
        return wrong(x, "a kernel", "op: expected its name, up to 120 letters");
    if (class < 0)
        return wrong(x, op, "class: expected gemm, conv, attention, norm, elementwise, softmax, embedding, loss, copy, pool, reduce, recurrence, fft or custom");
    if (does && !json_is_array(does))
        return wrong(x, op, "does: expected a list");
    if (r->nkernels >= RECORDED_KERNELS || r->nmoves >= 8 * (int64_t)RECORDED_KERNELS)
        return wrong(x, op, "the file has more kernels than 2^20");
    k.name = recorded_name(r, op);
    if (read_size(x, op, "bytes", json_object_get(j, "bytes"), &k.bytes) < 0 || (flops && read_size(x, op, "flops", flops, &k.flops) < 0) ||
        (product && read_product(x, op, product, &k) < 0) ||
        read_grouped(x, op, json_object_get(j, "grouped"), &k) < 0)
        return -1;
    if (product && class != REC_GEMM && class != REC_CONV)
        return wrong(x, op, "product: only gemm and conv have one");
    if (!product && !flops && (class == REC_GEMM || class == REC_CONV || class == REC_ATTENTION))
        k.class = REC_CUSTOM;           /* what it computes is not said: its time is known by its bytes alone */
    for (size_t i = 0; i < json_array_size(does); i++)
        if (read_move(x, op, json_array_get(does, i)) < 0)
            return -1;
    k.nmoves = (int)r->nmoves - k.move0;
    r->kernels = room_for(r->kernels, r->nkernels, &r->kernels_room, sizeof *r->kernels);
    r->kernels[r->nkernels++] = k;
    return 0;
}

/* ---- lives of a piece's tensors ---- */

struct life { int64_t made, gone; int8_t in, out; bool ready; };        /* moves; -1: none.  in, out: the pass of each */

static struct life *life_of(struct life **l, int64_t *n, int64_t *room, int32_t id)
{
    int64_t i = (int64_t)id - FIRST_ID;

    while (*n <= i) {
        *l = room_for(*l, *n, room, sizeof **l);
        (*l)[(*n)++] = (struct life){ .made = -1, .gone = -1 };
    }
    return &(*l)[i];
}

static const char *op_of(const struct recorded *r, const struct rec_piece *p, int pass, int64_t move)
{
    for (int i = p->kernel0[pass]; i < p->kernel0[pass] + p->nkernels[pass]; i++)
        if (move < r->kernels[i].move0 + r->kernels[i].nmoves)
            return r->kernels[i].name;
    return "";
}

/* A gradient is no smaller than its parameter. */
static bool holds_gradient(const struct reader *x, const struct rec_move *m)
{
    int own = x->unit < 0 ? 0 : x->r->ntensors[x->unit];
    const struct tensor *t = &x->m->tensors[m->tensor < own ? x->r->first[x->unit] + m->tensor : m->tensor - own];
    int64_t bytes;

    return recorded_at(x->r, m->bytes, 1, 1, &bytes) == 0 && bytes / (strcmp(x->precision, "bf16") ? 4 : 2) >= t->numel;
}

/* Each comes once and goes at most once, after it came; only then are its bytes and its kind known where it goes. */
static int check_lives(struct reader *x, const struct rec_piece *p)
{
    struct recorded *r = x->r;
    struct life *all = NULL;
    int64_t n = 0, room = 0;
    int rc = 0;

    for (int pass = 0; pass < 2 && rc == 0; pass++)
        for (int k = p->kernel0[pass]; k < p->kernel0[pass] + p->nkernels[pass] && rc == 0; k++)
            for (int64_t i = r->kernels[k].move0; i < r->kernels[k].move0 + r->kernels[k].nmoves && rc == 0; i++) {
                struct rec_move *m = &r->moves[i];
                if (m->does == REC_GOES_OTHERS || (m->does == REC_READY && m->id < 0))
                    continue;
                struct life *l = life_of(&all, &n, &room, m->id);
                if (m->does == REC_COMES) {
                    if (l->made >= 0)
                        rc = wrong(x, op_of(r, p, pass, i), "does: an id comes twice");
                    l->made = i;
                    l->in = (int8_t)pass;
                } else if (l->made < 0 || l->gone >= 0) {
                    rc = wrong(x, op_of(r, p, pass, i), "does: an id goes, or is a gradient, that is not there");
                } else if (m->does == REC_GOES) {
                    l->gone = i;
                    l->out = (int8_t)pass;
                    m->bytes = r->moves[l->made].bytes;
                } else {
                    l->ready = true;
                    m->bytes = r->moves[l->made].bytes;
                    if (!holds_gradient(x, m))
                        rc = wrong(x, op_of(r, p, pass, i), "does: a gradient has fewer bytes than its tensor has numbers");
                }
            }
    for (int64_t i = 0; i < n && rc == 0; i++) {
        struct rec_move *made = all[i].made < 0 ? NULL : &r->moves[all[i].made];
        if (!made)
            continue;
        if (all[i].ready)
            made->mem = REC_GRADIENT;
        else if (made->mem != REC_GRADIENT && all[i].in == 0 && (all[i].gone < 0 || all[i].out == 1))
            made->mem = REC_ACTIVATION;
        made->handed_on = all[i].gone < 0 && !all[i].ready;
        if (all[i].gone >= 0)
            r->moves[all[i].gone].mem = made->mem;
    }
    free(all);
    return rc;
}

/* ---- hooks of stage 3 ---- */

static const char *const hook_name[NREC_HOOK] = { "fetch", "release", "fetch back", "release back", "gradient" };

static int module_of(struct reader *x, struct rec_piece *p, const char *path)
{
    struct recorded *r = x->r;
    const char *name = recorded_name(r, path);

    for (int i = 0; i < p->nmodules; i++)
        if (r->modules[p->module0 + i] == name)
            return i;
    r->modules = room_for(r->modules, r->nmodules, &r->modules_room, sizeof *r->modules);
    r->modules[r->nmodules++] = name;
    return p->nmodules++;
}

/* [kernel, kind, module path or tensor] */
static int read_hook(struct reader *x, const json_t *j, int pass, int least, struct rec_piece *p)
{
    struct recorded *r = x->r;
    const char *kind = json_string_value(json_array_get(j, 1)), *path = json_string_value(json_array_get(j, 2));
    json_int_t kernel = json_integer_value(json_array_get(j, 0));
    struct rec_hook h = { .kind = NREC_HOOK, .kernel = (int32_t)kernel };

    for (int i = 0; kind && i < (pass ? NREC_HOOK : REC_FETCH_BACK); i++)
        h.kind = strcmp(hook_name[i], kind) ? h.kind : (uint8_t)i;
    if (json_array_size(j) != 3 || h.kind == NREC_HOOK || !path || strlen(path) > 90 || (path[0] == '.' && x->unit < 0))
        return wrong(x, "hooks", "expected [kernel, kind, module], a kind being fetch, release, fetch back, release back or gradient");
    if (kernel < least || kernel > p->nkernels[pass] || r->nhooks >= RECORDED_KERNELS)
        return wrong(x, "hooks", "expected the numbers of kernels in ascending order");
    h.of = h.kind == REC_TAKE ? find_tensor(x, path) : module_of(x, p, path);
    if (h.of < 0)
        return wrong(x, "hooks", "a gradient is of no tensor of the unit, nor of the root");
    r->hooks = room_for(r->hooks, r->nhooks, &r->hooks_room, sizeof *r->hooks);
    r->hooks[r->nhooks++] = h;
    return 0;
}

/* Each gradient that a kernel completes is taken once, behind it. */
static int check_gradients(const struct reader *x, const struct rec_piece *p)
{
    const struct recorded *r = x->r;
    int taken = 0, ready = 0;

    for (int k = p->kernel0[1]; k < p->kernel0[1] + p->nkernels[1]; k++)
        for (int i = r->kernels[k].move0; i < r->kernels[k].move0 + r->kernels[k].nmoves; i++) {
            bool found = r->moves[i].does != REC_READY;
            ready += !found;
            for (int h = p->hook0[1]; h < p->hook0[1] + p->nhooks[1] && !found; h++)
                found = r->hooks[h].kind == REC_TAKE && r->hooks[h].of == r->moves[i].tensor && r->hooks[h].kernel > k - p->kernel0[1];
            if (!found)
                return wrong(x, r->kernels[k].name, "hooks: a gradient that is complete there is not taken behind it");
        }
    for (int h = p->hook0[1]; h < p->hook0[1] + p->nhooks[1]; h++)
        taken += r->hooks[h].kind == REC_TAKE;
    return taken == ready ? 0 : wrong(x, "hooks", "more gradients are taken than are complete");
}

static int read_hooks(struct reader *x, const json_t *j, struct rec_piece *p)
{
    struct recorded *r = x->r;

    p->module0 = (int)r->nmodules;
    if (!j != !x->stage3)
        return wrong(x, "hooks", x->stage3 ? "expected {\"forward\": [...], \"backward\": [...]}" : "only a program of stage3 has them");
    for (int pass = 0; pass < 2 && j; pass++) {
        const json_t *list = json_object_get(j, pass_key[pass]);
        p->hook0[pass] = (int)r->nhooks;
        for (size_t i = 0; i < json_array_size(list); i++)
            if (read_hook(x, json_array_get(list, i), pass, i > 0 ? r->hooks[r->nhooks - 1].kernel : 0, p) < 0)
                return -1;
        p->nhooks[pass] = (int)r->nhooks - p->hook0[pass];
    }
    return j ? check_gradients(x, p) : 0;
}

/* Parameters of which backward keeps a view. */
static int read_views(struct reader *x, const json_t *names)
{
    struct recorded *r = x->r;

    if (names && !x->stage3)
        return fail("%s: programs: %s: views: only a program of stage3 has them", x->where, x->precision);
    if (names && !r->viewed)
        r->viewed = room_new((size_t)x->m->ntensors, sizeof *r->viewed);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        int t = 0;
        while (name && t < x->m->ntensors && strcmp(x->m->tensors[t].name, name))
            t++;
        if (!name || t == x->m->ntensors)
            return fail("%s: programs: %s: views: row %zu: expected the name of a tensor", x->where, x->precision, i);
        r->viewed[t] = true;
    }
    return 0;
}

/* The loss that is computed outside of the module. */
static int read_loss(const struct reader *x, const json_t *j, struct rec_piece *p)
{
    if (!j)
        return 0;
    if (strcmp(x->piece, "last") != 0 || json_array_size(j) != 2)
        return wrong(x, "loss", "expected [kernels of forward, kernels of backward], in the last piece");
    for (int pass = 0; pass < 2; pass++) {
        const json_t *n = json_array_get(j, (size_t)pass);
        if (!json_is_integer(n) || json_integer_value(n) < 0 || json_integer_value(n) > p->nkernels[pass])
            return wrong(x, "loss", "expected a number of its kernels for each pass");
        p->loss[pass] = (int)json_integer_value(n);
    }
    return 0;
}

static int read_piece(struct reader *x, const json_t *j, int *index)
{
    struct recorded *r = x->r;
    const json_t *before = json_object_get(j, "before"), *after = json_object_get(j, "after");
    struct rec_piece p = { .name = recorded_name(r, x->piece), .before = (int)json_integer_value(before), .after = (int)json_integer_value(after) };

    if (!json_is_object(j))
        return wrong(x, "it", "expected {\"forward\": [...], \"backward\": [...]}");
    for (int pass = 0; pass < 2; pass++) {
        const json_t *list = json_object_get(j, pass_key[pass]);
        p.kernel0[pass] = (int)r->nkernels;
        if (!json_is_array(list))
            return wrong(x, pass_key[pass], "expected a list of kernels");
        for (size_t i = 0; i < json_array_size(list); i++)
            if (read_kernel(x, json_array_get(list, i)) < 0)
                return -1;
        p.nkernels[pass] = (int)r->nkernels - p.kernel0[pass];
    }
    if (json_integer_value(before) < 0 || json_integer_value(before) > p.nkernels[0] || json_integer_value(after) < 0 || json_integer_value(after) > p.nkernels[1] ||
        (x->unit < 0 && (before || after)))
        return wrong(x, "before, after", "expected a number of its kernels, in the piece of a unit");
    if (read_loss(x, json_object_get(j, "loss"), &p) < 0 || check_lives(x, &p) < 0 || read_hooks(x, json_object_get(j, "hooks"), &p) < 0)
        return -1;
    r->pieces = room_for(r->pieces, r->npieces, &r->pieces_room, sizeof *r->pieces);
    *index = (int)r->npieces;
    r->pieces[r->npieces++] = p;
    return 0;
}

/* ---- programs ---- */

/* A piece is read once for each kind of tensors of its units: names are looked up in theirs. */
static int read_units(struct reader *x, const json_t *units, const json_t *pieces, struct rec_program *g)
{
    struct recorded *r = x->r;
    const char **named = room_new((size_t)r->nunits, sizeof *named);
    int *owner = room_new((size_t)r->nunits, sizeof *owner), rc = 0;

    g->of_unit = room_new((size_t)r->nunits, sizeof *g->of_unit);
    g->kind = room_new((size_t)r->nunits, sizeof *g->kind);
    for (int u = 0; u < r->nunits && rc == 0; u++) {
        const char *name = json_string_value(json_array_get(units, (size_t)u));
        const json_t *piece = name ? json_object_get(pieces, name) : NULL;
        int k = 0;
        if (!piece || !strcmp(name, "first") || !strcmp(name, "last")) {
            rc = fail("%s: programs: %s: units: \"%.40s\" is no piece of a unit", x->where, x->precision, name ? name : "?");
            break;
        }
        while (k < g->nkinds && (strcmp(named[k], name) || r->alike[owner[k]] != r->alike[u]))
            k++;
        if (k == g->nkinds) {
            if (k == RECORDED_KINDS) {
                rc = fail("%s: programs: %s: units are of more than %d kinds, which is as many as are planned: give larger units (--unit)", x->where,
                          x->precision, RECORDED_KINDS);
                break;
            }
            x->piece = named[k] = name;
            x->unit = owner[k] = u;
            rc = read_piece(x, piece, &g->kind[g->nkinds++]);
        }
        g->of_unit[u] = k;
    }
    free(named);
    free(owner);
    return rc;
}

/* [size, dtype], or why there is none. */
static int read_cut(struct reader *x, const json_t *cut, struct rec_program *g)
{
    static const struct { const char *name; uint8_t dtype; } of[] = { { "float32", DT_FP32 }, { "bfloat16", DT_BF16 }, { "float16", DT_FP16 } };
    const char *dtype = json_string_value(json_array_get(cut, 1)), *why = json_string_value(cut);
    size_t i = 0;

    g->whole = "its file does not say what units hand on: record it again";
    if (why && strlen(why) <= 300)
        g->whole = recorded_name(x->r, why);
    if (!cut || why)
        return 0;
    while (dtype && i < sizeof of / sizeof *of && strcmp(of[i].name, dtype) != 0)
        i++;
    if (!dtype || i == sizeof of / sizeof *of)
        return fail("%s: programs: %s: cut: expected [size, \"float32\", \"bfloat16\" or \"float16\"], or why there is none", x->where, x->precision);
    g->hands_dtype = of[i].dtype;
    g->whole = NULL;
    return recorded_read_size(x->r, json_array_get(cut, 0), x->where, &g->hands);
}

static int read_program(struct reader *x, const json_t *j, struct rec_program *g)
{
    const json_t *pieces = json_object_get(j, "pieces"), *units = json_object_get(j, "units");
    const char *precision = json_string_value(json_object_get(j, "precision")), *again = json_string_value(json_object_get(j, "recompute"));
    int how = 0;

    if (!precision || (strcmp(precision, "bf16") && strcmp(precision, "autocast") && strcmp(precision, "fp32")))
        return fail("%s: programs: precision: expected \"bf16\", \"autocast\" or \"fp32\"", x->where);
    while (again && how < NREC_AGAIN && strcmp(again, recorded_again_name((enum rec_again)how)) != 0)
        how++;
    if (!again || how == NREC_AGAIN)
        return fail("%s: programs: recompute: expected \"none\", \"full\" or \"op\"", x->where);
    x->stage3 = json_is_true(json_object_get(j, "stage3"));
    if (recorded_program(x->r, precision, (enum rec_again)how, x->stage3))
        return fail("%s: programs: %s with recompute %s%s stands there twice", x->where, precision, again, x->stage3 ? " under stage 3" : "");
    g->precision = x->precision = recorded_name(x->r, precision);
    g->again = (uint8_t)how;
    g->stage3 = x->stage3;
    if (read_views(x, json_object_get(j, "views")) < 0 || read_cut(x, json_object_get(j, "cut"), g) < 0)
        return -1;
    if (json_array_size(units) != (size_t)x->r->nunits)
        return fail("%s: programs: %s: units: expected the pieces of the %d units", x->where, precision, x->r->nunits);
    x->unit = -1;
    x->piece = "first";
    if (read_piece(x, json_object_get(pieces, "first"), &g->first) < 0)
        return -1;
    x->piece = "last";
    if (read_piece(x, json_object_get(pieces, "last"), &g->last) < 0)
        return -1;
    return read_units(x, units, pieces, g) < 0 || recorded_check_handed(x->r, g, x->where) < 0 ? -1 : 0;
}

int recorded_read_programs(struct recorded *r, const json_t *list, const struct model *m, const char *where)
{
    struct reader x = { .r = r, .m = m, .where = where };

    if (json_array_size(list) < 1 || json_array_size(list) > RECORDED_PROGRAMS)
        return fail("%s: programs: expected from 1 to %d", where, RECORDED_PROGRAMS);
    for (size_t i = 0; i < json_array_size(list); i++)          /* counted only when read whole: a twin is looked for among those */
        if (read_program(&x, json_array_get(list, i), &r->program[i]) < 0) {
            r->nprograms = (int)i + 1;
            return -1;
        } else {
            r->nprograms = (int)i + 1;
        }
    return 0;
}
