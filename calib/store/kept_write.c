/* kept_write.c -- the fits of a database, and as a file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/output.h"
#include "calib/store/fit.h"
#include "calib/store/kept_internal.h"
#include "calib/store/query.h"

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
    for (const struct column *c = kept_numbers; c->name; c++) {
        fprintf(f, "%s ", c->name);
        put(f, c, from);
        fputc('\n', f);
    }
    for (const struct column *c = kept_times; c->name; c++) {
        const struct measured_time *t = (const struct measured_time *)(const void *)(from + c->at);
        fprintf(f, "%s ", c->name);
        put_real(f, t->s);
        fputc(' ', f);
        put_real(f, t->spread);
        fputc('\n', f);
    }
    for (int a = 0; a < KEPT_ARRAYS; a++) {
        const char *row = *(const char *const *)(const void *)(from + kept_arrays[a].array);
        int n = *(const int *)(const void *)(from + kept_arrays[a].n);
        fprintf(f, "%s %d\n", kept_arrays[a].name, n);
        for (int i = 0; i < n; i++, row += kept_arrays[a].size)
            for (const struct column *c = kept_arrays[a].column; c->name; c++) {
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
    for (int a = 0; a < KEPT_ARRAYS; a++)
        put_columns(o.f, &kept_arrays[a]);
    for (int i = 0; i < fits->n; i++)
        put_fits(o.f, &fits->of[i]);
    return output_close(&o);
}
