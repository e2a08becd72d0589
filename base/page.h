/* page.h -- text for people, as wide as there is room: lines wrap at words.
 *
 *     FILE *page = page_open(stdout);
 *     if (!page)
 *         return EXIT_FAILED;
 *     fprintf(page, "a sentence of any length\n");
 *     fprintf(page, "  name  " PAGE_HANG "what goes on below itself\n");
 *     page_close(page);
 *
 * The width is the terminal's, else $COLUMNS, else 100; never below 60.  A line that is longer goes on below, two
 * columns further in than it began, or where PAGE_HANG stood; a word that is longer than the width stays whole. */
#ifndef DPX_PAGE_H
#define DPX_PAGE_H

#include <stdio.h>

#include "base/terminal.h"

#define PAGE_HANG "\x1f"

/* Columns of what `f`, a page of this thread or any stream, ends in. */
int page_width(FILE *f);

/* terminal_ink() of what `f` ends in. */
const char *page_ink(FILE *f, enum terminal_ink ink);

/* A stream into `to`; NULL with the reason reported. */
FILE *page_open(FILE *to);
void  page_close(FILE *page);

/* Columns that the first n bytes of a text take: UTF-8 letters one each, colours and PAGE_HANG none. */
int page_columns(const char *text, size_t n);

#endif
