/* figure.h -- a chart that gnuplot draws into an SVG or PNG file. */
#ifndef DPX_FIGURE_H
#define DPX_FIGURE_H

#include <stdio.h>

#include "base/chart/chart.h"

struct figure {
    int  (*data)(void *of, FILE *to);           /* what the script reads as 'data'; -1 reported */
    void (*script)(void *of, FILE *to);         /* statements, without terminal and output */
    void *of;
    int   width, height;                        /* pixels */
};

/* 0; -1 reported: another suffix than .svg or .png. */
int figure_name(const char *path);

/* Draws into `path`, which is replaced only by a whole file.  0, or -1 with the reason reported; `else_words`: what writes the
 * numbers where there is no gnuplot. */
int figure_draw(const struct figure *f, const char *path, const char *else_words);

/* The same of a chart; an .svg needs no gnuplot. */
int figure_chart(const struct chart *c, const char *path, const char *else_words);

/* In single quotes for gnuplot, doubled inside. */
void figure_quoted(const char *s, FILE *to);

#endif
