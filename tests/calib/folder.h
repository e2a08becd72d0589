/* folder.h -- a folder of a test group's own, which goes with it: make_folder() and remove_folder() are its setup and teardown. */
#ifndef DPX_TESTS_CALIB_FOLDER_H
#define DPX_TESTS_CALIB_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

static char folder[] = "/tmp/dpx-test-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

#endif
