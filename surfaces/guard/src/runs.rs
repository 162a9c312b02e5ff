//! Sets of runs of a file's bytes.

/// Runs, ascending, apart from each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Runs(Vec<(u64, u64)>);

impl Runs {
    /// Adds `[at, at + len)`.
    pub(crate) fn add(&mut self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (mut start, mut end) = (at, at.saturating_add(len));
        // Those that touch it lie side by side.
        let first = self.0.partition_point(|(from, len)| from + len < start);
        let last = self.0.partition_point(|(from, _)| *from <= end);
        if let Some((from, _)) = self.0.get(first).filter(|_| first < last) {
            start = start.min(*from);
        }
        if let Some((from, len)) = last.checked_sub(1).and_then(|l| self.0.get(l))
            && first < last
        {
            end = end.max(from + len);
        }
        self.0.splice(first..last, [(start, end - start)]);
    }

    /// Takes `[at, at + len)` out; tells what was there.
    pub(crate) fn cut(&mut self, at: u64, len: u64) -> Vec<(u64, u64)> {
        let end = at.saturating_add(len);
        let mut out = Vec::new();
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for (from, len) in self.0.drain(..) {
            let to = from + len;
            let (start, stop) = (from.max(at), to.min(end));
            if start >= stop {
                left.push((from, len));
                continue;
            }
            out.push((start, stop - start));
            if from < start {
                left.push((from, start - from));
            }
            if stop < to {
                left.push((stop, to - stop));
            }
        }
        self.0 = left;
        out
    }

    /// What lies in `[at, at + len)`.
    pub(crate) fn inside(&self, at: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
        let end = at.saturating_add(len);
        self.0.iter().filter_map(move |(from, len)| {
            let (start, stop) = ((*from).max(at), (from + len).min(end));
            (start < stop).then(|| (start, stop - start))
        })
    }

    /// Whether anything lies there.
    pub(crate) fn touch(&self, at: u64, len: u64) -> bool {
        self.inside(at, len).next().is_some()
    }

    /// Whether all of `[at, at + len)` is in it.
    pub(crate) fn cover(&self, at: u64, len: u64) -> bool {
        self.inside(at, len).map(|(_, len)| len).sum::<u64>() == len
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().copied()
    }

    /// Bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, len)| len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_and_part() {
        let mut runs = Runs::default();
        for (at, len) in [(10, 5), (20, 5), (15, 5), (40, 1), (0, 0)] {
            runs.add(at, len);
        }
        assert_eq!(runs.0, [(10, 15), (40, 1)]);
        assert_eq!(runs.cut(12, 3), [(12, 3)]);
        assert_eq!(runs.0, [(10, 2), (15, 10), (40, 1)]);
        assert!(runs.touch(11, 1) && !runs.touch(12, 3));
        assert!(runs.cover(16, 9) && !runs.cover(14, 2) && !runs.cover(30, 1));
        assert_eq!(runs.inside(11, 100).collect::<Vec<_>>(), [(11, 1), (15, 10), (40, 1)]);
        runs.add(0, 100);
        assert_eq!((runs.0.as_slice(), runs.bytes()), (&[(0, 100)][..], 100));
        runs.add(90, 5);
        assert_eq!(runs.iter().count(), 1);
        assert_eq!(runs.cut(0, u64::MAX), [(0, 100)]);
        assert_eq!(runs.bytes(), 0);
    }
}
