/* report_sweep.h -- a sweep in the report: its figures, its table, a sentence.
 *
 *     struct report_sweep *s = report_sweep_read("sweep.json");       (what dpxplan sweep --json printed)
 *     report_make(NULL, s, &r);
 *     ...
 *     report_sweep_free(s);
 *
 * Every figure is what the file says; nothing is predicted again. */
#ifndef DPX_REPORT_SWEEP_H
#define DPX_REPORT_SWEEP_H

struct json_t;
struct report;
struct report_sweep;

/* NULL, with the file and the place in it reported, where it is not such a document. */
struct report_sweep *report_sweep_read(const char *path);
/* The same of a document at hand, which it takes over; `name` is for messages. */
struct report_sweep *report_sweep_from(struct json_t *doc, const char *name);
void                 report_sweep_free(struct report_sweep *s);    /* accepts NULL */
const char          *report_sweep_path(const struct report_sweep *s);

/* The parts of a report. */
struct table *report_sweep_table(const struct report_sweep *s);
void report_sweep_figures(struct report *r, const struct report_sweep *s);
void report_sweep_words(struct report *r, const struct report_sweep *s);

#endif
