#!/usr/bin/env bash
# scripts/site builds a page of each page, with lists, code and pictures as GitHub shows them, and loads nothing from
# elsewhere. A link that leads nowhere, and a page that docs/index.md does not list, are errors.
set -euo pipefail
source_dir=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

# A copy of what git tracks, in which a page may be broken.
git -C "$source_dir" ls-files -z -- '*.md' docs mkdocs.yml 'scripts/site*' |
  (cd "$source_dir" && xargs -0 cp --parents -t "$work")
cat >>"$work/docs/glossary.md" <<'EOT'

Text before a list:
- an item with [code](../bridge/core/layout.h), which the site does not have:

      code_of_the_item

  and [a page](use/slurm.md#options)
  - an item of the item
EOT
status=0
"$work/scripts/site" "$work/site" >"$work/output" 2>&1 || status=$?
((status != 77)) || { cat "$work/output"; exit 77; }
((status == 0)) || { cat "$work/output"; fail "exit code $status"; }

# The pictures of the benchmarks are those of the tables below them.
site_python=${TORCHBRIDGE_SITE:-${XDG_CACHE_HOME:-$HOME/.cache}/torchbridge/site}/bin/python
"$site_python" "$work/scripts/site_figures.py" "$work/docs/develop" "$work/figures"
diff -rq "$work/docs/develop/figures" "$work/figures" || fail "run scripts/site_figures.py"

while read -r page; do
  page=${page#docs/}
  case $page in README.md) page=index.md ;; index.md) page=all_pages.md ;; esac
  [[ -s $work/site/${page%.md}.html ]] || fail "no page of $page"
done < <(cd "$work" && find docs -name '*.md' && echo README.md && echo SECURITY.md && echo CONTRIBUTING.md)
tr -d '\n' <"$work/site/glossary.html" >"$work/page"
grep -qF 'Text before a list:</p><ul><li>' "$work/page" || fail "no list"
grep -qF 'an item with code, which' "$work/page" || fail "a link to a source is left"
grep -qE '<pre[^>]*>(<[^>]*>)*code_of_the_item' "$work/page" || fail "no code in the item"
grep -qF '<a href="use/slurm.html#options">a page</a>' "$work/page" || fail "no link to a page"
grep -qE '<ul><li>an item of the item' "$work/page" || fail "no list in the list"
grep -q 'class="mermaid"' "$work/site/develop/architecture.html" || fail "no picture"
grep -q 'mermaid.min.js' "$work/site/develop/architecture.html" || fail "no Mermaid"
! grep -oE '(src|href)="https?://[^"]*\.(js|css|woff2?)[^"]*"' -r "$work/site" --include='*.html' ||
  fail "a page loads that from elsewhere"

# rejects WHAT: the site of the changed copy is not built.
rejects() {
  ! "$work/scripts/site" "$work/site" >"$work/output" 2>&1 || fail "$1 is no error"
  grep -q 'WARNING' "$work/output" || { cat "$work/output"; fail "$1: another error"; }
}
cp "$work/docs/glossary.md" "$work/kept"
echo '[x](use/slurm.md#no-such-heading)' >>"$work/docs/glossary.md"
rejects "an anchor that leads nowhere"
cp "$work/kept" "$work/docs/glossary.md"
echo '# A page' >"$work/docs/use/not_listed.md"
rejects "a page that is not listed"
