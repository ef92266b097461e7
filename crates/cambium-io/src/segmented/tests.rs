//! A file in segments beside one in one piece, its names, and what is shared.

use super::*;
use crate::buffer::AlignedBuffer;
use crate::environment::Environment;
use crate::file_system::OpenOptions;
use crate::{ReadRequest, read_all_kept};

const SEGMENT: u64 = 8192;
const FILE: &str = "folder/log";

fn is_log(name: &str) -> bool {
    name == "log" || name == "moved"
}

fn both() -> (Arc<dyn FileSystem>, Arc<dyn FileSystem>) {
    let below = Environment::memory().file_system;
    below.create_directory("folder".as_ref()).unwrap();
    below.create_directory("other".as_ref()).unwrap();
    let above = SegmentedFileSystem::new(below.clone(), is_log, SEGMENT);
    (below, Arc::new(above))
}

fn names(files: &dyn FileSystem, folder: &str) -> Vec<String> {
    let entries = files.list(folder.as_ref()).unwrap();
    let name = |entry: &DirectoryEntry| entry.name.to_string_lossy().into_owned();
    entries.iter().map(name).collect()
}

fn content(file: &dyn File) -> Vec<u8> {
    let length = file.length().unwrap() as usize;
    let bytes = file.read_vec_at(0, length + 10).unwrap();
    assert_eq!(bytes.len(), length);
    bytes
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % most
    }
}

/// Everything that can be done to a file, in any order, beside a file in one piece.
#[test]
fn a_file_in_segments_is_like_any_other() {
    for seed in 0..60 {
        let (below, mut above) = both();
        let mut random = Random(seed);
        let mut model: Vec<u8> = Vec::new();
        let mut file = above.open(FILE.as_ref(), OpenOptions::CREATE).unwrap();
        let mut copies: Vec<(String, Vec<u8>)> = Vec::new();
        for round in 0..200 {
            let (offset, length) = (random.below(60_000), 1 + random.below(12_000));
            let end = offset + length;
            match random.below(12) {
                0..=3 => {
                    // Mostly at the end, as logs are written.
                    let offset = if round % 3 > 0 { model.len() } else { offset };
                    let bytes = vec![1 + (round % 250) as u8; length];
                    match round % 4 {
                        0 => file.write_synced_at(
                            &[&bytes[..length / 2], &bytes[length / 2..]],
                            offset as u64,
                        ),
                        1 => file.write_vectored_at(
                            &[&bytes[..length / 2], &bytes[length / 2..]],
                            offset as u64,
                        ),
                        _ => file.write_at(&bytes, offset as u64),
                    }
                    .unwrap();
                    model.resize(model.len().max(offset + length), 0);
                    model[offset..offset + length].copy_from_slice(&bytes);
                }
                4 => {
                    file.allocate(offset as u64, length as u64).unwrap();
                    model.resize(model.len().max(end), 0);
                }
                5 => {
                    file.punch_hole(offset as u64, length as u64).unwrap();
                    let end = end.min(model.len());
                    model[offset.min(end)..end].fill(0);
                }
                6 => {
                    // In steps: a cut, and now and then a longer file.
                    let length = match round % 5 {
                        0 => model.len() + random.below(20_000),
                        _ => model.len() - random.below(model.len() / 4 + 1),
                    };
                    file.set_length(length as u64).unwrap();
                    model.resize(length, 0);
                }
                7 => file.sync_data().unwrap(),
                8 => {
                    drop(file);
                    // Each opening may choose the length of segments.
                    let bytes = SEGMENT >> random.below(2);
                    above = Arc::new(SegmentedFileSystem::new(below.clone(), is_log, bytes));
                    file = above.open(FILE.as_ref(), OpenOptions::WRITE).unwrap();
                }
                9 if copies.len() < 4 => {
                    let name = format!("other{}", copies.len());
                    below.create_directory(name.as_ref()).unwrap();
                    let copy = format!("{name}/log");
                    let length = model.len() as u64;
                    assert!(
                        above
                            .clone_file(FILE.as_ref(), copy.as_ref(), length)
                            .unwrap()
                    );
                    copies.push((copy, model.clone()));
                }
                10 => {
                    let most = length.min(model.len().saturating_sub(offset));
                    let bytes = file.read_vec_at(offset as u64, length).unwrap();
                    assert_eq!(bytes.len(), most, "seed {seed}");
                    assert_eq!(
                        bytes,
                        model[model.len().min(offset)..model.len().min(offset) + most]
                    );
                }
                _ => {}
            }
            assert!(content(&*file) == model, "seed {seed}, round {round}");
        }
        for (copy, expected) in copies {
            let file = above.open(copy.as_ref(), OpenOptions::READ).unwrap();
            assert!(content(&*file) == expected, "seed {seed}, {copy}");
        }
        assert_eq!(names(&*above, "folder"), ["log"]);
    }
}

