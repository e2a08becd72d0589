/* duration.c -- times in words. */
#include "base/duration.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"

#define YEAR (365.25 * 86400)
#define LONGEST (1e6 * YEAR)

static const struct { const char *name; double seconds; } units[] = {
    { "ms", 1e-3 }, { "s", 1 }, { "sec", 1 }, { "secs", 1 }, { "second", 1 }, { "seconds", 1 }, { "m", 60 }, { "min", 60 }, { "mins", 60 },
    { "minute", 60 }, { "minutes", 60 }, { "h", 3600 }, { "hr", 3600 }, { "hrs", 3600 }, { "hour", 3600 }, { "hours", 3600 },
    { "d", 86400 }, { "day", 86400 }, { "days", 86400 }, { "w", 7 * 86400 }, { "week", 7 * 86400 }, { "weeks", 7 * 86400 }, { "y", YEAR }, { "yr", YEAR },
    { "year", YEAR }, { "years", YEAR },
};
enum { NUNITS = sizeof units / sizeof *units };

/* "1h30", "1:30:00", "1month": the same in one number and one unit; NULL: what it means cannot be told. */
static const char *in_one_unit(double x, const char *unit, char to[64])
{
    double minutes, seconds = 0;
    int end = 0;

    if (sscanf(unit, "%*1[hH]%lf%n", &minutes, &end) == 1 && (!unit[end] || unit[end] == 'm'))
        snprintf(to, 64, "%gmin", 60 * x + minutes);
    else if (sscanf(unit, ":%lf:%lf%n", &minutes, &seconds, &end) == 2 && !unit[end])
        snprintf(to, 64, "%gmin", 60 * x + minutes + seconds / 60);
    else if (strncasecmp(unit, "mo", 2) == 0)
        snprintf(to, 64, "%gd", 30 * x);
    else
        return NULL;
    return to;
}

int duration_parse(const char *what, const char *text, double *out)
{
    char *unit;
    double x = strtod(text, &unit);

    if (unit == text || strspn(text, " 0123456789.eE+") < (size_t)(unit - text))
        return fail("%s: \"%.40s\" is not a time; write it as 30min, 2h or 7d", what, text);
    while (*unit == ' ')
        unit++;
    if (!*unit)
        return fail("%s: %.40s of which unit? write %.20ss, %.20smin, %.20sh or %.20sd", what, text, text, text, text, text);
    for (int i = 0; i < NUNITS; i++)
        if (strcasecmp(unit, units[i].name) == 0) {
            *out = x * units[i].seconds;
            if (*out > LONGEST)
                return fail("%s: %.40s: a time is at most a million years", what, text);
            return *out > 0 ? 0 : fail("%s: a time is more than 0", what);
        }
    char one[64];
    const char *meant = in_one_unit(x, unit, one);
    return fail("%s: \"%.40s\" is not a unit of time: ms, s, min, h, d, weeks, years%s%s%s", what, unit, meant ? "; did you mean " : "",
                meant ? meant : "", meant ? "?" : "");
}

struct duration_text duration_text(double s)
{
    static const struct { double from; const char *name; double seconds; } steps[] = {
        { 2 * YEAR, "years", YEAR }, { 3 * 86400, "days", 86400 }, { 2 * 3600, "hours", 3600 }, { 120, "min", 60 }, { 1, "s", 1 }, { 0, "ms", 1e-3 },
    };
    struct duration_text t;
    int i = 0;

    if (!isfinite(s)) {
        snprintf(t.s, sizeof t.s, "for ever");
        return t;
    }
    while (s < steps[i].from)
        i++;
    double n = s / steps[i].seconds;
    snprintf(t.s, sizeof t.s, n < 1000 || n >= 1e7 ? "%.3g %s" : "%.0f %s", n, steps[i].name);
    return t;
}
