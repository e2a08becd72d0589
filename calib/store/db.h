/* db.h -- the database: one SQLite file for calibrations and runs.
 *
 *     struct db *db = db_open(NULL);           (NULL: where it usually is)
 *     if (!db)
 *         return 1;                            (the reason is already on stderr)
 *     ... runs_begin(db, ...) ...
 *     db_close(db);
 *
 * The schema is in schema.c; nothing outside calib/ knows SQL.  Several processes may have
 * it open and write at once: each waits for the other.  One that dies leaves what it had
 * committed, and nothing else.  Not to be carried over a fork(): open it after. */
#ifndef DPX_DB_H
#define DPX_DB_H

#include <stdbool.h>

struct db;                      /* opaque: only calib/ sees sqlite3 */

/* $XDG_DATA_HOME/dpx/dpx.db, else ~/.local/share/dpx/dpx.db.  0, or -1 with the reason
 * reported where neither variable is set or the path is too long. */
int db_default_path(char *to, int size);

/* Opens for writing; creates the file, and where it is the usual one the folders above it.  An
 * older schema is brought up to date in one transaction, a newer one refused.  NULL with the
 * reason reported. */
struct db *db_open(const char *path);
/* One that lies in memory alone and is gone when it is closed; NULL with the reason reported. */
struct db *db_open_memory(void);
/* Opens what is there for reading, on read-only media too.  An older schema is brought up to date
 * first where the file may be written. */
struct db *db_open_reader(const char *path);
/* The exit status for what went wrong with a database last in this thread: 2 where the file is at fault
 * (nothing there, another program's, damaged, a newer schema, a folder, not to be written), 1 where the
 * machine is (a full disk, a lock that is held, no memory), 0 where nothing did since the last opening. */
int        db_exit_status(void);
/* Whether a database can be at this path: a regular file, or nothing yet.  0, or -1 with the reason on stderr. */
int        db_takes(const char *path);
void       db_close(struct db *db);         /* accepts NULL */

/* The path it was opened with. */
const char *db_path(const struct db *db);
/* A sentence for the user where the place of the file has a price, or NULL. */
const char *db_note(const struct db *db);

#endif
