/* dpxcal_files.h -- dpxcal's commands that read and write files of calibrations: import, export and fit (a GPU's exported calibration becomes
 * the fits that dpxplan reads).  The exit status: 0, 1 failed, 2 what was asked is wrong. */
#ifndef DPX_DPXCAL_FILES_H
#define DPX_DPXCAL_FILES_H

int dpxcal_import(int argc, char **argv);
int dpxcal_export(int argc, char **argv);
int dpxcal_fit(int argc, char **argv);

#endif
