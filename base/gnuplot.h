/* gnuplot.h -- runs gnuplot on a script. */
#ifndef DPX_GNUPLOT_H
#define DPX_GNUPLOT_H

/* In `folder`, where what the script names is read and written.  0; 1: there is no gnuplot; -1 reported. */
int gnuplot_run(const char *folder, const char *script);

#endif
