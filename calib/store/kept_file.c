/* kept_file.c -- a file of fits is read.  It is written in kept_write.c: libdpx writes none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/input.h"
#include "base/room.h"
#include "calib/store/kept_internal.h"

void kept_fits_free(struct kept_fits *fits)
{
    for (int i = 0; i < fits->n; i++)
        measured_device_free(&fits->of[i]);
    for (int i = 0; i < fits->nowned; i++)
        free(fits->owned[i]);
    *fits = (struct kept_fits){ 0 };
}

/* The text that is left, from the beginning of a line; the line that is being read. */
struct reading { const char *path; char *next; int line; };

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
    for (int a = 0; a < KEPT_ARRAYS; a++) {
        char head[80], *line = next_line(r);
        int n = snprintf(head, sizeof head, "columns of %s:", kept_arrays[a].name);
        bool same = line && !strncmp(line, head, (size_t)n);
        for (const struct column *c = kept_arrays[a].column; same && c->name; c++) {
            size_t size = strlen(c->name);
            same = line[n] == ' ' && !strncmp(line + n + 1, c->name, size);
            n += same ? 1 + (int)size : 0;
        }
        if (!same || line[n])
            return wrong(r, kept_arrays[a].name, "have columns of another version of dpx");
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
    for (const struct column *c = kept_numbers; c->name; c++) {
        const char *text = line_of(r, c->name);
        if (!text || get(r, c, text, (char *)d) < 0)
            return -1;
    }
    for (const struct column *c = kept_times; c->name; c++) {
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
    for (int a = 0; a < KEPT_ARRAYS; a++)
        if (get_array(r, &kept_arrays[a], out, d) < 0)
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
    char *text = input_text(path, 4 << 20, NULL);
    int rc = -1;

    *out = (struct kept_fits){ 0 };
    if (text)
        rc = get_all(&(struct reading){ path, text, 0 }, out);
    if (rc < 0)
        kept_fits_free(out);
    free(text);
    return rc;
}
