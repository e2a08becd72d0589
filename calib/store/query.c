/* query.c -- prepared statements of SQLite, with the reason of a failure. */
#include "calib/store/query.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/printable.h"

/* A machine that writes does so for milliseconds; who still waits after so long waits for
 * one that hangs. */
enum { BUSY_SECONDS = 10 };

int db_error(struct db *db, int rc)
{
    db->rc = rc;
    db->os_error = sqlite3_system_errno(db->sql);
    snprintf(db->why, sizeof db->why, "%s", sqlite3_errmsg(db->sql));
    return -1;
}

static bool disk_full(const struct db *db)
{
    return (db->rc & 0xff) == SQLITE_FULL || db->os_error == ENOSPC || db->os_error == EDQUOT;
}

bool db_read_only(const struct db *db)
{
    char folder[sizeof db->path];
    char *slash;

    snprintf(folder, sizeof folder, "%s", db->path);
    slash = strrchr(folder, '/');
    if (slash)
        slash[1] = '\0';
    return (access(db->path, F_OK) == 0 && access(db->path, W_OK) < 0)
        || (access(slash ? folder : ".", F_OK) == 0 && access(slash ? folder : ".", W_OK) < 0);
}

/* What went wrong, in words that say what would help. */
static void reason(const struct db *db, char *to, size_t size)
{
    const char *os = db->os_error ? strerror(db->os_error) : db->why;

    if (disk_full(db))
        snprintf(to, size, "the disk is full; nothing recorded before is lost");
    else if ((db->rc & 0xff) == SQLITE_BUSY)
        snprintf(to, size, "another process keeps it locked (waited %d s)", BUSY_SECONDS);
    else if ((db->rc & 0xff) == SQLITE_READONLY || ((db->rc & 0xff) == SQLITE_CANTOPEN && db->os_error == ENOENT && db_read_only(db)))
        snprintf(to, size, "the file or its folder is read-only");
    else if ((db->rc & 0xff) == SQLITE_NOTADB)
        snprintf(to, size, "the file is not an SQLite database; nothing was changed");
    else if ((db->rc & 0xff) == SQLITE_CORRUPT)
        snprintf(to, size, "the file is damaged (%s); nothing was changed; `sqlite3 FILE .recover` "
                 "prints what can be saved", db->why);
    else if ((db->rc & 0xff) == SQLITE_CANTOPEN || (db->rc & 0xff) == SQLITE_IOERR)
        snprintf(to, size, "%s", os);
    else
        snprintf(to, size, "%s", db->why);
}

int db_fail(struct db *db, const char *doing, ...)
{
    char what[256], why[512];
    va_list ap;

    va_start(ap, doing);
    vsnprintf(what, sizeof what, doing, ap);
    va_end(ap);
    reason(db, why, sizeof why);
    db_blame(db);
    return fail("%s: %s: %s", db->path, what, why);
}

