/* kept_file.c -- see kept_file.h.  One table of columns for each kind of row, for writing and for reading. */
#include "calib/store/kept_file.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/input.h"
#include "base/output.h"
#include "base/room.h"
#include "calib/store/fit.h"
#include "calib/store/query.h"
#include "calib/store/words.h"

/* ---- from a database ---- */

/* Files and the host's threads were another machine's: of a type of GPU they say nothing. */
static void forget_the_host(struct measured_device *d)
{
    struct measured_bytes *all = (struct measured_bytes *)(uintptr_t)d->bytes;
    int n = 0;

    for (int i = 0; i < d->nbytes; i++)
        if (all[i].pass != MP_HOST_ADAMW && all[i].pass != MP_DISK_READ && all[i].pass != MP_DISK_WRITE)
            all[n++] = all[i];
    d->nbytes = n;
}

static bool is_traced(const struct measured_device *d)
{
    for (int set = 0; set < NKERNELS; set++)
        if (d->traced[set])
            return true;
    return false;
}

/* The GPU, and of how many ranks its kernels were timed. */
static int find_gpu(struct db *db, char gpu[128], int64_t *ranks)
{
    int64_t ngpus = 0, nranks = 0;
    const char *name = NULL;
    struct texts *texts = NULL;
    struct query q;
    int rc = 0;

    query_open(&q, db, "SELECT count(DISTINCT m.device), min(m.device), count(DISTINCT s.ranks || ' ' || s.threads), max(s.ranks)"
                       " FROM series s JOIN machine m ON m.id = s.machine WHERE s.kind = 'kernel' AND m.device <> 'cpu'");
    if (query_row(&q)) {
        ngpus = query_get_int(&q);
        name = query_get_text(&q, &texts);
        nranks = query_get_int(&q);
        *ranks = query_get_int(&q);
    }
    if (query_close(&q) < 0)
        rc = db_fail(db, "looking for a GPU's calibration");
    else if (ngpus != 1)
        rc = fail("%s: has kernels of %d types of GPU; fits are of one", db_path(db), (int)ngpus);
    else if (nranks != 1)
        rc = fail("%s: has kernels timed with different numbers of ranks or threads; fits are of one: dpxcal export --calibration N",
                  db_path(db));
    else
        snprintf(gpu, 128, "%s", name);
    query_texts_free(texts);
    return rc;
}

int kept_fit(struct db *db, struct kept_fits *out)
{
    char gpu[128];
    int64_t ranks = 0;
    int found = find_gpu(db, gpu, &ranks);

    *out = (struct kept_fits){ 0 };
    for (int t = 0; t < NDTYPE && found >= 0; t++) {
        struct measured_device *d = &out->of[out->n];
        struct fit_want want = { .device = gpu, .precision = (enum dtype)t, .ranks = ranks };
        found = fit_read(db, &want, d);
        if (found > 0 && is_traced(d))
            found = fail("%s: holds kernels of a trace; fits that come with dpx are of its own kernels", db_path(db));
        if (found != 0)
            out->n++;
        if (found > 0)
            forget_the_host(d);
    }
    if (found >= 0)
        return 0;
    kept_fits_free(out);
    return -1;
}

void kept_fits_free(struct kept_fits *fits)
{
    for (int i = 0; i < fits->n; i++)
        measured_device_free(&fits->of[i]);
    for (int i = 0; i < fits->nowned; i++)
        free(fits->owned[i]);
    *fits = (struct kept_fits){ 0 };
}

/* ---- rows ---- */

static const char *fn_of(int i)    { return fn_words[i]; }
static const char *class_of(int i) { return class_words[i]; }
static const char *pass_of(int i)  { return pass_words[i]; }
static const char *coll_of(int i)  { return i == NCOLL ? "copy" : coll_name((enum coll_op)i); }
static const char *type_of(int i)  { return dtype_name((enum dtype)i); }

/* What a column holds, and where in the struct: a word (of one byte, or an enum or int), a flag, a whole number, a real one. */
struct column {
    const char *name;
    enum { BYTE, WORD, FLAG, WHOLE, REAL } holds;
    size_t at;
    const char *(*word)(int);
    int nwords;
};
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

