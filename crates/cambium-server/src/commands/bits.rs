//! Strings as arrays of bits.

use super::strings::{check_length, part};
use super::{Call, Command, FAST, Failure, Outcome, READ, SYNTAX, WRITE};

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "getbit", arity: 3, flags: READ | FAST, keys: (1, 1, 1), run: getbit, summary: "Returns the bit value at offset in the string value stored at key" },
    Command { name: "setbit", arity: 4, flags: WRITE, keys: (1, 1, 1), run: setbit, summary: "Sets or clears the bit at offset in the string value stored at key" },
    Command { name: "bitcount", arity: -2, flags: READ, keys: (1, 1, 1), run: bitcount, summary: "Count set bits in a string" },
];

fn offset(call: &Call<'_>) -> Outcome<u64> {
    let error = || Failure::Known("ERR bit offset is not an integer or out of range");
    let offset = call.integer(2).map_err(|_| error())?;
    let offset = u64::try_from(offset).map_err(|_| error())?;
    match offset >> 3 < call.server.settings.argument_bytes() as u64 {
        true => Ok(offset),
        false => Err(error()),
    }
}

fn mask(offset: u64) -> u8 {
    0x80 >> (offset & 7)
}

fn getbit(call: &mut Call<'_>) -> Outcome {
    let offset = offset(call)?;
    let entry = call.read_string(call.argument(1))?;
    let byte = entry.and_then(|entry| entry.body.get((offset >> 3) as usize).copied());
    call.reply()
        .truth(byte.is_some_and(|byte| byte & mask(offset) != 0));
    Ok(())
}

fn setbit(call: &mut Call<'_>) -> Outcome {
    let offset = offset(call)?;
    let bit = match call.argument(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(Failure::Known("ERR bit is not an integer or out of range")),
    };
    let key = call.argument(1);
    let old = call.find_string(key)?;
    let mut value = old.as_ref().map_or_else(Vec::new, |old| old.body.to_vec());
    let place = (offset >> 3) as usize;
    check_length(call, place as u64 + 1)?;
    let grows = value.len() <= place;
    if grows {
        value.resize(place + 1, 0);
    }
    let before = value[place] & mask(offset) != 0;
    call.reply().truth(before);
    if before == bit && !grows {
        // As in Redis 7.0, this is no change: no event, and EXEC of a watcher runs.
        return Ok(());
    }
    match bit {
        true => value[place] |= mask(offset),
        false => value[place] &= !mask(offset),
    }
    call.change_string(key, old.as_ref(), &value, "setbit")
}

fn bitcount(call: &mut Call<'_>) -> Outcome {
    let Some(entry) = call.read_string(call.argument(1))? else {
        // Redis does not read the options of a key that is not there.
        call.reply().integer(0);
        return Ok(());
    };
    let value = &entry.body[..];
    let (start, end) = match call.count() {
        2 => (0, -1),
        4 | 5 => (call.integer(2)?, call.integer(3)?),
        _ => return Err(SYNTAX),
    };
    let in_bits = match call.count() {
        5 if call.is(4, "bit") => true,
        5 if !call.is(4, "byte") => return Err(SYNTAX),
        _ => false,
    };
    let ones = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| i64::from(byte.count_ones()))
            .sum::<i64>()
    };
    let count = if in_bits {
        let bits = part(value.len() * 8, start, end);
        let bytes = &value[bits.start / 8..bits.end.div_ceil(8)];
        let before = bytes
            .first()
            .map_or(0, |byte| (byte & !(0xff >> (bits.start % 8))).count_ones());
        let behind = match bits.end % 8 {
            0 => 0,
            kept => bytes
                .last()
                .map_or(0, |byte| (byte & (0xff >> kept)).count_ones()),
        };
        if bits.is_empty() {
            0
        } else {
            ones(bytes) - i64::from(before) - i64::from(behind)
        }
    } else {
        ones(&value[part(value.len(), start, end)])
    };
    call.reply().integer(count);
    Ok(())
}
