//! The figures on a terminal, redrawn at each look.

use std::path::Path;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Gauge, Paragraph, Row, Sparkline, Table};
use ratatui::{DefaultTerminal, Frame};

use crate::commands::scrub::percent;
use crate::commands::stats::PARTS;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Guard;
use crate::out::tame;
use crate::size::{show, show_time};
use crate::top::plain::{last_events, part, rate, rows, scrub};
use crate::top::sample::View;

/// How often a wait looks for keys and for an interrupt.
const LOOK: Duration = Duration::from_millis(50);
/// Columns that names of figures take.
const NAMES: u16 = 22;

/// A terminal that shows figures; as it was before once this is dropped.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    /// Given up once the terminal is as it was.
    _guard: Guard,
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::io("the terminal", error)
}

impl Screen {
    pub(crate) fn open() -> Outcome<Self> {
        // First, so that no signal finds the terminal changed and nobody to put it back.
        let guard = Guard::new(ratatui::restore).map_err(|error| failed(&error))?;
        let terminal = ratatui::try_init().map_err(|error| failed(&error))?;
        Ok(Self { terminal, _guard: guard })
    }

    /// Shows a look until the next is due, or until a key asks for it; whether to go on.
    pub(crate) fn show(&mut self, path: &Path, view: &View, each: Duration) -> Outcome<bool> {
        let begun = Instant::now();
        let name = tame(&path.display().to_string()).into_owned();
        self.draw(&name, view)?;
        while begun.elapsed() < each {
            if crate::interrupt::asked() {
                return Ok(false);
            }
            if !event::poll(LOOK).map_err(|error| failed(&error))? {
                continue;
            }
            match event::read().map_err(|error| failed(&error))? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    let ends = key.modifiers.contains(KeyModifiers::CONTROL)
                        && matches!(key.code, KeyCode::Char('c' | 'd'));
                    return Ok(!ends && !matches!(key.code, KeyCode::Char('q') | KeyCode::Esc));
                }
                Event::Resize(..) => self.draw(&name, view)?,
                _ => {}
            }
        }
        Ok(true)
    }

    fn draw(&mut self, name: &str, view: &View) -> Outcome<()> {
        let drawn = self.terminal.draw(|frame| draw(frame, name, view));
        drawn.map(drop).map_err(|error| failed(&error))
    }
}

fn block(title: &str) -> Block<'_> {
    Block::bordered().title(Line::from(format!(" {title} ")))
}

fn draw(frame: &mut Frame<'_>, name: &str, view: &View) {
    let [head, middle, scrubbing, events, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(18),
        Constraint::Length(3),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let title =
        format!("{name}  {}  {}", tame(&view.now.superblock.label), show_time(view.time_ns));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Paragraph::new(title).style(bold), head);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(middle);
    facts(frame, left, view);
    let [above, below] = Layout::vertical([Constraint::Length(6), Constraint::Min(4)]).areas(right);
    throughput(frame, above, view);
    space(frame, below, view);
    progress(frame, scrubbing, view);
    let lines: Vec<Line<'_>> = last_events(view, events.height.into())
        .into_iter()
        .map(|event| Line::from(tame(&event).into_owned()))
        .collect();
    let text = if lines.is_empty() {
        Paragraph::new("none: nothing was ever found damaged")
    } else {
        Paragraph::new(lines)
    };
    frame.render_widget(text.block(block("events")), events);
    frame.render_widget(Paragraph::new("q ends; another key looks again"), foot);
}

fn facts(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let shown = rows(view).into_iter().map(|(what, how)| {
        let what = Line::from(what).style(dim);
        Row::new([what, Line::from(tame(&how).into_owned())])
    });
    let widths = [Constraint::Length(NAMES - 4), Constraint::Min(10)];
    frame.render_widget(Table::new(shown, widths).block(block("pool")), area);
}

fn throughput(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let title = match &view.rates {
        Some(rates) => {
            let most = PARTS[2];
            let (commits, took) = (rate(rates.commits), part(&rates.latency, most.1));
            format!("commits {commits}, {} {took}", most.0)
        }
        None => "commits".to_owned(),
    };
    // The newest are at the right, as many as fit.
    let room = usize::from(area.width.saturating_sub(2));
    let newest = &view.history[view.history.len().saturating_sub(room)..];
    let line = Sparkline::default().data(newest).style(Style::new().fg(Color::Cyan));
    frame.render_widget(line.block(block(&title)), area);
}

fn space(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let size = u128::from(view.now.superblock.size.max(1));
    let shown = view.now.kinds().map(|(kind, bytes)| {
        let part = u128::from(bytes) * 100 / size;
        Row::new([kind.to_owned(), show(bytes), format!("{part} %")])
    });
    let widths = [Constraint::Length(NAMES), Constraint::Length(10), Constraint::Min(5)];
    frame.render_widget(Table::new(shown, widths).block(block("space")), area);
}

fn progress(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let status = &view.now.scrub;
    let done = match status.state() {
        "idle" if status.progress.pass > 0 => 100,
        _ => percent(status).min(100),
    };
    let gauge = Gauge::default()
        .percent(done as u16)
        .label(scrub(view))
        .gauge_style(Style::new().fg(Color::Green));
    frame.render_widget(gauge.block(block("scrub")), area);
}
