//! Strings that are numbers.

use super::{Call, Command, FAST, Failure, NOT_A_FLOAT, NOT_AN_INTEGER, Outcome, WRITE};
use crate::resp::numbers::{Decimal, parse_integer};

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "incr", arity: 2, flags: WRITE | FAST, keys: (1, 1, 1), run: incr, summary: "Increment the integer value of a key by one" },
    Command { name: "decr", arity: 2, flags: WRITE | FAST, keys: (1, 1, 1), run: decr, summary: "Decrement the integer value of a key by one" },
    Command { name: "incrby", arity: 3, flags: WRITE | FAST, keys: (1, 1, 1), run: incrby, summary: "Increment the integer value of a key by the given amount" },
    Command { name: "decrby", arity: 3, flags: WRITE | FAST, keys: (1, 1, 1), run: decrby, summary: "Decrement the integer value of a key by the given number" },
    Command { name: "incrbyfloat", arity: 3, flags: WRITE | FAST, keys: (1, 1, 1), run: incrbyfloat, summary: "Increment the float value of a key by the given amount" },
];

fn incr(call: &mut Call<'_>) -> Outcome {
    add(call, 1)
}

fn decr(call: &mut Call<'_>) -> Outcome {
    add(call, -1)
}

fn incrby(call: &mut Call<'_>) -> Outcome {
    let amount = call.integer(2)?;
    add(call, amount)
}

fn decrby(call: &mut Call<'_>) -> Outcome {
    let amount = call.integer(2)?.checked_neg();
    add(
        call,
        amount.ok_or(Failure::Known("ERR decrement would overflow"))?,
    )
}

/// The sum of a stored integer and an amount, as both INCRBY and HINCRBY have it.
pub fn sum(old: Option<&[u8]>, amount: i64, not_a_number: Failure) -> Outcome<i64> {
    let number = match old {
        Some(old) => parse_integer(old).ok_or(not_a_number)?,
        None => 0,
    };
    let overflow = Failure::Known("ERR increment or decrement would overflow");
    number.checked_add(amount).ok_or(overflow)
}

/// The sum of a stored float and an amount, as both INCRBYFLOAT and HINCRBYFLOAT have it.
pub fn float_sum(old: Option<&[u8]>, amount: &[u8], not_a_number: Failure) -> Outcome<String> {
    let amount = Decimal::parse(amount).ok_or(NOT_A_FLOAT)?;
    let old = Decimal::parse(old.unwrap_or(b"0")).ok_or(not_a_number)?;
    let sum = old.checked_add(&amount).ok_or(Failure::Known(
        "ERR increment would produce NaN or Infinity",
    ))?;
    Ok(sum.to_string())
}

fn add(call: &mut Call<'_>, amount: i64) -> Outcome {
    let key = call.argument(1);
    let old = call.find_string(key)?;
    let number = sum(old.as_ref().map(|old| &*old.body), amount, NOT_AN_INTEGER)?;
    call.change_string(key, old.as_ref(), number.to_string().as_bytes(), "incrby")?;
    call.reply().integer(number);
    Ok(())
}

fn incrbyfloat(call: &mut Call<'_>) -> Outcome {
    let key = call.argument(1);
    let old = call.find_string(key)?;
    let number = float_sum(
        old.as_ref().map(|old| &*old.body),
        call.argument(2),
        NOT_A_FLOAT,
    )?;
    call.change_string(key, old.as_ref(), number.as_bytes(), "incrbyfloat")?;
    call.reply().bulk(number);
    Ok(())
}
