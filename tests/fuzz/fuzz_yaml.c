/* fuzz_yaml.c -- any bytes as YAML. */
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/yaml.h"

/* A key as configs have them: longer than the words of another type, of which
 * `false` is the longest.  yaml_write() quotes values only. */
static bool ordinary(const char *key)
{
    return strlen(key) > 5 && strspn(key, "abcdefghijklmnopqrstuvwxyz_") == strlen(key);
}

/* What yaml_write() promises to write: see yaml.h. */
static bool writable(const json_t *j, bool nested_in_array)
{
    const char *key;
    const json_t *value;
    size_t i;

    if (nested_in_array && (json_is_object(j) || json_is_array(j)))
        return false;
    json_object_foreach((json_t *)(uintptr_t)j, key, value)
        if (!ordinary(key) || !writable(value, false))
            return false;
    json_array_foreach(j, i, value)
        if (!writable(value, true))
            return false;
    return true;
}

static void check(const json_t *j)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    json_t *again;

    must_hold(to);
    yaml_write(j, to);
    must_hold(fclose(to) == 0);
    again = yaml_read(text, size, "again");
    must_hold(again && json_equal(j, again));
    json_decref(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *j;

    fuzz_quiet();
    j = yaml_read((const char *)data, size, "fuzz");
    if (!j) {
        must_hold(fuzz_said[0]);
        return 0;
    }
    if (json_is_object(j) && writable(j, false))
        check(j);
    json_decref(j);
    return 0;
}
