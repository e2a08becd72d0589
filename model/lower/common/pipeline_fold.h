/* pipeline_fold.h -- the list of a pipeline's rank with what it does again and again written once.
 *
 *     struct pipeline p = { PIPELINE_1F1B, .ranks = 4, .rank = 1, .chunks = 1, .steps = 10000 };
 *     struct pipeline_fold f;
 *     pipeline_folded(&p, PIPE_OWN_LOOP, &f);
 *     ... f.acts.act[0 .. f.acts.n), of which f.repeat[i] has [from, from + len) n times ...
 *     pipeline_fold_free(&f);
 *
 * Every order has a warm-up, a body and a cool-down; GPipe has a body of forwards and one of backwards.  The list is made for two
 * small numbers of micro-steps, a period apart.  They differ in how often a body comes, and in the micro-steps behind it: so does the list
 * for any number.  Where two such lists do not show that, the whole list is made.  test_pipeline_fold.c unfolds them. */
#ifndef DPX_PIPELINE_FOLD_H
#define DPX_PIPELINE_FOLD_H

#include "model/lower/common/pipeline_comm.h"

/* SEND_F, RECV_F, SEND_B, RECV_B. */
enum { PIPE_WAYS = PIPE_RECV_B - PIPE_SEND_F + 1 };

/* Acts [from, from + len), n times: each time `by` micro-steps further on.  Its last time has no chunk's last backward. */
struct pipeline_repeat { int from, len, n, by; };

struct pipeline_fold {
    struct pipeline_acts    acts;       /* bodies once */
    struct pipeline_repeat *repeat;     /* by `from` */
    int nrepeats;
    int under_way[PIPE_WAYS];           /* by direction: messages of a chunk that are under way at a time lie within so many micro-steps */
};

/* The list of rank p->rank. */
void pipeline_folded(const struct pipeline *p, enum pipeline_code code, struct pipeline_fold *out);
/* The same, each act by itself. */
void pipeline_unfolded(const struct pipeline *p, enum pipeline_code code, struct pipeline_fold *out);
void pipeline_fold_free(struct pipeline_fold *f);

/* Act i of its list in iteration k of the repeat that it is in. */
struct pipeline_act pipeline_fold_act(const struct pipeline_fold *f, int i, const struct pipeline_repeat *r, int k);

#endif
