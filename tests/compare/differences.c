/* differences.c -- what differs between two files of JSON documents, one a line, for compare.sh.
 *
 *     differences BEFORE AFTER
 *
 * A line that is no JSON (an error message) is compared as text.  Prints each JSON path that
 * differs once: how often, the smallest and the largest ratio after/before where both are
 * numbers, and the first line that has it.  Leaves out the version of dpxplan and what is free on disks.
 * Exit status 0: equal, 1: different, 2: misuse. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

enum { MAX_PATHS = 4000 };

struct path {
    char  *name;
    long   count, first;        /* documents that differ here; the first one's line */
    double low, high;           /* ratio after/before; low > high: never two numbers */
};

static struct path paths[MAX_PATHS];
static int npaths;

/* What no plan decides: which commit dpxplan is of, and what is free on this machine's disks at that moment. */
static bool is_of_the_moment(const char *name)
{
    return !strcmp(name, ".version") || !strcmp(name, ".memory.spaces[].available_bytes");
}

static void note(const char *name, long line, const json_t *a, const json_t *b)
{
    int i = 0;

    if (is_of_the_moment(name))
        return;
    while (i < npaths && strcmp(paths[i].name, name))
        i++;
    if (i == MAX_PATHS)
        return;
    if (i == npaths)
        paths[npaths++] = (struct path){ strdup(name), 0, line, 1e300, -1e300 };
    paths[i].count++;
    if (json_is_number(a) && json_is_number(b) && json_number_value(a) != 0) {
        double ratio = json_number_value(b) / json_number_value(a);
        paths[i].low = ratio < paths[i].low ? ratio : paths[i].low;
        paths[i].high = ratio > paths[i].high ? ratio : paths[i].high;
    }
}

/* Every path below `at` where a and b differ; elements of arrays share one path. */
static void walk(const char *at, long line, const json_t *a, const json_t *b)
{
    char below[512];
    const char *key;
    json_t *v;
    size_t i;

    if (json_is_object(a) && json_is_object(b)) {
        json_object_foreach((json_t *)(size_t)a, key, v) {
            snprintf(below, sizeof below, "%s.%s", at, key);
            walk(below, line, v, json_object_get(b, key));
        }
        json_object_foreach((json_t *)(size_t)b, key, v) {
            snprintf(below, sizeof below, "%s.%s", at, key);
            if (!json_object_get(a, key))
                note(below, line, NULL, v);
        }
    } else if (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b)) {
        snprintf(below, sizeof below, "%s[]", at);
        json_array_foreach(a, i, v)
            walk(below, line, v, json_array_get(b, i));
    } else if (!json_equal(a, b)) {
        note(at, line, a, b);
    }
}

static void compare_lines(const char *a, const char *b, long line)
{
    json_t *x, *y;

    if (!strcmp(a, b))
        return;
    x = json_loads(a, 0, NULL);
    y = json_loads(b, 0, NULL);
    if (x && y)
        walk("", line, x, y);
    else
        note(x || y ? "(answered by one, refused by the other)" : "(refused with other words)", line, NULL, NULL);
    json_decref(x);
    json_decref(y);
}

int main(int argc, char **argv)
{
    FILE *f[2];
    char *text[2] = { NULL, NULL };
    size_t room[2] = { 0, 0 };
    long line = 0;

    if (argc != 3 || !(f[0] = fopen(argv[1], "r")) || !(f[1] = fopen(argv[2], "r"))) {
        fprintf(stderr, "differences BEFORE AFTER: two files to read\n");
        return 2;
    }
    for (;;) {
        ssize_t a = getline(&text[0], &room[0], f[0]), b = getline(&text[1], &room[1], f[1]);
        line++;
        if (a < 0 || b < 0) {
            if (a >= 0 || b >= 0)
                note("(one file is longer)", line, NULL, NULL);
            break;
        }
        compare_lines(text[0], text[1], line);
    }
    for (int i = 0; i < npaths; i++) {
        printf("%6ld x %s", paths[i].count, paths[i].name);
        if (paths[i].low <= paths[i].high)
            printf("  after/before %.6g to %.6g", paths[i].low, paths[i].high);
        printf("  (first: line %ld)\n", paths[i].first);
    }
    return npaths > 0;
}
