/* dpxcal_fit.c -- see dpxcal_fit.h. */
#include "calib/dpxcal_fit.h"

#include <stdbool.h>

#include "base/opts.h"
#include "calib/store/kept_file.h"
#include "calib/store/portable.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_MISUSE = 2 };

/* The export is at fault, or the path that is written to. */
static int fit(struct db *db, const char *from, const char *to)
{
    struct kept_fits fits;
    bool refused;
    int known;

    if (portable_import(db, from, &known, &refused) < 0)
        return refused ? EXIT_MISUSE : EXIT_FAILED;
    if (kept_fit(db, &fits) < 0)
        return EXIT_MISUSE;
    int rc = kept_write(&fits, to) < 0 ? EXIT_MISUSE : EXIT_DONE;
    kept_fits_free(&fits);
    return rc;
}

int dpxcal_fit(int argc, char **argv)
{
    const char *from = NULL, *to = NULL;
    const struct opt opts[] = {
        { "EXPORT.json", "a GPU's calibration, as dpxcal export writes it", .str = &from, .positional = true, .required = true },
        { "GPU.fits", "where to write its fits", .str = &to, .positional = true, .required = true },
        { 0 }
    };
    int rc = opts_parse("dpxcal fit", "What dpxplan reads of a type of GPU's calibration, as a file without the samples: for a folder "
                        "that DPX_MEASURED names, or to come with dpx.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    struct db *db = db_open_memory();
    rc = db ? fit(db, from, to) : EXIT_FAILED;
    db_close(db);
    return rc;
}
