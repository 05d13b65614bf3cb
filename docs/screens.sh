#!/usr/bin/env bash
# Writes docs/screens.md: what commands print on a terminal of 80, of 120 and of 40 columns. Needs tmux and a built hapax:
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

# What a pane shows, without the empty lines at its end and without the code that signs in.
pane() {
    tmux capture-pane -p -t "$1" | sed '/^over-and-out/,$d' | sed -E -e 's/code=[0-9a-f]+/code=…/' -e '/^[0-9a-f]{20,}$/d' |
        sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
}

show() { # pane, command
    echo
    echo '```'
    echo "$ $2"
    pane "$1"
    echo '```'
}

screen() { # columns, command
    tmux new-session -d -s "$session" -x "$1" -y 200 "cd $work; PATH=$PATH bash --norc --noprofile -c '$2; echo; echo over-and-out; sleep 60'"
    for _ in $(seq 200); do tmux capture-pane -p -t "$session" | grep -q '^over-and-out' && break; sleep 0.1; done
    show "$session" "$2"
    tmux kill-session -t "$session"
}

live() { # columns, command that goes on until it is told to stop
    tmux new-session -d -s "$session" -x "$1" -y 30 "cd $work; PATH=$PATH $2"
    sleep 2.5
    show "$session" "$2"
    tmux kill-session -t "$session"
}

# What only looks; `THREAD` is somebody's.
looks=(events 'events --limit 1' 'events state:parked' inbox parked 'story latest' 'show latest' threads 'messages THREAD' outbox
    accounts claims audit stats 'token list' ready check doctor 'show order-4711' 'messages 1__2' 'events colour:red')
# What does something, once.
acts=('send --to 5511988887777 --text hello' 'replay latest' 'redrive --channel stripe' 'once nightly -- echo done'
    'threads pause THREAD' 'threads resume THREAD' 'accounts resume whatsapp 700001' 'token create viewer --scope read --out viewer.token'
    'token revoke nobody' 'import-seen --channel telegram ids' purge reload 'backup copy.db' 'restore copy.db < /dev/null'
    'export all.ndjson' 'import nothing.ndjson' 'forget --contact 5511988887777' 'token link' 'config init' 'demo --seconds 3')
# On a phone, or in half a window.
narrow=(events inbox 'story latest' threads stats audit)
hapax_of() { echo "hapax ${1/THREAD/700001__5511988887777}"; }
printf '4711\n4712\n' > "$work/ids"

{
    echo '# What it looks like'
    echo
    echo 'Made by `docs/screens.sh`: commands on a terminal of 80 columns, those that only look again on one of 120, and some on'
    echo 'one of 40. The bot is down; errors are shown too. Each command says the rest by `--help`.'
    echo
    echo '## 80 columns'
    screen 80 'hapax trigger whatsapp.text --times 3'
    screen 80 'hapax trigger stripe.invoice_paid'
    show "$session-server" 'hapax listen 3999'
    for command in "${acts[@]:3:1}" "${looks[@]}"; do screen 80 "$(hapax_of "$command")"; done
    live 80 'hapax top'
    for command in "${acts[@]:0:3}" "${acts[@]:4}"; do screen 80 "$(hapax_of "$command")"; done
    echo
    echo '## 120 columns'
    for command in "${looks[@]}"; do screen 120 "$(hapax_of "$command")"; done
    live 120 'hapax top'
    echo
    echo '## 40 columns'
    for command in "${narrow[@]}"; do screen 40 "$(hapax_of "$command")"; done
    live 40 'hapax top'
    echo
    echo '## What it says of itself'
    screen 80 'hapax --help'
    screen 80 'hapax listen --help'
} > "$here/screens.md.new"
mv "$here/screens.md.new" "$here/screens.md"
