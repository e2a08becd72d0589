/* csv_table.h -- a CSV file with a head, read line by line. */
#ifndef DPX_CSV_TABLE_H
#define DPX_CSV_TABLE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 32, LINE = 2048 };

/* Cuts a CSV line in place; "" inside quotes is a quote.  Returns the number of fields. */
static inline int split(char *line, char *field[FIELDS])
{
    int n = 0;
    char *in = line, *out = line;

    for (;;) {
        bool quoted = *in == '"';
        in += quoted;
        if (n == FIELDS)
            return n;
        field[n++] = out;
        while (*in && *in != '\n' && (quoted || *in != ',')) {
            if (quoted && *in == '"') {
                if (in[1] != '"') {
                    in++;
                    quoted = false;
                    continue;
                }
                in++;
            }
            *out++ = *in++;
        }
        bool more = *in == ',';
        in += *in ? 1 : 0;
        *out++ = '\0';
        if (!more)
            return n;
    }
}

struct table {
    char  head[LINE], line[LINE];
    char *name[FIELDS], *field[FIELDS];
    int   names, fields;
};

static inline const char *get(const struct table *t, const char *name)
{
    for (int i = 0; i < t->names && i < t->fields; i++)
        if (!strcmp(t->name[i], name))
            return t->field[i];
    return "";
}

static inline double number(const struct table *t, const char *name)
{
    return strtod(get(t, name), NULL);
}

static inline bool is(const struct table *t, const char *name, const char *value)
{
    return !strcmp(get(t, name), value);
}

static inline void text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}
#define TEXT(to, from) text(to, sizeof(to), from)

#endif
