/* answers.c -- asks libdpx what standard input asks, a line each: CALL, a tab, the request.  Prints a line each: the status,
 * a tab, the answer.  tests/page/answers.js does the same with the page's library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/dpx.h"

static int sweep(const char *request, char **answer)  { return dpx_sweep(request, NULL, answer); }
static int search(const char *request, char **answer) { return dpx_search(request, NULL, answer); }

static const struct { const char *name; int (*ask)(const char *request, char **answer); } calls[] = {
    { "search", search }, { "eval", dpx_eval }, { "explain", dpx_explain }, { "sweep", sweep }, { "limits", dpx_limits },
    { "list", dpx_list }, { "import", dpx_import }, { "export", dpx_export },
};

static int answer(const char *call, const char *request)
{
    char *text;

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(call, calls[i].name)) {
            int status = calls[i].ask(request, &text);
            for (char *c = text; *c; c++)
                if (*c == '\n')
                    *c = ' ';
            printf("%d\t%s\n", status, text);
            dpx_free(text);
            return 0;
        }
    fprintf(stderr, "no call %s\n", call);
    return -1;
}

int main(void)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t n;
    int rc = 0;

    while (rc == 0 && (n = getline(&line, &size, stdin)) > 0) {
        char *tab = strchr(line, '\t');
        line[n - 1] = line[n - 1] == '\n' ? '\0' : line[n - 1];
        if (tab)
            *tab = '\0';
        rc = tab ? answer(line, tab + 1) : -1;
    }
    free(line);
    return rc < 0;
}
