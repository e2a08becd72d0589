#!/bin/sh
# tests/everywhere/slurm.sh -- make slurm-check: Slurm of the distribution's packages, two slurmd on this machine, as root.  Exported scripts are
# taken by sbatch --test-only; srun --mpi=pmix makes one world of two nodes' ranks, and srun alone does not, in Open MPI's words.
. tests/check.sh
B=$(cd "${B:-build}" && pwd) || exit 1
if [ "$(id -u)" != 0 ] || ! command -v slurmctld >/dev/null || ! command -v slurmd >/dev/null || ! command -v munged >/dev/null; then
    skip 'Slurm' 'needs root and the packages slurm-wlm and munge'
    finish
fi
# Not in /tmp: each node has one of its own, as PMIx makes folders there that two nodes of one machine would share.
unshare -m true 2>/dev/null || { skip 'Slurm' 'no mount namespaces here'; finish; }
tmp=$(mktemp -d /var/tmp/slurm-XXXXXX) || exit 1
pids=
stop() {
    # shellcheck disable=SC2086 # a list of ids
    [ -z "$pids" ] || kill $pids 2>/dev/null
    wait
    rm -rf "$tmp"
}
trap stop EXIT
chmod 755 "$tmp"
mkdir -p "$tmp/state" "$tmp/1" "$tmp/2"
head -c 1024 /dev/urandom >"$tmp/munge.key"
chmod 600 "$tmp/munge.key"
host=$(hostname -s)
cat >"$tmp/slurm.conf" <<END
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$tmp/munge.socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldPort=16817
SlurmctldPidFile=$tmp/slurmctld.pid
SlurmdPidFile=$tmp/%n/slurmd.pid
SlurmdSpoolDir=$tmp/%n
StateSaveLocation=$tmp/state
SwitchType=switch/none
GresTypes=gpu
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=17001 CPUs=16 RealMemory=1000 Gres=gpu:8 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=17002 CPUs=16 RealMemory=1000 Gres=gpu:8 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
END
for i in 0 1 2 3 4 5 6 7; do mknod "$tmp/gpu$i" c 1 3; done           # as many as /dev/null
echo "Name=gpu File=$tmp/gpu[0-7]" >"$tmp/gres.conf"
printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$tmp/cgroup.conf"
export SLURM_CONF="$tmp/slurm.conf"
munged --foreground --force --key-file="$tmp/munge.key" --socket="$tmp/munge.socket" --pid-file="$tmp/munge.pid" --log-file="$tmp/munge.log" \
    --seed-file="$tmp/munge.seed" >"$tmp/munge.out" 2>&1 &
pids="$!"
slurmctld -D >"$tmp/ctld.log" 2>&1 &
pids="$pids $!"
# A tree in /tmp is mounted into each, where it was.
mkdir "$tmp/tree"
cat >"$tmp/node" <<'END'
mount --bind "$PWD" "$1" && mount -t tmpfs none /tmp || exit
case $PWD in
/tmp/*) mkdir -p "$PWD" && mount --bind "$1" "$PWD" || exit ;;
esac
exec slurmd -D -N "$2"
END
for n in 1 2; do
    unshare -m sh "$tmp/node" "$tmp/tree" n$n >"$tmp/slurmd$n.log" 2>&1 &
    pids="$pids $!"
done
for _ in $(seq 40); do
    [ "$(sinfo -h -N -o '%N %t' 2>/dev/null | grep -c idle)" = 2 ] && break
    sleep 1
done
check 'two nodes are idle' "$([ "$(sinfo -h -N -o '%N %t' 2>/dev/null | grep -c idle)" = 2 ] || { sinfo -N 2>&1; tail -n 3 "$tmp"/*.log; })"

scripts() {
    for of in demo/8b-zero2.json 'demo/8b-fsdp.json --steps 1000' 'demo/gpipe.json --steps 10' 'demo/8b-pipeline.json'; do
        # shellcheck disable=SC2086 # a plan and its options
        "$B/dpxplan" export $of --to sbatch >"$tmp/job" 2>"$tmp/err" || { cat "$tmp/err"; continue; }
        nodes=$(sed -n 's/^#SBATCH --nodes=//p' "$tmp/job")
        [ "$nodes" -le 2 ] || { echo "$of wants $nodes nodes"; continue; }
        sbatch --test-only "$tmp/job" >"$tmp/said" 2>&1 || { echo "$of:"; cat "$tmp/said"; }
    done
    for of in 'demo/10m/ddp.json --steps 3' 'demo/8b-fsdp.json --engine torch' 'demo/8b-fsdp.json --engine torch --launcher srun'; do
        # shellcheck disable=SC2086 # a plan and its options
        "$B/dpxrun" $of --sbatch "$tmp/job" >"$tmp/err" 2>&1 || { cat "$tmp/err"; continue; }
        sbatch --test-only "$tmp/job" >"$tmp/said" 2>&1 || { echo "dpxrun $of:"; cat "$tmp/said"; }
    done
}
check 'sbatch --test-only takes what dpxplan export and dpxrun --sbatch write' "$(scripts 2>&1)"

# Ranks that srun starts: one world with --mpi=pmix.
cat >"$tmp/world.c" <<'END'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int n, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) printf("world of %d\n", n);
    return MPI_Finalize();
}
END
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1
world() { timeout 100 srun -N 2 --ntasks-per-node=1 "$@" "$tmp/world" 2>&1; }
if command -v mpicc >/dev/null && mpicc -o "$tmp/world" "$tmp/world.c" 2>"$tmp/err"; then
    check 'srun --mpi=pmix makes one world' "$(world --mpi=pmix | grep -qx 'world of 2' || world --mpi=pmix | tail -5)"
    check "srun alone does not, in Open MPI's words" "$(world --mpi=none >"$tmp/said"; grep -q 'direct launched using "srun"' "$tmp/said" || head -n 8 "$tmp/said")"
else
    skip 'srun --mpi=pmix makes one world' 'no mpicc'
fi
if [ -x "$B/dpxrun" ]; then
    ran() { timeout 300 srun -N 2 --ntasks-per-node=1 --mpi=pmix "$B/dpxrun" demo/10m/ddp.json --steps 2 --no-db; }
    check 'srun --mpi=pmix dpxrun trains' "$(ran >"$tmp/out" 2>&1 || tail -5 "$tmp/out")"
    submitted() {
        "$B/dpxrun" demo/10m/ddp.json --steps 2 --no-db --json --sbatch "$tmp/job" >"$tmp/said" || return
        grep -q "\"file\": \"$tmp/job\"" "$tmp/said" || cat "$tmp/said"
        sed -i 's/^#SBATCH --nodes=1/#SBATCH --nodes=2/; s/^#SBATCH --ntasks-per-node=2/#SBATCH --ntasks-per-node=1/' "$tmp/job"
        timeout 400 sbatch --wait -D "$PWD" -o "$tmp/ran" "$tmp/job" || tail -5 "$tmp/ran"
        grep -q '"steps": 2' "$tmp/ran" || tail -5 "$tmp/ran"
    }
    check 'a job of dpxrun --sbatch is submitted, and trains on two nodes' "$(submitted 2>&1 | grep -v '^Submitted batch job')"
else
    skip 'srun --mpi=pmix dpxrun trains' 'dpxrun is not built'
fi
finish
