//! Numbers as Redis reads and writes them.

use std::fmt;

/// An integer in the one form that Redis takes: no sign but a minus, no leading zeros, no
/// blanks.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut number: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    match negative {
        true if number <= 1 << 63 => Some((number as i64).wrapping_neg()),
        true => None,
        false => i64::try_from(number).ok(),
    }
}

/// Appends an integer in decimal digits.
pub fn push_integer(out: &mut Vec<u8>, number: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Digits behind the point that Redis writes of a sum of floats.
const FRACTION_DIGITS: usize = 17;
/// Digits before the point, as many as Redis' long doubles have.
const MOST_WHOLE_DIGITS: usize = 4932;
/// Longest text of a number, as in Redis.
const MOST_TEXT_BYTES: usize = 5 * 1024;

/// A decimal number with 17 digits behind the point. Redis has long doubles, of which about
/// 19 digits are exact. All digits of these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    /// The number times 10^17: its digits, the last one first.
    digits: Vec<u8>,
}

impl Decimal {
    /// A number as Redis reads one, in decimal digits: no blanks, not `nan`. Digits beyond the
    /// 17th behind the point round it.
    pub fn parse(text: &[u8]) -> Option<Decimal> {
        let text = std::str::from_utf8(text).ok()?;
        let is_negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        if ["inf", "infinity"]
            .iter()
            .any(|it| unsigned.eq_ignore_ascii_case(it))
        {
            let digits = vec![9; MOST_WHOLE_DIGITS + FRACTION_DIGITS + 1];
            return Some(Decimal {
                is_negative,
                digits,
            });
        }
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_number = text.len() <= MOST_TEXT_BYTES
            && exponent.unsigned_abs() as usize <= MOST_WHOLE_DIGITS + FRACTION_DIGITS
            && mantissa.len() > usize::from(mantissa.contains('.'));
        if !is_number {
            return None;
        }
        let mut digits = Vec::with_capacity(mantissa.len());
        for digit in whole.bytes().chain(fraction.bytes()) {
            digits.push(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
        }
        // Digits behind the last one that counts, or zeros that are missing before it.
        let behind = fraction.len() as i32 - exponent - FRACTION_DIGITS as i32;
        digits.reverse();
        let mut rounds_up = false;
        if behind > 0 {
            let behind = behind as usize;
            rounds_up = digits.get(behind - 1).is_some_and(|digit| *digit >= 5);
            digits.drain(..behind.min(digits.len()));
        } else {
            digits.splice(..0, std::iter::repeat_n(0, behind.unsigned_abs() as usize));
        }
        let number = Decimal {
            is_negative,
            digits,
        };
        let unit = Decimal {
            is_negative,
            digits: vec![u8::from(rounds_up)],
        };
        let number = number.plus(&unit);
        number.is_finite().then_some(number)
    }

    /// The sum, or `None` if it is infinite or no number.
    pub fn checked_add(&self, other: &Decimal) -> Option<Decimal> {
        let sum = self.plus(other);
        (self.is_finite() && other.is_finite() && sum.is_finite()).then_some(sum)
    }

    /// False for `inf`, and for what is larger than Redis' numbers.
    pub fn is_finite(&self) -> bool {
        self.digits.len() <= MOST_WHOLE_DIGITS + FRACTION_DIGITS
    }

    fn plus(&self, other: &Decimal) -> Decimal {
        let digit = |number: &Decimal, place: usize| {
            let digit = number.digits.get(place).map_or(0, |digit| *digit as i8);
            if number.is_negative { -digit } else { digit }
        };
        let places = 0..self.digits.len().max(other.digits.len());
        let sums: Vec<i8> = places
            .map(|at| digit(self, at) + digit(other, at))
            .collect();
        // The first one outweighs all behind it.
        let is_negative = sums
            .iter()
            .rfind(|sum| **sum != 0)
            .is_some_and(|sum| *sum < 0);
        let (mut digits, mut carry) = (Vec::with_capacity(sums.len() + 1), 0);
        for sum in sums.into_iter().chain([0]) {
            let sum = carry + if is_negative { -sum } else { sum };
            digits.push(sum.rem_euclid(10) as u8);
            carry = sum.div_euclid(10);
        }
        let length = digits
            .iter()
            .rposition(|digit| *digit != 0)
            .map_or(0, |at| at + 1);
        digits.truncate(length);
        Decimal {
            is_negative,
            digits,
        }
    }
}

impl fmt::Display for Decimal {
    /// As Redis writes it, without zeros at the end.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = self.digits.clone();
        digits.resize(digits.len().max(FRACTION_DIGITS + 1), 0);
        let (fraction, whole) = digits.split_at(FRACTION_DIGITS);
        let text = |digits: &[u8]| -> String {
            digits
                .iter()
                .rev()
                .map(|digit| char::from(b'0' + digit))
                .collect()
        };
        let sign = if self.is_negative { "-" } else { "" };
        let fraction = text(fraction);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        write!(out, "{sign}{}{point}{fraction}", text(whole))
    }
}

