# tests/sim/phases_ask.sh -- sourced by the tests of phase plans that are imported: asks dpxplan, and looks at what it says.
. tests/check.sh
B=${B:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none
export XDG_DATA_HOME
dpxplan=$B/dpxplan

# ask FILE EXIT OPTIONS...: the document, and complaints where the exit status is another.
ask() {
    file=$1 want=$2
    shift 2
    "$dpxplan" phases "$file" --cluster 8xh100 "$@" --json >"$tmp/doc" 2>"$tmp/err"
    rc=$?
    [ $rc = "$want" ] || { echo "phases $file $*: exit $rc, not $want"; cat "$tmp/err"; }
}
holds() { [ "$(python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); phase = {p["name"]: p for p in d["phases"]}; role = {r["name"]: r for r in d["roles"]}; plan = d["plan"]["roles"]; print(eval(sys.argv[2]))' "$tmp/doc" "$1")" = True ] || echo "does not hold: $1"; }

# says WORDS FILE OPTIONS...: exit 2 and the words on one line.
says() {
    words=$1
    shift
    "$dpxplan" phases "$@" --cluster 8xh100 >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc = 2 ] || echo "phases $*: exit $rc, not 2"
    grep -q -e "$words" "$tmp/err" || { echo "not said: $words"; cat "$tmp/err"; }
}

# alone FILE OPTIONS...: on one GPU; tells WORDS RC: grep's exit status of them in what was said.
alone() { "$dpxplan" phases "$@" policy.generation.vllm_cfg.tensor_parallel_size=1 --cluster 1xh100 --json >"$tmp/doc" 2>"$tmp/err" || cat "$tmp/err"; }
tells() {
    grep -q -e "$1" "$tmp/err"
    [ $? = "$2" ] || { echo "told, or not: $1"; cat "$tmp/err"; }
}
