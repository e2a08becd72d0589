/* experts_check.c -- see experts_check.h. */
#include "model/plan/experts_check.h"

#include "base/fail.h"

int experts_check(const struct plan *p, const char *where)
{
    if (p->model.experts)
        return fail("%s: model: %s is a mixture of experts: it is read and counted, but not planned yet", where, p->model.family);
    return 0;
}
