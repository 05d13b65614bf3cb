#!/usr/bin/env python3
"""Records a command on a terminal of 80 columns as an SVG that plays in a loop, for the README.

Usage: docs/record.py docs/images/demo.svg target/quick/hapax demo --seconds 20

It runs the command as it is. What the picture shows is what was printed, when it was printed; only the pauses of the end are made up.
"""
import fcntl
import html
import os
import pty
import re
import struct
import sys
import termios
import time

COLUMNS, ROWS = 80, 24
STEP_S = 0.5
REST_S = 6.0
CHARACTER, LINE, MARGIN = 8.4, 19, 14
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#79c0ff", "2": "#8b949e"}


def run(command):
    """What came, with the time at which it came."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    came, begun = [], time.monotonic()
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        came.append((time.monotonic() - begun, data))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0:
        sys.exit(f"{' '.join(command)} ended with code {code}")
    return came


class Screen:
    """As much of a terminal as our commands use: lines, returns, erasing, moving up, and styles."""

    def __init__(self):
        self.lines, self.row, self.column, self.style = [[]], 0, 0, ()

    def feed(self, text):
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x1b]|\x1b", text):
            if len(part) > 1:
                self.control(part[2:-1], part[-1])
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.row, self.column = self.row + 1, 0
                while len(self.lines) <= self.row:
                    self.lines.append([])
            elif part >= " ":
                line = self.lines[self.row]
                line.extend([(" ", ())] * (self.column + 1 - len(line)))
                line[self.column] = (part, self.style)
                self.column += 1

    def control(self, numbers, letter):
        count = int(numbers) if numbers.isdigit() else 1
        if letter == "m":
            kept = () if numbers in ("", "0", "39", "22") else self.style + tuple(numbers.split(";"))
            self.style = kept
        elif letter == "K":
            line = self.lines[self.row]
            self.lines[self.row] = [] if numbers == "2" else line[: self.column]
        elif letter == "A":
            self.row = max(0, self.row - count)
        elif letter == "G":
            self.column = count - 1

    def shown(self):
        return [tuple(line) for line in self.lines]


def frames(came):
    """The screen every half second, for as long as anything changed."""
    screen, taken, at = Screen(), [], 0.0
    for when, data in came:
        while when >= at + STEP_S:
            taken.append(screen.shown())
            at += STEP_S
        screen.feed(data.decode("utf-8", "replace"))
    taken.append(screen.shown())
    return taken


def spans(line):
    """Runs of one style, as SVG wants them."""
    out, index = [], 0
    while index < len(line):
        style = line[index][1]
        end = index
        while end < len(line) and line[end][1] == style:
            end += 1
        text = html.escape("".join(sign for sign, _ in line[index:end]))
        look = "".join(f' fill="{COLOURS[code]}"' for code in style if code in COLOURS)
        look += ' font-weight="bold"' if "1" in style else ""
        out.append(f"<tspan{look}>{text}</tspan>" if look else text)
        index = end
    return "".join(out)


def svg(prompt, taken):
    total = len(taken) * STEP_S + REST_S
    height = max(len(frame) for frame in taken) + 1
    css, body = [], []
    for row in range(height):
        first = 0
        while first < len(taken):
            line = taken[first][row] if row < len(taken[first]) else ()
            last = first
            while last + 1 < len(taken) and (taken[last + 1][row] if row < len(taken[last + 1]) else ()) == line:
                last += 1
            if "".join(sign for sign, _ in line).strip():
                name = f"l{row}_{first}"
                begins = 100 * first * STEP_S / total
                ends = 100.0 if last == len(taken) - 1 else 100 * (last + 1) * STEP_S / total
                rest = 1 if last == len(taken) - 1 else 0
                css.append(
                    f"@keyframes {name}{{0%{{opacity:{int(first == 0)}}}{begins:.2f}%{{opacity:1}}{ends:.2f}%{{opacity:{rest}}}"
                    f"100%{{opacity:{rest}}}}}#{name}{{opacity:{rest};animation:{name} {total}s step-end infinite}}"
                )
                y = MARGIN + (row + 2) * LINE
                body.append(f'<text id="{name}" x="{MARGIN}" y="{y}" xml:space="preserve">{spans(line)}</text>')
            first = last + 1
    width = int(COLUMNS * CHARACTER + 2 * MARGIN)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{int((height + 1) * LINE + 2 * MARGIN)}">',
            "<style>text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#e6edf3}",
            *css,
            "@media (prefers-reduced-motion:reduce){text{animation:none!important}}</style>",
            '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>',
            f'<text x="{MARGIN}" y="{MARGIN + LINE // 2 + 4}"><tspan fill="#7ee787">$</tspan> {html.escape(prompt)}</text>',
            *body,
            "</svg>",
            "",
        ]
    )


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out, command = sys.argv[1], sys.argv[2:]
    taken = frames(run(command))
    prompt = " ".join([os.path.basename(command[0]), *command[1:]])
    with open(out, "w", encoding="utf-8") as file:
        file.write(svg(prompt, taken))
    print(f"{out}: {len(taken)} frames")


if __name__ == "__main__":
    main()
