/* recorded.c -- see recorded.h: the file's tensors and units, and the model that they make. */
#define _GNU_SOURCE             /* realpath() */
#include "model/arch/recorded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/notes.h"
#include "base/room.h"
#include "base/sort.h"
#include "model/arch/recorded_internal.h"
#include "model/arch/sample.h"

bool recorded_is(const json_t *doc)
{
    return json_object_get(doc, "dpx_model") || (json_object_size(doc) == 1 && json_is_string(json_object_get(doc, "file")));
}

/* ---- names ---- */

const char *recorded_name(struct recorded *r, const char *name)
{
    int64_t from = 0, to = r->nnames;

    while (from < to) {
        int64_t mid = from + (to - from) / 2;
        int c = strcmp(r->names[mid], name);
        if (c == 0)
            return r->names[mid];
        *(c < 0 ? &from : &to) = c < 0 ? mid + 1 : mid;
    }
    char *copy = room_new(strlen(name) + 1, 1);
    strcpy(copy, name);
    r->names = room_for(r->names, r->nnames, &r->names_room, sizeof *r->names);
    memmove(r->names + from + 1, r->names + from, (size_t)(r->nnames - from) * sizeof *r->names);
    r->nnames++;
    return r->names[from] = copy;
}

/* A name of the file: letters, and no more of them than `most`. */
static const char *text_of(const json_t *j, size_t most)
{
    const char *s = json_string_value(j);

    return s && s[0] && strlen(s) <= most ? s : NULL;
}

/* ---- tensors ---- */

/* Of shapes the table has three dimensions: those behind the second are one there, and each counts in ndim. */
static int take_shape(const json_t *shape, const char *name, const char *where, struct tensor *t)
{
    if (!json_is_array(shape) || json_array_size(shape) > 8)
        return fail("%s: tensors: %s: expected a shape, a list of up to 8 numbers", where, name);
    t->shape[0] = t->shape[1] = t->shape[2] = t->numel = 1;
    t->ndim = (int)json_array_size(shape);
    for (size_t d = 0; d < json_array_size(shape); d++) {
        json_int_t n = json_integer_value(json_array_get(shape, d));
        if (n < 1 || !checked_mul(t->numel, n, &t->numel))
            return fail("%s: tensors: %s: shape: dimensions are from 1 on, and their product is up to 2^60", where, name);
        t->shape[d < 2 ? d : 2] *= n;
    }
    t->is_bias = t->ndim <= 1;
    return 0;
}

static void owner_of(const char *tensor, char *to, size_t size)
{
    const char *dot = strrchr(tensor, '.');

    snprintf(to, size, "%.*s", dot ? (int)(dot - tensor) : 0, tensor);
}

/* Its module is the one before it, or a new one. */
static void add_module(struct model *m, int i)
{
    struct tensor *t = &m->tensors[i];
    char owner[96];

    owner_of(t->name, owner, sizeof owner);
    if (m->nmodules == 0 || strcmp(m->modules[m->nmodules - 1].name, owner) || m->modules[m->nmodules - 1].block != t->block) {
        struct module *x = &m->modules[m->nmodules++];
        snprintf(x->name, sizeof x->name, "%s", owner);
        x->first = i;
        x->block = t->block;
    }
    m->modules[m->nmodules - 1].ntensors++;
    t->module = m->nmodules - 1;
}

/* [name, shape] or [name, shape, "frozen"] */
static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct tensor *const *)a)->name, (*(const struct tensor *const *)b)->name);
}

static int check_names(const struct model *m, const char *where)
{
    const struct tensor **sorted = room_new((size_t)m->ntensors, sizeof *sorted);
    int rc = 0;

    for (int t = 0; t < m->ntensors; t++)
        sorted[t] = &m->tensors[t];
    sort_stable(sorted, (size_t)m->ntensors, sizeof *sorted, by_name);
    for (int t = 1; t < m->ntensors && rc == 0; t++)
        if (!strcmp(sorted[t]->name, sorted[t - 1]->name))
            rc = fail("%s: tensors: %s stands there twice: another name of a tensor belongs into \"shared\"", where, sorted[t]->name);
    free(sorted);
    return rc;
}

