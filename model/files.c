#include "model/files.h"

#include <errno.h>
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