fn written(above: &dyn FileSystem, bytes: usize) -> Arc<dyn File> {
    let file = above.open(FILE.as_ref(), OpenOptions::CREATE).unwrap();
    let content: Vec<u8> = (0..bytes)
        .map(|place| (place / 100 % 250) as u8 + 1)
        .collect();
    file.write_at(&content, 0).unwrap();
    file
}

#[test]
fn a_hole_removes_segments_and_a_cut_does() {
    let (below, above) = both();
    let file = written(&*above, 30_000);
    let all = ["log", "log.1000", "log.3000", "log.5000", "log.7000"];
    assert_eq!(names(&*below, "folder"), all);
    file.punch_hole(4096, 14_000).unwrap();
    assert_eq!(
        names(&*below, "folder"),
        ["log", "log.3000", "log.5000", "log.7000"]
    );
    assert_eq!(content(&*file)[4096..18_096], [0; 14_000]);
    file.set_length(20_000).unwrap();
    assert_eq!(
        names(&*below, "folder"),
        ["log", "log.3000", "log.5000", "log.7000"]
    );
    let found = above.metadata(FILE.as_ref()).unwrap().unwrap();
    assert_eq!(found.length, 20_000);
    assert!(found.allocated < 20_000, "{}", found.allocated);
}

/// Neither appending nor writing anew changes what another store has, nor does a hole.
#[test]
fn shared_segments_stay_as_they_are() {
    let (below, above) = both();
    let file = written(&*above, 20_480);
    let expected = content(&*file);
    // The file system of the suite shares blocks; a link is what is to be tried.
    let row = Row::of(&below, FILE.as_ref(), (SEGMENT, None)).unwrap();
    assert!(!row.share_with("other/log".as_ref(), 20_480, false).unwrap());
    row.is_written
        .store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(row.share_with("other/log".as_ref(), 20_480, false).unwrap());
    drop(file);
    let file = above.open(FILE.as_ref(), OpenOptions::WRITE).unwrap();
    assert!(file.shared_until(9_000) > 9_000);
    file.allocate(20_480, 100).unwrap();
    file.write_at(&[7; 100], 20_480).unwrap();
    assert!(file.shared_until(20_480) == 20_480);
    assert_eq!(names(&*below, "folder").last().unwrap(), "log.5000");
    file.punch_hole(4096, 6_000).unwrap();
    assert_eq!(content(&*file)[..20_480], expected, "it has no hole");
    file.write_at(&[8; 3], 9_000).unwrap();
    file.sync_data().unwrap();
    assert_eq!(content(&*file)[9_000..9_003], [8; 3]);
    let copy = above
        .open("other/log".as_ref(), OpenOptions::WRITE)
        .unwrap();
    assert_eq!(content(&*copy), expected);
    copy.set_length(10_000).unwrap();
    assert_eq!(content(&*file)[16_384..20_480], expected[16_384..]);
    drop(copy);
    above.remove("other/log".as_ref()).unwrap();
    file.punch_hole(16_384, 1_000).unwrap();
    assert!(
        content(&*file)[16_384..17_384] == [0; 1_000],
        "its own again"
    );
}

