//! Devices in memory that answer a write after a time of their own, as flash does, while the
//! processor does other things. Any number of writes are under way at once, and none of them
//! waits for another. What was answered is durable: a sync costs nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cambium_base::Result;
use cambium_io::{
    Advice, Alignment, BatchOptions, Environment, File, FilePart, FileSystem, OpenOptions,
    ReadBackend, WriteQueue, WriteRequest,
};
use cambium_testkit::layer::{FileSystemLayer, Layered};

/// An environment with three such devices, `/device-0` to `/device-2`, and with the folder
/// for temporary files.
pub fn environment(answers_after: Duration) -> Environment {
    let memory = Environment::memory();
    let real = Environment::real();
    let temporary = std::env::temp_dir();
    let folders: Vec<_> = temporary.ancestors().collect();
    for folder in folders.iter().rev() {
        if memory.file_system.metadata(folder).unwrap().is_none() {
            memory.file_system.create_directory(folder).unwrap();
        }
    }
    for number in 0..3 {
        let path = format!("/device-{number}");
        memory
            .file_system
            .open(path.as_ref(), OpenOptions::CREATE)
            .unwrap();
    }
    Environment {
        file_system: Arc::new(Layered(Devices {
            below: memory.file_system,
            answers_after,
        })),
        ..real
    }
}

#[derive(Debug)]
struct Devices {
    below: Arc<dyn FileSystem>,
    answers_after: Duration,
}

impl FileSystemLayer for Devices {
    fn below(&self) -> &dyn FileSystem {
        &*self.below
    }

    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let below = self.below.open(path, options)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match name.starts_with("device") {
            true => Ok(Arc::new(Device {
                below,
                answers_after: self.answers_after,
            })),
            false => Ok(below),
        }
    }

    fn write_queue(&self, _: BatchOptions) -> Result<Box<dyn WriteQueue>> {
        Ok(Box::new(Queue {
            answers_after: self.answers_after,
            under_way: Vec::new(),
            last: None,
        }))
    }
}

#[derive(Debug)]
struct Device {
    below: Arc<dyn File>,
    answers_after: Duration,
}

impl File for Device {
    fn path(&self) -> &Path {
        self.below.path()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.below.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let begun = Instant::now();
        self.below.write_at(buffer, offset)?;
        sleep_until(begun + self.answers_after);
        Ok(())
    }
    fn sync_data(&self) -> Result<()> {
        Ok(())
    }
    fn length(&self) -> Result<u64> {
        self.below.length()
    }
    fn set_length(&self, length: u64) -> Result<()> {
        self.below.set_length(length)
    }
    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.below.allocate(offset, length)
    }
    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.below.punch_hole(offset, length)
    }
    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        self.below.advise(offset, length, advice);
    }
    fn allocated_bytes(&self) -> Result<u64> {
        self.below.allocated_bytes()
    }
    fn alignment(&self) -> Alignment {
        self.below.alignment()
    }
    fn part_at(&self, offset: u64) -> Option<FilePart> {
        Some(FilePart::whole(&self.below, offset))
    }
}

/// Writes to several devices at once.
#[derive(Debug)]
struct Queue {
    answers_after: Duration,
    under_way: Vec<Result<()>>,
    /// When the last of them answers.
    last: Option<Instant>,
}

impl WriteQueue for Queue {
    fn backend(&self) -> ReadBackend {
        ReadBackend::Sync
    }

    fn submit(&mut self, request: WriteRequest) {
        let begun = Instant::now();
        let below = request.file.part_at(request.offset);
        let written = WriteRequest {
            file: below.map_or(request.file, |part| part.file),
            ..request
        }
        .write();
        self.under_way.push(written);
        self.last = Some(begun + self.answers_after);
    }

    fn wait_all(&mut self) -> Vec<Result<()>> {
        if let Some(last) = self.last.take() {
            sleep_until(last);
        }
        std::mem::take(&mut self.under_way)
    }

    fn sync_all(&mut self, files: &[Arc<dyn File>]) -> Vec<Result<()>> {
        files.iter().map(|file| file.sync_data()).collect()
    }

    fn write_synced(&mut self, requests: Vec<WriteRequest>) -> Vec<Result<()>> {
        for request in requests {
            self.submit(request);
        }
        self.wait_all()
    }
}

fn sleep_until(moment: Instant) {
    let rest = moment.saturating_duration_since(Instant::now());
    if !rest.is_zero() {
        std::thread::sleep(rest);
    }
}
