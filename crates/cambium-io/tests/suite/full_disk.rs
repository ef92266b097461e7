//! A disk that is really full: a small ext4 on a loop device. Needs root and
//! loop devices; skipped loudly without.

use std::path::{Path, PathBuf};
use std::process::Command;

use cambium_io::{Alignment, FileSystem, OpenOptions, RealFileSystem};

const IMAGE_BYTES: u64 = 16 << 20;

/// A mounted file system that is unmounted when dropped.
struct SmallDisk {
    mount: PathBuf,
    // Dropped after the unmount: the image lies in it.
    _folder: tempfile::TempDir,
}

impl SmallDisk {
    fn new() -> Result<SmallDisk, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = folder.path().join("image");
        let mount = folder.path().join("mount");
        std::fs::create_dir(&mount).map_err(|error| error.to_string())?;
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(IMAGE_BYTES))
            .map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-m", "0"])
            .arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .args([&image, &mount]))?;
        Ok(SmallDisk {
            mount,
            _folder: folder,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg(&self.mount)) {
            println!("{} stays mounted: {error}", self.mount.display());
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(format!("{command:?}: {message}"))
}

/// Writes chunks until the disk is full; says how many fitted.
fn fill(path: &Path) -> u64 {
    let file = RealFileSystem.open(path, OpenOptions::CREATE_NEW).unwrap();
    let chunk = vec![0xA5; 64 << 10];
    for number in 0..IMAGE_BYTES / chunk.len() as u64 + 1 {
        if let Err(error) = file.write_at(&chunk, number * chunk.len() as u64) {
            assert!(error.is_no_space(), "{error}");
            assert!(error.to_string().contains("filler"), "{error}");
            return number;
        }
    }
    panic!("more was written than the disk holds");
}

#[test]
fn a_full_disk_answers_no_space_keeps_what_is_there_and_works_again_with_room() {
    let disk = match SmallDisk::new() {
        Ok(disk) => disk,
        Err(reason) => {
            println!("SKIPPED: no small disk to fill: {reason}");
            return;
        }
    };
    let kept = RealFileSystem
        .open(&disk.path("kept"), OpenOptions::CREATE_NEW)
        .unwrap();
    kept.write_at(b"written before", 0).unwrap();
    kept.allocate(0, 256 << 10).unwrap();
    kept.sync_data().unwrap();

    assert!(fill(&disk.path("filler")) > 0);
    // Room for less than a chunk may be left; a large request finds none.
    let error = kept.allocate(0, IMAGE_BYTES).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert_eq!(kept.length().unwrap(), 256 << 10);
    let mut found = [0; 14];
    kept.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"written before");
    // What was allocated is promised room: this is what logs rely on.
    kept.write_at(&vec![1; 200 << 10], 1 << 12).unwrap();
    kept.sync_data().unwrap();

    RealFileSystem.remove(&disk.path("filler")).unwrap();
    // Much is free, and too little: none of it is taken.
    let free = || RealFileSystem.space(&disk.path("kept")).unwrap().available;
    let before = free();
    assert!(before > 4 << 20);
    for offset in [0, kept.length().unwrap()] {
        let error = kept.allocate(offset, IMAGE_BYTES).unwrap_err();
        assert!(error.is_no_space(), "{error}");
    }
    assert_eq!((kept.length().unwrap(), free()), (256 << 10, before));
    let again = RealFileSystem
        .open(&disk.path("again"), OpenOptions::CREATE_NEW)
        .unwrap();
    again.write_at(&vec![2; 1 << 20], 0).unwrap();
    again.sync_data().unwrap();
}

#[test]
fn a_block_device_is_read_and_written_whole_and_has_no_room_beyond_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::File::create(&image)
        .and_then(|file| file.set_len(1 << 20))
        .unwrap();
    let attached = Command::new("losetup")
        .args(["--find", "--show", "--sector-size", "4096"])
        .arg(&image)
        .output();
    let device = match attached {
        Ok(output) if output.status.success() => {
            PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
        }
        other => {
            println!("SKIPPED: no loop device: {other:?}");
            return;
        }
    };
    let result = std::panic::catch_unwind(|| use_device(&device));
    run(Command::new("losetup").arg("--detach").arg(&device)).unwrap();
    result.unwrap();
}

fn use_device(device: &Path) {
    let found = RealFileSystem.metadata(device).unwrap().unwrap();
    assert_eq!(found.kind, cambium_io::FileKind::BlockDevice);
    assert_eq!((found.length, found.allocated), (1 << 20, 1 << 20));
    let file = RealFileSystem
        .open(device, OpenOptions::WRITE.direct())
        .unwrap();
    assert_eq!(file.length().unwrap(), 1 << 20);
    let Alignment { memory, offset } = file.alignment();
    assert_eq!(offset, 4096);
    let mut buffer = cambium_io::AlignedBuffer::new(4096, memory);
    buffer.fill(7);
    file.write_at(&buffer, (1 << 20) - 4096).unwrap();
    file.sync_data().unwrap();
    buffer.fill(0);
    file.read_exact_at(&mut buffer, (1 << 20) - 4096).unwrap();
    assert!(buffer.iter().all(|&byte| byte == 7));
    assert_eq!(file.read_at(&mut buffer, 1 << 20).unwrap(), 0);
    file.allocate(0, 1 << 20).unwrap();
    let error = file.allocate(0, (1 << 20) + 4096).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    file.punch_hole((1 << 20) - 4096, 4096).unwrap();
    file.read_exact_at(&mut buffer, (1 << 20) - 4096).unwrap();
    assert!(buffer.iter().all(|&byte| byte == 0));
}
