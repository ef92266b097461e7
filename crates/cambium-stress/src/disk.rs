//! A disk with a volatile cache, in memory: what a power cut may do to files and names.
//!
//! Each file has its content now, its durable content, and the changes between them. A
//! sync of the file makes its changes durable. A folder has the same of its names, and a
//! sync of the folder makes them durable: a name is not durable because its file is.
//!
//! A cut draws for each file which sectors of which changes reached the device:
//! none, all, a prefix, or any subset. A length may arrive without its data. For each folder
//! it draws a prefix or a subset of the changes of names. Then the disk is off:
//! every request fails, until it is switched on again with what is left.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};

use crate::pages::{Change, Changes, Content, PAGE, SECTOR};
use crate::random::Random;

/// Changes of a file that wait at most; older ones are written back, as kernels do.
const MOST_PENDING: usize = 4000;
/// The number of the root folder.
pub const ROOT: u64 = 1;

/// The reason why the disk refuses an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The device failed, or is off.
    Broken,
    Full,
    Missing,
    Exists,
    NotEmpty,
}

/// Operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Read,
    Write,
    Sync,
    Name,
}

/// A failure of later operations.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub class: Class,
    /// Operations of the class before the first that fails.
    pub after: u64,
    /// Operations that fail from there on.
    pub times: u64,
    pub failure: Failure,
    /// The kernel's page cache keeps the bytes of a failed sync as clean, as below ext4 and
    /// XFS: a process that opens the file later reads them. Else it reads the old bytes.
    pub keeps: bool,
}

/// A change of a folder's names.
#[derive(Clone, Debug)]
enum Naming {
    Set(OsString, u64),
    Remove(OsString),
    Rename(OsString, OsString, u64),
}

/// The names of a folder, each with its node.
type Names = BTreeMap<OsString, u64>;

impl Changes<Names> for Naming {
    fn apply(&self, to: &mut Names) {
        match self {
            Naming::Set(name, node) => _ = to.insert(name.clone(), *node),
            Naming::Remove(name) => _ = to.remove(name),
            Naming::Rename(from, name, node) => {
                to.remove(from);
                to.insert(name.clone(), *node);
            }
        }
    }
}

/// A state now, the durable one, and the changes between them.
#[derive(Debug)]
struct Cached<T, C> {
    now: T,
    durable: T,
    pending: Vec<C>,
}

impl<T: Clone + Default, C: Changes<T>> Cached<T, C> {
    fn new() -> Self {
        Cached {
            now: T::default(),
            durable: T::default(),
            pending: Vec::new(),
        }
    }

    fn change(&mut self, change: C) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    /// Makes the first changes durable.
    fn write_back(&mut self, count: usize) {
        for change in self.pending.drain(..count) {
            change.apply(&mut self.durable);
        }
    }

    /// Loses what is not durable.
    fn fall_back(&mut self) {
        self.pending.clear();
        self.now = self.durable.clone();
    }

    fn cut(&mut self, sector: u64, percent: u64, random: &mut Random) {
        let kept = kept_prefix(self.pending.len(), random);
        for change in self.pending.drain(..).take(kept) {
            change.tear(&mut self.durable, sector, percent, random);
        }
        self.fall_back();
    }
}

#[derive(Debug)]
enum Node {
    File(Cached<Content, Change>),
    Folder(Cached<Names, Naming>),
}

/// A node's attributes.
#[derive(Clone, Copy, Debug)]
pub struct About {
    pub node: u64,
    pub is_folder: bool,
    pub length: u64,
    pub blocks: u64,
}

type Answer<T> = Result<T, Failure>;

/// The disk.
#[derive(Debug)]
pub struct Disk {
    nodes: HashMap<u64, Node>,
    next: u64,
    is_off: bool,
    fault: Option<Fault>,
    /// Operations that have failed.
    met: u64,
    /// A file that is opened again shows the kernel's pages of it.
    keeps_cache: bool,
    pages: u64,
    capacity_pages: u64,
    /// Bytes that a cut leaves whole.
    sector: u64,
}

