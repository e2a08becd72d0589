/* sweep_print.c -- rows of a sweep in three formats. */
#include "sim/plan/sweep_print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/terminal.h"
#include "base/version.h"

/* ---- a table ---- */

static int width_of(const struct sweep_axis *a)
{
    size_t w = strlen(a->key);

    for (int i = 0; i < a->n; i++)
        w = strlen(a->value[i]) > w ? strlen(a->value[i]) : w;
    return (int)(w < 40 ? w : 40);
}

void sweep_table_head(const struct sweep *s, FILE *to)
{
    fputs(terminal_ink(to, TERMINAL_BOLD), to);
    for (int a = 0; a < s->naxes; a++)
        fprintf(to, "%*s  ", width_of(&s->axis[a]), s->axis[a].key);
    fprintf(to, "%7s %10s %10s %9s %6s %11s", "GPUs", "step", "tokens/s", "a GPU", "MFU", "memory");
    if (s->scales)
        fprintf(to, " %10s", "efficiency");
    if (s->money->tokens)
        fprintf(to, " %9s", "days");
    if (s->money->tokens && s->money->price >= 0)
        fprintf(to, " %12s", "cost");
    fprintf(to, "  plan%s\n", terminal_ink(to, TERMINAL_PLAIN));
}

/* "-" for what there is not. */
struct number { char s[24]; };
static struct number number_text(double x, const char *format)
{
    struct number n = { "-" };

    if (x >= 0)
        snprintf(n.s, sizeof n.s, format, x);
    return n;
}

void sweep_table_row(const struct sweep *s, int64_t i, const struct sweep_row *r, FILE *to)
{
    enum terminal_ink ink = r->state == SWEEP_FITS ? TERMINAL_PLAIN : r->state == SWEEP_TIGHT ? TERMINAL_YELLOW : TERMINAL_RED;

    for (int a = 0; a < s->naxes; a++)
        fprintf(to, "%*.40s  ", width_of(&s->axis[a]), sweep_value(s, i, a));
    if (r->state == SWEEP_REFUSED)
        fprintf(to, "%7s %10s %10s %9s %6s %11s", "-", "-", "-", "-", "-", "-");
    else if (r->state == SWEEP_NO)
        fprintf(to, "%7" PRId64 " %10s %10s %9s %6s %11s", r->gpus, "-", "-", "-", "-",
                r->bytes ? size_text(r->bytes).s : "-");
    else
        fprintf(to, "%7" PRId64 " %8.4g s %10s %9s %5.1f%% %11s", r->gpus, r->step_s,
                count_text((int64_t)r->tokens_per_s).s, count_text((int64_t)r->each).s, 100 * r->mfu,
                size_text(r->bytes).s);
    if (s->scales)
        fprintf(to, " %10s", number_text(100 * r->efficiency, "%.1f%%").s);
    if (s->money->tokens)
        fprintf(to, " %9s", number_text(r->days, "%.4g").s);
    if (s->money->tokens && s->money->price >= 0)
        fprintf(to, " %12s", number_text(r->cost, "%.0f").s);
    fprintf(to, "  %s", r->what);
    if (r->state == SWEEP_TIGHT || r->state == SWEEP_NO)
        fprintf(to, "%s, %s%s%s%s", terminal_ink(to, ink), sweep_state_name(r->state), r->decides[0] ? ": " : "", r->decides,
                terminal_ink(to, TERMINAL_PLAIN));
    fputc('\n', to);
    if (terminal_colour(to))
        fflush(to);
}

/* ---- CSV (RFC 4180) ---- */

static void csv_text(const char *s, FILE *to)
{
    if (!strpbrk(s, ",\"\r\n")) {
        fputs(s, to);
        return;
    }
    fputc('"', to);
    for (; *s; s++) {
        if (*s == '"')
            fputc('"', to);
        fputc(*s, to);
    }
    fputc('"', to);
}

void sweep_csv_head(const struct sweep *s, FILE *to)
{
    for (int a = 0; a < s->naxes; a++) {
        csv_text(s->axis[a].key, to);
        fputc(',', to);
    }
    fputs("gpus,verdict,step_s,low_s,high_s,tokens_per_s,tokens_per_s_per_gpu,mfu,memory_bytes,available_bytes,"
          "efficiency,days,cost,plan\n", to);
}

