/* dpxcal_files.c -- see dpxcal_files.h. */
#include "calib/dpxcal_files.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/answer.h"
#include "base/fail.h"
#include "base/opts.h"
#include "base/printable.h"
#include "calib/import/import.h"
#include "calib/import/import_kineto.h"
#include "calib/import/nccl_log.h"
#include "calib/store/belongs.h"
#include "calib/store/kept_file.h"
#include "calib/store/portable.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_MISUSE = 2 };

/* After something failed: by the database's fault, else as the caller says. */
static int status_or(int status)
{
    return db_exit_status() != EXIT_DONE ? db_exit_status() : status;
}

int dpxcal_export(int argc, char **argv)
{
    const char *file = NULL, *path = NULL;
    int64_t id = 0;
    bool json = false;
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxcal export here.json"),
        { "FILE", "where to write it", .str = &file, .positional = true, .required = true },
        { "calibration", "only that one (its number in dpxcal's table)", .i = &id, .min = 1 },
        { "db", "the database", .str = &path, .value = "FILE" },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxcal export", "Calibrations with all their samples as one file, for another machine's "
                        "`dpxcal import`.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    struct db *db = db_open_reader(path);
    bool refused;
    if (!db)
        return status_or(EXIT_FAILED);
    rc = portable_export(db, id, file, &refused);
    if (rc >= 0)
        fprintf(stderr, "%d calibration%s written to %s\n", rc, rc == 1 ? "" : "s", file);
    db_close(db);
    int status = rc >= 0 ? EXIT_DONE : status_or(refused ? EXIT_MISUSE : EXIT_FAILED);
    return json && rc >= 0 ? answer_print(json_pack("{s:i, s:s, s:i}", "dpx", 1, "file", file, "calibrations", rc), status) : status;
}

/* The files of a command line, taken out of it; the options stay.  Behind -- every word is a file. */
static int take_files(int *argc, char **argv, char **files)
{
    int n = 0, kept = 1;
    bool options = true;

    for (int i = 1; i < *argc; i++)
        if (options && !strcmp(argv[i], "--"))
            options = false;
        else if (!options || argv[i][0] != '-')
            files[n++] = argv[i];
        else {
            argv[kept++] = argv[i];
            bool alone = strchr(argv[i], '=') || !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") || !strcmp(argv[i], "--json");
            if (!alone && i + 1 < *argc)
                argv[kept++] = argv[++i];
        }
    *argc = kept;
    return n;
}

static int import_portable(struct db *db, const char *path, const char *cluster, FILE *to, bool *refused)
{
    int known, taken = portable_import_as(db, path, cluster, &known, refused);

    if (taken < 0)
        return -1;
    fprintf(to ? to : stdout, "%s: %d calibration%s taken in, %d %s known\n", path, taken, taken == 1 ? "" : "s", known, known == 1 ? "was" : "were");
    return 0;
}

enum { IMPORT_OWN, IMPORT_NCCL, IMPORT_KINETO };

/* What the first word says that the files are. */
static int import_format(char *const *files, int n)
{
    return n < 1 ? IMPORT_OWN : !strcmp(files[0], "nccl-tests") ? IMPORT_NCCL : !strcmp(files[0], "kineto") ? IMPORT_KINETO : IMPORT_OWN;
}

static int import_files(const char *path, const struct import_nccl *how, const struct import_kineto *traced, char **files, int n)
{
    int format = import_format(files, n), rc = 0;
    bool refused = false;
    struct db *db;

    for (int i = format != IMPORT_OWN; i < n; i++)      /* before a database is made for nothing */
        if (access(files[i], R_OK) < 0) {
            fail("%s: %s", files[i], strerror(errno));
            return EXIT_MISUSE;
        }
    if (!(db = db_open(path)))
        return status_or(EXIT_FAILED);
    if (format == IMPORT_NCCL)
        rc = import_nccl(db, how, files + 1, n - 1, &refused);
    else if (format == IMPORT_KINETO)
        rc = import_kineto(db, traced, files + 1, n - 1, &refused);
    for (int i = 0; format == IMPORT_OWN && i < n && rc == 0; i++)
        rc = import_portable(db, files[i], traced->cluster, how->to, &refused);
    db_close(db);
    return rc == 0 ? EXIT_DONE : status_or(refused ? EXIT_MISUSE : EXIT_FAILED);
}

