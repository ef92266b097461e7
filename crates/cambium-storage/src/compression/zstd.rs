//! Contexts of zstd, kept by each thread: one takes longer to make than a small value to
//! compress, and holds the tables of its dictionary.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use cambium_io::sync::with_taken;
use zstd::bulk::{Compressor, Decompressor};

use super::Dictionary;

/// Contexts of each kind that a thread keeps, for stores with dictionaries of their own.
const MOST_CONTEXTS: usize = 4;

/// A context, and the dictionary that was loaded into it.
struct Context<T> {
    dictionary: Option<Arc<[u8]>>,
    level: i32,
    context: T,
}

impl<T> Context<T> {
    fn is_of(&self, dictionary: Option<&Dictionary>, level: i32) -> bool {
        let same = match (&self.dictionary, dictionary) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, &other.bytes),
            _ => false,
        };
        same && self.level == level
    }
}

#[derive(Default)]
struct Contexts {
    compressors: Vec<Context<Compressor<'static>>>,
    decompressors: Vec<Context<Decompressor<'static>>>,
}

thread_local! {
    static CONTEXTS: RefCell<Contexts> = RefCell::new(Contexts::default());
}

/// The context of a dictionary, which is made if the thread has none; the one that was made
/// first gives way to a fifth.
fn context<'a, T>(
    contexts: &'a mut Vec<Context<T>>,
    dictionary: Option<&Dictionary>,
    level: i32,
    make: impl FnOnce(&[u8]) -> io::Result<T>,
) -> io::Result<&'a mut T> {
    let found = contexts.iter().position(|one| one.is_of(dictionary, level));
    let place = match found {
        Some(place) => place,
        None => {
            if contexts.len() == MOST_CONTEXTS {
                contexts.remove(0);
            }
            contexts.push(Context {
                dictionary: dictionary.map(|dictionary| dictionary.bytes.clone()),
                level,
                context: make(dictionary.map_or(&[][..], Dictionary::bytes))?,
            });
            contexts.len() - 1
        }
    };
    Ok(&mut contexts[place].context)
}

pub fn train(samples: &[u8], lengths: &[usize], most_bytes: usize) -> Option<Vec<u8>> {
    zstd::dict::from_continuous(samples, lengths, most_bytes).ok()
}

pub fn compress(
    dictionary: Option<&Dictionary>,
    level: i32,
    bytes: &[u8],
    packed: &mut [u8],
) -> Option<usize> {
    with_taken(&CONTEXTS, |contexts| {
        let compressor = context(&mut contexts.compressors, dictionary, level, |dictionary| {
            let mut made = Compressor::with_dictionary(level, dictionary)?;
            // The length stands before the frame, and the value says which dictionary.
            made.include_contentsize(false)?;
            made.include_dictid(false)?;
            Ok(made)
        });
        compressor.ok()?.compress_to_buffer(bytes, packed).ok()
    })
}

pub fn decompress(
    dictionary: Option<&Dictionary>,
    body: &[u8],
    into: &mut [u8],
) -> Result<usize, String> {
    let written = with_taken(&CONTEXTS, |contexts| {
        context(&mut contexts.decompressors, dictionary, 0, |dictionary| {
            Decompressor::with_dictionary(dictionary)
        })?
        .decompress_to_buffer(body, into)
    });
    written.map_err(|error| error.to_string())
}
