/* dpxrun_sbatch.c -- --sbatch: this command line as a job of Slurm, with nodes, GPUs, memory and time of the plan; nothing is run. */
#include "exec/process/dpxrun.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/answer.h"
#include "base/fail.h"
#include "base/output.h"
#include "exec/engine/engine.h"
#include "sim/plan/job_export.h"

enum { LONGEST = 1 << 16 };

/* Is it --sbatch, and how many words does it take? */
static int is_sbatch(const char *word)
{
    return !strcmp(word, "--sbatch") ? 2 : !strncmp(word, "--sbatch=", 9) ? 1 : 0;
}

/* In single quotes where a shell would see more in it than a word. */
static void put_word(FILE *f, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%";

    if (word[0] && strspn(word, plain) == strlen(word)) {
        fputs(word, f);
        return;
    }
    fputc('\'', f);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){ *word, '\0' }, f);
    fputc('\'', f);
}

/* The same words but --sbatch; NULL: reported. */
static char *command_line(int argc, char **argv)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        abort();
    put_word(f, argv[0]);
    for (int i = 1; i < argc; i++) {
        int skipped = is_sbatch(argv[i]);
        if (skipped) {
            i += skipped - 1;
            continue;
        }
        fputc(' ', f);
        put_word(f, argv[i]);
    }
    fclose(f);
    if (size < LONGEST && !strchr(text, '\n'))
        return text;
    fail("--sbatch: the command line has a line break, or more than %d bytes", LONGEST);
    free(text);
    return NULL;
}

/* Who would start the ranks within the job. */
static int check(const struct dpxrun *r)
{
    if (r->o.comm == COMM_NULL || r->o.hostfile)
        return fail("--sbatch: Slurm starts the ranks: leave out --%s", r->o.hostfile ? "hostfile" : "comm null");
    if (r->o.engine && r->o.launcher != LAUNCH_SRUN && r->plan.cluster.nodes > 1)
        return fail("--sbatch: over several nodes the framework's ranks are started by srun: add --launcher srun");
    return 0;
}

int dpxrun_sbatch(const struct dpxrun *r, int argc, char **argv)
{
    const struct cluster *on = &r->plan.cluster;
    bool itself = r->o.engine && r->o.launcher != LAUNCH_SRUN;      /* the framework's launcher starts all ranks of the one node */
    struct job_command c = { .gpus = r->o.device == DEVICE_CUDA, .once = r->o.engine > 0, .nodes = on->nodes, .ranks = on->gpus_per_node,
                             .tasks = itself ? 1 : on->gpus_per_node, .steps = r->o.steps };
    struct output o;
    char *line;

    if (check(r) < 0 || !(line = command_line(argc, argv)))
        return EXIT_MISUSE;
    c.line = line;
    int status = output_open(&o, r->o.sbatch) < 0 ? EXIT_FAILED : EXIT_DONE;
    if (status == EXIT_DONE && job_sbatch(r->o.engine ? &r->plan : &r->here, &c, o.f) < 0) {
        output_discard(&o);
        status = EXIT_MISUSE;
    } else if (status == EXIT_DONE && output_close(&o) < 0)
        status = EXIT_FAILED;
    free(line);
    return r->o.json && status == EXIT_DONE ? answer_print(json_pack("{s:i, s:s}", "dpx", 1, "file", r->o.sbatch), status) : status;
}