#[test]
fn a_file_is_made_anew_moved_and_removed_with_all_segments() {
    let (below, above) = both();
    let file = written(&*above, 30_000);
    let expected = content(&*file);
    above
        .rename(FILE.as_ref(), "folder/moved".as_ref())
        .unwrap();
    file.write_at(&[9; 9_000], 30_000).unwrap();
    assert!(
        names(&*below, "folder")
            .iter()
            .all(|name| name.starts_with("moved"))
    );
    let moved = above
        .open("folder/moved".as_ref(), OpenOptions::READ)
        .unwrap();
    assert_eq!(content(&*moved)[..30_000], expected);
    let options = OpenOptions {
        truncate: true,
        ..OpenOptions::CREATE
    };
    let anew = above.open("folder/moved".as_ref(), options).unwrap();
    assert_eq!(anew.length().unwrap(), 0);
    assert_eq!(names(&*below, "folder"), ["moved"]);
    drop(written(&*above, 30_000));
    below.remove(FILE.as_ref()).unwrap();
    assert_eq!(
        names(&*above, "folder"),
        ["log", "moved"],
        "segments are left"
    );
    above.remove(FILE.as_ref()).unwrap();
    assert_eq!(names(&*below, "folder"), ["moved"]);
    assert!(above.remove(FILE.as_ref()).is_err());
}

/// As another process that reads the file while it grows.
#[test]
fn a_reader_finds_segments_that_came_later() {
    let (below, above) = both();
    let file = written(&*above, 8_000);
    let other = SegmentedFileSystem::new(below, is_log, SEGMENT);
    let reader = other.open(FILE.as_ref(), OpenOptions::READ).unwrap();
    file.write_at(&[5; 20_000], 8_000).unwrap();
    assert_eq!(reader.read_vec_at(16_000, 9_000).unwrap(), [5; 9_000]);
    assert_eq!(content(&*reader), content(&*file));
}

#[test]
fn queues_read_across_segments() {
    let (_, above) = both();
    let file = written(&*above, 30_000);
    let expected = content(&*file);
    let requests = (0..290u64).map(|tag| ReadRequest {
        file: file.clone(),
        offset: tag * 100,
        buffer: AlignedBuffer::new(1_000, 8),
        tag,
    });
    let mut answered = 0;
    let read = read_all_kept(&above, BatchOptions::default(), requests, |completion| {
        let offset = completion.tag as usize * 100;
        assert_eq!(completion.result?, 1_000);
        assert_eq!(completion.buffer[..], expected[offset..offset + 1_000]);
        answered += 1;
        Ok(())
    });
    read.unwrap();
    assert_eq!(answered, 290);
}

#[test]
fn names_of_other_files_are_their_own() {
    for name in [
        "log",
        "000001.forest",
        "log.",
        "log.0",
        "log.08",
        "log.2000g",
        "log.FF",
    ] {
        assert_eq!(file_of(name), name);
    }
    for name in ["log.2000", "log.2000.own", "log.own", "log.ff"] {
        assert_eq!(file_of(name), "log");
    }
}

