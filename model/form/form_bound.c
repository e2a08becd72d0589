/* form_bound.c -- see form_bound.h. */
#include "model/form/form_bound.h"

#include "base/fail.h"
#include "base/size.h"
#include "model/memory/evaluate.h"
#include "model/program/program.h"

int form_bound(const struct form_file *f, const struct plan *p, double bytes, const char *what, struct notes *notes)
{
    notes_add(notes, "%s: up to %.3g GB more on a GPU than planned", what, bytes / 1e9);
    return form_bound_holds(f, p, bytes, what);
}

int form_bound_holds(const struct form_file *f, const struct plan *p, double bytes, const char *what)
{
    struct evaluation e;
    char ignored[512];
    int rc = 0;

    struct fail_sink before = fail_divert(ignored, sizeof ignored);
    int known = evaluate(p, &e);
    fail_restore(before);
    if (known < 0)
        return 0;
    if (e.m.fits && (double)e.m.needed + bytes > (double)e.m.available)
        rc = fail("%s: %s: up to %.3g GB more than the plan's %s, which fits %s without them: whether it fits is not known", f->path, what,
                  bytes / 1e9, size_text(e.m.needed).s, size_text(e.m.available).s);
    evaluation_free(&e);
    return rc;
}

/* What a block saves of a plan of so many positions without recompute; -1: it is not known. */
static double block_saves(const struct plan *p, int64_t seq)
{
    struct plan q = *p;
    struct program g = { 0 };
    char ignored[512];
    double saved = -1;

    q.seq = seq;
    q.recompute = RECOMPUTE_NONE;
    struct fail_sink before = fail_divert(ignored, sizeof ignored);
    if (program_build(&q, &g) == 0)
        saved = (double)g.piece[PIECE_BLOCK].saved;
    fail_restore(before);
    program_free(&g);
    return saved;
}

/* a S + b S^2 of S, and of 2 S. */
double form_scores(const struct plan *p)
{
    double once = block_saves(p, p->seq), twice = block_saves(p, 2 * p->seq), blocks = p->recompute == RECOMPUTE_NONE ? (double)p->model.layers / (double)p->parallel.pipeline : 1;

    return p->kernels != KERNELS_TORCH_EAGER || once < 0 || twice < 0 ? 0 : blocks * (twice - 2 * once) / 2;
}
