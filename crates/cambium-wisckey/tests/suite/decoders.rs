//! Bytes that no store wrote: decoders of pointers, inline values, notes and roots
//! answer or refuse, and what they accept means one thing.

use cambium_io::simulated::Generator;
use cambium_testkit::mutation::{mutated, random};
use cambium_wisckey::format::{
    Root, SegmentKind, Stored, ValuePointer, encode_inline, segment_number, segment_path,
};
use cambium_wisckey::note::{self, Head, NoteItem, SegmentNote, Traffic};

fn sample_note() -> Vec<u8> {
    note::encode(&[
        NoteItem::Head(Head {
            sequence: 1 << 40,
            segment: 7,
            offset: 4096,
            session: 3,
        }),
        NoteItem::NextFile(9),
        NoteItem::Segment(SegmentNote {
            number: 6,
            kind: SegmentKind::Moved,
            value_bytes: 70_000,
            end: 81_920,
            last: 0,
        }),
        NoteItem::Garbage {
            segment: 5,
            bytes: 12_345,
        },
        NoteItem::Dropped(4),
        NoteItem::Traffic(Traffic::default()),
    ])
}

/// What is stored under a key, encoded again.
fn encoded(stored: &Stored<'_>) -> Vec<u8> {
    match stored {
        Stored::Pointer(pointer) => pointer.encode().to_vec(),
        Stored::Inline(value) => {
            let mut bytes = Vec::new();
            encode_inline(value, &mut bytes);
            bytes
        }
    }
}

#[test]
fn what_is_accepted_of_mutated_bytes_reads_back() {
    let pointer = ValuePointer {
        segment: 7,
        offset: 1 << 33,
        value_bytes: 4096,
        header_bytes: 18,
    };
    let samples = [
        pointer.encode().to_vec(),
        encoded(&Stored::Inline(b"a value of some bytes")),
        sample_note(),
        Root::default().encode().to_vec(),
    ];
    let mut generator = Generator::new(11);
    let mut accepted = [0; 3];
    for round in 0..300_000usize {
        let bytes = match round % 5 {
            4 => random(&mut generator, 120),
            sample => mutated(&mut generator, &samples[sample]),
        };
        if let Some(stored) = Stored::decode(&bytes) {
            assert_eq!(encoded(&stored), bytes);
            accepted[0] += 1;
        }
        if let Some(items) = note::decode(&bytes) {
            assert_eq!(note::decode(&note::encode(&items)), Some(items));
            accepted[1] += 1;
        }
        if let Some(root) = Root::decode(&bytes) {
            assert_eq!(Root::decode(&root.encode()), Some(root));
            accepted[2] += 1;
        }
    }
    assert!(accepted.iter().all(|&count| count > 100), "{accepted:?}");
}

#[test]
fn names_that_are_taken_for_segments_are_those_that_segments_get() {
    let mut generator = Generator::new(12);
    let mut taken = 0;
    for round in 0..100_000u32 {
        let path = segment_path("".as_ref(), round.wrapping_mul(0x9e37_79b1));
        let name = mutated(&mut generator, path.to_string_lossy().as_bytes());
        let name = String::from_utf8_lossy(&name);
        if let Some(number) = segment_number(&name) {
            assert_eq!(segment_path("".as_ref(), number).to_string_lossy(), name);
            taken += 1;
        }
    }
    assert!(taken > 100, "{taken}");
}
