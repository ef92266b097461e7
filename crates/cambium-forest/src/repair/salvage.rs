//! Reading a whole damaged log: every sound write, every fault, and what the
//! newest headers say.

use std::collections::BTreeMap;

use cambium_api::{FindingKind, OptionValues, Progress, ProgressSink};
use cambium_base::Result;
use cambium_storage::record::RecordHeader;
use cambium_storage::scan::{LogScanner, ScanFault, Scanned, SessionRule};

use super::{Repair, Trusted, header_at};
use crate::database::Database;
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::format::{DatabaseHeader, FileRef, Root, kind, namespace_and_key};
use crate::options::Tuning;

/// A write that may count: where it is, or that it removed the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub sequence: u64,
    pub document: Option<DocumentAddress>,
}

/// What a log comes to.
pub(super) struct Salvaged {
    pub database: Database,
    pub versions: BTreeMap<(u16, Vec<u8>), Vec<Version>>,
    pub names: BTreeMap<u16, String>,
    pub highest_sequence: u64,
    pub highest_session: u32,
    /// The header that the superblock names, or its spare.
    pub trusted: Option<Trusted>,
    /// Where the superblock says the newest header is.
    pub newest_header: Option<u64>,
    pub faults: Vec<ScanFault>,
    /// Namespaces whose beginning was met, and by which write.
    made: BTreeMap<u16, u64>,
    /// Where runs of nodes lie, in the order of the file.
    extents: Vec<(u64, u64)>,
    /// Named snapshots of the newest header met, and where it lies.
    snapshots: (u64, Vec<String>),
}

impl Salvaged {
    /// True for a place within a run of nodes.
    pub fn is_node(&self, offset: u64) -> bool {
        let next = self.extents.partition_point(|&(start, _)| start <= offset);
        next > 0 && offset < self.extents[next - 1].1
    }

    fn take_write(
        &mut self,
        header: &RecordHeader,
        namespace: u16,
        key: Vec<u8>,
        offset: u64,
        end: u64,
    ) {
        if header.kind == kind::NAMESPACE {
            let name = String::from_utf8_lossy(&key).into_owned();
            self.names.insert(namespace, name);
            self.made.insert(namespace, header.sequence.0);
            return;
        }
        if header.kind == kind::NAMESPACE_DROPPED {
            self.forget(namespace);
            return;
        }
        let document =
            (header.kind == kind::PUT).then(|| DocumentAddress::new(offset, end - offset, &key));
        self.names
            .entry(namespace)
            .or_insert_with(|| format!("lost-{namespace}"));
        let versions = self.versions.entry((namespace, key)).or_default();
        versions.retain(|version| version.sequence != header.sequence.0);
        versions.push(Version {
            sequence: header.sequence.0,
            document,
        });
    }

    /// Nothing is left of a namespace.
    fn forget(&mut self, namespace: u16) {
        self.names.remove(&namespace);
        self.versions.retain(|(of, _), _| *of != namespace);
    }

    /// The newest header lacks namespaces that were dropped before it.
    fn take_drops(&mut self, header: &DatabaseHeader) {
        let there = |number| header.namespaces.iter().any(|(other, ..)| *other == number);
        let later = |number| {
            let made = self.made.get(&number);
            let mut versions = self.versions.range((number, Vec::new())..);
            made.is_some_and(|&made| made > header.sequence)
                || versions
                    .by_ref()
                    .take_while(|((of, _), _)| *of == number)
                    .flat_map(|(_, versions)| versions)
                    .any(|version| version.sequence > header.sequence)
        };
        let known = self.names.keys().copied();
        let gone: Vec<u16> = known.filter(|&one| !there(one) && !later(one)).collect();
        for namespace in gone {
            self.forget(namespace);
        }
    }

    fn take_header(&mut self, offset: u64, header: &DatabaseHeader) {
        for (number, name, _) in &header.namespaces {
            self.names.insert(*number, name.clone());
        }
        if let Some(kept) = header.rolled_back_to {
            for versions in self.versions.values_mut() {
                versions.retain(|version| version.sequence <= kept);
            }
        }
        let names = header.snapshots.iter().map(|kept| kept.name.clone());
        self.snapshots = (offset, names.collect());
    }
}