static int read_tensors(const json_t *rows, struct model *m, const char *where)
{
    size_t n = json_array_size(rows);

    if (n < 1 || n > RECORDED_TENSORS)
        return fail("%s: tensors: expected from 1 to %d", where, RECORDED_TENSORS);
    m->tensors = room_new(n, sizeof *m->tensors);
    m->modules = room_new(n, sizeof *m->modules);
    m->ntensors = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = text_of(json_array_get(row, 0), sizeof m->tensors->name - 1), *how = json_string_value(json_array_get(row, 2));
        struct tensor *t = &m->tensors[i];
        *t = (struct tensor){ .role = ROLE_UP, .mlp_half = true, .block = TENSOR_EMBED };
        if (!name)
            return fail("%s: tensors: row %zu: expected [name, shape], a name of up to %zu letters", where, i, sizeof m->tensors->name - 1);
        if (take_shape(json_array_get(row, 1), name, where, t) < 0)
            return -1;
        if (json_array_size(row) > 3 || (json_array_size(row) == 3 && (!how || strcmp(how, "frozen"))))
            return fail("%s: tensors: %s: expected [name, shape] or [name, shape, \"frozen\"]", where, name);
        strcpy(t->name, name);
        t->frozen = how != NULL;
        if (!checked_add(m->params, t->numel, &m->params))
            return fail("%s: tensors: more than 2^60 numbers in all", where);
        m->trainable += t->frozen ? 0 : t->numel;
        m->ntrainable += !t->frozen;
    }
    return check_names(m, where);
}

/* ---- units ---- */

static bool is_within(const char *tensor, const char *unit)
{
    size_t n = strlen(unit);

    return !strncmp(tensor, unit, n) && tensor[n] == '.';
}

static bool same_tensors(const struct model *m, const struct recorded *r, int a, int b)
{
    for (int i = 0; i < r->ntensors[a]; i++) {
        const struct tensor *x = &m->tensors[r->first[a] + i], *y = &m->tensors[r->first[b] + i];
        if (x->ndim != y->ndim || memcmp(x->shape, y->shape, sizeof x->shape) || x->frozen != y->frozen ||
            strcmp(x->name + strlen(r->unit[a]), y->name + strlen(r->unit[b])))
            return false;
    }
    return r->ntensors[a] == r->ntensors[b];
}

/* A unit's tensors follow each other in the table. */
static int take_tensors(struct recorded *r, struct model *m, int u, const char *where)
{
    int i = 0, n = 0;

    while (i < m->ntensors && !is_within(m->tensors[i].name, r->unit[u]))
        i++;
    while (i + n < m->ntensors && is_within(m->tensors[i + n].name, r->unit[u])) {
        if (m->tensors[i + n].block >= 0)
            return fail("%s: units: %s lies within %s", where, r->unit[u], r->unit[m->tensors[i + n].block]);
        m->tensors[i + n++].block = u;
    }
    for (int k = i + n; k < m->ntensors; k++)
        if (is_within(m->tensors[k].name, r->unit[u]))
            return fail("%s: units: the tensors of %s do not follow each other in the table", where, r->unit[u]);
    if (n == 0)
        return fail("%s: units: %s has no tensor in the table", where, r->unit[u]);
    r->first[u] = i;
    r->ntensors[u] = n;
    return 0;
}

