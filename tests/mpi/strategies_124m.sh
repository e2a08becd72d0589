#!/bin/sh
# tests/mpi/strategies_124m.sh [data|meshes] [bf16] -- GPT-2 124M by every cell of the table of strategies and dialects, and by nine
# that offload, in fp32 and bf16: two steps on two ranks of this machine, one cell after the other, with the
# frameworks' own sizes (a bucket of 5e8 elements, chunks of 250 MiB ...), which the tiny models of other tests
# never reach; `meshes`: by every strategy on four ranks in a pipeline, with tensor and with context parallelism.
# `bf16`: of fp32 only the first cell of each list, which the others are held against.
# Each must end well, with collectives, bytes and allocated memory as predicted, and with the losses
# of the others.  `make test-124m` runs both; it wants about 13 GB of memory, 3 GB of disk under TMPDIR (O_DIRECT)
# and, for `data`, ten to fifteen minutes: the 16 cells that offload, with two of ddp/paper, took 7 min 32 s on two cores that
# others used as well (3 min 36 s of CPU time), the others four to ten.
#
# Losses.  Cells that round alike (the third column) agree within 1e-6 of the loss: on two ranks every sum
# has two terms, whose order cannot matter, and halves are exact; only norms are summed in another order.
# bf16 rounds in other places in each dialect: gradients and weights are off by at most 2^-8 of themselves
# (rounded to 8 bits, twice), and so, about, is what a step changes: the losses of all cells lie within 1/256
# of the first step's change of fp32's.
# Meshes have a batch of four samples (two ranks, or one, by as many micro-steps as that takes), and add up in other orders:
# fp32 within 1e-6 all the same; in bf16 tensor-parallel ranks round in other places, and only the latter bound is theirs.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

# STRATEGY DIALECT ROUNDING-IN-BF16 [FSDP1'S SHARDING, OR WHAT IS OFFLOADED, OR A MESH]
data='dp paper paper
ddp paper paper
zero1 paper paper
zero2 paper paper
zero3 paper paper
fsdp paper paper
dp torch autocast
ddp torch autocast
zero1 torch autocast
ddp deepspeed deepspeed
zero1 deepspeed deepspeed
zero2 deepspeed deepspeed
zero3 deepspeed deepspeed
fsdp torch fsdp2
fsdp torch-fsdp1 fsdp1
fsdp torch-fsdp1 fsdp1 SHARD_GRAD_OP
fsdp torch-fsdp1 fsdp1 NO_SHARD
zero1 deepspeed deepspeed states-to-host
zero2 deepspeed deepspeed states-to-host
zero3 deepspeed deepspeed states-to-host
zero3 deepspeed deepspeed all-to-host
zero3 deepspeed deepspeed all-to-disk
fsdp torch fsdp2 all-to-host
fsdp torch-fsdp1 fsdp1 all-to-host
fsdp torch fsdp2 activations-to-host
fsdp torch fsdp2 inputs-to-host'

# PyTorch ties no embedding under a pipeline: GPT-2 with a head of its own.
untied='ddp paper - two-ranks
ddp torch - pipeline
fsdp torch - pipeline'
meshes='ddp paper - two-ranks
ddp paper - tensor-pipeline
zero1 paper - tensor-pipeline
ddp paper - context-pipeline
zero1 paper - context-pipeline
'$(for strategy in ddp zero1 zero2 zero3 fsdp; do
    for mesh in pipeline interleaved tensor ring ulysses; do
        echo "$strategy paper - $mesh"
    done
done)
case ${1:-both} in
data | both) ;;
meshes) data= ;;
*) echo "usage: $0 [data|meshes] [bf16]" >&2; exit 2 ;;
esac
case ${2:-all} in
all | bf16) of=${2:-all} ;;
*) echo "usage: $0 [data|meshes] [bf16]" >&2; exit 2 ;;
esac
[ "${1:-both}" != data ] || meshes= untied=