/* Empty where there is none. */
static void csv_number(double x, bool there, FILE *to)
{
    if (there)
        fprintf(to, "%.10g", x);
    fputc(',', to);
}

void sweep_csv_row(const struct sweep *s, int64_t i, const struct sweep_row *r, FILE *to)
{
    bool timed = r->step_s > 0, there = r->state != SWEEP_REFUSED;

    for (int a = 0; a < s->naxes; a++) {
        csv_text(sweep_value(s, i, a), to);
        fputc(',', to);
    }
    csv_number((double)r->gpus, there, to);
    fprintf(to, "%s,", sweep_state_name(r->state));
    csv_number(r->step_s, timed, to);
    csv_number(r->low_s, timed, to);
    csv_number(r->high_s, timed, to);
    csv_number(r->tokens_per_s, timed, to);
    csv_number(r->each, timed, to);
    csv_number(r->mfu, timed, to);
    fprintf(to, there ? "%" PRId64 ",%" PRId64 "," : ",,", r->bytes, r->available);
    csv_number(r->efficiency, timed && r->efficiency >= 0, to);
    csv_number(r->days, r->days >= 0, to);
    csv_number(r->cost, r->cost >= 0, to);
    csv_text(r->what, to);
    fputc('\n', to);
}

/* ---- JSON ---- */

static json_t *value_json(const struct sweep_axis *a, const char *text)
{
    char *end;
    double x = strtod(text, &end);

    if (!a->numeric || *end)
        return json_string(text);
    return x >= -9e15 && x <= 9e15 && x >= (double)(int64_t)x && x <= (double)(int64_t)x ? json_integer((int64_t)x)
                                                                                            : json_real(x);
}

static json_t *real(double x, bool there)
{
    return there ? json_real(x) : json_null();
}

static void dump(json_t *j, FILE *to)
{
    json_dumpf(j, to, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);
    json_decref(j);
}

json_t *sweep_axes_json(const struct sweep *s)
{
    json_t *over = json_array();

    for (int a = 0; a < s->naxes; a++)
        json_array_append_new(over, json_string(s->axis[a].key));
    return over;
}

void sweep_json_head(const struct sweep *s, FILE *to)
{
    fprintf(to, "{\n  \"dpx\": 1,\n  \"mode\": \"%s\",\n  \"over\": ", s->has_plan ? "eval" : "search");
    dump(sweep_axes_json(s), to);
    fputs(",\n  \"points\": [", to);
}

json_t *sweep_row_json(const struct sweep *s, int64_t i, const struct sweep_row *r)
{
    bool timed = r->step_s > 0, there = r->state != SWEEP_REFUSED, fits = r->state == SWEEP_FITS || r->state == SWEEP_TIGHT;
    json_t *at = json_object();

    for (int a = 0; a < s->naxes; a++)
        json_object_set_new(at, s->axis[a].key, value_json(&s->axis[a], sweep_value(s, i, a)));
    return json_pack("{s:o, s:s, s:o, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "at", at,
                     there ? "label" : "why_not", r->what, "gpus", there ? json_integer(r->gpus) : json_null(), "fits", fits,
                     "verdict", sweep_state_name(r->state), "decides", r->decides[0] ? json_string(r->decides) : json_null(), "step_s", real(r->step_s, timed), "low_s", real(r->low_s, timed),
                     "high_s", real(r->high_s, timed), "tokens_per_s", real(r->tokens_per_s, timed),
                     "tokens_per_s_per_gpu", real(r->each, timed), "mfu", real(r->mfu, timed),
                     "memory_bytes", there ? json_integer(r->bytes) : json_null(),
                     "available_bytes", there ? json_integer(r->available) : json_null(),
                     "efficiency", real(r->efficiency, timed && r->efficiency >= 0), "days", real(r->days, r->days >= 0),
                     "cost", real(r->cost, r->cost >= 0));
}

void sweep_json_row(const struct sweep *s, int64_t i, const struct sweep_row *r, FILE *to)
{
    fputs(i ? ",\n    " : "\n    ", to);
    dump(sweep_row_json(s, i, r), to);
}

void sweep_json_end(const struct sweep *s, int64_t done, FILE *to)
{
    fprintf(to, "\n  ],\n  \"done\": %" PRId64 ",\n  \"of\": %" PRId64 ",\n  \"version\": \"%s\"\n}\n", done, s->points, version_text());
}