/* {"dpx": 1, "lines": [...]}: what was taken of each file, as people read it. */
static json_t *lines_json(const char *text)
{
    json_t *lines = json_array();

    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        char line[4400];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        char shown[4 * sizeof line];
        printable_copy(shown, sizeof shown, line);
        json_array_append_new(lines, json_string(shown));
    }
    return json_pack("{s:i, s:o}", "dpx", 1, "lines", lines);
}

/* The same with what it says as a document. */
static int import_as_document(const char *path, struct import_nccl *how, struct import_kineto *traced, char **files, int n)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    if (!to) {
        fail("out of memory for the document");
        return EXIT_FAILED;
    }
    how->to = traced->to = to;
    int status = import_files(path, how, traced, files, n);
    fclose(to);
    if (status == EXIT_DONE)
        status = answer_print(lines_json(text), status);
    free(text);
    return status;
}

int dpxcal_import(int argc, char **argv)
{
    static const char *const ops[] = { "all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "scatter",
                                       "gather", NULL };
    struct import_nccl how = { .op = -1 };
    struct import_kineto traced = { 0 };
    const char *path = NULL;
    bool json = false;
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxcal import here.json"),
        OPTS_EXAMPLE("dpxcal import nccl-tests all_reduce.log --cluster mine"),
        OPTS_EXAMPLE("dpxcal import kineto trace.json.gz --plan plan.json"),
        { "gpu", "of the logs, where their name for it is not known", .str = &how.gpu, .value = "NAME" },
        { "op", "the collective, where a log does not say", .word = &how.op, .words = ops },
        { "cluster", "what it is of, by a name: plans use it whose cluster has this name, or \"calibration\": NAME; default: "
          "imported, a trace's plan's, an export's host", .str = &how.cluster, .value = "NAME" },
        { "plan", "kineto: what was traced, as a plan", .str = &traced.plan, .value = "PLAN.json" },
        { "steps", "kineto: of the trace, such as 2-5, the first being 1; default: all", .str = &traced.steps, .value = "N-M" },
        { "db", "the database", .str = &path, .value = "FILE" },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    char **files = calloc((size_t)argc + 1, sizeof *files);
    int n = files ? take_files(&argc, argv, files) : 0;
    int format = import_format(files, n);
    int rc = opts_parse("dpxcal import [nccl-tests|kineto] FILE...", "Takes in what another machine exported, the output of "
                        "nccl-tests (text or JSON; several files, several numbers of nodes), or what PyTorch's profiler "
                        "wrote of the training of --plan (kineto: one trace, or one of each of several ranks).", opts, argc, argv);

    if (rc == OPTS_OK && n < 1 + (format != IMPORT_OWN))
        rc = fail("dpxcal import: no file named: `dpxcal import here.json`, `dpxcal import nccl-tests all_reduce.log` or "
                  "`dpxcal import kineto trace.json --plan plan.json`");
    if (rc == OPTS_OK && (format == IMPORT_KINETO) != (traced.plan != NULL))
        rc = fail("dpxcal import: %s", traced.plan ? "--plan belongs to `dpxcal import kineto`"
                                                   : "kineto needs --plan PLAN.json: what was traced");
    if (rc == OPTS_OK && how.cluster && belongs_name_ok(how.cluster) < 0)
        rc = -1;
    traced.cluster = how.cluster;
    rc = rc != OPTS_OK ? (rc < 0 ? EXIT_MISUSE : EXIT_DONE) : (json ? import_as_document(path, &how, &traced, files, n)
                                                                                  : import_files(path, &how, &traced, files, n));
    free(files);
    return rc;
}

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
    bool json = false;
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxcal fit h100.json h100.fits"),
        { "EXPORT.json", "a GPU's calibration, as dpxcal export writes it", .str = &from, .positional = true, .required = true },
        { "GPU.fits", "where to write its fits", .str = &to, .positional = true, .required = true },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxcal fit", "What dpxplan reads of a type of GPU's calibration, as a file without the samples: for a folder "
                        "that DPX_MEASURED names, or to come with dpx.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    struct db *db = db_open_memory();
    rc = db ? fit(db, from, to) : EXIT_FAILED;
    db_close(db);
    return json && rc == EXIT_DONE ? answer_print(json_pack("{s:i, s:s, s:s}", "dpx", 1, "from", from, "file", to), rc) : rc;
}
