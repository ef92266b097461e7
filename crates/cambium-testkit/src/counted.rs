//! What reaches the device: an environment in memory whose file system counts.
//!
//! ```
//! use cambium_testkit::counted::Counted;
//! use cambium_io::OpenOptions;
//! let device = Counted::new();
//! let done = device.during(|| {
//!     let files = &device.environment.file_system;
//!     let file = files.open("/file".as_ref(), OpenOptions::CREATE).unwrap();
//!     file.write_at(b"oak", 0).unwrap();
//!     file.sync_data().unwrap();
//! });
//! assert_eq!((done.writes, done.syncs), (1, 1));
//! ```

use std::sync::Arc;

use cambium_io::recording::{IoCounters, Recorder, RecordingFileSystem};
use cambium_io::{Environment, FileSystem};

/// An environment and the counters of its file system.
#[derive(Debug)]
pub struct Counted {
    /// Files in memory, counted.
    pub environment: Environment,
    /// What counts them.
    pub recorder: Recorder,
}

impl Default for Counted {
    fn default() -> Self {
        Counted::new()
    }
}

impl Counted {
    /// An empty one.
    pub fn new() -> Self {
        let plain = Environment::memory();
        let (file_system, recorder) = RecordingFileSystem::counting(plain.file_system.clone());
        let file_system: Arc<dyn FileSystem> = Arc::new(file_system);
        let environment = Environment {
            file_system,
            ..plain
        };
        Counted {
            environment,
            recorder,
        }
    }

    /// What `work` makes the device do.
    pub fn during(&self, work: impl FnOnce()) -> IoCounters {
        let before = self.recorder.counters();
        work();
        self.recorder.counters().since(before)
    }
}
