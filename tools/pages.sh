#!/bin/sh
# tools/pages.sh [--check|--list] [PAGE...] -- the examples of pages: runs each command, writes what it prints below it.
#
# Without PAGE: README.md and every page of docs/ but docs/reference/, which tools/reference.sh writes as a whole.
# --list: only the commands, a line each, in their order.
#
# An example is an indented block that begins with "$ ", of dpxplan or cat; others (measured runs) stay as they are.
# --check changes nothing: it prints the examples that differ, and fails.  Seconds that a search took, progress and
# blanks at the ends of lines do not count.  Commands run in a folder of their own, where demo/ and docs/ can be
# read; figures that they draw (-o NAME.svg) replace docs/gallery/NAME.svg, unless --check.
check=
[ "$1" = --check ] && { check=1; shift; }
list=
[ "$1" = --list ] && { list=1; shift; }
[ $# -gt 0 ] || set -- README.md $(find docs -name '*.md' -not -path 'docs/reference/*' | sort)
if [ "$list" ]; then
    sed -n 's/^    \$ \(dpxplan .*\)/\1/p' "$@"
    exit
fi
root=$(pwd)
PATH=$(cd "${B:-build}" && pwd):$PATH
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
XDG_DATA_HOME=$work/none        # no calibration of this machine
LC_ALL=C.UTF-8
COLUMNS=96
export XDG_DATA_HOME LC_ALL COLUMNS
unset NO_COLOR
mkdir "$work/run"
ln -s "$root/demo" "$root/docs" "$work/run/"

# What counts of an output: blank lines at either end and blanks at the end of a line do not show.
seen() {
    sed -e 's/[[:space:]]*$//' -e '/, [0-9]* s\(, about [0-9]* s to go\)*$/{/ of [0-9]* \| looked at\|^points/d}' "$1" |
        awk 'NF { for (; blank > 0; blank--) if (some) print ""; print; some = 1; blank = 0; next } { blank++ }'
}

# Two outputs that differ in the seconds of a search alone are the same.
same() { [ "$(sed 's/; [0-9.]* s$/; N s/' "$1")" = "$(sed 's/; [0-9.]* s$/; N s/' "$2")" ]; }

bad=0
for page; do
    rm -f "$work"/*.cmd "$work"/*.want "$work"/*.got
    # The page with a line "@N@" for each example, and the examples: N.cmd, N.want.
    awk -v tmp="$work" '
    FNR == 1 { out = "" }
    /^    \$ / { for (; blank > 0; blank--) print ""; out = "" }
    /^    \$ (dpxplan|cat) / { n++; print substr($0, 7) >(tmp "/" n ".cmd"); close(tmp "/" n ".cmd")
        out = tmp "/" n ".want"; printf "" >out; print "@" n "@"; next }
    /^    /    { if (out != "") { for (; blank > 0; blank--) print "" >out; print substr($0, 5) >out; next } }
    /^$/       { if (out != "") { blank++; next } }
               { if (out != "") { close(out); out = "" }
                 for (; blank > 0; blank--) print ""; print }
    END        { for (; blank > 0; blank--) print "" }' "$page" >"$work/page"
    n=1
    while [ -f "$work/$n.cmd" ]; do
        (cd "$work/run" && sh -c "$(cat "$work/$n.cmd")") >"$work/$n.got" 2>&1 </dev/null
        seen "$work/$n.want" >"$work/want"
        seen "$work/$n.got" >"$work/got"
        if same "$work/want" "$work/got"; then
            cp "$work/$n.want" "$work/$n.got"
        elif [ "$check" ]; then
            echo "$page: $(cat "$work/$n.cmd")"
            diff "$work/want" "$work/got"
            bad=1
        else
            cp "$work/got" "$work/$n.got"
        fi
        n=$((n + 1))
    done
    [ "$check" ] && continue
    awk -v tmp="$work" '
    /^@[0-9]+@$/ {
        n = substr($0, 2, length($0) - 2)
        getline line <(tmp "/" n ".cmd"); print "    $ " line
        f = tmp "/" n ".got"
        while ((getline line <f) > 0) { if (line ~ /^[ \t]*$/) print ""; else print "    " line }
        close(f); next }
    { print }' "$work/page" >"$work/new"
    cmp -s "$work/new" "$page" || cp "$work/new" "$page"
done
for figure in "$work"/run/*.svg; do
    [ -e "$figure" ] || continue
    kept=docs/gallery/$(basename "$figure")
    if [ -z "$check" ]; then
        mkdir -p docs/gallery && cp "$figure" "$kept"
    elif ! cmp -s "$figure" "$kept"; then
        echo "$kept is not what the command draws"
        bad=1
    fi
done
exit $bad
