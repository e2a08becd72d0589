/* yaml.h -- the YAML of configuration files, as JSON values.
 *
 *     json_t *j = yaml_read_file("accelerate.yaml");
 *
 * Mappings with string keys, sequences and scalars.  Plain scalars are typed as
 * PyYAML types them (YAML 1.1: yes, no, on, off are booleans), and 5e8, which
 * PyYAML leaves a string, is a number too.  Aliases stand for a copy of what was
 * anchored, and a merge key (<<) for keys that its mapping lacks.  Tags, keys
 * given twice with different values and several documents are refused with line
 * and column. */
#ifndef DPX_YAML_H
#define DPX_YAML_H

#include <stddef.h>
#include <stdio.h>

#include <jansson.h>

/* New reference, or NULL with the place reported; `where` names the input. */
json_t *yaml_read(const char *text, size_t size, const char *where);
json_t *yaml_read_file(const char *path);

/* Objects, arrays of scalars and scalars in block style.  Strings that would be
 * read as another type are quoted. */
void yaml_write(const json_t *j, FILE *to);

#endif
