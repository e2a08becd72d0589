/* kineto.c -- the command: a trace and perhaps a plan are read, and what they say is printed as a table, as JSON or both. */
#include "reports/kineto/kineto.h"

#include "base/fail.h"
#include "calib/store/db.h"
#include "reports/kineto/kineto_print.h"

enum { DONE = 0, FAILED = 1, MISUSE = 2 };

int kineto_cmd(const char *trace, const char *plan, const char *db, FILE *table, json_t **doc)
{
    struct kineto_plan p;
    struct kineto k;

    if (kineto_load(trace, &k) < 0)
        return MISUSE;
    if (plan && kineto_plan_load(plan, db, &k.info, &p) < 0) {
        kineto_free(&k);
        return db_exit_status() == FAILED ? FAILED : MISUSE;
    }
    if (doc)
        *doc = kineto_json(trace, &k, plan ? &p : NULL);
    if (table)
        kineto_print(trace, &k, plan ? &p : NULL, table);
    kineto_free(&k);
    return DONE;
}
