# stage_kernels.sh -- the programs of tests/gpu/, each a group of tests.
# shellcheck shell=sh disable=SC2154,SC2015,SC2086
seed=${DPX_SEED:-$(date +%s)}
export DPX_SEED="$seed"
for t in kernels_cuda kernels_cuda_linear rows elements codes float8; do
    program=$B/tests/gpu/test_$t
    if [ ! -x "$program" ]; then
        check "$t" "$program was not built"
        continue
    fi
    timeout "$(left)" "$program" >"$dir/$t.txt" 2>&1 </dev/null
    status=$?
    grep -E '^\[ +OK|^\[ +FAILED +\] [a-z]' "$dir/$t.txt" | sed 's/^\[ *\([A-Z]*\) *\]/\1/' >"$dir/$t.names"
    while read -r word name; do
        check "$t: $name" "$([ "$word" = OK ] || { grep -v '^\[' "$dir/$t.txt" | head -n 5; echo "DPX_SEED=$seed"; })"
    done <"$dir/$t.names"
    [ $status = 0 ] || grep -q FAILED "$dir/$t.names" || check "$t ends" "exit status $status: $(tail -n 3 "$dir/$t.txt")"
done
