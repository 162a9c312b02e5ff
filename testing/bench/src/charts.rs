//! Charts as SVG, written by hand: groups of bars, one colour for each racer.

use std::fmt::Write;
use std::path::Path;

/// Bars of one name in every group.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    /// One for each group; none where nothing was measured.
    pub(crate) values: Vec<Option<f64>>,
}

/// A chart: a title, what the axis says, the groups and their bars.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) groups: Vec<String>,
    pub(crate) series: Vec<Series>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 290.0;
/// Told apart by people who do not see all colours, on white and on dark.
const COLOURS: [&str; 7] =
    ["#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#e69f00"];
/// Steps of the axis.
const STEPS: u32 = 5;

impl Chart {
    /// Writes the chart; nothing at all if none of its bars was measured.
    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let measured = self.series.iter().flat_map(|s| s.values.iter().flatten().copied());
        let top = measured.fold(0.0, f64::max);
        if top > 0.0 {
            std::fs::write(path, self.drawn(round_up(top)))?;
        }
        Ok(())
    }

    fn drawn(&self, top: f64) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
        );
        text(&mut svg, LEFT, 20.0, "start", &format!("{} ({})", self.title, self.unit));
        for step in 0..=STEPS {
            let share = f64::from(step) / f64::from(STEPS);
            let y = BOTTOM - share * (BOTTOM - TOP);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" \
                 stroke=\"#cccccc\"/>"
            );
            text(&mut svg, LEFT - 8.0, y + 4.0, "end", &shown(top * share));
        }
        self.legend(&mut svg);
        let group = (WIDTH - LEFT) / self.groups.len().max(1) as f64;
        let bar = group * 0.8 / self.series.len().max(1) as f64;
        for (number, name) in self.groups.iter().enumerate() {
            let x = LEFT + group * (number as f64 + 0.1);
            text(&mut svg, x + group * 0.4, BOTTOM + 18.0, "middle", name);
            for (at, series) in self.series.iter().enumerate() {
                let Some(Some(value)) = series.values.get(number) else { continue };
                let height = value / top * (BOTTOM - TOP);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" \
                     fill=\"{}\"><title>{}, {name}: {}</title></rect>",
                    x + bar * at as f64,
                    BOTTOM - height,
                    bar * 0.92,
                    COLOURS[at % COLOURS.len()],
                    escaped(series.name),
                    shown(*value)
                );
            }
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(&self, svg: &mut String) {
        let each = (WIDTH - LEFT) / self.series.len().max(1) as f64;
        for (at, series) in self.series.iter().enumerate() {
            let x = LEFT + each * at as f64;
            let colour = COLOURS[at % COLOURS.len()];
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"30\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
            );
            text(svg, x + 15.0, 39.0, "start", series.name);
        }
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// As many digits as one can read off a bar.
fn shown(value: f64) -> String {
    if value >= 100.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// The next number above that reads well on an axis of five steps.
fn round_up(value: f64) -> f64 {
    let ten = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5];
    steps.iter().map(|step| step * ten).find(|top| *top >= value).unwrap_or(10.0 * ten)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: Vec<Option<f64>>) -> Chart {
        let series = vec![Series { name: "a < b", values }];
        let groups = vec!["64 B".to_owned(), "256 B".to_owned()];
        Chart { title: "t".to_owned(), unit: "ns", groups, series }
    }

    #[test]
    fn every_measured_bar_is_drawn_and_no_other() {
        let svg = chart(vec![Some(300.0), None]).drawn(round_up(300.0));
        assert_eq!(svg.matches("<title>").count(), 1);
        assert!(svg.contains("<title>a &lt; b, 64 B: 300</title>"), "{svg}");
        assert!(svg.contains(&format!("height=\"{:.1}\"", BOTTOM - TOP)), "the highest fills it");
    }

    #[test]
    fn nothing_measured_is_no_file() {
        let dir = tempfile::tempdir().unwrap();
        chart(vec![None, None]).save(&dir.path().join("x.svg")).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn axes_end_on_round_numbers() {
        for (value, top) in [(1.0, 1.0), (1.1, 1.5), (410.0, 500.0), (760.0, 1000.0)] {
            assert!((round_up(value) - top).abs() < 1e-9, "{value}: {}", round_up(value));
        }
    }
}
