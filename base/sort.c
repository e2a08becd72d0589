/* sort.c -- merge sort: halves are sorted, then merged, of equals those of the first half first.  A few are put in their places one by one. */
#include "base/sort.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef int compare_fn(const void *a, const void *b);

enum { FEW = 8 };

/* room: for one. */
static void insert(char *at, size_t n, size_t size, compare_fn *compare, char *room)
{
    for (size_t i = 1; i < n; i++) {
        char *mine = at + i * size, *to = mine;
        while (to > at && compare(to - size, mine) > 0)
            to -= size;
        if (to == mine)
            continue;
        memcpy(room, mine, size);
        memmove(to + size, to, (size_t)(mine - to));
        memcpy(to, room, size);
    }
}

/* room: for half of them. */
static void sort(char *at, size_t n, size_t size, compare_fn *compare, char *room)
{
    size_t half = n / 2;
    char *second = at + half * size, *end = at + n * size;

    if (n <= FEW) {
        insert(at, n, size, compare, room);
        return;
    }
    sort(at, half, size, compare, room);
    sort(second, n - half, size, compare, room);
    if (compare(second - size, second) <= 0)
        return;
    memcpy(room, at, half * size);
    for (char *first = room, *over = room + half * size; first < over; at += size) {
        bool from_second = second < end && compare(first, second) > 0;
        memcpy(at, from_second ? second : first, size);
        *(from_second ? &second : &first) += size;
    }
}

void sort_stable(void *array, size_t n, size_t size, compare_fn *compare)
{
    if (n < 2)
        return;
    char *room = malloc(n / 2 * size);
    if (!room)
        abort();
    sort(array, n, size, compare, room);
    free(room);
}
