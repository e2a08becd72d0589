/* kineto.c -- the command: a trace and perhaps a plan are read, and what they say is printed as a table, as JSON or both. */
#include "reports/kineto/kineto.h"

#include "base/fail.h"
#include "calib/store/db.h"
#include "reports/kineto/kineto_print.h"

enum { DONE = 0, FAILED = 1, MISUSE = 2 };

static int write_json(json_t *doc, FILE *to)
{
    size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(17);
    bool written = doc && json_dumpf(doc, to, flags) == 0 && fputc('\n', to) != EOF;

    json_decref(doc);
    return written ? 0 : fail("cannot write the comparison");
}

int kineto_cmd(const char *trace, const char *plan, const char *db, FILE *table, FILE *json)
{
    struct kineto_plan p;
    struct kineto k;
    int rc = 0;

    if (kineto_load(trace, &k) < 0)
        return MISUSE;
    if (plan && kineto_plan_load(plan, db, &k.info, &p) < 0) {
        kineto_free(&k);
        return db_exit_status() == FAILED ? FAILED : MISUSE;
    }
    if (json)
        rc = write_json(kineto_json(trace, &k, plan ? &p : NULL), json);
    if (table)
        kineto_print(trace, &k, plan ? &p : NULL, table);
    kineto_free(&k);
    return rc < 0 ? FAILED : DONE;
}
