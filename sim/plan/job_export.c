/* job_export.c -- see job_export.h.  Slurm 22.05's sbatch(1) and srun(1); kubeflow.org/v2beta1 MPIJob; trainer.kubeflow.org/v1alpha1 TrainJob;
 * torchrun of PyTorch 2.15. */
#include "sim/plan/job_export.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "model/plan/environment.h"
#include "sim/clock/simulate.h"

struct job {
    const struct plan *p;
    char    name[64];               /* letters, digits and dashes */
    int64_t nodes, each;
    int64_t host;                   /* bytes of a node's memory that the plan keeps there; 0: none */
    int64_t seconds;                /* 0: not asked for */
    bool    ours;                   /* dpxrun runs it */
    const struct job_command *command;      /* NULL: what the user gives to the script */
    int64_t taken;                  /* bytes of all ranks of a node, where they are processes on cores */
};

bool job_export_has(const char *target) { return !strcmp(target, "sbatch") || !strcmp(target, "mpijob") || !strcmp(target, "trainjob"); }

/* Names of Kubernetes are of lower case letters, digits and dashes, and begin with a letter. */
static void name_of(const struct plan *p, char out[64])
{
    int n = snprintf(out, 48, "dpx-%s-%s", p->model.name, strategy_name(p->strategy));

    for (int i = 0; i < n && i < 47; i++)
        out[i] = isalnum((unsigned char)out[i]) ? (char)tolower((unsigned char)out[i]) : '-';
    for (n = (int)strlen(out); n > 0 && out[n - 1] == '-'; n--)
        out[n - 1] = '\0';
}

static int read_job(const struct plan *p, int64_t steps, struct job *out)
{
    struct evaluation e;
    struct timing t;

    *out = (struct job){ .p = p, .nodes = p->cluster.nodes, .each = p->cluster.gpus_per_node, .ours = p->dialect == DIALECT_PAPER };
    name_of(p, out->name);
    if (evaluate(p, &e) < 0)
        return -1;
    if (!e.m.fits) {
        fail("export: the plan does not fit: %s", e.why_not);
        evaluation_free(&e);
        return -1;
    }
    out->host = e.m.spaces.of[SPACE_HOST].used ? e.m.spaces.of[SPACE_HOST].peak : 0;
    int rc = steps ? simulate_plan(p, &e, &t, NULL) : 0;
    if (rc == 0 && steps)
        out->seconds = (int64_t)ceil((double)steps * t.high_s);
    evaluation_free(&e);
    return rc;
}

/* What is asked for. */
static void write_head(const struct job *j, FILE *to)
{
    bool cores = j->command && !j->command->gpus;

    fprintf(to, "#!/bin/bash\n#SBATCH --job-name=%s\n#SBATCH --nodes=%" PRId64 "\n", j->name, j->nodes);
    if (!cores)
        fprintf(to, "#SBATCH --gres=gpu:%" PRId64 "\n", j->each);
    fprintf(to, "#SBATCH --ntasks-per-node=%" PRId64 "\n", j->command ? j->command->tasks : j->ours ? j->each : (int64_t)1);
    if (j->host > 0)
        fprintf(to, "# The plan keeps %.1f GiB of each node's memory beside what the training's processes take.\n", (double)j->host / (1 << 30));
    if (cores)
        fprintf(to, "# Buffers of the ranks take %.1f GiB of each node, and their processes more.\n", (double)j->taken / (1 << 30));
    fprintf(to, "#SBATCH --mem=0\n");
    if (j->seconds)
        fprintf(to, "#SBATCH --time=%" PRId64 ":%02d:%02d\n", j->seconds / 3600, (int)(j->seconds / 60 % 60), (int)(j->seconds % 60));
    else
        fprintf(to, cores ? "# --time: none is predicted for these cores\n" : "# --time: give export --steps N\n");
}

/* Variables of the plan, quoted: their values have colons and commas. */
static void write_export(void *to, const char *name, const char *value) { fprintf(to, "export %s='%s'\n", name, value); }

