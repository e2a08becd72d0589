/* ds_imported.h -- a ds_config.json as a test writes it, into a plan. */
#ifndef DPX_DS_IMPORTED_H
#define DPX_DS_IMPORTED_H

#include "tests/check.h"
#include "model/exchange/ds_config.h"

/* What ds_config_import() returns. */
static inline int ds_imported(struct plan *p, const char *config)
{
    json_t *j = json_loads(config, 0, NULL);

    assert_non_null(j);
    int rc = ds_config_import(j, "ds.json", p);
    json_decref(j);
    return rc;
}

#endif
