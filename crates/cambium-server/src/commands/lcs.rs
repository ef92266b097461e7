//! The longest common subsequence of two strings.

use super::{Call, Command, Failure, Outcome, READ, SYNTAX};

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "lcs", arity: -3, flags: READ, keys: (1, 2, 1), run: lcs, summary: "Find longest common substring" },
];

/// Cells of the table of lengths: 256 MiB.
const MOST_CELLS: usize = 64 << 20;

#[derive(Default)]
struct Options {
    with_length: bool,
    with_places: bool,
    with_match_lengths: bool,
    least: i64,
}

fn options(call: &Call<'_>) -> Outcome<Options> {
    let mut options = Options::default();
    let mut place = 3;
    while place < call.count() {
        if call.is(place, "len") {
            options.with_length = true;
        } else if call.is(place, "idx") {
            options.with_places = true;
        } else if call.is(place, "withmatchlen") {
            options.with_match_lengths = true;
        } else if call.is(place, "minmatchlen") && place + 1 < call.count() {
            options.least = call.integer(place + 1)?.max(0);
            place += 1;
        } else {
            return Err(SYNTAX);
        }
        place += 1;
    }
    if options.with_length && options.with_places {
        return Err(Failure::Known(
            "ERR If you want both the length and indexes, please just use IDX.",
        ));
    }
    Ok(options)
}

/// Parts of both strings that are the same: first and last place of each.
type Match = [(usize, usize); 2];

fn lcs(call: &mut Call<'_>) -> Outcome {
    let mismatch = Failure::Known("ERR The specified keys must contain string values");
    let (Ok(left), Ok(right)) = (
        call.read_string(call.argument(1)),
        call.read_string(call.argument(2)),
    ) else {
        return Err(mismatch);
    };
    let options = options(call)?;
    let left = left.as_ref().map_or(&b""[..], |entry| &entry.body);
    let right = right.as_ref().map_or(&b""[..], |entry| &entry.body);
    let lengths = lengths(left, right)?;
    let (common, matches) = walk_back(left, right, &lengths);
    let reply = call.reply();
    if options.with_length {
        reply.integer(common.len() as i64);
        return Ok(());
    }
    if !options.with_places {
        reply.bulk(common);
        return Ok(());
    }
    let length = |found: &Match| (found[0].1 - found[0].0 + 1) as i64;
    let shown: Vec<&Match> = matches
        .iter()
        .filter(|found| length(found) >= options.least)
        .collect();
    reply.map(2);
    reply.bulk("matches");
    reply.array(shown.len());
    for found in shown {
        reply.array(2 + usize::from(options.with_match_lengths));
        for (from, to) in found {
            reply.array(2);
            reply.integer(*from as i64);
            reply.integer(*to as i64);
        }
        if options.with_match_lengths {
            reply.integer(length(found));
        }
    }
    reply.bulk("len");
    reply.integer(common.len() as i64);
    Ok(())
}

/// Length of the longest common subsequence of each pair of prefixes, row by row.
fn lengths(left: &[u8], right: &[u8]) -> Outcome<Vec<u32>> {
    let width = right.len() + 1;
    let cells = width
        .checked_mul(left.len() + 1)
        .filter(|cells| *cells <= MOST_CELLS);
    let cells = cells.ok_or(Failure::Known(
        "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
    ))?;
    let mut lengths = vec![0; cells];
    for (row, a) in left.iter().enumerate() {
        for (column, b) in right.iter().enumerate() {
            let at = (row + 1) * width + column + 1;
            lengths[at] = match a == b {
                true => lengths[at - width - 1] + 1,
                false => lengths[at - width].max(lengths[at - 1]),
            };
        }
    }
    Ok(lengths)
}

/// The subsequence, and where it lies in both, from the back.
fn walk_back(left: &[u8], right: &[u8], lengths: &[u32]) -> (Vec<u8>, Vec<Match>) {
    let width = right.len() + 1;
    let (mut row, mut column) = (left.len(), right.len());
    let mut common = Vec::new();
    let mut matches: Vec<Match> = Vec::new();
    let mut under_way: Option<Match> = None;
    while row > 0 && column > 0 {
        if left[row - 1] == right[column - 1] {
            (row, column) = (row - 1, column - 1);
            common.push(left[row]);
            under_way = Some(match under_way {
                Some([(_, left_to), (_, right_to)]) => [(row, left_to), (column, right_to)],
                None => [(row, row), (column, column)],
            });
        } else {
            matches.extend(under_way.take());
            match lengths[(row - 1) * width + column] > lengths[row * width + column - 1] {
                true => row -= 1,
                false => column -= 1,
            }
        }
    }
    matches.extend(under_way);
    common.reverse();
    (common, matches)
}
