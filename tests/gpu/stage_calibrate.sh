# stage_calibrate.sh -- times this GPU; the export is what tests/calib/measured/ keeps.
# shellcheck shell=sh disable=SC2154,SC2015,SC2086
db=$OUT/gpu.db
[ ! "${ANEW:-}" ] || rm -f "$db"
if [ ! -e "$dir/done" ]; then
    seconds=$(($(left) - 30))
    more=''
    [ ! "${EMU:-}" ] || more="--quick --model $dir/tiny.json --micro-batch 1 --seq 32 --precision fp32"
    gpt 2 64 2 64 256 >"$dir/tiny.json"
    "$B/dpxcal" run --device cuda --seconds "${SECONDS_CALIBRATION:-$seconds}" $more --db "$db" >"$dir/run.txt" 2>&1 </dev/null
    status=$?
    check 'dpxcal times the GPU' "$([ $status = 0 ] || tail -n 5 "$dir/run.txt")"
    [ $status != 0 ] || : >"$dir/done"
else
    check 'dpxcal times the GPU' ''
fi
"$B/dpxcal" export "$dir/export.json" --db "$db" >"$dir/export.txt" 2>&1
check 'what it timed is exported' "$([ -s "$dir/export.json" ] || cat "$dir/export.txt")"
for kind in kernel pass overlap own; do
    check "series of kind $kind are there" "$(grep -q "\"kind\": *\"$kind\"" "$dir/export.json" || echo none)"
done
if [ "$gpus" -ge 2 ]; then
    check 'collectives are there' "$(grep -q '"kind": *"collective"' "$dir/export.json" || echo none)"
else
    skip 'collectives' 'there is one GPU: they stay published figures'
fi
check 'versions are there' "$(for v in kernels_version comm_version dpx_version; do
        grep -q "\"$v\": *\"[^\"]" "$dir/export.json" || echo "no $v"
    done)"
check 'dpxcal show tells of it' "$("$B/dpxcal" show --db "$db" >"$dir/show.txt" 2>&1 || cat "$dir/show.txt")"
cat "$dir/show.txt"
