//! The words of a command line, without some options, as a command that people can type.

use std::ffi::OsString;

/// The words but for options with a value and flags.
pub(crate) fn without(words: Vec<OsString>, options: &[&str], flags: &[&str]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let (head, value) = match text.split_once('=') {
            Some((head, value)) => (head, Some(value)),
            None => (&*text, None),
        };
        if options.contains(&head) {
            if value.is_none() {
                words.next();
            }
        } else if !flags.contains(&head) {
            kept.push(word);
        }
    }
    kept
}

pub(crate) fn quoted(words: &[OsString]) -> String {
    let quoted = |word: &OsString| {
        let text = word.to_string_lossy().into_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/%+".contains(c);
        match !text.is_empty() && text.chars().all(plain) {
            true => text,
            false => format!("'{}'", text.replace('\'', "'\\''")),
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// The command that this process was started with, without what says where results go.
pub(crate) fn command(flags: &[&str]) -> String {
    const PLACES: [&str; 6] = [
        "--dir",
        "--json",
        "--html",
        "--markdown",
        "--svg",
        "--update",
    ];
    let with_values: Vec<&str> = PLACES
        .into_iter()
        .filter(|it| !flags.contains(it))
        .collect();
    let typed = without(std::env::args_os().skip(1).collect(), &with_values, flags);
    format!("kvzone {}", quoted(&typed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_with_their_values_and_words_are_quoted() {
        let words = ["a", "--x", "1", "--y=2", "--flag", "it's", ""];
        let words = words.map(OsString::from).to_vec();
        let kept = without(words, &["--x", "--y"], &["--flag"]);
        assert_eq!(quoted(&kept), "a 'it'\\''s' ''");
    }
}
