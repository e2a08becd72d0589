/* served.h -- the page as dpxplan serve gives it out: without the library in it, which answers by HTTP.  page/make.sh makes the
 * source, $B/page/served.c, from the page's files. */
#ifndef DPX_SERVED_H
#define DPX_SERVED_H

#include <stddef.h>

extern const unsigned char served_page[];
extern const size_t served_page_size;

#endif
