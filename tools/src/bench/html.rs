//! One self-contained page: the figures in words, and plots of throughput and latency over time.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, LineSeries, Palette, Palette99, PathElement, SVGBackend,
    SeriesLabelPosition, WHITE,
};
use plotters::style::BLACK;

use super::meter::Point;
use super::report::Report;

const SIZE: (u32, u32) = (960, 360);

/// One line of a plot: its name, and (seconds, value).
type Line = (String, Vec<(f64, f64)>);

/// What is plotted of a point, and what its lines are called besides the side's name.
type Value<'a> = (&'a str, fn(&Point) -> f64);

/// Writes the page.
pub(crate) fn write(path: &Path, report: &Report, points: &[Point]) -> anyhow::Result<()> {
    let page = page(report, points)?;
    std::fs::write(path, page).with_context(|| format!("writing {}", path.display()))
}

fn page(report: &Report, points: &[Point]) -> anyhow::Result<String> {
    let throughput = lines(points, &[("", |point| point.mb_per_s)]);
    let records = lines(points, &[("", |point| point.records_per_s / 1e3)]);
    let latency = lines(points, &[(" p50", |point| point.p50_us), (" p99", |point| point.p99_us)]);
    let mut page = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>palisade bench</title>\n\
         <style>body{font:15px sans-serif;max-width:60em;margin:2em auto}svg{max-width:100%;height:auto}</style></head>\n\
         <body><h1>palisade bench</h1>\n",
    );
    for line in report.lines() {
        writeln!(page, "<p>{}</p>", escaped(&line))?;
    }
    for (title, unit, lines) in [
        ("Throughput, MB/s of records", "MB/s", throughput),
        ("Throughput, thousand records/s", "thousand records/s", records),
        ("Latency, us", "us", latency),
    ] {
        let svg = plot(unit, &lines).map_err(|error| anyhow::anyhow!("plotting: {error}"))?;
        writeln!(page, "<h2>{title}</h2>\n{svg}")?;
    }
    let json = serde_json::to_string_pretty(report)?;
    writeln!(page, "<h2>Figures</h2>\n<pre>{}</pre>\n</body></html>", escaped(&json))?;
    Ok(page)
}

/// Makes a line of each side and value; sides in the order in which they came first.
fn lines(points: &[Point], values: &[Value]) -> Vec<Line> {
    let mut sides: Vec<&str> = Vec::new();
    for point in points {
        if !sides.contains(&point.side) {
            sides.push(point.side);
        }
    }
    let of_side = |side: &str, value: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        points.iter().filter(|point| point.side == side).map(|p| (p.at_s, value(p))).collect()
    };
    sides
        .iter()
        .flat_map(|side| {
            values.iter().map(move |(name, value)| (format!("{side}{name}"), of_side(side, *value)))
        })
        .collect()
}

fn plot(unit: &str, lines: &[Line]) -> Result<String, Box<dyn std::error::Error>> {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let end = all().map(|point| point.0).fold(0.1, f64::max);
    let top = all().map(|point| point.1).fold(1e-3, f64::max) * 1.1;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        chart.configure_mesh().x_desc("seconds").y_desc(unit).draw()?;
        for (index, (name, points)) in lines.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_a_line_of_its_own() {
        let point = |side, at_s| Point {
            side,
            at_s,
            records_per_s: 1.0,
            mb_per_s: 2.0,
            p50_us: 3.0,
            p99_us: 4.0,
        };
        let points = [point("a", 1.0), point("b", 2.0), point("a", 3.0)];

        let lines =
            lines(&points, &[(" p50", |point| point.p50_us), (" p99", |point| point.p99_us)]);

        let names: Vec<_> = lines.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a p50", "a p99", "b p50", "b p99"]);
        assert_eq!(lines[1].1, [(1.0, 4.0), (3.0, 4.0)]);
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("<b>&"), "&lt;b&gt;&amp;");
    }
}
