/* belongs.c -- the name whose calibrations a cluster gets. */
#include "calib/store/belongs.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/notes.h"
#include "base/printable.h"
#include "calib/store/query.h"

/* Names of one GPU's or of hosts' calibrations. */
struct names { const char **name; int n; bool own; struct texts *texts; };

/* own: this host measured one itself; of another processor it is not this host any more. */
static int read_names(struct db *db, const struct cluster *c, struct names *out)
{
    char here[BELONGS_NAME] = "";
    struct cluster host = { 0 };
    struct query q;

    if (!db)
        return 0;
    if (c->is_host && cluster_of_host(&host, 1) < 0)
        return -1;
    gethostname(here, sizeof here - 1);
    query_open(&q, db, "SELECT m.host, max(m.host = ?2 AND c.source = 'dpxcal' AND (?3 IS NULL OR m.cpu = ?3))"
                       " FROM machine m JOIN calibration c ON c.machine = m.id WHERE m.device = ?1 GROUP BY m.host ORDER BY m.host");
    query_put_text(&q, c->is_host ? "cpu" : c->gpu.name);
    query_put_text(&q, here);
    query_put_text(&q, c->is_host ? host.gpu.title : NULL);
    while (query_row(&q)) {
        out->name = query_array_grow(out->name, out->n, sizeof *out->name);
        out->name[out->n++] = query_get_shown(&q, &out->texts);
        out->own |= query_get_int(&q) != 0;
    }
    return query_close(&q) < 0 ? db_fail(db, "looking for calibrations") : 0;
}

static bool has(const struct names *n, const char *name)
{
    for (int i = 0; i < n->n; i++)
        if (!strcmp(n->name[i], name))
            return true;
    return false;
}

/* "atlas, borg and 3 more" */
static const char *list(const struct names *n, char to[256])
{
    enum { SHOWN = 6 };
    size_t at = 0;

    to[0] = '\0';
    for (int i = 0; i < n->n && i < SHOWN; i++)
        at += (size_t)snprintf(to + at, 256 - at, "%s%.30s", i == 0 ? "" : i + 1 == n->n ? " and " : ", ", n->name[i]);
    if (n->n > SHOWN)
        snprintf(to + at, 256 - at, " and %d more", n->n - SHOWN);
    return to;
}

static const char *type_of(const struct cluster *c) { return c->is_host ? "hosts" : c->gpu.name; }

static const char *path_of(struct db *db) { return db ? db_path(db) : "the usual database, which is not there"; }

static int take(const char *name, char to[BELONGS_NAME])
{
    snprintf(to, BELONGS_NAME, "%s", name);
    return 1;
}

/* What "calibration" picks. */
static int named(struct db *db, const struct cluster *c, const struct names *n, char name[BELONGS_NAME], char *why, size_t size)
{
    char all[256];

    if (!strcmp(c->calibration, CLUSTER_UNCALIBRATED))
        return 0;
    if (has(n, c->calibration))
        return take(c->calibration, name);
    snprintf(why, size, "calibration \"%s\": none of this name for %s in %s%s%s", c->calibration, type_of(c), path_of(db),
             n->n > 0 ? "; there are " : "", list(n, all));
    return BELONGS_REFUSED;
}

static int which_of(const struct cluster *c, const struct names *n, char *why, size_t size)
{
    char all[256];

    snprintf(why, size, "calibrations of %s: %s could be meant: say which, as in \"%s@%.60s\" or \"calibration\": \"%.60s\" in the "
             "cluster, or \"%s\"", type_of(c), list(n, all), c->name, n->name[0], n->name[0], CLUSTER_UNCALIBRATED);
    return BELONGS_REFUSED;
}

static int unused(const struct cluster *c, const struct names *n)
{
    char all[256], how[192];

    if (n->n == 0)
        return 0;
    if (cluster_has_own_name(c))
        snprintf(how, sizeof how, "\"calibration\": \"%.60s\" in it", n->name[0]);
    else
        snprintf(how, sizeof how, "\"%s@%.60s\"", c->name, n->name[0]);
    notes_say_once("note: calibrations of %s that are not used, since cluster %s does not name them: %s; %s would", type_of(c),
                   c->name, list(n, all), how);
    return 0;
}

/* A cluster that does not say.  This host's ranks are this host's; a name of its own is the name; a type of GPU alone
 * means what was measured here, or what was imported without a name. */
static int unnamed(const struct cluster *c, const struct names *n, char name[BELONGS_NAME], char *why, size_t size)
{
    char here[BELONGS_NAME] = "";
    bool of_type = !cluster_has_own_name(c), imported = of_type && !c->is_host && has(n, BELONGS_IMPORTED);

    gethostname(here, sizeof here - 1);
    if (has(n, c->name))
        return take(c->name, name);
    if (c->is_host || (of_type && n->own && !imported))
        return n->own ? take(here, name) : unused(c, n);
    if (imported && !n->own)
        return take(BELONGS_IMPORTED, name);
    if (imported) {
        const char *two[] = { here, BELONGS_IMPORTED };
        return which_of(c, &(struct names){ .name = two, .n = 2 }, why, size);
    }
    return of_type && n->n > 1 ? which_of(c, n, why, size) : unused(c, n);
}

int belongs_to(struct db *db, const struct cluster *c, char name[BELONGS_NAME], char *why, size_t size)
{
    struct names n = { 0 };
    int rc = read_names(db, c, &n);

    if (rc == 0)
        rc = c->calibration[0] ? named(db, c, &n, name, why, size) : unnamed(c, &n, name, why, size);
    free(n.name);
    query_texts_free(n.texts);
    return rc;
}

int belongs_name_ok(const char *name)
{
    struct cluster c;

    if (!name[0] || !printable(name) || strchr(name, '@') || strlen(name) >= sizeof c.calibration)
        return fail("--cluster '%.40s': a name of 1 to %zu printable characters without @", printable(name) ? name : "?",
                    sizeof c.calibration - 1);
    if (!strcmp(name, CLUSTER_UNCALIBRATED))
        return fail("--cluster %s: \"calibration\": \"%s\" stands for none: choose another name", name, name);
    return 0;
}
