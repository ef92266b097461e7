//! Workloads of production systems, as their authors published them.
//!
//! Each gives a mix, the sizes of keys and values, and which keys are chosen.
//! What a paper does not give, or what is left out here, stands below; nothing
//! else is made up.
//!
//! | workload | source | left out or assumed |
//! |---|---|---|
//! | `mixgraph` | Cao, Dong, Vemuri, Du, "Characterizing, Modeling, and Benchmarking RocksDB Key-Value Workloads at Facebook", FAST 2020, and its parameters in RocksDB's benchmark of that name | hotness of ranges, and the day's wave of the rate; a scan visits at least one entry. Popularity F(x) = a·x^b with b = 0.3467 is the zipfian law with s = 1 - b |
//! | `etc` | Atikoglu, Xu, Frachtenberg, Jiang, Paleczny, "Workload Analysis of a Large-Scale Key-Value Store", SIGMETRICS 2012, tables 5 and section 5 | a get to set ratio of 30:1; popularity, for which the paper gives no law, is zipfian with s = 0.99; keys have at least 16 bytes |
//! | `twitter-N` | Yang, Yue, Rashmi, "A Large-Scale Analysis of Hundreds of In-Memory Key-Value Cache Clusters at Twitter", OSDI 2020, clusters of its public traces | sizes are the clusters' means; expiry |

use crate::error::Result;
use crate::job::{Popularity, SizeChoice};
use crate::sizes::{Bar, Histogram, Pareto};
use crate::workload::OperationKind::{self, Delete, Read, Scan, Update};
use crate::workload::{FillOrder, Sizes, Workload};

/// All of them.
pub const PRODUCTION: &[Workload] = &[
    Workload {
        name: "mixgraph",
        summary: "Facebook's ZippyDB: 83 % reads, 14 % updates, 3 % scans; keys of 48 bytes, values of 35 in the mean (Cao et al., FAST 2020)",
        sizes: Some(mixgraph),
        ..production(
            &[(Read, 83), (Update, 14), (Scan, 3)],
            Popularity::Zipfian(0.6533),
        )
    },
    Workload {
        name: "etc",
        summary: "Facebook's ETC pool of memcached: 30 reads for an update (Atikoglu et al., SIGMETRICS 2012)",
        sizes: Some(etc),
        ..production(&[(Read, 30), (Update, 1)], Popularity::Zipfian(0.99))
    },
    Workload {
        name: "twitter-4",
        summary: "Twitter, cluster 4: 93 % reads, values of 2.4 KB (Yang et al., OSDI 2020)",
        sizes: Some(|| fixed(67, 2_439)),
        ..production(&[(Read, 93), (Update, 7)], Popularity::Zipfian(1.10))
    },
    Workload {
        name: "twitter-8",
        summary: "Twitter, cluster 8: half reads, half updates, values of 9.5 KB",
        sizes: Some(|| fixed(23, 9_497)),
        ..production(&[(Read, 50), (Update, 50)], Popularity::Zipfian(1.74))
    },
    Workload {
        name: "twitter-12",
        summary: "Twitter, cluster 12: 80 % updates, values of 1 KB",
        sizes: Some(|| fixed(44, 1_030)),
        ..production(&[(Read, 20), (Update, 80)], Popularity::Zipfian(0.30))
    },
    Workload {
        name: "twitter-14",
        summary: "Twitter, cluster 14: 65 % reads, 22 % deletes, 13 % updates, values of 414 bytes",
        sizes: Some(|| fixed(96, 414)),
        ..production(
            &[(Read, 65), (Delete, 22), (Update, 13)],
            Popularity::Zipfian(1.30),
        )
    },
    Workload {
        name: "twitter-15",
        summary: "Twitter, cluster 15: updates alone, values of 102 bytes",
        sizes: Some(|| fixed(18, 102)),
        ..production(&[(Update, 100)], Popularity::Zipfian(0.02))
    },
    Workload {
        name: "twitter-19",
        summary: "Twitter, cluster 19: 75 % reads, values of 101 bytes",
        sizes: Some(|| fixed(42, 101)),
        ..production(&[(Read, 75), (Update, 25)], Popularity::Zipfian(0.735))
    },
    Workload {
        name: "twitter-24",
        summary: "Twitter, cluster 24: 99 % reads, values of 699 bytes",
        sizes: Some(|| fixed(32, 699)),
        ..production(&[(Read, 99), (Update, 1)], Popularity::Zipfian(1.37))
    },
    Workload {
        name: "twitter-25",
        summary: "Twitter, cluster 25: 95 % reads, values of 28 bytes",
        sizes: Some(|| fixed(49, 28)),
        ..production(&[(Read, 95), (Update, 5)], Popularity::Zipfian(0.99))
    },
    Workload {
        name: "twitter-29",
        summary: "Twitter, cluster 29: 86 % reads, values of 799 bytes",
        sizes: Some(|| fixed(36, 799)),
        ..production(&[(Read, 86), (Update, 14)], Popularity::Zipfian(1.23))
    },
    Workload {
        name: "twitter-31",
        summary: "Twitter, cluster 31: 94 % updates, values of 15 bytes",
        sizes: Some(|| fixed(41, 15)),
        ..production(&[(Read, 6), (Update, 94)], Popularity::Uniform)
    },
];