/* An array of the struct measured_device, and the numbers beside the arrays. */
struct rows { const char *name; const struct column *column; size_t size, array, n; };
#define ROWS(name, columns, type, array) \
    { name, columns, sizeof(struct measured_##type), offsetof(struct measured_device, array), offsetof(struct measured_device, n##array) }
static const struct rows arrays[] = {
    ROWS("kernels", kernel_columns, kernel, kernel), ROWS("passes", pass_columns, bytes, bytes),
    ROWS("collectives", coll_columns, coll, coll), ROWS("overlaps", overlap_columns, overlap, overlap),
};
enum { NARRAYS = sizeof arrays / sizeof *arrays };
_Static_assert((int)NARRAYS == (int)KEPT_ARRAYS, "struct kept_fits");

#define OF(field) offsetof(struct measured_device, field)
static const struct column numbers[] = {
    { "precision", WORD, OF(precision), type_of, NDTYPE }, { "ranks", WHOLE, OF(ranks), NULL, 0 }, { "threads", WHOLE, OF(threads), NULL, 0 },
    { "cores", WHOLE, OF(cores), NULL, 0 }, { "probe_s", REAL, OF(probe_s), NULL, 0 }, { "drift", REAL, OF(drift), NULL, 0 },
    { "unsteady", REAL, OF(unsteady), NULL, 0 }, { "late", REAL, OF(late), NULL, 0 }, { "taken", REAL, OF(taken), NULL, 0 }, { 0 },
};
static const struct column times[] = {
    { "issue_kernel", REAL, OF(own.issue_kernel), NULL, 0 }, { "issue_entry", REAL, OF(own.issue_entry), NULL, 0 },
    { "handover", REAL, OF(own.handover), NULL, 0 }, { "wake", REAL, OF(own.wake), NULL, 0 }, { "cold", REAL, OF(own.cold), NULL, 0 },
    { "step", REAL, OF(own.step), NULL, 0 }, { "alone", REAL, OF(alone), NULL, 0 }, { "together", REAL, OF(together), NULL, 0 }, { 0 },
};

/* ---- written ---- */

/* As few digits as are read back as the same number. */
static void put_real(FILE *f, double v)
{
    char text[40];

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    fputs(text, f);
}

static void put(FILE *f, const struct column *c, const char *from)
{
    const char *at = from + c->at;
    int word;

    switch (c->holds) {
    case BYTE:  fputs(c->word(*(const uint8_t *)at), f); break;
    case WORD:  memcpy(&word, at, sizeof word); fputs(c->word(word), f); break;
    case FLAG:  fputc(*(const bool *)at ? '1' : '0', f); break;
    case WHOLE: fprintf(f, "%" PRId64, *(const int64_t *)(const void *)at); break;
    case REAL:  put_real(f, *(const double *)(const void *)at); break;
    }
}

static void put_columns(FILE *f, const struct rows *a)
{
    fprintf(f, "columns of %s:", a->name);
    for (const struct column *c = a->column; c->name; c++)
        fprintf(f, " %s", c->name);
    fputc('\n', f);
}

static void put_fits(FILE *f, const struct measured_device *d)
{
    const char *from = (const char *)d;

    fprintf(f, "device %s\nbasis %s\n", d->device, d->basis);
    for (const struct column *c = numbers; c->name; c++) {
        fprintf(f, "%s ", c->name);
        put(f, c, from);
        fputc('\n', f);
    }
    for (const struct column *c = times; c->name; c++) {
        const struct measured_time *t = (const struct measured_time *)(const void *)(from + c->at);
        fprintf(f, "%s ", c->name);
        put_real(f, t->s);
        fputc(' ', f);
        put_real(f, t->spread);
        fputc('\n', f);
    }
    for (int a = 0; a < NARRAYS; a++) {
        const char *row = *(const char *const *)(const void *)(from + arrays[a].array);
        int n = *(const int *)(const void *)(from + arrays[a].n);
        fprintf(f, "%s %d\n", arrays[a].name, n);
        for (int i = 0; i < n; i++, row += arrays[a].size)
            for (const struct column *c = arrays[a].column; c->name; c++) {
                put(f, c, row);
                fputc(c[1].name ? ' ' : '\n', f);
            }
    }
}

int kept_write(const struct kept_fits *fits, const char *path)
{
    struct output o;

    if (output_open(&o, path) < 0)
        return -1;
    fprintf(o.f, "dpx_fits %d\n", KEPT_FORMAT);
    for (int a = 0; a < NARRAYS; a++)
        put_columns(o.f, &arrays[a]);
    for (int i = 0; i < fits->n; i++)
        put_fits(o.f, &fits->of[i]);
    return output_close(&o);
}

/* ---- read ---- */

/* The text that is left, from the beginning of a line; the line that is being read. */
struct reading { const char *path; char *next; int line; };

static char *read_text(const char *path)
{
    enum { MOST = 4 << 20 };
    FILE *f = input_open(path);
    char *text = f ? room_new(MOST + 1, 1) : NULL;
    size_t n = text ? fread(text, 1, MOST, f) : 0;

    if (f && n < MOST && !ferror(f))
        text[n] = '\0';
    else if (f)
        fail("%s: cannot be read, or holds more than %d bytes", path, (int)MOST);
    if (f && (n == MOST || ferror(f))) {
        free(text);
        text = NULL;
    }
    if (f)
        fclose(f);
    return text;
}

static int wrong(const struct reading *r, const char *what, const char *why) { return fail("%s:%d: %s %s", r->path, r->line, what, why); }

/* NULL behind the last one. */
static char *next_line(struct reading *r)
{
    char *line = r->next, *end = strchr(line, '\n');

    if (!*line)
        return NULL;
    r->line++;
    r->next = end ? end + 1 : line + strlen(line);
    if (end)
        *end = '\0';
    return line;
}

/* The next word of a line, which it is taken from; "" behind the last one. */
static char *next_word(char **line)
{
    char *word = *line, *end = strchr(word, ' ');

    *line = end ? end + 1 : word + strlen(word);
    if (end)
        *end = '\0';
    return word;
}

/* The rest of the next line, which begins with `name`; NULL reported. */
static char *line_of(struct reading *r, const char *name)
{
    char *line = next_line(r);

    if (!line || strcmp(next_word(&line), name))
        return wrong(r, name, "is missing"), NULL;
    return line;
}

static int find_word(const struct column *c, const char *word)
{
    for (int i = 0; i < c->nwords; i++)
        if (!strcmp(c->word(i), word))
            return i;
    return -1;
}

static int get(const struct reading *r, const struct column *c, const char *text, char *to)
{
    char *end = NULL;
    int word = c->word ? find_word(c, text) : 0;
    int64_t whole = c->holds == WHOLE || c->holds == FLAG ? strtoll(text, &end, 10) : 0;
    double real = c->holds == REAL ? strtod(text, &end) : 0;
    bool flag = whole == 1;
    uint8_t byte = (uint8_t)word;

    if (word < 0)
        return wrong(r, c->name, "is missing or a word that is not known");
    if (end && (end == text || *end || whole < 0 || (c->holds == FLAG && whole > 1) || !isfinite(real) || real < 0))
        return wrong(r, c->name, "is missing or not of its kind");
    switch (c->holds) {
    case BYTE:  memcpy(to + c->at, &byte, sizeof byte); break;
    case WORD:  memcpy(to + c->at, &word, sizeof word); break;
    case FLAG:  memcpy(to + c->at, &flag, sizeof flag); break;
    case WHOLE: memcpy(to + c->at, &whole, sizeof whole); break;
    case REAL:  memcpy(to + c->at, &real, sizeof real); break;
    }
    return 0;
}

/* The columns that this version has, in its order. */
static int check_columns(struct reading *r)
{
    for (int a = 0; a < NARRAYS; a++) {
        char head[80], *line = next_line(r);
        int n = snprintf(head, sizeof head, "columns of %s:", arrays[a].name);
        bool same = line && !strncmp(line, head, (size_t)n);
        for (const struct column *c = arrays[a].column; same && c->name; c++) {
            size_t size = strlen(c->name);
            same = line[n] == ' ' && !strncmp(line + n + 1, c->name, size);
            n += same ? 1 + (int)size : 0;
        }
        if (!same || line[n])
            return wrong(r, arrays[a].name, "have columns of another version of dpx");
    }
    return 0;
}

static int get_rows(struct reading *r, const struct rows *a, int n, char *to)
{
    for (int i = 0; i < n; i++, to += a->size) {
        char *line = next_line(r);
        for (const struct column *c = a->column; c->name; c++)
            if (get(r, c, line ? next_word(&line) : "", to) < 0)
                return -1;
        if (*line)
            return wrong(r, a->name, "have more columns than there are");
    }
    return 0;
}

static int get_text(struct reading *r, const char *name, char *to, size_t size)
{
    const char *text = line_of(r, name);

    if (text)
        snprintf(to, size, "%s", text);
    return text ? 0 : -1;
}

static int get_numbers(struct reading *r, struct measured_device *d)
{
    for (const struct column *c = numbers; c->name; c++) {
        const char *text = line_of(r, c->name);
        if (!text || get(r, c, text, (char *)d) < 0)
            return -1;
    }
    for (const struct column *c = times; c->name; c++) {
        struct column s = *c, spread = *c;
        char *text = line_of(r, c->name);
        s.at += offsetof(struct measured_time, s);
        spread.at += offsetof(struct measured_time, spread);
        if (!text || get(r, &s, next_word(&text), (char *)d) < 0 || get(r, &spread, text, (char *)d) < 0)
            return -1;
    }
    return 0;
}

static int get_array(struct reading *r, const struct rows *a, struct kept_fits *fits, struct measured_device *d)
{
    enum { MOST_ROWS = 1 << 20 };
    const char *text = line_of(r, a->name);
    const struct column count = { a->name, WHOLE, 0, NULL, 0 };
    int64_t n;

    if (!text || get(r, &count, text, (char *)&n) < 0)
        return -1;
    if (n > MOST_ROWS)
        return wrong(r, a->name, "are too many");
    char *rows = room_new((size_t)n + 1, a->size);
    int small = (int)n;
    fits->owned[fits->nowned++] = rows;
    memcpy((char *)d + a->array, &rows, sizeof rows);
    memcpy((char *)d + a->n, &small, sizeof small);
    return get_rows(r, a, small, rows);
}

/* Prices are looked up by halves: rows lie as fit_read() leaves them. */
static int check_order(const char *path, const struct measured_device *d)
{
    for (int i = 1; i < d->nkernel; i++)
        if (d->kernel[i].fn < d->kernel[i - 1].fn ||
            (d->kernel[i].fn == d->kernel[i - 1].fn && d->kernel[i].bytes < d->kernel[i - 1].bytes))
            return fail("%s: kernels: row %d is not in the order of fn and bytes", path, i + 1);
    for (int i = 1; i < d->nbytes; i++)
        if (d->bytes[i].pass < d->bytes[i - 1].pass ||
            (d->bytes[i].pass == d->bytes[i - 1].pass && d->bytes[i].bytes < d->bytes[i - 1].bytes))
            return fail("%s: passes: row %d is not in the order of pass and bytes", path, i + 1);
    return 0;
}

static int get_fits(struct reading *r, struct kept_fits *out)
{
    struct measured_device *d = &out->of[out->n++];

    if (get_text(r, "device", d->device, sizeof d->device) < 0 || get_text(r, "basis", d->basis, sizeof d->basis) < 0 ||
        get_numbers(r, d) < 0)
        return -1;
    for (int a = 0; a < NARRAYS; a++)
        if (get_array(r, &arrays[a], out, d) < 0)
            return -1;
    return check_order(r->path, d);
}

static int get_all(struct reading *r, struct kept_fits *out)
{
    const struct column format = { "dpx_fits", WHOLE, 0, NULL, 0 };
    int64_t version;
    const char *text = line_of(r, format.name);

    if (!text || get(r, &format, text, (char *)&version) < 0)
        return -1;
    if (version != KEPT_FORMAT)
        return wrong(r, format.name, "is of another version of dpx");
    if (check_columns(r) < 0)
        return -1;
    while (*r->next && out->n < NDTYPE)
        if (get_fits(r, out) < 0)
            return -1;
    return *r->next ? wrong(r, "fits", "are of more precisions than there are") : 0;
}

int kept_load(const char *path, struct kept_fits *out)
{
    char *text = read_text(path);
    int rc = -1;

    *out = (struct kept_fits){ 0 };
    if (text)
        rc = get_all(&(struct reading){ path, text, 0 }, out);
    if (rc < 0)
        kept_fits_free(out);
    free(text);
    return rc;
}
