/* unit.c -- a number's digits and unit: three digits that count, and none that say nothing. */
#include "base/chart/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/percent.h"
#include "base/size.h"

struct scale { double least, per; const char *unit; };

static const struct scale times[] = {
    { 100, 1, "s" }, { 1, 1, "s" }, { 1e-3, 1e-3, "ms" }, { 1e-6, 1e-6, "µs" }, { 0, 1e-9, "ns" }
};
static const struct scale sizes[] = { { 1099511627776., 1099511627776., "TiB" },
                                      { 1073741824., 1073741824., "GiB" },
                                      { 1048576., 1048576., "MiB" },
                                      { 1024., 1024., "KiB" },
                                      { 0, 1, "B" } };
static const struct scale flops[] = { { 1e12, 1e12, "TFLOP" }, { 1e9, 1e9, "GFLOP" }, { 1e6, 1e6, "MFLOP" },
                                      { 1e3, 1e3, "kFLOP" }, { 0, 1, "FLOP" } };

/* Three digits that count, never an exponent. */
static int decimals_of(double v)
{
    int n = v == 0 ? 0 : 2 - (int)floor(log10(fabs(v)));

    return n < 0 ? 0 : n > 6 ? 6 : n;
}

static void three_digits(char *to, size_t size, double v, const char *unit)
{
    snprintf(to, size, "%.*f %s", decimals_of(v), v, unit);
}

static const struct scale *scale_of(const struct scale *s, double v)
{
    while (s->least > fabs(v) * (1 + 1e-12))
        s++;
    return s;
}

static void scaled(char *to, size_t size, const struct scale *table, double v)
{
    const struct scale *s = scale_of(table, v);

    if (v == 0)
        snprintf(to, size, "0 %s", table == times ? "s" : s->unit);
    else
        three_digits(to, size, v / s->per, s->unit);
}

/* 2^63 is a double, and no int64_t: INT64_MAX becomes it. */
static int64_t whole(double v)
{
    return v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
}

/* 100k, 2.5M: up to 9999 as it is. */
static const char *thousands(double *v)
{
    static const char *const letters[] = { "", "k", "M", "G", "T" };
    int i = 0;

    for (; fabs(*v) >= (i ? 1e3 : 1e4) * (1 - 1e-12) && i < 4; i++)
        *v /= 1e3;
    return letters[i];
}

struct shown unit_shown(enum measure u, double v)
{
    struct shown out = { "–" };
    const char *letter;

    if (!isfinite(v))
        return out;
    switch (u) {
    case UNIT_TEXT:     out.s[0] = '\0'; break;
    case UNIT_ID:
    case UNIT_COUNT:    snprintf(out.s, sizeof out.s, "%.0f", v); break;
    case UNIT_BYTES:    memcpy(out.s, size_text(whole(v)).s, sizeof size_text(0).s); break;
    case UNIT_SECONDS:  scaled(out.s, sizeof out.s, times, v); break;
    case UNIT_SHARE:    snprintf(out.s, sizeof out.s, "%s", percent_share(v).s); break;
    case UNIT_CHANGE:   snprintf(out.s, sizeof out.s, "%s", percent_change(1 + v).s); break;
    case UNIT_TIMES:    three_digits(out.s, sizeof out.s, v, "times"); break;
    case UNIT_TOKENS_S:
        letter = thousands(&v);
        snprintf(out.s, sizeof out.s, "%.*f%s tokens/s", decimals_of(v), v, letter);
        break;
    case UNIT_GBS:      three_digits(out.s, sizeof out.s, v, "GB/s"); break;
    case UNIT_GFLOPS:   three_digits(out.s, sizeof out.s, v, "GFLOP/s"); break;
    case UNIT_FLOP:     scaled(out.s, sizeof out.s, flops, v); break;
    case UNIT_LOSS:     snprintf(out.s, sizeof out.s, "%.4f", v); break;
    }
    return out;
}

static void tick(struct shown *out, const struct scale *table, double v)
{
    const struct scale *s = scale_of(table, v);

    if (v == 0)
        snprintf(out->s, sizeof out->s, "0");
    else
        snprintf(out->s, sizeof out->s, "%.4g %s", v / s->per, s->unit);
}

struct shown unit_shown_tick(enum measure u, double v)
{
    struct shown out = { "" };
    const char *letter;

    switch (u) {
    case UNIT_BYTES:   tick(&out, sizes, v); break;
    case UNIT_SECONDS: tick(&out, times, v); break;
    case UNIT_FLOP:    tick(&out, flops, v); break;
    case UNIT_SHARE: case UNIT_CHANGE:      /* no percentage above 999 */
        if (v > 9.99)
            snprintf(out.s, sizeof out.s, "%.4g times", u == UNIT_CHANGE ? 1 + v : v);
        else
            snprintf(out.s, sizeof out.s, "%.4g %%", 100 * v);
        break;
    case UNIT_GBS:     snprintf(out.s, sizeof out.s, "%.4g GB/s", v); break;
    case UNIT_GFLOPS:  snprintf(out.s, sizeof out.s, "%.4g", v); break;
    default:
        letter = thousands(&v);
        snprintf(out.s, sizeof out.s, "%.4g%s", v, letter);
    }
    return out;
}
