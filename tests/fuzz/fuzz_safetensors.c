/* The reader of exec/ is compiled into this file: exec.a is built by MPI's compiler, which
 * libFuzzer cannot instrument, and nothing of it is needed here. */
#include "exec/data/safetensors.c"

#include "tests/fuzz/fuzz.h"

/* The input as a file without a name, which no crash leaves behind. */
static const char *as_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;

    if (fd < 0) {
        char name[] = "/tmp/dpx-fuzz-XXXXXX";
        fd = mkstemp(name);
        must_hold(fd >= 0);
        unlink(name);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    must_hold(ftruncate(fd, 0) == 0);
    must_hold(pwrite(fd, data, size, 0) == (ssize_t)size);
    return path;
}

/* What was accepted lies inside the file, without overlap, and is found by its name. */
static void check(const struct safetensors *s, size_t size)
{
    int64_t bytes = 0;

    for (int i = 0; i < s->ntensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        must_hold(t->begin >= 8 && t->begin <= t->end && t->end <= (int64_t)size);
        must_hold(safetensors_find(s, t->name) == t);
        bytes += t->end - t->begin;
    }
    must_hold(bytes <= (int64_t)size - 8);
}

static void read_all(const struct safetensors *s)
{
    for (int i = 0; i < s->ntensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        float *values = malloc((size_t)t->numel * sizeof *values + 1);
        must_hold(values);
        if (safetensors_readable(t))
            must_hold(safetensors_read(s, t, 0, t->numel, values) == 0);
        free(values);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = as_file(data, size);
    struct safetensors *s;

    fuzz_quiet();
    s = safetensors_open(path);
    if (!s) {
        must_hold(fuzz_said[0]);
        return 0;
    }
    check(s, size);
    read_all(s);
    safetensors_close(s);
    return 0;
}
