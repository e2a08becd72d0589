#!/bin/sh
# tests/test_readme.sh -- every command that README.md and the pages of docs/ show prints what they show.
# tools/pages.sh says what may differ; `make pages` brings them up to date.
. tests/check.sh

# docs/questions.md and docs/gallery.md have tests of their own.
for page in README.md docs/*.md; do
    case $page in docs/questions.md|docs/gallery.md) continue ;; esac
    check "$page: commands print what it shows" "$(tools/pages.sh --check "$page")"
done
check 'the pages show commands' "$(grep -q '^    \$ dpxplan' README.md docs/*.md || echo 'none found')"

# A page that a page links to is there.
check 'links lead somewhere' "$(grep -noE '\]\([^)#:]+' README.md docs/*.md | while IFS=: read -r page line link; do
    case $link in *https|*http) continue ;; esac
    to=$(dirname "$page")/${link#](}
    [ -e "$to" ] || echo "$page:$line: there is no $to"
done)"
check 'README.md is at most 10 kB' "$([ "$(wc -c <README.md)" -le 10240 ] || wc -c README.md)"
finish
