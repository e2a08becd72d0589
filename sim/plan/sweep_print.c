/* sweep_print.c -- rows of a sweep in three formats. */
#include "sim/plan/sweep_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/chart_sweep.h"
#include "base/columns.h"
#include "base/page.h"
#include "base/room.h"
#include "base/size.h"
#include "base/terminal.h"
#include "base/version.h"
#include "model/plan/modelled.h"

/* ---- a table ---- */

static int width_of(const struct sweep_axis *a)
{
    size_t w = strlen(a->key);

    for (int i = 0; i < a->n; i++)
        w = strlen(a->value[i]) > w ? strlen(a->value[i]) : w;
    return (int)(w < 40 ? w : 40);
}

/* Of the title and of every row; the highest rank falls away first where the page is narrow, rank 0 stays. */
struct field { const char *title; int width, rank; char text[48]; };
enum { FIELDS = SWEEP_AXES + 12 };

/* "-" for what there is not. */
static void number_into(struct field *f, double x, const char *format)
{
    snprintf(f->text, sizeof f->text, x >= 0 ? format : "-", x);
}

static void put_into(struct field *f, bool there, const char *text)
{
    snprintf(f->text, sizeof f->text, "%.40s", there ? text : "-");
}

/* The columns of a sweep, with what point i (r NULL: only titles) has in them; how many. */
static int fields_of(const struct sweep *s, int64_t i, const struct sweep_row *r, struct field f[FIELDS])
{
    static const char *const fits[] = { [SWEEP_FITS] = "yes", [SWEEP_TIGHT] = "tight", [SWEEP_NO] = "no", [SWEEP_REFUSED] = "-" };
    static const struct sweep_row none;
    bool timed = r && r->step_s > 0 && (r->state == SWEEP_FITS || r->state == SWEEP_TIGHT), there = r && r->state != SWEEP_REFUSED;
    char step[24];
    int n = 0;

    for (int a = 0; a < s->naxes; a++) {
        f[n] = (struct field){ s->axis[a].key, width_of(&s->axis[a]), 0, "" };
        put_into(&f[n++], true, r ? sweep_value(s, i, a) : "");
    }
    r = r ? r : &none;
    snprintf(step, sizeof step, "%.4g s", r->step_s);
    f[n] = (struct field){ "GPUs", 7, s->scales ? 1 : 5, "" };
    number_into(&f[n++], there ? (double)r->gpus : -1, "%.0f");
    f[n] = (struct field){ "step", 10, 0, "" };
    put_into(&f[n++], timed, step);
    f[n] = (struct field){ s->rate, 9, 1, "" };
    put_into(&f[n++], timed, count_text(llround(r->rate)).s);
    f[n] = (struct field){ "a GPU", 8, 6, "" };
    put_into(&f[n++], timed, count_text(llround(r->each)).s);
    f[n] = (struct field){ "MFU", 6, 2, "" };
    number_into(&f[n++], timed && r->mfu > 0 ? 100 * r->mfu : -1, "%.1f%%");
    f[n] = (struct field){ "reserved", 11, 0, "" };
    put_into(&f[n++], there && r->taken, size_text(r->taken).s);
    f[n] = (struct field){ "allocated", 11, 3, "" };
    put_into(&f[n++], there && r->bytes, size_text(r->bytes).s);
    if (s->sends) {
        f[n] = (struct field){ "sent/rank", 11, 4, "" };
        put_into(&f[n++], there && r->sent, size_text(r->sent).s);
    }
    f[n] = (struct field){ "fits", 5, 0, "" };
    put_into(&f[n++], there, fits[r->state]);
    if (s->scales) {
        f[n] = (struct field){ "efficiency", 10, 2, "" };
        number_into(&f[n++], 100 * r->efficiency, "%.1f%%");
    }
    if (s->money->tokens) {
        f[n] = (struct field){ "days", 9, 0, "" };
        number_into(&f[n++], r->days, "%.4g");
    }
    if (s->money->tokens && s->money->price >= 0) {
        f[n] = (struct field){ "cost", 12, 0, "" };
        money_sum(s->money, r->cost, f[n].text, sizeof f[n].text);
        n++;
    }
    return n;
}

