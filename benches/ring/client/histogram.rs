//! Histograms of request latencies: buckets grow with the value, so that a reading is off by at most 1.6 %.

const SUB_BUCKET_BITS: u32 = 6;
const SUB_BUCKETS: usize = 1 << SUB_BUCKET_BITS;

/// Counts of durations, in nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    longest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; SUB_BUCKETS * (65 - SUB_BUCKET_BITS as usize)], count: 0, longest: 0 }
    }
}

impl Histogram {
    /// Counts `count` requests that took `nanoseconds` each.
    pub fn add(&mut self, nanoseconds: u64, count: u64) {
        self.buckets[bucket_of(nanoseconds)] += count;
        self.count += count;
        self.longest = self.longest.max(nanoseconds);
    }

    /// Adds the counts of another histogram.
    pub fn add_all(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, others)| *own += others);
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
    }

    /// How many requests were counted.
    #[cfg(test)]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The microseconds within which this share of all requests was answered; `None` without requests.
    pub fn microseconds_at(&self, share: f64) -> Option<f64> {
        let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Some(upper_end(bucket).min(self.longest) as f64 / 1000.0);
            }
        }
        None
    }
}

/// The bucket of a value: 64 for every power of two, and below 64 one for each value.
fn bucket_of(value: u64) -> usize {
    if value < SUB_BUCKETS as u64 {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - SUB_BUCKET_BITS;
    (shift as usize + 1) * SUB_BUCKETS + ((value >> shift) as usize - SUB_BUCKETS)
}

fn upper_end(bucket: usize) -> u64 {
    if bucket < SUB_BUCKETS {
        return bucket as u64;
    }
    let shift = (bucket / SUB_BUCKETS - 1) as u32;
    let start = (SUB_BUCKETS + bucket % SUB_BUCKETS) as u64;
    (start << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_values_within_two_percent() {
        for value in (0..100_000).chain([1 << 20, (1 << 33) + 12_345, u64::MAX / 3, u64::MAX]) {
            let end = upper_end(bucket_of(value));
            assert!(end >= value && (end - value) as f64 <= value as f64 / 60.0, "{value} under {end}");
        }
    }

    #[test]
    fn shares_are_those_of_the_sorted_durations() {
        let seed = 11;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut duration = || {
            let power = random.u32(10..30);
            1_000 + random.u64(..1 << power)
        };
        let mut all: Vec<u64> = (0..50_000).map(|_| duration()).collect();
        let mut histogram = Histogram::default();
        all.iter().for_each(|&duration| histogram.add(duration, 1));
        all.sort_unstable();
        for share in [0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = all[((all.len() as f64 * share).ceil() as usize).max(1) - 1] as f64 / 1000.0;
            let read = histogram.microseconds_at(share).unwrap();
            assert!(read >= exact && read <= exact * 1.017, "seed {seed}, {share}: {read} for {exact}");
        }
        assert_eq!(histogram.microseconds_at(1.0), Some(all[all.len() - 1] as f64 / 1000.0));
    }

    #[test]
    fn requests_of_a_batch_count_one_by_one() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.microseconds_at(0.5), None);
        histogram.add(1_000, 99);
        histogram.add(9_000_000, 1);
        assert_eq!(histogram.count(), 100);
        assert!(histogram.microseconds_at(0.99).unwrap() < 1.1);
        assert_eq!(histogram.microseconds_at(0.999), Some(9_000.0));
    }
}
