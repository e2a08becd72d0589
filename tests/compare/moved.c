/* moved.c -- which entries differ between two listings of many plans, for compare.sh.
 *
 *     moved BEFORE AFTER
 *
 * A listing has for each plan a line "@ PLAN" and the plan's lines below it; a line that ends in "{" at the margin opens a
 * section.  Both are read side by side, so either may be a pipe.  Prints for each plan that differs, up to SHOWN, how many of its
 * lines do and the first of them as it was and as it is.  Exit status 0: equal, 1: different, 2: misuse. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 10, MAX_LINES = 1 << 20 };

/* A plan's lines.  `ahead` is the next plan's first, which reading had to go as far as. */
struct listing {
    FILE *f;
    char *subject, *ahead, *line[MAX_LINES];
    int   n;
};

static char *read_line(FILE *f)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n = getline(&line, &room, f);

    if (n < 0) {
        free(line);
        return NULL;
    }
    line[strcspn(line, "\n")] = '\0';
    return line;
}

/* False: there are no more plans. */
static bool next_plan(struct listing *l)
{
    free(l->subject);
    while (l->n > 0)
        free(l->line[--l->n]);
    l->subject = l->ahead ? l->ahead : read_line(l->f);
    while ((l->ahead = read_line(l->f)) && l->ahead[0] != '@') {
        if (l->n == MAX_LINES) {
            fprintf(stderr, "moved: %s has more than %d lines\n", l->subject, MAX_LINES);
            exit(2);
        }
        l->line[l->n++] = l->ahead;
    }
    return l->subject != NULL;
}

static const char *line_of(const struct listing *l, int i)
{
    return i < l->n ? l->line[i] : "(nothing)";
}

/* How many lines differ; prints the first. */
static int compare(const struct listing *a, const struct listing *b, bool shown)
{
    const char *section = "";
    int different = 0, in_section = 0, first = 0, n = a->n > b->n ? a->n : b->n;

    for (int i = 0; i < n; i++) {
        const char *line = line_of(b, i);
        size_t end = strlen(line);
        if (!different && end > 0 && line[0] != ' ' && line[end - 1] == '{') {
            section = line;
            in_section = i;
        }
        if (!strcmp(line_of(a, i), line))
            continue;
        if (different++ == 0)
            first = i;
    }
    if (different > 0 && shown)
        printf("%s: %d of %d lines differ, first line %d of \"%s\"\n    before %s\n    after  %s\n", b->subject + 2, different, n,
               first - in_section, section, line_of(a, first), line_of(b, first));
    return different;
}

int main(int argc, char **argv)
{
    static struct listing before, after;
    long plans = 0, lines = 0, different = 0;

    if (argc != 3 || !(before.f = fopen(argv[1], "r")) || !(after.f = fopen(argv[2], "r"))) {
        fprintf(stderr, "moved BEFORE AFTER: two files to read\n");
        return 2;
    }
    for (;;) {
        bool a = next_plan(&before), b = next_plan(&after);
        if (!a && !b)
            break;
        if (!a || !b || strcmp(before.subject, after.subject)) {
            printf("the listings are of different plans: %s, %s\n", a ? before.subject : "(none)", b ? after.subject : "(none)");
            return 1;
        }
        plans++;
        lines += after.n;
        different += compare(&before, &after, different < SHOWN) > 0;
    }
    printf("%ld plans, %ld lines: %ld plans differ\n", plans, lines, different);
    return different > 0 || plans == 0;
}
