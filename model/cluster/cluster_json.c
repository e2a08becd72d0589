/* cluster_json.c -- cluster files, and the cluster inside a plan.json.
 *
 *     { "name": "mine", "nodes": 4, "gpus_per_node": 8,
 *       "gpu": "h100",                    or an object for a type the table lacks
 *       "intra": { "gb_per_s": 450, "alpha_us": 3 },
 *       "inter": { "gb_per_s": 400, "alpha_us": 8, "nics": 8 },      or "gbit_per_s": 3200
 *       "calibration": "atlas",                                      whose measurements count; "none": no one's
 *       "memory_bytes": 85520809984, "context_bytes": 1450180608, "headroom": 0.05, "power_limit_w": 500,
 *       "node": { "memory_bytes": 2199023255552, "dram_gb_per_s": 614.4, "sockets": 2,
 *                 "cores": 112, "gpu_links": 8,
 *                 "disk_bytes": 30720000000000, "disk_read_gb_per_s": 48, "disk_write_gb_per_s": 26, "issue_us": 12.8 } }
 *
 * Bandwidths are per direction; `inter` is what all adapters of a node do together.  What
 * is left out takes the GPU type's usual node; null in "node" means that it is not known.  Sizes are bytes, as
 * everywhere; gb_per_s is gigabytes a second, gbit_per_s gigabits.  Keys that begin with "//" are for people. */
#include "model/cluster/cluster.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/printable.h"

#define RATE_MIN   1e-6         /* of any rate in its unit: GB/s, TFLOP/s */
#define GB_MAX     1e6          /* GB/s, TFLOP/s: a thousand times today's best */
#define CLUSTER_HEADROOM_MAX 0.9

/* An object being read, and its name for messages: "mine.json: gpu". */
struct obj {
    const json_t *j;
    char          name[128];
};

static int type_error(const struct obj *o, const char *key, const char *want)
{
    return fail("%s: \"%s\" must be %s", o->name, key, want);
}

/* Opens the object `j`; every key must be among `keys` (NULL at the end). */
static int obj_open(struct obj *o, const json_t *j, const char *where, const char *sub,
                    const char *const *keys)
{
    const char *key;
    json_t     *value;

    snprintf(o->name, sizeof o->name, "%.90s%s%s", where, *sub ? ": " : "", sub);
    o->j = j;
    if (!json_is_object(j))
        return fail("%s: must be an object", o->name);
    json_object_foreach((json_t *)j, key, value) {
        int i = 0;

        while (keys[i] && strcmp(keys[i], key))
            i++;
        if (!keys[i] && strncmp(key, "//", 2) && strcmp(key, "$schema"))       /* "// ..." is for people, $schema for editors */
            return fail("%s: unknown key \"%.40s\"", o->name, key);
    }
    return 0;
}

static int get_int(const struct obj *o, const char *key, int64_t lo, int64_t hi, int64_t *out)
{
    const json_t *v = json_object_get(o->j, key);

    if (!v)
        return 0;
    if (!json_is_integer(v))
        return type_error(o, key, "an integer");
    if (json_integer_value(v) < lo || json_integer_value(v) > hi)
        return fail("%s: \"%s\" is %" PRId64 ", must be between %" PRId64 " and %" PRId64,
                    o->name, key, (int64_t)json_integer_value(v), lo, hi);
    *out = json_integer_value(v);
    return 0;
}

static int get_small(const struct obj *o, const char *key, int lo, int hi, int *out)
{
    int64_t v = *out;

    if (get_int(o, key, lo, hi, &v) < 0)
        return -1;
    *out = (int)v;
    return 0;
}

/* 1: it has the key; 0: it has not; -1 reported. */
static int get_number(const struct obj *o, const char *key, double *out)
{
    const json_t *v = json_object_get(o->j, key);

    if (v && !json_is_number(v))
        return type_error(o, key, "a number");
    *out = json_number_value(v);
    return v != NULL;
}

/* A number in (0, hi] times `unit`; a NaN fails the comparison. */
static int get_rate(const struct obj *o, const char *key, double hi, double unit, double *out)
{
    double x = 0;
    int    rc = get_number(o, key, &x);

    if (rc <= 0)
        return rc;
    if (!(x > 0 && x <= hi))
        return fail("%s: \"%s\" is %g, must be above 0 and at most %g", o->name, key, x, hi);
    if (x < RATE_MIN)
        return fail("%s: \"%s\" is %g, must be at least %g: no hardware is that slow", o->name, key, x, RATE_MIN);
    *out = x * unit;
    return 0;
}

