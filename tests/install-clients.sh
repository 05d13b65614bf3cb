#!/usr/bin/env bash
# Installs the client libraries that tests/it/libraries.rs, redis_door.rs, examples.rs and described.rs prove hapax with, into the target
# folder: nothing is left elsewhere. And the languages of clients/, for packages.rs there. Where they cannot be had, those tests are skipped, which CI does not
# let pass.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/clients"
into="${CARGO_TARGET_DIR:-$here/../../target}/clients"

# Whether the last whole installation was of what is asked for now.
is_there() { # name, file
    [ -f "$into/$1.installed" ] && cmp -s "$into/$1.installed" "$here/$2"
}
if is_there python requirements.txt && is_there node package-lock.json && command -v php >/dev/null && command -v chromium >/dev/null; then
    exit 0
fi

missing=()
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v php >/dev/null || missing+=(php-cli)
# For tests/it/browser.rs.
command -v chromium >/dev/null || missing+=(chromium)
if [ "${#missing[@]}" -gt 0 ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "installing for the tests: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # What could not be had is told below.
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || true
fi

python_libraries() {
    rm -rf "$into/python" "$into/python.installed"
    python3 -m venv "$into/python"
    "$into/python/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
    cp "$here/requirements.txt" "$into/python.installed"
}

node_libraries() {
    rm -rf "$into/node" "$into/node.installed"
    mkdir -p "$into/node"
    cp "$here/package.json" "$here/package-lock.json" "$into/node/"
    (cd "$into/node" && npm ci --silent --no-audit --no-fund --ignore-scripts)
    cp "$here/package-lock.json" "$into/node.installed"
}

mkdir -p "$into"
echo "installing client libraries for the tests"
# Two at once, each whole or not at all.
(set -e; is_there python requirements.txt || python_libraries) &
python=$!
(set -e; is_there node package-lock.json || node_libraries) &
node=$!
failed=()
wait "$python" || failed+=(Python)
wait "$node" || failed+=(Node)
command -v php >/dev/null || failed+=(PHP)
command -v chromium >/dev/null || failed+=(Chromium)
if [ "${#failed[@]}" -gt 0 ]; then
    echo "no client libraries for ${failed[*]}: their tests will be skipped" >&2
    [ "${CI:-}" != true ] || exit 1
fi
