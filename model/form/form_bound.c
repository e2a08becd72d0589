/* form_bound.c -- see form_bound.h. */
#include "model/form/form_bound.h"

#include "base/fail.h"
#include "base/size.h"
#include "model/memory/evaluate.h"

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
