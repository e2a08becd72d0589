/* family.c -- the list of families, by name.  $B/model/family/list.h has a row FAMILY(NAME) for each file that defines
 * NAME_family. */
#include "model/family/family.h"

#include <string.h>

#define FAMILY(of) extern const struct family of##_family;
#include "model/family/list.h"
#undef FAMILY

#define FAMILY(of) &of##_family,
static const struct family *const families[] = {
#include "model/family/list.h"
};
#undef FAMILY

enum { NFAMILIES = sizeof families / sizeof *families };

const struct family *family_at(int i) { return i >= 0 && i < NFAMILIES ? families[i] : NULL; }

const struct family *family_find(const char *model_type)
{
    for (int low = 0, high = NFAMILIES; low < high; ) {
        int middle = (low + high) / 2, order = strcmp(model_type, families[middle]->name);
        if (order == 0)
            return families[middle];
        *(order < 0 ? &high : &low) = middle + (order > 0);
    }
    return NULL;
}

const struct family *family_for(const struct model *m)
{
    static const struct family none = { .name = "", .attn_dropout = true };
    const struct family *f = family_find(m->family);

    return f ? f : &none;
}
