#!/bin/sh
# page/make.sh -- makes $B/dpx.html, the planner in one file: the library for WebAssembly, and what lies beside this script.
# What is missing is said by name, exit 1.
B=${B:-build} W=build-wasm
export NODE_PATH="${NODE_PATH:-/usr/share/nodejs}"
set -e
page/third.sh $W/third
${MAKE:-make} --no-print-directory WASM=1 $W/dpx.js

# Colours are those of the figures of reports, light and dark: --c0 to --c12.
palette() {
    sed -n "/ $1\[NCOLOURS\] = {/,/}/p" base/chart/chart.c | grep -o '#[0-9a-f]*' |
        awk '{ printf "%s--c%d:%s", (NR > 1 ? ";" : ""), NR - 1, $0 }'
}
style() {
    sed "s/@LIGHT@/$(palette light)/; s/@DARK@/$(palette dark)/" page/style.css
}
scripts() {
    cat page/library.js page/question.js page/chart.js page/knobs.js page/figures.js page/learn.js page/page.js
}
fits() {
    for f in calib/measured/*.fits; do
        printf '<script type="text/plain" data-fits="%s">\n' "${f##*/}"
        cat "$f"
        printf '</script>\n'
    done
}
mkdir -p "$B"
while IFS= read -r line; do
    case $line in
    @STYLE@)   style ;;
    @SCRIPT@)  scripts ;;
    @WORKER@)  cat $W/dpx.js page/worker.js ;;
    @LIBRARY@) base64 -w 0 $W/dpx.wasm; echo ;;
    @FITS@)    fits ;;
    *)         printf '%s\n' "$line" ;;
    esac
done <page/index.html >"$B/dpx.html.new"
mv "$B/dpx.html.new" "$B/dpx.html"
echo "the page: $B/dpx.html, $(wc -c <"$B/dpx.html") bytes"
