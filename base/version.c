/* version.c -- the version that the Makefile gave, as text. */
#include "base/version.h"

#include "dpx_version.h"

const char *version_text(void)
{
    return DPX_VERSION;
}
