//! Strikes: kills, cuts of the power, failures of the disk, a second process.

use std::time::Duration;

use crate::arguments::Arguments;
use crate::disk::{Class, Failure, Fault};
use crate::random::Random;

/// A worker is slow to begin and to end its load, by less than this.
const MARGIN: Duration = Duration::from_millis(100);
/// An interruption of a process from outside.
#[derive(Clone, Copy, Debug)]
pub enum Strike {
    None,
    /// A tool tries to use the store while a worker loads it for so long.
    Second(Duration),
    Kill(Duration),
    Cut(Duration),
    /// A failing or full disk, from the start, or once the worker has verified the store.
    Fault {
        fault: Option<Fault>,
        room: Option<u64>,
        at_once: bool,
    },
}

impl Strike {
    /// Draws what happens to a worker. Openings and verifications are struck too.
    pub fn draw(arguments: &Arguments, load: Duration, random: &mut Random) -> Self {
        let most = 2 * load.as_micros() as u64 + 1000;
        let moment = Duration::from_micros(random.magnitude(500, most));
        match random.below(100) {
            0..50 if arguments.power_cuts => Strike::Cut(moment),
            20..75 if arguments.faults => draw_fault(random),
            50..75 if arguments.kill => Strike::Kill(moment),
            0..75 if arguments.kill && !arguments.needs_disk() => Strike::Kill(moment),
            _ if load > 2 * MARGIN && !arguments.no_tools => Strike::Second(load - MARGIN),
            _ => Strike::None,
        }
    }

    /// Draws what happens to a tool.
    pub fn draw_of_tool(arguments: &Arguments, random: &mut Random) -> Self {
        let moment = Duration::from_micros(random.magnitude(1000, 200_000));
        match random.below(100) {
            0..40 if arguments.power_cuts => Strike::Cut(moment),
            0..60 if arguments.kill => Strike::Kill(moment),
            _ => Strike::None,
        }
    }

    /// True if a failed sync may take new bytes away.
    pub fn drops(self) -> bool {
        matches!(self, Strike::Fault { fault: Some(fault), .. } if fault.class == Class::Sync)
    }
}

/// A failure of the disk: of one class of operations, or no room.
fn draw_fault(random: &mut Random) -> Strike {
    let at_once = random.chance(25);
    if random.chance(25) {
        return Strike::Fault {
            fault: None,
            room: Some(random.magnitude(1, 4 << 20)),
            at_once,
        };
    }
    let class = *random.pick(&[
        Class::Read,
        Class::Write,
        Class::Sync,
        Class::Sync,
        Class::Sync,
        Class::Name,
    ]);
    let is_full = matches!(class, Class::Write | Class::Sync | Class::Name) && random.chance(40);
    let fault = Fault {
        class,
        after: random.magnitude(1, 300) - 1,
        times: *random.pick(&[1, 1, 3, 1 << 40]),
        failure: if is_full {
            Failure::Full
        } else {
            Failure::Broken
        },
        keeps: random.chance(60),
    };
    Strike::Fault {
        fault: Some(fault),
        room: None,
        at_once,
    }
}
