//! The figures as one page of HTML that needs nothing else: no script, no picture, no other file.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use crate::commands::scrub::percent;
use crate::out::tame;
use crate::size::{show, show_time};
use crate::top::plain::{last_events, rows};
use crate::top::sample::View;

/// Events shown.
const EVENTS: usize = 50;
/// Width and height of the chart.
const CHART: (u64, u64) = (600, 120);

const STYLE: &str = "\
body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;\
background:#fff}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em 1em .2em 0;text-align:left;\
vertical-align:top;border-bottom:1px solid #ddd;font-weight:normal}th{color:#666}\
.bar{background:#eee;height:.8em;width:20em}.bar div{background:#27a;height:100%}\
pre{overflow-x:auto;font-size:14px}svg{background:#f6f6f6;display:block}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#333}\
.bar,svg{background:#2a2a2a}}";

/// Text between tags, or between quotes.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in tame(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// The page of a look; one that is replaced now and then asks to be loaded again.
pub(crate) fn page(path: &Path, view: &View, each: Option<Duration>) -> String {
    let name = escaped(&path.display().to_string());
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n");
    page.push_str("<meta charset=\"utf-8\">\n");
    page.push_str(
        "<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
    );
    if let Some(each) = each {
        let seconds = each.as_secs().max(1);
        // Writing to a string does not fail, here and below.
        let _ = writeln!(page, "<meta http-equiv=\"refresh\" content=\"{seconds}\">");
    }
    let _ = writeln!(page, "<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>");
    let _ = writeln!(page, "<h1>{name}</h1>");
    let label = &view.now.superblock.label;
    if !label.is_empty() {
        let _ = writeln!(page, "<p>{}</p>", escaped(label));
    }
    let _ = writeln!(page, "<p>as of {} UTC</p>\n<table>", show_time(view.time_ns));
    for (what, how) in rows(view) {
        let _ = writeln!(page, "<tr><th>{what}</th><td>{}</td></tr>", escaped(&how));
    }
    page.push_str("</table>\n");
    if view.now.scrub.running {
        let done = percent(&view.now.scrub);
        let _ = writeln!(page, "<h2>Scrub</h2>\n{}", bar(done.min(100)));
    }
    chart(&mut page, &view.history);
    space(&mut page, view);
    let events = last_events(view, EVENTS);
    page.push_str("<h2>Events</h2>\n");
    if events.is_empty() {
        page.push_str("<p>None: nothing was ever found damaged.</p>\n");
    } else {
        let _ = writeln!(page, "<pre>{}</pre>", escaped(&events.join("\n")));
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn bar(hundredths: u64) -> String {
    format!("<div class=\"bar\"><div style=\"width:{hundredths}%\"></div></div>")
}

fn space(page: &mut String, view: &View) {
    page.push_str("<h2>Space</h2>\n<table>\n");
    let size = u128::from(view.now.superblock.size.max(1));
    for (kind, bytes) in view.now.kinds() {
        let part = (u128::from(bytes) * 100 / size).min(100) as u64;
        let (shown, bar) = (show(bytes), bar(part));
        let _ = writeln!(page, "<tr><th>{kind}</th><td>{shown}</td><td>{bar}</td></tr>");
    }
    page.push_str("</table>\n");
}

/// Commits a second at the last looks, as a line.
fn chart(page: &mut String, history: &[u64]) {
    let (Some(most), true) = (history.iter().max(), history.len() > 1) else { return };
    let (width, height) = CHART;
    let mut points = String::new();
    for (at, commits) in (0_u64..).zip(history) {
        let x = at * width / (history.len() as u64 - 1);
        let up = u128::from(*commits) * u128::from(height - 10) / u128::from(*most.max(&1));
        let _ = write!(points, "{x},{} ", u128::from(height) - 5 - up);
    }
    let _ = writeln!(
        page,
        "<h2>Commits a second</h2>\n<svg width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"commits a second, at most {most}\"><polyline fill=\"none\" \
         stroke=\"#27a\" stroke-width=\"2\" points=\"{}\"/></svg>\n<p>at most {most}</p>",
        points.trim_end()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_no_tags() {
        let text = escaped("<script>'\"&\u{1b}");
        assert_eq!(text, "&lt;script&gt;&#39;&quot;&amp;\\u{1b}");
    }

    #[test]
    fn a_chart_stays_in_its_frame() {
        let mut page = String::new();
        chart(&mut page, &[0, u64::MAX, 7]);
        let (_, points) = page.split_once("points=\"").expect("there is a line");
        let points = points.split('"').next().unwrap_or_default();
        for point in points.split(' ') {
            let (x, y) = point.split_once(',').expect("two numbers");
            assert!(x.parse::<u64>().is_ok_and(|x| x <= CHART.0), "{points}");
            assert!(y.parse::<u64>().is_ok_and(|y| y <= CHART.1), "{points}");
        }
        let mut none = String::new();
        chart(&mut none, &[1]);
        assert_eq!(none, "");
    }
}