static void find_alike(struct recorded *r, const struct model *m)
{
    int *members = room_new((size_t)r->nunits, sizeof *members);

    for (int u = 0; u < r->nunits; u++) {
        r->alike[u] = u;
        for (int v = 0; v < u && r->alike[u] == u; v++)
            if (r->alike[v] == v && same_tensors(m, r, u, v) && (r->stride[v] == 0 || r->first[u] == r->first[v] + members[v] * r->stride[v])) {
                r->alike[u] = v;
                r->stride[v] = r->stride[v] ? r->stride[v] : r->first[u] - r->first[v];
            }
        r->place[u] = members[r->alike[u]]++;
        r->uneven |= r->alike[u] != 0 || (u > 0 && r->first[u] != r->first[u - 1] + r->ntensors[u - 1]);
    }
    free(members);
}

static int read_turn(const json_t *said, uint8_t *turn)
{
    const char *word = json_string_value(said);

    *turn = !said ? REC_TURN : word && !strcmp(word, "late") ? REC_LATE : REC_FORWARD_ONLY;
    return !said || (word && (*turn == REC_LATE || !strcmp(word, "forward"))) ? 0 : -1;
}

/* [path, class] each, or [path, class, turn], in the order of forward */
static int read_units(const json_t *rows, struct recorded *r, struct model *m, const char *where)
{
    size_t n = json_array_size(rows);

    if (n < 1 || n > MODEL_MAX_LAYERS)
        return fail("%s: units: expected from 1 to %d", where, MODEL_MAX_LAYERS);
    r->nunits = (int)n;
    r->unit = room_new(n, sizeof *r->unit);
    r->unit_class = room_new(n, sizeof *r->unit_class);
    r->turn = room_new(n, sizeof *r->turn);
    r->first = room_new(n, sizeof *r->first);
    r->ntensors = room_new(n, sizeof *r->ntensors);
    r->alike = room_new(n, sizeof *r->alike);
    r->place = room_new(n, sizeof *r->place);
    r->stride = room_new(n, sizeof *r->stride);
    for (size_t u = 0; u < n; u++) {
        const json_t *row = json_array_get(rows, u);
        const char *path = text_of(json_array_get(row, 0), 90), *class = text_of(json_array_get(row, 1), 90);
        if (!path || !class)
            return fail("%s: units: row %zu: expected [module path, class], each of up to 90 letters", where, u);
        r->unit[u] = (char *)recorded_name(r, path);
        r->unit_class[u] = (char *)recorded_name(r, class);
        if (read_turn(json_array_get(row, 2), &r->turn[u]) < 0)
            return fail("%s: units: %s: expected \"late\" or \"forward\" behind the class, or nothing", where, path);
        if (take_tensors(r, m, (int)u, where) < 0)
            return -1;
    }
    find_alike(r, m);
    r->root = room_new((size_t)m->ntensors, sizeof *r->root);
    for (int i = 0; i < m->ntensors; i++) {
        if (m->tensors[i].block < 0)
            r->root[r->nroot++] = i;
        add_module(m, i);
    }
    return 0;
}

/* ---- the rest ---- */

/* Of a complex number two are sent, of a yes or no a byte. */
static const struct buffer_dtype { const char *name; int bytes; uint8_t kind, sent; } buffer_dtypes[] = {
    { "bool", 1, REC_BOOL, DT_UINT8 }, { "uint8", 1, DT_UINT8, DT_UINT8 }, { "int8", 1, DT_INT8, DT_INT8 }, { "int16", 2, REC_INT16, DT_UINT8 },
    { "float16", 2, DT_FP16, DT_FP16 }, { "bfloat16", 2, DT_BF16, DT_BF16 }, { "int32", 4, DT_INT32, DT_INT32 }, { "float32", 4, DT_FP32, DT_FP32 },
    { "int64", 8, DT_INT64, DT_INT64 }, { "float64", 8, DT_FP64, DT_FP64 }, { "complex64", 8, REC_COMPLEX64, DT_FP32 },
    { "complex128", 16, REC_COMPLEX128, DT_FP64 } };

