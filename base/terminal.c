/* terminal.c -- asks the environment and the terminal itself. */
#define _DEFAULT_SOURCE
#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

int terminal_width(FILE *f, int otherwise)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    int n = columns ? atoi(columns) : 0;

    if (isatty(fileno(f)) && ioctl(fileno(f), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return n > 0 && n < 10000 ? n : otherwise;
}

bool terminal_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = getenv(names[i]);
        const char *dot = v ? strchr(v, '.') : NULL;
        if (v && *v)
            return dot && (!strncasecmp(dot, ".utf-8", 6) || !strncasecmp(dot, ".utf8", 5));
    }
    return false;
}

enum when { WHEN_AUTO, WHEN_ALWAYS, WHEN_NEVER };
const char *const terminal_whens[] = { "auto", "always", "never", NULL };
static _Thread_local enum when colour_when;

bool terminal_colour_when(const char *when)
{
    for (int i = 0; terminal_whens[i]; i++)
        if (!strcmp(terminal_whens[i], when)) {
            colour_when = (enum when)i;
            return true;
        }
    return false;
}

static bool takes_colour(FILE *f)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    if (colour_when != WHEN_AUTO)
        return colour_when == WHEN_ALWAYS;
    return !(no && *no) && isatty(fileno(f)) && term && strcmp(term, "dumb");
}

const char *terminal_ink(FILE *f, enum terminal_ink ink)
{
    static const char *const codes[] = {
        [TERMINAL_PLAIN] = "\033[0m", [TERMINAL_BOLD] = "\033[1m", [TERMINAL_RED] = "\033[31m",
        [TERMINAL_GREEN] = "\033[32m", [TERMINAL_YELLOW] = "\033[33m",
    };

    return takes_colour(f) ? codes[ink] : "";
}