/// A segment that the file gets a copy of is another file for a process that has it open.
#[test]
fn a_reader_finds_what_is_appended_behind_a_segment_that_was_shared() {
    let (below, above) = both();
    let file = written(&*above, 9_216);
    let row = Row::of(&below, FILE.as_ref(), (SEGMENT, None)).unwrap();
    row.is_written
        .store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(row.share_with("other/log".as_ref(), 9_216, false).unwrap());
    drop(file);
    let other = SegmentedFileSystem::new(below.clone(), is_log, SEGMENT);
    let reader = other.open(FILE.as_ref(), OpenOptions::READ).unwrap();
    let expected = content(&*reader);
    // As a recovery that wipes the rest of a block and goes on behind it.
    let file = above.open(FILE.as_ref(), OpenOptions::WRITE).unwrap();
    file.write_at(&[0; 200], 9_016).unwrap();
    file.set_length(9_216).unwrap();
    file.write_at(&[6; 100], 9_216).unwrap();
    assert_eq!(reader.read_vec_at(9_216, 100).unwrap(), [6; 100]);
    assert_eq!(content(&*reader)[..9_016], expected[..9_016]);
    let copy = above.open("other/log".as_ref(), OpenOptions::READ).unwrap();
    assert_eq!(content(&*copy), expected);
}

#[test]
fn a_rename_that_was_interrupted_can_be_repeated() {
    let (below, above) = both();
    let expected = content(&*written(&*above, 30_000));
    let moved = Path::new("folder/moved");
    for start in [0x1000, 0x3000] {
        let (from, to) = (
            segment_path(FILE.as_ref(), start),
            segment_path(moved, start),
        );
        below.rename(&from, &to).unwrap();
    }
    above.rename(FILE.as_ref(), moved).unwrap();
    let file = above.open(moved, OpenOptions::READ).unwrap();
    assert_eq!(content(&*file), expected);
    assert_eq!(names(&*above, "folder"), ["moved"]);
}

/// A direct write goes up to the end of a segment and on in the next, whatever length segments
/// have.
#[test]
fn direct_writes_cross_segments_of_any_length() {
    for segment_bytes in [11_696_042, 1_000_001, 5_000] {
        let below = Environment::memory().file_system;
        below.create_directory("folder".as_ref()).unwrap();
        let above = SegmentedFileSystem::new(below.clone(), is_log, segment_bytes);
        let file = above
            .open(FILE.as_ref(), OpenOptions::CREATE.direct())
            .unwrap();
        let mut bytes = AlignedBuffer::new(64 << 10, 4096);
        bytes.fill(7);
        for offset in 0..6 {
            file.write_at(&bytes, offset * (64 << 10)).unwrap();
        }
        assert!(names(&*below, "folder").len() > 1);
        let plain = above.open(FILE.as_ref(), OpenOptions::READ).unwrap();
        assert!(content(&*plain).iter().all(|&byte| byte == 7));
    }
}

/// The last segment is longer than segments are to be, and damage cut it within a block.
#[test]
fn direct_writes_go_on_behind_a_cut() {
    let (below, above) = both();
    let file = below.open(FILE.as_ref(), OpenOptions::CREATE).unwrap();
    file.write_at(&[7; 20_000], 0).unwrap();
    let file = above.open(FILE.as_ref(), OpenOptions::CREATE.direct());
    let mut bytes = AlignedBuffer::new(16 << 10, 4096);
    bytes.fill(8);
    file.unwrap().write_at(&bytes, 16 << 10).unwrap();
    let plain = above.open(FILE.as_ref(), OpenOptions::READ).unwrap();
    assert!(content(&*plain).ends_with(&bytes));
}

/// Between the choice of a segment and the write into it another thread begins the next one,
/// and a reader looks at their lengths; answers whether the write is read back.
fn a_late_write_is_seen(defect: Option<Defect>) -> bool {
    let below = Environment::memory().file_system;
    below.create_directory("folder".as_ref()).unwrap();
    let path = Path::new(FILE);
    let first = below.open(path, OpenOptions::CREATE).unwrap();
    let row = row::Row::of(&below, path, (SEGMENT, defect)).unwrap();
    let file = SegmentedFile::new(row, below, path, OpenOptions::CREATE, first).unwrap();
    file.write_at(&[1; 512], 0).unwrap();
    file.for_each_writable(1024, 512, |part, range| {
        file.write_at(&[2; 512], SEGMENT)?;
        file.read_vec_at(0, 512)?;
        part.write_at(&[7; 512], range.start)
    })
    .unwrap();
    file.read_vec_at(1024, 512).unwrap() == [7; 512]
}