static int read_buffer(const json_t *row, size_t i, const char *where, struct rec_buffer *out)
{
    const char *name = text_of(json_array_get(row, 0), 200), *dtype = json_string_value(json_array_get(row, 2));
    const struct buffer_dtype *d = NULL;
    struct tensor t;

    for (size_t k = 0; dtype && k < sizeof buffer_dtypes / sizeof *buffer_dtypes; k++)
        if (!strcmp(buffer_dtypes[k].name, dtype))
            d = &buffer_dtypes[k];
    if (!name || !d)
        return fail("%s: buffers: row %zu: expected [name, shape, dtype], a dtype as PyTorch writes it: float32", where, i);
    if (json_array_size(json_array_get(row, 1)) == 0)
        t.numel = 1;
    else if (take_shape(json_array_get(row, 1), name, where, &t) < 0)
        return -1;
    *out = (struct rec_buffer){ .kind = d->kind, .sent = d->sent };
    if (!checked_mul(t.numel, d->bytes, &out->bytes))
        return fail("%s: buffers: %s: more than 2^60 bytes", where, name);
    out->elems = out->bytes / dtype_bytes((enum dtype)d->sent);
    return 0;
}

static int read_buffers(const json_t *rows, const json_t *kept, struct recorded *r, const char *where)
{
    size_t n = json_array_size(rows), more = json_array_size(kept);

    if (rows && (!json_is_array(rows) || n > RECORDED_TENSORS))
        return fail("%s: buffers: expected a list of up to %d", where, RECORDED_TENSORS);
    if (kept && (!json_is_array(kept) || more > RECORDED_TENSORS))
        return fail("%s: kept: expected a list of up to %d", where, RECORDED_TENSORS);
    r->buffer = room_new(n + more, sizeof *r->buffer);
    for (size_t i = 0; i < n; i++)
        if (read_buffer(json_array_get(rows, i), i, where, &r->buffer[r->nbuffers++]) < 0)
            return -1;
    for (size_t i = 0; i < more; i++) {
        int64_t bytes = json_integer_value(json_array_get(kept, i));
        if (bytes < 1 || bytes > SIZE_LIMIT)
            return fail("%s: kept: number %zu: expected bytes, from 1 to 2^60", where, i);
        r->buffer[r->nbuffers + r->nkept++].bytes = bytes;
    }
    return 0;
}

/* "tokens", "side" or "size"; left out: "size". */
static int read_what_sizes_count(const json_t *of, struct recorded *r, const char *where)
{
    r->of = SAMPLE_SIZE;
    for (int i = 0; of && i < NSAMPLE; i++)
        if (json_is_string(of) && !strcmp(json_string_value(of), sample_of_names[i])) {
            r->of = (uint8_t)i;
            return 0;
        }
    return of ? fail("%s: size: of: expected \"tokens\", \"side\" (of an image) or \"size\"", where) : 0;
}

static int read_sizes(const json_t *j, struct recorded *r, const char *where)
{
    static const char *const keys[] = { "of", "only", "least", "step", "most" };
    const char *key;
    const json_t *value;

    json_object_foreach((json_t *)j, key, value) {
        bool known = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            known |= !strcmp(keys[i], key);
        if (!known)
            return fail("%s: size: %.60s: expected of, only, least, step, most", where, key);
    }
    const json_t *only = json_object_get(j, "only"), *least = json_object_get(j, "least"), *step = json_object_get(j, "step"), *most = json_object_get(j, "most");

    r->only = json_integer_value(only);
    r->least = least ? json_integer_value(least) : 1;
    r->step = step ? json_integer_value(step) : 1;
    r->most = most ? json_integer_value(most) : MODEL_MAX_DIM;
    if (!json_is_object(j) || (only && r->only < 1) || r->least < 1 || r->step < 1 || r->most < r->least || r->most > MODEL_MAX_DIM || r->only > MODEL_MAX_DIM || r->least > MODEL_MAX_DIM || r->step > MODEL_MAX_DIM)
        return fail("%s: size: expected {\"only\": 224} or {\"least\": 1, \"most\": 1024, \"step\": 1}, numbers from 1 to 2^24", where);
    return read_what_sizes_count(json_object_get(j, "of"), r, where);
}