static int get_fraction(const struct obj *o, const char *key, double hi, double *out)
{
    double x = 0;
    int    rc = get_number(o, key, &x);

    if (rc <= 0)
        return rc;
    if (!(x >= 0 && x <= hi))
        return fail("%s: \"%s\" is %g, must be between 0 and %g", o->name, key, x, hi);
    *out = x;
    return 0;
}

static int get_text(const struct obj *o, const char *key, char *out, size_t size)
{
    const json_t *v = json_object_get(o->j, key);

    if (!v)
        return 0;
    if (!json_is_string(v))
        return type_error(o, key, "a string");
    if (json_string_length(v) >= size)
        return fail("%s: \"%s\" is longer than %zu bytes", o->name, key, size - 1);
    if (!printable(json_string_value(v)))
        return fail("%s: \"%s\" has a control character", o->name, key);
    snprintf(out, size, "%s", json_string_value(v));
    return 0;
}

static const struct { const char *key; size_t at; double unit; } gpu_rates[] = {
    { "hbm_gb_per_s",  offsetof(struct gpu, hbm),  1e9 },
    { "fp32_tflops",   offsetof(struct gpu, fp32), 1e12 },
    { "tf32_tflops",   offsetof(struct gpu, tf32), 1e12 },
    { "fp16_tflops",   offsetof(struct gpu, fp16), 1e12 },
    { "bf16_tflops",   offsetof(struct gpu, bf16), 1e12 },
    { "fp8_tflops",    offsetof(struct gpu, fp8),  1e12 },
    { "fp4_tflops",    offsetof(struct gpu, fp4),  1e12 },
    { "link_gb_per_s", offsetof(struct gpu, link), 1e9 },
    { "pcie_gb_per_s", offsetof(struct gpu, pcie), 1e9 },
};
#define NRATES ((int)(sizeof gpu_rates / sizeof gpu_rates[0]))

static double *rate_of(struct gpu *g, int i)
{
    return (double *)(void *)((char *)g + gpu_rates[i].at);
}

static int gpu_from_object(const json_t *j, const char *where, struct gpu *g)
{
    static const char *const keys[] = {
        "name", "title", "source", "memory_bytes", "reserved_bytes", "context_bytes", "sms",
        "sm_arch", "hbm_gb_per_s", "fp32_tflops", "tf32_tflops", "fp16_tflops", "bf16_tflops",
        "fp8_tflops", "fp4_tflops", "link_gb_per_s", "pcie_gb_per_s", NULL };
    struct obj o;

    memset(g, 0, sizeof *g);
    if (obj_open(&o, j, where, "gpu", keys) < 0
        || get_text(&o, "name", g->name, sizeof g->name) < 0
        || get_text(&o, "title", g->title, sizeof g->title) < 0
        || get_text(&o, "source", g->source, sizeof g->source) < 0
        || get_int(&o, "memory_bytes", 1, SIZE_LIMIT, &g->memory) < 0
        || get_int(&o, "reserved_bytes", 0, SIZE_LIMIT, &g->reserved) < 0
        || get_int(&o, "context_bytes", 0, SIZE_LIMIT, &g->context) < 0
        || get_small(&o, "sms", 1, 1000000, &g->sms) < 0
        || get_small(&o, "sm_arch", 0, 1000, &g->sm_arch) < 0)
        return -1;
    for (int i = 0; i < NRATES; i++)
        if (get_rate(&o, gpu_rates[i].key, GB_MAX, gpu_rates[i].unit, rate_of(g, i)) < 0)
            return -1;
    if (!g->name[0])
        return fail("%s: \"name\" is missing", o.name);
    if (!g->memory)
        return fail("%s: \"memory_bytes\" is missing", o.name);
    if (strcmp(g->name, "cpu") != 0) {          /* a rank of a host has no datasheet: calibrated, or assumed */
        if (!(g->hbm > 0))
            return fail("%s: \"hbm_gb_per_s\" is missing", o.name);
        if (!(g->fp32 > 0) && !(g->fp16 > 0) && !(g->bf16 > 0))
            return fail("%s: \"bf16_tflops\", \"fp16_tflops\" or \"fp32_tflops\" is missing", o.name);
    }
    if (!g->title[0])
        snprintf(g->title, sizeof g->title, "%s", g->name);
    return 0;
}

