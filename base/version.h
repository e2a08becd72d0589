/* version.h -- which dpx this is. */
#ifndef DPX_BASE_VERSION_H
#define DPX_BASE_VERSION_H

/* "0.2.0 (3fa9c21)"; static. */
const char *version_text(void);

#endif
