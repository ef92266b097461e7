//! File systems that stand above another one and hand every call on, but for those that a
//! test wants to see or to spoil.
//!
//! [`FileSystemLayer`] and [`FileLayer`] have a default for each call; a test overrides what
//! it is about. [`Layered`] makes a file system, or a file, of either.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! use cambium_io::{Environment, FileSystem};
//! use cambium_testkit::layer::{FileSystemLayer, Layered};
//!
//! #[derive(Debug)]
//! struct CountsRemovals(Arc<dyn FileSystem>, AtomicUsize);
//!
//! impl FileSystemLayer for CountsRemovals {
//!     fn below(&self) -> &dyn FileSystem {
//!         &*self.0
//!     }
//!     fn remove(&self, path: &std::path::Path) -> cambium_api::Result<()> {
//!         self.1.fetch_add(1, Ordering::Relaxed);
//!         self.below().remove(path)
//!     }
//! }
//!
//! let memory = Environment::memory().file_system;
//! let counts = Layered(CountsRemovals(memory, AtomicUsize::new(0)));
//! assert!(counts.remove("/nothing".as_ref()).is_err());
//! assert_eq!(counts.0.1.into_inner(), 1);
//! ```
//!
//! What the traits of `cambium-io` make of other calls (writes of several buffers, syncs of
//! ranges, discards, queues of reads and writes by default) comes through the layer's own
//! calls, so that nothing goes around them; a file of a layer has no descriptor.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cambium_api::Result;
use cambium_io::batch::ReadQueue;
use cambium_io::{
    Advice, Alignment, BatchOptions, DirectoryEntry, File, FileLock, FileSystem, LockMode,
    Metadata, OpenOptions, Space, SyncWriteQueue, WriteQueue,
};

/// A layer's trait, whose calls have defaults, and the trait below it for [`Layered`]. The
/// calls of the first braces are handed on; the others are spelled out.
macro_rules! layer {
    ($(#[$meta:meta])* $Layer:ident over $Below:ident {
        $(fn $call:ident($($name:ident: $of:ty),*) -> $answer:ty;)*
    } layer { $($layer:tt)* } below { $($below:tt)* }) => {
        $(#[$meta])*
        #[allow(missing_docs)] // the same calls, with the same meaning
        pub trait $Layer: Send + Sync + fmt::Debug {
            /// The receiver of the calls.
            fn below(&self) -> &dyn $Below;

            $(fn $call(&self, $($name: $of),*) -> $answer {
                self.below().$call($($name),*)
            })*
            $($layer)*
        }

        impl<L: $Layer> $Below for Layered<L> {
            $(fn $call(&self, $($name: $of),*) -> $answer {
                self.0.$call($($name),*)
            })*
            $($below)*
        }
    };
}

/// A layer as the file system, or the file, that it is.
#[derive(Debug)]
pub struct Layered<L>(pub L);

layer! {
    /// A layer above a file system: each call goes to [`FileSystemLayer::below`], unless it
    /// is overridden. The calls are those of [`FileSystem`].
    FileSystemLayer over FileSystem {
        fn open(path: &Path, options: OpenOptions) -> Result<Arc<dyn File>>;
        fn create_directory(path: &Path) -> Result<()>;
        fn remove_directory(path: &Path) -> Result<()>;
        fn list(path: &Path) -> Result<Vec<DirectoryEntry>>;
        fn metadata(path: &Path) -> Result<Option<Metadata>>;
        fn rename(from: &Path, to: &Path) -> Result<()>;
        fn remove(path: &Path) -> Result<()>;
        fn link(from: &Path, to: &Path) -> Result<bool>;
        fn clone_file(from: &Path, to: &Path, length: u64) -> Result<bool>;
        fn sync_directory(path: &Path) -> Result<()>;
        fn lock(path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>>;
        fn space(path: &Path) -> Result<Space>;
        fn read_queue(options: BatchOptions) -> Result<Box<dyn ReadQueue>>;
    } layer {
        /// One write after the other, through the files that this layer opened.
        fn write_queue(&self, options: BatchOptions) -> Result<Box<dyn WriteQueue>> {
            _ = options;
            Ok(Box::new(SyncWriteQueue::default()))
        }
    } below {
        fn write_queue(&self, options: BatchOptions) -> Result<Box<dyn WriteQueue>> {
            self.0.write_queue(options)
        }
    }
}

layer! {
    /// A layer above a file: as [`FileSystemLayer`], with the calls of [`File`].
    FileLayer over File {
        fn read_at(buffer: &mut [u8], offset: u64) -> Result<usize>;
        fn write_at(buffer: &[u8], offset: u64) -> Result<()>;
        fn sync_data() -> Result<()>;
        fn length() -> Result<u64>;
        fn set_length(length: u64) -> Result<()>;
        fn allocate(offset: u64, length: u64) -> Result<()>;
        fn punch_hole(offset: u64, length: u64) -> Result<()>;
        fn alignment() -> Alignment;
    } layer {} below {
        fn path(&self) -> &Path {
            self.0.below().path()
        }
        fn advise(&self, offset: u64, length: u64, advice: Advice) {
            self.0.below().advise(offset, length, advice);
        }
        fn allocated_bytes(&self) -> Result<u64> {
            self.0.below().allocated_bytes()
        }
    }
}
