/* replay.c -- a fuzz target without libFuzzer: feeds it files and counts them
 * as tests.
 *
 *     fuzz_size                   every file of tests/fuzz/seeds/size
 *     fuzz_size FILE...           these, such as the crash that `make fuzz` left
 *
 * An input that breaks the target ends the program: the line printed before it
 * ran is then the last one, and tests/run.sh misses the closing line. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>

static int replayed, unread;

static void replay(const char *path)
{
    static uint8_t data[1 << 20];
    FILE *file = fopen(path, "rb");
    size_t size;

    if (!file) {
        fprintf(stderr, "[  FAILED  ] %s cannot be read\n", path);
        unread++;
        return;
    }
    size = fread(data, 1, sizeof data, file);
    fclose(file);
    fprintf(stderr, "[ RUN      ] %s\n", path);

    /* A copy of exactly that size, so that ASan sees a read past its end. */
    uint8_t *exact = malloc(size ? size : 1);
    must_hold(exact);
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    replayed++;
}

static void replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    if (!dir) {
        fprintf(stderr, "[  FAILED  ] no seeds in %s\n", folder);
        unread++;
        return;
    }
    while ((entry = readdir(dir))) {
        char path[512];

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        replay(path);
    }
    closedir(dir);
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    const char *name = slash ? slash + 1 : argv[0];
    char folder[256];

    if (argc > 1) {
        for (int i = 1; i < argc; i++)
            replay(argv[i]);
    } else {
        snprintf(folder, sizeof folder, "tests/fuzz/seeds/%s",
                 strncmp(name, "fuzz_", 5) == 0 ? name + 5 : name);
        replay_folder(folder);
    }
    fprintf(stderr, "[  PASSED  ] %d test(s).\n", replayed);
    if (unread)
        fprintf(stderr, "[  FAILED  ] %d test(s), listed below:\n", unread);
    return unread ? 1 : 0;
}