static int gpu_from_json(const json_t *j, const char *where, struct gpu *g)
{
    const struct gpu *known;
    char              nearest[128];

    if (!j)
        return fail("%s: \"gpu\" is missing: the name of a GPU type, or an object", where);
    if (json_is_object(j))
        return gpu_from_object(j, where, g);
    if (!json_is_string(j))
        return fail("%s: \"gpu\" must be a name or an object", where);
    known = gpu_find(json_string_value(j));
    if (!known) {
        gpu_nearest(json_string_value(j), nearest, sizeof nearest);
        return fail("%s: no GPU '%.40s' is known; similar names: %s; or describe it in an object",
                    where, json_string_value(j), nearest);
    }
    *g = *known;
    return 0;
}

/* "intra" or "inter".  Absent: what the GPU's usual node has. */
static int tier(const struct obj *top, const char *key, double *bandwidth, double *alpha, int *nics)
{
    static const char *const with_nics[] = { "gb_per_s", "gbit_per_s", "alpha_us", "nics", NULL };
    static const char *const without[] = { "gb_per_s", "alpha_us", NULL };
    const json_t *j = json_object_get(top->j, key);
    struct obj    o;
    double        us = 0;

    if (!j)
        return 0;
    if (obj_open(&o, j, top->name, key, nics ? with_nics : without) < 0
        || get_rate(&o, "gb_per_s", GB_MAX, 1e9, bandwidth) < 0
        || get_rate(&o, "gbit_per_s", 8 * GB_MAX, 1e9 / 8, bandwidth) < 0
        || get_fraction(&o, "alpha_us", 1e6, &us) < 0
        || (nics && get_small(&o, "nics", 0, 4096, nics) < 0))
        return -1;
    if (json_object_get(o.j, "gb_per_s") && json_object_get(o.j, "gbit_per_s"))
        return fail("%s: \"gb_per_s\" and \"gbit_per_s\" say the same: give one of them", o.name);
    if (json_object_get(o.j, "alpha_us") && !(us > 0))
        return fail("%s: \"alpha_us\" is 0, must be above 0; leave it out for the usual one", o.name);
    *alpha = us / 1e6;
    return 0;
}

/* Numbers in (0, most] times unit; unit 0: bytes. */
static const struct { const char *key; size_t at; double most, unit; } node_keys[] = {
    { "memory_bytes",         offsetof(struct cluster_node, memory),     0, 0 },
    { "dram_gb_per_s",        offsetof(struct cluster_node, dram),       GB_MAX, 1e9 },
    { "disk_bytes",           offsetof(struct cluster_node, disk),       0, 0 },
    { "disk_read_gb_per_s",   offsetof(struct cluster_node, disk_read),  GB_MAX, 1e9 },
    { "disk_write_gb_per_s",  offsetof(struct cluster_node, disk_write), GB_MAX, 1e9 },
    { "issue_us",             offsetof(struct cluster_node, issue),      1000, 1e-6 },
};
#define NNODEKEYS ((int)(sizeof node_keys / sizeof node_keys[0]))

static const struct { const char *key; size_t at; } node_counts[] = {
    { "sockets",   offsetof(struct cluster_node, sockets) },
    { "cores",     offsetof(struct cluster_node, cores) },
    { "gpu_links", offsetof(struct cluster_node, links) },
};
#define NNODECOUNTS ((int)(sizeof node_counts / sizeof node_counts[0]))

static int *node_count(struct cluster_node *n, int i) { return (int *)(void *)((char *)n + node_counts[i].at); }
static int64_t *node_bytes(struct cluster_node *n, int i) { return (int64_t *)(void *)((char *)n + node_keys[i].at); }
static double  *node_rate(struct cluster_node *n, int i)  { return (double *)(void *)((char *)n + node_keys[i].at); }

/* "node".  Absent: that of the GPU's usual node. */
static int node_from_json(const struct obj *top, struct cluster_node *n)
{
    static const char *const keys[] = { "memory_bytes", "dram_gb_per_s", "sockets", "cores", "gpu_links", "disk_bytes",
                                        "disk_read_gb_per_s", "disk_write_gb_per_s", "issue_us", NULL };
    const json_t *j = json_object_get(top->j, "node");
    struct obj    o;

    if (!j)
        return 0;
    if (obj_open(&o, j, top->name, "node", keys) < 0)
        return -1;
    for (int i = 0; i < NNODEKEYS; i++) {
        bool null = json_is_null(json_object_get(j, node_keys[i].key));
        double unit = node_keys[i].unit;
        if (null && unit > 0)
            *node_rate(n, i) = 0;
        else if (null)
            *node_bytes(n, i) = 0;
        else if (unit > 0 ? get_rate(&o, node_keys[i].key, node_keys[i].most, unit, node_rate(n, i)) < 0
                          : get_int(&o, node_keys[i].key, 1, SIZE_LIMIT, node_bytes(n, i)) < 0)
            return -1;
    }
    for (int i = 0; i < NNODECOUNTS; i++)
        if (json_is_null(json_object_get(j, node_counts[i].key)))
            *node_count(n, i) = 0;
        else if (get_small(&o, node_counts[i].key, 1, 4096, node_count(n, i)) < 0)
            return -1;
    return 0;
}

