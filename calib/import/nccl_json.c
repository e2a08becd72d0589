/* nccl_json.c -- the JSON of nccl-tests' option -J (its src/util.cu). */
#include "calib/import/nccl_internal.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/files.h"

/* nccl-tests writes "nan" for what has no time. */
static double us_of(const json_t *time) { return json_is_number(time) ? json_number_value(time) : NAN; }

static int read_times(const json_t *row, const char *half, const char *each, struct nccl_log *l, struct nccl_point *p,
                      const struct nccl_spot *at)
{
    const json_t *of = json_object_get(row, half), *list = json_object_get(json_object_get(row, each), "times_us");
    const json_t *time = json_object_get(of, "time"), *wrong = json_object_get(of, "nwrong"), *one;
    int rc = 0;
    size_t i;

    if (wrong && !json_is_number(wrong) && !json_is_null(wrong))
        return fail("%s: \"nwrong\" of \"%s\": expected a number or null", nccl_where(at), half);
    if (json_is_number(wrong) && json_number_value(wrong) != 0) {
        l->nwrong++;
        return 0;
    }
    json_array_foreach(list, i, one)
        if (rc == 0)
            rc = nccl_add_time(l, p, at, us_of(one));
    if (json_array_size(list) > 0 || !of || json_is_null(of))      /* null: not measured */
        return rc;
    return nccl_add_time(l, p, at, us_of(time ? time : json_object_get(of, "cpu_time")));
}

static const char *text_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s ? s : "";
}

/* The type; -1: the result is left out, -2 reported. */
static int type_of_result(struct nccl_log *l, const json_t *row, const struct nccl_spot *at)
{
    const json_t *size = json_object_get(row, "size");
    const char *type = text_of(row, "type");

    if (!json_is_integer(size) || json_integer_value(size) < 0) {
        nccl_leave_out(&l->sizeless, at);
        return -1;
    }
    if (json_integer_value(size) > NCCL_MOST_BYTES)
        return fail("%s: a size of %lld bytes: at most 2^50 are allowed", nccl_where(at), (long long)json_integer_value(size)) - 1;
    if (nccl_dtype_of(type) < 0)
        nccl_leave_type(l, type);
    return json_integer_value(size) > 0 ? nccl_dtype_of(type) : -1;
}

static int read_result(struct nccl_log *l, struct nccl_sweep *s, const json_t *row, const struct nccl_spot *at)
{
    int type = type_of_result(l, row, at), rc;
    const char *redop = text_of(row, "redop"), *root = text_of(row, "root");
    const json_t *of = json_object_get(row, "in_place");

    if (type < 0)
        return type == -1 ? 0 : -1;
    struct nccl_point *p = nccl_point_of(s, json_integer_value(json_object_get(row, "size")), (enum dtype)type);
    rc = read_times(row, "out_of_place", "out_of_place_per_iter", l, p, at);
    if (rc == 0)
        rc = read_times(row, "in_place", "in_place_per_iter", l, p, at);
    if (p->nseconds == 0)
        s->npoints--;
    if (s->op < 0)
        s->op = nccl_op_of_row(!strcmp(redop, "sum") || !strcmp(redop, "avg"), !strstr(root, "-1"),
                          json_number_value(json_object_get(of, "alg_bw")),
                          json_number_value(json_object_get(of, "bus_bw")), s->ranks);
    return rc;
}

static int read_device(struct nccl_sweep *s, const json_t *device, const struct nccl_spot *at)
{
    const char *host = text_of(device, "hostname");
    char name[64];

    if (!*host)
        return fail("%s: no \"hostname\": without it the nodes cannot be counted", nccl_where(at));
    snprintf(name, sizeof name, "%.63s", host);
    return nccl_add_rank(s, at, name, text_of(device, "device_info"),
                    (int)json_integer_value(json_object_get(device, "group")));
}

static int read_lists(const char *path, const json_t *j, struct nccl_log *out)
{
    struct nccl_spot at = { .path = path, .list = "config.devices" };
    struct nccl_sweep *s = nccl_new_sweep(out);
    const char *program = json_string_value(json_array_get(json_object_get(j, "args"), 0));
    const json_t *list = json_object_get(json_object_get(j, "config"), "devices");
    int rc = 0;

    snprintf(s->program, sizeof s->program, "%.63s", program ? program : "");
    snprintf(s->version, sizeof s->version, "NCCL %lld",
             (long long)json_integer_value(json_object_get(j, "nccl_version")));
    for (; rc == 0 && at.n < (int)json_array_size(list); at.n++)
        rc = read_device(s, json_array_get(list, (size_t)at.n), &at);
    list = json_object_get(j, "results");
    at = (struct nccl_spot){ .path = path, .list = "results" };
    for (; rc == 0 && at.n < (int)json_array_size(list); at.n++)
        rc = read_result(out, s, json_array_get(list, (size_t)at.n), &at);
    return rc;
}

/* files_read_json_data() takes a byte order mark for malformed JSON. */
static json_t *load(const char *path)
{
    FILE *f = nccl_open(path);
    json_error_t e;
    json_t *j = NULL;

    if (!f)
        return NULL;
    if (ftell(f) == 0)
        j = files_read_json_data(path);
    else if (!(j = json_loadf(f, JSON_REJECT_DUPLICATES, &e)))
        fail("%s:%d:%d: malformed JSON", path, e.line, e.column);
    fclose(f);
    return j;
}

int nccl_read_json(const char *path, struct nccl_log *out)
{
    json_t *j = load(path);
    int rc;

    if (!j)
        return -1;
    if (json_is_array(json_object_get(j, "results")))
        rc = read_lists(path, j, out);
    else
        rc = fail("%s: JSON without \"results\": not that of nccl-tests; what dpxcal exported is taken without the word "
                  "nccl-tests", path);
    json_decref(j);
    return rc;
}