const fn production(mix: &'static [(OperationKind, u32)], popularity: Popularity) -> Workload {
    Workload {
        name: "",
        summary: "",
        fill: FillOrder::Random,
        mix,
        popularity,
        sizes: None,
        writers: 0,
    }
}

fn fixed(key: u64, value: u64) -> Result<Sizes> {
    Ok(Sizes {
        key: Some(SizeChoice::Fixed(key)),
        value: Some(SizeChoice::Fixed(value)),
        scan: None,
    })
}

fn mixgraph() -> Result<Sizes> {
    let pareto = |location, scale, shape, most| {
        SizeChoice::Pareto(Pareto {
            location,
            scale,
            shape,
            most,
        })
    };
    Ok(Sizes {
        key: Some(SizeChoice::Fixed(48)),
        value: Some(pareto(0.0, 25.45, 0.2615, 1_024)),
        scan: Some(pareto(1.0, 14.236, 2.517, 10_000)),
    })
}

/// Shares in percent of the smallest values of ETC, of 0 to 14 bytes.
const SMALL_VALUES: [f64; 15] = [
    0.536, 0.047, 17.820, 9.239, 0.018, 2.740, 0.065, 0.606, 0.023, 0.837, 0.837, 8.989, 0.092,
    0.326, 1.980,
];

/// Equal parts into which a law is cut to make bars of it.
const PARTS: u32 = 400;

fn etc() -> Result<Sizes> {
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
    Ok(Sizes {
        key: Some(SizeChoice::Histogram(Histogram::new(etc_keys())?)),
        value: Some(SizeChoice::Histogram(Histogram::new(values)?)),
        scan: None,
    })
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

    #[test]
    fn sizes_have_the_means_that_were_published() {
        let graph = mixgraph().unwrap();
        assert!((graph.value.unwrap().mean() - 34.5).abs() < 0.5);
        let pool = etc().unwrap();
        // GEV: μ + σ(Γ(1-k) - 1)/k is 36.0 for ETC's keys.
        let keys = pool.key.unwrap().mean();
        assert!((keys - 36.0).abs() < 0.6, "{keys}");
        let small: f64 = SMALL_VALUES.iter().sum();
        assert!(
            (small - 44.155).abs() < 0.01,
            "{small} %, as in section 5.2"
        );
        // 15 + σ/(1-k) for those that are not small.
        let values = pool.value.unwrap().mean();
        let expected = 0.558_45 * (15.0 + 214.476 / (1.0 - 0.348_238)) + 0.441_55 * 5.0;
        assert!((values - expected).abs() < 15.0, "{values}, {expected}");
    }

    #[test]
    fn every_source_can_be_drawn_from() {
        for workload in PRODUCTION {
            let sizes = workload.sizes.unwrap()().unwrap();
            for choice in [sizes.key, sizes.value, sizes.scan].into_iter().flatten() {
                choice.check().unwrap();
            }
            assert!(sizes.key.unwrap().smallest() >= 16, "{}", workload.name);
        }
    }
}
