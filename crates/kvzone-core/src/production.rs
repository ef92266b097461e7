//! Sizes of Facebook's ETC pool of memcached, whose laws are computed: Atikoglu et al.,
//! "Workload Analysis of a Large-Scale Key-Value Store", SIGMETRICS 2012.

use crate::error::Result;
use crate::job::SizeChoice;
use crate::sizes::{Bar, Histogram, Pareto};

/// Shares in percent of the smallest values of ETC, of 0 to 14 bytes.
const SMALL_VALUES: [f64; 15] = [
    0.536, 0.047, 17.820, 9.239, 0.018, 2.740, 0.065, 0.606, 0.023, 0.837, 0.837, 8.989, 0.092,
    0.326, 1.980,
];

/// Equal parts into which a law is cut to make bars of it.
const PARTS: u32 = 400;

pub fn etc() -> Result<(SizeChoice, SizeChoice)> {
    let mut values: Vec<Bar> = SMALL_VALUES
        .iter()
        .zip(0_u64..)
        .map(|(&weight, size)| Bar {
            from: size,
            to: size,
            weight,
        })
        .collect();
    let small: f64 = SMALL_VALUES.iter().sum();
    let large = Pareto {
        location: 15.0,
        scale: 214.476,
        shape: 0.348_238,
        most: 1 << 20,
    };
    values.extend(large.bars(PARTS, 100.0 - small));
    let keys = Histogram::new(etc_keys())?;
    let values = Histogram::new(values)?;
    Ok((SizeChoice::Histogram(keys), SizeChoice::Histogram(values)))
}

/// The generalized extreme value law of ETC's keys, by its inverse.
fn etc_keys() -> Vec<Bar> {
    let (mu, sigma, k) = (30.7984_f64, 8.20449_f64, 0.078_688_f64);
    let size = |part: u32| {
        let share = (f64::from(part) + 0.5) / f64::from(PARTS);
        let bytes = mu + sigma * ((-share.ln()).powf(-k) - 1.0) / k;
        (bytes.round().max(16.0) as u64).min(250)
    };
    (0..PARTS)
        .map(|part| Bar {
            from: size(part),
            to: size(part),
            weight: 1.0,
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::workload;

    #[test]
    fn sizes_have_the_means_that_were_published() {
        let graph = workload::find("mixgraph").unwrap();
        assert!((graph.value.unwrap().mean() - 34.5).abs() < 0.5);
        let (keys, values) = etc().unwrap();
        // GEV: μ + σ(Γ(1-k) - 1)/k is 36.0 for ETC's keys.
        let keys = keys.mean();
        assert!((keys - 36.0).abs() < 0.6, "{keys}");
        let small: f64 = SMALL_VALUES.iter().sum();
        assert!(
            (small - 44.155).abs() < 0.01,
            "{small} %, as in section 5.2"
        );
        // 15 + σ/(1-k) for those that are not small.
        let values = values.mean();
        let expected = 0.558_45 * (15.0 + 214.476 / (1.0 - 0.348_238)) + 0.441_55 * 5.0;
        assert!((values - expected).abs() < 15.0, "{values}, {expected}");
    }

    #[test]
    fn every_size_can_be_drawn() {
        for workload in workload::all() {
            let sizes = [workload.key, workload.value, workload.scan];
            for choice in sizes.into_iter().flatten() {
                choice.check().unwrap();
            }
            let shortest = workload.key.map_or(16, SizeChoice::smallest);
            assert!(shortest >= 16, "{}", workload.name);
        }
    }
}
