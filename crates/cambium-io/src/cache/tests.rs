//! The bound, scans, threads: what the cache promises.

use super::*;

fn block(byte: u8) -> Block {
    vec![byte; 4096].into()
}

#[test]
fn files_share_one_bound() {
    let cache = BlockCache::new(1 << 20);
    let files = [cache.file(), cache.file()];
    for place in 0..1_000 {
        for (file, byte) in files.iter().zip([1, 2]) {
            file.put(place, &block(byte));
            assert!(cache.bytes() <= 1 << 20, "{}", cache.bytes());
        }
    }
    assert!(cache.bytes() > 1 << 19, "{}", cache.bytes());
    for (file, byte) in files.iter().zip([1, 2]) {
        let mut found = 0;
        for place in 0..1_000 {
            if let Some(block) = file.get(place) {
                assert_eq!(block[0], byte);
                found += 1;
            }
        }
        assert_eq!(file.hits_and_misses(), (found, 1_000 - found));
    }
}

#[test]
fn a_file_that_is_dropped_leaves_nothing() {
    let cache = BlockCache::new(1 << 20);
    let (one, other) = (cache.file(), cache.file());
    one.put(1, &block(1));
    other.put(1, &block(2));
    let both = cache.bytes();
    drop(one);
    assert_eq!(cache.bytes(), both / 2);
    assert!(other.get(1).is_some());
    other.remove(1);
    assert_eq!((other.get(1), cache.bytes()), (None, 0));
}

#[test]
fn blocks_asked_for_again_outlast_a_scan() {
    let cache = BlockCache::new(1 << 20);
    let file = cache.file();
    for place in 0..50 {
        file.put(place, &block(0));
    }
    for _ in 0..3 {
        for place in 0..50 {
            _ = file.get(place);
        }
    }
    for place in 1_000..11_000 {
        file.put(place, &block(1));
    }
    let left = (0..50).filter(|&place| file.get(place).is_some()).count();
    assert!(left > 40, "{left} of 50 are left");
}

#[test]
fn threads_that_read_write_and_remove_see_their_own_bytes() {
    let cache = BlockCache::new(256 << 10);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let file = cache.file();
            scope.spawn(move || {
                let mut random = thread + 1;
                for _ in 0..20_000 {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let place = (random >> 33) % 100;
                    match random >> 60 {
                        0 => _ = file.remove(place),
                        1..=5 => file.put(place, &block(place as u8)),
                        _ => {
                            let byte = file.with(place, |block| block[7]);
                            assert!(byte.is_none_or(|byte| byte == place as u8));
                        }
                    }
                }
            });
        }
    });
    assert!(cache.bytes() <= 256 << 10);
    assert_eq!(cache.bytes(), 0, "every file is gone");
    assert_eq!(cache.kept_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_block_of_any_size_keeps_the_bound() {
    let cache = BlockCache::new(100_000);
    let file = cache.file();
    for place in 0..2_000 {
        let size = [64, 4_096, 30_000, 99_000, 200_000][place as usize % 5];
        file.put(place, &vec![1; size].into());
        _ = file.get(place / 2);
        assert!(cache.bytes() <= 100_000, "{}", cache.bytes());
    }
    file.put(1 << PLACE_BITS, &block(1));
    assert_eq!(file.get(1 << PLACE_BITS), None, "it has no key");
}

#[test]
fn what_is_pushed_out_makes_room_for_others_once_nobody_looks_at_it() {
    let cache = BlockCache::new(128 << 10);
    let file = cache.file();
    let held = file.block_of(&[1; 4096]);
    file.put(0, &held);
    let other = file.block_of(&[2; 4096]);
    let memory = other.as_ptr();
    file.put(1, &other);
    drop(other);
    file.remove(0);
    file.remove(1);
    assert!(!std::ptr::eq(file.block_of(&[3; 100]).as_ptr(), memory));
    let again = file.block_of(&[4; 4096]);
    assert!(std::ptr::eq(again.as_ptr(), memory));
    assert_eq!(
        (again[..] == [4; 4096], held[..] == [1; 4096]),
        (true, true)
    );
    assert!(!std::ptr::eq(file.block_to_fill(4096).as_ptr(), memory));
    for place in 0..1_000 {
        file.put(place, &file.block_of(&[5; 4096]));
    }
    assert!(cache.spares().len() <= 2, "{}", cache.spares().len());
    let waiting = cache.spares().len();
    file.put(0, &vec![6; 30_000].into());
    file.remove(0);
    assert!(cache.spares().iter().all(|spare| spare.len() <= 4096));
    assert!(waiting > 0 && cache.spares().len() >= waiting);
}

#[test]
fn a_block_that_has_no_room_takes_the_place_of_the_one_before_it() {
    let cache = BlockCache::new(1 << 20);
    let file = cache.file();
    file.put(7, &block(1));
    let _reserved = cache.reserve(512 << 10).unwrap();
    let large: Block = vec![2; 768 << 10].into();
    file.put(7, &large);
    assert!(file.get(7).is_none(), "the older content is found");
}

#[test]
fn nothing_is_kept_by_a_cache_of_nothing() {
    let file = BlockCache::new(0).file();
    file.put(1, &block(1));
    assert_eq!(file.get(1), None);
    assert!(file.is_off());
}

#[test]
fn small_blocks_that_nobody_asks_for_any_more_give_way() {
    // The sets are full long before the bound is met.
    let cache = BlockCache::of_blocks(1 << 20, 1024);
    let file = cache.file();
    let block: Block = [7; 100][..].into();
    let hot = cache.sets().len() as u64 * WAYS as u64 * 3 / 4;
    let ask_for = |places: std::ops::Range<u64>| {
        let mut hits = 0;
        for place in places {
            match file.look(place).unwrap() {
                Ok(_) => hits += 1,
                Err(moment) => _ = file.offer_again(place, &block, moment),
            }
        }
        hits
    };
    for _ in 0..20 {
        ask_for(0..hot);
    }
    assert!(ask_for(0..hot) > hot * 3 / 4);
    for _ in 0..20 {
        ask_for(hot..2 * hot);
    }
    let hits = ask_for(hot..2 * hot);
    assert!(hits > hot * 3 / 4, "{hits} of {hot}");
    assert!(cache.bytes() < cache.capacity() / 2);
}

#[test]
fn there_is_room_until_a_set_is_full() {
    let cache = BlockCache::of_blocks(1 << 20, 1024);
    let file = cache.file();
    let block: Block = [7; 100][..].into();
    let refused = (0..100_000).find(|&place| {
        let has_room = file.has_room(place);
        file.put(place, &block);
        !has_room
    });
    assert!(refused.is_some_and(|place| place > 100), "{refused:?}");
}
