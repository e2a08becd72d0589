#include "model/files.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "model/fail.h"
#include "model/input.h"

/* Larger than any config and smaller than any checkpoint given by mistake. */
#define LARGEST_JSON (16 << 20)
#define LARGEST_DATA (1 << 30)

static json_t *read_up_to(const char *path, long long most, const char *meant)
{
    struct stat st;
    json_error_t e;
    json_t *j = NULL;
    FILE *f = input_open(path);

    if (!f)
        return NULL;
    if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && st.st_size > most)
        fail("%s: has %lld bytes, too many for %s", path, (long long)st.st_size, meant);
    else if (!(j = json_loadf(f, JSON_REJECT_DUPLICATES, &e))) {
        for (char *p = e.text; *p; p++)         /* it may quote the file */
            if ((unsigned char)*p < ' ' || *p == 0x7f)
                *p = '?';
        fail("%s:%d:%d: malformed JSON: %s", path, e.line, e.column, e.text);
    }
    fclose(f);
    return j;
}

json_t *json_read_file(const char *path)
{
    return read_up_to(path, LARGEST_JSON, "a configuration");
}

json_t *json_read_data(const char *path)
{
    return read_up_to(path, LARGEST_DATA, "a file of measurements");
}

/* What took hours to measure is not written over by a mistyped word. */
static bool holds_a_database(const char *path)
{
    static const char magic[] = "SQLite format 3";      /* with its end: 16 bytes */
    char head[sizeof magic] = { 0 };
    struct stat st;
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "r") : NULL;
    bool is = f && fread(head, sizeof head, 1, f) == 1 && memcmp(head, magic, sizeof magic) == 0;

    if (f)
        fclose(f);
    return is;
}

int output_open(struct output *o, const char *path)
{
    struct stat st;
    if (holds_a_database(path))
        return fail("%s: is an SQLite database, and is not written over: give another name, or remove it first", path);
    bool direct = lstat(path, &st) == 0 && !S_ISREG(st.st_mode);

    o->path = path;
    o->beside[0] = '\0';
    if (!direct && snprintf(o->beside, sizeof o->beside, "%s.tmp", path) >= (int)sizeof o->beside)
        return fail("%s: the name is too long", path);
    o->f = fopen(direct ? path : o->beside, "w");
    return o->f ? 0 : fail("%s: %s", path, strerror(errno));
}

int output_close(struct output *o)
{
    bool bad = fflush(o->f) != 0 || ferror(o->f);
    int why = errno;

    if (fclose(o->f) != 0 && !bad) {
        bad = true;
        why = errno;
    }
    if (!bad && o->beside[0] && rename(o->beside, o->path) < 0) {
        bad = true;
        why = errno;
    }
    if (!bad)
        return 0;
    if (o->beside[0])
        remove(o->beside);
    return fail("%s: %s", o->path, strerror(why));
}
