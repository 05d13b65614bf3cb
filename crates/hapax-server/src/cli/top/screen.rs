//! How `hapax top` looks, on 80 columns and more.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row as TableRow, Table, Wrap};

use super::figures::{Figures, Row};

pub(super) const HEAD: [&str; 9] = ["channel", "new/s", "copies/s", "bot/s", "sent/s", "waiting", "busy", "person", "oldest"];

/// Of the columns; the first is as wide as there is room.
const WIDTHS: [u16; 9] = [14, 7, 8, 7, 7, 7, 5, 6, 8];

/// The columns that go first where there is no room for all.
const LEFT_OUT: [usize; 5] = [4, 3, 2, 1, 6];

/// The most lines that are kept for what needs a person.
const NEEDS_MAX: u16 = 8;

pub(super) fn cells(row: &Row) -> [String; 9] {
    let rate = |column: usize| match row.rates[column] {
        0.0 => "0".to_owned(),
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    };
    let name = if row.down { format!("{} (down)", row.channel) } else { row.channel.clone() };
    [
        name,
        rate(0),
        rate(1),
        rate(2),
        rate(3),
        row.waiting.to_string(),
        row.leased.to_string(),
        row.needs_person.to_string(),
        row.oldest.clone(),
    ]
}

/// The columns for which there is room.
fn columns(width: u16) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..WIDTHS.len()).collect();
    for gone in LEFT_OUT {
        let needed: u16 = columns.iter().map(|&column| WIDTHS[column]).sum::<u16>() + columns.len() as u16 - 1;
        if needed > width {
            columns.retain(|&column| column != gone);
        }
    }
    columns
}

pub(super) fn draw(frame: &mut Frame<'_>, figures: &Figures) {
    let needs = (figures.needs.len() as u16).clamp(1, NEEDS_MAX) + 2;
    let parts = Layout::vertical([Constraint::Length(3), Constraint::Min(3), Constraint::Length(needs), Constraint::Length(1)]);
    let [top, middle, below, foot] = parts.areas(frame.area());
    let words = figures.trouble.as_deref().unwrap_or("");
    let title = vec![
        Line::from(format!("hapax {}", env!("CARGO_PKG_VERSION")).bold()),
        Line::from(figures.summary.as_str()),
        Line::from(words).red(),
    ];
    frame.render_widget(Paragraph::new(title).wrap(Wrap { trim: false }), top);

    let columns = columns(frame.area().width);
    let shown = |cells: [String; 9]| columns.iter().map(|&column| cells[column].clone()).collect::<Vec<_>>();
    let rows = figures.rows.iter().map(|row| {
        let style = match row {
            Row { down: true, .. } => Style::new().red(),
            Row { needs_person: 1.., .. } => Style::new().yellow(),
            _ => Style::new(),
        };
        TableRow::new(shown(cells(row))).style(style)
    });
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let width = |&column: &usize| match column {
        0 => Constraint::Min(WIDTHS[0]),
        other => Constraint::Length(WIDTHS[other]),
    };
    let head = TableRow::new(shown(HEAD.map(str::to_owned))).style(bold);
    frame.render_widget(Table::new(rows, columns.iter().map(width)).header(head), middle);

    let mut lines = vec![Line::from(""), Line::from("What needs a person".bold())];
    match figures.needs.is_empty() {
        true => lines.push(Line::from("nothing")),
        false => lines.extend(figures.needs.iter().map(|need| Line::from(need.as_str()))),
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), below);
    frame.render_widget(Line::from("q quits").dim(), foot);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn figures() -> Figures {
        let row = |channel: &str, needs_person, down| Row {
            channel: channel.to_owned(),
            rates: [120.0, 3.25, 118.0, 0.0],
            waiting: 12_345,
            leased: 16,
            needs_person,
            oldest: "12m ago".to_owned(),
            down,
        };
        Figures {
            summary: "events 9  keys 9".to_owned(),
            rows: vec![row("shop", 3, false), row("help", 0, true)],
            needs: vec!["shop: 3 wait for a person; `hapax parked --channel shop` lists them".to_owned()],
            trouble: None,
        }
    }

    fn drawn(width: u16, height: u16, figures: &Figures) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, figures)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn eighty_columns_are_enough() {
        let lines = drawn(80, 20, &figures());
        let text = lines.join("\n");
        for words in
            ["channel", "oldest", "shop", "120", "3.2", "12345", "16", "12m ago", "help (down)", "What needs a person", "q quits"]
        {
            assert!(text.contains(words), "{words}:\n{text}");
        }
        assert!(text.contains("`hapax parked --channel shop` lists them"), "{text}");
    }

    #[test]
    fn on_forty_columns_rates_give_way_to_what_waits() {
        let text = drawn(40, 20, &figures()).join("\n");
        assert!(text.contains("channel          waiting person oldest"), "{text}");
        assert!(text.contains("help (down)      12345   0      12m ago"), "{text}");
        assert!(!text.contains("copies/s"), "{text}");
    }

    #[test]
    fn no_window_is_too_small_and_nothing_is_fine_too() {
        for (width, height) in [(1, 1), (10, 3), (80, 5), (200, 60)] {
            drawn(width, height, &figures());
        }
        assert!(drawn(80, 20, &Figures::default()).join("\n").contains("nothing"));
    }
}
