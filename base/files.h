/* files.h -- JSON documents from files, and where files are. */
#ifndef DPX_FILES_H
#define DPX_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

/* The document of a file; duplicate keys are refused.  NULL with the reason, and line
 * and column where there are any, on stderr. */
json_t *files_read_json_file(const char *path);
/* The same of a file that Python wrote: its NaN, Infinity and -Infinity, which are no JSON,
 * are read as strings of these names, so that a field that needs a number refuses them. */
json_t *files_read_json_python(const char *path);
/* The same as files_read_json_file() of a file that may be larger than any configuration: measurements, up to 1 GiB. */
json_t *files_read_json_data(const char *path);

/* Where a file is that another one, `from`, names: beside that, in a folder above it (projects name files from their root, where their users start
 * them), or from here; as it is named where it is in none of these. */
void files_find_above(const char *from, const char *name, char *out, size_t size);
/* Is what that found the file in from's own folder, or a path from the root? */
bool files_is_beside(const char *from, const char *name, const char *found);

#endif