static int tensor_of(const struct model *m, const char *name)
{
    for (int i = 0; name && i < m->ntensors; i++)
        if (!strcmp(m->tensors[i].name, name))
            return i;
    return -1;
}

/* Tensors that would train and get no gradient: .grad stays None, and an optimizer makes no states for them. */
static int read_unused(const json_t *names, struct model *m, const char *where)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        int t = tensor_of(m, name);
        if (t < 0 || m->tensors[t].unused)
            return fail("%s: unused: row %zu: %s", where, i, t < 0 ? "expected the name of a tensor" : "this tensor stands twice");
        m->trainable -= m->tensors[t].frozen ? 0 : m->tensors[t].numel;
        m->ntrainable -= !m->tensors[t].frozen;
        m->tensors[t].unused = !m->tensors[t].frozen;
        m->tensors[t].frozen = true;
    }
    return 0;
}

/* [another name, the tensor's] each */
static int read_shared(const json_t *rows, struct recorded *r, const struct model *m, const char *where)
{
    size_t n = json_array_size(rows);

    if (rows && (!json_is_array(rows) || n > RECORDED_TENSORS))
        return fail("%s: shared: expected a list of up to %d", where, RECORDED_TENSORS);
    r->shared = room_new(n, sizeof *r->shared);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = text_of(json_array_get(row, 0), 200);
        int t = tensor_of(m, json_string_value(json_array_get(row, 1)));
        if (!name || t < 0 || json_array_size(row) != 2)
            return fail("%s: shared: row %zu: expected [another name, the name of a tensor]", where, i);
        r->shared[r->nshared].name = recorded_name(r, name);
        r->shared[r->nshared++].tensor = t;
    }
    return 0;
}

/* Of tensors of no unit those whose gradient the last piece hands out are the head's. */
static void split_root(const struct recorded *r, struct model *m)
{
    const struct rec_program *g = &r->program[0];
    const struct rec_piece *first = &r->pieces[g->first];

    for (int i = 0; i < r->nroot; i++)
        m->tensors[r->root[i]].block = m->tensors[r->root[i]].frozen ? TENSOR_EMBED : TENSOR_HEAD;
    for (int k = first->kernel0[1]; k < first->kernel0[1] + first->nkernels[1]; k++)
        for (int i = r->kernels[k].move0; i < r->kernels[k].move0 + r->kernels[k].nmoves; i++)
            if (r->moves[i].does == REC_READY)
                m->tensors[r->moves[i].tensor].block = TENSOR_EMBED;
    for (int i = 0; i < m->nmodules; i++)
        m->modules[i].block = m->tensors[m->modules[i].first].block;
    for (int i = 0; i < r->nroot; i++)
        m->tensors[r->root[i]].role = m->tensors[r->root[i]].block == TENSOR_EMBED ? ROLE_POSITIONS : ROLE_NORM_FINAL;
}

static int read_batch(const json_t *j, struct recorded *r, const char *where)
{
    r->batch = json_integer_value(j);
    return !j || (json_is_integer(j) && r->batch >= 1 && r->batch <= 1 << 24) ? 0 : fail("%s: batch: expected the only micro-batch that it answers, from 1 to 2^24", where);
}

enum { ASSUMED_MOST = 64, ASSUMED_LETTERS = 200 };

/* What the recording took for granted of the data. */
static int check_assumed(const json_t *list, const char *where)
{
    if (list && (!json_is_array(list) || json_array_size(list) > ASSUMED_MOST))
        return fail("%s: assumed: expected a list of up to %d texts", where, ASSUMED_MOST);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!text_of(json_array_get(list, i), ASSUMED_LETTERS))
            return fail("%s: assumed: expected texts of up to %d letters", where, ASSUMED_LETTERS);
    return 0;
}

