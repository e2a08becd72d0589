/* schema.h -- the tables, and how an older database gets them.  Only calib/ includes it. */
#ifndef DPX_SCHEMA_H
#define DPX_SCHEMA_H

#include "calib/store/query.h"

/* Marks the file as ours, in its header: "dpx1". */
enum { SCHEMA_APPLICATION = 0x64707831 };

/* A schema's version is how many steps led to it: steps[v] leads from version v to v+1.  `after`,
 * if there is one, does the rest in the same transaction: 0, or -1 unreported. */
struct schema { const char *const *steps; int version; int (*after)(struct db *db, int64_t from); };
extern const struct schema schema_now;

/* Refuses another program's database and a schema newer than `want`; otherwise brings it up to
 * `want`, all steps in one transaction (a reader, which cannot, needs it to be there).
 * 0, or -1 with the reason reported and the file as it was. */
int schema_upgrade(struct db *db, const struct schema *want);

#endif
