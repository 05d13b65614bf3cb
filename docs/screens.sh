#!/usr/bin/env bash
# Writes docs/screens.md: what commands print on a terminal of 80 and of 120 columns. Needs tmux and a built hapax:
#   HAPAX=target/quick/hapax docs/screens.sh
set -euo pipefail
hapax="$(realpath "${HAPAX:-target/quick/hapax}")"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
work="$(mktemp -d)"
session="hapax-screens-$$"
trap 'tmux kill-session -t "$session" 2>/dev/null || true; tmux kill-session -t "$session-server" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$hapax" "$work/bin/hapax"
export PATH="$work/bin:$PATH"

# A bot that is not there, so that there is something to tell.
tmux new-session -d -s "$session-server" -x 80 -y 60 "cd $work; PATH=$PATH hapax listen 3999"
for _ in $(seq 100); do tmux capture-pane -p -t "$session-server" | grep -q 'Ctrl-C' && break; sleep 0.1; done

screen() { # columns, command
    tmux new-session -d -s "$session" -x "$1" -y 200 "cd $work; PATH=$PATH bash --norc --noprofile -c '$2; echo; echo over-and-out; sleep 60'"
    for _ in $(seq 200); do tmux capture-pane -p -t "$session" | grep -q '^over-and-out' && break; sleep 0.1; done
    echo
    echo '```'
    echo "$ $2"
    tmux capture-pane -p -t "$session" | sed '/^over-and-out/,$d' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
    echo '```'
    tmux kill-session -t "$session"
}

{
    echo '# What it looks like'
    echo
    echo 'Made by `docs/screens.sh`: commands on a terminal of 80 columns, and some again on one of 120. The bot is down.'
    echo
    echo '## 80 columns'
    screen 80 'hapax trigger whatsapp.text --times 3'
    screen 80 'hapax trigger stripe.invoice_paid'
    for command in events inbox parked 'story latest' 'show latest' threads outbox accounts stats 'token list' check 'doctor --offline'; do
        screen 80 "hapax $command"
    done
    echo
    echo '## 120 columns'
    for command in events inbox 'story latest' threads; do screen 120 "hapax $command"; done
} > "$here/screens.md.new"
mv "$here/screens.md.new" "$here/screens.md"