static void note_assumed(const json_t *list, const char *where)
{
    size_t n = json_array_size(list);
    char more[40] = "";

    if (n > 1)
        snprintf(more, sizeof more, " (and %zu more such)", n - 1);
    if (n > 0)
        notes_say_once("dpx: %s: note: what this module runs depends on its data; taken was: %s%s", where, json_string_value(json_array_get(list, 0)), more);
}

static int read_all(const json_t *doc, struct recorded *r, struct model *m, const char *where)
{
    const json_t *version = json_object_get(doc, "dpx_model");
    const char *name = text_of(json_object_get(doc, "name"), sizeof r->name - 1);
    static const char *const keys[] = { "dpx_model", "name", "made", "assumed", "batch", "size", "tensors", "shared", "unused", "buffers", "kept", "units", "programs" };
    const char *key;
    const json_t *value;

    if (json_integer_value(version) != RECORDED_VERSION)
        return fail("%s: dpx_model: a file of version %lld; this dpx reads version %d: record the module again", where,
                    (long long)json_integer_value(version), RECORDED_VERSION);
    json_object_foreach((json_t *)doc, key, value) {
        bool known = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            known |= !strcmp(keys[i], key);
        if (!known)
            return fail("%s: %.60s: no key of a recorded model", where, key);
    }
    if (!name)
        return fail("%s: name: expected a name of up to %zu letters", where, sizeof r->name - 1);
    strcpy(r->name, name);
    if (check_assumed(json_object_get(doc, "assumed"), where) < 0 || read_batch(json_object_get(doc, "batch"), r, where) < 0 || read_sizes(json_object_get(doc, "size"), r, where) < 0 || read_tensors(json_object_get(doc, "tensors"), m, where) < 0 ||
        read_unused(json_object_get(doc, "unused"), m, where) < 0 || read_units(json_object_get(doc, "units"), r, m, where) < 0 || read_buffers(json_object_get(doc, "buffers"), json_object_get(doc, "kept"), r, where) < 0 ||
        read_shared(json_object_get(doc, "shared"), r, m, where) < 0 ||
        recorded_read_programs(r, json_object_get(doc, "programs"), m, where) < 0)
        return -1;
    split_root(r, m);
    return 0;
}

/* What no program of a recorded model looks at is 1, so that sums over shapes stay small. */
static void fill(struct model *m, struct recorded *r)
{
    snprintf(m->name, sizeof m->name, "%s", r->name);
    snprintf(m->family, sizeof m->family, "recorded");
    m->layers = r->nunits;
    m->context = r->only > 0 ? r->only : r->most;
    m->block0 = r->first[0];
    m->per_block = r->ntensors[0];
    m->active = m->params;
    for (int64_t i = 0; i < r->nkernels && m->head_dim == 1; i++)
        m->head_dim = r->kernels[i].head_dim > 0 ? r->kernels[i].head_dim : 1;
}

/* Operators whose time is known roughly, by name. */
static void note_rough(const struct recorded *r, const char *where)
{
    const char *named[8];
    char text[400];
    size_t n = 0, at = 0;

    for (int64_t i = 0; i < r->nkernels && n < sizeof named / sizeof *named; i++) {
        bool known = recorded_rough((enum rec_class)r->kernels[i].class) == 0;
        for (size_t k = 0; k < n && !known; k++)
            known = named[k] == r->kernels[i].name;
        if (!known)
            named[n++] = r->kernels[i].name;
    }
    for (size_t i = 0; i < n && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? ", " : "", named[i]);
    if (n > 0)
        notes_say_once("dpx: %s: note: dpx has no measurements of %s: their time is known within a factor of 3", where, text);
}

