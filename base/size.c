/* size.c -- 25MiB, 8k and 1.5e9 into numbers, and numbers into 25.00 MiB and 8.03B. */
#include "base/size.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/dtype.h"
#include "base/fail.h"

struct unit {
    const char *name;
    int64_t     factor;
};

static const struct unit bytes_units[] = {
    { "B", 1 },
    { "kB", 1000 }, { "MB", 1000000 }, { "GB", 1000000000 },
    { "TB", 1000000000000 }, { "PB", 1000000000000000 },
    { "KiB", 1LL << 10 }, { "MiB", 1LL << 20 }, { "GiB", 1LL << 30 },
    { "TiB", 1LL << 40 }, { "PiB", 1LL << 50 },
    { 0 }
};

static const struct unit count_units[] = {
    { "K", 1000 }, { "M", 1000000 }, { "B", 1000000000 }, { "T", 1000000000000 },
    { 0 }
};

static const struct unit length_units[] = {
    { "K", 1LL << 10 }, { "M", 1LL << 20 },
    { 0 }
};

/* What a decimal number says: digits * 10^exponent.  Nineteen digits hold
 * SIZE_LIMIT, and times the largest factor stay below 2^114. */
struct decimal {
    uint64_t digits;
    int      exponent;
};

#define DIGITS_LIMIT UINT64_C(1000000000000000000)
#define EXPONENT_LIMIT 1000

static const char *read_exponent(const char *s, int *exponent)
{
    bool negative = *s == '-';
    int e = 0;

    if (*s == '-' || *s == '+')
        s++;
    if (!isdigit((unsigned char)*s))
        return NULL;
    for (; isdigit((unsigned char)*s); s++)
        if (e < EXPONENT_LIMIT)
            e = 10 * e + (*s - '0');
    *exponent += negative ? -e : e;
    return s;
}

/* Reads digits, at most one point among or beside them, and an exponent.
 * Returns what follows, or NULL if there is no number. */
static const char *read_decimal(const char *s, struct decimal *d)
{
    bool point = false, any = false;

    *d = (struct decimal){ 0, 0 };
    for (; isdigit((unsigned char)*s) || (*s == '.' && !point); s++) {
        if (*s == '.') {
            point = true;
            continue;
        }
        any = true;
        if (d->digits >= DIGITS_LIMIT) {        /* the rest only moves the point */
            d->exponent += !point && d->exponent < EXPONENT_LIMIT;
        } else {
            d->digits = 10 * d->digits + (uint64_t)(*s - '0');
            d->exponent -= point;
        }
    }
    if (!any)
        return NULL;
    if ((*s == 'e' || *s == 'E') && s[1] != '\0' && strchr("+-0123456789", s[1]))
        return read_exponent(s + 1, &d->exponent);
    return s;
}

enum { FITS, TOO_LARGE, NOT_WHOLE };

/* digits * 10^exponent * factor, to the nearest whole number when `round`. */
static int scale(struct decimal d, int64_t factor, bool round, int64_t *out)
{
    unsigned __int128 n = (unsigned __int128)d.digits * (unsigned __int128)factor;

    if (n == 0) {
        *out = 0;
        return FITS;
    }
    for (; d.exponent > 0; d.exponent--) {
        n *= 10;
        if (n > SIZE_LIMIT)
            return TOO_LARGE;
    }
    unsigned last = 0;                  /* the digit cut off last decides the rounding */
    for (; d.exponent < 0; d.exponent++) {
        last = (unsigned)(n % 10);
        n /= 10;
        if (last && !round)
            return NOT_WHOLE;
    }
    n += last >= 5;
    if (n > SIZE_LIMIT)
        return TOO_LARGE;
    *out = (int64_t)n;
    return FITS;
}

static const struct unit *find_unit(const struct unit *units, const char *name)
{
    for (; units->name; units++)
        if (strcasecmp(units->name, name) == 0)
            return units;
    return NULL;
}

/* What people write for a unit: the first of which the text has the beginning.  "": they name what is counted. */
struct written { const char *begins, *meant; };

static const struct written bytes_written[] = {
    { "kil", "kB" }, { "gig", "GB" }, { "ki", "KiB" }, { "mi", "MiB" }, { "gi", "GiB" }, { "ti", "TiB" }, { "pi", "PiB" },
    { "k", "kB" }, { "m", "MB" }, { "g", "GB" }, { "t", "TB" }, { "p", "PB" }, { 0 }
};
static const struct written count_written[] = {
    { "tok", "" }, { "samp", "" }, { "th", "K" }, { "k", "K" }, { "m", "M" }, { "b", "B" }, { "g", "B" }, { "t", "T" }, { 0 }
};
static const struct written length_written[] = { { "k", "k" }, { "m", "M" }, { "t", "" }, { 0 } };

