#!/bin/sh
# tests/emu/test_dpxcal.sh -- `dpxcal run --device cuda` on the emulator: every kernel of a program in fp32, bf16 and fp16, and a
# plan in each whose compute rests on them.  What an emulated device takes means nothing; what is timed does.
# Runs from the root of the tree; $B is the host's build, build-emu the emulator's.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build} E=${E:-build-emu}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 DPX_EMU_MEMORY=2000000000

if ! [ -x "$E/dpxcal" ]; then
    skip 'dpxcal on the emulated device' "$E/dpxcal is not built (make EMU=1)"
    finish
fi
cat >"$dir/tiny.json" <<'END'
{"model_type": "gpt2", "n_embd": 64, "n_head": 2, "n_layer": 2, "vocab_size": 256, "n_positions": 32}
END
timeout 300 "$E/dpxcal" run --device cuda --quick --ranks 1 --model "$dir/tiny.json" --micro-batch 1 --seq 32 \
    --precision fp32,bf16,fp16 --seconds 6 --db "$dir/cal.db" >"$dir/said" 2>&1 </dev/null
status=$?
check 'dpxcal times an emulated device in three precisions' "$([ $status = 0 ] && ! grep 'dpx:' "$dir/said" || { echo "exit status $status"; tail -n 5 "$dir/said"; })"
"$E/dpxcal" export "$dir/cal.json" --db "$dir/cal.db" >/dev/null 2>&1

# One line a series: kind, name, dtype.
tr '{' '\n' <"$dir/cal.json" | sed -n 's/.*"kind":"\([^"]*\)","name":"\([^"]*\)".*"dtype":"\([^"]*\)".*/\1 \2 \3/p' >"$dir/series"
of() { grep "^$1 .* $2\$" "$dir/series" | sed "s/ $2\$//" | sort; }
of kernel fp32 >"$dir/kernels"
check 'a program has kernels' "$([ "$(wc -l <"$dir/kernels")" -gt 20 ] || echo "$(wc -l <"$dir/kernels") kernels")"
for t in bf16 fp16; do
    of kernel $t >"$dir/kernels.$t"
    of pass $t | grep -v disk >"$dir/passes.$t"
    check "$t has the kernels that fp32 has" "$(diff "$dir/kernels" "$dir/kernels.$t")"
    check "$t has passes over memory" "$(for pass in copy add cast squares adamw; do
            grep -q " $pass\$" "$dir/passes.$t" || echo "no $pass"
        done)"
done

can_hold
for t in fp32 bf16 fp16; do
    cat >"$dir/plan.json" <<END
{ "dpx_plan": 1, "model": "$dir/tiny.json", "kernels": "dpx", "seq": 32, "micro_batch": 1, "strategy": "ddp", "dialect": "paper", "precision": "$t",
  "cluster": { "name": "$(hostname)", "nodes": 1, "gpus_per_node": 1, "gpu": { "name": "emulated", "memory_bytes": 2000000000,
    "hbm_gb_per_s": 1000, "fp32_tflops": 30, "bf16_tflops": 200 } } }
END
    "$B/dpxplan" eval "$dir/plan.json" --db "$dir/cal.db" --json >"$dir/eval.json" 2>"$dir/said"
    hold_answer "$dir/eval.json" dpxplan eval
    check "a plan in $t rests on what was timed" "$(
        tr -d ' \n' <"$dir/eval.json" | grep -q '"basis":"measured".*"missing":\[\]' ||
            { cat "$dir/said"; tr -d ' \n' <"$dir/eval.json" | grep -o '"missing":\[[^]]*\]'; })"
done
finish