impl Disk {
    pub fn new(capacity: u64, sector: u64) -> Self {
        Disk {
            nodes: HashMap::from([(ROOT, Node::Folder(Cached::new()))]),
            next: ROOT + 1,
            is_off: false,
            fault: None,
            met: 0,
            keeps_cache: false,
            pages: 0,
            capacity_pages: capacity / PAGE,
            sector,
        }
    }

    /// The power goes.
    pub fn cut(&mut self, random: &mut Random) {
        self.is_off = true;
        self.fault = None;
        let style = random.below(5);
        let mut numbers: Vec<u64> = self.nodes.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let percent = match style {
                0 => 0,
                1 => 100,
                _ => *random.pick(&[0, 5, 50, 50, 95, 100]),
            };
            match self.nodes.get_mut(&number) {
                Some(Node::File(file)) => file.cut(self.sector, percent, random),
                Some(Node::Folder(folder)) => folder.cut(self.sector, percent, random),
                None => {}
            }
        }
        self.forget_unnamed();
    }

    /// The power comes back; nothing fails any more.
    pub fn switch_on(&mut self) {
        self.is_off = false;
        self.fault = None;
        self.keeps_cache = false;
    }

    pub fn keeps_cache(&self) -> bool {
        self.keeps_cache
    }

    /// Makes operations fail, and leaves so many bytes free.
    pub fn arm(&mut self, fault: Option<Fault>, room: Option<u64>) {
        self.fault = fault;
        if let Some(room) = room {
            self.capacity_pages = self.pages + room / PAGE;
        }
    }

    /// Ends that; answers how many operations have failed.
    pub fn disarm(&mut self, capacity: u64) -> u64 {
        self.fault = None;
        self.capacity_pages = capacity / PAGE;
        std::mem::take(&mut self.met)
    }

    /// Drops what no name leads to.
    fn forget_unnamed(&mut self) {
        let mut reached = vec![ROOT];
        let mut at = 0;
        while let Some(&number) = reached.get(at) {
            if let Some(Node::Folder(folder)) = self.nodes.get(&number) {
                reached.extend(folder.now.values());
            }
            at += 1;
        }
        self.nodes.retain(|number, _| reached.contains(number));
        self.count_pages();
    }

    fn count_pages(&mut self) {
        let pages = |node: &Node| match node {
            Node::File(file) => file.now.pages.len() as u64,
            Node::Folder(_) => 0,
        };
        self.pages = self.nodes.values().map(pages).sum();
    }

    /// Whether an operation is done or fails.
    fn admit(&mut self, class: Class) -> Answer<()> {
        if self.is_off {
            return Err(Failure::Broken);
        }
        let Some(fault) = self.fault.as_mut().filter(|fault| fault.class == class) else {
            return Ok(());
        };
        if fault.after > 0 {
            fault.after -= 1;
            return Ok(());
        }
        if fault.times == 0 {
            return Ok(());
        }
        fault.times -= 1;
        self.met += 1;
        Err(fault.failure)
    }

    fn folder(&mut self, node: u64) -> Answer<&mut Cached<Names, Naming>> {
        if self.is_off {
            return Err(Failure::Broken);
        }
        match self.nodes.get_mut(&node) {
            Some(Node::Folder(folder)) => Ok(folder),
            _ => Err(Failure::Missing),
        }
    }

    pub fn about(&self, node: u64) -> Answer<About> {
        if self.is_off {
            return Err(Failure::Broken);
        }
        match self.nodes.get(&node) {
            Some(Node::File(file)) => Ok(About {
                node,
                is_folder: false,
                length: file.now.length,
                blocks: file.now.pages.len() as u64 * (PAGE / SECTOR),
            }),
            Some(Node::Folder(_)) => Ok(About {
                node,
                is_folder: true,
                length: 0,
                blocks: 0,
            }),
            None => Err(Failure::Missing),
        }
    }

    pub fn find(&mut self, parent: u64, name: &OsStr) -> Answer<About> {
        let names = &self.folder(parent)?.now;
        let node = *names.get(name).ok_or(Failure::Missing)?;
        self.about(node)
    }

    pub fn list(&mut self, node: u64) -> Answer<Vec<(OsString, About)>> {
        self.admit(Class::Read)?;
        let names = self.folder(node)?.now.clone();
        let about = |(name, node)| Ok((name, self.about(node)?));
        names.into_iter().map(about).collect()
    }

    pub fn create(&mut self, parent: u64, name: &OsStr, is_folder: bool) -> Answer<About> {
        self.admit(Class::Name)?;
        let number = self.next;
        let folder = self.folder(parent)?;
        if folder.now.contains_key(name) {
            return Err(Failure::Exists);
        }
        folder.change(Naming::Set(name.to_os_string(), number));
        let node = match is_folder {
            true => Node::Folder(Cached::new()),
            false => Node::File(Cached::new()),
        };
        self.nodes.insert(number, node);
        self.next += 1;
        self.about(number)
    }

    pub fn remove(&mut self, parent: u64, name: &OsStr) -> Answer<()> {
        self.admit(Class::Name)?;
        let node = self.find(parent, name)?.node;
        if matches!(self.nodes.get(&node), Some(Node::Folder(folder)) if !folder.now.is_empty()) {
            return Err(Failure::NotEmpty);
        }
        let folder = self.folder(parent)?;
        folder.change(Naming::Remove(name.to_os_string()));
        // The node stays: the name may come back with a cut, and others may have it open.
        self.count_unnamed(node);
        Ok(())
    }

    /// Gives the space of a removed file back.
    fn count_unnamed(&mut self, node: u64) {
        if let Some(Node::File(file)) = self.nodes.get(&node) {
            self.pages = self.pages.saturating_sub(file.now.pages.len() as u64);
        }
    }

    pub fn rename(&mut self, parent: u64, name: &OsStr, to_parent: u64, to: &OsStr) -> Answer<()> {
        self.admit(Class::Name)?;
        let node = self.find(parent, name)?.node;
        if let Ok(replaced) = self.find(to_parent, to) {
            self.count_unnamed(replaced.node);
        }
        let (name, to) = (name.to_os_string(), to.to_os_string());
        let folder = self.folder(parent)?;
        if parent == to_parent {
            folder.change(Naming::Rename(name, to, node));
            return Ok(());
        }
        folder.change(Naming::Remove(name));
        self.folder(to_parent)?.change(Naming::Set(to, node));
        Ok(())
    }

    pub fn read(&mut self, node: u64, at: u64, length: u64) -> Answer<Vec<u8>> {
        self.admit(Class::Read)?;
        match self.nodes.get(&node) {
            Some(Node::File(file)) => Ok(file.now.read(at, length)),
            _ => Err(Failure::Missing),
        }
    }

    pub fn write(&mut self, node: u64, at: u64, data: &[u8]) -> Answer<()> {
        self.admit(Class::Write)?;
        if self.pages + (data.len() as u64).div_ceil(PAGE) > self.capacity_pages {
            self.met += 1;
            return Err(Failure::Full);
        }
        self.change(node, Change::Write(at, data.to_vec()))
    }

    pub fn set_length(&mut self, node: u64, length: u64) -> Answer<()> {
        self.admit(Class::Write)?;
        self.change(node, Change::Length(length))
    }

    pub fn punch(&mut self, node: u64, at: u64, length: u64) -> Answer<()> {
        self.admit(Class::Write)?;
        self.change(node, Change::Punch(at, length))
    }

    /// Takes space ahead: only the length can be seen.
    pub fn allocate(&mut self, node: u64, end: u64, extends: bool) -> Answer<()> {
        self.admit(Class::Write)?;
        let length = self.about(node)?.length;
        let missing = end.saturating_sub(length) / PAGE;
        if self.pages + missing > self.capacity_pages {
            return Err(Failure::Full);
        }
        if extends && end > length {
            return self.change(node, Change::Length(end));
        }
        Ok(())
    }

    fn change(&mut self, node: u64, change: Change) -> Answer<()> {
        let Some(Node::File(file)) = self.nodes.get_mut(&node) else {
            return Err(Failure::Missing);
        };
        let before = file.now.pages.len() as u64;
        file.change(change);
        self.pages = (self.pages + file.now.pages.len() as u64).saturating_sub(before);
        if file.pending.len() > MOST_PENDING {
            file.write_back(MOST_PENDING / 2);
        }
        Ok(())
    }

    pub fn sync(&mut self, node: u64) -> Answer<()> {
        let admitted = self.admit(Class::Sync);
        self.keeps_cache = match (admitted, self.fault) {
            (Err(_), Some(fault)) => fault.keeps,
            _ => self.keeps_cache,
        };
        match (self.nodes.get_mut(&node), admitted) {
            (Some(Node::File(file)), Ok(())) => file.write_back(file.pending.len()),
            (Some(Node::Folder(folder)), Ok(())) => folder.write_back(folder.pending.len()),
            // Bytes that did not reach the device are never written again.
            (Some(Node::File(file)), Err(_)) if !self.is_off => file.fall_back(),
            (None, Ok(())) => return Err(Failure::Missing),
            _ => {}
        }
        admitted
    }

    /// The number of all blocks of 4 KiB, and of the free ones.
    pub fn room(&self) -> (u64, u64) {
        (
            self.capacity_pages,
            self.capacity_pages.saturating_sub(self.pages),
        )
    }
}

