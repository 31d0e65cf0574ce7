//! Runs one section of a load: starts its threads, looks at their lanes, prints the live line, keeps points to plot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use palisade_benches::stopwatch::{Stopwatch, pause};

use super::lane::{Lane, Sample};
use super::usage::Usage;

/// How often lanes are looked at; also how late a section may end.
const LOOK: Duration = Duration::from_millis(50);
const LIVE_LINE: Duration = Duration::from_secs(1);
/// Points of a whole run, about: more would not be seen in a plot.
const POINTS: u32 = 60;

/// Tells the threads of a section to start no more.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One side's turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    pub(crate) side: &'static str,
    pub(crate) ramp: Duration,
    pub(crate) length: Duration,
}

/// What a section measured, its ramp left out.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) sample: Sample,
    pub(crate) elapsed: Duration,
    pub(crate) usage: Usage,
}

impl Measured {
    pub(crate) fn records_per_s(&self) -> f64 {
        per_second(self.sample.records, self.elapsed)
    }
}

/// Some time of one side, to be plotted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) side: &'static str,
    /// Seconds since the start of the run, at its end.
    pub(crate) at_s: f64,
    pub(crate) records_per_s: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// The clock of a run, and what it saw.
#[derive(Debug)]
pub(crate) struct Meter {
    clock: Stopwatch,
    point_length: Duration,
    is_quiet: bool,
    pub(crate) points: Vec<Point>,
}

impl Meter {
    pub(crate) fn new(runtime: Duration, is_quiet: bool) -> Meter {
        let point_length = (runtime / POINTS).clamp(LOOK, LIVE_LINE);
        Meter { clock: Stopwatch::start(), point_length, is_quiet, points: Vec::new() }
    }

    /// Runs `work` on one thread a lane, and `tend` on this one at every look. Ends early after an error.
    pub(crate) fn run(
        &mut self,
        section: Section,
        lanes: &[Lane],
        work: impl Fn(usize, &Lane, &Stop) + Sync,
        mut tend: impl FnMut(),
    ) -> Measured {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            for (index, lane) in lanes.iter().enumerate() {
                let (work, stop) = (&work, &stop);
                scope.spawn(move || work(index, lane, stop));
            }
            self.ramp(section, lanes, &mut tend);
            let (clock, usage) = (Stopwatch::start(), Usage::now());
            let (mut all, mut live, mut plotted) = (Sample::new(), Window::new(), Window::new());
            while clock.elapsed() < section.length && all.errors == 0 {
                pause(LOOK.min(section.length.saturating_sub(clock.elapsed())));
                tend();
                let mut look = Sample::new();
                lanes.iter().for_each(|lane| lane.move_into(&mut look));
                all.merge(&look);
                self.show(section.side, &look, &mut live, &mut plotted);
            }
            // Read before the threads end and take their counters with them.
            let usage = Usage::now().since(usage);
            stop.set();
            (all, clock, usage)
        })
        .finish(lanes)
    }

    fn ramp(&self, section: Section, lanes: &[Lane], tend: &mut impl FnMut()) {
        let clock = Stopwatch::start();
        let mut before = Sample::new();
        while clock.elapsed() < section.ramp && before.errors == 0 {
            pause(LOOK.min(section.ramp.saturating_sub(clock.elapsed())));
            tend();
            lanes.iter().for_each(|lane| lane.move_into(&mut before));
        }
        if let Some(error) = before.first_error {
            lanes[0].note_error(error);
        }
    }

    fn show(&mut self, side: &'static str, look: &Sample, live: &mut Window, plotted: &mut Window) {
        live.sample.merge(look);
        plotted.sample.merge(look);
        if plotted.clock.elapsed() >= self.point_length {
            self.push_point(side, &plotted.sample, plotted.clock.elapsed());
            *plotted = Window::new();
        }
        if live.clock.elapsed() >= LIVE_LINE {
            if !self.is_quiet {
                eprintln!("{}", live.line(side, self.clock.elapsed()));
            }
            *live = Window::new();
        }
    }

    /// Keeps a point of `length` that ends now.
    pub(crate) fn push_point(&mut self, side: &'static str, sample: &Sample, length: Duration) {
        self.points.push(Point {
            side,
            at_s: self.clock.elapsed().as_secs_f64(),
            records_per_s: per_second(sample.records, length),
            mb_per_s: per_second(sample.record_bytes, length) / 1e6,
            p50_us: quantile_us(sample, 0.5),
            p99_us: quantile_us(sample, 0.99),
        });
    }
}

trait Finish {
    fn finish(self, lanes: &[Lane]) -> Measured;
}

impl Finish for (Sample, Stopwatch, Usage) {
    /// Adds what was in flight at the end: its time counts, and so does its work.
    fn finish(self, lanes: &[Lane]) -> Measured {
        let (mut sample, clock, usage) = self;
        let elapsed = clock.elapsed();
        lanes.iter().for_each(|lane| lane.move_into(&mut sample));
        Measured { sample, elapsed, usage }
    }
}

/// What was seen since the last line or point.
struct Window {
    sample: Sample,
    clock: Stopwatch,
    usage: Usage,
}

impl Window {
    fn new() -> Window {
        Window { sample: Sample::new(), clock: Stopwatch::start(), usage: Usage::now() }
    }

    fn line(&self, side: &str, at: Duration) -> String {
        let length = self.clock.elapsed();
        let usage = Usage::now().since(self.usage);
        format!(
            "{:5.1}s {side}: {:.0} records/s, {:.1} MB/s, p50 {:.0} us, p99 {:.0} us, {:.2} cores, {:.0} switches/s, \
             {} busy, {} errors",
            at.as_secs_f64(),
            per_second(self.sample.records, length),
            per_second(self.sample.record_bytes, length) / 1e6,
            quantile_us(&self.sample, 0.5),
            quantile_us(&self.sample, 0.99),
            usage.cpu.as_secs_f64() / length.as_secs_f64(),
            per_second(usage.switches, length),
            self.sample.busy,
            self.sample.errors,
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub(crate) fn per_second(count: u64, length: Duration) -> f64 {
    count as f64 / length.as_secs_f64().max(f64::MIN_POSITIVE)
}

#[expect(clippy::cast_precision_loss, reason = "a latency for people")]
pub(crate) fn quantile_us(sample: &Sample, quantile: f64) -> f64 {
    sample.latency_ns.value_at_quantile(quantile) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_error_ends_the_section_and_is_counted() {
        let mut meter = Meter::new(Duration::from_secs(60), true);
        let section =
            Section { side: "test", ramp: Duration::ZERO, length: Duration::from_secs(3_600) };
        let lanes = [Lane::new()];

        let measured = meter.run(section, &lanes, |_, lane, _| lane.note_error("broken"), || {});

        assert_eq!(measured.sample.errors, 1);
        assert_eq!(measured.sample.first_error.as_deref(), Some("broken"));
    }
}
