/* results.h -- predictions beside what was published, whatever they are of: one table by framework, kind and GPU, and which of
 * several plans for the same work is chosen.
 *
 *     struct results all = { 0 };
 *     struct result *r = results_add(&all, "llm-foundry, FSDP1, h100");
 *     r->published_s = 1.2; ...
 *     results_print(&all);
 *
 * Seconds are of anything that is the same for all rows of a problem: a step, or a token of each GPU. */
#ifndef DPX_RESULTS_H
#define DPX_RESULTS_H

#include <stdbool.h>

struct result {
    char   kind[64];                    /* framework, kind, GPU */
    char   why[96];                     /* why there is no prediction, else "" */
    int    problem;                     /* rows of one number are plans for the same work; 0: of none */
    double published_s, predicted_s, low_s, high_s;
    double guess_s;                     /* by one median MFU; 0: there is none */
    bool   refused;                     /* said not to fit, though it ran */
};

enum { RESULTS_MOST = 1024 };
struct results { struct result row[RESULTS_MOST]; int n, problems; };

/* The next row, of zeroes but for its kind. */
struct result *results_add(struct results *all, const char *kind);

struct results_choice {
    int    problems, best;              /* with two plans or more; in how many the one predicted to be the fastest was */
    double regret, worst;               /* of the plan chosen: published time over that of the fastest, less 1; mean and largest */
};
/* Of all rows, or of a kind's.  One plan published several times counts once, by its mean: what is predicted the same to the last
 * digit is one plan. */
struct results_choice results_choose(const struct results *all, const char *kind);

/* Both tables. */
void results_print(const struct results *all);

#endif
