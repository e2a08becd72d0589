/* db.c -- opening the database so that whatever the disk holds or lacks ends in one line.
 *
 * Write-ahead logging lets readers and a writer work at once and survives a kill at any
 * moment.  It needs memory shared by all who use the file, which machines on a network
 * file system do not have: there the older rollback journal is used, with file locks. */
#include "calib/store/db.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "calib/store/query.h"
#include "calib/store/schema.h"

enum { BUSY_MS = 10000 };

enum { FINE = 0, WORLD_FAILED = 1, FILE_REFUSED = 2 };
static _Thread_local int exit_status;

int db_exit_status(void)
{
    return exit_status;
}

/* The machine's fault: as it stands the file may be a good one. */
static bool world_failed(const struct db *db)
{
    int rc = db->rc & 0xff;

    return rc == SQLITE_FULL || rc == SQLITE_BUSY || rc == SQLITE_LOCKED || rc == SQLITE_NOMEM || rc == SQLITE_IOERR
        || db->os_error == ENOSPC || db->os_error == EDQUOT;
}

void db_blame(const struct db *db)
{
    exit_status = db && world_failed(db) ? WORLD_FAILED : FILE_REFUSED;
}

int db_default_path(char *to, int size)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int n;

    /* The specification has relative paths ignored. */
    if (data && data[0] == '/')
        n = snprintf(to, (size_t)size, "%s/dpx/dpx.db", data);
    else if (home && home[0])
        n = snprintf(to, (size_t)size, "%s/.local/share/dpx/dpx.db", home);
    else
        return fail("the database: neither XDG_DATA_HOME nor HOME is set; name a file with --db");
    return n < size ? 0 : fail("the database: its path has more than %d characters", size - 1);
}

/* Creates the folders above a file, for this user only (XDG base directories). */
static int make_folders(const char *path)
{
    char folder[4096];

    snprintf(folder, sizeof folder, "%s", path);
    for (char *p = strchr(folder + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(folder, 0700) < 0 && errno != EEXIST)
            return fail("%s: creating folder %s: %s", path, folder, strerror(errno));
        *p = '/';
    }
    return 0;
}

/* Magic numbers from statfs(2) and linux/magic.h. */
static bool network_file_system(const char *path)
{
    static const unsigned long magic[] = {
        0x6969 /* NFS */, 0x517B /* SMB */, 0xFF534D42 /* CIFS */, 0xFE534D42 /* SMB2 */,
        0x0BD00BD0 /* Lustre */, 0x47504653 /* GPFS */, 0x19830326 /* BeeGFS */,
        0x00C36400 /* Ceph */, 0x5346414F /* AFS */, 0x01021997 /* 9p */, 0x7461636F /* OCFS2 */,
        0x01161970 /* GFS2 */,
    };
    struct statfs s;

    if (statfs(path, &s) < 0)
        return false;
    for (size_t i = 0; i < sizeof magic / sizeof *magic; i++)
        if (((unsigned long)s.f_type & 0xFFFFFFFFul) == magic[i])
            return true;
    return false;
}

/* SQLite waits by itself only in some of the cases in which others are in the way of a change
 * of journal: here, we do. */
static int set_journal(struct db *db, const char *sql)
{
    const struct timespec pause = { 0, 20 * 1000 * 1000 };
    int rc = -1;

    sqlite3_busy_timeout(db->sql, 0);
    for (int waited = 0; waited < BUSY_MS; waited += 20) {
        rc = db_exec(db, sql);
        if (rc == 0 || (db->rc & 0xff) != SQLITE_BUSY)
            break;
        nanosleep(&pause, NULL);
    }
    sqlite3_busy_timeout(db->sql, BUSY_MS);
    return rc;
}

static bool is_wal(struct db *db)
{
    struct query q;
    struct texts *t = NULL;
    bool wal = false;

    query_open(&q, db, "PRAGMA journal_mode");
    if (query_row(&q))
        wal = !strcmp(query_get_text(&q, &t), "wal");
    query_close(&q);
    query_texts_free(t);
    return wal;
}

static int choose_journal(struct db *db)
{
    bool network = network_file_system(db->path);

    if (network)
        db->note = "the database is on a network file system: readers and writers wait for each other";
    if (is_wal(db) != network)
        return 0;
    return set_journal(db, network ? "PRAGMA journal_mode=DELETE" : "PRAGMA journal_mode=WAL");
}

static int connect(struct db *db, const char *name, int flags)
{
    int rc = sqlite3_open_v2(name, &db->sql, flags | SQLITE_OPEN_EXRESCODE, NULL);

    if (!db->sql)
        abort();
    if (rc != SQLITE_OK)
        return db_error(db, rc);
    sqlite3_busy_timeout(db->sql, BUSY_MS);
    /* FULL: a commit is on the disk, also when the power fails. */
    return db_exec(db, "PRAGMA foreign_keys=ON; PRAGMA synchronous=FULL");
}

static struct db *db_new(const char *path)
{
    struct db *db = calloc(1, sizeof *db);