/// A float as Redis reads one: no blanks, not `nan`.
pub fn parse_float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: f64 = text.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_form() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            let mut text = Vec::new();
            push_integer(&mut text, number);
            assert_eq!(text, number.to_string().as_bytes());
            assert_eq!(parse_integer(&text), Some(number));
        }
        for text in [
            "",
            "-",
            "-0",
            "01",
            "+1",
            " 1",
            "1 ",
            "9223372036854775808",
            "1.0",
            "-9223372036854775809",
            "99999999999999999999",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn sums_of_decimals_have_no_binary_noise() {
        for (left, right, sum) in [
            ("1", "-1.1", "-0.1"),
            ("3", "1.1", "4.1"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("17179869184", "17179869184", "34359738368"),
            ("0.1", "-0.1", "0"),
            ("-0", "-0", "0"),
            ("1e-17", "0", "0.00000000000000001"),
            ("0.999999999999999995", "-4e-18", "1"),
            ("-5e-18", "1e-4900", "-0.00000000000000001"),
            ("+5.", "-.5", "4.5"),
            ("123456789012345678901", "1.5", "123456789012345678902.5"),
            ("-100000000000000000000.1", "99999999999999999999", "-1.1"),
            ("1e30", "1", "1000000000000000000000000000001"),
            ("1e308", "1e308", &format!("2{}", "0".repeat(308))),
            ("9e4931", "-9e4931", "0"),
        ] {
            let add = |left: &str, right: &str| {
                let left = Decimal::parse(left.as_bytes()).unwrap();
                let sum = left.checked_add(&Decimal::parse(right.as_bytes()).unwrap());
                sum.map(|sum| sum.to_string())
            };
            assert_eq!(add(left, right).as_deref(), Some(sum), "{left} + {right}");
            assert_eq!(add(right, left).as_deref(), Some(sum), "{right} + {left}");
        }
    }

    #[test]
    fn sums_that_are_no_number_and_texts_that_are_none() {
        let parse = |text: &str| Decimal::parse(text.as_bytes());
        for (left, right) in [("inf", "-Infinity"), ("+INF", "1"), ("9e4931", "1e4931")] {
            let sum = parse(left).unwrap().checked_add(&parse(right).unwrap());
            assert_eq!(sum, None, "{left} + {right}");
        }
        for text in [
            "",
            "-",
            ".",
            "e5",
            "x",
            " 1",
            "1 ",
            "1e",
            "1e5.5",
            "--1",
            "+-1",
            "nan",
            "1_0",
            "0x10",
            "1e4932",
            "1e5000",
            "1e-5000",
            "1e99999999999",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"1".repeat(MOST_TEXT_BYTES + 1)), None);
    }
}