/* ---- "storage" and "failures" ---- */

#define HOUR 3600.0

static int storage_from_json(const struct obj *top, struct cluster_runs *r)
{
    static const char *const keys[] = { "gb_per_s", "node_gb_per_s", "training_network", NULL };
    const json_t *j = json_object_get(top->j, "storage"), *by = json_object_get(j, "training_network");
    struct obj    o;

    if (!j)
        return 0;
    if (obj_open(&o, j, top->name, "storage", keys) < 0 || get_rate(&o, "gb_per_s", GB_MAX, 1e9, &r->storage) < 0
        || get_rate(&o, "node_gb_per_s", GB_MAX, 1e9, &r->storage_node) < 0)
        return -1;
    r->storage_by_training = json_is_true(by);
    return by && !json_is_boolean(by) ? type_error(&o, "training_network", "true or false") : 0;
}

static int failures_from_json(const struct obj *top, struct cluster_runs *r)
{
    static const char *const keys[] = { "rate", "gpu_hours", "node_hours", "network_hours", "recover_s", "warm_up_s", "repair_hours", "spares", NULL };
    const json_t *j = json_object_get(top->j, "failures");
    struct obj    o;

    if (!j)
        return 0;
    if (obj_open(&o, j, top->name, "failures", keys) < 0 || get_text(&o, "rate", r->rate, sizeof r->rate) < 0
        || get_rate(&o, "gpu_hours", 1e9, HOUR, &r->mtbf) < 0 || get_rate(&o, "node_hours", 1e9, HOUR, &r->node_mtbf) < 0
        || get_rate(&o, "network_hours", 1e9, HOUR, &r->network_mtbf) < 0
        || get_rate(&o, "recover_s", 1e7, 1, &r->recover) < 0 || get_rate(&o, "warm_up_s", 1e7, 1, &r->warm_up) < 0
        || get_rate(&o, "repair_hours", 1e5, HOUR, &r->repair) < 0 || get_small(&o, "spares", 0, 1000000, &r->spares) < 0)
        return -1;
    if (r->rate[0] && (r->mtbf > 0 || r->node_mtbf > 0 || r->network_mtbf > 0))
        return fail("%s: \"rate\" has all causes: give it, or \"gpu_hours\", \"node_hours\" and \"network_hours\"", o.name);
    return json_object_get(o.j, "spares") && !(r->repair > 0)
           ? fail("%s: \"spares\": how long until a node that failed is back? give \"repair_hours\"", o.name) : 0;
}

static void put_rate(json_t *j, const char *key, double v, double unit)
{
    if (v > 0)
        json_object_set_new(j, key, json_real(v / unit));
}

/* What is stated; nothing where nothing is. */
static void runs_to_json(const struct cluster_runs *r, json_t *top)
{
    json_t *storage = json_object(), *failures = json_object();

    put_rate(storage, "gb_per_s", r->storage, 1e9);
    put_rate(storage, "node_gb_per_s", r->storage_node, 1e9);
    if (r->storage_by_training)
        json_object_set_new(storage, "training_network", json_true());
    if (r->rate[0])
        json_object_set_new(failures, "rate", json_string(r->rate));
    put_rate(failures, "gpu_hours", r->mtbf, HOUR);
    put_rate(failures, "node_hours", r->node_mtbf, HOUR);
    put_rate(failures, "network_hours", r->network_mtbf, HOUR);
    put_rate(failures, "recover_s", r->recover, 1);
    put_rate(failures, "warm_up_s", r->warm_up, 1);
    put_rate(failures, "repair_hours", r->repair, HOUR);
    if (r->repair > 0)
        json_object_set_new(failures, "spares", json_integer(r->spares));
    if (json_object_size(storage) > 0)
        json_object_set(top, "storage", storage);
    if (json_object_size(failures) > 0)
        json_object_set(top, "failures", failures);
    json_decref(storage);
    json_decref(failures);
}

