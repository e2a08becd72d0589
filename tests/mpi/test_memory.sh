#!/bin/sh
# tests/mpi/test_memory.sh -- what a process really takes: steps nothing but what is accounted, as
# the allocator sees it (mpi_outside.c); a run of some 600 MB as much as predicted, within 3 %, as the
# kernel counts its pages.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/matrix.sh
. tests/mpi/matrix.sh

# A sanitizer has an allocator and shadow memory of its own.
if nm "$B/dpxrun" 2>/dev/null | grep -q __asan_init; then
    skip 'steps take no more than is accounted' 'this build has the allocator of a sanitizer'
    skip 'the process takes what was predicted' 'this build has the shadow memory of a sanitizer'
    finish
fi

run_all 300 'steps take no more than is accounted: ' 2 mpi_outside

# process WHAT RANKS KEYS: few tokens, so that most of it are states.
process() {
    what=$1
    cat >"$dir/plan.json" <<END
{ "dpx_plan": 1, "cluster": "localhost:$2", "kernels": "dpx", "seq": 8, "micro_batch": 1,
  "model": { "model_type": "gpt2", "n_layer": 2, "n_embd": 1024, "n_head": 8, "n_positions": 8,
             "vocab_size": $4 }, $3 }
END
    "$B/dpxrun" "$dir/plan.json" --no-db --json --steps 3 --threads 1 >"$dir/run.json" 2>"$dir/said" \
        </dev/null || echo "exit status $?" >>"$dir/said"
    check "the process takes what was predicted, within 3 %: $what" "$(awk -F'[:,]' '
        /"process_peak_bytes"/ { got = $2 }
        /"predicted_process_bytes"/ { want = $2 }
        /"allocated_peak_bytes"/ && !arena { arena = $2 }
        END { off = got - want; if (off < 0) off = -off
              if (!(arena > 5e8 && want > 5e8 && off <= 0.03 * want))
                  print got + 0 " bytes, predicted " want + 0 ", allocated " arena + 0 }' "$dir/run.json"
        [ -s "$dir/run.json" ] || cat "$dir/said")"
}

process 'DDP on one rank' 1 '"strategy": "ddp", "dialect": "paper"' 12000
process 'DDP on two ranks' 2 '"strategy": "ddp", "dialect": "torch"' 8000
process 'ZeRO-2 in bf16 on two ranks' 2 '"strategy": "zero2", "dialect": "deepspeed", "precision": "bf16",
  "deepspeed": { "reduce_bucket_size": 20000000 }' 16000
process 'FSDP2 on two ranks' 2 '"strategy": "fsdp", "dialect": "torch", "unit": "block"' 20000
finish
