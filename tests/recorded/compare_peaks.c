/* compare_peaks.c -- the steady step's peak of plans beside what PyTorch's trackers count (zoo_peaks.py, ../golden/module/record_peaks.py).
 *
 *     compare_peaks PEAKS.jsonl
 *
 * A line for each step, and a sum.  Exit status 1: a peak differs by more than 1e-4, or is refused; 2: the file cannot be read. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/lower/lower.h"
#include "model/schedule/ledger.h"

#define WITHIN 1e-4

enum outcome { EQUAL, DIFFERS, REFUSED, NO_WITNESS, NOUTCOMES };

static void print_categories(const struct peak *peak, const struct schedules *s, const json_t *steady)
{
    char *theirs = json_dumps(json_object_get(steady, "peak_by_category"), JSON_COMPACT);

    printf("    at %s:", s->ops[peak->op].what);
    for (int c = 0; c < NCAT; c++)
        if (peak->by[c])
            printf(" %s %" PRId64, category_name((enum category)c), peak->by[c]);
    printf("\n    the tracker: %s\n", theirs ? theirs : "?");
    free(theirs);
}

static enum outcome compare(const char *name, const struct schedules *s, const json_t *steady)
{
    static struct ledger l;
    int64_t want = json_integer_value(json_object_get(steady, "peak_total"));

    ledger_run(s, &l);
    int64_t got = l.phase[SCHED_STEADY].bytes;
    double off = want > 0 ? (double)(got - want) / (double)want : INFINITY;
    bool equal = fabs(off) <= WITHIN;
    printf("%-24s %-7s %" PRId64 " bytes, the tracker %" PRId64 " (%+" PRId64 ", %+.4f %%)\n", name, equal ? "equal" : "DIFFERS", got, want, got - want, 100 * off);
    if (!equal)
        print_categories(&l.phase[SCHED_STEADY], s, steady);
    return equal ? EQUAL : DIFFERS;
}

static enum outcome one(json_t *line, const json_t *models)
{
    json_t *plan = json_object_get(line, "plan");
    const char *name = json_string_value(json_object_get(line, "name")), *failed = json_string_value(json_object_get(line, "failed"));
    struct schedules s = { 0 };
    struct plan p = { 0 };
    char said[2000] = "";
    enum outcome out = REFUSED;

    if (failed || !plan || !name) {
        printf("%-24s the tracker fails: %s\n", name ? name : "?", failed ? failed : "no plan");
        return NO_WITNESS;
    }
    json_object_set(plan, "model", json_object_get(models, json_string_value(json_object_get(plan, "model"))));
    fail_capture(said, sizeof said);
    int rc = plan_from_json(plan, name, &p) < 0 || lower(&p, 0, &s) < 0 ? -1 : 0;
    fail_capture(NULL, 0);
    if (rc == 0)
        out = compare(name, &s, json_object_get(line, "steady"));
    else
        printf("%-24s refused: %s\n", name, said);
    schedules_free(&s);
    plan_free(&p);
    return out;
}

int main(int argc, char **argv)
{
    static char text[1 << 20];
    int n[NOUTCOMES] = { 0 };
    FILE *f = argc == 2 ? fopen(argv[1], "r") : NULL;
    json_t *head = f && fgets(text, sizeof text, f) ? json_loads(text, 0, NULL) : NULL;

    if (!head) {
        fprintf(stderr, "usage: compare_peaks PEAKS.jsonl, as zoo_peaks.py writes it\n");
        return 2;
    }
    while (fgets(text, sizeof text, f)) {
        json_t *line = json_loads(text, 0, NULL);
        n[line ? one(line, json_object_get(head, "models")) : NO_WITNESS]++;
        json_decref(line);
    }
    fclose(f);
    json_decref(head);
    printf("peaks: %d equal within 0.01 %%, %d differ, %d refused; the tracker failed in %d\n", n[EQUAL], n[DIFFERS], n[REFUSED], n[NO_WITNESS]);
    return n[DIFFERS] + n[REFUSED] > 0;
}