/// How many changes a cut looks at: mostly all.
fn kept_prefix(count: usize, random: &mut Random) -> usize {
    if random.chance(30) {
        random.between(0, count as u64) as usize
    } else {
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(disk: &mut Disk, name: &str) -> u64 {
        disk.create(ROOT, OsStr::new(name), false).unwrap().node
    }

    #[test]
    fn synced_bytes_and_names_outlast_every_cut() {
        for seed in 0..200 {
            let mut disk = Disk::new(1 << 20, SECTOR);
            let node = file(&mut disk, "log");
            disk.write(node, 100, &[7; 3000]).unwrap();
            disk.sync(node).unwrap();
            disk.sync(ROOT).unwrap();
            disk.write(node, 100, &[8; 9000]).unwrap();
            disk.cut(&mut Random::part(seed, 0));
            assert_eq!(disk.read(node, 0, 1), Err(Failure::Broken));
            disk.switch_on();
            let node = disk.find(ROOT, OsStr::new("log")).unwrap().node;
            let bytes = disk.read(node, 100, 3000).unwrap();
            assert!(bytes.iter().all(|byte| [7, 8].contains(byte)));
        }
    }

    #[test]
    fn cuts_lose_and_keep_what_no_sync_covers() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..300 {
            let mut disk = Disk::new(1 << 20, SECTOR);
            let node = file(&mut disk, "log");
            disk.sync(ROOT).unwrap();
            disk.write(node, 0, &[1; 512]).unwrap();
            disk.write(node, 512, &[2; 512]).unwrap();
            file(&mut disk, "other");
            disk.cut(&mut Random::part(seed, 0));
            disk.switch_on();
            let bytes = disk.read(node, 0, 1024).unwrap();
            let byte = |at: usize| bytes.get(at).copied();
            seen.insert((
                byte(0),
                byte(512),
                disk.find(ROOT, OsStr::new("other")).is_ok(),
            ));
        }
        // The second without the first, lengths without data, names lost and kept.
        for state in [
            (None, None, false),
            (Some(1), Some(2), true),
            (Some(0), Some(2), false),
            (Some(0), Some(0), true),
        ] {
            assert!(seen.contains(&state), "{state:?} was never drawn: {seen:?}");
        }
    }

    #[test]
    fn a_failed_sync_makes_nothing_durable_and_is_not_made_up_for() {
        let mut disk = Disk::new(1 << 20, SECTOR);
        let node = file(&mut disk, "log");
        disk.sync(ROOT).unwrap();
        disk.write(node, 0, &[1; 512]).unwrap();
        disk.arm(
            Some(Fault {
                class: Class::Sync,
                after: 0,
                times: 1,
                failure: Failure::Broken,
                keeps: true,
            }),
            None,
        );
        assert_eq!(disk.sync(node), Err(Failure::Broken));
        assert_eq!(disk.sync(node), Ok(()));
        assert_eq!(disk.about(node).unwrap().length, 0);
        disk.cut(&mut Random::part(1, 0));
        disk.switch_on();
        assert_eq!(disk.about(node).unwrap().length, 0);
    }
}
