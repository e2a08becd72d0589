/* modelled.c -- see modelled.h. */
#include "model/plan/modelled.h"

#include "base/version.h"
#include "model/plan/framework.h"

json_t *modelled_versions(void)
{
    json_t *all = json_object();

    for (int d = 0; d < NDIALECT; d++) {
        const struct framework_tool *tool = framework_tool((enum dialect)d);
        if (tool->nversions > 0)
            json_object_set_new(all, tool->name, json_string(tool->versions[tool->usual].version));
    }
    return all;
}

void modelled_add(json_t *answer)
{
    json_object_set_new(answer, "version", json_string(version_text()));
    json_object_set_new(answer, "frameworks", modelled_versions());
}
