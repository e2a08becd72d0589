/* sort.c -- merge sort of where elements are: halves are sorted, then merged, of equals those of the first half first.  A few are put in
 * their places one by one.  Then each element moves once. */
#include "base/sort.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef int compare_fn(const void *a, const void *b);

enum { FEW = 8 };

static void insert(const char **at, size_t n, compare_fn *compare)
{
    for (size_t i = 1; i < n; i++) {
        const char *mine = at[i];
        size_t to = i;
        for (; to > 0 && compare(at[to - 1], mine) > 0; to--)
            at[to] = at[to - 1];
        at[to] = mine;
    }
}

/* room: for half of them. */
static void sort(const char **at, size_t n, compare_fn *compare, const char **room)
{
    size_t half = n / 2;
    const char **second = at + half, **end = at + n;

    if (n <= FEW) {
        insert(at, n, compare);
        return;
    }
    sort(at, half, compare, room);
    sort(second, n - half, compare, room);
    if (compare(second[-1], second[0]) <= 0)
        return;
    memcpy(room, at, half * sizeof *at);
    for (const char **first = room, **over = room + half; first < over; at++) {
        bool from_second = second < end && compare(*first, *second) > 0;
        *at = from_second ? *second++ : *first++;
    }
}

static bool is_in_place(const char *array, size_t n, size_t size, const char *const *at)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] != array + i * size)
            return false;
    return true;
}

void sort_stable(void *array, size_t n, size_t size, compare_fn *compare)
{
    const char *few[FEW];
    char *sorted;

    if (n < 2)
        return;
    const char **at = n <= FEW ? few : malloc((n + n / 2) * sizeof *at);
    if (!at)
        abort();
    for (size_t i = 0; i < n; i++)
        at[i] = (const char *)array + i * size;
    sort(at, n, compare, at + n);
    if (!is_in_place(array, n, size, at)) {
        if (!(sorted = malloc(n * size)))
            abort();
        for (size_t i = 0; i < n; i++)
            memcpy(sorted + i * size, at[i], size);
        memcpy(array, sorted, n * size);
        free(sorted);
    }
    if (at != few)
        free(at);
}
