//! The functions that all structures offer, once.

/// Gives a structure the functions of a map. `$new` takes what creation needs besides the
/// transaction; `core` is the field that does the work.
macro_rules! common_functions {
    ($name:ident, $header:ty) => {
        impl $name {
            /// The structure whose header is at `header`.
            ///
            /// # Errors
            /// See the type.
            pub fn open<T: Transaction>(tx: &T, header: Ptr<$header>) -> Result<Self> {
                Ok(Self { core: OpenHeader::open_header(tx, header)? })
            }

            /// Where the header is: what to store to find the structure again.
            #[must_use]
            pub fn pointer(&self) -> Ptr<$header> {
                Core::anchor(&self.core).typed()
            }

            /// Lends the value of `key` to `use_it`; `None` if there is no such key. Allocates
            /// nothing for entries of up to 512 bytes.
            ///
            /// # Errors
            /// See the type.
            #[inline]
            pub fn get_with<T: Transaction, R>(
                &self,
                tx: &T,
                key: &[u8],
                use_it: impl FnOnce(&[u8]) -> R,
            ) -> Result<Option<R>> {
                let mut hit = Hit::new();
                let found = self.core.find(tx, key, &mut hit)?;
                if found { hit.lend(tx, use_it).map(Some) } else { Ok(None) }
            }

            /// Puts the value of `key` into `into`, in place of what was there; `false` if there
            /// is no such key.
            ///
            /// # Errors
            /// See the type.
            pub fn get_into<T: Transaction>(
                &self,
                tx: &T,
                key: &[u8],
                into: &mut Vec<u8>,
            ) -> Result<bool> {
                let mut hit = Hit::new();
                let found = self.core.find(tx, key, &mut hit)?;
                if found { hit.copy_to(tx, into).map(|()| true) } else { Ok(false) }
            }

            /// The value of `key`.
            ///
            /// # Errors
            /// See the type.
            pub fn get<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<Option<Vec<u8>>> {
                let mut value = Vec::new();
                Ok(self.get_into(tx, key, &mut value)?.then_some(value))
            }

            /// Whether there is a value for `key`.
            ///
            /// # Errors
            /// See the type.
            pub fn contains<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<bool> {
                self.core.find(tx, key, &mut Hit::new())
            }

            /// Gives `key` a value; returns whether it had one. A value of the same length is
            /// changed in place.
            ///
            /// # Errors
            /// See the type.
            pub fn put<T: Transaction>(&self, tx: &T, key: &[u8], value: &[u8]) -> Result<bool> {
                self.core.put_and_keep(tx, key, value, None)
            }

            /// Gives `key` a value; returns the one it had.
            ///
            /// # Errors
            /// See the type.
            pub fn replace<T: Transaction>(
                &self,
                tx: &T,
                key: &[u8],
                value: &[u8],
            ) -> Result<Option<Vec<u8>>> {
                let mut old = Vec::new();
                let had = self.core.put_and_keep(tx, key, value, Some(&mut old))?;
                Ok(had.then_some(old))
            }

            /// Removes `key`; returns whether it was there.
            ///
            /// # Errors
            /// See the type.
            pub fn remove<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<bool> {
                self.core.remove_and_keep(tx, key, None)
            }

            /// Removes `key`; returns the value it had.
            ///
            /// # Errors
            /// See the type.
            pub fn take<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<Option<Vec<u8>>> {
                let mut old = Vec::new();
                let had = self.core.remove_and_keep(tx, key, Some(&mut old))?;
                Ok(had.then_some(old))
            }

            /// Number of entries. There is no counter, which every insertion would have to
            /// change: all buckets are read, about one for 20 entries.
            ///
            /// # Errors
            /// See the type.
            pub fn len<T: Transaction>(&self, tx: &T) -> Result<u64> {
                self.core.count(tx)
            }

            /// Whether there is no entry. Stops at the first one.
            ///
            /// # Errors
            /// See the type.
            pub fn is_empty<T: Transaction>(&self, tx: &T) -> Result<bool> {
                self.core.has_none(tx)
            }

            /// Calls `visit` with the key and value of every entry, in order if the structure has
            /// one. `visit` must not change the structure; to do that, go on with
            /// [`next_after`](Self::next_after).
            ///
            /// # Errors
            /// `Cancelled` if `visit` changed what it was being shown; see the type; and whatever
            /// `visit` returns.
            pub fn for_each<T: Transaction>(
                &self,
                tx: &T,
                visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
            ) -> Result<()> {
                walk(&self.core, tx, (Bound::Unbounded, Bound::Unbounded), Way::ALL, visit)
                    .map(drop)
            }

            /// The key and value that come next after `after`, whether that is there or not; the
            /// first ones if it is `None`. Whoever goes on with the key that was returned, in
            /// this transaction or another, whatever changes between, sees every entry that is
            /// there all the time exactly once.
            ///
            /// # Errors
            /// See the type.
            pub fn next_after<T: Transaction>(
                &self,
                tx: &T,
                after: Option<&[u8]>,
            ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                one(&self.core, tx, from, false)
            }

            /// As [`for_each`](Self::for_each), for the entries that come next after `after`, in
            /// the order of [`next_after`](Self::next_after).
            ///
            /// # Errors
            /// See the type, and whatever `visit` returns.
            pub fn for_each_after<T: Transaction>(
                &self,
                tx: &T,
                after: Option<&[u8]>,
                visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
            ) -> Result<()> {
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                walk(&self.core, tx, (from, Bound::Unbounded), Way::ALL, visit).map(drop)
            }

            /// Up to `limit` keys that come next after `after`, in the order of
            /// [`next_after`](Self::next_after). No value is read, so keys of up to eight bytes
            /// are told whatever became of their values.
            ///
            /// # Errors
            /// See the type.
            pub fn keys_after<T: Transaction>(
                &self,
                tx: &T,
                after: Option<&[u8]>,
                limit: usize,
            ) -> Result<Vec<Vec<u8>>> {
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                keys(&self.core, tx, from, limit)
            }

            /// Puts entries from an iterator whose keys rise, in few changes per entry; returns
            /// how many. For ordered structures this is the way to fill them: their buckets are
            /// left full where the shape of the keys permits it.
            ///
            /// # Errors
            /// `Cancelled` if a key does not rise; see the type. Entries before it were put.
            pub fn load<T: Transaction, K: AsRef<[u8]>, V: AsRef<[u8]>>(
                &self,
                tx: &T,
                entries: impl IntoIterator<Item = (K, V)>,
            ) -> Result<u64> {
                load(&self.core, tx, entries)
            }

            /// Removes all entries.
            ///
            /// # Errors
            /// See the type.
            pub fn clear<T: Transaction>(&self, tx: &T) -> Result<()> {
                tx.whole(|| self.core.empty_out(tx))
            }

            /// Frees the structure with everything in it. Its pointer dangles afterwards.
            ///
            /// # Errors
            /// See the type.
            pub fn destroy<T: Transaction>(self, tx: &T) -> Result<()> {
                tx.whole(|| self.core.demolish(tx))
            }

            /// Checks the structure: that every key is found where it is looked for, that no key
            /// is there twice, that no object is reached twice, and what else its kind promises.
            /// Damage beyond repair is a finding, not an error.
            ///
            /// # Errors
            /// Only those that may pass when the transaction runs again.
            pub fn check<T: Transaction>(&self, tx: &T) -> Result<CheckReport> {
                self.core.check_all(tx)
            }
        }
    };
}

