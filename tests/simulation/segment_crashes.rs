//! One segment, groups in flight, and a crash at every operation: the walk finds every durable group, takes no
//! other frame for one, and calls nothing damaged, for nothing is.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use palisade_engine::format::{
    BatchStamp, Chain, DurableMark, GROUP_HEADER_BYTES, NextSegment, RecordBatch, SegmentHeader,
    SegmentPoint,
};
use palisade_engine::id::{
    Epoch, NodeId, Offset, PartitionId, PartitionIndex, SegmentId, StreamId,
};
use palisade_engine::io::arena::{Arena, Extent};
use palisade_engine::io::clock::WallTime;
use palisade_engine::io::disk::{Disk, DiskFile, OpenMode, WriteMode};
use palisade_engine::io::runtime::Runtime;
use palisade_engine::io::simulated::{
    PowerLoss, SimulatedDisk, SimulatedFile, SimulatedRuntime, SimulatedStorage,
};
use palisade_engine::segment::{
    ReservedWrite, ScanRange, ScanReport, SegmentWriter, Tail, make_segment, open_segment,
    scan_segment, segment_path,
};

const PARTITION: PartitionId = PartitionId { stream: StreamId(7), index: PartitionIndex(0) };
const SEGMENT: SegmentId = SegmentId(0x5e6);
const FILE_BYTES: u64 = 512 << 10;
const GROUPS: usize = 24;
const DEPTH_MAX: usize = 6;
const SEEDS: u64 = 150;

/// What the writer knows, shared with its writes in flight.
#[derive(Default)]
struct Progress {
    /// Every group framed, and whether its write has resolved.
    groups: RefCell<Vec<(ReservedWrite, bool)>>,
    in_flight: Cell<usize>,
}

impl Progress {
    /// What is durable without a hole.
    fn durable(&self) -> DurableMark {
        let groups = self.groups.borrow();
        let last = groups.iter().take_while(|(_, is_durable)| *is_durable).last();
        last.map_or(DurableMark::default(), |(reserved, _)| DurableMark {
            offset: reserved.after.offset,
            position: reserved.after.position,
        })
    }
}

struct Bed {
    runtime: SimulatedRuntime,
    storage: SimulatedStorage,
    random: fastrand::Rng,
    progress: Rc<Progress>,
}

impl Bed {
    fn new(seed: u64) -> Bed {
        let runtime = SimulatedRuntime::new(seed);
        let storage = SimulatedStorage::new(&runtime);
        let random = runtime.fork_random();
        Bed { runtime, storage, random, progress: Rc::default() }
    }

    fn disk(&self) -> SimulatedDisk {
        self.storage.disk(Arena::new(8 << 20))
    }

    fn directory() -> &'static Path {
        Path::new("/")
    }

    fn make(&self) {
        let header = SegmentHeader {
            partition: PARTITION,
            segment: SEGMENT,
            file_bytes: FILE_BYTES,
            created: WallTime(1),
        };
        let disk = self.disk();
        let made = make_segment(&disk, Bed::directory(), &header);
        drop(self.runtime.block_on(made).expect("an empty device"));
    }

    fn writer() -> SegmentWriter {
        let made = NextSegment { segment: SEGMENT, file_bytes: FILE_BYTES };
        SegmentWriter::begin(made, Offset::ZERO, Chain::default())
    }

    /// Writes groups, several in flight, until all are written or the planned crash comes.
    fn write(&mut self, group: &Rc<dyn Runtime>) {
        let disk = self.disk();
        let crashed = self.storage.crashed();
        let (mut random, progress) = (self.random.fork(), self.progress.clone());
        let write = Box::pin(async move {
            let opened =
                open_segment(&disk, Bed::directory(), PARTITION, SEGMENT, OpenMode::Write).await;
            let (file, _) = opened.expect("it was made");
            let mut writer = Bed::writer();
            for _ in 0..GROUPS {
                let mut extent = disk.arena().allocate(64 << 10).expect("room");
                let start = writer.point().offset;
                let filled = gather(&mut extent, start, &mut random);
                let durable = progress.durable();
                let Ok(reserved) = writer.frame(&mut extent, filled, durable) else { break };
                submit(group, &file, extent, reserved, &progress);
                let depth = random.usize(1..=DEPTH_MAX);
                while progress.in_flight.get() >= depth {
                    group.sleep(Duration::from_micros(10)).await;
                }
            }
            while progress.in_flight.get() > 0 {
                group.sleep(Duration::from_micros(10)).await;
            }
        });
        match self.runtime.block_on(select(crashed, write)) {
            Either::Left(_) | Either::Right(_) => {}
        }
    }

    /// Opens the segment in a new process and walks it.
    fn scan(&self, durable: DurableMark) -> (ScanReport, SimulatedFile) {
        let disk = self.disk();
        self.runtime.block_on(async {
            let opened =
                open_segment(&disk, Bed::directory(), PARTITION, SEGMENT, OpenMode::Write).await;
            let (file, _) = opened.expect("it was made durable");
            let range = ScanRange {
                segment: SEGMENT,
                start: Bed::writer().point(),
                is_chain_known: true,
                durable,
                end: None,
            };
            let mut expected = Offset::ZERO;
            let report = scan_segment(&disk, &file, range, |batch| {
                assert_eq!(batch.stamp.base_offset, expected);
                expected = batch.next_offset();
            });
            (report.await.expect("it can be walked"), file)
        })
    }

    /// Checks a walk, and returns where it ended.
    fn check(&self, report: &ScanReport) -> SegmentPoint {
        let durable = self.progress.durable();
        assert!(report.corrupt.is_empty(), "{:?}", report.corrupt);
        assert!(!matches!(report.tail, Tail::CutShort { .. }), "{:?}", report.tail);
        assert!(report.end.offset >= durable.offset, "{} < {durable:?}", report.end.offset);
        let groups = self.progress.groups.borrow();
        let is_end_of_group = report.end == Bed::writer().point()
            || groups.iter().any(|(reserved, _)| reserved.after == report.end);
        assert!(is_end_of_group, "{:?} is the end of no group", report.end);
        report.end
    }
}

