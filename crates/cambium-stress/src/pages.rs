//! The bytes of a file on the disk of power cuts, and changes of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::random::Random;

pub const PAGE: u64 = 4096;
pub const SECTOR: u64 = 512;

/// The bytes of a file.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub length: u64,
    pub pages: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Content {
    pub fn write(&mut self, at: u64, mut data: &[u8]) {
        let mut offset = at;
        while !data.is_empty() {
            let inside = (offset % PAGE) as usize;
            let count = data.len().min(PAGE as usize - inside);
            let page = self
                .pages
                .entry(offset / PAGE)
                .or_insert_with(|| Arc::new(vec![0; PAGE as usize]));
            Arc::make_mut(page)[inside..inside + count].copy_from_slice(&data[..count]);
            offset += count as u64;
            data = &data[count..];
        }
        self.length = self.length.max(offset);
    }

    pub fn punch(&mut self, at: u64, length: u64) {
        let end = (at + length).min(self.length);
        let mut offset = at;
        while offset < end {
            let inside = offset % PAGE;
            let count = (PAGE - inside).min(end - offset);
            if count == PAGE {
                self.pages.remove(&(offset / PAGE));
            } else if let Some(page) = self.pages.get_mut(&(offset / PAGE)) {
                Arc::make_mut(page)[inside as usize..(inside + count) as usize].fill(0);
            }
            offset += count;
        }
    }

    pub fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.punch(length, self.length - length);
            _ = self.pages.split_off(&length.div_ceil(PAGE));
        }
        self.length = length;
    }

    pub fn read(&self, at: u64, length: u64) -> Vec<u8> {
        let end = (at + length).min(self.length);
        let mut data = vec![0; end.saturating_sub(at) as usize];
        let mut done = 0;
        while done < data.len() {
            let offset = at + done as u64;
            let inside = (offset % PAGE) as usize;
            let count = (PAGE as usize - inside).min(data.len() - done);
            if let Some(page) = self.pages.get(&(offset / PAGE)) {
                data[done..done + count].copy_from_slice(&page[inside..inside + count]);
            }
            done += count;
        }
        data
    }
}

/// A change of a file that no sync covers.
#[derive(Debug)]
pub enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
    Punch(u64, u64),
}

/// Changes of a state that no sync covers.
pub trait Changes<T> {
    fn apply(&self, to: &mut T);

    /// Applies what a cut leaves of it: each sector with a chance.
    fn tear(&self, to: &mut T, _sector: u64, percent: u64, random: &mut Random) {
        if random.chance(percent) {
            self.apply(to);
        }
    }
}

impl Changes<Content> for Change {
    fn apply(&self, to: &mut Content) {
        match self {
            Change::Write(at, data) => to.write(*at, data),
            Change::Length(length) => to.set_length(*length),
            Change::Punch(at, length) => to.punch(*at, *length),
        }
    }

    fn tear(&self, to: &mut Content, sector: u64, percent: u64, random: &mut Random) {
        let Change::Write(at, data) = self else {
            if random.chance(percent) {
                self.apply(to);
            }
            return;
        };
        let mut done = 0;
        while done < data.len() {
            let offset = at + done as u64;
            let count = ((sector - offset % sector) as usize).min(data.len() - done);
            if random.chance(percent) {
                to.write(offset, &data[done..done + count]);
            }
            done += count;
        }
        if random.chance(percent) {
            to.length = to.length.max(at + data.len() as u64);
        }
    }
}
