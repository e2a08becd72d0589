/* engine_rows.c -- reads what ranks wrote: JSON objects, one a line (common.py). */
#include "exec/engine/engine.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

const char *const engine_phase_names[NEP] = { "init", "first", "second", "steady" };

static int phase_of(const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "name"));

    for (int i = 0; name && i < NEP; i++)
        if (!strcmp(name, engine_phase_names[i]))
            return i;
    return -1;
}

static int64_t whole(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);

    return json_is_integer(v) ? (int64_t)json_integer_value(v) : -1;
}

static double real(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);

    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* ["all_gather", [0, 1], "fp32", 1024, "sum", 0] */
static void take_call(struct engine_lines *l, const json_t *call)
{
    const json_t *ranks = json_array_get(call, 1), *root = json_array_get(call, 5);
    const char *op = json_string_value(json_array_get(call, 0)), *dtype = json_string_value(json_array_get(call, 2)),
               *reduction = json_string_value(json_array_get(call, 4));
    char line[1024];
    int at = snprintf(line, sizeof line, "%s ", op ? op : "?");

    for (size_t i = 0; i < json_array_size(ranks) && at < (int)sizeof line - 64; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, "%s%" JSON_INTEGER_FORMAT, i ? "," : "", json_integer_value(json_array_get(ranks, i)));
    at += snprintf(line + at, sizeof line - (size_t)at, " %s %" JSON_INTEGER_FORMAT, dtype ? dtype : "-", json_integer_value(json_array_get(call, 3)));
    if (reduction)
        at += snprintf(line + at, sizeof line - (size_t)at, " %s", reduction);
    if (json_is_integer(root))
        snprintf(line + at, sizeof line - (size_t)at, " root %d", (int)json_integer_value(root));
    engine_lines_add(l, line);
}

static void take_memory(struct engine_memory *m, const json_t *row)
{
    if (json_object_get(row, "allocated"))
        *m = (struct engine_memory){ whole(row, "allocated"), whole(row, "active"), whole(row, "reserved"), whole(row, "retries") };
}

static struct engine_clocks clocks_of(const json_t *c)
{
    return (struct engine_clocks){ whole(c, "sm_mhz"), whole(c, "sm_most_mhz"), whole(c, "memory_mhz"), whole(c, "memory_most_mhz") };
}

static void take_versions(struct engine_rank *r, const json_t *row)
{
    const char *device = json_string_value(json_object_get(row, "device")), *name;
    json_t *version;
    int at = 0;

    snprintf(r->device, sizeof r->device, "%s", device ? device : "?");
    json_object_foreach(json_object_get(row, "versions"), name, version)
        if (at < (int)sizeof r->versions - 64)
            at += snprintf(r->versions + at, sizeof r->versions - (size_t)at, "%s%s %.40s", at ? ", " : "", name, json_string_value(version));
}

static void take_row(struct engine_rank *r, const json_t *row, int64_t most)
{
    const char *event = json_string_value(json_object_get(row, "event"));
    int phase = phase_of(row);
    size_t i;
    json_t *call;

    if (!event)
        return;
    if (!strcmp(event, "start"))
        take_versions(r, row);
    if (!strcmp(event, "step") && r->steps < most) {
        r->loss[r->steps] = real(row, "loss");
        r->seconds[r->steps] = real(row, "seconds");
        r->norm[r->steps++] = real(row, "grad_norm");
    }
    if (!strcmp(event, "end")) {
        r->driver = whole(row, "driver");
        r->clocks = clocks_of(json_object_get(row, "clocks"));
    }
    if (phase >= 0)
        take_memory(&r->phase[phase], row);
    if (phase >= 0 && !strcmp(event, "phase"))
        json_array_foreach(json_object_get(row, "collectives"), i, call)
            take_call(&r->calls[phase], call);
}

static int read_rank(const struct engine_job *j, int64_t rank, struct engine_rank *r)
{
    char path[600], *line = NULL;
    size_t room = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/rank%" PRId64 ".jsonl", j->folder, rank);
    for (int i = 0; i < NEP; i++)
        r->phase[i] = (struct engine_memory){ -1, -1, -1, -1 };
    r->driver = -1;
    r->clocks = clocks_of(NULL);
    r->loss = calloc((size_t)j->steps, sizeof *r->loss);
    r->seconds = calloc((size_t)j->steps, sizeof *r->seconds);
    r->norm = calloc((size_t)j->steps, sizeof *r->norm);
    if (!r->loss || !r->seconds || !r->norm)
        return fail("out of memory for the rows of a rank");
    f = fopen(path, "r");
    if (!f)
        return 0;               /* it ended before its first line */
    while (getline(&line, &room, f) > 0) {
        json_t *row = json_loads(line, 0, NULL);    /* the last line may be cut short */
        take_row(r, row, j->steps);
        json_decref(row);
    }
    free(line);
    fclose(f);
    return 0;
}

int engine_read(const struct engine_job *j, struct engine_rows *out)
{
    int64_t n = j->plan->cluster.world_size;

    *out = (struct engine_rows){ calloc((size_t)n, sizeof *out->rank), n };
    if (!out->rank)
        return fail("out of memory for %" PRId64 " ranks' rows", n);
    for (int64_t i = 0; i < n; i++)
        if (read_rank(j, i, &out->rank[i]) < 0) {
            engine_rows_free(out);
            return -1;
        }
    return 0;
}

void engine_rows_free(struct engine_rows *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        for (int p = 0; p < NEP; p++)
            engine_lines_free(&r->rank[i].calls[p]);
        free(r->rank[i].loss);
        free(r->rank[i].seconds);
        free(r->rank[i].norm);
    }
    free(r->rank);
    *r = (struct engine_rows){ 0 };
}
