#!/bin/sh
# tests/sim/test_cmd_admit.sh -- dpxplan admit: what a job asks for is read as its scheduler reads it, or refused by name.
. tests/check.sh
B=${B:-build}
keep_answers
dpxplan=$B/dpxplan
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME

# asks WANT OPTIONS-OF-ADMIT: WANT is "NODES EACH GPU" of the job in $tmp/job.
asks() {
    want=$1
    shift
    "$dpxplan" admit "$tmp/job" --recipe demo/qwen3-sft.yaml --json "$@" >"$tmp/doc" 2>"$tmp/err"
    got=$(python3 -c 'import json, sys; a = json.load(open(sys.argv[1]))["asks"]; print(a["nodes"], a["gpus_per_node"], a["gpu"])' "$tmp/doc" 2>&1 | tail -1)
    [ "$got" = "$want" ] || { sed -n '1,/^srun/p' "$tmp/job" | tr '\n' ' '; echo "$*: $got, not $want"; cat "$tmp/err"; }
}
# says WORDS OPTIONS-OF-ADMIT: exit 2 and the words.
says() {
    words=$1
    shift
    "$dpxplan" admit "$tmp/job" --recipe demo/qwen3-sft.yaml "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    if [ $rc != 2 ] || ! grep -q -e "$words" "$tmp/err"; then
        cat "$tmp/job" "$tmp/err"
        echo "exit $rc, not said: $words"
    fi
}
job() { { echo '#!/bin/bash'; for line; do echo "#SBATCH $line"; done; echo 'srun train'; } >"$tmp/job"; }

options() {
    job --nodes=2 --gpus-per-node=h100:8; asks '2 8 h100'
    job '-N 2 -G h100:16'; asks '2 8 h100'
    job -N4 '--gres gpu:a100:4'; asks '4 4 a100-80gb'
    job --nodes=2-4 --gres=nvme:1,gpu:l40s:2; asks '2 2 l40s'
    job '--job-name=gpu --nodes 2 --time=1:00 # a comment --nodes=3' '--gpus=4'; asks '2 2 h200' --gpu h200
    job --gres=gpu:h100:8'(S:0-1)'; asks '1 8 h100'
    # behind the first command an option is a comment
    { job --nodes=2 --gpus-per-node=h100:8; echo '#SBATCH --nodes=64' >>"$tmp/job"; }; asks '2 8 h100'
}
refused() {
    # what is refused is quoted as it stands in the job
    for nodes in 0 many 2x -1 -3 2- 2-x 4-2 1-2-3 ''; do
        job --nodes=$nodes --gpus-per-node=h100:8; says "--nodes: \"$nodes\" is not a whole number above 0"
    done
    job --nodes=2 --gpus=h100:7; says '7 GPUs do not divide by 2 nodes'
    job --nodes=2 --gpus=h100:8 --gpus-per-node=8; says 'are not 8 each'
    job --nodes=2 --gpus-per-node=h100:some; says 'does not say how many GPUs'
    job --nodes=2 --gres=nvme:1; says 'says how many GPUs' --gpu h100
    job --ntasks=4 --gpus-per-task=h100:1; says 'say --gpus-per-node'
    job --gres=gpu:1g.10gb:2; says 'a part of a GPU'
    # the job says which GPUs: another one on the command line would be another question
    job --gpus-per-node=a100:8; says 'the job asks for a100-80gb' --gpu h100
    asks '1 8 a100-80gb' --gpu a100
    job --gpus-per-node=8; says 'give --gpu'
}
check 'options of sbatch are read as sbatch reads them' "$(options)"
check 'what cannot be read is refused' "$(refused)"

# Labels of NVIDIA's device plugin: memory and form are part of the type.
products() {
    while read -r label ours; do
        sed "s/NVIDIA-H100-80GB-HBM3/$label/" tests/everywhere/jobs/trainjob.yaml >"$tmp/job"
        asks "1 8 $ours"
    done <<'END'
NVIDIA-H100-80GB-HBM3 h100
NVIDIA-H100-NVL h100-nvl
NVIDIA-H100-PCIe h100-pcie
NVIDIA-A100-SXM4-40GB a100-40gb
NVIDIA-A100-SXM4-80GB a100-80gb
NVIDIA-A100-PCIE-40GB a100-pcie-40gb
NVIDIA-A100-80GB-PCIe a100-pcie-80gb
NVIDIA-H200 h200
NVIDIA-L40S l40s
NVIDIA-L4 l4
NVIDIA-A10G a10g
NVIDIA-A10 a10
Tesla-V100-SXM2-32GB v100-32gb
Tesla-T4 t4
NVIDIA-GeForce-RTX-4090 rtx4090
NVIDIA-B200 b200
END
    sed 's/NVIDIA-H100-80GB-HBM3/NVIDIA-H100-80GB-HBM3-MIG-1g.10gb/' tests/everywhere/jobs/trainjob.yaml >"$tmp/job"
    says 'a part of a GPU'
    sed 's/numNodes: 1/numNodes: 1\n    numProcPerNode: 4/' tests/everywhere/jobs/trainjob.yaml >"$tmp/job"
    says 'numProcPerNode 4 beside a limit of 8 GPUs'
    sed 's/numNodes: 1/numNodes: none/' tests/everywhere/jobs/trainjob.yaml >"$tmp/job"
    says 'numNodes: not a whole number'
}
check "labels of NVIDIA's device plugin are types of GPUs, memory and form included" "$(products)"

finish
