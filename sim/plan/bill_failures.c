/* bill_failures.c -- see bill_failures.h. */
#include "sim/plan/bill_failures.h"

#include <stdio.h>
#include <string.h>

#include "base/duration.h"
#include "base/fail.h"

static int named(bool asked, const char *text, struct failures *out)
{
    char names[200] = "";

    if ((out->published = failure_rate_find(text))) {
        out->all_s = failure_rate_mtbf(out->published);
        return 0;
    }
    for (int i = 0; failure_rate_at(i); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", failure_rate_at(i)->name);
    if (!asked)
        return fail("the cluster's failures.rate: \"%.40s\" is not a published rate (%s); \"gpu_hours\" has one of its own", text, names);
    return fail("--mtbf: \"%.40s\" is neither a published rate (%s) nor a time such as 50000h", text, names);
}

/* "node=20000h" */
static int one_cause(const char *item, struct failures *out)
{
    const struct { const char *name; double *s; } causes[] = { { "gpu=", &out->gpu_s }, { "node=", &out->node_s }, { "network=", &out->network_s } };

    for (int i = 0; i < 3; i++)
        if (strncmp(item, causes[i].name, strlen(causes[i].name)) == 0) {
            if (*causes[i].s > 0)
                return fail("--mtbf: %.*s is there twice", (int)strlen(causes[i].name) - 1, causes[i].name);
            return duration_parse("--mtbf", item + strlen(causes[i].name), causes[i].s);
        }
    return fail("--mtbf: \"%.40s\" is not a cause with its time; write gpu=60000h,node=20000h,network=2000h, or some of them", item);
}

static int by_cause(const char *text, struct failures *out)
{
    char all[200], *item = all, *next;

    if (strlen(text) >= sizeof all)
        return fail("--mtbf: \"%.40s...\" is too long", text);
    memcpy(all, text, strlen(text) + 1);
    for (; item; item = next) {
        if ((next = strchr(item, ',')))
            *next++ = '\0';
        if (one_cause(item, out) < 0)
            return -1;
    }
    return 0;
}

int bill_failures(const char *mtbf, const struct cluster_runs *stated, struct failures *out)
{
    bool alone = !(stated->node_mtbf > 0) && !(stated->network_mtbf > 0);

    *out = (struct failures){ 0 };
    if (mtbf && strchr(mtbf, '='))
        return by_cause(mtbf, out);
    if (mtbf && strspn(mtbf, " 0123456789.") > 0)
        return duration_parse("--mtbf", mtbf, &out->all_s);
    if (mtbf || stated->rate[0])
        return named(mtbf != NULL, mtbf ? mtbf : stated->rate, out);
    *out = (struct failures){ .all_s = alone ? stated->mtbf : 0, .gpu_s = alone ? 0 : stated->mtbf, .node_s = stated->node_mtbf,
                              .network_s = stated->network_mtbf };
    return 0;
}