static int shape(const struct obj *o, int64_t *nodes, int64_t *per_node)
{
    int64_t world = 0;

    *nodes = *per_node = 1;
    if (get_int(o, "nodes", 1, CLUSTER_MAX_RANKS, nodes) < 0
        || get_int(o, "gpus_per_node", 1, CLUSTER_MAX_GPUS_PER_NODE, per_node) < 0
        || get_int(o, "world_size", 1, CLUSTER_MAX_RANKS, &world) < 0)
        return -1;
    if (*nodes * *per_node > CLUSTER_MAX_RANKS)
        return fail("%s: \"nodes\" * \"gpus_per_node\" is %" PRId64 ", at most %d are planned",
                    o->name, *nodes * *per_node, CLUSTER_MAX_RANKS);
    if (world && world != *nodes * *per_node)
        return fail("%s: \"world_size\" is %" PRId64 ", but \"nodes\" * \"gpus_per_node\" is %"
                    PRId64, o->name, world, *nodes * *per_node);
    return 0;
}

static int get_power(const struct obj *o, struct cluster *c)
{
    double own = power_gpu_watts(c->gpu.name);

    if (get_rate(o, "power_limit_w", 1e5, 1, &c->power_limit_w) < 0)
        return -1;
    if (!(c->power_limit_w > 0))
        return 0;
    if (!(own > 0))
        return fail("%s: \"power_limit_w\": the board power of '%s' is not known", o->name, c->gpu.name);
    if (!(c->power_limit_w >= POWER_LEAST * own && c->power_limit_w <= own))
        return fail("%s: \"power_limit_w\" is %g, must be between %.0f and %g for '%s': nothing is published below",
                    o->name, c->power_limit_w, ceil(POWER_LEAST * own), own, c->gpu.name);
    return 0;
}

static int finish(const struct obj *o, struct cluster *c)
{
    if (!(c->intra > 0) && c->gpus_per_node > 1)
        return fail("%s: \"intra\": {\"gb_per_s\": ...} is missing, and the GPU states no link",
                    o->name);
    if (!(c->inter > 0) && c->nodes > 1)
        return fail("%s: \"inter\": {\"gb_per_s\": ...} is missing, and the GPU has no usual node",
                    o->name);
    if (c->context > c->memory)
        return fail("%s: \"context_bytes\" (%" PRId64 ") exceeds the memory (%" PRId64 ")",
                    o->name, c->context, c->memory);
    return 0;
}

int cluster_from_json(const json_t *j, const char *where, struct cluster *out)
{
    static const char *const keys[] = {
        "name", "nodes", "gpus_per_node", "world_size", "gpu", "intra", "inter", "memory_bytes",
        "context_bytes", "headroom", "power_limit_w", "host", "node", "calibration", "storage", "failures", NULL };
    const json_t *host;
    struct obj    o;
    struct gpu    g;
    int64_t       nodes, per_node;

    if (json_is_string(j))
        return cluster_load(json_string_value(j), out);
    if (obj_open(&o, j, where, "", keys) < 0 || shape(&o, &nodes, &per_node) < 0
        || gpu_from_json(json_object_get(j, "gpu"), where, &g) < 0)
        return -1;
    if (!json_object_get(j, "intra") && cluster_node_check(&g, nodes, per_node, where) < 0)
        return -1;
    cluster_of_gpu(out, &g, nodes, per_node);
    host = json_object_get(j, "host");
    if (host && !json_is_boolean(host))
        return type_error(&o, "host", "true or false");
    out->is_host = json_is_true(host);
    if (get_text(&o, "name", out->name, sizeof out->name) < 0
        || get_text(&o, "calibration", out->calibration, sizeof out->calibration) < 0
        || get_int(&o, "memory_bytes", 1, SIZE_LIMIT, &out->memory) < 0
        || get_int(&o, "context_bytes", 0, SIZE_LIMIT, &out->context) < 0
        || get_fraction(&o, "headroom", CLUSTER_HEADROOM_MAX, &out->headroom) < 0
        || get_power(&o, out) < 0
        || tier(&o, "intra", &out->intra, &out->alpha_intra, NULL) < 0
        || tier(&o, "inter", &out->inter, &out->alpha_inter, &out->nics) < 0
        || node_from_json(&o, &out->node) < 0
        || storage_from_json(&o, &out->runs) < 0 || failures_from_json(&o, &out->runs) < 0)
        return -1;
    return finish(&o, out);
}

