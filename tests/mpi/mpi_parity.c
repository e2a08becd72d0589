/* mpi_parity.c -- what a run of dpxrun computed, held against what PyTorch did.
 *
 *     mpi_parity losses EXPECTED.json RUN.json TOLERANCE [STEPS]
 *     mpi_parity tensors WANT.safetensors GOT.safetensors TOLERANCE [EXPECTED.json [OTHER]]
 *     mpi_parity scales EXPECTED.json RUN.json
 *     mpi_parity predicted RUN.json
 *
 * Losses: each, or those of the first STEPS, within a relative TOLERANCE.  Tensors: norm of the difference over norm; with
 * EXPECTED.json they are gradients of the first step, which PyTorch wrote down before clipping and
 * dpxrun after; with OTHER the tolerance is a part of each gradient's distance from that other run of PyTorch's, which
 * EXPECTED.json has under "from".  Scales: each step's loss scale, and how many steps were skipped.  Predicted: calls, bytes and the allocated peak are the prediction's.  Says what is
 * further off, and exits with 1.  No rank of its own: dpxrun started those. */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mpi/tensor_distance.h"

static int wrong;

static json_t *document(const char *path)
{
    json_error_t why;
    json_t *doc = json_load_file(path, 0, &why);

    if (!doc) {
        fprintf(stderr, "%s: %s\n", path, why.text);
        exit(2);
    }
    return doc;
}

static void losses(const char *expected, const char *run, double tolerance, size_t steps)
{
    json_t *torch = document(expected), *ours = document(run);
    json_t *want = json_object_get(torch, "loss"), *got = json_object_get(ours, "loss");

    if (json_array_size(want) == 0 || json_array_size(want) != json_array_size(got))
        wrong += printf("%zu losses, not %zu\n", json_array_size(got), json_array_size(want));
    for (size_t i = 0; i < json_array_size(want) && i < steps; i++) {
        double a = json_number_value(json_array_get(want, i)), b = json_number_value(json_array_get(got, i));
        if (!(fabs(a - b) <= tolerance * fabs(a)))
            wrong += printf("step %zu: loss %.9g, not %.9g\n", i + 1, b, a);
    }
    json_decref(torch);
    json_decref(ours);
}

static double figure(const json_t *of, const char *key)
{
    const json_t *v = json_object_get(of, key);

    if (!v)
        wrong += printf("no %s\n", key);
    return json_number_value(v);
}

static void as_predicted(const json_t *of, const char *what, const char *got, const char *want)
{
    if (figure(of, got) != figure(of, want))
        wrong += printf("%s: %s %.0f, %s %.0f\n", what, got, figure(of, got), want, figure(of, want));
}

static void scales(const char *expected, const char *run)
{
    json_t *torch = document(expected), *ours = document(run);
    json_t *want = json_object_get(torch, "loss_scale"), *got = json_object_get(ours, "loss_scale");

    if (json_array_size(want) == 0 || json_array_size(want) != json_array_size(got))
        wrong += printf("%zu loss scales, not %zu\n", json_array_size(got), json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++) {
        double a = json_number_value(json_array_get(want, i)), b = json_number_value(json_array_get(got, i));
        if (!(a > 0 && a == b))
            wrong += printf("step %zu: loss scale %.9g, not %.9g\n", i + 1, b, a);
    }
    if (figure(torch, "skipped_steps") != figure(ours, "skipped_steps"))
        wrong += printf("%.0f steps skipped, not %.0f\n", figure(ours, "skipped_steps"), figure(torch, "skipped_steps"));
    json_decref(torch);
    json_decref(ours);
}

/* What rank 0 called and sent, and what it allocated at most. */
static void predicted(const char *run)
{
    json_t *doc = document(run), *comm = json_object_get(doc, "comm");

    if (json_array_size(comm) == 0)
        wrong += printf("nothing was sent\n");
    for (size_t i = 0; i < json_array_size(comm); i++) {
        const json_t *c = json_array_get(comm, i);
        const char *op = json_string_value(json_object_get(c, "op"));
        as_predicted(c, op, "count", "predicted_count");
        as_predicted(c, op, "bytes", "predicted_bytes");
    }
    as_predicted(json_object_get(doc, "memory"), "memory", "allocated_peak_bytes", "predicted_allocated_peak_bytes");
    json_decref(doc);
}

/* What clip_grad_norm_ multiplied the first step's gradients with. */
static double clip_factor(const char *expected)
{
    json_t *doc = document(expected);
    double norm = json_number_value(json_array_get(json_object_get(doc, "grad_norm"), 0));
    double factor = json_number_value(json_object_get(doc, "clip")) / (norm + 1e-6);

    json_decref(doc);
    return factor < 1 ? factor : 1;
}

/* Distances of gradients from another run of PyTorch's; NULL: it has none. */
static json_t *distances(const char *expected, const char *other)
{
    json_t *doc = document(expected), *far = json_object_get(json_object_get(json_object_get(doc, "from"), other), "grads");

    json_incref(far);
    json_decref(doc);
    return far;
}

static void say(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
}

int main(int argc, char **argv)
{
    json_t *far = argc == 7 ? distances(argv[5], argv[6]) : NULL;

    if (argc == 7 && !json_object_size(far)) {
        printf("%s: no distances from \"%s\"\n", argv[5], argv[6]);
        return 1;
    }
    if (argc >= 5 && argc <= 6 && !strcmp(argv[1], "losses"))
        losses(argv[2], argv[3], atof(argv[4]), argc == 6 ? (size_t)atol(argv[5]) : SIZE_MAX);
    else if (argc == 7 && !strcmp(argv[1], "tensors"))
        wrong = tensors_differ(argv[2], argv[3], &(struct tolerance){ .most = 1, .each = atof(argv[4]), .of = far }, clip_factor(argv[5]), say);
    else if (argc >= 5 && argc <= 6 && !strcmp(argv[1], "tensors"))
        wrong = tensors_differ(argv[2], argv[3], &(struct tolerance){ .most = atof(argv[4]) }, argc == 6 ? clip_factor(argv[5]) : 1, say);
    else if (argc == 4 && !strcmp(argv[1], "scales"))
        scales(argv[2], argv[3]);
    else if (argc == 3 && !strcmp(argv[1], "predicted"))
        predicted(argv[2]);
    else
        return 2;
    json_decref(far);
    return wrong != 0;
}