int recorded_model(json_t *doc, const char *where, const char *path, struct model *out)
{
    const char *file = json_string_value(json_object_get(doc, "file"));

    if (file && !json_object_get(doc, "dpx_model"))
        return model_load(file, out);
    *out = (struct model){ .hidden = 1, .heads = 1, .kv_heads = 1, .head_dim = 1, .ffn = 1, .vocab = 1, .token_width = 1, .attn_scalar = 1, .value_dim = 1,
                           .moe_every = 1, .recorded = room_new(1, sizeof *out->recorded) };
    struct recorded *r = out->recorded;
    r->refs = 1;
    r->path = path ? realpath(path, NULL) : NULL;
    r->doc = r->path ? NULL : json_incref(doc);
    if (read_all(doc, r, out, where) < 0) {
        model_free(out);
        return -1;
    }
    fill(out, r);
    note_rough(r, where);
    note_assumed(json_object_get(doc, "assumed"), where);
    return 0;
}

struct recorded *recorded_share(struct recorded *r)
{
    if (r)
        __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
    return r;
}

struct recorded *recorded_stage(struct recorded *whole, const struct model *part, int from)
{
    struct recorded *r = room_new(1, sizeof *r);
    size_t n = (size_t)part->layers;

    *r = *whole;
    r->refs = 1;
    r->cut_from = whole;
    r->nunits = (int)part->layers;
    r->unit = whole->unit + from;
    r->unit_class = whole->unit_class + from;
    r->turn = whole->turn + from;
    r->ntensors = whole->ntensors + from;
    r->first = room_new(n, sizeof *r->first);
    r->alike = room_new(n, sizeof *r->alike);
    r->place = room_new(n, sizeof *r->place);
    r->stride = room_new(n, sizeof *r->stride);
    r->root = room_new((size_t)part->ntensors, sizeof *r->root);
    r->nroot = 0;
    for (int t = part->ntensors - 1; t >= 0; t--)
        if (part->tensors[t].block >= 0)
            r->first[part->tensors[t].block] = t;
    for (int t = 0; t < part->ntensors; t++)
        if (part->tensors[t].block < 0)
            r->root[r->nroot++] = t;
    for (int i = 0; i < r->nprograms; i++)
        r->program[i].of_unit += from;
    r->uneven = false;
    find_alike(r, part);
    return r;
}

static void free_stage(struct recorded *r)
{
    free(r->first);
    free(r->alike);
    free(r->place);
    free(r->stride);
    free(r->root);
    recorded_free(r->cut_from);
    free(r);
}

void recorded_free(struct recorded *r)
{
    if (!r || __atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (r->cut_from) {
        free_stage(r);
        return;
    }
    for (int i = 0; i < r->nprograms; i++) {
        free(r->program[i].of_unit);
        free(r->program[i].kind);
    }
    for (int64_t i = 0; i < r->nnames; i++)
        free(r->names[i]);
    free(r->names);
    free(r->path);
    free(r->unit);
    free(r->unit_class);
    free(r->turn);
    free(r->first);
    free(r->ntensors);
    free(r->alike);
    free(r->place);
    free(r->stride);
    free(r->root);
    free(r->buffer);
    free(r->terms);
    free(r->kernels);
    free(r->moves);
    free(r->pieces);
    free(r->hooks);
    free(r->modules);
    free(r->shared);
    free(r->viewed);
    json_decref(r->doc);
    free(r);
}

json_t *recorded_to_config(const struct recorded *r)
{
    return r->path ? json_pack("{s:s}", "file", r->path) : json_incref(r->doc);
}

const char *recorded_again_name(enum rec_again again)
{
    static const char *const names[NREC_AGAIN] = { [REC_NOTHING] = "none", [REC_WHOLE] = "full", [REC_BY_OPERATOR] = "op" };

    return names[again];
}

const struct rec_program *recorded_program(const struct recorded *r, const char *precision, enum rec_again again, bool stage3)
{
    for (int i = 0; i < r->nprograms; i++)
        if (r->program[i].precision && !strcmp(r->program[i].precision, precision) && r->program[i].again == again &&
            r->program[i].stage3 == stage3)
            return &r->program[i];
    return NULL;
}

int recorded_tensor(const struct recorded *r, int64_t unit, int i)
{
    return i < r->ntensors[unit] ? r->first[unit] + i : i - r->ntensors[unit];
}