impl Repair<'_> {
    /// Scans the whole log of a file.
    pub(super) fn salvage(
        &mut self,
        file: FileRef,
        root: Option<Root>,
        progress: &dyn ProgressSink,
    ) -> Result<Salvaged> {
        let tuning = Tuning::take(&mut OptionValues::default())?;
        let shape = root.and_then(|root| root.shape);
        let database = Database::open(&self.home, file, &tuning, None, shape)?;
        let path = database.path().to_path_buf();
        let trusted = match root {
            Some(root) => self.trusted(&database, &root)?,
            None => None,
        };
        let mut salvaged = Salvaged {
            versions: BTreeMap::new(),
            names: BTreeMap::from([(0, String::new())]),
            highest_sequence: 0,
            highest_session: 0,
            trusted,
            newest_header: root.map(|root| root.header),
            faults: Vec::new(),
            extents: Vec::new(),
            made: BTreeMap::new(),
            snapshots: (0, Vec::new()),
            database,
        };
        self.scan(&mut salvaged, progress)?;
        // The newest there is, whatever the scan met behind it.
        if let Some(trusted) = salvaged.trusted.take() {
            salvaged.take_header(trusted.offset, &trusted.header);
            salvaged.take_drops(&trusted.header);
            salvaged.trusted = Some(trusted);
        }
        let (offset, names) = std::mem::take(&mut salvaged.snapshots);
        for name in names {
            let what = format!("snapshot {name:?} is not kept by a repair");
            self.lose(&path, offset, what);
        }
        Ok(salvaged)
    }

    /// The header that the superblock names or its spare; with neither sound
    /// nobody knows what else there was.
    fn trusted(&mut self, database: &Database, root: &Root) -> Result<Option<Trusted>> {
        for place in [root.header, root.spare_header] {
            if place == 0 {
                continue;
            }
            if let Some((offset, _, header)) = header_at(database, place)? {
                return Ok(Some(Trusted { offset, header }));
            }
        }
        let what = "the newest database header and its spare cannot be read: named snapshots, rollbacks and writes that only they knew of are lost";
        self.lose(database.path(), root.header, what);
        Ok(None)
    }

    fn scan(&mut self, salvaged: &mut Salvaged, progress: &dyn ProgressSink) -> Result<()> {
        let handle = salvaged.database.log.file().clone();
        let mut scanner = LogScanner::new(
            &*handle,
            *salvaged.database.log.seed(),
            *salvaged.database.log.geometry(),
            SessionRule::NeverLower,
            salvaged.database.shape.first_offset(),
            u64::MAX,
        )?
        .thorough();
        let mut count = 0u64;
        while let Some(scanned) = scanner.next()? {
            let record = match scanned {
                Scanned::Fault(fault) => {
                    salvaged.faults.push(fault);
                    continue;
                }
                Scanned::Record(record) => record,
            };
            count += 1;
            if count % 4096 == 0 {
                progress.report(Progress {
                    phase: "repair: read",
                    done: count,
                    total: None,
                });
            }
            let header = record.header;
            let end = record.offset + header.total_bytes(DOCUMENT_ALIGNMENT);
            salvaged.highest_sequence = salvaged.highest_sequence.max(header.sequence.0);
            match header.kind {
                kind::NODES => {
                    let extent = salvaged.database.run_extent(end, header.auxiliary);
                    scanner.skip_to(extent.1);
                    salvaged.extents.push(extent);
                }
                kind::HEADER => {
                    if let Some(decoded) = DatabaseHeader::decode(&scanner.payload(&record)?) {
                        salvaged.take_header(record.offset, &decoded);
                    }
                }
                kind::PUT | kind::DELETE | kind::NAMESPACE | kind::NAMESPACE_DROPPED => {
                    let Some((namespace, key_bytes)) = namespace_and_key(&header) else {
                        continue;
                    };
                    let mut key = scanner.payload(&record)?;
                    key.truncate(key_bytes);
                    salvaged.take_write(&header, namespace, key, record.offset, end);
                }
                _ => {}
            }
        }
        salvaged.highest_session = scanner.highest_session();
        Ok(())
    }

    /// Says where the log could not be read. With an index that told of every
    /// key, that is no loss by itself where only the index was asked.
    pub(super) fn take_faults(&mut self, salvaged: &Salvaged, exact: bool) {
        let path = salvaged.database.path().to_path_buf();
        let judged = salvaged.trusted.as_ref().filter(|_| exact);
        for fault in &salvaged.faults {
            let known = judged.is_some_and(|trusted| fault.offset < trusted.header.replay_from);
            let header = salvaged.trusted.is_some() && salvaged.newest_header == Some(fault.offset);
            let (kind, what) = match known || header {
                true => (
                    FindingKind::Note,
                    format!(
                        "{}; nothing here was needed, but for what is named",
                        fault.reason
                    ),
                ),
                false => (FindingKind::Damage, fault.reason.to_string()),
            };
            self.say(kind, &path, fault.offset, what);
        }
    }
}
