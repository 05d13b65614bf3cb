#!/usr/bin/env bash
# Makes what a release consists of, and tries it: a stripped binary in a tarball, a Debian package, a list of what is inside, and checksums.
#
# Usage: deploy/dist.sh [FOLDER]        the folder is target/dist without one
# BINARY=FILE takes a program that is built already; TARGET=x86_64-unknown-linux-musl builds a static one, where that toolchain is there.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-target/dist}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
arch=$(dpkg --print-architecture 2>/dev/null || uname -m)
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

say() { printf '%s\n' "$*"; }

# --- the program
if [ -z "${BINARY:-}" ]; then
    revision=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    HAPAX_REVISION=$revision cargo build --release --locked -p hapax-server ${TARGET:+--target "$TARGET"}
    BINARY=target/${TARGET:+$TARGET/}release/hapax
fi
install -D -m 755 "$BINARY" "$root/usr/bin/hapax"
strip "$root/usr/bin/hapax"
hapax=$root/usr/bin/hapax

# --- what goes with it
mkdir -p "$root/usr/share/man/man1"
"$hapax" man --out "$root/usr/share/man/man1" >/dev/null
gzip -9n "$root"/usr/share/man/man1/*.1
complete() { install -D -m 644 /dev/stdin "$root/$2" < <("$hapax" completions "$1"); }
complete bash usr/share/bash-completion/completions/hapax
complete zsh usr/share/zsh/vendor-completions/_hapax
complete fish usr/share/fish/vendor_completions.d/hapax.fish
install -D -m 644 -t "$root/usr/lib/systemd/system" deploy/systemd/hapax.service deploy/systemd/hapax.socket
docs=$root/usr/share/doc/hapax
install -D -m 644 -t "$docs" README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE
cp -r docs contrib examples "$docs/"
find "$docs" -type f -exec chmod 644 {} + -o -type d -exec chmod 755 {} +
printf 'hapax is licensed under MIT or Apache-2.0, as you like; see LICENSE-MIT and LICENSE-APACHE here.\n' > "$docs/copyright"

# --- what it needs to run
needs=$(readelf -d "$hapax" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
glibc=$(readelf -V "$hapax" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -1)
say "needs: ${needs:-nothing, it is static}${glibc:+(glibc $glibc or later)}"
say "size:  $(du -h "$hapax" | cut -f1)"

# --- the tarball
name=hapax-$version-linux-$arch
mkdir "$work/$name"
cp -r "$root/usr/." "$work/$name/"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -czf "$out/$name.tar.gz" "$name"

# --- the Debian package
deb=
if command -v dpkg-deb >/dev/null; then
    deb=$out/hapax_${version}_$arch.deb
    mkdir "$root/DEBIAN"
    depends=libc6${glibc:+ (>= $glibc)}
    case $needs in *libgcc_s*) depends="$depends, libgcc-s1" ;; esac
    [ -n "$needs" ] || depends=
    {
        printf 'Package: hapax\nVersion: %s\nArchitecture: %s\n' "$version" "$arch"
        printf 'Maintainer: the authors of hapax <hapax@localhost>\nSection: net\nPriority: optional\n'
        [ -z "$depends" ] || printf 'Depends: %s, passwd\n' "$depends"
        printf 'Recommends: ca-certificates\n'
        printf 'Installed-Size: %s\n' "$(du -sk --exclude=DEBIAN "$root" | cut -f1)"
        printf 'Description: exactly-once gateway for messaging webhooks\n'
        printf ' hapax stands between a provider (WhatsApp, Telegram, Stripe, ...) and a bot,\n'
        printf ' and makes each message take effect once: copies are suppressed, what was\n'
        printf ' answered 200 is on disk, and what the bot sends goes out once.\n'
    } > "$root/DEBIAN/control"
    install -m 755 -t "$root/DEBIAN" deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm
    dpkg-deb -Zgzip --root-owner-group --build "$root" "$deb" >/dev/null
fi

# --- what is inside
python3 deploy/sbom.py > "$out/hapax-$version.cdx.json"

# --- all of it is tried, from the files that would be given out
try() {
    local program=$1 folder
    folder=$(mktemp -d "$work/try.XXXXXX")
    "$program" --version | grep -qx "hapax $version"
    "$program" config init "$folder/hapax.toml" >/dev/null
    # A bot that takes everything is a part of `listen`.
    (cd "$folder" && exec "$program" listen --listen 127.0.0.1:0 --store "sqlite:$folder/hapax.db" --json) > "$folder/said" 2> "$folder/log" &
    local pid=$! address=
    for _ in $(seq 300); do
        address=$(sed -n 's/.*"listen": "\(http[^"]*\)".*/\1/p' "$folder/said" | head -1)
        [ -z "$address" ] || break
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.2
    done
    local answer=
    [ -z "$address" ] || answer=$(cd "$folder" && "$program" trigger whatsapp.text --times 3 --server "$address" 2>&1) || true
    kill "$pid" 2>/dev/null || true
    wait "$pid" || true
    case $answer in
        *suppressed* | *duplicate*) say "tried: $2 takes a webhook once, of three" ;;
        *) say "$2 does not work: ${answer:-it did not start}"; cat "$folder/log"; exit 1 ;;
    esac
}
mkdir "$work/from-tar" && tar -C "$work/from-tar" -xzf "$out/$name.tar.gz"
try "$work/from-tar/$name/bin/hapax" "the tarball"
if [ -n "$deb" ]; then
    mkdir "$work/from-deb" && dpkg-deb -x "$deb" "$work/from-deb"
    try "$work/from-deb/usr/bin/hapax" "the Debian package"
    for script in postinst prerm postrm; do sh -n "$root/DEBIAN/$script"; done
fi
(cd "$out" && sha256sum -- * > SHA256SUMS)
say
say "in $out:"
(cd "$out" && ls -1sh)