/// Fills an extent with some batches behind the group header's place.
fn gather(extent: &mut Extent, start: Offset, random: &mut fastrand::Rng) -> usize {
    let mut filled = GROUP_HEADER_BYTES;
    let mut offset = start;
    for _ in 0..random.usize(1..4) {
        let mut builder = RecordBatch::builder();
        for _ in 0..random.usize(1..4) {
            let record: Vec<u8> = (0..random.usize(0..4_000)).map(|_| random.u8(..)).collect();
            builder.push(&record).expect("short records");
        }
        let batch = builder.finish();
        let stamp = BatchStamp {
            base_offset: offset,
            epoch: Epoch::named(1, NodeId::STANDALONE),
            append_time: WallTime(1_000 + offset.0),
            ..BatchStamp::default()
        };
        filled += batch.write_into(&mut extent.as_mut_slice()[filled..], &stamp);
        offset = Offset(offset.0 + u64::from(batch.records()));
    }
    filled
}

fn submit(
    group: &Rc<dyn Runtime>,
    file: &SimulatedFile,
    extent: Extent,
    reserved: ReservedWrite,
    progress: &Rc<Progress>,
) {
    let number = progress.groups.borrow().len();
    progress.groups.borrow_mut().push((reserved, false));
    progress.in_flight.set(progress.in_flight.get() + 1);
    let (file, progress) = (file.clone(), progress.clone());
    group.spawn(Box::pin(async move {
        let write = file.write(extent.freeze(), reserved.position, WriteMode::Durable).await;
        write.expect("no fault is planned");
        progress.groups.borrow_mut()[number].1 = true;
        progress.in_flight.set(progress.in_flight.get() - 1);
    }));
}

/// Runs `check` on crashes spread over every operation, three kinds of crash each.
fn crash_everywhere(check: impl Fn(u64, Bed)) {
    for seed in 0..SEEDS {
        let mut bed = Bed::new(seed);
        bed.make();
        // Open, read of the header, groups.
        let operations = GROUPS as u64 + 2;
        bed.storage.crash_at(bed.storage.operations() + 1 + seed % operations);
        let group = bed.runtime.group();
        let writers: Rc<dyn Runtime> = Rc::new(group.clone());
        bed.write(&writers);
        group.kill();
        match bed.random.u8(..3) {
            0 => bed.storage.kill_process(),
            1 => bed.storage.lose_power(PowerLoss::Random),
            _ => {
                bed.storage.kill_process();
                let delay = Duration::from_micros(bed.random.u64(0..1_000));
                bed.runtime.run_for(delay);
                bed.storage.lose_power(PowerLoss::Random);
            }
        }
        check(seed, bed);
    }
}

#[test]
fn walk_finds_every_durable_group_and_no_damage() {
    crash_everywhere(|_, bed| {
        let (report, _) = bed.scan(DurableMark::default());
        bed.check(&report);
    });
}

#[test]
fn walk_that_knows_what_was_durable_finds_the_same_end() {
    crash_everywhere(|seed, bed| {
        // Let what may land late land first: the file must not change between the walks.
        bed.runtime.run_for(Duration::from_secs(1));
        let (without, _) = bed.scan(DurableMark::default());
        let (with, _) = bed.scan(bed.progress.durable());

        bed.check(&with);
        assert_eq!(with.end, without.end, "seed {seed}");
    });
}

/// L6: the tail is synced before it is served, so it is there after the machine was lost, too.
#[test]
fn synced_end_is_never_lost_again() {
    crash_everywhere(|seed, bed| {
        let (before, file) = bed.scan(DurableMark::default());
        bed.runtime.block_on(file.sync()).expect("no fault is planned");
        bed.storage.lose_power(PowerLoss::Random);
        let (after, _) = bed.scan(DurableMark::default());

        let (before, after) = (bed.check(&before), bed.check(&after));
        // Writes that landed in between may have added groups; none has gone.
        assert!(after.position >= before.position, "seed {seed}: {after:?} < {before:?}");
    });
}

#[test]
fn walks_end_in_front_of_torn_and_missing_groups() {
    let (clean, torn, short) = (Cell::new(0), Cell::new(0), Cell::new(0));
    crash_everywhere(|_, bed| {
        let (report, _) = bed.scan(DurableMark::default());
        let count = match report.tail {
            Tail::Clean => &clean,
            _ => &torn,
        };
        count.set(count.get() + 1);
        let framed = bed.progress.groups.borrow().len() as u64;
        short.set(short.get() + u32::from(report.end.group < framed));
    });

    // The crashes above do happen in the middle of things.
    assert!(clean.get() > 10 && torn.get() > 10 && short.get() > 30);
}

#[test]
#[should_panic(expected = "< DurableMark")]
fn check_fails_when_a_durable_group_is_gone() {
    let mut bed = Bed::new(1);
    bed.make();
    let group: Rc<dyn Runtime> = Rc::new(bed.runtime.group());
    bed.write(&group);
    let position = bed.progress.groups.borrow().last().expect("groups were written").0.position;
    let path = segment_path(Bed::directory(), SEGMENT);
    bed.storage.corrupt(&path, position, &[0; GROUP_HEADER_BYTES]).expect("the file is there");

    let (report, _) = bed.scan(DurableMark::default());
    bed.check(&report);
}
