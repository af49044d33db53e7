//! Planted bugs: mistakes that tables could have, switched on one at a time to prove that the tests would see
//! them; and names that follow from a seed, so that a run of random tests can be had again. Without the
//! feature `planted` none of this is compiled in.

/// A mistake, by what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bug {
    /// A block that is given again counts again.
    RetriedBlockDoubled,
    /// A step is seen with the blocks that have come.
    HalfStepShown,
    /// An attempt that was superseded may still write.
    OldAttemptWrites,
    /// A new attempt goes on with the blocks that an old one left half a step with.
    ArrivingKept,
    /// What a new attempt takes the place of stays.
    SupersededShown,
    /// The last of the deletes that a piece has to heed is not heeded.
    TombstoneForgotten,
    /// A pack takes the deletes of all pieces with it.
    PackTakesTombstones,
    /// A pack says that it heeded deletes that came after it had read.
    PackOverlooksDelete,
    /// A pack becomes true though its input was superseded, deleted or packed by others.
    PackRevivesRows,
    /// A pack becomes true though its session has ended.
    FencedPackCommits,
    /// A delete strikes rows that become visible after it.
    DeleteReachesForward,
    /// A delete strikes rows that were loaded after it.
    DeleteReachesLoads,
    /// A load writes a step of which a rank's rows have come, or a later one's.
    LoadIgnoresArriving,
    /// A whole manifest is written without the deletes.
    WholeManifestForgets,
    /// Deletes of runs and steps are not judged on packed rows.
    OriginIgnored,
    /// What lies in a band is judged by its values alone, as if there were no nulls and no NaN.
    NullsPruned,
    /// A band of which some rows may answer is taken for one of which all do.
    PerhapsTakenForAlways,
    /// A band in which rows were struck is taken for one of which all rows are there.
    StruckTakenForCertain,
    /// The heaviest row that a version names of a part is left out.
    LastWeightLeftOut,
    /// A number of rows is counted before they are in order.
    LimitBeforeOrder,
    /// Only the sample key's first row of a unit is handed over before the next batch.
    UnitSplit,
    /// A handle answers from the last version that it knows.
    StaleState,
    /// Rows of a part that nobody opens are counted though they were struck.
    CountForgetsStruck,
    /// An older version is answered from the current one.
    PastReadsPresent,
    /// The cut of an answer is that of the whole query.
    CutTooHigh,
    /// A refinement skips a band when it goes on.
    BandSkipped,
    /// Opened parts are told apart by their number alone, whoever wrote them.
    PartsMixedUp,
    /// The box around the rows of an object ends before the last of them.
    BoxTooSmall,
    /// The weights of a sample key are computed without the salt of the table.
    KnownWeightUnsalted,
    /// Of the weights that are known the heaviest is forgotten.
    KnownWeightForgotten,
    /// Rows from before a column was there have zeros in it.
    MissingIsZero,
    /// An older version is asked with the columns that were added later.
    PastHasNewColumns,
    /// A whole manifest is written without the columns that were added.
    ColumnsForgotten,
    /// The outermost images of what is near a point are not looked at.
    ImageForgotten,
    /// Filters of cubes leave out the last row of an entity.
    FilterTooShort,
    /// New ids are not compared with those of steps that are arriving.
    RepeatsForgetArriving,
    /// New ids are refused for rows that were deleted.
    RepeatsCountStruck,
    /// New ids are refused for rows that their attempt supersedes.
    RepeatsCountSuperseded,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 38] = [
        Self::RetriedBlockDoubled,
        Self::HalfStepShown,
        Self::OldAttemptWrites,
        Self::ArrivingKept,
        Self::SupersededShown,
        Self::TombstoneForgotten,
        Self::PackTakesTombstones,
        Self::PackOverlooksDelete,
        Self::PackRevivesRows,
        Self::FencedPackCommits,
        Self::DeleteReachesForward,
        Self::DeleteReachesLoads,
        Self::LoadIgnoresArriving,
        Self::WholeManifestForgets,
        Self::OriginIgnored,
        Self::NullsPruned,
        Self::PerhapsTakenForAlways,
        Self::StruckTakenForCertain,
        Self::LastWeightLeftOut,
        Self::LimitBeforeOrder,
        Self::UnitSplit,
        Self::StaleState,
        Self::CountForgetsStruck,
        Self::PastReadsPresent,
        Self::CutTooHigh,
        Self::BandSkipped,
        Self::PartsMixedUp,
        Self::BoxTooSmall,
        Self::KnownWeightUnsalted,
        Self::KnownWeightForgotten,
        Self::FilterTooShort,
        Self::MissingIsZero,
        Self::PastHasNewColumns,
        Self::ColumnsForgotten,
        Self::RepeatsForgetArriving,
        Self::RepeatsCountStruck,
        Self::RepeatsCountSuperseded,
        Self::ImageForgotten,
    ];
}

#[cfg(feature = "planted")]
static PLANTED: std::sync::Mutex<Option<Bug>> = std::sync::Mutex::new(None);

/// Plants one bug, or none, for all tables of this process.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    *PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = bug;
}

/// Whether this bug is planted.
#[cfg(feature = "planted")]
pub(crate) fn is(bug: Bug) -> bool {
    *PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) == Some(bug)
}

/// Whether this bug is planted: never, in an ordinary build.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) const fn is(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
thread_local! {
    /// The seed from which this thread draws its names, and how many it drew.
    static NAMES: std::cell::Cell<Option<(u64, u64)>> = const { std::cell::Cell::new(None) };
}

/// Names of tables and sessions that this thread draws follow from a seed from now on.
#[cfg(feature = "planted")]
pub fn draw_names_from(seed: u64) {
    NAMES.set(Some((seed, 0)));
}

/// The next name that follows from this thread's seed; none if it has no seed.
#[cfg(feature = "planted")]
pub(crate) fn next_name() -> Option<u128> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let (seed, drawn) = NAMES.get()?;
    NAMES.set(Some((seed, drawn + 1)));
    let word = |half: u64| {
        let mut hasher = DefaultHasher::new();
        (seed, drawn, half).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    Some(word(0) << 64 | word(1))
}

/// The next name that follows from a seed: none, in an ordinary build.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) const fn next_name() -> Option<u128> {
    None
}
