//! Sizes and modes, as people write them on the command line.

/// Reads a size: `10G`, `1.5T`, `512MiB`, `4096`. Units are powers of 1024.
///
/// # Errors
/// A message for people.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text:?} is no size; write bytes, or a number with K, M, G, T or P, as 10G or 1.5T");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = value * (1u64 << shift) as f64;
    // With fractions, only sizes far below the limits of both types make sense.
    if !bytes.is_finite() || bytes >= (1u64 << 62) as f64 {
        return Err(wrong());
    }
    Ok(bytes as u64)
}

/// Reads octal permissions.
///
/// # Errors
/// A message for people.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("{text:?} is no mode; write it in octal, as 755")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that sizes are understood as people write them, and nonsense refused.
    #[test]
    fn sizes() {
        assert_eq!(parse_size("10G"), Ok(10 << 30));
        assert_eq!(parse_size("1.5k"), Ok(1536));
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert_eq!(parse_size("512 MB"), Ok(512 << 20));
        assert_eq!(parse_size("4096"), Ok(4096));
        for wrong in ["", "G", "10X", "-1", "1e9", "99999999999P", "1.2.3G", "banana"] {
            assert!(parse_size(wrong).is_err(), "{wrong:?}");
        }
    }
}
