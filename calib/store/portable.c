/* portable.c -- a calibration as a JSON document, read back with every field checked. */
#include "calib/store/portable.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/notes.h"
#include "calib/store/fits.h"
#include "calib/store/query.h"
#include "calib/store/series.h"
#include "calib/store/words.h"

struct reading { struct db *db; const char *path, *cluster; char where[64]; bool bad, on_host; int left_out; };

static const char *text_of(struct reading *r, const json_t *j, const char *key, bool needed)
{
    const char *v = json_string_value(json_object_get(j, key));

    if (!v && needed && !r->bad) {
        fail("%s: %s: \"%s\" is missing or not a text", r->path, r->where, key);
        r->bad = true;
    }
    return v;
}

static int64_t count_of(struct reading *r, const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);

    if ((!json_is_integer(v) || json_integer_value(v) < 0) && !r->bad) {
        fail("%s: %s: \"%s\" is missing or not a whole number", r->path, r->where, key);
        r->bad = true;
    }
    return json_integer_value(v);
}

static double number_of(struct reading *r, const json_t *j, const char *key, bool needed)
{
    const json_t *v = json_object_get(j, key);

    if (!json_is_number(v) && needed && !r->bad) {
        fail("%s: %s: \"%s\" is missing or not a number", r->path, r->where, key);
        r->bad = true;
    }
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static int word_of(struct reading *r, const json_t *j, const char *key, const char *const *words)
{
    const char *v = text_of(r, j, key, true);
    int i = v ? word_find(words, v) : -1;

    if (i < 0 && !r->bad) {
        fail("%s: %s: \"%s\" is \"%s\", which this dpx does not know", r->path, r->where, key, v);
        r->bad = true;
    }
    return i < 0 ? 0 : i;
}

/* A sample takes no longer than a day; what is there and shorter than this has lost its digits (denormal). */
static const double LONGEST_S = 86400, SHORTEST_S = 1e-300;

static double *seconds_of(struct reading *r, const json_t *j, int *n)
{
    const json_t *list = json_object_get(j, "seconds"), *one;
    double *s = malloc((json_array_size(list) + 1) * sizeof *s);
    size_t i;

    if (!s)
        abort();
    *n = (int)json_array_size(list);
    bool fine = *n > 0;
    json_array_foreach(list, i, one) {
        s[i] = json_number_value(one);
        fine &= json_is_number(one) && (s[i] == 0 || s[i] >= SHORTEST_S) && s[i] <= LONGEST_S;
    }
    if (!fine && !r->bad) {
        fail("%s: %s: \"seconds\" is not a list of times (0 to %g s)", r->path, r->where, LONGEST_S);
        r->bad = true;
    }
    return s;
}

/* Of a group of ranks, `per_node` of them on each node. */
static void check_group(struct reading *r, const struct series *s)
{
    static const int64_t MOST = 1 << 24;                /* ranks of one group */

    if (r->bad || s->kind != SERIES_COLL || (s->ranks >= 1 && s->ranks <= MOST && s->per_node >= 1 && s->per_node <= s->ranks))
        return;
    fail("%s: %s: a collective of %" PRId64 " ranks, %" PRId64 " on a node", r->path, r->where, s->ranks, s->per_node);
    r->bad = true;
}

/* Texts stay the document's. */
static struct series series_of(struct reading *r, const json_t *j)
{
    struct series s = { .kind = (enum series_kind)word_of(r, j, "kind", series_words) };
    const char *dtype = text_of(r, j, "dtype", true);
    struct { const char *key; int64_t *to; } const counts[] = {
        { "ranks", &s.ranks }, { "per_node", &s.per_node }, { "threads", &s.threads }, { "batch", &s.batch },
        { "m", &s.m }, { "n", &s.n }, { "k", &s.k }, { "seq", &s.seq }, { "dim", &s.dim }, { "bytes", &s.bytes },
    };

    s.name = text_of(r, j, "name", true);
    if (s.kind == SERIES_KERNEL && !r->bad) {
        s.fn = word_of(r, j, "fn", fn_words);
        s.class = word_of(r, j, "class", class_words);
    }
    if (dtype && dtype_parse(dtype) < 0) {
        fail("%s: %s: dtype \"%s\" is not known", r->path, r->where, dtype);
        r->bad = true;
    }
    s.dtype = dtype && !r->bad ? (enum dtype)dtype_parse(dtype) : DT_FP32;
    s.algorithm = text_of(r, j, "algorithm", true);
    s.beside = text_of(r, j, "beside", true);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        *counts[i].to = count_of(r, j, counts[i].key);
    s.dropout = count_of(r, j, "dropout") != 0;
    s.flops = number_of(r, j, "flops", true);
    s.started = number_of(r, j, "started", true);
    s.probe_before_s = number_of(r, j, "probe_before_s", false);
    s.probe_after_s = number_of(r, j, "probe_after_s", false);
    int64_t of_ranks = count_of(r, j, "of_ranks");
    if (of_ranks > 1 << 30 && !r->bad) {
        fail("%s: %s: \"of_ranks\" is %" PRId64, r->path, r->where, of_ranks);
        r->bad = true;
    }
    s.of_ranks = (int)of_ranks;
    check_group(r, &s);
    return s;
}

/* What dpx with a schema before 5 timed (schema.c, version_5): false where it does not count. */
static bool old_attention(struct reading *r, struct series *s)
{
    if (s->kind != SERIES_KERNEL || s->class != KC_ATTENTION || s->m > 0 || s->batch > 0 || s->seq < 1 || s->dim < 1)
        return true;
    s->batch = llround(s->flops / ((s->fn == FN_ATTENTION ? 4. : 8.) * (double)s->seq * (double)s->seq * (double)s->dim));
    r->left_out += r->on_host;
    return !r->on_host;
}

static int take_series(struct reading *r, int64_t id, const json_t *list)
{
    const json_t *j;
    size_t i;
    int rc = 0;

    json_array_foreach(list, i, j) {
        struct series s;
        snprintf(r->where, sizeof r->where, "series %zu", i + 1);
        s = series_of(r, j);
        double *seconds = seconds_of(r, j, &s.nsamples);
        s.seconds = seconds;
        if (!r->bad && s.of_ranks > 0 && s.nsamples % s.of_ranks) {
            fail("%s: %s: %d samples of %d ranks", r->path, r->where, s.nsamples, s.of_ranks);
            r->bad = true;
        }
        rc = r->bad ? -1 : !old_attention(r, &s) ? 0 : series_add(r->db, id, &s, 1);
        if (rc < 0 && !r->bad)
            db_fail(r->db, "recording what was imported");
        free(seconds);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static const json_t *list_of(struct reading *r, const json_t *j, const char *key)
{
    const json_t *list = json_object_get(j, key);

    if (!json_is_array(list) && !r->bad) {
        fail("%s: %s: \"%s\" is missing or not a list", r->path, r->where, key);
        r->bad = true;
    }
    return list;
}

static void check_options(struct reading *r, const char *options)
{
    json_t *j = options ? json_loads(options, 0, NULL) : NULL;

    if (!j && !r->bad) {
        fail("%s: %s: \"options\" is not the text of a JSON object", r->path, r->where);
        r->bad = true;
    }
    json_decref(j);
}

/* 1: new, 0: known, -1 reported. */
static int take_calibration(struct reading *r, const json_t *j)
{
    struct calibration c = {
        .started = number_of(r, j, "started", true), .host = text_of(r, j, "host", true),
        .device = text_of(r, j, "device", true), .cpu = text_of(r, j, "cpu", true), .cores = count_of(r, j, "cores"),
        .memory = count_of(r, j, "memory_bytes"), .source = text_of(r, j, "source", true),
        .ranks = count_of(r, j, "ranks"), .threads = count_of(r, j, "threads"),
        .options = text_of(r, j, "options", true), .dpx_version = text_of(r, j, "dpx_version", false),
        .comm_version = text_of(r, j, "comm_version", false),
        .kernels_version = text_of(r, j, "kernels_version", false), .origin = text_of(r, j, "origin", false),
    };
    if (r->cluster) {                   /* beside logs and traces of it, which know no processor */
        bool host = c.device && !strcmp(c.device, "cpu");
        c.host = r->cluster;
        c.cpu = host ? c.cpu : "";
        c.cores = host ? c.cores : 0;
        c.memory = host ? c.memory : 0;
    }
    double ended = number_of(r, j, "ended", false), crowd = number_of(r, j, "crowd", false);
    int64_t id;
    int known, nseries;

    if (word_of(r, j, "source", calibration_sources) == 0 || !c.origin)
        c.origin = r->path;             /* a log stays the log that it was read from */
    check_options(r, c.options);
    nseries = (int)json_array_size(list_of(r, j, "series"));
    if (r->bad || calibration_outgrown(r->db, &c, ended, nseries) < 0)
        return -1;
    known = calibration_known(r->db, &c);
    if (known)
        return known < 0 ? -1 : 0;
    id = calibration_add(r->db, &c, ended);
    if (id < 0)
        return db_fail(r->db, "recording a calibration");
    if (crowd >= 0 && crowd < 1 && calibration_crowd(r->db, id, crowd) < 0)
        return -1;
    r->on_host = c.device && !strcmp(c.device, "cpu");
    if (take_series(r, id, json_object_get(j, "series")) < 0)
        return -1;
    return fits_write(r->db, id, false) < 0 ? db_fail(r->db, "recording fits") : 1;
}

static int take_all(struct reading *r, const json_t *doc, int *known)
{
    const json_t *list, *j;
    int taken = 0;
    size_t i;

    snprintf(r->where, sizeof r->where, "the document");
    list = list_of(r, doc, "calibrations");
    if (r->bad)
        return -1;
    json_array_foreach(list, i, j) {
        snprintf(r->where, sizeof r->where, "calibration %zu", i + 1);
        int one = take_calibration(r, j);
        if (one < 0)
            return -1;
        taken += one;
        *known += !one;
    }
    return taken;
}

int portable_import(struct db *db, const char *path, int *known, bool *refused)
{
    return portable_import_as(db, path, NULL, known, refused);
}

int portable_import_as(struct db *db, const char *path, const char *cluster, int *known, bool *refused)
{
    json_t *doc = files_read_json_data(path);
    struct reading r = { .db = db, .path = path, .cluster = cluster, .bad = !doc };
    int64_t format = json_integer_value(json_object_get(doc, "dpx_calibrations"));
    int taken = -1;

    *known = 0;
    if (doc && format != PORTABLE_FORMAT) {
        fail("%s: not calibrations that `dpxcal export` wrote%s", path, format > PORTABLE_FORMAT ? ": a newer dpx made it"
             : json_is_array(json_object_get(doc, "results")) ? ": `dpxcal import nccl-tests FILE` takes this" : "");
        r.bad = true;
    } else if (doc && db_begin(db) < 0) {
        db_fail(db, "importing");
    } else if (doc) {
        taken = take_all(&r, doc, known);
        if (db_end(db, taken < 0 ? -1 : 0) < 0 && taken >= 0)
            taken = db_fail(db, "importing");
    }
    if (taken >= 0 && r.left_out > 0)
        notes_say("warning: %s: %d series of attention left out: this dpx times it on other values; run dpxcal there again",
                  path, r.left_out);
    json_decref(doc);
    *refused = r.bad;
    return taken;
}