static void write_sbatch(const struct job *j, FILE *to)
{
    write_head(j, to);
    environment_each(j->p, write_export, to);
    if (j->command) {
        fprintf(to, j->command->once ? "%s\n" : "# Without --mpi=pmix each task is a world of its own.\nsrun --mpi=pmix %s\n", j->command->line);
        return;
    }
    if (j->ours) {
        fprintf(to, "# sbatch this.sbatch PLAN.json: without --mpi=pmix each task is a world of its own.\nsrun --mpi=pmix dpxrun \"$@\"\n");
        return;
    }
    fprintf(to, "# sbatch this.sbatch TRAIN.py ARGUMENTS...\n"
            "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
            "srun torchrun --nnodes=%" PRId64 " --nproc-per-node=%" PRId64 " --rdzv-id=\"$SLURM_JOB_ID\" --rdzv-backend=c10d \\\n"
            "    --rdzv-endpoint=\"$head:29500\" \"$@\"\n", j->nodes, j->each);
}

static void write_limits(const struct job *j, int indent, FILE *to)
{
    fprintf(to, "%*slimits:\n%*s  nvidia.com/gpu: %" PRId64 "\n", indent, "", indent, "", j->each);
    if (j->host > 0)
        fprintf(to, "%*srequests:\n%*s  memory: \"%" PRId64 "\"      # kept there by the plan; add what the training's processes take\n", indent, "", indent, "", j->host);
}

static void write_trainjob(const struct job *j, FILE *to)
{
    fprintf(to, "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata:\n  name: %s\nspec:\n  runtimeRef:\n    name: torch-distributed\n", j->name);
    if (j->seconds)
        fprintf(to, "  # predicted: %" PRId64 " seconds at most\n", j->seconds);
    fprintf(to, "  trainer:\n    image: IMAGE\n    command:\n      - torchrun\n      - TRAIN.py\n    numNodes: %" PRId64 "\n    numProcPerNode: %" PRId64
            "\n    resourcesPerNode:\n", j->nodes, j->each);
    write_limits(j, 6, to);
}

static void write_pod(const struct job *j, const char *kind, int64_t replicas, FILE *to)
{
    fprintf(to, "    %s:\n      replicas: %" PRId64 "\n      template:\n        spec:\n          containers:\n            - name: %s\n              image: IMAGE\n",
            kind, replicas, replicas > 1 || !strcmp(kind, "Worker") ? "worker" : "launcher");
    if (!strcmp(kind, "Launcher"))
        fprintf(to, "              command:\n                - mpirun\n                - dpxrun\n                - PLAN.json\n");
    else {
        fprintf(to, "              resources:\n");
        write_limits(j, 16, to);
    }
}

static void write_mpijob(const struct job *j, FILE *to)
{
    fprintf(to, "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n  name: %s\nspec:\n  slotsPerWorker: %" PRId64 "\n", j->name, j->each);
    fprintf(to, "  runPolicy:\n    cleanPodPolicy: Running\n");
    if (j->seconds)
        fprintf(to, "    activeDeadlineSeconds: %" PRId64 "\n", j->seconds);
    fprintf(to, "  mpiReplicaSpecs:\n");
    write_pod(j, "Launcher", 1, to);
    write_pod(j, "Worker", j->nodes, to);
}

int job_sbatch(const struct plan *p, const struct job_command *c, FILE *to)
{
    struct evaluation e;
    struct timing t;
    struct job j = { .p = p, .nodes = c->nodes, .each = c->ranks, .ours = true, .command = c };

    name_of(p, j.name);
    if (evaluate_allocated(p, &e) < 0)
        return -1;
    j.taken = j.each * e.m.needed;
    j.host = e.m.spaces.of[SPACE_HOST].used ? e.m.spaces.of[SPACE_HOST].peak : 0;
    int rc = c->gpus ? simulate_plan(p, &e, &t, NULL) : 0;
    if (rc == 0 && c->gpus)
        j.seconds = (int64_t)ceil((double)c->steps * t.high_s);
    evaluation_free(&e);
    if (rc == 0)
        write_sbatch(&j, to);
    return rc;
}

int job_export(const struct plan *p, const char *target, int64_t steps, FILE *to)
{
    struct job j;
    bool mpi = !strcmp(target, "mpijob"), train = !strcmp(target, "trainjob");

    if (mpi && p->dialect != DIALECT_PAPER)
        return fail("export to mpijob: dialect: %s's launcher is torchrun: export --to trainjob; mpirun starts dpxrun's own plans (paper)", dialect_name(p->dialect));
    if (train && p->dialect == DIALECT_PAPER)
        return fail("export to trainjob: dialect: dpxrun runs plans of paper, by mpirun: export --to mpijob");
    if (read_job(p, steps, &j) < 0)
        return -1;
    if (mpi)
        write_mpijob(&j, to);
    else if (train)
        write_trainjob(&j, to);
    else
        write_sbatch(&j, to);
    return 0;
}