/// Gives a structure in order of keys the functions that need one.
macro_rules! ordered_functions {
    ($name:ident) => {
        impl $name {
            /// Creates an empty one.
            ///
            /// # Errors
            /// See the type.
            pub fn create<T: Transaction>(tx: &T) -> Result<Self> {
                Ok(Self { core: OpenHeader::create_header(tx)? })
            }

            /// Visits up to `limit` entries with keys in `range`, in order of keys; returns how
            /// many. To go on, perhaps in another transaction, start after the last key seen
            /// (`(Bound::Excluded(key), Bound::Unbounded)`). As in [`for_each`](Self::for_each),
            /// `visit` must not change the structure.
            ///
            /// # Errors
            /// See the type, and whatever `visit` returns.
            pub fn scan<T: Transaction>(
                &self,
                tx: &T,
                range: impl RangeBounds<[u8]>,
                limit: usize,
                visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
            ) -> Result<usize> {
                let (from, to) = (range.start_bound(), range.end_bound());
                walk(&self.core, tx, (from, to), Way { limit, back: false }, visit)
            }

            /// As [`scan`](Self::scan), from the end of the range back.
            ///
            /// # Errors
            /// See the type, and whatever `visit` returns.
            pub fn scan_back<T: Transaction>(
                &self,
                tx: &T,
                range: impl RangeBounds<[u8]>,
                limit: usize,
                visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
            ) -> Result<usize> {
                let (from, to) = (range.end_bound(), range.start_bound());
                walk(&self.core, tx, (from, to), Way { limit, back: true }, visit)
            }

            /// The first entry.
            ///
            /// # Errors
            /// See the type.
            pub fn first<T: Transaction>(&self, tx: &T) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
                one(&self.core, tx, Bound::Unbounded, false)
            }

            /// The last entry.
            ///
            /// # Errors
            /// See the type.
            pub fn last<T: Transaction>(&self, tx: &T) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
                one(&self.core, tx, Bound::Unbounded, true)
            }
        }
    };
}

pub(crate) use {common_functions, ordered_functions};
