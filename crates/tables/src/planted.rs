//! Planted bugs: mistakes that tables could contain, switched on one at a time to prove that the tests detect
//! them. Also names derived from a seed, so that a randomized test run can be reproduced. None of this is
//! compiled in without the feature `planted`.

/// A planted mistake. Each variant describes the wrong behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bug {
    /// A block that is appended again counts twice.
    RetriedBlockDoubled,
    /// A step is visible before all of its blocks have arrived.
    HalfStepShown,
    /// A superseded attempt may still write.
    OldAttemptWrites,
    /// A new attempt keeps the blocks of incomplete steps that an earlier attempt left.
    ArrivingKept,
    /// Steps that a new attempt supersedes stay visible.
    SupersededShown,
    /// The oldest of the tombstones that apply to a piece is ignored.
    TombstoneForgotten,
    /// A pack drops the tombstones of all pieces.
    PackTakesTombstones,
    /// A pack claims to have applied deletes that came after it had read its inputs.
    PackOverlooksDelete,
    /// A pack commits although its input was superseded, deleted or packed by another packer.
    PackRevivesRows,
    /// A pack commits although its session has ended.
    FencedPackCommits,
    /// A delete strikes rows that become visible after it.
    DeleteReachesForward,
    /// A delete strikes rows that were loaded after it.
    DeleteReachesLoads,
    /// A load writes a step although some rank's rows of that step, or of a later one, have arrived.
    LoadIgnoresArriving,
    /// A whole manifest is written without the tombstones.
    WholeManifestForgets,
    /// Deletes of runs and steps are not applied to packed rows.
    OriginIgnored,
    /// A band is judged by its value range alone, as if it held no nulls and no NaN.
    NullsPruned,
    /// A band in which some rows may match is treated as one in which all do.
    PerhapsTakenForAlways,
    /// A band with struck rows is treated as one without.
    StruckTakenForCertain,
    /// The heaviest weight of a range that a version names is left out.
    LastWeightLeftOut,
    /// Rows are handed over, and counted towards a limit, before all lighter ones were read.
    LimitBeforeOrder,
    /// A batch may end in the middle of a unit.
    UnitSplit,
    /// A handle answers from the last version that it knows, without looking for a newer one.
    StaleState,
    /// A count that does not open a part includes its struck rows.
    CountForgetsStruck,
    /// A query of an older version is answered from the current one.
    PastReadsPresent,
    /// The cut of an answer is that of the whole query, however much of it was handed over.
    CutTooHigh,
    /// A refinement skips a band when it continues.
    BandSkipped,
    /// The cache of opened parts identifies them by number alone, ignoring who wrote them.
    PartsMixedUp,
    /// The bounding box of an object's rows ends before the last of them.
    BoxTooSmall,
    /// The weights of a sample key are computed without the salt of the table.
    KnownWeightUnsalted,
    /// The heaviest of the known weights of a query is left out.
    KnownWeightForgotten,
    /// Rows that are older than a column have zeros in it.
    MissingIsZero,
    /// A query of an older version sees columns that were added later.
    PastHasNewColumns,
    /// A whole manifest is written without the added columns.
    ColumnsForgotten,
    /// The outermost images of a point are not searched.
    ImageForgotten,
    /// Filters of cubes leave out the last row of an entity.
    FilterTooShort,
    /// New ids are not compared with those in arriving steps.
    RepeatsForgetArriving,
    /// New ids are refused because of rows that were deleted.
    RepeatsCountStruck,
    /// New ids are refused because of rows that their attempt supersedes.
    RepeatsCountSuperseded,
}

impl Bug {
    /// All variants.
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

/// Whether this bug is planted: never, without the feature.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) const fn is(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
thread_local! {
    /// The seed from which this thread derives its names, and how many it has derived.
    static NAMES: std::cell::Cell<Option<(u64, u64)>> = const { std::cell::Cell::new(None) };
}

/// From this call on, this thread derives the names of tables and sessions from `seed`.
#[cfg(feature = "planted")]
pub fn draw_names_from(seed: u64) {
    NAMES.set(Some((seed, 0)));
}

/// The next name derived from this thread's seed; `None` if it has no seed.
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

/// Always `None`, without the feature.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) const fn next_name() -> Option<u128> {
    None
}
