/* dpxcal_fit.h -- dpxcal fit: a GPU's exported calibration becomes the fits that dpxplan reads.  The exit status. */
#ifndef DPX_DPXCAL_FIT_H
#define DPX_DPXCAL_FIT_H

int dpxcal_fit(int argc, char **argv);

#endif
