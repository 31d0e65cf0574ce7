//! `palisade log read`: the records of a partition, one a line, as the bytes they are.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::sync::mpsc;

use palisade_engine::id::Offset;
use palisade_engine::offline;

use crate::cli::LogReadArgs;
use crate::outcome::Outcome;

pub(crate) fn run(args: &LogReadArgs, json: bool) -> anyhow::Result<Outcome> {
    let name = super::parse_name(&args.partition)?;
    let mut printer = Printer {
        out: BufWriter::with_capacity(1 << 20, std::io::stdout()),
        from: Offset(args.from.unwrap_or(0)),
        left: args.limit.unwrap_or(u64::MAX),
        json,
    };
    let (failed, failure) = mpsc::channel();
    let visit = move |batch: &palisade_engine::StoredBatch| match printer.print(batch) {
        Ok(flow) => flow,
        Err(error) => {
            // The receiver outlives the read below.
            let _ = failed.send(error);
            ControlFlow::Break(())
        }
    };
    let outcome = offline::read(&args.directory, &name, args.from.map(Offset), visit);
    if let Ok(error) = failure.try_recv() {
        return Err(error.into());
    }
    outcome?;
    Ok(Outcome::Done)
}

struct Printer<W: Write> {
    out: W,
    from: Offset,
    left: u64,
    json: bool,
}

impl<W: Write> Printer<W> {
    fn print(&mut self, batch: &palisade_engine::StoredBatch) -> std::io::Result<ControlFlow<()>> {
        for (offset, record) in batch.iter().filter(|(offset, _)| *offset >= self.from) {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            if self.json {
                let line = serde_json::json!({
                    "offset": offset.0,
                    "append_time_us": batch.append_time().0,
                    "epoch": batch.epoch().to_string(),
                    "record": String::from_utf8_lossy(record),
                });
                writeln!(self.out, "{line}")?;
            } else {
                self.out.write_all(record)?;
                self.out.write_all(b"\n")?;
            }
        }
        if self.left == 0 {
            self.out.flush()?;
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl<W: Write> Drop for Printer<W> {
    fn drop(&mut self) {
        // A reader that went away ends the read early; anything else has been reported by a write before.
        let _ = self.out.flush();
    }
}
