/* report_plans.h -- plans in the report, without a run: what dpxplan eval, explain and search print as JSON.
 *
 *     struct report_plans *p = report_plans_read("answer.json");
 *     report_make(NULL, NULL, p, &r);
 *     ...
 *     report_plans_free(p);
 *
 * Every figure is what the file says; nothing is predicted again.  With what explain --json --detail wrote there are memory over
 * the step and the step itself, stream by stream. */
#ifndef DPX_REPORT_PLANS_H
#define DPX_REPORT_PLANS_H

struct report;
struct report_plans;

/* NULL, with the file and the place in it reported, where it is not such a document. */
struct report_plans *report_plans_read(const char *path);
void                 report_plans_free(struct report_plans *p);    /* accepts NULL */
const char          *report_plans_path(const struct report_plans *p);

/* Its tables, figures and sentences. */
void report_plans_into(struct report *r, const struct report_plans *p);

/* ---- the figures of one step, for report_plans.c ---- */

struct json_t;
/* `step`: explain's "step"; bytes under the categories' and a line at `limit` bytes. */
void report_step_figures(struct report *r, const struct json_t *step, double overhead, double limit);

#endif
