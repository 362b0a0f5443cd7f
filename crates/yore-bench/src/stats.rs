//! The few statistics that reports need. All of them take samples in any order; none is defined for NaN.

/// The middle of `values`; of an even number of them the mean of the middle two; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (n, middle) if n % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// The smallest; 0 of none.
pub fn lowest(values: &[f64]) -> f64 {
    values.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0)
}

/// The largest; 0 of none.
pub fn highest(values: &[f64]) -> f64 {
    values.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0)
}

/// The smallest value that at least the share `quantile` (0 to 1) of `sorted` does not exceed; 0 of none.
/// `sorted` ascends.
pub fn percentile(sorted: &[u64], quantile: f64) -> u64 {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0)
}

/// How many times as good `mine` is as `theirs`, round by round: the median of the rounds' ratios, above 1
/// for better. The figures of one round were measured minutes apart at most, whereas ratios of medians would
/// mix the machine's moods. Rounds that one side lacks, or in which a figure is 0, are left out; `None` if no
/// round is left.
pub fn paired_ratio(mine: &[f64], theirs: &[f64], higher_is_better: bool) -> Option<f64> {
    let ratios: Vec<f64> = mine
        .iter()
        .zip(theirs)
        .filter(|(mine, theirs)| **mine > 0.0 && **theirs > 0.0)
        .map(|(mine, theirs)| if higher_is_better { mine / theirs } else { theirs / mine })
        .collect();
    (!ratios.is_empty()).then(|| median(&ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Odd, even and no samples.
    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
        assert_eq!((lowest(&[2.0, 1.0]), highest(&[2.0, 1.0])), (1.0, 2.0));
    }

    /// The nearest rank: of 1,000 samples the 99.9th percentile is the 999th.
    #[test]
    fn percentiles() {
        let samples: Vec<u64> = (1..=1000).collect();
        assert_eq!(percentile(&samples, 0.5), 500);
        assert_eq!(percentile(&samples, 0.999), 999);
        assert_eq!(percentile(&samples, 1.0), 1000);
        assert_eq!(percentile(&[7], 0.5), 7);
        assert_eq!(percentile(&[], 0.5), 0);
    }

    /// A ratio is above 1 for the better one, whichever way the figure counts, and pairs rounds.
    #[test]
    fn ratios() {
        assert_eq!(paired_ratio(&[10.0, 40.0, 90.0], &[5.0, 10.0, 30.0], true), Some(3.0));
        assert_eq!(paired_ratio(&[1.0], &[4.0], false), Some(4.0));
        assert_eq!(paired_ratio(&[1.0], &[0.0], true), None);
        assert_eq!(paired_ratio(&[], &[], true), None);
    }
}
