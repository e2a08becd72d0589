/* search_asked.c -- data parallelism alone, grids, or both, as the search was asked. */
#include "sim/search/search.h"

#include "base/fail.h"
#include "sim/search/grid.h"

/* Where nothing fits and the nearest in device memory is asked for, data parallelism is searched once more; grids are looked at once. */
static int search_alone(struct search_options *o, struct search_result *out)
{
    int rc = search_data(o, out);

    if (rc < 0 || !o->nearest_in_place || out->nfit > 0 || out->partial)
        return rc;
    search_free(out);
    o->answer_only = false;
    o->in_place = true;
    return search_data(o, out);
}

int search(const struct search_options *asked, struct search_result *out)
{
    struct search_options here = *asked, *o = &here;
    char why[256];
    int rc;

    if (o->grid == GRID_ONLY)
        return grid_search(o, out);
    if (o->grid == GRID_NONE)
        return search_alone(o, out);
    struct fail_sink before = fail_divert(why, sizeof why);
    rc = search_alone(o, out);
    fail_restore(before);
    if (out->stopped)
        return fail("%s", why);
    if (out->partial)
        return 0;
    if (rc < 0 || out->nfit == 0)
        return grid_search_next(o, rc, why, out);
    return o->grid == GRID_BESIDE ? grid_search_beside(o, out) : 0;
}
