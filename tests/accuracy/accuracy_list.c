/* accuracy_list.c -- see accuracy_list.h. */
#include "tests/accuracy/accuracy_list.h"

#include <stdio.h>

#include "base/fail.h"
#include "model/lower/lower.h"
#include "model/plan/can_run.h"
#include "tests/accuracy/accuracy_models.h"

void accuracy_offer(struct accuracy_draw *d, const struct plan *p, uint64_t *state)
{
    char why[512];
    struct fail_sink before = fail_divert(why, sizeof why);
    bool runs = plan_check(p, "plan") == 0 && lower_check(p) == 0 && can_run(p) == 0;

    fail_restore(before);
    if (runs && draw(state) % (uint64_t)++d->met == 0)
        d->plan = *p;
}

static bool known(const json_t *seen, const json_t *doc)
{
    for (size_t i = 0; i < json_array_size(seen); i++)
        if (json_equal(json_array_get(seen, i), doc))
            return true;
    return false;
}

int accuracy_list_add(struct accuracy_list *l, const char *group, const char *what, const struct plan *p)
{
    json_t *doc = plan_to_json(p);
    char path[4096];
    int rc = 0;

    if (!doc || json_object_set_new(doc, "cluster", json_string(l->cluster)) < 0)
        rc = fail("no memory for a plan");
    else if (!known(l->seen, doc)) {
        snprintf(path, sizeof path, "%s/%03d.json", l->dir, l->number);
        rc = json_dump_file(doc, path, JSON_INDENT(1)) < 0 ? fail("%s: cannot write", path) : 1;
    }
    if (rc == 1) {
        json_array_append(l->seen, doc);
        printf("%03d\t%s\t%s\n", l->number++, group, what);
    }
    json_decref(doc);
    return rc;
}