#[test]
fn a_write_that_comes_after_the_next_segment_is_read_back() {
    assert!(a_late_write_is_seen(None));
    assert!(!a_late_write_is_seen(Some(Defect::LateWriteUnseen)));
}

/// Each writes its own places behind the end, in no order of both.
#[test]
fn what_two_threads_write_behind_the_end_is_read_back_at_once() {
    const PIECE: usize = 1024;
    const PIECES: usize = 64;
    for _ in 0..5_000 {
        let (_, above) = both();
        let file = above.open(FILE.as_ref(), OpenOptions::CREATE).unwrap();
        let write = |first: usize| {
            for place in (first..PIECES).step_by(2) {
                let (piece, offset) = ([7; PIECE], (place * PIECE) as u64);
                match offset % 3 {
                    0 => file.write_at(&piece, offset),
                    1 => file.write_vectored_at(&[&piece[..5], &piece[5..]], offset),
                    _ => file.write_synced_at(&[&piece], offset),
                }
                .unwrap();
                assert_eq!(file.read_vec_at(offset, PIECE).unwrap(), piece);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| write(1));
            write(0);
        });
    }
}

#[test]
fn a_cut_into_an_earlier_segment_leaves_the_length_that_was_asked_for() {
    let (_, above) = both();
    let file = above.open(FILE.as_ref(), OpenOptions::CREATE).unwrap();
    // The second piece begins a segment of its own; the first one ends before it.
    file.write_at(&[1; 1024], 0).unwrap();
    file.write_at(&[2; 1024], 4 * SEGMENT).unwrap();
    let length = 3 * SEGMENT;
    file.set_length(length).unwrap();
    assert_eq!(file.length().unwrap(), length);
    assert_eq!(content(&*file)[1024..], vec![0; length as usize - 1024]);
}

/// A cut leaves an empty segment; what grows again up to there goes on in it, wherever the
/// write begins.
#[test]
fn nothing_is_written_past_the_start_of_an_empty_segment() {
    let (below, above) = both();
    let file = above.open(FILE.as_ref(), OpenOptions::CREATE).unwrap();
    file.write_at(&[1; 1024], 0).unwrap();
    file.write_at(&[2; 1024], 2 * SEGMENT).unwrap();
    // An odd length, and so long that smaller segments would end before it.
    let cut = SEGMENT + 100;
    file.set_length(cut).unwrap();
    drop(file);
    let smaller = SegmentedFileSystem::new(below, is_log, SEGMENT / 2);
    let file = smaller.open(FILE.as_ref(), OpenOptions::WRITE).unwrap();
    file.write_at(&[3; 2 * SEGMENT as usize], cut).unwrap();
    let end = cut + 2 * SEGMENT;
    file.write_at(&[4; 512], end.next_multiple_of(512)).unwrap();
    let bytes = content(&*file);
    let (from, to) = (cut as usize, end as usize);
    assert!(bytes[from..to].iter().all(|&byte| byte == 3));
}

#[test]
fn a_file_that_is_made_longer_goes_on_in_an_empty_segment() {
    let (_, above) = both();
    let file = above.open(FILE.as_ref(), OpenOptions::CREATE).unwrap();
    file.write_at(&[1; 1024], 0).unwrap();
    file.write_at(&[2; 1024], 2 * SEGMENT).unwrap();
    file.set_length(1024).unwrap();
    let length = 3 * SEGMENT;
    file.set_length(length).unwrap();
    file.write_at(&[3; 512], 2 * SEGMENT + 512).unwrap();
    file.write_at(&[4; 512], length).unwrap();
    let bytes = content(&*file);
    let at = 2 * SEGMENT as usize + 512;
    assert_eq!(bytes[at..at + 512], [3; 512]);
}
