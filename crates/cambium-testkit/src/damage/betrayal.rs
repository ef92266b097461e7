//! Devices that betray: syncs that lie, writes that are lost or land elsewhere.

use cambium_api::CompactOptions;
use cambium_io::simulated::{CrashStyle, Fault, FaultRule, Generator, OperationClass};

use super::observe::observe;
use super::victim::Victim;
use super::{DamageReport, DamageSuite};
use crate::history::History;
use crate::holding::perform;
use crate::workload::{Workload, key_space};

impl DamageSuite {
    pub(super) fn betray(&self, seed: u64, report: &mut DamageReport) -> Result<(), String> {
        let mut generator = Generator::new(seed);
        let disk = self.subject.disk(generator.next_u64());
        let environment = self.subject.environment(&disk, seed);
        let store = self.subject.create(&environment);
        let store = store.map_err(|error| format!("create: {error}"))?;
        let (class, fault) = *generator.pick(&[
            (OperationClass::Sync, Fault::SyncLies),
            (OperationClass::Write, Fault::PhantomWrite),
            (OperationClass::Write, Fault::MisdirectedWrite),
        ]);
        disk.inject(FaultRule {
            class,
            nth: 1 + generator.below(20),
            forever: class == OperationClass::Sync && generator.chance(1, 2),
            fault,
        });
        let capabilities = store.capabilities();
        let mut workload = Workload::new(generator.next_u64(), capabilities);
        let mut history = History::new();
        for _ in 0..self.writes {
            let (change, durability) = workload.next_change(history.current());
            let mut changes = change.preparations(history.current());
            changes.push(change);
            let mut changes = changes.into_iter();
            let stopped = changes.any(|change| {
                history.send(&change);
                perform(&*store, change, durability).is_err()
            });
            // The store may notice at any time, and then takes no more.
            let stopped = stopped
                || match generator.below(12) {
                    0 => store.compact(&CompactOptions::default(), &()).is_err(),
                    1..=3 => store.step(1 + generator.below(4096)).is_err(),
                    _ => false,
                };
            if stopped {
                break;
            }
        }
        let victim = Victim::betrayed(
            disk.crash(CrashStyle::Mixed, generator.next_u64()),
            history,
            key_space(capabilities.keys),
            capabilities,
        );
        report.cases += 1;
        let observed = observe(&self.subject, &victim.disk, &victim)?;
        let last = victim.history.window().sent;
        match observed.complaints.is_empty() {
            false => report.detected += 1,
            true => match observed.state(&victim, 0) {
                Ok(index) if index == last => report.harmless += 1,
                Ok(_) => report.prefix += 1,
                Err(_) => report.mixed += 1,
            },
        }
        Ok(())
    }
}