    if (!db)
        abort();
    /* SQLite has a memory of its own for ":memory:" and "file:...": here a name is a file's. */
    const char *here = path && (path[0] == ':' || !strncmp(path, "file:", 5)) ? "./" : "";
    if (!path ? db_default_path(db->path, sizeof db->path) == 0
              : snprintf(db->path, sizeof db->path, "%s%s", here, path) < (int)sizeof db->path && path[0])
        return db;
    if (path)
        fail("the database: %s", path[0] ? "its path is too long" : "its path is empty");
    free(db);
    return NULL;
}

/* SQLite would wait for a pipe's other end, and write its tables into a device. */
int db_takes(const char *path)
{
    struct stat s;

    if (stat(path, &s) < 0 || S_ISREG(s.st_mode))
        return 0;
    return fail("%s: is %s, not a database; --db takes a file", path, S_ISDIR(s.st_mode) ? "a folder" : "no regular file");
}

struct db *db_open(const char *path)
{
    struct db *db = db_new(path);
    int64_t count;

    exit_status = FINE;
    if (!db || (!path && make_folders(db->path) < 0) || db_takes(db->path) < 0)
        goto failed;
    if (connect(db, db->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) < 0
        || db_value(db, "SELECT count(*) FROM sqlite_schema", &count) < 0)
        goto unopened;
    /* SQLite opens for reading what it may not write, and says so only here. */
    if (sqlite3_db_readonly(db->sql, "main") == 1) {
        db->rc = SQLITE_READONLY;
        goto unopened;
    }
    if (schema_upgrade(db, &schema_now) < 0)
        goto failed;
    if (choose_journal(db) == 0)
        return db;
unopened:
    db_fail(db, "opening the database");
failed:
    db_blame(db);
    db_close(db);
    return NULL;
}

struct db *db_open_memory(void)
{
    struct db *db = db_new("memory");

    exit_status = FINE;
    if (!db)
        return NULL;
    if (connect(db, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MEMORY) == 0 &&
        schema_upgrade(db, &schema_now) == 0)
        return db;
    db_fail(db, "a database in memory");
    db_blame(db);
    db_close(db);
    return NULL;
}

/* A path as a URI that promises that the file is not written. */
static void immutable_uri(const char *path, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "file:");

    for (; *path && n + 32 < size; path++)
        n += (size_t)snprintf(to + n, size - n, strchr("?#%", *path) ? "%%%02X" : "%c",
                              (unsigned char)*path);
    snprintf(to + n, size - n, "?immutable=1");
}

/* On media that cannot be written, a database in write-ahead mode can be read only if it
 * is taken as unchanging; which it is unless its log holds something. */
static int connect_unchanging(struct db *db)
{
    char name[3 * sizeof db->path], log[sizeof db->path + 8];
    struct stat s;

    snprintf(log, sizeof log, "%s-wal", db->path);
    if (stat(log, &s) == 0 && s.st_size > 0)
        return -1;
    sqlite3_close(db->sql);
    immutable_uri(db->path, name, sizeof name);
    return connect(db, name, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
}

static int connect_reader(struct db *db)
{
    int64_t count;

    if (connect(db, db->path, SQLITE_OPEN_READONLY) == 0
        && db_value(db, "SELECT count(*) FROM sqlite_schema", &count) == 0)
        return 0;
    if ((db->rc & 0xff) != SQLITE_CANTOPEN && (db->rc & 0xff) != SQLITE_READONLY)
        return -1;
    if (access(db->path, R_OK) < 0)
        return -1;
    return connect_unchanging(db) < 0
        || db_value(db, "SELECT count(*) FROM sqlite_schema", &count) < 0 ? -1 : 0;
}

/* Whether it has an older schema of ours, and may be written. */
static bool can_be_upgraded(struct db *db)
{
    int64_t application, version;

    if (db_value(db, "PRAGMA application_id", &application) < 0 || db_value(db, "PRAGMA user_version", &version) < 0
        || application != SCHEMA_APPLICATION || version < 1 || version >= schema_now.version)
        return false;
    return !db_read_only(db);
}

/* A reader cannot bring an older file up to date: a writer does, once. */
static int upgrade_first(struct db *db)
{
    struct db *writer = db_open(db->path);

    if (!writer)
        return -1;
    db_close(writer);
    sqlite3_close(db->sql);
    db->sql = NULL;
    return connect_reader(db) < 0 ? db_fail(db, "opening the database to read it") : 0;
}

struct db *db_open_reader(const char *path)
{
    struct db *db = db_new(path);

    if (!db) {
        db_blame(NULL);
        return NULL;
    }
    db->reader = true;
    exit_status = FINE;
    if (access(db->path, F_OK) < 0 && errno == ENOENT)
        fail("%s: No such file or directory: `dpxcal run` makes a database, --db names another", db->path);
    else if (db_takes(db->path) == 0) {
        if (connect_reader(db) < 0)
            db_fail(db, "opening the database to read it");
        else if ((!can_be_upgraded(db) || upgrade_first(db) == 0) && schema_upgrade(db, &schema_now) == 0)
            return db;
    }
    if (exit_status == FINE)            /* else as the opening for an upgrade left it */
        db_blame(db);
    db_close(db);
    return NULL;
}

void db_close(struct db *db)
{
    if (!db)
        return;
    sqlite3_close(db->sql);
    free(db);
}

const char *db_path(const struct db *db)
{
    return db->path;
}

const char *db_note(const struct db *db)
{
    return db->note;
}