int db_exec(struct db *db, const char *sql)
{
    int rc = sqlite3_exec(db->sql, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? 0 : db_error(db, rc);
}

int db_begin(struct db *db)
{
    /* At once for writing: to wait is possible only before anything was read. */
    return db_exec(db, "BEGIN IMMEDIATE");
}

int db_end(struct db *db, int rc)
{
    if (rc == 0 && db_exec(db, "COMMIT") == 0)
        return 0;
    /* After some errors (a full disk) SQLite has rolled back already. */
    if (!sqlite3_get_autocommit(db->sql))
        sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
    return -1;
}

int db_value(struct db *db, const char *sql, int64_t *value)
{
    struct query q;

    query_open(&q, db, sql);
    *value = query_row(&q) ? query_get_int(&q) : 0;
    return query_close(&q);
}

void query_open(struct query *q, struct db *db, const char *sql)
{
    *q = (struct query){ .db = db };
    q->rc = sqlite3_prepare_v2(db->sql, sql, -1, &q->s, NULL);
    if (q->rc != SQLITE_OK)
        db_error(db, q->rc);
}

bool query_row(struct query *q)
{
    if (q->rc != SQLITE_OK)
        return false;
    q->at = 0;
    q->rc = sqlite3_step(q->s);
    if (q->rc == SQLITE_ROW) {
        q->rc = SQLITE_OK;
        return true;
    }
    if (q->rc == SQLITE_DONE)
        q->rc = SQLITE_OK;
    else
        db_error(q->db, q->rc);
    sqlite3_reset(q->s);
    return false;
}

int query_done(struct query *q)
{
    while (query_row(q))
        ;
    q->at = 0;
    return q->rc == SQLITE_OK ? 0 : -1;
}

int query_close(struct query *q)
{
    sqlite3_finalize(q->s);
    q->s = NULL;
    return q->rc == SQLITE_OK ? 0 : -1;
}

static void note(struct query *q, int rc)
{
    if (rc != SQLITE_OK) {
        q->rc = rc;
        db_error(q->db, rc);
    }
}

void query_put_int(struct query *q, int64_t v)
{
    if (q->rc == SQLITE_OK)
        note(q, sqlite3_bind_int64(q->s, ++q->at, v));
}

void query_put_bytes(struct query *q, int64_t v)
{
    if (q->rc == SQLITE_OK)
        note(q, v < 0 ? sqlite3_bind_null(q->s, ++q->at) : sqlite3_bind_int64(q->s, ++q->at, v));
}

void query_put_real(struct query *q, double v)
{
    if (q->rc == SQLITE_OK)
        note(q, isnan(v) ? sqlite3_bind_null(q->s, ++q->at) : sqlite3_bind_double(q->s, ++q->at, v));
}

void query_put_text(struct query *q, const char *v)
{
    /* Not copied: the caller's texts outlive the row. */
    if (q->rc == SQLITE_OK)
        note(q, sqlite3_bind_text(q->s, ++q->at, v, -1, SQLITE_STATIC));
}

int64_t query_get_int(struct query *q)
{
    return sqlite3_column_int64(q->s, q->at++);
}

int64_t query_get_bytes(struct query *q)
{
    bool null = sqlite3_column_type(q->s, q->at) == SQLITE_NULL;

    if (null) {
        q->at++;
        return -1;
    }
    return query_get_int(q);
}

double query_get_real(struct query *q)
{
    int i = q->at++;

    return sqlite3_column_type(q->s, i) == SQLITE_NULL ? (double)NAN : sqlite3_column_double(q->s, i);
}

/* Blocks of characters, the newest first. */
struct texts {
    struct texts *next;
    size_t        used, size;
    char          at[];
};

static char *texts_room(struct texts **t, size_t n)
{
    enum { BLOCK = 64 << 10 };

    if (!*t || (*t)->size - (*t)->used < n) {
        size_t size = n > BLOCK ? n : BLOCK;
        struct texts *more = malloc(sizeof *more + size);
        if (!more)
            abort();
        *more = (struct texts){ .next = *t, .size = size };
        *t = more;
    }
    (*t)->used += n;
    return (*t)->at + (*t)->used - n;
}

const char *query_get_text(struct query *q, struct texts **t)
{
    int         i = q->at++;
    const char *v = (const char *)sqlite3_column_text(q->s, i);
    size_t      n = (size_t)sqlite3_column_bytes(q->s, i);

    if (!v)
        return NULL;
    return memcpy(texts_room(t, n + 1), v, n + 1);
}

const char *query_get_shown(struct query *q, struct texts **t)
{
    const char *v = query_get_text(q, t);

    if (!v || printable(v))
        return v;
    size_t size = 4 * strlen(v) + 1;            /* an escape has at most four bytes for one */
    char *escaped = texts_room(t, size);
    printable_copy(escaped, size, v);
    return escaped;
}

void query_texts_free(struct texts *t)
{
    while (t) {
        struct texts *next = t->next;
        free(t);
        t = next;
    }
}

void *query_array_grow(void *array, int64_t n, size_t size)
{
    /* Doubled whenever it is full, which a power of two is. */
    if (n & (n - 1))
        return array;
    array = realloc(array, (size_t)(n ? 2 * n : 1) * size);
    if (!array)
        abort();
    return array;
}