# The keys of plan.json that the fourth column stands for.
keys_of() {     # DIALECT WORD
    case $2/$1 in
    /*) ;;
    states-to-host/*) echo ', "deepspeed": { "offload_optimizer": { "device": "cpu" } }' ;;
    all-to-host/deepspeed) echo ', "deepspeed": { "offload_optimizer": { "device": "cpu" }, "offload_param": { "device": "cpu" } }' ;;
    all-to-host/torch|all-to-host/torch-fsdp1) echo ', "fsdp": { "cpu_offload": true }' ;;
    all-to-disk/*) echo ', "deepspeed": { "sub_group_size": 2e7, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0,
        "offload_optimizer": { "device": "nvme", "nvme_path": "/local", "buffer_count": 5 },
        "offload_param": { "device": "nvme", "nvme_path": "/local" } }' ;;
    activations-to-host/*) echo ', "activation_offload": "streams"' ;;
    inputs-to-host/*) echo ', "recompute": "offload"' ;;
    two-ranks/*) ;;
    pipeline/*) echo ', "parallel": { "pipeline": 2 }' ;;
    interleaved/*) echo ', "parallel": { "pipeline": 2, "pipeline_schedule": "interleaved" }' ;;
    tensor/*) echo ', "parallel": { "tensor": 2, "sequence": true, "loss_parallel": true }' ;;
    ring/*) echo ', "parallel": { "context": 2, "context_method": "ring" }' ;;
    ulysses/*) echo ', "parallel": { "context": 2, "context_method": "ulysses" }' ;;
    tensor-pipeline/*) echo ', "parallel": { "tensor": 2, "pipeline": 2 }' ;;
    context-pipeline/*) echo ', "parallel": { "context": 2, "pipeline": 2 }' ;;
    *) echo ", \"fsdp\": { \"sharding_strategy\": \"$2\" }" ;;
    esac
}

ranks=2 accumulation=1 model='"gpt2"'
plan() {        # STRATEGY DIALECT PRECISION [WORD]
    cat >"$dir/plan.json" <<PLAN
{ "dpx_plan": 1, "model": $model, "cluster": "localhost:$ranks", "kernels": "dpx", "seq": 64, "micro_batch": 1, "accumulation": $accumulation,
  "strategy": "$1", "dialect": "$2", "precision": "$3", "clip": 1.0, "dropout": 0$(keys_of "$2" "$4") }
PLAN
}

# What is not as predicted in the document on stdin: collectives, copies between memories, each memory's bytes.
unpredicted() {
    tr -d ' \n' | tr '{' '\n' | awk '
        function number(name) {
            if (!match($0, "\"" name "\":[-0-9]+"))
                return "none"
            return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
        }
        /"predicted_count":/ {
            calls++
            if (number("count") != number("predicted_count") || number("bytes") != number("predicted_bytes"))
                print number("count") " calls of " number("bytes") " bytes: " $0
        }
        /"predicted_allocated_peak_bytes":/ {
            memory++
            if (number("allocated_peak_bytes") != number("predicted_allocated_peak_bytes"))
                print "allocated " number("allocated_peak_bytes") ", predicted " number("predicted_allocated_peak_bytes")
        }
        END { if (!calls || !memory) print "a document without collectives or memory" }'
}

# Both losses, "FIRST SECOND".
losses() {
    tr -d ' \n' <"$dir/out" | sed -n 's/.*"loss":\[\([-0-9.e+]*\),\([-0-9.e+]*\)\].*/\1 \2/p'
}

# apart "FIRST SECOND" "FIRST SECOND" ALLOWED: a complaint where they differ by more, or are none.
apart() {
    echo "$1 $2" | awk -v allowed="$3" '
        function far(a, b) { return !((a > b ? a - b : b - a) <= allowed) }
        NF != 4 || far($1, $3) || far($2, $4) { print "losses " $0 ": more than " allowed " apart" }'
}

run_cell() {    # PRECISION STRATEGY DIALECT ROUNDING [WORD]
    words="$2/$3${5:+ $5} in $1"
    plan "$2" "$3" "$1" "$5"
    "$B/dpxrun" "$dir/plan.json" --steps 2 --no-db --json --offload-dir "$dir" >"$dir/out" 2>"$dir/said" </dev/null
    status=$?
    check "$words runs, collectives, bytes and memory as predicted" "$(
        if [ $status = 0 ]; then unpredicted <"$dir/out"; else echo "exit status $status"; head -n 5 "$dir/said"; fi)"
    got=$(losses)
    rounding=$1
    [ "$1" = fp32 ] || rounding=$4
    [ -s "$dir/first-$rounding" ] || printf '%s' "${got:+$got
}" >"$dir/first-$rounding"
    read -r first second <"$dir/first-$rounding"
    [ "$rounding" = - ] || check "$words has the losses of all that round so" \
        "$(apart "$got" "$first $second" "$(echo "$first" | awk '{ print 1e-6 * $1 }')")"
    read -r first second <"$dir/first-fp32"
    check "$words has the losses of fp32 but for rounding, and learns" "$(
        echo "$got" | awk '!($2 < $1) { print "the second loss, " $2 ", is not below the first, " $1 }'
        apart "$got" "$first $second" "$(echo "$first $second" | awk '{ print ($1 - $2) / 256 }')")"
}

each_cell() {   # CELLS
    [ -z "$1" ] || for precision in fp32 bf16; do
        while read -r strategy dialect rounding word; do
            # Refused: torchtitan has mixed precision under a pipeline only with FSDP.
            [ "$precision/$strategy/$dialect/$word" != bf16/ddp/torch/pipeline ] || continue
            [ "$of$precision" != bf16fp32 ] || [ ! -s "$dir/first-fp32" ] || continue
            case $word in
            two-ranks) ranks=2 accumulation=2 ;;
            tensor-pipeline | context-pipeline) ranks=4 accumulation=4 ;;
            pipeline | interleaved | tensor | ring | ulysses) ranks=4 accumulation=2 ;;
            *) ranks=2 accumulation=1 ;;
            esac
            run_cell $precision "$strategy" "$dialect" "$rounding" "$word"
        done <<CELLS
$1
CELLS
    done
}
each_cell "$data"
rm -f "$dir"/first-*            # meshes have another batch
each_cell "$meshes"
rm -f "$dir"/first-*
model='{ "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257, "tie_word_embeddings": false }'
each_cell "$untied"
finish