/* Gives columns that there is no room for no width. */
static void fit(struct field *f, int n, int width)
{
    for (;;) {
        int sum = 0, last = -1;
        for (int k = 0; k < n; k++) {
            sum += f[k].width ? f[k].width + 2 : 0;
            if (f[k].width && f[k].rank && (last < 0 || f[k].rank > f[last].rank))
                last = k;
        }
        if (sum <= width || last < 0)
            return;
        f[last].width = 0;
    }
}

void sweep_table_head(const struct sweep *s, bool all, FILE *to)
{
    struct field f[FIELDS];
    int n = fields_of(s, 0, NULL, f);

    fit(f, n, page_width(to));
    fputs(page_ink(to, TERMINAL_BOLD), to);
    for (int k = 0; k < n; k++)
        if (f[k].width)
            fprintf(to, "%*s  ", f[k].width, f[k].title);
    fprintf(to, "%s%s\n", all ? "plan" : "", page_ink(to, TERMINAL_PLAIN));
}

void sweep_table_row(const struct sweep *s, int64_t i, const struct sweep_row *r, bool all, FILE *to)
{
    enum terminal_ink ink = r->state == SWEEP_FITS ? TERMINAL_PLAIN : r->state == SWEEP_TIGHT ? TERMINAL_YELLOW : TERMINAL_RED;
    bool noted = r->state == SWEEP_TIGHT || r->state == SWEEP_NO;
    char note[2 * SWEEP_WHAT];
    struct field f[FIELDS];
    int n = fields_of(s, i, r, f);

    fit(f, n, page_width(to));
    int used = 0;
    for (int k = 0; k < n; k++)
        if (f[k].width)
            used += fprintf(to, "%*s  ", f[k].width, f[k].text);
    if (!r->words[0])
        snprintf(note, sizeof note, "%s", r->what);
    else
        snprintf(note, sizeof note, "%s%s%s%s%s", all ? r->what : "", all && noted ? ", " : "", all && noted ? sweep_state_name(r->state) : "",
                 all && noted && r->decides[0] ? ": " : "", noted ? r->decides : "");
    bool below = used + (int)strlen(note) > page_width(to) && 3 * used > 2 * page_width(to);
    fprintf(to, "%s" PAGE_HANG "%s%s%s", below ? "\n    " : "", page_ink(to, ink), note, page_ink(to, TERMINAL_PLAIN));
    if (!s->has_plan && !all && r->words[0])
        fprintf(to, "\n    " PAGE_HANG "%s", r->words);
    fputc('\n', to);
    fflush(to);
}

/* Each label once, in words. */
static void print_labels(FILE *rows, int64_t n, FILE *to)
{
    static const struct column columns[] = { { "", false, 0 }, { "", false, 0 } };
    struct columns *t = columns_new(columns, 2);
    char (*said)[SWEEP_WHAT] = NULL;
    int64_t nsaid = 0, room = 0;
    struct sweep_row r;

    rewind(rows);
    for (int64_t i = 0; i < n && fread(&r, sizeof r, 1, rows) == 1; i++) {
        bool known = !r.words[0];
        for (int64_t k = 0; k < nsaid && !known; k++)
            known = !strcmp(said[k], r.what);
        if (known)
            continue;
        said = room_for(said, nsaid, &room, sizeof *said);
        memcpy(said[nsaid++], r.what, sizeof *said);
        columns_cell(t, "%s", r.what);
        columns_cell(t, "%s", r.words);
    }
    free(said);
    if (nsaid)
        fprintf(to, "\nwhat the labels mean\n");
    columns_print(t, to, page_width(to));
}

/* Of how much, where that is the same of all points. */
static void print_memory(FILE *rows, int64_t n, FILE *to)
{
    struct sweep_row r;
    int64_t of = 0;
    bool same = true;

    rewind(rows);
    for (int64_t i = 0; i < n && fread(&r, sizeof r, 1, rows) == 1; i++) {
        same &= r.state == SWEEP_REFUSED || !of || r.available == of;
        of = r.state == SWEEP_REFUSED ? of : r.available;
    }
    if (of && same)
        fprintf(to, "\nReserved memory of the fullest GPU decides; %s are usable.\n", size_text(of).s);
    else if (of)
        fputs("\nReserved memory of the fullest GPU decides.\n", to);
}

