//! Keys made to the sizes of the data sets of ForestDB 2016, table 3. The data
//! themselves were never published, but for one that is a crawl of its own: so
//! these are likenesses, of keys that such data have, with the published mean
//! lengths of keys and documents and the published number of documents.
//!
//! | set | key | bytes | document |
//! |---|---|---:|---:|
//! | `profile` | `user::profile::` and a number of 18 digits | 33 | 230 |
//! | `playlist` | `playlist::owner::` and a number of 22 digits | 39 | 1,008 |
//! | `history` | `history::` and a number of 20 digits | 29 | 2,772 |
//! | `status` | 13 letters and digits, `@` and a domain | 23 | 21 |
//! | `url` | a page of a host in its folder; some 925 pages a host | 111 | 1,024 |
//!
//! Numbers are dense, as numbers given out by a service are. The 13 letters are a
//! random number in base 36, different for each key.

use crate::job::SizeChoice;
use crate::random::{Random, mix, mix_two, unmix};

crate::named! {
    pub enum DataSet {
        /// User profiles by user.
        Profile = "profile",
        /// Playlists by their number.
        Playlist = "playlist",
        /// The actions of users.
        History = "history",
        /// How users are, by e-mail address.
        Status = "status",
        /// Pages of a crawl.
        Url = "url",
    }
}

/// Pages of a host: 105,896,555 pages on 114,529 hosts.
const PAGES_OF_A_HOST: u64 = 925;

/// Folders of a host.
const FOLDERS: u64 = 12;

/// Digits of a 64-bit number in base 36.
const LETTERS: usize = 13;

const DOMAINS: [&str; 4] = ["mail.test", "tunes.net", "post.home", "inbox.org"];

impl DataSet {
    pub fn documents(self) -> u64 {
        match self {
            DataSet::Profile => 4_839_099,
            DataSet::Playlist => 592_935,
            DataSet::History => 1_694_980,
            DataSet::Status => 1_125_352,
            DataSet::Url => 105_896_555,
        }
    }

    /// Mean bytes of a document in the paper.
    pub fn document_bytes(self) -> u64 {
        match self {
            DataSet::Profile => 230,
            DataSet::Playlist => 1_008,
            DataSet::History => 2_772,
            DataSet::Status => 21,
            DataSet::Url => 1_024,
        }
    }

    pub(super) fn key_sizes(self) -> SizeChoice {
        match self {
            DataSet::Profile => SizeChoice::Fixed(33),
            DataSet::Playlist => SizeChoice::Fixed(39),
            DataSet::History => SizeChoice::Fixed(29),
            DataSet::Status => SizeChoice::Fixed(23),
            DataSet::Url => SizeChoice::Uniform(81, 141),
        }
    }

    /// The words before a number, and its digits.
    fn numbered(self) -> Option<(&'static str, usize)> {
        match self {
            DataSet::Profile => Some(("user::profile::", 18)),
            DataSet::Playlist => Some(("playlist::owner::", 22)),
            DataSet::History => Some(("history::", 20)),
            DataSet::Status | DataSet::Url => None,
        }
    }

    pub(super) fn append(self, seed: u64, number: u64, key: &mut Vec<u8>) {
        match (self, self.numbered()) {
            (_, Some((words, digits))) => {
                key.extend_from_slice(words.as_bytes());
                key.extend_from_slice(format!("{number:0digits$}").as_bytes());
            }
            (DataSet::Status, _) => {
                append_letters(key, mix(number.wrapping_add(seed)));
                key.push(b'@');
                let domain = DOMAINS[(mix_two(seed, number) % DOMAINS.len() as u64) as usize];
                key.extend_from_slice(domain.as_bytes());
            }
            _ => append_url(seed, number, key),
        }
    }

    pub(super) fn number_of(self, seed: u64, key: &[u8]) -> Option<u64> {
        if let Some((words, _)) = self.numbered() {
            let digits = key.strip_prefix(words.as_bytes())?;
            return std::str::from_utf8(digits).ok()?.parse().ok();
        }
        let letters = match self {
            DataSet::Url => {
                let end = key.strip_suffix(b".html")?;
                end.get(end.len().checked_sub(LETTERS)?..)?
            }
            _ => key.get(..LETTERS)?,
        };
        Some(unmix(letters_number(letters)?).wrapping_sub(seed))
    }
}

/// `http://www.HOST.co.uk/FOLDER.../PAGE.html`, grown to its size by the
/// folder's name.
fn append_url(seed: u64, number: u64, key: &mut Vec<u8>) {
    let start = key.len();
    let host = number / PAGES_OF_A_HOST;
    let mut random = Random::stream(seed, host);
    key.extend_from_slice(b"http://www.");
    let letters = 6 + random.below(9) as usize;
    append_words(key, &mut random, letters);
    key.extend_from_slice(b".co.uk/");
    let end = b"-0000000000000.html".len();
    let folder = mix_two(number, seed) % FOLDERS;
    // A host's folders have lengths of their own, and so all pages in one.
    let mut random = Random::stream(mix_two(seed, host), folder);
    let bytes = 81 + random.below(61) as usize;
    let room = bytes - end - (key.len() - start);
    append_words(key, &mut random, room);
    key.push(b'/');
    append_letters(key, mix(number.wrapping_add(seed)));
    key.extend_from_slice(b".html");
}

fn append_words(key: &mut Vec<u8>, random: &mut Random, bytes: usize) {
    key.extend((0..bytes).map(|_| b'a' + random.below(26) as u8));
}

fn append_letters(key: &mut Vec<u8>, mut number: u64) {
    let mut letters = [b'0'; LETTERS];
    for letter in letters.iter_mut().rev() {
        *letter = b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize];
        number /= 36;
    }
    key.extend_from_slice(&letters);
}

fn letters_number(letters: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(letters).ok()?, 36).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_patterns::{KeyPattern, Keys};

    #[test]
    fn keys_have_the_published_mean_length() {
        let published = [33.0, 39.0, 29.0, 23.0, 111.0];
        for (data, mean) in DataSet::ALL.into_iter().zip(published) {
            let keys = Keys::new(KeyPattern::Published(data), 5);
            let bytes: usize = (0..100_000).map(|number| keys.key(number).len()).sum();
            let found = bytes as f64 / 100_000.0;
            assert!((found / mean - 1.0).abs() < 0.02, "{data:?}: {found}");
            assert!((data.key_sizes().mean() / mean - 1.0).abs() < 0.01);
        }
    }

    #[test]
    fn pages_of_a_host_share_it() {
        let keys = Keys::new(KeyPattern::Published(DataSet::Url), 5);
        let host = |number| {
            let key = String::from_utf8(keys.key(number)).unwrap_or_default();
            key.split('/').nth(2).unwrap_or_default().to_string()
        };
        assert_eq!(host(0), host(924));
        assert_ne!(host(0), host(925));
        assert!(host(0).ends_with(".co.uk"), "{}", host(0));
    }
}
