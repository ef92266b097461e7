//! Crash points: forks of the disk, and what was promised when they were taken.

use std::sync::{Arc, Mutex, PoisonError};

use cambium_io::simulated::{
    CrashPoint, CrashStyle, Generator, Moment, ProbePoints, SimulatedDisk,
};

use super::Mode;
use crate::history::Window;

/// Most images looked at after one action.
const POINTS_AN_ACTION: usize = 4;

/// Forks taken while an action ran, and what was promised at each.
pub(super) struct Tracker {
    pub(super) window: Window,
    pub(super) created: bool,
    pub(super) generator: Generator,
    pub(super) points: Vec<Point>,
    pub(super) seen: u64,
    /// Keep every point, as exhaustive runs do.
    pub(super) every: bool,
}

/// A fork of the disk and what was promised when it was taken.
pub(super) struct Point {
    pub(super) disk: SimulatedDisk,
    pub(super) window: Window,
    pub(super) created: bool,
    pub(super) moment: Moment,
}

impl Tracker {
    /// Keeps some of the points of an action, each as likely as any other.
    fn offer(&mut self, point: CrashPoint) {
        let taken = Point {
            disk: point.disk,
            window: self.window,
            created: self.created,
            moment: point.moment,
        };
        if self.every {
            self.points.push(taken);
            return;
        }
        if point.moment == Moment::BeforeOperation && !self.generator.chance(1, 4) {
            return;
        }
        self.seen += 1;
        if self.points.len() < POINTS_AN_ACTION {
            self.points.push(taken);
        } else {
            let place = self.generator.below(self.seen) as usize;
            if place < POINTS_AN_ACTION {
                self.points[place] = taken;
            }
        }
    }
}

/// How a point is crashed: at random, or, in exhaustive runs, in every style
/// that can show something new there. What was synced changes only with a sync.
pub(super) fn styles_for(mode: Mode, moment: Moment) -> &'static [CrashStyle] {
    match (mode, moment) {
        (Mode::Exhaustive, Moment::BeforeOperation) => {
            &[CrashStyle::Everything, CrashStyle::Sectors]
        }
        (Mode::Exhaustive, Moment::BeforeSync) => &[
            CrashStyle::Everything,
            CrashStyle::Prefix,
            CrashStyle::Sectors,
            CrashStyle::Names,
            CrashStyle::LengthsWithoutData,
            CrashStyle::DataWithoutLengths,
        ],
        (Mode::Exhaustive, Moment::AfterSync) => &[CrashStyle::NothingUnsynced],
        _ => &[CrashStyle::Mixed],
    }
}

/// Offers every crash point of a disk to a tracker.
pub(super) fn watch(disk: &SimulatedDisk, tracker: &Arc<Mutex<Tracker>>) {
    let tracker = tracker.clone();
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        let mut tracker = tracker.lock().unwrap_or_else(PoisonError::into_inner);
        tracker.offer(point);
    });
}