/* Is there room for it? */
static bool has_column(const struct sweep *s, const char *title, int width)
{
    struct field f[FIELDS];
    int n = fields_of(s, 0, NULL, f), wide = 0;

    fit(f, n, width);
    for (int k = 0; k < n; k++)
        wide = strcmp(f[k].title, title) ? wide : f[k].width;
    return wide > 0;
}

void sweep_table_end(const struct sweep *s, FILE *rows, int64_t n, bool all, FILE *to)
{
    struct sweep_row r = { .words = "" };

    print_memory(rows, n, to);
    if (has_column(s, "sent/rank", page_width(to)))
        fputs("sent/rank: what one GPU puts on the wire in a step.\n", to);
    for (int i = 0; i < s->naxes; i++)
        if (!strcmp(s->axis[i].key, "network"))
            fputs("network: Gbit/s of a node, of all its adapters together.\n", to);
    rewind(rows);
    if (all)
        print_labels(rows, n, to);
    else if (s->has_plan && n > 0 && fread(&r, sizeof r, 1, rows) == 1 && r.words[0])
        fprintf(to, "The first row is %s.\n", r.words);
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
          "efficiency,days,cost,taken_bytes,sent_bytes_per_rank,plan\n", to);
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
    csv_number(r->rate, timed && r->tokens, to);
    csv_number(r->each, timed && r->tokens, to);
    csv_number(r->mfu, timed && r->mfu > 0, to);
    fprintf(to, there ? "%" PRId64 ",%" PRId64 "," : ",,", r->bytes, r->available);
    csv_number(r->efficiency, timed && r->efficiency >= 0, to);
    csv_number(r->days, r->days >= 0, to);
    csv_number(r->cost, r->cost >= 0, to);
    csv_number((double)r->taken, r->taken > 0, to);
    csv_number((double)r->sent, there && r->words[0], to);
    csv_text(r->what, to);
    fputc('\n', to);
}

/* ---- JSON ---- */

/* A number where all values of the axis are; 8k tokens are 8192. */
static json_t *value_json(const struct sweep_axis *a, const char *text)
{
    char *end;
    double x = strtod(text, &end);

    if (!a->numeric || (*end && (strcmp(a->key, "seq") || !chart_sweep_number(text, &x))))
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
    json_t *row = json_pack("{s:o, s:s, s:o, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "at", at,
                     there ? "label" : "why_not", r->what, "gpus", there ? json_integer(r->gpus) : json_null(), "fits", fits,
                     "verdict", sweep_state_name(r->state), "decides", r->decides[0] ? json_string(r->decides) : json_null(), "step_s", real(r->step_s, timed), "low_s", real(r->low_s, timed),
                     "high_s", real(r->high_s, timed), "tokens_per_s", real(r->rate, timed && r->tokens),
                     "tokens_per_s_per_gpu", real(r->each, timed && r->tokens), "mfu", real(r->mfu, timed && r->mfu > 0),
                     "memory_bytes", there ? json_integer(r->bytes) : json_null(),
                     "taken_bytes", r->taken ? json_integer(r->taken) : json_null(),
                     "available_bytes", there ? json_integer(r->available) : json_null(),
                     "efficiency", real(r->efficiency, timed && r->efficiency >= 0), "days", real(r->days, r->days >= 0),
                     "cost", real(r->cost, r->cost >= 0), "sent_bytes_per_rank", there && r->words[0] ? json_integer(r->sent) : json_null());
    if (timed && !r->tokens)
        json_object_set_new(row, "samples_per_s", json_real(r->rate));
    return row;
}

void sweep_json_row(const struct sweep *s, int64_t i, const struct sweep_row *r, FILE *to)
{
    fputs(i ? ",\n    " : "\n    ", to);
    dump(sweep_row_json(s, i, r), to);
}

void sweep_json_end(const struct sweep *s, int64_t done, FILE *to)
{
    json_t *versions = modelled_versions();
    char *frameworks = json_dumps(versions, JSON_PRESERVE_ORDER);

    fprintf(to, "\n  ],\n  \"done\": %" PRId64 ",\n  \"of\": %" PRId64 ",\n  \"version\": \"%s\",\n  \"frameworks\": %s\n}\n", done, s->points,
            version_text(), frameworks);
    json_decref(versions);
    free(frameworks);
}
