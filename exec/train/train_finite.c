/* train_finite.c -- the loss and the norm of each step are looked at; the first tensor that is not finite is named. */
#include "exec/train/train_finite.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/room.h"

/* What each rank found; kinds in the order in which they count. */
enum { FOUND_WEIGHTS, FOUND_GRADIENT, FOUND_LOSS, FOUND_NOTHING };
struct found { int64_t kind, tensor, element, loss; };

bool train_diverged(const struct train_report *all)
{
    /* A schedule that takes no norm has NaN there. */
    return !isfinite(all->loss) || (all->norm_taken && !all->skipped && !isfinite(all->grad_norm));
}

static bool is_before(const struct found *a, const struct found *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind;
    if (a->kind > FOUND_GRADIENT || a->tensor == b->tensor)
        return false;                   /* the lowest rank */
    return a->kind == FOUND_WEIGHTS ? a->tensor < b->tensor : a->tensor > b->tensor;
}

static struct found of_this_rank(const struct exec_step *s)
{
    bool loss = !isfinite(s->loss_sum);

    if (s->bad.found)
        return (struct found){ s->bad.weights ? FOUND_WEIGHTS : FOUND_GRADIENT, s->bad.tensor, s->bad.element, loss };
    return (struct found){ loss ? FOUND_LOSS : FOUND_NOTHING, 0, 0, loss };
}

static const char *kind_of(double v) { return isnan(v) ? "NaN" : "infinite"; }

static int report(const struct model *m, const struct found *f, int rank, int lossy, const struct train_report *all)
{
    char what[96], whose[32] = "", where[192] = "";

    if (lossy >= 0)
        snprintf(whose, sizeof whose, " (rank %d's samples)", lossy);
    if (!isfinite(all->loss))
        snprintf(what, sizeof what, "the loss is %s%s", kind_of(all->loss), whose);
    else
        snprintf(what, sizeof what, "the gradient norm is %s", kind_of(all->grad_norm));
    if (f->kind == FOUND_WEIGHTS)
        snprintf(where, sizeof where, ": not finite before its update: weights of %s (element %" PRId64 ", rank %d)",
                 m->tensors[f->tensor].name, f->element, rank);
    else if (f->kind == FOUND_GRADIENT)
        snprintf(where, sizeof where, ": first in backward: the gradient of %s (element %" PRId64 ", rank %d)",
                 m->tensors[f->tensor].name, f->element, rank);
    return fail("step %" PRId64 ": %s%s; --no-check-for-nan goes on regardless", all->step, what, where);
}

int train_say_divergence(MPI_Comm control, const struct model *m, const struct exec_step *mine,
                         const struct train_report *all)
{
    struct found my = of_this_rank(mine), *of;
    int rank, world, first = 0, lossy = -1, rc = 0;

    MPI_Comm_rank(control, &rank);
    MPI_Comm_size(control, &world);
    of = room_new((size_t)world, sizeof *of);
    if (MPI_Allgather(&my, 4, MPI_INT64_T, of, 4, MPI_INT64_T, control) != MPI_SUCCESS)
        rc = fail("step %" PRId64 ": the loss is %s", all->step, kind_of(all->loss));
    for (int r = world - 1; r >= 0 && rc == 0; r--)
        lossy = of[r].loss ? r : lossy;
    for (int r = 1; r < world && rc == 0; r++)
        first = is_before(&of[r], &of[first]) ? r : first;
    if (rc == 0 && rank == first)
        rc = report(m, &of[first], rank, lossy, all);
    free(of);
    return rc;
}
