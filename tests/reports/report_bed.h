/* report_bed.h -- a folder for a test's databases and reports, and a report of one of them. */
#ifndef DPX_REPORT_BED_H
#define DPX_REPORT_BED_H

#include "tests/check.h"
#include "tests/calib/scratch.h"

#include "reports/page/report.h"

/* A whole file; the caller's to free(). */
static inline char *slurp(const char *path)
{
    FILE *f = fopen(path, "rb");
    long n;

    if (!f)
        fail_msg("%s is missing", path);
    fseek(f, 0, SEEK_END);
    n = ftell(f);
    rewind(f);
    char *s = calloc(1, (size_t)n + 1);
    if (!s || fread(s, 1, (size_t)n, f) != (size_t)n)
        fail_msg("%s cannot be read", path);
    fclose(f);
    return s;
}

/* The report of a database into the folder `name`; what report_write() returns. */
static inline int report_of(const char *db_name, const char *name, const int64_t *ids, int n)
{
    struct db *db = db_open_reader(in_scratch(db_name));
    struct comparison c;
    struct report r;

    if (!db || compare_read(db, ids, n, &c) < 0)
        fail_msg("%s", said);
    db_close(db);
    report_make(&c, NULL, NULL, &r);
    int rc = report_write(&r, "a<b>&.db", in_scratch(name));
    report_free(&r);
    compare_free(&c);
    return rc;
}

#endif