/* Does the table have exactly this row? */
static bool in_table(const struct gpu *g)
{
    const struct gpu *row = gpu_find(g->name);

    return row && !memcmp(row, g, sizeof *g);
}

/* The GPU's name when the table has it, else all that is known of it. */
static json_t *gpu_to_json(const struct gpu *g)
{
    struct gpu copy = *g;
    json_t    *j;

    if (in_table(g))
        return json_string(g->name);
    j = json_pack("{s:s, s:s, s:I, s:I, s:I}", "name", g->name, "title", g->title,
                  "memory_bytes", (json_int_t)g->memory, "reserved_bytes", (json_int_t)g->reserved,
                  "context_bytes", (json_int_t)g->context);
    if (g->source[0])
        json_object_set_new(j, "source", json_string(g->source));
    if (g->sms)
        json_object_set_new(j, "sms", json_integer(g->sms));
    if (g->sm_arch)
        json_object_set_new(j, "sm_arch", json_integer(g->sm_arch));
    for (int i = 0; i < NRATES; i++)
        if (*rate_of(&copy, i) > 0)     /* 0: not stated */
            json_object_set_new(j, gpu_rates[i].key,
                                json_real(*rate_of(&copy, i) / gpu_rates[i].unit));
    return j;
}

static json_t *tier_to_json(double bandwidth, double alpha)
{
    json_t *j = json_object();

    if (bandwidth > 0)
        json_object_set_new(j, "gb_per_s", json_real(bandwidth / 1e9));
    if (alpha > 0)
        json_object_set_new(j, "alpha_us", json_real(alpha * 1e6));
    return j;
}

static json_t *rate_json(double rate, double unit) { return rate > 0 ? json_real(rate / unit) : json_null(); }
static json_t *bytes_json(int64_t bytes)     { return bytes > 0 ? json_integer(bytes) : json_null(); }

/* In what it differs from the usual node of its GPUs, which one that is described here has not; NULL: in nothing. */
static json_t *node_to_json(const struct cluster *c)
{
    struct cluster_node n = c->node, usual = { 0 };
    json_t *j = json_object();

    if (in_table(&c->gpu))
        usual = cluster_usual_node(&c->gpu, c->gpus_per_node);
    for (int i = 0; i < NNODEKEYS; i++)
        if (node_keys[i].unit > 0 && (*node_rate(&n, i) > *node_rate(&usual, i) || *node_rate(&n, i) < *node_rate(&usual, i)))
            json_object_set_new(j, node_keys[i].key, rate_json(*node_rate(&n, i), node_keys[i].unit));
        else if (!(node_keys[i].unit > 0) && *node_bytes(&n, i) != *node_bytes(&usual, i))
            json_object_set_new(j, node_keys[i].key, bytes_json(*node_bytes(&n, i)));
    for (int i = 0; i < NNODECOUNTS; i++)
        if (*node_count(&n, i) != *node_count(&usual, i))
            json_object_set_new(j, node_counts[i].key, bytes_json(*node_count(&n, i)));
    if (json_object_size(j) > 0)
        return j;
    json_decref(j);
    return NULL;
}

json_t *cluster_to_json(const struct cluster *c)
{
    json_t *inter = tier_to_json(c->inter, c->alpha_inter);
    json_t *j = json_pack("{s:s, s:I, s:I, s:I, s:o, s:I, s:I, s:f}",
                          "name", c->name, "nodes", (json_int_t)c->nodes,
                          "gpus_per_node", (json_int_t)c->gpus_per_node,
                          "world_size", (json_int_t)c->world_size, "gpu", gpu_to_json(&c->gpu),
                          "memory_bytes", (json_int_t)c->memory,
                          "context_bytes", (json_int_t)c->context, "headroom", c->headroom);

    json_object_set_new(inter, "nics", json_integer(c->nics));
    json_object_set_new(j, "intra", tier_to_json(c->intra, c->alpha_intra));
    json_object_set_new(j, "inter", inter);
    if (c->power_limit_w > 0)
        json_object_set_new(j, "power_limit_w", json_real(c->power_limit_w));
    if (c->is_host)
        json_object_set_new(j, "host", json_true());
    if (c->calibration[0])
        json_object_set_new(j, "calibration", json_string(c->calibration));
    json_t *node = node_to_json(c);
    if (node)
        json_object_set_new(j, "node", node);
    runs_to_json(&c->runs, j);
    return j;
}
