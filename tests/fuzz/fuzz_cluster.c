/* JSON where the input looks like it, else the short form: `4x8xh100`.  Paths
 * are left out: what they name is no input of ours. */
#include "tests/fuzz/fuzz.h"

#include <math.h>

#include "model/cluster/cluster.h"

static void check(const struct cluster *c)
{
    struct cluster again;
    json_t *j;

    must_hold(c->nodes >= 1 && c->gpus_per_node >= 1);
    must_hold(c->nodes * c->gpus_per_node == c->world_size);
    must_hold(c->memory > 0 && cluster_available(c) >= 0 && cluster_available(c) <= c->memory);
    must_hold(isfinite(c->intra) && isfinite(c->inter));
    j = cluster_to_json(c);
    must_hold(j && cluster_from_json(j, "again", &again) == 0);
    must_hold(again.world_size == c->world_size && again.memory == c->memory);
    must_hold(cluster_available(&again) == cluster_available(c));
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cluster c;
    json_t *j;
    int rc;

    fuzz_quiet();
    if (size && data[0] == '{') {
        j = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
        if (!j)
            return 0;
        rc = cluster_from_json(j, "fuzz", &c);
        json_decref(j);
    } else {
        char *spec = fuzz_string(data, size);

        rc = strpbrk(spec, "/.") ? 1 : cluster_load(spec, &c);
        free(spec);
    }
    must_hold(rc >= 0 || fuzz_said[0]);
    if (rc == 0)
        check(&c);
    return 0;
}
