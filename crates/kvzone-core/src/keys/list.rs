//! Keys that a file lists, a line each, held in memory: sorted, without doubles.

use std::path::{Path, PathBuf};

use cambium_io::{Environment, OpenOptions};

use crate::error::{Error, Result};

#[derive(Debug)]
pub(super) struct KeyList {
    path: PathBuf,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let files = Environment::real().file_system;
        let file = files.open(path, OpenOptions::READ)?;
        let mut text = vec![0; file.length()? as usize];
        file.read_exact_at(&mut text, 0)?;
        let mut keys: Vec<&[u8]> = text
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .collect();
        keys.sort_unstable();
        keys.dedup();
        if let Some(key) = keys.iter().find(|key| key.len() as u64 > super::MOST_BYTES) {
            return Err(Error::Usage(format!(
                "{}: a key of {} bytes; a key has at most 1 MiB",
                path.display(),
                key.len()
            )));
        }
        Ok(KeyList::of(path, keys.into_iter()))
    }

    fn of<'a>(path: &Path, keys: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut list = KeyList {
            path: path.to_path_buf(),
            bytes: Vec::new(),
            ends: Vec::new(),
        };
        for key in keys {
            list.bytes.extend_from_slice(key);
            list.ends.push(list.bytes.len());
        }
        list.bytes.shrink_to_fit();
        list
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn count(&self) -> u64 {
        self.ends.len() as u64
    }

    pub(super) fn evenly(self, count: u64) -> KeyList {
        if count >= self.count() {
            return self;
        }
        let step = |at: u64| (u128::from(at) * u128::from(self.count()) / u128::from(count)) as u64;
        KeyList::of(&self.path, (0..count).map(|at| self.get(step(at))))
    }

    pub(super) fn get(&self, place: u64) -> &[u8] {
        let place = place as usize;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[place]]
    }

    pub(super) fn place_of(&self, key: &[u8]) -> Option<u64> {
        let (mut from, mut to) = (0, self.count());
        while from < to {
            let middle = u64::midpoint(from, to);
            match self.get(middle).cmp(key) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    pub(super) fn longest_bytes(&self) -> u64 {
        (0..self.count())
            .map(|place| self.get(place).len() as u64)
            .max()
            .unwrap_or(0)
    }
}