/* "did you mean 80GB?", where that can be told; else what is expected. */
static void advise(char *to, size_t size, const char *text, const char *rest, struct decimal d, const struct unit *units,
                   const char *expected)
{
    const struct written *w = units == bytes_units ? bytes_written : units == count_units ? count_written : length_written;
    int number = (int)(rest - text);
    int64_t n;

    while (number > 0 && text[number - 1] == ' ')
        number--;
    snprintf(to, size, "expected %s", expected);
    if (*rest == ',' && isdigit((unsigned char)rest[1]))
        snprintf(to, size, "write it with a point, and nothing between thousands");
    if (strchr(rest, '/') || strstr(rest, "bit"))
        return;                         /* a rate, or bits */
    while (w->begins && strncasecmp(rest, w->begins, strlen(w->begins)) != 0)
        w++;
    const struct unit *unit = w->begins && *w->meant ? find_unit(units, w->meant) : NULL;
    if (w->begins && scale(d, unit ? unit->factor : 1, units == bytes_units, &n) == FITS)
        snprintf(to, size, "did you mean %.*s%s?", number, text, w->meant);
}

static int parse(const char *what, const char *text, const struct unit *units,
                 const char *expected, int64_t *out)
{
    struct decimal d;
    const char *rest;
    int64_t factor = 1;

    if (*text == '-')
        return fail("%s: '%.60s' is negative; expected %s", what, text, expected);
    rest = read_decimal(text, &d);
    if (!rest)
        return fail("%s: '%.60s' is not a number; expected %s", what, text, expected);
    while (*rest == ' ')
        rest++;
    if (*rest) {
        const struct unit *unit = find_unit(units, rest);

        char advice[120];

        if (!unit) {
            advise(advice, sizeof advice, text, rest, d, units, expected);
            return fail("%s: '%.60s' ends in the unknown unit '%.20s'; %s", what, text, rest, advice);
        }
        factor = unit->factor;
    }
    switch (scale(d, factor, units == bytes_units && factor > 1, out)) {
    case TOO_LARGE:
        return fail("%s: '%.60s' is too large; at most 2^60, about 1.15e18", what, text);
    case NOT_WHOLE:
        return fail("%s: '%.60s' is not a whole number; expected %s", what, text, expected);
    }
    return 0;
}

int size_parse(const char *what, const char *text, int64_t *out)
{
    return parse(what, text, bytes_units, "bytes such as 25MiB, 80GB or 1.5e9", out);
}

int count_parse(const char *what, const char *text, int64_t *out)
{
    return parse(what, text, count_units, "a count such as 64, 1.5e9 or 8B", out);
}

int length_parse(const char *what, const char *text, int64_t *out)
{
    return parse(what, text, length_units, "tokens such as 2048 or 8k (8192)", out);
}

/* n in the largest unit that leaves at least 1, two decimals.  A unit is left
 * as soon as two decimals would round to a whole `base` of it. */
static struct size_text in_units(int64_t n, double base, const char *const *units)
{
    struct size_text t;
    double x = (double)n, sign = x < 0 ? -1 : 1;
    int u = 0;

    x *= sign;
    while (units[u + 1] && x >= (u ? base - 0.005 : base)) {
        x /= base;
        u++;
    }
    snprintf(t.s, sizeof t.s, "%.*f%s", u ? 2 : 0, sign * x, units[u]);
    return t;
}

struct size_text size_text(int64_t bytes)
{
    static const char *const units[] = { " B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB", NULL };

    return in_units(bytes, 1024, units);
}

struct size_text count_text(int64_t n)
{
    static const char *const units[] = { "", "K", "M", "B", "T", NULL };

    return in_units(n, 1000, units);
}

int size_too_small(const char *what, int64_t bytes)
{
    return bytes == 0 ? fail("%s: 0 bytes are too little for a memory; expected bytes such as 80GB", what)
                      : fail("%s: %" PRId64 " is in bytes, too little for a memory; did you mean %" PRId64 "%s?", what, bytes, bytes,
                             bytes < 10000 ? "GB" : "MB");
}
