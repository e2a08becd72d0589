/* belongs.h -- whose calibration a plan's cluster gets: at most one name's.
 *
 *     char name[BELONGS_NAME], why[512];
 *     int found = belongs_to(db, &cluster, name, why, sizeof why);
 *     ... found > 0: calibrations of the machines that are called `name` ...
 *
 * A calibration belongs to the cluster that was named when it was imported, or to the host that measured it:
 * machine.host.  calib/README.md says in five lines which one a cluster gets. */
#ifndef DPX_BELONGS_H
#define DPX_BELONGS_H

#include <stddef.h>

#include "calib/store/db.h"
#include "model/cluster/cluster.h"

/* What an import without --cluster belongs to. */
#define BELONGS_IMPORTED "imported"

enum { BELONGS_NAME = 256, BELONGS_REFUSED = -2 };

/* db NULL: there is none.  1: *name; 0: none, which a line on stderr says where the database has some of this
 * GPU or processor; -1: a fault of the database, reported; BELONGS_REFUSED: the cluster must say which one,
 * and `why` has the reason, not reported. */
int belongs_to(struct db *db, const struct cluster *c, char name[BELONGS_NAME], char *why, size_t size);

/* Can a calibration have this name?  0, or -1 reported. */
int belongs_name_ok(const char *name);

#endif
