#!/bin/sh
# tests/test_readme.sh -- every command that README.md and the pages of docs/ show prints what they show.
# tools/pages.sh says what may differ; `make pages` brings them up to date.  tests/test_docs.sh holds their form.
. tests/check.sh

# Questions, the gallery and the reference have tests of their own.
pages=$(find docs -name '*.md' -not -path 'docs/questions/*' -not -path 'docs/reference/*' -not -name gallery.md | sort)
for page in README.md $pages; do
    grep -qE '^    \$ (dpxplan|cat) ' "$page" || continue
    check "$page: commands print what it shows" "$(tools/pages.sh --check "$page")"
done
check 'the pages show commands' "$(find README.md docs -name '*.md' -exec grep -q '^    \$ dpxplan' {} \; -print | grep -q . || echo 'none found')"
finish
