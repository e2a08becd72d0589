/* commands.h -- the commands of dpxplan; each returns the exit status. */
#ifndef DPX_COMMANDS_H
#define DPX_COMMANDS_H

#include <jansson.h>

#include "base/dtype.h"
#include "model/cluster/cluster.h"
#include "model/schedule/schedule.h"

int cmd_fit(int argc, char **argv);
int cmd_search(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_init(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_limits(int argc, char **argv);
int cmd_estimators(int argc, char **argv);
int cmd_import(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_admit(int argc, char **argv);
int cmd_bill(int argc, char **argv);
int cmd_phases(int argc, char **argv);
int cmd_collectives(int argc, char **argv);
int cmd_mcp(int argc, char **argv);
int cmd_schema(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_serve(int argc, char **argv);   /* dpxplan_serve.c */

/* Writes plan.json beside `path` and renames, so that a failure leaves what was
 * there; NULL: standard output.  0, or -1 reported. */
struct plan;
/* The manual page's entry for the i-th key of plan.json; false after the last. */
bool list_plan_key_entry(int i, const char **name, const char **text);

int convert_write_plan(const struct plan *p, const char *path);

/* What was measured on a cluster's machines, from this database or (NULL) the usual one, into c->measured; what was
 * there before is not given back.  What comes with dpx counts for its own kernels alone, and is opened for no others.  1 found, 0 not (c->measured is NULL), -1 reported.
 * dpxplan_measured.c. */
int  measured_load(const char *db, enum dtype precision, enum kernel_set kernels, struct cluster *c);
/* Gives it back and sets c->measured to NULL; copies of the cluster must not use it any more. */
void measured_unload(struct cluster *c);
/* The exit status after measured_load() gave -1 in this thread: whether the file or the machine is at fault. */
int  measured_status(void);

/* dpxplan explain --run: a run of this database (NULL: the usual one) beside its prediction; the exit status.  dpxplan_run.c. */
int  explain_run(const char *db, int64_t id, bool json);

/* Exit statuses. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_MISUSE = 2, EXIT_NO = 3 };

/* Prints one JSON document on stdout, an answer with the program's version, gives the reference back, and returns
 * `status`, or EXIT_FAILED when stdout cannot be written. */
int dpxplan_print_json(json_t *doc, int status);

#endif
