/* query.h -- SQLite, as the rest of calib/ uses it.  Nobody else includes this.
 *
 *     struct query q;
 *     query_open(&q, db, "INSERT INTO phase (run, name) VALUES (?, ?)");
 *     query_put_int(&q, run);
 *     query_put_text(&q, name);
 *     if (query_done(&q) < 0) ...              (again: put, put, query_done)
 *     if (query_close(&q) < 0)
 *         return db_fail(db, "recording the phases");
 *
 * The first error sticks: later calls on the query do nothing, and query_close() returns
 * it, so that only the end needs to be looked at. */
#ifndef DPX_QUERY_H
#define DPX_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sqlite3.h>

#include "calib/store/db.h"

struct db {
    sqlite3    *sql;
    char        path[4096];
    const char *note;
    bool        reader;
    int         rc, os_error;           /* the last error: sqlite3's extended code, errno */
    char        why[256];               /* and its words: a rollback would overwrite them */
};

struct query {
    struct db    *db;
    sqlite3_stmt *s;
    int           at, rc;
};

/* Keeps the last error of the connection for db_fail(); returns -1. */
int db_error(struct db *db, int rc);
/* Whether its file, or the folder in which the log is to lie, is there and cannot be written. */
bool db_read_only(const struct db *db);
/* What db_exit_status() says from now on, by the last error; NULL: the file is at fault. */
void db_blame(const struct db *db);
/* Reports "<path>: <doing>: <why>" in words that say what to do; returns -1. */
int db_fail(struct db *db, const char *doing, ...) __attribute__((format(printf, 2, 3)));

/* One or more statements without values.  0, or -1 (unreported). */
int db_exec(struct db *db, const char *sql);
/* All that follows is one transaction.  0, or -1 (unreported). */
int db_begin(struct db *db);
/* Commits if rc is 0, else rolls back.  0 if all is committed, else -1 (unreported). */
int db_end(struct db *db, int rc);
/* One integer of one row ("PRAGMA user_version").  0, or -1 (unreported). */
int db_value(struct db *db, const char *sql, int64_t *value);

void query_open(struct query *q, struct db *db, const char *sql);
/* A row is there to be read with get_*(): only for statements that give some. */
bool query_row(struct query *q);
/* Runs a statement that gives no rows; ready for the next values. */
int  query_done(struct query *q);
int  query_close(struct query *q);

/* In the order of the statement's question marks. */
void query_put_int(struct query *q, int64_t v);
void query_put_bytes(struct query *q, int64_t v);                 /* below 0: NULL */
void query_put_real(struct query *q, double v);                   /* NaN: NULL */
void query_put_text(struct query *q, const char *v);              /* NULL: NULL */

/* In the order of the statement's columns. */
int64_t query_get_int(struct query *q);                           /* NULL: 0 */
int64_t query_get_bytes(struct query *q);                         /* NULL: -1 */
double  query_get_real(struct query *q);                          /* NULL: NaN */

/* Copies of texts that live until they are all freed at once. */
struct texts;
const char *query_get_text(struct query *q, struct texts **t);    /* NULL: NULL */
const char *query_get_shown(struct query *q, struct texts **t);   /* the same to print: escaped where it is not printable */
void query_texts_free(struct texts *t);                           /* accepts NULL */

/* Room for element n of an array of `size` bytes each. */
void *query_array_grow(void *array, int64_t n, size_t size);

#endif
